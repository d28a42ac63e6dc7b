//! Graphs and their nodes: added, listed, destroyed.

// UNSAFETY: reads parameters from the application's memory and writes answers to it, as CUDA defines them.

use std::ffi::{CStr, c_char};

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::Kind;
use orion_wire::message::calls;
use orion_wire::message::field::Existing;
use orion_wire::message::graph::{
    GraphChildGraphNodeGetGraph, GraphChildGraphNodeGetGraphReply, GraphDebugDotPrint, GraphDebugDotPrintReply,
    GraphDestroy, GraphDestroyNode, GraphDestroyNodeReply, GraphDestroyReply, GraphGetEdges, GraphGetEdgesAndData,
    GraphGetEdgesAndDataReply, GraphGetEdgesReply, GraphGetNodes, GraphGetNodesReply, GraphGetRootNodes,
    GraphGetRootNodesReply, GraphNodeFindInClone, GraphNodeFindInCloneReply, GraphNodeGetDependencies,
    GraphNodeGetDependenciesAndEdges, GraphNodeGetDependenciesAndEdgesReply, GraphNodeGetDependenciesReply,
    GraphNodeGetDependentNodes, GraphNodeGetDependentNodesAndEdges, GraphNodeGetDependentNodesAndEdgesReply,
    GraphNodeGetDependentNodesReply, NODES_MAX, NodePlace, Page,
};
use orion_wire::message::graph_node::{
    GraphAddBatchMemOpNode, GraphAddHostNode, GraphAddKernelNode, GraphAddMemAllocNode, GraphAddMemAllocNodeReply,
    GraphAddMemcpyNode, GraphAddNode, GraphAddNodeReply,
};

use crate::answer::{code, write};
use crate::api::graph::params::{Params, SetAside, kernel_v2};
use crate::objects::graph::{Shown, Spare, edge_data, forget, graph_name, lend, node_name, nodes_before, page};
use crate::report::refuse;
use crate::session::attached::session;
use crate::session::call::{call, post};
use crate::session::lost::broken;
use crate::session::route;
use crate::state::process::state;

/// Where a new node goes.
struct Place {
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
}

/// Adds a node: `ask` has the worker make it, and answers what making it made. Answers also what was set aside for it.
///
/// # Safety
/// The pointers of `place` are as CUDA's functions for adding nodes want them.
unsafe fn add<N, T>(
    place: Place,
    params: Params<N>,
    ask: impl FnOnce(NodePlace, N) -> Result<T, CUresult>,
) -> Result<(u64, T, SetAside), CUresult> {
    if place.out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let Params { node, set_aside } = params;
    let graph = Existing(graph_name(place.graph)?);
    let name = state().handles.reserve(Kind::GraphNode);
    // SAFETY: the caller's promise.
    let on = unsafe { nodes_before(place.nodes, place.edges, place.count) };
    let on = crate::objects::handles::made(name, on)?;
    let made = crate::objects::handles::made(name, ask(NodePlace { graph, node: name.into(), on }, node))?;
    // SAFETY: not null, and valid by the caller's promise.
    unsafe { place.out.write(name.0 as CUgraphNode) };
    set_aside.taken();
    Ok((name.0, made, set_aside))
}

/// Not awaited: the handle is ours, and what the driver could refuse is refused here.
///
/// # Safety
/// As CUDA's `cuGraphCreate`.
pub unsafe fn cuGraphCreate(out: *mut CUgraph, flags: u32) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    if out.is_null() || flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let name = state().handles.reserve(Kind::Graph);
    let code = post(ops::CU_GRAPH_CREATE, |w| calls::cuGraphCreate { phGraph: name.0, flags }.encode(w));
    if code == CUDA_SUCCESS {
        // SAFETY: not null, and valid by the contract.
        unsafe { out.write(name.0 as CUgraph) };
    }
    code
}

