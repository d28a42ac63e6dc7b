//! The driver, and processes' names.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_char, c_int, c_uint};

use orion_cuda::nvml_table::Process;

use crate::arguments::{answer, put, put_text, until_zero};
use crate::library;
use crate::types::*;

pub unsafe fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(library::driver_version().and_then(|cuda| unsafe { put_text(version, length, &driver_release(cuda)) }))
}

pub unsafe fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let text = |cuda: i32| format!("{}.{}", cuda / 1000, driver_release(cuda));
    // SAFETY: the caller's promise.
    answer(library::driver_version().and_then(|cuda| unsafe { put_text(version, length, &text(cuda)) }))
}

pub unsafe fn nvmlSystemGetCudaDriverVersion(cudaDriverVersion: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(library::driver_version().and_then(|cuda| unsafe { put(cudaDriverVersion, cuda) }))
}

pub unsafe fn nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlSystemGetCudaDriverVersion(cudaDriverVersion) }
}

/// Of the user's programs on the devices, as the program was started; of another process, what the system says.
pub unsafe fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    answer(library::processes().and_then(|all| {
        let known = || all.iter().find(|p| p.pid == pid).map(process_name);
        let found = known().or_else(|| started_as(pid)).ok_or(NVML_ERROR_NOT_FOUND)?;
        // As NVIDIA's, which fills the room that there is.
        let room = (length as usize).saturating_sub(1);
        let end = (0..=room.min(found.len())).rev().find(|end| found.is_char_boundary(*end)).unwrap_or(0);
        // SAFETY: the caller's promise.
        unsafe { put_text(name, length, &found[..end]) }
    }))
}

/// As it was started, where the system says so, else as it called itself when its session began.
pub fn process_name(process: &Process) -> String {
    started_as(process.pid).unwrap_or_else(|| until_zero(&process.name).to_owned())
}

/// The first word of its command line.
fn started_as(pid: c_uint) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = line.split(|byte| *byte == 0).next().filter(|word| !word.is_empty())?;
    Some(String::from_utf8_lossy(first).into_owned())
}

/// S-class boards are the host's.
pub unsafe fn nvmlSystemGetHicVersion(hwbcCount: *mut c_uint, _hwbcEntries: *mut nvmlHwbcEntry_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(library::initialized().and_then(|_| unsafe { put(hwbcCount, 0) }))
}

/// The branch of the driver that brought this version of CUDA, in the form of a release: which one the node has is not
/// known here, and programs read the branch.
fn driver_release(cuda: i32) -> String {
    let branch = match cuda {
        ..12000 => 450,
        12000..12010 => 525,
        12010..12030 => 530,
        12030..12040 => 545,
        12040..12060 => 550,
        12060..12080 => 560,
        12080..13000 => 570,
        13000..13010 => 580,
        _ => 590,
    };
    format!("{branch}.00")
}
