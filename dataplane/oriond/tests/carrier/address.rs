//! A client that names memory of its worker, with the software GPU: whatever message it is in, it is refused, and
//! nothing is read or written.

use std::fs::File;
use std::os::unix::fs::FileExt;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::{ClaimedDevice, ClaimedHost};
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamBeginCapture, StreamEndCapture};
use orion_wire::message::copy::{CopyBox, CopyIn, CopyInInline, CopyOut, CopyOutInline, CopyOutInlineReply, Source};
use orion_wire::message::field::{Bytes, Existing, List, New, Size};
use orion_wire::message::graph::{
    Dependencies, GraphChildGraphNodeGetGraph, GraphDestroy, GraphGetNodes, GraphGetNodesReply, NodePlace, Page,
};
use orion_wire::message::graph_exec::{
    GraphExecBatchMemOpNodeSetParams, GraphExecChildGraphNodeSetParams, GraphExecHostNodeSetParams,
    GraphExecKernelNodeSetParams, GraphExecMemcpyNodeSetParams, GraphInstantiateWithFlags, GraphLaunch,
};
use orion_wire::message::graph_node::{
    AllocationNode, BatchNode, ChildNode, GraphAddBatchMemOpNode, GraphAddHostNode, GraphAddKernelNode,
    GraphAddMemAllocNode, GraphAddMemcpyNode, GraphAddNode, GraphBatchMemOpNodeSetParams, GraphHostNodeSetParams,
    GraphKernelNodeSetParams, GraphMemcpyNodeSetParams, GraphNodeSetParams, MemcpyNode, NodeParams, PoolProperties,
};
use orion_wire::message::image::Nothing;
use orion_wire::message::library::ManagedVariable;
use orion_wire::message::memory::{MemAlloc, MemAllocReply, MemFree};
use orion_wire::message::stream::StreamSynchronize;
use orion_wire::message::virtual_memory::Location;
use orion_wire::record::{HeapRange, op};

use crate::harness::{self, Client, Oriond, Transport, body, non_blocking, told, words};

const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
const ARRAY: u64 = Handle::new(Kind::Array, 0, 0).0;
const GRAPH: u64 = Handle::new(Kind::Graph, 0, 0).0;
const BYTES: usize = 8;
const SOME: Size = Size(BYTES as u64);

/// A client with some memory, and what can be seen of its worker from outside.
struct Intruder {
    client: Client,
    memory: u64,
    worker: File,
    /// Where the program's own file is mapped, which begins with `\x7fELF`.
    text: u64,
    /// Where its name lies on the stack.
    stack: u64,
    next_node: u32,
}

impl Intruder {
    fn start(server: &Oriond, transport: Transport) -> Intruder {
        let mut client = Client::attach(server, transport);
        client.context = Handle::primary_context(0).0;
        let pid = client.welcome.worker_pid;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the worker's mappings");
        let line =
            |what: &str| maps.lines().find(|l| l.contains(what)).unwrap_or_else(|| panic!("no {what} in\n{maps}"));
        let address = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let text = address(line("/oriond").split('-').next().expect("an address"));
        let stack = address(line("[stack]").split([' ', '-']).nth(1).expect("an address")) - 2 * BYTES as u64;
        let worker = File::open(format!("/proc/{pid}/mem")).expect("the worker's memory");
        let mut i = Intruder { client, memory: 0, worker, text, stack, next_node: 0 };
        i.done(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(STREAM)));
        let reply = i.done(MemAlloc::OP, &body(&harness::memory(4096)));
        i.memory = MemAllocReply::decode(&mut Reader::new(&reply)).expect("an address").address;
        i
    }

    fn done(&mut self, op: u16, body: &[u8]) -> Vec<u8> {
        let (code, reply) = self.client.ask(op, body);
        assert_eq!(code, CUDA_SUCCESS, "operation {op:#x}");
        reply
    }

    fn peek(&self, at: u64) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.worker.read_exact_at(&mut bytes, at).expect("the worker's memory");
        bytes
    }

    /// What lies in the client's device memory.
    fn got(&mut self) -> Vec<u8> {
        let q = CopyOutInline { from: ClaimedDevice::new(self.memory), bytes: SOME, stream: Existing(STREAM) };
        let reply = self.done(CopyOutInline::OP, &body(&q));
        CopyOutInlineReply::decode(&mut Reader::new(&reply)).expect("bytes").bytes.get().to_vec()
    }

    /// The operation fails, nothing of the worker's memory has come to the client or changed, and the session goes on.
    fn refused(&mut self, name: &str, op: u16, request: &[u8]) {
        let dstDevice = ClaimedDevice::new(self.memory);
        let fill = calls::cuMemsetD8Async { dstDevice, uc: 0x5a, N: 4096, hStream: STREAM };
        self.done(calls::cuMemsetD8Async::OP, &body(&fill));
        self.synchronize();
        let before = (self.peek(self.text), self.peek(self.stack));
        let (code, reply) = self.client.ask(op, request);
        let after = (self.peek(self.text), self.peek(self.stack));
        assert_eq!(before, after, "{name} wrote to the worker");
        let got = self.got();
        assert!(got.iter().all(|b| *b == 0x5a), "{name} read {got:?} of the worker");
        assert!(!reply.windows(4).any(|w| w == b"\x7fELF"), "{name} read the worker");
        assert_ne!(code, CUDA_SUCCESS, "{name}");
    }

    fn synchronize(&mut self) {
        self.done(StreamSynchronize::OP, &body(&StreamSynchronize { stream: Existing(STREAM) }));
    }

    fn made(&mut self, graph: u64) {
        self.done(calls::cuGraphCreate::OP, &body(&calls::cuGraphCreate { phGraph: graph, flags: 0 }));
    }

    fn node(&mut self) -> u64 {
        self.next_node += 1;
        Handle::new(Kind::GraphNode, 0, self.next_node - 1).0
    }
}

