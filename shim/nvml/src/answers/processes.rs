//! Which processes use a device: the user's own, as far as this process could name them. Nobody is told of another's.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_uint, c_ulonglong};
use std::time::{SystemTime, UNIX_EPOCH};

use orion_cuda::nvml_table::{Process, UNKNOWN};

use crate::arguments::{answer, known, put, put_all};
use crate::library;
use crate::types::*;

impl From<&Process> for nvmlProcessInfo_v1_t {
    fn from(p: &Process) -> Self {
        nvmlProcessInfo_v1_t { pid: p.pid, usedGpuMemory: p.used }
    }
}

impl From<&Process> for nvmlProcessInfo_v2_t {
    fn from(p: &Process) -> Self {
        let (gpuInstanceId, computeInstanceId) = (NO_INSTANCE, NO_INSTANCE);
        nvmlProcessInfo_v2_t { pid: p.pid, usedGpuMemory: p.used, gpuInstanceId, computeInstanceId }
    }
}

macro_rules! running {
    ($($name:ident($type:ty);)*) => {
        $(pub unsafe fn $name(device: nvmlDevice_t, infoCount: *mut c_uint, infos: *mut $type) -> nvmlReturn_t {
            // SAFETY: the caller's promise.
            answer(on(device).and_then(|all| unsafe { put_all(&all, infoCount, infos) }))
        })*
    };
}
running! {
    nvmlDeviceGetComputeRunningProcesses_v3(nvmlProcessInfo_t);
    nvmlDeviceGetComputeRunningProcesses_v2(nvmlProcessInfo_v2_t);
    nvmlDeviceGetComputeRunningProcesses(nvmlProcessInfo_v1_t);
}

/// There is neither graphics nor MPS on a vGPU. PyTorch takes anything but success for a fault of its own when it has
/// run out of memory.
macro_rules! none_running {
    ($($name:ident($type:ty);)*) => {
        $(pub unsafe fn $name(device: nvmlDevice_t, infoCount: *mut c_uint, _infos: *mut $type) -> nvmlReturn_t {
            // SAFETY: the caller's promise.
            answer(known(device).and_then(|_| unsafe { put(infoCount, 0) }))
        })*
    };
}
none_running! {
    nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlProcessInfo_t);
    nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlProcessInfo_t);
    nvmlDeviceGetGraphicsRunningProcesses(nvmlProcessInfo_v1_t);
    nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlProcessInfo_v2_t);
    nvmlDeviceGetMPSComputeRunningProcesses(nvmlProcessInfo_v1_t);
    nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlProcessInfo_v2_t);
}

/// One sample of each process, of now.
pub unsafe fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    utilization: *mut nvmlProcessUtilizationSample_t,
    processSamplesCount: *mut c_uint,
    _lastSeenTimeStamp: c_ulonglong,
) -> nvmlReturn_t {
    let timeStamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as c_ulonglong);
    answer(on(device).and_then(|all| {
        if all.iter().any(|p| p.busy_percent == UNKNOWN) {
            return Err(NVML_ERROR_NOT_SUPPORTED);
        }
        let samples: Vec<Sample> = all.iter().map(|process| Sample { process, timeStamp }).collect();
        // SAFETY: the caller's promise.
        unsafe { put_all(&samples, processSamplesCount, utilization) }
    }))
}

struct Sample<'a> {
    process: &'a Process,
    timeStamp: c_ulonglong,
}

impl From<&Sample<'_>> for nvmlProcessUtilizationSample_t {
    fn from(s: &Sample<'_>) -> Self {
        let (pid, smUtil, timeStamp) = (s.process.pid, s.process.busy_percent, s.timeStamp);
        nvmlProcessUtilizationSample_t { pid, timeStamp, smUtil, memUtil: 0, encUtil: 0, decUtil: 0 }
    }
}

pub fn on(device: nvmlDevice_t) -> Result<Vec<Process>, nvmlReturn_t> {
    let (index, _) = known(device)?;
    Ok(library::processes()?.into_iter().filter(|p| p.device as usize == index).collect())
}