/// A new node of no kernel is told so; one that is to become that is told that its parameters are wrong (an H200).
fn has_function(p: Option<&CUDA_KERNEL_NODE_PARAMS>) -> Result<(), CUresult> {
    match p.is_some_and(|p| p.func.is_null() && p.kern.is_null()) {
        true => Err(CUDA_ERROR_INVALID_HANDLE),
        false => Ok(()),
    }
}

/// # Safety
/// As CUDA's `cuGraphAddKernelNode_v2`.
pub unsafe fn cuGraphAddKernelNode_v2(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    let place = Place { out, graph, nodes, edges: std::ptr::null(), count };
    let mut packed = Vec::new();
    // SAFETY: the caller's promise.
    code(unsafe {
        let named = has_function(params.as_ref());
        named.and_then(|()| Params::kernel(params, &mut packed)).and_then(|p| {
            let ask = |place, params| {
                let q = GraphAddKernelNode { place, params };
                call(GraphAddKernelNode::OP, |w| q.encode(w), |_| Ok(()))
            };
            add(place, p, ask).map(drop)
        })
    })
}

/// # Safety
/// As CUDA's `cuGraphAddKernelNode`.
pub unsafe fn cuGraphAddKernelNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> CUresult {
    // SAFETY: the caller's promise.
    match unsafe { params.as_ref() }.map(kernel_v2) {
        // SAFETY: as above.
        Some(params) => unsafe { cuGraphAddKernelNode_v2(out, graph, nodes, count, &params) },
        None => CUDA_ERROR_INVALID_VALUE,
    }
}

/// # Safety
/// As CUDA's `cuGraphAddMemcpyNode`.
pub unsafe fn cuGraphAddMemcpyNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    copy: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> CUresult {
    let place = Place { out, graph, nodes, edges: std::ptr::null(), count };
    // SAFETY: the caller's promise.
    code(unsafe {
        Params::memcpy(copy, ctx, 0).and_then(|p| {
            let ask = |place, params| {
                let q = GraphAddMemcpyNode { place, params };
                call(GraphAddMemcpyNode::OP, |w| q.encode(w), |_| Ok(()))
            };
            add(place, p, ask).map(drop)
        })
    })
}

/// # Safety
/// As CUDA's `cuGraphAddHostNode`.
pub unsafe fn cuGraphAddHostNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> CUresult {
    let place = Place { out, graph, nodes, edges: std::ptr::null(), count };
    // SAFETY: the caller's promise.
    code(unsafe {
        Params::host(params).and_then(|p| {
            let ask = |place, params| {
                let q = GraphAddHostNode { place, params };
                call(GraphAddHostNode::OP, |w| q.encode(w), |_| Ok(()))
            };
            add(place, p, ask).map(drop)
        })
    })
}

/// # Safety
/// As CUDA's `cuGraphAddBatchMemOpNode`.
pub unsafe fn cuGraphAddBatchMemOpNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> CUresult {
    let place = Place { out, graph, nodes, edges: std::ptr::null(), count };
    // SAFETY: the caller's promise.
    code(unsafe {
        Params::batch(params).and_then(|p| {
            let ask = |place, params| {
                let q = GraphAddBatchMemOpNode { place, params };
                call(GraphAddBatchMemOpNode::OP, |w| q.encode(w), |_| Ok(()))
            };
            add(place, p, ask).map(drop)
        })
    })
}

