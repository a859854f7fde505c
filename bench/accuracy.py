#!/usr/bin/env python3
"""Holds the planner against published measurements and writes the tables of docs/accuracy.md.

`lockstep validate` predicts every row of a CSV; this script sums its errors up by group of sources, beside the targets
of the project, and puts the tables between the marks of docs/accuracy.md. The rest of that page is written by hand.

    bench/accuracy.py [FILE.csv] [--out docs/accuracy.md]   writes the page's tables
    bench/accuracy.py [FILE.csv] --check                    says where the page is not what would be written

Without FILE.csv it takes ../shared/reference/ground_truth.csv where that is there, else the rows that the project
carries. Those do not have every group of sources: the page is then left alone and its tables are printed, and
--check holds only the table of these rows against it. Fails when a target is missed, or a check. A second or two.
"""
import argparse
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCKSTEP = os.path.join(ROOT, os.environ.get("LOCKSTEP_BUILD", "build/release"), "lockstep")
SHARED = os.path.join(ROOT, "..", "shared", "reference", "ground_truth.csv")
OWN = os.path.join(ROOT, "data", "published", "measurements.csv")
# How a group's sources begin; targets in percent: mean and largest error of step times, mean error of memory.
GROUPS = [
    ("Korthikanti et al. 2022", "Korthikanti", 4, 8, None),
    ("Narayanan et al., SC21", "Megatron-LM SC21", 6, None, None),
    ("MegaScale, rows of Megatron-LM", "MegaScale", 8, None, None),
    ("Llama 3", "Llama 3", 4, 4, None),
    ("Megatron-LM's README, H100", "Megatron-LM README", 6, None, None),
    ("torchtitan, bf16", "torchtitan", 8, None, 8),
    ("SimuMax, B200", "SimuMax", 8, None, 3),
    ("vTrain, several nodes", "vTrain data", 9, None, None),
    ("vTrain, one node", "vTrain single", 12, None, None),
]


def mean(values):
    return sum(values) / len(values) if values else None


def percent(value, sign=False):
    return "-" if value is None else f"{100 * value:{'+' if sign else ''}.1f} %"


def group_rows(result):
    """One dictionary a group that has rows."""
    out = []
    for name, begins, mean_target, most_target, memory_target in GROUPS:
        cases = [c for c in result["cases"] if c["source"].startswith(begins)]
        if not cases:
            continue
        sizes = [abs(c["error"]) for c in cases]
        memory = [abs(c["memory_error"]) for c in cases if "memory_error" in c]
        held = [abs(c["error"]) for c in cases if c["held_out"]]
        out.append({
            "name": name, "rows": len(cases), "targets": (mean_target, most_target, memory_target),
            "mean": mean(sizes), "most": max(sizes), "bias": mean([c["error"] for c in cases]),
            "fitted": mean([abs(c["error"]) for c in cases if not c["held_out"]]), "held": mean(held),
            "held_rows": len(held), "memory": mean(memory), "memory_rows": len(memory),
        })
    return out


def missed(group):
    mean_target, most_target, memory_target = group["targets"]
    pairs = [("mean", mean_target), ("most", most_target), ("memory", memory_target)]
    return [f"{group['name']}: {key} {percent(group[key])}, wanted {target} %"
            for key, target in pairs if target is not None and group[key] > target / 100]


def wanted(group):
    mean_target, most_target, _ = group["targets"]
    return f"{mean_target} %" + (f", none above {most_target}" if most_target else "")


