//! The file behind a session's heap and rings.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use orion_ring::Memory;
use orion_transport::kept::Identity;

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

impl MemoryFile {
    pub fn of(memory: &Memory) -> io::Result<MemoryFile> {
        let fd = memory.fd().as_raw_fd();
        let is = Identity::of(fd).ok_or_else(io::Error::last_os_error)?;
        Ok(MemoryFile { fd, is, heap_at: memory.heap_at(), mapped: OnceLock::new() })
    }

    /// Whether its descriptor still is this file's.
    pub fn is_open(&self) -> bool {
        Identity::of(self.fd) == Some(self.is)
    }
}
