//! Words within bounds: found quickly, as there is nearly always none.

// UNSAFETY: reads the application's memory.

/// Whether a word is within the bounds, an address and how many behind it. Words begin with the first byte.
///
/// # Safety
/// `from` has `bytes` readable bytes, to which others may write meanwhile.
pub unsafe fn any_near(from: *const u8, bytes: usize, (first, length): (u64, u64)) -> bool {
    let (words, count) = (from.cast::<u64>(), bytes / 8);
    let lines = count / LINE;
    // SAFETY: so many words are there.
    unsafe {
        next_near(words, 0, lines, first, length) != lines
            || (lines * LINE..count).any(|i| words.add(i).read_unaligned().wrapping_sub(first) < length)
    }
}

/// Words looked at together.
pub const LINE: usize = 32;

/// The first line from `line` on that has a word within `length` of `first`; `lines` if there is none.
///
/// # Safety
/// There are so many lines.
pub unsafe fn next_near(words: *const u64, line: usize, lines: usize, first: u64, length: u64) -> usize {
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
