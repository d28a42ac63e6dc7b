//! Addresses of pinned memory in what goes to the device.
//!
//! A kernel may use pinned memory by an address that it finds in device memory, in its parameters, or in other pinned
//! memory. Where client and worker each have pages of their own such memory has to be kept in step, so whatever takes
//! bytes to the device looks for words that are addresses of pinned memory. A word that only looks like one costs the
//! keeping in step. What a kernel computes is one of these addresses and an offset.

// UNSAFETY: reads the application's memory.

use crate::memory::host_memory;
use crate::state::address_map::Range;
use crate::state::process::state;
use crate::state::session::Session;

const WORD: usize = 8;

/// The pinned allocation that `address` lies in, if kernels of this session may use it.
pub fn pinned(s: &Session, address: u64) -> Option<Range> {
    host_memory::shared(s, address, 1)?;
    state().addresses.find(address).filter(|range| !range.is_device() && range.device_pointer != 0)
}

/// The allocations whose addresses are among the words. Kernels load words that are aligned on their side.
///
/// # Safety
/// `from` has `bytes` readable bytes, to which others may write meanwhile.
pub unsafe fn look(s: &Session, to: u64, from: *const u8, bytes: usize, found: &mut Vec<Range>) {
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

/// Words looked at together.
const LINE: usize = 32;

/// The first line from `line` on that has a word within `length` of `first`; `lines` if there is none.
///
/// # Safety
/// There are so many lines.
unsafe fn next_near(words: *const u64, line: usize, lines: usize, first: u64, length: u64) -> usize {
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it; the caller's promise.
        return unsafe { next_near_avx2(words, line, lines, first, length) };
    }
    // SAFETY: the caller's promise.
    unsafe { search(words, line, lines, first, length) }
}

/// Three times as fast as what every processor has: 64 bits are compared at once.
///
/// # Safety
/// As [`next_near`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn next_near_avx2(words: *const u64, line: usize, lines: usize, first: u64, length: u64) -> usize {
    // SAFETY: the caller's promise.
    unsafe { search(words, line, lines, first, length) }
}

/// # Safety
/// As [`next_near`].
#[inline(always)]
unsafe fn search(words: *const u64, from: usize, lines: usize, first: u64, length: u64) -> usize {
    for line in from..lines {
        // SAFETY: the caller's promise.
        let line_words = unsafe { words.add(line * LINE).cast::<[u64; LINE]>().read_unaligned() };
        // Not `any`, which looks at one word after the other.
        if line_words.iter().fold(false, |near, word| near | (word.wrapping_sub(first) < length)) {
            return line;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_wherever_it_lies() {
        const LINES: usize = 4;
        let (first, length) = (0x7f12_3456_7000, 0x1000);
        for place in 0..LINES * LINE {
            for word in [first, first + length - 1] {
                let mut words = [first - 1; LINES * LINE];
                words[place] = word;
                // SAFETY: so many words.
                let found = unsafe {
                    [
                        next_near(words.as_ptr(), 0, LINES, first, length),
                        search(words.as_ptr(), 0, LINES, first, length),
                    ]
                };
                assert_eq!(found, [place / LINE; 2]);
            }
        }
        let words = [first + length; LINES * LINE];
        // SAFETY: as above.
        assert_eq!(unsafe { next_near(words.as_ptr(), 1, LINES, first, length) }, LINES);
    }

    /// `cargo test --release -p orion-shim -- --ignored --nocapture how_fast`
    #[test]
    #[ignore = "prints a figure"]
    fn how_fast_words_are_looked_at() {
        let words = vec![0x3f80_0000_3f80_0000u64; 32 << 20];
        for (name, function) in [("widest", next_near as unsafe fn(_, _, _, _, _) -> _), ("search", search)] {
            let began = std::time::Instant::now();
            // SAFETY: so many words.
            let found = unsafe { function(words.as_ptr(), 0, words.len() / LINE, 0x7f12_3456_7000, 0x1000) };
            assert_eq!(found, words.len() / LINE);
            println!("{name}: {:.1} GB/s", 8.0 * words.len() as f64 / began.elapsed().as_nanos() as f64);
        }
    }
}
