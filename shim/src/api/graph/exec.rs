//! Executable graphs: instantiating, updating and launching them.
//!
//! Updates of an executable graph are posted. XLA changes dozens of kernel nodes before every launch, and what
//! CUDA would refuse at once (an unknown function, no parameters, an empty grid) is refused here.

// UNSAFETY: reads parameters from the application's memory and writes answers to it, as CUDA defines them.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::field::{Existing, GRAPH_EXEC, GRAPH_NODE};
use orion_wire::message::graph_exec::{
    GraphExecBatchMemOpNodeSetParams, GraphExecChildGraphNodeSetParams, GraphExecChildGraphNodeSetParamsReply,
    GraphExecDestroy, GraphExecHostNodeSetParams, GraphExecKernelNodeSetParams, GraphExecMemcpyNodeSetParams,
    GraphExecMemcpyNodeSetParamsReply, GraphExecNodeSetParams, GraphExecNodeSetParamsReply, GraphExecUpdate,
    GraphExecUpdateReply, GraphInstantiateWithFlags, GraphInstantiateWithFlagsReply, GraphInstantiateWithParams,
    GraphInstantiateWithParamsReply, GraphLaunch, GraphNodeSetEnabled, GraphNodeSetEnabledReply, HostCopies,
};
use orion_wire::message::graph_node::{KernelNode, NodeParams};
use orion_wire::{Fault, Reader};

use crate::answer::code;
use crate::api::execution::Geometry;
use crate::api::graph::params::{Params, kernel_v2};
use crate::memory::graph_launches::{bring_in, note_copies};
use crate::memory::in_step;
use crate::objects::capture;
use crate::objects::function::function;
use crate::objects::graph::{Spare, graph_name, named, node_name};
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::{call, call_any, post, post_sealed, start_sealed, try_post};
use crate::session::reply::wait;
use crate::state::context;
use crate::state::graph_launches::{HostCopy, Launch};
use crate::state::process::state;

fn exec_name(exec: CUgraphExec) -> Result<u64, CUresult> {
    named(Kind::GraphExec, exec as u64)
}

/// A kernel that launches a graph is given its handle, and follows it: ours would be a wild address there, whose fault
/// ends the context.
fn is_launched_by_host(flags: u64) -> Result<(), CUresult> {
    if flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0 {
        return Ok(());
    }
    let why = "kernels cannot launch graphs; launch them from the host, or make them conditional nodes of one graph";
    crate::report::refuse::refused("cuGraphInstantiate", why);
    Err(CUDA_ERROR_NOT_SUPPORTED)
}

/// # Safety
/// As CUDA's `cuGraphInstantiateWithFlags`.
pub unsafe fn cuGraphInstantiateWithFlags(out: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let graph = Existing(graph_name(graph)?);
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        is_launched_by_host(flags)?;
        let name = state().handles.reserve(Kind::GraphExec);
        let some_set_aside = s.graph_copies.any();
        let q = GraphInstantiateWithFlags { exec: name.into(), graph, flags, some_set_aside };
        let decode = GraphInstantiateWithFlagsReply::decode;
        let answer = call(GraphInstantiateWithFlags::OP, |w| q.encode(w), decode);
        let told = crate::objects::handles::made(name, answer)?;
        note_copies(s, name.0, &told.copies);
        s.graph_launches.note_allocates(name.0, told.allocates);
        // SAFETY: not null, and valid by the contract.
        unsafe { out.write(name.0 as CUgraphExec) };
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// As CUDA's `cuGraphInstantiate_v2`.
pub unsafe fn cuGraphInstantiate_v2(
    out: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    log_bytes: usize,
) -> CUresult {
    // SAFETY: each is null or valid by the contract.
    unsafe {
        if !error_node.is_null() {
            error_node.write(std::ptr::null_mut());
        }
        if !log.is_null() && log_bytes > 0 {
            log.write(0);
        }
        cuGraphInstantiateWithFlags(out, graph, 0)
    }
}

/// # Safety
/// As CUDA's `cuGraphInstantiate`.
pub unsafe fn cuGraphInstantiate(
    out: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    log_bytes: usize,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuGraphInstantiate_v2(out, graph, error_node, log, log_bytes) }
}

