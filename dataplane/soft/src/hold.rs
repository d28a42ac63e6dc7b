//! Kernels that are taken off a GPU for a while, as hardware does when it gives another context a turn: what has begun
//! stands still, and goes on later where it was. Copies go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use orion_cuda::sys::CUdevice;

use crate::device::DEVICES_MAX;

struct Hold {
    /// As `held`, for who only looks.
    is_held: AtomicBool,
    held: Mutex<bool>,
    changed: Condvar,
}

static HOLDS: [Hold; DEVICES_MAX] =
    [const { Hold { is_held: AtomicBool::new(false), held: Mutex::new(false), changed: Condvar::new() } }; DEVICES_MAX];

/// From now on no kernel of this process goes on on this GPU, or all there do again. What runs has stopped a moment
/// later: each block ends the turn that it is in, of some milliseconds. There is nothing to hold on a GPU that is not
/// there.
pub fn set(device: CUdevice, is_held: bool) {
    let Some(hold) = HOLDS.get(device as usize) else { return };
    *hold.held.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
    hold.is_held.store(is_held, Ordering::Release);
    hold.changed.notify_all();
}

/// Returns when kernels of this GPU may go on.
#[inline]
pub(crate) fn pass(device: CUdevice) {
    let Some(hold) = HOLDS.get(device as usize) else { return };
    if hold.is_held.load(Ordering::Acquire) {
        let held = hold.held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(hold.changed.wait_while(held, |is_held| *is_held));
    }
}
