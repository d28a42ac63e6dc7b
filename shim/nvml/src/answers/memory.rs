//! What of a device's memory is used.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::c_ulonglong;

use orion_cuda::nvml_table::{UNKNOWN, Usage};

use crate::arguments::{answer, known, put};
use crate::library;
use crate::types::*;

pub unsafe fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(i, _)| {
        let (total, free) = memory_of(i)?;
        // SAFETY: the caller's promise.
        unsafe { put(memory, nvmlMemory_t { total, free, used: total - free }) }
    }))
}

pub unsafe fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(i, _)| {
        if memory.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null; the caller has set this field.
        if unsafe { (*memory).version } != NVML_MEMORY_V2 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let (total, free) = memory_of(i)?;
        let info = nvmlMemory_v2_t { version: NVML_MEMORY_V2, total, reserved: 0, free, used: total - free };
        // SAFETY: the caller's promise.
        unsafe { put(memory, info) }
    }))
}

/// Total and free bytes. What is used is never more than there is, though what a context takes may have been charged
/// beyond the limit.
fn memory_of(index: usize) -> Result<(c_ulonglong, c_ulonglong), nvmlReturn_t> {
    let Usage { total, used } = library::usage(index)?;
    Ok((total, total.saturating_sub(used)))
}

/// How much of the time lately the device had work. How much its memory was read and written nobody counts, so
/// that is 0 wherever the first is known.
pub unsafe fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(i, _)| {
        let gpu = match library::busy(i)? {
            UNKNOWN => return Err(NVML_ERROR_NOT_SUPPORTED),
            percent => percent,
        };
        // SAFETY: the caller's promise.
        unsafe { put(utilization, nvmlUtilization_t { gpu, memory: 0 }) }
    }))
}