fn shape(width: usize) -> CUDA_MEMCPY3D {
    // SAFETY: integers and pointers, for which zero is a value.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.WidthInBytes, d.Height, d.Depth) = (width, 1, 1);
    d
}

fn copy_3d(d: &CUDA_MEMCPY3D) -> Vec<u8> {
    body(&CopyBox { stream: Existing(STREAM), copy: told(d) })
}

crate::on_each_carrier! {
    soft fn memory_of_the_worker_is_out_of_reach(server: &Oriond, transport: Transport) {
        let mut i = Intruder::start(server, transport);
        let (memory, text, stack) = (i.memory, i.text, i.stack);
        assert_eq!(&i.peek(text)[..4], b"\x7fELF");
        for kind in [CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, 0, 5, u32::MAX] {
            let mut d = shape(BYTES);
            (d.srcMemoryType, d.srcDevice, d.srcHost) = (kind, text, text as *const _);
            (d.dstMemoryType, d.dstDevice) = (CU_MEMORYTYPE_DEVICE, memory);
            if kind != CU_MEMORYTYPE_HOST {
                i.refused(&format!("a copy from type {kind}"), op::COPY_3D, &copy_3d(&d));
            }
            let mut d = shape(BYTES);
            (d.dstMemoryType, d.dstDevice, d.dstHost) = (kind, stack, stack as *mut _);
            (d.srcMemoryType, d.srcDevice) = (CU_MEMORYTYPE_DEVICE, memory);
            if kind != CU_MEMORYTYPE_HOST {
                i.refused(&format!("a copy to type {kind}"), op::COPY_3D, &copy_3d(&d));
            }
        }
        i.made(GRAPH);
        for (name, reads, from, to) in [("reading", true, text, memory), ("writing", false, memory, stack)] {
            let name = |what: &str| format!("{name} by {what}");
            let (dstDevice, srcDevice) = (ClaimedDevice::new(to), ClaimedDevice::new(from));
            let (ByteCount, hStream, context) = (BYTES, STREAM, Handle::primary_context(0).0);
            let q = calls::cuMemcpyDtoDAsync_v2 { dstDevice, srcDevice, ByteCount, hStream };
            i.refused(&name("a copy on the device"), calls::cuMemcpyDtoDAsync_v2::OP, &body(&q));
            let (dstContext, srcContext) = (context, context);
            let q = calls::cuMemcpyPeer { dstDevice, dstContext, srcDevice, srcContext, ByteCount };
            i.refused(&name("a copy of peers"), calls::cuMemcpyPeer::OP, &body(&q));
            let q = calls::cuMemcpyPeerAsync { dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream };
            i.refused(&name("a later copy of peers"), calls::cuMemcpyPeerAsync::OP, &body(&q));
            for kind in [CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_DEVICE] {
                let mut d = shape(BYTES);
                (d.srcMemoryType, d.srcDevice) = (if reads { kind } else { CU_MEMORYTYPE_DEVICE }, from);
                (d.dstMemoryType, d.dstDevice) = (if reads { CU_MEMORYTYPE_DEVICE } else { kind }, to);
                let (context, copy) = (Existing(context), told(&d));
                let params = MemcpyNode { flags: 0, context, copy, set_aside: List::default() };
                let node = GraphAddMemcpyNode { place: place(GRAPH, i.node()), params };
                i.refused(&name("a node"), GraphAddMemcpyNode::OP, &body(&node));
            }
        }
        refused_wherever_an_address_is(&mut i);
    }
}

