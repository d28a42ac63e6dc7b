//! Graphs and their nodes.
//!
//! The client names graphs and nodes with handles of its own. Nodes that it did not make itself (captured, or
//! copied with a graph) get names when a query finds them: the client sends spare handles along, the worker binds
//! those it needs. A name lives as long as its node, so whatever ends a node answers which names ended with it.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

mod exec;
mod nesting;
mod params;

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

pub use exec::{
    cuGraphExecBatchMemOpNodeSetParams, cuGraphExecChildGraphNodeSetParams, cuGraphExecDestroy,
    cuGraphExecHostNodeSetParams, cuGraphExecKernelNodeSetParams_v2, cuGraphExecMemcpyNodeSetParams,
    cuGraphExecNodeSetParams, cuGraphExecUpdate_v2, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
    cuGraphLaunch,
};
pub use params::{
    Params, Side, cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeSetParams, cuGraphEventRecordNodeGetEvent,
    cuGraphEventWaitNodeGetEvent, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphKernelNodeGetAttribute,
    cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetParams_v2,
    cuGraphMemAllocNodeGetParams, cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, cuGraphNodeSetParams,
};

use crate::worker::callback::{self, kind};
use crate::worker::session::{Lent, Outcome, Session};

/// Nodes, edges or names in one record.
pub const NODES_MAX: usize = 8192;

/// What the worker remembers of the session's graphs.
#[derive(Default)]
pub struct State {
    /// The graph of each node whose parameters may come to own something.
    graph_of: HashMap<usize, usize>,
    inside: nesting::Inside,
    /// What a graph owns for the sake of one of its nodes, and is to give up with the node.
    kept: HashMap<usize, Vec<(usize, usize)>>,
    /// Functions of kernel nodes as the client named them.
    functions: HashMap<usize, u64>,
    /// Heap memory that executable graphs copy from and to, by the top-level node that does.
    copies: HashMap<usize, exec::Copies>,
    /// Host functions that were put into executable graphs.
    pub tickets: exec::Tickets,
    /// Text of the last `cuGraphDebugDotPrint`, until the client has fetched all of it.
    dot: Vec<u8>,
}

pub use exec::Unused;

