//! Clients on this machine: a worker gets the connection, and shares its pages with the client itself.

mod local_socket;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::contract::{Listener, Prepare, Visitor};
use crate::engine::peer::Peer;
use crate::engine::settings::Settings;
pub use local_socket::{For, LocalSocket};

pub fn open(settings: &Settings) -> Result<Vec<Box<dyn Listener>>, String> {
    let Some(path) = &settings.socket else { return Ok(Vec::new()) };
    let is_for_all = settings.token.is_some() || settings.pool.is_some();
    Ok(vec![Box::new(LocalSocket::listen(path, if is_for_all { For::All } else { For::Us })?)])
}

impl Listener for LocalSocket {
    fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<Visitor> {
        Ok(Visitor::from(Peer::local(socket)?))
    }

    fn prepare(&self) -> Option<Prepare> {
        None
    }

    fn close(&self) {
        self.remove();
    }
}
