//! The worker on the host of this virtual machine, or in another machine there: connections by CID and port, which the
//! hypervisor carries, and over them all that goes over a network's.
//!
//! They never leave the host, so nothing is encrypted unless somebody asks, as over loopback. Nor does the system look
//! whether the other side is still there, and not every hypervisor tells: so oriond says something every two seconds,
//! and whoever hears nothing for as long as over TCP gives up.
//!
//! A hypervisor with vsock of its own connects to a socket of oriond's in place of the program. `vsock:/path` does the
//! same without a virtual machine.

mod socket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use orion_tls::trust;
use orion_wire::Pages;
use orion_wire::address::Server;

use super::application_side::begin;
use super::contract::{Attached, Way};
use super::tcp;
use crate::channel::Channel;
use crate::client::handshake::{Caller, NoSession, Tuning};
use crate::scatter::Listener;
use crate::socket::{SILENCE_SECONDS_MAX, connect_local};

/// What is believed of the server's end where certificates are asked for: its name in them.
const NAME: &str = "localhost";

pub struct Vsock;

impl Way for Vsock {
    fn name(&self) -> &'static str {
        "vsock"
    }

    /// The worker shares its own with the engine that serves us there, and rings that.
    fn pages(&self) -> Pages {
        Pages::Mirrored
    }

    fn reach(&self, server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession> {
        Ok((reach(server, &tcp::way_to(NAME, caller)?)?, false))
    }

    fn attach(
        &self,
        server: &Server,
        caller: &Caller,
        tuning: Tuning,
        listener: Listener,
    ) -> Result<Attached, NoSession> {
        let way = tcp::way_to(NAME, caller)?;
        let begun = begin(self, server, caller, reach(server, &way)?)?;
        // Where it is not, nothing is to be said: no network is crossed.
        let is_encrypted = begun.main.is_encrypted().then_some(true);
        let connect = connector(server)?;
        let silence = Some(Duration::from_secs(SILENCE_SECONDS_MAX as u64));
        tcp::carry(begun, tcp::Connections { way, connect, is_encrypted, silence }, tuning, listener)
    }
}

/// By which all connections of a session are made.
///
/// # Errors
///
/// In words: the server is reached otherwise.
pub fn connector(server: &Server) -> Result<tcp::Connect, String> {
    match (server.machine(), server.path()) {
        (Some(place), _) => Ok(Arc::new(move || socket::connect(place))),
        (None, Some(path)) => {
            let path = path.to_owned();
            Ok(Arc::new(move || Ok(connect_local(&path, socket::CONNECT_TIMEOUT.as_secs())?.into())))
        }
        (None, None) => Err(format!("{server} has neither a CID nor the path of a hypervisor's socket")),
    }
}

fn reach(server: &Server, way: &trust::Way) -> Result<Channel, NoSession> {
    let socket = connector(server)?().map_err(|e| unreachable(server, &e))?;
    tcp::agree(server, socket, way)
}

fn unreachable(server: &Server, e: &io::Error) -> String {
    let Some((cid, port)) = server.machine() else {
        return match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
                "no oriond listens on {server}, to which a hypervisor leads its machine; start one with `oriond serve \
                 --vsock PATH_PORT`"
            ),
            _ => format!("connecting to {server} failed: {e}"),
        };
    };
    match e.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => format!(
            "{server} is reached by vsock, which this kernel has not; load its module vsock, or go over tcp or ivshmem"
        ),
        Some(libc::ENODEV) if cid == libc::VMADDR_CID_LOCAL => {
            format!(
                "{server} is this machine itself, for which its kernel has no vsock; load its module vsock_loopback"
            )
        }
        Some(libc::ENODEV | libc::ENETUNREACH) => format!(
            "{server} is reached by vsock, and this machine has no device that leads to CID {cid}; give the virtual \
             machine one (QEMU's -device vhost-vsock-pci,guest-cid=3) and load vmw_vsock_virtio_transport in it"
        ),
        Some(libc::ECONNRESET | libc::ECONNREFUSED) => format!(
            "nobody listens on port {port} of the machine with CID {cid} (the host's is 2); check both, or start an \
             oriond there with `oriond serve --vsock {port}`"
        ),
        Some(libc::ETIMEDOUT | libc::EHOSTUNREACH) => format!(
            "the machine with CID {cid} did not answer within {} s: there is none with that CID (the host's is 2), or \
             its hypervisor does not say that nobody listens on port {port}; check both, or start an oriond there with \
             `oriond serve --vsock {port}`",
            socket::CONNECT_TIMEOUT.as_secs()
        ),
        _ => format!("connecting to {server} failed: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_reached_by_vsock_is_named_with_what_to_do() {
        let server = Server::parse("vsock:7:7411").expect("an address");
        let said = |errno| unreachable(&server, &io::Error::from_raw_os_error(errno));
        for (errno, words) in [
            (libc::EAFNOSUPPORT, ["vsock:7:7411", "module vsock"]),
            (libc::ENODEV, ["CID 7", "vhost-vsock-pci"]),
            (libc::ECONNRESET, ["port 7411 of the machine with CID 7", "oriond serve --vsock 7411"]),
            (libc::ETIMEDOUT, ["CID 7 did not answer within 5 s", "port 7411"]),
            (libc::EMFILE, ["vsock:7:7411", "Too many open files"]),
        ] {
            assert!(words.iter().all(|word| said(errno).contains(word)), "{}", said(errno));
        }
        let server = Server::parse("vsock:/nowhere/vm0.vsock_7411").expect("an address");
        let said = reach(&server, &trust::Way::Plain).err().expect("there is no such socket").text;
        let words = ["no oriond listens on vsock:/nowhere/vm0.vsock_7411", "oriond serve --vsock PATH_PORT"];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}
