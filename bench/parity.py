#!/usr/bin/env python3
"""Holds real runs of many layouts against one worker: 8 and 16 worker processes, fp64, 20 steps.

Every layout trains the same job as one worker does, from the same weights on the same batches; the worst
relative difference of the 20 losses must stay below 1e-9, of the gradient norms below 1e-8. Layouts are drawn over all axes, schedules, ZeRO
stages, recomputation and special cases, with a fixed seed, behind a list of hand-picked ones. The table goes to
docs/parity.md.

    bench/parity.py [--count 62] [--only N] [--out docs/parity.md]

About a quarter of an hour on two cores.
"""
import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCKSTEP = os.path.join(ROOT, os.environ.get("LOCKSTEP_BUILD", "build/release"), "lockstep")
STEPS = 20
BOUNDS = (1e-9, 1e-8, 1e-9)  # of the losses, the gradient norms, the held-out loss

RUN_FILE = f"""name = "parity"
[model]
layers = 8
hidden = 64
ffn = 96
heads = 8
kv_heads = 4
vocab = 256
[cluster]
preset = "local"
gpus = 1
[train]
sequence = 64
global_batch = 16
steps = {STEPS}
dtype = "fp64"
lr = 3e-3
warmup = 4
eval_sequences = 16
trace_steps = 0
[data]
text = "TEXT"
held_out = ["2016_barack_obama_d"]
"""

# What a layout changes beside the run file; the first group cuts the job, the second is another job.
CUT = dict(tp=1, cp=1, pp=1, dp=1, replicas=0, schedule="1f1b", virtual_stages=1, micro_batch=1, zero=1,
           reshard_after_forward=True, gradient_scatter="chunk", sequence_parallel=True,
           gathered_input="gather_again", recompute=[], recompute_every=1, layer_split="cost")
JOB = {"model.kv_heads": 4, "model.vocab": 256, "model.layers": 8, "model.tie_embeddings": False,
       "data.document_mask": False, "train.optimizer": "adamw", "train.batch_ramp": []}


def layout(**changes):
    job = {key: changes.pop(key.split(".")[1]) for key in JOB if key.split(".")[1] in changes}
    return {**CUT, **changes}, {**JOB, **job}


HAND_PICKED = [
    layout(tp=8), layout(cp=8), layout(pp=8), layout(dp=8), layout(tp=2, cp=2, pp=2), layout(tp=2, cp=2, dp=2),
    layout(tp=2, pp=2, dp=2, sequence_parallel=False),
    layout(dp=8, zero=0), layout(dp=8, zero=2), layout(dp=8, zero=3),
    layout(dp=8, zero=3, schedule="interleaved", virtual_stages=8),
    layout(dp=4, cp=2, zero=3, gradient_scatter="micro_batch", replicas=4, document_mask=True),
    layout(pp=4, dp=2, schedule="zb-h1"),
    layout(tp=2, pp=4, schedule="zb-h1", gathered_input="keep"),
    layout(tp=2, pp=4, schedule="zb-h1", recompute=["norm", "attention"], zero=3),
    layout(pp=4, dp=2, schedule="interleaved", virtual_stages=2, replicas=4),
    layout(pp=3, dp=2, schedule="interleaved", virtual_stages=2, layers=7, batch_ramp=["4:5", "8:10"]),
    layout(tp=8, kv_heads=2, vocab=259), layout(tp=8, kv_heads=1, vocab=263, tie_embeddings=True),
    layout(tp=2, pp=4, tie_embeddings=True), layout(pp=4, dp=2, tie_embeddings=True, zero=0),
    layout(tp=4, dp=2, recompute=["full"]), layout(cp=4, tp=2, recompute=["full"], recompute_every=3),
    layout(tp=2, cp=4, recompute=["norm", "swiglu", "attention"], document_mask=True),
    layout(dp=2, tp=4, optimizer="sgd", zero=2), layout(dp=3, cp=2, replicas=8, zero=2),
    layout(tp=2, cp=2, pp=2, dp=2), layout(tp=2, cp=2, pp=2, dp=2, zero=3, schedule="zb-h1", document_mask=True),
    layout(tp=4, cp=4), layout(tp=4, pp=4), layout(pp=8, dp=2, schedule="zb-h1"), layout(dp=16, zero=3),
    layout(pp=4, dp=4, schedule="interleaved", virtual_stages=2, zero=3, reshard_after_forward=False),
    layout(tp=8, dp=2, kv_heads=2, vocab=259, tie_embeddings=True, document_mask=True),
]


