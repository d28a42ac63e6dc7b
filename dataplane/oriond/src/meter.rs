//! A page on which a worker writes what its session's vGPUs use, and from which oriond reads it whenever somebody asks.
//!
//! oriond makes the page and seals its size, so a worker that a tenant has taken over can write wrong numbers there and
//! do no harm by it. The client does not have it.

// UNSAFETY: refers to a page that two processes share as words that are atomic.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use orion_ring::sealed;
use orion_wire::message::carrier::DEVICES_MAX;

const BYTES: usize = 4096;
/// Set once the others say something.
const COUNT: usize = 0;
const WORDS_EACH: usize = 4;
const TOTAL: usize = 0;
const USED: usize = 1;

pub struct Meter {
    /// oriond's, for the worker.
    fd: Option<OwnedFd>,
    words: Words,
}

/// The page.
struct Words(MmapRaw);

/// What one vGPU may have, and has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub total: u64,
    pub used: u64,
}

impl Meter {
    /// oriond's.
    pub fn create() -> io::Result<Meter> {
        let fd = sealed(c"orion-meter", BYTES as u64)?;
        let meter = Meter::map(fd.as_fd())?;
        Ok(Meter { fd: Some(fd), ..meter })
    }

    /// The worker's: of oriond, which it believes.
    pub fn map(fd: BorrowedFd<'_>) -> io::Result<Meter> {
        Ok(Meter { fd: None, words: Words(MmapOptions::new().len(BYTES).map_raw(&fd)?) })
    }

    /// To be handed to the worker, by who has made it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    fn word(&self, vgpu: usize, which: usize) -> &AtomicU64 {
        &self.words.all()[1 + vgpu * WORDS_EACH + which]
    }

    /// What each vGPU may have. They use nothing yet.
    pub fn begin(&self, totals: &[u64]) {
        assert!(totals.len() <= DEVICES_MAX, "a session has no more");
        for (vgpu, total) in totals.iter().enumerate() {
            self.word(vgpu, TOTAL).store(*total, Ordering::Relaxed);
        }
        // Pairs with the load in `read`.
        self.words.all()[COUNT].store(totals.len() as u64, Ordering::Release);
    }

    pub fn uses(&self, vgpu: usize, bytes: u64) {
        self.word(vgpu, USED).store(bytes, Ordering::Relaxed);
    }

    /// Of each vGPU; nothing before the session has begun.
    pub fn read(&self) -> Vec<Reading> {
        // Pairs with the store in `begin`. The number is the worker's word.
        let count = (self.words.all()[COUNT].load(Ordering::Acquire) as usize).min(DEVICES_MAX);
        let word = |vgpu, which| self.word(vgpu, which).load(Ordering::Relaxed);
        (0..count).map(|vgpu| Reading { total: word(vgpu, TOTAL), used: word(vgpu, USED) }).collect()
    }
}

impl Words {
    fn all(&self) -> &[AtomicU64] {
        // SAFETY: a page of this size, aligned, that stays while this does; words that others write are atomic.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), BYTES / size_of::<u64>()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_the_worker_writes_is_read_and_the_page_keeps_its_size() {
        let ours = Meter::create().expect("a page");
        assert_eq!(ours.read(), []);
        let theirs = Meter::map(ours.fd().expect("its maker")).expect("the same page");
        theirs.begin(&[7, 9]);
        theirs.uses(1, 5);
        let zero = Reading { total: 7, used: 0 };
        assert_eq!(ours.read(), [zero, Reading { total: 9, used: 5 }]);
        // SAFETY: a plain call.
        assert_ne!(unsafe { libc::ftruncate(ours.fd().expect("its maker").as_raw_fd(), 0) }, 0);
        // Whatever stands there is read.
        theirs.words.all()[COUNT].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(ours.read().len(), DEVICES_MAX);
    }
}
