//! Executable graphs: making, updating, launching them, and the host memory they copy from and to.
//!
//! A graph reads and writes host memory at every launch. Where the client's memory is a copy (TCP), or where the
//! application named pageable memory and the client set a range of the heap aside for it, both sides have to know
//! which ranges an executable graph touches. They are read from its nodes when it is instantiated, because that
//! also finds what was captured, cloned or added as a child.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Existing, GRAPH_EXEC, GRAPH_NODE};
use orion_wire::message::graph_exec::{
    GraphExecBatchMemOpNodeSetParams, GraphExecChildGraphNodeSetParams, GraphExecChildGraphNodeSetParamsReply,
    GraphExecDestroy, GraphExecHostNodeSetParams, GraphExecKernelNodeSetParams, GraphExecMemcpyNodeSetParams,
    GraphExecMemcpyNodeSetParamsReply, GraphExecNodeSetParams, GraphExecNodeSetParamsReply, GraphExecUpdate,
    GraphExecUpdateReply, GraphInstantiateWithFlags, GraphInstantiateWithFlagsReply, GraphInstantiateWithParams,
    GraphInstantiateWithParamsReply, GraphLaunch, GraphNodeSetEnabled, GraphNodeSetEnabledReply, HostCopies, HostCopy,
};
use orion_wire::message::graph_node::NodeParams;
use orion_wire::record::{Header, HeapRange};

use crate::worker::calls::graph::keep::keep_range;
use crate::worker::calls::graph::names::{Fresh, graph, graph_of, node, nodes_of};
use crate::worker::calls::graph::nesting;
use crate::worker::calls::graph::params::{Params, Side};
use crate::worker::calls::handlers::handlers;
use crate::worker::out::callbacks::{Runs, runs_of};
use crate::worker::outcome::{Handled, Stop, finish};
use crate::worker::session::Session;
use crate::worker::session::reach::shared_range;
use crate::worker::state::graphs::{Copies, HostNodes, are_bottlenecks};
use crate::worker::state::waits::Wait;

/// In shared memory only what was set aside matters, and the client knows whether it ever set anything aside:
/// everything else the driver reads where the application writes.
fn copies_of(s: &Session, graph: CUgraph, some_set_aside: bool) -> Copies {
    let mut copies = Copies::default();
    if s.pages.must_bring() || some_set_aside {
        for node in nodes_of(s.driver, graph) {
            let mut found = Vec::new();
            find(s, node, &mut found);
            if !found.is_empty() {
                copies.by_node.insert(node as usize, found);
            }
        }
    }
    copies
}

fn find(s: &Session, node: CUgraphNode, found: &mut Vec<(usize, HostCopy)>) {
    let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: a node of this session and a valid out pointer.
    if unsafe { s.driver.cuGraphNodeGetType(node, &mut kind) } != CUDA_SUCCESS {
        return;
    }
    match kind {
        CU_GRAPH_NODE_TYPE_MEMCPY => {
            // SAFETY: a struct of integers and pointers, for which zero is a value.
            let mut c: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
            // SAFETY: a node of this session and a valid out pointer.
            if unsafe { s.driver.cuGraphMemcpyNodeGetParams(node, &mut c) } == CUDA_SUCCESS {
                find_in_copy(s, node, &c, found);
            }
        }
        CU_GRAPH_NODE_TYPE_MEMSET => {
            // SAFETY: a struct of integers, for which zero is a value.
            let mut m: CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
            // SAFETY: a node of this session and a valid out pointer.
            if unsafe { s.driver.cuGraphMemsetNodeGetParams(node, &mut m) } == CUDA_SUCCESS {
                let row = m.width.saturating_mul(m.elementSize as usize);
                let bytes = m.height.saturating_sub(1).saturating_mul(m.pitch).saturating_add(row);
                if let Some(range) = shared(s, m.dst, bytes as u64) {
                    let has_gaps = m.height > 1 && m.pitch != row;
                    found.push((node as usize, HostCopy { range, to_host: true, has_gaps }));
                }
            }
        }
        CU_GRAPH_NODE_TYPE_GRAPH => {
            let mut child = ptr::null_mut();
            // SAFETY: a node of this session and a valid out pointer.
            if unsafe { s.driver.cuGraphChildGraphNodeGetGraph(node, &mut child) } == CUDA_SUCCESS {
                find_in_graph(s, child, found);
            }
        }
        CU_GRAPH_NODE_TYPE_CONDITIONAL => {
            for (_, body) in s.graph_nodes.inside.of(node) {
                find_in_graph(s, body, found);
            }
        }
        _ => {}
    }
}

