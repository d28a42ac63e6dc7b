//! Captures under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use orion_cuda::sys::*;

use crate::state::lock::{Guard, Lock, Rank};

pub struct Captures {
    /// Captures that this process began and that nobody has ended. PyTorch asks thousands of times a second whether
    /// a stream is capturing; without a capture the answer is here.
    pub open: AtomicU32,
    /// Their number is `OPEN`.
    pub origins: Lock<Vec<Origin>>,
    /// Heap ranges set aside for copies of pageable memory in open captures, with the captures' graphs.
    pub set_aside: Lock<Vec<(u64, u64)>>,
    pub found: Lock<Option<HashMap<(u64, u16), Found>>>,
}

impl Captures {
    pub const fn new() -> Captures {
        Captures {
            open: AtomicU32::new(0),
            origins: Lock::new(Rank::Leaf, Vec::new()),
            set_aside: Lock::new(Rank::Leaf, Vec::new()),
            found: Lock::new(Rank::Leaf, None),
        }
    }

    #[inline]
    pub fn any_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    pub fn change_origins(&self, change: impl FnOnce(&mut Vec<Origin>)) {
        let mut origins = self.origins.lock();
        change(&mut origins);
        self.open.store(origins.len() as u32, Ordering::Relaxed);
    }

    pub fn found(&'static self) -> FoundGuard {
        let mut guard = self.found.lock();
        guard.get_or_insert_default();
        FoundGuard(guard)
    }

    /// A stream was destroyed, and a capture with it.
    pub fn stream_destroyed(&self, stream: u64) {
        if self.any_open() {
            self.change_origins(|origins| origins.retain(|o| o.stream != (stream, 0)));
        }
    }
}

/// A capture of this process.
pub struct Origin {
    /// What it was begun on.
    pub stream: (u64, u16),
    /// It adds to a graph that the application has already.
    pub to_graph: bool,
}

/// What the application was last told about a stream's dependencies: CUDA keeps the arrays until the next call
/// on the stream.
pub struct Found {
    pub nodes: Vec<usize>,
    pub edges: Vec<CUgraphEdgeData>,
}

pub struct FoundGuard(Guard<'static, Option<HashMap<(u64, u16), Found>>>);

impl std::ops::Deref for FoundGuard {
    type Target = HashMap<(u64, u16), Found>;
    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("made by `found`")
    }
}

impl std::ops::DerefMut for FoundGuard {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("made by `found`")
    }
}
