//! A client's byte strings.

// UNSAFETY: copies out of memory that the client may write.

use std::ptr;

use orion_wire::Fault;
use orion_wire::message::image::Payload;

use crate::worker::session::Session;

/// A client's byte string, from the record or from the heap, as a copy of our own.
pub fn payload(s: &Session, payload: &Payload<'_>) -> Result<Vec<u8>, Fault> {
    match payload {
        Payload::Inline(bytes) => Ok(bytes.get().to_vec()),
        Payload::Heap(range) => {
            let range = range.check(s.heap.bytes())?;
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
    }
}
