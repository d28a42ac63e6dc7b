"""What `differ.py --wide` adds to its programs: graphs of all kinds of nodes, textures, a second device, green
contexts, launches with attributes, batches, objects of the application's."""

import ctypes
import zlib
from ctypes import byref, c_byte, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

from differ_program import ArrayDescription, Copy3D, KernelNode, MemsetNode, Program, Thing

#: In this memory, the device's and pinned, graphs work: it is never freed.
OWN_BYTES = 4096
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .global .align 8 .u64 place;
.visible .entry add(.param .u64 to, .param .u32 value) {
    .reg .u64 %to;
    .reg .u32 %value, %old;
    ld.param.u64 %to, [to];
    ld.param.u32 %value, [value];
    ld.global.u32 %old, [%to];
    mad.lo.u32 %old, %old, 3, %value;
    st.global.u32 [%to], %old;
    ret;
}
.visible .entry sample(.param .u64 texture, .param .u64 to) {
    .reg .u64 %texture, %to, %at;
    .reg .u32 %me, %a, %b, %c, %d;
    ld.param.u64 %texture, [texture];
    ld.param.u64 %to, [to];
    mov.u32 %me, %tid.x;
    tex.1d.v4.u32.s32 {%a, %b, %c, %d}, [%texture, {%me}];
    mul.wide.u32 %at, %me, 4;
    add.u64 %at, %at, %to;
    st.global.u32 [%at], %a;
    ret;
}
.visible .entry draw(.param .u64 surface, .param .u32 value) {
    .reg .u64 %surface;
    .reg .u32 %me, %value;
    ld.param.u64 %surface, [surface];
    ld.param.u32 %value, [value];
    mov.u32 %me, %tid.x;
    add.u32 %value, %value, %me;
    mul.lo.u32 %me, %me, 4;
    sust.b.1d.b32.zero [%surface, {%me}], {%value};
    ret;
}
\0"""
HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4


class MemoryOperation(ctypes.Structure):
    _fields_ = [
        ("operation", c_uint), ("address", c_uint64), ("value", c_uint64), ("flags", c_uint), ("alias", c_uint64),
        ("rest", c_uint64),
    ]  # fmt: skip


class BatchNode(ctypes.Structure):
    _fields_ = [("context", c_void_p), ("count", c_uint), ("operations", c_void_p), ("flags", c_uint)]


class HostNode(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("data", c_void_p)]


class AllocationNode(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint), ("handles", c_uint), ("location", c_uint), ("device", c_int), ("security", c_void_p),
        ("most", c_size_t), ("usage", ctypes.c_ushort), ("reserved", c_byte * 54), ("accesses", c_void_p),
        ("access_count", c_size_t), ("bytes", c_size_t), ("at", c_uint64),
    ]  # fmt: skip


class Resource(ctypes.Structure):
    _fields_ = [("kind", c_uint), ("words", c_uint64 * 16), ("flags", c_uint)]


class Sampling(ctypes.Structure):
    _fields_ = [
        ("address", c_uint * 3), ("filter", c_uint), ("flags", c_uint), ("anisotropy", c_uint), ("between", c_uint),
        ("bias", c_float), ("least", c_float), ("most", c_float), ("border", c_float * 4), ("reserved", c_int * 12),
    ]  # fmt: skip


class Attribute(ctypes.Structure):
    _fields_ = [("id", c_uint), ("pad", c_uint), ("value", c_uint * 16)]


class Launch(ctypes.Structure):
    _fields_ = [
        *[(name, c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")], ("stream", c_void_p),
        ("attributes", c_void_p), ("count", c_uint),
    ]  # fmt: skip


class CopyAttributes(ctypes.Structure):
    _fields_ = [
        ("order", c_uint), ("from_kind", c_uint), ("from_number", c_int), ("to_kind", c_uint), ("to_number", c_int),
        ("flags", c_uint),
    ]  # fmt: skip


class DeviceResource(ctypes.Structure):
    _fields_ = [("kind", c_uint), ("padding", c_byte * 92), ("words", c_uint * 12)]


def digest(content):
    return f"{zlib.crc32(content):08x}"


class Wider(Program):
    def begin(self):
        super().begin()
        self.ended = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
        at = c_void_p()
        self.raw("cuMemHostAlloc", byref(at), c_size_t(OWN_BYTES), c_uint(0))
        self.pinned_own = at.value
        self.graphs_own.append(Thing("own2", self.own(OWN_BYTES), bytes=OWN_BYTES, is_clear=True))
        ctypes.memset(self.pinned_own, 0, OWN_BYTES)
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), PTX, said="wider")
        self.kernels = {name: self.function_of(module, name) for name in ("add", "sample", "draw")}
        self.library_own = c_void_p()
        self.raw("cuLibraryLoadData", byref(self.library_own), PTX, None, None, c_uint(0), None, None, c_uint(0))
        count = c_int()
        self.raw("cuDeviceGetCount", byref(count))
        self.second = self.there = None
        if count.value > 1:
            context = c_void_p()
            self.raw("cuDevicePrimaryCtxRetain", byref(context), 1)
            self.second = Thing("second", context.value)

    def function_of(self, module, name):
        handle = c_void_p()
        self.raw("cuModuleGetFunction", byref(handle), module, name.encode())
        return handle.value

    def finish_work(self):
        """All work is over: the host may change what it works on."""
        self.raw("cuCtxSetCurrent", c_void_p(self.primary.handle))
        self.call("cuCtxSynchronize")

    def word_of_own(self):
        return self.random.randrange(0, OWN_BYTES, 4)

    # Graphs.

    def wide_graph(self):
        """A chain of nodes: what comes of it does not depend on what is faster."""
        self.create("chain", "cuGraphCreate", c_uint(0), nodes=[], has_memory=False)

    def parameters(self, kind):
        """A node's parameters, right or nearly, and how they are printed."""
        own, other = self.graphs_own[0].handle, self.graphs_own[1].handle
        if kind == "Kernel":
            at, value = self.word_of_own(), self.random.randrange(1000)
            words = c_uint64(own + at), c_uint(value)
            pointers = (c_void_p * 2)(*[ctypes.addressof(word) for word in words])
            self.kept.append((words, pointers))
            function = self.kernels["add"] if self.random.random() < 0.95 or self.is_known else 0
            if self.there and self.random.random() < 0.03:
                # Of another context's module.
                function = self.there[3]
            width = self.random.choice((1, 1, 1, 0, 2000)) if function and self.random.random() < 0.2 else 1
            tall = 65536 if function and self.random.random() < 0.03 else 1
            node = KernelNode(function, 1, tall, 1, width, 1, 1, 0, ctypes.addressof(pointers), None, None, None)
            which = "none" if not function else "own" if function == self.kernels["add"] else "second's"
            return node, f"{at},{value},{width},{tall},{which}"
        if kind == "Memset":
            at, width = self.word_of_own(), self.random.choice((1, 2, 4, 4, 3))
            count = self.random.choice((0, 1, 16, (OWN_BYTES - at) // 4, 1 << 40))
            value = self.random.randrange(256)
            return MemsetNode(own + at, 0, value, width, count, 1), f"{at},{width},{count},{value}"
        if kind == "Memcpy":
            places = {
                "own": (DEVICE, own), "own2": (DEVICE, other), "pinned": (HOST, self.pinned_own),
                "unified": (UNIFIED, self.pinned_own), "host": (HOST, ctypes.addressof(self.host)),
            }  # fmt: skip
            to, source = self.random.sample(list(places), 2)
            if "host" in (to, source) or {to, source} == {"pinned", "unified"}:
                to, source = self.random.sample(["own", "own2", "pinned"], 2)
            copy, half = Copy3D(), OWN_BYTES // 2
            at_to, at_from = self.random.randrange(half) & ~3, self.random.randrange(half) & ~3
            for side, place, at in (("src", source, at_from), ("dst", to, at_to)):
                setattr(copy, side + "Type", places[place][0])
                setattr(copy, side + ("Host" if places[place][0] == HOST else "Device"), places[place][1] + at)
                setattr(copy, side + "Pitch", 64)
            copy.width, copy.height, copy.depth = self.random.choice((4, 64, 33)), self.random.choice((1, 1, 9, 30)), 1
            return copy, f"{source}+{at_from}>{to}+{at_to},{copy.width}x{copy.height}"
        if kind == "Host":
            data = self.random.choice((1, 2, 3))
            function = self.callback if self.random.random() < 0.95 else None
            return HostNode(ctypes.cast(function, c_void_p) if function else None, data), f"{data},{bool(function)}"
        if kind == "Batch":
            count = self.random.choice((1, 1, 2, 3))
            operations = (MemoryOperation * count)()
            said = []
            for operation in operations:
                at = self.word_of_own()
                operation.operation, operation.address, operation.value = 2, own + at, self.random.randrange(9)
                said.append((at, operation.value))
            self.kept.append(operations)
            return BatchNode(self.primary.handle, count, ctypes.addressof(operations), 0), str(said)
        raise AssertionError(kind)

    ADDS = {
        "Kernel": "cuGraphAddKernelNode_v2", "Memset": "cuGraphAddMemsetNode", "Memcpy": "cuGraphAddMemcpyNode",
        "Host": "cuGraphAddHostNode", "Batch": "cuGraphAddBatchMemOpNode",
    }  # fmt: skip
    SETS = {
        "Kernel": "cuGraphKernelNodeSetParams_v2", "Memset": "cuGraphMemsetNodeSetParams",
        "Memcpy": "cuGraphMemcpyNodeSetParams", "Host": "cuGraphHostNodeSetParams",
        "Batch": "cuGraphBatchMemOpNodeSetParams",
    }  # fmt: skip
    EXEC_SETS = {
        "Kernel": "cuGraphExecKernelNodeSetParams_v2", "Memset": "cuGraphExecMemsetNodeSetParams",
        "Memcpy": "cuGraphExecMemcpyNodeSetParams", "Host": "cuGraphExecHostNodeSetParams",
        "Batch": "cuGraphExecBatchMemOpNodeSetParams",
    }  # fmt: skip

    def context_of(self, kind):
        return (c_void_p(self.primary.handle),) if kind in ("Memset", "Memcpy") else ()

    def wide_node(self):
        graph, node = self.pick("chain"), c_void_p()
        if not graph.handle:
            return
        before = (c_void_p * 1)(*[made.handle for made in graph.nodes[-1:]])
        common = byref(node), c_void_p(graph.handle), before, c_size_t(min(1, len(graph.nodes)))
        kind = self.random.choice((*self.ADDS, *self.ADDS, "Child", "Record", "Wait", "Allocate", "Free", "Empty"))
        if kind in self.ADDS:
            parameters, said = self.parameters(kind)
            name, arguments = self.ADDS[kind], (byref(parameters), *self.context_of(kind))
        elif kind == "Child":
            child = self.pick("chain")
            if child is graph or child.handle and child.has_memory:
                return
            name, arguments, said = "cuGraphAddChildGraphNode", (c_void_p(child.handle),), child.name
        elif kind in ("Record", "Wait"):
            event = self.pick("event")
            name, arguments, said = f"cuGraphAddEvent{kind}Node", (c_void_p(event.handle),), event.name
        elif kind == "Allocate":
            size = self.random.choice((0, 64, 4096))
            parameters = AllocationNode(kind=1, location=1, device=self.random.choice((0, 0, 0, -1, 99)), bytes=size)
            name, arguments, said = "cuGraphAddMemAllocNode", (byref(parameters),), f"{size},{parameters.device}"
        elif kind == "Free":
            made = [made for made in graph.nodes if made.kind == "Allocate"]
            at = made[-1].at if made else 0
            name, arguments, said = "cuGraphAddMemFreeNode", (c_uint64(at),), made[-1].name if made else "none"
        else:
            name, arguments, said = "cuGraphAddEmptyNode", (), ""
        code = self.call(name, *common, *arguments, said=f"{graph.name},{len(graph.nodes)},{said}")
        if code == 0:
            made = Thing(f"{graph.name}.{len(graph.nodes)}", node.value, kind=kind, child=None)
            if kind == "Allocate":
                made.at, graph.has_memory = parameters.at, True
            graph.nodes.append(made)

    def some_node(self, kinds=None):
        graph = self.pick("chain")
        nodes = [n for n in (graph.nodes if graph.handle else []) if not kinds or n.kind in kinds]
        if not nodes:
            return graph, None
        return graph, self.random.choice(nodes)

    def change_node(self):
        graph, node = self.some_node(self.SETS)
        if node:
            kind = node.kind if self.random.random() < 0.95 else self.random.choice(list(self.SETS))
            parameters, said = self.parameters(kind)
            self.call(self.SETS[kind], c_void_p(node.handle), byref(parameters), said=f"{node.name},{said}")

    def of_node(self):
        graph, node = self.some_node()
        if not node:
            return
        handle, kind, count = c_void_p(node.handle), c_uint(), c_size_t()
        self.call("cuGraphNodeGetType", handle, byref(kind), said=node.name, out=lambda: kind.value)
        arguments = handle, None, byref(count)
        self.call("cuGraphNodeGetDependencies", *arguments, said=node.name, out=lambda: count.value)
        self.call("cuGraphNodeGetDependentNodes", *arguments, said=node.name, out=lambda: count.value)
        if node.kind == "Memcpy":
            copy = Copy3D()
            self.call(
                "cuGraphMemcpyNodeGetParams", handle, byref(copy), said=node.name,
                out=lambda: (copy.width, copy.height, copy.srcPitch),
            )  # fmt: skip
        if node.kind == "Memset":
            fill = MemsetNode()
            self.call(
                "cuGraphMemsetNodeGetParams", handle, byref(fill), said=node.name,
                out=lambda: (fill.value, fill.element, fill.width, fill.height),
            )  # fmt: skip
        if node.kind == "Kernel":
            launch = KernelNode()
            self.call(
                "cuGraphKernelNodeGetParams_v2", handle, byref(launch), said=node.name,
                out=lambda: (launch.gx, launch.bx, launch.shared, launch.function == self.kernels["add"]),
            )  # fmt: skip
        if node.kind == "Host":
            host = HostNode()
            self.call("cuGraphHostNodeGetParams", handle, byref(host), said=node.name, out=lambda: host.data)
        if node.kind == "Child":
            child = c_void_p()
            self.call("cuGraphChildGraphNodeGetGraph", handle, byref(child), said=node.name)
            count = c_size_t()
            if child.value:
                self.call("cuGraphGetNodes", child, None, byref(count), said="child", out=lambda: count.value)

    def remove_node(self):
        graph, node = self.some_node()
        if not node or self.random.random() < 0.5:
            return
        at = graph.nodes.index(node)
        code = self.call("cuGraphDestroyNode", c_void_p(node.handle), said=node.name)
        if code == 0:
            graph.nodes.remove(node)
            if 0 < at < len(graph.nodes):
                ends = [(c_void_p * 1)(graph.nodes[i].handle) for i in (at - 1, at)]
                self.call("cuGraphAddDependencies", c_void_p(graph.handle), *ends, c_size_t(1), said=graph.name)

    def wide_instantiate(self):
        graph = self.pick("chain")
        if graph.handle:
            flags = self.random.choice((0, 0, 0, 1, 2, 8, 99))
            arguments = c_void_p(graph.handle), c_uint64(flags)
            said = f"{graph.name},{flags}"
            more = {"nodes": list(graph.nodes), "graph": graph}
            self.create("chain_executable", "cuGraphInstantiateWithFlags", *arguments, said=said, **more)

    def wide_launch(self):
        executable = self.pick("chain_executable")
        if not executable.handle or self.capturing:
            return
        self.finish_work()
        for at in range(0, OWN_BYTES, 512):
            ctypes.memset(self.pinned_own + at, self.random.randrange(256), 200)
        stream = self.some_stream()
        said = f"{executable.name},{stream.name}"
        arguments = c_void_p(executable.handle), c_void_p(stream.handle)
        for _ in range(self.random.choice((1, 1, 2))):
            self.call("cuGraphLaunch", *arguments, said=said)
        if self.random.random() < 0.7:
            self.look_at_own()

    def nodes_of(self, executable):
        """Those of its graph's that are still there."""
        if not executable.handle or executable.graph not in self.all("chain"):
            return []
        return [node for node in executable.nodes if node in executable.graph.nodes]

    def change_executable(self):
        executable = self.pick("chain_executable")
        nodes = [n for n in self.nodes_of(executable) if n.kind in self.EXEC_SETS]
        if not nodes:
            return
        node = self.random.choice(nodes)
        handles, said = (c_void_p(executable.handle), c_void_p(node.handle)), f"{executable.name},{node.name}"
        chosen = self.random.random()
        if chosen < 0.6:
            kind = node.kind if self.random.random() < 0.95 else self.random.choice(list(self.EXEC_SETS))
            parameters, more = self.parameters(kind)
            arguments = *handles, byref(parameters), *self.context_of(kind)
            self.call(self.EXEC_SETS[kind], *arguments, said=f"{said},{more}")
        elif chosen < 0.85:
            on, is_on = self.random.choice((0, 1)), c_uint()
            self.call("cuGraphNodeSetEnabled", *handles, c_uint(on), said=f"{said},{on}")
            self.call("cuGraphNodeGetEnabled", *handles, byref(is_on), said=said, out=lambda: is_on.value)
        else:
            flags = c_uint64()
            self.call("cuGraphExecGetFlags", handles[0], byref(flags), said=said, out=lambda: flags.value)

    def replace_child(self):
        executable = self.pick("chain_executable")
        nodes = [n for n in self.nodes_of(executable) if n.kind == "Child"]
        child = self.pick("chain")
        if nodes and not (child.handle and child.has_memory):
            node = self.random.choice(nodes)
            arguments = c_void_p(executable.handle), c_void_p(node.handle), c_void_p(child.handle)
            said = f"{executable.name},{node.name},{child.name}"
            self.call("cuGraphExecChildGraphNodeSetParams", *arguments, said=said)

    def wide_update(self):
        executable, graph = self.pick("chain_executable"), self.pick("chain")
        if executable.handle and graph.handle:
            result = (c_uint64 * 4)()
            arguments = c_void_p(executable.handle), c_void_p(graph.handle), result
            said = f"{executable.name},{graph.name}"
            self.call("cuGraphExecUpdate_v2", *arguments, said=said, out=lambda: result[0] & 0xFFFFFFFF)

    def wide_clone(self):
        graph = self.pick("chain")
        if graph.handle and not graph.has_memory and len(self.all("chain")) < 8:
            arguments = (c_void_p(graph.handle),)
            clone = self.create("chain", "cuGraphClone", *arguments, said=graph.name, nodes=[], has_memory=False)
            if clone:
                for node in graph.nodes:
                    found = c_void_p()
                    arguments = byref(found), c_void_p(node.handle), c_void_p(clone.handle)
                    self.call("cuGraphNodeFindInClone", *arguments, said=f"{node.name},{clone.name}")
                    clone.nodes.append(Thing(f"{clone.name}.{len(clone.nodes)}", found.value, kind=node.kind))

    def end_wide_graph(self):
        if self.capturing or self.random.random() < 0.5:
            return
        kind, name = self.random.choice((("chain", "cuGraphDestroy"), ("chain_executable", "cuGraphExecDestroy")))
        thing = self.pick(kind)
        if thing.handle:
            # What has memory of its own, and is running, may end either way.
            self.finish_work()
            if self.call(name, c_void_p(thing.handle), said=thing.name) == 0:
                self.drop(kind, thing)

    def look_at_own(self):
        if self.capturing:
            return
        self.finish_work()
        print(f"{self.number} pinned own: {digest(ctypes.string_at(self.pinned_own, OWN_BYTES))}", flush=True)
        for own in self.graphs_own:
            arguments = self.host, c_uint64(own.handle), c_size_t(OWN_BYTES)
            self.call(
                "cuMemcpyDtoH_v2", *arguments, said=own.name,
                out=lambda: digest(bytes(self.host)[:OWN_BYTES]),
            )  # fmt: skip

    # Arrays, textures and surfaces.

    def wide_array(self):
        width, height = self.random.choice((64, 64, 7)), self.random.choice((0, 0, 4))
        format_, flags = self.random.choice((0x03, 0x09, 0x0A, 0x01)), self.random.choice((0, 2, 2, 1))
        description = ArrayDescription(width, height, 0, format_, self.random.choice((1, 1, 2, 4)), flags)
        said = [getattr(description, name) for name, *_ in ArrayDescription._fields_]
        array = self.create("plain_array", "cuArray3DCreate_v2", byref(description), said=said)
        if array:
            if self.capturing:
                return self.drop("plain_array", array)
            array.bytes = width * description.channels * {0x01: 1, 0x03: 4, 0x09: 2, 0x0A: 4}[format_]
            array.height, array.width = height, width
            # It holds what was there before. Copies may still be on their way to where this comes from.
            self.finish_work()
            ctypes.memset(self.host, self.random.randrange(256), array.bytes * max(1, height))
            self.copy_to_array(array)

    def array_copy(self, array, up, kind=HOST):
        copy = Copy3D()
        (near, far) = ("src", "dst") if up else ("dst", "src")
        setattr(copy, near + "Type", kind)
        at = ctypes.addressof(self.host) if kind == HOST else self.graphs_own[1].handle
        setattr(copy, near + ("Host" if kind == HOST else "Device"), at)
        setattr(copy, near + "Pitch", array.bytes)
        setattr(copy, far + "Type", ARRAY)
        setattr(copy, far + "Array", array.handle)
        copy.width, copy.height, copy.depth = array.bytes, max(1, array.height), 1
        return copy

    def copy_to_array(self, array):
        copy = self.array_copy(array, True)
        self.call("cuMemcpy3D_v2", byref(copy), said=array.name)

    def use_array(self):
        array = self.pick("plain_array")
        if not array.handle or self.capturing:
            return
        up, kind = self.random.random() < 0.5, self.random.choice((HOST, DEVICE))
        copy = self.array_copy(array, up, kind)
        if self.random.random() < 0.1:
            copy.height += self.random.choice((1, 100))
        if array.bytes * copy.height > OWN_BYTES and kind == DEVICE:
            return
        if up and kind == HOST:
            self.finish_work()
            ctypes.memset(self.host, self.random.randrange(256), array.bytes * copy.height)
        said = f"{array.name},{up},{kind},{copy.height}"
        if self.random.random() < 0.5:
            self.call("cuMemcpy3D_v2", byref(copy), said=said)
        else:
            self.call("cuMemcpy3DAsync_v2", byref(copy), c_void_p(self.stream().handle), said=said)
            self.finish_work()
        if not array.height and self.random.random() < 0.4:
            at, size = self.random.choice((0, 4, 8)), self.random.choice((4, 16, 4096))
            own = c_uint64(self.graphs_own[1].handle)
            said = f"{array.name},{at},{size}"
            arguments = own, c_void_p(array.handle), c_size_t(at), c_size_t(size)
            self.call("cuMemcpyAtoD_v2", *arguments, said=said)
            arguments = c_void_p(array.handle), c_size_t(at), own, c_size_t(size)
            self.call("cuMemcpyDtoA_v2", *arguments, said=said)
            other = self.pick("plain_array")
            arguments = c_void_p(array.handle), c_size_t(0), c_void_p(other.handle), c_size_t(0), c_size_t(4)
            self.call("cuMemcpyAtoA_v2", *arguments, said=f"{array.name},{other.name}")
        self.show_array(array)

    def show_array(self, array):
        size = array.bytes * max(1, array.height)
        copy = self.array_copy(array, False)
        self.call("cuMemcpy3D_v2", byref(copy), said=array.name, out=lambda: digest(bytes(self.host)[:size]))

    def end_plain_array(self):
        array = self.pick("plain_array")
        uses = [t for kind in ("texture", "surface") for t in self.all(kind) if t.of is array]
        if array.handle and not uses and not self.capturing:
            if self.call("cuArrayDestroy", c_void_p(array.handle), said=array.name) == 0:
                self.drop("plain_array", array)

    def mipmap(self):
        description = ArrayDescription(64, self.random.choice((0, 16)), 0, 0x20, 1, self.random.choice((0, 2, 99)))
        levels = self.random.choice((0, 1, 3, 7, 50))
        said = f"{description.height},{description.flags},{levels}"
        made = c_void_p()
        if self.capturing:
            return
        if self.call("cuMipmappedArrayCreate", byref(made), byref(description), c_uint(levels), said=said) == 0:
            level, told = c_void_p(), ArrayDescription()
            which = self.random.choice((0, 1, 2, 99))
            if self.call("cuMipmappedArrayGetLevel", byref(level), made, c_uint(which), said=which) == 0:
                self.call(
                    "cuArray3DGetDescriptor_v2", byref(told), level, said="level",
                    out=lambda: [getattr(told, name) for name, *_ in ArrayDescription._fields_],
                )  # fmt: skip
                if not self.is_known:
                    self.call("cuArrayDestroy", level, said="level")
            self.call("cuMipmappedArrayDestroy", made)

    def make_texture(self):
        resource, sampling = Resource(), Sampling()
        resource.kind = self.random.choice((0, 0, 2, 2, 3, 1, 9))
        array, of = self.pick("plain_array"), None
        if resource.kind == 0:
            resource.words[0], of = array.handle, array
        elif resource.kind == 2:
            size = self.random.choice((0, 64, 1024, 1 << 40))
            resource.words[0], resource.words[2] = self.graphs_own[1].handle, size
            resource.words[1] = 0x03 | 1 << 32
        elif resource.kind == 3:
            resource.words[0] = self.graphs_own[1].handle
            resource.words[1], resource.words[2] = 0x03 | 1 << 32, 32
            resource.words[3], resource.words[4] = 4, self.random.choice((128, 512, 100))
        resource.flags = self.random.choice((0, 0, 0, 0, 1))
        sampling.address[:] = [self.random.choice((0, 1, 2, 3)) for _ in range(3)]
        sampling.filter, sampling.flags = self.random.choice((0, 0, 0, 1, 5)), self.random.choice((1, 1, 0, 3))
        texture = c_uint64()
        said = f"{resource.kind},{of and of.name},{list(sampling.address)},{sampling.filter},{sampling.flags}"
        said += f",{resource.words[2]},{resource.flags}"
        arguments = byref(texture), byref(resource), byref(sampling), None
        if self.call("cuTexObjectCreate", *arguments, said=said) == 0:
            is_sampled = sampling.flags == 1 and not sampling.filter
            self.add("texture", texture.value, of=of, is_sampled=is_sampled)

    def make_surface(self):
        array, surface = self.pick("plain_array"), c_uint64()
        resource = Resource()
        resource.kind, resource.words[0] = self.random.choice((0, 0, 0, 2)), array.handle
        if self.call("cuSurfObjectCreate", byref(surface), byref(resource), said=f"{resource.kind},{array.name}") == 0:
            self.add("surface", surface.value, of=array)

    def use_texture(self):
        kind = self.random.choice(("texture", "surface"))
        thing, stream = self.pick(kind), self.some_stream()
        if not thing.handle:
            return
        told, short = Resource(), "Tex" if kind == "texture" else "Surf"
        arguments = byref(told), c_uint64(thing.handle)
        self.call(f"cu{short}ObjectGetResourceDesc", *arguments, said=thing.name, out=lambda: told.kind)
        if kind == "texture":
            sampling = Sampling()
            arguments = byref(sampling), c_uint64(thing.handle)
            self.call(
                "cuTexObjectGetTextureDesc", *arguments, said=thing.name,
                out=lambda: (list(sampling.address), sampling.filter, sampling.flags),
            )  # fmt: skip
            words = c_uint64(thing.handle), c_uint64(self.graphs_own[0].handle)
            if not thing.is_sampled:
                return
        else:
            words = c_uint64(thing.handle), c_uint(self.random.randrange(1000))
        pointers = (c_void_p * 2)(*[ctypes.addressof(word) for word in words])
        kernel = "sample" if kind == "texture" else "draw"
        width = self.random.choice((1, 7, 64))
        self.call(
            "cuLaunchKernel", c_void_p(self.kernels[kernel]), *[c_uint(n) for n in (1, 1, 1, width, 1, 1, 0)],
            c_void_p(stream.handle), pointers, None, said=f"{kernel},{thing.name},{width},{stream.name}",
        )  # fmt: skip
        if self.random.random() < 0.5:
            self.look_at_own()

    def end_texture(self):
        kind = self.random.choice(("texture", "surface"))
        thing = self.pick(kind)
        if thing.handle and not self.capturing:
            self.finish_work()
            name = "cuTexObjectDestroy" if kind == "texture" else "cuSurfObjectDestroy"
            if self.call(name, c_uint64(thing.handle), said=thing.name) == 0:
                self.drop(kind, thing)

    # Launches.

    def wide_launch_kernel(self):
        stream, at, value = self.some_stream(), self.word_of_own(), self.random.randrange(1000)
        attributes = (Attribute * 2)()
        count = self.random.choice((0, 1, 1, 2))
        for attribute in attributes[:count]:
            attribute.id = self.random.choice((0, 2, 4, 5, 6, 8, 10, 14, 99))
            attribute.value[0] = self.random.choice((0, 1, 1, 2, 16))
            if attribute.id == 4:
                attribute.value[1] = attribute.value[2] = self.random.choice((1, 1, 0))
        said = [(a.id, a.value[0], a.value[1]) for a in attributes[:count]]
        launch = Launch(
            self.random.choice((1, 1, 2)), 1, 1, 1, 1, 1, 0, stream.handle, ctypes.addressof(attributes), count
        )
        if launch.gx == 2:
            function = [f for f in self.all("function") if f.kernel == "nothing"]
            handle = function[0].handle if function else 0
        else:
            handle = self.kernels["add"]
        words = c_uint64(self.graphs_own[0].handle + at), c_uint(value)
        pointers = (c_void_p * 2)(*[ctypes.addressof(word) for word in words])
        self.call(
            "cuLaunchKernelEx", byref(launch), c_void_p(handle), pointers, None,
            said=f"{launch.gx},{stream.name},{at},{value},{said}",
        )  # fmt: skip

    def wide_function(self):
        function, state, name = self.kernels[self.random.choice(("add", "sample"))], c_uint(), ctypes.c_char_p()
        handle = c_void_p(function)
        what = self.random.randrange(8)
        offset, size, number, module = c_size_t(), c_size_t(), c_int(), c_void_p()
        if what == 0:
            self.call("cuFuncIsLoaded", byref(state), handle, out=lambda: state.value)
        elif what == 1:
            self.call("cuFuncLoad", handle)
        elif what == 2:
            self.call("cuFuncGetName", byref(name), handle, out=lambda: name.value)
        elif what == 3:
            index = self.random.choice((0, 1, 2, 99))
            arguments = handle, c_size_t(index), byref(offset), byref(size)
            self.call("cuFuncGetParamInfo", *arguments, said=index, out=lambda: (offset.value, size.value))
        elif what == 4:
            config = self.random.choice((0, 1, 2, 3, 9))
            self.call("cuFuncSetCacheConfig", handle, c_uint(config), said=config)
        elif what == 5:
            blocks, shared = self.random.choice((1, 2, 0, 100)), self.random.choice((128, 0, 2000))
            arguments = byref(size), handle, c_int(blocks), c_int(shared)
            said = f"{blocks},{shared}"
            self.call("cuOccupancyAvailableDynamicSMemPerBlock", *arguments, said=said, out=lambda: size.value)
        elif what == 6:
            least = c_int()
            arguments = byref(least), byref(number), handle, None, c_size_t(0), c_int(self.random.choice((0, 100)))
            self.call("cuOccupancyMaxPotentialBlockSize", *arguments, out=lambda: (least.value, number.value))
        else:
            self.call("cuFuncGetModule", byref(module), handle, out=lambda: bool(module.value))

    def wide_kernel(self):
        kernel, function, number, name = c_void_p(), c_void_p(), c_int(), ctypes.c_char_p()
        if self.call("cuLibraryGetKernel", byref(kernel), self.library_own, b"add") != 0:
            return
        what = self.random.randrange(7)
        if what == 0:
            self.call("cuKernelGetFunction", byref(function), kernel)
            self.call("cuFuncGetName", byref(name), function, out=lambda: name.value)
        elif what == 1:
            attribute = self.random.choice((0, 1, 4, 8, 99))
            arguments = byref(number), c_int(attribute), kernel, c_int(self.random.choice((0, 0, 9)))
            said = f"{attribute},{arguments[3].value}"
            self.call("cuKernelGetAttribute", *arguments, said=said, out=lambda: number.value)
        elif what == 2:
            attribute, value = self.random.choice((8, 9, 0)), self.random.choice((0, 1000, -1, 1 << 20))
            arguments = c_int(attribute), c_int(value), kernel, c_int(0)
            self.call("cuKernelSetAttribute", *arguments, said=f"{attribute},{value}")
        elif what == 3:
            self.call("cuKernelGetName", byref(name), kernel, out=lambda: name.value)
        elif what == 4:
            library = c_void_p()
            same = lambda: library.value == self.library_own.value
            self.call("cuKernelGetLibrary", byref(library), kernel, out=same)
        elif what == 5:
            at, size = c_uint64(), c_size_t()
            which = self.random.choice((b"place", b"none"))
            arguments = byref(at), byref(size), self.library_own, which
            self.call("cuLibraryGetGlobal", *arguments, said=which, out=lambda: size.value)
        else:
            stream = self.some_stream()
            words = c_uint64(self.graphs_own[0].handle), c_uint(self.random.randrange(99))
            pointers = (c_void_p * 2)(*[ctypes.addressof(word) for word in words])
            self.call(
                "cuLaunchKernel", kernel, *[c_uint(n) for n in (1, 1, 1, 1, 1, 1, 0)], c_void_p(stream.handle),
                pointers, None, said=f"kernel,{stream.name},{words[1].value}",
            )  # fmt: skip

    def batch(self):
        count, stream = self.random.choice((1, 2, 5)), self.some_stream()
        if stream.handle < 3 and self.random.random() < 0.8 or self.capturing:
            return
        own, other, half = self.graphs_own[0].handle, self.graphs_own[1].handle, OWN_BYTES // 2
        places = {"own": own, "own2": other, "pinned": self.pinned_own}
        to, source = self.random.sample(list(places), 2)
        step = half // count & ~3
        offsets = [(step * i, self.random.randrange(half) & ~3) for i in range(count)]
        sizes = [self.random.choice((4, step, 33 if step > 33 else 4)) for _ in range(count)]
        if self.random.random() < 0.1:
            sizes[0] = self.random.choice((0, 1 << 40))
        tos = (c_uint64 * count)(*[places[to] + a for a, _ in offsets])
        sources = (c_uint64 * count)(*[places[source] + b for _, b in offsets])
        attributes = CopyAttributes(order=self.random.choice((1, 1, 3, 3, 0, 9)))
        first = (c_size_t * 1)(self.random.choice((0, 0, 0, 1)))
        self.finish_work()
        arguments = tos, sources, (c_size_t * count)(*sizes), c_size_t(count), byref(attributes), first, c_size_t(1)
        said = f"{source}>{to},{offsets},{sizes},{attributes.order},{first[0]},{stream.name}"
        self.call("cuMemcpyBatchAsync_v2", *arguments, c_void_p(stream.handle), said=said)
        self.look_at_own()

    # Objects of the application's.

    def user_object(self):
        count = self.random.choice((1, 2, 0))
        # When it ends is not told.
        arguments = c_void_p(3), self.ended, c_uint(count), c_uint(1)
        made = self.create("object", "cuUserObjectCreate", *arguments, said=count, count=count)
        graph = self.pick("chain")
        thing = self.pick("object")
        if thing.handle and graph.handle:
            n, flags = self.random.choice((1, 1, 2)), self.random.choice((0, 1))
            if thing.count < n + 1 or not made:
                return
            arguments = c_void_p(graph.handle), c_void_p(thing.handle), c_uint(n), c_uint(flags)
            said = f"{graph.name},{thing.name},{n},{flags}"
            if self.call("cuGraphRetainUserObject", *arguments, said=said) == 0 and flags:
                thing.count -= n

    def end_object(self):
        thing = self.pick("object")
        if thing.handle:
            self.call("cuUserObjectRetain", c_void_p(thing.handle), c_uint(1), said=thing.name)
            thing.count += 1
            if self.call("cuUserObjectRelease", c_void_p(thing.handle), c_uint(thing.count), said=thing.name) == 0:
                self.drop("object", thing)

    # Green contexts.

    def green(self):
        if self.capturing:
            return
        whole, part, rest, groups = DeviceResource(), DeviceResource(), DeviceResource(), c_uint(1)
        kind = self.random.choice((1, 1, 1, 0, 7))
        sms = lambda: part.words[0]
        if self.call("cuDeviceGetDevResource", c_int(0), byref(whole), c_uint(kind), said=kind) != 0:
            return
        least = self.random.choice((1, 8, 16, 10000))
        arguments = byref(part), byref(groups), byref(whole), byref(rest), c_uint(0), c_uint(least)
        if self.call("cuDevSmResourceSplitByCount", *arguments, said=least, out=sms) != 0:
            return
        description, green, context, stream = c_void_p(), c_void_p(), c_void_p(), c_void_p()
        self.call("cuDevResourceGenerateDesc", byref(description), byref(part), c_uint(1))
        flags = self.random.choice((1, 1, 1, 0))
        if self.call("cuGreenCtxCreate", byref(green), description, c_int(0), c_uint(flags), said=flags) != 0:
            return
        flags, at = self.random.choice((1, 1, 0)), self.word_of_own()
        words = c_uint64(self.graphs_own[0].handle + at), c_uint(at)
        pointers = (c_void_p * 2)(*[ctypes.addressof(word) for word in words])
        if self.call("cuGreenCtxStreamCreate", byref(stream), green, c_uint(flags), c_int(0), said=flags) == 0:
            self.call(
                "cuLaunchKernel", c_void_p(self.kernels["add"]), *[c_uint(n) for n in (1, 1, 1, 1, 1, 1, 0)], stream,
                pointers, None, said=f"green,{at}",
            )  # fmt: skip
            self.call("cuStreamSynchronize", stream, said="green")
        if self.call("cuCtxFromGreenCtx", byref(context), green) == 0 and self.random.random() < 0.5:
            self.call("cuCtxSetCurrent", context, said="green")
            memory = c_uint64()
            self.call("cuMemAlloc_v2", byref(memory), c_size_t(64), said="64")
            self.call("cuMemsetD8_v2", memory, c_byte(1), c_size_t(64), said="64")
            self.call(
                "cuLaunchKernel", c_void_p(self.kernels["add"]), *[c_uint(n) for n in (1, 1, 1, 1, 1, 1, 0)], None,
                pointers, None, said=f"green default,{at}",
            )  # fmt: skip
            self.call("cuCtxSynchronize", said="green")
            self.call("cuMemFree_v2", memory, said="64")
            self.raw("cuCtxSetCurrent", c_void_p(self.primary.handle))
        if stream.value:
            self.call("cuStreamDestroy_v2", stream, said="green")
        self.call("cuGreenCtxDestroy", green)
        self.look_at_own()

    # A second device.

    def elsewhere(self):
        """Some calls with the other device's context current; they find each other's memory done with."""
        if not self.second or self.capturing:
            return
        self.finish_work()
        self.call("cuCtxSetCurrent", c_void_p(self.second.handle), said="second")
        if not self.there:
            at, stream, event, module = c_uint64(), c_void_p(), c_void_p(), c_void_p()
            self.raw("cuMemAlloc_v2", byref(at), c_size_t(OWN_BYTES))
            self.raw("cuMemsetD8_v2", at, c_byte(1), c_size_t(OWN_BYTES))
            self.raw("cuStreamCreate", byref(stream), c_uint(0))
            self.raw("cuEventCreate", byref(event), c_uint(2))
            self.raw("cuModuleLoadData", byref(module), PTX)
            self.there = at.value, stream.value, event.value, self.function_of(module, "add")
        for _ in range(self.random.randrange(1, 6)):
            self.random.choice((self.peer, self.copy_there, self.launch_there, self.event_there, self.of_there))()
            # What follows may be in a stream of the other's.
            self.raw("cuCtxSynchronize")
        self.call("cuCtxSynchronize", said="second")
        arguments = self.host, c_uint64(self.there[0]), c_size_t(OWN_BYTES)
        self.call(
            "cuMemcpyDtoH_v2", *arguments, said="there", out=lambda: digest(bytes(self.host)[:OWN_BYTES])
        )
        self.raw("cuCtxSetCurrent", c_void_p(self.primary.handle))
        self.look_at_own()

    def peer(self):
        can, a, b = c_int(), self.random.choice((0, 1, 1, 9)), self.random.choice((0, 0, 1))
        self.call("cuDeviceCanAccessPeer", byref(can), c_int(a), c_int(b), said=f"{a},{b}", out=lambda: can.value)
        attribute = self.random.choice((1, 2, 3, 4, 99))
        arguments = byref(can), c_uint(attribute), c_int(a), c_int(b)
        self.call("cuDeviceGetP2PAttribute", *arguments, said=f"{attribute},{a},{b}", out=lambda: can.value)
        context = self.random.choice((self.primary.handle, self.primary.handle, self.second.handle, None))
        name = self.random.choice(("cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"))
        flags = (c_uint(self.random.choice((0, 0, 0, 5))),) if name == "cuCtxEnablePeerAccess" else ()
        self.call(name, c_void_p(context), *flags, said=f"{context == self.primary.handle},{context is None}")

    def copy_there(self):
        there, stream, _, _ = self.there
        places = {"there": there, "own": self.graphs_own[0].handle, "pinned": self.pinned_own}
        to, source = self.random.sample(list(places), 2)
        size, at = self.random.choice((4, 64, 2000, 1 << 40)), self.random.choice((0, 64))
        sizes, ends = c_size_t(size), (c_uint64(places[to] + at), c_uint64(places[source]))
        contexts = {"there": self.second.handle, "own": self.primary.handle, "pinned": self.primary.handle}
        said, what = f"{source}>{to}+{at},{size}", self.random.randrange(6)
        if what == 0 and "pinned" not in (to, source):
            if self.random.random() < 0.2:
                contexts = {"there": self.primary.handle, "own": self.second.handle}
            arguments = ends[0], c_void_p(contexts[to]), ends[1], c_void_p(contexts[source]), sizes
            wrong = contexts["own"] == self.second.handle
            self.call("cuMemcpyPeer", *arguments, said=f"{said},{wrong}")
            self.call("cuMemcpyPeerAsync", *arguments, c_void_p(stream), said=f"{said},{wrong}")
        elif what == 1:
            self.call("cuMemcpy", *ends, sizes, said=said)
        elif what == 2:
            self.call("cuMemcpyAsync", *ends, sizes, c_void_p(stream), said=said)
        elif what == 3:
            self.call("cuMemcpyDtoDAsync_v2", *ends, sizes, c_void_p(stream), said=said)
        elif what == 4:
            # A stream of the other device's.
            self.call("cuMemcpyAsync", *ends, sizes, c_void_p(self.stream().handle), said=f"{said},first's")
            self.raw("cuStreamSynchronize", c_void_p(self.stream().handle))
        else:
            width = self.random.choice((4, 64))
            arguments = c_uint64(self.graphs_own[0].handle + at), c_uint(7), c_size_t(width)
            self.call("cuMemsetD8_v2", *arguments, said=f"own+{at},{width}")
        self.call("cuStreamSynchronize", c_void_p(stream), said="there")
        self.raw("cuCtxSynchronize")

    def launch_there(self):
        there, stream, _, function = self.there
        of_first, in_first = self.random.random() < 0.2, self.random.random() < 0.2
        at = self.word_of_own()
        words = c_uint64(there + at), c_uint(at)
        pointers = (c_void_p * 2)(*[ctypes.addressof(word) for word in words])
        handle = self.kernels["add"] if of_first else function
        if of_first:
            words[0].value = self.graphs_own[0].handle + at
        where = self.stream().handle if in_first else stream
        if self.random.random() < 0.2 and not of_first:
            where = None
        self.call(
            "cuLaunchKernel", c_void_p(handle), *[c_uint(n) for n in (1, 1, 1, 1, 1, 1, 0)], c_void_p(where),
            pointers, None, said=f"there,{at},{of_first},{in_first},{where is None}",
        )  # fmt: skip

    def event_there(self):
        _, stream, event, _ = self.there
        other, first = self.pick("event"), self.stream()
        self.call("cuEventRecord", c_void_p(event), c_void_p(stream), said="there")
        self.call("cuStreamWaitEvent", c_void_p(first.handle), c_void_p(event), c_uint(0), said=f"{first.name},there")
        said = f"{other.name},there"
        self.call("cuEventRecord", c_void_p(other.handle), c_void_p(stream), said=said)
        self.call("cuStreamWaitEvent", c_void_p(stream), c_void_p(other.handle), c_uint(0), said=said)
        self.call("cuEventSynchronize", c_void_p(event), said="there")
        ms = c_float()
        arguments = byref(ms), c_void_p(event), c_void_p(other.handle)
        self.call("cuEventElapsedTime", *arguments, said=said)

    def of_there(self):
        there, stream, _, function = self.there
        number, kind, context, size = c_int(), c_uint(), c_void_p(), c_size_t()
        for place, at in (("there", there), ("own", self.graphs_own[0].handle), ("pinned", self.pinned_own)):
            attribute = self.random.choice((2, 9))
            result = number if attribute == 9 else kind
            arguments = byref(result), c_int(attribute), c_uint64(at)
            shown = lambda result=result: result.value
            self.call("cuPointerGetAttribute", *arguments, said=f"{attribute},{place}", out=shown)
        self.call("cuCtxGetDevice", byref(number), out=lambda: number.value)
        self.call("cuStreamGetCtx", c_void_p(stream), byref(context), out=lambda: context.value == self.second.handle)
        state, flags = c_int(), c_uint()
        arguments = c_int(1), byref(flags), byref(state)
        self.call("cuDevicePrimaryCtxGetState", *arguments, out=lambda: (flags.value, state.value))
        self.call("cuCtxGetLimit", byref(size), c_uint(0), out=lambda: size.value)
        pool = c_void_p()
        self.call("cuDeviceGetDefaultMemPool", byref(pool), c_int(1))
        at = c_uint64()
        arguments = byref(at), c_size_t(64), pool, c_void_p(stream)
        if self.call("cuMemAllocFromPoolAsync", *arguments) == 0:
            self.call("cuMemFreeAsync", at, c_void_p(stream))

    def acts(self):
        return super().acts() + [
            (self.wide_graph, 2), (self.wide_node, 22), (self.change_node, 5), (self.of_node, 3), (self.remove_node, 2),
            (self.wide_instantiate, 5), (self.wide_launch, 10), (self.change_executable, 10), (self.replace_child, 3),
            (self.wide_update, 4), (self.wide_clone, 1), (self.end_wide_graph, 3), (self.wide_array, 3),
            (self.use_array, 6), (self.end_plain_array, 2), (self.mipmap, 2), (self.make_texture, 5),
            (self.make_surface, 3), (self.use_texture, 8), (self.end_texture, 3), (self.wide_launch_kernel, 6),
            (self.wide_function, 4), (self.wide_kernel, 4), (self.batch, 5), (self.user_object, 2),
            (self.end_object, 1), (self.green, 2), (self.elsewhere, 8),
        ]  # fmt: skip