def source_table(groups):
    lines = ["| source | rows | wanted | mean | largest | bias | fitted on | held out |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for g in groups:
        held = f"{percent(g['held'])} ({g['held_rows']})" if g["held_rows"] else "-"
        lines.append(f"| {g['name']} | {g['rows']} | {wanted(g)} | {percent(g['mean'])} | {percent(g['most'])} | "
                     f"{percent(g['bias'], True)} | {percent(g['fitted'])} | {held} |")
    return "\n".join(lines)


def memory_table(groups):
    lines = ["| source | rows | wanted | mean |", "| --- | --- | --- | --- |"]
    for g in groups:
        if g["memory_rows"]:
            lines.append(f"| {g['name']} | {g['memory_rows']} | {g['targets'][2]} % | {percent(g['memory'])} |")
    return "\n".join(lines)


def skipped_table(result):
    reasons = {}
    for row in result["skipped"]:
        reasons.setdefault((row["source"], row["reason"]), []).append(row["row"])
    lines = ["| source | rows | why |", "| --- | --- | --- |"]
    for (source, reason), rows in reasons.items():
        lines.append(f"| {source} | {', '.join(map(str, rows))} | {reason} |")
    return "\n".join(lines)


def of_source(case):
    return next((name for name, begins, *_ in GROUPS if case["source"].startswith(begins)), case["source"])


def choices_table(result):
    """Rows with empty cells that the predicted-fastest choice fills, by group of sources."""
    groups, rows = {}, {}
    for c in result["cases"]:
        rows[of_source(c)] = rows.get(of_source(c), 0) + 1
        if c["choices"] > 1:
            groups.setdefault(of_source(c), []).append(c)
    lines = ["| source | rows | filled so | choices that fit | slowest that fits |", "| --- | --- | --- | --- | --- |"]
    for name, cases in groups.items():
        fit = ", ".join(f"{c['choices_that_fit']} of {c['choices']}" for c in cases)
        slower = ", ".join(percent(c["slowest_choice"] / c["predicted"] - 1 if c["choices_that_fit"] > 1 else None, True)
                           for c in cases)
        lines.append(f"| {name} | {rows[name]} | {len(cases)} | {fit} | {slower} |")
    return "\n".join(lines)


def unfit_table(result):
    """Rows that were run and whose layout the planner's memory model does not let into the GPU."""
    lines = ["| row | source | GPUs | memory by plan | of |", "| --- | --- | --- | --- | --- |"]
    for c in result["cases"]:
        if not c["fits"]:
            lines.append(f"| {c['row']} | {c['source']} | {c['n_gpus']} | {c['total_bytes'] / 1e9:.1f} GB | "
                         f"{c['capacity_bytes'] / 1e9:g} GB |")
    return "\n".join(lines)


def worst_table(result):
    lines = ["| row | source | model | GPUs | tp, cp, pp x chunks, dp, micro-batch | measured | predicted | error |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for c in sorted(result["cases"], key=lambda c: -abs(c["error"]))[:12]:
        l = c["layout"]
        layout = f"{l['tp']}, {l['cp']}, {l['pp']} x {l['virtual_stages']}, {l['dp']}, {l['micro_batch']}"
        lines.append(f"| {c['row']} | {c['source']} | {c['model']} | {c['n_gpus']} | {layout} | {c['measured']:.3g} s | "
                     f"{c['predicted']:.3g} s | {percent(c['error'], True)} |")
    return "\n".join(lines)


def paper_table(result):
    lines = ["| source | model | GPUs | measured | predicted | error | |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for c in result["cases"]:
        held = "held out" if c["held_out"] else ""
        recompute = c["layout"]["recompute"]
        recompute = recompute if isinstance(recompute, str) else ", ".join(recompute)
        lines.append(f"| {c['source']} | {c['model']}, recompute {recompute} | {c['n_gpus']} | {c['measured']:.4g} s | "
                     f"{c['predicted']:.4g} s | {percent(c['error'], True)} | {held} |")
    return "\n".join(lines)


def put(text, mark, table):
    """Replaces what stands between <!-- mark --> and <!-- end -->."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(\n?<!-- end -->)", re.S)
    if not pattern.search(text):
        sys.exit(f"accuracy: the page has no mark <!-- {mark} -->")
    return pattern.sub(lambda m: m.group(1) + table + "\n<!-- end -->", text, count=1)


def absent(groups):
    """Names of the groups of sources without a row."""
    there = {group["name"] for group in groups}
    return [name for name, *_ in GROUPS if name not in there]


def check(text, tables):
    """Exits where a table does not stand in the page as it is."""
    stale = [mark for mark, table in tables if put(text, mark, table) != text]
    if stale:
        sys.exit(f"accuracy: docs/accuracy.md has other tables than the program makes: {', '.join(stale)}; "
                 "`bench/accuracy.py` with all sources writes them again")


def validated(file):
    done = subprocess.run([LOCKSTEP, "validate", file, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=SHARED if os.path.exists(SHARED) else OWN)
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "accuracy.md"))
    parser.add_argument("--check", action="store_true", help="writes nothing")
    arguments = parser.parse_args()
    result, own = validated(arguments.file), validated(OWN)
    groups = group_rows(result)
    of_own = [("papers", paper_table(own))]
    of_all = [("by source", source_table(groups)), ("memory", memory_table(groups)), ("unfit", unfit_table(result)),
              ("choices", choices_table(result)), ("worst", worst_table(result)), ("skipped", skipped_table(result))]
    with open(arguments.out) as page:
        text = page.read()
    lacking = absent(groups)
    if arguments.check:
        tables = of_own + ([] if lacking else of_all)
        check(text, tables)
        print(f"checked: {', '.join(mark for mark, _ in tables)}")
        if lacking:
            print(f"not checked, for want of {', '.join(lacking)}: {', '.join(mark for mark, _ in of_all)}")
    elif lacking:
        print("\n\n".join(table for _, table in of_all + of_own))
        sys.exit(f"accuracy: {arguments.out} is left alone, for {arguments.file} has no rows of {', '.join(lacking)}; "
                 "give a FILE.csv with all sources")
    else:
        for mark, table in of_all + of_own:
            text = put(text, mark, table)
        with open(arguments.out, "w") as page:
            page.write(text)
        print(f"{len(result['cases'])} rows predicted, {len(result['skipped'])} skipped; wrote {arguments.out}")
    failures = [line for group in groups for line in missed(group)]
    sys.exit("missed:\n  " + "\n  ".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
