//! Device memory and copies of every shape.
//!
//! A copy's host side is one of two things. *Shared* memory (pinned memory from `cuMemHostAlloc`) has the same
//! address on both sides, so the worker's driver copies straight from or to it. Anything else is *pageable*:
//! small copies travel in the record, larger ones through the staging part of the heap, which is registered with
//! the driver. A pageable source is captured before the call returns, so the call need not wait for the device.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use std::sync::Condvar;
use std::time::Duration;

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::record::HeapRange;

use crate::call::{call, post};
use crate::hand::heap::PAGE;
use crate::hand::{address_map, host_memory};
use crate::local::context;
use crate::session::{Session, session};

/// Wakes those who wait for staging memory.
pub static STAGING_RELEASED: Condvar = Condvar::new();

pub fn needs_context() -> Result<u64, CUresult> {
    session()?;
    match context::current_home() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        ctx => Ok(ctx),
    }
}

pub fn copy_words(w: &mut Vec<u8>, words: &[u64]) {
    for v in words {
        w.word(*v);
    }
}

pub fn result(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// A piece of staging memory, given back when dropped.
pub struct Staging {
    s: &'static Session,
    pub range: HeapRange,
}

impl Staging {
    /// Waits for the worker to release some if all of it is under way.
    pub fn take(s: &'static Session, bytes: usize) -> Result<Staging, CUresult> {
        let mut allocator = s.heap_allocator.lock().expect("no panic happens under this lock");
        loop {
            if let Some(offset) = allocator.staging.allocate(bytes as u64, PAGE) {
                return Ok(Staging { s, range: HeapRange { offset, bytes: bytes as u64 } });
            }
            if crate::carrier::lost() {
                return Err(crate::call::SESSION_LOST);
            }
            allocator = STAGING_RELEASED
                .wait_timeout(allocator, Duration::from_millis(100))
                .expect("no panic happens under this lock")
                .0;
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
            let mut allocator = s.heap_allocator.lock().expect("no panic happens under this lock");
            allocator.staging.release(range.offset, range.bytes);
        }
    }
    STAGING_RELEASED.notify_all();
}

/// Posts work on device memory that the shim knows. What it does not know (memory opened from elsewhere, or
/// rubbish) the driver has to judge, so that the caller learns of it at once.
pub fn post_or_call(op: u16, known: bool, words: &[u64]) -> Result<(), CUresult> {
    if known { result(post(op, |w| copy_words(w, words))) } else { call(op, |w| copy_words(w, words), |_| Ok(())) }
}

pub fn is_known(s: &Session, address: u64, bytes: usize) -> bool {
    match address_map::find(address) {
        Some(range) => address.saturating_add(bytes as u64) <= range.end() || range.kind != address_map::Kind::Device,
        None => host_memory::shared_range(s, address, bytes as u64).is_some(),
    }
}
