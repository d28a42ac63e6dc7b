#!/usr/bin/env python3
"""Where a program's threads and Orion's spend their time, as folded stacks, and which threads are busy.

    python3 perf/suite/flame.py --after-s 8 --seconds 1.5 --out tcp.folded -- \\
        target/release/orion-run --transport tcp -- python3 perf/suite/workloads/gpt2.py 256 cold
    echo 30 | python3 perf/suite/flame.py --after-s 20 --out jax.folded -- \\
        target/release/orion-run -- python3 perf/suite/turns.py --take-turns jax_train
    inferno-flamegraph --title "What runs while ...?" --countname us < tcp.folded > tcp.svg

Records the command, its children and every process whose name begins with `oriond`, with Linux' `perf` (Debian:
linux-perf), which takes root or a `kernel.perf_event_paranoid` of 1. Widths are microseconds of processor time in a
second; each thread is a root, threads of one name in one process are one. Exits 1 if nothing was recorded.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FREQUENCY_HZ = 1999
#: Bytes of each thread's stack that are kept to unwind it.
STACK_BYTES = 4096
TRIES = 5
#: How a thread begins, and a call into the kernel; they say nothing.
BEGINNINGS = re.compile(r"start_thread|thread_start|clone3?$|short_backtrace|vtable\.shim|_start$|__libc_start_main")
ENTRIES = re.compile(r"entry_SYSCALL_64|do_syscall_64|x64_sys_")
#: A frame of `perf script`: address, name and offset, object.
FRAME = re.compile(r"\s*[0-9a-f]+ (.*) \(([^()]*)\)$")
#: A sample's first line: name of the thread, process, thread, time.
HEAD = re.compile(r"\s*(\S.*?)\s+(\d+)/(\d+)\s+([\d.]+):")


def main():
    options = parse_options()
    program = subprocess.Popen(options.command, start_new_session=True)
    try:
        time.sleep(options.after_s)
        if program.poll() is not None:
            sys.exit(f"the command ended with {program.returncode} before it was recorded: say a shorter --after-s")
        stacks = recorded(program.pid, options)
    except NotRecorded as error:
        sys.exit(str(error))
    finally:
        end(program)
    options.out.write_text(folded(stacks, options))
    print(table(stacks, options))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the folded stacks")
    parser.add_argument("--after-s", type=float, default=5, help="how long the program runs before it is recorded")
    add_recording_options(parser)
    options = parser.parse_args()
    options.command = options.command[options.command[:1] == ["--"] :]
    if not options.command:
        parser.error("say the command to record, after --")
    return options


def add_recording_options(parser):
    parser.add_argument("--seconds", type=float, default=1.5, help="how long it is recorded")
    parser.add_argument("--least-us", type=float, default=1000, help="less in a second is counted to its caller")
    parser.add_argument("--perf", default="perf", metavar="PATH")


class NotRecorded(Exception):
    """Nothing was recorded, and why."""


def recorded(root, options):
    """Samples by stack of the process `root`, what came of it, and Orion's servers and workers, from now on."""
    try:
        text, processes = record(root, options)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotRecorded(
            f"recording with {options.perf} failed: {error}; it takes root, and Debian's linux-perf has it"
        ) from error
    samples = list(parse(text))
    if not samples:
        raise NotRecorded("perf recorded nothing: the processes slept, or perf could not read them; see above")
    return pruned(fold(samples, processes), options.least_us / us_of_a_sample(options))


def us_of_a_sample(options):
    """Microseconds of processor time in a second."""
    return 1e6 / FREQUENCY_HZ / options.seconds


def folded(stacks, options):
    us = us_of_a_sample(options)
    return "".join(f"{';'.join(stack)} {round(count * us)}\n" for stack, count in sorted(stacks.items()))


def record(root, options):
    """What `perf script` says, and the recorded processes: their names by number."""
    with tempfile.TemporaryDirectory(prefix="orion-flame-") as folder:
        data = f"{folder}/perf.data"
        how = ["-e", "cpu-clock", "-F", str(FREQUENCY_HZ), "--call-graph", f"dwarf,{STACK_BYTES}"]
        for tries_left in reversed(range(TRIES)):
            processes = related(root)
            pids = ",".join(map(str, processes))
            recording = [options.perf, "record", "-q", *how, "-p", pids, "-o", data, "sleep", str(options.seconds)]
            # One of them may have ended since they were listed, and perf wants all.
            if subprocess.run(recording, check=not tries_left, stdout=sys.stderr).returncode == 0:
                break
        fields = "comm,pid,tid,time,ip,sym,dso"
        said = [options.perf, "script", "--no-inline", "-F", fields, "-i", data]
        return subprocess.run(said, check=True, capture_output=True, text=True, errors="replace").stdout, processes


def related(root):
    """The process, what came of it, and Orion's servers and workers: names by number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name may hold anything; what follows its last parenthesis does not.
            number, _, rest = (folder / "stat").read_text().partition(" (")
            name, _, rest = rest.rpartition(") ")
            found[int(number)] = (name, int(rest.split()[1]))
        except (OSError, ValueError):
            continue
    family, before = {root}, 0
    while len(family) > before:
        before = len(family)
        family |= {pid for pid, (_, parent) in found.items() if parent in family}
    return {pid: name for pid, (name, _) in found.items() if pid in family or name.startswith("oriond")}


def end(program):
    if program.poll() is None:
        os.killpg(program.pid, signal.SIGTERM)
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def parse(text):
    """Each sample: name of the thread, number of the process, frames from the outermost on."""
    head, frames = None, []
    for line in [*text.splitlines(), ""]:
        if frame := FRAME.match(line):
            frames.append(frame.groups())
        elif found := HEAD.match(line):
            head, frames = found, []
        elif not line.strip() and head:
            yield head[1], int(head[2]), frames[::-1]
            head, frames = None, []


def fold(samples, processes):
    stacks = collections.Counter()
    for thread, pid, frames in samples:
        # One that has begun since they were listed has its first thread's name at least.
        process = processes.get(pid, thread)
        role = {"oriond": "engine", "oriond-worker": "worker"}.get(process, "client")
        names = [name_of(*frame) for frame in frames if not ENTRIES.search(frame[0])]
        while names and BEGINNINGS.search(names[0]):
            names.pop(0)
        # A function that calls itself, and code without names, are one frame.
        names = [name for name, before in zip(names, [None, *names]) if name != before]
        stacks[(f"{role}: {thread}", *names)] += 1
    return stacks


def name_of(name, dso):
    name = re.sub(r"\+0x[0-9a-f]+$", "", name)
    name = f"[{Path(dso).name}]" if name == "[unknown]" else name
    return name.replace(";", ":")[:120]


def pruned(stacks, least):
    """Branches of fewer samples than that are counted to their parents. A thread stays."""
    below = collections.Counter()
    for stack, count in stacks.items():
        for depth in range(1, len(stack) + 1):
            below[stack[:depth]] += count
    kept = collections.Counter()
    for stack, count in stacks.items():
        depth = next(d for d in range(len(stack), 0, -1) if d == 1 or below[stack[:d]] >= least)
        kept[stack[:depth]] += count
    return kept


def table(stacks, options):
    us, threads = us_of_a_sample(options), collections.Counter()
    for stack, count in stacks.items():
        threads[stack[0]] += count * us
    lines = ["| thread | cores |", "| --- | --- |"]
    lines += [f"| {name} | {busy / 1e6:.2f} |" for name, busy in threads.most_common() if busy >= 5000]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
