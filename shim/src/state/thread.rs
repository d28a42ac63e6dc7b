//! Numbers of threads that are free.

use crate::state::lock::{Lock, Rank};

pub struct Threads {
    pub free_slots: Lock<(u16, Vec<u16>)>,
    /// Calls number themselves per slot, so a slot's next owner goes on where the last one stopped.
    pub slot_sequences: Lock<Vec<u64>>,
}

impl Threads {
    pub const fn new() -> Threads {
        Threads {
            free_slots: Lock::new(Rank::Leaf, (0, Vec::new())),
            slot_sequences: Lock::new(Rank::Leaf, Vec::new()),
        }
    }
}
