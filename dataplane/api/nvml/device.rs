//! Devices.

#[here]
fn nvmlDeviceGetCount_v2(deviceCount: *mut c_uint);

#[host]
fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t);

#[here]
fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t);

#[host]
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

#[host]
fn nvmlDeviceGetSerial(device: nvmlDevice_t, serial: *mut c_char, length: c_uint);

#[host]
fn nvmlDeviceGetModuleId(device: nvmlDevice_t, moduleId: *mut c_uint);

#[lacking]
fn nvmlDeviceGetC2cModeInfoV(device: nvmlDevice_t, c2cModeInfo: *mut nvmlC2cModeInfo_v1_t);

#[here]
fn nvmlDeviceGetMemoryAffinity(
    device: nvmlDevice_t,
    nodeSetSize: c_uint,
    nodeSet: *mut c_ulong,
    scope: nvmlAffinityScope_t,
);

#[here]
fn nvmlDeviceGetCpuAffinityWithinScope(
    device: nvmlDevice_t,
    cpuSetSize: c_uint,
    cpuSet: *mut c_ulong,
    scope: nvmlAffinityScope_t,
);

#[here]
fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, cpuSetSize: c_uint, cpuSet: *mut c_ulong);

#[here]
fn nvmlDeviceSetCpuAffinity(device: nvmlDevice_t);

#[here]
fn nvmlDeviceClearCpuAffinity(device: nvmlDevice_t);

#[host]
fn nvmlDeviceGetNumaNodeId(device: nvmlDevice_t, node: *mut c_uint);

#[host]
fn nvmlDeviceGetAddressingMode(device: nvmlDevice_t, mode: *mut nvmlDeviceAddressingMode_t);

#[host]
fn nvmlDeviceGetRepairStatus(device: nvmlDevice_t, repairStatus: *mut nvmlRepairStatus_t);

#[host]
fn nvmlDeviceGetUnrepairableMemoryFlag_v1(
    device: nvmlDevice_t,
    unrepairableMemoryStatus: *mut nvmlUnrepairableMemoryStatus_v1_t,
);

#[here]
fn nvmlDeviceGetTopologyCommonAncestor(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    pathInfo: *mut nvmlGpuTopologyLevel_t,
);

#[here]
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

#[host]
fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minorNumber: *mut c_uint);

#[host]
fn nvmlDeviceGetBoardPartNumber(device: nvmlDevice_t, partNumber: *mut c_char, length: c_uint);

#[host]
fn nvmlDeviceGetInforomVersion(device: nvmlDevice_t, object: nvmlInforomObject_t, version: *mut c_char, length: c_uint);

#[host]
fn nvmlDeviceGetInforomImageVersion(device: nvmlDevice_t, version: *mut c_char, length: c_uint);

#[host]
fn nvmlDeviceGetInforomConfigurationChecksum(device: nvmlDevice_t, checksum: *mut c_uint);

#[host]
fn nvmlDeviceValidateInforom(device: nvmlDevice_t);

#[host]
fn nvmlDeviceGetLastBBXFlushTime(device: nvmlDevice_t, timestamp: *mut c_ulonglong, durationUs: *mut c_ulong);

#[host]
fn nvmlDeviceGetBBXTimeData_v1(device: nvmlDevice_t, timeData: *mut nvmlBBXTimeData_v1_t);

#[host]
fn nvmlDeviceGetGpuUptime_v1(device: nvmlDevice_t, uptime: *mut nvmlGpuUptime_v1_t);

#[here]
fn nvmlDeviceGetDisplayMode(device: nvmlDevice_t, display: *mut nvmlEnableState_t);

#[here]
fn nvmlDeviceGetDisplayActive(device: nvmlDevice_t, isActive: *mut nvmlEnableState_t);

#[host]
fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t);

#[here]
fn nvmlDeviceGetPciInfoExt(device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t);

#[here]
fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t);

#[here]
fn nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, maxLinkGen: *mut c_uint);

#[here]
fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: nvmlDevice_t, maxLinkGenDevice: *mut c_uint);

#[here]
fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, maxLinkWidth: *mut c_uint);

#[here]
fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, currLinkGen: *mut c_uint);

