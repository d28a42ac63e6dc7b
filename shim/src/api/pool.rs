//! Stream-ordered allocation and its pools.
//!
//! A pool has one handle for the whole session, also the default ones, which the worker looks up when they are
//! first asked for. Which pool is current on a device is known here.

// UNSAFETY: reads and writes values through the application's pointers.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::field::{Existing, Ordinal, Size};
use orion_wire::message::pool::{DeviceGetDefaultMemPool, DeviceSetMemPool, MemAllocAsync, MemAllocAsyncReply};
use orion_wire::message::pool::{MemAllocFromPoolAsync, MemAllocFromPoolAsyncReply, MemFreeAsync, MemPoolCreate};
use orion_wire::message::pool::{MemPoolDestroy, MemPoolGetAttribute, MemPoolGetAttributeReply, MemPoolSetAttribute};

use crate::answer::{code, posted, write};
use crate::objects::capture;
use crate::objects::stream::at_home;
use crate::session::attached::session;
use crate::session::call::{call, give, post};
use crate::session::route::{apart, of_device};
use crate::state::address_map::{self, Range};
use crate::state::context;
use crate::state::process::state;

fn checked(dev: CUdevice) -> Result<u32, CUresult> {
    session()?;
    u32::try_from(dev).ok().filter(|d| (*d as usize) < state().devices().devices.len()).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

fn default_pool(device: u32) -> Result<u64, CUresult> {
    if let Some(known) = state().pools.pools(|p| p.defaults.get(&device).copied()) {
        return Ok(known);
    }
    let handle = of_device(device, || {
        let handle = state().handles.reserve(Kind::MemPool);
        let q = DeviceGetDefaultMemPool { pool: handle.into(), device: Ordinal(device as i32) };
        let answer = call(DeviceGetDefaultMemPool::OP, |w| q.encode(w), |_| Ok(handle));
        crate::objects::handles::made(handle, answer)
    })?;
    // Two threads may have asked at once: the first answer stays, because handles are compared.
    Ok(state().pools.pools(|p| *p.defaults.entry(device).or_insert(handle.0)))
}

fn current_pool(device: u32) -> Result<u64, CUresult> {
    match state().pools.pools(|p| p.current.get(&device).copied()) {
        Some(pool) => Ok(pool),
        None => default_pool(device),
    }
}

/// Whether a handle names a pool that exists.
fn exists(pool: CUmemoryPool) -> Result<u64, CUresult> {
    let word = pool as u64;
    let known = state().pools.pools(|p| p.created.contains_key(&word) || p.defaults.values().any(|d| *d == word));
    if known { Ok(word) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn allocate(bytes: usize, pool: Option<u64>, stream: CUstream) -> Result<CUdeviceptr, CUresult> {
    at_home(stream, || allocate_there(bytes, pool, stream))
}

fn allocate_there(bytes: usize, pool: Option<u64>, stream: CUstream) -> Result<CUdeviceptr, CUresult> {
    session()?;
    let device = context::current_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if bytes == 0 {
        return Ok(0);
    }
    let (size, named) = (Size::of(bytes), Existing(stream as u64));
    let ask = || match pool {
        None => {
            let q = MemAllocAsync { bytes: size, stream: named };
            Ok(call(MemAllocAsync::OP, |w| q.encode(w), MemAllocAsyncReply::decode)?.address)
        }
        Some(pool) => {
            let q = MemAllocFromPoolAsync { bytes: size, stream: named, pool: Existing(pool) };
            Ok(call(MemAllocFromPoolAsync::OP, |w| q.encode(w), MemAllocFromPoolAsyncReply::decode)?.address)
        }
    };
    let give_back = |base| {
        let q = MemFreeAsync { address: ClaimedDevice::new(base), stream: named };
        post(MemFreeAsync::OP, |w| q.encode(w));
    };
    let base = apart(ask, |base| (*base, bytes as u64), give_back)?;
    let (owner, device) = match pool {
        Some(pool) => (pool, state().pools.pools(|p| p.created.get(&pool).copied()).unwrap_or(device)),
        None => (current_pool(device)?, device),
    };
    let kind = if capture::capturing(stream) { address_map::MemoryKind::Graph } else { address_map::MemoryKind::Pool };
    let mut range = Range::new(base, bytes as u64, kind, 0, device);
    range.owner = owner;
    state().addresses.insert(range);
    Ok(base)
}

/// # Safety
/// As CUDA's `cuMemAllocAsync`.
pub unsafe fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { write(out, allocate(bytes, None, stream)) }
}

/// # Safety
/// As CUDA's `cuMemAllocFromPoolAsync`.
pub unsafe fn cuMemAllocFromPoolAsync(
    out: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let answer = exists(pool).and_then(|pool| allocate(bytes, Some(pool), stream));
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemFreeAsync(base: CUdeviceptr, stream: CUstream) -> CUresult {
    code((|| {
        session()?;
        if (stream as u64) <= 2 && context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if base == 0 {
            return Ok(());
        }
        capture::check_stream(stream)?;
        // The next launch of its graph allocates it again.
        let is_of_graph = |r: Range| r.base == base && r.kind == address_map::MemoryKind::Graph;
        let gone = match state().addresses.find(base).is_some_and(is_of_graph) {
            true => None,
            false => {
                let freeable =
                    |r: &Range| matches!(r.kind, address_map::MemoryKind::Pool | address_map::MemoryKind::Device);
                Some(state().addresses.remove_if(base, freeable).ok_or(CUDA_ERROR_INVALID_VALUE)?)
            }
        };
        let q = MemFreeAsync { address: ClaimedDevice::new(base), stream: Existing(stream as u64) };
        posted(at_home(stream, || give(MemFreeAsync::OP, |w| q.encode(w)))).inspect_err(|_| {
            // What a capture forbids has not happened.
            gone.into_iter().for_each(|range| state().addresses.insert(range));
        })
    })())
}

/// Whether an attribute's value has 64 bits, not 32.
fn is_wide(attribute: CUmemPool_attribute) -> Result<bool, CUresult> {
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Ok(false),
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        | CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        | CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        | CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        | CU_MEMPOOL_ATTR_USED_MEM_HIGH => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// # Safety
/// As CUDA's `cuMemPoolSetAttribute`.
pub unsafe fn cuMemPoolSetAttribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    code((|| {
        session()?;
        let pool = exists(pool)?;
        let is_wide = is_wide(attribute)?;
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null; the attribute says how wide the value is.
        let value = unsafe { if is_wide { value.cast::<u64>().read() } else { value.cast::<u32>().read() as u64 } };
        let q = MemPoolSetAttribute { pool: Existing(pool), attribute, value };
        call(MemPoolSetAttribute::OP, |w| q.encode(w), |_| Ok(()))
    })())
}

/// # Safety
/// As CUDA's `cuMemPoolGetAttribute`.
pub unsafe fn cuMemPoolGetAttribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    let answer = (|| {
        session()?;
        let pool = exists(pool)?;
        is_wide(attribute)?;
        let q = MemPoolGetAttribute { pool: Existing(pool), attribute };
        Ok(call(MemPoolGetAttribute::OP, |w| q.encode(w), MemPoolGetAttributeReply::decode)?.value)
    })();
    // SAFETY: the caller's promise; the attribute says how wide the value is.
    unsafe {
        match is_wide(attribute) {
            Ok(true) => write(value.cast::<u64>(), answer),
            _ => write(value.cast::<u32>(), answer.map(|v| v as u32)),
        }
    }
}

/// # Safety
/// As CUDA's `cuMemPoolCreate`.
pub unsafe fn cuMemPoolCreate(out: *mut CUmemoryPool, props: *const CUmemPoolProps) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() || props.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, valid by the caller's promise.
        let p = unsafe { props.read() };
        only_device_memory(&p.location, p.allocType)?;
        let device = checked(p.location.id).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let handle = of_device(device, || {
            let handle = state().handles.reserve(Kind::MemPool);
            let q = MemPoolCreate {
                pool: handle.into(),
                allocation_type: p.allocType,
                handle_types: p.handleTypes,
                device: Ordinal(device as i32),
                bytes_max: Size::of(p.maxSize),
                usage: p.usage,
            };
            crate::objects::handles::made(handle, call(MemPoolCreate::OP, |w| q.encode(w), |_| Ok(handle)))
        })?;
        state().pools.pools(|all| all.created.insert(handle.0, device));
        Ok(handle.0 as CUmemoryPool)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// Pools of host or managed memory would hand out addresses of the GPU's host.
fn only_device_memory(location: &CUmemLocation, kind: CUmemAllocationType) -> Result<(), CUresult> {
    if kind == CU_MEM_ALLOCATION_TYPE_INVALID || kind > CU_MEM_ALLOCATION_TYPE_MANAGED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if location.type_ == CU_MEM_LOCATION_TYPE_DEVICE && kind == CU_MEM_ALLOCATION_TYPE_PINNED {
        return Ok(());
    }
    crate::say!("memory pools are forwarded for device memory only (not for host or managed memory)");
    Err(CUDA_ERROR_NOT_SUPPORTED)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult {
    code((|| {
        session()?;
        let word = pool as u64;
        if !state().pools.pools(|p| p.created.contains_key(&word)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        posted(post(MemPoolDestroy::OP, |w| MemPoolDestroy { pool: Existing(word) }.encode(w)))?;
        state().pools.pools(|p| {
            p.current.retain(|_, current| *current != word);
            p.created.remove(&word);
        });
        crate::objects::handles::release(Handle(word));
        Ok(())
    })())
}

/// # Safety
/// As CUDA's `cuDeviceGetDefaultMemPool`.
pub unsafe fn cuDeviceGetDefaultMemPool(out: *mut CUmemoryPool, dev: CUdevice) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, checked(dev).and_then(default_pool).map(|p| p as CUmemoryPool)) }
}

/// # Safety
/// As CUDA's `cuDeviceGetMemPool`.
pub unsafe fn cuDeviceGetMemPool(out: *mut CUmemoryPool, dev: CUdevice) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, checked(dev).and_then(current_pool).map(|p| p as CUmemoryPool)) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> CUresult {
    code((|| {
        let device = checked(dev)?;
        let pool = exists(pool)?;
        let q = DeviceSetMemPool { device: Ordinal(device as i32), pool: Existing(pool) };
        call(DeviceSetMemPool::OP, |w| q.encode(w), |_| Ok(()))?;
        state().pools.pools(|p| {
            if p.defaults.get(&device) == Some(&pool) {
                p.current.remove(&device)
            } else {
                p.current.insert(device, pool)
            }
        });
        Ok(())
    })())
}