fn find_in_graph(s: &Session, graph: CUgraph, found: &mut Vec<(usize, HostCopy)>) {
    for node in nodes_of(s.driver, graph) {
        find(s, node, found);
    }
}

fn find_in_copy(s: &Session, node: CUgraphNode, c: &CUDA_MEMCPY3D, found: &mut Vec<(usize, HostCopy)>) {
    if let Some(range) = Side::source(c).shared(s, c) {
        found.push((node as usize, HostCopy { range, to_host: false, has_gaps: false }));
    }
    if let Some(range) = Side::destination(c).shared(s, c) {
        let or = |value, otherwise| if value == 0 { otherwise } else { value };
        let between_rows = c.Height > 1 && or(c.dstPitch, c.WidthInBytes) != c.WidthInBytes;
        let between_slices = c.Depth > 1 && or(c.dstHeight, c.Height) != c.Height;
        let has_gaps = between_rows || between_slices;
        found.push((node as usize, HostCopy { range, to_host: true, has_gaps }));
    }
}

fn shared(s: &Session, address: u64, bytes: u64) -> Option<HeapRange> {
    shared_range(s, address, bytes)
}

fn exec(s: &mut Session, name: Existing<GRAPH_EXEC>) -> Result<CUgraphExec, CUresult> {
    Ok(s.existing(Kind::GraphExec, name.0)?.cast())
}

/// Whether the nodes of an executable graph allocate. How much they do is kept.
fn note_allocations(s: &mut Session, exec: CUgraphExec, graph: CUgraph) -> bool {
    if !s.graph_nodes.allocates {
        return false;
    }
    let bytes: u64 = nodes_of(s.driver, graph).into_iter().map(|node| allocated_by(s, node)).sum();
    s.graph_nodes.allocations.remove(&(exec as usize));
    if bytes > 0 {
        s.graph_nodes.allocations.insert(exec as usize, bytes);
        s.graph_nodes.allocating.insert(exec as usize, s.place().0);
    }
    bytes > 0
}

fn allocated_by(s: &Session, node: CUgraphNode) -> u64 {
    let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: a node of this session and a valid out pointer.
    if unsafe { s.driver.cuGraphNodeGetType(node, &mut kind) } != CUDA_SUCCESS {
        return 0;
    }
    match kind {
        CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
            // SAFETY: a struct of integers and pointers, for which zero is a value.
            let mut params: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = unsafe { std::mem::zeroed() };
            // SAFETY: a node of this session and a valid out pointer.
            unsafe { s.driver.cuGraphMemAllocNodeGetParams(node, (&raw mut params).cast()) };
            params.bytesize as u64
        }
        CU_GRAPH_NODE_TYPE_GRAPH => {
            let mut child = ptr::null_mut();
            // SAFETY: a node of this session and a valid out pointer.
            match unsafe { s.driver.cuGraphChildGraphNodeGetGraph(node, &mut child) } {
                CUDA_SUCCESS => nodes_of(s.driver, child).into_iter().map(|node| allocated_by(s, node)).sum(),
                _ => 0,
            }
        }
        CU_GRAPH_NODE_TYPE_CONDITIONAL => {
            let bodies = s.graph_nodes.inside.of(node).map(|(_, body)| body).collect::<Vec<_>>();
            bodies.into_iter().flat_map(|body| nodes_of(s.driver, body)).map(|node| allocated_by(s, node)).sum()
        }
        _ => 0,
    }
}