#[here]
fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, currLinkWidth: *mut c_uint);

#[host]
fn nvmlDeviceGetPcieThroughput(device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, value: *mut c_uint);

#[host]
fn nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, value: *mut c_uint);

#[host]
fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, r#type: nvmlClockType_t, clock: *mut c_uint);

#[here]
fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, r#type: nvmlClockType_t, clock: *mut c_uint);

#[host]
fn nvmlDeviceGetGpcClkVfOffset(device: nvmlDevice_t, offset: *mut c_int);

#[host]
fn nvmlDeviceGetApplicationsClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockMHz: *mut c_uint);

#[host]
fn nvmlDeviceGetDefaultApplicationsClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockMHz: *mut c_uint);

#[host]
fn nvmlDeviceGetClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockId: nvmlClockId_t, clockMHz: *mut c_uint);

#[host]
fn nvmlDeviceGetMaxCustomerBoostClock(device: nvmlDevice_t, clockType: nvmlClockType_t, clockMHz: *mut c_uint);

#[host]
fn nvmlDeviceGetSupportedMemoryClocks(device: nvmlDevice_t, count: *mut c_uint, clocksMHz: *mut c_uint);

#[lacking]
fn nvmlDeviceGetSupportedGraphicsClocks(
    device: nvmlDevice_t,
    memoryClockMHz: c_uint,
    count: *mut c_uint,
    clocksMHz: *mut c_uint,
);

#[host]
fn nvmlDeviceGetAutoBoostedClocksEnabled(
    device: nvmlDevice_t,
    isEnabled: *mut nvmlEnableState_t,
    defaultIsEnabled: *mut nvmlEnableState_t,
);

#[host]
fn nvmlDeviceGetFanSpeed(device: nvmlDevice_t, speed: *mut c_uint);

#[host]
fn nvmlDeviceGetFanSpeed_v2(device: nvmlDevice_t, fan: c_uint, speed: *mut c_uint);

#[host]
fn nvmlDeviceGetFanSpeedRPM(device: nvmlDevice_t, fanSpeed: *mut nvmlFanSpeedInfo_t);

#[host]
fn nvmlDeviceGetTargetFanSpeed(device: nvmlDevice_t, fan: c_uint, targetSpeed: *mut c_uint);

#[host]
fn nvmlDeviceGetMinMaxFanSpeed(device: nvmlDevice_t, minSpeed: *mut c_uint, maxSpeed: *mut c_uint);

#[host]
fn nvmlDeviceGetFanControlPolicy_v2(device: nvmlDevice_t, fan: c_uint, policy: *mut nvmlFanControlPolicy_t);

#[host]
fn nvmlDeviceGetNumFans(device: nvmlDevice_t, numFans: *mut c_uint);

#[host]
fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensorType: nvmlTemperatureSensors_t, temp: *mut c_uint);

#[host]
fn nvmlDeviceGetCoolerInfo(device: nvmlDevice_t, coolerInfo: *mut nvmlCoolerInfo_t);

#[host]
fn nvmlDeviceGetTemperatureV(device: nvmlDevice_t, temperature: *mut nvmlTemperature_t);

#[host]
fn nvmlDeviceGetTemperatureThreshold(
    device: nvmlDevice_t,
    thresholdType: nvmlTemperatureThresholds_t,
    temp: *mut c_uint,
);

#[host]
fn nvmlDeviceGetMarginTemperature(device: nvmlDevice_t, marginTempInfo: *mut nvmlMarginTemperature_t);

#[host]
fn nvmlDeviceGetThermalSettings(
    device: nvmlDevice_t,
    sensorIndex: c_uint,
    pThermalSettings: *mut nvmlGpuThermalSettings_t,
);

#[host]
fn nvmlDeviceGetPerformanceState(device: nvmlDevice_t, pState: *mut nvmlPstates_t);

#[host]
fn nvmlDeviceGetCurrentClocksEventReasons(device: nvmlDevice_t, clocksEventReasons: *mut c_ulonglong);

#[host]
fn nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, clocksThrottleReasons: *mut c_ulonglong);

