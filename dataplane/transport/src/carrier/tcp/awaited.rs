//! Whether somebody in this process waits for what the main connection brings.
//!
//! While somebody does, the receiving thread looks for it, if a core is free for that. Otherwise it sleeps until there
//! is something, or until somebody begins to wait: then it is woken at once, and is up by the time that the answer
//! comes.

// UNSAFETY: makes a pipe, writes to it and reads it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orion_ring::{Spin, load};

use super::patience::{Patience, looks_readable, poll, readable};
use crate::kept::Kept;

/// Who has just been answered often asks again: for so long the receiving thread looks all the same. A training step
/// that reads its loss waits three times, with up to a millisecond in between; with 200 us here such steps took 10 %
/// longer.
const ASKS_AGAIN: Duration = Duration::from_millis(2);

/// What is written to wake a thread.
static BYTE: u8 = 1;

pub struct Awaited {
    waiting: AtomicU32,
    /// How often somebody has begun to.
    begun: AtomicU32,
    /// The receiving thread sleeps, and wants to be woken when somebody begins to wait.
    asleep: AtomicBool,
    /// A pipe, whose two ends are told from what the program may have had their numbers for.
    bell: (Kept, Kept),
}

impl Awaited {
    pub fn new() -> io::Result<Awaited> {
        // SAFETY: a plain call, and descriptors that are nobody else's.
        let bell = unsafe {
            let mut ends = [0; 2];
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return Err(io::Error::last_os_error());
            }
            let [heard, rung] = ends.map(|end| Kept::from(OwnedFd::from_raw_fd(end)));
            (heard, rung)
        };
        Ok(Awaited { waiting: AtomicU32::new(0), begun: AtomicU32::new(0), asleep: AtomicBool::new(false), bell })
    }

    /// A thread begins to wait.
    pub fn begin(&self) {
        // Counted first: the receiving thread says that it sleeps, and then looks at the count.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst)
            && load::core_is_free(Instant::now())
            && self.asleep.swap(false, Ordering::SeqCst)
            && self.bell.1.is_there()
        {
            // SAFETY: a byte. Where it fails the receiving thread is woken by what it waits for.
            unsafe { libc::write(self.bell.1.as_raw_fd(), std::ptr::from_ref(&BYTE).cast(), 1) };
        }
    }

    pub fn end(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// How the receiving thread waits, which looks at most as long as `spin` has it.
    pub fn looking(&self, spin: Spin) -> Looking<'_> {
        Looking { awaited: self, spin }
    }

    fn by_somebody(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Sleeps until there is something to receive, or somebody has begun to wait since it was `begun` times; true if it
    /// is the first.
    fn sleep(&self, socket: &OwnedFd, begun: u32) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let mut entries = [readable(socket), readable(&self.bell.0)];
        if !self.bell.0.is_there() {
            // Nobody rings any more, and whatever has its number is left alone.
            entries[1].fd = -1;
        }
        if self.begun.load(Ordering::SeqCst) == begun || !load::core_is_free(Instant::now()) {
            poll(&mut entries, -1);
        }
        self.asleep.store(false, Ordering::SeqCst);
        // Its number may have become another file's meanwhile.
        if entries[1].revents != 0 && self.bell.0.is_there() {
            let mut bytes = [0u8; 64];
            // SAFETY: as many bytes as there are.
            unsafe { libc::read(self.bell.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        }
        entries[0].revents != 0
    }
}

pub struct Looking<'a> {
    awaited: &'a Awaited,
    spin: Spin,
}

impl Patience for Looking<'_> {
    fn is_readable(&self, socket: &OwnedFd) -> bool {
        loop {
            let (began, begun) = (Instant::now(), self.awaited.begun.load(Ordering::SeqCst));
            let still = |now: Instant| self.awaited.by_somebody() || now - began < ASKS_AGAIN;
            if looks_readable(socket, self.spin, still) || self.awaited.sleep(socket, begun) {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;

    /// Waits for one byte, and answers whether there was one.
    fn waits(awaited: &Arc<Awaited>, socket: UnixStream) -> std::thread::JoinHandle<bool> {
        let awaited = awaited.clone();
        std::thread::spawn(move || {
            awaited.looking(Spin::adaptive(Duration::from_millis(1))).is_readable(&socket.into())
        })
    }

    fn until(what: impl Fn() -> bool) {
        let start = Instant::now();
        while !what() {
            assert!(start.elapsed() < Duration::from_secs(20), "it did not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn bytes_wake_whoever_sleeps_with_nobody_waiting() {
        let awaited = Arc::new(Awaited::new().unwrap());
        let (here, mut there) = UnixStream::pair().unwrap();
        let waits = waits(&awaited, here);
        until(|| awaited.asleep.load(Ordering::SeqCst));
        there.write_all(&[1]).unwrap();
        assert!(waits.join().unwrap());
    }

    #[test]
    fn bytes_are_found_while_somebody_waits_and_after() {
        let awaited = Arc::new(Awaited::new().unwrap());
        let (here, mut there) = UnixStream::pair().unwrap();
        let waits = waits(&awaited, here);
        until(|| awaited.asleep.load(Ordering::SeqCst));
        awaited.begin();
        std::thread::sleep(Duration::from_millis(5));
        awaited.end();
        until(|| awaited.asleep.load(Ordering::SeqCst));
        there.write_all(&[1]).unwrap();
        assert!(waits.join().unwrap());
    }

    /// A program may have closed the bell and have its number for a file, in which there is always something to read.
    #[test]
    fn a_bell_whose_number_is_another_file_s_keeps_nobody_awake() {
        let awaited = Arc::new(Awaited::new().unwrap());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        // SAFETY: a plain call, on a number of this test's own.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), awaited.bell.0.as_raw_fd()) } >= 0);
        let (here, mut there) = UnixStream::pair().unwrap();
        let slept = {
            let awaited = awaited.clone();
            std::thread::spawn(move || awaited.sleep(&here.into(), 0))
        };
        std::thread::sleep(Duration::from_millis(50));
        assert!(!slept.is_finished(), "it looks all the time");
        there.write_all(&[1]).unwrap();
        assert!(slept.join().unwrap());
        // SAFETY: this test's own, and nobody else's any more.
        unsafe { libc::close(awaited.bell.0.as_raw_fd()) };
    }

    #[test]
    fn the_end_of_a_connection_wakes_too() {
        let awaited = Arc::new(Awaited::new().unwrap());
        let (here, there) = UnixStream::pair().unwrap();
        let waits = waits(&awaited, here);
        until(|| awaited.asleep.load(Ordering::SeqCst));
        drop(there);
        assert!(waits.join().unwrap());
    }
}