/// The host functions of an executable graph, which has the nodes of this graph from now on.
fn note_host_nodes(s: &mut Session, exec: CUgraphExec, graph: CUgraph) {
    s.graph_nodes.host_nodes.remove(&(exec as usize));
    // Without any nobody pays for looking.
    if !s.divides_time() || !s.callbacks.outstanding() {
        return;
    }
    let mut found = Vec::new();
    let are_alone = find_host_nodes(s, graph, &mut found);
    if !found.is_empty() {
        s.graph_nodes.host_nodes.insert(exec as usize, Arc::new(HostNodes::new(found, are_alone)));
    }
}

/// Answers whether all else in the graph is before or behind each of those that are found.
fn find_host_nodes(s: &Session, graph: CUgraph, found: &mut Vec<(usize, Arc<Runs>)>) -> bool {
    let nodes = nodes_of(s.driver, graph);
    let (mut with_functions, mut are_alone) = (Vec::new(), true);
    for (index, node) in nodes.iter().enumerate() {
        let known = found.len();
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: a node of this session and a valid out pointer.
        if unsafe { s.driver.cuGraphNodeGetType(*node, &mut kind) } != CUDA_SUCCESS {
            return false;
        }
        match kind {
            CU_GRAPH_NODE_TYPE_HOST => {
                let mut h = CUDA_HOST_NODE_PARAMS { fn_: None, userData: ptr::null_mut() };
                // SAFETY: a node of this session and a valid out pointer.
                let code = unsafe { s.driver.cuGraphHostNodeGetParams(*node, &mut h) };
                if code != CUDA_SUCCESS || h.userData.is_null() {
                    return false;
                }
                // SAFETY: every host function in the worker was put there with a ticket, which is alive as the node is.
                found.push((*node as usize, unsafe { runs_of(h.userData) }));
            }
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let mut child = ptr::null_mut();
                // SAFETY: a node of this session and a valid out pointer.
                if unsafe { s.driver.cuGraphChildGraphNodeGetGraph(*node, &mut child) } != CUDA_SUCCESS {
                    return false;
                }
                are_alone &= find_host_nodes(s, child, found);
            }
            // The bodies of conditional nodes have no host functions.
            _ => {}
        }
        if found.len() > known {
            with_functions.push(index);
        }
    }
    with_functions.is_empty()
        || are_alone && edges_of(s, graph, &nodes).is_some_and(|e| are_bottlenecks(nodes.len(), &e, &with_functions))
}

/// By the indices of the nodes; nothing of a graph whose edges say more than that one node is behind the other.
fn edges_of(s: &Session, graph: CUgraph, nodes: &[CUgraphNode]) -> Option<Vec<(usize, usize)>> {
    let mut count = 0;
    // SAFETY: a graph of this session; without arrays only the number is answered.
    if unsafe { s.driver.cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count) } != CUDA_SUCCESS {
        return None;
    }
    let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
    // SAFETY: arrays of `count` elements.
    if count > 0
        && unsafe { s.driver.cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count) } != CUDA_SUCCESS
    {
        return None;
    }
    let index: HashMap<CUgraphNode, usize> = nodes.iter().enumerate().map(|(index, node)| (*node, index)).collect();
    let both = from.iter().zip(&to).take(count);
    both.map(|(from, to)| Some((*index.get(from)?, *index.get(to)?))).collect()
}

fn keep_copies(s: &mut Session, exec: CUgraphExec, copies: Copies) -> HostCopies {
    let told = copies.told();
    // One that ended with its context may have had this address.
    s.graph_nodes.copies.remove(&(exec as usize));
    if !copies.by_node.is_empty() {
        s.graph_nodes.copies.insert(exec as usize, copies);
    }
    told
}

