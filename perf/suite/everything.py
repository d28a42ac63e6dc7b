#!/usr/bin/env python3
"""All that is asked of a machine with a GPU, one after the other: facts, every goal, the network, equality.

At last, what runs while a goal is missed is recorded (why.py).

    python3 perf/suite/everything.py --out results
    python3 perf/suite/everything.py --out results --budget-s 580     # and again, until it no longer ends with 75

What is done lies in the folder; started again, it goes on where it stopped, on the same machine and at the same commit.
Ends with 0 when all is done and nothing missed, with 1 when something was, and with 75 when time was too short. See
README.md beside this file.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import run
from table import GOALS

TRY_AGAIN = 75
COLD = "gpt2_cold"
#: Left over for what a step still writes when its time is up.
SPARE_S = 10
#: One run of one workload, where only results count.
LONGEST_S = 120
#: One recording of what runs, with a program's start.
RECORDING_S = 40


@dataclass(frozen=True)
class Step:
    name: str
    #: Not begun with less.
    seconds_min: int
    #: Called with the options and the seconds left. True if nothing is missed, False if something is, None if there is
    #: more to do.
    go: Callable


def main():
    options = parse_options()
    machine = run.machine()
    sys.exit(go_on(STEPS, options, {key: machine[key] for key in ("gpu", "cpus", "kernel", "commit")}))


def go_on(steps, options, machine):
    started = time.monotonic()
    path = options.out / "done.json"
    earlier = json.loads(path.read_text()) if path.exists() else {"machine": machine, "done": {}}
    if earlier["machine"] != machine:
        sys.exit(f"{options.out} has results of {earlier['machine']}, and this is {machine}: say another --out")
    done = earlier["done"]
    for step in steps:
        if step.name in done:
            continue
        left = options.budget_s - (time.monotonic() - started) if options.budget_s else float("inf")
        if left < step.seconds_min + SPARE_S:
            print(f"{step.name} needs {step.seconds_min} s: start this again to go on with it", file=sys.stderr)
            return TRY_AGAIN
        result = step.go(options, left - SPARE_S)
        print(f"{time.monotonic() - started:6.0f} s  {step.name}: {said(result)}", file=sys.stderr)
        if result is None:
            return TRY_AGAIN
        done[step.name] = result
        path.write_text(json.dumps(earlier))
    missed = [name for name, result in done.items() if not result]
    print(f"all done; {'nothing missed' if not missed else 'something missed in ' + ', '.join(missed)}")
    return 1 if missed else 0


def said(result):
    return {True: "done", False: "done, and something is missed", None: "not finished"}[result]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results lie, and what is done")
    parser.add_argument("--budget-s", type=float, default=0, help="stop after this many seconds, to be started again")
    parser.add_argument("--repeats", type=int, default=5)
    jobs = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument("--jobs", type=int, default=jobs, help="workloads at once, where only results count")
    parser.add_argument("--prepare", type=int, default=5, metavar="N", help="as speed.py's")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--arch", default="native", help="what nvcc builds for, e.g. sm_90")
    options = parser.parse_args()
    for needed in (options.orion_run, beside("orion-facts", options), beside("orion-bench", options)):
        if not os.access(needed, os.X_OK):
            parser.error(f"{needed} is not there: build Orion first, or say --orion-run PATH")
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def tell(name, command, options, seconds):
    """Runs a command with its output in a file of that name. Its exit status, or None if its time was up."""
    limit = None if seconds == float("inf") else seconds
    with (options.out / name).open("ab") as out:
        try:
            return subprocess.run([str(part) for part in command], stdout=out, stderr=out, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            return None


def beside(name, options):
    """Orion's program of that name, which lies where orion-run does."""
    return options.orion_run.with_name(name)


def program(name, options, *more):
    return [sys.executable, run.SUITE / name, "--orion-run", options.orion_run, "--arch", options.arch, *more]


def budget(seconds, turn_s):
    """For programs that end what they have begun, which takes them `turn_s` at most."""
    return [] if seconds == float("inf") else ["--budget-s", max(1, seconds - turn_s)]