/// Why a handler stops.
pub enum Stop {
    Fault(Fault),
    Code(CUresult),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<CUresult> for Stop {
    fn from(code: CUresult) -> Stop {
        Stop::Code(code)
    }
}

pub type Answer = Result<CUresult, Stop>;

pub fn finish(handler: impl FnOnce() -> Answer) -> Result<Outcome, Fault> {
    match handler() {
        Ok(code) | Err(Stop::Code(code)) => Ok(Outcome::Done(code)),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

/// Handlers that need neither the header nor to park.
macro_rules! handlers {
    ($($(#[$doc:meta])* fn $name:ident($s:ident, $r:ident, $reply:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Result<Outcome, Fault> {
            #[allow(unused_variables, clippy::ptr_arg, reason = "every handler is given the same three")]
            fn handler($s: &mut Session, $r: &mut Reader<'_>, $reply: &mut Vec<u8>) -> Answer $body
            finish(|| handler(s, &mut r, reply))
        }
    )*};
}
use handlers;

/// A handle that may not be null.
pub fn existing(s: &mut Session, kind: Kind, word: u64) -> Result<*mut c_void, CUresult> {
    match s.handle(kind, word)? {
        p if p.is_null() => Err(CUDA_ERROR_INVALID_VALUE),
        p => Ok(p),
    }
}

fn graph(s: &mut Session, r: &mut Reader<'_>) -> Result<CUgraph, Stop> {
    Ok(existing(s, Kind::Graph, r.word()?)?.cast())
}

fn node(s: &mut Session, r: &mut Reader<'_>) -> Result<CUgraphNode, Stop> {
    Ok(existing(s, Kind::GraphNode, r.word()?)?.cast())
}

/// Handles the client reserved for what a command may find.
pub struct Fresh {
    words: std::vec::IntoIter<u64>,
}

impl Fresh {
    pub fn get(r: &mut Reader<'_>) -> Result<Fresh, Fault> {
        Ok(Fresh { words: r.list(NODES_MAX, |r| r.word())?.into_iter() })
    }

    /// The client's name for an object, a new one if it has none; 0 if the spare handles are used up.
    pub fn name(&mut self, s: &mut Session, kind: Kind, pointer: *mut c_void) -> Result<u64, Fault> {
        if pointer.is_null() {
            return Ok(0);
        }
        if let Some(word) = s.name_of(kind, pointer) {
            return Ok(word);
        }
        let Some(word) = self.words.next() else { return Ok(0) };
        s.bind(kind, word, pointer)?;
        Ok(word)
    }

    pub fn name_node(&mut self, s: &mut Session, graph: CUgraph, node: CUgraphNode) -> Result<u64, Fault> {
        let new = s.name_of(Kind::GraphNode, node.cast()).is_none();
        let word = self.name(s, Kind::GraphNode, node.cast())?;
        if new && word != 0 {
            s.graph_nodes.graph_of.insert(node as usize, graph as usize);
        }
        Ok(word)
    }
}

/// A graph's nodes as the driver has them.
pub fn nodes_of(driver: &'static Driver, graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    // SAFETY: a graph of this session; without an array only the number is answered.
    let mut code = unsafe { driver.cuGraphGetNodes(graph, ptr::null_mut(), &mut count) };
    let mut nodes = vec![ptr::null_mut(); if code == CUDA_SUCCESS { count } else { 0 }];
    if !nodes.is_empty() {
        // SAFETY: an array of `count` elements.
        code = unsafe { driver.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
        nodes.truncate(if code == CUDA_SUCCESS { count } else { 0 });
    }
    nodes
}

/// Names that end with a graph or a node: collected before the driver destroys it, forgotten once it has.
#[derive(Default)]
pub struct Ending {
    nodes: Vec<(u64, usize)>,
    graphs: Vec<u64>,
}

impl Ending {
    pub fn of_graph(s: &Session, graph: CUgraph) -> Ending {
        let mut ending = Ending::default();
        ending.add_graph(s, graph);
        ending
    }

    fn add_graph(&mut self, s: &Session, graph: CUgraph) {
        for node in nodes_of(s.driver, graph) {
            self.add_node(s, node);
        }
    }

    fn add_node(&mut self, s: &Session, node: CUgraphNode) {
        // No deeper than `nesting` lets graphs lie in each other.
        for (name, inner) in s.graph_nodes.inside.of(node) {
            self.add_graph(s, inner);
            self.graphs.push(name);
        }
        if let Some(name) = s.name_of(Kind::GraphNode, node.cast()) {
            self.nodes.push((name, node as usize));
        }
    }

    /// Forgets the names and answers them.
    pub fn forget(self, s: &mut Session) -> Vec<u64> {
        let mut gone = self.graphs;
        for name in &gone {
            s.unbind(Kind::Graph, *name);
        }
        for (name, node) in self.nodes {
            s.graph_nodes.graph_of.remove(&node);
            s.graph_nodes.functions.remove(&node);
            s.graph_nodes.inside.remove(node);
            s.graph_nodes.kept.remove(&node);
            s.unbind(Kind::GraphNode, name);
            gone.push(name);
        }
        gone
    }
}

fn put_gone(reply: &mut Vec<u8>, gone: &[u64]) {
    // More names than fit stay reserved in the client, which costs it nothing but numbers.
    let gone = &gone[..gone.len().min(4 * NODES_MAX - 64)];
    reply.word(gone.len() as u64);
    for word in gone {
        reply.word(*word);
    }
}

/// Makes a graph, its clones and its executable graphs share the ownership of a ticket: by the object that it answers.
fn share_ticket(
    s: &Session,
    graph: CUgraph,
    ticket: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
) -> Option<CUuserObject> {
    let mut object = ptr::null_mut();
    // SAFETY: a valid out pointer; `destroy` frees the ticket.
    let made = unsafe {
        s.driver.cuUserObjectCreate(&mut object, ticket, Some(destroy), 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    };
    if made != CUDA_SUCCESS {
        return None;
    }
    // SAFETY: a live graph; our only reference moves into it.
    let moved = unsafe { s.driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) };
    if moved != CUDA_SUCCESS {
        // Released, the object would free a ticket that a node may still use; so both are left alone.
        crate::worker::session::log::debug(&format!("keeping a host function's ticket for good: {moved}"));
        return None;
    }
    Some(object)
}

/// The host functions of a graph's nodes live as long as the graph and what was made from it.
pub fn keep_ticket(s: &Session, graph: CUgraph, ticket: *mut c_void) -> Option<CUuserObject> {
    share_ticket(s, graph, ticket, callback::drop_ticket)
}

/// A node has other parameters from now on, or is gone: its graph gives up what it had for the node's sake. Clones and
/// executable graphs have shares of their own.
fn give_up(s: &mut Session, node: CUgraphNode) {
    for (graph, object) in s.graph_nodes.kept.remove(&(node as usize)).unwrap_or_default() {
        // SAFETY: a graph that is alive, as its node was, and an object that it has a share of.
        unsafe { s.driver.cuGraphReleaseUserObject(graph as CUgraph, object as CUuserObject, 1) };
    }
}

/// A range that a captured copy reads goes back to the client with the graph and what was made from it.
pub fn keep_lent(s: &Session, graph: CUgraph, lent: Lent) {
    unsafe extern "C" fn give_back(lent: *mut c_void) {
        // SAFETY: the box below, once.
        drop(unsafe { Box::from_raw(lent.cast::<Lent>()) });
    }
    // A driver without user objects never tells, and the range stays lent.
    share_ticket(s, graph, Box::into_raw(Box::new(lent)).cast(), give_back);
}

/// Bytes that a node of the graph reads.
pub fn keep_bytes(s: &Session, graph: Option<CUgraph>, bytes: Vec<u8>) {
    /// `CUhostFn` for the driver.
    unsafe extern "C" fn free(bytes: *mut c_void) {
        // SAFETY: from `into_raw` below; the driver calls this once, when nothing refers to the object any more.
        drop(unsafe { Box::from_raw(bytes.cast::<Vec<u8>>()) });
    }
    let kept = Box::into_raw(Box::new(bytes)).cast();
    // Without a graph, or user objects, nobody tells when they are not needed any more: they stay.
    if let Some(graph) = graph {
        share_ticket(s, graph, kept, free);
    }
}

/// Has the client told when no graph refers any more to the range it set aside at `offset`; at once if none does.
pub fn keep_range(s: &Session, graph: Option<CUgraph>, offset: u64) -> Option<CUuserObject> {
    let ticket = s.callbacks.ticket(offset, kind::HEAP_RANGE, 0, false, false);
    match graph {
        // A driver without user objects never tells, and the range stays set aside.
        Some(graph) => share_ticket(s, graph, ticket, callback::released),
        None => {
            // SAFETY: nothing refers to the ticket but this.
            unsafe { callback::released(ticket) };
            None
        }
    }
}

pub fn edge_word(edge: CUgraphEdgeData) -> u64 {
    let [a, b, c, d, e] = edge.reserved;
    u64::from_le_bytes([edge.from_port, edge.to_port, edge.type_, a, b, c, d, e])
}

fn edge_data(word: u64) -> CUgraphEdgeData {
    let [from_port, to_port, type_, reserved @ ..] = word.to_le_bytes();
    CUgraphEdgeData { from_port, to_port, type_, reserved }
}

/// Nodes, with or without edge data: `with edges, count, (node, edge)*`.
pub struct Dependencies {
    nodes: Vec<CUgraphNode>,
    edges: Option<Vec<CUgraphEdgeData>>,
}

impl Dependencies {
    pub fn get(s: &mut Session, r: &mut Reader<'_>) -> Result<Dependencies, Stop> {
        let with_edges = r.word()? != 0;
        let words = r.list(NODES_MAX, |r| Ok((r.word()?, r.word()?)))?;
        let edges = with_edges.then(|| words.iter().map(|(_, edge)| edge_data(*edge)).collect());
        let nodes = words
            .iter()
            .map(|(word, _)| existing(s, Kind::GraphNode, *word).map(|p| p.cast()))
            .collect::<Result<_, CUresult>>()?;
        Ok(Dependencies { nodes, edges })
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn nodes(&self) -> *const CUgraphNode {
        if self.nodes.is_empty() { ptr::null() } else { self.nodes.as_ptr() }
    }

    pub fn edges(&self) -> *const CUgraphEdgeData {
        match &self.edges {
            Some(edges) if !edges.is_empty() => edges.as_ptr(),
            _ => ptr::null(),
        }
    }
}

/// `graph, name, dependencies, parameters` -> what [`Params::installed`] answers.
fn add(
    s: &mut Session,
    r: &mut Reader<'_>,
    reply: &mut Vec<u8>,
    only: Option<CUgraphNodeType>,
    call: impl FnOnce(&'static Driver, &mut CUgraphNode, CUgraph, &Dependencies, &mut CUgraphNodeParams) -> CUresult,
) -> Answer {
    let graph = graph(s, r)?;
    let name = r.word()?;
    let on = Dependencies::get(s, r)?;
    let mut params = Params::get(s, r, only)?;
    nesting::admit(s, graph, &params)?;
    let mut node = ptr::null_mut();
    let code = call(s.driver, &mut node, graph, &on, params.raw());
    if code != CUDA_SUCCESS {
        params.discard();
        return Ok(code);
    }
    s.bind(Kind::GraphNode, name, node.cast())?;
    s.graph_nodes.graph_of.insert(node as usize, graph as usize);
    params.installed(s, graph, node, reply)?;
    Ok(CUDA_SUCCESS)
}

/// Adding nodes: the driver's function for each kind takes its own part of the generic parameters.
macro_rules! adders {
    ($($name:ident($p:ident, $kind:ident) $($argument:expr),+;)*) => {$(
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Result<Outcome, Fault> {
            finish(|| add(s, &mut r, reply, Some($kind), |d, node, graph, on, params| {
                let $p = &mut params.__bindgen_anon_1;
                // SAFETY: `Params::get` filled the part of the union that this kind of node has, with handles of
                // this session and pointers into buffers that outlive the call.
                unsafe { d.$name(node, graph, on.nodes(), on.count(), $($argument),+) }
            }))
        }
    )*};
}

adders! {
    cuGraphAddKernelNode_v2(p, CU_GRAPH_NODE_TYPE_KERNEL) (&raw mut p.kernel).cast();
    cuGraphAddMemcpyNode(p, CU_GRAPH_NODE_TYPE_MEMCPY) &p.memcpy.copyParams, p.memcpy.copyCtx;
    cuGraphAddHostNode(p, CU_GRAPH_NODE_TYPE_HOST) (&raw mut p.host).cast();
    cuGraphAddBatchMemOpNode(p, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) (&raw mut p.memOp).cast();
    cuGraphAddMemAllocNode(p, CU_GRAPH_NODE_TYPE_MEM_ALLOC) (&raw mut p.alloc).cast();
}

handlers! {
    /// graph, name, dependencies, parameters -> what creating the node made
    fn cuGraphAddNode_v2(s, r, reply) {
        add(s, r, reply, None, |d, node, graph, on, p| {
            // SAFETY: as for the other kinds of nodes.
            unsafe { d.cuGraphAddNode_v2(node, graph, on.nodes(), on.edges(), on.count(), p) }
        })
    }

    /// graph -> names that ended
    fn cuGraphDestroy(s, r, reply) {
        let name = r.word()?;
        let graph: CUgraph = existing(s, Kind::Graph, name)?.cast();
        let ending = Ending::of_graph(s, graph);
        // SAFETY: a graph of this session.
        let code = unsafe { s.driver.cuGraphDestroy(graph) };
        if code == CUDA_SUCCESS {
            s.unbind(Kind::Graph, name);
            s.graph_nodes.inside.forget(graph);
            let mut gone = ending.forget(s);
            gone.push(name);
            put_gone(reply, &gone);
        }
        Ok(code)
    }

    /// node -> names that ended
    fn cuGraphDestroyNode(s, r, reply) {
        let name = r.word()?;
        let node: CUgraphNode = existing(s, Kind::GraphNode, name)?.cast();
        let mut ending = Ending::default();
        ending.add_node(s, node);
        // SAFETY: a node of this session.
        let code = unsafe { s.driver.cuGraphDestroyNode(node) };
        if code == CUDA_SUCCESS {
            give_up(s, node);
            let gone = ending.forget(s);
            put_gone(reply, &gone);
        }
        Ok(code)
    }

    /// node, clone, names -> node
    fn cuGraphNodeFindInClone(s, r, reply) {
        let (original, clone) = (node(s, r)?, graph(s, r)?);
        let mut fresh = Fresh::get(r)?;
        let mut found = ptr::null_mut();
        // SAFETY: handles of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphNodeFindInClone(&mut found, original, clone) };
        if code == CUDA_SUCCESS {
            reply.word(fresh.name_node(s, clone, found)?);
        }
        Ok(code)
    }

    /// node, names -> graph
    fn cuGraphChildGraphNodeGetGraph(s, r, reply) {
        let node = node(s, r)?;
        let mut fresh = Fresh::get(r)?;
        let mut inner = ptr::null_mut();
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphChildGraphNodeGetGraph(node, &mut inner) };
        if code == CUDA_SUCCESS {
            let new = s.name_of(Kind::Graph, inner.cast()).is_none();
            let word = fresh.name(s, Kind::Graph, inner.cast())?;
            if new && word != 0 {
                s.graph_nodes.inside.put(node, word, inner);
            }
            reply.word(word);
        }
        Ok(code)
    }

    /// graph, first, names -> total, nodes from `first` on
    fn cuGraphGetNodes(s, r, reply) {
        let graph = graph(s, r)?;
        list(s, r, reply, graph, |d, nodes, _, count| {
            // SAFETY: a graph of this session; null or an array of `count` elements.
            unsafe { d.cuGraphGetNodes(graph, nodes, count) }
        })
    }

    /// As [`cuGraphGetNodes`].
    fn cuGraphGetRootNodes(s, r, reply) {
        let graph = graph(s, r)?;
        list(s, r, reply, graph, |d, nodes, _, count| {
            // SAFETY: a graph of this session; null or an array of `count` elements.
            unsafe { d.cuGraphGetRootNodes(graph, nodes, count) }
        })
    }

    /// node, first, names -> total, nodes with their edges from `first` on
    fn cuGraphNodeGetDependencies(s, r, reply) {
        let node = node(s, r)?;
        let graph = graph_of(s, node);
        list(s, r, reply, graph, |d, nodes, _, count| {
            // SAFETY: a node of this session; null or an array of `count` elements.
            unsafe { d.cuGraphNodeGetDependencies(node, nodes, count) }
        })
    }

    fn cuGraphNodeGetDependencies_v2(s, r, reply) {
        let node = node(s, r)?;
        let graph = graph_of(s, node);
        list(s, r, reply, graph, |d, nodes, edges, count| {
            // SAFETY: a node of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphNodeGetDependencies_v2(node, nodes, edges, count) }
        })
    }

    fn cuGraphNodeGetDependentNodes(s, r, reply) {
        let node = node(s, r)?;
        let graph = graph_of(s, node);
        list(s, r, reply, graph, |d, nodes, _, count| {
            // SAFETY: a node of this session; null or an array of `count` elements.
            unsafe { d.cuGraphNodeGetDependentNodes(node, nodes, count) }
        })
    }

    fn cuGraphNodeGetDependentNodes_v2(s, r, reply) {
        let node = node(s, r)?;
        let graph = graph_of(s, node);
        list(s, r, reply, graph, |d, nodes, edges, count| {
            // SAFETY: a node of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count) }
        })
    }

    /// graph, first, names -> total, edges from `first` on
    fn cuGraphGetEdges(s, r, reply) {
        let graph = graph(s, r)?;
        edges(s, r, reply, graph, |d, from, to, _, count| {
            // SAFETY: a graph of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphGetEdges(graph, from, to, count) }
        })
    }

    fn cuGraphGetEdges_v2(s, r, reply) {
        let graph = graph(s, r)?;
        edges(s, r, reply, graph, |d, from, to, data, count| {
            // SAFETY: a graph of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphGetEdges_v2(graph, from, to, data, count) }
        })
    }

    /// graph, flags, offset -> size of the text, a part of it. An offset above 0 goes on with the last text.
    fn cuGraphDebugDotPrint(s, r, reply) {
        let (graph, flags) = (graph(s, r)?, r.word()? as u32);
        let offset = r.word()? as usize;
        if offset == 0 {
            s.graph_nodes.dot = dot_text(s.driver, graph, flags)?;
        }
        let text = &s.graph_nodes.dot;
        let part = text.get(offset..).unwrap_or_default();
        let part = &part[..part.len().min(DOT_PART_BYTES)];
        reply.word(text.len() as u64);
        reply.bytes(part);
        if offset + part.len() >= s.graph_nodes.dot.len() {
            s.graph_nodes.dot = Vec::new();
        }
        Ok(CUDA_SUCCESS)
    }
}

const DOT_PART_BYTES: usize = 128 << 10;

fn graph_of(s: &Session, node: CUgraphNode) -> CUgraph {
    s.graph_nodes.graph_of.get(&(node as usize)).copied().unwrap_or(0) as CUgraph
}

/// Asks for the number, then for the list, and answers the part for which the client sent names.
fn list(
    s: &mut Session,
    r: &mut Reader<'_>,
    reply: &mut Vec<u8>,
    graph: CUgraph,
    ask: impl Fn(&'static Driver, *mut CUgraphNode, *mut CUgraphEdgeData, &mut usize) -> CUresult,
) -> Answer {
    let first = r.word()? as usize;
    let wanted = r.word()? as usize;
    let mut fresh = Fresh::get(r)?;
    let mut total = 0;
    let code = ask(s.driver, ptr::null_mut(), ptr::null_mut(), &mut total);
    if code != CUDA_SUCCESS {
        return Ok(code);
    }
    let (mut nodes, mut data) = (vec![ptr::null_mut(); total], vec![edge_data(0); total]);
    if wanted > 0 && total > 0 {
        let mut count = total;
        let code = ask(s.driver, nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count);
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        nodes.truncate(count);
    }
    let shown = nodes.get(first..).unwrap_or_default();
    let shown = &shown[..shown.len().min(wanted).min(NODES_MAX)];
    reply.word(total as u64);
    reply.word(shown.len() as u64);
    for (i, node) in shown.iter().enumerate() {
        reply.word(fresh.name_node(s, graph, *node)?);
        reply.word(edge_word(data[first + i]));
    }
    Ok(CUDA_SUCCESS)
}

fn edges(
    s: &mut Session,
    r: &mut Reader<'_>,
    reply: &mut Vec<u8>,
    graph: CUgraph,
    ask: impl Fn(&'static Driver, *mut CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, &mut usize) -> CUresult,
) -> Answer {
    let first = r.word()? as usize;
    let wanted = r.word()? as usize;
    let mut fresh = Fresh::get(r)?;
    let mut total = 0;
    let code = ask(s.driver, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), &mut total);
    if code != CUDA_SUCCESS {
        return Ok(code);
    }
    let (mut from, mut to) = (vec![ptr::null_mut(); total], vec![ptr::null_mut(); total]);
    let mut data = vec![edge_data(0); total];
    if wanted > 0 && total > 0 {
        let mut count = total;
        let code = ask(s.driver, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count);
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        from.truncate(count);
    }
    let last = from.len().min(first.saturating_add(wanted.min(NODES_MAX)));
    reply.word(total as u64);
    reply.word(last.saturating_sub(first) as u64);
    for i in first..last {
        reply.word(fresh.name_node(s, graph, from[i])?);
        reply.word(fresh.name_node(s, graph, to[i])?);
        reply.word(edge_word(data[i]));
    }
    Ok(CUDA_SUCCESS)
}

/// The driver writes a file; this one has no name in any file system.
fn dot_text(driver: &'static Driver, graph: CUgraph, flags: u32) -> Result<Vec<u8>, CUresult> {
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: a NUL-terminated literal; a new descriptor that nobody else owns.
    let mut file = unsafe {
        match libc::memfd_create(c"orion-dot".as_ptr(), libc::MFD_CLOEXEC) {
            fd if fd >= 0 => std::fs::File::from_raw_fd(fd),
            _ => return Err(CUDA_ERROR_OPERATING_SYSTEM),
        }
    };
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no NUL in the path");
    // SAFETY: a graph of this session and a NUL-terminated path.
    let code = unsafe { driver.cuGraphDebugDotPrint(graph, path.as_ptr(), flags) };
    if code != CUDA_SUCCESS {
        return Err(code);
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
    Ok(text)
}
