//! Managed memory: what the application has advised of it, and where `__managed__` variables are.
//!
//! All that is allocated lies in the host's memory, where client and GPU find it at one address, so advice changes
//! nothing. It is remembered, because the driver tells it back.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use orion_cuda::sys::*;
use orion_transport::environment;
use orion_wire::record::HeapRange;

use crate::state::lock::{Lock, Rank};

/// `CU_DEVICE_CPU`, as CUDA's first functions for managed memory name the host.
pub const CPU: CUdevice = -1;
/// `CU_DEVICE_INVALID`: none, or not one for all of a range.
pub const NOWHERE: CUdevice = -2;

/// Whether there is managed memory: unless `ORION_MANAGED` is `off`.
pub fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| match environment::var("ORION_MANAGED").as_deref() {
        Err(_) | Ok("" | "zerocopy") => true,
        Ok("off") => false,
        Ok(other) => {
            crate::say!("ORION_MANAGED={other} is none of zerocopy, off; there is no managed memory");
            false
        }
    })
}

/// Where memory is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    pub kind: CUmemLocationType,
    /// A device's ordinal, a NUMA node's number, or nothing.
    pub id: i32,
}

impl Location {
    pub const NONE: Location = Location { kind: CU_MEM_LOCATION_TYPE_INVALID, id: 0 };

    /// As an ordinal, or [`CPU`].
    pub fn of_device(device: CUdevice) -> Location {
        match device {
            CPU => Location { kind: CU_MEM_LOCATION_TYPE_HOST, id: 0 },
            device => Location { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        }
    }

    /// What the attributes say that know of devices and the host alone.
    pub fn device(self) -> CUdevice {
        match self.kind {
            CU_MEM_LOCATION_TYPE_DEVICE => self.id,
            CU_MEM_LOCATION_TYPE_HOST => CPU,
            _ => NOWHERE,
        }
    }
}

/// Of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub is_read_mostly: bool,
    pub preferred: Location,
    /// Ordinals, or [`CPU`], in the order in which they were named.
    pub accessed_by: Vec<CUdevice>,
    pub prefetched: Location,
}

impl Advice {
    const NONE: Advice = Advice {
        is_read_mostly: false,
        preferred: Location::NONE,
        accessed_by: Vec::new(),
        prefetched: Location::NONE,
    };
}

/// Pieces of allocations, by where they begin, each up to the next one or its allocation's end. What has none was never
/// advised of.
#[derive(Debug, Default)]
pub struct Pieces(BTreeMap<u64, (u64, Advice)>);

impl Pieces {
    /// Takes note of advice about `[first, end)`.
    pub fn advise(&mut self, first: u64, end: u64, change: impl Fn(&mut Advice)) {
        self.cut(first);
        self.cut(end);
        let (mut gaps, mut at) = (Vec::new(), first);
        for (begin, (until, advice)) in self.0.range_mut(first..end) {
            if at < *begin {
                gaps.push((at, *begin));
            }
            change(advice);
            at = *until;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (at, until) in gaps {
            let mut advice = Advice::NONE;
            change(&mut advice);
            self.0.insert(at, (until, advice));
        }
    }

    /// Has a piece begin there, if one lies there at all.
    fn cut(&mut self, at: u64) {
        let Some((_, piece)) = self.0.range_mut(..at).next_back().filter(|(_, (until, _))| *until > at) else { return };
        let behind = (piece.0, piece.1.clone());
        piece.0 = at;
        self.0.insert(at, behind);
    }

    /// All that was advised of bytes of `[first, end)`.
    pub fn of(&self, first: u64, end: u64) -> Vec<Advice> {
        let (mut all, mut covered) = (Vec::new(), first);
        let before = self.0.range(..first).next_back().filter(|(_, (until, _))| *until > first);
        for (begin, (until, advice)) in before.into_iter().chain(self.0.range(first..end)) {
            if *begin > covered {
                all.push(Advice::NONE);
            }
            all.push(advice.clone());
            covered = *until;
        }
        if covered < end {
            all.push(Advice::NONE);
        }
        all
    }

    /// An allocation is freed.
    pub fn forget(&mut self, first: u64, end: u64) {
        self.0.retain(|begin, _| !(first..end).contains(begin));
    }
}

/// What all of a range have in common, or else `otherwise`.
pub fn common<T: PartialEq + Copy>(advice: &[Advice], of: impl Fn(&Advice) -> T, otherwise: T) -> T {
    let Some(first) = advice.first().map(&of) else { return otherwise };
    if advice.iter().all(|advice| of(advice) == first) { first } else { otherwise }
}

/// Pages of the heap that lie where `__managed__` variables do, by address. They stay: what is loaded later may have
/// its variables there.
#[derive(Debug, Default)]
pub struct Rows(BTreeMap<u64, HeapRange>);

impl Rows {
    pub fn insert(&mut self, at: u64, range: HeapRange) {
        self.0.insert(at, range);
    }

    /// What of `[first, last)` has none.
    pub fn missing(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let (mut missing, mut at) = (Vec::new(), first);
        for (begin, end) in self.touching(first, last).map(|(at, range)| (at, at + range.bytes)) {
            if begin > at {
                missing.push((at, begin));
            }
            at = at.max(end);
        }
        if at < last {
            missing.push((at, last));
        }
        missing
    }

