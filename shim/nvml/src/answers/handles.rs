//! How many devices there are, and by what each is found.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_char, c_uint};

use orion_cuda::nvml_table::Device;

use super::place::Place;
use crate::arguments::{answer, known, put, text, uuid_text};
use crate::library::{devices, initialized};
use crate::types::*;

pub unsafe fn nvmlDeviceGetCount_v2(deviceCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(devices().and_then(|all| unsafe { put(deviceCount, all.len() as c_uint) }))
}

pub unsafe fn nvmlDeviceGetCount(deviceCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetCount_v2(deviceCount) }
}

pub unsafe fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    unsafe { put_handle(device, NVML_ERROR_INVALID_ARGUMENT, |i, _| i == index as usize) }
}

pub unsafe fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetHandleByIndex_v2(index, device) }
}

/// With or without the kind of device before it: `cuda.core` asks for the UUID as CUDA has it, which is without.
pub unsafe fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    let Some(wanted) = (unsafe { text(uuid) }) else { return NVML_ERROR_INVALID_ARGUMENT };
    let is_it = |_, d: &Device| {
        let full = uuid_text(&d.uuid);
        let bare = full.split_once('-').map(|(_, bare)| bare);
        full.eq_ignore_ascii_case(wanted) || bare.is_some_and(|bare| bare.eq_ignore_ascii_case(wanted))
    };
    // SAFETY: the same.
    unsafe { put_handle(device, NVML_ERROR_NOT_FOUND, is_it) }
}

pub unsafe fn nvmlDeviceGetHandleByPciBusId_v2(pciBusId: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    let wanted = unsafe { text(pciBusId) }.and_then(Place::parse);
    let Some(wanted) = wanted else { return NVML_ERROR_INVALID_ARGUMENT };
    // SAFETY: the same.
    unsafe { put_handle(device, NVML_ERROR_NOT_FOUND, |_, d| Place::of(d) == Some(wanted)) }
}

pub unsafe fn nvmlDeviceGetHandleByPciBusId(pciBusId: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device) }
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn put_handle(
    to: *mut nvmlDevice_t,
    otherwise: nvmlReturn_t,
    wanted: impl Fn(usize, &Device) -> bool,
) -> nvmlReturn_t {
    answer(devices().and_then(|all| {
        let found = all.iter().enumerate().position(|(i, d)| wanted(i, d)).ok_or(otherwise)?;
        // SAFETY: the caller's promise.
        unsafe { put(to, std::ptr::without_provenance_mut(found + 1)) }
    }))
}

/// By a UUID in letters or in bytes.
pub unsafe fn nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    if let Err(code) = initialized() {
        return code;
    }
    if uuid.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: not null; the caller has set these fields, and the value as long as its type is.
    let (version, kind, value) = unsafe { ((*uuid).version, (*uuid).r#type, &raw const (*uuid).value) };
    match (version, kind) {
        (NVML_UUID_V1, NVML_UUID_TYPE_ASCII) => {
            // SAFETY: the same.
            unsafe { nvmlDeviceGetHandleByUUID(value.cast(), device) }
        }
        (NVML_UUID_V1, NVML_UUID_TYPE_BINARY) => {
            // SAFETY: the same.
            let wanted: [u8; 16] = unsafe { value.cast::<[u8; 16]>().read() };
            // SAFETY: the caller's promise.
            unsafe { put_handle(device, NVML_ERROR_NOT_FOUND, |_, d| d.uuid == wanted) }
        }
        (NVML_UUID_V1, _) => NVML_ERROR_INVALID_ARGUMENT,
        _ => NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
}

/// Boards with GPUs in them are the host's.
pub unsafe fn nvmlUnitGetCount(unitCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(initialized().and_then(|_| unsafe { put(unitCount, 0) }))
}

/// So is what an operator has excluded.
pub unsafe fn nvmlGetExcludedDeviceCount(deviceCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(initialized().and_then(|_| unsafe { put(deviceCount, 0) }))
}

pub unsafe fn nvmlGetBlacklistDeviceCount(deviceCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlGetExcludedDeviceCount(deviceCount) }
}

/// A vGPU is not divided further.
pub unsafe fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, isMigDevice: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put(isMigDevice, 0) }))
}

pub unsafe fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same.
    answer(known(device).and_then(|_| unsafe { put(count, 0) }))
}
