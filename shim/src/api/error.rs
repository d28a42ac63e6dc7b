//! Names of result codes. Answered before `cuInit` too.

// UNSAFETY: writes through the application's out pointers.

use std::ffi::{CStr, c_char};

use orion_cuda::names;
use orion_cuda::sys::*;

pub unsafe fn cuGetErrorName(error: CUresult, pStr: *mut *const c_char) -> CUresult {
    // SAFETY: passed on from the caller.
    unsafe { answer(names::name(error), pStr) }
}

pub unsafe fn cuGetErrorString(error: CUresult, pStr: *mut *const c_char) -> CUresult {
    // SAFETY: passed on from the caller.
    unsafe { answer(names::description(error), pStr) }
}

/// # Safety
/// `out` must be null or valid for a write.
unsafe fn answer(text: Option<&'static CStr>, out: *mut *const c_char) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, so valid by this function's contract. The text is static: it stays valid for ever.
    unsafe { out.write(text.map_or(std::ptr::null(), CStr::as_ptr)) };
    if text.is_some() { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_have_names() {
        let mut p = std::ptr::null();
        // SAFETY: a valid place; the answer is a C string.
        unsafe {
            assert_eq!(cuGetErrorName(CUDA_ERROR_INVALID_CONTEXT, &mut p), CUDA_SUCCESS);
            assert_eq!(CStr::from_ptr(p), c"CUDA_ERROR_INVALID_CONTEXT");
            assert_eq!(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &mut p), CUDA_SUCCESS);
            assert_eq!(CStr::from_ptr(p), c"out of memory");
        }
    }

    #[test]
    fn an_unknown_code_gives_null() {
        let mut p = c"old".as_ptr();
        // SAFETY: a valid place, then null.
        unsafe {
            assert_eq!(cuGetErrorName(12345, &mut p), CUDA_ERROR_INVALID_VALUE);
            assert!(p.is_null());
            assert_eq!(cuGetErrorName(0, std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
        }
    }
}
