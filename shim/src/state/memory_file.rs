//! The file behind a session's heap and rings.

// UNSAFETY: fstat on a number that the application may have closed.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use orion_ring::Memory;

/// Open for the life of the process, unless the application closes what is not its own.
pub struct MemoryFile {
    pub fd: RawFd,
    bytes: u64,
    /// Where in it the heap begins.
    pub heap_at: u64,
}

impl MemoryFile {
    pub fn of(memory: &Memory) -> io::Result<MemoryFile> {
        Ok(MemoryFile { fd: memory.fd().as_raw_fd(), bytes: memory.file_bytes()?, heap_at: memory.heap_at() })
    }

    /// Whether its descriptor still is one of a file of that size.
    pub fn is_open(&self) -> bool {
        // SAFETY: an all-zero stat is valid, and valid for writes; the number may be any.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(self.fd, &mut stat) == 0 && stat.st_size as u64 == self.bytes
        }
    }
}
