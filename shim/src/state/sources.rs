//! Pinned memory that copies under way read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orion_wire::record::HeapRange;

use crate::state::lock::{Lock, Rank};

/// Pinned memory that a copy under way reads. Where the worker has its own copy of the heap the bytes were brought over
/// when the copy was made, and a host function ahead of it may write to them.
pub struct Source {
    pub token: u64,
    /// Which of this process's commands reads it; 0 until it is in the ring.
    pub number: u64,
    pub ranges: Vec<HeapRange>,
}

/// Those of a session.
pub struct Sources {
    all: Lock<Vec<Source>>,
    any: AtomicBool,
    pub next_token: AtomicU64,
}

impl Sources {
    pub const fn new() -> Sources {
        Sources { all: Lock::new(Rank::Leaf, Vec::new()), any: AtomicBool::new(false), next_token: AtomicU64::new(1) }
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut Vec<Source>) -> T) -> T {
        let mut all = self.all.lock();
        let answer = change(&mut all);
        self.any.store(!all.is_empty(), Ordering::SeqCst);
        answer
    }

    /// A command, perhaps a copy from pinned memory, is done.
    pub fn settled(&self, number: u64) {
        if self.any.load(Ordering::SeqCst) {
            self.change(|all| all.retain(|s| s.number != number));
        }
    }
}
