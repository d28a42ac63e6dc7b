//! What the exported functions are passed: read from, and written to, where the caller's pointers lead.

// UNSAFETY: follows the caller's pointers, which its promises cover.

use orion_cuda::sys::*;
use orion_wire::Fault;

/// What the default stream means to callers of the plain functions.
pub const LEGACY: CUstream = std::ptr::null_mut();
/// And to callers of the `_ptsz` and `_ptds` functions.
pub const PER_THREAD: CUstream = std::ptr::without_provenance_mut(2);

pub fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { PER_THREAD } else { stream }
}

/// # Safety
/// `at` is valid for reads of `len` bytes, unless there are none. What is answered does not outlive the call.
#[inline]
pub unsafe fn bytes_at<'a>(at: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at, len) }
}

/// # Safety
/// `at` is valid for reads of `count` handles, unless there are none.
pub unsafe fn handles_at(at: *const u64, count: usize) -> Vec<u64> {
    // SAFETY: the caller's promise.
    (0..count).map(|i| unsafe { at.add(i).read() }).collect()
}

/// # Safety
/// `to` is valid for writes of `len` bytes, unless there are none.
#[inline]
pub unsafe fn copy_out(from: &[u8], to: *mut u8, len: usize) -> Result<(), Fault> {
    if from.len() != len {
        return Err(Fault("a reply's value has another size"));
    }
    // SAFETY: the caller's promise, and the length was just compared.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, len) };
    Ok(())
}
