//! Device memory: one reserved window of host addresses, and the table of what in it may be touched.
//!
//! A device pointer is a host address inside the window, so copies and kernels need no translation. The whole window
//! stays readable and writable; what makes an access legal is the table. An access that races with a free therefore
//! reads stale bytes instead of killing the process.

// UNSAFETY: reserves and recycles address space with mmap and madvise.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, RwLock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Pool,
    /// Pinned host memory made by `cuMemHostAlloc`.
    Host,
    /// The application's own memory, registered.
    Registered,
    Managed,
    /// A mapped part of a virtual address reservation.
    Mapped,
    /// Owned by the software GPU: module globals, arrays, the device heap.
    Internal,
}

#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub base: u64,
    pub bytes: u64,
    /// Bytes kernels may touch: `bytes` rounded to the allocation granularity, as hardware would not notice less.
    pub reach: u64,
    pub kind: Kind,
    pub device: i32,
    pub context: u64,
    pub flags: u32,
    pub id: u64,
    pub writable: bool,
    /// Handle of the pool it came from, or zero.
    pub pool: usize,
}

const GRANULE: u64 = 512;
const PAGE: u64 = 4096;

struct Space {
    free: BTreeMap<u64, u64>,
}

static SPACE: OnceLock<Mutex<Space>> = OnceLock::new();
static TABLE: RwLock<BTreeMap<u64, Range>> = RwLock::new(BTreeMap::new());
static GENERATION: AtomicU64 = AtomicU64::new(1);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn space() -> &'static Mutex<Space> {
    SPACE.get_or_init(|| {
        let mut free = BTreeMap::new();
        // A host with strict overcommit may refuse the large reservation; a smaller window still serves.
        for shift in (30..=38).rev() {
            let bytes = 1usize << shift;
            // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if at != libc::MAP_FAILED {
                let start = (at as u64).next_multiple_of(2 << 20);
                free.insert(start, at as u64 + bytes as u64 - start);
                break;
            }
        }
        Mutex::new(Space { free })
    })
}

/// Takes address space without making it legal to touch.
pub fn reserve(bytes: u64, align: u64, fixed: u64) -> Option<u64> {
    let mut s = space().lock().ok()?;
    let bytes = bytes.checked_next_multiple_of(GRANULE)?;
    let fits = |start: u64, len: u64| {
        let at = if fixed != 0 { fixed } else { start.checked_next_multiple_of(align)? };
        (at >= start && at.checked_add(bytes)? <= start + len).then_some(at)
    };
    let hit = s.free.iter().find_map(|(&start, &len)| Some((start, len, fits(start, len)?)));
    let hit = match hit {
        None if fixed != 0 => {
            drop(s);
            return reserve(bytes, align, 0);
        }
        other => other,
    };
    let (start, len, at) = hit?;
    s.free.remove(&start);
    if at > start {
        s.free.insert(start, at - start);
    }
    let end = start + len;
    if at + bytes < end {
        s.free.insert(at + bytes, end - at - bytes);
    }
    Some(at)
}

/// Gives address space and the pages behind it back.
pub fn release(at: u64, bytes: u64) {
    let mut bytes = bytes.next_multiple_of(GRANULE);
    let first = at.next_multiple_of(PAGE);
    let last = (at + bytes) & !(PAGE - 1);
    if last > first {
        // SAFETY: the pages lie wholly inside a range that reserve() handed out and nobody owns any more.
        unsafe { libc::madvise(first as *mut libc::c_void, (last - first) as usize, libc::MADV_DONTNEED) };
    }
    let Ok(mut s) = space().lock() else { return };
    let mut at = at;
    if let Some((&start, &len)) = s.free.range(..at).next_back()
        && start + len == at
    {
        s.free.remove(&start);
        at = start;
        bytes += len;
    }
    if let Some(len) = s.free.remove(&(at + bytes)) {
        bytes += len;
    }
    s.free.insert(at, bytes);
}

pub fn insert(mut r: Range) -> Range {
    r.id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut t) = TABLE.write() {
        t.insert(r.base, r);
    }
    GENERATION.fetch_add(1, Ordering::Release);
    r
}

pub fn remove(base: u64) -> Option<Range> {
    let r = TABLE.write().ok()?.remove(&base);
    // Pairs with the Acquire load in generation(): a cached range is dropped before its bytes are reused.
    GENERATION.fetch_add(1, Ordering::Release);
    r
}

pub fn update(base: u64, f: impl FnOnce(&mut Range)) -> bool {
    let Ok(mut t) = TABLE.write() else { return false };
    let hit = t.get_mut(&base).map(f).is_some();
    GENERATION.fetch_add(1, Ordering::Release);
    hit
}

pub fn find(at: u64) -> Option<Range> {
    let t = TABLE.read().ok()?;
    let (_, r) = t.range((Bound::Unbounded, Bound::Included(at))).next_back()?;
    (at - r.base < r.reach).then_some(*r)
}

/// Whether it lies in the host's memory, pinned or registered.
pub fn is_hosts(at: u64) -> bool {
    find(at).is_some_and(|r| matches!(r.kind, Kind::Host | Kind::Registered))
}

/// Whether any known range meets `[at, at + bytes)`.
pub fn overlaps(at: u64, bytes: u64) -> bool {
    let Ok(t) = TABLE.read() else { return false };
    t.range((Bound::Unbounded, Bound::Excluded(at.saturating_add(bytes))))
        .next_back()
        .is_some_and(|(_, r)| r.base + r.bytes > at)
}

/// Whether host memory that begins in a registration, or in pinned or managed memory, ends in it too, or in its pages.
pub fn ends_in_one_registration(at: u64, bytes: u64) -> bool {
    find(at).is_none_or(|r| match r.kind {
        Kind::Registered => bytes <= r.base + r.reach - at,
        Kind::Host | Kind::Managed => bytes <= (r.base + r.reach).next_multiple_of(4096) - at,
        _ => true,
    })
}

/// Whether every byte of `[at, at + bytes)` is inside known ranges; mapped ranges may adjoin.
pub fn covers(at: u64, bytes: u64) -> bool {
    let Some(end) = at.checked_add(bytes) else { return false };
    let mut at = at;
    while at < end {
        let Some(r) = find(at) else { return false };
        at = r.base + r.reach;
    }
    true
}

pub fn all(f: impl Fn(&Range) -> bool) -> Vec<Range> {
    TABLE.read().map(|t| t.values().filter(|r| f(r)).copied().collect()).unwrap_or_default()
}

pub fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Allocates and publishes a range. A granule of unused space after it catches overruns.
pub fn allocate(bytes: u64, kind: Kind, device: i32, context: u64) -> Option<Range> {
    let reach = bytes.max(1).checked_next_multiple_of(GRANULE)?;
    let align = if bytes >= 2 << 20 { 2 << 20 } else { GRANULE };
    let base = reserve(reach.checked_add(GRANULE)?, align, 0)?;
    Some(insert(Range { base, bytes, reach, kind, device, context, flags: 0, id: 0, writable: true, pool: 0 }))
}

pub fn free(base: u64) -> Option<Range> {
    let r = remove(base)?;
    release(r.base, r.reach + GRANULE);
    Some(r)
}
