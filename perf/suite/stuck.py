#!/usr/bin/env python3
"""Many programs that allocate, free and register memory while their kernels run, and where they are when one is stuck.

    python3 perf/suite/stuck.py --seconds 100
    python3 perf/suite/stuck.py --orion-args=--software-gpu --modes tcp --seconds 20     # without a GPU

A call that takes longer than `--late-s` is printed, with the time it took if it ends. The first of them are looked
into: what the kernel says of each thread of the program, of oriond and of the worker, and their stacks where there is
a debugger (gdb or cuda-gdb), is written to `--out`. Exits 1 if a call was late.
"""

import argparse
import ctypes
import glob
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import run
from waits import MIB, Lab, Size

LOOKED_INTO_MAX = 3
DEBUGGER_S = 40
STACKS = ("-batch", "-ex", "set pagination off", "-ex", "thread apply all bt 16")
#: They have nothing to do with a call.
NOT_ASKED = ("bash", "timeout", "orion-run")


def work(seconds):
    """One program. Says what it is about to do, a line each."""
    lab, random_calls, end, calls = Lab(), random.Random(os.getpid()), time.monotonic() + seconds, 0
    cu = lab.cu
    rows = (
        ("cuMemFreeHost", lab.host, cu.cuMemFreeHost),
        ("cuMemHostUnregister", lab.registered, cu.cuMemHostUnregister),
        ("cuMemFree", lab.memory, cu.cuMemFree_v2),
        ("cuMemHostRegister", lambda: None, lambda _: lab.register()[1]),
        ("cuMemAlloc", lambda: None, lambda _: cu.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), Size(MIB))),
        ("cuMemHostAlloc", lambda: None, lambda _: cu.cuMemHostAlloc(ctypes.byref(ctypes.c_void_p()), Size(MIB), 0)),
    )
    while time.monotonic() < end:
        name, make, call = random_calls.choice(rows)
        it = make()
        lab.must(cu.cuCtxSynchronize())
        lab.spin(None, random_calls.choice((1, 100, 600)))
        print(name, flush=True)
        lab.must(call(it), name)
        print(f"cuCtxSynchronize behind {name}", flush=True)
        lab.must(cu.cuCtxSynchronize())
        calls += 1
    print(f"ended after {calls}", flush=True)


class Watch:
    """A program, and how long it has said nothing."""

    def __init__(self, number, mode, options, into):
        self.name, self.options, self.into, self.late = f"{number} ({mode})", options, into, 0
        command = [] if mode == "native" else [options.orion_run, *shlex.split(options.orion_args), "--transport", mode]
        command += ["--"] if command else []
        command += [sys.executable, __file__, "--work", "--seconds", str(options.seconds)]
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )
        self.doing, self.since, self.is_late = "", time.monotonic(), False
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if self.is_late:
                print(f"{self.name}: {self.doing} ended after {time.monotonic() - self.since:.1f} s", flush=True)
            self.doing, self.since, self.is_late = line.strip(), time.monotonic(), False

    def look(self):
        waited = time.monotonic() - self.since
        if self.process.poll() is None and self.doing and waited > self.options.late_s and not self.is_late:
            self.is_late = True
            self.late += 1
            print(f"{self.name}: {self.doing} takes longer than {waited:.0f} s", flush=True)
            self.into(self)


def look_into(watch, file):
    """Its own processes are those of its session."""
    debugger = shutil.which("gdb") or shutil.which("cuda-gdb")
    with file.open("w") as log:
        print(watch.name, watch.doing, file=log)
        for process in sorted(glob.glob("/proc/[0-9]*"), key=lambda path: int(path[6:])):
            try:
                stat = Path(process, "stat").read_text().rsplit(")", 1)[1].split()
                command = Path(process, "comm").read_text().strip()
                if int(stat[3]) != watch.process.pid:
                    continue
                print("==", process, command, file=log)
                for task in sorted(glob.glob(f"{process}/task/*")):
                    told = [Path(task, name).read_text().strip()[:60] for name in ("comm", "wchan", "syscall")]
                    print(Path(task).name, *told, file=log)
            except OSError:
                continue
            log.flush()
            if debugger and command not in NOT_ASKED:
                try:
                    subprocess.run([debugger, "-p", process[6:], *STACKS], stdout=log, stderr=log, timeout=DEBUGGER_S)
                except subprocess.TimeoutExpired:
                    print("the debugger did not answer in time", file=log)
    print(f"where it is: {file}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default="tcp,tcp,shm", help="comma-separated, dealt out to the programs in turn")
    parser.add_argument("--programs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--late-s", type=float, default=8, help="a call that takes longer is late")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--orion-args", default="", help='more options for orion-run, e.g. "--software-gpu"')
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="where stacks are written")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.seconds)
    modes, files = options.modes.split(","), [options.out / f"stuck-{n}.txt" for n in range(LOOKED_INTO_MAX)]

    def into(watch):
        if files:
            threading.Thread(target=look_into, args=(watch, files.pop(0)), daemon=True).start()

    watches = [Watch(n, modes[n % len(modes)], options, into) for n in range(options.programs)]
    give_up = time.monotonic() + options.seconds + 60
    while any(watch.process.poll() is None for watch in watches) and time.monotonic() < give_up:
        time.sleep(0.5)
        for watch in watches:
            watch.look()
    wrong = 0
    for watch in watches:
        if watch.process.poll() is None:
            watch.process.kill()
        watch.listener.join(5)
        wrong += watch.late or watch.process.wait() != 0
        print(f"{watch.name}: {watch.doing}, {watch.late} late, ended with {watch.process.wait()}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
