//! A connection's two directions, once there are keys: each is one object, for the thread that moves its bytes. What
//! protects a record is rustls'; when a key has protected enough of them the next one takes its place (RFC 8446, 5.5).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite};

use crate::why;

pub const HEADER_BYTES: usize = 5;
/// Plain bytes of a record.
pub const PLAIN_BYTES_MAX: usize = 16 << 10;
/// And of one as it travels: with its type, padding and tag.
const BODY_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;
/// With AES-GCM a key is good for 2^24.5 records of full size.
const RECORDS_OF_A_KEY_MAX: u64 = 1 << 24;
/// KeyUpdate, without a wish that the other side does so too.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Makes the keys behind the first ones.
trait Keys: Send {
    fn next(&mut self, of: Direction) -> Result<ConnectionTrafficSecrets, Error>;
}

#[derive(Clone, Copy)]
enum Direction {
    Out,
    In,
}

struct Kernel<Data>(KernelConnection<Data>);

impl<Data: Send> Keys for Kernel<Data> {
    fn next(&mut self, of: Direction) -> Result<ConnectionTrafficSecrets, Error> {
        let next = match of {
            Direction::Out => self.0.update_tx_secret(),
            Direction::In => self.0.update_rx_secret(),
        };
        next.map(|(_, secrets)| secrets)
    }
}

/// What both directions have in common.
#[derive(Clone)]
struct Shared {
    keys: Arc<Mutex<dyn Keys>>,
    suite: SupportedCipherSuite,
}

impl Shared {
    fn next(&self, of: Direction) -> Result<ConnectionTrafficSecrets, String> {
        self.keys.lock().expect("nothing panics under this lock").next(of).map_err(|e| why(&e))
    }

    fn encrypter(&self, secrets: ConnectionTrafficSecrets) -> Result<Box<dyn MessageEncrypter>, String> {
        let (suite, (key, iv)) = (self.suite.tls13().ok_or(OTHER_SUITE)?, parts(secrets)?);
        Ok(suite.aead_alg.encrypter(key, iv))
    }

    fn decrypter(&self, secrets: ConnectionTrafficSecrets) -> Result<Box<dyn MessageDecrypter>, String> {
        let (suite, (key, iv)) = (self.suite.tls13().ok_or(OTHER_SUITE)?, parts(secrets)?);
        Ok(suite.aead_alg.decrypter(key, iv))
    }
}

const OTHER_SUITE: &str = "both sides agreed on a suite that is not TLS 1.3's";

fn parts(
    secrets: ConnectionTrafficSecrets,
) -> Result<(rustls::crypto::cipher::AeadKey, rustls::crypto::cipher::Iv), String> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(OTHER_SUITE.to_owned()),
    }
}

pub(crate) fn halves<Data: Send + 'static>(
    secrets: ExtractedSecrets,
    kernel: KernelConnection<Data>,
) -> Result<(Sealer, Opener), String> {
    let suite = kernel.negotiated_cipher_suite();
    let shared = Shared { keys: Arc::new(Mutex::new(Kernel(kernel))), suite };
    let (sequence, secret) = secrets.tx;
    let encrypter = shared.encrypter(secret)?;
    let sealer = Sealer { encrypter, sequence, records_max: RECORDS_OF_A_KEY_MAX, shared: shared.clone() };
    let (sequence, secret) = secrets.rx;
    let decrypter = shared.decrypter(secret)?;
    Ok((sealer, Opener { decrypter, sequence, shared }))
}

/// The direction out.
pub struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
    records_max: u64,
    shared: Shared,
}

impl Sealer {
    /// Makes records of it.
    pub fn seal(&mut self, plain: &[u8], out: &mut Outgoing) -> Result<(), String> {
        for piece in plain.chunks(PLAIN_BYTES_MAX) {
            if self.sequence >= self.records_max {
                self.change_key(out)?;
            }
            self.record(ContentType::ApplicationData, piece, out)?;
        }
        Ok(())
    }

