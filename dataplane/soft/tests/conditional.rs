//! Conditional graph nodes: what runs, how often and in which order, and what is refused.

mod common;

use std::ffi::{CString, c_uint, c_void};
use std::ptr::{null, null_mut};

use common::*;
use orion_cuda::sys::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_SWITCH, CU_GRAPH_COND_TYPE_WHILE,
    CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
    CU_GRAPH_EXEC_UPDATE_SUCCESS, CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_NON_BLOCKING, CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_CONDITIONAL_NODE_PARAMS,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED,
    CUDA_GRAPH_INSTANTIATE_ERROR, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_GRAPH_INSTANTIATE_SUCCESS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_SUCCESS,
    CUfunction, CUgraph, CUgraphConditionalHandle, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphInstantiateResult,
    CUgraphNode, CUgraphNodeParams, CUresult, CUstream,
};
use orion_soft::calls::capture::{
    cuStreamBeginCapture_v2, cuStreamBeginCaptureToGraph, cuStreamEndCapture, cuStreamGetCaptureInfo_v2,
    cuStreamUpdateCaptureDependencies,
};
use orion_soft::calls::context::cuCtxSetCurrent;
use orion_soft::calls::copy::cuMemcpyHtoD_v2;
use orion_soft::calls::event::{cuEventCreate, cuEventDestroy_v2};
use orion_soft::calls::graph::{
    cuGraphAddChildGraphNode, cuGraphAddDependencies, cuGraphAddEmptyNode, cuGraphAddEventRecordNode,
    cuGraphAddEventWaitNode, cuGraphAddHostNode, cuGraphAddKernelNode_v2, cuGraphAddMemAllocNode, cuGraphAddMemcpyNode,
    cuGraphAddMemsetNode, cuGraphAddNode_v2, cuGraphClone, cuGraphConditionalHandleCreate, cuGraphCreate,
    cuGraphDestroy, cuGraphDestroyNode, cuGraphExecDestroy, cuGraphExecKernelNodeSetParams_v2,
    cuGraphExecNodeSetParams, cuGraphExecUpdate_v2, cuGraphGetNodes, cuGraphInstantiateWithParams,
    cuGraphKernelNodeGetParams_v2, cuGraphLaunch, cuGraphNodeGetDependencies, cuGraphNodeGetDependentNodes,
    cuGraphNodeGetEnabled, cuGraphNodeGetType, cuGraphNodeSetEnabled, cuGraphNodeSetParams,
};
use orion_soft::calls::host_memory::{cuMemFreeHost, cuMemHostAlloc};
use orion_soft::calls::memset::cuMemsetD32Async;
use orion_soft::calls::stream::{cuStreamCreate, cuStreamQuery, cuStreamSynchronize};

fn gpu() -> Gpu {
    let text = CString::new(include_str!("kernels/conditional.ptx")).unwrap();
    Gpu::with(text.as_ptr().cast())
}

fn graph() -> CUgraph {
    let mut g = null_mut();
    unsafe { ok(cuGraphCreate(&mut g, 0)) };
    g
}

/// A handle; its default is assigned at each launch if there is one.
fn condition(g: CUgraph, default: Option<u32>) -> CUgraphConditionalHandle {
    let mut h = 0;
    let flags = if default.is_some() { CU_GRAPH_COND_ASSIGN_DEFAULT } else { 0 };
    unsafe { ok(cuGraphConditionalHandleCreate(&mut h, g, null_mut(), default.unwrap_or(0), flags)) };
    h
}

fn conditional_params(handle: CUgraphConditionalHandle, kind: u32, size: u32) -> CUgraphNodeParams {
    let mut p: CUgraphNodeParams = unsafe { std::mem::zeroed() };
    p.type_ = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    p.__bindgen_anon_1.conditional =
        CUDA_CONDITIONAL_NODE_PARAMS { handle, type_: kind, size, phGraph_out: null_mut(), ctx: null_mut() };
    p
}

fn try_conditional(g: CUgraph, handle: CUgraphConditionalHandle, kind: u32, size: u32) -> CUresult {
    let (mut node, mut p) = (null_mut(), conditional_params(handle, kind, size));
    unsafe { cuGraphAddNode_v2(&mut node, g, null(), null(), 0, &mut p) }
}

