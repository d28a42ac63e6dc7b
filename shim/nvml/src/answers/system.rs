//! The driver, and processes' names.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_char, c_int, c_uint};

use orion_cuda::nvml_table::Process;

use crate::arguments::{answer, put, put_text, until_zero};
use crate::library;
use crate::types::*;

pub unsafe fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(driver_release().and_then(|release| unsafe { put_text(version, length, &release) }))
}

pub unsafe fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let text = || Ok(format!("{}.{}", library::driver_version()? / 1000, driver_release()?));
    // SAFETY: the caller's promise.
    answer(text().and_then(|text| unsafe { put_text(version, length, &text) }))
}

/// NVIDIA's `cuda.bindings` takes a system that does not answer this for one without NVML.
pub unsafe fn nvmlSystemGetDriverBranch(branchInfo: *mut nvmlSystemDriverBranchInfo_t, length: c_uint) -> nvmlReturn_t {
    answer(driver_release().and_then(|release| {
        if branchInfo.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: the caller's promise.
        if unsafe { (*branchInfo).version } != NVML_SYSTEM_DRIVER_BRANCH_INFO_V1 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let text = format!("r{}_00", release.split('.').next().unwrap_or_default());
        // SAFETY: the caller's promise; of a longer text than it has room for nothing is written.
        let (to, room) = unsafe { (&raw mut (*branchInfo).branch, length.min(NVML_BRANCH_CHARACTERS as c_uint)) };
        // SAFETY: the same.
        unsafe { put_text(to.cast(), room, &text) }
    }))
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

/// Of the oldest driver among those of the devices' nodes, which is what programs may count on.
fn driver_release() -> Result<String, nvmlReturn_t> {
    let cuda = library::driver_version()?;
    let releases = library::devices()?.iter().map(|device| until_zero(&device.driver_release));
    Ok(oldest(releases).unwrap_or_else(|| branch_of(cuda).to_owned()))
}

/// Nothing where one of them is not known.
fn oldest<'a>(releases: impl Iterator<Item = &'a str>) -> Option<String> {
    let numbers = |release: &str| release.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>();
    let all: Option<Vec<_>> = releases.map(|release| Some((numbers(release)?, release))).collect();
    all?.into_iter().min().map(|(_, release)| release.to_owned())
}

/// The branch of the driver that brought this version of CUDA, in the form of a release: where it is not known which
/// release the node has, as beside the software GPU. Programs read the branch.
fn branch_of(cuda: i32) -> &'static str {
    match cuda {
        ..12000 => "450.00",
        12000..12010 => "525.00",
        12010..12030 => "530.00",
        12030..12040 => "545.00",
        12040..12060 => "550.00",
        12060..12080 => "560.00",
        12080..13000 => "570.00",
        13000..13010 => "580.00",
        _ => "590.00",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_driver_counts_by_numbers_and_only_if_all_are_known() {
        let oldest = |all: &[&str]| oldest(all.iter().copied());
        assert_eq!(oldest(&["580.159.04"]).as_deref(), Some("580.159.04"));
        assert_eq!(oldest(&["580.159.04", "580.65.06", "590.10"]).as_deref(), Some("580.65.06"));
        assert_eq!(oldest(&["580.159.04", ""]), None);
        assert_eq!(oldest(&[]), None);
    }
}
