//! Graphs and their nodes: adding, listing, ending them.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Bytes, Existing, List};
use orion_wire::message::graph::{
    Dependency, Edge, EdgePage, GraphChildGraphNodeGetGraph, GraphChildGraphNodeGetGraphReply, GraphDebugDotPrint,
    GraphDebugDotPrintReply, GraphDestroy, GraphDestroyNode, GraphDestroyNodeReply, GraphDestroyReply, GraphGetEdges,
    GraphGetEdgesAndData, GraphGetEdgesAndDataReply, GraphGetEdgesReply, GraphGetNodes, GraphGetNodesReply,
    GraphGetRootNodes, GraphGetRootNodesReply, GraphNodeFindInClone, GraphNodeFindInCloneReply,
    GraphNodeGetDependencies, GraphNodeGetDependenciesAndEdges, GraphNodeGetDependenciesAndEdgesReply,
    GraphNodeGetDependenciesReply, GraphNodeGetDependentNodes, GraphNodeGetDependentNodesAndEdges,
    GraphNodeGetDependentNodesAndEdgesReply, GraphNodeGetDependentNodesReply, NODES_MAX, NodePage, NodePlace, Page,
};
use orion_wire::message::graph_node::{
    GraphAddBatchMemOpNode, GraphAddHostNode, GraphAddKernelNode, GraphAddMemAllocNode, GraphAddMemAllocNodeReply,
    GraphAddMemcpyNode, GraphAddNode, GraphAddNodeReply, NodeParams,
};
use orion_wire::record::Header;

use crate::worker::calls::graph::dependencies::{Dependencies, edge_data, edge_word};
use crate::worker::calls::graph::keep::give_up;
use crate::worker::calls::graph::names::{Ending, Fresh, graph, graph_of, node};
use crate::worker::calls::graph::nesting;
use crate::worker::calls::graph::params::Params;
use crate::worker::calls::handlers::handlers;
use crate::worker::outcome::{Handled, Stop, finish};
use crate::worker::session::Session;

/// Answers the address, if the node is an allocation's.
fn add(
    s: &mut Session,
    place: &NodePlace,
    params: &NodeParams<'_>,
    call: impl FnOnce(&'static Driver, &mut CUgraphNode, CUgraph, &Dependencies, &mut CUgraphNodeParams) -> CUresult,
) -> Result<Option<u64>, Stop> {
    let graph = graph(s, place.graph)?;
    let on = Dependencies::of(s, &place.on)?;
    let mut params = Params::of(s, params)?;
    nesting::admit(s, graph, &params)?;
    let mut node = ptr::null_mut();
    let code = match params.allocates() {
        0 => call(s.driver, &mut node, graph, &on, params.raw()),
        bytes => {
            s.graph_nodes.allocates = true;
            let add = |s: &mut Session| Ok(call(s.driver, &mut node, graph, &on, params.raw()));
            s.allocating_in_graph(graph, bytes, add).unwrap_or_else(|code| code)
        }
    };
    if code != CUDA_SUCCESS {
        params.discard();
        return Err(code.into());
    }
    s.bind(Kind::GraphNode, place.node.0, node.cast())?;
    s.graph_nodes.graph_of.insert(node as usize, graph as usize);
    params.installed(s, graph, node)
}

/// Adding nodes: the driver's function for each kind takes its own part of the generic parameters.
macro_rules! adders {
    ($($name:ident($message:ident, $kind:ident, $p:ident) $($argument:expr),+ $(=> $reply:ident)?;)*) => {$(
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
            finish(|| {
                let q = $message::decode(&mut r)?;
                let _address = add(s, &q.place, &NodeParams::$kind(q.params), |d, node, graph, on, params| {
                    let $p = &mut params.__bindgen_anon_1;
                    // SAFETY: `Params::of` filled the part of the union that this kind of node has, with handles of
                    // this session and pointers into buffers that outlive the call.
                    unsafe { d.$name(node, graph, on.nodes(), on.count(), $($argument),+) }
                })?;
                $($reply { address: _address.unwrap_or(0) }.encode(_reply);)?
                Ok(CUDA_SUCCESS)
            })
        }
    )*};
}

adders! {
    cuGraphAddKernelNode_v2(GraphAddKernelNode, Kernel, p) (&raw mut p.kernel).cast();
    cuGraphAddMemcpyNode(GraphAddMemcpyNode, Memcpy, p) &p.memcpy.copyParams, p.memcpy.copyCtx;
    cuGraphAddHostNode(GraphAddHostNode, Host, p) (&raw mut p.host).cast();
    cuGraphAddBatchMemOpNode(GraphAddBatchMemOpNode, Batch, p) (&raw mut p.memOp).cast();
    cuGraphAddMemAllocNode(GraphAddMemAllocNode, Allocation, p) (&raw mut p.alloc).cast() => GraphAddMemAllocNodeReply;
}

