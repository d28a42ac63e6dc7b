//! Programs in virtual machines on this one, and of this one itself: as over TCP, by vsock. Either the system carries
//! it (vhost-vsock, vsock_loopback), and says by CID who comes; or a hypervisor does in user space, and connects to a
//! UNIX socket, one for each machine and port, wherever a program of its machine connects to that port of the host.

mod system;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::contract::{Listener, Prepare, Visitor};
use super::shm::{For, LocalSocket};
use super::tcp;
use crate::engine::peer::{Machine, Peer};
use crate::engine::security::Security;
use crate::engine::settings::{Machines, Settings};

/// The host's CID, as its machines know it.
const HOST_CID: u32 = libc::VMADDR_CID_HOST;

pub fn open(settings: &Settings) -> Result<Vec<Box<dyn Listener>>, String> {
    let Some(first) = settings.machines.first() else { return Ok(Vec::new()) };
    let port = match first {
        Machines::Port(port) | Machines::Socket(_, port) => port,
    };
    let security = settings.security_of(&format!("port {port} of vsock"))?;
    let mut all: Vec<Box<dyn Listener>> = Vec::new();
    for (number, machines) in (0..).zip(&settings.machines) {
        let security = security.clone();
        all.push(match machines {
            Machines::Port(port) => {
                let socket = tcp::once_free(|| system::listen(*port)).map_err(|e| system::failed(*port, &e))?;
                Box::new(OfSystem { socket, port: *port, security })
            }
            Machines::Socket(path, port) => {
                let socket = LocalSocket::listen(path, if settings.asks_who_comes() { For::All } else { For::Us });
                let socket = socket.map_err(|why| format!("--vsock: {why}"))?;
                Box::new(OfHypervisor { socket, port: *port, number, security })
            }
        });
    }
    Ok(all)
}

/// Where all machines come.
struct OfSystem {
    socket: OwnedFd,
    port: u32,
    security: Arc<Security>,
}

impl Listener for OfSystem {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("vsock:{}:{}", system::own_cid(), self.port)
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<Visitor> {
        Ok(Visitor::from(Peer::Machine(Machine::Cid(system::cid_of(socket)?))))
    }

    fn security(&self) -> Option<Arc<Security>> {
        Some(self.security.clone())
    }

    fn prepare(&self) -> Option<Prepare> {
        Some(tcp::prepare(true))
    }
}

/// Where the programs of one machine come.
struct OfHypervisor {
    socket: LocalSocket,
    port: u32,
    number: u32,
    security: Arc<Security>,
}

impl Listener for OfHypervisor {
    fn fd(&self) -> RawFd {
        self.socket.listener.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("vsock:{HOST_CID}:{}", self.port)
    }

    fn receive(&self, _: &OwnedFd) -> io::Result<Visitor> {
        Ok(Visitor::from(Peer::Machine(Machine::Number(self.number))))
    }

    fn security(&self) -> Option<Arc<Security>> {
        Some(self.security.clone())
    }

    fn prepare(&self) -> Option<Prepare> {
        Some(tcp::prepare(true))
    }

    fn close(&self) {
        self.socket.remove();
    }
}