/// Changing an executable graph: answers the host memory it touches from now on, if that may have changed. Posted, it
/// changes nothing about host memory that the client would have to bring over.
fn set(
    s: &mut Session,
    header: &Header,
    (exec_name, node_name): (Existing<GRAPH_EXEC>, Existing<GRAPH_NODE>),
    params: &NodeParams<'_>,
    call: impl FnOnce(&'static Driver, CUgraphExec, CUgraphNode, &mut CUgraphNodeParams) -> CUresult,
) -> Result<Option<HostCopies>, Stop> {
    let (exec, node) = (exec(s, exec_name)?, node(s, node_name)?);
    let mut params = Params::of(s, params)?;
    nesting::admit_change(s, graph_of(s, node), &params)?;
    let code = call(s.driver, exec, node, params.raw());
    if code != CUDA_SUCCESS {
        params.discard();
        return Err(code.into());
    }
    if !params.ticket().is_null() {
        // SAFETY: the driver has put it into this node, in place of the one before.
        unsafe { s.graph_nodes.tickets.put(exec as usize, node as usize, params.ticket()) };
        if let Some(host_nodes) = s.graph_nodes.host_nodes.get(&(exec as usize)) {
            // SAFETY: it is alive while the executable graph is.
            host_nodes.put(node as usize, unsafe { runs_of(params.ticket()) });
        }
    }
    if let Some(child) = params.child() {
        // What it had is not told apart from what it has now, so all of it counts as the GPU's work.
        let mut found = Vec::new();
        find_host_nodes(s, child, &mut found);
        if !found.is_empty() || s.graph_nodes.host_nodes.contains_key(&(exec as usize)) {
            s.graph_nodes.host_nodes.insert(exec as usize, Arc::new(HostNodes::new(found, false)));
        }
    }
    let mut found = Vec::new();
    match (params.copy(), params.child()) {
        (Some(c), _) => find_in_copy(s, node, c, &mut found),
        // Posted, the client knows that nothing it has to bring over changes; what the graph writes to host memory is
        // found here all the same.
        (_, Some(child)) if header.sequence != 0 || s.pages.must_bring() => find_in_graph(s, child, &mut found),
        _ => return Ok(None),
    }
    if found.is_empty() && params.staging.is_empty() && !s.graph_nodes.copies.contains_key(&(exec as usize)) {
        return Ok(Some(HostCopies::default()));
    }
    let copies = s.graph_nodes.copies.entry(exec as usize).or_default();
    copies.by_node.insert(node as usize, found);
    copies.staging.append(&mut params.staging);
    Ok(Some(copies.told()))
}

macro_rules! setters {
    ($($name:ident($message:ident, $kind:ident, $p:ident) $($argument:expr),+ $(=> $reply:ident)?;)*) => {$(
        pub fn $name(s: &mut Session, h: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
            finish(|| {
                let q = $message::decode(&mut r)?;
                let _copies = set(s, h, (q.exec, q.node), &NodeParams::$kind(q.params), |d, exec, node, params| {
                    let $p = &mut params.__bindgen_anon_1;
                    // SAFETY: `Params::of` filled the part of the union that this kind of node has, with handles of
                    // this session and pointers into buffers that outlive the call.
                    unsafe { d.$name(exec, node, $($argument),+) }
                })?;
                $($reply { copies: _copies.unwrap_or_default() }.encode(_reply);)?
                Ok(CUDA_SUCCESS)
            })
        }
    )*};
}

setters! {
    cuGraphExecKernelNodeSetParams_v2(GraphExecKernelNodeSetParams, Kernel, p) (&raw mut p.kernel).cast();
    cuGraphExecMemcpyNodeSetParams(GraphExecMemcpyNodeSetParams, Memcpy, p) &p.memcpy.copyParams, p.memcpy.copyCtx
        => GraphExecMemcpyNodeSetParamsReply;
    cuGraphExecHostNodeSetParams(GraphExecHostNodeSetParams, Host, p) (&raw mut p.host).cast();
    cuGraphExecChildGraphNodeSetParams(GraphExecChildGraphNodeSetParams, Child, p) p.graph.graph
        => GraphExecChildGraphNodeSetParamsReply;
    cuGraphExecBatchMemOpNodeSetParams(GraphExecBatchMemOpNodeSetParams, Batch, p) (&raw mut p.memOp).cast();
}

pub fn cuGraphExecNodeSetParams(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = GraphExecNodeSetParams::decode(&mut r)?;
        let copies = set(s, header, (q.exec, q.node), &q.params, |d, exec, node, params| {
            // SAFETY: as for the setters of one kind.
            unsafe { d.cuGraphExecNodeSetParams(exec, node, params) }
        })?;
        GraphExecNodeSetParamsReply { copies }.encode(reply);
        Ok(CUDA_SUCCESS)
    })
}

