//! Descriptors in somebody else's process. A program may close what is not its own, as daemons do with all descriptors
//! from 3 on, and have their numbers for files of its own: nothing of ours may go there then.

// UNSAFETY: asks about descriptors whose numbers may be anybody's.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

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
}

impl From<OwnedFd> for Kept {
    fn from(fd: OwnedFd) -> Kept {
        Kept { identity: Identity::of(fd.as_raw_fd()), fd: ManuallyDrop::new(fd) }
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
}
