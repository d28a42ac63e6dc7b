//! Whether a stream is captured, and what its copies of pageable memory become.

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamGetCaptureInfo, StreamGetCaptureInfoReply};
use orion_wire::message::field::Existing;

use crate::objects::graph::Spare;
use crate::session::call::call;
use crate::session::thread::thread_slot;
use crate::state::context;
use crate::state::process::state;

/// Whether work on `stream` is being recorded instead of done.
pub fn capturing(stream: CUstream) -> bool {
    state().captures.any_open() && status(stream).is_ok_and(|status| status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
}

/// The capture that was begun on a stream is over.
pub fn origin_gone(stream: CUstream) {
    state().captures.change_origins(|origins| origins.retain(|o| o.stream != key(stream)));
}

/// For a copy from or to pageable memory on a stream that is being captured: the address of a range of the heap
/// to copy from or to instead. Its bytes are moved around every launch of the graph.
pub fn set_aside(
    s: &'static crate::state::session::Session,
    stream: CUstream,
    host: u64,
    shape: crate::state::graph_copies::Shape,
) -> Result<Option<u64>, CUresult> {
    let Some(answer) = active(stream)? else { return Ok(None) };
    let staged = crate::memory::graph_copies::set_aside(s, host, shape)?;
    state().captures.set_aside.lock().push((answer.graph, staged.range.offset));
    Ok(s.heap.at(staged.range.offset, staged.range.bytes).map(|at| at as u64))
}

/// What is said of a stream that is being captured.
fn active(stream: CUstream) -> Result<Option<Answer>, CUresult> {
    if !state().captures.any_open() {
        return Ok(None);
    }
    match ask(stream, 0) {
        // A default stream that encompasses a captured one, and what is done there is the driver's to refuse.
        Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) => Ok(None),
        Ok(Answer { status: CU_STREAM_CAPTURE_STATUS_INVALIDATED, .. }) => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        answer => Ok(Some(answer?).filter(|answer| answer.status == CU_STREAM_CAPTURE_STATUS_ACTIVE)),
    }
}

/// Whether what comes on it is recorded.
pub fn is_active(stream: CUstream) -> Result<bool, CUresult> {
    active(stream).map(|answer| answer.is_some())
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
    let q = StreamGetCaptureInfo { stream: Existing(stream as u64), name: graph.first(), names: nodes.names()? };
    let found = call(StreamGetCaptureInfo::OP, |w| q.encode(w), StreamGetCaptureInfoReply::decode)?;
    let dependencies: Vec<_> = found.dependencies.iter().map(|d| (d.node.0, d.edge)).collect();
    graph.settle(&[found.graph.0]);
    nodes.settle(&dependencies.iter().map(|(node, _)| *node).collect::<Vec<_>>());
    let (status, open) = (found.status, found.open);
    let answer = Answer { status, open, id: found.id, graph: found.graph.0, dependencies };
    Ok(answer)
}
