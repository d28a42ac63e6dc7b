//! Types of NVML's interface, as its documentation has them.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

pub type nvmlReturn_t = c_uint;
/// One more than a device's index: null is no device.
pub type nvmlDevice_t = *mut c_void;

pub const NVML_SUCCESS: nvmlReturn_t = 0;
pub const NVML_ERROR_UNINITIALIZED: nvmlReturn_t = 1;
pub const NVML_ERROR_INVALID_ARGUMENT: nvmlReturn_t = 2;
pub const NVML_ERROR_NOT_SUPPORTED: nvmlReturn_t = 3;
pub const NVML_ERROR_NO_PERMISSION: nvmlReturn_t = 4;
pub const NVML_ERROR_NOT_FOUND: nvmlReturn_t = 6;
pub const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub const NVML_ERROR_DRIVER_NOT_LOADED: nvmlReturn_t = 9;
pub const NVML_ERROR_GPU_IS_LOST: nvmlReturn_t = 15;
pub const NVML_ERROR_LIB_RM_VERSION_MISMATCH: nvmlReturn_t = 18;
pub const NVML_ERROR_INSUFFICIENT_RESOURCES: nvmlReturn_t = 23;
pub const NVML_ERROR_ARGUMENT_VERSION_MISMATCH: nvmlReturn_t = 25;
pub const NVML_ERROR_TIMEOUT: nvmlReturn_t = 10;
pub const NVML_ERROR_UNKNOWN: nvmlReturn_t = 999;

pub type nvmlEnableState_t = c_uint;
pub type nvmlBrandType_t = c_uint;
pub type nvmlComputeMode_t = c_uint;
pub type nvmlClockType_t = c_uint;
pub type nvmlDeviceArchitecture_t = c_uint;
pub type nvmlGpuP2PCapsIndex_t = c_uint;
pub type nvmlGpuP2PStatus_t = c_uint;
pub type nvmlGpuTopologyLevel_t = c_uint;
pub type nvmlGpuVirtualizationMode_t = c_uint;
pub type nvmlEventSet_t = *mut c_void;

pub type nvmlNvLinkCapability_t = c_uint;
pub type nvmlIntNvLinkDeviceType_t = c_uint;

pub const NVML_FEATURE_DISABLED: nvmlEnableState_t = 0;
pub const NVML_FEATURE_ENABLED: nvmlEnableState_t = 1;
pub const NVML_VALUE_TYPE_UNSIGNED_INT: c_uint = 1;

/// The oldest form, which ends in reserved words.
#[repr(C)]
pub struct nvmlPciInfo_v2_t {
    pub busId: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pciDeviceId: c_uint,
    pub pciSubSystemId: c_uint,
    pub reserved: [c_uint; 4],
}

#[repr(C)]
pub struct nvmlPciInfo_t {
    pub busIdLegacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pciDeviceId: c_uint,
    pub pciSubSystemId: c_uint,
    pub busId: [c_char; 32],
}

#[repr(C)]
pub struct nvmlMemory_t {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[repr(C)]
pub struct nvmlMemory_v2_t {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// Structs with a version say their size and number in its word.
pub const NVML_MEMORY_V2: c_uint = size_of::<nvmlMemory_v2_t>() as c_uint | 2 << 24;

/// What is running on a GPU.
#[repr(C)]
pub struct nvmlProcessInfo_v1_t {
    pub pid: c_uint,
    pub usedGpuMemory: c_ulonglong,
}

#[repr(C)]
pub struct nvmlProcessInfo_v2_t {
    pub pid: c_uint,
    pub usedGpuMemory: c_ulonglong,
    pub gpuInstanceId: c_uint,
    pub computeInstanceId: c_uint,
}

pub type nvmlProcessInfo_t = nvmlProcessInfo_v2_t;

/// Of a GPU that is not divided.
pub const NO_INSTANCE: c_uint = c_uint::MAX;

#[repr(C)]
pub struct nvmlUtilization_t {
    pub gpu: c_uint,
    pub memory: c_uint,
}

#[repr(C)]
pub struct nvmlProcessUtilizationSample_t {
    pub pid: c_uint,
    pub timeStamp: c_ulonglong,
    pub smUtil: c_uint,
    pub memUtil: c_uint,
    pub encUtil: c_uint,
    pub decUtil: c_uint,
}

#[repr(C)]
pub struct nvmlPciInfoExt_t {
    pub version: c_uint,
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pciDeviceId: c_uint,
    pub pciSubSystemId: c_uint,
    pub baseClass: c_uint,
    pub subClass: c_uint,
    pub busId: [c_char; 32],
}

pub const NVML_PCI_INFO_EXT_V1: c_uint = size_of::<nvmlPciInfoExt_t>() as c_uint | 1 << 24;

pub type nvmlAffinityScope_t = c_uint;
pub const NVML_AFFINITY_SCOPE_SOCKET: nvmlAffinityScope_t = 1;

#[repr(C)]
pub struct nvmlDeviceCapabilities_t {
    pub version: c_uint,
    pub capMask: c_uint,
}

pub const NVML_DEVICE_CAPABILITIES_V1: c_uint = size_of::<nvmlDeviceCapabilities_t>() as c_uint | 1 << 24;

pub const NVML_BRANCH_CHARACTERS: usize = 80;

#[repr(C)]
pub struct nvmlSystemDriverBranchInfo_t {
    pub version: c_uint,
    pub branch: [c_char; NVML_BRANCH_CHARACTERS],
}

pub const NVML_SYSTEM_DRIVER_BRANCH_INFO_V1: c_uint = size_of::<nvmlSystemDriverBranchInfo_t>() as c_uint | 1 << 24;

/// In letters or in bytes.
#[repr(C)]
pub struct nvmlUUID_t {
    pub version: c_uint,
    pub r#type: c_uint,
    pub value: [u8; 41],
}

pub const NVML_UUID_V1: c_uint = size_of::<nvmlUUID_t>() as c_uint | 1 << 24;
pub const NVML_UUID_TYPE_ASCII: c_uint = 1;
pub const NVML_UUID_TYPE_BINARY: c_uint = 2;

#[repr(C)]
pub struct nvmlFieldValue_t {
    pub fieldId: c_uint,
    pub scopeId: c_uint,
    pub timestamp: i64,
    pub latencyUsec: i64,
    pub valueType: c_uint,
    pub nvmlReturn: nvmlReturn_t,
    pub value: u64,
}

/// Never filled in: no event comes.
#[repr(C)]
pub struct nvmlEventData_t {
    pub device: nvmlDevice_t,
    pub eventType: c_ulonglong,
    pub eventData: c_ulonglong,
    pub gpuInstanceId: c_uint,
    pub computeInstanceId: c_uint,
}

/// Never filled in: there is none.
#[repr(C)]
pub struct nvmlHwbcEntry_t {
    pub hwbcId: c_uint,
    pub firmwareVersion: [c_char; 32],
}