    fn change_key(&mut self, out: &mut Outgoing) -> Result<(), String> {
        self.record(ContentType::Handshake, &KEY_UPDATE, out)?;
        let secrets = self.shared.next(Direction::Out)?;
        (self.encrypter, self.sequence) = (self.shared.encrypter(secrets)?, 0);
        Ok(())
    }

    fn record(&mut self, typ: ContentType, plain: &[u8], out: &mut Outgoing) -> Result<(), String> {
        let payload = OutboundChunks::Single(plain);
        let message = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload };
        let sealed = self.encrypter.encrypt(message, self.sequence).map_err(|e| why(&e))?;
        self.sequence += 1;
        out.records.push_back(sealed.encode());
        Ok(())
    }

    /// So that a test sees keys change.
    pub fn change_keys_after(&mut self, records: u64) {
        self.records_max = records;
    }
}

/// Records that are to be sent, in their order.
#[derive(Default)]
pub struct Outgoing {
    records: VecDeque<Vec<u8>>,
    /// Of the first one.
    sent: usize,
}

impl Outgoing {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What is left of each. It stays where it is until it was sent.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().enumerate().map(|(i, record)| if i == 0 { &record[self.sent..] } else { &record[..] })
    }

    /// Takes note that so many bytes were sent.
    pub fn advance(&mut self, mut bytes: usize) {
        while let Some(first) = self.records.front() {
            let left = first.len() - self.sent;
            if bytes < left {
                self.sent += bytes;
                return;
            }
            bytes -= left;
            self.sent = 0;
            self.records.pop_front();
        }
    }
}

/// The direction in.
pub struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    sequence: u64,
    shared: Shared,
}

/// What the first record of some bytes was.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is not whole yet.
    Part,
    /// It took so many bytes, among which are these plain ones. There may be none.
    Record { used: usize, plain: Range<usize> },
    /// The other side says that it sends nothing more.
    Closed,
}

/// How long the record is that begins here, header included, once its header is there.
pub fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let is_one = (20..=23).contains(&header[0]) && header[1] == 3 && body <= BODY_BYTES_MAX;
    match is_one {
        true => Ok(Some(HEADER_BYTES + body)),
        false => Err("the other side sends what is no record of TLS".to_owned()),
    }
}

impl Opener {
    /// Opens the first record where it lies.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, String> {
        let Some(used) = record_bytes(bytes)?.filter(|len| *len <= bytes.len()) else { return Ok(Opened::Part) };
        let body = &mut bytes[HEADER_BYTES..used];
        if body.is_empty() {
            return Err("the other side sends an empty record".to_owned());
        }
        let base = body.as_ptr() as usize;
        let message = InboundOpaqueMessage::new(ContentType::from(23), ProtocolVersion::TLSv1_2, body);
        let opened = self.decrypter.decrypt(message, self.sequence).map_err(|e| match e {
            Error::DecryptError => "a record was changed on its way".to_owned(),
            e => why(&e),
        })?;
        self.sequence += 1;
        let start = HEADER_BYTES + (opened.payload.as_ptr() as usize - base);
        let plain = start..start + opened.payload.len();
        let typ = opened.typ;
        match typ {
            ContentType::ApplicationData => Ok(Opened::Record { used, plain }),
            ContentType::Handshake => {
                self.message(&bytes[plain.clone()])?;
                Ok(Opened::Record { used, plain: plain.start..plain.start })
            }
            ContentType::Alert => match bytes[plain] {
                [_, 0] => Ok(Opened::Closed),
                [_, alert] => Err(why(&Error::AlertReceived(alert.into()))),
                _ => Err("the other side sends an alert that is none".to_owned()),
            },
            _ => Err("the other side sends a record of a kind that is not known here".to_owned()),
        }
    }

    fn message(&mut self, message: &[u8]) -> Result<(), String> {
        if message != KEY_UPDATE {
            return Err("the other side sends a message of a handshake that is over".to_owned());
        }
        let secrets = self.shared.next(Direction::In)?;
        (self.decrypter, self.sequence) = (self.shared.decrypter(secrets)?, 0);
        Ok(())
    }
}
