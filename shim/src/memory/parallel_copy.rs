//! Copies between the application's memory and the heap, by several threads where that pays; and looking through it for
//! words that lie near an address, which costs little where the bytes are copied anyway.
//!
//! One thread moves about 10 GB/s here, the bus 55: a large pageable copy is as fast as the threads that feed it.
//! The threads start with the first large copy, look for more work for a moment after each, and then sleep.

// UNSAFETY: raw copies, also from helper threads; the callers promise the ranges until the copy has returned.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use orion_ring::futex::{self, Among};

use crate::memory::words;
use crate::system::threads::spawn;

/// Below this a second thread costs more than it saves.
const PARALLEL_BYTES_MIN: usize = 512 << 10;
/// What one thread takes at a time.
const PART_BYTES: usize = 256 << 10;
/// How long a helper looks for the next copy before it sleeps.
const HELPER_SPIN: Duration = Duration::from_micros(300);

/// Copies `bytes` that do not overlap.
///
/// # Safety
/// As `memcpy`.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_and_look(to, from, bytes, (0, 0)) };
}

/// As [`copy`]; true if one of the words is within the bounds, an address and how many behind it. Words begin with the
/// first byte.
///
/// # Safety
/// As `memcpy`.
pub unsafe fn copy_and_look(to: *mut u8, from: *const u8, bytes: usize, bounds: (u64, u64)) -> bool {
    if bytes >= PARALLEL_BYTES_MIN
        && let Some(pool) = pool()
        && let Ok(_mine) = pool.owner.try_lock()
    {
        // SAFETY: the caller's promise.
        return unsafe { pool.run(to, from, bytes, bounds) };
    }
    // SAFETY: the caller's promise.
    unsafe { do_part(to, from, bytes, bounds) }
}

/// As [`copy_and_look`], without a copy.
///
/// # Safety
/// `from` has `bytes` readable bytes.
pub unsafe fn look(from: *const u8, bytes: usize, bounds: (u64, u64)) -> bool {
    // SAFETY: the caller's promise.
    unsafe { copy_and_look(std::ptr::null_mut(), from, bytes, bounds) }
}

/// # Safety
/// As [`copy_and_look`]; nothing is copied to null.
unsafe fn do_part(to: *mut u8, from: *const u8, bytes: usize, bounds: (u64, u64)) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if !to.is_null() {
            copy_streaming(to, from, bytes);
        }
        bounds.1 != 0 && words::any_near(from, bytes, bounds)
    }
}

pub struct Pool {
    /// Held by the thread whose copy is under way; others copy alone meanwhile.
    owner: Mutex<()>,
    /// Counts copies. A futex word.
    round: AtomicU32,
    sleeping: AtomicU32,
    to: AtomicUsize,
    from: AtomicUsize,
    bytes: AtomicUsize,
    bounds: (AtomicU64, AtomicU64),
    /// A word of this round is within the bounds.
    is_near: AtomicBool,
    /// `round << 32 | next part`: a helper that comes late takes no part of a later copy with old addresses.
    next: AtomicU64,
    finished: AtomicUsize,
}

fn pool() -> Option<&'static Pool> {
    static POOL: OnceLock<Option<&'static Pool>> = OnceLock::new();
    *POOL.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let helpers = (cores / 4).min(5);
        if helpers == 0 {
            return None;
        }
        let pool: &'static Pool = Box::leak(Box::new(Pool {
            owner: Mutex::new(()),
            round: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            to: AtomicUsize::new(0),
            from: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            bounds: (AtomicU64::new(0), AtomicU64::new(0)),
            is_near: AtomicBool::new(false),
            next: AtomicU64::new(u32::MAX as u64),
            finished: AtomicUsize::new(0),
        }));
        let mut started = 0;
        for _ in 0..helpers {
            started += spawn("orion-copy", 256 << 10, move || pool.serve()).is_ok() as u32;
        }
        (started > 0).then_some(pool)
    })
}

impl Pool {
    /// # Safety
    /// As [`copy_and_look`]; `owner` is held.
    unsafe fn run(&self, to: *mut u8, from: *const u8, bytes: usize, bounds: (u64, u64)) -> bool {
        let parts = bytes.div_ceil(PART_BYTES);
        let round = self.round.load(Ordering::Relaxed).wrapping_add(1);
        self.to.store(to as usize, Ordering::Relaxed);
        self.from.store(from as usize, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.bounds.0.store(bounds.0, Ordering::Relaxed);
        self.bounds.1.store(bounds.1, Ordering::Relaxed);
        self.is_near.store(false, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        // Release pairs with the Acquire of `take`: whoever takes a part of this round sees its addresses.
        self.next.store((round as u64) << 32, Ordering::Release);
        self.round.store(round, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            futex::wake_all(&self.round, Among::Threads);
        }
        while self.take(round) {}
        // Parts that helpers took are all that is left; they end within microseconds.
        while self.finished.load(Ordering::Acquire) < parts {
            std::hint::spin_loop();
        }
        // Closed before the next round's addresses are written: a helper that still holds an old count can then
        // claim nothing with them.
        self.next.store((round as u64) << 32 | u32::MAX as u64, Ordering::SeqCst);
        // Relaxed: each part said so before it was finished.
        self.is_near.load(Ordering::Relaxed)
    }

    /// Copies one part of a round; false if none is left.
    fn take(&self, round: u32) -> bool {
        let mut seen = self.next.load(Ordering::Acquire);
        loop {
            let part = (seen as u32) as usize;
            if (seen >> 32) as u32 != round || part * PART_BYTES >= self.bytes.load(Ordering::Relaxed) {
                return false;
            }
            // The addresses are read before the part is claimed: a claim that succeeds proves that the round was
            // still this one, and a round cannot end while a claimed part is unfinished.
            let (to, from) = (self.to.load(Ordering::Relaxed), self.from.load(Ordering::Relaxed));
            let bytes = self.bytes.load(Ordering::Relaxed);
            let bounds = (self.bounds.0.load(Ordering::Relaxed), self.bounds.1.load(Ordering::Relaxed));
            match self.next.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let at = part * PART_BYTES;
                    let len = PART_BYTES.min(bytes - at);
                    let to = if to == 0 { 0 } else { to + at };
                    // SAFETY: the owner of the round promised the ranges until all parts are finished.
                    if unsafe { do_part(to as *mut u8, (from + at) as *const u8, len, bounds) } {
                        self.is_near.store(true, Ordering::Relaxed);
                    }
                    self.finished.fetch_add(1, Ordering::Release);
                    return true;
                }
                Err(now) => seen = now,
            }
        }
    }

