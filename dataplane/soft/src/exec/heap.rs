//! Memory that kernels allocate.

use crate::exec::state::Launch;
use crate::{device, vram};

/// Device-side `malloc`. Zero when the device is out of memory, as the C function answers.
pub fn heap_allocate(l: &Launch, bytes: u64) -> u64 {
    device::charge(l.device, bytes.max(1).next_multiple_of(512))
        .and_then(|()| vram::allocate(bytes, vram::Kind::Internal, l.device, l.context))
        .map_or(0, |r| r.base)
}

pub fn heap_free(l: &Launch, at: u64) {
    if let Some(r) = vram::find(at).filter(|r| r.kind == vram::Kind::Internal && r.base == at) {
        device::refund(l.device, r.reach);
        vram::free(at);
    }
}
