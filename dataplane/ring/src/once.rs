//! Copies into memory that somebody else looks at meanwhile: every byte is written once.
//!
//! `memcpy` writes some bytes twice: two bytes with two stores of two, and the first bytes of a long copy again at its
//! end. Whoever sees all bytes there before the second store takes the copy for done, as with a GPU's, and what he
//! writes there next is undone by it.

// UNSAFETY: loads and stores at addresses that callers vouch for.

use std::arch::x86_64::{__m128i, _mm_loadu_si128};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// Copies `bytes` bytes, from the first to the last, with one store for each byte. Stores are as wide as can be, up to
/// eight bytes, and sixteen in long copies: what is a number where it goes to arrives whole.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of so many bytes. They do not overlap, but for a `to` before `from`.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise, of a part and of the rest.
    unsafe {
        if bytes < LONG_BYTES {
            return narrow(from, to, bytes);
        }
        let done = wide(from, to, bytes);
        narrow(from.add(done), to.add(done), bytes - done);
    }
}

/// From so many bytes on a copy begins with the widest stores.
const LONG_BYTES: usize = 128;

/// Copies all but a few of the last bytes, with stores of sixteen. Answers how many it has copied.
///
/// # Safety
/// As [`copy`]'s, of [`LONG_BYTES`] or more.
#[inline(never)]
unsafe fn wide(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    const WIDE_BYTES: usize = size_of::<__m128i>();
    const ROUND_BYTES: usize = 4 * WIDE_BYTES;
    // SAFETY: what is read and written lies inside of both, as the caller vouches, and `to` is aligned from `at` on.
    unsafe {
        let mut at = to.align_offset(WIDE_BYTES);
        narrow(from, to, at);
        while bytes - at >= ROUND_BYTES {
            let parts = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(at + i * WIDE_BYTES).cast()));
            for (i, part) in parts.into_iter().enumerate() {
                // The compiler neither repeats nor joins volatile stores, and makes no call of memcpy of them.
                to.add(at + i * WIDE_BYTES).cast::<__m128i>().write_volatile(part);
            }
            at += ROUND_BYTES;
        }
        at
    }
}

/// # Safety
/// As [`copy`]'s.
#[inline(always)]
unsafe fn narrow(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: so many bytes from an offset on are inside of both, as the caller vouches.
    unsafe {
        each(to, bytes, |at, part| match part {
            1 => from.add(at).read().into(),
            2 => from.add(at).cast::<u16>().read_unaligned().into(),
            4 => from.add(at).cast::<u32>().read_unaligned().into(),
            _ => from.add(at).cast::<u64>().read_unaligned(),
        });
    }
}

/// Fills `bytes` bytes with `value`, as [`copy`] copies them.
///
/// # Safety
/// `to` is valid for writes of so many bytes.
pub unsafe fn fill(to: *mut u8, value: u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { each(to, bytes, |_, _| u64::from_ne_bytes([value; WORD_BYTES])) };
}

