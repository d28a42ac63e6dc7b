//! NVIDIA's own virtual GPUs.

fn nvmlDeviceGetHostVgpuMode(device: nvmlDevice_t, pHostVgpuMode: *mut nvmlHostVgpuMode_t);

fn nvmlDeviceGetVgpuHeterogeneousMode(device: nvmlDevice_t, pHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_t);

fn nvmlDeviceSetVgpuHeterogeneousMode(device: nvmlDevice_t, pHeterogeneousMode: *const nvmlVgpuHeterogeneousMode_t);

fn nvmlVgpuInstanceGetPlacementId(vgpuInstance: nvmlVgpuInstance_t, pPlacement: *mut nvmlVgpuPlacementId_t);

fn nvmlDeviceGetVgpuTypeSupportedPlacements(
    device: nvmlDevice_t,
    vgpuTypeId: nvmlVgpuTypeId_t,
    pPlacementList: *mut nvmlVgpuPlacementList_t,
);

fn nvmlDeviceGetVgpuTypeCreatablePlacements(
    device: nvmlDevice_t,
    vgpuTypeId: nvmlVgpuTypeId_t,
    pPlacementList: *mut nvmlVgpuPlacementList_t,
);

fn nvmlVgpuTypeGetGspHeapSize(vgpuTypeId: nvmlVgpuTypeId_t, gspHeapSize: *mut c_ulonglong);

fn nvmlVgpuTypeGetFbReservation(vgpuTypeId: nvmlVgpuTypeId_t, fbReservation: *mut c_ulonglong);

fn nvmlVgpuInstanceGetRuntimeStateSize(vgpuInstance: nvmlVgpuInstance_t, pState: *mut nvmlVgpuRuntimeState_t);

fn nvmlDeviceSetVgpuCapabilities(
    device: nvmlDevice_t,
    capability: nvmlDeviceVgpuCapability_t,
    state: nvmlEnableState_t,
);

fn nvmlDeviceVgpuForceGspUnload(device: nvmlDevice_t);

fn nvmlGetVgpuDriverCapabilities(capability: nvmlVgpuDriverCapability_t, capResult: *mut c_uint);

fn nvmlDeviceGetVgpuCapabilities(device: nvmlDevice_t, capability: nvmlDeviceVgpuCapability_t, capResult: *mut c_uint);

fn nvmlDeviceGetSupportedVgpus(device: nvmlDevice_t, vgpuCount: *mut c_uint, vgpuTypeIds: *mut nvmlVgpuTypeId_t);

fn nvmlDeviceGetCreatableVgpus(device: nvmlDevice_t, vgpuCount: *mut c_uint, vgpuTypeIds: *mut nvmlVgpuTypeId_t);

fn nvmlVgpuTypeGetClass(vgpuTypeId: nvmlVgpuTypeId_t, vgpuTypeClass: *mut c_char, size: *mut c_uint);

fn nvmlVgpuTypeGetName(vgpuTypeId: nvmlVgpuTypeId_t, vgpuTypeName: *mut c_char, size: *mut c_uint);

fn nvmlVgpuTypeGetGpuInstanceProfileId(vgpuTypeId: nvmlVgpuTypeId_t, gpuInstanceProfileId: *mut c_uint);

fn nvmlVgpuTypeGetDeviceID(vgpuTypeId: nvmlVgpuTypeId_t, deviceID: *mut c_ulonglong, subsystemID: *mut c_ulonglong);

fn nvmlVgpuTypeGetFramebufferSize(vgpuTypeId: nvmlVgpuTypeId_t, fbSize: *mut c_ulonglong);

fn nvmlVgpuTypeGetNumDisplayHeads(vgpuTypeId: nvmlVgpuTypeId_t, numDisplayHeads: *mut c_uint);

fn nvmlVgpuTypeGetResolution(vgpuTypeId: nvmlVgpuTypeId_t, displayIndex: c_uint, xdim: *mut c_uint, ydim: *mut c_uint);

fn nvmlVgpuTypeGetLicense(vgpuTypeId: nvmlVgpuTypeId_t, vgpuTypeLicenseString: *mut c_char, size: c_uint);

fn nvmlVgpuTypeGetFrameRateLimit(vgpuTypeId: nvmlVgpuTypeId_t, frameRateLimit: *mut c_uint);

