//! Names and texts of results.

// UNSAFETY: C entry points.

use std::ffi::c_char;

use orion_cuda::sys::*;

use crate::api::{api, put};

api! {
    fn cuGetErrorName(error: CUresult, out: *mut *const c_char) {
        match crate::error::describe(error) {
            Some((name, _)) => put(out, name.as_ptr()),
            None => {
                crate::api::put_some(out, std::ptr::null());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }
    fn cuGetErrorString(error: CUresult, out: *mut *const c_char) {
        match crate::error::describe(error) {
            Some((_, text)) => put(out, text.as_ptr()),
            None => {
                crate::api::put_some(out, std::ptr::null());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }
}
