//! Kernels that are taken off the GPU for a while, as hardware does when it gives another context a turn: what has
//! begun stands still, and goes on later where it was. Copies go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

static IS_HELD: AtomicBool = AtomicBool::new(false);
static HELD: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();

/// From now on no kernel of this process goes on, or all do again. What runs has stopped a moment later: each block
/// ends the turn that it is in, of some milliseconds.
pub fn set(is_held: bool) {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
    IS_HELD.store(is_held, Ordering::Release);
    CHANGED.notify_all();
}

/// Returns when kernels may go on.
#[inline]
pub(crate) fn pass() {
    if IS_HELD.load(Ordering::Acquire) {
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        drop(CHANGED.wait_while(held, |is_held| *is_held));
    }
}
