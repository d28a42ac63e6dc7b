//! The worker on the host of this virtual machine, or in another machine there: connections by CID and port, which the
//! hypervisor carries, and over them all that goes over a network's.
//!
//! They never leave the host, so nothing is encrypted unless somebody asks, as over loopback. Nor does the system look
//! whether the other side is still there, and not every hypervisor tells: so oriond says something every two seconds,
//! and whoever hears nothing for as long as over TCP gives up.

mod socket;

use std::io;
use std::os::fd::OwnedFd;
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
use crate::socket::SILENCE_SECONDS_MAX;

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
    let place = place(server)?;
    Ok(Arc::new(move || socket::connect(place)))
}

fn place(server: &Server) -> Result<(u32, u32), String> {
    server.machine().ok_or_else(|| format!("{server} has no CID"))
}

fn reach(server: &Server, way: &trust::Way) -> Result<Channel, String> {
    let place = place(server)?;
    let connected: io::Result<OwnedFd> = socket::connect(place);
    tcp::agree(server, connected.map_err(|e| unreachable(server, place, &e))?, way)
}

fn unreachable(server: &Server, (cid, port): (u32, u32), e: &io::Error) -> String {
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
        let said = |errno| unreachable(&server, (7, 7411), &io::Error::from_raw_os_error(errno));
        for (errno, words) in [
            (libc::EAFNOSUPPORT, ["vsock:7:7411", "module vsock"]),
            (libc::ENODEV, ["CID 7", "vhost-vsock-pci"]),
            (libc::ECONNRESET, ["port 7411 of the machine with CID 7", "oriond serve --vsock 7411"]),
            (libc::ETIMEDOUT, ["CID 7 did not answer within 5 s", "port 7411"]),
            (libc::EMFILE, ["vsock:7:7411", "Too many open files"]),
        ] {
            assert!(words.iter().all(|word| said(errno).contains(word)), "{}", said(errno));
        }
    }
}
