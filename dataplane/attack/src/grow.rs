//! A session that makes the server keep things for it: what it sends is small, and what comes of it is not, or is never
//! fetched. Says how much memory oriond and the worker have then, and how long somebody else waited for answers.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use orion_cuda::sys::*;
use orion_transport::LANES_MAX;
use orion_transport::client::Server;
use orion_wire::Kind;
use orion_wire::handle::{Handle, INDEX_MAX};
use orion_wire::message::address::{ClaimedDevice, ClaimedHost, ClaimedRange};
use orion_wire::message::callback::LaunchHostFunc;
use orion_wire::message::calls;
use orion_wire::message::capture::StreamBeginCapture;
use orion_wire::message::copy::{Copy3D, CopyBox, CopyInInline, CopyOutInline, CopySide};
use orion_wire::message::field::{Bytes, CallbackId, Existing, Size};
use orion_wire::message::graph_node::GraphAddNode;
use orion_wire::message::host_memory::{MemFreeHost, MemHostAlloc, Pinned};
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::stream::StreamQuery;
use orion_wire::record::HeapRange;

use crate::carried::Carried;
use crate::client::{Answer, Client, body, empty_node, first_word, words};

const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
const GRAPH: Handle = Handle::new(Kind::Graph, 0, 0);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Replies of 100 KiB that nobody reads
    Replies,
    /// Ranges of the heap of hundreds of MiB, announced for copies of two rows of a byte each
    Ranges,
    /// Host functions that nobody runs
    Callbacks,
    /// Small copies captured into a graph, which keeps their bytes
    Captured,
    /// Pinned ranges that are freed while the device is busy
    Freed,
    /// Waits that never end
    Waits,
    /// Nodes of a graph
    Nodes,
    /// Errors of posted commands
    Errors,
    /// Names of events that are made and never destroyed
    Events,
    /// Gigabytes on a bulk connection that nobody reads
    Unread,
    /// Bulk connections beyond their number, kept when their sessions are over
    Lanes,
}

impl Way {
    /// Whether it is about connections that only a carried session has.
    pub fn needs_lanes(self) -> bool {
        matches!(self, Way::Unread | Way::Lanes)
    }

    /// What an oriond for it has instead of a GPU: a worker that announces whatever it is told to, for lanes.
    pub fn driver(self) -> &'static str {
        if self.needs_lanes() { "echo" } else { "soft" }
    }
}

/// Resident memory in KiB that is nobody else's: not of the rings and the heap.
fn own_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// What oriond and the worker had before and at most, in KiB.
pub struct Growth {
    pub oriond: (u64, u64),
    pub worker: (u64, u64),
    pub messages: u64,
    pub lost: bool,
    /// What else there is too much of.
    pub broke: Option<String>,
}