def complete(modes, wanted, options):
    return all(len(modes.get(mode, [])) >= options.repeats for mode in wanted)


# The steps


def cores(options, seconds):
    """Whether the machine's cores are cores, and what a round trip between two of them costs."""
    command = [beside("orion-bench", options), "run", "neighbours", "ring", "--quick"]
    command += ["--out", options.out / "cores.json"]
    status = tell("cores.log", command, options, seconds)
    return None if status is None else status == 0


def facts(options, seconds):
    good = True
    for mode in run.MODES:
        prefix = [] if mode == "native" else [options.orion_run, "--transport", mode, "--"]
        command = [*prefix, beside("orion-facts", options), "--quiet"]
        if mode not in ("native", "shm"):
            # Files that several programs map are registered where they run beside their GPU.
            command += ["--skip", "shared_file"]
        (options.out / f"facts.{mode}").unlink(missing_ok=True)
        status = tell(f"facts.{mode}", command, options, seconds)
        if status is None:
            return None
        good = good and status == 0
    return good


def goals(*more, wanted, alone=False):
    """The speed table, or one workload of it. What has all its repeats is not run again."""

    def go(options, seconds):
        table = options.out / "speed.json"
        command = program("speed.py", options, "--repeats", options.repeats, "--out", table, *more)
        command += ["--markdown", options.out / "speed.md", "--prepare", 0 if alone else options.prepare]
        command += ["--continue", table] if table.exists() else []
        tell("speed.log", [*command, *budget(seconds, 30)], options, seconds)
        if not table.exists():
            return None
        result = json.loads(table.read_text())
        workloads = {goal.workload for goal in GOALS if wanted(goal.workload)}
        rows = [row for row in result["rows"] if row["workload"] in workloads]
        if not all(complete(result["runs"].get(workload, {}), run.MODES, options) for workload in workloads):
            return None
        return all(met is True for row in rows for met in row["met"].values())

    return go


def network(options, seconds):
    namespaces = ["--namespaces"] if shutil.which("ip") and os.geteuid() == 0 else []
    if not namespaces:
        print("the network is emulated on this host: a namespace takes root and iproute2's `ip`", file=sys.stderr)
    command = program("network.py", options, *namespaces, "--repeats", options.repeats)
    table = options.out / "network.json"
    table.unlink(missing_ok=True)
    command += ["--out", table, "--markdown", options.out / "network.md"]
    status = tell("network.log", [*command, *budget(seconds, 30)], options, seconds)
    runs = json.loads(table.read_text())["runs"] if table.exists() else {}
    cut_off = runs and not all(complete(modes, ("native", "tcp"), options) for modes in runs.values())
    return None if status is None or cut_off else status == 0


def equality(options, seconds):
    table = options.out / "equal.json"
    command = program("run.py", options, "--jobs", options.jobs, "--timeout", LONGEST_S, "--out", table)
    command += ["--continue", table] if table.exists() else []
    (options.out / "equal.md").unlink(missing_ok=True)
    status = tell("equal.md", [*command, *budget(seconds, LONGEST_S)], options, seconds)
    rows = json.loads(table.read_text())["rows"].values() if table.exists() else []
    return None if status is None or any(map(run.is_missing, rows)) else status == 0


def reasons(options, seconds):
    """What runs while a goal is missed. Nothing, if none is."""
    command = [sys.executable, run.SUITE / "why.py", options.out / "speed.json", "--out", options.out / "why"]
    command += ["--continue", "--orion-run", options.orion_run, *budget(seconds, RECORDING_S)]
    status = tell("why.md", command, options, seconds)
    return None if status in (None, TRY_AGAIN) else status == 0


STEPS = [
    Step("cores", 20, cores),
    Step("facts", 60, facts),
    Step("speed", 60, goals("--skip", COLD, wanted=lambda name: name != COLD)),
    # Nothing is prepared meanwhile: it is a script from its first import on.
    Step("cold script", 60, goals("--only", COLD, wanted=lambda name: name == COLD, alone=True)),
    Step("network", 100, network),
    Step("equality", LONGEST_S + 30, equality),
    Step("reasons", RECORDING_S, reasons),
]


if __name__ == "__main__":
    main()
