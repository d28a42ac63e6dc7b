//! Reserved addresses, and physical memory to map there.

// UNSAFETY: sends descriptions, whose handles are numbers, between threads.

use std::collections::{BTreeMap, HashMap};

use orion_cuda::sys::*;

use crate::state::lock::{Lock, Rank, Shared};

pub struct VirtualMemory {
    /// Reserved ranges by their start: how long they are, and of which session.
    pub reservations: Shared<BTreeMap<u64, (u64, usize)>>,
    pub allocations: Lock<Option<HashMap<u64, Allocation>>>,
}

impl VirtualMemory {
    pub const fn new() -> VirtualMemory {
        VirtualMemory {
            reservations: Shared::new(Rank::Objects, BTreeMap::new()),
            allocations: Lock::new(Rank::Objects, None),
        }
    }

    pub fn allocations<T>(&self, f: impl FnOnce(&mut HashMap<u64, Allocation>) -> T) -> T {
        f(self.allocations.lock().get_or_insert_default())
    }

    /// Start and size of the reservation that an address lies in.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let all = self.reservations.read();
        let (base, (bytes, _)) = all.range(..=address).next_back()?;
        (address - base < *bytes).then_some((*base, *bytes))
    }

    /// The session whose reservation an address lies in.
    pub fn session(&self, address: u64) -> Option<usize> {
        let all = self.reservations.read();
        let (base, (bytes, session)) = all.range(..=address).next_back()?;
        (address - base < *bytes).then_some(*session)
    }

    /// Whether a reservation of another session's has addresses in `[base, base + bytes)`.
    pub fn is_elsewhere(&self, base: u64, bytes: u64, here: usize) -> bool {
        let all = self.reservations.read();
        let mut below = all.range(..base.saturating_add(bytes)).rev();
        below.any(|(start, (bytes, session))| start + bytes > base && *session != here)
    }

    /// How the allocation behind a mapping may be exported.
    pub fn handle_types(&self, handle: u64) -> u64 {
        self.allocations(|a| a.get(&handle).map_or(0, |a| a.properties.requestedHandleTypes as u64))
    }
}

/// A physical allocation. It lives while there is a reference or a mapping.
pub struct Allocation {
    pub bytes: u64,
    pub properties: CUmemAllocationProp,
    pub references: u32,
    pub mappings: u32,
}

// SAFETY: the one pointer in the properties belongs to Windows and is kept null.
unsafe impl Send for Allocation {}
