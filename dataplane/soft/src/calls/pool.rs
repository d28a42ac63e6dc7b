//! Stream-ordered memory pools.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::api::{R, api, get, handle, list, put};
use crate::graph::Work;
use crate::log::refuse;
use crate::pool::{CURRENT, POOLS, Pool, current_pool, default_pool, destroyed, new_pool};
use crate::vram::{self, Kind};
use crate::{capture, device, enqueue, memory, stream};

fn take(pool: &Arc<Pool>, bytes: usize, h: CUstream) -> R<u64> {
    let s = stream::resolve(h)?;
    if let Some(at) = capture::capture_alloc(&s, bytes)? {
        return Ok(at);
    }
    let used = pool.used.load(Ordering::Relaxed);
    if pool.max_bytes != 0 && used + bytes as u64 > pool.max_bytes {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let outcome = memory::allocate(&s.context, bytes as u64, Kind::Pool);
    let r = match outcome {
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            // Frees that are still queued may make room, as the driver's pools also wait for them.
            for s in s.context.every_stream() {
                s.wait_all();
            }
            memory::allocate(&s.context, bytes as u64, Kind::Pool)?
        }
        other => other?,
    };
    let id = Arc::as_ptr(pool) as usize;
    vram::update(r.base, |r| r.pool = id);
    pool.taken(r.reach);
    Ok(r.base)
}

api! {
    fn cuDeviceGetDefaultMemPool(out: *mut CUmemoryPool, dev: CUdevice) {
        put(out, handle(&default_pool(device::check(dev)?)))
    }
    fn cuMemGetDefaultMemPool(out: *mut CUmemoryPool, location: *mut CUmemLocation, _kind: CUmemAllocationType) {
        let l = get(location)?;
        if l.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            return refuse("cuMemGetDefaultMemPool", "a pool outside device memory");
        }
        put(out, handle(&default_pool(device::check(l.id)?)))
    }
    fn cuMemGetMemPool(out: *mut CUmemoryPool, location: *mut CUmemLocation, _kind: CUmemAllocationType) {
        let l = get(location)?;
        if l.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            return refuse("cuMemGetMemPool", "a pool outside device memory");
        }
        put(out, handle(&current_pool(device::check(l.id)?)))
    }
    fn cuDeviceGetMemPool(out: *mut CUmemoryPool, dev: CUdevice) {
        put(out, handle(&current_pool(device::check(dev)?)))
    }
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        let dev = device::check(dev)?;
        let p = POOLS.get(pool).filter(|p| p.device == dev).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        CURRENT[dev as usize].store(Arc::as_ptr(&p) as usize, Ordering::Relaxed);
        Ok(())
    }
    fn cuMemPoolCreate(out: *mut CUmemoryPool, props: *const CUmemPoolProps) {
        let p = get(props)?;
        if out.is_null() || p.allocType != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if p.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            return refuse("cuMemPoolCreate", "a pool outside device memory");
        }
        if p.handleTypes != CU_MEM_HANDLE_TYPE_NONE {
            return refuse("cuMemPoolCreate", "a shareable pool");
        }
        put(out, handle(&new_pool(device::check(p.location.id)?, false, p.maxSize as u64)))
    }
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        let p = POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if p.is_default {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        let mut destroyed = destroyed();
        POOLS.remove(pool);
        if p.used.load(Ordering::Relaxed) != 0 {
            destroyed.insert(Arc::as_ptr(&p) as usize, p);
        }
        Ok(())
    }
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) {
        let p = POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        capture::forbid_unsafe()?;
        let beyond = p.reserved().saturating_sub(keep as u64);
        let mut held = p.held();
        held.seen -= held.seen.min(beyond);
        Ok(())
    }
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        let p = POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match attr {
            1..=3 => put(value.cast::<c_int>(), p.settings[attr as usize].load(Ordering::Relaxed) as c_int),
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => put(value.cast::<u64>(), p.settings[4].load(Ordering::Relaxed)),
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => put(value.cast::<u64>(), p.reserved()),
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => put(value.cast::<u64>(), p.used.load(Ordering::Relaxed)),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                put(value.cast::<u64>(), p.used_high.load(Ordering::Relaxed))
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        let p = POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match attr {
            1..=3 => p.settings[attr as usize].store(get(value.cast::<c_int>())? as u64, Ordering::Relaxed),
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => p.settings[4].store(get(value.cast::<u64>())?, Ordering::Relaxed),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                p.used_high.store(p.used.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) {
        let p = POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut access = p.access.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        for d in list(map, count)? {
            access[device::check(d.location.id)? as usize] = d.flags;
        }
        Ok(())
    }
    fn cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) {
        let p = POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let of = device::check(get(location)?.id)?;
        let access = *p.access.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        put(flags, access[of as usize])
    }
    fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, h: CUstream) {
        if out.is_null() || bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let dev = stream::resolve(h)?.context.device;
        put(out, take(&current_pool(dev), bytes, h)?)
    }
    fn cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, h: CUstream) {
        if out.is_null() || bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, take(&POOLS.get(pool).ok_or(CUDA_ERROR_INVALID_VALUE)?, bytes, h)?)
    }
    fn cuMemFreeAsync(at: CUdeviceptr, h: CUstream) {
        let s = stream::resolve(h)?;
        if at == 0 {
            return Ok(());
        }
        let r = vram::find(at).filter(|r| r.base == at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !matches!(r.kind, Kind::Device | Kind::Pool | Kind::Managed) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // A node of a graph frees in every launch.
        if s.capture().is_some() || r.flags & memory::GRAPH_OWNED != 0 {
            return enqueue::enqueue(&s, Work::Free(at)).map(drop);
        }
        let mut before = 0;
        vram::update(at, |r| {
            before = r.flags;
            r.flags |= memory::FREED;
        });
        if before & memory::FREED != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        enqueue::enqueue(&s, Work::Free(at)).map(drop).inspect_err(|_| {
            vram::update(at, |r| r.flags &= !memory::FREED);
        })
    }
}