#[host]
fn nvmlDeviceGetSupportedClocksEventReasons(device: nvmlDevice_t, supportedClocksEventReasons: *mut c_ulonglong);

#[host]
fn nvmlDeviceGetSupportedClocksThrottleReasons(device: nvmlDevice_t, supportedClocksThrottleReasons: *mut c_ulonglong);

#[host]
fn nvmlDeviceGetPowerState(device: nvmlDevice_t, pState: *mut nvmlPstates_t);

#[host]
fn nvmlDeviceGetDynamicPstatesInfo(device: nvmlDevice_t, pDynamicPstatesInfo: *mut nvmlGpuDynamicPstatesInfo_t);

#[host]
fn nvmlDeviceGetMemClkVfOffset(device: nvmlDevice_t, offset: *mut c_int);

#[host]
fn nvmlDeviceGetMinMaxClockOfPState(
    device: nvmlDevice_t,
    r#type: nvmlClockType_t,
    pstate: nvmlPstates_t,
    minClockMHz: *mut c_uint,
    maxClockMHz: *mut c_uint,
);

#[host]
fn nvmlDeviceGetSupportedPerformanceStates(device: nvmlDevice_t, pstates: *mut nvmlPstates_t, size: c_uint);

#[host]
fn nvmlDeviceGetGpcClkMinMaxVfOffset(device: nvmlDevice_t, minOffset: *mut c_int, maxOffset: *mut c_int);

#[host]
fn nvmlDeviceGetMemClkMinMaxVfOffset(device: nvmlDevice_t, minOffset: *mut c_int, maxOffset: *mut c_int);

#[host]
fn nvmlDeviceGetClockOffsets(device: nvmlDevice_t, info: *mut nvmlClockOffset_t);

#[setting]
fn nvmlDeviceSetClockOffsets(device: nvmlDevice_t, info: *mut nvmlClockOffset_t);

#[host]
fn nvmlDeviceGetPerformanceModes(device: nvmlDevice_t, perfModes: *mut nvmlDevicePerfModes_t);

#[host]
fn nvmlDeviceGetCurrentClockFreqs(device: nvmlDevice_t, currentClockFreqs: *mut nvmlDeviceCurrentClockFreqs_t);

#[host]
fn nvmlDeviceGetPowerManagementMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t);

#[host]
fn nvmlDeviceGetPowerManagementLimit(device: nvmlDevice_t, limit: *mut c_uint);

#[host]
fn nvmlDeviceGetPowerManagementLimitConstraints(device: nvmlDevice_t, minLimit: *mut c_uint, maxLimit: *mut c_uint);

#[host]
fn nvmlDeviceGetPowerManagementDefaultLimit(device: nvmlDevice_t, defaultLimit: *mut c_uint);

#[host]
fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power: *mut c_uint);

#[host]
fn nvmlDeviceGetPowerMizerMode_v1(device: nvmlDevice_t, powerMizerMode: *mut nvmlDevicePowerMizerModes_v1_t);

#[setting]
fn nvmlDeviceSetPowerMizerMode_v1(device: nvmlDevice_t, powerMizerMode: *mut nvmlDevicePowerMizerModes_v1_t);

#[host]
fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, energy: *mut c_ulonglong);

#[host]
fn nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t, limit: *mut c_uint);

#[setting]
fn nvmlDeviceSetAdaptiveTgpMode_v1(device: nvmlDevice_t, mode: nvmlEnableState_t);

#[host]
fn nvmlDeviceGetAdaptiveTgpModeInfo_v1(device: nvmlDevice_t, info: *mut nvmlAdaptiveTgpModeInfo_v1_t);

#[host]
fn nvmlDeviceGetGpuOperationMode(
    device: nvmlDevice_t,
    current: *mut nvmlGpuOperationMode_t,
    pending: *mut nvmlGpuOperationMode_t,
);

#[here]
fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t);

#[here]
fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t);

#[setting]
fn nvmlDeviceSetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlSetMemoryLimits_v1_t);

#[host]
fn nvmlDeviceGetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlGetMemoryLimits_v1_t);

#[here]
fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut nvmlComputeMode_t);

#[here]
fn nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int);