/// # Safety
/// As CUDA's `cuGraphInstantiateWithParams`.
pub unsafe fn cuGraphInstantiateWithParams(
    out: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { instantiate_with_params(out, graph, params, 0) }
}

/// # Safety
/// As CUDA's `cuGraphInstantiateWithParams_ptsz`.
pub unsafe fn cuGraphInstantiateWithParams_ptsz(
    out: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { instantiate_with_params(out, graph, params, 2) }
}

unsafe fn instantiate_with_params(
    out: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    default_stream: u64,
) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let graph = Existing(graph_name(graph)?);
        // SAFETY: null or valid by the contract.
        let params = unsafe { params.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Err(code) = is_launched_by_host(params.flags) {
            params.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
            params.hErrNode_out = std::ptr::null_mut();
            return Err(code);
        }
        let name = state().handles.reserve(Kind::GraphExec);
        let spare = Spare::new(Kind::GraphNode, 1);
        let stream = if params.hUploadStream.is_null() { default_stream } else { params.hUploadStream as u64 };
        let q = GraphInstantiateWithParams {
            exec: name.into(),
            graph,
            flags: params.flags,
            upload: Existing(stream),
            some_set_aside: s.graph_copies.any(),
            name: spare.first(),
        };
        let answer = call_any(
            GraphInstantiateWithParams::OP,
            |w| q.encode(w),
            |result, r| Ok((result, unless_empty(r, GraphInstantiateWithParamsReply::decode)?)),
        );
        let (result, told) = crate::objects::handles::made(name, answer)?;
        let error_node = told.as_ref().map_or(0, |told| told.error_node.0);
        spare.settle(&[error_node]);
        params.result_out = told.as_ref().map_or(CUDA_GRAPH_INSTANTIATE_ERROR, |told| told.result);
        params.hErrNode_out = error_node as CUgraphNode;
        if result != CUDA_SUCCESS {
            return crate::objects::handles::made(name, Err(result));
        }
        s.graph_launches.note_allocates(name.0, told.as_ref().is_some_and(|told| told.allocates));
        note_copies(s, name.0, &told.map(|told| told.copies).unwrap_or_default());
        // SAFETY: not null, and valid by the contract.
        unsafe { out.write(name.0 as CUgraphExec) };
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let name = exec_name(exec)?;
        note_copies(s, name, &[]);
        s.graph_launches.note_allocates(name, false);
        s.graph_launches.forget_accepted(name);
        let code = post(GraphExecDestroy::OP, |w| GraphExecDestroy { exec: Existing(name) }.encode(w));
        crate::objects::handles::release(Handle(name));
        if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
    })();
    code(answer)
}

