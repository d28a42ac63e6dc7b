//! Devices.

#[here]
fn nvmlDeviceGetCount_v2(deviceCount: *mut c_uint);

fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t);

#[here]
fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t);

fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetHandleByPciBusId_v2(pciBusId: *const c_char, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint);

#[here]
fn nvmlDeviceGetBrand(device: nvmlDevice_t, r#type: *mut nvmlBrandType_t);

#[here]
fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint);

fn nvmlDeviceGetSerial(device: nvmlDevice_t, serial: *mut c_char, length: c_uint);

fn nvmlDeviceGetModuleId(device: nvmlDevice_t, moduleId: *mut c_uint);

fn nvmlDeviceGetC2cModeInfoV(device: nvmlDevice_t, c2cModeInfo: *mut nvmlC2cModeInfo_v1_t);

fn nvmlDeviceGetMemoryAffinity(
    device: nvmlDevice_t,
    nodeSetSize: c_uint,
    nodeSet: *mut c_ulong,
    scope: nvmlAffinityScope_t,
);

fn nvmlDeviceGetCpuAffinityWithinScope(
    device: nvmlDevice_t,
    cpuSetSize: c_uint,
    cpuSet: *mut c_ulong,
    scope: nvmlAffinityScope_t,
);

fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, cpuSetSize: c_uint, cpuSet: *mut c_ulong);

fn nvmlDeviceSetCpuAffinity(device: nvmlDevice_t);

fn nvmlDeviceClearCpuAffinity(device: nvmlDevice_t);

fn nvmlDeviceGetNumaNodeId(device: nvmlDevice_t, node: *mut c_uint);

fn nvmlDeviceGetAddressingMode(device: nvmlDevice_t, mode: *mut nvmlDeviceAddressingMode_t);

fn nvmlDeviceGetRepairStatus(device: nvmlDevice_t, repairStatus: *mut nvmlRepairStatus_t);

fn nvmlDeviceGetUnrepairableMemoryFlag_v1(
    device: nvmlDevice_t,
    unrepairableMemoryStatus: *mut nvmlUnrepairableMemoryStatus_v1_t,
);

fn nvmlDeviceGetTopologyCommonAncestor(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    pathInfo: *mut nvmlGpuTopologyLevel_t,
);

fn nvmlDeviceGetTopologyNearestGpus(
    device: nvmlDevice_t,
    level: nvmlGpuTopologyLevel_t,
    count: *mut c_uint,
    deviceArray: *mut nvmlDevice_t,
);

#[here]
fn nvmlDeviceGetP2PStatus(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    p2pIndex: nvmlGpuP2PCapsIndex_t,
    p2pStatus: *mut nvmlGpuP2PStatus_t,
);

#[here]
fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);

fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minorNumber: *mut c_uint);

fn nvmlDeviceGetBoardPartNumber(device: nvmlDevice_t, partNumber: *mut c_char, length: c_uint);

fn nvmlDeviceGetInforomVersion(device: nvmlDevice_t, object: nvmlInforomObject_t, version: *mut c_char, length: c_uint);

fn nvmlDeviceGetInforomImageVersion(device: nvmlDevice_t, version: *mut c_char, length: c_uint);

fn nvmlDeviceGetInforomConfigurationChecksum(device: nvmlDevice_t, checksum: *mut c_uint);

fn nvmlDeviceValidateInforom(device: nvmlDevice_t);

fn nvmlDeviceGetLastBBXFlushTime(device: nvmlDevice_t, timestamp: *mut c_ulonglong, durationUs: *mut c_ulong);

fn nvmlDeviceGetBBXTimeData_v1(device: nvmlDevice_t, timeData: *mut nvmlBBXTimeData_v1_t);

fn nvmlDeviceGetGpuUptime_v1(device: nvmlDevice_t, uptime: *mut nvmlGpuUptime_v1_t);

#[here]
fn nvmlDeviceGetDisplayMode(device: nvmlDevice_t, display: *mut nvmlEnableState_t);

