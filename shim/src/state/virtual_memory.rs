//! Reserved addresses, and physical memory to map there.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, RwLock};

use orion_cuda::sys::*;

/// Reserved ranges by their start.
pub static RESERVATIONS: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());

/// A physical allocation. It lives while there is a reference or a mapping.
pub struct Allocation {
    pub bytes: u64,
    pub properties: CUmemAllocationProp,
    pub references: u32,
    pub mappings: u32,
}

// SAFETY: the one pointer in the properties belongs to Windows and is kept null.
unsafe impl Send for Allocation {}

static ALLOCATIONS: Mutex<Option<HashMap<u64, Allocation>>> = Mutex::new(None);

pub fn allocations<T>(f: impl FnOnce(&mut HashMap<u64, Allocation>) -> T) -> T {
    f(ALLOCATIONS.lock().expect("no panic happens under this lock").get_or_insert_default())
}

/// Start and size of the reservation that an address lies in.
pub fn reservation(address: u64) -> Option<(u64, u64)> {
    let all = RESERVATIONS.read().expect("no panic happens under this lock");
    let (base, bytes) = all.range(..=address).next_back()?;
    (address - base < *bytes).then_some((*base, *bytes))
}

/// How the allocation behind a mapping may be exported.
pub fn handle_types(handle: u64) -> u64 {
    allocations(|a| a.get(&handle).map_or(0, |a| a.properties.requestedHandleTypes as u64))
}
