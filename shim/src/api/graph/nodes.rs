//! Graphs and their nodes: added, listed, destroyed.

// UNSAFETY: reads parameters from the application's memory and writes answers to it, as CUDA defines them.

use std::ffi::{CStr, c_char};

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::handle::Kind;
use orion_wire::message::calls;
use orion_wire::message::field::Field;
use orion_wire::message::graph::NODES_MAX;
use orion_wire::{Fault, Reader, Writer};

use crate::answer::{code, write};
use crate::api::graph::params::{Params, kernel_v2};
use crate::objects::graph::{Spare, edge_data, forget, graph_name, lend, node_name, nodes_before, page};
use crate::session::attached::session;
use crate::session::call::{call, post, put_words};
use crate::state::process::state;

/// Where a new node goes.
struct Place {
    out: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
}

/// Adds a node; `decode` reads what creating it made.
///
/// # Safety
/// The pointers of `place` are as CUDA's functions for adding nodes want them.
unsafe fn add<T>(
    op: u16,
    place: Place,
    params: &Params,
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<(u64, T), CUresult> {
    if place.out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut body = Vec::new();
    body.word(graph_name(place.graph)?);
    let name = state().handles.reserve(Kind::GraphNode);
    body.word(name.0);
    // SAFETY: the caller's promise.
    let on = unsafe { nodes_before(place.nodes, place.edges, place.count) };
    crate::objects::handles::made(name, on)?.put(&mut body);
    body.put(&params.body);
    let made = crate::objects::handles::made(name, call(op, |w| w.put(&body), decode))?;
    // SAFETY: not null, and valid by the caller's promise.
    unsafe { place.out.write(name.0 as CUgraphNode) };
    params.taken();
    Ok((name.0, made))
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
    // SAFETY: the caller's promise.
    code(unsafe {
        Params::kernel(params).and_then(|p| add(ops::CU_GRAPH_ADD_KERNEL_NODE_V2, place, &p, |_| Ok(()))).map(drop)
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
        Params::memcpy(copy, ctx, 0).and_then(|p| add(ops::CU_GRAPH_ADD_MEMCPY_NODE, place, &p, |_| Ok(()))).map(drop)
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
        Params::host(params).and_then(|p| add(ops::CU_GRAPH_ADD_HOST_NODE, place, &p, |_| Ok(()))).map(drop)
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
        Params::batch(params).and_then(|p| add(ops::CU_GRAPH_ADD_BATCH_MEM_OP_NODE, place, &p, |_| Ok(()))).map(drop)
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
        let encoded = unsafe { Params::allocation(params) }?;
        // SAFETY: as above.
        let (_, address) = unsafe { add(ops::CU_GRAPH_ADD_MEM_ALLOC_NODE, place, &encoded, |r| r.word()) }?;
        params.dptr = address;
        note_allocation(address, params.bytesize, &params.poolProps);
        Ok(())
    })();
    code(answer)
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
    let answer = (|| {
        // SAFETY: the caller's promise.
        let params = unsafe { params.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: as above.
        let encoded = unsafe { Params::any(params) }?;
        let has_address = params.type_ == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        // SAFETY: as above.
        let (node, address) =
            unsafe { add(ops::CU_GRAPH_ADD_NODE_V2, place, &encoded, |r| if has_address { r.word() } else { Ok(0) }) }?;
        if has_address {
            // SAFETY: the type says which part of the union is meant.
            let part = unsafe { &mut params.__bindgen_anon_1.alloc };
            part.dptr = address;
            note_allocation(address, part.bytesize, &part.poolProps);
        }
        if params.type_ == CU_GRAPH_NODE_TYPE_CONDITIONAL {
            let bodies = encoded.bodies.iter().map(|body| body.0).collect();
            params.__bindgen_anon_1.conditional.phGraph_out = lend(node, bodies, &[]).0.cast();
        }
        Ok(())
    })();
    code(answer)
}

fn ending(op: u16, word: u64) -> CUresult {
    match call(op, |w| w.word(word), |r| r.list(4 * NODES_MAX, |r| r.word())) {
        Ok(names) => {
            forget(&names);
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    graph_name(graph).map_or_else(|code| code, |word| ending(ops::CU_GRAPH_DESTROY, word))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphDestroyNode(node: CUgraphNode) -> CUresult {
    node_name(node).map_or_else(|code| code, |word| ending(ops::CU_GRAPH_DESTROY_NODE, word))
}

/// Asks for one object that may have no name yet.
fn find(op: u16, kind: Kind, words: &[u64]) -> Result<u64, CUresult> {
    let spare = Spare::new(kind, 1);
    let encode = |w: &mut Vec<u8>| {
        put_words(w, words);
        spare.encode(w);
    };
    let found = call(op, encode, |r| r.word())?;
    spare.settle(&[found]);
    Ok(found)
}

/// # Safety
/// As CUDA's `cuGraphNodeFindInClone`.
pub unsafe fn cuGraphNodeFindInClone(out: *mut CUgraphNode, node: CUgraphNode, clone: CUgraph) -> CUresult {
    let answer = (|| {
        let words = [node_name(node)?, graph_name(clone)?];
        find(ops::CU_GRAPH_NODE_FIND_IN_CLONE, Kind::GraphNode, &words).map(|word| word as CUgraphNode)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphChildGraphNodeGetGraph`.
pub unsafe fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, out: *mut CUgraph) -> CUresult {
    let answer = node_name(node)
        .and_then(|word| find(ops::CU_GRAPH_CHILD_GRAPH_NODE_GET_GRAPH, Kind::Graph, &[word]))
        .map(|word| word as CUgraph);
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// A list of nodes, or of edges by their two ends, page by page. Without an array only the number is answered; an array
/// that is too long is filled up with nulls, as the driver does.
///
/// # Safety
/// `ends` and `edges` are null or have as many elements as `count` says; `count` is null or valid.
unsafe fn list<const ENDS: usize>(
    op: u16,
    object: Result<u64, CUresult>,
    ends: [*mut CUgraphNode; ENDS],
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
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
            let (total, page) = page(op, object, first, wanted, ENDS)?;
            if capacity == 0 {
                *count = total;
                return Ok(());
            }
            for (i, item) in page.iter().enumerate() {
                // SAFETY: `first + i` is below the capacity.
                unsafe {
                    ends.iter().zip(item).for_each(|(end, word)| end.add(first + i).write(*word as CUgraphNode));
                    if !edges.is_null() {
                        edges.add(first + i).write(edge_data(item[ENDS]));
                    }
                }
            }
            first += page.len();
            if page.len() < wanted || first == capacity {
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
    // SAFETY: the caller's promise.
    unsafe { list(ops::CU_GRAPH_GET_NODES, graph_name(graph), [nodes], std::ptr::null_mut(), count) }
}

/// # Safety
/// As CUDA's `cuGraphGetRootNodes`.
pub unsafe fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { list(ops::CU_GRAPH_GET_ROOT_NODES, graph_name(graph), [nodes], std::ptr::null_mut(), count) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependencies`.
pub unsafe fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { list(ops::CU_GRAPH_NODE_GET_DEPENDENCIES, node_name(node), [nodes], std::ptr::null_mut(), count) }
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
    let op = match edges.is_null() && !nodes.is_null() {
        true => ops::CU_GRAPH_NODE_GET_DEPENDENCIES,
        false => ops::CU_GRAPH_NODE_GET_DEPENDENCIES_V2,
    };
    // SAFETY: the caller's promise.
    unsafe { list(op, node_name(node), [nodes], edges, count) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependentNodes`.
pub unsafe fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { list(ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES, node_name(node), [nodes], std::ptr::null_mut(), count) }
}

/// # Safety
/// As CUDA's `cuGraphNodeGetDependentNodes_v2`.
pub unsafe fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    let op = match edges.is_null() && !nodes.is_null() {
        true => ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES,
        false => ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES_V2,
    };
    // SAFETY: the caller's promise.
    unsafe { list(op, node_name(node), [nodes], edges, count) }
}

/// # Safety
/// As CUDA's `cuGraphGetEdges`.
pub unsafe fn cuGraphGetEdges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { list(ops::CU_GRAPH_GET_EDGES, graph_name(graph), [from, to], std::ptr::null_mut(), count) }
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
    let op = match edges.is_null() && !from.is_null() {
        true => ops::CU_GRAPH_GET_EDGES,
        false => ops::CU_GRAPH_GET_EDGES_V2,
    };
    // SAFETY: the caller's promise.
    unsafe { list(op, graph_name(graph), [from, to], edges, count) }
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
            let (total, part) = call(
                ops::CU_GRAPH_DEBUG_DOT_PRINT,
                |w| {
                    put_words(w, &[graph, flags as u64, text.len() as u64]);
                },
                |r| Ok((r.word()? as usize, r.bytes()?.to_vec())),
            )?;
            text.extend_from_slice(&part);
            if part.is_empty() || text.len() >= total {
                break;
            }
        }
        // SAFETY: not null, and NUL-terminated by the contract.
        let path = std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        std::fs::write(path, text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    })();
    code(answer)
}
