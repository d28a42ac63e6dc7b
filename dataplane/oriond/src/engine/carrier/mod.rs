//! Carriers at the server's end: where their clients come in, and who moves the bytes. Their client's ends, and what a
//! carrier is, are in `orion_transport::carrier`.
//!
//! A carrier that needs more of a server than a socket of its machine is a folder here and a line in [`OPENED`].

pub mod contract;
mod ivshmem;
mod rdma;
mod shm;
mod tcp;
mod vsock;
mod worker_side;

use contract::Listener;
pub use shm::{For, LocalSocket};

use super::settings::Settings;

/// Each opens the places that the operator wants.
type Open = fn(&Settings) -> Result<Vec<Box<dyn Listener>>, String>;

const OPENED: &[Open] = &[shm::open, tcp::open, rdma::open, ivshmem::open, vsock::open];

pub fn open(settings: &Settings) -> Result<Vec<Box<dyn Listener>>, String> {
    let mut all = Vec::new();
    for open in OPENED {
        all.extend(open(settings)?);
    }
    Ok(all)
}
