//! Whether there is a session, and which is meant.

// UNSAFETY: publishes one leaked object through an atomic pointer, so that the hottest calls pay one load.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::state::context;
use crate::state::process::state;
use crate::state::session::{Greeted, Session};

/// The session that the current context is of, or `CUDA_ERROR_NOT_INITIALIZED` before `cuInit` and in a child forked
/// after it.
#[inline]
pub fn session() -> Result<&'static Session, CUresult> {
    // Acquire pairs with the store in `initialized`.
    if !state().attachment.initialized.load(Ordering::Acquire) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if state().callbacks.in_callback() {
        return Err(CUDA_ERROR_NOT_PERMITTED);
    }
    attached()
}

/// `cuInit` has succeeded.
pub fn initialized() {
    state().attachment.initialized.store(true, Ordering::Release);
}

pub fn attached() -> Result<&'static Session, CUresult> {
    // Acquire pairs with the store in `publish`.
    let p = state().attachment.published.load(Ordering::Acquire);
    if p.is_null() || state().fork.in_forked_child() {
        return one_of_several();
    }
    // SAFETY: a published session is never freed.
    Ok(unsafe { &*p })
}

/// A process has one session or none, unless its vGPUs lie on several nodes.
#[cold]
#[inline(never)]
fn one_of_several() -> Result<&'static Session, CUresult> {
    let found = state().attachment.get(context::current_session()).filter(|_| !state().fork.in_forked_child());
    found.ok_or(CUDA_ERROR_NOT_INITIALIZED)
}

/// What is known of the devices, if anything is: from its own session on a process goes by what that says. Also in a
/// forked child, for nothing is sent.
pub fn greeted() -> Option<&'static Greeted> {
    let attachment = &state().attachment;
    match attachment.get(0) {
        Some(_) => Some(attachment.own.get_or_init(|| attachment.greeting())),
        None => attachment.greeted.get()?.as_ref().ok(),
    }
}
