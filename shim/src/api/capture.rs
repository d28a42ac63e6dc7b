//! Stream capture. The worker's driver captures; here is what is asked all the time and answered without it.

// UNSAFETY: writes answers through the application's pointers.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::capture::{
    StreamBeginCapture, StreamBeginCaptureToGraph, StreamEndCapture, StreamEndCaptureReply,
    ThreadExchangeStreamCaptureMode,
};
use orion_wire::message::field::{Existing, List};
use orion_wire::message::graph::NODES_MAX;

use crate::answer::write;
use crate::objects::capture::{ask, check_stream, key, origin_gone, status};
use crate::objects::graph::{Spare, nodes_before};
use crate::session::attached::session;
use crate::session::call::{call, call_any, post};
use crate::state::capture::{Found, Origin};
use crate::state::process::state;

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

fn captures_to_graph(stream: CUstream) -> bool {
    let origins = state().captures.origins.lock();
    origins.iter().any(|o| o.stream == key(stream) && o.to_graph)
}

/// What was set aside for the capture on `stream`.
fn take_set_aside(stream: CUstream) -> Result<Vec<u64>, CUresult> {
    if state().captures.set_aside.lock().is_empty() {
        return Ok(Vec::new());
    }
    let graph = ask(stream, 0)?.graph;
    let mut all = state().captures.set_aside.lock();
    let (mine, rest) = all.iter().partition::<Vec<(u64, u64)>, _>(|(g, _)| *g == graph);
    *all = rest;
    Ok(mine.into_iter().map(|(_, offset)| offset).collect())
}

