//! What a carrier is to the server: a place where clients come in, and who moves their bytes.
//!
//! Either the worker shares its pages with the client itself. Then it gets the connection, and all that is left to do
//! here is to hear when the client goes. Or an engine stands in for the client: it shares the worker's pages, and moves
//! what changes in them over connections of its own.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use orion_ring::Memory;
use orion_telemetry::report::{self, Wire};
use orion_tls::handshake::Secured;
use orion_wire::address::{CARRIERS, Carrier};

use crate::engine::io_ring::{Done, Io};
use crate::engine::mail::Kick;
use crate::engine::peer::Peer;
use crate::engine::security::Security;
use crate::engine::workers::nursery::Order;

/// Where clients come in.
pub trait Listener: Send {
    fn fd(&self) -> RawFd;

    /// As a client would write it.
    fn address(&self) -> String;

    /// By which one comes here.
    fn carrier(&self) -> &'static Carrier {
        let address = self.address();
        let scheme = address.split(':').next().unwrap_or_default();
        CARRIERS.iter().find(|carrier| carrier.scheme == scheme).expect("an address begins with its carrier's scheme")
    }

    /// Who has come, as far as the system says, and what his connection needs to be of use.
    fn receive(&self, socket: &OwnedFd) -> io::Result<Visitor>;

    /// What whoever comes here has to keep to; nothing on a socket of this machine.
    fn security(&self) -> Option<Arc<Security>> {
        None
    }

    /// How an engine carries a session of who has come here; nothing where its worker does.
    fn prepare(&self) -> Option<Prepare>;

    /// Before nobody is accepted any more.
    fn close(&self) {}
}

/// Somebody who has come.
pub struct Visitor {
    pub peer: Peer,
    pub lent: Option<Lent>,
}

impl From<Peer> for Visitor {
    fn from(peer: Peer) -> Visitor {
        Visitor { peer, lent: None }
    }
}

/// Memory in which his session lies, in place of its worker's own. It holds zeros.
#[derive(Clone)]
pub struct Lent {
    pub memory: Arc<OwnedFd>,
    /// Where in it.
    pub offset: u64,
    pub bytes: u64,
    /// What rings the worker, where that comes from here and not from the client.
    pub bell: Option<Arc<OwnedFd>>,
}

/// Makes a session ready to be carried, of its number and the worker's memory. Unmapping that is the nursery's.
pub type Prepare = Arc<dyn Fn(u64, Memory, Sender<Order>) -> io::Result<Arc<dyn Session>> + Send + Sync>;

/// A client's connection, when its handshake is over.
pub struct Connection {
    pub socket: OwnedFd,
    /// Where it is encrypted.
    pub secured: Option<Box<Secured>>,
}

/// A session that an engine carries, as its connections share it.
pub trait Session: Send + Sync {
    /// Its main connection: the client's, and the one to the worker.
    fn carry(self: Arc<Self>, client: Connection, attach: OwnedFd) -> io::Result<Box<dyn Main>>;

    /// Lets one further connection in for a lane, once in the life of the session.
    fn claim_lane(&self, index: usize) -> bool;

    /// A further connection, which was let in.
    fn join(self: Arc<Self>, client: Connection, index: usize) -> Box<dyn Lane>;

    /// How its main connection is doing.
    fn wire(&self) -> Option<Wire>;

    /// The ends of its connections, where the system knows them by address: of the main one and of what has joined.
    /// None once the session is over.
    fn connections(&self) -> Vec<report::Connection>;
}

/// What an engine does for a session.
pub trait Main: Send {
    /// The session's number.
    fn session(&self) -> u64;

    /// Called on the engine that carries the session from now on: first when it begins, and again each time that it has
    /// come from another one. `pump` follows, and finds whatever has happened in between.
    fn begin(&mut self, io: &mut Io, slot: u32, post: Arc<dyn Kick>);

    fn done(&mut self, io: &mut Io, slot: u32, done: Done);

    /// It is to go to another engine, if it can now: it takes back what it has asked of `io`, and asks for nothing more
    /// until it begins there. False if it cannot, say while something is being sent; then it goes on as before.
    fn leave(&mut self, io: &mut Io, slot: u32) -> bool;

    /// It is leaving, and nothing that it has asked for is under way. Never once it ends.
    fn may_go(&self) -> bool;

    /// Moves whatever can be moved. True if something was.
    fn pump(&mut self, io: &mut Io, slot: u32) -> bool;

    /// Arranges to be woken by everything that could make `pump` useful. False if something already could.
    fn park(&mut self, io: &mut Io, slot: u32) -> bool;

    /// Nothing refers to this object any more.
    fn is_finished(&self) -> bool;
}

/// What an engine does for a further connection of a session, which may be another engine's.
pub trait Lane: Send {
    /// Called once, on the engine that serves the lane from now on.
    fn begin(&mut self, io: &mut Io, slot: u32, post: Arc<dyn Kick>);

    fn done(&mut self, io: &mut Io, slot: u32, done: Done);

    /// There may be something to send, or the session may be over.
    fn kicked(&mut self, io: &mut Io, slot: u32);

    /// Nothing refers to this object any more.
    fn is_finished(&self) -> bool;
}
