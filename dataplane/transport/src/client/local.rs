//! The worker on the same machine: its memory is mapped here, and the socket only says that both live.

// UNSAFETY: looks at a socket without taking from it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use orion_ring::Memory;
use orion_wire::hello::Hello;

use super::{Attached, Link, Lost, NoSession, Server, layout, map_heap, say_hello, shutdown, start};

pub fn attach(server: &Server, path: &Path, hello: &Hello) -> Result<Attached, NoSession> {
    let socket = UnixStream::connect(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no oriond listens on {server}; start one with `oriond serve`, or run the program with `orion-run`")
        }
        _ => format!("connecting to {server} failed: {e}"),
    })?;
    let socket = OwnedFd::from(socket);
    let (welcome, mut fds) = say_hello(server, socket.as_fd(), hello)?;
    let fd = fds.pop().ok_or_else(|| format!("{server} sent no session memory"))?;
    let layout = layout(&welcome).expect("say_hello has checked it");
    let memory = Memory::open(fd, layout).map_err(|e| format!("mapping the session memory of {server} failed: {e}"))?;
    let heap = map_heap(&memory).map_err(|e| mapping_failed(layout.heap_bytes, e))?;
    start(server, socket.as_fd(), &heap, false)?;
    let link = Arc::new(LocalLink { socket, lost: Lost::default() });
    Ok(Attached { welcome, memory, heap, mirrored: false, link })
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
        vec![super::fd_of(&self.socket)]
    }
}
