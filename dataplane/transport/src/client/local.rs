//! The worker on the same machine: its memory is mapped here, and the socket only says that both live.

// UNSAFETY: looks at a socket without taking from it; geteuid.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use orion_ring::Memory;
use orion_wire::refusal::Reason;

use super::link::{Attached, Caller, Greeted, Link, Lost, NoSession, Server, greet, layout, map_heap, shutdown, start};
use crate::socket::peer_credentials;

pub fn attach(server: &Server, path: &Path, caller: &Caller) -> Result<Attached, NoSession> {
    let socket = connect(server, path)?;
    let trusted = is_trusted(server, &socket, caller)?;
    let Greeted { welcome, mut fds, .. } = greet(server, socket.as_fd(), caller, trusted)?;
    let fd = fds.pop().ok_or_else(|| format!("{server} sent no session memory"))?;
    let layout = layout(&welcome).expect("greet has checked it");
    let memory = Memory::open(fd, layout).map_err(|e| format!("mapping the session memory of {server} failed: {e}"))?;
    let heap = map_heap(&memory).map_err(|e| mapping_failed(layout.heap_bytes, e))?;
    start(server, socket.as_fd(), &heap, false)?;
    let link = Arc::new(LocalLink { socket, lost: Lost::default() });
    Ok(Attached { welcome, memory, heap, mirrored: false, insecure: false, link })
}

/// Whether the system vouches for who listens: this user or root, neither of which needs us to get at this process. A
/// server of anybody else has to prove that it knows the token, for it decides what this process computes.
pub fn is_trusted(server: &Server, socket: &OwnedFd, caller: &Caller) -> Result<bool, NoSession> {
    let peer = peer_credentials(socket.as_fd())
        .map_err(|e| format!("finding out which user's server listens on {server} failed: {e}"))?;
    // SAFETY: geteuid cannot fail.
    let ours = unsafe { libc::geteuid() };
    if (peer.uid == ours || peer.uid == 0) && !stands_for_many(peer.uid) {
        return Ok(true);
    }
    if caller.token.is_none() {
        let text = format!(
            "{server} is a server of user {}, who is neither this user ({ours}) nor root; give the token that it \
             shares with you (ORION_TOKEN_FILE), or use a server of your own",
            peer.uid
        );
        return Err(NoSession { refused: Some(Reason::NotPermitted), text });
    }
    Ok(false)
}

/// Whether this is the number that stands for every user who has none in this user namespace.
fn stands_for_many(uid: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65534);
    uid == overflow && read("/proc/self/uid_map").split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

pub fn connect(server: &Server, path: &Path) -> Result<OwnedFd, String> {
    let socket = UnixStream::connect(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no oriond listens on {server}; start one with `oriond serve`, or run the program with `orion-run`")
        }
        _ => format!("connecting to {server} failed: {e}"),
    })?;
    Ok(socket.into())
}

pub fn mapping_failed(heap_bytes: u64, e: io::Error) -> String {
    format!(
        "mapping the session's host heap of {} MiB failed: {e}; is there a limit on virtual memory (ulimit -v)?",
        heap_bytes >> 20
    )
}

struct LocalLink {
    socket: OwnedFd,
    lost: Lost,
}

impl Link for LocalLink {
    fn lost(&self) -> bool {
        if self.lost.is_set() {
            return true;
        }
        let mut byte = 0u8;
        // SAFETY: looks at one byte of a socket we own, into a local.
        let n = unsafe {
            libc::recv(self.socket.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        let gone = match n {
            0 => true,
            n if n > 0 => false,
            _ => !matches!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        if gone {
            self.lost.set();
        }
        gone
    }

    fn close(&self) {
        self.lost.set();
        shutdown(&self.socket);
    }

    fn sockets(&self) -> Vec<RawFd> {
        vec![super::link::fd_of(&self.socket)]
    }
}
