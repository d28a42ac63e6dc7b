//! The sockets that clients come to.

// UNSAFETY: takes over what accept returned, and shuts sockets down.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_wire::address::Carrier;
use tracing::warn;

use crate::engine::carrier;
use crate::engine::carrier::contract::{Lent, Listener, Prepare, Visitor};
use crate::engine::core::{Core, Owner};
use crate::engine::io_ring::Done;
use crate::engine::peer::Peer;
use crate::engine::security::Security;
use crate::engine::settings::Settings;

/// Most likely we are out of descriptors; trying again at once would only fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub struct Listeners {
    all: Vec<(u32, Box<dyn Listener>)>,
    /// Those that failed to accept, and when they are tried again.
    deaf: Vec<u32>,
    again_after: Option<Instant>,
    is_closed: bool,
}

/// Somebody who has come.
pub struct Arrival {
    pub socket: OwnedFd,
    pub peer: Peer,
    pub carrier: &'static Carrier,
    pub security: Option<Arc<Security>>,
    pub prepare: Option<Prepare>,
    pub lent: Option<Lent>,
}

impl Listeners {
    pub fn open(settings: &Settings) -> Result<Listeners, String> {
        let all: Vec<_> = carrier::open(settings)?.into_iter().map(|listener| (0, listener)).collect();
        if all.is_empty() {
            return Err("nothing to listen on: give --socket, --listen, --rdma, --guest or --vsock".into());
        }
        Ok(Listeners { all, deaf: Vec::new(), again_after: None, is_closed: false })
    }

    pub fn addresses(&self) -> Vec<String> {
        self.all.iter().map(|(_, listener)| listener.address()).collect()
    }

    /// What whoever comes over a network has to keep to.
    pub fn security(&self) -> Option<Arc<Security>> {
        self.all.iter().find_map(|(_, listener)| listener.security())
    }

    pub fn begin(&mut self, core: &mut Core) {
        for (slot, listener) in &mut self.all {
            *slot = core.allocate(Owner::Door);
            core.io.accept(*slot, listener.fd());
        }
    }

    /// When [`Self::try_again`] is due.
    pub fn again_after(&self) -> Option<Instant> {
        self.again_after
    }

    pub fn try_again(&mut self, core: &mut Core, now: Instant) {
        if self.again_after.take_if(|t| now >= *t).is_none() {
            return;
        }
        for slot in std::mem::take(&mut self.deaf) {
            if let Some((_, listener)) = self.all.iter().find(|(s, _)| *s == slot) {
                core.io.accept(slot, listener.fd());
            }
        }
    }

    /// Somebody who has come, if so.
    pub fn accepted(&mut self, core: &mut Core, done: Done) -> Option<Arrival> {
        let (_, listener) = self.all.iter().find(|(slot, _)| *slot == done.slot)?;
        if !done.more && done.result >= 0 && !self.is_closed {
            core.io.accept(done.slot, listener.fd());
        }
        if done.result < 0 {
            if !self.is_closed {
                self.deaf.push(done.slot);
                self.again_after = Some(Instant::now() + ACCEPT_PAUSE);
                warn!(error = %io::Error::from_raw_os_error(-done.result), "accepting a connection failed");
            }
            return None;
        }
        // SAFETY: accept returned a new descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(done.result) };
        if self.is_closed {
            return None;
        }
        match listener.receive(&socket) {
            Ok(Visitor { peer, lent }) => Some(Arrival {
                socket,
                peer,
                carrier: listener.carrier(),
                security: listener.security(),
                prepare: listener.prepare(),
                lent,
            }),
            Err(e) => {
                warn!(error = %e, "setting up a connection failed");
                None
            }
        }
    }

    pub fn close(&mut self) {
        self.is_closed = true;
        self.again_after = None;
        for (_, listener) in &self.all {
            listener.close();
            // SAFETY: a plain call on a descriptor we own.
            unsafe { libc::shutdown(listener.fd(), libc::SHUT_RDWR) };
        }
    }
}