#[host]
fn nvmlDeviceGetDramEncryptionMode(
    device: nvmlDevice_t,
    current: *mut nvmlDramEncryptionInfo_t,
    pending: *mut nvmlDramEncryptionInfo_t,
);

#[setting]
fn nvmlDeviceSetDramEncryptionMode(device: nvmlDevice_t, dramEncryption: *const nvmlDramEncryptionInfo_t);

#[here]
fn nvmlDeviceGetEccMode(device: nvmlDevice_t, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t);

#[host]
fn nvmlDeviceGetDefaultEccMode(device: nvmlDevice_t, defaultMode: *mut nvmlEnableState_t);

#[host]
fn nvmlDeviceGetBoardId(device: nvmlDevice_t, boardId: *mut c_uint);

#[here]
fn nvmlDeviceGetMultiGpuBoard(device: nvmlDevice_t, multiGpuBool: *mut c_uint);

#[host]
fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    errorType: nvmlMemoryErrorType_t,
    counterType: nvmlEccCounterType_t,
    eccCounts: *mut c_ulonglong,
);

#[host]
fn nvmlDeviceGetDetailedEccErrors(
    device: nvmlDevice_t,
    errorType: nvmlMemoryErrorType_t,
    counterType: nvmlEccCounterType_t,
    eccCounts: *mut nvmlEccErrorCounts_t,
);

#[host]
fn nvmlDeviceGetMemoryErrorCounter(
    device: nvmlDevice_t,
    errorType: nvmlMemoryErrorType_t,
    counterType: nvmlEccCounterType_t,
    locationType: nvmlMemoryLocation_t,
    count: *mut c_ulonglong,
);

#[here]
fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t);

#[lacking]
fn nvmlDeviceGetEncoderUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

#[lacking]
fn nvmlDeviceGetEncoderCapacity(
    device: nvmlDevice_t,
    encoderQueryType: nvmlEncoderType_t,
    encoderCapacity: *mut c_uint,
);

#[lacking]
fn nvmlDeviceGetEncoderStats(
    device: nvmlDevice_t,
    sessionCount: *mut c_uint,
    averageFps: *mut c_uint,
    averageLatency: *mut c_uint,
);

#[lacking]
fn nvmlDeviceGetEncoderSessions(
    device: nvmlDevice_t,
    sessionCount: *mut c_uint,
    sessionInfos: *mut nvmlEncoderSessionInfo_t,
);

#[lacking]
fn nvmlDeviceGetDecoderUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

#[lacking]
fn nvmlDeviceGetJpgUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

#[lacking]
fn nvmlDeviceGetOfaUtilization(device: nvmlDevice_t, utilization: *mut c_uint, samplingPeriodUs: *mut c_uint);

#[lacking]
fn nvmlDeviceGetFBCStats(device: nvmlDevice_t, fbcStats: *mut nvmlFBCStats_t);

#[lacking]
fn nvmlDeviceGetFBCSessions(device: nvmlDevice_t, sessionCount: *mut c_uint, sessionInfo: *mut nvmlFBCSessionInfo_t);

#[lacking]
fn nvmlDeviceGetDriverModel_v2(device: nvmlDevice_t, current: *mut nvmlDriverModel_t, pending: *mut nvmlDriverModel_t);

#[host]
fn nvmlDeviceGetVbiosVersion(device: nvmlDevice_t, version: *mut c_char, length: c_uint);

#[lacking]
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

#[host]
fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, plist: *mut nvmlProcessDetailList_t);

#[host]
fn nvmlDeviceOnSameBoard(device1: nvmlDevice_t, device2: nvmlDevice_t, onSameBoard: *mut c_int);

#[host]
fn nvmlDeviceGetAPIRestriction(
    device: nvmlDevice_t,
    apiType: nvmlRestrictedAPI_t,
    isRestricted: *mut nvmlEnableState_t,
);

#[host]
fn nvmlDeviceGetSamples(
    device: nvmlDevice_t,
    r#type: nvmlSamplingType_t,
    lastSeenTimeStamp: c_ulonglong,
    sampleValType: *mut nvmlValueType_t,
    sampleCount: *mut c_uint,
    samples: *mut nvmlSample_t,
);

