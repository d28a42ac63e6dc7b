//! A client's byte strings.

// UNSAFETY: copies out of memory that the client may write.

use std::ptr;

use orion_wire::record::HeapRange;
use orion_wire::{Fault, Reader};

use crate::worker::session::Session;

/// A client's byte string, from the record or from the heap, as a copy of our own.
pub fn payload(s: &Session, r: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
    match r.word()? {
        0 => Ok(r.bytes()?.to_vec()),
        1 => {
            let range = HeapRange::get(r)?.check(s.heap.bytes())?;
            let from = s.heap_pointer(range)?;
            let mut copy = Vec::with_capacity(range.bytes as usize + 8);
            // SAFETY: the range lies inside the heap; the client may still write to it, and the copy is what
            // counts from here on.
            unsafe {
                ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), range.bytes as usize);
                copy.set_len(range.bytes as usize);
            }
            Ok(copy)
        }
        _ => Err(Fault("payload of an unknown form")),
    }
}
