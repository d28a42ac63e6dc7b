//! From the first record to a connection's keys. Whoever has the socket brings records, and sends what comes out.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::{ClientConfig, Error, ServerConfig};
use std::sync::Arc;

use crate::record::{HEADER_BYTES, Opener, Sealer, halves};
use crate::{Fingerprint, why};

/// Of one record, header included. A handshake of one that is longer is no handshake.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + (16 << 10) + 256;
/// Of all that is kept of a handshake before it is over: a chain of certificates, and a little.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// What a client of TLS sends first. No frame of Orion's and no HTTP begins with it.
pub const FIRST_BYTE: u8 = 22;

pub enum Handshake {
    Client(UnbufferedClientConnection, Vec<u8>),
    Server(UnbufferedServerConnection, Vec<u8>),
}

/// A connection whose handshake is over.
pub struct Secured {
    pub sealer: Sealer,
    pub opener: Opener,
    /// What the other side has shown.
    pub peer: Option<CertificateDer<'static>>,
}

impl Secured {
    /// Of the certificate that the other side has shown.
    #[must_use]
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.peer.as_ref().map(Fingerprint::of)
    }
}

impl Handshake {
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Handshake, String> {
        let client = UnbufferedClientConnection::new(config, name).map_err(|e| why(&e))?;
        Ok(Handshake::Client(client, Vec::new()))
    }

    pub fn server(config: Arc<ServerConfig>) -> Result<Handshake, String> {
        let server = UnbufferedServerConnection::new(config).map_err(|e| why(&e))?;
        Ok(Handshake::Server(server, Vec::new()))
    }

    /// Takes one whole record, or nothing to begin with, and puts what is to be sent behind `out`: also where it fails,
    /// so that the other side learns why. True once the keys are there.
    pub fn step(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        match self {
            Handshake::Client(client, kept) => step(client, kept, record, out),
            Handshake::Server(server, kept) => step(server, kept, record, out),
        }
    }

    pub fn finish(self) -> Result<Secured, String> {
        let failed = |e: Error| why(&e);
        match self {
            Handshake::Client(client, _) => {
                let peer = peer(&client);
                let (secrets, kernel) = client.dangerous_into_kernel_connection().map_err(failed)?;

                let (sealer, opener) = halves(secrets, kernel)?;
                Ok(Secured { sealer, opener, peer })
            }
            Handshake::Server(server, _) => {
                let peer = peer(&server);
                let (secrets, kernel) = server.dangerous_into_kernel_connection().map_err(failed)?;

                let (sealer, opener) = halves(secrets, kernel)?;
                Ok(Secured { sealer, opener, peer })
            }
        }
    }
}

fn peer<Data>(connection: &UnbufferedConnectionCommon<Data>) -> Option<CertificateDer<'static>> {
    Some(connection.peer_certificates()?.first()?.clone().into_owned())
}

/// What both sides do, and rustls says of each by itself.
trait Process<Data> {
    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Data>;
}

impl Process<ClientConnectionData> for UnbufferedConnectionCommon<ClientConnectionData> {
    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(records)
    }
}

impl Process<ServerConnectionData> for UnbufferedConnectionCommon<ServerConnectionData> {
    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(records)
    }
}

fn step<Data>(
    connection: &mut UnbufferedConnectionCommon<Data>,
    kept: &mut Vec<u8>,
    record: &[u8],
    out: &mut Vec<u8>,
) -> Result<bool, String>
where
    UnbufferedConnectionCommon<Data>: Process<Data>,
{
    if kept.len() + record.len() > HANDSHAKE_BYTES_MAX {
        return Err("its handshake is longer than any is".to_owned());
    }
    kept.extend_from_slice(record);
    let mut failed = None;
    loop {
        let UnbufferedStatus { discard, state } = connection.process(kept);
        let next = match state {
            // Behind an error comes the word of it for the other side.
            Err(e) if failed.is_some() || matches!(e, Error::AlertReceived(_)) => Some(Err(e)),
            Err(e) => {
                failed = Some(e);
                None
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                let from = out.len();
                let needed = match data.encode(&mut []) {
                    Err(EncodeError::InsufficientSize(size)) => size.required_size,
                    _ => 0,
                };
                out.resize(from + needed, 0);
                data.encode(&mut out[from..]).map_err(|e| format!("TLS failed: {e}"))?;
                // That was the word of it, and what is wrong is not to be looked at a second time.
                failed.as_ref().map(|e| Err(e.clone()))
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                None
            }
            Ok(ConnectionState::BlockedHandshake) => Some(Ok(false)),
            Ok(ConnectionState::WriteTraffic(_)) => Some(Ok(true)),
            Ok(_) => return Err("the other side said something else in the middle of the handshake".to_owned()),
        };
        kept.drain(..discard);
        match next {
            None => {}
            Some(Err(e)) => return Err(why(failed.as_ref().unwrap_or(&e))),
            Some(Ok(_)) if failed.is_some() => return Err(why(failed.as_ref().expect("just seen"))),
            Some(Ok(may_speak)) => return Ok(may_speak && !connection.is_handshaking()),
        }
    }
}
