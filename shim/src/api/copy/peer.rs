//! Copies between the memory of two contexts.

// UNSAFETY: functions of the C API, whose callers promise something.

use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;

use crate::answer::code;
use crate::memory::copy::post_or_call;
use crate::objects::stream::in_context_of_copy;
use crate::session::context::{home_of, needs_context};
use crate::state::process::state;

/// Whether so many bytes from there on are one allocation's, and that this context's.
fn is_of(address: CUdeviceptr, bytes: usize, context: CUcontext) -> bool {
    state().addresses.find(address).is_some_and(|range| {
        let is_there = range.is_device() && range.bytes_from(address) >= bytes as u64;
        is_there && home_of(range.context) == home_of(context as u64)
    })
}

/// Whether the driver takes a copy between these addresses.
fn is_known(to: (CUdeviceptr, CUcontext), from: (CUdeviceptr, CUcontext), bytes: usize) -> bool {
    bytes != 0 && is_of(to.0, bytes, to.1) && is_of(from.0, bytes, from.1)
}

/// # Safety
/// As CUDA's `cuMemcpyPeer`.
pub unsafe fn cuMemcpyPeer(
    d: CUstream,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> CUresult {
    in_context_of_copy(d, (to, from), false, || {
        let q = calls::cuMemcpyPeer {
            dstDevice: ClaimedDevice::new(to),
            dstContext: to_context as u64,
            srcDevice: ClaimedDevice::new(from),
            srcContext: from_context as u64,
            ByteCount: bytes,
        };
        let known = is_known((to, to_context), (from, from_context), bytes);
        code(needs_context().and_then(|_| post_or_call(calls::cuMemcpyPeer::OP, known, |w| q.encode(w))))
    })
}

/// # Safety
/// As CUDA's `cuMemcpyPeerAsync`.
pub unsafe fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    in_context_of_copy(stream, (to, from), false, || {
        let q = calls::cuMemcpyPeerAsync {
            dstDevice: ClaimedDevice::new(to),
            dstContext: to_context as u64,
            srcDevice: ClaimedDevice::new(from),
            srcContext: from_context as u64,
            ByteCount: bytes,
            hStream: stream as u64,
        };
        let known = is_known((to, to_context), (from, from_context), bytes);
        code(needs_context().and_then(|_| post_or_call(calls::cuMemcpyPeerAsync::OP, known, |w| q.encode(w))))
    })
}
