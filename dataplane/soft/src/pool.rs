//! Stream-ordered memory pools. A pool here is bookkeeping: every allocation is an ordinary range. As with the driver,
//! a pool holds what was freed until somebody waits for a stream, an event or a context, and then gives back what is
//! beyond its threshold; a query is no such wait, and trimming takes only what was waited for.

// UNSAFETY: C entry points.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, get, handle, list, put, refuse};
use crate::device;
use crate::graph;
use crate::memory;
use crate::stream;
use crate::vram::{self, Kind, Range};
use crate::work::Work;

pub struct Pool {
    pub device: i32,
    is_default: bool,
    max_bytes: u64,
    /// Values of the attributes an application may set, by attribute number.
    settings: [AtomicU64; 5],
    used: AtomicU64,
    used_high: AtomicU64,
    held: Mutex<Held>,
    /// By device.
    access: Mutex<[CUmemAccess_flags; device::DEVICES_MAX]>,
}

/// Bytes that were freed and that a pool has not given back.
#[derive(Default, Clone, Copy)]
struct Held {
    /// Nobody has waited for anything since they were freed.
    unseen: u64,
    seen: u64,
}

pub static POOLS: Registry<Pool> = Registry::new();

impl Pool {
    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().expect("no panic happens under this lock")
    }

    fn reserved(&self) -> u64 {
        let held = self.held();
        self.used.load(Ordering::Relaxed) + held.unseen + held.seen
    }

    /// An allocation takes from what is held first. Under one lock, so that nobody who asks what is reserved meanwhile is
    /// told less.
    fn taken(&self, bytes: u64) {
        let mut held = self.held();
        let now = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.used_high.fetch_max(now, Ordering::Relaxed);
        let seen = held.seen.min(bytes);
        held.seen -= seen;
        held.unseen -= held.unseen.min(bytes - seen);
    }

    fn synchronized(&self) {
        let mut held = self.held();
        *held = Held { unseen: 0, seen: held.seen + held.unseen };
        let reserved = self.used.load(Ordering::Relaxed) + held.seen;
        if reserved > self.settings[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as usize].load(Ordering::Relaxed) {
            held.seen = 0;
        }
    }
}

/// The application has waited for a stream, an event or a context.
pub fn synchronized() {
    for pool in POOLS.all() {
        pool.synchronized();
    }
}

fn new_pool(device: i32, is_default: bool, max_bytes: u64) -> Arc<Pool> {
    let mut access = [CU_MEM_ACCESS_FLAGS_PROT_NONE; device::DEVICES_MAX];
    access[device as usize] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let p = Arc::new(Pool {
        device,
        is_default,
        max_bytes,
        settings: [0, 1, 1, 1, 0].map(AtomicU64::new),
        used: AtomicU64::new(0),
        used_high: AtomicU64::new(0),
        held: Mutex::default(),
        access: Mutex::new(access),
    });
    POOLS.add::<CUmemPoolHandle_st>(&p);
    p
}

fn default_pool(dev: i32) -> Arc<Pool> {
    static DEFAULTS: OnceLock<Vec<Arc<Pool>>> = OnceLock::new();
    DEFAULTS.get_or_init(|| (0..device::DEVICES_MAX as i32).map(|d| new_pool(d, true, 0)).collect())[dev as usize]
        .clone()
}

static CURRENT: [AtomicUsize; device::DEVICES_MAX] = [const { AtomicUsize::new(0) }; device::DEVICES_MAX];

fn current_pool(dev: i32) -> Arc<Pool> {
    let h = CURRENT[dev as usize].load(Ordering::Relaxed) as CUmemoryPool;
    POOLS.get(h).unwrap_or_else(|| default_pool(dev))
}

/// Whether a device may write to a range of a pool.
pub fn reaches(r: &Range, device: i32) -> bool {
    let allows = |p: Arc<Pool>| {
        let access = p.access.lock();
        access.is_ok_and(|access| access[device as usize] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    };
    POOLS.get(r.pool as CUmemoryPool).is_none_or(allows)
}

/// A range of a pool was freed.
pub fn returned(r: &Range) {
    let mut destroyed = destroyed();
    let Some(p) = POOLS.get(r.pool as CUmemoryPool).or_else(|| destroyed.get(&r.pool).cloned()) else { return };
    // Nor more, of memory that is used and held at once.
    let mut held = p.held();
    held.unseen += r.reach;
    let before = p.used.fetch_sub(r.reach, Ordering::Relaxed);
    drop(held);
    if before == r.reach {
        destroyed.remove(&r.pool);
    }
}

/// Destroyed pools of which there still is memory, by address: a new pool must not be taken for the one that memory
/// came from.
static DESTROYED: Mutex<BTreeMap<usize, Arc<Pool>>> = Mutex::new(BTreeMap::new());

fn destroyed() -> std::sync::MutexGuard<'static, BTreeMap<usize, Arc<Pool>>> {
    DESTROYED.lock().expect("no panic happens under this lock")
}

fn take(pool: &Arc<Pool>, bytes: usize, h: CUstream) -> R<u64> {
    let s = stream::resolve(h)?;
    if let Some(at) = graph::capture_alloc(&s, bytes)? {
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
            return stream::enqueue(&s, Work::Free(at)).map(drop);
        }
        let mut before = 0;
        vram::update(at, |r| {
            before = r.flags;
            r.flags |= memory::FREED;
        });
        if before & memory::FREED != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        stream::enqueue(&s, Work::Free(at)).map(drop).inspect_err(|_| {
            vram::update(at, |r| r.flags &= !memory::FREED);
        })
    }
}