def draw(rng, workers):
    while True:
        sizes = [rng.choice([1, 2, 2, 4, 8]) for _ in range(4)]
        if sizes[0] * sizes[1] * sizes[2] * sizes[3] == workers:
            break
    tp, cp, pp, dp = sizes
    changes = dict(tp=tp, cp=cp, pp=pp, dp=dp)
    changes["schedule"] = rng.choice(["gpipe", "1f1b", "interleaved", "zb-h1"])
    if changes["schedule"] == "interleaved":
        changes["virtual_stages"] = rng.choice([2, 3, 4])
    changes["zero"] = rng.choice([0, 1, 2, 3])
    changes["replicas"] = rng.choice([r for r in (0, 4, 8, 16) if r == 0 or r >= dp])
    changes["micro_batch"] = rng.choice([1, 2]) if max(changes["replicas"], dp) <= 8 else 1
    if changes["zero"] == 3:
        changes["reshard_after_forward"] = rng.random() < 0.5
    if changes["zero"] >= 2 and rng.random() < 0.5:
        changes["gradient_scatter"] = "micro_batch"
    changes["sequence_parallel"] = rng.random() < 0.75
    changes["recompute"] = rng.choice([[], ["norm"], ["swiglu", "attention"], ["norm", "swiglu", "attention"], ["full"]])
    if changes["recompute"]:
        changes["recompute_every"] = rng.choice([1, 2, 3])
    gathers = changes["sequence_parallel"] and tp > 1
    if gathers and "norm" not in changes["recompute"] and rng.random() < 0.4:
        changes["gathered_input"] = "keep"
    changes["kv_heads"] = rng.choice([2, 4, 8])
    changes["vocab"] = rng.choice([256, 259])
    changes["layers"] = rng.choice([7, 8])
    changes["tie_embeddings"] = rng.random() < 0.4 and (pp > 1 or changes.get("virtual_stages", 1) == 1)
    changes["document_mask"] = rng.random() < 0.5
    changes["optimizer"] = rng.choice(["adamw", "adamw", "sgd"])
    return layout(**changes)


def all_layouts(count):
    rng = random.Random(405)
    out = list(HAND_PICKED)
    while len(out) < count:
        candidate = draw(rng, 8 if len(out) % 2 == 0 else 16)
        if candidate not in out:
            out.append(candidate)
    return out[:count]


def toml(value):
    return json.dumps(value)


def write_documents(folder):
    """One address cut into documents of 1 to 90 bytes, so that every sequence holds borders; one held out."""
    source = os.path.join(ROOT, "data/sotu")
    os.mkdir(folder)
    shutil.copy(os.path.join(source, "2016_barack_obama_d.txt"), folder)
    with open(os.path.join(source, "1961_john_f_kennedy_d.txt"), "rb") as file:
        text = file.read()
    at, number = 0, 0
    while at < len(text):
        length = 1 + number * 37 % 90
        with open(os.path.join(folder, f"d{number:05}.txt"), "wb") as out:
            out.write(text[at:at + length])
        at, number = at + length, number + 1


def numbers_of(run_file, cut, job, folder):
    # The run file's short forms of these lists.
    short = {"[]": "none", "['full']": "full"}
    flags = [f"parallel.{key}={toml(short.get(str(value), value))}" for key, value in cut.items()]
    flags += [f"{key}={toml(value)}" for key, value in job.items()]
    flags.append(f"cluster.gpus={workers_of(cut)}")
    command = [LOCKSTEP, "train", run_file, "--json", "--run-dir", os.path.join(folder, "run")]
    for flag in flags:
        command += ["--set", flag]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with {done.returncode}:\n{done.stderr}")
    result = json.loads(done.stdout)
    with sqlite3.connect(os.path.join(result["run_directory"], "run.db")) as db:
        steps = db.execute("select loss, grad_norm from steps order by step").fetchall()
    shutil.rmtree(result["run_directory"])
    assert len(steps) == STEPS, result
    return [loss for loss, norm in steps], [norm for loss, norm in steps], [result["eval_loss"]]


def worst(ours, reference):
    return max(abs(a / b - 1) for a, b in zip(ours, reference))