#[host]
fn nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t, bar1Memory: *mut nvmlBAR1Memory_t);

#[host]
fn nvmlDeviceGetViolationStatus(
    device: nvmlDevice_t,
    perfPolicyType: nvmlPerfPolicyType_t,
    violTime: *mut nvmlViolationTime_t,
);

#[host]
fn nvmlDeviceGetIrqNum(device: nvmlDevice_t, irqNum: *mut c_uint);

#[here]
fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, numCores: *mut c_uint);

#[host]
fn nvmlDeviceGetPowerSource(device: nvmlDevice_t, powerSource: *mut nvmlPowerSource_t);

#[here]
fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, busWidth: *mut c_uint);

#[here]
fn nvmlDeviceGetPcieLinkMaxSpeed(device: nvmlDevice_t, maxSpeed: *mut c_uint);

#[here]
fn nvmlDeviceGetPcieSpeed(device: nvmlDevice_t, pcieSpeed: *mut c_uint);

#[host]
fn nvmlDeviceGetAdaptiveClockInfoStatus(device: nvmlDevice_t, adaptiveClockStatus: *mut c_uint);

#[host]
fn nvmlDeviceGetBusType(device: nvmlDevice_t, r#type: *mut nvmlBusType_t);

#[lacking]
fn nvmlDeviceGetGpuFabricInfo(device: nvmlDevice_t, gpuFabricInfo: *mut nvmlGpuFabricInfo_t);

#[lacking]
fn nvmlDeviceGetGpuFabricInfoV(device: nvmlDevice_t, gpuFabricInfo: *mut nvmlGpuFabricInfoV_t);

#[lacking]
fn nvmlDeviceGetGpuFabricInfo_v4(device: nvmlDevice_t, gpuFabricInfo: *mut nvmlGpuFabricInfo_v4_t);

#[lacking]
fn nvmlDeviceGetConfComputeMemSizeInfo(device: nvmlDevice_t, memInfo: *mut nvmlConfComputeMemSizeInfo_t);

#[lacking]
fn nvmlDeviceGetConfComputeProtectedMemoryUsage(device: nvmlDevice_t, memory: *mut nvmlMemory_t);

#[lacking]
fn nvmlDeviceGetConfComputeGpuCertificate(device: nvmlDevice_t, gpuCert: *mut nvmlConfComputeGpuCertificate_t);

#[lacking]
fn nvmlDeviceGetConfComputeGpuAttestationReport(
    device: nvmlDevice_t,
    gpuAtstReport: *mut nvmlConfComputeGpuAttestationReport_t,
);

#[lacking]
fn nvmlDeviceSetConfComputeUnprotectedMemSize(device: nvmlDevice_t, sizeKiB: c_ulonglong);

#[host]
fn nvmlDeviceGetGspFirmwareVersion(device: nvmlDevice_t, version: *mut c_char);

#[host]
fn nvmlDeviceGetGspFirmwareMode(device: nvmlDevice_t, isEnabled: *mut c_uint, defaultMode: *mut c_uint);

#[lacking]
fn nvmlDeviceGetSramEccErrorStatus(device: nvmlDevice_t, status: *mut nvmlEccSramErrorStatus_t);

#[setting]
fn nvmlDeviceSetPowerManagementLimit_v2(device: nvmlDevice_t, powerValue: *mut nvmlPowerValue_v2_t);

#[lacking]
fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t);

#[lacking]
fn nvmlDeviceGetAccountingStats(device: nvmlDevice_t, pid: c_uint, stats: *mut nvmlAccountingStats_t);

#[lacking]
fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint);

#[lacking]
fn nvmlDeviceGetAccountingBufferSize(device: nvmlDevice_t, bufferSize: *mut c_uint);

#[lacking]
fn nvmlDeviceGetAccountingStats_v2(device: nvmlDevice_t, stats: *mut nvmlAccountingStats_v2_t);

#[host]
fn nvmlDeviceGetRetiredPages(
    device: nvmlDevice_t,
    cause: nvmlPageRetirementCause_t,
    pageCount: *mut c_uint,
    addresses: *mut c_ulonglong,
);

