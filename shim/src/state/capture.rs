//! Captures under way.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use orion_cuda::sys::*;

/// Captures that this process began and that nobody has ended. PyTorch asks thousands of times a second whether
/// a stream is capturing; without a capture the answer is here.
pub static OPEN: AtomicU32 = AtomicU32::new(0);
/// Their number is `OPEN`.
pub static ORIGINS: Mutex<Vec<Origin>> = Mutex::new(Vec::new());
/// Heap ranges set aside for copies of pageable memory in open captures, with the captures' graphs.
pub static SET_ASIDE: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// A capture of this process.
pub struct Origin {
    /// What it was begun on.
    pub stream: (u64, u16),
    /// It adds to a graph that the application has already.
    pub to_graph: bool,
}

#[inline]
pub fn any_open() -> bool {
    OPEN.load(Ordering::Relaxed) > 0
}

pub fn change_origins(change: impl FnOnce(&mut Vec<Origin>)) {
    let mut origins = ORIGINS.lock().expect("no panic happens under this lock");
    change(&mut origins);
    OPEN.store(origins.len() as u32, Ordering::Relaxed);
}

/// What the application was last told about a stream's dependencies: CUDA keeps the arrays until the next call
/// on the stream.
pub struct Found {
    pub nodes: Vec<usize>,
    pub edges: Vec<CUgraphEdgeData>,
}

static FOUND: Mutex<Option<HashMap<(u64, u16), Found>>> = Mutex::new(None);

pub struct FoundGuard(std::sync::MutexGuard<'static, Option<HashMap<(u64, u16), Found>>>);

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

pub fn found() -> FoundGuard {
    let mut guard = FOUND.lock().expect("no panic happens under this lock");
    guard.get_or_insert_default();
    FoundGuard(guard)
}

/// A stream was destroyed, and a capture with it.
pub fn stream_destroyed(stream: u64) {
    if any_open() {
        change_origins(|origins| origins.retain(|o| o.stream != (stream, 0)));
    }
}
