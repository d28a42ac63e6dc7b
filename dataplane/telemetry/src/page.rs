//! The page of a session: a memfd that oriond makes and seals the size of, a worker writes, and oriond reads.
//!
//! ```text
//! word 0       1 once somebody writes
//! word 64      of_session, one word an event
//! word 128     of_class, a cache line a class
//! word 1024    histograms: times of class 0, of class 1, …; 1024 words each
//! ```
//! One thread writes a word, by a load and a store without a lock. Readers copy what stands there at some moment: words
//! of one reading are not of the same instant, and a worker that a tenant has taken over writes what it likes. So what
//! is read is only ever a number to be shown.

// UNSAFETY: refers to pages that two processes share as words that are atomic; reads a clock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use orion_ring::sealed;

use crate::class::Class;
use crate::events::{Event, of_class, of_session, times};
use crate::histogram::{BUCKETS, COUNT_MAX, Counts, coarser};

const SESSION: usize = 64;
const CLASSES: usize = 128;
const LINE: usize = 8;
const HISTOGRAMS: usize = 1024;
const WORDS: usize = HISTOGRAMS + Class::COUNT * times::ALL.len() * BUCKETS;
/// Buckets of one session that are told. Who fills every word of his page would have most of a megabyte told of him,
/// and with 82 sessions tools would be told of nobody, for they read 64 MiB. A program has a tenth of it, as a rule.
const TOLD_MAX: usize = 2048;

/// Pages that nobody writes to take no memory.
const BYTES: usize = WORDS * size_of::<u64>();

const _: () = {
    assert!(of_class::ALL.len() <= LINE, "a class has one cache line");
    assert!(SESSION + of_session::ALL.len() <= CLASSES && CLASSES + Class::COUNT * LINE <= HISTOGRAMS);
    assert!(BYTES.is_multiple_of(4096));
    // An octave a bucket is coarse enough.
    assert!(Class::COUNT * times::ALL.len() * (BUCKETS >> 5) <= TOLD_MAX);
};

/// oriond's side.
pub struct Page {
    fd: OwnedFd,
    words: Words,
}

/// The worker's side.
pub struct OwnPage {
    words: Words,
}

struct Words(MmapRaw);

impl Page {
    /// # Errors
    ///
    /// What the system answers.
    pub fn create() -> io::Result<Page> {
        let fd = sealed(c"orion-stats", BYTES as u64)?;
        let words = Words(MmapOptions::new().len(BYTES).map_raw_read_only(&fd)?);
        Ok(Page { fd, words })
    }

    /// For the worker.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What stands there now.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        self.words.read()
    }
}

impl OwnPage {
    /// # Errors
    ///
    /// What the system answers.
    pub fn map(fd: BorrowedFd<'_>) -> io::Result<OwnPage> {
        let words = Words(MmapOptions::new().len(BYTES).map_raw(&fd)?);
        words.all()[0].store(1, Ordering::Relaxed);
        Ok(OwnPage { words })
    }

    /// A page that nobody else has.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn alone() -> io::Result<OwnPage> {
        OwnPage::map(Page::create()?.fd())
    }

    /// Adds to a word of the session. Each has one thread that does.
    #[inline]
    pub fn add(&self, event: Event, n: u64) {
        add(&self.words.all()[SESSION + event.index], n);
    }

    pub fn set(&self, event: Event, value: u64) {
        self.words.all()[SESSION + event.index].store(value, Ordering::Relaxed);
    }

    /// The words of a class, by [`of_class`].
    #[inline]
    #[must_use]
    pub fn line(&self, class: Class) -> &[AtomicU64; LINE] {
        let from = CLASSES + class as usize * LINE;
        self.words.all()[from..from + LINE].try_into().expect("as long as a line")
    }

    /// Counts a value in one of the histograms of a class.
    #[inline]
    pub fn record(&self, class: Class, event: Event, ns: u64, weight: u64) {
        add(&self.words.all()[histogram(class, event) + crate::histogram::bucket(ns)], weight);
    }

    #[must_use]
    pub fn read(&self) -> Snapshot {
        self.words.read()
    }
}

/// The clock that oriond and its workers have in common.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[inline]
pub(crate) fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

fn histogram(class: Class, event: Event) -> usize {
    HISTOGRAMS + (class as usize * times::ALL.len() + event.index) * BUCKETS
}