#[here]
fn nvmlDeviceGetDisplayActive(device: nvmlDevice_t, isActive: *mut nvmlEnableState_t);

fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t);

#[here]
fn nvmlDeviceGetPciInfoExt(device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t);

#[here]
fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t);

fn nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, maxLinkGen: *mut c_uint);

fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: nvmlDevice_t, maxLinkGenDevice: *mut c_uint);

fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, maxLinkWidth: *mut c_uint);

fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, currLinkGen: *mut c_uint);

fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, currLinkWidth: *mut c_uint);

fn nvmlDeviceGetPcieThroughput(device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, value: *mut c_uint);

fn nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, value: *mut c_uint);

fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, r#type: nvmlClockType_t, clock: *mut c_uint);

#[here]
fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, r#type: nvmlClockType_t, clock: *mut c_uint);

fn nvmlDeviceGetGpcClkVfOffset(device: nvmlDevice_t, offset: *mut c_int);

fn nvmlDeviceGetApplicationsClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockMHz: *mut c_uint);

fn nvmlDeviceGetDefaultApplicationsClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockMHz: *mut c_uint);

fn nvmlDeviceGetClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockId: nvmlClockId_t, clockMHz: *mut c_uint);

fn nvmlDeviceGetMaxCustomerBoostClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockMHz: *mut c_uint);

fn nvmlDeviceGetSupportedMemoryClocks(device: nvmlDevice_t, count: *mut c_uint, clocksMHz: *mut c_uint);

fn nvmlDeviceGetSupportedGraphicsClocks(
    device: nvmlDevice_t,
    memoryClockMHz: c_uint,
    count: *mut c_uint,
    clocksMHz: *mut c_uint,
);

fn nvmlDeviceGetAutoBoostedClocksEnabled(
    device: nvmlDevice_t,
    isEnabled: *mut nvmlEnableState_t,
    defaultIsEnabled: *mut nvmlEnableState_t,
);

fn nvmlDeviceGetFanSpeed(device: nvmlDevice_t, speed: *mut c_uint);

fn nvmlDeviceGetFanSpeed_v2(device: nvmlDevice_t, fan: c_uint, speed: *mut c_uint);

fn nvmlDeviceGetFanSpeedRPM(device: nvmlDevice_t, fanSpeed: *mut nvmlFanSpeedInfo_t);

fn nvmlDeviceGetTargetFanSpeed(device: nvmlDevice_t, fan: c_uint, targetSpeed: *mut c_uint);

fn nvmlDeviceGetMinMaxFanSpeed(device: nvmlDevice_t, minSpeed: *mut c_uint, maxSpeed: *mut c_uint);

fn nvmlDeviceGetFanControlPolicy_v2(device: nvmlDevice_t, fan: c_uint, policy: *mut nvmlFanControlPolicy_t);

fn nvmlDeviceGetNumFans(device: nvmlDevice_t, numFans: *mut c_uint);

fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensorType: nvmlTemperatureSensors_t, temp: *mut c_uint);

fn nvmlDeviceGetCoolerInfo(device: nvmlDevice_t, coolerInfo: *mut nvmlCoolerInfo_t);

fn nvmlDeviceGetTemperatureV(device: nvmlDevice_t, temperature: *mut nvmlTemperature_t);

fn nvmlDeviceGetTemperatureThreshold(
    device: nvmlDevice_t,
    thresholdType: nvmlTemperatureThresholds_t,
    temp: *mut c_uint,
);

fn nvmlDeviceGetMarginTemperature(device: nvmlDevice_t, marginTempInfo: *mut nvmlMarginTemperature_t);

fn nvmlDeviceGetThermalSettings(
    device: nvmlDevice_t,
    sensorIndex: c_uint,
    pThermalSettings: *mut nvmlGpuThermalSettings_t,
);

fn nvmlDeviceGetPerformanceState(device: nvmlDevice_t, pState: *mut nvmlPstates_t);

