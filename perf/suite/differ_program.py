"""A program of `differ.py`: calls of the driver in random order, and what came of each."""

import concurrent.futures
import ctypes
import hashlib
import os
import random
import sys
from ctypes import byref, c_byte, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter[4];
.visible .entry fill(.param .u64 to, .param .u32 value, .param .u32 count) {
    .reg .u64 %to, %at;
    .reg .u32 %value, %count, %me, %block, %width;
    .reg .pred %off;
    ld.param.u64 %to, [to];
    ld.param.u32 %value, [value];
    ld.param.u32 %count, [count];
    mov.u32 %me, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mad.lo.u32 %me, %block, %width, %me;
    setp.ge.u32 %off, %me, %count;
    @%off bra END;
    mul.wide.u32 %at, %me, 4;
    add.u64 %at, %at, %to;
    st.global.u32 [%at], %value;
END:
    ret;
}
.visible .entry nothing() {
    ret;
}
\0"""
SIZES = (0, 1, 3, 4, 8, 63, 64, 256, 1000, 4096, 65536, 1 << 20)
HOST_BYTES = 2 << 20
THREADS = 3
NOT_READY = 600
SYMBOLS = {}


class Copy3D(ctypes.Structure):
    _fields_ = [
        *[(name, c_size_t) for name in ("srcX", "srcY", "srcZ", "srcLOD")],
        ("srcType", c_uint), ("srcHost", c_void_p), ("srcDevice", c_uint64), ("srcArray", c_void_p),
        ("reserved0", c_void_p), ("srcPitch", c_size_t), ("srcHeight", c_size_t),
        *[(name, c_size_t) for name in ("dstX", "dstY", "dstZ", "dstLOD")],
        ("dstType", c_uint), ("dstHost", c_void_p), ("dstDevice", c_uint64), ("dstArray", c_void_p),
        ("reserved1", c_void_p), ("dstPitch", c_size_t), ("dstHeight", c_size_t),
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
    ]  # fmt: skip


class ArrayDescription(ctypes.Structure):
    _fields_ = [
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
        ("format", c_uint), ("channels", c_uint), ("flags", c_uint),
    ]  # fmt: skip


class KernelNode(ctypes.Structure):
    _fields_ = [
        ("function", c_void_p), *[(name, c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")],
        ("parameters", c_void_p), ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p),
    ]  # fmt: skip


class MemsetNode(ctypes.Structure):
    _fields_ = [
        ("at", c_uint64), ("pitch", c_size_t), ("value", c_uint), ("element", c_uint), ("width", c_size_t),
        ("height", c_size_t),
    ]  # fmt: skip


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint), ("handles", c_uint), ("location", c_uint), ("device", c_int), ("security", c_void_p),
        ("most", c_size_t), ("usage", ctypes.c_ushort), ("reserved", c_byte * 54),
    ]  # fmt: skip


class Placement(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint), ("handles", c_uint), ("location", c_uint), ("device", c_int), ("metadata", c_void_p),
        ("flags", c_byte * 8),
    ]  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = [("location", c_uint), ("device", c_int), ("flags", c_uint)]


class UpdateResult(ctypes.Structure):
    _fields_ = [("result", c_uint), ("node", c_void_p), ("from_node", c_void_p)]


class Thing:
    """Something that the driver made: its name in the trace, and its handle or address."""

    def __init__(self, name, handle, **more):
        self.name, self.handle = name, handle
        self.__dict__.update(more)


class Program:
    """One seed's program: what it has made, and what it does next."""

    def __init__(self, seed, steps, is_known=False):
        #: Only what the software GPU is known to answer as a GPU does.
        self.is_known = is_known
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.random = random.Random(seed)
        self.steps, self.number, self.left = steps, 0, False
        self.threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(THREADS)]
        self.thread = self.threads[0]
        self.things = {}
        self.made = {}
        self.host = (c_byte * HOST_BYTES)()
        self.kept = []
        self.capturing = None
        self.counts = {1: 0, 2: 0, 3: 0}
        self.callback = ctypes.CFUNCTYPE(None, c_void_p)(self.counted)

    def counted(self, data):
        self.counts[data] += 1

    def raw(self, name, *arguments):
        function = getattr(self.driver, name)
        return self.thread.submit(function, *arguments).result()

    def call(self, name, *arguments, said="", out=None):
        """Makes a call and prints it. `out` tells of its results where it has been successful."""
        code = self.raw(name, *arguments)
        shown = "done" if name.endswith("Query") and code in (0, NOT_READY) else code
        result = out() if out and code == 0 else ""
        print(f"{self.number} t{self.threads.index(self.thread)} {name}({said}) {shown} {result}".rstrip(), flush=True)
        return code

    def add(self, kind, handle, **more):
        self.made[kind] = self.made.get(kind, 0) + 1
        thing = Thing(f"{kind}{self.made[kind]}", handle, **more)
        self.things.setdefault(kind, []).append(thing)
        return thing

    def all(self, kind):
        return self.things.get(kind, [])

    def pick(self, kind):
        """One of a kind, or now and then none."""
        if self.all(kind) and self.random.random() < 0.95:
            return self.random.choice(self.all(kind))
        return Thing("null", 0, bytes=0, value=0)

    def drop(self, kind, thing):
        if thing in self.all(kind):
            self.all(kind).remove(thing)

    def create(self, kind, name, *arguments, said="", **more):
        handle = c_void_p()
        if self.call(name, byref(handle), *arguments, said=said) == 0:
            return self.add(kind, handle.value or 0, **more)
        return None

    def size(self, least=0):
        sizes = [size for size in SIZES if size >= least]
        return self.random.choice(sizes) if self.random.random() < 0.97 else 1 << self.random.choice((40, 50, 63))

    def place(self, most=None):
        """An address in device memory, and how many bytes to use there: inside, or far too many. What lies just behind
        an allocation may be another one."""
        memory = self.pick("memory" if self.random.random() < 0.85 or not self.all("pinned") else "pinned")
        if self.random.random() < 0.02 and memory.handle and not (self.is_known and self.capturing):
            return memory.handle, 1 << 45, f"{memory.name}+0,{1 << 45}"
        offset = self.random.choice([0, 0, *(o for o in (4, 64, 100, 4096) if o < memory.bytes)])
        inside = max(0, min(memory.bytes - offset, most or HOST_BYTES))
        size = min(inside, self.random.choice(SIZES)) if self.random.random() < 0.3 else inside // 4 * 4
        if self.is_known and not (size and memory.handle):
            memory = next((m for m in self.all("memory") if m.bytes >= 4), Thing("none", 0, bytes=0))
            offset, size = 0, min(memory.bytes, most or HOST_BYTES) // 4 * 4
        return memory.handle + offset, size, f"{memory.name}+{offset},{size}"

    def host_place(self, size):
        pinned = self.pick("pinned")
        if pinned.handle and pinned.bytes >= size and self.random.random() < 0.5:
            return c_void_p(pinned.handle), pinned.name
        return c_void_p(ctypes.addressof(self.host)), "host"

    def stream(self):
        """Where all work goes until the next wait: what comes of it does not depend on what is faster."""
        return self.things["current"][0]

    def some_stream(self):
        """Mostly that one, else a default stream. All are ordered: the current one is no `CU_STREAM_NON_BLOCKING`."""
        chosen = self.random.random()
        if chosen < 0.85:
            return self.stream()
        if chosen < 0.97 or self.capturing:
            return Thing(f"default{int(chosen * 100) % 2}", int(chosen * 100) % 2)
        # A thread's own is ordered with the legacy one only.
        self.raw("cuCtxSynchronize")
        self.things["current"] = [Thing("default0", 0)]
        return Thing("default2", 2)

    # What a program does.

    def begin(self):
        for index, thread in enumerate(self.threads):
            self.thread = thread
            if index == 0:
                self.raw("cuInit", 0)
            context = c_void_p()
            self.raw("cuDevicePrimaryCtxRetain", byref(context), 0)
            self.raw("cuCtxSetCurrent", context)
        self.primary = Thing("primary", context.value)
        self.things["current"] = [Thing("default0", 0)]
        self.load()
        self.graphs_own = [Thing("own", self.own(4096), bytes=4096, is_clear=True)]
        self.allocate()

    def load(self):
        module = self.create("module", "cuModuleLoadData", PTX)
        if module:
            for name in ("fill", "nothing"):
                handle = c_void_p()
                arguments = byref(handle), c_void_p(module.handle), name.encode()
                code = self.call("cuModuleGetFunction", *arguments, said=name)
                if code == 0:
                    self.add("function", handle.value, module=module, kernel=name)

    def unload(self):
        module = self.pick("module")
        if module.handle and len(self.all("module")) < 2 or self.capturing:
            return
        if self.call("cuModuleUnload", c_void_p(module.handle), said=module.name) == 0:
            self.drop("module", module)
            for function in [f for f in self.all("function") if f.module is module]:
                self.drop("function", function)
            for graph in list(self.all("graph")):
                self.drop("graph", graph)
            for executable in list(self.all("executable")):
                self.drop("executable", executable)

    def global_(self):
        module, at, size = self.pick("module"), c_uint64(), c_size_t()
        name = self.random.choice((b"counter", b"none", b""))
        if module.handle:
            arguments = byref(at), byref(size), c_void_p(module.handle), name
            self.call("cuModuleGetGlobal_v2", *arguments, said=f"{module.name},{name}", out=lambda: size.value)

    def allocate(self):
        at, size = c_uint64(), self.size(self.is_known)
        if self.call("cuMemAlloc_v2", byref(at), c_size_t(size), said=size) == 0:
            self.add("memory", at.value, bytes=size, is_clear=False)
            self.clear()

    def own(self, size):
        at = c_uint64()
        self.raw("cuMemAlloc_v2", byref(at), c_size_t(size))
        self.raw("cuMemsetD8_v2", at, c_byte(0), c_size_t(size))
        return at.value

    def clear(self):
        """Where nobody has written nobody knows what there is."""
        for memory in [m for m in self.all("memory") if not m.is_clear]:
            arguments = c_uint64(memory.handle), c_byte(7), c_size_t(memory.bytes)
            memory.is_clear = self.call("cuMemsetD8_v2", *arguments, said=f"{memory.name},7,{memory.bytes}") == 0

    def allocate_in_order(self):
        at, size, stream = c_uint64(), self.size(self.is_known), self.some_stream()
        said = f"{size},{stream.name}"
        if self.call("cuMemAllocAsync", byref(at), c_size_t(size), c_void_p(stream.handle), said=said) == 0:
            if not self.capturing:
                self.add("ordered", at.value, bytes=size)

    def free_in_order(self):
        memory, stream = self.pick("ordered"), self.some_stream()
        if self.is_known and not memory.handle:
            return
        said = f"{memory.name},{stream.name}"
        code = self.call("cuMemFreeAsync", c_uint64(memory.handle), c_void_p(stream.handle), said=said)
        if code == 0:
            self.drop("ordered", memory)

    def free(self):
        memory = self.pick("memory")
        if self.is_known and not memory.handle:
            return
        if self.call("cuMemFree_v2", c_uint64(memory.handle), said=memory.name) == 0:
            self.drop("memory", memory)

    def allocate_pitch(self):
        at, pitch, width, height = c_uint64(), c_size_t(), self.size(), self.random.choice((0, 1, 2, 7))
        element = self.random.choice((4, 8, 16, 3))
        arguments = byref(at), byref(pitch), c_size_t(width), c_size_t(height), c_uint(element)
        said = f"{width},{height},{element}"
        if self.call("cuMemAllocPitch_v2", *arguments, said=said, out=lambda: pitch.value) == 0:
            size = pitch.value * height
            self.add("memory", at.value, bytes=size, is_clear=False)
            self.clear()

    def pin(self):
        at, size, flags = c_void_p(), self.size(self.is_known), self.random.choice((0, 1, 2, 4, 7, 8))
        if self.is_known and self.capturing and flags == 8:
            return
        if size > 1 << 30:
            return
        if self.call("cuMemHostAlloc", byref(at), c_size_t(size), c_uint(flags), said=f"{size},{flags}") == 0:
            if at.value:
                ctypes.memset(at.value, 5, size)
            self.add("pinned", at.value or 0, bytes=size)

    def unpin(self):
        pinned = self.pick("pinned")
        if self.is_known and not pinned.handle:
            return
        if self.call("cuMemFreeHost", c_void_p(pinned.handle), said=pinned.name) == 0:
            self.drop("pinned", pinned)

    def of_pinned(self):
        pinned, flags, device = self.pick("pinned"), c_uint(), c_uint64()
        arguments = byref(flags), c_void_p(pinned.handle)
        # Pinned memory is cut from larger pieces, and a driver tells of PORTABLE what the piece was asked for with.
        mask = 4 if self.is_known else 0xFE
        if not self.is_known or pinned.handle:
            self.call("cuMemHostGetFlags", *arguments, said=pinned.name, out=lambda: flags.value & mask)
        arguments = byref(device), c_void_p(pinned.handle), c_uint(self.random.choice((0, 0, 1)))
        self.call(
            "cuMemHostGetDevicePointer_v2", *arguments, said=f"{pinned.name},{arguments[2].value}",
            out=lambda: device.value == pinned.handle,
        )  # fmt: skip

    def register(self):
        if not self.left and self.call("cuMemHostRegister_v2", self.host, c_size_t(HOST_BYTES), c_uint(0)) == 0:
            self.left = True

    def unregister(self):
        if self.call("cuMemHostUnregister", self.host) == 0:
            self.left = False

    def copy(self):
        (at, size, said), way, stream = self.place(), self.random.choice("ud"), self.some_stream()
        host, host_said = self.host_place(size)
        if size > HOST_BYTES and not at or self.is_known and not size:
            return
        if way == "u":
            names, arguments = ("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2"), (c_uint64(at), host, c_size_t(size))
        else:
            names, arguments = ("cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2"), (host, c_uint64(at), c_size_t(size))
        if self.random.random() < 0.5:
            self.call(names[0], *arguments, said=f"{said},{host_said}")
        else:
            self.call(names[1], *arguments, c_void_p(stream.handle), said=f"{said},{host_said},{stream.name}")

    def copy_within(self):
        (to, size, said), (at, from_size, from_said), stream = self.place(), self.place(), self.some_stream()
        size = min(size, from_size) if max(size, from_size) <= HOST_BYTES else max(size, from_size)
        arguments, said = (c_uint64(to), c_uint64(at), c_size_t(size)), f"{said},{from_said},{size}"
        if size > HOST_BYTES or to <= at < to + size or at <= to < at + size or self.is_known and not size:
            return
        if self.random.random() < 0.4 or not (to and at):
            self.call("cuMemcpyDtoD_v2", *arguments, said=said)
        elif self.random.random() < 0.5:
            self.call("cuMemcpyDtoDAsync_v2", *arguments, c_void_p(stream.handle), said=said)
        else:
            self.call("cuMemcpyAsync", *arguments, c_void_p(stream.handle), said=said)

    def copy_box(self):
        copy, stream = Copy3D(), self.some_stream()
        (at, size, said), up = self.place(), self.random.random() < 0.5
        host, host_said = self.host_place(size)
        pitch = self.random.choice((0, 64, 128, 1000))
        copy.width, copy.height, copy.depth = self.random.choice((0, 4, 64)), self.random.choice((0, 1, 5)), 1
        if self.is_known and not (copy.width and copy.height):
            return
        copy.srcType, copy.dstType = (1, 2) if up else (2, 1)
        if self.random.random() < 0.05:
            copy.srcType = self.random.choice((0, 3, 4, 7))
        copy.srcHost = copy.dstHost = host.value if host_said == "host" else ctypes.addressof(self.host)
        copy.srcDevice = copy.dstDevice = at
        copy.srcPitch = copy.dstPitch = pitch
        said = f"{said},{copy.srcType}>{copy.dstType},{copy.width}x{copy.height},{pitch}"
        if at and (max(pitch, copy.width) * max(0, copy.height - 1) + copy.width > size or size > HOST_BYTES):
            return
        if copy.srcType in (3, 4) and not at:
            return
        if self.random.random() < 0.5:
            self.call("cuMemcpy3D_v2", byref(copy), said=said)
        else:
            self.call("cuMemcpy3DAsync_v2", byref(copy), c_void_p(stream.handle), said=said)

    def fill_memory(self):
        (at, size, said), width, stream = self.place(), self.random.choice((8, 16, 32)), self.some_stream()
        value = self.random.randrange(1, 100)
        count = size // (width // 8)
        arguments = c_uint64(at), c_uint(value), c_size_t(count)
        said = f"{said},{value}"
        if self.random.random() < 0.4:
            self.call(f"cuMemsetD{width}_v2", *arguments, said=said)
        else:
            self.call(f"cuMemsetD{width}Async", *arguments, c_void_p(stream.handle), said=f"{said},{stream.name}")

    def launch(self):
        function, stream = self.pick("function"), self.some_stream()
        at, size, said = self.place(1 << 18)
        if not function.handle or not at:
            return
        count = (size if size < HOST_BYTES else 0) // 4
        grid = [self.random.choice((1, 1, 2, 8)), 1, 1]
        block = [self.random.choice((1, 32, 128, 1024)), 1, 1]
        if self.random.random() < 0.1:
            (grid if self.random.random() < 0.5 else block)[self.random.randrange(3)] = self.random.choice(
                (0, 3, 65, 1025, 65536)
            )
        if grid[0] * grid[1] * grid[2] > 1 << 12 and grid[1] < 65536 and grid[2] < 65536:
            return
        shared = self.random.choice((0, 0, 0, 1, 1000, 48 << 10, (48 << 10) + 1, 200 << 10, 1 << 20))
        value = self.random.randrange(1 << 30)
        words = c_uint64(at), c_uint(value), c_uint(count)
        pointers = (c_void_p * 3)(*[ctypes.addressof(word) for word in words])
        self.call(
            "cuLaunchKernel", c_void_p(function.handle), *map(c_uint, grid), *map(c_uint, block), c_uint(shared),
            c_void_p(stream.handle), pointers, None,
            said=f"{function.name}:{function.kernel},{grid},{block},{shared},{stream.name},{said},{value},{count}",
        )  # fmt: skip

    def of_function(self):
        function, value = self.pick("function"), c_int()
        if not function.handle:
            return
        attribute = self.random.choice((0, 1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 99))
        arguments = byref(value), c_int(attribute), c_void_p(function.handle)
        self.call(
            "cuFuncGetAttribute", *arguments, said=f"{attribute},{function.name}", out=lambda: value.value
        )
        attribute = self.random.choice((0, 8, 9, 14) if self.is_known else (0, 8, 9, 10, 14))
        new = self.random.choice((-1, 0, 50, 48 << 10, 96 << 10, 1 << 20))
        arguments = c_void_p(function.handle), c_int(attribute), c_int(new)
        self.call("cuFuncSetAttribute", *arguments, said=f"{function.name},{attribute},{new}")

    def occupancy(self):
        function, blocks = self.pick("function"), c_int()
        if function.handle:
            width = self.random.choice((0, 1, 128, 1024, 2000))
            shared = self.random.choice((0, 1000, 48 << 10, 1 << 20))
            arguments = byref(blocks), c_void_p(function.handle), c_int(width), c_size_t(shared)
            self.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", *arguments, said=f"{function.name},{width},{shared}",
                out=lambda: blocks.value,
            )  # fmt: skip

    def make_stream(self):
        flags, priority = self.random.choice((0, 0, 1, 2)), self.random.choice((0, 0, -1, -100, 5))
        said = f"{flags},{priority}"
        self.create("stream", "cuStreamCreateWithPriority", c_uint(flags), c_int(priority), said=said, flags=flags)

    def of_stream(self):
        stream = self.some_stream()
        flags, priority, context = c_uint(), c_int(), c_void_p()
        handle = c_void_p(stream.handle)
        self.call("cuStreamGetFlags", handle, byref(flags), said=stream.name, out=lambda: flags.value)
        self.call("cuStreamGetPriority", handle, byref(priority), said=stream.name, out=lambda: priority.value)
        self.call(
            "cuStreamGetCtx", handle, byref(context), said=stream.name,
            out=lambda: context.value == self.primary.handle,
        )  # fmt: skip

    def change_stream(self):
        if self.capturing:
            return
        self.call("cuCtxSynchronize")
        stream = self.pick("stream")
        if stream.handle and not stream.flags:
            self.things["current"] = [stream]

    def end_stream(self):
        stream = self.pick("stream")
        if stream is self.stream() or self.capturing:
            return
        if self.call("cuStreamDestroy_v2", c_void_p(stream.handle), said=stream.name) == 0:
            self.drop("stream", stream)

    def wait(self):
        stream = self.some_stream()
        what = self.random.choice(("cuStreamSynchronize", "cuStreamQuery", "cuCtxSynchronize"))
        arguments = () if what == "cuCtxSynchronize" else (c_void_p(stream.handle),)
        self.call(what, *arguments, said=stream.name)

    def make_event(self):
        flags = self.random.choice((0, 1, 2, 3, 4, 8))
        self.create("event", "cuEventCreate", c_uint(flags), said=flags, flags=flags)

    def use_event(self):
        event, stream = self.pick("event"), self.some_stream()
        handle = c_void_p(event.handle)
        self.call("cuEventRecord", handle, c_void_p(stream.handle), said=f"{event.name},{stream.name}")
        self.call("cuStreamWaitEvent", c_void_p(stream.handle), handle, c_uint(0), said=f"{stream.name},{event.name}")
        self.call("cuEventQuery", handle, said=event.name)
        if self.random.random() < 0.5:
            self.call("cuEventSynchronize", handle, said=event.name)
            other, ms = self.pick("event"), c_float()
            said = f"{event.name},{other.name}"
            self.call("cuEventElapsedTime", byref(ms), handle, c_void_p(other.handle), said=said)

    def end_event(self):
        event = self.pick("event")
        if self.call("cuEventDestroy_v2", c_void_p(event.handle), said=event.name) == 0:
            self.drop("event", event)

    def of_pointer(self):
        at, _, said = self.place()
        base, size, kind, number = c_uint64(), c_size_t(), c_uint(), c_int()
        self.call(
            "cuMemGetAddressRange_v2", byref(base), byref(size), c_uint64(at), said=said,
            out=lambda: (at - base.value, size.value),
        )  # fmt: skip
        attribute = self.random.choice((2, 8, 9, 13, 14, 99))
        result = number if attribute in (9,) else kind
        self.call(
            "cuPointerGetAttribute", byref(result), c_int(attribute), c_uint64(at), said=f"{said},{attribute}",
            out=lambda: result.value & 0xFF,
        )  # fmt: skip

    def make_array(self):
        description = ArrayDescription(
            self.random.choice((0, 1, 64, 1000)), self.random.choice((0, 1, 16)), self.random.choice((0, 0, 4)),
            self.random.choice((0x01, 0x08, 0x20, 0x10, 0x7777)), self.random.choice((1, 2, 4, 3)), 0,
        )  # fmt: skip
        said = [getattr(description, name) for name, *_ in ArrayDescription._fields_]
        self.create("array", "cuArray3DCreate_v2", byref(description), said=said)

    def of_array(self):
        array, description = self.pick("array"), ArrayDescription()
        if array.handle:
            self.call(
                "cuArray3DGetDescriptor_v2", byref(description), c_void_p(array.handle), said=array.name,
                out=lambda: [getattr(description, name) for name, *_ in ArrayDescription._fields_],
            )  # fmt: skip
            at, size = self.random.choice((0, 4, 1 << 20)), self.random.choice((0, 16, 64, 1 << 20))
            if self.is_known and (not size or description.height or description.depth):
                return
            arguments = c_void_p(array.handle), c_size_t(at), self.host, c_size_t(size)
            self.call("cuMemcpyHtoA_v2", *arguments, said=f"{array.name},{at},{size}")

    def end_array(self):
        array = self.pick("array")
        if array.handle and self.call("cuArrayDestroy", c_void_p(array.handle), said=array.name) == 0:
            self.drop("array", array)

    def make_graph(self):
        self.create("graph", "cuGraphCreate", c_uint(0), nodes=[])

    def add_node(self):
        graph, node = self.pick("graph"), c_void_p()
        if not graph.handle:
            return
        after = [n for n in graph.nodes[-5:] if self.random.random() < 0.5 or n is graph.nodes[-1]]
        before = (c_void_p * max(1, len(after)))(*after)
        common = byref(node), c_void_p(graph.handle), before, c_size_t(len(after))
        kind = self.random.choice(("Empty", "Memset", "Kernel"))
        if kind == "Empty":
            code = self.call("cuGraphAddEmptyNode", *common, said=f"{graph.name},{len(after)}")
        elif kind == "Memset":
            # Memory that is never freed, and one node at a time: what comes of it does not depend on what is faster.
            at, size, said = self.graphs_own[0].handle, self.random.choice((0, 4, 64, 4096, 1 << 45)), "own"
            if self.is_known and not size:
                return
            after = graph.nodes[-1:]
            before = (c_void_p * max(1, len(after)))(*after)
            common = byref(node), c_void_p(graph.handle), before, c_size_t(len(after))
            said = f"{said},{size}"
            node_ = MemsetNode(at, 0, 3, self.random.choice((1, 2, 4, 3)), size // 4, 1)
            arguments = *common, byref(node_), c_void_p(self.primary.handle)
            said = f"{graph.name},{len(after)},{said},{node_.element}"
            code = self.call("cuGraphAddMemsetNode", *arguments, said=said)
        else:
            functions = [f for f in self.all("function") if f.kernel == "nothing"]
            function = self.random.choice(functions) if functions else Thing("null", 0)
            width = self.random.choice((1, 32, 0, 1025))
            node_ = KernelNode(function.handle, 1, 1, 1, width, 1, 1, 0, None, None, None, None)
            arguments = *common, byref(node_)
            said = f"{graph.name},{len(after)},{function.name},{width}"
            code = self.call("cuGraphAddKernelNode_v2", *arguments, said=said)
        if code == 0:
            graph.nodes.append(node.value)

    def of_graph(self):
        graph, count = self.pick("graph"), c_size_t()
        if graph.handle:
            arguments = c_void_p(graph.handle), None, byref(count)
            self.call("cuGraphGetNodes", *arguments, said=graph.name, out=lambda: count.value)
            arguments = c_void_p(graph.handle), None, byref(count)
            self.call("cuGraphGetRootNodes", *arguments, said=graph.name, out=lambda: count.value)
            if self.random.random() < 0.3:
                self.create("graph", "cuGraphClone", c_void_p(graph.handle), said=graph.name, nodes=[])

    def instantiate(self):
        graph = self.pick("graph")
        if graph.handle:
            self.create(
                "executable", "cuGraphInstantiateWithFlags", c_void_p(graph.handle), c_uint64(0), said=graph.name
            )

    def launch_graph(self):
        executable, stream = self.pick("executable"), self.some_stream()
        if executable.handle:
            said = f"{executable.name},{stream.name}"
            self.call("cuGraphLaunch", c_void_p(executable.handle), c_void_p(stream.handle), said=said)

    def end_graph(self):
        if self.capturing:
            return
        kind, name = self.random.choice((("graph", "cuGraphDestroy"), ("executable", "cuGraphExecDestroy")))
        thing = self.pick(kind)
        if thing.handle and self.call(name, c_void_p(thing.handle), said=thing.name) == 0:
            self.drop(kind, thing)

    def begin_capture(self):
        stream, mode = self.some_stream(), self.random.choice((0, 1, 2, 2, 3))
        said = f"{stream.name},{mode}"
        if self.call("cuStreamBeginCapture_v2", c_void_p(stream.handle), c_uint(mode), said=said) == 0:
            self.capturing = stream, self.thread

    def of_capture(self):
        stream, status = self.some_stream(), c_uint()
        self.call(
            "cuStreamIsCapturing", c_void_p(stream.handle), byref(status), said=stream.name, out=lambda: status.value
        )

    def end_capture(self):
        if not self.capturing:
            stream, graph = self.some_stream(), c_void_p()
            self.call("cuStreamEndCapture", c_void_p(stream.handle), byref(graph), said=stream.name)
            return
        stream, thread = self.capturing
        if self.random.random() < 0.8:
            self.thread = thread
        count, graph = c_size_t(), c_void_p()
        code = self.call("cuStreamEndCapture", c_void_p(stream.handle), byref(graph), said=stream.name)
        status = c_uint()
        asked = self.call(
            "cuStreamIsCapturing", c_void_p(stream.handle), byref(status), said=stream.name, out=lambda: status.value
        )
        if asked == 0 and status.value == 0:
            self.capturing = None
        if code == 0:
            self.raw("cuGraphGetNodes", graph, None, byref(count))
            # It is not launched: the memory in it may be another's by then.
            print(f"{self.number} captured {count.value} nodes", flush=True)
            self.raw("cuGraphDestroy", graph)

    def change_mode(self):
        mode = c_uint(self.random.choice((0, 1, 2, 3)))
        self.call("cuThreadExchangeStreamCaptureMode", byref(mode), said=mode.value, out=lambda: mode.value)

    def make_pool(self):
        properties = PoolProperties(kind=self.random.choice((1, 1, 1, 0, 7)), location=1, device=0)
        self.create("pool", "cuMemPoolCreate", byref(properties), said=properties.kind)

    def use_pool(self):
        pool, at, size, stream = self.pick("pool"), c_uint64(), self.size(self.is_known), self.some_stream()
        if not pool.handle:
            return
        arguments = byref(at), c_size_t(size), c_void_p(pool.handle), c_void_p(stream.handle)
        said = f"{size},{pool.name},{stream.name}"
        if self.call("cuMemAllocFromPoolAsync", *arguments, said=said) == 0 and not self.capturing:
            self.add("ordered", at.value, bytes=size)
        attribute, value = self.random.choice((1, 2, 3, 4, 99)), c_uint64()
        arguments = c_void_p(pool.handle), c_uint(attribute), byref(value)
        self.call("cuMemPoolGetAttribute", *arguments, said=f"{pool.name},{attribute}", out=lambda: value.value)

    def context(self):
        what = self.random.choice(("ask", "limit") if self.is_known else ("none", "primary", "ask", "pop", "limit"))
        value, context = c_size_t(), c_void_p()
        if what == "none" and self.random.random() < 0.3:
            self.call("cuCtxSetCurrent", None, said="none")
        elif what == "pop" and self.random.random() < 0.3:
            self.call("cuCtxPopCurrent_v2", byref(context))
        elif what == "limit":
            limit = self.random.choice((0, 1, 2, 5, 99))
            self.call("cuCtxGetLimit", byref(value), c_uint(limit), said=limit, out=lambda: value.value)
        elif what == "ask":
            self.call("cuCtxGetCurrent", byref(context), out=lambda: context.value == self.primary.handle)
        else:
            self.call("cuCtxSetCurrent", c_void_p(self.primary.handle), said="primary")

    def host_function(self):
        stream = self.some_stream()
        data = self.random.choice((1, 2, 3))
        arguments = c_void_p(stream.handle), self.callback, c_void_p(data)
        self.call("cuLaunchHostFunc", *arguments, said=f"{stream.name},{data}")

    def stream_value(self):
        (at, size, said), stream = self.place(), self.some_stream()
        value, flags = self.random.randrange(9), self.random.choice((0, 0, 1, 8))
        if size < 4 or size > HOST_BYTES or at % 4:
            return
        arguments = c_void_p(stream.handle), c_uint64(at), c_uint(value), c_uint(flags)
        code = self.call("cuStreamWriteValue32_v2", *arguments, said=f"{stream.name},{said},{value},{flags}")
        # What was there before may never be as great as that.
        if self.random.random() < 0.5 and code == 0:
            arguments = c_void_p(stream.handle), c_uint64(at), c_uint(0), c_uint(self.random.choice((0, 0, 7)))
            self.call("cuStreamWaitValue32_v2", *arguments, said=f"{stream.name},{said},0,{arguments[3].value}")

    def managed(self):
        at, size, flags = c_uint64(), self.size(1), self.random.choice((1, 1, 2, 0, 4))
        if size > 1 << 30 or self.capturing:
            return
        if self.call("cuMemAllocManaged", byref(at), c_size_t(size), c_uint(flags), said=f"{size},{flags}") == 0:
            self.add("memory", at.value, bytes=size, is_clear=False)
            self.clear()

    def reserve(self):
        at, size = c_uint64(), self.random.choice((0, 4096, 2 << 20, 4 << 20))
        arguments = byref(at), c_size_t(size), c_size_t(self.random.choice((0, 2 << 20, 3))), c_uint64(0), c_uint64(0)
        if self.call("cuMemAddressReserve", *arguments, said=f"{size},{arguments[2].value}") == 0:
            self.add("reservation", at.value, bytes=size, mapped=0)

    def back(self):
        properties, handle = Placement(kind=self.random.choice((1, 1, 0)), location=1, device=0), c_uint64()
        size = self.random.choice((0, 4096, 2 << 20))
        arguments = byref(handle), c_size_t(size), byref(properties), c_uint64(0)
        if self.call("cuMemCreate", *arguments, said=f"{size},{properties.kind}") == 0:
            self.add("backing", handle.value, bytes=size)

    def map(self):
        reservation, backing = self.pick("reservation"), self.pick("backing")
        if not (reservation.handle and backing.handle):
            return
        said = f"{reservation.name},{backing.name}"
        what = self.random.choice(("map", "access", "unmap", "release", "free"))
        if what == "map":
            size = self.random.choice((backing.bytes, 4096, backing.bytes if self.is_known else 4 << 20))
            arguments = c_uint64(reservation.handle), c_size_t(size), c_size_t(0), c_uint64(backing.handle), c_uint64(0)
            self.call("cuMemMap", *arguments, said=f"{said},{size}")
        elif what == "access":
            access = Access(location=1, device=0, flags=self.random.choice((3, 3, 1, 0)))
            arguments = c_uint64(reservation.handle), c_size_t(2 << 20), byref(access), c_size_t(1)
            self.call("cuMemSetAccess", *arguments, said=f"{reservation.name},{access.flags}")
        elif what == "unmap":
            arguments = c_uint64(reservation.handle), c_size_t(self.random.choice((2 << 20, 4096, 4 << 20)))
            if self.is_known and arguments[1].value > reservation.bytes:
                # What lies behind it may be anything.
                return
            self.call("cuMemUnmap", *arguments, said=f"{reservation.name},{arguments[1].value}")
        elif what == "release":
            if self.call("cuMemRelease", c_uint64(backing.handle), said=backing.name) == 0:
                self.drop("backing", backing)
        else:
            arguments = c_uint64(reservation.handle), c_size_t(reservation.bytes)
            if self.call("cuMemAddressFree", *arguments, said=reservation.name) == 0:
                self.drop("reservation", reservation)

    def device(self):
        number, device = c_int(), c_int(self.random.choice((0, 0, 0, -1, 7)))
        self.call("cuDeviceGet", byref(number), device, said=device.value, out=lambda: number.value)
        attribute = self.random.choice((1, 2, 8, 10, 12, 39, 75, 76, 81, 95, 0, 9999))
        arguments = byref(number), c_int(attribute), device
        said = f"{attribute},{device.value}"
        self.call("cuDeviceGetAttribute", *arguments, said=said, out=lambda: number.value)

    def library(self):
        library = self.create("library", "cuLibraryLoadData", PTX, None, None, c_uint(0), None, None, c_uint(0))
        if library:
            kernel, count = c_void_p(), c_uint()
            name = self.random.choice((b"fill", b"nothing", b"none"))
            arguments = byref(kernel), c_void_p(library.handle), name
            self.call("cuLibraryGetKernel", *arguments, said=f"{library.name},{name}")
            arguments = byref(count), c_void_p(library.handle)
            self.call("cuLibraryGetKernelCount", *arguments, said=library.name, out=lambda: count.value)
            if self.random.random() < 0.7 and not (self.is_known and self.capturing):
                self.call("cuLibraryUnload", c_void_p(library.handle), said=library.name)
                self.drop("library", library)

    def link(self):
        state, image, size = c_void_p(), c_void_p(), c_size_t()
        if self.call("cuLinkCreate_v2", c_uint(0), None, None, byref(state)) == 0:
            text = self.random.choice((PTX, PTX, b".version 7.0\n.target sm_75\n.nonsense\n\0"))
            arguments = state, c_int(1), text, c_size_t(len(text)), b"a", c_uint(0), None, None
            self.call("cuLinkAddData_v2", *arguments, said=len(text))
            self.call("cuLinkComplete", state, byref(image), byref(size), out=lambda: size.value > 0)
            self.call("cuLinkDestroy", state)

    def update_graph(self):
        executable, graph, result = self.pick("executable"), self.pick("graph"), UpdateResult()
        if executable.handle and graph.handle:
            arguments = c_void_p(executable.handle), c_void_p(graph.handle), byref(result)
            said = f"{executable.name},{graph.name}"
            self.call("cuGraphExecUpdate_v2", *arguments, said=said, out=lambda: result.result)

    def another_context(self):
        context, current = c_void_p(), c_void_p()
        if self.capturing:
            return
        if self.call("cuCtxCreate_v2", byref(context), c_uint(self.random.choice((0, 1, 8, 0x80))), c_int(0)) != 0:
            return
        at = c_uint64()
        self.call("cuMemAlloc_v2", byref(at), c_size_t(4096), said="4096")
        self.call("cuMemsetD8_v2", at, c_byte(3), c_size_t(4096))
        self.call("cuCtxSynchronize")
        if self.random.random() < 0.5:
            self.call("cuCtxPopCurrent_v2", byref(current), out=lambda: current.value == context.value)
        self.call("cuCtxDestroy_v2", context)
        self.call("cuCtxGetCurrent", byref(current), out=lambda: current.value == self.primary.handle)
        self.raw("cuCtxSetCurrent", c_void_p(self.primary.handle))

    def look(self):
        """What memory holds: a digest of each allocation."""
        if self.capturing:
            return
        self.raw("cuCtxSetCurrent", c_void_p(self.primary.handle))
        self.clear()
        self.call("cuCtxSynchronize")
        print(f"{self.number} host functions {self.counts}", flush=True)
        for pinned in [p for p in self.all("pinned") if p.bytes]:
            digest = hashlib.md5(ctypes.string_at(pinned.handle, pinned.bytes)).hexdigest()[:8]
            print(f"{self.number} {pinned.name} holds {digest}", flush=True)
        for memory in self.graphs_own + [m for m in self.all("memory") if m.is_clear]:
            size = min(memory.bytes, HOST_BYTES)
            self.call(
                "cuMemcpyDtoH_v2", self.host, c_uint64(memory.handle), c_size_t(size), said=f"{memory.name},{size}",
                out=lambda size=size: hashlib.md5(bytes(self.host)[:size]).hexdigest()[:8],
            )  # fmt: skip

    def acts(self):
        """What it may do next, and how often."""
        return [
            (self.load, 1), (self.unload, 1), (self.global_, 1), (self.allocate, 5), (self.free, 4),
            (self.allocate_in_order, 4), (self.free_in_order, 4), (self.allocate_pitch, 2), (self.pin, 3),
            (self.unpin, 2), (self.of_pinned, 2), (self.register, 1), (self.unregister, 1), (self.copy, 12),
            (self.copy_within, 5), (self.copy_box, 5), (self.fill_memory, 8), (self.launch, 14), (self.of_function, 3),
            (self.occupancy, 2), (self.make_stream, 3), (self.of_stream, 2), (self.change_stream, 3),
            (self.end_stream, 1), (self.wait, 4), (self.make_event, 2), (self.use_event, 4), (self.end_event, 1),
            (self.of_pointer, 3), (self.make_array, 2), (self.of_array, 2), (self.end_array, 1), (self.make_graph, 2),
            (self.add_node, 6), (self.of_graph, 2), (self.instantiate, 2), (self.launch_graph, 3), (self.end_graph, 1),
            (self.begin_capture, 1), (self.of_capture, 2), (self.end_capture, 2), (self.change_mode, 1),
            (self.make_pool, 1), (self.use_pool, 3), (self.context, 3), (self.look, 3), (self.host_function, 3),
            (self.stream_value, 3), (self.managed, 1), (self.reserve, 2), (self.back, 2), (self.map, 6),
            (self.device, 1), (self.library, 1), (self.link, 1), (self.update_graph, 2), (self.another_context, 1),
        ]  # fmt: skip

    def run(self):
        self.begin()
        choices = [act for act, weight in self.acts() for _ in range(weight)]
        for self.number in range(1, self.steps + 1):
            if self.capturing is None or self.random.random() < 0.3:
                self.thread = self.random.choice(self.threads)
            if self.capturing and self.random.random() < 0.1:
                self.end_capture()
            self.random.choice(choices)()
        self.number += 1
        while self.capturing:
            self.end_capture()
        self.look()
        sys.stdout.flush()
        os._exit(0)