pub fn run(server: &Server, token: &str, oriond: u32, way: Way, seconds: u64) -> Result<Growth, String> {
    match way {
        Way::Unread => return unread(server, token, oriond, seconds),
        Way::Lanes => return lanes(server, token, oriond, seconds),
        _ => {}
    }
    let mut client = Client::attach(server, token)?;
    let worker = client.welcome.worker_pid;
    let call = |client: &mut Client, op: u16, body: &[u8]| match client.ask(
        op,
        0,
        body,
        Duration::from_secs(20),
        &mut |_, _| {},
    ) {
        Answer::Reply(CUDA_SUCCESS, reply) => Ok(reply),
        Answer::Reply(code, _) => Err(format!("operation {op:#x} answered {code}")),
        Answer::Late | Answer::Lost => Err(format!("no answer to operation {op:#x}")),
    };
    let stream = calls::cuStreamCreateWithPriority { phStream: STREAM, flags: CU_STREAM_NON_BLOCKING, priority: 0 };
    call(&mut client, calls::cuStreamCreateWithPriority::OP, &body(&stream))?;
    let graph = calls::cuGraphCreate { phGraph: GRAPH.0, flags: 0 };
    call(&mut client, calls::cuGraphCreate::OP, &body(&graph))?;
    let memory = first_word(&call(&mut client, MemAlloc::OP, &body(&MemAlloc { bytes: Size(1 << 20) }))?);
    let mut growth = Growth::begin(oriond, worker);
    if way == Way::Captured {
        let capture = StreamBeginCapture { stream: Existing(STREAM), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
        call(&mut client, StreamBeginCapture::OP, &body(&capture))?;
    }
    if way == Way::Freed {
        // Something that the device waits for, and nobody brings.
        let addr = ClaimedDevice::new(memory);
        let wait = calls::cuStreamWaitValue32_v2 { stream: STREAM, addr, value: 1, flags: 0 };
        client.post(calls::cuStreamWaitValue32_v2::OP, 0, &body(&wait));
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) && !growth.lost {
        for _ in 0..64 {
            growth.messages += 1;
            if !one(&mut client, way, memory, growth.messages) {
                // Held up, as it should be, or gone.
                growth.lost = client.is_lost();
                break;
            }
        }
        growth.look(oriond, worker);
    }
    growth.lost |= client.is_lost();
    Ok(growth)
}

impl Growth {
    fn begin(oriond: u32, worker: u32) -> Growth {
        let (oriond, worker) = (own_memory(oriond), own_memory(worker));
        Growth { oriond: (oriond, oriond), worker: (worker, worker), messages: 0, lost: false, broke: None }
    }

    fn look(&mut self, oriond: u32, worker: u32) {
        self.oriond.1 = self.oriond.1.max(own_memory(oriond));
        self.worker.1 = self.worker.1.max(own_memory(worker));
    }
}

/// Of the worker without a GPU: announces a range of the heap.
const FILL: u16 = 0x7ff1;

fn unread(server: &Server, token: &str, oriond: u32, seconds: u64) -> Result<Growth, String> {
    let mut session = Carried::attach(server, token)?;
    let worker = session.welcome.worker_pid;
    let _lane = session.join(0).map_err(|e| format!("joining a session failed: {e}"))?;
    let mut growth = Growth::begin(oriond, worker);
    let began = Instant::now();
    let range = words(&[0, session.welcome.heap_bytes.min(1 << 30), 0]);
    while began.elapsed() < Duration::from_secs(seconds) && session.send(FILL, &range) {
        growth.messages += 1;
        growth.look(oriond, worker);
    }
    growth.look(oriond, worker);
    Ok(growth)
}

/// How long oriond may take to come to rest, on a machine that is busy with other things.
const REST_MAX: Duration = Duration::from_secs(20);

/// What is counted, once it has been the same for a while: a worker that is still being made changes it.
fn at_rest(count: impl Fn() -> usize) -> usize {
    let began = Instant::now();
    let (mut last, mut since) = (count(), began);
    while since.elapsed() < Duration::from_secs(1) && began.elapsed() < REST_MAX {
        std::thread::sleep(Duration::from_millis(20));
        let now = count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

fn lanes(server: &Server, token: &str, oriond: u32, seconds: u64) -> Result<Growth, String> {
    let descriptors = || std::fs::read_dir(format!("/proc/{oriond}/fd")).map_or(0, Iterator::count);
    let mut kept = Vec::new();
    let mut growth: Option<Growth> = None;
    let idle = at_rest(descriptors);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let session = Carried::attach(server, token)?;
        let worker = session.welcome.worker_pid;
        let growth = growth.get_or_insert_with(|| Growth::begin(oriond, worker));
        let before = kept.len();
        for lane in (0..2 * LANES_MAX).chain(0..LANES_MAX) {
            growth.messages += 1;
            kept.extend(session.join(lane));
        }
        growth.look(oriond, worker);
        if kept.len() - before > LANES_MAX {
            growth.broke = Some(format!("a session has {} lanes", kept.len() - before));
        }
        drop(session);
        // Its worker and the next warm one are there side by side for a moment.
        let over = Instant::now();
        while descriptors() > idle + 4 && over.elapsed() < REST_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
        let now = descriptors();
        if now > idle + 4 {
            growth.broke = Some(format!("oriond has {now} descriptors, before {idle}"));
        }
    }
    growth.ok_or_else(|| "there was no time for a session".to_owned())
}

/// A side of a copy without a place.
fn nowhere() -> CopySide {
    let (zero, host, device) = (Size(0), ClaimedHost::new(0), ClaimedDevice::new(0));
    let (array, reserved) = (Existing(0), 0);
    let (x, y, z, level, pitch, height) = (zero, zero, zero, zero, zero, zero);
    CopySide { x, y, z, level, memory_type: 0, host, device, array, reserved, pitch, height }
}

/// One message of that kind; whether it went out.
fn one(client: &mut Client, way: Way, memory: u64, i: u64) -> bool {
    let (stream, memory) = (Existing(STREAM), ClaimedDevice::new(memory));
    let range = |offset, bytes| ClaimedRange::from(HeapRange { offset, bytes });
    match way {
        Way::Replies => {
            let q = CopyOutInline { from: memory, bytes: Size(100 << 10), stream };
            client.send(CopyOutInline::OP, 0, &body(&q))
        }
        Way::Ranges => {
            let at = ClaimedHost::new(client.heap.base() as u64 + (80 << 20));
            let source = CopySide { memory_type: CU_MEMORYTYPE_DEVICE, device: memory, pitch: Size(8), ..nowhere() };
            let destination =
                CopySide { memory_type: CU_MEMORYTYPE_HOST, host: at, pitch: Size(900 << 20), ..nowhere() };
            let copy = Copy3D { source, destination, width: Size(1), rows: Size(2), layers: Size(1) };
            client.send(CopyBox::OP, 0, &body(&CopyBox { stream, copy }))
        }
        Way::Callbacks => {
            let q = LaunchHostFunc { stream, function: CallbackId(1), kept: true };
            client.post(LaunchHostFunc::OP, 0, &body(&q))
        }
        Way::Captured => {
            let q = CopyInInline { to: memory, stream, bytes: Bytes::from(&[1; 60 << 10][..]) };
            client.post(CopyInInline::OP, 0, &body(&q))
        }
        Way::Freed => {
            let q = MemFreeHost { range: range((96 << 20) + (i % 64) * 4096, 4096), registered_alone: false };
            client.post(MemFreeHost::OP, 0, &body(&q))
        }
        Way::Waits => {
            let q = MemHostAlloc { request: Pinned::Copied, range: range(96 << 20, 4096) };
            client.send(MemHostAlloc::OP, 0, &body(&q))
        }
        Way::Nodes => {
            let node = Handle::new(Kind::GraphNode, 0, i as u32);
            client.post(GraphAddNode::OP, 0, &body(&empty_node(GRAPH, node)))
        }
        Way::Errors => {
            client.context = Handle::new(Kind::Context, 0, 100 + (i % 100_000) as u32).0;
            client.post(StreamQuery::OP, (i % 4096) as u16, &body(&StreamQuery { stream }))
        }
        Way::Events => {
            let event = Handle::new(Kind::Event, 0, (i % u64::from(INDEX_MAX)) as u32).0;
            let q = calls::cuEventCreate { phEvent: event, Flags: 0 };
            client.post(calls::cuEventCreate::OP, 0, &body(&q))
        }
        Way::Unread | Way::Lanes => unreachable!("they have sessions of their own"),
    }
}
