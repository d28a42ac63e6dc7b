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

#[here]
fn nvmlSystemGetTopologyGpuSet(cpuNumber: c_uint, count: *mut c_uint, deviceArray: *mut nvmlDevice_t);

#[here]
fn nvmlSystemGetDriverBranch(branchInfo: *mut nvmlSystemDriverBranchInfo_t, length: c_uint);

#[host]
fn nvmlSystemGetCPER_v1(cper: *mut nvmlGetCPER_v1_t);

#[lacking]
fn nvmlSystemGetConfComputeCapabilities(capabilities: *mut nvmlConfComputeSystemCaps_t);

#[lacking]
fn nvmlSystemGetConfComputeState(state: *mut nvmlConfComputeSystemState_t);

#[lacking]
fn nvmlSystemGetConfComputeGpusReadyState(isAcceptingWork: *mut c_uint);

#[lacking]
fn nvmlSystemGetConfComputeKeyRotationThresholdInfo(
    pKeyRotationThrInfo: *mut nvmlConfComputeGetKeyRotationThresholdInfo_t,
);

#[lacking]
fn nvmlSystemSetConfComputeGpusReadyState(isAcceptingWork: c_uint);

#[lacking]
fn nvmlSystemSetConfComputeKeyRotationThresholdInfo(
    pKeyRotationThrInfo: *mut nvmlConfComputeSetKeyRotationThresholdInfo_t,
);

#[lacking]
fn nvmlSystemGetConfComputeSettings(settings: *mut nvmlSystemConfComputeSettings_t);

#[lacking]
fn nvmlSystemGetConfComputeSettings_v2(settings: *mut nvmlSystemConfComputeSettings_v2_t);

#[lacking]
fn nvmlSystemSetNvlinkBwMode(nvlinkBwMode: c_uint);

#[lacking]
fn nvmlSystemGetNvlinkBwMode(nvlinkBwMode: *mut c_uint);

#[lacking]
fn nvmlSystemEventSetCreate(request: *mut nvmlSystemEventSetCreateRequest_t);

#[lacking]
fn nvmlSystemEventSetFree(request: *mut nvmlSystemEventSetFreeRequest_t);

#[lacking]
fn nvmlSystemRegisterEvents(request: *mut nvmlSystemRegisterEventRequest_t);

#[lacking]
fn nvmlSystemEventSetWait(request: *mut nvmlSystemEventSetWaitRequest_t);

#[here]
fn nvmlGetExcludedDeviceCount(deviceCount: *mut c_uint);

#[lacking]
fn nvmlGetExcludedDeviceInfoByIndex(index: c_uint, info: *mut nvmlExcludedDeviceInfo_t);

#[here]
fn nvmlGetBlacklistDeviceCount(deviceCount: *mut c_uint);

#[lacking]
fn nvmlGetBlacklistDeviceInfoByIndex(index: c_uint, info: *mut nvmlExcludedDeviceInfo_t);
