//! Links between devices.

fn nvmlDeviceGetNvLinkState(device: nvmlDevice_t, link: c_uint, isActive: *mut nvmlEnableState_t);

fn nvmlDeviceGetNvLinkVersion(device: nvmlDevice_t, link: c_uint, version: *mut c_uint);

fn nvmlDeviceGetNvLinkCapability(
    device: nvmlDevice_t,
    link: c_uint,
    capability: nvmlNvLinkCapability_t,
    capResult: *mut c_uint,
);

fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: nvmlDevice_t, link: c_uint, pci: *mut nvmlPciInfo_t);

fn nvmlDeviceGetNvLinkErrorCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: nvmlNvLinkErrorCounter_t,
    counterValue: *mut c_ulonglong,
);

fn nvmlDeviceResetNvLinkErrorCounters(device: nvmlDevice_t, link: c_uint);

fn nvmlDeviceSetNvLinkUtilizationControl(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    control: *mut nvmlNvLinkUtilizationControl_t,
    reset: c_uint,
);

fn nvmlDeviceGetNvLinkUtilizationControl(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    control: *mut nvmlNvLinkUtilizationControl_t,
);

fn nvmlDeviceGetNvLinkUtilizationCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    rxcounter: *mut c_ulonglong,
    txcounter: *mut c_ulonglong,
);

fn nvmlDeviceFreezeNvLinkUtilizationCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    freeze: nvmlEnableState_t,
);

fn nvmlDeviceResetNvLinkUtilizationCounter(device: nvmlDevice_t, link: c_uint, counter: c_uint);

fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: nvmlDevice_t,
    link: c_uint,
    pNvLinkDeviceType: *mut nvmlIntNvLinkDeviceType_t,
);

fn nvmlDeviceSetNvLinkDeviceLowPowerThreshold(device: nvmlDevice_t, info: *mut nvmlNvLinkPowerThres_t);

fn nvmlDeviceGetNvlinkSupportedBwModes(device: nvmlDevice_t, supportedBwMode: *mut nvmlNvlinkSupportedBwModes_t);

fn nvmlDeviceGetNvlinkBwMode(device: nvmlDevice_t, getBwMode: *mut nvmlNvlinkGetBwMode_t);

fn nvmlDeviceSetNvlinkBwMode(device: nvmlDevice_t, setBwMode: *mut nvmlNvlinkSetBwMode_t);

fn nvmlDeviceSetNvlinkBwModeAsync_v1(device: nvmlDevice_t, setBwModeAsync: *mut nvmlNvlinkSetBwModeAsync_v1_t);

fn nvmlDeviceGetNvLinkInfo(device: nvmlDevice_t, info: *mut nvmlNvLinkInfo_t);

fn nvmlDeviceGetNvLinkInfo_v3(device: nvmlDevice_t, info: *mut nvmlNvLinkInfo_v3_t);

fn nvmlDeviceGetNvLinkTelemetrySamples_v1(device: nvmlDevice_t, samples: *mut nvmlNvlinkTelemetrySamples_v1_t);

fn nvmlDeviceGetNvlinkRemapTableInfo_v1(device: nvmlDevice_t, remapTableInfo: *mut nvmlNvlinkGetRemapTableInfo_v1_t);

fn nvmlDeviceSetNvlinkNvleReady_v1(device: nvmlDevice_t, setNvleReady: *mut nvmlNvlinkSetNvleReady_v1_t);

fn nvmlDeviceLockNvlinkRemapTable_v1(device: nvmlDevice_t, remapTableLockInfo: *mut nvmlNvlinkLockRemapTable_v1_t);

fn nvmlDeviceSetupNvlinkNvleEncryptionKey_v1(
    device: nvmlDevice_t,
    encryptionKey: *mut nvmlNvlinkSetupNvleEncryptionKey_v1_t,
);

fn nvmlDeviceGetNvlinkNvlePrivateInfo_v1(device: nvmlDevice_t, privateInfo: *mut nvmlNvlinkNvlePrivateInfo_v1_t);

fn nvmlDeviceGetNvLinkRemotePciInfo(device: nvmlDevice_t, link: c_uint, pci: *mut nvmlPciInfo_t);
