//! What lies at which address: the session's device memory, pinned and registered host memory.
//!
//! Device addresses are the driver's own, so nothing here translates; the map answers "which side is this
//! pointer?" and the attribute questions, and keeps this process from placing something else at a device's
//! address.

// UNSAFETY: reserves address space.

use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use orion_wire::record::HeapRange;

use crate::state::lock::{Lock, Rank, Shared};

const READ_WRITE: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// `cuMemAllocAsync` and its like.
    Pool,
    /// A graph's allocation node: it has its address for as long as the graph may run, however often it is freed.
    Graph,
    /// `cuMemMap`.
    Vmm,
    ModuleGlobal,
    /// A `__managed__` one: the host has it at the same address.
    ManagedVariable,
    /// `cuIpcOpenMemHandle`.
    Ipc,
    /// `cuMemHostAlloc`: pages of the session's heap.
    PinnedHost,
    /// `cuMemAllocManaged`: as pinned memory, to be freed as device memory is.
    Managed,
    /// `cuMemHostRegister`: the application's memory. `device_pointer` is 0 where the GPU cannot reach it.
    RegisteredHost,
    /// As above, of a file that others map too: the worker has mapped it where it lies here.
    RegisteredFile,
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub base: u64,
    pub bytes: u64,
    pub kind: MemoryKind,
    /// Handle of the context it was made in; 0 where it belongs to none (pools, VMM).
    pub context: u64,
    pub device: u32,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`: no two allocations of the process share one.
    pub id: u64,
    /// As given to the allocating function.
    pub flags: u32,
    /// The pool it came from, the generic allocation mapped here, where in the heap it lies, or where the worker's
    /// mapping of the file begins.
    pub owner: u64,
    /// Where the GPU sees `base`; 0 where it does not.
    pub device_pointer: u64,
    /// `CUmemAccess_flags` of its own device.
    pub access: u32,
    pub sync_memops: bool,
    /// Host memory that was asked for as mapped. Kernels reach all that is pinned, but by an address that they find in
    /// memory only programs that ask for this hand it to them.
    pub is_mapped: bool,
    /// The pages that were moved onto the heap for it, of registered memory; else none.
    pub moved: HeapRange,
}

impl Range {
    pub fn new(base: u64, bytes: u64, kind: MemoryKind, context: u64, device: u32) -> Range {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let device_pointer = if kind == MemoryKind::RegisteredHost { 0 } else { base };
        Range {
            base,
            bytes,
            kind,
            context,
            device,
            id,
            flags: 0,
            owner: 0,
            device_pointer,
            access: READ_WRITE,
            sync_memops: false,
            is_mapped: false,
            moved: HeapRange { offset: 0, bytes: 0 },
        }
    }

    /// Memory of the GPU's, by addresses of the GPU's.
    pub fn is_device(&self) -> bool {
        !matches!(self.kind, MemoryKind::PinnedHost | MemoryKind::Managed) && !self.is_registered()
    }

    pub fn is_managed(&self) -> bool {
        matches!(self.kind, MemoryKind::Managed | MemoryKind::ManagedVariable)
    }

    /// What `cuMemHostAlloc` and `cuMemHostRegister` have made.
    pub fn is_host(&self) -> bool {
        self.kind == MemoryKind::PinnedHost || self.is_registered()
    }

    pub fn is_registered(&self) -> bool {
        matches!(self.kind, MemoryKind::RegisteredHost | MemoryKind::RegisteredFile)
    }

    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    pub fn end(&self) -> u64 {
        self.base + self.bytes
    }

    /// Bytes from `address` to the end of the allocation.
    pub fn bytes_from(&self, address: u64) -> u64 {
        self.end() - address
    }
}

pub struct AddressMap {
    /// Between these lies all host memory that was ever mapped: the first byte, and behind the last.
    host_first: AtomicU64,
    host_end: AtomicU64,
    pub ranges: Shared<BTreeMap<u64, Range>>,
    /// Address space that this module holds, as merged `start -> end`.
    pub reserved: Lock<BTreeMap<u64, u64>>,
}

impl AddressMap {
    pub const fn new() -> AddressMap {
        AddressMap {
            host_first: AtomicU64::new(u64::MAX),
            host_end: AtomicU64::new(0),
            ranges: Shared::new(Rank::Leaf, BTreeMap::new()),
            reserved: Lock::new(Rank::Leaf, BTreeMap::new()),
        }
    }

    /// Where mapped host memory may lie: the first address, and how many bytes from there on; none if there was never
    /// any.
    pub fn mapped_bounds(&self) -> (u64, u64) {
        // Relaxed: whoever has an address of it was told so by other means.
        let first = self.host_first.load(Ordering::Relaxed);
        (first, self.host_end.load(Ordering::Relaxed).saturating_sub(first))
    }

    /// The allocation that `address` lies in.
    pub fn find(&self, address: u64) -> Option<Range> {
        let ranges = self.ranges.read();
        let (_, range) = ranges.range(..=address).next_back()?;
        range.contains(address).then_some(*range)
    }

    /// Some allocation that has bytes in `[base, base + bytes)`.
    pub fn overlapping(&self, base: u64, bytes: u64) -> Option<Range> {
        let ranges = self.ranges.read();
        let (_, range) = ranges.range(..base.saturating_add(bytes)).next_back()?;
        (range.end() > base).then_some(*range)
    }

    /// Whether an allocation that `which` accepts has bytes in `[base, base + bytes)`.
    pub fn any_overlapping(&self, base: u64, bytes: u64, which: impl Fn(&Range) -> bool) -> bool {
        let ranges = self.ranges.read();
        // None overlaps another, so the first that ends before has none behind it that does not.
        let mut below = ranges.range(..base.saturating_add(bytes)).rev().take_while(|(_, r)| r.end() > base);
        below.any(|(_, r)| which(r))
    }

    /// Whether `address` is device memory of this session.
    pub fn is_device(&self, address: u64) -> bool {
        self.find(address).is_some_and(|r| r.is_device())
    }

    /// Records device memory at `base` and keeps the addresses free in this process.
    pub fn insert_device(&self, base: u64, bytes: u64, kind: MemoryKind, context: u64, device: u32) {
        self.insert(Range::new(base, bytes, kind, context, device));
    }

    pub fn insert(&self, range: Range) {
        if range.bytes == 0 || range.base.checked_add(range.bytes).is_none() {
            return;
        }
        if range.is_device() {
            self.reserve_blocks(range.base, range.bytes);
        } else if range.is_mapped {
            self.host_first.fetch_min(range.base, Ordering::Relaxed);
            self.host_end.fetch_max(range.end(), Ordering::Relaxed);
        }
        let mut ranges = self.ranges.write();
        forget_overlapping(&mut ranges, range.base, range.end());
        ranges.insert(range.base, range);
    }

    /// Forgets the allocation that begins at `base`. The addresses stay reserved: the driver gives them out again.
    pub fn remove(&self, base: u64) -> Option<Range> {
        self.ranges.write().remove(&base)
    }

    /// As [`remove`], if the allocation is one that `which` accepts.
    pub fn remove_if(&self, base: u64, which: impl FnOnce(&Range) -> bool) -> Option<Range> {
        let mut ranges = self.ranges.write();
        if !which(ranges.get(&base)?) {
            return None;
        }
        ranges.remove(&base)
    }

    /// Forgets every allocation inside `[base, base + bytes)`, if `which` accepts all of them, and answers what there
    /// was; nothing, and nothing is forgotten, if not.
    pub fn remove_inside_if(&self, base: u64, bytes: u64, which: impl Fn(&Range) -> bool) -> Option<Vec<Range>> {
        let mut ranges = self.ranges.write();
        let end = base.saturating_add(bytes);
        let inside: Vec<Range> = ranges.range(base..end).map(|(_, r)| *r).filter(|r| r.end() <= end).collect();
        if !inside.iter().all(which) {
            return None;
        }
        for range in &inside {
            ranges.remove(&range.base);
        }
        Some(inside)
    }

    /// The driver has given out these addresses.
    pub fn given_anew(&self, base: u64, bytes: u64) {
        let mut ranges = self.ranges.write();
        forget_overlapping(&mut ranges, base, base.saturating_add(bytes));
    }

    /// Changes what is known of the allocation that `address` lies in; false if there is none.
    pub fn update(&self, address: u64, change: impl FnOnce(&mut Range)) -> bool {
        let mut ranges = self.ranges.write();
        match ranges.range_mut(..=address).next_back() {
            Some((_, range)) if range.contains(address) => {
                change(range);
                true
            }
            _ => false,
        }
    }

    /// A context was destroyed or reset: its device memory is gone.
    pub fn forget_context(&self, context: u64) {
        let mut ranges = self.ranges.write();
        ranges.retain(|_, r| {
            let is_the_context_s = matches!(
                r.kind,
                MemoryKind::Device | MemoryKind::ModuleGlobal | MemoryKind::ManagedVariable | MemoryKind::Ipc
            );
            !(r.context == context && is_the_context_s)
        });
    }

    fn reserve_blocks(&self, base: u64, bytes: u64) {
        let start = base / BLOCK * BLOCK;
        let Some(end) = (base + bytes).checked_next_multiple_of(BLOCK) else { return };
        if self.reserve(start, end - start).is_ok() {
            return;
        }
        // Something of the application's is in a block; perhaps not in the allocation itself.
        let start = base / PAGE * PAGE;
        let end = (base + bytes).next_multiple_of(PAGE);
        if let Err(taken) = self.reserve(start, end - start) {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                crate::say!(
                    "device memory at {base:#x} ({bytes} bytes) overlaps memory of this process at {taken:#x}; \
                     a pointer into the overlap is taken for device memory"
                )
            });
        }
    }

    /// Whether all of these addresses are kept for the device.
    pub fn is_reserved(&self, start: u64, bytes: u64) -> bool {
        gaps(&self.reserved.lock(), start, start + bytes).is_empty()
    }

    /// Keeps `[start, start + bytes)` free of mappings of this process. What is already held is fine; the first
    /// address that somebody else uses is the error, and nothing new stays held then.
    pub fn reserve(&self, start: u64, bytes: u64) -> Result<(), u64> {
        let end = start.checked_add(bytes).ok_or(start)?;
        let mut reserved = self.reserved.lock();
        let gaps = gaps(&reserved, start, end);
        if gaps.is_empty() {
            return Ok(());
        }
        for (i, &(from, to)) in gaps.iter().enumerate() {
            let failed = match map_nothing(from, to) {
                Mapped::Held => continue,
                Mapped::Taken => Err(from),
                // Past RLIMIT_AS nothing can be held; the session works without.
                Mapped::Unable => Ok(()),
            };
            for &(from, to) in &gaps[..i] {
                unmap(from, to);
            }
            return failed;
        }
        let first = reserved.range(..=start).next_back().filter(|(_, e)| **e >= start).map_or(start, |(s, _)| *s);
        let last = reserved.range(..=end).next_back().map_or(end, |(_, e)| (*e).max(end));
        let joined: Vec<u64> = reserved.range(first..=last).map(|(s, _)| *s).collect();
        for s in joined {
            reserved.remove(&s);
        }
        reserved.insert(first, last);
        Ok(())
    }

    /// Gives back what [`reserve`] holds of `[start, start + bytes)`.
    pub fn unreserve(&self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        let mut reserved = self.reserved.lock();
        let touched: Vec<(u64, u64)> =
            reserved.range(..end).rev().take_while(|(_, e)| **e > start).map(|(s, e)| (*s, *e)).collect();
        for (s, e) in touched {
            reserved.remove(&s);
            unmap(s.max(start), e.min(end));
            if s < start {
                reserved.insert(s, start);
            }
            if e > end {
                reserved.insert(end, e);
            }
        }
    }
}

/// The driver would not give out an address that is in use: what overlaps is gone by a way that named no address (a
/// module was unloaded, a graph destroyed, a context reset), perhaps by another thread, to which nobody has said so
/// yet.
fn forget_overlapping(ranges: &mut BTreeMap<u64, Range>, base: u64, end: u64) {
    while let Some((&first, old)) = ranges.range(..end).next_back() {
        if old.end() <= base {
            break;
        }
        ranges.remove(&first);
    }
}

/// Small allocations share blocks of this size in the driver, so reserving whole blocks saves a system call
/// for most of them.
const BLOCK: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// The parts of `[start, end)` that are not in `held`.
fn gaps(held: &BTreeMap<u64, u64>, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut at = held.range(..=start).next_back().map_or(start, |(_, e)| (*e).max(start));
    let mut gaps = Vec::new();
    for (&s, &e) in held.range(start..end) {
        if s > at {
            gaps.push((at, s));
        }
        at = at.max(e);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

#[derive(Debug, PartialEq, Eq)]
enum Mapped {
    Held,
    /// Something else is there.
    Taken,
    /// The kernel has no room for another mapping.
    Unable,
}

/// Maps `[from, to)` inaccessible.
fn map_nothing(from: u64, to: u64) -> Mapped {
    // By number: sanitizers have functions of their own in place of the C library's, and such a one ends the program
    // where an address is none that it knows.
    // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping; the pages cannot be touched.
    let p = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            from,
            to - from,
            libc::PROT_NONE as libc::c_long,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE) as libc::c_long,
            -1 as libc::c_long,
            0 as libc::c_long,
        )
    };
    if p == -1 {
        let full = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
        return if full { Mapped::Unable } else { Mapped::Taken };
    }
    if p as u64 != from {
        // A kernel older than 4.17 takes the address as a hint.
        unmap(p as u64, p as u64 + (to - from));
        return Mapped::Taken;
    }
    Mapped::Held
}

fn unmap(from: u64, to: u64) {
    // SAFETY: called only with ranges that `map_nothing` mapped.
    unsafe { libc::syscall(libc::SYS_munmap, from, to - from) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses nobody maps in a test process, one area a test.
    const AREA: u64 = 0x1234_0000_0000;

    #[test]
    fn only_what_was_asked_for_as_mapped_is_looked_for() {
        let addresses = AddressMap::new();
        addresses.insert(Range::new(AREA, 4096, MemoryKind::PinnedHost, 7, 1));
        assert_eq!(addresses.mapped_bounds().1, 0);
        for base in [AREA + 8192, AREA + (1 << 20)] {
            addresses.insert(Range { is_mapped: true, ..Range::new(base, 4096, MemoryKind::RegisteredHost, 7, 1) });
        }
        assert_eq!(addresses.mapped_bounds(), (AREA + 8192, (1 << 20) + 4096 - 8192));
    }

    #[test]
    fn inner_addresses_are_found_and_outer_ones_are_not() {
        let addresses = AddressMap::new();
        let base = AREA + 512;
        addresses.insert_device(base, 1000, MemoryKind::Device, 7, 1);
        addresses.insert_device(base + 1024, 16, MemoryKind::Pool, 0, 1);
        assert_eq!(addresses.find(base).map(|r| (r.base, r.device)), Some((base, 1)));
        assert_eq!(addresses.find(base + 999).map(|r| r.base), Some(base));
        assert_eq!(addresses.find(base + 1000), None);
        assert_eq!(addresses.find(base - 1), None);
        assert_ne!(addresses.find(base).unwrap().id, addresses.find(base + 1024).unwrap().id);
        assert_eq!(addresses.remove(base + 1), None);
        assert_eq!(addresses.remove(base).map(|r| r.bytes), Some(1000));
        assert_eq!(addresses.find(base), None);
        assert!(addresses.is_device(base + 1024));
    }

    #[test]
    fn an_overlapping_insert_replaces_what_was_there() {
        let addresses = AddressMap::new();
        let base = AREA + (1 << 32);
        addresses.insert_device(base, 100, MemoryKind::ModuleGlobal, 7, 0);
        addresses.insert_device(base + 100, 100, MemoryKind::ModuleGlobal, 7, 0);
        addresses.insert_device(base + 50, 100, MemoryKind::Device, 7, 0);
        assert_eq!((addresses.find(base), addresses.find(base + 160)), (None, None));
        assert_eq!(addresses.find(base + 60).map(|r| r.kind), Some(MemoryKind::Device));
        addresses.forget_context(7_777);
        assert!(addresses.is_device(base + 60));
    }

    #[test]
    fn device_memory_keeps_its_addresses() {
        let addresses = AddressMap::new();
        let base = AREA + (2 << 32);
        addresses.insert_device(base, 100, MemoryKind::Device, 7, 0);
        assert_eq!(map_nothing(base, base + PAGE), Mapped::Taken);
        assert_eq!(addresses.reserve(base - BLOCK, 3 * BLOCK), Ok(()));
        addresses.unreserve(base, BLOCK);
        assert_eq!(map_nothing(base, base + BLOCK), Mapped::Held);
        assert_eq!(addresses.reserve(base - BLOCK, 3 * BLOCK), Err(base));
        assert_eq!(map_nothing(base + BLOCK, base + BLOCK + PAGE), Mapped::Taken);
    }

    #[test]
    fn gaps_are_what_is_not_held() {
        let held = BTreeMap::from([(10, 20), (30, 40)]);
        assert_eq!(gaps(&held, 0, 50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(gaps(&held, 12, 35), [(20, 30)]);
        assert_eq!(gaps(&held, 32, 38), []);
        assert_eq!(gaps(&held, 20, 30), [(20, 30)]);
    }
}
