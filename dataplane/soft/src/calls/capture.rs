//! Capture of streams into graphs.

// UNSAFETY: C entry points.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Raw, api, get, handle, put, put_some};
use crate::calls::graph::{nodes_of, plain_edge};
use crate::capture::{Capture, MODE, OPEN, OPEN_COUNT, close, release_streams};
use crate::context::{Class, Stream};
use crate::graph::{Graph, NEXT_ID, graph, lock};
use crate::{enqueue, stream};

fn begin(h: CUstream, into: Option<(Arc<Graph>, Vec<usize>)>, mode: CUstreamCaptureMode) -> R {
    let s = stream::resolve(h)?;
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if s.class == Class::Legacy {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if s.capture().is_some() {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    let borrowed = into.is_some();
    let (graph, after) = into.unwrap_or_else(|| (Graph::new(), Vec::new()));
    let c = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        origin: s.id,
        thread: std::thread::current().id(),
        mode,
        invalid: AtomicBool::new(false),
        tails: Mutex::new(HashMap::from([(s.id, after)])),
        shown: Mutex::default(),
        edges_shown: Mutex::default(),
        borrowed,
    });
    let id = c.id;
    let mut open = lock(&OPEN)?;
    open.push(c);
    OPEN_COUNT.store(open.len(), Ordering::Release);
    // Pairs with the Acquire of `Stream::capture`, which looks for it among the open ones.
    s.capture.store(id, Ordering::Release);
    Ok(())
}

fn end(h: CUstream, out: *mut CUgraph) -> R {
    let s = stream::resolve(h)?;
    let c = s.capture().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if c.origin != s.id {
        c.invalidate();
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if c.mode != CU_STREAM_CAPTURE_MODE_RELAXED && c.thread != std::thread::current().id() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    release_streams(&c);
    close(&c);
    let outcome = c.check().and_then(|()| joined(&c));
    if let Err(e) = outcome {
        if !c.borrowed {
            c.graph.forget();
        }
        // SAFETY: the caller's out parameter, which may be null.
        unsafe { put_some(out, std::ptr::null_mut()) };
        return Err(e);
    }
    if out.is_null() && !c.borrowed {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's out parameter, which may be null for a graph that the caller knows.
    unsafe { put_some(out, handle(&c.graph)) };
    Ok(())
}

/// Every stream that joined the capture must lead back to the stream it began on.
fn joined(c: &Capture) -> R {
    let tails = lock(&c.tails)?;
    let edges = lock(&c.graph.state)?.edges.clone();
    let mut reached = tails.get(&c.origin).cloned().unwrap_or_default();
    let mut at = 0;
    while at < reached.len() {
        for (from, to) in &edges {
            if *to == reached[at] && !reached.contains(from) {
                reached.push(*from);
            }
        }
        at += 1;
    }
    let all = tails.values().flatten().all(|n| reached.contains(n));
    if all { Ok(()) } else { Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED) }
}

/// The stream that is asked about. Of the legacy stream nothing can be told while one that it encompasses is captured;
/// that one notices nothing (CUDA's `cuStreamIsCapturing`).
fn asked(h: CUstream) -> R<Arc<Stream>> {
    let s = stream::resolve(h)?;
    match s.class == Class::Legacy && enqueue::encompassed(&s.context).is_some() {
        true => Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
        false => Ok(s),
    }
}

fn capture_info(
    h: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> R {
    let s = asked(h)?;
    let c = s.capture();
    // SAFETY: the caller's out parameters; all but the status may be null.
    unsafe {
        put(status, c.as_ref().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |c| c.status()))?;
        let Some(c) = c else { return Ok(()) };
        put_some(id, c.id);
        put_some(graph, handle(&c.graph));
        let tail = c.tail(&s)?;
        let mut shown = lock(&c.shown)?;
        *shown = tail.iter().map(|&n| Raw(n as CUgraphNode)).collect();
        let mut edges_shown = lock(&c.edges_shown)?;
        *edges_shown = vec![plain_edge(); tail.len()];
        put_some(nodes, shown.as_ptr().cast());
        put_some(edges, edges_shown.as_ptr());
        put_some(count, tail.len());
    }
    Ok(())
}

fn update_tail(h: CUstream, nodes: *mut CUgraphNode, n: usize, flags: c_uint) -> R {
    let s = stream::resolve(h)?;
    let c = s.capture().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    c.check()?;
    let nodes = nodes_of(nodes, n)?;
    let mut tails = lock(&c.tails)?;
    let tail = tails.entry(s.id).or_default();
    if flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES {
        tail.clear();
    }
    tail.extend(nodes);
    Ok(())
}

api! {
    fn cuStreamBeginCapture_v2(h: CUstream, mode: CUstreamCaptureMode) { begin(h, None, mode) }
    fn cuStreamBeginCapture(h: CUstream) { begin(h, None, CU_STREAM_CAPTURE_MODE_GLOBAL) }
    fn cuStreamBeginCaptureToGraph(
        h: CUstream,
        g: CUgraph,
        after: *const CUgraphNode,
        _data: *const CUgraphEdgeData,
        n: usize,
        mode: CUstreamCaptureMode,
    ) {
        let into = (graph(g)?, nodes_of(after, n)?);
        begin(h, Some(into), mode)
    }
    fn cuStreamEndCapture(h: CUstream, out: *mut CUgraph) { end(h, out) }
    fn cuStreamIsCapturing(h: CUstream, status: *mut CUstreamCaptureStatus) {
        let s = asked(h)?;
        put(status, s.capture().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |c| c.status()))
    }
    fn cuStreamGetCaptureInfo(h: CUstream, status: *mut CUstreamCaptureStatus, id: *mut cuuint64_t) {
        let none = std::ptr::null_mut();
        capture_info(h, status, id, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), none)
    }
    fn cuStreamGetCaptureInfo_v2(
        h: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        g: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        n: *mut usize,
    ) {
        capture_info(h, status, id, g, nodes, std::ptr::null_mut(), n)
    }
    fn cuStreamGetCaptureInfo_v3(
        h: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        g: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        n: *mut usize,
    ) {
        capture_info(h, status, id, g, nodes, edges, n)
    }
    fn cuStreamUpdateCaptureDependencies(h: CUstream, nodes: *mut CUgraphNode, n: usize, flags: c_uint) {
        update_tail(h, nodes, n, flags)
    }
    fn cuStreamUpdateCaptureDependencies_v2(
        h: CUstream,
        nodes: *mut CUgraphNode,
        _data: *const CUgraphEdgeData,
        n: usize,
        flags: c_uint,
    ) {
        update_tail(h, nodes, n, flags)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        let new = get(mode)?;
        put(mode, MODE.replace(new))
    }
}