fn nvmlVgpuTypeGetMaxInstances(device: nvmlDevice_t, vgpuTypeId: nvmlVgpuTypeId_t, vgpuInstanceCount: *mut c_uint);

fn nvmlVgpuTypeGetMaxInstancesPerVm(vgpuTypeId: nvmlVgpuTypeId_t, vgpuInstanceCountPerVm: *mut c_uint);

fn nvmlVgpuTypeGetBAR1Info(vgpuTypeId: nvmlVgpuTypeId_t, bar1Info: *mut nvmlVgpuTypeBar1Info_t);

fn nvmlDeviceGetActiveVgpus(device: nvmlDevice_t, vgpuCount: *mut c_uint, vgpuInstances: *mut nvmlVgpuInstance_t);

fn nvmlVgpuInstanceGetVmID(
    vgpuInstance: nvmlVgpuInstance_t,
    vmId: *mut c_char,
    size: c_uint,
    vmIdType: *mut nvmlVgpuVmIdType_t,
);

fn nvmlVgpuInstanceGetUUID(vgpuInstance: nvmlVgpuInstance_t, uuid: *mut c_char, size: c_uint);

fn nvmlVgpuInstanceGetVmDriverVersion(vgpuInstance: nvmlVgpuInstance_t, version: *mut c_char, length: c_uint);

fn nvmlVgpuInstanceGetFbUsage(vgpuInstance: nvmlVgpuInstance_t, fbUsage: *mut c_ulonglong);

fn nvmlVgpuInstanceGetLicenseStatus(vgpuInstance: nvmlVgpuInstance_t, licensed: *mut c_uint);

fn nvmlVgpuInstanceGetType(vgpuInstance: nvmlVgpuInstance_t, vgpuTypeId: *mut nvmlVgpuTypeId_t);

fn nvmlVgpuInstanceGetFrameRateLimit(vgpuInstance: nvmlVgpuInstance_t, frameRateLimit: *mut c_uint);

fn nvmlVgpuInstanceGetEccMode(vgpuInstance: nvmlVgpuInstance_t, eccMode: *mut nvmlEnableState_t);

fn nvmlVgpuInstanceGetEncoderCapacity(vgpuInstance: nvmlVgpuInstance_t, encoderCapacity: *mut c_uint);

fn nvmlVgpuInstanceSetEncoderCapacity(vgpuInstance: nvmlVgpuInstance_t, encoderCapacity: c_uint);

fn nvmlVgpuInstanceGetEncoderStats(
    vgpuInstance: nvmlVgpuInstance_t,
    sessionCount: *mut c_uint,
    averageFps: *mut c_uint,
    averageLatency: *mut c_uint,
);

fn nvmlVgpuInstanceGetEncoderSessions(
    vgpuInstance: nvmlVgpuInstance_t,
    sessionCount: *mut c_uint,
    sessionInfo: *mut nvmlEncoderSessionInfo_t,
);

fn nvmlVgpuInstanceGetFBCStats(vgpuInstance: nvmlVgpuInstance_t, fbcStats: *mut nvmlFBCStats_t);

fn nvmlVgpuInstanceGetFBCSessions(
    vgpuInstance: nvmlVgpuInstance_t,
    sessionCount: *mut c_uint,
    sessionInfo: *mut nvmlFBCSessionInfo_t,
);

fn nvmlVgpuInstanceGetGpuInstanceId(vgpuInstance: nvmlVgpuInstance_t, gpuInstanceId: *mut c_uint);

fn nvmlVgpuInstanceGetGpuPciId(vgpuInstance: nvmlVgpuInstance_t, vgpuPciId: *mut c_char, length: *mut c_uint);

fn nvmlVgpuTypeGetCapabilities(vgpuTypeId: nvmlVgpuTypeId_t, capability: nvmlVgpuCapability_t, capResult: *mut c_uint);

fn nvmlVgpuInstanceGetMdevUUID(vgpuInstance: nvmlVgpuInstance_t, mdevUuid: *mut c_char, size: c_uint);

fn nvmlVgpuTypeGetMaxInstancesPerGpuInstance(pMaxInstance: *mut nvmlVgpuTypeMaxInstance_t);

