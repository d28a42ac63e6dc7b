//! Memory of a context: what is allocated is charged, and what ends is refunded.

use orion_cuda::sys::*;

use crate::api::R;
use crate::context::Context;
use crate::device;
use crate::vram::{self, Kind, Range};

/// Allocates charged device memory.
pub fn allocate(c: &Context, bytes: u64, kind: Kind) -> R<Range> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = bytes.checked_next_multiple_of(512).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    device::charge(c.device, charged).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    vram::allocate(bytes, kind, c.device, c.id).ok_or_else(|| {
        device::refund(c.device, charged);
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// Range flag: the memory belongs to a graph's allocation node, which alone ends it.
pub const GRAPH_OWNED: u32 = 1 << 30;

/// Range flag: a free of the memory is queued.
pub const FREED: u32 = 1 << 29;

/// Ends a range of any kind and returns what it was charged.
pub fn drop_range(r: &Range) {
    if r.flags & GRAPH_OWNED != 0 {
        return;
    }
    match r.kind {
        Kind::Registered => {
            vram::remove(r.base);
        }
        Kind::Mapped => {}
        Kind::Host => {
            vram::free(r.base);
        }
        Kind::Device | Kind::Pool | Kind::Managed | Kind::Internal => {
            if vram::free(r.base).is_some() {
                device::refund(r.device, r.reach);
                crate::pool::returned(r);
            }
        }
    }
}
