//! Carriers: what differs between the ways on which a client and a worker share one session.
//!
//! | | pages | bell | death |
//! | --- | --- | --- | --- |
//! | [`shm`] | shared: the worker's are mapped here | words in them are slept on | its socket closes |
//! | [`tcp`] | mirrored: threads copy what changes | the same, in one's own | a connection ends or falls silent |
//! | [`rdma`] | mirrored: devices write what changes | the same | as by [`tcp`], or nothing is acknowledged |
//! | [`ivshmem`] | shared: a device's memory is the worker's too | looked for | a word is not counted up |
//! | [`vsock`] | mirrored, as by [`tcp`] | the same | a connection ends |
//! | `doorbell` (for tests) | shared, as by [`shm`] | an eventfd for each seat | its socket closes |
//!
//! A carrier is a folder here, a line in [`WAYS`] and its name in `orion_wire::address`. What it needs of a server
//! beyond a socket of the same machine is a folder in oriond's `engine/carrier`.

mod application_side;
mod contract;
#[cfg(debug_assertions)]
mod doorbell;
pub mod ivshmem;
pub mod rdma;
mod shm;
pub mod tcp;
pub mod vsock;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use orion_ring::Bell;
use orion_wire::address::Server;
use orion_wire::hello::{Start, Welcome};
use orion_wire::view::View;

use crate::client::{Caller, NoSession, Tuning};
pub use crate::scatter::Listener;
pub use contract::{Attached, Carrier, Death, Security, Way};
pub use rdma::choice::VerbsPort;

static WAYS: &[&dyn Way] = &[
    &shm::Shm,
    &tcp::Tcp,
    &rdma::Rdma,
    &ivshmem::Ivshmem,
    &vsock::Vsock,
    #[cfg(debug_assertions)]
    &doorbell::Doorbell,
];

/// Attaches to a worker of `server`; `listener` hears of what is brought to the heap. The error says what was being
/// done, with which value, and what to try.
pub fn attach(server: &Server, caller: &Caller, tuning: Tuning, listener: Listener) -> Result<Attached, NoSession> {
    way(server).attach(server, caller, tuning, listener)
}

/// Asks `server` for its welcome, and leaves without a session.
pub fn welcome_of(server: &Server, caller: &Caller) -> Result<Welcome, NoSession> {
    way(server).welcome_of(server, caller)
}

/// Asks `server` what a session would have, and which programs of this user run there.
pub fn view_of(server: &Server, caller: &Caller) -> Result<View, NoSession> {
    way(server).view_of(server, caller)
}

/// The bell that a client wants, at the worker's end; `fds` came with its START.
pub fn bell_of(start: &Start, fds: Vec<OwnedFd>) -> Result<Arc<dyn Bell>, String> {
    let way = WAYS.iter().find(|way| way.bell_number() == start.bell);
    let way = way.ok_or_else(|| format!("this worker has no bell with number {}", start.bell))?;
    way.worker_bell(fds)
}

/// The way that its address names.
pub fn way(server: &Server) -> &'static dyn Way {
    let name = server.transport();
    *WAYS.iter().find(|way| way.name() == name).expect("every carrier that has a name is in the list")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_carrier_that_has_a_name_is_a_way() {
        let named = orion_wire::address::CARRIERS.iter().map(|carrier| carrier.name);
        assert_eq!(super::WAYS.iter().map(|way| way.name()).collect::<Vec<_>>(), named.collect::<Vec<_>>());
    }
}
