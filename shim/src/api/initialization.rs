//! Initialisation and version.

// UNSAFETY: a C entry point.

use std::ffi::c_int;
use std::sync::Once;

use orion_cuda::sys::*;
use orion_wire::message::carrier::{OF_ANOTHER_SERVER, VisibleDevices};
use orion_wire::message::field::{List, Ordinal};

use crate::session::attached;
use crate::start::attach::{self, driver_version};
use crate::state::device::Device;
use crate::state::process::state;
use crate::state::session::Session;

/// Attaches to a worker. Flags other than 0 are refused, as the driver does.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuInit(flags: u32) -> CUresult {
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match attach::attach() {
        Ok(()) => match state().devices().refusal {
            CUDA_SUCCESS => {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    attached::initialized();
                    state().attachment.all().for_each(announce_devices);
                    crate::activity::calls::session_started();
                });
                CUDA_SUCCESS
            }
            code => code,
        },
        Err(code) => code,
    }
}

/// Tells a worker which devices the application sees (`CUDA_VISIBLE_DEVICES`), so that every ordinal from now
/// on is the application's.
fn announce_devices(s: &'static Session) {
    let theirs = |device: &Device| match device.session == s.number {
        true => Ordinal(device.worker_ordinal as i32),
        false => OF_ANOTHER_SERVER,
    };
    let all = state().devices().devices.iter().map(theirs).collect();
    // No more were taken when they were granted.
    let devices = List::of(all).expect("devices of this process");
    crate::session::call::post_to(s, VisibleDevices::OP, |w| VisibleDevices { devices }.encode(w));
}

pub unsafe fn cuDriverGetVersion(driverVersion: *mut c_int) -> CUresult {
    if driverVersion.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null; valid for a write by the C API's contract.
    unsafe { driverVersion.write(driver_version()) };
    CUDA_SUCCESS
}
