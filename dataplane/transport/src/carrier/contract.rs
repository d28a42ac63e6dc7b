//! What a carrier is: a way to a server, and three answers about a session that came about over it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use orion_ring::bell::{Bell, Futex};
use orion_ring::{Heap, Memory};
use orion_wire::address::Server;
use orion_wire::hello::{BELL_IN_PAGES, Start, Welcome};
use orion_wire::view::View;
use orion_wire::{Fault, Pages};

use crate::channel::Channel;
use crate::client::handshake::ask;
use crate::client::{Caller, NoSession, Tuning, greet};
use crate::scatter::Listener;
use crate::socket::SILENCE_SECONDS_MAX;

/// A way to servers.
pub trait Way: Sync {
    /// As [`orion_wire::address`] has it.
    fn name(&self) -> &'static str;

    /// Whether a worker and a client that come together in this way have the same pages.
    fn pages(&self) -> Pages;

    /// How START names the bell between the worker and whoever shares pages with it.
    fn bell_number(&self) -> u64 {
        BELL_IN_PAGES
    }

    /// The worker's end of that bell, of the descriptors that came with START.
    fn worker_bell(&self, _fds: Vec<OwnedFd>) -> Result<Arc<dyn Bell>, String> {
        Ok(Arc::new(Futex))
    }

    /// What a client says when it starts.
    fn start(&self, heap_base: u64) -> Start {
        Start { heap_base, pages: self.pages(), bell: self.bell_number() }
    }

    /// A connection to the server's door, and whether the system vouches for who is there.
    fn reach(&self, server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession>;

    /// Asks for the server's welcome, and leaves without a session: the worker that was to serve it ends.
    fn welcome_of(&self, server: &Server, caller: &Caller) -> Result<Welcome, NoSession> {
        let (mut channel, trusted) = self.reach(server, caller)?;
        Ok(greet(server, &mut channel, caller, trusted)?.welcome)
    }

    /// Asks for what a session would have, and what runs. No worker hears of it.
    fn view_of(&self, server: &Server, caller: &Caller) -> Result<View, NoSession> {
        let (mut channel, trusted) = self.reach(server, caller)?;
        ask(server, &mut channel, caller, trusted)
    }

    /// Attaches to a worker. `listener` hears of what is brought to the heap.
    fn attach(
        &self,
        server: &Server,
        caller: &Caller,
        tuning: Tuning,
        listener: Listener,
    ) -> Result<Attached, NoSession>;
}

/// What carries a session: the three answers in which carriers differ.
pub trait Carrier: Send + Sync {
    /// Whether both sides have the same pages.
    fn pages(&self) -> Pages;

    /// How the other side is rung, and how one sleeps until rung.
    fn bell(&self) -> Arc<dyn Bell>;

    /// Whether the other side, or the way to it, has come to its end, and how that was seen. For good: a session that
    /// is lost does not come back. May cost a system call, so it is for slow paths.
    fn death(&self) -> Option<&Death>;

    /// Ends the session.
    fn close(&self);

    /// One more thread waits for something that the other side sends, or one less. Whoever brings it may look for it
    /// meanwhile, where that saves a wake-up; there is no need to.
    fn is_awaited(&self, _more: bool) {}

    /// Gives the worker a descriptor, for the next command that needs one; it keeps the last that came. Where
    /// descriptors do not cross, that is [`io::ErrorKind::Unsupported`].
    fn hand_over(&self, _descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Every socket of the session, the main one first, which a forked child has to close: it would keep the worker
    /// alive.
    fn sockets(&self) -> Vec<RawFd>;
}

/// A session at its client's end.
pub struct Attached {
    pub welcome: Welcome,
    /// With the carrier's bell.
    pub memory: Memory,
    pub heap: Heap,
    pub security: Security,
    pub carrier: Arc<dyn Carrier>,
}

/// What stands between a session and others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Security {
    /// Each side has proved to the other who it is, or the system vouches for it.
    pub is_proved: bool,
    /// What crosses a network is in records of TLS. Nothing where none is crossed.
    pub is_encrypted: Option<bool>,
}

impl Security {
    /// On one machine.
    pub const LOCAL: Security = Security { is_proved: true, is_encrypted: None };

    /// For whoever wants to see it; empty where there is nothing to say.
    #[must_use]
    pub fn words(self) -> &'static str {
        match (self.is_encrypted, self.is_proved) {
            (None, _) => "",
            (Some(true), true) => " (encrypted by TLS 1.3)",
            (Some(true), false) => " (encrypted by TLS 1.3; insecure: no token)",
            (Some(false), true) => " (not encrypted)",
            (Some(false), false) => " (not encrypted; insecure: no token)",
        }
    }
}

impl Attached {
    pub fn new(
        welcome: Welcome,
        memory: Memory,
        heap: Heap,
        security: Security,
        carrier: Arc<dyn Carrier>,
    ) -> Attached {
        Attached { welcome, memory: memory.with_bell(carrier.bell()), heap, security, carrier }
    }

    /// For tests that break it on purpose.
    pub fn main_socket(&self) -> RawFd {
        self.carrier.sockets()[0]
    }
}

/// How the end of the other side was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Death {
    /// This side has closed the session.
    Closed,
    /// Its socket is closed. The system does that for a process that has ended, too.
    Gone,
    /// The connection was broken by an error, of which silence beyond the keep-alive time is one.
    Cut(String),
    /// It sent what no correct peer sends.
    Broke(Fault),
}

impl From<io::Error> for Death {
    fn from(e: io::Error) -> Death {
        match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Death::Gone,
            io::ErrorKind::TimedOut => Death::Cut(format!("nothing was heard for {SILENCE_SECONDS_MAX} s")),
            _ => Death::Cut(e.to_string()),
        }
    }
}

impl From<Fault> for Death {
    fn from(fault: Fault) -> Death {
        Death::Broke(fault)
    }
}

impl Death {
    /// In words, of who has died: "the worker", "the client".
    pub fn of(&self, who: &str) -> String {
        match self {
            Death::Closed => "it was closed on this side".to_owned(),
            Death::Gone => format!("{who} has ended or closed the connection"),
            Death::Cut(why) => format!("the connection to {who} broke: {why}"),
            Death::Broke(fault) => format!("{who} broke the protocol: {fault}"),
        }
    }
}

/// The first end that was seen; there is no second.
#[derive(Default)]
pub struct Lost(OnceLock<Death>);

impl Lost {
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub fn death(&self) -> Option<&Death> {
        self.0.get()
    }

    /// True for the first caller only.
    pub fn set(&self, death: Death) -> bool {
        self.0.set(death).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_says_how_it_was_seen() {
        let cut = |errno| Death::from(io::Error::from_raw_os_error(errno)).of("the worker");
        assert!(cut(libc::ETIMEDOUT).contains("nothing was heard for 11 s"));
        assert!(cut(libc::EHOSTUNREACH).contains("No route to host"));
        assert_eq!(Death::from(io::Error::from(io::ErrorKind::UnexpectedEof)), Death::Gone);
        assert_eq!(Death::from(io::Error::from_raw_os_error(libc::EPIPE)), Death::Gone);
        assert!(Death::from(Fault("a rule")).of("the client").contains("the client broke the protocol: a rule"));
    }

    #[test]
    fn the_first_end_that_was_seen_stays() {
        let lost = Lost::default();
        assert!(!lost.is_set() && lost.death().is_none());
        assert!(lost.set(Death::Gone));
        assert!(!lost.set(Death::Closed));
        assert_eq!(lost.death(), Some(&Death::Gone));
    }
}