/// A conditional node and its bodies.
fn conditional(
    g: CUgraph,
    after: &[CUgraphNode],
    handle: CUgraphConditionalHandle,
    kind: u32,
    size: u32,
) -> (CUgraphNode, Vec<CUgraph>) {
    let (mut node, mut p) = (null_mut(), conditional_params(handle, kind, size));
    unsafe {
        ok(cuGraphAddNode_v2(&mut node, g, after.as_ptr(), null(), after.len(), &mut p));
        let bodies = p.__bindgen_anon_1.conditional.phGraph_out;
        (node, (0..size as usize).map(|i| *bodies.add(i)).collect())
    }
}

fn kernel_params(f: CUfunction, args: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    let mut p: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    p.func = f;
    (p.gridDimX, p.gridDimY, p.gridDimZ) = (1, 1, 1);
    (p.blockDimX, p.blockDimY, p.blockDimZ) = (1, 1, 1);
    p.kernelParams = args.as_mut_ptr();
    p
}

fn kernel(gpu: &Gpu, g: CUgraph, after: &[CUgraphNode], name: &str, args: &mut [*mut c_void]) -> CUgraphNode {
    let mut node = null_mut();
    let p = kernel_params(gpu.function(name), args);
    unsafe { ok(cuGraphAddKernelNode_v2(&mut node, g, after.as_ptr(), after.len(), &p)) };
    node
}

fn try_instantiate(g: CUgraph) -> (CUresult, CUgraphInstantiateResult, CUgraphExec) {
    let mut x = null_mut();
    let mut p: CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { std::mem::zeroed() };
    let code = unsafe { cuGraphInstantiateWithParams(&mut x, g, &mut p) };
    (code, p.result_out, x)
}

