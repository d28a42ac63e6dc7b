//! Stream capture.
//!
//! CUDA ties captures to threads: which calls are forbidden while a capture is open depends on the thread that
//! opened it, on its mode, and on the calling thread's own mode. Here one driver thread executes the commands of
//! all client threads and so owns every capture. What CUDA would decide by thread is decided in [`Captures`], and
//! the driver is told through the executor's mode: `GLOBAL` where the command has to be refused (the executor
//! owns the captures, so that refuses), `RELAXED` where it must not be.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::collections::HashMap;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader, Writer};

use crate::worker::hand::graph::{self, Dependencies, Fresh, finish};
use crate::worker::session::{Outcome, Session};

/// A capture that some client thread began and nobody has ended.
struct Open {
    stream: usize,
    owner: u16,
    mode: CUstreamCaptureMode,
    /// It adds to a graph of the application's.
    to_graph: bool,
}

/// Open captures and the modes of the client's threads.
#[derive(Default)]
pub struct Captures {
    open: Vec<Open>,
    /// Threads whose mode is not `GLOBAL`.
    modes: HashMap<u16, CUstreamCaptureMode>,
    /// The executor's mode in the driver; 0 is `GLOBAL`, with which a thread starts.
    current: CUstreamCaptureMode,
}

/// What [`Captures::relax`] changed.
#[must_use]
pub struct Relaxed(Option<CUstreamCaptureMode>);

impl Captures {
    /// Makes the executor's mode what decides the next command of `thread` as that thread's own mode would.
    #[inline]
    pub fn prepare(&mut self, driver: &'static Driver, thread: u16) {
        if !self.open.is_empty() {
            let mode = self.mode_for(thread);
            self.set(driver, mode);
        }
    }

    /// Lets the executor ask about streams and events without invalidating a capture.
    #[inline]
    pub fn relax(&mut self, driver: &'static Driver, _thread: u16) -> Relaxed {
        if self.open.is_empty() {
            return Relaxed(None);
        }
        let before = self.current;
        self.set(driver, CU_STREAM_CAPTURE_MODE_RELAXED);
        Relaxed(Some(before))
    }

    #[inline]
    pub fn restore(&mut self, driver: &'static Driver, relaxed: Relaxed) {
        if let Relaxed(Some(mode)) = relaxed {
            self.set(driver, mode);
        }
    }

    pub fn open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A copy from (`to_device`) or to a range of the heap was captured. What a graph copies is read from its
    /// nodes when it is instantiated (`graph::exec`), which finds clones and child graphs too, so nothing is
    /// kept here.
    pub fn note_copy(&mut self, _stream: CUstream, _range: HeapRange, _to_device: bool) {}

    /// The mode that a thread of the client's has chosen for its calls.
    pub fn mode_of(&self, thread: u16) -> CUstreamCaptureMode {
        self.modes.get(&thread).copied().unwrap_or(CU_STREAM_CAPTURE_MODE_GLOBAL)
    }

    /// Whether CUDA forbids `thread` the calls that could interfere with a capture. A command that would run on
    /// a helper thread (which has no captures of its own) has to run on the executor then, to be refused there.
    pub fn forbids(&self, thread: u16) -> bool {
        let mode = self.mode_of(thread);
        mode != CU_STREAM_CAPTURE_MODE_RELAXED
            && self.open.iter().any(|o| match o.mode {
                CU_STREAM_CAPTURE_MODE_RELAXED => false,
                CU_STREAM_CAPTURE_MODE_GLOBAL if mode == CU_STREAM_CAPTURE_MODE_GLOBAL => true,
                _ => o.owner == thread,
            })
    }

