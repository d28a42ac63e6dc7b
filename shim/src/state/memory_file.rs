//! The file behind a session's heap and rings.

// UNSAFETY: fstat on a number that the application may have closed.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use orion_ring::Memory;

/// Open for the life of the process, unless the application closes what is not its own.
pub struct MemoryFile {
    pub fd: RawFd,
    is: Identity,
    /// How its mappings look to who asks what is mapped where: unlike its descriptor where it is a device's. Known once
    /// somebody had to know it, and if the system tells that.
    pub mapped: OnceLock<Mapped>,
    /// Where in it the heap begins.
    pub heap_at: u64,
}

/// What a mapping of the heap's is told to be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    pub device: u64,
    pub inode: u64,
    /// Where the heap begins: in the file, or in the address space of the machine where the file is a device's.
    pub heap_at: u64,
}

/// Which file it is, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
}

impl Identity {
    fn of(fd: RawFd) -> io::Result<Identity> {
        // SAFETY: an all-zero stat is valid, and valid for writes; the number may be any.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            match libc::fstat(fd, &mut stat) {
                0 => Ok(Identity { device: stat.st_dev, inode: stat.st_ino, bytes: stat.st_size as u64 }),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl MemoryFile {
    pub fn of(memory: &Memory) -> io::Result<MemoryFile> {
        let fd = memory.fd().as_raw_fd();
        Ok(MemoryFile { fd, is: Identity::of(fd)?, heap_at: memory.heap_at(), mapped: OnceLock::new() })
    }

    /// Whether its descriptor still is this file's.
    pub fn is_open(&self) -> bool {
        Identity::of(self.fd).is_ok_and(|is| is == self.is)
    }
}
