//! What a client can learn about the GPU's work, from workers with the software GPU.

use std::mem::offset_of;

use orion_cuda::cupti::*;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::activity::{Activity, COPIES, KERNELS, LOST, SETS};
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::activity::ActivityCorrelation;
use orion_wire::message::address::{ClaimedDevice, ClaimedHost};
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamBeginCapture, StreamEndCapture};
use orion_wire::message::copy::{CopyInInline, CopyOut};
use orion_wire::message::field::{Bytes, Existing, List, New, Size};
use orion_wire::message::graph_exec::{GraphInstantiateWithFlags, GraphLaunch};
use orion_wire::message::image::Payload;
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::module::{ModuleGetFunction, ModuleLoadData};
use orion_wire::message::stream::StreamSynchronize;
use orion_wire::record::op;

use crate::harness::{self, Client, Oriond, Transport, body, non_blocking, words};

const ALL: u64 = KERNELS | COPIES | SETS;
const FUNCTION: u64 = Handle::new(Kind::Function, 0, 0).0;
const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
const GRAPH_EXEC: u64 = Handle::new(Kind::GraphExec, 0, 0).0;

/// A client with a kernel, a stream and some memory.
struct Program {
    client: Client,
    memory: u64,
}

/// An activity, with the numbers that all kinds have.
#[derive(Debug)]
struct Seen {
    kind: u32,
    correlation: u32,
    start: u64,
    end: u64,
    name: String,
    structure: Vec<u8>,
}

impl Seen {
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.structure[at..at + 4].try_into().unwrap())
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.structure[at..at + 8].try_into().unwrap())
    }
}

impl Program {
    fn start(server: &Oriond, transport: Transport) -> Program {
        Program::with(Client::attach(server, transport))
    }

    fn with(mut client: Client) -> Program {
        client.context = Handle::primary_context(0).0;
        let mut p = Program { client, memory: 0 };
        let module = Handle::new(Kind::Module, 0, 0).0;
        let image = Payload::Inline(Bytes::from(&include_bytes!("../../../conformance/ptx/facts.ptx")[..]));
        let load = ModuleLoadData { module: New(module), image, options: List::default(), owner: c"".into() };
        p.done(ModuleLoadData::OP, &body(&load));
        let find = ModuleGetFunction { module: Existing(module), function: New(FUNCTION), name: c"noop".into() };
        p.done(ModuleGetFunction::OP, &body(&find));
        p.done(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(STREAM)));
        p.memory = Reader::new(&p.done(MemAlloc::OP, &body(&harness::memory(4096)))).word().unwrap();
        p
    }

    fn done(&mut self, op: u16, body: &[u8]) -> Vec<u8> {
        let (code, reply) = self.client.ask(op, body);
        assert_eq!(code, CUDA_SUCCESS, "operation {op:#x}");
        reply
    }

    fn word(&mut self, op: u16, body: &[u64]) -> u64 {
        Reader::new(&self.done(op, &words(body))).word().unwrap()
    }

    /// What comes next belongs to this call.
    fn call(&mut self, id: u32) {
        self.client.post(ActivityCorrelation::OP, &body(&ActivityCorrelation { id }));
    }

    fn launch(&mut self, grid: u64, block: u64) {
        let body = [FUNCTION, 1 << 32 | grid, block << 32 | 1, 1 << 32 | 1, 0, STREAM, 0];
        self.client.post(ops::CU_LAUNCH_KERNEL, &words(&body));
    }

    /// A posted one, of 400 bytes.
    fn fill(&mut self) {
        let dstDevice = ClaimedDevice::new(self.memory);
        let q = calls::cuMemsetD32Async { dstDevice, ui: 7, N: 100, hStream: STREAM };
        self.client.post(calls::cuMemsetD32Async::OP, &body(&q));
    }

    fn synchronize(&mut self) {
        self.done(StreamSynchronize::OP, &body(&StreamSynchronize { stream: Existing(STREAM) }));
    }

    /// A posted copy of some bytes out of the device.
    fn copy_out(&mut self, bytes: u64) {
        let (to, from) = (ClaimedHost::new(self.client.heap.base() as u64), ClaimedDevice::new(self.memory));
        let q = CopyOut { to, from, bytes: Size(bytes), stream: Existing(STREAM) };
        self.client.post(CopyOut::OP, &body(&q));
    }

    fn take(&mut self, flush: bool) -> Vec<Seen> {
        let mut all = Vec::new();
        let mut flush = u64::from(flush);
        loop {
            let reply = self.done(op::ACTIVITY_TAKE, &words(&[flush]));
            flush = 0;
            let mut r = Reader::new(&reply);
            let more = r.word().unwrap();
            while !r.is_empty() {
                let a = Activity::get(&mut r).unwrap();
                assert_ne!(a.kind, LOST, "nothing is lost");
                let correlation = match a.kind {
                    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => offset_of!(CUpti_ActivityKernel10, correlationId),
                    _ => offset_of!(CUpti_ActivityMemcpy6, correlationId),
                };
                let mut seen = Seen {
                    kind: a.kind,
                    correlation: 0,
                    start: 0,
                    end: 0,
                    name: String::from_utf8(a.name.to_vec()).unwrap(),
                    structure: a.structure.to_vec(),
                };
                // The same in all of them.
                assert_eq!(
                    offset_of!(CUpti_ActivityMemset4, correlationId),
                    offset_of!(CUpti_ActivityMemcpy6, correlationId)
                );
                (seen.start, seen.end, seen.correlation) = (seen.long(16), seen.long(24), seen.word(correlation));
                all.push(seen);
            }
            if more == 0 {
                return all;
            }
        }
    }
}

