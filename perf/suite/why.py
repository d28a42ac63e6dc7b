#!/usr/bin/env python3
"""Records what runs while a goal is missed: folded stacks of a speed table's missed rows, natively and through Orion.

    python3 perf/suite/why.py speed.json --out results/why
    python3 perf/suite/why.py speed.json --out results/why --only llama --modes tcp    # missed or not

One program at a time, with nothing prepared beside it. A program says when its first figure begins, repeats that for
some seconds, and is recorded meanwhile (see flame.py, which also says what perf needs). How busy each thread is, is
printed. Exits 1 if something could not be recorded, and 75 if `--budget-s` was too short: `--continue` then goes on.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import flame
import run
import server
import speed
from table import GOALS

#: How soon a program has to begin its first figure.
BEGINS_S = 60
#: What happens once, such as loading libraries, is over by then.
SETTLED_S = 2
#: A CUDA C++ program does not say when it begins, and is short.
CUDA_BEGINS_S = 0.5
TRY_AGAIN = 75


def main():
    options = parse_options()
    started = time.monotonic()
    failed = 0
    if not options.recordings:
        print("no goal is missed, so there is nothing to record; --only names workloads")
    for workload, mode in options.recordings:
        path = options.out / f"{workload.name}-{mode}.folded"
        if options.go_on and path.exists():
            continue
        if options.budget_s and time.monotonic() - started > options.budget_s:
            print(f"the time budget is used up before {path.stem}: --continue goes on with it", file=sys.stderr)
            sys.exit(TRY_AGAIN)
        try:
            stacks = recorded(workload, mode, options)
        except (server.NoWorker, flame.NotRecorded, OSError) as error:
            failed += 1
            print(f"{path.stem}: {error}", file=sys.stderr)
            continue
        path.write_text(flame.folded(stacks, options))
        print(f"{path.name}\n\n{flame.table(stacks, options)}\n", flush=True)
    sys.exit(1 if failed else 0)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="what speed.py wrote with --out")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the folded stacks are put")
    parser.add_argument("--only", default="", help="comma-separated names of workloads, whether missed or not")
    parser.add_argument("--modes", default="", help="comma-separated; else native and those that missed")
    parser.add_argument("--budget-s", type=float, default=0, help="start nothing new after this many seconds")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="what is in --out already is left")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--driver", default=server.find_driver(), help="what Orion's workers load, a path or soft")
    parser.add_argument("--python", default=sys.executable, help="the Python that holds PyTorch and the others")
    flame.add_recording_options(parser)
    options = parser.parse_args()
    try:
        rows = json.loads(options.table.read_text())["rows"]
        options.recordings = chosen(missed(rows), options.only, options.modes)
    except (OSError, ValueError, LookupError, TypeError) as error:
        parser.error(f"{options.table} is not what speed.py wrote with --out: {error!r}")
    options.scale, options.server, options.orion_args = "speed", server.for_mode, []
    options.orion_run = options.orion_run.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def missed(rows):
    """Modes that missed a goal, by workload, in the table's order."""
    found = {}
    for row in rows:
        modes = found.setdefault(row["workload"], [])
        modes += [mode for mode, met in row["met"].items() if met is False and mode not in modes]
    return {workload: modes for workload, modes in found.items() if modes}


def chosen(misses, only, modes):
    """What to record: each workload natively, to compare with, and in the modes that missed."""
    workloads = run.select(only or ",".join(misses), "") if only or misses else []
    if unmeasured := {workload.name for workload in workloads} - {goal.workload for goal in GOALS}:
        sys.exit(f"{', '.join(sorted(unmeasured))}: no goal is about it; `speed.py` has those that can be recorded")
    wanted = {w.name: modes.split(",") if modes else ["native", *misses.get(w.name, ("shm", "tcp"))] for w in workloads}
    return [(workload, mode) for workload in workloads for mode in wanted[workload.name]]


def recorded(workload, mode, options):
    """The stacks of one program that is started for this."""
    with tempfile.TemporaryDirectory(prefix="orion-why-") as folder:
        begun = Path(folder) / "begun"
        prepared = speed.Prepared(workload, mode, options, gated=False)
        try:
            if prepared.server:
                prepared.server.start()
            prepared.begin(SUITE_RECORD=str(begun))
            program = prepared.process.process
            wait_until_begun(workload, program, begun)
            return flame.recorded(program.pid, options)
        finally:
            prepared.abandon()
            if prepared.server:
                prepared.server.stop()


def wait_until_begun(workload, program, begun):
    deadline = time.monotonic() + BEGINS_S
    if workload.is_cuda:
        time.sleep(CUDA_BEGINS_S)
        return
    while not begun.exists():
        if program.poll() is not None:
            raise flame.NotRecorded(f"it ended with {program.returncode} and had not said that its figure begins")
        if time.monotonic() > deadline:
            raise flame.NotRecorded(f"it had not begun after {BEGINS_S} s")
        time.sleep(0.01)
    time.sleep(SETTLED_S)


if __name__ == "__main__":
    main()
