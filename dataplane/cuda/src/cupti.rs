//! CUPTI's activity records as CUDA 13.0 lays them out (`cupti_activity.h`, API version 130001): what a GPU did and
//! when. Enumerations are plain integers, as in [`crate::sys`].

use std::ffi::{CStr, c_char, c_void};

use crate::sys::{CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType, CUstream};

pub type CUptiResult = u32;
pub const CUPTI_SUCCESS: CUptiResult = 0;
pub const CUPTI_ERROR_INVALID_PARAMETER: CUptiResult = 1;
pub const CUPTI_ERROR_INVALID_DEVICE: CUptiResult = 2;
pub const CUPTI_ERROR_INVALID_CONTEXT: CUptiResult = 3;
pub const CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID: CUptiResult = 4;
pub const CUPTI_ERROR_INVALID_EVENT_ID: CUptiResult = 5;
pub const CUPTI_ERROR_INVALID_EVENT_NAME: CUptiResult = 6;
pub const CUPTI_ERROR_INVALID_OPERATION: CUptiResult = 7;
pub const CUPTI_ERROR_OUT_OF_MEMORY: CUptiResult = 8;
pub const CUPTI_ERROR_HARDWARE: CUptiResult = 9;
pub const CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT: CUptiResult = 10;
pub const CUPTI_ERROR_API_NOT_IMPLEMENTED: CUptiResult = 11;
pub const CUPTI_ERROR_MAX_LIMIT_REACHED: CUptiResult = 12;
pub const CUPTI_ERROR_NOT_READY: CUptiResult = 13;
pub const CUPTI_ERROR_NOT_COMPATIBLE: CUptiResult = 14;
pub const CUPTI_ERROR_NOT_INITIALIZED: CUptiResult = 15;
pub const CUPTI_ERROR_INVALID_METRIC_ID: CUptiResult = 16;
pub const CUPTI_ERROR_INVALID_METRIC_NAME: CUptiResult = 17;
pub const CUPTI_ERROR_QUEUE_EMPTY: CUptiResult = 18;
pub const CUPTI_ERROR_INVALID_HANDLE: CUptiResult = 19;
pub const CUPTI_ERROR_INVALID_STREAM: CUptiResult = 20;
pub const CUPTI_ERROR_INVALID_KIND: CUptiResult = 21;
pub const CUPTI_ERROR_INVALID_EVENT_VALUE: CUptiResult = 22;
pub const CUPTI_ERROR_DISABLED: CUptiResult = 23;
pub const CUPTI_ERROR_INVALID_MODULE: CUptiResult = 24;
pub const CUPTI_ERROR_INVALID_METRIC_VALUE: CUptiResult = 25;
pub const CUPTI_ERROR_HARDWARE_BUSY: CUptiResult = 26;
pub const CUPTI_ERROR_NOT_SUPPORTED: CUptiResult = 27;
pub const CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED: CUptiResult = 28;
pub const CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE: CUptiResult = 29;
pub const CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES: CUptiResult = 30;
pub const CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS: CUptiResult = 31;
pub const CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED: CUptiResult = 32;
pub const CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED: CUptiResult = 33;
pub const CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE: CUptiResult = 34;
pub const CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: CUptiResult = 35;
pub const CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED: CUptiResult = 36;
pub const CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE: CUptiResult = 37;
pub const CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED: CUptiResult = 38;
pub const CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: CUptiResult = 39;
pub const CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES: CUptiResult = 40;
pub const CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED: CUptiResult = 41;
pub const CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED: CUptiResult = 42;
pub const CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED: CUptiResult = 43;
pub const CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED: CUptiResult = 44;
pub const CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED: CUptiResult = 45;
pub const CUPTI_ERROR_INVALID_CHIP_NAME: CUptiResult = 46;
pub const CUPTI_ERROR_UNKNOWN: CUptiResult = 999;

