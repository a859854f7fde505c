#!/usr/bin/env python3
"""Refits what the presets of devices and software say was fitted, with `lockstep validate --set` alone.

Each number is searched between bounds (golden section; where several stand for the same rows, one after the other,
round by round) so that the mean error of step times without sign is least: over the sources concerned, each weighing
the same, rows that are held out left out. A share scales the preset's whole curve. The folds leave every fifth of those
rows out in turn (of three rows one, thrice); their range says how far a number is known.

    bench/fit.py [FILE.csv] [--only NAME] [--jobs 2] [--check]

Without FILE.csv it takes ../shared/reference/ground_truth.csv where that is there, else the rows that the project
carries, on which only megatron-2023 can be fitted. Prints a table and changes no preset. Some ten minutes on two cores.

--check tests the search: it puts what is predicted at other values in the place of what was measured, and fails where
the search does not come back to those values.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import subprocess
import sys
import tempfile
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCKSTEP = os.path.join(ROOT, os.environ.get("LOCKSTEP_BUILD", "build/release"), "lockstep")
SHARED = os.path.join(ROOT, "..", "shared", "reference", "ground_truth.csv")
OWN = os.path.join(ROOT, "data", "published", "measurements.csv")
FOLDS = 5
GOLDEN = (5 ** 0.5 - 1) / 2


class Parameter:
    """One number of a preset: a key, or (with a curve's field) the share of the preset's curve."""

    def __init__(self, preset, key, low, high):
        self.preset, self.key, self.low, self.high = preset, key, low, high
        self.table = "cluster" if preset.startswith("devices/") else "software"
        with open(os.path.join(ROOT, "configs", "presets", preset + ".toml"), "rb") as file:
            self.now = tomllib.load(file)[self.table][key]
        self.is_curve = isinstance(self.now, list)
        if self.is_curve:  # no point of which exceeds 1
            self.high = min(high, 1 / max(p["efficiency"] for p in self.now))

    def start(self):
        return 1.0 if self.is_curve else self.now

    def setting(self, value):
        if not self.is_curve:
            return f"{self.table}.{self.key}={value!r}"
        points = [{k: v * value if k == "efficiency" else v for k, v in p.items()} for p in self.now]
        words = [", ".join(f"{k} = {v!r}" for k, v in p.items()) for p in points]
        return f"{self.table}.{self.key}=[" + ", ".join("{ " + w + " }" for w in words) + "]"


class Fit:
    """Parameters that the same rows decide; `sources` are how those rows' sources begin."""

    def __init__(self, name, sources, parameters):
        self.name, self.sources, self.parameters = name, sources, [Parameter(*p) for p in parameters]


def fits():
    return [
        Fit("a100", ["Korthikanti", "Megatron-LM SC21", "MegaScale", "vTrain data"],
            [("devices/a100-80g", "gemm_curve", 0.8, 1.25), ("devices/a100-80g", "memory_curve", 0.7, 1.2)]),
        Fit("h100", ["Llama 3", "Megatron-LM README"], [("devices/h100-80g", "gemm_curve", 0.8, 1.25)]),
        Fit("h100-96g", ["torchtitan"], [("devices/h100-96g", "gemm_curve", 0.8, 1.25)]),
        Fit("b200", ["SimuMax"],
            [("devices/b200", "gemm_curve", 0.8, 1.25), ("devices/b200", "attention_curve", 0.8, 1.25)]),
        Fit("megatron-2023", ["MegaScale"], [("software/megatron-2023", "dp_network_efficiency", 0.1, 0.9)]),
        Fit("megatron-2024", ["Megatron-LM README"],
            [("software/megatron-2024", "tensor_parallel_overlap", 0.0, 1.0)]),
        Fit("megatron-deepspeed", ["vTrain"],
            [("software/megatron-deepspeed", "host_seconds_per_launch", 2e-5, 8e-5),
             ("software/megatron-deepspeed", "host_seconds_per_micro_batch", 0.0, 3e-2),
             ("software/megatron-deepspeed", "host_skew", 0.0, 1.0)]),
    ]


def validated(file, settings):
    words = [LOCKSTEP, "validate", file, "--json"]
    for setting in settings:
        words += ["--set", setting]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["cases"]


class Rows:
    """The rows of one fit in a file of their own, and what was predicted of them so far. Which rows are held out is a
    matter of a source's rows alone, so it is the same in this file as in the whole."""

    def __init__(self, fit, file, folder):
        self.fit, self.known = fit, {}
        self.file = os.path.join(folder, fit.name + ".csv")
        with open(file, newline="") as whole, open(self.file, "w", newline="") as part:
            rows = csv.reader(whole)
            out = csv.writer(part, lineterminator="\n")
            header = next(rows)
            out.writerow(header)
            source = header.index("source")
            self.count = 0
            for row in rows:
                if row and any(row[source].startswith(s) for s in fit.sources):
                    out.writerow(row)
                    self.count += 1

    def cases(self, values):
        """(source, error without sign) of each row that is not held out, at these values of the parameters."""
        values = tuple(values)
        if values not in self.known:
            settings = [p.setting(v) for p, v in zip(self.fit.parameters, values)]
            self.known[values] = [(self.group(c["source"]), abs(c["error"]))
                                  for c in validated(self.file, settings) if not c["held_out"]]
        return self.known[values]

    def group(self, source):
        return next(s for s in self.fit.sources if source.startswith(s))

    def error(self, values, fold=None):
        """Mean over sources of their rows' mean error, without every FOLDS-th row from `fold`."""
        sums = {}
        for at, (source, size) in enumerate(self.cases(values)):
            if fold is None or at % FOLDS != fold:
                sums.setdefault(source, []).append(size)
        return sum(sum(s) / len(s) for s in sums.values()) / len(sums)


def golden(error, low, high, width):
    """Where `error`, thought to have one valley, is least: to `width`."""
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = error(a), error(b)
    while high - low > width:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = error(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = error(b)
    return a if at_a <= at_b else b


def searched(rows, start, fold=None, rounds=4):
    """The best values found: parameter by parameter, then along what the round moved together, until a round gains
    nothing."""
    parameters = rows.fit.parameters
    values, best = start, rows.error(start, fold)

    def along(at, low, high, width):
        nonlocal values, best
        found = at(golden(lambda t: rows.error(at(t), fold), low, high, width))
        if rows.error(found, fold) < best:
            values, best = found, rows.error(found, fold)

    for _ in range(1 if len(parameters) == 1 else rounds):
        old, before = values, best
        for i, p in enumerate(parameters):
            along(lambda t: values[:i] + [t] + values[i + 1:], p.low, p.high, (p.high - p.low) / 200)
        if before - best < 1e-5:
            break
        if len(parameters) > 1:
            new = values
            along(lambda t: [min(max(o + t * (n - o), p.low), p.high) for p, o, n in zip(parameters, old, new)],
                  1, 5, 0.05)
    return values, best


def fitted(fit, file, folder):
    rows = Rows(fit, file, folder)
    start = [p.start() for p in fit.parameters]
    if rows.count == 0 or len({source for source, _ in rows.cases(start)}) < len(fit.sources):
        return None
    before = rows.error(start)
    values, after = searched(rows, start)
    folds = [searched(rows, values, fold)[0] for fold in range(FOLDS)]
    return before, values, after, folds


def check(fit, file, folder):
    """Plants values two fifths of the way from the preset's to the upper bound; what the search comes back with."""
    planted = [p.start() + 0.4 * (p.high - p.start()) for p in fit.parameters]
    rows = Rows(fit, file, folder)
    if rows.count == 0:
        return None
    cases = {c["row"]: c for c in validated(rows.file, [p.setting(v) for p, v in zip(fit.parameters, planted)])}
    with open(rows.file, newline="") as part:
        lines = list(csv.reader(part))
    at = lines[0].index("step_time_s")
    for row, case in cases.items():
        lines[row][at] = repr(case["predicted"])
    with open(rows.file, "w", newline="") as part:
        csv.writer(part, lineterminator="\n").writerows(lines)
    values, error = searched(rows, [p.start() for p in fit.parameters], rounds=20)
    return planted, values, error


def report_check(results):
    """Prints what came back; how many numbers did not: further off than a fiftieth of their bounds' distance."""
    lost = 0
    for fit, result in results:
        if result is None:
            continue
        planted, values, error = result
        for p, wanted, found in zip(fit.parameters, planted, values):
            back = abs(found - wanted) <= (p.high - p.low) / 50
            lost += not back
            print(f"{p.preset:<28}{p.key:<32}planted {wanted:.4g}, found {found:.4g}, error left {100 * error:.3f} %"
                  + ("" if back else ": lost"))
    return lost


def table(results):
    lines = [f"{'preset':<28}{'number':<32}{'preset':>10}{'refit':>10}   {'folds':<22}{'error':>8}{'refit':>8}"]
    for fit, result in results:
        if result is None:
            lines.append(f"{fit.name}: the file has not every source of {', '.join(fit.sources)}")
            continue
        before, values, after, folds = result
        for i, p in enumerate(fit.parameters):
            of = [f[i] for f in folds]
            name = ("share of " if p.is_curve else "") + p.key
            lines.append(f"{p.preset:<28}{name:<32}{p.start():>10.4g}{values[i]:>10.4g}   "
                         f"{f'{min(of):.4g} to {max(of):.4g}':<22}{100 * before:>6.2f} %{100 * after:>6.2f} %")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=SHARED if os.path.exists(SHARED) else OWN)
    parser.add_argument("--only", help="the fit of this name alone")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    parser.add_argument("--check", action="store_true", help="whether the search finds values that were planted")
    arguments = parser.parse_args()
    wanted = [f for f in fits() if arguments.only in (None, f.name)]
    if not os.path.isfile(arguments.file):
        sys.exit(f"fit: there is no file {arguments.file}")
    if not wanted:
        sys.exit(f"fit: --only is one of {', '.join(f.name for f in fits())}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        one = check if arguments.check else fitted
        results = list(pool.map(lambda f: one(f, arguments.file, folder), wanted))
    if not any(results):
        sys.exit(f"fit: {arguments.file} has rows of no source that {', '.join(f.name for f in wanted)} is fitted on")
    if arguments.check:
        sys.exit(1 if report_check(zip(wanted, results)) else 0)
    print(table(list(zip(wanted, results))))


if __name__ == "__main__":
    main()
