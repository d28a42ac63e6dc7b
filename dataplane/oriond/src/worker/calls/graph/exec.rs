//! Executable graphs: making, updating, launching them, and the host memory they copy from and to.
//!
//! A graph reads and writes host memory at every launch. Where the client's memory is a copy (TCP), or where the
//! application named pageable memory and the client set a range of the heap aside for it, both sides have to know
//! which ranges an executable graph touches. They are read from its nodes when it is instantiated, because that
//! also finds what was captured, cloned or added as a child.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Reader, Writer};

use crate::worker::calls::graph::keep::keep_range;
use crate::worker::calls::graph::names::{Fresh, graph, graph_of, node, nodes_of};
use crate::worker::calls::graph::nesting;
use crate::worker::calls::graph::params::{Params, Side};
use crate::worker::calls::handlers::handlers;
use crate::worker::outcome::{Answer, Handled, Stop, finish};
use crate::worker::session::Session;
use crate::worker::session::reach::shared_range;
use crate::worker::state::graphs::{Copies, HostCopy};
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

fn find(s: &Session, node: CUgraphNode, found: &mut Vec<HostCopy>) {
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
                find_in_copy(s, &c, found);
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
                    found.push(HostCopy { range, to_host: true });
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

fn find_in_graph(s: &Session, graph: CUgraph, found: &mut Vec<HostCopy>) {
    for node in nodes_of(s.driver, graph) {
        find(s, node, found);
    }
}

fn find_in_copy(s: &Session, c: &CUDA_MEMCPY3D, found: &mut Vec<HostCopy>) {
    if let Some(range) = Side::source(c).shared(s, c) {
        found.push(HostCopy { range, to_host: false });
    }
    if let Some(range) = Side::destination(c).shared(s, c) {
        found.push(HostCopy { range, to_host: true });
    }
}

fn shared(s: &Session, address: u64, bytes: u64) -> Option<HeapRange> {
    shared_range(s, address, bytes)
}

fn exec(s: &mut Session, r: &mut Reader<'_>) -> Result<CUgraphExec, Stop> {
    Ok(s.existing(Kind::GraphExec, r.word()?)?.cast())
}

/// What the nodes of an executable graph allocate, where that has to fit.
fn note_allocations(s: &mut Session, exec: CUgraphExec, graph: CUgraph) {
    if s.accounts.is_none() || !s.graph_nodes.allocates {
        return;
    }
    let bytes: u64 = nodes_of(s.driver, graph).into_iter().map(|node| allocated_by(s, node)).sum();
    s.graph_nodes.allocations.remove(&(exec as usize));
    if bytes > 0 {
        s.graph_nodes.allocations.insert(exec as usize, bytes);
        s.graph_nodes.allocating.insert(exec as usize, s.place().0);
    }
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

fn keep_copies(s: &mut Session, exec: CUgraphExec, copies: Copies, reply: &mut Vec<u8>) {
    copies.encode(reply);
    if !copies.by_node.is_empty() {
        s.graph_nodes.copies.insert(exec as usize, copies);
    }
}

/// Changing an executable graph: `exec, node, parameters` -> the host memory it touches from now on. Posted, it
/// changes nothing about host memory that the client would have to bring over.
fn set(
    s: &mut Session,
    header: &Header,
    r: &mut Reader<'_>,
    reply: &mut Vec<u8>,
    only: Option<CUgraphNodeType>,
    call: impl FnOnce(&'static Driver, CUgraphExec, CUgraphNode, &mut CUgraphNodeParams) -> CUresult,
) -> Answer {
    let (exec, node) = (exec(s, r)?, node(s, r)?);
    let mut params = Params::get(s, r, only)?;
    nesting::admit_change(s, graph_of(s, node), &params)?;
    let code = call(s.driver, exec, node, params.raw());
    if code != CUDA_SUCCESS {
        params.discard();
        return Ok(code);
    }
    if !params.ticket().is_null() {
        // SAFETY: the driver has put it into this node, in place of the one before.
        unsafe { s.graph_nodes.tickets.put(exec as usize, node as usize, params.ticket()) };
    }
    let mut found = Vec::new();
    match (params.copy(), params.child()) {
        (Some(c), _) => find_in_copy(s, c, &mut found),
        // Posted, the client knows that nothing it has to bring over changes; what the graph writes to host memory is
        // found here all the same.
        (_, Some(child)) if header.sequence != 0 || s.pages.must_bring() => find_in_graph(s, child, &mut found),
        _ => return Ok(code),
    }
    if found.is_empty() && params.staging.is_empty() && !s.graph_nodes.copies.contains_key(&(exec as usize)) {
        reply.word(0);
        return Ok(code);
    }
    let copies = s.graph_nodes.copies.entry(exec as usize).or_default();
    copies.by_node.insert(node as usize, found);
    copies.staging.append(&mut params.staging);
    copies.encode(reply);
    Ok(code)
}

macro_rules! setters {
    ($($name:ident($p:ident, $kind:ident) $($argument:expr),+;)*) => {$(
        pub fn $name(s: &mut Session, h: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
            finish(|| set(s, h, &mut r, reply, Some($kind), |d, exec, node, params| {
                let $p = &mut params.__bindgen_anon_1;
                // SAFETY: `Params::get` filled the part of the union that this kind of node has, with handles of
                // this session and pointers into buffers that outlive the call.
                unsafe { d.$name(exec, node, $($argument),+) }
            }))
        }
    )*};
}

setters! {
    cuGraphExecKernelNodeSetParams_v2(p, CU_GRAPH_NODE_TYPE_KERNEL) (&raw mut p.kernel).cast();
    cuGraphExecMemcpyNodeSetParams(p, CU_GRAPH_NODE_TYPE_MEMCPY) &p.memcpy.copyParams, p.memcpy.copyCtx;
    cuGraphExecHostNodeSetParams(p, CU_GRAPH_NODE_TYPE_HOST) (&raw mut p.host).cast();
    cuGraphExecChildGraphNodeSetParams(p, CU_GRAPH_NODE_TYPE_GRAPH) p.graph.graph;
    cuGraphExecBatchMemOpNodeSetParams(p, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) (&raw mut p.memOp).cast();
}

/// exec, node, parameters
pub fn cuGraphExecNodeSetParams(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        set(s, header, &mut r, reply, None, |d, exec, node, params| {
            // SAFETY: as for the setters of one kind.
            unsafe { d.cuGraphExecNodeSetParams(exec, node, params) }
        })
    })
}

handlers! {
    /// name, graph, flags, whether the client set memory aside for copies -> host memory
    fn cuGraphInstantiateWithFlags(s, r, reply) {
        let name = r.word()?;
        let graph = graph(s, r)?;
        let (flags, some_set_aside) = (r.word()?, r.word()? != 0);
        let mut exec = ptr::null_mut();
        // SAFETY: a graph of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphInstantiateWithFlags(&mut exec, graph, flags) };
        if code == CUDA_SUCCESS {
            s.bind(Kind::GraphExec, name, exec.cast())?;
            note_allocations(s, exec, graph);
            let copies = copies_of(s, graph, some_set_aside);
            keep_copies(s, exec, copies, reply);
        }
        Ok(code)
    }

    /// exec
    fn cuGraphExecDestroy(s, r, reply) {
        let name = r.word()?;
        let exec: CUgraphExec = s.existing(Kind::GraphExec, name)?.cast();
        s.unbind(Kind::GraphExec, name);
        let copies = s.graph_nodes.copies.remove(&(exec as usize)).unwrap_or_default();
        // SAFETY: an executable graph of this session that has no name any more.
        let code = unsafe { s.driver.cuGraphExecDestroy(exec) };
        s.graph_nodes.allocations.remove(&(exec as usize));
        s.graph_memory_ended(exec as usize);
        s.graph_nodes.tickets.exec_gone(exec as usize);
        for offset in copies.staging {
            keep_range(s, None, offset);
        }
        Ok(code)
    }

    /// exec, graph, whether the client set memory aside for copies, names
    /// -> result, error node, its origin, host memory
    fn cuGraphExecUpdate_v2(s, r, reply) {
        let (exec, graph, some_set_aside) = (exec(s, r)?, graph(s, r)?, r.word()? != 0);
        let mut fresh = Fresh::get(r)?;
        let mut info = CUgraphExecUpdateResultInfo {
            result: CU_GRAPH_EXEC_UPDATE_SUCCESS,
            errorNode: ptr::null_mut(),
            errorFromNode: ptr::null_mut(),
        };
        // SAFETY: handles of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphExecUpdate_v2(exec, graph, &mut info) };
        reply.word(info.result as u64);
        // Nodes of the updating graph; an edge's origin is in it too.
        reply.word(fresh.name_node(s, graph, info.errorNode)?);
        reply.word(fresh.name_node(s, graph, info.errorFromNode)?);
        if code == CUDA_SUCCESS {
            note_allocations(s, exec, graph);
            let mut copies = copies_of(s, graph, some_set_aside);
            copies.staging = s.graph_nodes.copies.remove(&(exec as usize)).unwrap_or_default().staging;
            copies.encode(reply);
            if !copies.by_node.is_empty() || !copies.staging.is_empty() {
                s.graph_nodes.copies.insert(exec as usize, copies);
            }
        }
        Ok(code)
    }
}

/// name, graph, flags, upload stream, whether the client set memory aside for copies, names
/// -> result, error node, host memory
pub fn cuGraphInstantiateWithParams(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    finish(|| {
        let name = r.word()?;
        let graph = graph(s, &mut r)?;
        let flags = r.word()?;
        let hUploadStream = s.stream(r.word()?, header.thread)?;
        let some_set_aside = r.word()? != 0;
        let mut fresh = Fresh::get(&mut r)?;
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags,
            hUploadStream,
            hErrNode_out: ptr::null_mut(),
            result_out: CUDA_GRAPH_INSTANTIATE_SUCCESS,
        };
        let mut exec = ptr::null_mut();
        // SAFETY: a graph of this session and valid out pointers.
        let code = unsafe { s.driver.cuGraphInstantiateWithParams(&mut exec, graph, &mut params) };
        reply.word(params.result_out as u64);
        reply.word(fresh.name_node(s, graph, params.hErrNode_out)?);
        if code == CUDA_SUCCESS {
            s.bind(Kind::GraphExec, name, exec.cast())?;
            note_allocations(s, exec, graph);
            let copies = copies_of(s, graph, some_set_aside);
            keep_copies(s, exec, copies, reply);
        }
        Ok(code)
    })
}

/// exec, stream, whether to answer only once the graph has run
pub fn cuGraphLaunch(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let mut wait = None;
    let outcome = finish(|| {
        let exec = exec(s, &mut r)?;
        let stream = s.stream(r.word()?, header.thread)?;
        let answer_when_done = r.word()? != 0;
        let copies = s
            .graph_nodes
            .copies
            .get(&(exec as usize))
            .filter(|copies| s.pages.must_bring() && !copies.by_node.is_empty());
        let written = copies.map(|copies| {
            let to_host = copies.by_node.values().flatten().filter(|c| c.to_host);
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
        wait = answer_when_done.then_some(stream);
        Ok(code)
    })?;
    match wait {
        Some(stream) if header.sequence != 0 => Ok(s.park(header, Wait::Streams(vec![stream]), |_, code, _| code)),
        _ => Ok(outcome),
    }
}
