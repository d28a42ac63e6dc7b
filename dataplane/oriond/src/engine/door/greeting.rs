//! One connection until its session runs: what is received and sent on it.

// UNSAFETY: requests on buffers of boxed objects that stay until no request of theirs is under way.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use orion_tls::handshake::{FIRST_BYTE, Handshake, Secured};
use orion_tls::identity::Identity;
use orion_tls::record::{HEADER_BYTES, Opened, Outgoing, record_bytes};
use orion_transport::fds;
use orion_transport::proof::{LaneKey, Said};
use orion_wire::address::Carrier;
use orion_wire::environment::Environment;
use orion_wire::hello::{FRAME_HEADER_BYTES, frame_header};
use orion_wire::lease::Lease;
use tracing::warn;

use super::listeners::Arrival;
use super::stage::{For, HANDSHAKE_TIMEOUT, Stage};
use super::view::Client;
use crate::engine::carrier::contract::{self, Connection, Lent, Prepare};
use crate::engine::core::{Core, has_hung_up, shutdown};
use crate::engine::io_ring::{Did, Done};
use crate::engine::leases::book::Held;
use crate::engine::peer::Peer;
use crate::engine::security::Security;

pub struct Greeting {
    pub socket: OwnedFd,
    pub peer: Peer,
    pub carrier: &'static Carrier,
    /// What he has to keep to, where he has come over a network.
    pub security: Option<Arc<Security>>,
    speech: Speech,
    /// By which certificate he was let in, where that takes one.
    pub identity: Option<Identity>,
    /// How an engine carries a session with him; nothing where its worker does.
    pub prepare: Option<Prepare>,
    /// Where the session's memory is, if it is not the worker's own.
    pub lent: Option<Lent>,
    /// Counts the connections that came before.
    pub number: u64,
    pub stage: Stage,
    pub deadline: Instant,
    /// Its worker was not ready by then.
    pub is_late: bool,
    /// The frame being received.
    buffer: Vec<u8>,
    have: usize,
    have_of_record: usize,
    out: Vec<u8>,
    out_sent: usize,
    message: Box<Message>,
    pub memory: Option<OwnedFd>,
    pub attach: Option<OwnedFd>,
    pub shared: Option<Arc<dyn contract::Session>>,
    /// What was said before anybody proves anything, and what this connection is for.
    pub said: Said,
    pub purpose: Purpose,
    /// Of its request.
    pub client: Option<Client>,
    pub environment: Environment,
    /// Until its session has it.
    pub lease: Option<Held>,
    /// Of who only wants to see what it is for.
    pub looks_with: Option<Lease>,
    pub session: u64,
    under_way: u32,
    pub ending: bool,
}

/// How a client speaks. His first byte says so.
enum Speech {
    NotHeard,
    Clear,
    /// He is about to be encrypted: what was received of a record, and of ours what is on its way.
    Shaking(Option<Box<Handshake>>, Vec<u8>),
    /// As he is: what was received of a record.
    Sealed(Box<Secured>, Vec<u8>),
}

pub enum Purpose {
    Session,
    Lane { session: u64, index: usize, key: LaneKey, shared: Weak<dyn contract::Session> },
}

impl Purpose {
    pub fn what(&self) -> For {
        match self {
            Purpose::Session => For::Session,
            Purpose::Lane { .. } => For::Lane,
        }
    }
}

/// A `recvmsg` with room for descriptors.
struct Message {
    iov: libc::iovec,
    header: libc::msghdr,
    control: fds::Control,
}

// SAFETY: its pointers lead into this box and the greeting's buffer; neither is tied to a thread.
unsafe impl Send for Message {}

