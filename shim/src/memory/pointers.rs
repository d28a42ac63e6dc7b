//! Addresses of pinned memory in what goes to the device.
//!
//! A kernel may use pinned memory by an address that it finds in device memory, in its parameters, or in other pinned
//! memory. Where client and worker each have pages of their own such memory has to be kept in step, so whatever takes
//! bytes to the device looks for words that are addresses of pinned memory that was asked for as mapped. Of other
//! pinned memory addresses are left in what was used before, such as buffers that nobody has cleared, and keeping
//! large buffers in step for those would be dear. What a kernel computes is one of these addresses and an offset.

// UNSAFETY: reads the application's memory.

use crate::memory::host_memory;
use crate::memory::words::{LINE, next_near};
use crate::state::address_map::Range;
use crate::state::process::state;
use crate::state::session::Session;

const WORD: usize = 8;

/// The pinned allocation that `address` lies in, if kernels of this session may use it.
pub fn pinned(s: &Session, address: u64) -> Option<Range> {
    host_memory::shared(s, address, 1)?;
    state().addresses.find(address).filter(|range| !range.is_device() && range.device_pointer != 0)
}

/// The mapped allocations whose addresses are among the words. Kernels load words that are aligned on their side.
///
/// # Safety
/// `from` has `bytes` readable bytes, to which others may write meanwhile.
pub unsafe fn look(s: &Session, to: u64, from: *const u8, bytes: usize, found: &mut Vec<Range>) {
    let (first, length) = state().addresses.mapped_bounds();
    let skipped = (to.wrapping_neg() % WORD as u64) as usize;
    if length == 0 || bytes < skipped + WORD {
        return;
    }
    let is_near = |word: u64| word.wrapping_sub(first) < length;
    let mut examine = |words: &[u64]| {
        for word in words.iter().copied().filter(|word| is_near(*word)) {
            if found.last().is_none_or(|last: &Range| !last.contains(word))
                && let Some(range) = pinned(s, word).filter(|range| range.is_mapped)
            {
                found.push(range);
            }
        }
    };
    let count = (bytes - skipped) / WORD;
    // SAFETY: inside the caller's bytes.
    let words: *const u64 = unsafe { from.add(skipped) }.cast();
    let (mut line, lines) = (0, count / LINE);
    loop {
        // SAFETY: so many lines are there.
        line = unsafe { next_near(words, line, lines, first, length) };
        if line == lines {
            break;
        }
        // SAFETY: as above.
        examine(&unsafe { words.add(line * LINE).cast::<[u64; LINE]>().read_unaligned() });
        line += 1;
    }
    for i in lines * LINE..count {
        // SAFETY: as above.
        examine(&[unsafe { words.add(i).read_unaligned() }]);
    }
}
