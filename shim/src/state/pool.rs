//! Memory pools.

use std::collections::HashMap;

use crate::state::lock::{Lock, Rank};

#[derive(Default)]
pub struct Pools {
    /// Default pool by device.
    pub defaults: HashMap<u32, u64>,
    /// Current pool by device, where it is not the default.
    pub current: HashMap<u32, u64>,
    /// Created pools and their devices.
    pub created: HashMap<u64, u32>,
}

pub struct MemoryPools {
    pub all: Lock<Option<Pools>>,
}

impl MemoryPools {
    pub const fn new() -> MemoryPools {
        MemoryPools { all: Lock::new(Rank::Leaf, None) }
    }

    pub fn pools<T>(&self, f: impl FnOnce(&mut Pools) -> T) -> T {
        f(self.all.lock().get_or_insert_default())
    }
}
