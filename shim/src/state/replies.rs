//! Replies that came for a thread and that it has not looked at yet.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use orion_cuda::sys::*;
use orion_ring::Consumer;
use orion_wire::message::log::LogLine;
use orion_wire::record::THREADS_MAX;
use orion_wire::{Fault, Reader};

use crate::state::lock::{Lock, Rank};

pub struct Reply {
    pub result: CUresult,
    /// Of an error: the events that have to be handled before it is known, counted modulo 2^32.
    pub events: u32,
    pub body: Vec<u8>,
}

/// Where replies for one thread wait until it looks.
pub struct Inbox {
    pub replies: Lock<VecDeque<(u64, Reply)>>,
    /// What the worker's driver logged, until this thread has its reply.
    pub logs: Lock<Vec<(u64, Vec<u8>)>>,
    /// Bumped with every delivery and whenever the thread should try to become the reader. A futex word.
    pub signal: AtomicU32,
}

/// Inboxes made together; most programs have a few threads.
const INBOXES: usize = 256;

pub struct Replies {
    pub reader: Lock<Consumer>,
    /// By thread slot, in chunks.
    inboxes: Vec<OnceLock<Box<[OnceLock<Inbox>]>>>,
    /// Threads that sleep on their signal while somebody else reads.
    pub sleepers: Lock<Vec<u16>>,
    /// Log messages in all inboxes.
    pub logs: AtomicU32,
}

impl Replies {
    pub fn new(consumer: Consumer) -> Replies {
        Replies {
            reader: Lock::new(Rank::Replies, consumer),
            inboxes: (0..(THREADS_MAX as usize).div_ceil(INBOXES)).map(|_| OnceLock::new()).collect(),
            sleepers: Lock::new(Rank::Leaf, Vec::new()),
            logs: AtomicU32::new(0),
        }
    }

    pub fn inbox(&self, slot: u16) -> &Inbox {
        let slot = slot as usize;
        let chunk = self.inboxes[slot / INBOXES].get_or_init(|| (0..INBOXES).map(|_| OnceLock::new()).collect());
        chunk[slot % INBOXES].get_or_init(|| Inbox {
            replies: Lock::new(Rank::Leaf, VecDeque::new()),
            logs: Lock::new(Rank::Leaf, Vec::new()),
            signal: AtomicU32::new(0),
        })
    }

    pub fn keep_log(&self, slot: u16, level: u64, body: &[u8]) -> Result<(), Fault> {
        let text = LogLine::decode(&mut Reader::new(body))?.text.get();
        self.inbox(slot).logs.lock().push((level, text.to_vec()));
        self.logs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