/// # Safety
/// As CUDA's `cuStreamIsCapturing`.
pub unsafe fn cuStreamIsCapturing(stream: CUstream, out: *mut CUstreamCaptureStatus) -> CUresult {
    let answer = session().and_then(|_| {
        if state().captures.any_open() {
            return status(stream);
        }
        check_stream(stream).map(|()| CU_STREAM_CAPTURE_STATUS_NONE)
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamBeginCapture(stream: CUstream) -> CUresult {
    // SAFETY: nothing is promised by either.
    unsafe { cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult {
    if let Err(code) = session().and_then(|_| check_stream(stream)) {
        return code;
    }
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let q = StreamBeginCapture { stream: Existing(stream as u64), mode };
    begun(stream, false, call(StreamBeginCapture::OP, |w| q.encode(w), |_| Ok(())))
}

/// # Safety
/// As CUDA's `cuStreamBeginCaptureToGraph`.
pub unsafe fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    if let Err(code) = session().and_then(|_| check_stream(stream)) {
        return code;
    }
    // SAFETY: the caller's promise.
    let on = match unsafe { nodes_before(dependencies, edges, count) } {
        Ok(on) => on,
        Err(code) => return code,
    };
    let q = StreamBeginCaptureToGraph { stream: Existing(stream as u64), graph: Existing(graph as u64), on, mode };
    begun(stream, true, call(StreamBeginCaptureToGraph::OP, |w| q.encode(w), |_| Ok(())))
}

fn begun(stream: CUstream, to_graph: bool, result: Result<(), CUresult>) -> CUresult {
    match result {
        Ok(()) => {
            state().captures.change_origins(|origins| origins.push(Origin { stream: key(stream), to_graph }));
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuStreamEndCapture`.
pub unsafe fn cuStreamEndCapture(stream: CUstream, out: *mut CUgraph) -> CUresult {
    if let Err(code) = session().and_then(|_| check_stream(stream)) {
        return code;
    }
    // Whoever captures into a graph of its own need not be told it.
    if out.is_null() && !captures_to_graph(stream) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let set_aside = match take_set_aside(stream) {
        Ok(set_aside) => set_aside,
        Err(code) => return code,
    };
    let Ok(set_aside) = List::of(set_aside) else {
        crate::say!("a capture copied pageable memory more than {NODES_MAX} times: capture less at a time");
        return CUDA_ERROR_INVALID_VALUE;
    };
    let spare = Spare::new(Kind::Graph, 1);
    let q = StreamEndCapture { stream: Existing(stream as u64), name: spare.first(), set_aside };
    // A command that failed before it reached the driver has no body.
    let ended = call_any(
        StreamEndCapture::OP,
        |w| q.encode(w),
        |code, r| match r.is_empty() {
            true => Ok((code, false, 0)),
            false => StreamEndCaptureReply::decode(r).map(|answer| (code, answer.is_over, answer.graph.0)),
        },
    );
    let (code, over, graph) = match ended {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if over {
        origin_gone(stream);
        state().captures.found().remove(&key(stream));
    }
    spare.settle(&[graph]);
    // A graph that exists is the application's even if an earlier command's failure is the result.
    if !out.is_null() {
        // SAFETY: not null, and valid by the contract.
        unsafe { out.write(graph as CUgraph) };
    }
    code
}

/// # Safety
/// As CUDA's `cuStreamGetCaptureInfo`.
pub unsafe fn cuStreamGetCaptureInfo(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { info(stream, status, id, std::ptr::null_mut(), None) }
}

/// # Safety
/// As CUDA's `cuStreamGetCaptureInfo_v2`.
pub unsafe fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { info(stream, status, id, graph, Some((dependencies, std::ptr::null_mut(), count))) }
}

/// # Safety
/// As CUDA's `cuStreamGetCaptureInfo_v3`.
pub unsafe fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { info(stream, status, id, graph, Some((dependencies, edges, count))) }
}

type Outs = (*mut *const CUgraphNode, *mut *const CUgraphEdgeData, *mut usize);

/// Most streams wait for few nodes; more are asked for again with as many names as it takes.
const NAMES_FIRST: usize = 16;

unsafe fn info(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    outs: Option<Outs>,
) -> CUresult {
    if status.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let answer = (|| {
        session()?;
        let before = state().captures.open.load(Ordering::Relaxed);
        if before == 0 {
            check_stream(stream)?;
            return Ok(None);
        }
        let mut answer = ask(stream, if outs.is_some() { NAMES_FIRST } else { 0 })?;
        let unnamed = answer.dependencies.iter().filter(|(node, _)| *node == 0).count();
        if outs.is_some() && unnamed > 0 {
            answer = ask(stream, unnamed)?;
        }
        if answer.open == 0 {
            // Captures ended with their context; none was begun since we asked.
            state().captures.change_origins(|origins| {
                if origins.len() as u32 == before {
                    origins.clear()
                }
            });
        }
        let lossy = answer.dependencies.iter().any(|(_, edge)| *edge != 0);
        if lossy && outs.is_some_and(|(nodes, edges, _)| !nodes.is_null() && edges.is_null()) {
            return Err(CUDA_ERROR_LOSSY_QUERY);
        }
        Ok(Some(answer))
    })();
    let answer = match answer {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    // SAFETY: not null, valid by the caller's promise.
    unsafe { status.write(answer.as_ref().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |a| a.status)) };
    let Some(answer) = answer.filter(|a| a.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) else { return CUDA_SUCCESS };
    // SAFETY: each is null or valid for a write by the caller's promise.
    unsafe {
        if !id.is_null() {
            id.write(answer.id);
        }
        if !graph.is_null() {
            graph.write(answer.graph as CUgraph);
        }
        if let Some((nodes, edges, count)) = outs {
            let mut found = state().captures.found();
            let fresh = Found {
                nodes: answer.dependencies.iter().map(|(node, _)| *node as usize).collect(),
                edges: answer.dependencies.iter().map(|(_, edge)| crate::objects::graph::edge_data(*edge)).collect(),
            };
            found.insert(key(stream), fresh);
            let kept = &found[&key(stream)];
            if !nodes.is_null() {
                nodes.write(kept.nodes.as_ptr().cast());
            }
            if !edges.is_null() {
                edges.write(kept.edges.as_ptr());
            }
            if !count.is_null() {
                count.write(kept.nodes.len());
            }
        }
    }
    CUDA_SUCCESS
}

/// The mode is the calling thread's; the worker is told because it decides what the thread may do.
///
/// # Safety
/// As CUDA's `cuThreadExchangeStreamCaptureMode`.
pub unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    if mode.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, valid by the caller's promise.
    let new = unsafe { mode.read() };
    let old = MODE.with(|m| m.replace(new));
    // SAFETY: as above.
    unsafe { mode.write(old) };
    if old == new {
        return CUDA_SUCCESS;
    }
    let tell =
        || post(ThreadExchangeStreamCaptureMode::OP, |w| ThreadExchangeStreamCaptureMode { mode: new }.encode(w));
    let told = tell();
    crate::session::route::in_others(|_| _ = tell());
    told
}
