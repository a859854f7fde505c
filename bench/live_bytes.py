#!/usr/bin/env python3
"""Holds the planner's memory against what real workers hold.

Ten layouts, all stages of ZeRO among them, train three steps; every worker counts the bytes of its live tensors
in its allocator (column tensor_bytes of run.db's table waits). What the planner says of the worker's stage must be
within 2 % without its assumed margin, and within 10 % with it. The table goes to docs/live-bytes.md.

    bench/live_bytes.py [--dtype bf16] [--out docs/live-bytes.md]

A minute or two on two idle cores.
"""
import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCKSTEP = os.path.join(ROOT, os.environ.get("LOCKSTEP_BUILD", "build/release"), "lockstep")
# By the planner's key; relative.
BOUNDS = {"tensors_bytes": 0.02, "total_bytes": 0.10}

RUN_FILE = f"""name = "live"
[model]
layers = 8
hidden = 256
ffn = 704
heads = 8
kv_heads = 4
vocab = 1024
[cluster]
preset = "local"
gpus = 1
[train]
sequence = 256
global_batch = 16
steps = 3
eval_sequences = 1
trace_steps = 0
[data]
text = "{ROOT}/data/sotu"
held_out = ["2016_barack_obama_d"]
"""

LAYOUTS = [
    dict(),
    dict(tp=2, pp=2, dp=2),
    dict(dp=4, zero=0),
    dict(dp=4, zero=1, optimizer="sgd"),
    dict(dp=4, zero=2, gradient_scatter="micro_batch"),
    dict(dp=4, zero=3, schedule="interleaved", virtual_stages=8, gradient_scatter="micro_batch"),
    dict(cp=2, dp=2, zero=2, recompute=["norm", "swiglu"]),
    dict(pp=4, schedule="zb-h1", layer_split="cost"),
    dict(tp=2, cp=2, pp=2, zero=3, schedule="interleaved", virtual_stages=2, recompute="full"),
    dict(pp=2, dp=2, replicas=4, tie_embeddings=True, zero=1),
]


def flags_of(layout, dtype):
    table = {"optimizer": "train", "tie_embeddings": "model"}
    workers = 1
    for axis in ("tp", "cp", "pp", "dp"):
        workers *= layout.get(axis, 1)
    pairs = [(f"{table.get(key, 'parallel')}.{key}", value) for key, value in layout.items()]
    pairs += [("cluster.gpus", workers), ("train.dtype", dtype)]
    return [word for key, value in pairs for word in ("--set", f"{key}={json.dumps(value)}")]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def stage_of(layout, rank):
    return rank // (layout.get("tp", 1) * layout.get("cp", 1)) % layout.get("pp", 1)


def worst_of(layout, dtype, run_file, folder):
    """Of the worker that differs most: rank, measured bytes, and by key of the plan bytes and difference."""
    flags = flags_of(layout, dtype)
    stages = run([LOCKSTEP, "plan", run_file, "--json", *flags])["memory"]["stages"]
    result = run([LOCKSTEP, "train", run_file, "--json", "--run-dir", folder, *flags])
    with sqlite3.connect(os.path.join(result["run_directory"], "run.db")) as db:
        # The first step also makes what stays.
        rows = db.execute("select rank, max(tensor_bytes) from waits where step > 1 group by rank").fetchall()
    shutil.rmtree(result["run_directory"])
    workers = []
    for rank, measured in rows:
        stage = stages[stage_of(layout, rank)]
        workers.append((rank, measured, {key: (stage[key], measured / stage[key] - 1) for key in BOUNDS}))
    failed = any(abs(planned[key][1]) > bound for _, _, planned in workers for key, bound in BOUNDS.items())
    return max(workers, key=lambda worker: abs(worker[2]["tensors_bytes"][1])), failed


def text_of(layout):
    return ", ".join(f"{key} {value if not isinstance(value, list) else ' '.join(value)}"
                     for key, value in layout.items()) or "one worker"


def row_of(layout, rank, measured, planned):
    cells = [text_of(layout), str(rank), f"{measured / 1e6:.1f} MB"]
    for key in BOUNDS:
        size, difference = planned[key]
        cells += [f"{size / 1e6:.1f} MB", f"{100 * difference:+.2f} %"]
    return "| " + " | ".join(cells) + " |"


HEAD = """# Memory, measured

Written by `bench/live_bytes.py`: for each layout, bytes of live tensors that a worker's allocator counted at most in a
step ({dtype}), against what `lockstep plan` says of the worker's stage; of all workers the one that differs most.
`tensors` is the plan without its assumed margin of a twentieth (bound {tensors:.0f} %), `total` the plan with it (bound
{total:.0f} %): that is what is left for an allocator's losses and libraries, which this count does not see.

| layout | worker | measured | tensors | difference | total | difference |
| --- | --- | --- | --- | --- | --- | --- |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs/live-bytes.md"))
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="live-")
    run_file = os.path.join(folder, "live.toml")
    with open(run_file, "w") as out:
        out.write(RUN_FILE)
    lines, failed = [], 0
    for layout in LAYOUTS:
        worst, outside = worst_of(layout, options.dtype, run_file, os.path.join(folder, "run"))
        failed += outside
        lines.append(row_of(layout, *worst))
        print(lines[-1] + (" FAILED" if outside else ""), flush=True)
    shutil.rmtree(folder)
    with open(options.out, "w") as out:
        out.write(HEAD.format(dtype=options.dtype, tensors=100 * BOUNDS["tensors_bytes"],
                              total=100 * BOUNDS["total_bytes"]))
        out.write("\n".join(lines) + "\n")
    print(f"{len(LAYOUTS)} layouts, {failed} outside the bounds", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