fn instantiate(g: CUgraph) -> CUgraphExec {
    let (code, result, x) = try_instantiate(g);
    ok(code);
    assert_eq!(result, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    x
}

fn run(x: CUgraphExec) {
    unsafe {
        ok(cuGraphLaunch(x, null_mut()));
        ok(cuStreamSynchronize(null_mut()));
    }
}

fn stream() -> CUstream {
    let mut s = null_mut();
    unsafe { ok(cuStreamCreate(&mut s, CU_STREAM_NON_BLOCKING)) };
    s
}

fn store<T: Copy>(b: &Buffer<T>, v: T) {
    unsafe { ok(cuMemcpyHtoD_v2(b.at, (&raw const v).cast(), size_of::<T>())) };
}

/// What was noted since the last look.
fn noted(log: &Buffer<i32>) -> Vec<i32> {
    let all = log.read();
    store(log, 0);
    all[1..=all[0] as usize].to_vec()
}

#[test]
fn a_while_body_runs_until_its_condition_is_zero_at_every_launch() {
    let gpu = gpu();
    let (log, counter) = (Buffer::<i32>::zeroed(64), Buffer::<i32>::zeroed(1));
    let g = graph();
    let h = condition(g, Some(1));
    let first = kernel(&gpu, g, &[], "note", &mut args![log.at, 1]);
    let (node, bodies) = conditional(g, &[first], h, CU_GRAPH_COND_TYPE_WHILE, 1);
    kernel(&gpu, g, &[node], "note", &mut args![log.at, 9]);
    let noting = kernel(&gpu, bodies[0], &[], "note", &mut args![log.at, 2]);
    kernel(&gpu, bodies[0], &[noting], "count_down", &mut args![log.at, 3, counter.at, h]);
    let x = instantiate(g);
    for rounds in [5, 1, 3] {
        store(&counter, rounds);
        run(x);
        let mut expected = vec![1];
        expected.extend([2, 3].repeat(rounds as usize));
        expected.push(9);
        assert_eq!(noted(&log), expected);
        assert_eq!(counter.read(), [0]);
    }
}

#[test]
fn an_if_selects_by_zero_and_a_switch_by_number() {
    let gpu = gpu();
    let (log, value) = (Buffer::<i32>::zeroed(64), Buffer::<u32>::zeroed(1));
    let shapes = [(CU_GRAPH_COND_TYPE_IF, 1), (CU_GRAPH_COND_TYPE_IF, 2), (CU_GRAPH_COND_TYPE_SWITCH, 4)];
    for (kind, size) in shapes {
        let g = graph();
        let h = condition(g, None);
        let choosing = kernel(&gpu, g, &[], "choose", &mut args![value.at, h]);
        let (_, bodies) = conditional(g, &[choosing], h, kind, size);
        for (i, body) in bodies.iter().enumerate() {
            kernel(&gpu, *body, &[], "note", &mut args![log.at, 10 + i as i32]);
        }
        let x = instantiate(g);
        for v in [0, 1, 2, 3, 4, u32::MAX] {
            store(&value, v);
            run(x);
            let body = match kind {
                CU_GRAPH_COND_TYPE_IF if v != 0 => Some(0),
                CU_GRAPH_COND_TYPE_IF => (size == 2).then_some(1),
                _ => (v < size).then_some(v as i32),
            };
            assert_eq!(noted(&log), body.map(|b| 10 + b).into_iter().collect::<Vec<_>>(), "{kind} {size} {v}");
        }
        unsafe {
            ok(cuGraphExecDestroy(x));
            ok(cuGraphDestroy(g));
        }
    }
}

#[test]
fn loops_nest_and_a_handle_of_the_outer_graph_serves_an_inner_node() {
    let gpu = gpu();
    let log = Buffer::<i32>::zeroed(64);
    let (outer, inner) = (Buffer::<i32>::new(&[3]), Buffer::<i32>::zeroed(1));
    let g = graph();
    let (h, k) = (condition(g, Some(1)), condition(g, None));
    let (_, bodies) = conditional(g, &[], h, CU_GRAPH_COND_TYPE_WHILE, 1);
    let body = bodies[0];
    let restart = kernel(&gpu, body, &[], "restart", &mut args![inner.at, 2, k]);
    let (node, inside) = conditional(body, &[restart], k, CU_GRAPH_COND_TYPE_WHILE, 1);
    kernel(&gpu, inside[0], &[], "count_down", &mut args![log.at, 2, inner.at, k]);
    // An else branch of a third level, whose condition is never set.
    let never = condition(inside[0], Some(0));
    let (_, branches) = conditional(inside[0], &[], never, CU_GRAPH_COND_TYPE_IF, 2);
    kernel(&gpu, branches[0], &[], "note", &mut args![log.at, 100]);
    let mut fill: CUgraphNode = null_mut();
    let word = Buffer::<u32>::zeroed(1);
    let set = CUDA_MEMSET_NODE_PARAMS { dst: word.at, pitch: 0, value: 77, elementSize: 4, width: 1, height: 1 };
    unsafe { ok(cuGraphAddMemsetNode(&mut fill, branches[1], null(), 0, &set, gpu.ctx)) };
    kernel(&gpu, body, &[node], "count_down", &mut args![log.at, 1, outer.at, h]);
    run(instantiate(g));
    assert_eq!(noted(&log), [2, 2, 1].repeat(3));
    assert_eq!((outer.read(), inner.read(), word.read()), (vec![0], vec![0], vec![77]));
}

#[test]
fn a_body_is_captured_and_a_conditional_node_stands_in_a_capture() {
    let gpu = gpu();
    let (log, counter) = (Buffer::<i32>::zeroed(64), Buffer::<i32>::new(&[4]));
    let s = stream();
    unsafe {
        // A global capture would forbid the other tests to allocate.
        let mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        ok(cuStreamBeginCapture_v2(s, mode));
        ok(gpu.launch_on(s, "note", [1; 3], [1; 3], 0, &mut args![log.at, 1]));
        let (mut status, mut id, mut g, mut tail, mut n) = (0, 0, null_mut(), null(), 0);
        ok(cuStreamGetCaptureInfo_v2(s, &mut status, &mut id, &mut g, &mut tail, &mut n));
        let h = condition(g, Some(1));
        let (mut node, bodies) = conditional(g, std::slice::from_raw_parts(tail, n), h, CU_GRAPH_COND_TYPE_WHILE, 1);
        ok(cuStreamUpdateCaptureDependencies(s, &mut node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
        ok(gpu.launch_on(s, "note", [1; 3], [1; 3], 0, &mut args![log.at, 9]));
        ok(cuStreamEndCapture(s, &mut g));
        ok(cuStreamBeginCaptureToGraph(s, bodies[0], null(), null(), 0, mode));
        ok(gpu.launch_on(s, "note", [1; 3], [1; 3], 0, &mut args![log.at, 2]));
        ok(gpu.launch_on(s, "count_down", [1; 3], [1; 3], 0, &mut args![log.at, 3, counter.at, h]));
        // The graph is the caller's already.
        ok(cuStreamEndCapture(s, null_mut()));
        assert_eq!(noted(&log), [0; 0], "capturing runs nothing");
        let x = instantiate(g);
        ok(cuGraphDestroy(g));
        ok(cuGraphLaunch(x, s));
        ok(cuStreamSynchronize(s));
        assert_eq!(noted(&log), [vec![1], [2, 3].repeat(4), vec![9]].concat());
        // As a child graph in another graph it may not be.
        ok(cuStreamBeginCapture_v2(s, mode));
        assert_eq!(cuGraphLaunch(x, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(cuStreamEndCapture(s, &mut g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

#[test]
fn a_conditional_node_has_type_edges_and_bodies_that_go_with_it() {
    let gpu = gpu();
    let log = Buffer::<i32>::zeroed(8);
    let g = graph();
    let h = condition(g, Some(1));
    let before = kernel(&gpu, g, &[], "note", &mut args![log.at, 1]);
    let (node, bodies) = conditional(g, &[before], h, CU_GRAPH_COND_TYPE_IF, 2);
    let after = kernel(&gpu, g, &[node], "note", &mut args![log.at, 2]);
    let inside = kernel(&gpu, bodies[0], &[], "note", &mut args![log.at, 3]);
    unsafe {
        let (mut kind, mut n, mut found) = (99, 1, null_mut());
        ok(cuGraphNodeGetType(node, &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_CONDITIONAL);
        ok(cuGraphNodeGetDependencies(node, &mut found, &mut n));
        assert_eq!((found, n), (before, 1));
        ok(cuGraphNodeGetDependentNodes(node, &mut found, &mut n));
        assert_eq!((found, n), (after, 1));
        ok(cuGraphGetNodes(g, null_mut(), &mut n));
        assert_eq!(n, 3, "a body's nodes are not the graph's");
        n = 1;
        ok(cuGraphGetNodes(bodies[0], &mut found, &mut n));
        assert_eq!((found, n), (inside, 1));
        let mut p: CUDA_KERNEL_NODE_PARAMS = std::mem::zeroed();
        ok(cuGraphKernelNodeGetParams_v2(inside, &mut p));
        assert_eq!((p.func, *(*p.kernelParams.add(1)).cast::<i32>()), (gpu.function("note"), 3));
        for (from, to) in [(inside, after), (before, inside), (node, inside)] {
            assert_eq!(cuGraphAddDependencies(g, &from, &to, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuGraphAddDependencies(bodies[0], &from, &to, 1), CUDA_ERROR_INVALID_VALUE);
        }
        assert_eq!(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
        ok(cuGraphDestroyNode(node));
        assert_eq!(cuGraphGetNodes(bodies[0], null_mut(), &mut n), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuGraphNodeGetType(inside, &mut kind), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuGraphNodeGetType(node, &mut kind), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn handles_and_nodes_are_checked() {
    let other = Gpu::bare();
    let gpu = gpu();
    let (g, strange) = (graph(), graph());
    unsafe {
        let mut h = 0;
        let create = |out, g, flags| cuGraphConditionalHandleCreate(out, g, gpu.ctx, 1, flags);
        assert_eq!(create(null_mut(), g, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(create(&mut h, null_mut(), 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(create(&mut h, g, 2), CUDA_ERROR_INVALID_VALUE);
        ok(create(&mut h, g, CU_GRAPH_COND_ASSIGN_DEFAULT));
        let sizes = [
            (CU_GRAPH_COND_TYPE_IF, 0),
            (CU_GRAPH_COND_TYPE_IF, 3),
            (CU_GRAPH_COND_TYPE_WHILE, 0),
            (CU_GRAPH_COND_TYPE_WHILE, 2),
            (CU_GRAPH_COND_TYPE_SWITCH, 0),
            (CU_GRAPH_COND_TYPE_SWITCH + 1, 1),
        ];
        for (kind, size) in sizes {
            assert_eq!(try_conditional(g, h, kind, size), CUDA_ERROR_INVALID_VALUE, "{kind} {size}");
        }
        let (kind, never) = (CU_GRAPH_COND_TYPE_WHILE, u64::MAX);
        assert_eq!(try_conditional(g, never, kind, 1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(try_conditional(strange, h, kind, 1), CUDA_ERROR_INVALID_VALUE, "of another graph");
        let (mut node, mut p) = (null_mut(), conditional_params(h, kind, 1));
        p.__bindgen_anon_1.conditional.ctx = other.ctx;
        assert_eq!(cuGraphAddNode_v2(&mut node, g, null(), null(), 0, &mut p), CUDA_ERROR_INVALID_VALUE);
        p.__bindgen_anon_1.conditional.ctx = gpu.ctx;
        assert_eq!(cuGraphAddNode_v2(null_mut(), g, null(), null(), 0, &mut p), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuGraphAddNode_v2(&mut node, g, null(), null(), 0, null_mut()), CUDA_ERROR_INVALID_VALUE);
        // Nothing of that has used the handle up; a node does.
        ok(cuGraphAddNode_v2(&mut node, g, null(), null(), 0, &mut p));
        assert_eq!(try_conditional(g, h, kind, 1), CUDA_ERROR_INVALID_VALUE, "twice");
        let body = *p.__bindgen_anon_1.conditional.phGraph_out;
        let inner = condition(body, None);
        assert_eq!(try_conditional(g, inner, kind, 1), CUDA_ERROR_INVALID_VALUE, "of a graph inside");
        assert_eq!(cuGraphNodeSetParams(node, &mut p), CUDA_ERROR_NOT_SUPPORTED);
        ok(try_conditional(body, inner, kind, 1));
        let x = instantiate(g);
        assert_eq!(cuGraphExecNodeSetParams(x, node, &mut p), CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(cuGraphNodeSetEnabled(x, node, 0), CUDA_ERROR_INVALID_VALUE);
        // One executable at a time, no clone, no child.
        assert_eq!(try_instantiate(g).0, CUDA_ERROR_INVALID_VALUE);
        ok(cuGraphExecDestroy(x));
        ok(cuGraphExecDestroy(instantiate(g)));
        let mut out = null_mut();
        assert_eq!(cuGraphClone(&mut out, g), CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(cuGraphAddChildGraphNode(&mut node, strange, null(), 0, g), CUDA_ERROR_NOT_SUPPORTED);
        // A handle without a node.
        let unused = condition(g, None);
        let (code, result, _) = try_instantiate(g);
        assert_eq!((code, result), (CUDA_ERROR_INVALID_VALUE, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED));
        ok(try_conditional(g, unused, kind, 1));
        instantiate(g);
        ok(cuGraphDestroy(g));
        assert_eq!(try_conditional(strange, unused, kind, 1), CUDA_ERROR_INVALID_VALUE, "of a graph that is gone");
        ok(cuGraphDestroy(strange));
    }
    drop(gpu);
    drop(other);
}

unsafe extern "C" fn nothing_to_do(_: *mut c_void) {}

#[test]
fn a_body_holds_only_what_a_device_can_do_by_itself() {
    let gpu = gpu();
    let (a, b) = (Buffer::<i32>::zeroed(4), Buffer::<i32>::new(&[5, 6, 7, 8]));
    let pageable = std::cell::Cell::new([0i32; 4]);
    unsafe {
        let mut e = null_mut();
        ok(cuEventCreate(&mut e, 0));
        let mut pinned = null_mut();
        ok(cuMemHostAlloc(&mut pinned, 16, 0));
        let copy = |to_type, to: u64| {
            let mut c: CUDA_MEMCPY3D = std::mem::zeroed();
            (c.srcMemoryType, c.srcDevice) = (CU_MEMORYTYPE_DEVICE, b.at);
            (c.dstMemoryType, c.dstDevice, c.dstHost) = (to_type, to, to as *mut c_void);
            (c.WidthInBytes, c.Height, c.Depth) = (16, 1, 1);
            c
        };
        type Add<'a> = &'a dyn Fn(CUgraph) -> CUresult;
        let add_copy = |g, c| cuGraphAddMemcpyNode(&mut null_mut(), g, null(), 0, &c, gpu.ctx);
        let host: Add = &|g| {
            let p = CUDA_HOST_NODE_PARAMS { fn_: Some(nothing_to_do), userData: null_mut() };
            cuGraphAddHostNode(&mut null_mut(), g, null(), 0, &p)
        };
        let record: Add = &|g| cuGraphAddEventRecordNode(&mut null_mut(), g, null(), 0, e);
        let wait: Add = &|g| cuGraphAddEventWaitNode(&mut null_mut(), g, null(), 0, e);
        let alloc: Add = &|g| {
            let mut p: CUDA_MEM_ALLOC_NODE_PARAMS = std::mem::zeroed();
            (p.bytesize, p.poolProps.allocType) = (64, CU_MEM_ALLOCATION_TYPE_PINNED);
            p.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
            cuGraphAddMemAllocNode(&mut null_mut(), g, null(), 0, &mut p)
        };
        let from_pageable: Add = &|g| add_copy(g, copy(CU_MEMORYTYPE_HOST, pageable.as_ptr() as u64));
        let to_device: Add = &|g| add_copy(g, copy(CU_MEMORYTYPE_DEVICE, a.at));
        let to_pinned: Add = &|g| add_copy(g, copy(CU_MEMORYTYPE_HOST, pinned as u64));
        let empty: Add = &|g| cuGraphAddEmptyNode(&mut null_mut(), g, null(), 0);
        let try_all = |deep: bool, add: Add| {
            let g = graph();
            let (_, bodies) = conditional(g, &[], condition(g, Some(1)), CU_GRAPH_COND_TYPE_IF, 1);
            if deep {
                // A child graph's nodes are held to the same.
                let child = graph();
                ok(add(child));
                ok(cuGraphAddChildGraphNode(&mut null_mut(), bodies[0], null(), 0, child));
            } else {
                ok(add(bodies[0]));
            }
            let (code, result, x) = try_instantiate(g);
            if code == CUDA_SUCCESS {
                run(x);
                ok(cuGraphExecDestroy(x));
            } else {
                assert_eq!(result, CUDA_GRAPH_INSTANTIATE_ERROR);
            }
            ok(cuGraphDestroy(g));
            code
        };
        for deep in [false, true] {
            for (i, add) in [host, record, wait, alloc, from_pageable].into_iter().enumerate() {
                assert_eq!(try_all(deep, add), CUDA_ERROR_INVALID_VALUE, "{i} {deep}");
            }
            for add in [to_device, to_pinned, empty] {
                ok(try_all(deep, add));
            }
        }
        assert_eq!(a.read(), [5, 6, 7, 8]);
        assert_eq!(std::slice::from_raw_parts(pinned.cast::<i32>(), 4), [5, 6, 7, 8]);
        assert_eq!(pageable.get(), [0; 4]);
        ok(cuMemFreeHost(pinned));
        ok(cuEventDestroy_v2(e));
    }
}

/// A graph of one conditional node that notes a number in its first body.
fn noting(gpu: &Gpu, log: &Buffer<i32>, default: u32, kind: u32, size: u32, what: i32) -> (CUgraph, CUgraphNode) {
    let g = graph();
    let (_, bodies) = conditional(g, &[], condition(g, Some(default)), kind, size);
    let node = kernel(gpu, bodies[0], &[], "note", &mut args![log.at, what]);
    (g, node)
}

#[test]
fn an_executable_takes_updates_of_bodies_and_defaults() {
    let gpu = gpu();
    let log = Buffer::<i32>::zeroed(8);
    let (kind, other) = (CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_SWITCH);
    let (g, node) = noting(&gpu, &log, 1, kind, 1, 5);
    let x = instantiate(g);
    unsafe {
        run(x);
        assert_eq!(noted(&log), [5]);
        let note = gpu.function("note");
        ok(cuGraphExecKernelNodeSetParams_v2(x, node, &kernel_params(note, &mut args![log.at, 6])));
        run(x);
        assert_eq!(noted(&log), [6]);
        ok(cuGraphNodeSetEnabled(x, node, 0));
        let mut on = 1;
        ok(cuGraphNodeGetEnabled(x, node, &mut on));
        assert_eq!(on, 0);
        run(x);
        assert_eq!(noted(&log), [0; 0]);
        let mut info: CUgraphExecUpdateResultInfo = std::mem::zeroed();
        for (default, expected) in [(1, vec![7]), (0, vec![])] {
            let (changed, _) = noting(&gpu, &log, default, kind, 1, 7);
            ok(cuGraphExecUpdate_v2(x, changed, &mut info));
            assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
            run(x);
            assert_eq!(noted(&log), expected, "the default of the graph it was updated from");
        }
        for (shape, result) in [
            ((kind, 2), CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED),
            ((other, 1), CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED),
        ] {
            let (changed, _) = noting(&gpu, &log, 1, shape.0, shape.1, 7);
            assert_eq!(cuGraphExecUpdate_v2(x, changed, &mut info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
            let (mut only, mut n) = (null_mut(), 1);
            ok(cuGraphGetNodes(changed, &mut only, &mut n));
            assert_eq!((info.result, info.errorNode), (result, only));
        }
        let (changed, inside) = noting(&gpu, &log, 1, kind, 1, 7);
        ok(cuGraphDestroyNode(inside));
        assert_eq!(cuGraphExecUpdate_v2(x, changed, &mut info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        let (mut only, mut n) = (null_mut(), 1);
        ok(cuGraphGetNodes(changed, &mut only, &mut n));
        assert_eq!((info.result, info.errorNode), (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, only));
        kernel(&gpu, changed, &[], "note", &mut args![log.at, 1]);
        assert_eq!(cuGraphExecUpdate_v2(x, changed, &mut info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        let (result, none) = (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, null_mut());
        assert_eq!((info.result, info.errorNode), (result, none), "another number of nodes");
    }
}

#[test]
fn other_streams_go_on_beside_a_loop() {
    let gpu = gpu();
    let word = Buffer::<u32>::zeroed(1);
    let g = graph();
    let h = condition(g, Some(1));
    let (_, bodies) = conditional(g, &[], h, CU_GRAPH_COND_TYPE_WHILE, 1);
    kernel(&gpu, bodies[0], &[], "until_set", &mut args![word.at, h]);
    let x = instantiate(g);
    let (looping, beside) = (stream(), stream());
    unsafe {
        ok(cuGraphLaunch(x, looping));
        assert_eq!(cuStreamQuery(looping), CUDA_ERROR_NOT_READY);
        ok(cuMemsetD32Async(word.at, 1, 1, beside));
        ok(cuStreamSynchronize(beside));
        ok(cuStreamSynchronize(looping));
    }
}

#[test]
fn an_endless_loop_ends_with_its_context() {
    let gpu = gpu();
    let g = graph();
    conditional(g, &[], condition(g, Some(1)), CU_GRAPH_COND_TYPE_WHILE, 1);
    let x = instantiate(g);
    let (looping, beside) = (stream(), stream());
    unsafe {
        ok(cuGraphLaunch(x, looping));
        ok(gpu.launch_on(beside, "stop", [1; 3], [1; 3], 0, &mut []));
        assert_eq!(cuStreamSynchronize(beside), CUDA_ERROR_LAUNCH_FAILED);
    }
    // Destroying the context waits for its streams.
}

#[test]
fn a_kernel_sets_handles_of_its_own_context_only() {
    let unknown: CUgraphConditionalHandle = u64::MAX;
    let mine = gpu();
    let g = graph();
    let h = condition(g, None);
    let one = Buffer::<c_uint>::new(&[1]);
    // Outside of graphs a kernel may set one too.
    ok(mine.launch("choose", 1, 1, 0, &mut args![one.at, h]));
    ok(mine.sync());
    for handle in [h, unknown] {
        let theirs = gpu();
        let one = Buffer::<c_uint>::new(&[1]);
        ok(theirs.launch("choose", 1, 1, 0, &mut args![one.at, handle]));
        assert_eq!(theirs.sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    ok(mine.sync());
    unsafe {
        ok(cuCtxSetCurrent(mine.ctx));
        ok(cuGraphDestroy(g));
    }
}