fn nvmlDeviceGetCurrentClocksEventReasons(device: nvmlDevice_t, clocksEventReasons: *mut c_ulonglong);

fn nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, clocksThrottleReasons: *mut c_ulonglong);

fn nvmlDeviceGetSupportedClocksEventReasons(device: nvmlDevice_t, supportedClocksEventReasons: *mut c_ulonglong);

fn nvmlDeviceGetSupportedClocksThrottleReasons(device: nvmlDevice_t, supportedClocksThrottleReasons: *mut c_ulonglong);

fn nvmlDeviceGetPowerState(device: nvmlDevice_t, pState: *mut nvmlPstates_t);

fn nvmlDeviceGetDynamicPstatesInfo(device: nvmlDevice_t, pDynamicPstatesInfo: *mut nvmlGpuDynamicPstatesInfo_t);

fn nvmlDeviceGetMemClkVfOffset(device: nvmlDevice_t, offset: *mut c_int);

fn nvmlDeviceGetMinMaxClockOfPState(
    device: nvmlDevice_t,
    r#type: nvmlClockType_t,
    pstate: nvmlPstates_t,
    minClockMHz: *mut c_uint,
    maxClockMHz: *mut c_uint,
);

fn nvmlDeviceGetSupportedPerformanceStates(device: nvmlDevice_t, pstates: *mut nvmlPstates_t, size: c_uint);

fn nvmlDeviceGetGpcClkMinMaxVfOffset(device: nvmlDevice_t, minOffset: *mut c_int, maxOffset: *mut c_int);

fn nvmlDeviceGetMemClkMinMaxVfOffset(device: nvmlDevice_t, minOffset: *mut c_int, maxOffset: *mut c_int);

fn nvmlDeviceGetClockOffsets(device: nvmlDevice_t, info: *mut nvmlClockOffset_t);

fn nvmlDeviceSetClockOffsets(device: nvmlDevice_t, info: *mut nvmlClockOffset_t);

fn nvmlDeviceGetPerformanceModes(device: nvmlDevice_t, perfModes: *mut nvmlDevicePerfModes_t);

fn nvmlDeviceGetCurrentClockFreqs(device: nvmlDevice_t, currentClockFreqs: *mut nvmlDeviceCurrentClockFreqs_t);

fn nvmlDeviceGetPowerManagementMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t);

fn nvmlDeviceGetPowerManagementLimit(device: nvmlDevice_t, limit: *mut c_uint);

fn nvmlDeviceGetPowerManagementLimitConstraints(device: nvmlDevice_t, minLimit: *mut c_uint, maxLimit: *mut c_uint);

fn nvmlDeviceGetPowerManagementDefaultLimit(device: nvmlDevice_t, defaultLimit: *mut c_uint);

fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power: *mut c_uint);

fn nvmlDeviceGetPowerMizerMode_v1(device: nvmlDevice_t, powerMizerMode: *mut nvmlDevicePowerMizerModes_v1_t);

fn nvmlDeviceSetPowerMizerMode_v1(device: nvmlDevice_t, powerMizerMode: *mut nvmlDevicePowerMizerModes_v1_t);

fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, energy: *mut c_ulonglong);

fn nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t, limit: *mut c_uint);

fn nvmlDeviceSetAdaptiveTgpMode_v1(device: nvmlDevice_t, mode: nvmlEnableState_t);

fn nvmlDeviceGetAdaptiveTgpModeInfo_v1(device: nvmlDevice_t, info: *mut nvmlAdaptiveTgpModeInfo_v1_t);

fn nvmlDeviceGetGpuOperationMode(
    device: nvmlDevice_t,
    current: *mut nvmlGpuOperationMode_t,
    pending: *mut nvmlGpuOperationMode_t,
);

#[here]
fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t);

#[here]
fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t);

fn nvmlDeviceSetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlSetMemoryLimits_v1_t);

fn nvmlDeviceGetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlGetMemoryLimits_v1_t);

#[here]
fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut nvmlComputeMode_t);

#[here]
fn nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int);

