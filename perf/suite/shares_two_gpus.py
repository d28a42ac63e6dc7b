#!/usr/bin/env python3
"""Whether a long kernel on one of a session's two GPUs is taken off that GPU for its neighbour, and off no other.

    python3 perf/suite/shares_two_gpus.py --bin target/release
    ORION_SOFT_DEVICES=2 python3 perf/suite/shares_two_gpus.py --bin target/debug --driver soft --seconds 3

One oriond gives each session both GPUs and half of their time. The first program has kernels of 100 ms on GPU 0, one
behind the other, and short ones on GPU 1; the second has short ones on GPU 0 and waits for each. That is measured with
`--preemption auto` and `off`, each program alone and both together: short kernels a second, the longest wait for one,
and how often oriond says that a session was taken off each GPU.

With `--only nccl` each program is PyTorch, whose all-reduce runs in one process on both GPUs, with kernels that wait
for each other: one such program, and two at once.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from shares_load import PTX

KINDS = ("both", "neighbour", "nccl")
#: What runs at once, with `--preemption auto`; of each last one also with `off`.
MEASUREMENTS = {
    "long": (("both",), ("neighbour",), ("both", "neighbour")),
    "nccl": (("nccl",), ("nccl", "nccl")),
}
LONG_MS, SHORT_US = 100, 500


class Gpu:
    """A context, a kernel and a stream of one GPU."""

    def __init__(self, cuda, number, soft):
        self.cuda = cuda
        device, self.context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.function, self.stream, self.stamps = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self("cuDeviceGet", ctypes.byref(device), number)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.enter()
        self("cuModuleLoadData", ctypes.byref(module), PTX)
        self("cuModuleGetFunction", ctypes.byref(self.function), module, b"work")
        self("cuStreamCreate", ctypes.byref(self.stream), 1)
        self("cuMemAlloc_v2", ctypes.byref(self.stamps), ctypes.c_size_t(4096))
        self.threads = 1 if soft else 128
        self.turns_per_us = self.measure()

    def __call__(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise SystemExit(f"{name} answered {code}")

    def enter(self):
        self("cuCtxSetCurrent", self.context)

    def launch(self, us):
        turns = ctypes.c_uint32(max(1, int(us * self.turns_per_us)))
        each = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in (self.stamps, turns)]
        parameters = (ctypes.c_void_p * 2)(*each)
        self("cuLaunchKernel", self.function, 1, 1, 1, self.threads, 1, 1, 0, self.stream, parameters, None)

    def wait(self):
        self("cuStreamSynchronize", self.stream)

    def measure(self):
        """Turns of the kernel's loop in a microsecond: the most of five tries, by the GPU's own clock."""
        self.turns_per_us, found = 1, []
        for _ in range(5):
            self.launch(20_000)
            self.wait()
            stamps = (ctypes.c_uint64 * 2)()
            self("cuMemcpyDtoH_v2", stamps, self.stamps, ctypes.c_size_t(16))
            found.append(20_000 * 1000 / (stamps[1] - stamps[0]))
        return max(found)


def program(kind, seconds, soft):
    """In a process of its own, under orion-run: says `ready`, waits for a line, works, says what came of it."""
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuInit(0) != 0:
        raise SystemExit("cuInit failed")
    short = Gpu(cuda, 1 if kind == "both" else 0, soft)
    long = Gpu(cuda, 0, soft) if kind == "both" else None
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + seconds
    thread, long_count = None, [0]
    if long:
        def work():
            long.enter()
            while time.monotonic() < until:
                long.launch(LONG_MS * 1000)
                long.launch(LONG_MS * 1000)
                long.wait()
                long_count[0] += 2
        thread = threading.Thread(target=work)
        thread.start()
    short.enter()
    count, longest, before = 0, 0, time.monotonic()
    while before < until:
        short.launch(SHORT_US)
        short.wait()
        now = time.monotonic()
        count, longest, before = count + 1, max(longest, now - before), now
    if thread:
        thread.join()
    print(json.dumps({"short_s": count / seconds, "longest_ms": longest * 1000, "long": long_count[0]}))


def all_reduces(seconds):
    """As `program`, with PyTorch."""
    import torch
    from torch.cuda import nccl

    tensors = [torch.ones(1 << 20, device=f"cuda:{gpu}") for gpu in range(2)]
    wait = lambda: [torch.cuda.synchronize(gpu) for gpu in range(2)]  # noqa: E731
    nccl.all_reduce(tensors)
    wait()
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + seconds
    count, longest, before = 0, 0, time.monotonic()
    while before < until:
        for tensor in tensors:
            tensor.fill_(1)
        for _ in range(20):
            nccl.all_reduce(tensors)
        wait()
        got = [tensor[-1].item() for tensor in tensors]
        if got != [2.0**20] * 2:
            raise SystemExit(f"wrong: {got}")
        now = time.monotonic()
        count, longest, before = count + 20, max(longest, now - before), now
    print(json.dumps({"short_s": count / seconds, "longest_ms": longest * 1000, "long": 0}))


def start(options, folder, kind):
    command = [options.bin / "orion-run", "--server", f"unix:{folder}/s", "--", sys.executable, __file__, "--program",
               kind, "--seconds", options.seconds, "--driver", options.driver]
    return subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(options, preemption, kinds):
    with tempfile.TemporaryDirectory() as folder:
        command = [options.bin / "oriond", "serve", "--driver", options.driver, "--listen", "none", "--socket",
                   f"{folder}/s", "--vgpus", 2, "--share", 50, "--warm", 0, "--preemption", preemption]
        log = Path(folder, "log")
        with log.open("w") as out:
            oriond = subprocess.Popen([str(part) for part in command], stderr=out, stdout=out)
        programs = []
        try:
            deadline = time.monotonic() + 60
            while "serving" not in log.read_text():
                if oriond.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"oriond does not serve: {log.read_text()}")
                time.sleep(0.05)
            programs = [start(options, folder, kind) for kind in kinds]
            for kind, process in zip(kinds, programs):
                if process.stdout.readline().strip() != "ready":
                    sys.exit(f"{kind} ended before it was ready: {log.read_text()[-2000:]}")
            for process in programs:
                process.stdin.write("\n")
                process.stdin.flush()
            said = [process.stdout.readline() for process in programs]
            for process in programs:
                process.wait(30)
            time.sleep(0.5)
        finally:
            for process in programs:
                process.kill()
            oriond.terminate()
            oriond.wait(20)
        text = log.read_text()
    taken_off = re.findall(r"session=(\d+) gpu=(\d+) .*?used_ms=(\d+).* taken_off=(\d+)", text)
    if not all(said):
        sys.exit(f"a program of {kinds} ended before it had said what came of it: {text[-2000:]}")
    found = {"programs": [{"kind": kind, **json.loads(line)} for kind, line in zip(kinds, said)]}
    found["taken_off"] = [dict(zip(("session", "gpu", "used_ms", "times"), map(int, one))) for one in taken_off]
    found["warnings"] = [line for line in text.splitlines() if "WARN" in line or "ERROR" in line]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path("target/release"), help="where Orion's programs are")
    parser.add_argument("--driver", default="auto", help="oriond's: auto, soft or the path of NVIDIA's libcuda.so.1")
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--out", type=Path, help="everything, as JSON")
    parser.add_argument("--only", choices=MEASUREMENTS, default="long", help="what is measured (long)")
    parser.add_argument("--program", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program == "nccl":
        return all_reduces(options.seconds)
    if options.program:
        return program(options.program, options.seconds, options.driver == "soft")
    options.bin = options.bin.resolve()
    results = {}
    for preemption in ("auto", "off"):
        measurements = MEASUREMENTS[options.only]
        for kinds in measurements if preemption == "auto" else measurements[-1:]:
            found = run(options, preemption, kinds)
            results[f"{preemption}: {' and '.join(kinds)}"] = found
            print(f"--preemption {preemption}, {' and '.join(kinds)}", flush=True)
            for got in found["programs"]:
                kind = got["kind"]
                long = f", {got['long']} long ones" if kind == "both" else ""
                what = "all-reduces" if kind == "nccl" else "short kernels"
                print(f"  {kind}: {got['short_s']:.0f} {what} a second, "
                      f"the longest wait {got['longest_ms']:.1f} ms{long}", flush=True)
            for one in found["taken_off"]:
                line = "  session {session} on GPU {gpu}: {used_ms} ms, taken off {times} times"
                print(line.format(**one), flush=True)
            for line in found["warnings"][:4]:
                print(f"  oriond: {line[:250]}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("ORION_QUIET", "1")
    main()