/// Posted, unless the graph allocates, which may find no memory, or copies pageable memory: that is read now, and what
/// the graph writes is there when this returns. CUDA lets such a launch be synchronous.
///
/// # Safety
/// As CUDA's `cuGraphLaunch`.
pub unsafe fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let name = exec_name(exec)?;
        capture::check_stream(stream)?;
        in_step::before_launch(s);
        let launch = |is_awaited: bool| {
            let q = GraphLaunch { exec: Existing(name), stream: Existing(stream as u64), is_awaited };
            move |w: &mut Vec<u8>| q.encode(w)
        };
        // On a stream that is being captured it is refused, and nothing runs.
        let copies = s.graph_launches.copies_of(name).filter(|_| !capture::capturing(stream));
        if let Some(copies) = &copies {
            if s.pages.must_bring() {
                // A function of the graph may look at what a copy ahead of it has brought, and from then on the
                // application may write there although the graph is not over. Between rows it may at any time.
                let any_function = state().callbacks.any_in_graphs();
                let is_followed =
                    |copy: &&HostCopy| copy.to_host && copy.staged.is_none() && (any_function || copy.has_gaps);
                copies.iter().filter(is_followed).for_each(|copy| in_step::note_written(s, copy.range));
            }
            bring_in(s, copies);
        }
        let mut launched = 0;
        let seal = |copies: &Option<Arc<Vec<HostCopy>>>, number: u64| {
            if let Some(copies) = copies.as_ref().filter(|_| s.pages.must_bring()) {
                let written = copies.iter().filter(|copy| copy.to_host).map(|copy| copy.range).collect();
                s.on_the_way.expect(number, written);
                s.graph_launches.change_launched(|all| all.insert(number, copies.clone()));
            }
            number
        };
        if !copies.as_ref().is_some_and(|c| c.iter().any(|copy| copy.staged.is_some())) {
            let is_answered = state().events.any_shared() || s.graph_launches.allocates(name);
            let code = match is_answered {
                false => post_sealed(GraphLaunch::OP, launch(false), |number| _ = seal(&copies, number)),
                true => {
                    let sealed = |number| launched = seal(&copies, number);
                    let answer = start_sealed(s, GraphLaunch::OP, launch(false), sealed).and_then(|t| wait(s, t));
                    let code = answer.map_or_else(|code| code, |reply| reply.result);
                    if code != CUDA_SUCCESS {
                        s.on_the_way.settled(launched);
                        s.graph_launches.settled(launched);
                    }
                    code
                }
            };
            return if code == CUDA_SUCCESS { Ok(()) } else { Err(code) };
        }
        let under_way = Arc::new(Launch::new(s, copies.as_ref().map_or(&[], |copies| &copies[..])));
        s.graph_launches.change_under_way(|all| all.push(under_way.clone()));
        let started = start_sealed(s, GraphLaunch::OP, launch(true), |number| launched = seal(&copies, number));
        let answer = started.and_then(|ticket| wait(s, ticket));
        s.graph_launches.change_under_way(|all| all.retain(|other| !Arc::ptr_eq(other, &under_way)));
        s.on_the_way.settled(launched);
        s.graph_launches.settled(launched);
        match answer?.result {
            CUDA_SUCCESS => {}
            code => return Err(code),
        }
        under_way.bring_out(s);
        Ok(())
    })();
    ahead::queued(stream);
    if let (Ok(s), Ok(name)) = (session(), exec_name(exec))
        && s.pages.must_bring()
        && s.graph_launches.copies_of(name).is_some()
    {
        ahead::carried(stream, true, true);
    }
    code(answer)
}