/// What a completion of one of its requests has brought.
pub enum Progress {
    /// Goes on by itself.
    More,
    /// All was sent.
    Sent,
    Frame(u32, Vec<u8>),
    /// Whom: the client, or the worker.
    Gone(&'static str),
    /// Nothing more can be sent.
    Broken,
    /// Against the protocol.
    Wrong(String),
    /// It was being closed, and now nothing is under way.
    Ended,
}

impl Greeting {
    pub fn new(arrival: Arrival, number: u64) -> Greeting {
        let Arrival { socket, peer, carrier, security, prepare, lent } = arrival;
        let speech = if security.is_some() { Speech::NotHeard } else { Speech::Clear };
        Greeting {
            socket,
            peer,
            carrier,
            security,
            speech,
            identity: None,
            prepare,
            lent,
            number,
            stage: Stage::Hello,
            deadline: Instant::now() + HANDSHAKE_TIMEOUT,
            is_late: false,
            buffer: Vec::new(),
            have: 0,
            have_of_record: 0,
            out: Vec::new(),
            out_sent: 0,
            // SAFETY: all-zero is valid for each of the C structs.
            message: Box::new(Message {
                iov: unsafe { std::mem::zeroed() },
                header: unsafe { std::mem::zeroed() },
                control: fds::Control::default(),
            }),
            memory: None,
            attach: None,
            shared: None,
            said: Said { first: Vec::new(), nonce: [0; 32], certificate: None },
            purpose: Purpose::Session,
            client: None,
            environment: Environment::default(),
            lease: None,
            looks_with: None,
            session: 0,
            under_way: 0,
            ending: false,
        }
    }

    /// Receives a frame, and is in this stage.
    pub fn expect(&mut self, core: &mut Core, slot: u32, stage: Stage) {
        self.stage = stage;
        self.have = 0;
        self.buffer.clear();
        self.buffer.resize(FRAME_HEADER_BYTES, 0);
        self.receive(core, slot);
    }

    /// Sends these bytes, and is in this stage.
    pub fn say(&mut self, core: &mut Core, slot: u32, stage: Stage, bytes: Vec<u8>) {
        self.stage = stage;
        self.out = if stage.tells_the_worker() { bytes } else { self.sealed(bytes) };
        self.out_sent = 0;
        self.send(core, slot);
    }

    /// As it travels to the client.
    pub fn sealed(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Speech::Sealed(secured, _) = &mut self.speech else { return bytes };
        let mut records = Outgoing::default();
        secured.sealer.seal(&bytes, &mut records).expect("a handshake is far from the last key of a connection");
        records.slices().collect::<Vec<_>>().concat()
    }

    /// The keys that were agreed on, if any were.
    pub fn secured(&self) -> Option<&Secured> {
        match &self.speech {
            Speech::Sealed(secured, _) => Some(secured),
            _ => None,
        }
    }

    /// For whoever carries the session.
    pub fn into_connection(self) -> (Connection, Option<OwnedFd>) {
        let secured = match self.speech {
            Speech::Sealed(secured, _) => Some(secured),
            _ => None,
        };
        (Connection { socket: self.socket, secured }, self.attach)
    }

    /// Closes the connection; true once the kernel is done with it.
    pub fn close(&mut self) -> bool {
        if self.under_way > 0 && !self.ending {
            self.ending = true;
            shutdown(&self.socket);
            self.attach.as_ref().inspect(|a| shutdown(a));
        }
        self.under_way == 0
    }

    pub fn done(&mut self, core: &mut Core, done: Done) -> Progress {
        self.under_way -= 1;
        if self.ending {
            return if self.under_way == 0 { Progress::Ended } else { Progress::More };
        }
        let again = matches!(-done.result, libc::EAGAIN | libc::EINTR);
        match done.did {
            Did::Send | Did::SendAttach if done.result < 0 && !again => Progress::Broken,
            Did::Send | Did::SendAttach => {
                self.out_sent += done.result.max(0) as usize;
                match (self.out_sent == self.out.len(), &self.speech) {
                    (false, _) => self.send(core, done.slot),
                    (true, Speech::Shaking(None, _)) => return Progress::Broken,
                    (true, _) if self.stage == Stage::Hello => self.receive(core, done.slot),
                    (true, _) => return Progress::Sent,
                }
                Progress::More
            }
            _ if again => {
                self.receive(core, done.slot);
                Progress::More
            }
            _ if done.result <= 0 => Progress::Gone(if done.did == Did::ReceiveAttach { "worker" } else { "client" }),
            _ => {
                if done.did == Did::ReceiveAttach {
                    self.memory = fds::received_fds(&self.message.header).pop().or(self.memory.take());
                }
                match self.received(core, done) {
                    Ok(None) => Progress::More,
                    Ok(Some((kind, body))) => Progress::Frame(kind, body),
                    Err(rule) => Progress::Wrong(rule),
                }
            }
        }
    }