/// The device that a location names.
///
/// # Safety
/// `location` is null or valid for a read.
unsafe fn located(location: *const CUmemLocation, kind: CUmemAllocationType) -> Result<u32, CUresult> {
    session()?;
    if location.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, valid by the contract.
    let location = unsafe { location.read() };
    only_device_memory(&location, kind)?;
    checked(location.id)
}

/// # Safety
/// As CUDA's `cuMemGetDefaultMemPool`.
pub unsafe fn cuMemGetDefaultMemPool(
    out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { located(location, kind) }.and_then(default_pool);
    // SAFETY: the caller's promise.
    unsafe { write(out, answer.map(|p| p as CUmemoryPool)) }
}

/// # Safety
/// As CUDA's `cuMemGetMemPool`.
pub unsafe fn cuMemGetMemPool(
    out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { located(location, kind) }.and_then(current_pool);
    // SAFETY: the caller's promise.
    unsafe { write(out, answer.map(|p| p as CUmemoryPool)) }
}

/// # Safety
/// As CUDA's `cuMemSetMemPool`.
pub unsafe fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) -> CUresult {
    // SAFETY: the caller's promise.
    match unsafe { located(location, kind) } {
        // SAFETY: no promise is needed.
        Ok(device) => unsafe { cuDeviceSetMemPool(device as CUdevice, pool) },
        Err(code) => code,
    }
}