/// # Safety
/// As CUDA's `cuGraphExecUpdate_v2`.
pub unsafe fn cuGraphExecUpdate_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    out: *mut CUgraphExecUpdateResultInfo,
) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let (exec, graph) = (exec_name(exec)?, graph_name(graph)?);
        s.graph_launches.forget_accepted(exec);
        let spare = Spare::new(Kind::GraphNode, 2);
        let some_set_aside = s.graph_copies.any();
        let q = GraphExecUpdate { exec: Existing(exec), graph: Existing(graph), some_set_aside, names: spare.all() };
        let (result, told) = call_any(
            GraphExecUpdate::OP,
            |w| q.encode(w),
            |result, r| Ok((result, unless_empty(r, GraphExecUpdateReply::decode)?)),
        )?;
        let told = told.unwrap_or(GraphExecUpdateReply {
            result: CU_GRAPH_EXEC_UPDATE_ERROR,
            error_node: Existing(0),
            error_from_node: Existing(0),
            copies: HostCopies::default(),
            allocates: false,
        });
        spare.settle(&[told.error_node.0, told.error_from_node.0]);
        if !out.is_null() {
            let info = CUgraphExecUpdateResultInfo {
                result: told.result,
                errorNode: told.error_node.0 as CUgraphNode,
                errorFromNode: told.error_from_node.0 as CUgraphNode,
            };
            // SAFETY: not null, and valid by the contract.
            unsafe { out.write(info) };
        }
        if result != CUDA_SUCCESS {
            return Err(result);
        }
        note_copies(s, exec, &told.copies);
        s.graph_launches.note_allocates(exec, told.allocates);
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// As CUDA's `cuGraphExecUpdate`.
pub unsafe fn cuGraphExecUpdate(
    exec: CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    result: *mut CUgraphExecUpdateResult,
) -> CUresult {
    let mut info = CUgraphExecUpdateResultInfo {
        result: CU_GRAPH_EXEC_UPDATE_ERROR,
        errorNode: std::ptr::null_mut(),
        errorFromNode: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise; each pointer is null or valid.
    unsafe {
        let code = cuGraphExecUpdate_v2(exec, graph, &mut info);
        if !error_node.is_null() {
            error_node.write(info.errorNode);
        }
        if !result.is_null() {
            result.write(info.result);
        }
        code
    }
}

/// The body of a reply to a command that came as far as the driver; others have none.
fn unless_empty<'a, T>(
    r: &mut Reader<'a>,
    decode: impl FnOnce(&mut Reader<'a>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    if r.is_empty() { Ok(None) } else { decode(r).map(Some) }
}

/// Reads from a reply which host memory a changed graph touches.
type DecodeCopies = fn(&mut Reader<'_>) -> Result<HostCopies, Fault>;

/// What the answer to a change is awaited for.
enum Awaited {
    /// The driver may refuse this function in that node, and does not once it has accepted it: programs change the
    /// parameters of hundreds of kernels before every launch.
    FirstRefusal(u64),
    /// It may refuse what programs seldom change.
    Refusal,
    /// It may change which host memory the graph touches.
    Copies(DecodeCopies),
}

/// Changes an executable graph, by a request of this operation.
fn set<N>(
    op: u16,
    (exec, node): (CUgraphExec, CUgraphNode),
    params: Result<Params<N>, CUresult>,
    encode: impl FnOnce(Existing<GRAPH_EXEC>, Existing<GRAPH_NODE>, N, &mut Vec<u8>),
    awaited: Awaited,
) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let (exec, name, Params { node, set_aside }) = (exec_name(exec)?, node_name(node)?, params?);
        let encode = |w: &mut Vec<u8>| encode(Existing(exec), Existing(name), node, w);
        match awaited {
            Awaited::FirstRefusal(function) if s.graph_launches.has_accepted(exec, name, function) => {
                let sent = try_post(op, encode)?;
                set_aside.taken();
                if sent == CUDA_SUCCESS { Ok(()) } else { Err(sent) }
            }
            Awaited::FirstRefusal(_) | Awaited::Refusal => {
                call(op, encode, |_| Ok(()))?;
                set_aside.taken();
                if let Awaited::FirstRefusal(function) = awaited {
                    s.graph_launches.accept(exec, name, function);
                }
                Ok(())
            }
            Awaited::Copies(decode) => {
                let found = call(op, encode, decode)?;
                set_aside.taken();
                note_copies(s, exec, &found);
                Ok(())
            }
        }
    })();
    code(answer)
}

/// How a node's other kernel is awaited: where its blocks are within the function's limits, only the function can be
/// refused.
fn refusal_of(node: &KernelNode<'_>) -> Awaited {
    let word = if node.function.0 == 0 { node.kernel.0 } else { node.function.0 };
    let (grid, block, shared_bytes) = (node.geometry.grid, node.geometry.block, node.geometry.shared_bytes);
    let fits =
        |device| Geometry { grid, block, shared_bytes }.check(function(word as *const c_void).ok()?, device).ok();
    match context::current_device().and_then(fits) {
        Some(true) => Awaited::FirstRefusal(word),
        _ => Awaited::Refusal,
    }
}

/// # Safety
/// As CUDA's `cuGraphExecKernelNodeSetParams_v2`.
pub unsafe fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    let mut packed = Vec::new();
    // SAFETY: the caller's promise.
    let params = unsafe { Params::kernel(params, &mut packed) };
    let encode = |exec, node, params, w: &mut Vec<u8>| GraphExecKernelNodeSetParams { exec, node, params }.encode(w);
    let awaited = params.as_ref().map_or(Awaited::Refusal, |params| refusal_of(&params.node));
    set(GraphExecKernelNodeSetParams::OP, (exec, node), params, encode, awaited)
}

/// # Safety
/// As CUDA's `cuGraphExecKernelNodeSetParams`.
pub unsafe fn cuGraphExecKernelNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> CUresult {
    // SAFETY: the caller's promise.
    match unsafe { params.as_ref() }.map(kernel_v2) {
        // SAFETY: as above.
        Some(params) => unsafe { cuGraphExecKernelNodeSetParams_v2(exec, node, &params) },
        None => CUDA_ERROR_INVALID_VALUE,
    }
}

