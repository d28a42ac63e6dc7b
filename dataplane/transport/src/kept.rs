//! Descriptors in somebody else's process. A program may close what is not its own, as daemons do with all descriptors
//! from 3 on, and have their numbers for files of its own: nothing of ours may go there then.

// UNSAFETY: asks about descriptors whose numbers may be anybody's, and for the time.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Which open file a number leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Nothing where the number leads nowhere. An eventfd has that of all eventfds. Async-signal-safe.
    #[must_use]
    pub fn of(fd: RawFd) -> Option<Identity> {
        // SAFETY: an all-zero stat is valid, and valid for writes; the number may be any.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(fd, &raw mut stat) == 0).then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
        }
    }
}

/// What is said of one that is not there any more.
#[must_use]
pub fn closed() -> io::Error {
    io::Error::other("the program has closed descriptors that were not its own, Orion's among them")
}

/// A descriptor that is looked at before it is used, and that is closed only if it is still there.
#[derive(Debug)]
pub struct Kept {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
    /// When it was last seen to be there, in nanoseconds of [`now_ns`]; 0 where it was not.
    seen_ns: AtomicU64,
}

impl Kept {
    #[must_use]
    pub fn is_there(&self) -> bool {
        Identity::of(self.fd.as_raw_fd()) == self.identity
    }

    /// # Errors
    /// The program has closed it.
    pub fn check(&self) -> io::Result<()> {
        match self.is_there() {
            true => Ok(()),
            false => Err(closed()),
        }
    }

    /// As [`Self::check`], unless it was seen to be there within `age`. A look is a system call, of 0.4 us in a virtual
    /// machine, and an answer over TCP wants three. For what goes to sockets alone: nothing is sent to a file or a pipe
    /// that has the number meanwhile, and to make a socket and connect it takes a program longer than a short `age`.
    ///
    /// # Errors
    /// The program has closed it.
    pub fn check_since(&self, age: Duration) -> io::Result<()> {
        let now = now_ns();
        let seen = self.seen_ns.load(Ordering::Relaxed);
        if seen != 0 && now.saturating_sub(seen) < age.as_nanos() as u64 {
            return Ok(());
        }
        let outcome = self.check();
        // Who finds another there tells whoever would have gone by an earlier look.
        self.seen_ns.store(if outcome.is_ok() { now } else { 0 }, Ordering::Relaxed);
        outcome
    }
}

/// What a call on a socket ended with, where its number may have become something else's.
#[must_use]
pub fn unless_closed(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBADF | libc::ENOTSOCK) => closed(),
        _ => error,
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid for a write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl From<OwnedFd> for Kept {
    fn from(fd: OwnedFd) -> Kept {
        Kept { identity: Identity::of(fd.as_raw_fd()), fd: ManuallyDrop::new(fd), seen_ns: AtomicU64::new(0) }
    }
}

impl Deref for Kept {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_there() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_number_that_leads_elsewhere_is_left_alone() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let kept = Kept::from(OwnedFd::from(here));
        assert!(kept.check().is_ok());
        let path = std::env::temp_dir().join(format!("orion-kept-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        // As a program that closes it and opens its own.
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), kept.as_raw_fd()) }, kept.as_raw_fd());
        assert!(kept.check().unwrap_err().to_string().contains("has closed descriptors"));
        let number = kept.as_raw_fd();
        drop(kept);
        assert_eq!(Identity::of(number), Identity::of(file.as_raw_fd()), "it was closed");
        (&file).write_all(b"x").expect("it is open");
        // SAFETY: of this test's own.
        unsafe { libc::close(number) };
        assert_eq!(Identity::of(number), None);
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn a_look_holds_for_a_while_and_no_longer() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let kept = Kept::from(OwnedFd::from(here));
        let ever = Duration::from_secs(3600);
        assert!(kept.check_since(ever).is_ok(), "it is there");
        // SAFETY: a plain call, on numbers of this test's own.
        assert_eq!(unsafe { libc::dup2(there.as_raw_fd(), kept.as_raw_fd()) }, kept.as_raw_fd());
        assert!(kept.check_since(ever).is_ok(), "nobody looked again");
        assert!(kept.check_since(Duration::ZERO).is_err());
        assert!(kept.check_since(ever).is_err(), "somebody has seen that it is another's");
        let number = kept.as_raw_fd();
        drop(kept);
        // SAFETY: of this test's own.
        unsafe { libc::close(number) };
    }

    #[test]
    fn a_number_that_is_no_socket_any_more_is_said_to_be_closed() {
        for code in [libc::EBADF, libc::ENOTSOCK] {
            let said = unless_closed(io::Error::from_raw_os_error(code)).to_string();
            assert!(said.contains("has closed descriptors"), "{said}");
        }
        assert_eq!(unless_closed(io::Error::from_raw_os_error(libc::EPIPE)).raw_os_error(), Some(libc::EPIPE));
    }
}
