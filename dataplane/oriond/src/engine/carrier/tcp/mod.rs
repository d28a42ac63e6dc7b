//! Clients elsewhere: an engine copies between their connections and the session memory that the worker sees.
//!
//! ```text
//! session   the main connection          lane   a connection for bulk data
//! shared    what they have in common     wire   what the system counts for a connection
//! ```

mod lane;
mod session;
pub(super) mod shared;
pub(super) mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_telemetry::report::{self, Wire};
use orion_transport::socket;

use super::contract::{Connection, Lane, Listener, Main, Prepare, Session, Visitor};
use crate::engine::peer::Peer;
use crate::engine::security::Security;
use crate::engine::settings::Settings;
use shared::Shared;

const PREDECESSOR_GONE: Duration = Duration::from_secs(2);

pub fn open(settings: &Settings) -> Result<Vec<Box<dyn Listener>>, String> {
    let Some(address) = settings.listen else { return Ok(Vec::new()) };
    let security = settings.security_of(&address.to_string())?;
    let socket = bind(address).map_err(|e| format!("listening on {address} failed: {e}"))?;
    Ok(vec![Box::new(Place { socket, security })])
}

struct Place {
    socket: TcpListener,
    security: Arc<Security>,
}

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    once_free(|| TcpListener::bind(address))
}

/// The port of one that was killed is free when the kernel is done with its ring, some milliseconds after its end.
pub(super) fn once_free<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + PREDECESSOR_GONE;
    loop {
        match bind() {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            bound => return bound,
        }
    }
}

impl Listener for Place {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("tcp:{}", self.socket.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string()))
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<Visitor> {
        socket::tune_tcp(socket.as_fd())?;
        Ok(Visitor::from(Peer::remote(socket)))
    }

    fn security(&self) -> Option<Arc<Security>> {
        Some(self.security.clone())
    }

    fn prepare(&self) -> Option<Prepare> {
        Some(prepare(false))
    }
}

/// An engine carries a session over connections of any kind that are streams. Where their ends are not told that the
/// other one is gone, it `beats`.
pub(super) fn prepare(beats: bool) -> Prepare {
    Arc::new(move |session, memory, nursery| Ok(Arc::new(Shared::new(session, memory, nursery, beats)?)))
}

impl Session for Shared {
    fn carry(self: Arc<Self>, client: Connection, attach: OwnedFd) -> io::Result<Box<dyn Main>> {
        let _ = self.connection.set(client.socket.try_clone()?);
        self.has(client.socket.as_fd(), None);
        Ok(session::Carried::new(client, attach, self)?)
    }

    fn claim_lane(&self, index: usize) -> bool {
        self.claim_lane(index)
    }

    fn join(self: Arc<Self>, client: Connection, index: usize) -> Box<dyn Lane> {
        self.has(client.socket.as_fd(), Some(index as u32));
        lane::Lane::new(client, self, index)
    }

    fn wire(&self) -> Option<Wire> {
        if self.is_over() { None } else { wire::of(self.connection.get()?.as_fd()) }
    }

    fn connections(&self) -> Vec<report::Connection> {
        if self.is_over() { Vec::new() } else { self.ends.lock().expect("nothing panics under this lock").clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_a_killed_one_has_for_a_moment_longer_is_waited_for() {
        let kept = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("any port");
        let address = kept.local_addr().expect("it is bound");
        let waiting = std::thread::spawn(move || bind(address).map(drop));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        drop(kept);
        waiting.join().expect("no panic").expect("it is free");
    }
}