/// What an executable graph that was just made is known for.
fn made(
    s: &mut Session,
    name: u64,
    exec: CUgraphExec,
    graph: CUgraph,
    some_set_aside: bool,
) -> Result<(HostCopies, bool), Stop> {
    s.bind(Kind::GraphExec, name, exec.cast())?;
    note_host_nodes(s, exec, graph);
    let allocates = note_allocations(s, exec, graph);
    let copies = copies_of(s, graph, some_set_aside);
    Ok((keep_copies(s, exec, copies), allocates))
}

handlers! {
    fn cuGraphInstantiateWithFlags(s, r, reply) {
        let q = GraphInstantiateWithFlags::decode(r)?;
        let graph = graph(s, q.graph)?;
        let mut exec = ptr::null_mut();
        // SAFETY: a graph of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphInstantiateWithFlags(&mut exec, graph, q.flags) };
        if code == CUDA_SUCCESS {
            let (copies, allocates) = made(s, q.exec.0, exec, graph, q.some_set_aside)?;
            GraphInstantiateWithFlagsReply { copies, allocates }.encode(reply);
        }
        Ok(code)
    }

    fn cuGraphExecDestroy(s, r, reply) {
        let name = GraphExecDestroy::decode(r)?.exec;
        let exec = exec(s, name)?;
        s.unbind(Kind::GraphExec, name.0);
        let copies = s.graph_nodes.copies.remove(&(exec as usize)).unwrap_or_default();
        // SAFETY: an executable graph of this session that has no name any more.
        let code = unsafe { s.driver.cuGraphExecDestroy(exec) };
        s.graph_nodes.allocations.remove(&(exec as usize));
        s.graph_memory_ended(exec as usize);
        s.graph_nodes.tickets.exec_gone(exec as usize);
        s.graph_nodes.host_nodes.remove(&(exec as usize));
        for offset in copies.staging {
            keep_range(s, None, offset);
        }
        Ok(code)
    }

    fn cuGraphNodeSetEnabled(s, r, reply) {
        let q = GraphNodeSetEnabled::decode(r)?;
        let (exec, node) = (exec(s, q.exec)?, node(s, q.node)?);
        // SAFETY: handles of this session.
        let code = unsafe { s.driver.cuGraphNodeSetEnabled(exec, node, q.is_enabled.into()) };
        if code == CUDA_SUCCESS {
            let all = &mut s.graph_nodes.copies;
            if !q.is_enabled {
                all.entry(exec as usize).or_default().disabled.insert(node as usize);
            } else if let Some(copies) = all.get_mut(&(exec as usize)) {
                copies.disabled.remove(&(node as usize));
            }
            let copies = all.get(&(exec as usize)).map(Copies::told).unwrap_or_default();
            GraphNodeSetEnabledReply { copies }.encode(reply);
        }
        Ok(code)
    }

    fn cuGraphExecUpdate_v2(s, r, reply) {
        let q = GraphExecUpdate::decode(r)?;
        let (exec, graph) = (exec(s, q.exec)?, graph(s, q.graph)?);
        let mut fresh = Fresh::of(&q.names);
        let mut info = CUgraphExecUpdateResultInfo {
            result: CU_GRAPH_EXEC_UPDATE_SUCCESS,
            errorNode: ptr::null_mut(),
            errorFromNode: ptr::null_mut(),
        };
        // SAFETY: handles of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphExecUpdate_v2(exec, graph, &mut info) };
        // Nodes of the updating graph; an edge's origin is in it too.
        let error_node = Existing(fresh.name_node(s, graph, info.errorNode)?);
        let error_from_node = Existing(fresh.name_node(s, graph, info.errorFromNode)?);
        let (mut copies, mut allocates) = (Copies::default(), false);
        if code == CUDA_SUCCESS {
            note_host_nodes(s, exec, graph);
            allocates = note_allocations(s, exec, graph);
            copies = copies_of(s, graph, q.some_set_aside);
        }
        let told = copies.told();
        if code == CUDA_SUCCESS {
            copies.staging = s.graph_nodes.copies.remove(&(exec as usize)).unwrap_or_default().staging;
            if !copies.by_node.is_empty() || !copies.staging.is_empty() {
                s.graph_nodes.copies.insert(exec as usize, copies);
            }
        }
        GraphExecUpdateReply { result: info.result, error_node, error_from_node, copies: told, allocates }
            .encode(reply);
        Ok(code)
    }
}

