//! What was given, by whom, and over which connection it goes back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use orion_tls::Fingerprint;
use orion_tls::blocking::Stream;
use orion_transport::fds;
use orion_transport::lease::SignedLease;
use orion_wire::address::Server;
use orion_wire::reserve;

/// What the controller has given.
pub struct Granted {
    pub allocation: String,
    /// By node, nearly always one.
    pub parts: Vec<Part>,
    pub claim: Claim,
}

/// What one node has given.
pub struct Part {
    pub node: String,
    pub server: Server,
    /// GPU and vGPU of each.
    pub places: String,
    pub lease: SignedLease,
    /// Of the node's oriond, if it shows one over a network.
    pub certificate: Option<Fingerprint>,
}

/// The connection over which vGPUs were given. They go back at once if it ends before the session has begun, as it does
/// when the program is killed.
pub enum Claim {
    OfPool(Box<Line>),
    /// To the agent, which has lent them of its node's own reserve.
    OfReserve(UnixStream),
}

/// A connection to a controller.
pub enum Line {
    Clear(TcpStream),
    Sealed(Stream<TcpStream>),
}

impl Read for Line {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Clear(socket) => socket.read(to),
            Line::Sealed(stream) => stream.read(to),
        }
    }
}

impl Write for Line {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Line::Clear(socket) => socket.write(from),
            Line::Sealed(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Line::Clear(socket) => socket.flush(),
            Line::Sealed(stream) => stream.flush(),
        }
    }
}

impl Claim {
    /// From now on the session's node says when they are free.
    pub fn has_begun(&mut self) {
        // Unheard, the node says it all the same.
        let _ = match self {
            Claim::OfPool(line) => line.write_all(b"1"),
            Claim::OfReserve(socket) => {
                fds::send_frame(socket.as_fd(), reserve::KIND, &reserve::Ask::Begun.encode(), &[])
            }
        };
    }
}

impl Granted {
    pub fn is_of_reserve(&self) -> bool {
        matches!(self.claim, Claim::OfReserve(_))
    }
}

/// The controller explains in several lines.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        let between = if line.is_empty() {
            ""
        } else if line.ends_with(':') {
            " "
        } else {
            "; "
        };
        line.push_str(between);
        line.push_str(part);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_one_line() {
        let text = "the pool has no room for 1 vGPU\nfree:\n  a GPU 0: 0 MiB\n  b GPU 0: 1 MiB\nwould fit: nothing";
        let line = "the pool has no room for 1 vGPU; free: a GPU 0: 0 MiB; b GPU 0: 1 MiB; would fit: nothing";
        assert_eq!(one_line(text), line);
    }
}
