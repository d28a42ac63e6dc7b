//! What is known of a session without its connection.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use orion_ring::{Heap, Memory};
use orion_telemetry::report::Connection;
use orion_transport::carrier::rdma::Device;

use crate::engine::carrier::tcp::shared::Mapped;
use crate::engine::workers::nursery::Order;

pub struct Shared {
    pub session: u64,
    pub heap: Heap,
    pub device: Arc<Device>,
    pub ends: OnceLock<Option<Connection>>,
    pub mapped: Mapped,
}

impl Shared {
    pub fn new(session: u64, memory: Memory, nursery: Sender<Order>, device: Arc<Device>) -> io::Result<Shared> {
        // Owned from here on, so that a failure below unmaps what was mapped so far.
        let mapped = Mapped::new(memory, nursery);
        let heap = mapped.memory().map_heap(None)?;
        Ok(Shared { session, heap, device, ends: OnceLock::new(), mapped })
    }
}
