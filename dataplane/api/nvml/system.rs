//! The node and its driver.

#[here]
fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint);

#[here]
fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint);

#[here]
fn nvmlSystemGetCudaDriverVersion(cudaDriverVersion: *mut c_int);

#[here]
fn nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion: *mut c_int);

#[here]
fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint);

#[here]
fn nvmlSystemGetHicVersion(hwbcCount: *mut c_uint, hwbcEntries: *mut nvmlHwbcEntry_t);

fn nvmlSystemGetTopologyGpuSet(cpuNumber: c_uint, count: *mut c_uint, deviceArray: *mut nvmlDevice_t);

fn nvmlSystemGetDriverBranch(branchInfo: *mut nvmlSystemDriverBranchInfo_t, length: c_uint);

fn nvmlSystemGetCPER_v1(cper: *mut nvmlGetCPER_v1_t);

fn nvmlSystemGetConfComputeCapabilities(capabilities: *mut nvmlConfComputeSystemCaps_t);

fn nvmlSystemGetConfComputeState(state: *mut nvmlConfComputeSystemState_t);

fn nvmlSystemGetConfComputeGpusReadyState(isAcceptingWork: *mut c_uint);

fn nvmlSystemGetConfComputeKeyRotationThresholdInfo(
    pKeyRotationThrInfo: *mut nvmlConfComputeGetKeyRotationThresholdInfo_t,
);

fn nvmlSystemSetConfComputeGpusReadyState(isAcceptingWork: c_uint);

fn nvmlSystemSetConfComputeKeyRotationThresholdInfo(
    pKeyRotationThrInfo: *mut nvmlConfComputeSetKeyRotationThresholdInfo_t,
);

fn nvmlSystemGetConfComputeSettings(settings: *mut nvmlSystemConfComputeSettings_t);

fn nvmlSystemGetConfComputeSettings_v2(settings: *mut nvmlSystemConfComputeSettings_v2_t);

fn nvmlSystemSetNvlinkBwMode(nvlinkBwMode: c_uint);

fn nvmlSystemGetNvlinkBwMode(nvlinkBwMode: *mut c_uint);

fn nvmlSystemEventSetCreate(request: *mut nvmlSystemEventSetCreateRequest_t);

fn nvmlSystemEventSetFree(request: *mut nvmlSystemEventSetFreeRequest_t);

fn nvmlSystemRegisterEvents(request: *mut nvmlSystemRegisterEventRequest_t);

fn nvmlSystemEventSetWait(request: *mut nvmlSystemEventSetWaitRequest_t);

#[here]
fn nvmlGetExcludedDeviceCount(deviceCount: *mut c_uint);

fn nvmlGetExcludedDeviceInfoByIndex(index: c_uint, info: *mut nvmlExcludedDeviceInfo_t);

#[here]
fn nvmlGetBlacklistDeviceCount(deviceCount: *mut c_uint);

fn nvmlGetBlacklistDeviceInfoByIndex(index: c_uint, info: *mut nvmlExcludedDeviceInfo_t);
