//! One connection until its session runs: what is received and sent on it.

// UNSAFETY: requests on buffers of boxed objects that stay until no request of theirs is under way.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use orion_transport::fds;
use orion_transport::proof::{LaneKey, Said};
use orion_wire::environment::Environment;
use orion_wire::hello::{FRAME_HEADER_BYTES, frame_header};

use super::listeners::Arrival;
use super::stage::{For, HANDSHAKE_TIMEOUT, Stage};
use super::view::Client;
use crate::engine::carrier::contract::{self, Prepare};
use crate::engine::core::{Core, has_hung_up, shutdown};
use crate::engine::io_ring::{Did, Done};
use crate::engine::leases::book::Held;
use crate::engine::peer::Peer;

pub struct Greeting {
    pub socket: OwnedFd,
    pub peer: Peer,
    /// How an engine carries a session with him; nothing where its worker does.
    pub prepare: Option<Prepare>,
    /// Counts the connections that came before.
    pub number: u64,
    pub stage: Stage,
    pub deadline: Instant,
    /// The frame being received.
    buffer: Vec<u8>,
    have: usize,
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
    pub session: u64,
    under_way: u32,
    pub ending: bool,
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
    Wrong(&'static str),
    /// It was being closed, and now nothing is under way.
    Ended,
}

impl Greeting {
    pub fn new(arrival: Arrival, number: u64) -> Greeting {
        let Arrival { socket, peer, prepare } = arrival;
        Greeting {
            socket,
            peer,
            prepare,
            number,
            stage: Stage::Hello,
            deadline: Instant::now() + HANDSHAKE_TIMEOUT,
            buffer: Vec::new(),
            have: 0,
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
            said: Said { first: Vec::new(), nonce: [0; 32] },
            purpose: Purpose::Session,
            client: None,
            environment: Environment::default(),
            lease: None,
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
        self.out = bytes;
        self.out_sent = 0;
        self.send(core, slot);
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
                if self.out_sent == self.out.len() {
                    return Progress::Sent;
                }
                self.send(core, done.slot);
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
                self.have += done.result as usize;
                match self.advance_frame() {
                    Ok(None) => {
                        self.receive(core, done.slot);
                        Progress::More
                    }
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

    /// The rest of the frame, and never more: what follows belongs to somebody else.
    fn receive(&mut self, core: &mut Core, slot: u32) {
        let rest = &mut self.buffer[self.have..];
        let (to, len) = (rest.as_mut_ptr(), rest.len());
        self.under_way += 1;
        if !self.stage.hears_the_worker() {
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
    fn advance_frame(&mut self) -> Result<Option<(u32, Vec<u8>)>, &'static str> {
        if self.have < self.buffer.len() {
            return Ok(None);
        }
        let header = self.buffer[..FRAME_HEADER_BYTES].try_into().expect("a whole header");
        let (kind, len) = frame_header(&header).map_err(|fault| fault.0)?;
        if len > self.stage.frame_bytes_max() {
            return Err("handshake frame too long");
        }
        if self.have < FRAME_HEADER_BYTES + len {
            self.buffer.resize(FRAME_HEADER_BYTES + len, 0);
            return Ok(None);
        }
        Ok(Some((kind, self.buffer[FRAME_HEADER_BYTES..].to_vec())))
    }

    /// Whether the client has not closed its connection while it waited.
    pub fn is_still_there(&self) -> bool {
        !has_hung_up(self.socket.as_fd())
    }
}
