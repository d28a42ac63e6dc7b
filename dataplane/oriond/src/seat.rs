//! What a session's worker and the arbiters of its GPUs tell each other: a page of atomic words, a seat for each GPU.
//!
//! oriond makes a page for each session and seals its size. A worker has its own page and no other, so whoever has
//! taken one over can spoil nothing but his own session's words, and what the arbiter writes it never reads back. The
//! client does not have the page.

// UNSAFETY: refers to pages that two processes share as words that are atomic; eventfd; reads a clock.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use orion_arbiter::{Grant, Ledger, Progress, Said};
use orion_ring::sealed;

/// GPUs that a session may have vGPUs on.
pub const SEATS_MAX: usize = 64;
const BYTES: usize = SEATS_MAX * size_of::<Seat>();

/// The grants as a word. A page begins with the first of them.
pub mod grant {
    pub const STOP: u32 = 0;
    pub const FREE: u32 = 1;
    pub const LEASE: u32 = 2;
    pub const ARMED: u32 = 3;
    pub const TOGETHER: u32 = 4;
}

/// Without an arbiter that lives nobody is waited for any longer.
pub const PATIENCE_NS: u64 = 250_000_000;

/// A lease without an end.
pub const UNTIL_TOLD: u64 = u64::MAX;

/// One session on one GPU.
#[repr(C, align(64))]
pub struct Seat {
    /// The arbiter's words.
    pub of_arbiter: OfArbiter,
    pub of_worker: OfWorker,
}

#[repr(C, align(64))]
pub struct OfArbiter {
    /// One of [`grant`]; slept on as a futex.
    pub grant: AtomicU32,
    /// 1 while the session's own limit holds it back.
    pub is_at_limit: AtomicU32,
    /// When a lease ends, or [`UNTIL_TOLD`]; of who is next, from when it may begin.
    pub until_ns: AtomicU64,
    /// When the arbiter was last seen alive.
    pub beat_ns: AtomicU64,
    pub used_ns: AtomicU64,
    pub lent_ns: AtomicU64,
    pub overrun_ns: AtomicU64,
    pub leases: AtomicU64,
}

#[repr(C, align(64))]
pub struct OfWorker {
    /// Bit 0: waits for the lease. Bit 1: the GPU works for it.
    pub said: AtomicU32,
    /// 1 while what it has begun is off the GPU, and waits for the lease to go on.
    pub is_off: AtomicU32,
    /// Commands that the GPU has done; for how long it had work of the session's, until it last had none; and since
    /// when it has had some again, or 0.
    pub done: AtomicU64,
    pub busy_ns: AtomicU64,
    pub busy_since_ns: AtomicU64,
    /// How often a command has waited for the lease, for how long altogether, and at most.
    pub waits: AtomicU64,
    pub waited_ns: AtomicU64,
    pub waited_ns_max: AtomicU64,
    /// How often it was taken off the GPU because its work did not end with its turn.
    pub taken_off: AtomicU64,
}

impl Seat {
    pub fn said(&self) -> Said {
        // SeqCst here and in `say`, and in `show`: either the worker sees that its lease is over or we that it works.
        let word = self.of_worker.said.load(Ordering::SeqCst);
        if self.of_worker.is_off.load(Ordering::SeqCst) != 0 {
            return Said { wants: true, busy: false };
        }
        Said { wants: word & 1 != 0, busy: word & 2 != 0 }
    }

    pub fn say(&self, said: Said) {
        self.of_worker.said.store(u32::from(said.wants) | u32::from(said.busy) << 1, Ordering::SeqCst);
    }

    /// What the worker says that it has done until now. It may be anything.
    pub fn progress(&self, now_ns: u64) -> Progress {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let since_ns = word(&self.of_worker.busy_since_ns);
        let now_busy_ns = if since_ns == 0 { 0 } else { now_ns.saturating_sub(since_ns) };
        let busy_ns = word(&self.of_worker.busy_ns).saturating_add(now_busy_ns);
        Progress { passed: word(&self.of_worker.done), busy_ns }
    }

    /// The worker's: the GPU is done with so many more commands.
    pub fn has_done(&self, commands: u64) {
        let done = &self.of_worker.done;
        done.store(done.load(Ordering::Relaxed).wrapping_add(commands), Ordering::Relaxed);
    }

    /// The worker's: the GPU has work of the session's from now on, or none.
    pub fn works(&self, works: bool, now_ns: u64) {
        let words = &self.of_worker;
        let since_ns = words.busy_since_ns.swap(if works { now_ns } else { 0 }, Ordering::Relaxed);
        if since_ns != 0 {
            words.busy_ns.fetch_add(now_ns.saturating_sub(since_ns), Ordering::Relaxed);
        }
    }

    /// The worker's: what the GPU did for it has been taken off, or goes on.
    pub fn is_taken_off(&self, is_off: bool, now_ns: u64) {
        self.works(!is_off, now_ns);
        self.of_worker.is_off.store(is_off.into(), Ordering::SeqCst);
        self.of_worker.taken_off.fetch_add(is_off.into(), Ordering::Relaxed);
    }