#[host]
fn nvmlDeviceGetRetiredPages_v2(
    device: nvmlDevice_t,
    cause: nvmlPageRetirementCause_t,
    pageCount: *mut c_uint,
    addresses: *mut c_ulonglong,
    timestamps: *mut c_ulonglong,
);

#[host]
fn nvmlDeviceGetRetiredPagesPendingStatus(device: nvmlDevice_t, isPending: *mut nvmlEnableState_t);

#[host]
fn nvmlDeviceGetRemappedRows(
    device: nvmlDevice_t,
    corrRows: *mut c_uint,
    uncRows: *mut c_uint,
    isPending: *mut c_uint,
    failureOccurred: *mut c_uint,
);

#[host]
fn nvmlDeviceGetRowRemapperHistogram(device: nvmlDevice_t, values: *mut nvmlRowRemapperHistogramValues_t);

#[here]
fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, arch: *mut nvmlDeviceArchitecture_t);

#[host]
fn nvmlDeviceGetClkMonStatus(device: nvmlDevice_t, status: *mut nvmlClkMonStatus_t);

#[here]
fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    utilization: *mut nvmlProcessUtilizationSample_t,
    processSamplesCount: *mut c_uint,
    lastSeenTimeStamp: c_ulonglong,
);

#[host]
fn nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, procesesUtilInfo: *mut nvmlProcessesUtilizationInfo_t);

#[host]
fn nvmlDeviceGetPlatformInfo(device: nvmlDevice_t, platformInfo: *mut nvmlPlatformInfo_t);

#[host]
fn nvmlDeviceGetPdi(device: nvmlDevice_t, pdi: *mut nvmlPdi_t);

#[setting]
fn nvmlDeviceSetHostname_v1(device: nvmlDevice_t, hostname: *mut nvmlHostname_v1_t);

#[host]
fn nvmlDeviceGetHostname_v1(device: nvmlDevice_t, hostname: *mut nvmlHostname_v1_t);

#[host]
fn nvmlDevicePerfMetricsGetSamples_v1(device: nvmlDevice_t, samples: *mut nvmlPerfMetricsSamples_v1_t);

#[setting]
fn nvmlDeviceSetPersistenceMode(device: nvmlDevice_t, mode: nvmlEnableState_t);

#[setting]
fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: nvmlComputeMode_t);

#[setting]
fn nvmlDeviceSetEccMode(device: nvmlDevice_t, ecc: nvmlEnableState_t);

#[setting]
fn nvmlDeviceClearEccErrorCounts(device: nvmlDevice_t, counterType: nvmlEccCounterType_t);

#[lacking]
fn nvmlDeviceSetDriverModel(device: nvmlDevice_t, driverModel: nvmlDriverModel_t, flags: c_uint);

#[setting]
fn nvmlDeviceSetGpuLockedClocks(device: nvmlDevice_t, minGpuClockMHz: c_uint, maxGpuClockMHz: c_uint);

#[setting]
fn nvmlDeviceResetGpuLockedClocks(device: nvmlDevice_t);

#[setting]
fn nvmlDeviceSetMemoryLockedClocks(device: nvmlDevice_t, minMemClockMHz: c_uint, maxMemClockMHz: c_uint);

#[setting]
fn nvmlDeviceResetMemoryLockedClocks(device: nvmlDevice_t);

#[setting]
fn nvmlDeviceSetApplicationsClocks(device: nvmlDevice_t, memClockMHz: c_uint, graphicsClockMHz: c_uint);

#[setting]
fn nvmlDeviceResetApplicationsClocks(device: nvmlDevice_t);

#[setting]
fn nvmlDeviceSetAutoBoostedClocksEnabled(device: nvmlDevice_t, enabled: nvmlEnableState_t);

#[setting]
fn nvmlDeviceSetDefaultAutoBoostedClocksEnabled(device: nvmlDevice_t, enabled: nvmlEnableState_t, flags: c_uint);

#[setting]
fn nvmlDeviceSetDefaultFanSpeed_v2(device: nvmlDevice_t, fan: c_uint);

#[setting]
fn nvmlDeviceSetFanControlPolicy(device: nvmlDevice_t, fan: c_uint, policy: nvmlFanControlPolicy_t);

