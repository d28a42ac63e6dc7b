//! TLS over a socket that waits: the handshake, and a stream for who speaks little, such as HTTP.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;

use crate::handshake::{Handshake, Secured};
use crate::record::{HEADER_BYTES, Opened, Outgoing, record_bytes};

/// A client's handshake. The error says in words what is wrong, with the socket's as they are.
pub fn connect(
    socket: &mut (impl Read + Write),
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
) -> io::Result<Secured> {
    run(socket, Handshake::client(config.clone(), name.clone()).map_err(wrong)?)
}

/// A server's.
pub fn accept(socket: &mut (impl Read + Write), config: &Arc<ServerConfig>) -> io::Result<Secured> {
    run(socket, Handshake::server(config.clone()).map_err(wrong)?)
}

fn run(socket: &mut (impl Read + Write), mut handshake: Handshake) -> io::Result<Secured> {
    let mut record = Vec::new();
    let mut out = Vec::new();
    let mut is_first = matches!(handshake, Handshake::Client(..));
    loop {
        if !is_first {
            record = receive(socket)?;
        }
        is_first = false;
        let stepped = handshake.step(&record, &mut out);
        if !out.is_empty() {
            let sent = socket.write_all(&out).and_then(|()| socket.flush());
            out.clear();
            if stepped.is_ok() {
                sent?;
            }
        }
        if stepped.map_err(wrong)? {
            return handshake.finish().map_err(wrong);
        }
    }
}

/// One whole record.
fn receive(socket: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut record = vec![0; HEADER_BYTES];
    socket.read_exact(&mut record)?;
    let len = record_bytes(&record).map_err(|_| wrong(crate::words::NO_TLS.to_owned()))?;
    record.resize(len.unwrap_or(HEADER_BYTES), 0);
    socket.read_exact(&mut record[HEADER_BYTES..])?;
    Ok(record)
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A socket, encrypted.
pub struct Stream<S> {
    pub socket: S,
    secured: Secured,
    received: Vec<u8>,
    /// Plain bytes of `received` that nobody has read.
    plain: std::ops::Range<usize>,
}

impl<S: Read + Write> Stream<S> {
    pub fn connect(mut socket: S, config: &Arc<ClientConfig>, name: &ServerName<'static>) -> io::Result<Stream<S>> {
        let secured = connect(&mut socket, config, name)?;
        Ok(Stream { socket, secured, received: Vec::new(), plain: 0..0 })
    }
}

impl<S: Read + Write> Read for Stream<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.plain.is_empty() {
            self.received = match receive(&mut self.socket) {
                Ok(record) => record,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(e) => return Err(e),
            };
            match self.secured.opener.open(&mut self.received).map_err(wrong)? {
                Opened::Record { plain, .. } => self.plain = plain,
                Opened::Closed => return Ok(0),
                Opened::Part => return Err(wrong("a record is shorter than its header says".to_owned())),
            }
        }
        let n = to.len().min(self.plain.len());
        to[..n].copy_from_slice(&self.received[self.plain.start..self.plain.start + n]);
        self.plain.start += n;
        Ok(n)
    }
}

impl<S: Read + Write> Write for Stream<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut out = Outgoing::default();
        self.secured.sealer.seal(from, &mut out).map_err(wrong)?;
        out.slices().try_for_each(|record| self.socket.write_all(record))?;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
