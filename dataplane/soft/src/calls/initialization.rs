//! Initialisation and version.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::api::{api, put};
use crate::device::{DRIVER_VERSION, INITIALISED};

api! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        INITIALISED.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn cuDriverGetVersion(version: *mut c_int) {
        put(version, DRIVER_VERSION)
    }
}