#[setting]
fn nvmlDeviceSetTemperatureThreshold(
    device: nvmlDevice_t,
    thresholdType: nvmlTemperatureThresholds_t,
    temp: *mut c_int,
);

#[setting]
fn nvmlDeviceSetPowerManagementLimit(device: nvmlDevice_t, limit: c_uint);

#[setting]
fn nvmlDeviceSetGpuOperationMode(device: nvmlDevice_t, mode: nvmlGpuOperationMode_t);

#[setting]
fn nvmlDeviceSetAPIRestriction(device: nvmlDevice_t, apiType: nvmlRestrictedAPI_t, isRestricted: nvmlEnableState_t);

#[setting]
fn nvmlDeviceSetFanSpeed_v2(device: nvmlDevice_t, fan: c_uint, speed: c_uint);

#[setting]
fn nvmlDeviceSetGpcClkVfOffset(device: nvmlDevice_t, offset: c_int);

#[setting]
fn nvmlDeviceSetMemClkVfOffset(device: nvmlDevice_t, offset: c_int);

#[lacking]
fn nvmlDeviceSetAccountingMode(device: nvmlDevice_t, mode: nvmlEnableState_t);

#[lacking]
fn nvmlDeviceClearAccountingPids(device: nvmlDevice_t);

#[lacking]
fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, eventTypes: c_ulonglong, set: nvmlEventSet_t);

#[here]
fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, eventTypes: *mut c_ulonglong);

#[setting]
fn nvmlDeviceModifyDrainState(pciInfo: *mut nvmlPciInfo_t, newState: nvmlEnableState_t);

#[host]
fn nvmlDeviceQueryDrainState(pciInfo: *mut nvmlPciInfo_t, currentState: *mut nvmlEnableState_t);

#[setting]
fn nvmlDeviceRemoveGpu_v2(pciInfo: *mut nvmlPciInfo_t, gpuState: nvmlDetachGpuState_t, linkState: nvmlPcieLinkState_t);

#[host]
fn nvmlDeviceDiscoverGpus(pciInfo: *mut nvmlPciInfo_t);

#[here]
fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, valuesCount: c_int, values: *mut nvmlFieldValue_t);

#[setting]
fn nvmlDeviceClearFieldValues(device: nvmlDevice_t, valuesCount: c_int, values: *mut nvmlFieldValue_t);

#[here]
fn nvmlDeviceGetVirtualizationMode(device: nvmlDevice_t, pVirtualMode: *mut nvmlGpuVirtualizationMode_t);

#[setting]
fn nvmlDeviceSetVirtualizationMode(device: nvmlDevice_t, virtualMode: nvmlGpuVirtualizationMode_t);

#[lacking]
fn nvmlDeviceGetGridLicensableFeatures_v4(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

#[host]
fn nvmlDeviceGetPgpuMetadataString(device: nvmlDevice_t, pgpuMetadata: *mut c_char, bufferSize: *mut c_uint);

#[host]
fn nvmlDeviceReadWritePRM_v1(device: nvmlDevice_t, buffer: *mut nvmlPRMTLV_v1_t);

#[host]
fn nvmlDeviceReadPRMCounters_v1(device: nvmlDevice_t, counterList: *mut nvmlPRMCounterList_v1_t);

#[lacking]
fn nvmlDeviceSetMigMode(device: nvmlDevice_t, mode: c_uint, activationStatus: *mut nvmlReturn_t);

#[lacking]
fn nvmlDeviceGetMigMode(device: nvmlDevice_t, currentMode: *mut c_uint, pendingMode: *mut c_uint);

#[lacking]
fn nvmlDeviceGetGpuInstanceProfileInfo(device: nvmlDevice_t, profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_t);

#[lacking]
fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: nvmlDevice_t,
    profile: c_uint,
    info: *mut nvmlGpuInstanceProfileInfo_v2_t,
);

#[lacking]
fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
    device: nvmlDevice_t,
    profileId: c_uint,
    info: *mut nvmlGpuInstanceProfileInfo_v2_t,
);

#[lacking]
fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: nvmlDevice_t,
    profileId: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
);