fn on_each(run: fn(&Oriond, Transport)) {
    for &transport in Transport::ALL {
        run(&Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]), transport);
    }
}

#[test]
fn kernels_copies_and_fills_come_with_their_calls() {
    on_each(|server, transport| {
        let mut p = Program::start(server, transport);
        p.call(99);
        p.launch(1, 1);
        p.synchronize();
        let on = p.word(op::ACTIVITY_ENABLE, &[ALL]);
        let before = p.word(op::ACTIVITY_CLOCK, &[]);
        assert!(on <= before);
        p.call(11);
        p.launch(3, 64);
        p.call(12);
        p.fill();
        p.call(13);
        let (to, bytes) = (ClaimedDevice::new(p.memory), Bytes::from(&[5; 40][..]));
        p.client.post(CopyInInline::OP, &body(&CopyInInline { to, stream: Existing(STREAM), bytes }));
        p.call(14);
        p.copy_out(1000);
        p.call(15);
        p.synchronize();
        let after = p.word(op::ACTIVITY_CLOCK, &[]);
        let all = p.take(true);
        let got: Vec<_> = all.iter().map(|a| (a.kind, a.correlation)).collect();
        let (kernel, copy, set) =
            (CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET);
        assert_eq!(got, [(kernel, 11), (set, 12), (copy, 13), (copy, 14)]);
        for a in &all {
            assert!(before <= a.start && a.start <= a.end && a.end <= after, "{a:?} within {before} to {after}");
        }
        assert!(all.windows(2).all(|two| two[0].end <= two[1].start), "a stream does one after the other");
        assert_eq!(all[0].name, "noop");
        let shape = [offset_of!(CUpti_ActivityKernel10, gridX), offset_of!(CUpti_ActivityKernel10, blockX)];
        assert_eq!(shape.map(|at| all[0].word(at)), [3, 64]);
        let bytes = offset_of!(CUpti_ActivityMemcpy6, bytes);
        assert_eq!([&all[1], &all[2], &all[3]].map(|a| a.long(bytes)), [400, 40, 1000]);
        assert_eq!(all[1].word(offset_of!(CUpti_ActivityMemset4, value)), 7);
        // From pageable memory to the device, and from the device to pinned memory.
        assert_eq!([&all[2], &all[3]].map(|a| a.structure[4..7].to_vec()), [vec![1, 1, 3], vec![2, 3, 2]]);
        assert!(p.take(true).is_empty(), "taken once");
    });
}

