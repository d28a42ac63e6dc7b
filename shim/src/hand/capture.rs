//! Stream capture. The worker's driver captures; here is what is asked all the time and answered without it.

// UNSAFETY: writes answers through the application's pointers.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::{calls, ops};
use orion_wire::handle::{Handle, Kind};
use orion_wire::record::op;

use crate::call::{call, thread_slot};
use crate::hand::graph::Spare;
use crate::local::context;

/// Captures that this process began and that nobody has ended. PyTorch asks thousands of times a second whether
/// a stream is capturing; without a capture the answer is here.
pub static OPEN: AtomicU32 = AtomicU32::new(0);
/// Their number is `OPEN`.
pub static ORIGINS: Mutex<Vec<Origin>> = Mutex::new(Vec::new());
/// Heap ranges set aside for copies of pageable memory in open captures, with the captures' graphs.
pub static SET_ASIDE: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// A capture of this process.
pub struct Origin {
    /// What it was begun on.
    pub stream: (u64, u16),
    /// It adds to a graph that the application has already.
    pub to_graph: bool,
}

#[inline]
pub fn any_open() -> bool {
    OPEN.load(Ordering::Relaxed) > 0
}

/// Whether work on `stream` is being recorded instead of done.
pub fn capturing(stream: CUstream) -> bool {
    any_open() && status(stream).is_ok_and(|status| status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
}

/// After a posted command: while captures are open, what the driver made of it is this call's result, because a
/// capture's errors are reported where they are made. Otherwise nothing is asked.
#[inline]
pub fn settle() -> CUresult {
    if !any_open() {
        return CUDA_SUCCESS;
    }
    // The worker answers any call with the failure of an earlier posted command, if there is one.
    call(op::PING, |_| {}, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS)
}

pub fn change_origins(change: impl FnOnce(&mut Vec<Origin>)) {
    let mut origins = ORIGINS.lock().expect("no panic happens under this lock");
    change(&mut origins);
    OPEN.store(origins.len() as u32, Ordering::Relaxed);
}

/// The capture that was begun on a stream is over.
pub fn origin_gone(stream: CUstream) {
    change_origins(|origins| origins.retain(|o| o.stream != key(stream)));
}

/// A stream was destroyed, and a capture with it.
pub fn stream_destroyed(stream: CUstream) {
    if any_open() {
        origin_gone(stream);
    }
}

/// For a copy from or to pageable memory on a stream that is being captured: the address of a range of the heap
/// to copy from or to instead. Its bytes are moved around every launch of the graph.
pub fn set_aside(
    s: &'static crate::session::Session,
    stream: CUstream,
    host: u64,
    shape: crate::hand::graph::copies::Shape,
) -> Result<Option<u64>, CUresult> {
    if !any_open() {
        return Ok(None);
    }
    let answer = ask(stream, 0)?;
    if answer.status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(None);
    }
    let staged = crate::hand::graph::copies::set_aside(s, host, shape)?;
    SET_ASIDE.lock().expect("no panic happens under this lock").push((answer.graph, staged.range.offset));
    Ok(s.heap.at(staged.range.offset, staged.range.bytes).map(|at| at as u64))
}

/// A default stream needs a context; another one needs to be a stream's handle.
#[inline]
pub fn check_stream(stream: CUstream) -> Result<(), CUresult> {
    match stream as u64 {
        0..=2 if context::current() == 0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        0..=2 => Ok(()),
        word if Handle(word).is(Kind::Stream) => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

pub fn status(stream: CUstream) -> Result<CUstreamCaptureStatus, CUresult> {
    call(
        ops::CU_STREAM_IS_CAPTURING,
        |w| calls::cuStreamIsCapturing { hStream: stream as u64 }.encode(w),
        |r| Ok(calls::cuStreamIsCapturing_reply::decode(r)?.captureStatus),
    )
}

/// What the application was last told about a stream's dependencies: CUDA keeps the arrays until the next call
/// on the stream.
pub struct Found {
    pub nodes: Vec<usize>,
    pub edges: Vec<CUgraphEdgeData>,
}

static FOUND: Mutex<Option<HashMap<(u64, u16), Found>>> = Mutex::new(None);

pub struct FoundGuard(std::sync::MutexGuard<'static, Option<HashMap<(u64, u16), Found>>>);

impl std::ops::Deref for FoundGuard {
    type Target = HashMap<(u64, u16), Found>;
    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("made by `found`")
    }
}

impl std::ops::DerefMut for FoundGuard {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("made by `found`")
    }
}

pub fn found() -> FoundGuard {
    let mut guard = FOUND.lock().expect("no panic happens under this lock");
    guard.get_or_insert_default();
    FoundGuard(guard)
}

/// A thread's default stream has the same name in every thread.
pub fn key(stream: CUstream) -> (u64, u16) {
    (stream as u64, if stream as u64 == 2 { thread_slot() } else { 0 })
}

pub struct Answer {
    pub status: CUstreamCaptureStatus,
    pub open: u32,
    pub id: u64,
    pub graph: u64,
    pub dependencies: Vec<(u64, u64)>,
}

pub fn ask(stream: CUstream, names: usize) -> Result<Answer, CUresult> {
    let (graph, nodes) = (Spare::new(Kind::Graph, 1), Spare::new(Kind::GraphNode, names));
    let answer = call(
        ops::CU_STREAM_GET_CAPTURE_INFO_V3,
        |w| {
            w.word(stream as u64);
            graph.encode(w);
            nodes.encode(w);
        },
        |r| {
            Ok(Answer {
                status: r.word()? as u32,
                open: r.word()? as u32,
                id: r.word()?,
                graph: r.word()?,
                dependencies: r.list(crate::hand::graph::NODES_MAX, |r| Ok((r.word()?, r.word()?)))?,
            })
        },
    )?;
    graph.settle(&[answer.graph]);
    nodes.settle(&answer.dependencies.iter().map(|(node, _)| *node).collect::<Vec<_>>());
    Ok(answer)
}
