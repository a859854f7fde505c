#!/usr/bin/python3
"""All-reduce of fp32 sums between local processes: Lockstep against Open MPI and Gloo, in turn, in one run.

usage: bench/collective_vs_peers.py [PEERS_FOLDER] [--lockstep build/release/lockstep] [--ranks 8] [--rounds 5]

PEERS_FOLDER (default ../shared/peers) holds mpi_allreduce.cpp and gloo_allreduce.py. Prints the median of all rounds
by size, and how many times as fast as the better peer Lockstep is. Exit code 1 when something is missing or wrong.
"""
import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26]
LINE = re.compile(r"bytes=(\d+) us=([\d.]+)")


def name_of(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def output_of(command):
    """Standard output; RuntimeError with the end of standard error if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def missing(options):
    problems = []
    if not options.lockstep.exists():
        problems.append(f"{options.lockstep} is not built (cmake --preset release && cmake --build --preset release)")
    for name in ("mpi_allreduce.cpp", "gloo_allreduce.py"):
        if not (options.peers / name).exists():
            problems.append(f"{options.peers / name} does not exist; give the peers folder as the first argument")
    for tool in ("mpicxx", "mpirun"):
        if shutil.which(tool) is None:
            problems.append(f"{tool} is not installed (Debian: apt install openmpi-bin libopenmpi-dev)")
    torch = subprocess.run(["/usr/bin/python3", "-c", "import torch.distributed"], capture_output=True)
    if torch.returncode != 0:
        problems.append("/usr/bin/python3 cannot import torch (Debian: apt install python3-torch)")
    return problems


def lockstep_round(options):
    sizes = ",".join(map(str, SIZES))
    rows = json.loads(output_of([options.lockstep, "bench", "collective", "--collective", "all_reduce",
                                 "--ranks", str(options.ranks), "--bytes", sizes, "--json"]))
    if any(row["wrong"] for row in rows):
        raise RuntimeError(f"Lockstep's results are wrong: {rows}")
    return {row["bytes"]: row["microseconds"] for row in rows}


def peer_round(command):
    return {int(size): float(time) for size, time in LINE.findall(output_of(command))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="?", type=Path, default=Path("../shared/peers"))
    parser.add_argument("--lockstep", type=Path, default=Path("build/release/lockstep"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.lockstep = options.lockstep.resolve()

    problems = missing(options)
    if problems:
        print("cannot compare:\n  " + "\n  ".join(problems), file=sys.stderr)
        return 1

    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "mpi_allreduce"
        output_of(["mpicxx", "-O2", options.peers / "mpi_allreduce.cpp", "-o", binary])
        runs = {
            "Lockstep": lambda: lockstep_round(options),
            "Open MPI": lambda: peer_round(["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca",
                                            "mpi_yield_when_idle", "1", "-n", str(options.ranks), binary]),
            "Gloo": lambda: peer_round(["/usr/bin/python3", options.peers / "gloo_allreduce.py", str(options.ranks)]),
        }
        times = {name: {size: [] for size in SIZES} for name in runs}
        for number in range(1, options.rounds + 1):
            for name, run in runs.items():
                print(f"round {number} of {options.rounds}: {name}", file=sys.stderr)
                for size, time in run().items():
                    times[name][size].append(time)

    print(f"all_reduce fp32, {options.ranks} processes, median of {options.rounds} rounds, microseconds")
    print(f"{'bytes':>8} {'Lockstep':>12} {'Open MPI':>12} {'Gloo':>12} {'faster than the better peer':>28}")
    for size in SIZES:
        ours, mpi, gloo = (statistics.median(times[name][size]) for name in runs)
        print(f"{name_of(size):>8} {ours:12.1f} {mpi:12.1f} {gloo:12.1f} {min(mpi, gloo) / ours:27.1f}x")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"collective_vs_peers: {error}", file=sys.stderr)
        sys.exit(1)