/// What `cuptiGetResultString` answers.
pub const fn result_name(result: CUptiResult) -> Option<&'static CStr> {
    Some(match result {
        CUPTI_SUCCESS => c"CUPTI_SUCCESS",
        CUPTI_ERROR_INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
        CUPTI_ERROR_INVALID_DEVICE => c"CUPTI_ERROR_INVALID_DEVICE",
        CUPTI_ERROR_INVALID_CONTEXT => c"CUPTI_ERROR_INVALID_CONTEXT",
        CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID => c"CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID",
        CUPTI_ERROR_INVALID_EVENT_ID => c"CUPTI_ERROR_INVALID_EVENT_ID",
        CUPTI_ERROR_INVALID_EVENT_NAME => c"CUPTI_ERROR_INVALID_EVENT_NAME",
        CUPTI_ERROR_INVALID_OPERATION => c"CUPTI_ERROR_INVALID_OPERATION",
        CUPTI_ERROR_OUT_OF_MEMORY => c"CUPTI_ERROR_OUT_OF_MEMORY",
        CUPTI_ERROR_HARDWARE => c"CUPTI_ERROR_HARDWARE",
        CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT => c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
        CUPTI_ERROR_API_NOT_IMPLEMENTED => c"CUPTI_ERROR_API_NOT_IMPLEMENTED",
        CUPTI_ERROR_MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        CUPTI_ERROR_NOT_READY => c"CUPTI_ERROR_NOT_READY",
        CUPTI_ERROR_NOT_COMPATIBLE => c"CUPTI_ERROR_NOT_COMPATIBLE",
        CUPTI_ERROR_NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
        CUPTI_ERROR_INVALID_METRIC_ID => c"CUPTI_ERROR_INVALID_METRIC_ID",
        CUPTI_ERROR_INVALID_METRIC_NAME => c"CUPTI_ERROR_INVALID_METRIC_NAME",
        CUPTI_ERROR_QUEUE_EMPTY => c"CUPTI_ERROR_QUEUE_EMPTY",
        CUPTI_ERROR_INVALID_HANDLE => c"CUPTI_ERROR_INVALID_HANDLE",
        CUPTI_ERROR_INVALID_STREAM => c"CUPTI_ERROR_INVALID_STREAM",
        CUPTI_ERROR_INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
        CUPTI_ERROR_INVALID_EVENT_VALUE => c"CUPTI_ERROR_INVALID_EVENT_VALUE",
        CUPTI_ERROR_DISABLED => c"CUPTI_ERROR_DISABLED",
        CUPTI_ERROR_INVALID_MODULE => c"CUPTI_ERROR_INVALID_MODULE",
        CUPTI_ERROR_INVALID_METRIC_VALUE => c"CUPTI_ERROR_INVALID_METRIC_VALUE",
        CUPTI_ERROR_HARDWARE_BUSY => c"CUPTI_ERROR_HARDWARE_BUSY",
        CUPTI_ERROR_NOT_SUPPORTED => c"CUPTI_ERROR_NOT_SUPPORTED",
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED => c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED",
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE => c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE",
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES => {
            c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES"
        }
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS => c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS",
        CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED => c"CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED",
        CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED => c"CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED",
        CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE => c"CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE",
        CUPTI_ERROR_INSUFFICIENT_PRIVILEGES => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED => c"CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED",
        CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE => c"CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE",
        CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED => c"CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED",
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES => {
            c"CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES"
        }
        CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED => c"CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
        CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED => c"CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED",
        CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED => c"CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED",
        CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED => c"CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED",
        CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED => c"CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED",
        CUPTI_ERROR_INVALID_CHIP_NAME => c"CUPTI_ERROR_INVALID_CHIP_NAME",
        CUPTI_ERROR_UNKNOWN => c"CUPTI_ERROR_UNKNOWN",
        _ => return None,
    })
}

