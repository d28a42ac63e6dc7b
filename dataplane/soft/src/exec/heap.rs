//! Memory that kernels allocate.

use crate::exec::state::Launch;
use crate::{device, vram};

/// Device-side `malloc`. Zero when the device is out of memory, as the C function answers.
pub fn heap_allocate(l: &Launch, bytes: u64) -> u64 {
    let Some(rounded) = bytes.max(1).checked_next_multiple_of(512) else { return 0 };
    if device::charge(l.device, rounded).is_none() {
        return 0;
    }
    match vram::allocate(bytes, vram::Kind::Internal, l.device, l.context) {
        Some(r) => r.base,
        None => {
            device::refund(l.device, rounded);
            0
        }
    }
}

pub fn heap_free(l: &Launch, at: u64) {
    if let Some(r) = vram::find(at).filter(|r| r.kind == vram::Kind::Internal && r.base == at) {
        device::refund(l.device, r.reach);
        vram::free(at);
    }
}
