//! NVIDIA's own virtual GPUs.

#[lacking]
fn nvmlDeviceGetHostVgpuMode(device: nvmlDevice_t, pHostVgpuMode: *mut nvmlHostVgpuMode_t);

#[lacking]
fn nvmlDeviceGetVgpuHeterogeneousMode(device: nvmlDevice_t, pHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_t);

#[lacking]
fn nvmlDeviceSetVgpuHeterogeneousMode(device: nvmlDevice_t, pHeterogeneousMode: *const nvmlVgpuHeterogeneousMode_t);

#[lacking]
fn nvmlVgpuInstanceGetPlacementId(vgpuInstance: nvmlVgpuInstance_t, pPlacement: *mut nvmlVgpuPlacementId_t);

#[lacking]
fn nvmlDeviceGetVgpuTypeSupportedPlacements(
    device: nvmlDevice_t,
    vgpuTypeId: nvmlVgpuTypeId_t,
    pPlacementList: *mut nvmlVgpuPlacementList_t,
);

#[lacking]
fn nvmlDeviceGetVgpuTypeCreatablePlacements(
    device: nvmlDevice_t,
    vgpuTypeId: nvmlVgpuTypeId_t,
    pPlacementList: *mut nvmlVgpuPlacementList_t,
);

#[lacking]
fn nvmlVgpuTypeGetGspHeapSize(vgpuTypeId: nvmlVgpuTypeId_t, gspHeapSize: *mut c_ulonglong);

#[lacking]
fn nvmlVgpuTypeGetFbReservation(vgpuTypeId: nvmlVgpuTypeId_t, fbReservation: *mut c_ulonglong);

#[lacking]
fn nvmlVgpuInstanceGetRuntimeStateSize(vgpuInstance: nvmlVgpuInstance_t, pState: *mut nvmlVgpuRuntimeState_t);

#[lacking]
fn nvmlDeviceSetVgpuCapabilities(
    device: nvmlDevice_t,
    capability: nvmlDeviceVgpuCapability_t,
    state: nvmlEnableState_t,
);

#[lacking]
fn nvmlDeviceVgpuForceGspUnload(device: nvmlDevice_t);

#[lacking]
fn nvmlGetVgpuDriverCapabilities(capability: nvmlVgpuDriverCapability_t, capResult: *mut c_uint);

#[lacking]
fn nvmlDeviceGetVgpuCapabilities(device: nvmlDevice_t, capability: nvmlDeviceVgpuCapability_t, capResult: *mut c_uint);

#[lacking]
fn nvmlDeviceGetSupportedVgpus(device: nvmlDevice_t, vgpuCount: *mut c_uint, vgpuTypeIds: *mut nvmlVgpuTypeId_t);

#[lacking]
fn nvmlDeviceGetCreatableVgpus(device: nvmlDevice_t, vgpuCount: *mut c_uint, vgpuTypeIds: *mut nvmlVgpuTypeId_t);

