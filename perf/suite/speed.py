#!/usr/bin/env python3
"""The speed table: workloads natively and through Orion in turn, medians, and the goal of each row.

    python3 perf/suite/speed.py --repeats 5 --out speed.json --markdown speed.md
    python3 perf/suite/speed.py --only small_ops,item_loop --modes native,shm --budget-s 300
    python3 perf/suite/speed.py --continue speed.json --out speed.json     # what the earlier run had no time for
    python3 perf/suite/speed.py --before target/old/release --repeats 5    # each carrier with another build in turn

Native, shm and tcp alternate within each repeat, so a machine that warms up or slows down does so for all three. One
program measures at a time, while the next ones import what they need: see gate.py.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gate
import run
import server
from table import GOALS


def main():
    options = parse_options()
    workloads = run.select(options.only, options.skip)
    workloads = [workload for workload in workloads if any(goal.workload == workload.name for goal in GOALS)]
    unbuilt = run.build(workloads, options)
    workloads = [workload for workload in workloads if workload.name not in unbuilt]
    earlier = options.earlier["runs"] if options.earlier else {}

    def keep(options, runs):
        return write(options, joined(earlier, runs))

    runs, wall_s = measure(lacking(plan(workloads, options.modes, options.repeats), earlier), options, keep)
    print(keep(options, runs))
    print(where_the_time_went(runs, wall_s), file=sys.stderr)


def measure(tasks, options, keep):
    """Every run that fits the budget. `keep(options, runs)` is called now and then with what there is so far."""
    started = time.monotonic()
    tasks = list(tasks)
    workloads = {workload.name: workload for _, workload, _ in tasks}
    fill_caches(workloads.values(), options, started)
    runs = {name: {mode: [] for mode in options.modes} for name in workloads}

    def within_budget():
        for task in tasks:
            if options.budget_s and time.monotonic() - started > options.budget_s:
                print("the time budget is used up: nothing new is started", file=sys.stderr)
                return
            yield task

    turns = gate.one_at_a_time(within_budget(), lambda task: Prepared(*task[1:], options), options.prepare)
    for (repeat, workload, mode), result in turns:
        runs[workload.name][mode].append(result)
        say(started, f"{workload.name} {mode} {repeat + 1}: {result['status']}, {result['turn_s']:.1f} s alone")
        if mode == in_turn(options.modes, repeat)[-1]:
            keep(options, runs)
    return runs, time.monotonic() - started


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_speed_options(parser)
    run.add_continue(parser)
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another build, whose orion-run takes turns too")
    options = finish_options(parser, parser.parse_args())
    if options.before:
        add_before(parser, options)
    if options.earlier:
        now = {**options.machine, "modes": options.modes}
        options.earlier = run.earlier_run(parser, options.earlier, now, lambda earlier: joined(earlier["runs"], {}))
        before = options.earlier["machine"]
        options.machine = {**before, "continued": [*before.get("continued", []), options.machine["started"]]}
    return options


def add_speed_options(parser):
    run.add_common_options(parser)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prepare", type=int, default=4, metavar="N", help="how many programs get ready meanwhile")
    parser.add_argument("--driver", default=server.find_driver(), help="what Orion's workers load, a path or soft")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the table, also printed")


def finish_options(parser, options):
    options.scale = "speed"
    options.server = server.for_mode
    options.machine = run.machine()
    return run.finish_options(parser, options)


def add_before(parser, options):
    options.before = options.before.resolve()
    if not os.access(options.before / "orion-run", os.X_OK):
        parser.error(f"--before {options.before}: there is no orion-run in it")
    options.modes += [mode + run.BEFORE for mode in options.modes if mode != "native"]


def plan(workloads, modes, repeats):
    """Repeats outermost, so that a time budget that runs out leaves every row with about as many."""
    for repeat in range(repeats):
        for workload in workloads:
            yield from ((repeat, workload, mode) for mode in in_turn(modes, repeat))


def lacking(tasks, earlier):
    """What an earlier run did not get to. A run that failed there is not hidden by another try."""
    return [task for task in tasks if task[0] >= len(earlier.get(task[1].name, {}).get(task[2], []))]


def joined(earlier, runs):
    names = [*earlier, *(name for name in runs if name not in earlier)]
    both = [(name, earlier.get(name, {}), runs.get(name, {})) for name in names]
    return {name: {mode: [*a.get(mode, []), *b.get(mode, [])] for mode in {**a, **b}} for name, a, b in both}


def in_turn(modes, repeat):
    """Another mode goes first each time, so that none always follows an idle GPU."""
    turn = repeat % len(modes)
    return [*modes[turn:], *modes[:turn]]


def fill_caches(workloads, options, started):
    """What is compiled once and kept is compiled here, all at once, for it takes longer than what is measured."""
    tasks = [(workload, mode) for workload in workloads if workload.fills_cache for mode in options.modes]

    def fill(task):
        workload, mode = task
        result = run.run_workload(workload, mode, options)
        say(started, f"{workload.name} {mode}, to fill its cache: {result['status']}")

    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        list(pool.map(fill, tasks))


class Prepared:
    """One run of one workload: prepared beside others, measured alone."""

    def __init__(self, workload, mode, options, gated=True):
        self.workload, self.mode, self.options = workload, mode, options
        self.folder = tempfile.TemporaryDirectory(prefix="orion-speed-", ignore_cleanup_errors=True)
        self.process = self.server = self.gate = None
        if mode != "native" and "--server" not in options.orion_args:
            self.server = options.server(mode, self.folder.name, options)
        if gated and workload.is_gated:
            self.gate = gate.Gate(f"{self.folder.name}/gate")
            self.begin(SUITE_GATE=self.gate.path)

    def begin(self, **environment):
        address = self.server and self.server.address
        self.process = run.Process(self.workload, self.mode, self.options, address, **environment)

    def take_turn(self):
        """The server is part of the turn: a worker that starts or ends disturbs whoever measures."""
        arrived = time.monotonic()
        ready = not self.gate or self.gate.wait(self.process.process, self.options.timeout)
        began, before_s = time.monotonic(), cores_s()
        result = self.measure() if ready else self.never_ready()
        turn_s = time.monotonic() - began
        cores = {name: (after_s - before_s[name]) / turn_s for name, after_s in cores_s().items()}
        times = {"turn_s": turn_s, "unprepared_s": began - arrived, **cores}
        return {**result, **{name: round(value, 3) for name, value in times.items()}}

    def measure(self):
        try:
            if self.server:
                self.server.start()
            if self.gate:
                self.gate.open()
            else:
                self.begin()
            result = self.process.result(self.options.timeout)
            gate.sweep(self.process.process)
            return result
        except server.NoWorker as error:
            self.abandon()
            return {"status": str(error), "rc": None, "wall_s": 0, "report": None}
        finally:
            if self.server:
                self.server.stop()
            self.folder.cleanup()

    def never_ready(self):
        late = self.process.process.poll() is None
        result = self.process.result(0.0)
        self.folder.cleanup()
        return {**result, "status": f"not ready after {self.options.timeout:g} s"} if late else result

    def abandon(self):
        if self.process:
            self.process.abandon()
        self.folder.cleanup()


def cores_s():
    """Seconds that the machine's cores have worked so far, all together, and those that a host had taken away from a
    core that had work. What is prepared beside a turn is in the first, and so are threads that spin: with nothing
    prepared it tells what a transport takes from the program."""
    fields = map(int, Path("/proc/stat").read_text().split()[1:9])
    user, nice, system, _idle, _wait, interrupt, soft, stolen = (ticks / os.sysconf("SC_CLK_TCK") for ticks in fields)
    return {"cores": user + nice + system + interrupt + soft, "cores_stolen": stolen}


def say(started, text):
    print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)


def where_the_time_went(runs, wall_s):
    """Which workload to trim, and whether programs were prepared in time."""
    lines = []
    for name, modes in runs.items():
        turns = {mode: [result["turn_s"] for result in results] for mode, results in modes.items() if results}
        lines.append(f"    {name:26}" + "".join(f"{mode} {statistics.median(t):5.1f} s  " for mode, t in turns.items()))
    done = [result for modes in runs.values() for results in modes.values() for result in results]
    alone, waited = sum(r["turn_s"] for r in done), sum(r["unprepared_s"] for r in done)
    head = f"{len(done)} runs in {wall_s:.0f} s: {alone:.0f} s measuring, {waited:.0f} s until programs were ready"
    return "\n".join([head, "median turns:", *lines])


def write(options, runs):
    rows = [row(goal, runs[goal.workload], options.modes) for goal in GOALS if goal.workload in runs]
    text = markdown(rows, options.modes)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(text + "\n")
    if options.out:
        everything = {"machine": options.machine, "modes": options.modes, "rows": rows, "runs": kept(runs)}
        options.out.write_text(json.dumps(everything, indent=1))
    return text


def kept(runs):
    return {name: {mode: list(map(brief, done)) for mode, done in modes.items()} for name, modes in runs.items()}


def brief(result):
    """A good run needs only its numbers; a bad one also what it said."""
    keep = ["status", "rc", "wall_s", "turn_s", "unprepared_s", "cores", "cores_stolen", "report", "refused"]
    return {key: result[key] for key in keep if key in result} if result["status"] == "ok" else result


def measured_row(goal, results, modes):
    """What there is to say of a row before anybody judges it."""
    measured = {mode: [metric(goal, result) for result in results[mode]] for mode in modes}
    measured = {mode: [value for value in values if value is not None] for mode, values in measured.items()}
    medians = {mode: statistics.median(values) for mode, values in measured.items() if values}
    return {
        "title": goal.title,
        "workload": goal.workload,
        "metric": goal.metric,
        "unit": goal.unit,
        "repeats": {mode: len(measured[mode]) for mode in modes},
        "failed": {mode: sum(result["status"] != "ok" for result in results[mode]) for mode in modes},
        "median": medians,
        "range": {mode: [min(values), max(values)] for mode, values in measured.items() if values},
    }


def row(goal, results, modes):
    found = measured_row(goal, results, modes)
    medians, limits = found["median"], {"shm": goal.shm, "tcp": goal.tcp}
    judged = [mode for mode in modes if mode in limits]
    return {
        **found,
        "ratio": {mode: ratio(goal, medians, mode) for mode in judged},
        "goal": {mode: f"{limits[mode][0]} {limits[mode][1]:g}" for mode in judged},
        "met": {mode: judge(goal, limits[mode], medians, mode) for mode in judged},
        "gain": {mode: ratio(goal, medians, mode, mode + run.BEFORE) for mode in judged if mode + run.BEFORE in modes},
    }


def metric(goal, result):
    if result["status"] != "ok":
        return None
    if goal.metric == "wall_s":
        return result["wall_s"]
    if goal.metric == "steady_ms":
        return result["report"]["steady_ms"]
    return result["report"]["extra"].get(goal.metric)


def ratio(goal, medians, mode, other="native"):
    """Above 1 Orion is better than native, whatever is measured."""
    if other not in medians or mode not in medians:
        return None
    native, orion = medians[other], medians[mode]
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
    others = [mode for mode in modes if mode in run.MODES and mode != "native"]
    heads = [head for mode in others for head in (mode, "ratio", "goal", "", *before_heads(mode, modes))]
    lines = [["", "unit", "native", *heads, "repeats"]]
    lines.append(["---"] * len(lines[0]))
    for entry in rows:
        cells = [entry["title"], entry["unit"], with_range(entry, "native")]
        for mode in others:
            met = {True: "met", False: "**missed**", None: "not measured"}[entry["met"][mode]]
            if entry["failed"][mode]:
                met += f", {entry['failed'][mode]} runs failed"
            cells += [with_range(entry, mode), number(entry["ratio"][mode]), entry["goal"][mode], met]
            if before_heads(mode, modes):
                cells += [with_range(entry, mode + run.BEFORE), number(entry["gain"][mode])]
        lines.append([*cells, "/".join(str(entry["repeats"][mode]) for mode in modes)])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    judged = [met for entry in rows for met in entry["met"].values()]
    return f"{text}\n\n{judged.count(True)} of {len(judged)} goals met, {judged.count(None)} not measured."


def before_heads(mode, modes):
    """Beside the goal: what the other build takes, and how much better than it this one is."""
    return [f"{mode} before", "now / before"] if mode + run.BEFORE in modes else []


def with_range(entry, mode):
    """The median, and the least and the most of the repeats where there are several."""
    text = number(entry["median"].get(mode))
    if entry["repeats"].get(mode, 0) < 2:
        return text
    return f"{text} ({' to '.join(map(number, entry['range'][mode]))})"


def number(value):
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