/// What `cuptiGetErrorMessage` answers, in words of our own.
pub const fn result_message(result: CUptiResult) -> Option<&'static CStr> {
    Some(match result {
        CUPTI_SUCCESS => c"no error",
        CUPTI_ERROR_INVALID_PARAMETER => c"a parameter is invalid",
        CUPTI_ERROR_INVALID_DEVICE => c"this is no CUDA device",
        CUPTI_ERROR_INVALID_CONTEXT => c"the context is null or invalid",
        CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID => c"there is no event domain of this number",
        CUPTI_ERROR_INVALID_EVENT_ID => c"there is no event of this number",
        CUPTI_ERROR_INVALID_EVENT_NAME => c"there is no event of this name",
        CUPTI_ERROR_INVALID_OPERATION => c"this cannot be done now, or depends on something that is missing",
        CUPTI_ERROR_OUT_OF_MEMORY => c"there is not enough memory",
        CUPTI_ERROR_HARDWARE => c"the hardware that counts has failed",
        CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT => c"the buffer of a parameter is too small",
        CUPTI_ERROR_API_NOT_IMPLEMENTED => c"this function is not implemented",
        CUPTI_ERROR_MAX_LIMIT_REACHED => c"there are no more of what was asked for",
        CUPTI_ERROR_NOT_READY => c"the objects are not ready yet",
        CUPTI_ERROR_NOT_COMPATIBLE => c"the present state does not allow this",
        CUPTI_ERROR_NOT_INITIALIZED => c"CUPTI, or what it stands on, is not initialised",
        CUPTI_ERROR_INVALID_METRIC_ID => c"there is no metric of this number",
        CUPTI_ERROR_INVALID_METRIC_NAME => c"there is no metric of this name",
        CUPTI_ERROR_QUEUE_EMPTY => c"the queue is empty",
        CUPTI_ERROR_INVALID_HANDLE => c"the handle is invalid",
        CUPTI_ERROR_INVALID_STREAM => c"the stream is invalid",
        CUPTI_ERROR_INVALID_KIND => c"there are no records of this kind",
        CUPTI_ERROR_INVALID_EVENT_VALUE => c"the value of the event is invalid",
        CUPTI_ERROR_DISABLED => c"CUPTI is disabled",
        CUPTI_ERROR_INVALID_MODULE => c"the module is invalid",
        CUPTI_ERROR_INVALID_METRIC_VALUE => c"the value of the metric is invalid",
        CUPTI_ERROR_HARDWARE_BUSY => c"the hardware that counts is in use by others",
        CUPTI_ERROR_NOT_SUPPORTED => c"this is not supported here",
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED => c"managed memory cannot be profiled here",
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE => c"managed memory cannot be profiled on this device",
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES => {
            c"managed memory cannot be profiled on devices without peer access"
        }
        CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS => c"managed memory cannot be profiled under MPS",
        CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED => c"launches from the device cannot be traced here",
        CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED => c"profiling is not supported on a virtual GPU",
        CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE => c"CUPTI and the program's compiler do not fit together",
        CUPTI_ERROR_INSUFFICIENT_PRIVILEGES => c"the user has not the rights that profiling needs",
        CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED => c"the older profiling functions are in use",
        CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE => c"the OpenACC library lacks a routine",
        CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED => c"the older profiling functions do not support this device",
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => c"there is a subscriber already",
        CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES => {
            c"the virtual GPU has not the rights that profiling needs"
        }
        CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED => c"profiling is not supported under confidential computing",
        CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED => c"profiling is not supported on CMP devices",
        CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED => c"profiling is not supported on MIG devices",
        CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED => c"profiling is not supported on SLI devices",
        CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED => c"profiling is not supported under WSL",
        CUPTI_ERROR_INVALID_CHIP_NAME => c"there is no chip of this name",
        CUPTI_ERROR_UNKNOWN => c"an internal error that is not known",
        _ => return None,
    })
}

