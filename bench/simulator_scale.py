#!/usr/bin/env python3
"""Time and memory of `lockstep simulate` from 64 to 131,072 ranks, measured from outside the process.

The same model and pipeline with more and more replicas, jitter on, one core; start-up (`lockstep --help`) is taken
off. Cost is linear where seconds a million ops stay level. The last two rows are Llama 3 405B on 16,384 GPUs as
published, and on 131,072 with eight times the batch.

    python3 bench/simulator_scale.py [--rounds 5]

LOCKSTEP_BUILD names the folder of the binaries (default: build/release).
"""
import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKSTEP = Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "lockstep"
RUN = ROOT / "configs/llama3-405b-16k.toml"


def timed(arguments):
    """Wall seconds, CPU seconds, peak MiB and output of one run on one core."""
    start = time.perf_counter()
    process = subprocess.Popen(["taskset", "-c", "0", LOCKSTEP, *arguments], stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"lockstep {' '.join(arguments)} failed")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output


def sets(**keys):
    out = []
    for key, value in keys.items():
        out += ["--set", f"{key.replace('__', '.')}={value}"]
    return out


def of_70b(replicas):
    return sets(
        model__preset="llama3-70b", parallel__first_stage_less_layers=0, parallel__last_stage_less_layers=0,
        parallel__pp=4, parallel__virtual_stages=4, parallel__dp=replicas, cluster__gpus=32 * replicas,
        cluster__max_gpus=0, train__global_batch=16 * replicas,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    cases = [("70B", of_70b(replicas)) for replicas in (2, 8, 32, 128, 512, 2048, 4096)]
    cases.append(("405B", []))
    cases.append(("405B", sets(parallel__dp=1024, cluster__gpus=131072, cluster__max_gpus=0,
                               train__global_batch=16384)))
    start_up = statistics.median(timed(["--help"])[0] for _ in range(5))
    print(f"start-up {1000 * start_up:.1f} ms, taken off; medians of {rounds}")
    print("| model | ranks | ops | step | wall | of the step | CPU a million ops | peak memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for model, keys in cases:
        runs = [timed(["simulate", str(RUN), "--json", *keys]) for _ in range(rounds)]
        answer = json.loads(runs[0][3])
        wall = statistics.median(r[0] for r in runs) - start_up
        cpu = statistics.median(r[1] for r in runs)
        step = answer["step"]["seconds"]
        print(
            f"| {model} | {answer['ranks']:,} | {answer['ops']:,} | {step:.2f} s | {1000 * wall:.0f} ms "
            f"| 1/{step / wall:.0f} | {1e9 * cpu / answer['ops']:.2f} ms | {runs[-1][2]:.0f} MiB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