fn nvmlDeviceGetVgpuSchedulerState_v2(device: nvmlDevice_t, pSchedulerStateInfo: *mut nvmlVgpuSchedulerStateInfo_v2_t);

fn nvmlDeviceGetVgpuSchedulerLog_v2(device: nvmlDevice_t, pSchedulerLogInfo: *mut nvmlVgpuSchedulerLogInfo_v2_t);

fn nvmlDeviceSetVgpuSchedulerState_v2(device: nvmlDevice_t, pSchedulerState: *mut nvmlVgpuSchedulerState_v2_t);

fn nvmlVgpuInstanceGetMetadata(
    vgpuInstance: nvmlVgpuInstance_t,
    vgpuMetadata: *mut nvmlVgpuMetadata_t,
    bufferSize: *mut c_uint,
);

fn nvmlDeviceGetVgpuMetadata(device: nvmlDevice_t, pgpuMetadata: *mut nvmlVgpuPgpuMetadata_t, bufferSize: *mut c_uint);

fn nvmlGetVgpuCompatibility(
    vgpuMetadata: *mut nvmlVgpuMetadata_t,
    pgpuMetadata: *mut nvmlVgpuPgpuMetadata_t,
    compatibilityInfo: *mut nvmlVgpuPgpuCompatibility_t,
);

fn nvmlDeviceGetVgpuSchedulerLog(device: nvmlDevice_t, pSchedulerLog: *mut nvmlVgpuSchedulerLog_t);

fn nvmlDeviceGetVgpuSchedulerState(device: nvmlDevice_t, pSchedulerState: *mut nvmlVgpuSchedulerGetState_t);

fn nvmlDeviceSetVgpuSchedulerState(device: nvmlDevice_t, pSchedulerState: *mut nvmlVgpuSchedulerSetState_t);

fn nvmlDeviceGetVgpuSchedulerCapabilities(device: nvmlDevice_t, pCapabilities: *mut nvmlVgpuSchedulerCapabilities_t);

fn nvmlGetVgpuVersion(supported: *mut nvmlVgpuVersion_t, current: *mut nvmlVgpuVersion_t);

fn nvmlSetVgpuVersion(vgpuVersion: *mut nvmlVgpuVersion_t);

fn nvmlDeviceGetVgpuUtilization(
    device: nvmlDevice_t,
    lastSeenTimeStamp: c_ulonglong,
    sampleValType: *mut nvmlValueType_t,
    vgpuInstanceSamplesCount: *mut c_uint,
    utilizationSamples: *mut nvmlVgpuInstanceUtilizationSample_t,
);

fn nvmlDeviceGetVgpuInstancesUtilizationInfo(
    device: nvmlDevice_t,
    vgpuUtilInfo: *mut nvmlVgpuInstancesUtilizationInfo_t,
);

fn nvmlDeviceGetVgpuProcessUtilization(
    device: nvmlDevice_t,
    lastSeenTimeStamp: c_ulonglong,
    vgpuProcessSamplesCount: *mut c_uint,
    utilizationSamples: *mut nvmlVgpuProcessUtilizationSample_t,
);

fn nvmlDeviceGetVgpuProcessesUtilizationInfo(
    device: nvmlDevice_t,
    vgpuProcUtilInfo: *mut nvmlVgpuProcessesUtilizationInfo_t,
);

fn nvmlVgpuInstanceGetAccountingMode(vgpuInstance: nvmlVgpuInstance_t, mode: *mut nvmlEnableState_t);

fn nvmlVgpuInstanceGetAccountingPids(vgpuInstance: nvmlVgpuInstance_t, count: *mut c_uint, pids: *mut c_uint);

fn nvmlVgpuInstanceGetAccountingStats(vgpuInstance: nvmlVgpuInstance_t, pid: c_uint, stats: *mut nvmlAccountingStats_t);

fn nvmlVgpuInstanceClearAccountingPids(vgpuInstance: nvmlVgpuInstance_t);

fn nvmlVgpuInstanceGetLicenseInfo_v2(vgpuInstance: nvmlVgpuInstance_t, licenseInfo: *mut nvmlVgpuLicenseInfo_t);

fn nvmlVgpuInstanceGetLicenseInfo(vgpuInstance: nvmlVgpuInstance_t, licenseInfo: *mut nvmlVgpuLicenseInfo_t);