/// Stores what `value` says of an offset and of 1, 2, 4 or 8 bytes from there on.
///
/// # Safety
/// `to` is valid for writes of `bytes` bytes.
#[inline]
unsafe fn each(to: *mut u8, bytes: usize, value: impl Fn(usize, usize) -> u64) {
    // The compiler neither repeats nor joins atomic stores, and makes no call of memcpy of them.
    // SAFETY: the part is inside of the destination, as the caller vouches, and aligned.
    let store = |at: usize, part: usize| unsafe {
        let to = to.add(at);
        match part {
            1 => AtomicU8::from_ptr(to).store(value(at, 1) as u8, Ordering::Relaxed),
            2 => AtomicU16::from_ptr(to.cast()).store(value(at, 2) as u16, Ordering::Relaxed),
            4 => AtomicU32::from_ptr(to.cast()).store(value(at, 4) as u32, Ordering::Relaxed),
            _ => AtomicU64::from_ptr(to.cast()).store(value(at, 8), Ordering::Relaxed),
        }
    };
    let address = to as usize;
    let mut at = 0;
    // Up to where words begin, or to where less than a part is left.
    for part in [1, 2, 4] {
        if (address + at) & part != 0 && bytes - at >= part {
            store(at, part);
            at += part;
        }
    }
    if (address + at).is_multiple_of(WORD_BYTES) {
        while bytes - at >= WORD_BYTES {
            store(at, WORD_BYTES);
            at += WORD_BYTES;
        }
    }
    for part in [4, 2, 1] {
        if bytes - at >= part {
            store(at, part);
            at += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_where_they_belong_wherever_that_is() {
        let source: Vec<u8> = (1..=64).collect();
        for (from, to, bytes) in (0..8).flat_map(|f| (0..8).flat_map(move |t| (0..=40).map(move |n| (f, t, n)))) {
            let mut room = [0u64; 8];
            // SAFETY: both sides have 64 bytes, and all lies in them.
            unsafe { copy(source[from..].as_ptr(), room.as_mut_ptr().cast::<u8>().add(to), bytes) };
            let got: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut want = vec![0; 64];
            want[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
            assert_eq!(got, want, "{bytes} bytes from {from} to {to}");
            // SAFETY: as above.
            unsafe { fill(room.as_mut_ptr().cast::<u8>().add(to), 0xA5, bytes) };
            let got: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
            want[to..to + bytes].fill(0xA5);
            assert_eq!(got, want, "{bytes} bytes at {to}");
        }
    }

    #[test]
    fn long_copies_go_where_they_belong_too() {
        let source: Vec<u8> = (0..500u32).map(|i| (i * 7 + 1) as u8).collect();
        let (from, to) = (0..17, 0..17);
        for (from, to, bytes) in from.flat_map(|f| to.clone().flat_map(move |t| (100..=400).map(move |n| (f, t, n)))) {
            let mut room = [0xEEu8; 450];
            // SAFETY: both sides have more bytes than that.
            unsafe { copy(source[from..].as_ptr(), room.as_mut_ptr().add(to), bytes) };
            assert_eq!(room[to..to + bytes], source[from..from + bytes], "{bytes} bytes from {from} to {to}");
            assert!(room[..to].iter().chain(&room[to + bytes..]).all(|byte| *byte == 0xEE), "beside {bytes} at {to}");
        }
    }

    #[test]
    fn bytes_move_towards_the_front_over_themselves() {
        for (bytes, by) in [87, 200, 900].into_iter().flat_map(|bytes| [1, 3, 10, 16, 70].map(|by| (bytes, by))) {
            let whole: Vec<u8> = (0..1000u32).map(|i| (i * 3) as u8).collect();
            let mut all = whole.clone();
            let first = all.as_mut_ptr();
            // SAFETY: inside of the vector, and to the front.
            unsafe { copy(first.add(3 + by), first.add(3), bytes) };
            assert_eq!(all[3..3 + bytes], whole[3 + by..3 + by + bytes], "{bytes} bytes by {by}");
        }
    }

    #[test]
    fn numbers_arrive_whole() {
        for bytes in [2, 4, 8] {
            let (room, done) = (AtomicU64::new(0), AtomicU8::new(0));
            let to = room.as_ptr().cast::<u8>() as usize;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..200_000u32 {
                        let source = [if round.is_multiple_of(2) { 0xff } else { 0 }; 8];
                        // SAFETY: both have eight bytes.
                        unsafe { copy(source.as_ptr(), to as *mut u8, bytes) };
                    }
                    done.store(1, Ordering::Relaxed);
                });
                while done.load(Ordering::Relaxed) == 0 {
                    let now = room.load(Ordering::Relaxed).to_le_bytes();
                    assert!(now[1..bytes].iter().all(|byte| *byte == now[0]), "{now:x?}");
                }
            });
        }
    }

    /// Who sees all bytes writes to the first and keeps what he wrote. With `memcpy` in place of `copy` this fails
    /// after some thousand rounds.
    #[test]
    fn what_is_written_by_whoever_has_seen_all_stays() {
        for bytes in [1usize, 2, 3, 4, 5, 8, 16, 24, 40, 300, 600, 1000] {
            let room: Vec<AtomicU64> = (0..bytes.div_ceil(WORD_BYTES)).map(|_| AtomicU64::new(0)).collect();
            let (asked, seen) = (AtomicU32::new(0), AtomicU32::new(0));
            let to = room.as_ptr() as usize;
            // SAFETY: inside of `room`, whose words are atomic; bytes of words are read while words are written, which
            // all processors that Orion is for let one do.
            let at = |i: usize| unsafe { AtomicU8::from_ptr((to as *mut u8).add(i)) };
            let rounds = 20_000u32;
            let mut undone = 0;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 1..=rounds {
                        while asked.load(Ordering::Acquire) != round {
                            std::hint::spin_loop();
                        }
                        while (0..bytes).any(|i| at(i).load(Ordering::Relaxed) != 1) {
                            std::hint::spin_loop();
                        }
                        at(0).store(2, Ordering::Relaxed);
                        seen.store(round, Ordering::Release);
                    }
                });
                let source = vec![1; bytes];
                for round in 1..=rounds {
                    (0..bytes).for_each(|i| at(i).store(0, Ordering::Relaxed));
                    asked.store(round, Ordering::Release);
                    // SAFETY: both have so many bytes.
                    unsafe { copy(source.as_ptr(), to as *mut u8, bytes) };
                    while seen.load(Ordering::Acquire) != round {
                        std::hint::spin_loop();
                    }
                    undone += u32::from(at(0).load(Ordering::Relaxed) != 2);
                }
            });
            assert_eq!(undone, 0, "of {rounds} copies of {bytes} bytes");
        }
    }
}
