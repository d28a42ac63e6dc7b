//! Pinned and registered memory: what is free, what was freed, what was moved.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use orion_wire::record::HeapRange;

use crate::state::heap::Region;
use crate::state::lock::{Lock, Rank};

/// Allocations up to half of this share blocks of this size, which are registered once: registering costs
/// about 100 us, however small the range. None lies in two: the driver refuses a copy that touches two registrations.
pub const BLOCK: u64 = 2 << 20;

/// Pages that were moved onto the heap, by the address of the first.
pub type Moved = BTreeMap<u64, Pages>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    pub range: HeapRange,
    /// Of memory that is registered and lies there: an allocator gives out many pieces of one page. None is left where
    /// there was no memory for moving the pages back.
    pub registrations: u32,
}

/// The pages among which one is.
pub fn moved_at(moved: &mut Moved, page: u64) -> Option<(u64, &mut Pages)> {
    let (at, pages) = moved.range_mut(..=page).next_back()?;
    (page - at < pages.range.bytes).then_some((*at, pages))
}

pub struct HostMemory {
    /// Free parts of blocks that are registered already.
    pub small: Lock<Option<Region>>,
    /// Freed pinned memory by offset, and whether it was registered on its own: copies from or to it may be under way,
    /// so it is used again only once the worker has seen the device idle.
    pub freed: Lock<BTreeMap<u64, bool>>,
    // Registered memory.
    /// Whether any memory was ever registered: copies need not look otherwise.
    pub any_registered: AtomicBool,
    /// Why kernels cannot use registered memory, by its address, where that is known.
    pub unreached: Lock<BTreeMap<u64, String>>,
    /// For the child of a fork, too.
    pub moved: Lock<Moved>,
}

impl HostMemory {
    pub const fn new() -> HostMemory {
        HostMemory {
            small: Lock::new(Rank::Leaf, None),
            freed: Lock::new(Rank::Leaf, BTreeMap::new()),
            any_registered: AtomicBool::new(false),
            unreached: Lock::new(Rank::Leaf, BTreeMap::new()),
            moved: Lock::new(Rank::Objects, BTreeMap::new()),
        }
    }
}
