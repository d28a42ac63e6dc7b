//! Pinned and registered memory: what is free, what was freed, what was moved.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::state::heap::Region;
use crate::state::lock::{Lock, Rank};

/// Allocations up to half of this share blocks of this size, which are registered once: registering costs
/// about 100 us, however small the range. None lies in two: the driver refuses a copy that touches two registrations.
pub const BLOCK: u64 = 2 << 20;

/// By the address of its first page, a moved range's bytes and where in the heap it lies.
pub type Moved = BTreeMap<u64, (u64, u64)>;

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