    /// The arbiter's: true if the worker may have to get up.
    pub fn show(&self, shown: Grant, is_at_limit: bool) -> bool {
        let (word, until_ns) = match shown {
            Grant::Stop => (grant::STOP, 0),
            Grant::Armed { from_ns } => (grant::ARMED, from_ns),
            Grant::Free => (grant::FREE, UNTIL_TOLD),
            Grant::Together => (grant::TOGETHER, UNTIL_TOLD),
            Grant::Lease { until_ns } => (grant::LEASE, until_ns.unwrap_or(UNTIL_TOLD)),
        };
        self.of_arbiter.until_ns.store(until_ns, Ordering::Relaxed);
        self.of_arbiter.is_at_limit.store(is_at_limit.into(), Ordering::Relaxed);
        let before = self.of_arbiter.grant.swap(word, Ordering::SeqCst);
        before != word && word != grant::STOP
    }

    pub fn show_ledger(&self, ledger: &Ledger) {
        let words = &self.of_arbiter;
        words.used_ns.store(ledger.used_ns, Ordering::Relaxed);
        words.lent_ns.store(ledger.lent_ns, Ordering::Relaxed);
        words.overrun_ns.store(ledger.overrun_ns, Ordering::Relaxed);
        words.leases.store(ledger.leases, Ordering::Relaxed);
    }

    /// A command has waited so long for the lease.
    pub fn waited(&self, ns: u64) {
        let words = &self.of_worker;
        words.waits.fetch_add(1, Ordering::Relaxed);
        words.waited_ns.fetch_add(ns, Ordering::Relaxed);
        words.waited_ns_max.fetch_max(ns, Ordering::Relaxed);
    }
}

/// The seats of a session.
pub struct Page {
    /// oriond's, for the worker.
    fd: Option<OwnedFd>,
    seats: Seats,
}

struct Seats(MmapRaw);

impl Page {
    /// oriond's.
    pub fn create() -> io::Result<Page> {
        let fd = sealed(c"orion-seats", BYTES as u64)?;
        let page = Page::map(fd.as_fd())?;
        Ok(Page { fd: Some(fd), ..page })
    }

    /// The worker's: of oriond, which it believes.
    pub fn map(fd: BorrowedFd<'_>) -> io::Result<Page> {
        Ok(Page { fd: None, seats: Seats(MmapOptions::new().len(BYTES).map_raw(&fd)?) })
    }

    /// To be handed to the worker, by who has made it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub fn seat(&self, index: usize) -> &Seat {
        &self.seats.all()[index]
    }
}

impl Seats {
    fn all(&self) -> &[Seat] {
        // SAFETY: pages of this size, aligned, that stay while this does; words are atomic, and any bits are valid.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), SEATS_MAX) }
    }
}

/// What a worker rings when it has said something that the arbiter waits for.
pub struct Bell(OwnedFd);

impl Bell {
    pub fn create() -> io::Result<Bell> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The worker's end, which came from oriond.
    pub fn of(fd: OwnedFd) -> Bell {
        Bell(fd)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes from a local. A bell that has been rung too often is heard all the same.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Until it is rung again.
    pub fn silence(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes into a local; it does not wait.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// The clock that both sides see.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out pointer; this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_reads_what_the_other_writes_and_the_page_keeps_its_size() {
        let ours = Page::create().expect("a page");
        let theirs = Page::map(ours.fd().expect("its maker")).expect("the same page");
        let said = Said { wants: true, busy: false };
        theirs.seat(3).say(said);
        assert_eq!((ours.seat(3).said(), ours.seat(2).said()), (said, Said::default()));
        assert!(ours.seat(3).show(Grant::Lease { until_ns: Some(7) }, false) && !ours.seat(3).show(Grant::Stop, true));
        assert!(ours.seat(3).show(Grant::Lease { until_ns: None }, false));
        let words = &theirs.seat(3).of_arbiter;
        let shown = (words.grant.load(Ordering::Relaxed), words.until_ns.load(Ordering::Relaxed));
        assert_eq!(shown, (grant::LEASE, UNTIL_TOLD));
        // SAFETY: a plain call.
        assert_ne!(unsafe { libc::ftruncate(ours.fd().expect("its maker").as_raw_fd(), 0) }, 0);
        // What is off the GPU waits, whatever it did before.
        theirs.seat(3).say(Said { wants: false, busy: true });
        theirs.seat(3).is_taken_off(true, 5);
        assert_eq!(ours.seat(3).said(), Said { wants: true, busy: false });
        theirs.seat(3).is_taken_off(false, 9);
        assert_eq!(ours.seat(3).said(), Said { wants: false, busy: true });
        assert_eq!(ours.seat(3).of_worker.taken_off.load(Ordering::Relaxed), 1);
        // Whatever stands there is read.
        theirs.seat(3).of_worker.said.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(ours.seat(3).said(), Said { wants: true, busy: true });
    }

    #[test]
    fn a_bell_that_was_rung_often_is_silent_after_once() {
        let bell = Bell::create().expect("a bell");
        (0..3).for_each(|_| bell.ring());
        bell.silence();
        let mut entry = libc::pollfd { fd: bell.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut entry, 1, 0) }, 0);
        bell.silence();
    }
}
