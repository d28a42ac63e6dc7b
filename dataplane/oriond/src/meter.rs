//! A page on which a worker writes what its session's vGPUs use, and from which oriond reads it whenever somebody asks:
//! memory, and of the software GPU when it works.
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

use crate::seat::now_ns;

/// Set once the others say something.
const COUNT: usize = 0;
/// Since when the worker says when its vGPUs work, or 0 where it does not know.
const MEASURED_SINCE: usize = 1;
const HEAD: usize = 2;
const TOTAL: usize = 0;
const USED: usize = 1;
/// Since when a vGPU has worked without a pause, or 0. In the beats after it stands what it worked before that.
const WORKS_SINCE: usize = 2;
const BEATS: usize = 3;
const WORDS_EACH: usize = BEATS + BEATS_KEPT;
const BYTES: usize = (HEAD + DEVICES_MAX * WORDS_EACH) * size_of::<u64>();

/// A vGPU's last second is told in pieces of this, each with its number since the clock began.
const BEAT_NS: u64 = 50_000_000;
/// The last second, and the piece that has begun.
const BEATS_TOLD: u64 = 20;
const BEATS_KEPT: usize = BEATS_TOLD as usize + 1;
/// A word of a beat is its number, and below that what the vGPU worked in it.
const NUMBER_SHIFT: u32 = 32;

pub struct Meter {
    /// oriond's, for the worker.
    fd: Option<OwnedFd>,
    words: Words,
}

/// The page.
struct Words(MmapRaw);

/// Of one vGPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that it may have, and has.
    pub total: u64,
    pub used: u64,
    /// Of the last second, in which it worked; nothing where the worker does not know.
    pub busy_percent: Option<u32>,
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
        &self.words.all()[HEAD + vgpu * WORDS_EACH + which]
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

    /// From now on it is said when the vGPUs work.
    pub fn measures(&self, now_ns: u64) {
        self.words.all()[MEASURED_SINCE].store(now_ns, Ordering::Relaxed);
    }

    /// A vGPU begins to work, or stops: one thread says so at a time.
    pub fn works(&self, vgpu: usize, works: bool, now_ns: u64) {
        let since = self.word(vgpu, WORKS_SINCE);
        if works {
            return since.store(now_ns, Ordering::Relaxed);
        }
        let since_ns = since.swap(0, Ordering::Relaxed);
        if since_ns == 0 {
            return;
        }
        let last = now_ns / BEAT_NS;
        for beat in (since_ns / BEAT_NS).max(last.saturating_sub(BEATS_TOLD))..=last {
            let (start_ns, word) = (beat * BEAT_NS, self.word(vgpu, BEATS + beat as usize % BEATS_KEPT));
            let ns = now_ns.min(start_ns + BEAT_NS).saturating_sub(since_ns.max(start_ns));
            let (number, before_ns) = halves(word.load(Ordering::Relaxed));
            let before_ns = if number == beat { before_ns } else { 0 };
            word.store(beat << NUMBER_SHIFT | (before_ns + ns), Ordering::Relaxed);
        }
    }

    /// Of each vGPU; nothing before the session has begun.
    pub fn read(&self) -> Vec<Reading> {
        self.read_at(now_ns())
    }

    fn read_at(&self, now_ns: u64) -> Vec<Reading> {
        // Pairs with the store in `begin`. The number is the worker's word.
        let count = (self.words.all()[COUNT].load(Ordering::Acquire) as usize).min(DEVICES_MAX);
        let word = |vgpu, which| self.word(vgpu, which).load(Ordering::Relaxed);
        let reading = |vgpu| {
            let busy_percent = self.busy_percent(vgpu, now_ns);
            Reading { total: word(vgpu, TOTAL), used: word(vgpu, USED), busy_percent }
        };
        (0..count).map(reading).collect()
    }

    /// Of the last second, or since it is measured. Whoever looks just when a piece of work ends misses that piece.
    fn busy_percent(&self, vgpu: usize, now_ns: u64) -> Option<u32> {
        let measured_since_ns = self.words.all()[MEASURED_SINCE].load(Ordering::Relaxed);
        if measured_since_ns == 0 {
            return None;
        }
        let last = now_ns / BEAT_NS;
        let first = last.saturating_sub(BEATS_TOLD);
        let start_ns = (first * BEAT_NS).max(measured_since_ns);
        let passed_ns = now_ns.saturating_sub(start_ns);
        let word = |which| self.word(vgpu, which).load(Ordering::Relaxed);
        // Whatever a worker has written there.
        let beats = (0..BEATS_KEPT).map(|beat| halves(word(BEATS + beat)));
        let told = beats.filter(|(number, _)| (first..=last).contains(number)).map(|(_, ns)| ns.min(BEAT_NS));
        let works_ns = match word(WORKS_SINCE) {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns.max(start_ns)),
        };
        let percent = 100 * (told.sum::<u64>() + works_ns.min(passed_ns));
        Some((percent + passed_ns / 2).checked_div(passed_ns).unwrap_or(0).min(100) as u32)
    }
}

/// The number of a beat, and what was worked in it.
fn halves(word: u64) -> (u64, u64) {
    (word >> NUMBER_SHIFT, word & ((1 << NUMBER_SHIFT) - 1))
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
        let zero = Reading { total: 7, used: 0, busy_percent: None };
        assert_eq!(ours.read(), [zero, Reading { total: 9, used: 5, busy_percent: None }]);
        // SAFETY: a plain call.
        assert_ne!(unsafe { libc::ftruncate(ours.fd().expect("its maker").as_raw_fd(), 0) }, 0);
        // Whatever stands there is read.
        theirs.words.all()[COUNT].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(ours.read().len(), DEVICES_MAX);
        theirs.words.all()[MEASURED_SINCE..].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        assert!(ours.read().iter().all(|reading| reading.busy_percent.is_some_and(|percent| percent <= 100)));
    }

    #[test]
    fn the_last_second_is_told_from_any_moment_in_it() {
        const MS: u64 = 1_000_000;
        let meter = Meter::create().expect("a page");
        let began = 7_013 * MS;
        let at = |ms: u64| began + ms * MS;
        let told = |ms: u64| meter.read_at(at(ms))[1].busy_percent;
        meter.begin(&[7, 9]);
        assert_eq!(told(0), None, "nobody measures");
        meter.measures(began);
        assert_eq!((told(0), told(10)), (Some(0), Some(0)));
        // While it works, from its beginning on: a kernel may take longer than a second.
        meter.works(1, true, at(10));
        assert_eq!((told(20), told(110)), (Some(50), Some(91)));
        assert_eq!((told(1_500), told(9_000)), (Some(100), Some(100)));
        meter.works(1, false, at(9_000));
        // From then on it is idle; the beginning of the second is that of a piece of 50 ms.
        assert_eq!((told(9_000), told(9_987), told(10_100)), (Some(100), Some(1), Some(0)));
        let near = |ms: u64, percent: u32| {
            let seen = told(ms).expect("it is measured");
            assert!(seen.abs_diff(percent) <= 3, "at {ms} ms {seen} and not {percent}");
        };
        near(9_500, 50);
        // Half of each 4 ms.
        for turn in 0..1_000 {
            meter.works(1, true, at(20_000 + 4 * turn));
            meter.works(1, false, at(20_002 + 4 * turn));
            if [250, 555, 999].contains(&turn) {
                near(20_004 + 4 * turn, 50);
            }
        }
        near(24_750, 12);
        // Of another vGPU nothing was said.
        assert_eq!(meter.read_at(at(24_000))[0].busy_percent, Some(0));
    }
}