    /// What the client calls itself.
    pub fn program(&self) -> &str {
        self.client.as_ref().map_or("", |client| &client.program)
    }

    /// Takes in what has come: a whole frame, or nothing yet, and then more is on its way.
    fn received(&mut self, core: &mut Core, done: Done) -> Result<Option<(u32, Vec<u8>)>, String> {
        let n = done.result as usize;
        let from_worker = self.stage.hears_the_worker();
        if matches!(self.speech, Speech::NotHeard) && !from_worker {
            self.speech = match self.buffer[0] {
                FIRST_BYTE => {
                    let security = self.security.as_ref().expect("else he is known to speak in the clear");
                    let config = security.server.config.clone();
                    Speech::Shaking(Some(Box::new(Handshake::server(config)?)), self.buffer.clone())
                }
                _ => Speech::Clear,
            };
        }
        if from_worker || matches!(self.speech, Speech::Clear) {
            self.have += n;
            let frame = self.advance_frame()?;
            if frame.is_none() {
                self.receive(core, done.slot);
            }
            return Ok(frame);
        }
        self.have_of_record += n;
        self.record(core, done.slot)
    }

    /// What is there of a record of TLS.
    fn record(&mut self, core: &mut Core, slot: u32) -> Result<Option<(u32, Vec<u8>)>, String> {
        let (Speech::Shaking(_, record) | Speech::Sealed(_, record)) = &mut self.speech else {
            unreachable!("the caller looked")
        };
        match record_bytes(&record[..self.have_of_record])? {
            Some(len) if len < self.have_of_record => return Err("its first record is shorter than any is".to_owned()),
            Some(len) if len == self.have_of_record => record.truncate(len),
            whole => {
                record.resize(whole.unwrap_or(HEADER_BYTES), 0);
                self.receive(core, slot);
                return Ok(None);
            }
        }
        let record = std::mem::replace(record, vec![0; HEADER_BYTES]);
        self.have_of_record = 0;
        match &mut self.speech {
            Speech::Shaking(..) => self.shake(core, slot, &record).map(|()| None),
            _ => self.open(core, slot, record),
        }
    }

    /// The next step of agreeing on keys. Where it fails the client is told, and the connection ends behind that.
    fn shake(&mut self, core: &mut Core, slot: u32, record: &[u8]) -> Result<(), String> {
        let Speech::Shaking(handshake, _) = &mut self.speech else { unreachable!("the caller looked") };
        let mut out = Vec::new();
        let stepped = handshake.as_mut().expect("nothing is received behind its end").step(record, &mut out);
        match &stepped {
            Ok(false) => {}
            Ok(true) => {
                let done = handshake.take().expect("as above").finish()?;
                self.speech = Speech::Sealed(Box::new(done), vec![0; HEADER_BYTES]);
            }
            Err(why) => {
                warn!(peer = %self.peer, why, "no keys were agreed on");
                if out.is_empty() {
                    return Err(why.clone());
                }
                *handshake = None;
            }
        }
        match out.is_empty() {
            true => self.receive(core, slot),
            false => {
                (self.out, self.out_sent) = (out, 0);
                self.send(core, slot);
            }
        }
        Ok(())
    }