pub type CUpti_ActivityKind = u32;
pub const CUPTI_ACTIVITY_KIND_MEMCPY: CUpti_ActivityKind = 1;
pub const CUPTI_ACTIVITY_KIND_MEMSET: CUpti_ActivityKind = 2;
pub const CUPTI_ACTIVITY_KIND_KERNEL: CUpti_ActivityKind = 3;
pub const CUPTI_ACTIVITY_KIND_DRIVER: CUpti_ActivityKind = 4;
pub const CUPTI_ACTIVITY_KIND_RUNTIME: CUpti_ActivityKind = 5;
pub const CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: CUpti_ActivityKind = 10;
pub const CUPTI_ACTIVITY_KIND_MARKER: CUpti_ActivityKind = 12;
pub const CUPTI_ACTIVITY_KIND_MARKER_DATA: CUpti_ActivityKind = 13;
pub const CUPTI_ACTIVITY_KIND_OVERHEAD: CUpti_ActivityKind = 17;
pub const CUPTI_ACTIVITY_KIND_MEMCPY2: CUpti_ActivityKind = 22;
pub const CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: CUpti_ActivityKind = 38;
pub const CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: CUpti_ActivityKind = 39;
/// The last kind of CUPTI 13.0.
pub const CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS: CUpti_ActivityKind = 54;

pub const CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: u32 = 1;

pub const CUPTI_API_VERSION: u32 = 130001;

pub const CUPTI_CB_DOMAIN_DRIVER_API: u32 = 1;
pub const CUPTI_CB_DOMAIN_RUNTIME_API: u32 = 2;
pub const CUPTI_CB_DOMAIN_RESOURCE: u32 = 3;
pub const CUPTI_CB_DOMAIN_NVTX: u32 = 5;
pub const CUPTI_CB_DOMAIN_STATE: u32 = 6;
pub const CUPTI_CBID_RESOURCE_CONTEXT_CREATED: u32 = 1;
pub const CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING: u32 = 2;
pub const CUPTI_CBID_RESOURCE_STREAM_CREATED: u32 = 3;
pub const CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING: u32 = 4;
pub const CUPTI_CBID_RESOURCE_GRAPH_CREATED: u32 = 9;
pub const CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING: u32 = 10;
pub const CUPTI_CBID_RESOURCE_GRAPH_CLONED: u32 = 11;
pub const CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED: u32 = 13;
pub const CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING: u32 = 14;
pub const CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED: u32 = 18;
pub const CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING: u32 = 19;
pub const CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED: u32 = 20;
pub const CUPTI_API_ENTER: u32 = 0;
pub const CUPTI_API_EXIT: u32 = 1;

/// What a callback of the domains `DRIVER_API` and `RUNTIME_API` is told.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_CallbackData {
    pub callbackSite: u32,
    pub functionName: *const c_char,
    pub functionParams: *const c_void,
    pub functionReturnValue: *mut c_void,
    pub symbolName: *const c_char,
    pub context: CUcontext,
    pub contextUid: u32,
    pub correlationData: *mut u64,
    pub correlationId: u32,
}

/// What a callback about a graph is told besides.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_GraphData {
    pub graph: CUgraph,
    pub originalGraph: CUgraph,
    pub node: CUgraphNode,
    pub originalNode: CUgraphNode,
    pub nodeType: CUgraphNodeType,
    pub dependency: CUgraphNode,
    pub graphExec: CUgraphExec,
}

/// What a callback of the domain `RESOURCE` is told.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUpti_ResourceData {
    pub context: CUcontext,
    pub stream: CUstream,
    pub resourceDescriptor: *mut c_void,
}

pub const CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN: u32 = 1;
pub const CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0: u32 = 3;
pub const CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2: u32 = 5;

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

/// The size of a record of this kind, if it is one that Orion's records have.
pub const fn record_size(kind: CUpti_ActivityKind) -> Option<usize> {
    Some(match kind {
        CUPTI_ACTIVITY_KIND_MEMCPY => size_of::<CUpti_ActivityMemcpy6>(),
        CUPTI_ACTIVITY_KIND_MEMSET => size_of::<CUpti_ActivityMemset4>(),
        CUPTI_ACTIVITY_KIND_KERNEL | CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => size_of::<CUpti_ActivityKernel10>(),
        CUPTI_ACTIVITY_KIND_MEMCPY2 => size_of::<CUpti_ActivityMemcpyPtoP4>(),
        CUPTI_ACTIVITY_KIND_DRIVER | CUPTI_ACTIVITY_KIND_RUNTIME => size_of::<CUpti_ActivityAPI>(),
        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => size_of::<CUpti_ActivityExternalCorrelation>(),
        _ => return None,
    })
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
