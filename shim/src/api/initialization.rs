//! Initialisation and version.

// UNSAFETY: a C entry point.

use std::ffi::c_int;
use std::sync::Once;

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::record::op;

use crate::local::device::driver_version;
use crate::session::{self, Session};

/// Attaches to a worker. Flags other than 0 are refused, as the driver does.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuInit(flags: u32) -> CUresult {
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match session::attach() {
        Ok(s) => match crate::local::device::init_result(s) {
            CUDA_SUCCESS => {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    session::initialized();
                    announce_devices(s);
                    crate::activity::session_started();
                });
                CUDA_SUCCESS
            }
            code => code,
        },
        Err(code) => code,
    }
}

/// Tells the worker which devices the application sees (`CUDA_VISIBLE_DEVICES`), so that every ordinal from now
/// on is the application's.
fn announce_devices(s: &'static Session) {
    crate::call::post_to(s, op::VISIBLE_DEVICES, |w| {
        for ordinal in 0..crate::local::device::count(s) {
            w.word(crate::local::device::worker_ordinal(ordinal).unwrap_or(0) as u64);
        }
    });
}

pub unsafe fn cuDriverGetVersion(driverVersion: *mut c_int) -> CUresult {
    if driverVersion.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null; valid for a write by the C API's contract.
    unsafe { driverVersion.write(driver_version()) };
    CUDA_SUCCESS
}
