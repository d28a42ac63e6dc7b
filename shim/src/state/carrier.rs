//! The way to a worker.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Once};

use orion_transport::carrier;
use orion_transport::kept::Identity;

pub struct Carrier {
    pub connection: Arc<dyn carrier::Carrier>,
    /// The session's main socket, for a forked child, and what it is.
    pub socket: AtomicI32,
    pub identity: Option<Identity>,
    /// That it is lost has been said.
    pub told: Once,
}

impl Carrier {
    pub fn new(connection: Arc<dyn carrier::Carrier>) -> Carrier {
        let main: RawFd = connection.sockets()[0];
        Carrier { connection, socket: AtomicI32::new(main), identity: Identity::of(main), told: Once::new() }
    }
}
