//! Whether this process was forked from one with a session.

use std::sync::atomic::{AtomicBool, Ordering};

pub struct Fork {
    pub forked: AtomicBool,
}

impl Fork {
    pub const fn new() -> Fork {
        Fork { forked: AtomicBool::new(false) }
    }

    /// Whether this process was forked from one that had a session. Every call then answers
    /// `CUDA_ERROR_NOT_INITIALIZED`; the parent's session is left alone, whatever the child does or how it ends.
    #[inline]
    pub fn in_forked_child(&self) -> bool {
        // Relaxed: stored by the child's only thread before fork() returns there.
        self.forked.load(Ordering::Relaxed)
    }
}
