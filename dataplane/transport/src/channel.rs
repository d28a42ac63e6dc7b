//! A client's connection until its session runs: frames go as they are, or in records of TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use orion_tls::handshake::Secured;
use orion_tls::record::{HEADER_BYTES, Opened, Outgoing, record_bytes};
use orion_tls::trust::Way;
use orion_tls::{Fingerprint, blocking};
use orion_wire::hello::{FRAME_HEADER_BYTES, frame, frame_header};

use crate::fds;

/// Kind, body and the descriptors that came along.
pub type Frame = (u32, Vec<u8>, Vec<OwnedFd>);

pub struct Channel {
    socket: OwnedFd,
    secured: Option<Box<Secured>>,
    /// Of the server's certificate.
    certificate: Option<Fingerprint>,
}

impl From<OwnedFd> for Channel {
    /// Nothing is encrypted.
    fn from(socket: OwnedFd) -> Channel {
        Channel { socket, secured: None, certificate: None }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    /// Encrypted if the way is. `before_each_answer` is called before something is waited for.
    pub fn open(socket: OwnedFd, way: &Way, before_each_answer: &dyn Fn(BorrowedFd<'_>)) -> io::Result<Channel> {
        let Way::Tls(config, name) = way else { return Ok(Channel::from(socket)) };
        let mut told = Told { stream: TcpStream::from(socket), before_each_answer };
        let secured = blocking::connect(&mut told, &Arc::clone(config), name)?;
        let certificate = secured.peer_fingerprint();
        Ok(Channel { socket: told.stream.into(), secured: Some(Box::new(secured)), certificate })
    }

    /// What proofs over this connection are bound to.
    #[must_use]
    pub fn certificate(&self) -> Option<Fingerprint> {
        self.certificate
    }

    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.secured.is_some()
    }

    pub fn send_frame(&mut self, kind: u32, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(&frame(kind, body), fds)
    }

    pub fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(secured) = &mut self.secured else { return fds::send(self.socket.as_fd(), bytes, fds) };
        assert!(fds.is_empty(), "descriptors cross no network");
        let mut out = Outgoing::default();
        secured.sealer.seal(bytes, &mut out).map_err(wrong)?;
        out.slices().try_for_each(|record| fds::send(self.socket.as_fd(), record, &[]))
    }

    /// Never receives beyond it.
    pub fn recv_frame(&mut self) -> io::Result<Frame> {
        let Some(secured) = &mut self.secured else { return fds::recv_frame(self.socket.as_fd()) };
        let mut bytes = Vec::new();
        loop {
            if let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() {
                let (kind, len) = frame_header(header).map_err(|fault| wrong(fault.0.to_owned()))?;
                match bytes.len().cmp(&(FRAME_HEADER_BYTES + len)) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Ok((kind, bytes.split_off(FRAME_HEADER_BYTES), Vec::new())),
                    std::cmp::Ordering::Greater => return Err(wrong("there are bytes behind a frame".to_owned())),
                }
            }
            receive_record(self.socket.as_fd(), secured, &mut bytes)?;
        }
    }

    /// For whoever carries the session.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, Option<Box<Secured>>) {
        (self.socket, self.secured)
    }
}

/// Puts what the next record brings behind `plain`.
fn receive_record(socket: BorrowedFd<'_>, secured: &mut Secured, plain: &mut Vec<u8>) -> io::Result<()> {
    let mut record = vec![0; HEADER_BYTES];
    fds::recv_exact(socket, &mut record, &mut Vec::new())?;
    record.resize(record_bytes(&record).map_err(wrong)?.unwrap_or(HEADER_BYTES), 0);
    fds::recv_exact(socket, &mut record[HEADER_BYTES..], &mut Vec::new())?;
    match secured.opener.open(&mut record).map_err(wrong)? {
        Opened::Record { plain: range, .. } => {
            plain.extend_from_slice(&record[range]);
            Ok(())
        }
        Opened::Closed | Opened::Part => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A socket whose user is told before it waits.
struct Told<'a> {
    stream: TcpStream,
    before_each_answer: &'a dyn Fn(BorrowedFd<'_>),
}

impl Read for Told<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (self.before_each_answer)(self.stream.as_fd());
        self.stream.read(to)
    }
}

impl Write for Told<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