fn nvmlDeviceGetDramEncryptionMode(
    device: nvmlDevice_t,
    current: *mut nvmlDramEncryptionInfo_t,
    pending: *mut nvmlDramEncryptionInfo_t,
);

fn nvmlDeviceSetDramEncryptionMode(device: nvmlDevice_t, dramEncryption: *const nvmlDramEncryptionInfo_t);

#[here]
fn nvmlDeviceGetEccMode(device: nvmlDevice_t, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t);

fn nvmlDeviceGetDefaultEccMode(device: nvmlDevice_t, defaultMode: *mut nvmlEnableState_t);

fn nvmlDeviceGetBoardId(device: nvmlDevice_t, boardId: *mut c_uint);

#[here]
fn nvmlDeviceGetMultiGpuBoard(device: nvmlDevice_t, multiGpuBool: *mut c_uint);

fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    errorType: nvmlMemoryErrorType_t,
    counterType: nvmlEccCounterType_t,
    eccCounts: *mut c_ulonglong,
);

fn nvmlDeviceGetDetailedEccErrors(
    device: nvmlDevice_t,
    errorType: nvmlMemoryErrorType_t,
    counterType: nvmlEccCounterType_t,
    eccCounts: *mut nvmlEccErrorCounts_t,
);

fn nvmlDeviceGetMemoryErrorCounter(
    device: nvmlDevice_t,
    errorType: nvmlMemoryErrorType_t,
    counterType: nvmlEccCounterType_t,
    locationType: nvmlMemoryLocation_t,
    count: *mut c_ulonglong,
);

#[here]
fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t);

fn nvmlDeviceGetEncoderUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

fn nvmlDeviceGetEncoderCapacity(
    device: nvmlDevice_t,
    encoderQueryType: nvmlEncoderType_t,
    encoderCapacity: *mut c_uint,
);

fn nvmlDeviceGetEncoderStats(
    device: nvmlDevice_t,
    sessionCount: *mut c_uint,
    averageFps: *mut c_uint,
    averageLatency: *mut c_uint,
);

fn nvmlDeviceGetEncoderSessions(
    device: nvmlDevice_t,
    sessionCount: *mut c_uint,
    sessionInfos: *mut nvmlEncoderSessionInfo_t,
);

fn nvmlDeviceGetDecoderUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

fn nvmlDeviceGetJpgUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

fn nvmlDeviceGetOfaUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

fn nvmlDeviceGetFBCStats(device: nvmlDevice_t, fbcStats: *mut nvmlFBCStats_t);

fn nvmlDeviceGetFBCSessions(device: nvmlDevice_t, sessionCount: *mut c_uint, sessionInfo: *mut nvmlFBCSessionInfo_t);

fn nvmlDeviceGetDriverModel_v2(device: nvmlDevice_t, current: *mut nvmlDriverModel_t, pending: *mut nvmlDriverModel_t);

fn nvmlDeviceGetVbiosVersion(device: nvmlDevice_t, version: *mut c_char, length: c_uint);

fn nvmlDeviceGetBridgeChipInfo(device: nvmlDevice_t, bridgeHierarchy: *mut nvmlBridgeChipHierarchy_t);

#[here]
fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, infoCount: *mut c_uint, infos: *mut nvmlProcessInfo_t);

#[here]
fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
);

#[here]
fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
);

fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, plist: *mut nvmlProcessDetailList_t);

fn nvmlDeviceOnSameBoard(device1: nvmlDevice_t, device2: nvmlDevice_t, onSameBoard: *mut c_int);

fn nvmlDeviceGetAPIRestriction(
    device: nvmlDevice_t,
    apiType: nvmlRestrictedAPI_t,
    isRestricted: *mut nvmlEnableState_t,
);

fn nvmlDeviceGetSamples(
    device: nvmlDevice_t,
    r#type: nvmlSamplingType_t,
    lastSeenTimeStamp: c_ulonglong,
    sampleValType: *mut nvmlValueType_t,
    sampleCount: *mut c_uint,
    samples: *mut nvmlSample_t,
);

