//! Staging memory: pieces of the heap through which pageable memory is copied.

use std::time::Duration;

use orion_cuda::sys::*;
use orion_wire::record::HeapRange;

use crate::memory::host_memory;
use crate::state::session::Session;

/// A piece of staging memory, given back when dropped.
pub struct Staging {
    s: &'static Session,
    pub range: HeapRange,
}

impl Staging {
    /// Waits for the worker to release some if all of it is under way.
    pub fn take(s: &'static Session, bytes: usize) -> Result<Staging, CUresult> {
        let mut allocator = s.heap_allocator.lock();
        loop {
            if let Some(offset) = allocator.take_staging(bytes as u64) {
                return Ok(Staging { s, range: HeapRange { offset, bytes: bytes as u64 } });
            }
            if crate::session::carrier::lost(s) {
                return Err(crate::session::lost::SESSION_LOST);
            }
            allocator = allocator.wait_timeout(&s.staging_released, Duration::from_millis(100));
        }
    }

    pub fn pointer(&self) -> *mut u8 {
        self.s.heap.at(self.range.offset, self.range.bytes).expect("staging lies inside the heap")
    }

    /// A command that lends it to the worker was sent: the worker gives it back, whatever becomes of the command.
    pub fn lend(self) {
        std::mem::forget(self);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        release_staging(self.s, &[self.range]);
    }
}

/// The worker has read what was lent to it.
pub fn release_staging(s: &Session, ranges: &[HeapRange]) {
    for range in ranges {
        if !host_memory::released(s, *range) {
            let mut allocator = s.heap_allocator.lock();
            allocator.release(range.offset, range.bytes);
        }
    }
    s.staging_released.notify_all();
}
