#!/usr/bin/env python3
"""What a session's ledger counts beside what NVIDIA's NVML says of its worker's process, while a program runs under a
limit.

    cargo build --release
    python3 perf/suite/drift.py --limit 16GiB -- python3 train.py
    python3 perf/suite/drift.py --driver soft --limit 2GiB -- ./program          without a GPU: what oriond says alone

Starts an oriond with that limit, runs the program through it, and prints a line a second for each session and GPU, in
MiB: what the ledger counts, what NVML says of the process and of the whole GPU, the difference of process and ledger,
by how much that is more than before the session, and what oriond itself says that the ledger lacks and how often that
was a drift. In the end come the largest values, the lines that oriond wrote about it, and how the program ended.
What the ledger does not count and a program has all the same (kernels' code, say) is what `UNCOUNTED_MAX` of
dataplane/oriond/src/engine/watch/held.rs is for. Where NVML does not list the worker's process (in a container with
pids of its own) the whole GPU's memory still tells, if nobody else uses that.
"""

import argparse
import ctypes
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server import find_driver

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
NOT_AVAILABLE = (1 << 64) - 1


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Nvml:
    """By GPU's UUID: bytes in use, and those of each process, None where they are not said."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        code = self.library.nvmlInit_v2()
        if code != 0:
            sys.exit(f"nvmlInit of {path} answers {code}")

    def look(self):
        count = ctypes.c_uint()
        self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return dict(self.look_at(index) for index in range(count.value))

    def look_at(self, index):
        device, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(96), (ctypes.c_ulonglong * 3)()
        self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        self.library.nvmlDeviceGetUUID(device, uuid, 96)
        self.library.nvmlDeviceGetMemoryInfo(device, memory)
        count, rows = ctypes.c_uint(1024), (Process * 1024)()
        code = self.library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), rows)
        listed = rows[: count.value] if code == 0 else []
        return uuid.value.decode(), (memory[2], {p.pid: None if p.used == NOT_AVAILABLE else p.used for p in listed})


def report(path):
    with socket.socket(socket.AF_UNIX) as asks:
        asks.connect(str(path))
        parts = []
        while part := asks.recv(1 << 16):
            parts.append(part)
    return json.loads(b"".join(parts))


def mib(value, width=9):
    return f"{'-' if value is None else round(value / MIB):>{width}}"


class Table:
    def __init__(self, before):
        """`before` is what NVML says while a worker waits, warmed up, for the program."""
        self.began = time.monotonic()
        self.before, self.first, self.most = before, {}, {}
        self.unlisted = set()
        columns = ("ledger", "process", "GPU", "differ", "more", "GPU more", "lacking", "drifts")
        print(f"{'s':>6} {'session':>8} {'gpu':>4}" + "".join(f"{column:>9}" for column in columns), flush=True)

    def add(self, said, nvml):
        uuids = {gpu["gpu"]: gpu["uuid"] for gpu in said["gpus"]}
        for session in said["sessions"]:
            ledgers = {}
            for vgpu, memory in zip(session["vgpus"], session["memory"]):
                ledgers[vgpu["gpu"]] = ledgers.get(vgpu["gpu"], 0) + memory["used"]
            for gpu, ledger in ledgers.items():
                nothing = (None, {})
                uuid = uuids.get(gpu)
                self.row(session, gpu, ledger, nvml.get(uuid, nothing), self.before.get(uuid, nothing))

    def row(self, session, gpu, ledger, seen, before):
        whole, processes = seen
        process = processes.get(session["worker_pid"])
        if process is None and processes:
            self.unlisted.add((session["worker_pid"], tuple(sorted(processes))))
        key = (session["session"], gpu)
        differ, of_whole = (None if value is None else value - ledger for value in (process, whole))
        more = []
        had = (("process", differ, before[1].get(session["worker_pid"])), ("whole", of_whole, before[0]))
        for name, value, first in had:
            first = self.first.setdefault((*key, name), value if first is None else first)
            more.append(None if first is None or value is None else value - first)
            if first is None:
                del self.first[(*key, name)]
        lacking = session["counters"].get("memory_lacking_bytes")
        drifts = session["counters"].get("memory_drifts", "-")
        values = (ledger, process, whole, differ, *more, lacking)
        seconds = time.monotonic() - self.began
        print(f"{seconds:6.1f} {key[0]:>8} {gpu:>4}" + "".join(map(mib, values)) + f"{drifts:>9}", flush=True)
        most = self.most.setdefault(key, [None] * 4)
        for place, value in enumerate((ledger, *more, lacking)):
            most[place] = max((v for v in (most[place], value) if v is not None), default=None)

    def end(self):
        for (session, gpu), most in sorted(self.most.items()):
            names = ("ledger", "uncounted by its process", "by the whole GPU", "lacking by oriond")
            parts = ", ".join(f"{name} {mib(value, 0)}" for name, value in zip(names, most))
            print(f"most, of session {session} on GPU {gpu}, in MiB: {parts}")
        for worker, listed in sorted(self.unlisted):
            print(f"NVML does not say what worker {worker} has; it lists {', '.join(map(str, listed))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--built", type=Path, default=ROOT / "target/release", help="the folder of the programs")
    parser.add_argument("--limit", default="8GiB", help="oriond's --memory-limit [%(default)s]")
    parser.add_argument("--vgpus", help="oriond's")
    parser.add_argument("--driver", help='oriond\'s; NVIDIA\'s if there is one, or "soft"')
    parser.add_argument("--nvml", type=Path, help="another libnvidia-ml.so.1, for oriond too")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two lines [%(default)s]")
    parser.add_argument("program", nargs="+", help="behind --")
    options = parser.parse_args()
    driver = options.driver or find_driver() or sys.exit("no driver of NVIDIA's was found; give --driver PATH or soft")
    with tempfile.TemporaryDirectory(prefix="orion-drift-") as folder:
        ended = run(options, str(driver), Path(folder))
    sys.exit(ended)


def run(options, driver, folder):
    log = folder / "log"
    place = folder / "oriond.sock"
    serve = [options.built / "oriond", "serve", "--socket", place, "--listen", "none", "--driver", driver]
    # One worker, and none in its place: a context takes some 500 MiB.
    serve += ["--memory-limit", options.limit, "--warm", "0", "--prestart", "1"]
    serve += ["--vgpus", options.vgpus] if options.vgpus else []
    serve += ["--nvml", options.nvml] if options.nvml else []
    with log.open("wb") as to:
        oriond = subprocess.Popen(list(map(str, serve)), stderr=to)
    try:
        deadline = time.monotonic() + 60
        while not re.search("worker warm", log.read_text(errors="replace")):
            if oriond.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"oriond has no worker: {log.read_text(errors='replace')}")
            time.sleep(0.1)
        # Of the machine, or of the driver's folder: where oriond looks.
        beside = Path(driver).resolve().parent / "libnvidia-ml.so.1"
        nvml = None if driver == "soft" else Nvml(options.nvml or (beside if beside.exists() else "libnvidia-ml.so.1"))
        table = Table(nvml.look() if nvml else {})
        command = [options.built / "orion-run", "--server", f"unix:{place}", "--", *options.program]
        program = subprocess.Popen(list(map(str, command)))
        while program.poll() is None:
            table.add(report(folder / "oriond.stats.sock"), nvml.look() if nvml else {})
            time.sleep(options.interval)
        table.end()
        said = [line for line in log.read_text(errors="replace").splitlines() if re.search("WARN|ERROR|NVML", line)]
        print("oriond said:", *said, sep="\n  ")
        print(f"the program ended with {program.returncode}")
        return program.returncode
    finally:
        oriond.terminate()
        oriond.wait()


main()
