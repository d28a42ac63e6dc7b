//! The sockets that clients come to.

// UNSAFETY: takes over what accept returned, and shuts sockets down.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use orion_transport::socket;
use tracing::warn;

use super::local_socket::LocalSocket;
use super::peer::Peer;
use crate::engine::core::{Core, Owner};
use crate::engine::io_ring::Done;
use crate::engine::settings::Settings;

/// Most likely we are out of descriptors; trying again at once would only fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

pub struct Listeners {
    all: Vec<(u32, Listener)>,
    /// Those that failed to accept, and when they are tried again.
    deaf: Vec<u32>,
    again_after: Option<Instant>,
    is_closed: bool,
}

enum Listener {
    Unix(LocalSocket),
    Tcp(TcpListener),
}

impl Listeners {
    pub fn open(settings: &Settings) -> Result<Listeners, String> {
        let mut all = Vec::new();
        if let Some(path) = &settings.socket {
            all.push((0, Listener::Unix(LocalSocket::listen(path, settings.token.is_some())?)));
        }
        if let Some(address) = settings.listen {
            if settings.token.is_none() && !settings.insecure {
                return Err(format!(
                    "refusing to listen on {address} without a token: every user of a machine that reaches it could \
                     use the GPUs; give --token-file, or --insecure if that is what you want"
                ));
            }
            let listener = TcpListener::bind(address).map_err(|e| format!("listening on {address} failed: {e}"))?;
            all.push((0, Listener::Tcp(listener)));
        }
        if all.is_empty() {
            return Err("nothing to listen on: give --socket or --listen".into());
        }
        Ok(Listeners { all, deaf: Vec::new(), again_after: None, is_closed: false })
    }

    pub fn addresses(&self) -> Vec<String> {
        let tcp = |l: &TcpListener| l.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
        self.all
            .iter()
            .map(|(_, listener)| match listener {
                Listener::Unix(l) => format!("unix:{}", l.path.display()),
                Listener::Tcp(l) => format!("tcp:{}", tcp(l)),
            })
            .collect()
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
    pub fn accepted(&mut self, core: &mut Core, done: Done) -> Option<(OwnedFd, Peer)> {
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
        let peer = match listener {
            Listener::Unix(_) => Peer::of_unix(&socket).ok()?,
            Listener::Tcp(_) => {
                if let Err(e) = socket::tune_tcp(socket.as_fd()) {
                    warn!(error = %e, "setting options of a connection failed");
                    return None;
                }
                Peer::of_tcp(&socket)
            }
        };
        Some((socket, peer))
    }

    pub fn close(&mut self) {
        self.is_closed = true;
        self.again_after = None;
        for (_, listener) in &self.all {
            if let Listener::Unix(socket) = listener {
                socket.remove();
            }
            // SAFETY: a plain call on a descriptor we own.
            unsafe { libc::shutdown(listener.fd(), libc::SHUT_RDWR) };
        }
    }
}

impl Listener {
    fn fd(&self) -> RawFd {
        match self {
            Listener::Unix(l) => l.listener.as_raw_fd(),
            Listener::Tcp(l) => l.as_raw_fd(),
        }
    }
}
