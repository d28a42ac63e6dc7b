//! Memory of a context: what is allocated is charged, and what ends is refunded.

use orion_cuda::sys::*;

use crate::api::R;
use crate::context::Context;
use crate::device;
use crate::vram::{self, Kind, Range};

/// Allocates charged device memory.
pub fn allocate(c: &Context, bytes: u64, kind: Kind) -> R<Range> {
    allocate_in(c.device, c.id, bytes, kind)
}

/// Memory that goes with no context.
pub fn allocate_for_all(device: CUdevice, bytes: u64, kind: Kind) -> R<Range> {
    allocate_in(device, 0, bytes, kind)
}

fn allocate_in(device: CUdevice, context: u64, bytes: u64, kind: Kind) -> R<Range> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = bytes.checked_next_multiple_of(512).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    device::charge(device, charged).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    vram::allocate(bytes, kind, device, context).ok_or_else(|| {
        device::refund(device, charged);
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// Range flag: the memory has an address as long as there is a graph with its allocation node, or an executable of one.
pub const GRAPH_OWNED: u32 = 1 << 30;

/// Range flag: a launch has come to the memory's allocation node, and it has not been freed since.
pub const GRAPH_LIVE: u32 = 1 << 28;

/// Range flag: an allocation node made the memory, whoever has it now.
pub const OF_GRAPHS: u32 = 1 << 27;

/// Range flag: a free of the memory is queued.
pub const FREED: u32 = 1 << 29;

/// What freeing does: memory of an allocation node keeps its place for the next launch while there is the node.
pub fn give_back(r: &Range) {
    let mut has_node = false;
    vram::update(r.base, |r| {
        has_node = r.flags & GRAPH_OWNED != 0;
        r.flags &= !GRAPH_LIVE;
    });
    if !has_node {
        drop_range(&Range { flags: r.flags & !GRAPH_OWNED, ..*r });
    }
}

/// Its graph and the executables of it are gone. What is in use then is memory like any other, until it is freed.
pub fn without_node(base: u64) {
    let mut unused = None;
    vram::update(base, |r| {
        if r.flags & (GRAPH_OWNED | GRAPH_LIVE) == GRAPH_OWNED {
            unused = Some(*r);
        }
        r.flags &= !GRAPH_OWNED;
    });
    if let Some(r) = unused {
        drop_range(&Range { flags: r.flags & !GRAPH_OWNED, ..r });
    }
}

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