fn nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t, bar1Memory: *mut nvmlBAR1Memory_t);

fn nvmlDeviceGetViolationStatus(
    device: nvmlDevice_t,
    perfPolicyType: nvmlPerfPolicyType_t,
    violTime: *mut nvmlViolationTime_t,
);

fn nvmlDeviceGetIrqNum(device: nvmlDevice_t, irqNum: *mut c_uint);

#[here]
fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, numCores: *mut c_uint);

fn nvmlDeviceGetPowerSource(device: nvmlDevice_t, powerSource: *mut nvmlPowerSource_t);

#[here]
fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, busWidth: *mut c_uint);

fn nvmlDeviceGetPcieLinkMaxSpeed(device: nvmlDevice_t, maxSpeed: *mut c_uint);

fn nvmlDeviceGetPcieSpeed(device: nvmlDevice_t, pcieSpeed: *mut c_uint);

fn nvmlDeviceGetAdaptiveClockInfoStatus(device: nvmlDevice_t, adaptiveClockStatus: *mut c_uint);

fn nvmlDeviceGetBusType(device: nvmlDevice_t, r#type: *mut nvmlBusType_t);

fn nvmlDeviceGetGpuFabricInfo(device: nvmlDevice_t, gpuFabricInfo: *mut nvmlGpuFabricInfo_t);

fn nvmlDeviceGetGpuFabricInfoV(device: nvmlDevice_t, gpuFabricInfo: *mut nvmlGpuFabricInfoV_t);

fn nvmlDeviceGetGpuFabricInfo_v4(device: nvmlDevice_t, gpuFabricInfo: *mut nvmlGpuFabricInfo_v4_t);

fn nvmlDeviceGetConfComputeMemSizeInfo(device: nvmlDevice_t, memInfo: *mut nvmlConfComputeMemSizeInfo_t);

fn nvmlDeviceGetConfComputeProtectedMemoryUsage(device: nvmlDevice_t, memory: *mut nvmlMemory_t);

fn nvmlDeviceGetConfComputeGpuCertificate(device: nvmlDevice_t, gpuCert: *mut nvmlConfComputeGpuCertificate_t);

fn nvmlDeviceGetConfComputeGpuAttestationReport(
    device: nvmlDevice_t,
    gpuAtstReport: *mut nvmlConfComputeGpuAttestationReport_t,
);

fn nvmlDeviceSetConfComputeUnprotectedMemSize(device: nvmlDevice_t, sizeKiB: c_ulonglong);

fn nvmlDeviceGetGspFirmwareVersion(device: nvmlDevice_t, version: *mut c_char);

fn nvmlDeviceGetGspFirmwareMode(device: nvmlDevice_t, isEnabled: *mut c_uint, defaultMode: *mut c_uint);

fn nvmlDeviceGetSramEccErrorStatus(device: nvmlDevice_t, status: *mut nvmlEccSramErrorStatus_t);

fn nvmlDeviceSetPowerManagementLimit_v2(device: nvmlDevice_t, powerValue: *mut nvmlPowerValue_v2_t);

fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t);

fn nvmlDeviceGetAccountingStats(device: nvmlDevice_t, pid: c_uint, stats: *mut nvmlAccountingStats_t);

fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint);

fn nvmlDeviceGetAccountingBufferSize(device: nvmlDevice_t, bufferSize: *mut c_uint);

fn nvmlDeviceGetAccountingStats_v2(device: nvmlDevice_t, stats: *mut nvmlAccountingStats_v2_t);

fn nvmlDeviceGetRetiredPages(
    device: nvmlDevice_t,
    cause: nvmlPageRetirementCause_t,
    pageCount: *mut c_uint,
    addresses: *mut c_ulonglong,
);

fn nvmlDeviceGetRetiredPages_v2(
    device: nvmlDevice_t,
    cause: nvmlPageRetirementCause_t,
    pageCount: *mut c_uint,
    addresses: *mut c_ulonglong,
    timestamps: *mut c_ulonglong,
);

