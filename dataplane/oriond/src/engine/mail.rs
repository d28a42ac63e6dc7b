//! How engines are told things: a queue without locks, and an eventfd that is only written when the engine sleeps.

// UNSAFETY: eventfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::SegQueue;

/// Has an engine look at the object in a slot.
pub trait Kick: Send + Sync {
    fn kick(&self, slot: u32);
}

/// Has no bound of its own: who posts could not wait, for he may be an engine that somebody else's mail waits for. Each
/// piece is about something that has one: a connection that was let in or a session that has begun (once each, and once
/// when it is over), a worker that was asked for, chunks on their way on a lane (a kick for each time that some of
/// `LANE_CHUNKS_MAX` are dealt out), one that waits for a barrier or for room (a kick, until it waits again).
pub struct Mailbox<T> {
    queue: SegQueue<T>,
    /// Something is in `queue`.
    filled: AtomicBool,
    /// The engine sleeps, or is about to and will look once more.
    sleeps: AtomicBool,
    eventfd: OwnedFd,
}

impl<T> Mailbox<T> {
    pub fn new() -> io::Result<Mailbox<T>> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let eventfd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Mailbox { queue: SegQueue::new(), filled: AtomicBool::new(false), sleeps: AtomicBool::new(false), eventfd })
    }

    pub fn post(&self, mail: T) {
        self.queue.push(mail);
        // SeqCst here and in `may_sleep`: either the engine sees the mail or we see that it sleeps.
        self.filled.store(true, Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            let one = 1u64;
            // SAFETY: eight bytes from a local. It cannot fail short of 2^64 wake-ups.
            unsafe { libc::write(self.eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    pub fn take(&self, into: &mut Vec<T>) {
        if self.filled.load(Ordering::Relaxed) && self.filled.swap(false, Ordering::SeqCst) {
            into.extend(std::iter::from_fn(|| self.queue.pop()));
        }
    }

    /// Announces that the engine will sleep; false if there is mail.
    pub fn may_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        !self.filled.load(Ordering::SeqCst)
    }

    pub fn awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    pub fn eventfd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}