    /// The graph that work on `stream` goes into, if it is being captured.
    pub fn graph_of(&self, driver: &'static Driver, stream: CUstream) -> Option<CUgraph> {
        if self.open.is_empty() {
            return None;
        }
        let (mut status, mut id, mut graph) = (CU_STREAM_CAPTURE_STATUS_NONE, 0, ptr::null_mut());
        // SAFETY: a stream of this session and valid out pointers; the others may be null.
        let code = unsafe {
            driver.cuStreamGetCaptureInfo_v3(
                stream,
                &mut status,
                &mut id,
                &mut graph,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        (code == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE).then_some(graph)
    }

    /// A stream was destroyed; a capture on it is over.
    pub fn stream_gone(&mut self, stream: CUstream) {
        self.open.retain(|o| o.stream != stream as usize);
    }

    fn mode_for(&self, thread: u16) -> CUstreamCaptureMode {
        if self.forbids(thread) { CU_STREAM_CAPTURE_MODE_GLOBAL } else { CU_STREAM_CAPTURE_MODE_RELAXED }
    }

    fn set(&mut self, driver: &'static Driver, mode: CUstreamCaptureMode) {
        if self.current != mode {
            let mut exchanged = mode;
            // SAFETY: a valid in-out pointer.
            let code = unsafe { driver.cuThreadExchangeStreamCaptureMode(&mut exchanged) };
            if code == CUDA_SUCCESS {
                self.current = mode;
            }
        }
    }

    /// Forgets the capture on `stream` if the driver says that there is none.
    fn close_if_over(&mut self, driver: &'static Driver, stream: CUstream) -> bool {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { driver.cuStreamIsCapturing(stream, &mut status) };
        let over = code == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
        if over {
            self.stream_gone(stream);
        }
        over
    }
}

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
pub fn cuStreamBeginCapture_v2(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
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
) -> Result<Outcome, Fault> {
    finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let graph: CUgraph = graph::existing(s, Kind::Graph, r.word()?)?.cast();
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
pub fn cuStreamEndCapture(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let mut over = false;
    let mut name = 0;
    let outcome = finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let mut fresh = Fresh::get(&mut r)?;
        let staging = r.list(graph::NODES_MAX, |r| r.word())?;
        let known = s.captures.open.iter().find(|o| o.stream == stream as usize);
        if known.is_some_and(|o| o.mode != CU_STREAM_CAPTURE_MODE_RELAXED && o.owner != header.thread) {
            return Ok(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let (was_open, own) = (known.is_some(), known.is_some_and(|o| o.to_graph));
        let begun_with = s.captures.graph_of(s.driver, stream);
        // Names of captured nodes exist only if somebody asked for them, and then for the graph too.
        let named = begun_with.filter(|g| s.name_of(Kind::Graph, g.cast()).is_some());
        let ending = named.map(|g| graph::Ending::of_graph(s, g));
        let mut graph = ptr::null_mut();
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { s.driver.cuStreamEndCapture(stream, &mut graph) };
        if code == CUDA_SUCCESS {
            over = true;
            s.captures.stream_gone(stream);
            name = fresh.name(s, Kind::Graph, graph.cast())?;
            for offset in staging {
                graph::keep_range(s, Some(graph), offset);
            }
        } else {
            over = was_open && s.captures.close_if_over(s.driver, stream);
            for offset in staging.into_iter().filter(|_| over) {
                graph::keep_range(s, None, offset);
            }
            // The driver destroyed the graph of a capture that failed, unless it was the application's own.
            if let (Some(g), Some(ending), true, false) = (named, ending, over, own) {
                let name = s.name_of(Kind::Graph, g.cast()).unwrap_or(0);
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
pub fn cuStreamGetCaptureInfo_v3(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
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
        let count = if active && !f.nodes.is_null() { f.count.min(graph::NODES_MAX) } else { 0 };
        reply.word(count as u64);
        for i in 0..count {
            // SAFETY: the driver's arrays have `count` elements until the next call on the stream.
            let (node, edge) =
                unsafe { (*f.nodes.add(i), if f.edges.is_null() { 0 } else { graph::edge_word(*f.edges.add(i)) }) };
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
) -> Result<Outcome, Fault> {
    match r.word()? as u32 {
        CU_STREAM_CAPTURE_MODE_GLOBAL => s.captures.modes.remove(&header.thread),
        mode => s.captures.modes.insert(header.thread, mode),
    };
    Ok(Outcome::Done(CUDA_SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures(open: &[(u16, CUstreamCaptureMode)], modes: &[(u16, CUstreamCaptureMode)]) -> Captures {
        Captures {
            open: open.iter().map(|&(owner, mode)| Open { stream: 7, owner, mode, to_graph: false }).collect(),
            modes: modes.iter().copied().collect(),
            current: 0,
        }
    }

    const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const THREAD_LOCAL: u32 = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

    #[test]
    fn a_global_capture_forbids_every_thread_that_did_not_opt_out() {
        let c = captures(&[(1, GLOBAL)], &[(3, THREAD_LOCAL), (4, RELAXED)]);
        assert_eq!([1, 2, 3, 4].map(|t| c.forbids(t)), [true, true, false, false]);
    }

    #[test]
    fn a_thread_local_capture_forbids_its_owner_only() {
        let c = captures(&[(1, THREAD_LOCAL)], &[]);
        assert_eq!([1, 2].map(|t| c.forbids(t)), [true, false]);
        let c = captures(&[(1, THREAD_LOCAL)], &[(1, RELAXED)]);
        assert!(!c.forbids(1));
    }

    #[test]
    fn a_relaxed_capture_forbids_nobody() {
        let c = captures(&[(1, RELAXED)], &[(2, THREAD_LOCAL)]);
        assert_eq!([1, 2, 3].map(|t| c.forbids(t)), [false; 3]);
    }
}
