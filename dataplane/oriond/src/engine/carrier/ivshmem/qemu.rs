//! oriond as QEMU's ivshmem server: a socket at which a guest's QEMU is handed the memory and the bells.
//!
//! ```text
//! words of eight bytes, little-endian, some with a descriptor:
//!   0                     the protocol's version
//!   1                     the guest's number
//!  -1  + the memory
//!   0  + eventfd          the host's number, once for each vector by which it is rung
//!   1  + eventfd          the guest's own, as often; nobody rings them: without a driver it hears no interrupt
//! ```
//! Then QEMU says nothing more, and its connection ends when it does.

// UNSAFETY: eventfd, and reading one; polls descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use orion_transport::carrier::ivshmem::segment::HOST_PEER;
use orion_transport::fds;
use orion_transport::socket::peer_credentials;
use tracing::{info, warn};

use crate::engine::carrier::shm::LocalSocket;

const PROTOCOL: i64 = 0;
const GUEST_PEER: i64 = 1;

pub struct Qemu {
    socket: LocalSocket,
    memory: Arc<OwnedFd>,
    /// What the guest rings: for mail, and for each slot's worker.
    pub bells: Vec<Arc<OwnedFd>>,
    connected: Option<OwnedFd>,
}

impl Qemu {
    pub fn new(socket: LocalSocket, memory: Arc<OwnedFd>, slots: usize) -> io::Result<Qemu> {
        socket.listener.set_nonblocking(true)?;
        let bells = (0..=slots).map(|_| eventfd().map(Arc::new)).collect::<io::Result<_>>()?;
        Ok(Qemu { socket, memory, bells, connected: None })
    }

    /// What has to be looked at when it is readable.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let connected = self.connected.iter().map(AsRawFd::as_raw_fd);
        [self.socket.listener.as_raw_fd(), self.bells[0].as_raw_fd()].into_iter().chain(connected)
    }

    /// True if the guest has ended. Another one waits while the memory is not ready for it.
    pub fn look(&mut self, name: &str, is_ready: bool) -> bool {
        drain(&self.bells[0]);
        let has_ended = self.connected.as_ref().is_some_and(has_ended);
        if has_ended {
            self.connected = None;
            info!(guest = name, "its virtual machine has ended, or given the device back");
        }
        while is_ready
            && !has_ended
            && let Ok((socket, _)) = self.socket.listener.accept()
        {
            let socket = OwnedFd::from(socket);
            let pid = peer_credentials(socket.as_fd()).map_or(0, |peer| peer.pid);
            if self.connected.is_some() {
                warn!(
                    guest = name,
                    pid, "a second virtual machine wants the memory of this guest, and does not get it"
                );
                continue;
            }
            match self.hand_over(socket.as_fd()) {
                Ok(()) => {
                    info!(guest = name, pid, "a virtual machine has the memory");
                    self.connected = Some(socket);
                }
                Err(error) => warn!(guest = name, pid, %error, "handing a virtual machine its memory failed"),
            }
        }
        has_ended
    }

    /// A fresh connection takes these few bytes at once.
    fn hand_over(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let say = |word: i64, with: Option<BorrowedFd<'_>>| {
            let with: Vec<_> = with.into_iter().collect();
            match fds::send_some(socket, &word.to_le_bytes(), &with, libc::MSG_DONTWAIT)? {
                8 => Ok(()),
                _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
            }
        };
        say(PROTOCOL, None)?;
        say(GUEST_PEER, None)?;
        say(-1, Some(self.memory.as_fd()))?;
        self.bells.iter().try_for_each(|bell| say(i64::from(HOST_PEER), Some(bell.as_fd())))?;
        self.bells.iter().try_for_each(|_| say(GUEST_PEER, Some(eventfd()?.as_fd())))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.socket.remove();
    }
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn drain(bell: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes into a local; it does not block.
    unsafe { libc::read(bell.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Whatever QEMU says means nothing, until it says nothing more.
fn has_ended(socket: &OwnedFd) -> bool {
    let mut bytes = [0; 64];
    is_readable(socket.as_raw_fd())
        && !matches!(fds::recv_some(socket.as_fd(), &mut bytes, libc::MSG_DONTWAIT), Ok((1.., _)))
}

pub fn is_readable(fd: RawFd) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::engine::carrier::shm::For;

    #[test]
    fn a_virtual_machine_is_handed_its_memory_and_a_second_one_is_not() {
        let folder = std::env::temp_dir().join(format!("orion-qemu-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let path = folder.join("guest.sock");
        let memory = Arc::new(orion_ring::sealed(c"test", 4096).expect("a memfd"));
        let socket = LocalSocket::listen(&path, For::Us).expect("listening");
        let mut qemu = Qemu::new(socket, memory, 2).expect("bells");
        let machine = UnixStream::connect(&path).expect("connecting");
        let second = UnixStream::connect(&path).expect("connecting");
        assert!(!qemu.look("test", true));
        let mut said = Vec::new();
        for _ in 0..9 {
            let mut word = [0; 8];
            let (n, with) = fds::recv_some(machine.as_fd(), &mut word, 0).expect("a word");
            said.push((n, i64::from_le_bytes(word), with.len()));
        }
        let words = [(0, 0), (1, 0), (-1, 1), (0, 1), (0, 1), (0, 1), (1, 1), (1, 1), (1, 1)];
        assert_eq!(said, words.map(|(word, with)| (8, word, with)));
        assert_eq!(fds::recv_some(second.as_fd(), &mut [0; 8], 0).expect("an end").0, 0);
        assert!(!qemu.look("test", true));
        drop(machine);
        assert!(qemu.look("test", true));
        drop(qemu);
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
