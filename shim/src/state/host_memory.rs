//! Pinned and registered memory: what is free, what was freed, what was moved.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::state::heap::Region;

/// Allocations up to half of this share blocks of this size, which are registered once: registering costs
/// about 100 us, however small the range. None lies in two: the driver refuses a copy that touches two registrations.
pub const BLOCK: u64 = 2 << 20;

/// Free parts of blocks that are registered already.
pub static SMALL: Mutex<Option<Region>> = Mutex::new(None);

/// Freed pinned memory by offset, and whether it was registered on its own: copies from or to it may be under way,
/// so it is used again only once the worker has seen the device idle.
pub static FREED: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());

// Registered memory.

/// Whether any memory was ever registered: copies need not look otherwise.
pub static ANY_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Moved ranges for the child of a fork: page address, bytes, offset in the heap.
pub static MOVED: Mutex<BTreeMap<u64, (u64, u64)>> = Mutex::new(BTreeMap::new());