fn refused_wherever_an_address_is(i: &mut Intruder) {
    let (text, stack) = (ClaimedDevice::new(i.text), ClaimedDevice::new(i.stack));
    let (stream, hStream) = (Existing(STREAM), STREAM);
    // Width, height, and one channel of bytes.
    let descriptor = words(&[64, 0, 1 << 32 | u64::from(CU_AD_FORMAT_UNSIGNED_INT8)]);
    let array = calls::cuArrayCreate_v2 { pHandle: ARRAY, pAllocateArray: &descriptor };
    i.done(calls::cuArrayCreate_v2::OP, &body(&array));
    let q = calls::cuMemcpyDtoA_v2 { dstArray: ARRAY, dstOffset: 0, srcDevice: text, ByteCount: BYTES };
    i.refused("a copy to an array", calls::cuMemcpyDtoA_v2::OP, &body(&q));
    let q = calls::cuMemcpyAtoD_v2 { dstDevice: stack, srcArray: ARRAY, srcOffset: 0, ByteCount: BYTES };
    i.refused("a copy from an array", calls::cuMemcpyAtoD_v2::OP, &body(&q));
    let q = calls::cuMemsetD8Async { dstDevice: stack, uc: 1, N: 4, hStream };
    i.refused("a fill", calls::cuMemsetD8Async::OP, &body(&q));
    let q = calls::cuMemsetD32Async { dstDevice: stack, ui: 1, N: 4, hStream };
    i.refused("a fill of words", calls::cuMemsetD32Async::OP, &body(&q));
    let q = calls::cuMemsetD2D8Async { dstDevice: stack, dstPitch: 8, uc: 1, Width: 4, Height: 1, hStream };
    i.refused("a fill of rows", calls::cuMemsetD2D8Async::OP, &body(&q));
    let q = calls::cuStreamWriteValue64_v2 { stream: STREAM, addr: stack, value: 7, flags: 0 };
    i.refused("a write of a stream", calls::cuStreamWriteValue64_v2::OP, &body(&q));
    let q = calls::cuStreamWaitValue64_v2 { stream: STREAM, addr: stack, value: 0, flags: 0 };
    i.refused("a wait of a stream", calls::cuStreamWaitValue64_v2::OP, &body(&q));
    let q = MemFree { address: ClaimedDevice::new(i.stack & !0xfff) };
    i.refused("a free", MemFree::OP, &body(&q));
    for (what, at) in [("a managed variable", i.stack), ("another", i.text), ("memory that is none", i.memory)] {
        let range = HeapRange { offset: at % 4096, bytes: BYTES as u64 };
        let q = ManagedVariable { address: ClaimedDevice::new(at), range: range.into() };
        i.refused(what, ManagedVariable::OP, &body(&q));
    }
    let q = CopyInInline { to: stack, stream, bytes: Bytes::from(&[1; BYTES][..]) };
    i.refused("bytes in a record", CopyInInline::OP, &body(&q));
    let heap = ClaimedHost::new(i.client.heap.base() as u64);
    let q = CopyIn { to: stack, from: heap, bytes: SOME, stream, source: Source::Kept };
    i.refused("a copy in", CopyIn::OP, &body(&q));
    i.refused("a copy out", CopyOut::OP, &body(&CopyOut { to: heap, from: text, bytes: SOME, stream }));
    i.refused("a number", CopyOutInline::OP, &body(&CopyOutInline { from: text, bytes: SOME, stream }));
    i.refused("bytes", CopyOutInline::OP, &body(&CopyOutInline { from: text, bytes: Size(64), stream }));
}

