#!/usr/bin/env python3
"""The speed table: workloads natively and through Orion in turn, medians, and the goal of each row.

    python3 perf/suite/speed.py --repeats 5 --out speed.json --markdown speed.md
    python3 perf/suite/speed.py --only small_ops,item_loop --modes native,shm --budget-s 300

Native, shm and tcp alternate within each repeat, so a machine that warms up or slows down does so for all three.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import run
from table import GOALS


def main():
    options = parse_options()
    workloads = run.select(options.only, options.skip)
    workloads = [workload for workload in workloads if any(goal.workload == workload.name for goal in GOALS)]
    unbuilt = run.build(workloads, options)
    workloads = [workload for workload in workloads if workload.name not in unbuilt]
    started = time.monotonic()
    runs = {workload.name: {mode: [] for mode in options.modes} for workload in workloads}

    for repeat, workload in plan(workloads, options.repeats):
        if options.budget_s and time.monotonic() - started > options.budget_s:
            print("the time budget is used up: no new repeats are started", file=sys.stderr)
            break
        # Another mode goes first each time, so that none always follows an idle GPU.
        turn = repeat % len(options.modes)
        for mode in [*options.modes[turn:], *options.modes[:turn]]:
            result = run.run_workload(workload, mode, options)
            runs[workload.name][mode].append(result)
            seconds = time.monotonic() - started
            print(f"{seconds:6.1f} s  {workload.name} {mode} {repeat + 1}: {result['status']}", file=sys.stderr)
        write(options, runs)
    print(write(options, runs))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run.add_common_options(parser)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the table, also printed")
    options = parser.parse_args()
    options.scale = "speed"
    return run.finish_options(parser, options)


def plan(workloads, repeats):
    """Repeats outermost, so that a time budget that runs out leaves every row with about as many."""
    for repeat in range(repeats):
        for workload in workloads:
            if repeat < workload.repeats_max:
                yield repeat, workload


def write(options, runs):
    rows = [row(goal, runs[goal.workload], options.modes) for goal in GOALS if goal.workload in runs]
    text = markdown(rows, options.modes)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(text + "\n")
    if options.out:
        kept = {name: {mode: list(map(brief, done)) for mode, done in modes.items()} for name, modes in runs.items()}
        everything = {"machine": run.machine(), "modes": options.modes, "rows": rows, "runs": kept}
        options.out.write_text(json.dumps(everything, indent=1))
    return text


def brief(result):
    """A good run needs only its numbers; a bad one also what it said."""
    keep = ["status", "rc", "wall_s", "report", "refused"]
    return {key: result[key] for key in keep if key in result} if result["status"] == "ok" else result


def row(goal, results, modes):
    measured = {mode: [metric(goal, result) for result in results[mode]] for mode in modes}
    measured = {mode: [value for value in values if value is not None] for mode, values in measured.items()}
    medians = {mode: statistics.median(values) for mode, values in measured.items() if values}
    limits = {"shm": goal.shm, "tcp": goal.tcp}
    failed = {mode: sum(result["status"] != "ok" for result in results[mode]) for mode in modes}
    return {
        "title": goal.title,
        "workload": goal.workload,
        "metric": goal.metric,
        "unit": goal.unit,
        "repeats": {mode: len(measured[mode]) for mode in modes},
        "failed": failed,
        "median": medians,
        "range": {mode: [min(values), max(values)] for mode, values in measured.items() if values},
        "ratio": {mode: ratio(goal, medians, mode) for mode in modes if mode != "native"},
        "goal": {mode: f"{limits[mode][0]} {limits[mode][1]:g}" for mode in modes if mode != "native"},
        "met": {mode: judge(goal, limits[mode], medians, mode) for mode in modes if mode != "native"},
    }


def metric(goal, result):
    if result["status"] != "ok":
        return None
    if goal.metric == "wall_s":
        return result["wall_s"]
    if goal.metric == "steady_ms":
        return result["report"]["steady_ms"]
    return result["report"]["extra"].get(goal.metric)


def ratio(goal, medians, mode):
    """Above 1 Orion is better than native, whatever is measured."""
    if "native" not in medians or mode not in medians:
        return None
    native, orion = medians["native"], medians[mode]
    above, below = (orion, native) if goal.more_is_better else (native, orion)
    return above / below if below else None


def judge(goal, limit, medians, mode):
    """True, False, or None where there is nothing to judge by."""
    how, number = limit
    if mode not in medians:
        return None
    if how == "ratio >=":
        reached = ratio(goal, medians, mode)
        return None if reached is None else reached >= number
    if how == "above native <=":
        return medians[mode] - medians["native"] <= number if "native" in medians else None
    return medians[mode] <= number if how == "<=" else medians[mode] >= number


def markdown(rows, modes):
    others = [mode for mode in modes if mode != "native"]
    heads = [head for mode in others for head in (mode, "ratio", "goal", "")]
    lines = [["", "unit", "native", *heads, "repeats"]]
    lines.append(["---"] * len(lines[0]))
    for entry in rows:
        cells = [entry["title"], entry["unit"], number(entry["median"].get("native"))]
        for mode in others:
            met = {True: "met", False: "**missed**", None: "not measured"}[entry["met"][mode]]
            if entry["failed"][mode]:
                met += f", {entry['failed'][mode]} runs failed"
            cells += [number(entry["median"].get(mode)), number(entry["ratio"][mode]), entry["goal"][mode], met]
        lines.append([*cells, "/".join(str(entry["repeats"][mode]) for mode in modes)])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    judged = [met for entry in rows for met in entry["met"].values()]
    return f"{text}\n\n{judged.count(True)} of {len(judged)} goals met, {judged.count(None)} not measured."


def number(value):
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
