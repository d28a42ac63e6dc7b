#!/usr/bin/env python3
"""How much a stream takes before the next call waits, and whether other threads go on: natively and through Orion.

    python3 perf/suite/ahead.py                              # native, shm and tcp
    python3 perf/suite/ahead.py --modes native               # the GPU's own queue

A host function holds a stream up while a thread gives it more and more to do of one kind. `fit` is how many it had
given when nothing more went, or that all did. Then another thread copies to the host and waits for that, in a stream
of its own: `others go on` says whether it got there within two seconds. Exits 1 if they do in the first mode and not
in another, or if fewer than 800 fit somewhere (400 launches with an event each) although they do in the first mode.
Of what fits less often there, six in seven have to fit. Needs no PyTorch.
"""

import argparse
import ctypes
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import run

MOST = 4000
#: Nobody waits for so many things, of which one kind is two.
LEAST = 800
TWO = "launch and record"
#: What is copied to pinned memory over a network is followed by a word and an event, what is copied from there by an
#: event: three things, and two.
OVER_A_NETWORK = {"copy to pinned memory": 3, "copy from pinned memory": 2}
STUCK_S = 0.5
OTHERS_S = 2
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry few(.param .u64 word) { ret; }
.visible .entry some(.param .align 8 .b8 words[1024]) { ret; }
.visible .entry many(.param .align 8 .b8 words[4000]) { ret; }
"""
LARGE_PTX = b""".version 8.1
.target sm_75
.address_size 64
.visible .entry large(.param .align 8 .b8 words[30000]) { ret; }
"""
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gpu:
    """A device's primary context, by the driver's API."""

    def __init__(self):
        self.cu = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.enter()
        self.module = self.load(PTX)

    def load(self, ptx):
        module = ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), ptx)
        return module

    def __call__(self, name, *arguments):
        code = getattr(self.cu, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answered {code}")

    def enter(self):
        """Makes it current to the calling thread."""
        self("cuCtxSetCurrent", self.context)

    def function(self, name, module=None):
        found = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(found), module or self.module, name)
        return found

    def stream(self):
        made = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(made), 1)
        return made

    def memory(self, nbytes):
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address


def kinds(gpu, stream):
    """What gives the stream one more thing to do, by name."""
    few, some, many = (gpu.function(name) for name in (b"few", b"some", b"many"))
    large = gpu.function(b"large", gpu.load(LARGE_PTX))
    memory, size, pinned, pageable = gpu.memory(1 << 20), ctypes.c_size_t, ctypes.c_void_p(), (ctypes.c_ubyte * 65536)()
    parameter, block = ctypes.c_uint64(memory.value), (ctypes.c_ubyte * 30000)()
    event, nothing = ctypes.c_void_p(), HOST_FUNCTION(lambda _: None)
    gpu("cuEventCreate", ctypes.byref(event), 2)
    gpu("cuMemHostAlloc", ctypes.byref(pinned), size(1 << 20), 0)
    half = ctypes.c_uint64(memory.value + (1 << 19))

    def launch(function, value):
        given = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(value), ctypes.c_void_p))
        gpu("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, given, None)

    def record():
        gpu("cuEventRecord", event, stream)

    def graph(nodes):
        """Launches of a graph of so many kernels."""
        made, ready = ctypes.c_void_p(), ctypes.c_void_p()
        gpu("cuStreamBeginCapture_v2", stream, 2)
        for _ in range(nodes):
            launch(few, parameter)
        gpu("cuStreamEndCapture", stream, ctypes.byref(made))
        gpu("cuGraphInstantiateWithFlags", ctypes.byref(ready), made, ctypes.c_uint64(0))
        return lambda: gpu("cuGraphLaunch", ready, stream)

    def allocate_and_free():
        address = ctypes.c_uint64()
        gpu("cuMemAllocAsync", ctypes.byref(address), size(4096), stream)
        gpu("cuMemFreeAsync", address, stream)

    def launch_and_record():
        launch(few, parameter)
        record()

    return {
        "launch": lambda: launch(few, parameter),
        "launch with 1 KB of parameters": lambda: launch(some, block),
        "launch with 4 KB of parameters": lambda: launch(many, block),
        "launch with 30 KB of parameters": lambda: launch(large, block),
        TWO: launch_and_record,
        "record": record,
        "fill": lambda: gpu("cuMemsetD8Async", memory, ctypes.c_ubyte(1), ctypes.c_size_t(4096), stream),
        "fill of rows": lambda: gpu("cuMemsetD2D8Async", memory, size(512), ctypes.c_ubyte(1), size(100), size(64),
                                    stream),
        "copy": lambda: gpu("cuMemcpyDtoDAsync_v2", memory, half, size(1024), stream),
        "copy of 512 KB": lambda: gpu("cuMemcpyDtoDAsync_v2", memory, half, size(1 << 19), stream),
        "copy from pinned memory": lambda: gpu("cuMemcpyHtoDAsync_v2", memory, pinned, size(4096), stream),
        "copy to pinned memory": lambda: gpu("cuMemcpyDtoHAsync_v2", pinned, memory, size(4096), stream),
        "copy from pageable memory": lambda: gpu("cuMemcpyHtoDAsync_v2", memory, pageable, size(4096), stream),
        "write of a value": lambda: gpu("cuStreamWriteValue32_v2", stream, memory, 1, 0),
        "allocation and free in order": allocate_and_free,
        "host function": lambda: gpu("cuLaunchHostFunc", stream, nothing, None),
        "graph of one kernel": graph(1),
        "graph of 16 kernels": graph(16),
        "graph of 256 kernels": graph(256),
    }  # fmt: skip


def ask(only):
    """Prints a line for each kind."""
    gpu = Gpu()
    stream, other, source = gpu.stream(), gpu.stream(), gpu.memory(64)
    for name, give in kinds(gpu, stream).items():
        if only and name not in only:
            continue
        opened = threading.Event()
        gate = HOST_FUNCTION(lambda _, opened=opened: opened.wait() and None)
        given = [0]

        def give_all(give=give, given=given):
            gpu.enter()
            while given[0] < MOST:
                give()
                given[0] += 1

        def copy(done):
            gpu.enter()
            host = (ctypes.c_ubyte * 64)()
            gpu("cuMemcpyDtoHAsync_v2", host, source, ctypes.c_size_t(64), other)
            gpu("cuStreamSynchronize", other)
            done.set()

        gpu("cuLaunchHostFunc", stream, gate, None)
        giver = threading.Thread(target=give_all, daemon=True)
        giver.start()
        seen = -1
        while giver.is_alive() and given[0] != seen:
            seen = given[0]
            time.sleep(STUCK_S)
        fit, done = given[0], threading.Event()
        threading.Thread(target=copy, args=(done,), daemon=True).start()
        go_on = done.wait(OTHERS_S)
        opened.set()
        giver.join()
        gpu("cuStreamSynchronize", stream)
        print(f"{name}\t{fit}\t{'yes' if go_on else 'no'}", flush=True)


def answers(mode, options):
    """What a mode says, by kind."""
    environment = {**os.environ}
    prefix = [options.orion_run, *shlex.split(options.orion_args), "--transport", mode, "--"]
    if mode == "native":
        prefix = []
        if options.native_lib:
            environment["LD_LIBRARY_PATH"] = str(options.native_lib)
    command = [*prefix, sys.executable, __file__, "--ask", "--only", options.only]
    asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if asked.returncode:
        sys.exit(f"ahead: {mode} ended with {asked.returncode}")
    rows = (line.split("\t") for line in asked.stdout.splitlines())
    return {name: (int(fit), others) for name, fit, others in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(run.MODES), help="comma-separated, of native, shm, tcp")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--orion-args", default="", help='more options for orion-run, e.g. "--software-gpu"')
    parser.add_argument("--native-lib", type=Path, metavar="DIR", help="where the native mode's libcuda.so.1 is")
    parser.add_argument("--only", default="", metavar="KINDS", help="comma-separated, as they are printed")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        return ask(options.only.split(",") if options.only else [])
    modes = options.modes.split(",")
    told = {mode: answers(mode, options) for mode in modes}
    wrong = 0
    for name, (first, natively) in told[modes[0]].items():
        row, least = [], min(LEAST // 2 if name == TWO else LEAST, first * 17 // 20)
        for mode in modes:
            fit, others = told[mode][name]
            things = OVER_A_NETWORK.get(name, 1) if mode == "tcp" else 1
            wrong += fit < least // things or (natively == "yes" and others == "no")
            row.append(f"{mode}: {'all' if fit == MOST else fit} fit, others go on: {others}")
        print(" | ".join([name, *row]))
    print(f"{len(told[modes[0]])} kinds, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
