#!/usr/bin/env python3
"""Which functions of the driver wait for the device, and what a capture forbids: natively and through Orion.

    python3 perf/suite/waits.py                              # native, shm and tcp
    python3 perf/suite/waits.py --modes native               # the driver's own answers

Each function is called while a kernel runs that looks at a clock for a tenth of a second and then writes a word of
pinned memory. `waits` means that the call took as long, `seen` that the word was there when it returned. Then each is
called beside a capture of each mode, without a current context, and beside the work of another context. Exits 1 if a
mode differs from the first one. Needs no PyTorch.
"""

import argparse
import ctypes
import mmap
import shlex
import subprocess
import sys
import time
from pathlib import Path

import run

SPIN_MS = 100
MIB = 1 << 20
PTX = b""".version 7.0
.target sm_75
.address_size 64
.global .u32 variable;
.visible .entry spin(.param .u64 ns, .param .u64 to, .param .u32 value) {
    .reg .u64 %begun, %now, %ns, %to;
    .reg .u32 %value;
    .reg .pred %on;
    ld.param.u64 %ns, [ns];
    ld.param.u64 %to, [to];
    ld.param.u32 %value, [value];
    mov.u64 %begun, %globaltimer;
LOOK:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    setp.lt.u64 %on, %now, %ns;
    @%on bra LOOK;
    st.global.u32 [%to], %value;
    ret;
}
"""
CAPTURE_MODES = ("global", "thread-local", "relaxed")
#: Of the functions below, those that are tried beside captures.
BESIDE_CAPTURES = (
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuMemFree of managed memory",
    "cuArrayDestroy",
    "cuModuleUnload",
    "cuMemAlloc",
    "cuMemHostAlloc",
    "cuMemHostRegister",
)

Pointer, Address, Size, Int = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int
at = ctypes.byref


class Array(ctypes.Structure):
    _fields_ = [("width", Size), ("height", Size), ("format", Int), ("channels", ctypes.c_uint)]


class Array3D(ctypes.Structure):
    _fields_ = [(name, Size) for name in ("width", "height", "depth")]
    _fields_ += [("format", Int), ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]


