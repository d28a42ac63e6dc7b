//! `__managed__` variables, which the driver places in the worker: here pages of the heap lie at their addresses, and
//! the worker carries their bytes over. Everywhere else they are what registered memory is, in the host's role and in
//! the device's.

// UNSAFETY: maps pages of the heap where this process has reserved the device's addresses.

use std::sync::atomic::Ordering;

use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::library::ManagedVariable;
use orion_wire::record::HeapRange;

use crate::memory::host_memory::{give_back, map_again, page_of, take, take_place};
use crate::memory::in_step;
use crate::session::call::call;
use crate::state::address_map::{MemoryKind, Range};
use crate::state::heap::PAGE;
use crate::state::process::state;
use crate::state::session::Session;

/// Has the host see a variable that the worker has told of, at its address, or says why it cannot.
pub fn show(s: &'static Session, address: u64, bytes: u64, context: u64, device: u32) -> Result<(), String> {
    let (first, last) = (page_of(address), (address + bytes).next_multiple_of(PAGE));
    // One at a time: variables share pages.
    let mut rows = state().managed.rows.lock();
    for (at, end) in rows.missing(first, last) {
        let range = map(s, at, end - at)?;
        rows.insert(at, range);
        state().managed.any_rows.store(true, Ordering::Release);
        if s.pages.must_bring() {
            let mut entry = Range::new(at, range.bytes, MemoryKind::Managed, context, device);
            (entry.owner, entry.is_mapped) = (range.offset, true);
            in_step::follow(s, entry).map_err(|code| format!("it cannot be kept in step ({code})"))?;
        }
    }
    for (at, range) in rows.parts(address, bytes) {
        let q = ManagedVariable { address: ClaimedDevice::new(at), range: range.into() };
        call(ManagedVariable::OP, |w| q.encode(w), |_| Ok(()))
            .map_err(|code| format!("{bytes} bytes are more than are carried over ({code})"))?;
    }
    Ok(())
}

fn map(s: &Session, at: u64, bytes: u64) -> Result<HeapRange, String> {
    if !state().addresses.is_reserved(at, bytes) {
        return Err(format!("something else of this process is at its address, {at:#x}"));
    }
    let range = take(s, bytes, PAGE).map_err(|_| "the session's host heap has no room for it".to_owned())?;
    let again = s.heap.at(range.offset, bytes).map(|from| map_again(&s.memory_file, s.heap, from as u64, bytes));
    // SAFETY: a mapping that nobody knows of, over addresses that this process has reserved for the device's memory.
    match again.filter(|again| *again != libc::MAP_FAILED && unsafe { take_place(*again, at, bytes) }) {
        Some(_) => Ok(range),
        None => {
            give_back(s, range);
            Err("the session's own memory cannot be mapped a second time".to_owned())
        }
    }
}