    /// Of the bytes at an address those that lie in each row, and where in the heap.
    pub fn parts(&self, address: u64, bytes: u64) -> impl Iterator<Item = (u64, HeapRange)> {
        let end = address + bytes;
        self.touching(address, end).map(move |(at, range)| {
            let (from, to) = (address.max(at), end.min(at + range.bytes));
            (from, HeapRange { offset: range.offset + (from - at), bytes: to - from })
        })
    }

    fn touching(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, HeapRange)> {
        let before = self.0.range(..first).next_back().filter(|(at, range)| *at + range.bytes > first);
        before.into_iter().chain(self.0.range(first..last)).map(|(at, range)| (*at, *range))
    }
}

pub struct Managed {
    pub advised: Lock<Pieces>,
    pub any_rows: AtomicBool,
    pub rows: Lock<Rows>,
}

impl Managed {
    pub const fn new() -> Managed {
        Managed {
            advised: Lock::new(Rank::Leaf, Pieces(BTreeMap::new())),
            any_rows: AtomicBool::new(false),
            rows: Lock::new(Rank::Objects, Rows(BTreeMap::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(pieces: &Pieces, first: u64, end: u64) -> Vec<i32> {
        pieces.of(first, end).iter().map(|advice| advice.preferred.device()).collect()
    }

    #[test]
    fn advice_holds_for_the_bytes_it_was_about() {
        let mut pieces = Pieces::default();
        let prefer = |device| move |advice: &mut Advice| advice.preferred = Location::of_device(device);
        assert_eq!(ids(&pieces, 0, 100), [NOWHERE]);
        pieces.advise(20, 60, prefer(3));
        assert_eq!(ids(&pieces, 0, 100), [NOWHERE, 3, NOWHERE]);
        assert_eq!((ids(&pieces, 20, 60), ids(&pieces, 30, 31)), (vec![3], vec![3]));
        // Over a hole, and a part of what is there.
        pieces.advise(50, 80, prefer(CPU));
        assert_eq!(ids(&pieces, 0, 100), [NOWHERE, 3, CPU, CPU, NOWHERE]);
        pieces.advise(0, 100, |advice| advice.is_read_mostly = true);
        assert!(pieces.of(0, 100).iter().all(|advice| advice.is_read_mostly));
        assert_eq!(ids(&pieces, 0, 100), [NOWHERE, 3, CPU, CPU, NOWHERE]);
        pieces.forget(0, 100);
        assert_eq!(pieces.of(0, 100), [Advice::NONE]);
    }

    #[test]
    fn what_differs_within_a_range_is_not_told() {
        let mut pieces = Pieces::default();
        pieces.advise(0, 10, |advice| advice.prefetched = Location::of_device(1));
        let device = |advice: &Advice| advice.prefetched.device();
        assert_eq!(common(&pieces.of(0, 10), device, NOWHERE), 1);
        assert_eq!(common(&pieces.of(0, 11), device, NOWHERE), NOWHERE);
    }

    #[test]
    fn rows_are_made_once_and_found_by_parts() {
        let mut rows = Rows::default();
        assert_eq!(rows.missing(0x2000, 0x4000), [(0x2000, 0x4000)]);
        rows.insert(0x2000, HeapRange { offset: 0x10000, bytes: 0x1000 });
        rows.insert(0x4000, HeapRange { offset: 0x30000, bytes: 0x1000 });
        assert_eq!(rows.missing(0x1000, 0x6000), [(0x1000, 0x2000), (0x3000, 0x4000), (0x5000, 0x6000)]);
        assert_eq!(rows.missing(0x2000, 0x3000), []);
        let parts: Vec<_> = rows.parts(0x2ff8, 0x1010).collect();
        let (end, begin) = (HeapRange { offset: 0x10ff8, bytes: 8 }, HeapRange { offset: 0x30000, bytes: 8 });
        assert_eq!(parts, [(0x2ff8, end), (0x4000, begin)]);
    }

    /// Against the plainest way to do it: each byte has its own.
    #[test]
    fn pieces_are_as_bytes_by_themselves() {
        const BYTES: u64 = 64;
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut pieces, mut bytes) = (Pieces::default(), vec![NOWHERE; BYTES as usize]);
        for _ in 0..5_000 {
            let first = random(BYTES);
            let end = first + 1 + random(BYTES - first);
            match random(10) {
                0 => {
                    pieces.forget(0, BYTES);
                    bytes.fill(NOWHERE);
                }
                device => {
                    let device = device as i32;
                    pieces.advise(first, end, |advice| advice.preferred = Location::of_device(device));
                    bytes[first as usize..end as usize].fill(device);
                }
            }
            let first = random(BYTES);
            let end = first + 1 + random(BYTES - first);
            let mut expected = bytes[first as usize..end as usize].to_vec();
            let mut found = ids(&pieces, first, end);
            expected.dedup();
            found.dedup();
            assert_eq!(found, expected, "of {first} to {end}");
        }
    }
}