#[test]
fn a_number_read_back_belongs_to_its_copy_whatever_follows() {
    on_each(|server, transport| {
        let mut p = Program::start(server, transport);
        p.word(op::ACTIVITY_ENABLE, &[ALL]);
        let mut wanted = Vec::new();
        for i in 0..20 {
            // Held for the wait behind it, and made with it.
            p.call(100 + i);
            p.copy_out(4);
            p.call(200 + i);
            p.synchronize();
            wanted.push(100 + i);
            // Held, and let go when something else follows.
            p.call(300 + i);
            p.copy_out(4);
            p.call(400 + i);
            p.launch(1, 1);
            wanted.extend([300 + i, 400 + i]);
            // Held, and let go when nothing follows.
            p.call(500 + i);
            p.copy_out(4);
            p.call(600 + i);
            std::thread::sleep(std::time::Duration::from_micros(100));
            p.synchronize();
            wanted.push(500 + i);
            // In the reply.
            p.call(700 + i);
            p.done(op::COPY_OUT_INLINE, &words(&[p.memory, 8, STREAM]));
            wanted.push(700 + i);
        }
        let got: Vec<_> = p.take(true).iter().map(|a| a.correlation).collect();
        assert_eq!(got, wanted);
    });
}

#[test]
fn a_graph_s_nodes_belong_to_its_launch() {
    on_each(|server, transport| {
        let mut p = Program::start(server, transport);
        let begin = StreamBeginCapture { stream: Existing(STREAM), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
        p.done(StreamBeginCapture::OP, &body(&begin));
        for grid in 1..=3 {
            p.launch(grid, 1);
        }
        let graph = Handle::new(Kind::Graph, 0, 0).0;
        let end = StreamEndCapture { stream: Existing(STREAM), name: New(graph), set_aside: List::default() };
        p.done(StreamEndCapture::OP, &body(&end));
        let (exec, graph) = (New(GRAPH_EXEC), Existing(graph));
        let made = GraphInstantiateWithFlags { exec, graph, flags: 0, some_set_aside: false };
        p.done(GraphInstantiateWithFlags::OP, &body(&made));
        p.word(op::ACTIVITY_ENABLE, &[KERNELS]);
        for id in [21, 22] {
            p.call(id);
            let q = GraphLaunch { exec: Existing(GRAPH_EXEC), stream: Existing(STREAM), is_awaited: false };
            p.client.post(GraphLaunch::OP, &body(&q));
        }
        p.call(23);
        p.synchronize();
        let all = p.take(true);
        let grid = offset_of!(CUpti_ActivityKernel10, gridX);
        let got: Vec<_> = all.iter().map(|a| (a.correlation, a.word(grid))).collect();
        assert_eq!(got, [(21, 1), (21, 2), (21, 3), (22, 1), (22, 2), (22, 3)]);
        assert!(all.iter().all(|a| a.long(offset_of!(CUpti_ActivityKernel10, graphNodeId)) != 0));
    });
}

#[test]
fn only_what_was_asked_for_is_recorded_and_nothing_once_it_is_off() {
    on_each(|server, transport| {
        let mut p = Program::start(server, transport);
        let mut other = Program::start(server, transport);
        assert!(p.take(true).is_empty() && p.take(false).is_empty(), "nothing was asked for");
        p.word(op::ACTIVITY_ENABLE, &[SETS]);
        p.call(1);
        p.launch(1, 1);
        p.fill();
        p.synchronize();
        p.word(op::ACTIVITY_ENABLE, &[KERNELS]);
        p.launch(1, 1);
        p.fill();
        p.synchronize();
        // Another session's work is its own business.
        other.call(9);
        other.launch(1, 1);
        other.synchronize();
        assert!(other.take(true).is_empty());
        p.word(op::ACTIVITY_ENABLE, &[0]);
        p.launch(1, 1);
        p.synchronize();
        let got: Vec<_> = p.take(true).iter().map(|a| (a.kind, a.correlation)).collect();
        assert_eq!(got, [(CUPTI_ACTIVITY_KIND_MEMSET, 1), (CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1)]);
        assert!(p.take(true).is_empty());
        // What was named before says nothing about what is recorded later, and work without a call is not lost.
        p.word(op::ACTIVITY_ENABLE, &[ALL]);
        p.launch(1, 1);
        p.synchronize();
        let got: Vec<_> = p.take(true).iter().map(|a| a.correlation).collect();
        assert_eq!(got, [0]);
    });
}

#[test]
fn a_device_has_the_number_that_the_application_knows() {
    let server = Oriond::start_in(&[("ORION_SOFT_DEVICES", "2")], &["--driver", "soft", "--heap", "256 MiB"]);
    let mut client = Client::attach(&server, Transport::Shm);
    client.post(op::VISIBLE_DEVICES, &words(&[1, 1]));
    let mut p = Program::with(client);
    p.word(op::ACTIVITY_ENABLE, &[KERNELS]);
    p.call(1);
    p.launch(1, 1);
    p.synchronize();
    assert_eq!(p.take(true)[0].word(offset_of!(CUpti_ActivityKernel10, deviceId)), 0);
}

#[test]
fn many_records_come_in_several_replies() {
    on_each(|server, transport| {
        let mut p = Program::start(server, transport);
        p.word(op::ACTIVITY_ENABLE, &[KERNELS]);
        for id in 0..20_000 {
            p.call(id);
            p.launch(1, 1);
        }
        p.synchronize();
        let got: Vec<_> = p.take(true).iter().map(|a| a.correlation).collect();
        assert_eq!(got, (0..20_000).collect::<Vec<u32>>());
    });
}

#[test]
fn unknown_kinds_are_refused_in_words() {
    on_each(|server, transport| {
        let mut p = Program::start(server, transport);
        let (code, reply) = p.client.ask(op::ACTIVITY_ENABLE, &words(&[8 | KERNELS]));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        let text = String::from_utf8(Reader::new(&reply).bytes().unwrap().to_vec()).unwrap();
        assert!(text.contains("0x9"), "{text}");
        p.launch(1, 1);
        p.synchronize();
        assert!(p.take(true).is_empty());
    });
}

#[test]
fn bad_bodies_end_the_session() {
    let bad: [(u16, &[u64]); 12] = [
        (op::ACTIVITY_ENABLE, &[]),
        (op::ACTIVITY_ENABLE, &[1, 1]),
        (op::ACTIVITY_TAKE, &[]),
        (op::ACTIVITY_TAKE, &[2]),
        (op::ACTIVITY_TAKE, &[1, 0]),
        (op::ACTIVITY_CLOCK, &[0]),
        (op::ACTIVITY_GRAPH_ID, &[0]),
        (op::ACTIVITY_GRAPH_ID, &[3, 0]),
        (op::ACTIVITY_GRAPH_ID, &[0, 0, 0]),
        (op::ACTIVITY_CORRELATION, &[]),
        (op::ACTIVITY_CORRELATION, &[1 << 32]),
        (op::ACTIVITY_CORRELATION, &[1, 1]),
    ];
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    for (op, body) in bad {
        let mut client = Client::attach(&server, Transport::Shm);
        client.start(op, &words(body));
        assert!(client.reply_or_lost().is_none(), "operation {op:#x} with {body:?}");
    }
}

#[test]
fn the_software_gpu_takes_no_library() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
        .args(["serve", "--driver", "soft", "--socket", "none", "--listen", "none", "--cupti", "/opt/libcupti.so.13"])
        .output()
        .expect("oriond starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--cupti /opt/libcupti.so.13"), "{said}");
}
