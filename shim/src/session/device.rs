//! The session's devices.

// UNSAFETY: follows a pointer to facts that are never freed.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::hello;

use crate::session::attached::session;
use crate::state::device::Facts;
use crate::state::process::state;

/// Whether the application has such a device.
pub fn exists(dev: CUdevice) -> Result<(), CUresult> {
    facts()?.device(dev).map(drop)
}

/// What is known about the session's devices, or `CUDA_ERROR_NOT_INITIALIZED`.
#[inline]
pub fn facts() -> Result<&'static Facts, CUresult> {
    // Acquire pairs with the exchange in `publish`.
    let p = state().devices.facts.load(Ordering::Acquire);
    let f = if p.is_null() {
        session().map(|_| state().devices())?
    } else {
        // SAFETY: published facts are never freed.
        unsafe { &*p }
    };
    // Without a device cuInit fails, and nothing is initialised.
    if f.refusal != CUDA_SUCCESS || state().fork.in_forked_child() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    Ok(f)
}

/// The handle of a device's primary context, if the application has it; devices counted as they were granted.
pub fn active_primary_context(granted: u32) -> Option<u64> {
    let device = facts().ok()?.devices.iter().find(|d| d.granted == granted)?;
    device.primary.is_active().then(|| device.primary.as_cuda().addr() as u64)
}

/// What its server says of a device the application sees.
pub fn told(app_ordinal: u32) -> Option<&'static hello::Device> {
    let device = facts().ok()?.devices.get(app_ordinal as usize)?;
    state().attachment.get(device.session)?.welcome.devices.get(device.worker_ordinal as usize)
}

/// An attribute of a device the application sees.
pub fn attribute(app_ordinal: u32, id: CUdevice_attribute) -> Option<i32> {
    facts().ok()?.devices.get(app_ordinal as usize)?.attribute(id)
}
