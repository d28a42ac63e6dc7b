//! CUPTI's activity records as CUDA 13.0 lays them out (`cupti_activity.h`, API version 130001): what a GPU did and
//! when. Enumerations are plain integers, as in [`crate::sys`].

use std::ffi::{c_char, c_void};

pub type CUptiResult = u32;
pub const CUPTI_SUCCESS: CUptiResult = 0;
pub const CUPTI_ERROR_INVALID_PARAMETER: CUptiResult = 1;
pub const CUPTI_ERROR_INVALID_KIND: CUptiResult = 21;
pub const CUPTI_ERROR_MAX_LIMIT_REACHED: CUptiResult = 12;
pub const CUPTI_ERROR_NOT_SUPPORTED: CUptiResult = 27;
pub const CUPTI_ERROR_UNKNOWN: CUptiResult = 999;

pub type CUpti_ActivityKind = u32;
pub const CUPTI_ACTIVITY_KIND_MEMCPY: CUpti_ActivityKind = 1;
pub const CUPTI_ACTIVITY_KIND_MEMSET: CUpti_ActivityKind = 2;
pub const CUPTI_ACTIVITY_KIND_KERNEL: CUpti_ActivityKind = 3;
pub const CUPTI_ACTIVITY_KIND_DRIVER: CUpti_ActivityKind = 4;
pub const CUPTI_ACTIVITY_KIND_RUNTIME: CUpti_ActivityKind = 5;
pub const CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: CUpti_ActivityKind = 10;
pub const CUPTI_ACTIVITY_KIND_OVERHEAD: CUpti_ActivityKind = 17;
pub const CUPTI_ACTIVITY_KIND_MEMCPY2: CUpti_ActivityKind = 22;
pub const CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: CUpti_ActivityKind = 38;
pub const CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: CUpti_ActivityKind = 39;

/// Times are nanoseconds; 0 where CUPTI could not tell.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ActivityMemcpy6 {
    pub kind: u32,
    pub copyKind: u8,
    pub srcKind: u8,
    pub dstKind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub deviceId: u32,
    pub contextId: u32,
    pub streamId: u32,
    pub correlationId: u32,
    pub runtimeCorrelationId: u32,
    pub pad: u32,
    pub reserved0: *mut c_void,
    pub graphNodeId: u64,
    pub graphId: u32,
    pub channelID: u32,
    pub channelType: u32,
    pub isDeviceLaunched: u8,
    pub pad2: [u8; 3],
    pub copyCount: u64,
}

#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ActivityMemset4 {
    pub kind: u32,
    pub value: u32,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub deviceId: u32,
    pub contextId: u32,
    pub streamId: u32,
    pub correlationId: u32,
    pub flags: u16,
    pub memoryKind: u16,
    pub pad: u32,
    pub reserved0: *mut c_void,
    pub graphNodeId: u64,
    pub graphId: u32,
    pub channelID: u32,
    pub channelType: u32,
    pub isDeviceLaunched: u8,
    pub pad2: [u8; 3],
}

#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ActivityKernel10 {
    pub kind: u32,
    pub cacheConfig: u8,
    pub sharedMemoryConfig: u8,
    pub registersPerThread: u16,
    pub partitionedGlobalCacheRequested: u32,
    pub partitionedGlobalCacheExecuted: u32,
    pub start: u64,
    pub end: u64,
    pub completed: u64,
    pub deviceId: u32,
    pub contextId: u32,
    pub streamId: u32,
    pub gridX: i32,
    pub gridY: i32,
    pub gridZ: i32,
    pub blockX: i32,
    pub blockY: i32,
    pub blockZ: i32,
    pub staticSharedMemory: i32,
    pub dynamicSharedMemory: i32,
    pub localMemoryPerThread: u32,
    pub localMemoryTotal: u32,
    pub correlationId: u32,
    pub gridId: i64,
    pub name: *const c_char,
    pub reserved0: *mut c_void,
    pub queued: u64,
    pub submitted: u64,
    pub launchType: u8,
    pub isSharedMemoryCarveoutRequested: u8,
    pub sharedMemoryCarveoutRequested: u8,
    pub padding: u8,
    pub sharedMemoryExecuted: u32,
    pub graphNodeId: u64,
    pub shmemLimitConfig: u32,
    pub graphId: u32,
    pub pAccessPolicyWindow: *mut c_void,
    pub channelID: u32,
    pub channelType: u32,
    pub clusterX: u32,
    pub clusterY: u32,
    pub clusterZ: u32,
    pub clusterSchedulingPolicy: u32,
    pub localMemoryTotal_v2: u64,
    pub maxPotentialClusterSize: u32,
    pub maxActiveClusters: u32,
    pub isDeviceLaunched: u8,
    pub padding3: [u8; 7],
}

/// A copy between devices.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ActivityMemcpyPtoP4 {
    pub kind: u32,
    pub copyKind: u8,
    pub srcKind: u8,
    pub dstKind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub deviceId: u32,
    pub contextId: u32,
    pub streamId: u32,
    pub srcDeviceId: u32,
    pub srcContextId: u32,
    pub dstDeviceId: u32,
    pub dstContextId: u32,
    pub correlationId: u32,
    pub reserved0: *mut c_void,
    pub graphNodeId: u64,
    pub graphId: u32,
    pub channelID: u32,
    pub channelType: u32,
}

/// A call into the driver or the runtime.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ActivityAPI {
    pub kind: u32,
    pub cbid: u32,
    pub start: u64,
    pub end: u64,
    pub processId: u32,
    pub threadId: u32,
    pub correlationId: u32,
    pub returnValue: u32,
}

#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ActivityExternalCorrelation {
    pub kind: u32,
    pub externalKind: u32,
    pub externalId: u64,
    pub correlationId: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<CUpti_ActivityMemcpy6>() == 96);
    assert!(size_of::<CUpti_ActivityMemset4>() == 88);
    assert!(size_of::<CUpti_ActivityKernel10>() == 216);
    assert!(size_of::<CUpti_ActivityMemcpyPtoP4>() == 96);
    assert!(size_of::<CUpti_ActivityAPI>() == 40);
    assert!(size_of::<CUpti_ActivityExternalCorrelation>() == 24);
};
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(CUpti_ActivityKernel10, correlationId) == 92);
    assert!(offset_of!(CUpti_ActivityKernel10, name) == 104);
};
