//! Streams, events, memory, libraries and graphs, through the C functions.

mod common;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::*;
use orion_cuda::sys::{
    CU_EVENT_DISABLE_TIMING, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_GRAPH_EXEC_UPDATE_SUCCESS,
    CU_GRAPH_NODE_TYPE_KERNEL, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_NON_BLOCKING,
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY2D, CUDA_MEMSET_NODE_PARAMS, CUDA_SUCCESS,
    CUevent, CUgraph, CUgraphExecUpdateResultInfo, CUmemAccessDesc, CUmemAllocationProp, CUstream,
};
use orion_soft::calls::callback::cuLaunchHostFunc;
use orion_soft::calls::capture::{cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing};
use orion_soft::calls::context::cuCtxSynchronize;
use orion_soft::calls::copy::{cuMemcpy2D_v2, cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use orion_soft::calls::event::{cuEventCreate, cuEventElapsedTime_v2, cuEventQuery, cuEventRecord, cuEventSynchronize};
use orion_soft::calls::execution::cuLaunchKernel;
use orion_soft::calls::graph::{
    cuGraphAddHostNode, cuGraphAddKernelNode_v2, cuGraphAddMemsetNode, cuGraphCreate, cuGraphDestroy,
    cuGraphExecDestroy, cuGraphExecKernelNodeSetParams_v2, cuGraphExecUpdate_v2, cuGraphGetEdges, cuGraphGetNodes,
    cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphNodeGetType,
};
use orion_soft::calls::host_memory::{cuMemFreeHost, cuMemHostAlloc, cuMemHostRegister_v2, cuMemHostUnregister};
use orion_soft::calls::library::{
    cuKernelGetAttribute, cuKernelGetParamInfo, cuLibraryGetKernel, cuLibraryGetModule, cuLibraryLoadData,
    cuLibraryUnload,
};
use orion_soft::calls::memory::{cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2};
use orion_soft::calls::memset::{cuMemsetD8_v2, cuMemsetD32Async};
use orion_soft::calls::pointer::cuPointerGetAttribute;
use orion_soft::calls::pool::{cuMemAllocAsync, cuMemFreeAsync};
use orion_soft::calls::stream::{
    cuStreamCreate, cuStreamDestroy_v2, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};
use orion_soft::calls::virtual_memory::{
    cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemGetAllocationGranularity, cuMemMap, cuMemRelease,
    cuMemSetAccess, cuMemUnmap,
};

fn stream(flags: u32) -> CUstream {
    let mut s = null_mut();
    unsafe { ok(cuStreamCreate(&mut s, flags)) };
    s
}

fn event(flags: u32) -> CUevent {
    let mut e = null_mut();
    unsafe { ok(cuEventCreate(&mut e, flags)) };
    e
}

unsafe extern "C" fn wait_for(flag: *mut c_void) {
    let flag = unsafe { &*flag.cast::<AtomicBool>() };
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

unsafe extern "C" fn count(n: *mut c_void) {
    unsafe { &*n.cast::<AtomicU32>() }.fetch_add(1, Ordering::AcqRel);
}

fn pointer<T>(v: &T) -> *mut c_void {
    std::ptr::from_ref(v).cast_mut().cast()
}

#[test]
fn a_blocked_stream_is_not_ready_and_blocks_no_other() {
    let _g = Gpu::bare();
    let (a, b) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (gate, hits) = (AtomicBool::new(false), AtomicU32::new(0));
    let (before, after) = (event(0), event(0));
    unsafe {
        ok(cuEventRecord(before, a));
        ok(cuLaunchHostFunc(a, Some(wait_for), pointer(&gate)));
        ok(cuEventRecord(after, a));
        ok(cuLaunchHostFunc(b, Some(count), pointer(&hits)));
        ok(cuStreamSynchronize(b));
        assert_eq!(hits.load(Ordering::Acquire), 1);
        assert_eq!(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
        assert_eq!(cuEventQuery(after), CUDA_ERROR_NOT_READY);
        // b waits for a through the event.
        ok(cuStreamWaitEvent(b, after, 0));
        ok(cuLaunchHostFunc(b, Some(count), pointer(&hits)));
        assert_eq!(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
        gate.store(true, Ordering::Release);
        ok(cuStreamSynchronize(b));
        assert_eq!(hits.load(Ordering::Acquire), 2);
        ok(cuEventSynchronize(after));
        let mut ms = -1.0;
        ok(cuEventElapsedTime_v2(&mut ms, before, after));
        assert!(ms >= 0.0);
    }
}

#[test]
fn the_default_stream_orders_itself_with_blocking_streams() {
    let _g = Gpu::bare();
    let (blocking, free) = (stream(0), stream(CU_STREAM_NON_BLOCKING));
    let (gate, hits) = (AtomicBool::new(false), AtomicU32::new(0));
    unsafe {
        ok(cuLaunchHostFunc(blocking, Some(wait_for), pointer(&gate)));
        ok(cuLaunchHostFunc(null_mut(), Some(count), pointer(&hits)));
        ok(cuLaunchHostFunc(free, Some(count), pointer(&hits)));
        ok(cuStreamSynchronize(free));
        assert_eq!(hits.load(Ordering::Acquire), 1);
        assert_eq!(cuStreamQuery(null_mut()), CUDA_ERROR_NOT_READY);
        gate.store(true, Ordering::Release);
        ok(cuStreamSynchronize(null_mut()));
        assert_eq!(hits.load(Ordering::Acquire), 2);
    }
}

#[test]
fn memory_limit_answers_out_of_memory_and_comes_back() {
    let _g = Gpu::bare();
    unsafe {
        let (mut at, mut free, mut total) = (0, 0, 0);
        ok(cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!(cuMemAlloc_v2(&mut at, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
        ok(cuMemAlloc_v2(&mut at, 64 << 20));
        ok(cuMemFree_v2(at));
        assert_eq!(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(at, [0u8; 4].as_ptr().cast(), 4), CUDA_ERROR_INVALID_VALUE);
        ok(cuMemAllocAsync(&mut at, 1 << 20, null_mut()));
        ok(cuMemsetD32Async(at, 7, 16, null_mut()));
        let mut v = [0u32; 16];
        ok(cuMemcpyDtoH_v2(v.as_mut_ptr().cast(), at, 64));
        assert_eq!(v, [7; 16]);
        ok(cuMemFreeAsync(at, null_mut()));
        ok(cuCtxSynchronize());
        assert_eq!(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn pitched_copies_move_rectangles() {
    let _g = Gpu::bare();
    let src: Vec<u8> = (0..100).collect();
    let b = Buffer::<u8>::zeroed(512 * 4);
    unsafe {
        let mut c: CUDA_MEMCPY2D = std::mem::zeroed();
        c.srcMemoryType = CU_MEMORYTYPE_HOST;
        c.srcHost = src.as_ptr().cast();
        c.srcPitch = 10;
        c.srcXInBytes = 2;
        c.srcY = 3;
        c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        c.dstDevice = b.at;
        c.dstPitch = 512;
        c.WidthInBytes = 5;
        c.Height = 4;
        ok(cuMemcpy2D_v2(&c));
    }
    let v = b.read();
    for y in 0..4 {
        for x in 0..5 {
            assert_eq!(v[y * 512 + x], ((y + 3) * 10 + x + 2) as u8);
        }
    }
}

#[test]
fn pinned_memory_is_known_and_usable_by_kernels() {
    let g = Gpu::new();
    unsafe {
        let mut p = null_mut();
        ok(cuMemHostAlloc(&mut p, 4096, 0));
        let mut kind = 0u32;
        ok(cuPointerGetAttribute(pointer(&kind), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p as u64));
        kind = std::ptr::read_volatile(&kind);
        assert_eq!(kind, CU_MEMORYTYPE_HOST);
        ok(g.launch("poke", 1, 32, 0, &mut args![p as u64]));
        ok(g.sync());
        assert_eq!(*p.cast::<i32>().add(31), 1);
        ok(cuMemFreeHost(p));
        let mut own = vec![0i32; 64];
        ok(cuMemHostRegister_v2(own.as_mut_ptr().cast(), 256, 0));
        ok(g.launch("poke", 1, 64, 0, &mut args![own.as_ptr() as u64]));
        ok(g.sync());
        ok(cuMemHostUnregister(own.as_mut_ptr().cast()));
        assert_eq!(own, vec![1; 64]);
    }
}

#[test]
fn one_physical_allocation_shows_at_two_addresses() {
    let _g = Gpu::bare();
    unsafe {
        let mut props: CUmemAllocationProp = std::mem::zeroed();
        props.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        let mut n = 0;
        ok(cuMemGetAllocationGranularity(&mut n, &props, 0));
        let (mut at, mut h) = (0, 0);
        ok(cuMemAddressReserve(&mut at, 2 * n, 0, 0, 0));
        ok(cuMemCreate(&mut h, n, &props, 0));
        ok(cuMemMap(at, n, 0, h, 0));
        ok(cuMemMap(at + n as u64, n, 0, h, 0));
        assert_eq!(cuMemsetD8_v2(at, 1, 16), CUDA_ERROR_INVALID_VALUE);
        let access = CUmemAccessDesc { location: props.location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        ok(cuMemSetAccess(at, 2 * n, &access, 1));
        ok(cuMemRelease(h));
        ok(cuMemsetD8_v2(at, 9, 16));
        let mut v = [0u8; 16];
        ok(cuMemcpyDtoH_v2(v.as_mut_ptr().cast(), at + n as u64, 16));
        assert_eq!(v, [9; 16]);
        ok(cuMemUnmap(at, 2 * n));
        ok(cuMemAddressFree(at, 2 * n));
    }
}

#[test]
fn libraries_load_without_a_context_and_kernels_launch_as_functions() {
    unsafe {
        ok(orion_soft::calls::initialization::cuInit(0));
        let mut l = null_mut();
        let image = DEBUG.as_ptr().cast();
        ok(cuLibraryLoadData(&mut l, image, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
        let mut k = null_mut();
        ok(cuLibraryGetKernel(&mut k, l, c"recursion".as_ptr()));
        let (mut offset, mut bytes) = (9, 9);
        assert_eq!(cuKernelGetParamInfo(k, 0, &mut offset, &mut bytes), CUDA_ERROR_INVALID_CONTEXT);
        let mut m = null_mut();
        assert_eq!(cuLibraryGetModule(&mut m, l), CUDA_ERROR_INVALID_CONTEXT);
        let _g = Gpu::bare();
        ok(cuKernelGetParamInfo(k, 0, &mut offset, &mut bytes));
        assert_eq!((offset, bytes), (0, 8));
        assert_eq!(cuKernelGetParamInfo(k, 1, &mut offset, &mut bytes), CUDA_ERROR_INVALID_VALUE);
        let mut threads = 0;
        ok(cuKernelGetAttribute(&mut threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, 0));
        assert_eq!(threads, 1024);
        let o = Buffer::<i32>::zeroed(32);
        let mut at = o.at;
        let mut a = [arg(&mut at)];
        ok(cuLaunchKernel(k.cast(), 1, 1, 1, 32, 1, 1, 0, null_mut(), a.as_mut_ptr(), null_mut()));
        assert_eq!(o.read()[7], 13);
        ok(cuLibraryUnload(l));
    }
}

#[test]
fn explicit_graph_runs_in_order_and_takes_updates() {
    let g = Gpu::new();
    let b = Buffer::<i32>::zeroed(64);
    unsafe {
        let (mut graph, mut set, mut kernel, mut host) = (null_mut(), null_mut(), null_mut(), null_mut());
        ok(cuGraphCreate(&mut graph, 0));
        let fill = CUDA_MEMSET_NODE_PARAMS { dst: b.at, pitch: 0, value: 5, elementSize: 4, width: 64, height: 1 };
        ok(cuGraphAddMemsetNode(&mut set, graph, null(), 0, &fill, g.ctx));
        let mut at = b.at;
        let mut a = [arg(&mut at)];
        let mut p: CUDA_KERNEL_NODE_PARAMS = std::mem::zeroed();
        p.func = g.function("poke");
        (p.gridDimX, p.gridDimY, p.gridDimZ) = (1, 1, 1);
        (p.blockDimX, p.blockDimY, p.blockDimZ) = (32, 1, 1);
        p.kernelParams = a.as_mut_ptr();
        ok(cuGraphAddKernelNode_v2(&mut kernel, graph, &set, 1, &p));
        let hits = AtomicU32::new(0);
        let call = orion_cuda::sys::CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: pointer(&hits) };
        ok(cuGraphAddHostNode(&mut host, graph, &kernel, 1, &call));
        let mut n = 0;
        ok(cuGraphGetEdges(graph, null_mut(), null_mut(), &mut n));
        assert_eq!(n, 2);
        let mut kind = 99;
        ok(cuGraphNodeGetType(kernel, &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_KERNEL);
        let mut x = null_mut();
        ok(cuGraphInstantiateWithFlags(&mut x, graph, 0));
        ok(cuGraphLaunch(x, null_mut()));
        let v = b.read();
        assert!(v[..32].iter().all(|&v| v == 1) && v[32..].iter().all(|&v| v == 5));
        assert_eq!(hits.load(Ordering::Acquire), 1);
        p.blockDimX = 64;
        ok(cuGraphExecKernelNodeSetParams_v2(x, kernel, &p));
        ok(cuGraphLaunch(x, null_mut()));
        assert_eq!(b.read(), vec![1; 64]);
        let mut info: CUgraphExecUpdateResultInfo = std::mem::zeroed();
        ok(cuGraphExecUpdate_v2(x, graph, &mut info));
        assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
        ok(cuGraphLaunch(x, null_mut()));
        assert_eq!(b.read()[63], 5);
        ok(cuGraphExecDestroy(x));
        ok(cuGraphDestroy(graph));
    }
}

#[test]
fn capture_follows_events_across_streams() {
    let g = Gpu::new();
    let b = Buffer::<i32>::zeroed(64);
    let (s, t) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (fork, join) = (event(CU_EVENT_DISABLE_TIMING), event(CU_EVENT_DISABLE_TIMING));
    unsafe {
        ok(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        ok(cuMemsetD32Async(b.at, 3, 64, s));
        ok(cuEventRecord(fork, s));
        ok(cuStreamWaitEvent(t, fork, 0));
        ok(g.launch_on(t, "poke", [1, 1, 1], [16, 1, 1], 0, &mut args![b.at]));
        ok(g.launch_on(s, "poke", [1, 1, 1], [16, 1, 1], 0, &mut args![b.at + 128]));
        ok(cuEventRecord(join, t));
        ok(cuStreamWaitEvent(s, join, 0));
        let mut scratch = 0;
        ok(cuMemAllocAsync(&mut scratch, 4096, s));
        ok(cuMemsetD32Async(scratch, 1, 64, s));
        ok(cuMemFreeAsync(scratch, s));
        let mut status = 0;
        ok(cuStreamIsCapturing(t, &mut status));
        assert_eq!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        let mut graph: CUgraph = null_mut();
        ok(cuStreamEndCapture(s, &mut graph));
        assert_eq!(b.read(), vec![0; 64], "capturing runs nothing");
        let mut n = 0;
        ok(cuGraphGetNodes(graph, null_mut(), &mut n));
        assert_eq!(n, 6);
        let mut x = null_mut();
        ok(cuGraphInstantiateWithFlags(&mut x, graph, 0));
        ok(cuGraphDestroy(graph));
        for _ in 0..3 {
            ok(cuGraphLaunch(x, s));
        }
        ok(cuStreamSynchronize(s));
        let v = b.read();
        let one = |i: usize| i < 16 || (32..48).contains(&i);
        assert!(v.iter().enumerate().all(|(i, &v)| v == if one(i) { 1 } else { 3 }), "{v:?}");
        ok(cuGraphExecDestroy(x));
        // A stream that does not lead back spoils the capture.
        ok(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        ok(cuEventRecord(fork, s));
        ok(cuStreamWaitEvent(t, fork, 0));
        ok(cuMemsetD32Async(b.at, 3, 64, t));
        assert_eq!(cuStreamEndCapture(s, &mut graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        ok(cuStreamSynchronize(s));
    }
}

#[test]
fn a_stream_that_joined_a_capture_may_go_before_its_end() {
    let _g = Gpu::bare();
    let b = Buffer::<u32>::zeroed(2);
    let (s, fork, join) = (stream(CU_STREAM_NON_BLOCKING), event(0), event(0));
    for joins in [true, false] {
        let side = stream(CU_STREAM_NON_BLOCKING);
        unsafe {
            ok(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
            ok(cuEventRecord(fork, s));
            ok(cuStreamWaitEvent(side, fork, 0));
            ok(cuMemsetD32Async(b.at, 3, 2, side));
            ok(cuEventRecord(join, side));
            if joins {
                ok(cuStreamWaitEvent(s, join, 0));
            }
            ok(cuStreamDestroy_v2(side));
            ok(cuMemsetD32Async(b.at + 4, 4, 1, s));
            let mut graph: CUgraph = null_mut();
            let expected = if joins { CUDA_SUCCESS } else { CUDA_ERROR_STREAM_CAPTURE_UNJOINED };
            assert_eq!(cuStreamEndCapture(s, &mut graph), expected);
            if joins {
                let mut x = null_mut();
                ok(cuGraphInstantiateWithFlags(&mut x, graph, 0));
                ok(cuGraphLaunch(x, s));
                ok(cuStreamSynchronize(s));
                assert_eq!(b.read(), [3, 4]);
            }
        }
    }
}

#[test]
fn every_symbol_is_found_by_its_own_name() {
    let f = orion_soft::symbol("cuLaunchKernel").expect("exported");
    assert_eq!(f, cuLaunchKernel as *const c_void);
    assert!(orion_soft::symbol("cuTexRefCreate").is_none());
    assert_eq!(CUDA_SUCCESS, 0);
}
