//! Fills.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use crate::session::context::needs_context;
use orion_cuda::sys::*;
use orion_wire::generated::ops;

use crate::memory::copy::{is_known, post_or_call};
use crate::memory::in_step;
use crate::session::attached::session;
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

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD8_v2(d: CUstream, to: CUdeviceptr, value: u8, count: usize) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD8Async(to, value, count, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult {
    let bytes = count.saturating_mul(1);
    memset(ops::CU_MEMSET_D8_ASYNC, to, bytes, 1, &[to, value as u64, count as u64, stream as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D8_v2(
    d: CUstream,
    to: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD2D8Async(to, pitch, value, width, height, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D8Async(
    to: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let row = width.saturating_mul(1);
    let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
    let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
    memset(ops::CU_MEMSET_D2D8_ASYNC, to, bytes, 1, &words)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD16_v2(d: CUstream, to: CUdeviceptr, value: u16, count: usize) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD16Async(to, value, count, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult {
    let bytes = count.saturating_mul(2);
    memset(ops::CU_MEMSET_D16_ASYNC, to, bytes, 2, &[to, value as u64, count as u64, stream as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D16_v2(
    d: CUstream,
    to: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD2D16Async(to, pitch, value, width, height, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D16Async(
    to: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let row = width.saturating_mul(2);
    let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
    let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
    memset(ops::CU_MEMSET_D2D16_ASYNC, to, bytes, 2, &words)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD32_v2(d: CUstream, to: CUdeviceptr, value: u32, count: usize) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD32Async(to, value, count, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CUresult {
    let bytes = count.saturating_mul(4);
    memset(ops::CU_MEMSET_D32_ASYNC, to, bytes, 4, &[to, value as u64, count as u64, stream as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D32_v2(
    d: CUstream,
    to: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD2D32Async(to, pitch, value, width, height, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D32Async(
    to: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let row = width.saturating_mul(4);
    let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
    let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
    memset(ops::CU_MEMSET_D2D32_ASYNC, to, bytes, 4, &words)
}