/// # Safety
/// As CUDA's `cuGraphExecMemcpyNodeSetParams`.
pub unsafe fn cuGraphExecMemcpyNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> CUresult {
    // SAFETY: the caller's promise.
    let params = unsafe { Params::memcpy(copy, ctx, 0) };
    let encode = |exec, node, params, w: &mut Vec<u8>| GraphExecMemcpyNodeSetParams { exec, node, params }.encode(w);
    set(
        GraphExecMemcpyNodeSetParams::OP,
        (exec, node),
        params,
        encode,
        Awaited::Copies(|r| Ok(GraphExecMemcpyNodeSetParamsReply::decode(r)?.copies)),
    )
}

/// # Safety
/// As CUDA's `cuGraphExecHostNodeSetParams`.
pub unsafe fn cuGraphExecHostNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> CUresult {
    // SAFETY: the caller's promise.
    let params = unsafe { Params::host(params) };
    let encode = |exec, node, params, w: &mut Vec<u8>| GraphExecHostNodeSetParams { exec, node, params }.encode(w);
    set(GraphExecHostNodeSetParams::OP, (exec, node), params, encode, Awaited::FirstRefusal(0))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> CUresult {
    let params = Params::child(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
    let decode: DecodeCopies = |r| Ok(GraphExecChildGraphNodeSetParamsReply::decode(r)?.copies);
    let encode =
        |exec, node, params, w: &mut Vec<u8>| GraphExecChildGraphNodeSetParams { exec, node, params }.encode(w);
    set(GraphExecChildGraphNodeSetParams::OP, (exec, node), params, encode, Awaited::Copies(decode))
}

/// # Safety
/// As CUDA's `cuGraphExecBatchMemOpNodeSetParams`.
pub unsafe fn cuGraphExecBatchMemOpNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> CUresult {
    // SAFETY: the caller's promise.
    let params = unsafe { Params::batch(params) };
    let encode =
        |exec, node, params, w: &mut Vec<u8>| GraphExecBatchMemOpNodeSetParams { exec, node, params }.encode(w);
    set(GraphExecBatchMemOpNodeSetParams::OP, (exec, node), params, encode, Awaited::Refusal)
}

/// As CUDA's `cuGraphNodeSetEnabled`.
pub unsafe fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, is_enabled: u32) -> CUresult {
    let answer = (|| {
        let s = session()?;
        let (exec, node) = (exec_name(exec)?, node_name(node)?);
        let q = GraphNodeSetEnabled { exec: Existing(exec), node: Existing(node), is_enabled: is_enabled != 0 };
        let decode = |r: &mut Reader<'_>| Ok(GraphNodeSetEnabledReply::decode(r)?.copies);
        let copies = call(GraphNodeSetEnabled::OP, |w| q.encode(w), decode)?;
        note_copies(s, exec, &copies);
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// As CUDA's `cuGraphExecNodeSetParams`.
pub unsafe fn cuGraphExecNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    let mut packed = Vec::new();
    // SAFETY: the caller's promise.
    let Some(raw) = (unsafe { params.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: as above.
    let params = unsafe { Params::any(raw, &mut packed) };
    let decode: DecodeCopies =
        |r| GraphExecNodeSetParamsReply::decode(r)?.copies.ok_or(Fault("no word of an executable graph's copies"));
    let awaited = match params.as_ref().map(|params| &params.node) {
        Ok(NodeParams::Kernel(kernel)) => refusal_of(kernel),
        Ok(NodeParams::Host(_)) => Awaited::FirstRefusal(0),
        _ if matches!(raw.type_, CU_GRAPH_NODE_TYPE_MEMCPY | CU_GRAPH_NODE_TYPE_GRAPH) => Awaited::Copies(decode),
        _ => Awaited::Refusal,
    };
    let encode = |exec, node, params, w: &mut Vec<u8>| GraphExecNodeSetParams { exec, node, params }.encode(w);
    set(GraphExecNodeSetParams::OP, (exec, node), params, encode, awaited)
}
