//! How it is waited for bytes of a connection.

// UNSAFETY: poll.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use orion_ring::{Spin, pause_after};

pub trait Patience {
    /// True once there is something to receive; false if a call that waits is to find out.
    fn is_readable(&self, socket: &OwnedFd) -> bool;
}

impl Patience for Spin {
    fn is_readable(&self, socket: &OwnedFd) -> bool {
        looks_readable(socket, *self, |_| true)
    }
}

/// Looks by `poll`, which does not take the socket's lock: `recv` does, and whoever sends on the same connection
/// meanwhile sleeps until it has it. Ends without, too, when `still` is no reason to look any more.
pub fn looks_readable(socket: &OwnedFd, spin: Spin, still: impl Fn(Instant) -> bool) -> bool {
    let start = Instant::now();
    let mut last = start;
    let mut looks = 0u32;
    loop {
        if poll(&mut [readable(socket)], 0) {
            return true;
        }
        if spin.yields {
            std::thread::yield_now();
        }
        looks += 1;
        // Each look is a system call, which takes as long as four looks at memory.
        pause_after(4 * looks);
        let now = Instant::now();
        if !spin.goes_on(start, last, now) || !still(now) {
            return false;
        }
        last = now;
    }
}

/// An end or an error of a connection counts as readable.
pub fn readable(fd: &OwnedFd) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Whether there is news of one of these, at the latest when `timeout_ms` is over; -1 is never.
pub fn poll(of: &mut [libc::pollfd], timeout_ms: i32) -> bool {
    // SAFETY: as many valid entries.
    unsafe { libc::poll(of.as_mut_ptr(), of.len() as libc::nfds_t, timeout_ms) != 0 }
}