impl Intruder {
    /// Records one operation, and has the graph made ready to run; answers what that came to.
    fn recorded(&mut self, name: &str, op: u16, request: &[u8]) -> (u64, u32) {
        let graph = Handle::new(Kind::Graph, 0, self.next_node).0;
        let exec = Handle::new(Kind::GraphExec, 0, self.next_node).0;
        self.next_node += 1;
        let begin = StreamBeginCapture { stream: Existing(STREAM), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
        self.done(StreamBeginCapture::OP, &body(&begin));
        assert_eq!(self.client.ask(op, request).0, CUDA_SUCCESS, "{name} is recorded");
        let end = StreamEndCapture { stream: Existing(STREAM), name: New(graph), set_aside: List::default() };
        self.done(StreamEndCapture::OP, &body(&end));
        let made =
            GraphInstantiateWithFlags { exec: New(exec), graph: Existing(graph), flags: 0, some_set_aside: false };
        (graph, self.client.ask(GraphInstantiateWithFlags::OP, &body(&made)).0)
    }
}

crate::on_each_carrier! {
    // CUDA records a fill or a stream's write of any address, so that is no refusal; but the driver is not given it.
    soft fn what_is_recorded_at_memory_of_the_worker_never_runs_there(server: &Oriond, transport: Transport) {
        let mut i = Intruder::start(server, transport);
        let (at, before) = (i.stack, i.peek(i.stack));
        let (dstDevice, hStream) = (ClaimedDevice::new(at), STREAM);
        let fills = [
            (calls::cuMemsetD8Async::OP, body(&calls::cuMemsetD8Async { dstDevice, uc: 1, N: BYTES, hStream })),
            (calls::cuMemsetD32Async::OP, body(&calls::cuMemsetD32Async { dstDevice, ui: 1, N: 2, hStream })),
            (
                calls::cuMemsetD2D8Async::OP,
                body(&calls::cuMemsetD2D8Async { dstDevice, dstPitch: 8, uc: 1, Width: 4, Height: 1, hStream }),
            ),
        ];
        for (op, request) in fills {
            let (graph, ready) = i.recorded("a fill", op, &request);
            assert_eq!(ready, CUDA_ERROR_INVALID_VALUE);
            // What the driver was given is an address that no memory has.
            let node = i.node();
            let page = Page { first: 0, wanted: 1, names: List::of(vec![New(node)]).expect("one name") };
            let nodes = i.done(GraphGetNodes::OP, &body(&GraphGetNodes { graph: Existing(graph), page }));
            let nodes = GraphGetNodesReply::decode(&mut Reader::new(&nodes)).expect("one node").page.nodes;
            let hNode = nodes.first().expect("the fill's").node.0;
            let q = body(&calls::cuGraphMemsetNodeGetParams { hNode });
            let reply = i.done(calls::cuGraphMemsetNodeGetParams::OP, &q);
            let reply = calls::cuGraphMemsetNodeGetParams_reply::decode(&mut Reader::new(&reply)).expect("parameters");
            let given = u64::from_le_bytes(reply.nodeParams[..8].try_into().expect("an address"));
            assert_eq!(given, at | 1 << 63);
        }
        let batch: Vec<u8> = [u64::from(CU_STREAM_MEM_OP_WRITE_VALUE_64), at, 7, 0, 0, 0]
            .iter()
            .flat_map(|word: &u64| word.to_le_bytes())
            .collect();
        let writes = [
            (
                calls::cuStreamWriteValue64_v2::OP,
                body(&calls::cuStreamWriteValue64_v2 { stream: STREAM, addr: dstDevice, value: 7, flags: 0 }),
            ),
            (
                calls::cuStreamWaitValue64_v2::OP,
                body(&calls::cuStreamWaitValue64_v2 { stream: STREAM, addr: dstDevice, value: 0, flags: 0 }),
            ),
            (
                calls::cuStreamBatchMemOp_v2::OP,
                body(&calls::cuStreamBatchMemOp_v2 { stream: STREAM, count: 1, paramArray: &batch, flags: 0 }),
            ),
        ];
        for (op, request) in writes {
            let mut i = Intruder::start(server, transport);
            let exec = Handle::new(Kind::GraphExec, 0, i.next_node).0;
            assert_eq!(i.recorded("a write", op, &request).1, CUDA_SUCCESS);
            let run = GraphLaunch { exec: Existing(exec), stream: Existing(STREAM), is_awaited: true };
            i.client.start(GraphLaunch::OP, &body(&run));
            i.client.reply_or_lost();
            let synchronize = StreamSynchronize { stream: Existing(STREAM) };
            assert_eq!(i.client.ask(StreamSynchronize::OP, &body(&synchronize)).0, CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        assert_eq!(i.peek(at), before);
        assert!(!server.log().contains("status=signal"), "{}", server.log());
    }
}

crate::on_each_carrier! {
    soft fn rows_behind_the_heap_are_out_of_reach(server: &Oriond, transport: Transport) {
        let mut i = Intruder::start(server, transport);
        let (base, bytes) = (i.client.heap.base() as u64, i.client.heap.bytes());
        let whole = usize::MAX;
        // x, y, z, pitch, height of one side, width, height, depth
        let places = [
            // Without a pitch the driver takes rows to be as long as x and width together.
            (bytes as usize - 64, 0, 0, 0, 0, 8, 2, 1),
            (bytes as usize / 2, 0, 0, 0, 0, 8, 3, 1),
            (0, bytes as usize / 2, 0, 0, 0, 8, 1, 2),
            // Products that wrap.
            (0, 0, 1 << 33, 1 << 31, 0, 8, 1, 1),
            (0, 1 << 32, 0, 1 << 32, 0, 8, 1, 1),
            (0, 0, 0, whole, 0, 8, 2, 1),
            (0, 0, 0, 1 << 32, 1 << 32, 8, 1, 2),
            (whole, 1, 0, 9, 0, 8, 1, 1),
            (whole - 7, 0, 0, 8, 0, 8, 1, 1),
            (0, 0, 0, 8, 1, 8, whole, whole),
            // Rows that overlap: a pitch smaller than a row.
            (0, bytes as usize, 0, 1, 0, 8, 2, 1),
        ];
        for (x, y, z, pitch, height, width, rows, slices) in places {
            let mut d = shape(width);
            (d.Height, d.Depth) = (rows, slices);
            (d.srcMemoryType, d.srcHost) = (CU_MEMORYTYPE_HOST, base as *const _);
            (d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch, d.srcHeight) = (x, y, z, pitch, height);
            (d.dstMemoryType, d.dstDevice, d.dstPitch, d.dstHeight) = (CU_MEMORYTYPE_DEVICE, i.memory, 8, rows);
            let refused = i.ended_or_refused(&copy_3d(&d));
            assert!(refused, "{:?}", (x, y, z, pitch, height, width, rows, slices));
            i = Intruder::start(server, transport);
            assert_eq!(i.client.heap.bytes(), bytes);
        }
        assert!(!server.log().contains("status=signal"), "{}", server.log());
    }
}

fn place(graph: u64, node: u64) -> NodePlace {
    let on = Dependencies { with_edges: false, nodes: List::default() };
    NodePlace { graph: Existing(graph), node: New(node), on }
}

fn allocation() -> AllocationNode {
    let location = Location { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let pool = PoolProperties { allocation_type: 1, handle_types: 0, location, bytes_max: Size(1 << 20), usage: 0 };
    AllocationNode { pool, bytes: Size(1 << 20), access: List::default() }
}

crate::on_each_carrier! {
    // The driver's functions for one kind of node would take the other's words for their pointers.
    soft fn parameters_of_another_kind_of_node_end_the_session(server: &Oriond, transport: Transport) {
        let (node, exec) = (Handle::new(Kind::GraphNode, 0, 0).0, Handle::new(Kind::GraphExec, 0, 0).0);
        let operations = List::default();
        let copies = body(&BatchNode { context: Handle::primary_context(0).into(), flags: 0, operations });
        let allocation = body(&allocation());
        let adding = &body(&place(GRAPH, Handle::new(Kind::GraphNode, 0, 1).0));
        let (changing, changing_exec) = (&words(&[node]), &words(&[exec, node]));
        for (op, of) in [
            (GraphAddKernelNode::OP, adding),
            (GraphAddMemcpyNode::OP, adding),
            (GraphAddHostNode::OP, adding),
            (GraphAddBatchMemOpNode::OP, adding),
            (GraphAddMemAllocNode::OP, adding),
            (GraphKernelNodeSetParams::OP, changing),
            (GraphMemcpyNodeSetParams::OP, changing),
            (GraphHostNodeSetParams::OP, changing),
            (GraphBatchMemOpNodeSetParams::OP, changing),
            (GraphExecKernelNodeSetParams::OP, changing_exec),
            (GraphExecMemcpyNodeSetParams::OP, changing_exec),
            (GraphExecHostNodeSetParams::OP, changing_exec),
            (GraphExecChildGraphNodeSetParams::OP, changing_exec),
            (GraphExecBatchMemOpNodeSetParams::OP, changing_exec),
        ] {
            let mut i = Intruder::start(server, transport);
            i.made(GRAPH);
            let empty = GraphAddNode { place: place(GRAPH, node), params: NodeParams::Empty(Nothing {}) };
            i.done(GraphAddNode::OP, &body(&empty));
            let made =
                GraphInstantiateWithFlags { exec: New(exec), graph: Existing(GRAPH), flags: 0, some_set_aside: false };
            i.done(GraphInstantiateWithFlags::OP, &body(&made));
            let params = if op == GraphAddMemAllocNode::OP { &copies } else { &allocation };
            i.client.start(op, &[&of[..], params].concat());
            let answer = i.client.reply_or_lost().map(|(header, _)| header.context);
            assert_eq!(answer, None, "{} took them", ops::name(op).unwrap_or("operation"));
        }
        let log = server.log();
        assert!(!log.contains("status=signal"), "{log}");
    }
}

impl Intruder {
    /// Whether the copy is answered with an error, or breaks the protocol and the session ends for it.
    fn ended_or_refused(&mut self, body: &[u8]) -> bool {
        self.client.start(op::COPY_3D, body);
        self.client.reply_or_lost().is_none_or(|(header, _)| header.context != u64::from(CUDA_SUCCESS))
    }
}

crate::on_each_carrier! {
    // Whoever walks graphs does so by recursion: the worker, the driver.
    soft fn a_graph_lies_neither_in_itself_nor_without_end(server: &Oriond, transport: Transport) {
        let mut i = Intruder::start(server, transport);
        let graph = |index| Handle::new(Kind::Graph, 0, index).0;
        let (clone, own) = (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
        let child = |of, ownership| NodeParams::Child(ChildNode { graph: Existing(of), ownership });
        let add = |i: &mut Intruder, to: u64, of: u64, ownership: u32| {
            let node = i.node();
            let q = GraphAddNode { place: place(to, node), params: child(of, ownership) };
            (node, i.client.ask(GraphAddNode::OP, &body(&q)).0)
        };
        for index in 0..4 {
            i.made(graph(index));
        }
        assert_eq!(add(&mut i, graph(0), graph(0), own).1, CUDA_ERROR_INVALID_VALUE, "into itself");
        assert_eq!(add(&mut i, graph(0), graph(1), own).1, CUDA_SUCCESS);
        assert_eq!(add(&mut i, graph(1), graph(2), own).1, CUDA_SUCCESS);
        assert_eq!(add(&mut i, graph(2), graph(0), own).1, CUDA_ERROR_INVALID_VALUE, "into one that it holds");
        assert_eq!(add(&mut i, graph(3), graph(2), own).1, CUDA_ERROR_INVALID_VALUE, "from one into another");
        // A clone that was asked for by name lies in its graph like one that was handed over.
        let (node, added) = add(&mut i, graph(3), graph(3), clone);
        assert_eq!(added, CUDA_SUCCESS);
        let asked = GraphChildGraphNodeGetGraph { node: Existing(node), name: New(graph(4)) };
        i.done(GraphChildGraphNodeGetGraph::OP, &body(&asked));
        assert_eq!(add(&mut i, graph(4), graph(3), own).1, CUDA_ERROR_INVALID_VALUE, "into its own clone");
        let change = GraphNodeSetParams { node: Existing(node), params: child(graph(3), own) };
        let changed = i.client.ask(GraphNodeSetParams::OP, &body(&change)).0;
        assert_eq!(changed, CUDA_ERROR_INVALID_VALUE, "into a node that exists");

        // Each a level deeper than the one before, until that would be too deep: then the next begins anew.
        let (mut levels, mut deepest) = (2, 2);
        for index in 5..200 {
            i.made(graph(index));
            let of = if index == 5 { graph(3) } else { graph(index - 1) };
            levels = match add(&mut i, graph(index), of, if index % 2 == 0 { own } else { clone }).1 {
                CUDA_SUCCESS => levels + 1,
                code => {
                    assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED, "at {index}, {levels} levels");
                    1
                }
            };
            deepest = deepest.max(levels);
        }
        assert_eq!(deepest, 64);
        // From the outermost to the innermost, too: the chain is as long as it was made in the other order.
        for index in 200..400 {
            i.made(graph(index));
        }
        let added = (200..399).filter(|index| add(&mut i, graph(*index), graph(*index + 1), own).1 == CUDA_SUCCESS);
        assert_eq!(added.count(), 199 - 199 / 64);
        for index in [0, 3, 199, 200] {
            i.done(GraphDestroy::OP, &body(&GraphDestroy { graph: Existing(graph(index)) }));
        }
        i.synchronize();
        assert!(!server.log().contains("status=signal"), "{}", server.log());
    }
}