fn nvmlDeviceGetRetiredPagesPendingStatus(device: nvmlDevice_t, isPending: *mut nvmlEnableState_t);

fn nvmlDeviceGetRemappedRows(
    device: nvmlDevice_t,
    corrRows: *mut c_uint,
    uncRows: *mut c_uint,
    isPending: *mut c_uint,
    failureOccurred: *mut c_uint,
);

fn nvmlDeviceGetRowRemapperHistogram(device: nvmlDevice_t, values: *mut nvmlRowRemapperHistogramValues_t);

#[here]
fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, arch: *mut nvmlDeviceArchitecture_t);

fn nvmlDeviceGetClkMonStatus(device: nvmlDevice_t, status: *mut nvmlClkMonStatus_t);

#[here]
fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    utilization: *mut nvmlProcessUtilizationSample_t,
    processSamplesCount: *mut c_uint,
    lastSeenTimeStamp: c_ulonglong,
);

fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, procesesUtilInfo: *mut nvmlProcessesUtilizationInfo_t);

fn nvmlDeviceGetPlatformInfo(device: nvmlDevice_t, platformInfo: *mut nvmlPlatformInfo_t);

fn nvmlDeviceGetPdi(device: nvmlDevice_t, pdi: *mut nvmlPdi_t);

fn nvmlDeviceSetHostname_v1(device: nvmlDevice_t, hostname: *mut nvmlHostname_v1_t);

fn nvmlDeviceGetHostname_v1(device: nvmlDevice_t, hostname: *mut nvmlHostname_v1_t);

fn nvmlDevicePerfMetricsGetSamples_v1(device: nvmlDevice_t, samples: *mut nvmlPerfMetricsSamples_v1_t);

fn nvmlDeviceSetPersistenceMode(device: nvmlDevice_t, mode: nvmlEnableState_t);

fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: nvmlComputeMode_t);

fn nvmlDeviceSetEccMode(device: nvmlDevice_t, ecc: nvmlEnableState_t);

fn nvmlDeviceClearEccErrorCounts(device: nvmlDevice_t, counterType: nvmlEccCounterType_t);

fn nvmlDeviceSetDriverModel(device: nvmlDevice_t, driverModel: nvmlDriverModel_t, flags: c_uint);

fn nvmlDeviceSetGpuLockedClocks(device: nvmlDevice_t, minGpuClockMHz: c_uint, maxGpuClockMHz: c_uint);

fn nvmlDeviceResetGpuLockedClocks(device: nvmlDevice_t);

fn nvmlDeviceSetMemoryLockedClocks(device: nvmlDevice_t, minMemClockMHz: c_uint, maxMemClockMHz: c_uint);

fn nvmlDeviceResetMemoryLockedClocks(device: nvmlDevice_t);

fn nvmlDeviceSetApplicationsClocks(device: nvmlDevice_t, memClockMHz: c_uint, graphicsClockMHz: c_uint);

fn nvmlDeviceResetApplicationsClocks(device: nvmlDevice_t);

fn nvmlDeviceSetAutoBoostedClocksEnabled(device: nvmlDevice_t, enabled: nvmlEnableState_t);

fn nvmlDeviceSetDefaultAutoBoostedClocksEnabled(device: nvmlDevice_t, enabled: nvmlEnableState_t, flags: c_uint);

fn nvmlDeviceSetDefaultFanSpeed_v2(device: nvmlDevice_t, fan: c_uint);

fn nvmlDeviceSetFanControlPolicy(device: nvmlDevice_t, fan: c_uint, policy: nvmlFanControlPolicy_t);

fn nvmlDeviceSetTemperatureThreshold(
    device: nvmlDevice_t,
    thresholdType: nvmlTemperatureThresholds_t,
    temp: *mut c_int,
);

fn nvmlDeviceSetPowerManagementLimit(device: nvmlDevice_t, limit: c_uint);

fn nvmlDeviceSetGpuOperationMode(device: nvmlDevice_t, mode: nvmlGpuOperationMode_t);

