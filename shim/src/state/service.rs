//! How far the service thread has come.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use orion_ring::Consumer;

use crate::state::lock::{Lock, Rank};

pub struct Service {
    /// The service thread has ended; no event will be handled any more.
    pub stopped: AtomicBool,
    pub service: OnceLock<std::thread::ThreadId>,
    pub consumer: Lock<Option<Consumer>>,
}

impl Service {
    pub const fn new() -> Service {
        Service { stopped: AtomicBool::new(false), service: OnceLock::new(), consumer: Lock::new(Rank::Leaf, None) }
    }
}
