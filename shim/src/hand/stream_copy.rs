//! Copies between the application's memory and the heap.

// UNSAFETY: raw copies; the callers promise the ranges.

/// Copies `bytes` that do not overlap.
///
/// # Safety
/// As `memcpy`.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}
