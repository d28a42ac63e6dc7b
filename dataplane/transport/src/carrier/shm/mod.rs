//! The worker on the same machine: its memory is mapped here, words in it are slept on, and the socket says that both
//! live and takes descriptors.

// UNSAFETY: looks at a socket without taking from it; geteuid.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use orion_ring::bell::{Bell, Futex};
use orion_ring::{Heap, Memory};
use orion_wire::Pages;
use orion_wire::address::Server;
use orion_wire::hello::Welcome;
use orion_wire::refusal::Reason;

use super::contract::{Attached, Carrier, Death, Lost, Security, Way};
use crate::channel::Channel;
use crate::client::handshake::{
    Caller, Greeted, NoSession, Tuning, greet, layout, map_heap, mapping_failed, shutdown, start,
};
use crate::fds;
use crate::kept::{self, Identity};
use crate::scatter::Listener;
use crate::socket::{connect_local, peer_credentials};

/// oriond takes in whoever comes, so a queue that stays full is of one that was stopped, or of no oriond.
const QUEUE_SECONDS_MAX: u64 = 20;

pub struct Shm;

impl Way for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn pages(&self) -> Pages {
        Pages::Shared
    }

    fn reach(&self, server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession> {
        reach_locally(server, caller)
    }

    fn attach(&self, server: &Server, caller: &Caller, _: Tuning, _: Listener) -> Result<Attached, NoSession> {
        let Mapped { mut channel, welcome, memory, heap } = map(server, caller)?;
        start(server, &mut channel, &self.start(heap.base() as u64), &[])?;
        let carrier = Arc::new(LocalSession::new(channel, Arc::new(Futex)));
        Ok(Attached::new(welcome, memory, heap, Security::LOCAL, carrier))
    }
}

/// A session that is all there but for its start.
pub struct Mapped {
    pub channel: Channel,
    pub welcome: Welcome,
    pub memory: Memory,
    pub heap: Heap,
}

/// Greets a server on this machine and maps the memory that comes with its welcome.
pub fn map(server: &Server, caller: &Caller) -> Result<Mapped, NoSession> {
    let (channel, Greeted { welcome, mut fds, .. }) = greet_locally(server, caller)?;
    let fd = fds.pop().ok_or_else(|| format!("{server} sent no session memory"))?;
    let layout = layout(&welcome).expect("greet has checked it");
    let memory = Memory::open(fd, layout).map_err(|e| format!("mapping the session memory of {server} failed: {e}"))?;
    let heap = map_heap(&memory).map_err(|e| mapping_failed(layout.heap_bytes, e))?;
    Ok(Mapped { channel, welcome, memory, heap })
}

pub fn greet_locally(server: &Server, caller: &Caller) -> Result<(Channel, Greeted), NoSession> {
    let (mut channel, trusted) = reach_locally(server, caller)?;
    let greeted = greet(server, &mut channel, caller, trusted)?;
    Ok((channel, greeted))
}

pub fn reach_locally(server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession> {
    let socket = connect(server)?;
    let trusted = is_trusted(server, &socket, caller)?;
    Ok((Channel::from(socket), trusted))
}

/// Whether the system vouches for who listens: this user or root, neither of which needs us to get at this process. A
/// server of anybody else has to prove that it knows the token, for it decides what this process computes.
fn is_trusted(server: &Server, socket: &OwnedFd, caller: &Caller) -> Result<bool, NoSession> {
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
        return Err(NoSession::refused(Reason::NotPermitted, text));
    }
    Ok(false)
}

/// Whether this is the number that stands for every user who has none in this user namespace.
fn stands_for_many(uid: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(65534);
    uid == overflow && read("/proc/self/uid_map").split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

fn connect(server: &Server) -> Result<OwnedFd, NoSession> {
    let path = server.path().ok_or_else(|| format!("{server} is no socket of this machine"))?;
    let socket = connect_local(path, QUEUE_SECONDS_MAX).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoSession::is_gone(format!(
            "no oriond listens on {server}; start one with `oriond serve`, or run the program with `orion-run`"
        )),
        _ => format!("connecting to {server} failed: {e}").into(),
    })?;
    Ok(socket.into())
}

/// A session with a worker of this machine, which has its own copy of the socket.
pub struct LocalSession {
    channel: Channel,
    /// Whose number a program that closes all descriptors may have for its own.
    identity: Option<Identity>,
    bell: Arc<dyn Bell>,
    lost: Lost,
}

impl LocalSession {
    pub fn new(channel: Channel, bell: Arc<dyn Bell>) -> LocalSession {
        let identity = Identity::of(channel.as_fd().as_raw_fd());
        LocalSession { channel, identity, bell, lost: Lost::default() }
    }

    fn is_there(&self) -> bool {
        Identity::of(self.channel.as_fd().as_raw_fd()) == self.identity
    }
}

impl Carrier for LocalSession {
    fn pages(&self) -> Pages {
        Pages::Shared
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    fn death(&self) -> Option<&Death> {
        if !self.lost.is_set() && !self.is_there() {
            self.lost.set(kept::closed().into());
        }
        if !self.lost.is_set() {
            let mut byte = 0u8;
            // SAFETY: looks at one byte of a socket we own, into a local.
            let n = unsafe {
                libc::recv(
                    self.channel.as_fd().as_raw_fd(),
                    (&raw mut byte).cast(),
                    1,
                    libc::MSG_PEEK | libc::MSG_DONTWAIT,
                )
            };
            match n {
                0 => drop(self.lost.set(Death::Gone)),
                1.. => {}
                _ => match io::Error::last_os_error() {
                    e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    e => drop(self.lost.set(e.into())),
                },
            }
        }
        self.lost.death()
    }

    fn close(&self) {
        self.lost.set(Death::Closed);
        if self.is_there() {
            shutdown(self.channel.as_fd());
        }
    }

    /// It is in the socket when this returns, ahead of whatever is sent by the rings.
    fn hand_over(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        if !self.is_there() {
            return Err(kept::closed());
        }
        fds::send_some(self.channel.as_fd(), &[0], &[descriptor], libc::MSG_DONTWAIT).map(drop)
    }

    fn sockets(&self) -> Vec<RawFd> {
        vec![self.channel.as_fd().as_raw_fd()]
    }
}
