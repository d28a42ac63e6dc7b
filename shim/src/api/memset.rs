//! Fills.

// UNSAFETY: a C ABI, of which nothing here makes use.

use orion_cuda::sys::*;
use orion_wire::generated::ops;

use crate::memory::copy::{is_known, post_or_call};
use crate::memory::in_step;
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

/// On device memory neither form waits for the host.
fn memset(op: u16, to: CUdeviceptr, bytes: usize, align: u64, words: &[u64]) -> CUresult {
    let stream = words.last().map_or(0, |s| *s) as CUstream;
    crate::objects::stream::in_context_of(stream, || memset_here(op, to, bytes, align, words))
}

fn memset_here(op: u16, to: CUdeviceptr, bytes: usize, align: u64, words: &[u64]) -> CUresult {
    let answer = session().and_then(|s| {
        needs_context()?;
        if bytes == 0 {
            return Ok(());
        }
        in_step::before_access(s, to);
        post_or_call(op, is_settable(s, to, bytes, align), words)
    });
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// The four functions that fill with a value of one width.
macro_rules! filling {
    ($value:ty, $op:ident, $at_once:ident, $in_stream:ident, $op_2d:ident, $at_once_2d:ident, $in_stream_2d:ident) => {
        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $at_once(d: CUstream, to: CUdeviceptr, value: $value, count: usize) -> CUresult {
            // SAFETY: nothing is asked of the caller.
            unsafe { $in_stream(to, value, count, d) }
        }

        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $in_stream(to: CUdeviceptr, value: $value, count: usize, stream: CUstream) -> CUresult {
            let bytes = count.saturating_mul(size_of::<$value>());
            let words = [to, value as u64, count as u64, stream as u64];
            memset(ops::$op, to, bytes, size_of::<$value>() as u64, &words)
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
            unsafe { $in_stream_2d(to, pitch, value, width, height, d) }
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
            let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
            let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
            memset(ops::$op_2d, to, bytes, size_of::<$value>() as u64, &words)
        }
    };
}

filling!(
    u8,
    CU_MEMSET_D8_ASYNC,
    cuMemsetD8_v2,
    cuMemsetD8Async,
    CU_MEMSET_D2D8_ASYNC,
    cuMemsetD2D8_v2,
    cuMemsetD2D8Async
);
filling!(
    u16,
    CU_MEMSET_D16_ASYNC,
    cuMemsetD16_v2,
    cuMemsetD16Async,
    CU_MEMSET_D2D16_ASYNC,
    cuMemsetD2D16_v2,
    cuMemsetD2D16Async
);
filling!(
    u32,
    CU_MEMSET_D32_ASYNC,
    cuMemsetD32_v2,
    cuMemsetD32Async,
    CU_MEMSET_D2D32_ASYNC,
    cuMemsetD2D32_v2,
    cuMemsetD2D32Async
);
