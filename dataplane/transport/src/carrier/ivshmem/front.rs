//! The front of a segment, mapped into a guest's program: words and mail.

// UNSAFETY: copies bytes out of memory that the host and other programs of this guest can write, and into it; refers to
// words of it that are atomics.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::segment::{BEAT_AT, FRONT_BYTES, GUEST_WORDS_AT, HEAD_WORDS, HOST_WORDS_AT, To, WORDS_BYTES, Words, pieces};

/// Every access is an atomic or a copy.
pub struct Front(MmapRaw);

impl Front {
    pub fn map(memory: BorrowedFd<'_>) -> io::Result<Front> {
        MmapOptions::new().len(FRONT_BYTES).map_raw(&memory).map(Front)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= FRONT_BYTES as u64);
        // SAFETY: aligned and inside the mapping, which lives as long as this object.
        unsafe { &*self.0.as_mut_ptr().add(at as usize).cast::<AtomicU64>() }
    }

    pub fn head(&self) -> [u64; HEAD_WORDS] {
        // Acquire here and below: the host's system calls put what it tells of ahead of the telling.
        std::array::from_fn(|i| self.word(8 * i as u64).load(Ordering::Acquire))
    }

    /// The host's.
    pub fn beat(&self) -> u64 {
        self.word(BEAT_AT).load(Ordering::Acquire)
    }

    pub fn of_host(&self, slot: usize) -> Words {
        self.words(HOST_WORDS_AT + slot as u64 * WORDS_BYTES)
    }

    pub fn of_guest(&self, slot: usize) -> Words {
        self.words(GUEST_WORDS_AT + slot as u64 * WORDS_BYTES)
    }

    fn words(&self, at: u64) -> Words {
        Words::of(std::array::from_fn(|i| self.word(at + 8 * i as u64).load(Ordering::Acquire)))
    }

    /// One of the guest's words, by its `Words::…_AT`.
    pub fn say(&self, slot: usize, which: u64, value: u64) {
        // Release: what it tells of is there before it.
        self.word(GUEST_WORDS_AT + slot as u64 * WORDS_BYTES + which).store(value, Ordering::Release);
    }

    /// Puts `bytes` where mail to the host begins at position `at`. There has to be room.
    pub fn put(&self, slot: usize, at: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (offset, len) in pieces(slot, To::Host, at, bytes.len() as u64) {
            let (piece, more) = rest.split_at(len);
            // SAFETY: `pieces` lie inside the mapping.
            unsafe { self.0.as_mut_ptr().add(offset as usize).copy_from_nonoverlapping(piece.as_ptr(), len) };
            rest = more;
        }
    }

    /// Copies `bytes` of mail from the host, from position `at` on.
    pub fn take(&self, slot: usize, at: u64, bytes: u64) -> Vec<u8> {
        let mut mail = vec![0u8; bytes as usize];
        let mut to = mail.as_mut_ptr();
        for (offset, len) in pieces(slot, To::Guest, at, bytes) {
            // SAFETY: `pieces` lie inside the mapping, and their lengths are `bytes` together.
            unsafe {
                to.copy_from_nonoverlapping(self.0.as_ptr().add(offset as usize), len);
                to = to.add(len);
            }
        }
        mail
    }
}