pub fn cuGraphInstantiateWithParams(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    finish(|| {
        let q = GraphInstantiateWithParams::decode(&mut r)?;
        let graph = graph(s, q.graph)?;
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: q.flags,
            hUploadStream: s.stream(q.upload.0, header.thread)?,
            hErrNode_out: ptr::null_mut(),
            result_out: CUDA_GRAPH_INSTANTIATE_SUCCESS,
        };
        let mut exec = ptr::null_mut();
        // SAFETY: a graph of this session and valid out pointers.
        let code = unsafe { s.driver.cuGraphInstantiateWithParams(&mut exec, graph, &mut params) };
        let error_node = Existing(Fresh::one(q.name).name_node(s, graph, params.hErrNode_out)?);
        let (copies, allocates) = match code {
            CUDA_SUCCESS => made(s, q.exec.0, exec, graph, q.some_set_aside)?,
            _ => (HostCopies::default(), false),
        };
        let result = params.result_out;
        GraphInstantiateWithParamsReply { result, error_node, copies, allocates }.encode(reply);
        Ok(code)
    })
}

pub fn cuGraphLaunch(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let mut wait = None;
    let outcome = finish(|| {
        let q = GraphLaunch::decode(&mut r)?;
        let exec = exec(s, q.exec)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        let copies = s
            .graph_nodes
            .copies
            .get(&(exec as usize))
            .filter(|copies| s.pages.must_bring() && !copies.by_node.is_empty());
        let written = copies.map(|copies| {
            let to_host = copies.made().filter(|c| c.to_host);
            to_host.map(|c| c.range).collect::<Vec<HeapRange>>()
        });
        let has_copies = written.is_some();
        if let Some(written) = written {
            s.note_graph_copies(written);
        }
        // SAFETY: handles of this session.
        let code = s.launching(exec, |d| unsafe { d.cuGraphLaunch(exec, stream) });
        if has_copies {
            match s.graph_launched(code == CUDA_SUCCESS, stream) {
                CUDA_SUCCESS => {}
                code => return Ok(code),
            }
        }
        // On a stream that is being captured, a launch is an error.
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        s.note_free(stream);
        wait = q.is_awaited.then_some(stream);
        Ok(code)
    })?;
    match wait {
        Some(stream) if header.sequence != 0 => Ok(s.park(header, Wait::Streams(vec![stream]), |_, code, _| code)),
        _ => Ok(outcome),
    }
}
