//! How far vGPUs are from each other.
//!
//! Two on one GPU are as near as can be. Of others the bridges between them are not told: they are both in the system,
//! which is as far as NVML knows and promises nothing. Where NVLink joins them, tools show that in its place.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::c_uint;

use orion_cuda::nvml_table::PEER_SAME_GPU;

use crate::arguments::{answer, known, put};
use crate::library;
use crate::types::*;

const INTERNAL: nvmlGpuTopologyLevel_t = 0;
const SYSTEM: nvmlGpuTopologyLevel_t = 50;
const LEVELS: [nvmlGpuTopologyLevel_t; 6] = [INTERNAL, 10, 20, 30, 40, SYSTEM];

/// Of two devices by their indices.
pub(super) fn are_one_gpu(one: usize, other: usize) -> Result<bool, nvmlReturn_t> {
    Ok(one == other || library::peer_access(one, other)? & PEER_SAME_GPU != 0)
}

fn level(one: usize, other: usize) -> Result<nvmlGpuTopologyLevel_t, nvmlReturn_t> {
    Ok(if are_one_gpu(one, other)? { INTERNAL } else { SYSTEM })
}

pub unsafe fn nvmlDeviceGetTopologyCommonAncestor(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    pathInfo: *mut nvmlGpuTopologyLevel_t,
) -> nvmlReturn_t {
    answer(known(device1).and_then(|(one, _)| {
        let (other, _) = known(device2)?;
        // SAFETY: the caller's promise.
        unsafe { put(pathInfo, level(one, other)?) }
    }))
}

/// All of them, for any processor of this machine is as near as another: see `nvmlDeviceGetCpuAffinity`.
pub unsafe fn nvmlSystemGetTopologyGpuSet(
    _cpuNumber: c_uint,
    count: *mut c_uint,
    deviceArray: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(library::devices().and_then(|devices| {
        let all: Vec<nvmlDevice_t> = (1..=devices.len()).map(std::ptr::without_provenance_mut).collect();
        // SAFETY: the caller's promise.
        unsafe { put_devices(count, deviceArray, &all) }
    }))
}

/// Those at exactly this level. Whoever has no room for any is told how many there are.
pub unsafe fn nvmlDeviceGetTopologyNearestGpus(
    device: nvmlDevice_t,
    asked: nvmlGpuTopologyLevel_t,
    count: *mut c_uint,
    deviceArray: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(known(device).and_then(|(one, _)| {
        if count.is_null() || !LEVELS.contains(&asked) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let mut found: Vec<nvmlDevice_t> = Vec::new();
        for other in (0..library::devices()?.len()).filter(|other| *other != one) {
            if level(one, other)? == asked {
                found.push(std::ptr::without_provenance_mut(other + 1));
            }
        }
        // SAFETY: the caller's promise.
        unsafe { put_devices(count, deviceArray, &found) }
    }))
}

/// `count` says for how many there is room, and then how many there are.
///
/// # Safety
/// `count` is null or valid, `to` null or valid for as many.
unsafe fn put_devices(count: *mut c_uint, to: *mut nvmlDevice_t, found: &[nvmlDevice_t]) -> Result<(), nvmlReturn_t> {
    if count.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null, and valid as the caller promises.
    let room = unsafe { count.replace(found.len() as c_uint) } as usize;
    match room {
        0 => return Ok(()),
        _ if room < found.len() => return Err(NVML_ERROR_INSUFFICIENT_SIZE),
        _ if to.is_null() => return Err(NVML_ERROR_INVALID_ARGUMENT),
        _ => {}
    }
    // SAFETY: there is room for as many, and they are not ours.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), to, found.len()) };
    Ok(())
}
