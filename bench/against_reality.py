#!/usr/bin/env python3
"""Holds the simulator against real steps of this machine.

Calibrates, trains configs/tiny.toml with one worker, with two (dp 2) and with eight (TP2 x PP2 x DP2), one after
another and several times over so that a disturbance meets all of them, and prints what was predicted with the
calibration beside the middle of what was measured. Off by at most 15 % with one and two workers, and 30 % with
eight that share cores; exit code 1 otherwise.

    bench/against_reality.py [--rounds 3] [--steps 60] [--cluster FILE] [--prefix "COMMAND ..."]

Two to four minutes on two idle cores. `--prefix` stands before every command, for a machine that is not idle
("nice -n -20").
"""
import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCKSTEP = os.path.join(ROOT, os.environ.get("LOCKSTEP_BUILD", "build/release"), "lockstep")
RUN_FILE = os.path.join(ROOT, "configs/tiny.toml")
# Name, layout, and the share by which the prediction may be off.
RUNS = [
    ("1 worker", dict(tp=1, pp=1, dp=1), 0.15),
    ("2 workers, dp 2", dict(tp=1, pp=1, dp=2), 0.15),
    ("8 workers, TP2 x PP2 x DP2", dict(tp=2, pp=2, dp=2), 0.30),
]


def call(prefix, *words):
    done = subprocess.run([*prefix, LOCKSTEP, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lockstep {' '.join(words)}\n{done.stderr}")
    return done.stdout


def overrides(layout, cluster):
    values = [f"parallel.{axis}={size}" for axis, size in layout.items()]
    values += [f"cluster.gpus={layout['tp'] * layout['pp'] * layout['dp']}", f"cluster.file={cluster}"]
    return [word for value in values for word in ("--set", value)]


def compare(prefix, folder, layout, cluster, steps):
    flags = overrides(layout, cluster)
    shutil.rmtree(folder, ignore_errors=True)
    call(prefix, "train", RUN_FILE, *flags, "--set", f"train.steps={steps}", "--set", "train.eval_sequences=8",
         "--run-dir", folder)
    document = call([], "simulate", RUN_FILE, *flags, "--set", "simulate.jitter=false", "--against", folder, "--json")
    return json.loads(document)["against"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--cluster", help="a cluster file instead of a calibration in every round")
    parser.add_argument("--prefix", default="", help="command that starts each measured one")
    arguments = parser.parse_args()
    prefix = shlex.split(arguments.prefix)
    results = {name: [] for name, _, _ in RUNS}
    with tempfile.TemporaryDirectory(prefix="lockstep-reality-") as scratch:
        for round_number in range(arguments.rounds):
            cluster = arguments.cluster or os.path.join(scratch, "cluster.toml")
            if not arguments.cluster:
                call(prefix, "calibrate", "--output", cluster)
            for name, layout, _ in RUNS:
                one = compare(prefix, os.path.join(scratch, "run"), layout, cluster, arguments.steps)
                results[name].append(one)
                print(f"round {round_number + 1}  {name:<28} predicted {one['predicted_seconds'] * 1e3:7.1f} ms  "
                      f"measured {one['measured_seconds'] * 1e3:7.1f} ms  {one['error'] * 100:+6.1f} %", flush=True)

    print("\nmiddle of the rounds, seconds by part as predicted / measured")
    failed = False
    for name, _, bound in RUNS:
        error = statistics.median(one["error"] for one in results[name])
        failed |= abs(error) > bound
        print(f"{name:<28} {error * 100:+6.1f} %  (bound {bound * 100:.0f} %)")
        for i, part in enumerate(results[name][0]["parts"]):
            predicted, measured = (statistics.median(one["parts"][i][key] for one in results[name])
                                   for key in ("predicted_seconds", "measured_seconds"))
            if predicted > 0 or measured > 0:
                print(f"    {part['part']:<10} {predicted * 1e3:8.2f} ms / {measured * 1e3:8.2f} ms")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