    fn serve(&self) {
        let mut done = 0;
        loop {
            let idle = Instant::now();
            let mut looks = 0u32;
            let round = loop {
                let round = self.round.load(Ordering::Acquire);
                if round != done {
                    break round;
                }
                looks += 1;
                if looks.is_multiple_of(64) && idle.elapsed() > HELPER_SPIN {
                    self.sleeping.fetch_add(1, Ordering::SeqCst);
                    futex::wait(&self.round, done, None, Among::Threads);
                    self.sleeping.fetch_sub(1, Ordering::SeqCst);
                }
                std::hint::spin_loop();
            };
            while self.take(round) {}
            done = round;
        }
    }
}

/// Copies past the cache: the bytes go to the bus next, or are too many to stay. Without it each destination
/// line would be read before it is written.
///
/// # Safety
/// As `memcpy`.
#[cfg(all(target_arch = "x86_64", not(sanitized)))]
unsafe fn copy_streaming(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    // SAFETY: all offsets stay below `bytes`; streaming stores go to 16-byte boundaries; SSE2 is part of x86-64.
    unsafe {
        let head = to.align_offset(16).min(bytes);
        std::ptr::copy_nonoverlapping(from, to, head);
        let mut at = head;
        while at + 64 <= bytes {
            let source = from.add(at).cast::<__m128i>();
            let target = to.add(at).cast::<__m128i>();
            let (a, b) = (_mm_loadu_si128(source), _mm_loadu_si128(source.add(1)));
            let (c, d) = (_mm_loadu_si128(source.add(2)), _mm_loadu_si128(source.add(3)));
            _mm_stream_si128(target, a);
            _mm_stream_si128(target.add(1), b);
            _mm_stream_si128(target.add(2), c);
            _mm_stream_si128(target.add(3), d);
            at += 64;
        }
        std::ptr::copy_nonoverlapping(from.add(at), to.add(at), bytes - at);
        _mm_sfence();
    }
}

/// Pages of registered memory are copied whole, with what else lies in them, and AddressSanitizer would report that.
///
/// # Safety
/// As `memcpy`.
#[cfg(all(target_arch = "x86_64", sanitized))]
unsafe fn copy_streaming(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") bytes => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

/// # Safety
/// As `memcpy`.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_streaming(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_arrives() {
        let from: Vec<u8> = (0..3 << 20).map(|i| (i * 7 + (i >> 9)) as u8).collect();
        for (offset, bytes) in [(0, 0), (1, 1), (3, 63), (5, 64), (7, 1000), (0, 2 << 20), (9, (2 << 20) + 17)] {
            let mut to = vec![0u8; bytes + 16];
            // SAFETY: both buffers are long enough.
            unsafe { copy(to.as_mut_ptr().add(3), from.as_ptr().add(offset), bytes) };
            assert_eq!(&to[3..3 + bytes], &from[offset..offset + bytes]);
            assert!(to[..3].iter().chain(&to[3 + bytes..]).all(|b| *b == 0));
        }
    }

    #[test]
    fn a_word_within_the_bounds_is_seen_in_whatever_part_it_lies() {
        const WORDS: usize = (2 << 20) / 8 + 3;
        let bounds = (0x7f00_0000_1000, 0x100);
        let (mut from, mut to) = (vec![7u64; WORDS], vec![0u64; WORDS]);
        for place in [0, 1, (256 << 10) / 8 - 1, (256 << 10) / 8, WORDS / 2, WORDS - 1] {
            from[place] = bounds.0 + bounds.1 - 1;
            // SAFETY: both have so many words.
            unsafe {
                assert!(copy_and_look(to.as_mut_ptr().cast(), from.as_ptr().cast(), 8 * WORDS, bounds), "{place}");
                assert!(look(from.as_ptr().cast(), 8 * WORDS, bounds), "{place}");
            }
            assert_eq!(to, from);
            from[place] = bounds.0 + bounds.1;
            // SAFETY: as above.
            assert!(!unsafe { look(from.as_ptr().cast(), 8 * WORDS, bounds) }, "{place}");
        }
    }

    #[test]
    fn copies_of_several_threads_do_not_mix() {
        let threads: Vec<_> = (0..4u8)
            .map(|t| {
                std::thread::spawn(move || {
                    let from = vec![t + 1; 1 << 20];
                    for _ in 0..200 {
                        let mut to = vec![0u8; 1 << 20];
                        // SAFETY: both buffers have that many bytes.
                        unsafe { copy(to.as_mut_ptr(), from.as_ptr(), 1 << 20) };
                        assert_eq!(to, from);
                    }
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
    }
}
