//! Fills.

// UNSAFETY: a C ABI, of which nothing here makes use.

use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;

use crate::memory::copy::{is_known, post_or_call};
use crate::memory::{host_memory, in_step};
use crate::objects::synchronize;
use crate::session::attached::session;
use crate::session::context::needs_context;
use crate::state::context;
use crate::state::process::state;
use crate::state::session::Session;

/// Whether a memset of this is done without doubt. What is another device's may be out of reach.
fn is_settable(s: &Session, to: CUdeviceptr, bytes: usize, align: u64) -> bool {
    let elsewhere = state().contexts.several()
        && state().addresses.find(to).is_some_and(|r| Some(r.device) != context::current_device());
    is_known(s, to, bytes) && to.is_multiple_of(align) && !elsewhere
}

fn memset(
    op: u16,
    to: CUdeviceptr,
    bytes: usize,
    align: u64,
    stream: CUstream,
    encode: impl FnOnce(&mut Vec<u8>),
) -> CUresult {
    crate::objects::stream::in_context_of(stream, || memset_here(op, to, bytes, align, encode))
}

fn memset_here(op: u16, to: CUdeviceptr, bytes: usize, align: u64, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    let answer = session().and_then(|s| {
        needs_context()?;
        if bytes == 0 {
            return Ok(());
        }
        host_memory::ends_in_one_allocation(to, bytes as u64)?;
        in_step::before_access(s, to)?;
        post_or_call(op, is_settable(s, to, bytes, align), encode)
    });
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// A fill of the host's memory is done when the call returns, as CUDA's "API synchronization behavior" has it; one of
/// device memory goes on.
fn at_once(s: CUstream, to: CUdeviceptr, bytes: usize, fill: impl FnOnce() -> CUresult) -> CUresult {
    let is_hosts = bytes != 0 && session().is_ok_and(|s| host_memory::shared(s, to, 1).is_some());
    match fill() {
        CUDA_SUCCESS if is_hosts => synchronize::stream(s),
        code => code,
    }
}

/// Bytes from the first to the last of some rows.
fn span(pitch: usize, row: usize, height: usize) -> usize {
    if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) }
}

/// The four functions that fill with a value of one width.
macro_rules! filling {
    ($field:ident: $value:ty, $at_once:ident, $in_stream:ident, $at_once_2d:ident, $in_stream_2d:ident) => {
        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $at_once(d: CUstream, to: CUdeviceptr, value: $value, count: usize) -> CUresult {
            // SAFETY: nothing is asked of the caller.
            at_once(d, to, count, || unsafe { $in_stream(to, value, count, d) })
        }

        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $in_stream(to: CUdeviceptr, value: $value, count: usize, stream: CUstream) -> CUresult {
            let bytes = count.saturating_mul(size_of::<$value>());
            let (dstDevice, hStream) = (ClaimedDevice::new(to), stream as u64);
            let q = calls::$in_stream { dstDevice, $field: value, N: count, hStream };
            memset(calls::$in_stream::OP, to, bytes, size_of::<$value>() as u64, stream, |w| q.encode(w))
        }

        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $at_once_2d(
            d: CUstream,
            to: CUdeviceptr,
            pitch: usize,
            value: $value,
            width: usize,
            height: usize,
        ) -> CUresult {
            // SAFETY: nothing is asked of the caller.
            at_once(d, to, span(pitch, width, height), || unsafe { $in_stream_2d(to, pitch, value, width, height, d) })
        }

        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $in_stream_2d(
            to: CUdeviceptr,
            pitch: usize,
            value: $value,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> CUresult {
            let row = width.saturating_mul(size_of::<$value>());
            let bytes = span(pitch, row, height);
            let (dstDevice, hStream) = (ClaimedDevice::new(to), stream as u64);
            let (dstPitch, Width, Height) = (pitch, width, height);
            let q = calls::$in_stream_2d { dstDevice, dstPitch, $field: value, Width, Height, hStream };
            memset(calls::$in_stream_2d::OP, to, bytes, size_of::<$value>() as u64, stream, |w| q.encode(w))
        }
    };
}

filling!(uc: u8, cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async);
filling!(us: u16, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async);
filling!(ui: u32, cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async);