#[lacking]
fn nvmlDeviceGetGpuInstanceRemainingCapacity(device: nvmlDevice_t, profileId: c_uint, count: *mut c_uint);

#[lacking]
fn nvmlDeviceCreateGpuInstance(device: nvmlDevice_t, profileId: c_uint, gpuInstance: *mut nvmlGpuInstance_t);

#[lacking]
fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: nvmlDevice_t,
    profileId: c_uint,
    placement: *const nvmlGpuInstancePlacement_t,
    gpuInstance: *mut nvmlGpuInstance_t,
);

#[lacking]
fn nvmlDeviceGetGpuInstances(
    device: nvmlDevice_t,
    profileId: c_uint,
    gpuInstances: *mut nvmlGpuInstance_t,
    count: *mut c_uint,
);

#[lacking]
fn nvmlDeviceGetGpuInstanceById(device: nvmlDevice_t, id: c_uint, gpuInstance: *mut nvmlGpuInstance_t);

#[here]
fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, isMigDevice: *mut c_uint);

#[lacking]
fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint);

#[lacking]
fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint);

#[here]
fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint);

#[lacking]
fn nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: c_uint, migDevice: *mut nvmlDevice_t);

#[lacking]
fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migDevice: nvmlDevice_t, device: *mut nvmlDevice_t);

#[here]
fn nvmlDeviceGetCapabilities(device: nvmlDevice_t, caps: *mut nvmlDeviceCapabilities_t);

#[host]
fn nvmlDeviceWorkloadPowerProfileGetProfilesInfo(
    device: nvmlDevice_t,
    profilesInfo: *mut nvmlWorkloadPowerProfileProfilesInfo_t,
);

#[host]
fn nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(
    device: nvmlDevice_t,
    currentProfiles: *mut nvmlWorkloadPowerProfileCurrentProfiles_t,
);

#[setting]
fn nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(
    device: nvmlDevice_t,
    requestedProfiles: *mut nvmlWorkloadPowerProfileRequestedProfiles_t,
);

#[setting]
fn nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(
    device: nvmlDevice_t,
    requestedProfiles: *mut nvmlWorkloadPowerProfileRequestedProfiles_t,
);

#[setting]
fn nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(
    device: nvmlDevice_t,
    updateProfiles: *mut nvmlWorkloadPowerProfileUpdateProfiles_v1_t,
);

#[host]
fn nvmlDevicePowerSmoothingActivatePresetProfile(device: nvmlDevice_t, profile: *mut nvmlPowerSmoothingProfile_t);

#[setting]
fn nvmlDevicePowerSmoothingUpdatePresetProfileParam(device: nvmlDevice_t, profile: *mut nvmlPowerSmoothingProfile_t);

#[setting]
fn nvmlDevicePowerSmoothingSetState(device: nvmlDevice_t, state: *mut nvmlPowerSmoothingState_t);

#[lacking]
fn nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(
    device: nvmlDevice_t,
    errorCounts: *mut nvmlEccSramUniqueUncorrectedErrorCounts_t,
);

#[host]
fn nvmlDeviceGetRemappedRows_v2(device: nvmlDevice_t, info: *mut nvmlRemappedRowsInfo_v2_t);

#[setting]
fn nvmlDeviceSetRusdSettings_v1(device: nvmlDevice_t, settings: *mut nvmlRusdSettings_v1_t);

#[host]
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

#[lacking]
fn nvmlDeviceGetGridLicensableFeatures(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

#[lacking]
fn nvmlDeviceGetGridLicensableFeatures_v2(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

#[lacking]
fn nvmlDeviceGetGridLicensableFeatures_v3(
    device: nvmlDevice_t,
    pGridLicensableFeatures: *mut nvmlGridLicensableFeatures_t,
);

#[setting]
fn nvmlDeviceRemoveGpu(pciInfo: *mut nvmlPciInfo_t);

#[host]
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

#[lacking]
fn nvmlDeviceGetGpuInstancePossiblePlacements(
    device: nvmlDevice_t,
    profileId: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
);

#[lacking]
fn nvmlDeviceGetDriverModel(device: nvmlDevice_t, current: *mut nvmlDriverModel_t, pending: *mut nvmlDriverModel_t);
