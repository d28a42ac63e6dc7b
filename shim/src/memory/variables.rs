//! Where the heap has the bytes of `__managed__` variables. How they come there: [`crate::memory::managed`].

use std::sync::atomic::Ordering;

use orion_wire::record::HeapRange;

use crate::state::address_map::MemoryKind;
use crate::state::process::state;

/// The heap's bytes for those of a variable, or of a part of one.
pub fn shared(address: u64, bytes: u64) -> Option<HeapRange> {
    if !state().managed.any_rows.load(Ordering::Acquire) || !is_variable(address) {
        return None;
    }
    let rows = state().managed.rows.lock();
    let (at, range) = rows.parts(address, bytes).next()?;
    (at == address && range.bytes == bytes).then_some(range)
}

fn is_variable(address: u64) -> bool {
    state().addresses.find(address).is_some_and(|range| range.kind == MemoryKind::ManagedVariable)
}
