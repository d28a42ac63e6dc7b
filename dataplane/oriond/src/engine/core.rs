//! Slots: whose a completion is.

// UNSAFETY: shuts sockets down, and asks whether they are.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::io_ring::Io;

/// Whose completion it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Mail,
    Door,
    Carried,
    Lane,
}

/// What objects need to make requests.
pub struct Core {
    pub io: Io,
    owners: Vec<Option<Owner>>,
    free: Vec<u32>,
}

impl Core {
    pub fn new(io: Io) -> Core {
        Core { io, owners: Vec::new(), free: Vec::new() }
    }

    pub fn allocate(&mut self, owner: Owner) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.owners.push(None);
            self.owners.len() as u32 - 1
        });
        self.owners[slot as usize] = Some(owner);
        slot
    }

    pub fn owner(&self, slot: u32) -> Option<Owner> {
        self.owners[slot as usize]
    }

    /// The object has no request under way any more.
    pub fn release(&mut self, slot: u32) {
        self.owners[slot as usize] = None;
        self.free.push(slot);
    }
}

/// Whether the other side has closed its end. What it sent before it went does not hide that it has gone.
pub fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

/// Ends a connection: whoever waits on it, on either side, sees the end.
pub fn shutdown(socket: &OwnedFd) {
    // SAFETY: a plain call on a descriptor we own; failing means that it is down already.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}
