//! What goes back to the client: replies and events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::CUresult;
use orion_ring::Producer;
use orion_wire::Fault;
use orion_wire::message::log::LogLine;
use orion_wire::record::{HEADER_BYTES, Header, op};

use crate::lines;
use crate::worker::out::arrivals::{self, Shared};
use crate::worker::out::records::push;

/// The reply ring. Only the executor writes replies to it; for a client that has pages of its own, others write
/// ahead of them what has come to the heap.
pub enum Replies {
    Alone(Producer),
    BehindArrivals(Shared),
}

impl Replies {
    fn with<T>(&mut self, write: impl FnOnce(&mut Producer) -> T) -> T {
        match self {
            Replies::Alone(producer) => write(producer),
            Replies::BehindArrivals(arrivals) => write(arrivals::lock(arrivals).replies()),
        }
    }

    /// `events` is how many were sent before, if the result is an error.
    pub fn send(&mut self, command: &Header, result: CUresult, events: u64, body: &[u8]) -> Result<(), Fault> {
        let size = HEADER_BYTES + body.len();
        let header = Header { size: size as u32, context: result as u64 | events << 32, ..*command };
        self.with(|producer| push(producer, &header, body))
    }

    /// Tells the thread whose reply comes next what the driver logged.
    pub fn log(&mut self, command: &Header, level: u64, text: &[u8]) -> Result<(), Fault> {
        let mut body = Vec::new();
        LogLine { text: text.into() }.encode(&mut body);
        let size = (HEADER_BYTES + body.len()) as u32;
        let header = Header { size, op: op::LOG, thread: command.thread, context: level, sequence: 0 };
        self.with(|producer| push(producer, &header, &body))
    }

    /// Announcements whose reply did not follow at once. They wait for it: one message takes half as long as two.
    pub fn publish(&mut self) {
        self.with(Producer::publish);
    }
}

/// The event ring, shared by the executor, the driver's callback threads and the output reader.
pub struct Events {
    producer: Mutex<Producer>,
    sent: AtomicU64,
}

impl Events {
    pub fn new(producer: Producer) -> Arc<Events> {
        Arc::new(Events { producer: Mutex::new(producer), sent: AtomicU64::new(0) })
    }

    pub fn send(&self, op: u16, arguments: (u64, u64), body: &[u8]) {
        let size = (HEADER_BYTES + body.len()) as u32;
        let header = Header { size, op, thread: 0, context: arguments.0, sequence: arguments.1 };
        let mut producer = self.producer.lock().expect("no panic happens under this lock");
        if let Err(fault) = push(&mut producer, &header, body) {
            lines::warn(&format!("event lost: {fault}"));
            return;
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}
