//! How a function of the driver API answers: a code, and a value through the application's pointer.

// UNSAFETY: writes answers through the application's pointers.

use orion_cuda::sys::{CUDA_SUCCESS, CUresult, *};

pub fn posted(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// Writes an answer through the application's pointer.
///
/// # Safety
/// `to` is null or valid for a write.
pub unsafe fn write<T>(to: *mut T, answer: Result<T, CUresult>) -> CUresult {
    match answer {
        Ok(_) if to.is_null() => CUDA_ERROR_INVALID_VALUE,
        Ok(value) => {
            // SAFETY: not null, and valid by the contract.
            unsafe { to.write(value) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// The `CUresult` of a function whose body is easier to write with `?`.
#[inline]
pub fn code(result: Result<(), CUresult>) -> CUresult {
    match result {
        Ok(()) => CUDA_SUCCESS,
        Err(code) => code,
    }
}

pub fn not_null<T>(p: *const T) -> Result<(), CUresult> {
    if p.is_null() { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// Writes an answer.
///
/// # Safety
/// `out` must be null (an error) or valid for a write.
#[inline]
pub unsafe fn put<T>(out: *mut T, value: T) -> Result<(), CUresult> {
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null; the caller says that it is valid.
    unsafe { out.write(value) };
    Ok(())
}