class Allocation(ctypes.Structure):
    _fields_ = [(name, Int) for name in ("type", "handles", "location", "device")]
    _fields_ += [("attributes", Pointer), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [(name, Int) for name in ("location", "device", "flags")]


class Pool(ctypes.Structure):
    _fields_ = [(name, Int) for name in ("type", "handles", "location", "device")]
    _fields_ += [("attributes", Pointer), ("most", Size), ("usage", ctypes.c_ushort), ("rest", ctypes.c_ubyte * 54)]


FLOAT, PINNED, DEVICE, READ_WRITE = 0x20, 1, 1, 3


class Lab:
    """A context with a kernel that takes its time, and what can be freed in it."""

    def __init__(self):
        self.cu, self.kept, self.launched = ctypes.CDLL("libcuda.so.1"), [], 0
        self.must(self.cu.cuInit(0))
        self.context = self.made(self.cu.cuDevicePrimaryCtxRetain, Pointer, 0)
        self.must(self.cu.cuCtxSetCurrent(self.context))
        self.function = Pointer()
        self.must(self.cu.cuModuleGetFunction(at(self.function), self.module(), b"spin"))
        self.flag = self.made(self.cu.cuMemHostAlloc, Pointer, Size(4096), 2)
        self.word = ctypes.cast(self.flag, ctypes.POINTER(ctypes.c_uint32))
        self.seen_by_device = self.made(self.cu.cuMemHostGetDevicePointer_v2, Address, self.flag, 0)
        self.own, self.other = self.stream(), self.stream()
        self.device, self.pinned, self.pageable = self.memory(), self.host(), (ctypes.c_char * MIB)()

    def must(self, code, what="the driver"):
        if code:
            sys.exit(f"waits: {what} answered {code}")

    def made(self, make, kind, *arguments):
        it = kind()
        self.must(make(at(it), *arguments), make.__name__)
        return it

    def module(self):
        return self.made(self.cu.cuModuleLoadData, Pointer, PTX)

    def library(self):
        return self.made(self.cu.cuLibraryLoadData, Pointer, PTX, None, None, 0, None, None, 0)

    def stream(self):
        return self.made(self.cu.cuStreamCreate, Pointer, 1)

    def event(self):
        return self.made(self.cu.cuEventCreate, Pointer, 0)

    def memory(self):
        return self.made(self.cu.cuMemAlloc_v2, Address, Size(MIB))

    def host(self):
        return self.made(self.cu.cuMemHostAlloc, Pointer, Size(MIB), 0)

    def managed(self):
        return self.made(self.cu.cuMemAllocManaged, Address, Size(MIB), 1)

    def register(self):
        pages = mmap.mmap(-1, MIB)
        self.kept.append(pages)
        address = Pointer(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
        return address, self.cu.cuMemHostRegister_v2(address, Size(MIB), 0)

    def registered(self):
        address, code = self.register()
        self.must(code, "cuMemHostRegister")
        return address

    def array(self):
        return self.made(self.cu.cuArrayCreate_v2, Pointer, at(Array(64, 64, FLOAT, 1)))

    def mipmapped(self):
        return self.made(self.cu.cuMipmappedArrayCreate, Pointer, at(Array3D(64, 64, 0, FLOAT, 1, 0)), 2)

    def pool(self):
        return self.made(self.cu.cuMemPoolCreate, Pointer, at(Pool(PINNED, 0, DEVICE, 0)))

    def of_a_pool(self):
        it = self.made(self.cu.cuMemAllocAsync, Address, Size(MIB), self.other)
        self.must(self.cu.cuStreamSynchronize(self.other))
        return it

    def graph(self):
        graph = self.made(self.cu.cuGraphCreate, Pointer, 0)
        self.must(self.cu.cuGraphAddEmptyNode(at(Pointer()), graph, None, Size(0)))
        return self.made(self.cu.cuGraphInstantiateWithFlags, Pointer, graph, Address(0))

    def mapping(self):
        size = Size(2 * MIB)
        handle = self.made(self.cu.cuMemCreate, Address, size, at(Allocation(PINNED, 0, DEVICE, 0)), Address(0))
        place = self.made(self.cu.cuMemAddressReserve, Address, size, Size(0), Address(0), Address(0))
        self.must(self.cu.cuMemMap(place, size, Size(0), handle, Address(0)))
        self.must(self.cu.cuMemSetAccess(place, size, at(Access(DEVICE, 0, READ_WRITE)), Size(1)))
        self.kept.append(handle)
        return place

    def another_context(self):
        it = self.made(self.cu.cuCtxCreate_v2, Pointer, 0, 0)
        self.must(self.cu.cuCtxPopCurrent_v2(at(Pointer())))
        return it

    def spin(self, stream, ms=SPIN_MS):
        """A kernel that writes the answer to the flag after so long."""
        self.launched += 1
        arguments = Address(ms * 1_000_000), self.seen_by_device, ctypes.c_uint32(self.launched)
        pointers = (Pointer * 3)(*map(ctypes.addressof, arguments))
        self.must(self.cu.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None))
        return self.launched

    def cases(self):
        """Name, what makes its argument, and the call."""
        cu, nothing, mib, some = self.cu, lambda: None, Size(MIB), Size(MIB // 4)
        return [
            ("cuMemFree", self.memory, cu.cuMemFree_v2),
            ("cuMemFreeHost", self.host, cu.cuMemFreeHost),
            ("cuMemHostUnregister", self.registered, cu.cuMemHostUnregister),
            ("cuMemFree of managed memory", self.managed, cu.cuMemFree_v2),
            ("cuArrayDestroy", self.array, cu.cuArrayDestroy),
            ("cuMipmappedArrayDestroy", self.mipmapped, cu.cuMipmappedArrayDestroy),
            ("cuModuleUnload", self.module, cu.cuModuleUnload),
            ("cuLibraryUnload", self.library, cu.cuLibraryUnload),
            ("cuStreamDestroy", self.stream, cu.cuStreamDestroy_v2),
            ("cuEventDestroy", self.event, cu.cuEventDestroy_v2),
            ("cuMemPoolDestroy", self.pool, cu.cuMemPoolDestroy),
            ("cuMemPoolTrimTo", self.pool, lambda it: cu.cuMemPoolTrimTo(it, Size(0))),
            ("cuMemFreeAsync, another stream", self.of_a_pool, lambda it: cu.cuMemFreeAsync(it, self.other)),
            ("cuMemFree of a pool's memory", self.of_a_pool, cu.cuMemFree_v2),
            ("cuGraphExecDestroy", self.graph, cu.cuGraphExecDestroy),
            ("cuMemUnmap", self.mapping, lambda it: cu.cuMemUnmap(it, Size(2 * MIB))),
            ("cuMemRelease", nothing, lambda _: cu.cuMemRelease(self.kept.pop())),
            ("cuCtxDestroy, another context", self.another_context, cu.cuCtxDestroy_v2),
            ("cuMemAlloc", nothing, lambda _: cu.cuMemAlloc_v2(at(Address()), mib)),
            ("cuMemHostAlloc", nothing, lambda _: cu.cuMemHostAlloc(at(Pointer()), mib, 0)),
            ("cuMemHostRegister", nothing, lambda _: self.register()[1]),
            ("cuModuleLoadData", nothing, lambda _: cu.cuModuleLoadData(at(Pointer()), PTX)),
            ("cuMemsetD8", nothing, lambda _: cu.cuMemsetD8_v2(self.device, ctypes.c_ubyte(1), mib)),
            ("cuMemcpyHtoD, pageable", nothing, lambda _: cu.cuMemcpyHtoD_v2(self.device, self.pageable, mib)),
            ("cuMemcpyDtoH, pageable", nothing, lambda _: cu.cuMemcpyDtoH_v2(self.pageable, self.device, mib)),
            ("cuMemcpyDtoH, pinned", nothing, lambda _: cu.cuMemcpyDtoH_v2(self.pinned, self.device, mib)),
            ("cuMemcpyDtoHAsync, pageable, another stream", nothing,
             lambda _: cu.cuMemcpyDtoHAsync_v2(self.pageable, self.device, mib, self.other)),
            ("cuMemcpyDtoD", nothing,
             lambda _: cu.cuMemcpyDtoD_v2(self.device, Address(self.device.value + MIB // 2), some)),
            ("cuStreamSynchronize, another stream", nothing, lambda _: cu.cuStreamSynchronize(self.other)),
            ("cuStreamSynchronize, the default stream", nothing, lambda _: cu.cuStreamSynchronize(None)),
            ("cuCtxSetLimit, a larger stack", nothing, lambda _: cu.cuCtxSetLimit(0, Size(4096 + 64 * self.launched))),
            ("cuMemGetInfo", nothing, lambda _: cu.cuMemGetInfo_v2(at(Size()), at(Size()))),
        ]

    def timed(self, call, it):
        began = time.perf_counter()
        code = call(it)
        took_ms = (time.perf_counter() - began) * 1e3
        return code, "waits" if took_ms > 0.9 * SPIN_MS else "-"


def ask():
    """Everything, a line each."""
    lab = Lab()
    cu, cases = lab.cu, lab.cases()
    for where, stream in (("the default stream", None), ("a stream", lab.own)):
        for name, make, call in cases:
            it = make()
            lab.must(cu.cuCtxSynchronize())
            launched = lab.spin(stream)
            code, waits = lab.timed(call, it)
            seen = "seen" if lab.word[0] == launched else "-"
            lab.must(cu.cuCtxSynchronize(), f"cuCtxSynchronize behind {name}")
            print(f"a kernel on {where} | {name} | {code} {waits} {seen}")
    by_name = {name: (make, call) for name, make, call in cases}
    for mode, mode_name in enumerate(CAPTURE_MODES):
        for name in BESIDE_CAPTURES:
            make, call = by_name[name]
            it = make()
            lab.must(cu.cuCtxSynchronize())
            lab.must(cu.cuStreamBeginCapture_v2(lab.own, mode))
            code = call(it)
            ended = cu.cuStreamEndCapture(lab.own, at(Pointer()))
            print(f"beside a capture, {mode_name} | {name} | {code}, and the capture ends with {ended}")
    frees = BESIDE_CAPTURES[:3]
    for name in frees:
        make, call = by_name[name]
        it = make()
        lab.must(cu.cuCtxPopCurrent_v2(at(Pointer())))
        print(f"without a context | {name} | {call(it)}")
        lab.must(cu.cuCtxPushCurrent_v2(lab.context))
    another = lab.another_context()
    for name in frees:
        make, call = by_name[name]
        it = make()
        lab.must(cu.cuCtxSynchronize())
        lab.spin(lab.own)
        lab.must(cu.cuCtxPushCurrent_v2(another))
        code, waits = lab.timed(call, it)
        lab.must(cu.cuCtxPopCurrent_v2(at(Pointer())))
        lab.must(cu.cuCtxSynchronize())
        print(f"with another context current | {name} | {code} {waits}")


def answers(mode, orion_run, more):
    command = [] if mode == "native" else [orion_run, *more, "--transport", mode, "--"]
    done = subprocess.run([*command, sys.executable, __file__, "--ask"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"waits: {mode} ended with {done.returncode}: {done.stderr[-2000:]}")
    return dict(line.rsplit(" | ", 1) for line in done.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(run.MODES), help="comma-separated, of native, shm, tcp")
    parser.add_argument("--orion-run", default=run.REPOSITORY / "target/release/orion-run", type=Path, metavar="PATH")
    parser.add_argument("--orion-args", default="", help='more options for orion-run, e.g. "--software-gpu"')
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        return ask()
    modes = options.modes.split(",")
    told = {mode: answers(mode, options.orion_run, shlex.split(options.orion_args)) for mode in modes}
    first, different = told[modes[0]], 0
    for row, answer in first.items():
        others = [f"{mode}: {told[mode].get(row)}" for mode in modes[1:] if told[mode].get(row) != answer]
        different += bool(others)
        print(" | ".join([row, answer, *others]))
    print(f"{len(first)} rows, {different} differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