#[lacking]
fn nvmlVgpuTypeGetClass(vgpuTypeId: nvmlVgpuTypeId_t, vgpuTypeClass: *mut c_char, size: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetName(vgpuTypeId: nvmlVgpuTypeId_t, vgpuTypeName: *mut c_char, size: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetGpuInstanceProfileId(vgpuTypeId: nvmlVgpuTypeId_t, gpuInstanceProfileId: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetDeviceID(vgpuTypeId: nvmlVgpuTypeId_t, deviceID: *mut c_ulonglong, subsystemID: *mut c_ulonglong);

#[lacking]
fn nvmlVgpuTypeGetFramebufferSize(vgpuTypeId: nvmlVgpuTypeId_t, fbSize: *mut c_ulonglong);

#[lacking]
fn nvmlVgpuTypeGetNumDisplayHeads(vgpuTypeId: nvmlVgpuTypeId_t, numDisplayHeads: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetResolution(vgpuTypeId: nvmlVgpuTypeId_t, displayIndex: c_uint, xdim: *mut c_uint, ydim: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetLicense(vgpuTypeId: nvmlVgpuTypeId_t, vgpuTypeLicenseString: *mut c_char, size: c_uint);

#[lacking]
fn nvmlVgpuTypeGetFrameRateLimit(vgpuTypeId: nvmlVgpuTypeId_t, frameRateLimit: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetMaxInstances(device: nvmlDevice_t, vgpuTypeId: nvmlVgpuTypeId_t, vgpuInstanceCount: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetMaxInstancesPerVm(vgpuTypeId: nvmlVgpuTypeId_t, vgpuInstanceCountPerVm: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetBAR1Info(vgpuTypeId: nvmlVgpuTypeId_t, bar1Info: *mut nvmlVgpuTypeBar1Info_t);

#[lacking]
fn nvmlDeviceGetActiveVgpus(device: nvmlDevice_t, vgpuCount: *mut c_uint, vgpuInstances: *mut nvmlVgpuInstance_t);

#[lacking]
fn nvmlVgpuInstanceGetVmID(
    vgpuInstance: nvmlVgpuInstance_t,
    vmId: *mut c_char,
    size: c_uint,
    vmIdType: *mut nvmlVgpuVmIdType_t,
);

#[lacking]
fn nvmlVgpuInstanceGetUUID(vgpuInstance: nvmlVgpuInstance_t, uuid: *mut c_char, size: c_uint);

#[lacking]
fn nvmlVgpuInstanceGetVmDriverVersion(vgpuInstance: nvmlVgpuInstance_t, version: *mut c_char, length: c_uint);

#[lacking]
fn nvmlVgpuInstanceGetFbUsage(vgpuInstance: nvmlVgpuInstance_t, fbUsage: *mut c_ulonglong);

#[lacking]
fn nvmlVgpuInstanceGetLicenseStatus(vgpuInstance: nvmlVgpuInstance_t, licensed: *mut c_uint);

#[lacking]
fn nvmlVgpuInstanceGetType(vgpuInstance: nvmlVgpuInstance_t, vgpuTypeId: *mut nvmlVgpuTypeId_t);

#[lacking]
fn nvmlVgpuInstanceGetFrameRateLimit(vgpuInstance: nvmlVgpuInstance_t, frameRateLimit: *mut c_uint);

#[lacking]
fn nvmlVgpuInstanceGetEccMode(vgpuInstance: nvmlVgpuInstance_t, eccMode: *mut nvmlEnableState_t);

#[lacking]
fn nvmlVgpuInstanceGetEncoderCapacity(vgpuInstance: nvmlVgpuInstance_t, encoderCapacity: *mut c_uint);

#[lacking]
fn nvmlVgpuInstanceSetEncoderCapacity(vgpuInstance: nvmlVgpuInstance_t, encoderCapacity: c_uint);

#[lacking]
fn nvmlVgpuInstanceGetEncoderStats(
    vgpuInstance: nvmlVgpuInstance_t,
    sessionCount: *mut c_uint,
    averageFps: *mut c_uint,
    averageLatency: *mut c_uint,
);

#[lacking]
fn nvmlVgpuInstanceGetEncoderSessions(
    vgpuInstance: nvmlVgpuInstance_t,
    sessionCount: *mut c_uint,
    sessionInfo: *mut nvmlEncoderSessionInfo_t,
);

#[lacking]
fn nvmlVgpuInstanceGetFBCStats(vgpuInstance: nvmlVgpuInstance_t, fbcStats: *mut nvmlFBCStats_t);

#[lacking]
fn nvmlVgpuInstanceGetFBCSessions(
    vgpuInstance: nvmlVgpuInstance_t,
    sessionCount: *mut c_uint,
    sessionInfo: *mut nvmlFBCSessionInfo_t,
);

#[lacking]
fn nvmlVgpuInstanceGetGpuInstanceId(vgpuInstance: nvmlVgpuInstance_t, gpuInstanceId: *mut c_uint);

#[lacking]
fn nvmlVgpuInstanceGetGpuPciId(vgpuInstance: nvmlVgpuInstance_t, vgpuPciId: *mut c_char, length: *mut c_uint);

#[lacking]
fn nvmlVgpuTypeGetCapabilities(vgpuTypeId: nvmlVgpuTypeId_t, capability: nvmlVgpuCapability_t, capResult: *mut c_uint);

#[lacking]
fn nvmlVgpuInstanceGetMdevUUID(vgpuInstance: nvmlVgpuInstance_t, mdevUuid: *mut c_char, size: c_uint);

#[lacking]
fn nvmlVgpuTypeGetMaxInstancesPerGpuInstance(pMaxInstance: *mut nvmlVgpuTypeMaxInstance_t);

#[lacking]
fn nvmlDeviceGetVgpuSchedulerState_v2(device: nvmlDevice_t, pSchedulerStateInfo: *mut nvmlVgpuSchedulerStateInfo_v2_t);

#[lacking]
fn nvmlDeviceGetVgpuSchedulerLog_v2(device: nvmlDevice_t, pSchedulerLogInfo: *mut nvmlVgpuSchedulerLogInfo_v2_t);

#[lacking]
fn nvmlDeviceSetVgpuSchedulerState_v2(device: nvmlDevice_t, pSchedulerState: *mut nvmlVgpuSchedulerState_v2_t);

#[lacking]
fn nvmlVgpuInstanceGetMetadata(
    vgpuInstance: nvmlVgpuInstance_t,
    vgpuMetadata: *mut nvmlVgpuMetadata_t,
    bufferSize: *mut c_uint,
);

#[lacking]
fn nvmlDeviceGetVgpuMetadata(device: nvmlDevice_t, pgpuMetadata: *mut nvmlVgpuPgpuMetadata_t, bufferSize: *mut c_uint);

#[lacking]
fn nvmlGetVgpuCompatibility(
    vgpuMetadata: *mut nvmlVgpuMetadata_t,
    pgpuMetadata: *mut nvmlVgpuPgpuMetadata_t,
    compatibilityInfo: *mut nvmlVgpuPgpuCompatibility_t,
);

#[lacking]
fn nvmlDeviceGetVgpuSchedulerLog(device: nvmlDevice_t, pSchedulerLog: *mut nvmlVgpuSchedulerLog_t);

#[lacking]
fn nvmlDeviceGetVgpuSchedulerState(device: nvmlDevice_t, pSchedulerState: *mut nvmlVgpuSchedulerGetState_t);

#[lacking]
fn nvmlDeviceSetVgpuSchedulerState(device: nvmlDevice_t, pSchedulerState: *mut nvmlVgpuSchedulerSetState_t);

#[lacking]
fn nvmlDeviceGetVgpuSchedulerCapabilities(device: nvmlDevice_t, pCapabilities: *mut nvmlVgpuSchedulerCapabilities_t);

#[lacking]
fn nvmlGetVgpuVersion(supported: *mut nvmlVgpuVersion_t, current: *mut nvmlVgpuVersion_t);

#[lacking]
fn nvmlSetVgpuVersion(vgpuVersion: *mut nvmlVgpuVersion_t);

#[lacking]
fn nvmlDeviceGetVgpuUtilization(
    device: nvmlDevice_t,
    lastSeenTimeStamp: c_ulonglong,
    sampleValType: *mut nvmlValueType_t,
    vgpuInstanceSamplesCount: *mut c_uint,
    utilizationSamples: *mut nvmlVgpuInstanceUtilizationSample_t,
);

#[lacking]
fn nvmlDeviceGetVgpuInstancesUtilizationInfo(
    device: nvmlDevice_t,
    vgpuUtilInfo: *mut nvmlVgpuInstancesUtilizationInfo_t,
);

#[lacking]
fn nvmlDeviceGetVgpuProcessUtilization(
    device: nvmlDevice_t,
    lastSeenTimeStamp: c_ulonglong,
    vgpuProcessSamplesCount: *mut c_uint,
    utilizationSamples: *mut nvmlVgpuProcessUtilizationSample_t,
);

#[lacking]
fn nvmlDeviceGetVgpuProcessesUtilizationInfo(
    device: nvmlDevice_t,
    vgpuProcUtilInfo: *mut nvmlVgpuProcessesUtilizationInfo_t,
);

#[lacking]
fn nvmlVgpuInstanceGetAccountingMode(vgpuInstance: nvmlVgpuInstance_t, mode: *mut nvmlEnableState_t);

#[lacking]
fn nvmlVgpuInstanceGetAccountingPids(vgpuInstance: nvmlVgpuInstance_t, count: *mut c_uint, pids: *mut c_uint);

#[lacking]
fn nvmlVgpuInstanceGetAccountingStats(vgpuInstance: nvmlVgpuInstance_t, pid: c_uint, stats: *mut nvmlAccountingStats_t);

#[lacking]
fn nvmlVgpuInstanceClearAccountingPids(vgpuInstance: nvmlVgpuInstance_t);

#[lacking]
fn nvmlVgpuInstanceGetLicenseInfo_v2(vgpuInstance: nvmlVgpuInstance_t, licenseInfo: *mut nvmlVgpuLicenseInfo_t);

#[lacking]
fn nvmlVgpuInstanceGetLicenseInfo(vgpuInstance: nvmlVgpuInstance_t, licenseInfo: *mut nvmlVgpuLicenseInfo_t);