fn nvmlDeviceSetAPIRestriction(device: nvmlDevice_t, apiType: nvmlRestrictedAPI_t, isRestricted: nvmlEnableState_t);

fn nvmlDeviceSetFanSpeed_v2(device: nvmlDevice_t, fan: c_uint, speed: c_uint);

fn nvmlDeviceSetGpcClkVfOffset(device: nvmlDevice_t, offset: c_int);

fn nvmlDeviceSetMemClkVfOffset(device: nvmlDevice_t, offset: c_int);

fn nvmlDeviceSetAccountingMode(device: nvmlDevice_t, mode: nvmlEnableState_t);

fn nvmlDeviceClearAccountingPids(device: nvmlDevice_t);

fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, eventTypes: c_ulonglong, set: nvmlEventSet_t);

#[here]
fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, eventTypes: *mut c_ulonglong);

fn nvmlDeviceModifyDrainState(pciInfo: *mut nvmlPciInfo_t, newState: nvmlEnableState_t);

fn nvmlDeviceQueryDrainState(pciInfo: *mut nvmlPciInfo_t, currentState: *mut nvmlEnableState_t);

fn nvmlDeviceRemoveGpu_v2(pciInfo: *mut nvmlPciInfo_t, gpuState: nvmlDetachGpuState_t, linkState: nvmlPcieLinkState_t);

fn nvmlDeviceDiscoverGpus(pciInfo: *mut nvmlPciInfo_t);

#[here]
fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, valuesCount: c_int, values: *mut nvmlFieldValue_t);

fn nvmlDeviceClearFieldValues(device: nvmlDevice_t, valuesCount: c_int, values: *mut nvmlFieldValue_t);

#[here]
fn nvmlDeviceGetVirtualizationMode(device: nvmlDevice_t, pVirtualMode: *mut nvmlGpuVirtualizationMode_t);

fn nvmlDeviceSetVirtualizationMode(device: nvmlDevice_t, virtualMode: nvmlGpuVirtualizationMode_t);

fn nvmlDeviceGetGridLicensableFeatures_v4(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

fn nvmlDeviceGetPgpuMetadataString(device: nvmlDevice_t, pgpuMetadata: *mut c_char, bufferSize: *mut c_uint);

fn nvmlDeviceReadWritePRM_v1(device: nvmlDevice_t, buffer: *mut nvmlPRMTLV_v1_t);

fn nvmlDeviceReadPRMCounters_v1(device: nvmlDevice_t, counterList: *mut nvmlPRMCounterList_v1_t);

fn nvmlDeviceSetMigMode(device: nvmlDevice_t, mode: c_uint, activationStatus: *mut nvmlReturn_t);

fn nvmlDeviceGetMigMode(device: nvmlDevice_t, currentMode: *mut c_uint, pendingMode: *mut c_uint);

fn nvmlDeviceGetGpuInstanceProfileInfo(device: nvmlDevice_t, profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_t);

fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: nvmlDevice_t,
    profile: c_uint,
    info: *mut nvmlGpuInstanceProfileInfo_v2_t,
);

fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
    device: nvmlDevice_t,
    profileId: c_uint,
    info: *mut nvmlGpuInstanceProfileInfo_v2_t,
);

fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: nvmlDevice_t,
    profileId: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
);

fn nvmlDeviceGetGpuInstanceRemainingCapacity(device: nvmlDevice_t, profileId: c_uint, count: *mut c_uint);

fn nvmlDeviceCreateGpuInstance(device: nvmlDevice_t, profileId: c_uint, gpuInstance: *mut nvmlGpuInstance_t);

fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: nvmlDevice_t,
    profileId: c_uint,
    placement: *const nvmlGpuInstancePlacement_t,
    gpuInstance: *mut nvmlGpuInstance_t,
);

fn nvmlDeviceGetGpuInstances(
    device: nvmlDevice_t,
    profileId: c_uint,
    gpuInstances: *mut nvmlGpuInstance_t,
    count: *mut c_uint,
);

