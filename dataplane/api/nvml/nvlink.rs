//! Links between devices.

#[here]
fn nvmlDeviceGetNvLinkState(device: nvmlDevice_t, link: c_uint, isActive: *mut nvmlEnableState_t);

#[here]
fn nvmlDeviceGetNvLinkVersion(device: nvmlDevice_t, link: c_uint, version: *mut c_uint);

#[here]
fn nvmlDeviceGetNvLinkCapability(
    device: nvmlDevice_t,
    link: c_uint,
    capability: nvmlNvLinkCapability_t,
    capResult: *mut c_uint,
);

#[here]
fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: nvmlDevice_t, link: c_uint, pci: *mut nvmlPciInfo_t);

#[lacking]
fn nvmlDeviceGetNvLinkErrorCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: nvmlNvLinkErrorCounter_t,
    counterValue: *mut c_ulonglong,
);

#[lacking]
fn nvmlDeviceResetNvLinkErrorCounters(device: nvmlDevice_t, link: c_uint);

#[lacking]
fn nvmlDeviceSetNvLinkUtilizationControl(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    control: *mut nvmlNvLinkUtilizationControl_t,
    reset: c_uint,
);

#[lacking]
fn nvmlDeviceGetNvLinkUtilizationControl(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    control: *mut nvmlNvLinkUtilizationControl_t,
);

#[lacking]
fn nvmlDeviceGetNvLinkUtilizationCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    rxcounter: *mut c_ulonglong,
    txcounter: *mut c_ulonglong,
);

#[lacking]
fn nvmlDeviceFreezeNvLinkUtilizationCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_uint,
    freeze: nvmlEnableState_t,
);

#[lacking]
fn nvmlDeviceResetNvLinkUtilizationCounter(device: nvmlDevice_t, link: c_uint, counter: c_uint);

#[here]
fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: nvmlDevice_t,
    link: c_uint,
    pNvLinkDeviceType: *mut nvmlIntNvLinkDeviceType_t,
);

#[lacking]
fn nvmlDeviceSetNvLinkDeviceLowPowerThreshold(device: nvmlDevice_t, info: *mut nvmlNvLinkPowerThres_t);

#[lacking]
fn nvmlDeviceGetNvlinkSupportedBwModes(device: nvmlDevice_t, supportedBwMode: *mut nvmlNvlinkSupportedBwModes_t);

#[lacking]
fn nvmlDeviceGetNvlinkBwMode(device: nvmlDevice_t, getBwMode: *mut nvmlNvlinkGetBwMode_t);

#[lacking]
fn nvmlDeviceSetNvlinkBwMode(device: nvmlDevice_t, setBwMode: *mut nvmlNvlinkSetBwMode_t);

#[lacking]
fn nvmlDeviceSetNvlinkBwModeAsync_v1(device: nvmlDevice_t, setBwModeAsync: *mut nvmlNvlinkSetBwModeAsync_v1_t);

#[lacking]
fn nvmlDeviceGetNvLinkInfo(device: nvmlDevice_t, info: *mut nvmlNvLinkInfo_t);

#[lacking]
fn nvmlDeviceGetNvLinkInfo_v3(device: nvmlDevice_t, info: *mut nvmlNvLinkInfo_v3_t);

#[lacking]
fn nvmlDeviceGetNvLinkTelemetrySamples_v1(device: nvmlDevice_t, samples: *mut nvmlNvlinkTelemetrySamples_v1_t);

#[lacking]
fn nvmlDeviceGetNvlinkRemapTableInfo_v1(device: nvmlDevice_t, remapTableInfo: *mut nvmlNvlinkGetRemapTableInfo_v1_t);

#[lacking]
fn nvmlDeviceSetNvlinkNvleReady_v1(device: nvmlDevice_t, setNvleReady: *mut nvmlNvlinkSetNvleReady_v1_t);

#[lacking]
fn nvmlDeviceLockNvlinkRemapTable_v1(device: nvmlDevice_t, remapTableLockInfo: *mut nvmlNvlinkLockRemapTable_v1_t);

#[lacking]
fn nvmlDeviceSetupNvlinkNvleEncryptionKey_v1(
    device: nvmlDevice_t,
    encryptionKey: *mut nvmlNvlinkSetupNvleEncryptionKey_v1_t,
);

#[lacking]
fn nvmlDeviceGetNvlinkNvlePrivateInfo_v1(device: nvmlDevice_t, privateInfo: *mut nvmlNvlinkNvlePrivateInfo_v1_t);

#[here]
fn nvmlDeviceGetNvLinkRemotePciInfo(device: nvmlDevice_t, link: c_uint, pci: *mut nvmlPciInfo_v2_t);
