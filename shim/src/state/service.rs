//! How far the service thread has come.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use orion_ring::Consumer;

use crate::state::lock::{Lock, Rank};

pub struct Service {
    /// The service thread has ended; no event will be handled any more.
    pub stopped: AtomicBool,
    pub service: OnceLock<std::thread::ThreadId>,
    /// The event ring's reading end, until the service thread has it.
    pub consumer: Lock<Option<Consumer>>,
}

impl Service {
    pub fn new(consumer: Consumer) -> Service {
        let consumer = Lock::new(Rank::Leaf, Some(consumer));
        Service { stopped: AtomicBool::new(false), service: OnceLock::new(), consumer }
    }
}
