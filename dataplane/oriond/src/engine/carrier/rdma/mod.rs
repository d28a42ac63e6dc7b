//! Clients elsewhere whose devices write into ours: an engine copies between the inbox that they write to and the
//! session memory that the worker sees.
//!
//! They come to an address of their own, by TCP: the handshake is as over [`super::tcp`]. The worker has nothing of a
//! device, and its cell need not be open for one.

mod session;
mod shared;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use orion_telemetry::report::{self, Wire};
use orion_transport::carrier::rdma::Device;
use orion_transport::socket;
use tracing::{info, warn};

use super::contract::{Connection, Lane, Listener, Main, Prepare, Session, Visitor};
use super::tcp::{bind, wire};
use crate::engine::peer::Peer;
use crate::engine::security::Security;
use crate::engine::settings::Settings;
use shared::Shared;

pub fn open(settings: &Settings) -> Result<Vec<Box<dyn Listener>>, String> {
    let Some((address, wanted)) = &settings.verbs else { return Ok(Vec::new()) };
    let security = settings.security_of(&format!("{address} for RDMA"))?;
    let device = Device::open(wanted).map_err(|why| format!("--rdma {address} is not to be had: {why}"))?;
    let socket = bind(*address).map_err(|e| format!("listening on {address} failed: {e}"))?;
    #[cfg(all(debug_assertions, feature = "rdma"))]
    orion_transport::carrier::rdma::breaking::begin_if_asked().map_err(|e| format!("starting a thread failed: {e}"))?;
    info!(device = device.words(), %address, "RDMA is offered");
    if !address.ip().is_loopback() {
        warn!("what sessions over RDMA move is not encrypted: whoever can listen on its network reads it");
    }
    Ok(vec![Box::new(Place { socket, address: *address, device, security })])
}

struct Place {
    socket: TcpListener,
    address: SocketAddr,
    device: Arc<Device>,
    security: Arc<Security>,
}

impl Listener for Place {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("rdma:{}", self.socket.local_addr().unwrap_or(self.address))
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<Visitor> {
        socket::tune_tcp(socket.as_fd())?;
        Ok(Visitor::from(Peer::remote(socket)))
    }

    fn security(&self) -> Option<Arc<Security>> {
        Some(self.security.clone())
    }

    fn prepare(&self) -> Option<Prepare> {
        let device = self.device.clone();
        Some(Arc::new(move |session, memory, nursery| {
            Ok(Arc::new(Shared::new(session, memory, nursery, device.clone())?))
        }))
    }
}

impl Session for Shared {
    fn carry(self: Arc<Self>, client: Connection, attach: OwnedFd) -> io::Result<Box<dyn Main>> {
        let _ = self.ends.set(wire::ends(client.socket.as_fd(), None));
        Ok(session::Carried::new(client, attach, self)?)
    }

    /// Bulk data goes where all goes.
    fn claim_lane(&self, _: usize) -> bool {
        false
    }

    fn join(self: Arc<Self>, _: Connection, _: usize) -> Box<dyn Lane> {
        unreachable!("no lane is ever let in")
    }

    /// The system counts nothing of what devices write.
    fn wire(&self) -> Option<Wire> {
        None
    }

    /// The one by which it began, and which is silent since.
    fn connections(&self) -> Vec<report::Connection> {
        self.ends.get().copied().flatten().into_iter().collect()
    }
}