    /// A record of somebody with whom keys were agreed on. A frame ends a record: nobody speaks before he is answered.
    fn open(&mut self, core: &mut Core, slot: u32, mut record: Vec<u8>) -> Result<Option<(u32, Vec<u8>)>, String> {
        let Speech::Sealed(secured, _) = &mut self.speech else { unreachable!("the caller looked") };
        let plain = match secured.opener.open(&mut record)? {
            Opened::Record { plain, .. } => plain,
            Opened::Closed | Opened::Part => return Err("it ended in the middle of the handshake".to_owned()),
        };
        let mut plain = &record[plain];
        while !plain.is_empty() {
            let n = plain.len().min(self.buffer.len() - self.have);
            self.buffer[self.have..self.have + n].copy_from_slice(&plain[..n]);
            self.have += n;
            plain = &plain[n..];
            match self.advance_frame()? {
                None => {}
                Some(frame) if plain.is_empty() => return Ok(Some(frame)),
                Some(_) => return Err("there are bytes behind a frame".to_owned()),
            }
        }
        self.receive(core, slot);
        Ok(None)
    }

    /// The rest of the frame or record, and never more: what follows belongs to somebody else.
    fn receive(&mut self, core: &mut Core, slot: u32) {
        let from_worker = self.stage.hears_the_worker();
        let rest = match &mut self.speech {
            Speech::Shaking(_, record) | Speech::Sealed(_, record) if !from_worker => {
                &mut record[self.have_of_record..]
            }
            _ => &mut self.buffer[self.have..],
        };
        let (to, len) = (rest.as_mut_ptr(), rest.len());
        self.under_way += 1;
        if !from_worker {
            // SAFETY: the buffer is not touched before the completion.
            return unsafe { core.io.receive(slot, Did::Receive, self.socket.as_raw_fd(), to, len, 0) };
        }
        let attach = self.attach.as_ref().expect("set when the worker was assigned").as_raw_fd();
        let m = &mut *self.message;
        m.iov = libc::iovec { iov_base: to.cast(), iov_len: len };
        m.header.msg_iov = &raw mut m.iov;
        m.header.msg_iovlen = 1;
        m.header.msg_control = (&raw mut m.control).cast();
        m.header.msg_controllen = size_of::<fds::Control>();
        // SAFETY: the message is boxed, the buffer not touched before the completion.
        unsafe { core.io.receive_message(slot, Did::ReceiveAttach, attach, &raw mut m.header) };
    }

    fn send(&mut self, core: &mut Core, slot: u32) {
        let rest = &self.out[self.out_sent..];
        let (did, to) = match &self.attach {
            Some(attach) if self.stage.tells_the_worker() => (Did::SendAttach, attach.as_raw_fd()),
            _ => (Did::Send, self.socket.as_raw_fd()),
        };
        self.under_way += 1;
        // SAFETY: `out` is not touched before the completion.
        unsafe { core.io.send(slot, did, to, rest.as_ptr(), rest.len()) };
    }

    /// Kind and body, once the frame is complete.
    fn advance_frame(&mut self) -> Result<Option<(u32, Vec<u8>)>, String> {
        if self.have < self.buffer.len() {
            return Ok(None);
        }
        let header = self.buffer[..FRAME_HEADER_BYTES].try_into().expect("a whole header");
        let (kind, len) = frame_header(&header).map_err(|fault| fault.0.to_owned())?;
        if len > self.stage.frame_bytes_max() {
            return Err("handshake frame too long".to_owned());
        }
        if self.have < FRAME_HEADER_BYTES + len {
            self.buffer.resize(FRAME_HEADER_BYTES + len, 0);
            return Ok(None);
        }
        Ok(Some((kind, self.buffer[FRAME_HEADER_BYTES..].to_vec())))
    }

    /// The worker has not said in time what it has to. What is being received of it ends at once, and then nothing is.
    pub fn hear_no_more(&mut self) {
        self.is_late = true;
        if let Some(attach) = &self.attach {
            // SAFETY: a socket of this greeting's own.
            unsafe { libc::shutdown(attach.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }

    /// Whether the client has not closed its connection while it waited.
    pub fn is_still_there(&self) -> bool {
        !has_hung_up(self.socket.as_fd())
    }
}