/// # Safety
/// As CUDA's `cuGraphAddMemAllocNode`.
pub unsafe fn cuGraphAddMemAllocNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult {
    let place = Place { out, graph, nodes, edges: std::ptr::null(), count };
    let answer = (|| {
        // SAFETY: the caller's promise.
        let params = unsafe { params.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above.
        let told = unsafe { Params::allocation(params) }?;
        let ask = |place, params| {
            let q = GraphAddMemAllocNode { place, params };
            Ok(call(GraphAddMemAllocNode::OP, |w| q.encode(w), GraphAddMemAllocNodeReply::decode)?.address)
        };
        // SAFETY: as above.
        let (_, address, _) = unsafe { add(place, told, ask) }?;
        not_taken(address, params.bytesize)?;
        params.dptr = address;
        note_allocation(address, params.bytesize, &params.poolProps);
        Ok(())
    })();
    code(answer)
}

/// A graph has one address for what it allocates, and no other can be asked for.
fn not_taken(address: u64, bytes: usize) -> Result<(), CUresult> {
    if route::is_taken(address, bytes as u64) {
        refuse::refused("an allocation of a graph", "its address is one of another node's memory");
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(())
}

/// A graph's allocation has its address from the day its node is made.
fn note_allocation(address: u64, bytes: usize, pool: &CUmemPoolProps) {
    state().addresses.insert_device(
        address,
        bytes as u64,
        crate::state::address_map::MemoryKind::Graph,
        0,
        pool.location.id as u32,
    );
}

/// # Safety
/// As CUDA's `cuGraphAddNode`.
pub unsafe fn cuGraphAddNode(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuGraphAddNode_v2(out, graph, nodes, std::ptr::null(), count, params) }
}

/// # Safety
/// As CUDA's `cuGraphAddNode_v2`.
pub unsafe fn cuGraphAddNode_v2(
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    let place = Place { out, graph, nodes, edges, count };
    let mut packed = Vec::new();
    let answer = (|| {
        // SAFETY: the caller's promise.
        let params = unsafe { params.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above, and this part of the union is a kernel's.
        has_function((params.type_ == CU_GRAPH_NODE_TYPE_KERNEL).then(|| unsafe {
            let kernel = &raw const params.__bindgen_anon_1.kernel;
            &*kernel.cast::<CUDA_KERNEL_NODE_PARAMS>()
        }))?;
        // SAFETY: as above.
        let told = unsafe { Params::any(params, &mut packed) }?;
        let ask = |place, params| {
            let q = GraphAddNode { place, params };
            Ok(call(GraphAddNode::OP, |w| q.encode(w), GraphAddNodeReply::decode)?.address)
        };
        // SAFETY: as above.
        let (node, address, set_aside) = unsafe { add(place, told, ask) }?;
        if params.type_ == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
            let address = address.ok_or_else(|| broken("an allocation without an address"))?;
            // SAFETY: the type says which part of the union is meant.
            let part = unsafe { &mut params.__bindgen_anon_1.alloc };
            not_taken(address, part.bytesize)?;
            part.dptr = address;
            note_allocation(address, part.bytesize, &part.poolProps);
        }
        if params.type_ == CU_GRAPH_NODE_TYPE_CONDITIONAL {
            let bodies = set_aside.bodies.iter().map(|body| body.0).collect();
            params.__bindgen_anon_1.conditional.phGraph_out = lend(node, bodies, &[]).0.cast();
        }
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    code((|| {
        let q = GraphDestroy { graph: Existing(graph_name(graph)?) };
        forget(&call(GraphDestroy::OP, |w| q.encode(w), GraphDestroyReply::decode)?.gone);
        Ok(())
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphDestroyNode(node: CUgraphNode) -> CUresult {
    code((|| {
        let q = GraphDestroyNode { node: Existing(node_name(node)?) };
        forget(&call(GraphDestroyNode::OP, |w| q.encode(w), GraphDestroyNodeReply::decode)?.gone);
        Ok(())
    })())
}

/// # Safety
/// As CUDA's `cuGraphNodeFindInClone`.
pub unsafe fn cuGraphNodeFindInClone(out: *mut CUgraphNode, node: CUgraphNode, clone: CUgraph) -> CUresult {
    let answer = (|| {
        let (node, clone) = (Existing(node_name(node)?), Existing(graph_name(clone)?));
        let spare = Spare::new(Kind::GraphNode, 1);
        let q = GraphNodeFindInClone { node, clone, name: spare.first() };
        let found = call(GraphNodeFindInClone::OP, |w| q.encode(w), GraphNodeFindInCloneReply::decode)?.node.0;
        spare.settle(&[found]);
        Ok(found as CUgraphNode)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphChildGraphNodeGetGraph`.
pub unsafe fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, out: *mut CUgraph) -> CUresult {
    let answer = (|| {
        let node = Existing(node_name(node)?);
        let spare = Spare::new(Kind::Graph, 1);
        let q = GraphChildGraphNodeGetGraph { node, name: spare.first() };
        let decode = GraphChildGraphNodeGetGraphReply::decode;
        let found = call(GraphChildGraphNodeGetGraph::OP, |w| q.encode(w), decode)?.graph.0;
        spare.settle(&[found]);
        Ok(found as CUgraph)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// A list of nodes, or of edges by their two ends, page by page. Without an array only the number is answered; an array
/// that is too long is filled up with nulls, as the driver does.
///
/// # Safety
/// `ends` and `edges` are null or have as many elements as `count` says; `count` is null or valid.
unsafe fn list<const ENDS: usize>(
    object: Result<u64, CUresult>,
    ends: [*mut CUgraphNode; ENDS],
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
    ask: impl Fn(u64, Page) -> Result<Shown<ENDS>, CUresult>,
) -> CUresult {
    code((|| {
        let object = object?;
        // SAFETY: the caller's promise.
        let count = unsafe { count.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let asks_number = ends[0].is_null();
        if ends.iter().any(|end| end.is_null() != asks_number) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let capacity = if asks_number { 0 } else { *count };
        let mut first = 0;
        loop {
            // Each end may need a name.
            let wanted = (capacity - first).min(NODES_MAX / ENDS);
            let Shown { total, elements } = page(first, wanted, |page| ask(object, page))?;
            if capacity == 0 {
                *count = total;
                return Ok(());
            }
            for (i, (nodes, edge)) in elements.iter().enumerate() {
                // SAFETY: `first + i` is below the capacity.
                unsafe {
                    ends.iter().zip(nodes).for_each(|(end, word)| end.add(first + i).write(*word as CUgraphNode));
                    if !edges.is_null() {
                        edges.add(first + i).write(edge_data(*edge));
                    }
                }
            }
            first += elements.len();
            if elements.len() < wanted || first == capacity {
                break;
            }
        }
        for i in first..capacity {
            // SAFETY: below the capacity.
            ends.iter().for_each(|end| unsafe { end.add(i).write(std::ptr::null_mut()) });
        }
        *count = first;
        Ok(())
    })())
}

/// # Safety
/// As CUDA's `cuGraphGetNodes`.
pub unsafe fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let ask = |graph, page| {
        let q = GraphGetNodes { graph: Existing(graph), page };
        call(GraphGetNodes::OP, |w| q.encode(w), |r| Ok(GraphGetNodesReply::decode(r)?.page.into()))
    };
    // SAFETY: the caller's promise.
    unsafe { list(graph_name(graph), [nodes], std::ptr::null_mut(), count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphGetRootNodes`.
pub unsafe fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let ask = |graph, page| {
        let q = GraphGetRootNodes { graph: Existing(graph), page };
        call(GraphGetRootNodes::OP, |w| q.encode(w), |r| Ok(GraphGetRootNodesReply::decode(r)?.page.into()))
    };
    // SAFETY: the caller's promise.
    unsafe { list(graph_name(graph), [nodes], std::ptr::null_mut(), count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependencies`.
pub unsafe fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let ask = |node, page| {
        let q = GraphNodeGetDependencies { node: Existing(node), page };
        let decode = |r: &mut Reader<'_>| Ok(GraphNodeGetDependenciesReply::decode(r)?.page.into());
        call(GraphNodeGetDependencies::OP, |w| q.encode(w), decode)
    };
    // SAFETY: the caller's promise.
    unsafe { list(node_name(node), [nodes], std::ptr::null_mut(), count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependencies_v2`.
pub unsafe fn cuGraphNodeGetDependencies_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    // Without room for edge data the older function's answer is meant, which refuses to leave any out.
    if edges.is_null() && !nodes.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { cuGraphNodeGetDependencies(node, nodes, count) };
    }
    let ask = |node, page| {
        let q = GraphNodeGetDependenciesAndEdges { node: Existing(node), page };
        let decode = |r: &mut Reader<'_>| Ok(GraphNodeGetDependenciesAndEdgesReply::decode(r)?.page.into());
        call(GraphNodeGetDependenciesAndEdges::OP, |w| q.encode(w), decode)
    };
    // SAFETY: the caller's promise.
    unsafe { list(node_name(node), [nodes], edges, count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependentNodes`.
pub unsafe fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let ask = |node, page| {
        let q = GraphNodeGetDependentNodes { node: Existing(node), page };
        let decode = |r: &mut Reader<'_>| Ok(GraphNodeGetDependentNodesReply::decode(r)?.page.into());
        call(GraphNodeGetDependentNodes::OP, |w| q.encode(w), decode)
    };
    // SAFETY: the caller's promise.
    unsafe { list(node_name(node), [nodes], std::ptr::null_mut(), count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependentNodes_v2`.
pub unsafe fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    if edges.is_null() && !nodes.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { cuGraphNodeGetDependentNodes(node, nodes, count) };
    }
    let ask = |node, page| {
        let q = GraphNodeGetDependentNodesAndEdges { node: Existing(node), page };
        let decode = |r: &mut Reader<'_>| Ok(GraphNodeGetDependentNodesAndEdgesReply::decode(r)?.page.into());
        call(GraphNodeGetDependentNodesAndEdges::OP, |w| q.encode(w), decode)
    };
    // SAFETY: the caller's promise.
    unsafe { list(node_name(node), [nodes], edges, count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphGetEdges`.
pub unsafe fn cuGraphGetEdges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> CUresult {
    let ask = |graph, page| {
        let q = GraphGetEdges { graph: Existing(graph), page };
        call(GraphGetEdges::OP, |w| q.encode(w), |r| Ok(GraphGetEdgesReply::decode(r)?.page.into()))
    };
    // SAFETY: the caller's promise.
    unsafe { list(graph_name(graph), [from, to], std::ptr::null_mut(), count, ask) }
}

/// # Safety
/// As CUDA's `cuGraphGetEdges_v2`.
pub unsafe fn cuGraphGetEdges_v2(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    if edges.is_null() && !from.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { cuGraphGetEdges(graph, from, to, count) };
    }
    let ask = |graph, page| {
        let q = GraphGetEdgesAndData { graph: Existing(graph), page };
        call(GraphGetEdgesAndData::OP, |w| q.encode(w), |r| Ok(GraphGetEdgesAndDataReply::decode(r)?.page.into()))
    };
    // SAFETY: the caller's promise.
    unsafe { list(graph_name(graph), [from, to], edges, count, ask) }
}

/// The driver's text, fetched in parts; the file is the client's.
///
/// # Safety
/// As CUDA's `cuGraphDebugDotPrint`.
pub unsafe fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32) -> CUresult {
    use std::os::unix::ffi::OsStrExt;
    let answer = (|| {
        let graph = graph_name(graph)?;
        if path.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut text = Vec::new();
        loop {
            let q = GraphDebugDotPrint { graph: Existing(graph), flags, offset: text.len() as u64 };
            let decode = |r: &mut Reader<'_>| {
                let answer = GraphDebugDotPrintReply::decode(r)?;
                Ok((answer.total as usize, answer.part.get().to_vec()))
            };
            let (total, part) = call(GraphDebugDotPrint::OP, |w| q.encode(w), decode)?;
            text.extend_from_slice(&part);
            if part.is_empty() || text.len() >= total {
                break;
            }
        }
        // SAFETY: not null, and NUL-terminated by the contract.
        let path = std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        let _whole = orion_transport::thread::Uncancelled::hold();
        std::fs::write(path, text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    })();
    code(answer)
}
