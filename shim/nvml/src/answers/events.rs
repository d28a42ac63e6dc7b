//! Events. A set can be made and waited on, as `nvidia-smi` does; no event is ever registered, so none comes.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_uint, c_ulonglong};
use std::time::Duration;

use crate::arguments::{answer, known, put};
use crate::library::initialized;
use crate::types::*;

/// Nothing is kept for a set, so all are this one.
const SET: nvmlEventSet_t = std::ptr::without_provenance_mut(1);

pub unsafe fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(initialized().and_then(|_| unsafe { put(set, SET) }))
}

pub unsafe fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    answer(initialized().and_then(|_| is_set(set)))
}

pub unsafe fn nvmlEventSetWait_v2(set: nvmlEventSet_t, _data: *mut nvmlEventData_t, timeoutms: c_uint) -> nvmlReturn_t {
    answer(initialized().and_then(|_| is_set(set)).and_then(|()| {
        std::thread::sleep(Duration::from_millis(timeoutms.into()));
        Err(NVML_ERROR_TIMEOUT)
    }))
}

pub unsafe fn nvmlEventSetWait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlEventSetWait_v2(set, data, timeoutms) }
}

pub unsafe fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, eventTypes: *mut c_ulonglong) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put(eventTypes, 0) }))
}

fn is_set(set: nvmlEventSet_t) -> Result<(), nvmlReturn_t> {
    if set == SET { Ok(()) } else { Err(NVML_ERROR_INVALID_ARGUMENT) }
}
