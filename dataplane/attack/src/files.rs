//! Files that a session has its worker map, and descriptors of what is none.

// UNSAFETY: makes descriptors by system calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::random::Random;

/// Where some of the file is mapped from the beginning.
pub const PLACE: u64 = 0x3800_0000_0000;
pub const MAPPED_BYTES: u64 = 16 << 12;
/// Ranges of messages lie in it; nearly all of it is a hole.
const FILE_BYTES: u64 = 128 << 20;

pub struct Files {
    /// In memory, as it is meant.
    pub own: File,
}

impl Files {
    pub fn new() -> io::Result<Files> {
        let own = in_memory()?;
        own.set_len(FILE_BYTES)?;
        Ok(Files { own })
    }

    /// Any descriptor, half of them of what may be mapped.
    pub fn any(&self, random: &mut Random) -> io::Result<OwnedFd> {
        match random.below(16) {
            0 => Ok(io::pipe()?.0.into()),
            1 => Ok(io::pipe()?.1.into()),
            2 => Ok(UnixStream::pair()?.0.into()),
            3 => self.again(libc::O_RDONLY),
            4 => self.again(libc::O_WRONLY),
            5 => self.again(libc::O_PATH),
            6 => Ok(File::open("/proc/self/exe")?.into()),
            7 => Ok(File::options().read(true).write(true).open("/dev/zero")?.into()),
            // Empty, and so too small for whatever is named.
            8 => Ok(in_memory()?.into()),
            _ => Ok(self.own.try_clone()?.into()),
        }
    }

    /// Whoever has mapped it finds less from now on, and then perhaps nothing where something was.
    pub fn cut(&self, random: &mut Random) -> io::Result<()> {
        self.own.set_len(random.below(2 * MAPPED_BYTES))?;
        match random.one_in(2) {
            true => self.own.set_len(FILE_BYTES),
            false => Ok(()),
        }
    }

    fn again(&self, flags: i32) -> io::Result<OwnedFd> {
        let path = std::ffi::CString::new(format!("/proc/self/fd/{}", self.own.as_raw_fd())).expect("digits");
        // SAFETY: a path that ends.
        owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
    }
}

fn in_memory() -> io::Result<File> {
    // SAFETY: a name that ends.
    owned(unsafe { libc::memfd_create(c"orion-attack".as_ptr(), libc::MFD_CLOEXEC) }).map(File::from)
}

fn owned(descriptor: i32) -> io::Result<OwnedFd> {
    match descriptor {
        // SAFETY: a new descriptor that nobody else owns.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