def special(cut, job):
    words = []
    if cut["replicas"]:
        words.append(f"{cut['replicas']} replicas")
    if cut["micro_batch"] > 1:
        words.append(f"micro-batch {cut['micro_batch']}")
    if not cut["sequence_parallel"] and cut["tp"] > 1:
        words.append("no sequence parallel")
    if cut["gathered_input"] == "keep" and cut["tp"] > 1 and cut["sequence_parallel"]:
        words.append("gathered inputs kept")
    if job["model.layers"] % (cut["pp"] * cut["virtual_stages"]) != 0:
        words.append(f"{job['model.layers']} layers split by cost")
    if job["model.kv_heads"] < cut["tp"]:
        words.append(f"{job['model.kv_heads']} KV heads copied")
    if job["model.vocab"] % cut["tp"] != 0:
        words.append(f"vocabulary {job['model.vocab']} padded")
    if job["model.tie_embeddings"]:
        words.append("tied embeddings")
    if job["data.document_mask"]:
        words.append("document mask")
    if job["train.optimizer"] != "adamw":
        words.append(job["train.optimizer"])
    if job["train.batch_ramp"]:
        words.append("batch ramp")
    return ", ".join(words)


def zero_text(cut):
    text = str(cut["zero"])
    if cut["gradient_scatter"] == "micro_batch":
        text += ", scatter every micro-batch"
    if cut["zero"] == 3 and not cut["reshard_after_forward"]:
        text += ", no reshard"
    return text


def workers_of(cut):
    return cut["tp"] * cut["cp"] * cut["pp"] * cut["dp"]


def row_of(number, cut, job, differences):
    schedule = cut["schedule"] + (f" x {cut['virtual_stages']}" if cut["virtual_stages"] > 1 else "")
    recompute = " ".join(cut["recompute"]) or "none"
    if cut["recompute_every"] > 1:
        recompute += f", every {cut['recompute_every']}"
    numbers = " | ".join(f"{difference:.1e}" for difference in differences)
    return (f"| {number} | {workers_of(cut)} | {cut['tp']} {cut['cp']} {cut['pp']} {cut['dp']} | {schedule} | "
            f"{zero_text(cut)} | {recompute} | {special(cut, job)} | {numbers} |")


HEAD = """# Parity

Every row is a real run of `lockstep train` with that many worker processes, fp64, {steps} steps of a small Llama
(8 layers or 7, hidden 64, 8 heads, sequences of 64, 16 in a batch) on an address cut into documents of 1 to 90 bytes,
held against the same job on one worker: the worst relative difference of the {steps} losses, of the {steps} gradient
norms, and that of the held-out loss. The bounds are {loss_bound:g} for losses and {norm_bound:g} for norms.
`bench/parity.py` makes this table; the layouts of the first rows are picked by hand, the others drawn over all axes,
schedules, ZeRO stages, recomputation, optimizers and special cases. Gradient scatters, parameter gathers and messages
are asynchronous in all of them.

{count} layouts ({workers} workers): worst loss difference {loss:.1e}, gradient norm {norm:.1e}, held-out loss
{held_out:.1e}.

| | workers | tp cp pp dp | schedule | ZeRO | recompute | special | losses | norms | held-out |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=62)
    parser.add_argument("--only", type=int, help="this row alone; writes nothing")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs/parity.md"))
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="parity-")
    run_file = os.path.join(folder, "parity.toml")
    write_documents(os.path.join(folder, "text"))
    with open(run_file, "w") as out:
        out.write(RUN_FILE.replace("TEXT", os.path.join(folder, "text")))
    references, rows, counts, worst_of, failed = {}, [], {}, [0.0, 0.0, 0.0], 0
    for number, (cut, job) in enumerate(all_layouts(options.count), 1):
        if options.only and number != options.only:
            continue
        start = time.time()
        key = json.dumps(job, sort_keys=True)
        if key not in references:
            references[key] = numbers_of(run_file, CUT, job, folder)
        ours = numbers_of(run_file, cut, job, folder)
        differences = [worst(a, b) for a, b in zip(ours, references[key])]
        failed += not all(difference < bound for difference, bound in zip(differences, BOUNDS))
        worst_of = [max(a, b) for a, b in zip(worst_of, differences)]
        counts[workers_of(cut)] = counts.get(workers_of(cut), 0) + 1
        rows.append(row_of(number, cut, job, differences))
        print(f"{rows[-1]} {time.time() - start:.1f} s", flush=True)
    shutil.rmtree(folder)
    if not options.only:
        with open(options.out, "w") as out:
            text = ", ".join(f"{count} with {workers}" for workers, count in sorted(counts.items()))
            out.write(HEAD.format(steps=STEPS, loss=worst_of[0], norm=worst_of[1], held_out=worst_of[2], workers=text,
                                  count=len(rows), loss_bound=BOUNDS[0], norm_bound=BOUNDS[1]))
            out.write("\n".join(rows) + "\n")
    print(f"{len(rows)} layouts, worst loss {worst_of[0]:.1e}, gradient norm {worst_of[1]:.1e}, held-out loss "
          f"{worst_of[2]:.1e}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
