//! Stream capture.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::calls::graph::dependencies::{Dependencies, edge_word};
use crate::worker::calls::graph::keep;
use crate::worker::calls::graph::names::{Ending, Fresh};
use crate::worker::outcome::{Handled, Outcome, finish};
use crate::worker::session::Session;
use crate::worker::state::captures::Open;
use crate::worker::state::graphs::NODES_MAX;

fn begin(
    s: &mut Session,
    header: &Header,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    to_graph: bool,
    begin: impl FnOnce(&'static Driver) -> CUresult,
) -> CUresult {
    let code = begin(s.driver);
    if code == CUDA_SUCCESS {
        s.captures.open.push(Open { stream: stream as usize, owner: header.thread, mode, to_graph });
    }
    code
}

/// stream, mode
pub fn cuStreamBeginCapture_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let mode = r.word()? as u32;
        // SAFETY: a stream of this session.
        Ok(begin(s, header, stream, mode, false, |d| unsafe { d.cuStreamBeginCapture_v2(stream, mode) }))
    })
}

/// stream, graph, dependencies, mode
pub fn cuStreamBeginCaptureToGraph(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let graph: CUgraph = s.existing(Kind::Graph, r.word()?)?.cast();
        let on = Dependencies::get(s, &mut r)?;
        let mode = r.word()? as u32;
        Ok(begin(s, header, stream, mode, true, |d| {
            // SAFETY: handles of this session; arrays of the given length.
            unsafe { d.cuStreamBeginCaptureToGraph(stream, graph, on.nodes(), on.edges(), on.count(), mode) }
        }))
    })
}

/// stream, name for the graph, offsets of heap ranges set aside for captured copies
/// -> whether the capture is over, graph
pub fn cuStreamEndCapture(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let mut over = false;
    let mut name = 0;
    let outcome = finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let mut fresh = Fresh::get(&mut r)?;
        let staging = r.list(NODES_MAX, |r| r.word())?;
        let known = s.captures.open.iter().find(|o| o.stream == stream as usize);
        if known.is_some_and(|o| o.mode != CU_STREAM_CAPTURE_MODE_RELAXED && o.owner != header.thread) {
            return Ok(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let (was_open, own) = (known.is_some(), known.is_some_and(|o| o.to_graph));
        let begun_with = s.captures.graph_of(s.driver, stream);
        // Names of captured nodes exist only if somebody asked for them, and then for the graph too.
        let named = begun_with.filter(|g| s.objects.name_of(Kind::Graph, g.cast()).is_some());
        let ending = named.map(|g| Ending::of_graph(s, g));
        let mut graph = ptr::null_mut();
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { s.driver.cuStreamEndCapture(stream, &mut graph) };
        if code == CUDA_SUCCESS {
            over = true;
            s.captures.stream_gone(stream);
            name = fresh.name(s, Kind::Graph, graph.cast())?;
            for offset in staging {
                keep::keep_range(s, Some(graph), offset);
            }
        } else {
            over = was_open && s.captures.close_if_over(s.driver, stream);
            for offset in staging.into_iter().filter(|_| over) {
                keep::keep_range(s, None, offset);
            }
            // The driver destroyed the graph of a capture that failed, unless it was the application's own.
            if let (Some(g), Some(ending), true, false) = (named, ending, over, own) {
                let name = s.objects.name_of(Kind::Graph, g.cast()).unwrap_or(0);
                s.unbind(Kind::Graph, name);
                ending.forget(s);
            }
        }
        Ok(code)
    });
    reply.word(over as u64);
    reply.word(name);
    outcome
}

/// stream, names -> status, captures open, id, graph, dependencies with their edges (name 0: names were too few)
pub fn cuStreamGetCaptureInfo_v3(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let mut graph_name = Fresh::get(&mut r)?;
        let mut node_names = Fresh::get(&mut r)?;
        let mut f = Found {
            status: CU_STREAM_CAPTURE_STATUS_NONE,
            id: 0,
            graph: ptr::null_mut(),
            nodes: ptr::null(),
            edges: ptr::null(),
            count: 0,
        };
        // SAFETY: a stream of this session and valid out pointers.
        let code = unsafe {
            s.driver.cuStreamGetCaptureInfo_v3(
                stream,
                &mut f.status,
                &mut f.id,
                &mut f.graph,
                &mut f.nodes,
                &mut f.edges,
                &mut f.count,
            )
        };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        let active = f.status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if f.status == CU_STREAM_CAPTURE_STATUS_NONE {
            s.captures.stream_gone(stream);
        }
        reply.word(f.status as u64);
        reply.word(s.captures.open.len() as u64);
        reply.word(f.id);
        reply.word(if active { graph_name.name(s, Kind::Graph, f.graph.cast())? } else { 0 });
        let count = if active && !f.nodes.is_null() { f.count.min(NODES_MAX) } else { 0 };
        reply.word(count as u64);
        for i in 0..count {
            // SAFETY: the driver's arrays have `count` elements until the next call on the stream.
            let (node, edge) =
                unsafe { (*f.nodes.add(i), if f.edges.is_null() { 0 } else { edge_word(*f.edges.add(i)) }) };
            reply.word(node_names.name_node(s, f.graph, node)?);
            reply.word(edge);
        }
        Ok(CUDA_SUCCESS)
    })
}

struct Found {
    status: CUstreamCaptureStatus,
    id: cuuint64_t,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
}

/// mode: the calling thread's from now on. The client answers the exchange itself.
pub fn cuThreadExchangeStreamCaptureMode(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    match r.word()? as u32 {
        CU_STREAM_CAPTURE_MODE_GLOBAL => s.captures.modes.remove(&header.thread),
        mode => s.captures.modes.insert(header.thread, mode),
    };
    Ok(Outcome::Done(CUDA_SUCCESS))
}
