//! Profiler control. No profiler can attach to a context that lives elsewhere, so starting and stopping one
//! does nothing; programs call it around their warm-up and expect success.

// UNSAFETY: C entry points, which touch no pointer.

use std::ffi::c_char;

use orion_cuda::sys::*;

use crate::session::context;

pub unsafe fn cuProfilerStart() -> CUresult {
    context::current_active().map_or_else(|code| code, |_| CUDA_SUCCESS)
}

pub unsafe fn cuProfilerStop() -> CUresult {
    context::current_active().map_or_else(|code| code, |_| CUDA_SUCCESS)
}

/// Deprecated since CUDA 11; driver 580 answers as we do.
pub unsafe fn cuProfilerInitialize(
    _configFile: *const c_char,
    _outputFile: *const c_char,
    _outputMode: u32,
) -> CUresult {
    CUDA_ERROR_NOT_SUPPORTED
}