/// A page at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    session: Vec<u64>,
    classes: Vec<Vec<u64>>,
    /// By class, then by event.
    histograms: Vec<Vec<Counts>>,
    coarse: u32,
}

impl Snapshot {
    #[must_use]
    pub fn session(&self, event: Event) -> u64 {
        self.session.get(event.index).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn class(&self, class: Class, event: Event) -> u64 {
        self.classes.get(class as usize).and_then(|line| line.get(event.index)).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn histogram(&self, class: Class, event: Event) -> &Counts {
        static NOTHING: Counts = Counts::new();
        self.histograms.get(class as usize).and_then(|all| all.get(event.index)).unwrap_or(&NOTHING)
    }

    /// By how much histograms are [`coarser`] than they stand there.
    #[must_use]
    pub fn coarse(&self) -> u32 {
        self.coarse
    }
}

impl Words {
    #[inline]
    fn all(&self) -> &[AtomicU64] {
        // SAFETY: pages of this size, aligned, that stay while this does; words that others write are atomic.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), WORDS) }
    }

    fn read(&self) -> Snapshot {
        let copy = |from: usize, count: usize| -> Vec<u64> {
            self.all()[from..from + count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
        };
        let classes: Vec<Vec<u64>> =
            (0..Class::COUNT).map(|class| copy(CLASSES + class * LINE, of_class::ALL.len())).collect();
        let histograms = Class::ALL.iter().zip(&classes).map(|(class, line)| {
            // Where nothing was counted the pages stay untouched, by who reads them too.
            let is_used = line.iter().any(|word| *word != 0);
            let events = times::ALL.iter().filter(|_| is_used);
            events.map(|event| self.counts(histogram(*class, *event))).collect()
        });
        let mut session = copy(SESSION, of_session::ALL.len());
        let since = session[of_session::ASLEEP_SINCE.index];
        if since != 0 {
            let idle = &mut session[of_session::IDLE.index];
            *idle = idle.saturating_add(monotonic_ns().saturating_sub(since));
        }
        let mut histograms: Vec<Vec<Counts>> = histograms.collect();
        let mut coarse = 0;
        while histograms.iter().flatten().map(Vec::len).sum::<usize>() > TOLD_MAX {
            coarse += 1;
            histograms.iter_mut().flatten().for_each(|counts| *counts = coarser(counts, coarse));
        }
        Snapshot { session, histograms, classes, coarse }
    }

    fn counts(&self, from: usize) -> Counts {
        let words = self.all()[from..from + BUCKETS].iter().map(|word| word.load(Ordering::Relaxed));
        (0..)
            .zip(words)
            .filter(|(_, count)| *count != 0)
            .map(|(bucket, count)| (bucket, count.min(COUNT_MAX)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_the_worker_writes_is_read_and_the_page_keeps_its_size() {
        let ours = Page::create().expect("a page");
        assert_eq!(ours.read().session(of_session::IDLE), 0);
        let theirs = OwnPage::map(ours.fd()).expect("the same page");
        theirs.add(of_session::LEASE_WAIT, 7);
        theirs.add(of_session::LEASE_WAIT, 2);
        add(&theirs.line(Class::Other)[of_class::SAMPLES.index], 3);
        theirs.record(Class::Other, times::RING, 40, 5);
        let read = ours.read();
        assert_eq!(read.session(of_session::LEASE_WAIT), 9);
        assert_eq!(read.class(Class::Other, of_class::SAMPLES), 3);
        assert_eq!(*read.histogram(Class::Other, times::RING), [(40, 5)]);
        assert!(read.histogram(Class::Launch, times::TIME).is_empty());
        // SAFETY: a plain call.
        assert_ne!(unsafe { libc::ftruncate(ours.fd().as_raw_fd(), 0) }, 0);
    }

    #[test]
    fn whatever_stands_there_is_read() {
        let ours = Page::create().expect("a page");
        let theirs = OwnPage::map(ours.fd()).expect("the same page");
        theirs.words.all().iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        let read = ours.read();
        assert_eq!(read.session(of_session::COST), u64::MAX);
        // In few numbers, though nothing of it is left out.
        assert_eq!(read.histogram(Class::Launch, times::TIME).len(), BUCKETS >> read.coarse());
        assert!(read.histograms.iter().flatten().map(Vec::len).sum::<usize>() <= TOLD_MAX);
    }
}
