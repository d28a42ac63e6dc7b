//! The way to the worker.

use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;

use orion_transport::carrier;

pub struct Carrier {
    pub connection: OnceLock<std::sync::Arc<dyn carrier::Carrier>>,
    /// The session's sockets, for [`forget_in_child`].
    pub sockets: [AtomicI32; 1],
}

impl Carrier {
    pub const fn new() -> Carrier {
        Carrier { connection: OnceLock::new(), sockets: [const { AtomicI32::new(-1) }; 1] }
    }
}
