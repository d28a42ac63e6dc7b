//! Graphs and their nodes: adding, listing, ending them.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::graph::NODES_MAX;
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::calls::graph::dependencies::{Dependencies, edge_data, edge_word};
use crate::worker::calls::graph::keep::give_up;
use crate::worker::calls::graph::names::{Ending, Fresh, graph, graph_of, node, put_gone};
use crate::worker::calls::graph::nesting;
use crate::worker::calls::graph::params::Params;
use crate::worker::calls::handlers::handlers;
use crate::worker::outcome::{Answer, Handled, finish};
use crate::worker::session::Session;

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
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
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
        let graph: CUgraph = s.existing(Kind::Graph, name)?.cast();
        let ending = Ending::of_graph(s, graph);
        // SAFETY: a graph of this session.
        let code = unsafe { s.driver.cuGraphDestroy(graph) };
        if code == CUDA_SUCCESS {
            s.unbind(Kind::Graph, name);
            s.graph_nodes.inside.forget(graph);
            s.graph_memory_ended(graph as usize);
            let mut gone = ending.forget(s);
            gone.push(name);
            put_gone(reply, &gone);
        }
        Ok(code)
    }

    /// node -> names that ended
    fn cuGraphDestroyNode(s, r, reply) {
        let name = r.word()?;
        let node: CUgraphNode = s.existing(Kind::GraphNode, name)?.cast();
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
            let new = s.objects.name_of(Kind::Graph, inner.cast()).is_none();
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