fn nvmlDeviceGetGpuInstanceById(device: nvmlDevice_t, id: c_uint, gpuInstance: *mut nvmlGpuInstance_t);

#[here]
fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, isMigDevice: *mut c_uint);

fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint);

fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint);

#[here]
fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint);

fn nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: c_uint, migDevice: *mut nvmlDevice_t);

fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migDevice: nvmlDevice_t, device: *mut nvmlDevice_t);

fn nvmlDeviceGetCapabilities(device: nvmlDevice_t, caps: *mut nvmlDeviceCapabilities_t);

fn nvmlDeviceWorkloadPowerProfileGetProfilesInfo(
    device: nvmlDevice_t,
    profilesInfo: *mut nvmlWorkloadPowerProfileProfilesInfo_t,
);

fn nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(
    device: nvmlDevice_t,
    currentProfiles: *mut nvmlWorkloadPowerProfileCurrentProfiles_t,
);

fn nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(
    device: nvmlDevice_t,
    requestedProfiles: *mut nvmlWorkloadPowerProfileRequestedProfiles_t,
);

fn nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(
    device: nvmlDevice_t,
    requestedProfiles: *mut nvmlWorkloadPowerProfileRequestedProfiles_t,
);

fn nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(
    device: nvmlDevice_t,
    updateProfiles: *mut nvmlWorkloadPowerProfileUpdateProfiles_v1_t,
);

fn nvmlDevicePowerSmoothingActivatePresetProfile(device: nvmlDevice_t, profile: *mut nvmlPowerSmoothingProfile_t);

fn nvmlDevicePowerSmoothingUpdatePresetProfileParam(device: nvmlDevice_t, profile: *mut nvmlPowerSmoothingProfile_t);

fn nvmlDevicePowerSmoothingSetState(device: nvmlDevice_t, state: *mut nvmlPowerSmoothingState_t);

fn nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(
    device: nvmlDevice_t,
    errorCounts: *mut nvmlEccSramUniqueUncorrectedErrorCounts_t,
);

fn nvmlDeviceGetRemappedRows_v2(device: nvmlDevice_t, info: *mut nvmlRemappedRowsInfo_v2_t);

fn nvmlDeviceSetRusdSettings_v1(device: nvmlDevice_t, settings: *mut nvmlRusdSettings_v1_t);

fn nvmlDeviceGetBankRemapperStatus_v1(device: nvmlDevice_t, pBankRemapperStatus: *mut nvmlEccBankRemapperStatus_v1_t);

#[here]
fn nvmlDeviceGetCount(deviceCount: *mut c_uint);

#[here]
fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetHandleByPciBusId(pciBusId: *const c_char, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetPciInfo(device: nvmlDevice_t, pci: *mut nvmlPciInfo_v2_t);

#[here]
fn nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, pci: *mut nvmlPciInfo_v2_t);

fn nvmlDeviceGetGridLicensableFeatures(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

fn nvmlDeviceGetGridLicensableFeatures_v2(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

fn nvmlDeviceGetGridLicensableFeatures_v3(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

fn nvmlDeviceRemoveGpu(pciInfo: *mut nvmlPciInfo_t);

fn nvmlDeviceGetAttributes(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t);

#[here]
fn nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, infoCount: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t);

#[here]
fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
);

#[here]
fn nvmlDeviceGetGraphicsRunningProcesses(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
);

#[here]
fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
);

#[here]
fn nvmlDeviceGetMPSComputeRunningProcesses(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
);

#[here]
fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
    device: nvmlDevice_t,
    infoCount: *mut c_uint,
    infos: *mut nvmlProcessInfo_v2_t,
);

fn nvmlDeviceGetGpuInstancePossiblePlacements(
    device: nvmlDevice_t,
    profileId: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
);

fn nvmlDeviceGetDriverModel(device: nvmlDevice_t, current: *mut nvmlDriverModel_t, pending: *mut nvmlDriverModel_t);
