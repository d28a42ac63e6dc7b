//! Memory in stream order, and the pools it comes from.

use std::ffi::c_void;
use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, zeroed};

facts! { pool:
    Context [
        memory_is_usable_in_its_stream,
        memory_is_usable_on_the_default_stream,
        memory_may_be_freed_without_a_stream,
        memory_knows_its_pool,
        freeing_twice_is_invalid_value.not_in_a_crowd("another may be given the freed address"),
        freeing_unknown_memory_is_invalid_value,
        what_a_capture_keeps_from_being_freed_can_be_freed_afterwards
            .not_in_a_crowd("others may be using the default stream"),
        the_threshold_can_be_set.not_in_a_crowd("it sets what holds for all"),
        use_is_accounted.not_in_a_crowd("it counts the memory of a pool of all"),
        a_new_one_gives_memory,
        trimming_succeeds,
        freed_memory_is_held_until_a_wait,
        a_query_in_a_loop_is_no_wait,
        a_stream_synchronize_gives_back_what_is_beyond_the_threshold,
        an_event_synchronize_gives_back_what_is_beyond_the_threshold,
        a_context_synchronize_gives_back_what_is_beyond_the_threshold,
        what_was_waited_for_can_be_trimmed,
        what_was_seen_by_queries_and_then_waited_for_can_be_trimmed,
        reuse_is_on_by_default,
        an_unknown_attribute_is_invalid_value,
        a_device_can_be_given_another.not_in_a_crowd("it sets what holds for all"),
        more_than_there_is_is_out_of_memory,
    ]
}

fn default_pool(cu: &Cuda) -> Get<CUmemoryPool> {
    let mut pool = null_mut();
    ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
    Ok(pool)
}

