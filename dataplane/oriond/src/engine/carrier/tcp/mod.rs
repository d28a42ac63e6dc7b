//! Clients elsewhere: an engine copies between their connections and the session memory that the worker sees.
//!
//! ```text
//! session   the main connection          lane   a connection for bulk data
//! shared    what they have in common
//! ```

mod lane;
mod session;
mod shared;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use orion_transport::socket;

use super::contract::{Lane, Listener, Main, Prepare, Session};
use crate::engine::peer::Peer;
use crate::engine::settings::Settings;
use shared::Shared;

pub fn open(settings: &Settings) -> Result<Option<Box<dyn Listener>>, String> {
    let Some(address) = settings.listen else { return Ok(None) };
    if settings.token.is_none() && settings.pool.is_none() && !settings.insecure {
        return Err(format!(
            "refusing to listen on {address} without a token: every user of a machine that reaches it could use the \
             GPUs; give --token-file, or --insecure if that is what you want"
        ));
    }
    let listener = TcpListener::bind(address).map_err(|e| format!("listening on {address} failed: {e}"))?;
    Ok(Some(Box::new(listener)))
}

impl Listener for TcpListener {
    fn fd(&self) -> RawFd {
        self.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("tcp:{}", self.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string()))
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<Peer> {
        socket::tune_tcp(socket.as_fd())?;
        Ok(Peer::remote(socket))
    }

    fn prepare(&self) -> Option<Prepare> {
        Some(|session, memory, nursery| Ok(Arc::new(Shared::new(session, memory, nursery)?)))
    }
}

impl Session for Shared {
    fn carry(self: Arc<Self>, client: OwnedFd, attach: OwnedFd) -> io::Result<Box<dyn Main>> {
        Ok(session::Carried::new(client, attach, self)?)
    }

    fn claim_lane(&self, index: usize) -> bool {
        self.claim_lane(index)
    }

    fn join(self: Arc<Self>, socket: OwnedFd, index: usize) -> Box<dyn Lane> {
        lane::Lane::new(socket, self, index)
    }
}
