//! Addresses of pinned memory in what goes to the device.
//!
//! A kernel may use pinned memory by an address that it finds in device memory, in its parameters, or in other pinned
//! memory. Where client and worker each have pages of their own such memory has to be kept in step, so whatever takes
//! bytes to the device looks for words that are addresses of pinned memory. A word that only looks like one costs the
//! keeping in step. What a kernel computes is one of these addresses and an offset.

// UNSAFETY: reads the application's memory.

use orion_cuda::sys::*;

use crate::memory::{host_memory, in_step};
use crate::state::address_map::Range;
use crate::state::process::state;
use crate::state::session::Session;

const WORD: usize = 8;

/// The pinned allocation that `address` lies in, if kernels of this session may use it.
fn pinned(s: &Session, address: u64) -> Option<Range> {
    host_memory::shared(s, address, 1)?;
    state().addresses.find(address).filter(|range| !range.is_device() && range.device_pointer != 0)
}

/// `word` goes to the device, as a parameter or a value.
pub fn note_word(s: &'static Session, word: u64) {
    if let Some(range) = pinned(s, word) {
        // Refused beyond the bound, with a line that says so.
        let _ = follow(s, range);
    }
}

/// Bytes go to the device, to `to` there.
///
/// # Safety
/// `from` has `bytes` readable bytes.
pub unsafe fn note(s: &'static Session, to: u64, from: *const u8, bytes: usize) {
    // A host function's thread must not wait for the worker: the device waits for it.
    if !s.pages.must_bring() || state().callbacks.in_callback() {
        return;
    }
    let mut found = Vec::new();
    // SAFETY: the caller's promise.
    unsafe { look(s, to, from, bytes, &mut found) };
    for range in found {
        // Refused beyond the bound, with a line that says so.
        let _ = follow(s, range);
    }
}

/// As [`note`], of words that the shim has itself.
pub fn note_bytes(s: &'static Session, bytes: &[u8]) {
    // SAFETY: a slice.
    unsafe { note(s, 0, bytes.as_ptr(), bytes.len()) };
}

/// From now on an allocation is kept in step, and with it all that can be reached by the addresses in it.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if that is more than can be kept in step.
pub fn follow(s: &'static Session, range: Range) -> Result<(), CUresult> {
    let mut found = Vec::new();
    if in_step::mirror(s, &range)? {
        // SAFETY: an allocation of the application's.
        unsafe { look(s, range.base, range.base as *const u8, range.bytes as usize, &mut found) };
    }
    while let Some(range) = found.pop() {
        if in_step::mirror(s, &range) == Ok(true) {
            // SAFETY: as above.
            unsafe { look(s, range.base, range.base as *const u8, range.bytes as usize, &mut found) };
        }
    }
    Ok(())
}

/// The allocations whose addresses are among the words. Kernels load words that are aligned on their side.
///
/// # Safety
/// `from` has `bytes` readable bytes, to which others may write meanwhile.
unsafe fn look(s: &Session, to: u64, from: *const u8, bytes: usize, found: &mut Vec<Range>) {
    let (first, length) = state().addresses.host_bounds();
    let skipped = (to.wrapping_neg() % WORD as u64) as usize;
    if length == 0 || bytes < skipped + WORD {
        return;
    }
    let is_near = |word: u64| word.wrapping_sub(first) < length;
    let mut examine = |words: &[u64]| {
        for word in words.iter().copied().filter(|word| is_near(*word)) {
            if found.last().is_none_or(|last: &Range| !last.contains(word))
                && let Some(range) = pinned(s, word)
            {
                found.push(range);
            }
        }
    };
    const LINE: usize = 8;
    let count = (bytes - skipped) / WORD;
    // SAFETY: inside the caller's bytes.
    let words: *const u64 = unsafe { from.add(skipped) }.cast();
    for line in 0..count / LINE {
        // SAFETY: as above.
        let line = unsafe { words.add(line * LINE).cast::<[u64; LINE]>().read_unaligned() };
        // Not `any`, which looks at one word after the other.
        if line.iter().fold(false, |near, word| near | is_near(*word)) {
            examine(&line);
        }
    }
    for i in count / LINE * LINE..count {
        // SAFETY: as above.
        examine(&[unsafe { words.add(i).read_unaligned() }]);
    }
}