handlers! {
    fn cuGraphAddNode_v2(s, r, reply) {
        let q = GraphAddNode::decode(r)?;
        let address = add(s, &q.place, &q.params, |d, node, graph, on, p| {
            // SAFETY: as for the other kinds of nodes.
            unsafe { d.cuGraphAddNode_v2(node, graph, on.nodes(), on.edges(), on.count(), p) }
        })?;
        GraphAddNodeReply { address }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphDestroy(s, r, reply) {
        let name = GraphDestroy::decode(r)?.graph;
        let graph = graph(s, name)?;
        let ending = Ending::of_graph(s, graph);
        // SAFETY: a graph of this session.
        let code = unsafe { s.driver.cuGraphDestroy(graph) };
        if code == CUDA_SUCCESS {
            s.unbind(Kind::Graph, name.0);
            s.graph_nodes.inside.forget(graph);
            s.graph_memory_ended(graph as usize);
            GraphDestroyReply { gone: ending.forget(s, vec![name.0]) }.encode(reply);
        }
        Ok(code)
    }

    fn cuGraphDestroyNode(s, r, reply) {
        let node = node(s, GraphDestroyNode::decode(r)?.node)?;
        let mut ending = Ending::default();
        ending.add_node(s, node);
        // SAFETY: a node of this session.
        let code = unsafe { s.driver.cuGraphDestroyNode(node) };
        if code == CUDA_SUCCESS {
            give_up(s, node);
            GraphDestroyNodeReply { gone: ending.forget(s, Vec::new()) }.encode(reply);
        }
        Ok(code)
    }

    fn cuGraphNodeFindInClone(s, r, reply) {
        let q = GraphNodeFindInClone::decode(r)?;
        let (original, clone) = (node(s, q.node)?, graph(s, q.clone)?);
        let mut found = ptr::null_mut();
        // SAFETY: handles of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphNodeFindInClone(&mut found, original, clone) };
        if code == CUDA_SUCCESS {
            let node = Existing(Fresh::one(q.name).name_node(s, clone, found)?);
            GraphNodeFindInCloneReply { node }.encode(reply);
        }
        Ok(code)
    }

    fn cuGraphChildGraphNodeGetGraph(s, r, reply) {
        let q = GraphChildGraphNodeGetGraph::decode(r)?;
        let node = node(s, q.node)?;
        let mut inner = ptr::null_mut();
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphChildGraphNodeGetGraph(node, &mut inner) };
        if code == CUDA_SUCCESS {
            let new = s.objects.name_of(Kind::Graph, inner.cast()).is_none();
            let word = Fresh::one(q.name).name(s, Kind::Graph, inner.cast())?;
            if new && word != 0 {
                s.graph_nodes.inside.put(node, word, inner);
            }
            GraphChildGraphNodeGetGraphReply { graph: Existing(word) }.encode(reply);
        }
        Ok(code)
    }

    fn cuGraphGetNodes(s, r, reply) {
        let q = GraphGetNodes::decode(r)?;
        let graph = graph(s, q.graph)?;
        let page = list(s, &q.page, graph, |d, nodes, _, count| {
            // SAFETY: a graph of this session; null or an array of `count` elements.
            unsafe { d.cuGraphGetNodes(graph, nodes, count) }
        })?;
        GraphGetNodesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphGetRootNodes(s, r, reply) {
        let q = GraphGetRootNodes::decode(r)?;
        let graph = graph(s, q.graph)?;
        let page = list(s, &q.page, graph, |d, nodes, _, count| {
            // SAFETY: a graph of this session; null or an array of `count` elements.
            unsafe { d.cuGraphGetRootNodes(graph, nodes, count) }
        })?;
        GraphGetRootNodesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphNodeGetDependencies(s, r, reply) {
        let q = GraphNodeGetDependencies::decode(r)?;
        let node = node(s, q.node)?;
        let graph = graph_of(s, node);
        let page = list(s, &q.page, graph, |d, nodes, _, count| {
            // SAFETY: a node of this session; null or an array of `count` elements.
            unsafe { d.cuGraphNodeGetDependencies(node, nodes, count) }
        })?;
        GraphNodeGetDependenciesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphNodeGetDependencies_v2(s, r, reply) {
        let q = GraphNodeGetDependenciesAndEdges::decode(r)?;
        let node = node(s, q.node)?;
        let graph = graph_of(s, node);
        let page = list(s, &q.page, graph, |d, nodes, edges, count| {
            // SAFETY: a node of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphNodeGetDependencies_v2(node, nodes, edges, count) }
        })?;
        GraphNodeGetDependenciesAndEdgesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphNodeGetDependentNodes(s, r, reply) {
        let q = GraphNodeGetDependentNodes::decode(r)?;
        let node = node(s, q.node)?;
        let graph = graph_of(s, node);
        let page = list(s, &q.page, graph, |d, nodes, _, count| {
            // SAFETY: a node of this session; null or an array of `count` elements.
            unsafe { d.cuGraphNodeGetDependentNodes(node, nodes, count) }
        })?;
        GraphNodeGetDependentNodesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphNodeGetDependentNodes_v2(s, r, reply) {
        let q = GraphNodeGetDependentNodesAndEdges::decode(r)?;
        let node = node(s, q.node)?;
        let graph = graph_of(s, node);
        let page = list(s, &q.page, graph, |d, nodes, edges, count| {
            // SAFETY: a node of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count) }
        })?;
        GraphNodeGetDependentNodesAndEdgesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphGetEdges(s, r, reply) {
        let q = GraphGetEdges::decode(r)?;
        let graph = graph(s, q.graph)?;
        let page = edges(s, &q.page, graph, |d, from, to, _, count| {
            // SAFETY: a graph of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphGetEdges(graph, from, to, count) }
        })?;
        GraphGetEdgesReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphGetEdges_v2(s, r, reply) {
        let q = GraphGetEdgesAndData::decode(r)?;
        let graph = graph(s, q.graph)?;
        let page = edges(s, &q.page, graph, |d, from, to, data, count| {
            // SAFETY: a graph of this session; null or arrays of `count` elements.
            unsafe { d.cuGraphGetEdges_v2(graph, from, to, data, count) }
        })?;
        GraphGetEdgesAndDataReply { page }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphDebugDotPrint(s, r, reply) {
        let q = GraphDebugDotPrint::decode(r)?;
        let (graph, offset) = (graph(s, q.graph)?, q.offset as usize);
        if offset == 0 {
            s.graph_nodes.dot = dot_text(s.driver, graph, q.flags)?;
        }
        let text = &s.graph_nodes.dot;
        let part = text.get(offset..).unwrap_or_default();
        let part = &part[..part.len().min(DOT_PART_BYTES)];
        GraphDebugDotPrintReply { total: text.len() as u64, part: Bytes::from(part) }.encode(reply);
        if offset + part.len() >= text.len() {
            s.graph_nodes.dot = Vec::new();
        }
        Ok(CUDA_SUCCESS)
    }
}

const DOT_PART_BYTES: usize = 128 << 10;

/// Asks for the number, then for the list, and answers the part for which the client sent names.
fn list(
    s: &mut Session,
    page: &Page,
    graph: CUgraph,
    ask: impl Fn(&'static Driver, *mut CUgraphNode, *mut CUgraphEdgeData, &mut usize) -> CUresult,
) -> Result<NodePage, Stop> {
    let mut fresh = Fresh::of(&page.names);
    let mut total = 0;
    done(ask(s.driver, ptr::null_mut(), ptr::null_mut(), &mut total))?;
    let (mut nodes, mut data) = (vec![ptr::null_mut(); total], vec![edge_data(0); total]);
    if page.wanted > 0 && total > 0 {
        let mut count = total;
        done(ask(s.driver, nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count))?;
        nodes.truncate(count);
    }
    let mut shown = Vec::new();
    for i in shown_of(page, nodes.len()) {
        let node = Existing(fresh.name_node(s, graph, nodes[i])?);
        shown.push(Dependency { node, edge: edge_word(data[i]) });
    }
    Ok(NodePage { total: total as u64, nodes: List::of(shown).expect("no more than there is room for") })
}

fn edges(
    s: &mut Session,
    page: &Page,
    graph: CUgraph,
    ask: impl Fn(&'static Driver, *mut CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, &mut usize) -> CUresult,
) -> Result<EdgePage, Stop> {
    let mut fresh = Fresh::of(&page.names);
    let mut total = 0;
    done(ask(s.driver, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), &mut total))?;
    let (mut from, mut to) = (vec![ptr::null_mut(); total], vec![ptr::null_mut(); total]);
    let mut data = vec![edge_data(0); total];
    if page.wanted > 0 && total > 0 {
        let mut count = total;
        done(ask(s.driver, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count))?;
        from.truncate(count);
    }
    let mut shown = Vec::new();
    for i in shown_of(page, from.len()) {
        let from = Existing(fresh.name_node(s, graph, from[i])?);
        let to = Existing(fresh.name_node(s, graph, to[i])?);
        shown.push(Edge { from, to, edge: edge_word(data[i]) });
    }
    Ok(EdgePage { total: total as u64, edges: List::of(shown).expect("no more than there is room for") })
}

fn done(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// Which elements of a list of `count` the page has.
fn shown_of(page: &Page, count: usize) -> std::ops::Range<usize> {
    let first = count.min(usize::try_from(page.first).unwrap_or(usize::MAX));
    let wanted = page.wanted.min(NODES_MAX as u64) as usize;
    first..count.min(first + wanted)
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
