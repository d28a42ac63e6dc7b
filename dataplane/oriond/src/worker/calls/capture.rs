//! Stream capture.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::capture::{
    StreamBeginCapture, StreamBeginCaptureToGraph, StreamEndCapture, StreamEndCaptureReply, StreamGetCaptureInfo,
    StreamGetCaptureInfoReply, ThreadExchangeStreamCaptureMode,
};
use orion_wire::message::field::{Existing, List};
use orion_wire::message::graph::{Dependency, NODES_MAX};
use orion_wire::record::Header;

use crate::worker::calls::graph::dependencies::{Dependencies, edge_word};
use crate::worker::calls::graph::keep;
use crate::worker::calls::graph::names::{Ending, Fresh};
use crate::worker::outcome::{Handled, Outcome, finish};
use crate::worker::session::Session;
use crate::worker::state::captures::Open;

fn begin(
    s: &mut Session,
    header: &Header,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    to_graph: bool,
    begin: impl FnOnce(&'static Driver) -> CUresult,
) -> CUresult {
    let captured = s.will_capture(stream);
    let code = begin(s.driver);
    if code == CUDA_SUCCESS {
        s.captures.begun(Open { stream: stream as usize, owner: header.thread, mode, to_graph }, captured);
    }
    code
}

pub fn cuStreamBeginCapture_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = StreamBeginCapture::decode(&mut r)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        // SAFETY: a stream of this session.
        Ok(begin(s, header, stream, q.mode, false, |d| unsafe { d.cuStreamBeginCapture_v2(stream, q.mode) }))
    })
}

pub fn cuStreamBeginCaptureToGraph(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    finish(|| {
        let q = StreamBeginCaptureToGraph::decode(&mut r)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        let graph: CUgraph = s.existing(Kind::Graph, q.graph.0)?.cast();
        let on = Dependencies::of(s, &q.on)?;
        Ok(begin(s, header, stream, q.mode, true, |d| {
            // SAFETY: handles of this session; arrays of the given length.
            unsafe { d.cuStreamBeginCaptureToGraph(stream, graph, on.nodes(), on.edges(), on.count(), q.mode) }
        }))
    })
}

pub fn cuStreamEndCapture(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let mut over = false;
    let mut name = 0;
    let outcome = finish(|| {
        let q = StreamEndCapture::decode(&mut r)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        let (mut fresh, set_aside) = (Fresh::one(q.name), q.set_aside);
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
            for offset in set_aside.iter() {
                keep::keep_range(s, Some(graph), *offset);
            }
        } else {
            over = was_open && s.captures.close_if_over(s.driver, stream);
            for offset in set_aside.iter().filter(|_| over) {
                keep::keep_range(s, None, *offset);
            }
            // The driver destroyed the graph of a capture that failed, unless it was the application's own.
            if let (Some(g), Some(ending), true, false) = (named, ending, over, own) {
                let name = s.objects.name_of(Kind::Graph, g.cast()).unwrap_or(0);
                s.unbind(Kind::Graph, name);
                ending.forget(s, Vec::new());
            }
        }
        Ok(code)
    });
    StreamEndCaptureReply { is_over: over, graph: Existing(name) }.encode(reply);
    outcome
}

pub fn cuStreamGetCaptureInfo_v3(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = StreamGetCaptureInfo::decode(&mut r)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        let (mut graph_name, mut node_names) = (Fresh::one(q.name), Fresh::of(&q.names));
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
        let graph = if active { graph_name.name(s, Kind::Graph, f.graph.cast())? } else { 0 };
        let count = if active && !f.nodes.is_null() { f.count.min(NODES_MAX) } else { 0 };
        let mut dependencies = Vec::with_capacity(count);
        for i in 0..count {
            // SAFETY: the driver's arrays have `count` elements until the next call on the stream.
            let (node, edge) =
                unsafe { (*f.nodes.add(i), if f.edges.is_null() { 0 } else { edge_word(*f.edges.add(i)) }) };
            dependencies.push(Dependency { node: Existing(node_names.name_node(s, f.graph, node)?), edge });
        }
        let answer = StreamGetCaptureInfoReply {
            status: f.status,
            open: s.captures.open.len() as u32,
            id: f.id,
            graph: Existing(graph),
            dependencies: List::of(dependencies).expect("no more than there is room for"),
        };
        answer.encode(reply);
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

pub fn cuThreadExchangeStreamCaptureMode(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    match ThreadExchangeStreamCaptureMode::decode(&mut r)?.mode {
        CU_STREAM_CAPTURE_MODE_GLOBAL => s.captures.modes.remove(&header.thread),
        mode => s.captures.modes.insert(header.thread, mode),
    };
    Ok(Outcome::Done(CUDA_SUCCESS))
}
