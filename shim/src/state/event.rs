//! Events of other contexts, and those that other processes may look at.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::state::lock::{Lock, Rank};

pub struct Events {
    /// Whose events are, of those made since there are several contexts. Older ones are the first one's.
    pub homes: LazyLock<Lock<HashMap<u64, u64>>>,
    /// Events that other processes may look at, of this process or opened by it.
    pub shared: LazyLock<Lock<HashSet<u64>>>,
    /// Whether there ever was one; most programs have none.
    pub any_shared: AtomicBool,
}

impl Events {
    pub const fn new() -> Events {
        Events {
            homes: LazyLock::new(|| Lock::new(Rank::Leaf, Default::default())),
            shared: LazyLock::new(|| Lock::new(Rank::Leaf, Default::default())),
            any_shared: AtomicBool::new(false),
        }
    }

    pub fn share(&self, event: Handle) {
        self.shared.lock().insert(event.0);
        self.any_shared.store(true, Ordering::Relaxed);
    }

    pub fn is_shared(&self, event: CUevent) -> bool {
        // Relaxed: whoever made the event told this thread of it by other means.
        self.any_shared.load(Ordering::Relaxed) && self.shared.lock().contains(&(event as u64))
    }

    /// Whether some event may be looked at by other processes: then a graph, too, has reached the driver when it has
    /// been launched, because it may record one.
    pub fn any_shared(&self) -> bool {
        self.any_shared.load(Ordering::Relaxed)
    }
}