fn get(cu: &Cuda, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Get<u64> {
    let mut value = 0u64;
    ok!(cu.cuMemPoolGetAttribute(pool, attribute, as_void(&mut value)));
    Ok(value)
}

fn alloc(cu: &Cuda, bytes: usize, stream: CUstream) -> Get<CUdeviceptr> {
    let mut address = 0;
    ok!(cu.cuMemAllocAsync(&mut address, bytes, stream));
    Ok(address)
}

fn memory_is_usable_in_its_stream(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    for value in 1..20 {
        let address = alloc(cu, 1000, stream)?;
        ok!(cu.cuMemsetD32Async(address, value, 250, stream));
        let mut back = [0u32; 250];
        ok!(cu.cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), address, 1000, stream));
        ok!(cu.cuMemFreeAsync(address, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(back, [value; 250]);
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn memory_is_usable_on_the_default_stream(cu: &'static Cuda) -> Verdict {
    let address = alloc(cu, 4, null_mut())?;
    ok!(cu.cuMemsetD32_v2(address, 4, 1));
    same!(cu.word(address)?, 4);
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    Ok(())
}

fn memory_may_be_freed_without_a_stream(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    let address = alloc(cu, 4096, stream)?;
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuMemFree_v2(address));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn memory_knows_its_pool(cu: &'static Cuda) -> Verdict {
    let address = alloc(cu, 4096, null_mut())?;
    let mut pool: *mut c_void = null_mut();
    ok!(cu.cuPointerGetAttribute(as_void(&mut pool), CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    same!(pool, default_pool(cu)?.cast());
    let plain = cu.alloc(64)?;
    ok!(cu.cuPointerGetAttribute(as_void(&mut pool), CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain));
    holds!(pool.is_null(), "memory of no pool has one");
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    cu.free(plain)
}

fn freeing_twice_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = alloc(cu, 4096, null_mut())?;
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    Ok(())
}

fn freeing_unknown_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(0x1000, null_mut()));
    Ok(())
}

fn what_a_capture_keeps_from_being_freed_can_be_freed_afterwards(cu: &'static Cuda) -> Verdict {
    let (address, stream, mut graph) = (alloc(cu, 4096, null_mut())?, cu.blocking_stream()?, null_mut());
    ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    answers!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuMemFreeAsync(address, null_mut()));
    cu.cuStreamEndCapture(stream, &mut graph);
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn the_threshold_can_be_set(cu: &'static Cuda) -> Verdict {
    let pool = default_pool(cu)?;
    let (before, mut wanted) = (get(cu, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?, u64::MAX);
    ok!(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, as_void(&mut wanted)));
    same!(get(cu, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?, u64::MAX);
    wanted = before;
    ok!(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, as_void(&mut wanted)));
    Ok(())
}

fn use_is_accounted(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = (default_pool(cu)?, cu.stream()?);
    let before = get(cu, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    let address = alloc(cu, 1 << 20, stream)?;
    let during = get(cu, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    holds!(during >= before + (1 << 20), "{before} bytes in use before 1 MiB, {during} after");
    let reserved = get(cu, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    holds!(reserved >= during, "{during} bytes in use of {reserved} reserved");
    ok!(cu.cuMemFreeAsync(address, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(get(cu, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?, before);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn new_pool(cu: &Cuda) -> Get<CUmemoryPool> {
    let (mut pool, mut properties): (_, CUmemPoolProps) = (null_mut(), zeroed());
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    ok!(cu.cuMemPoolCreate(&mut pool, &properties));
    Ok(pool)
}

fn a_new_one_gives_memory(cu: &'static Cuda) -> Verdict {
    let (pool, stream, mut address) = (new_pool(cu)?, cu.stream()?, 0);
    ok!(cu.cuMemAllocFromPoolAsync(&mut address, 4096, pool, stream));
    ok!(cu.cuMemsetD32Async(address, 3, 1, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 3);
    ok!(cu.cuMemFreeAsync(address, stream));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuMemPoolDestroy(pool));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn trimming_succeeds(cu: &'static Cuda) -> Verdict {
    let pool = default_pool(cu)?;
    let address = alloc(cu, 1 << 20, null_mut())?;
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    ok!(cu.cuMemPoolTrimTo(pool, 0));
    Ok(())
}

/// A pool, its stream, and 1 MiB of it that was freed in the stream's order and is no longer in use.
fn with_freed_memory(cu: &Cuda, threshold: u64) -> Get<(CUmemoryPool, CUstream)> {
    let (pool, stream, mut address, mut threshold) = (new_pool(cu)?, cu.stream()?, 0, threshold);
    ok!(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, as_void(&mut threshold)));
    ok!(cu.cuMemAllocFromPoolAsync(&mut address, 1 << 20, pool, stream));
    ok!(cu.cuMemFreeAsync(address, stream));
    Ok((pool, stream))
}

fn reserved(cu: &Cuda, pool: CUmemoryPool) -> Get<u64> {
    get(cu, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
}

fn query_until_idle(cu: &Cuda, stream: CUstream) -> Verdict {
    loop {
        match cu.cuStreamQuery(stream) {
            CUDA_ERROR_NOT_READY => std::thread::yield_now(),
            code => {
                same!(code, CUDA_SUCCESS);
                return Ok(());
            }
        }
    }
}

fn end(cu: &Cuda, pool: CUmemoryPool, stream: CUstream) -> Verdict {
    ok!(cu.cuMemPoolDestroy(pool));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn freed_memory_is_held_until_a_wait(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, 0)?;
    let held = reserved(cu, pool)?;
    holds!(held >= 1 << 20, "{held} bytes reserved after a free in stream order, before any wait");
    end(cu, pool, stream)
}

fn a_query_in_a_loop_is_no_wait(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, 0)?;
    query_until_idle(cu, stream)?;
    let held = reserved(cu, pool)?;
    holds!(held >= 1 << 20, "{held} bytes reserved after queries");
    end(cu, pool, stream)
}

fn a_stream_synchronize_gives_back_what_is_beyond_the_threshold(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, 0)?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(reserved(cu, pool)?, 0);
    end(cu, pool, stream)
}

fn an_event_synchronize_gives_back_what_is_beyond_the_threshold(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, 0)?;
    let mut event = null_mut();
    ok!(cu.cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(event));
    same!(reserved(cu, pool)?, 0);
    ok!(cu.cuEventDestroy_v2(event));
    end(cu, pool, stream)
}

fn a_context_synchronize_gives_back_what_is_beyond_the_threshold(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, 0)?;
    ok!(cu.cuCtxSynchronize());
    same!(reserved(cu, pool)?, 0);
    end(cu, pool, stream)
}

fn what_was_waited_for_can_be_trimmed(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, u64::MAX)?;
    ok!(cu.cuStreamSynchronize(stream));
    let held = reserved(cu, pool)?;
    holds!(held >= 1 << 20, "{held} bytes reserved below the threshold");
    ok!(cu.cuMemPoolTrimTo(pool, 0));
    same!(reserved(cu, pool)?, 0);
    end(cu, pool, stream)
}

fn what_was_seen_by_queries_and_then_waited_for_can_be_trimmed(cu: &'static Cuda) -> Verdict {
    let (pool, stream) = with_freed_memory(cu, u64::MAX)?;
    query_until_idle(cu, stream)?;
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuMemPoolTrimTo(pool, 0));
    same!(reserved(cu, pool)?, 0);
    end(cu, pool, stream)
}

fn reuse_is_on_by_default(cu: &'static Cuda) -> Verdict {
    let pool = new_pool(cu)?;
    for attribute in [
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    ] {
        let mut value = 9i32;
        ok!(cu.cuMemPoolGetAttribute(pool, attribute, as_void(&mut value)));
        same!(value, 1);
    }
    same!(get(cu, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?, 0);
    ok!(cu.cuMemPoolDestroy(pool));
    Ok(())
}

fn an_unknown_attribute_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (pool, mut value) = (default_pool(cu)?, 0u64);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolGetAttribute(pool, 9999, as_void(&mut value)));
    Ok(())
}

fn a_device_can_be_given_another(cu: &'static Cuda) -> Verdict {
    let (pool, mut current, mut owner) = (new_pool(cu)?, null_mut(), null_mut());
    ok!(cu.cuDeviceSetMemPool(0, pool));
    ok!(cu.cuDeviceGetMemPool(&mut current, 0));
    same!(current, pool);
    let address = alloc(cu, 64, null_mut())?;
    ok!(cu.cuPointerGetAttribute(as_void(&mut owner), CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    same!(owner, pool);
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    ok!(cu.cuDeviceSetMemPool(0, default_pool(cu)?));
    ok!(cu.cuMemPoolDestroy(pool));
    Ok(())
}

fn more_than_there_is_is_out_of_memory(cu: &'static Cuda) -> Verdict {
    let (mut free, mut total, mut address) = (0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    answers!(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&mut address, total * 2, null_mut()));
    let address = alloc(cu, 64, null_mut())?;
    ok!(cu.cuMemFreeAsync(address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    Ok(())
}
