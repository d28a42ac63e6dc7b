//! Stream-ordered memory pools. A pool here is bookkeeping: every allocation is an ordinary range. As with the driver,
//! a pool holds what was freed until somebody waits for a stream, an event or a context, and then gives back what is
//! beyond its threshold; a query is no such wait, and trimming takes only what was waited for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use orion_cuda::sys::*;

use crate::api::Registry;
use crate::device;
use crate::vram::Range;

pub struct Pool {
    pub device: i32,
    pub is_default: bool,
    pub max_bytes: u64,
    /// Values of the attributes an application may set, by attribute number.
    pub settings: [AtomicU64; 5],
    pub used: AtomicU64,
    pub used_high: AtomicU64,
    pub held: Mutex<Held>,
    /// By device.
    pub access: Mutex<[CUmemAccess_flags; device::DEVICES_MAX]>,
}

/// Bytes that were freed and that a pool has not given back.
#[derive(Default, Clone, Copy)]
pub struct Held {
    /// Nobody has waited for anything since they were freed.
    pub unseen: u64,
    pub seen: u64,
}

pub static POOLS: Registry<Pool> = Registry::new();

impl Pool {
    pub(crate) fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().expect("no panic happens under this lock")
    }

    pub(crate) fn reserved(&self) -> u64 {
        let held = self.held();
        self.used.load(Ordering::Relaxed) + held.unseen + held.seen
    }

    /// An allocation takes from what is held first. Under one lock, so that nobody who asks meanwhile what is reserved
    /// is told less.
    pub(crate) fn taken(&self, bytes: u64) {
        let mut held = self.held();
        let now = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.used_high.fetch_max(now, Ordering::Relaxed);
        let seen = held.seen.min(bytes);
        held.seen -= seen;
        held.unseen -= held.unseen.min(bytes - seen);
    }

    pub(crate) fn synchronized(&self) {
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

pub(crate) fn new_pool(device: i32, is_default: bool, max_bytes: u64) -> Arc<Pool> {
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

pub(crate) fn default_pool(dev: i32) -> Arc<Pool> {
    static DEFAULTS: OnceLock<Vec<Arc<Pool>>> = OnceLock::new();
    DEFAULTS.get_or_init(|| (0..device::DEVICES_MAX as i32).map(|d| new_pool(d, true, 0)).collect())[dev as usize]
        .clone()
}

pub(crate) static CURRENT: [AtomicUsize; device::DEVICES_MAX] = [const { AtomicUsize::new(0) }; device::DEVICES_MAX];

pub(crate) fn current_pool(dev: i32) -> Arc<Pool> {
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

pub(crate) fn destroyed() -> std::sync::MutexGuard<'static, BTreeMap<usize, Arc<Pool>>> {
    DESTROYED.lock().expect("no panic happens under this lock")
}
