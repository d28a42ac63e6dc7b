//! A session that makes the server keep things for it: what it sends is small, and what comes of it is not, or is never
//! fetched. Says how much memory oriond and the worker have then.

// UNSAFETY: fills a C struct of integers and pointers, and reads it as bytes.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use orion_cuda::sys::*;
use orion_transport::client::Server;
use orion_wire::generated::ops;
use orion_wire::handle::Handle;
use orion_wire::record::op;
use orion_wire::{Kind, Writer};

use crate::client::{Answer, Client, first_word, words};

const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
const GRAPH: u64 = Handle::new(Kind::Graph, 0, 0).0;

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
}

/// Resident memory in KiB, and the most there was.
pub fn resident(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("0");
        line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
    };
    (value("VmRSS:"), value("VmHWM:"))
}

/// What oriond and the worker had before and at most, in KiB.
pub struct Growth {
    pub oriond: (u64, u64),
    pub worker: (u64, u64),
    pub messages: u64,
    pub lost: bool,
}

pub fn run(server: &Server, token: &str, oriond: u32, way: Way, seconds: u64) -> Result<Growth, String> {
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
    call(&mut client, ops::CU_STREAM_CREATE_WITH_PRIORITY, &words(&[STREAM, CU_STREAM_NON_BLOCKING.into(), 0]))?;
    call(&mut client, ops::CU_GRAPH_CREATE, &words(&[GRAPH, 0]))?;
    let memory = first_word(&call(&mut client, ops::CU_MEM_ALLOC_V2, &words(&[1 << 20]))?);
    let mut growth = Growth { oriond: resident(oriond), worker: resident(worker), messages: 0, lost: false };
    if way == Way::Captured {
        call(&mut client, ops::CU_STREAM_BEGIN_CAPTURE_V2, &words(&[STREAM, 2]))?;
    }
    if way == Way::Freed {
        // Something that the device waits for, and nobody brings.
        client.post(ops::CU_STREAM_WAIT_VALUE32_V2, 0, &words(&[STREAM, memory, 1, 0]));
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
        growth.oriond.1 = growth.oriond.1.max(resident(oriond).0);
        growth.worker.1 = growth.worker.1.max(resident(worker).0);
    }
    Ok(growth)
}

/// One message of that kind; whether it went out.
fn one(client: &mut Client, way: Way, memory: u64, i: u64) -> bool {
    match way {
        Way::Replies => client.send(op::COPY_OUT_INLINE, 0, &words(&[memory, 100 << 10, STREAM])),
        Way::Ranges => {
            // SAFETY: a struct of integers and pointers, for which zero is a value.
            let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
            (d.WidthInBytes, d.Height, d.Depth) = (1, 2, 1);
            (d.srcMemoryType, d.srcDevice, d.srcPitch) = (CU_MEMORYTYPE_DEVICE, memory, 8);
            let at = client.heap.base() as u64 + (80 << 20);
            (d.dstMemoryType, d.dstHost, d.dstPitch) = (CU_MEMORYTYPE_HOST, at as *mut _, 900 << 20);
            let mut body = words(&[STREAM]);
            // SAFETY: plain data; the padding is zero because the struct was.
            body.put(unsafe { std::slice::from_raw_parts(std::ptr::from_ref(&d).cast::<u8>(), size_of_val(&d)) });
            client.send(op::COPY_3D, 0, &body)
        }
        Way::Callbacks => client.post(ops::CU_LAUNCH_HOST_FUNC, 0, &words(&[STREAM, 1, 1])),
        Way::Captured => {
            let mut body = words(&[memory, STREAM]);
            body.bytes(&[1; 60 << 10]);
            client.post(op::COPY_IN_INLINE, 0, &body)
        }
        Way::Freed => client.post(ops::CU_MEM_FREE_HOST, 0, &words(&[(96 << 20) + (i % 64) * 4096, 4096, 0])),
        Way::Waits => client.send(ops::CU_MEM_HOST_ALLOC, 0, &words(&[2, 96 << 20, 4096])),
        Way::Nodes => {
            let node = Handle::new(Kind::GraphNode, 0, i as u32).0;
            let empty = u64::from(CU_GRAPH_NODE_TYPE_EMPTY);
            client.post(ops::CU_GRAPH_ADD_NODE_V2, 0, &words(&[GRAPH, node, 0, 0, empty]))
        }
        Way::Errors => {
            client.context = Handle::new(Kind::Context, 0, 100 + (i % 100_000) as u32).0;
            client.post(ops::CU_STREAM_QUERY, (i % 4096) as u16, &words(&[STREAM]))
        }
        Way::Events => {
            let event = Handle::new(Kind::Event, 0, (i % 0xff_ffff) as u32).0;
            client.post(ops::CU_EVENT_CREATE, 0, &words(&[event, 0]))
        }
    }
}
