//! Orion's `libcupti.so.13`: what NVIDIA's library exports under this name, answered by Orion's `libcuda.so.1`.
//!
//! It is preloaded into programs that mostly do not use it, so it does nothing of its own before its first call: no
//! libcuda, no allocation. NVIDIA's own library cannot work here, because it looks inside of NVIDIA's driver.

// UNSAFETY: a C ABI that is passed on as it is; what each function asks of its caller is in NVIDIA's documentation.

#![allow(non_snake_case, non_upper_case_globals, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use orion_cuda::cupti::{CUPTI_ERROR_NOT_SUPPORTED, CUpti_ActivityKind, CUptiResult};
use orion_cuda::cupti_table::*;
use orion_cuda::sys::{CUDA_SUCCESS, CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUuuid};

/// How a worker that looks for NVIDIA's library knows this one.
#[unsafe(no_mangle)]
pub static orion_shim_marker: u8 = 1;

static TABLE: AtomicPtr<Functions> = AtomicPtr::new(std::ptr::null_mut());
static NONE: AtomicBool = AtomicBool::new(false);

/// Orion's table, or nothing if the program's libcuda is somebody else's.
fn table() -> Option<&'static Functions> {
    let known = TABLE.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: stored below, and static.
        return Some(unsafe { &*known });
    }
    if NONE.load(Ordering::Relaxed) {
        return None;
    }
    match find() {
        Ok(found) => {
            TABLE.store(std::ptr::from_ref(found).cast_mut(), Ordering::Release);
            Some(found)
        }
        Err(why) => {
            if !NONE.swap(true, Ordering::Relaxed) {
                for part in ["orion: CUPTI does not work: ", why, "\n"] {
                    // Not the standard library's: nothing of it would be in this library but for that.
                    // SAFETY: as many bytes as there are.
                    unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
                }
            }
            None
        }
    }
}

fn find() -> Result<&'static Functions, &'static str> {
    type GetExportTable = unsafe extern "C" fn(*mut *const c_void, *const CUuuid) -> CUresult;
    let open = |flags: c_int| {
        // SAFETY: a C string. What is loaded by this name is a driver, which programs load and keep.
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) }
    };
    let mut library = open(libc::RTLD_NOW | libc::RTLD_NOLOAD);
    if library.is_null() {
        library = open(libc::RTLD_NOW);
    }
    if library.is_null() {
        return Err("there is no libcuda.so.1");
    }
    // SAFETY: a library that was just opened and is never closed.
    let function = unsafe { libc::dlsym(library, c"cuGetExportTable".as_ptr()) };
    if function.is_null() {
        return Err("libcuda.so.1 has no cuGetExportTable");
    }
    // SAFETY: a function of this name has this signature.
    let get: GetExportTable = unsafe { std::mem::transmute(function) };
    let mut table = std::ptr::null();
    // SAFETY: a valid place, and sixteen bytes.
    let result = unsafe { get(&mut table, TABLE_ID.as_ptr().cast()) };
    if result != CUDA_SUCCESS || table.is_null() {
        return Err("this libcuda.so.1 is not Orion's; without orion-run the program has NVIDIA's CUPTI");
    }
    // SAFETY: a table of this name is Orion's, and begins with its size.
    if unsafe { table.cast::<usize>().read() } != size_of::<Functions>() {
        return Err("libcupti.so.13 and libcuda.so.1 are of different versions of Orion");
    }
    // SAFETY: of this layout, and static.
    Ok(unsafe { &*table.cast() })
}

/// # Safety
/// `name` must be a C string that stays.
unsafe fn refused(name: *const c_char) -> CUptiResult {
    // SAFETY: the caller's promise.
    table().map_or(CUPTI_ERROR_NOT_SUPPORTED, |t| unsafe { (t.refused)(name) })
}

macro_rules! served {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUptiResult {
            // SAFETY: the caller's promises are the same.
            table().map_or(CUPTI_ERROR_NOT_SUPPORTED, |t| unsafe { (t.$name)($($parameter),*) })
        })*
    };
}
orion_cuda::cupti_functions!(served);

macro_rules! not_served {
    ($($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUptiResult {
            // SAFETY: a literal.
            unsafe { refused(concat!(stringify!($name), "\0").as_ptr().cast()) }
        })*
    };
}

// The rest of what CUPTI 13.0 exports.
not_served! {
    cuptiActivityConfigurePCSampling
    cuptiActivityConfigureUnifiedMemoryCounter
    cuptiActivityDisableContext
    cuptiActivityEnableAllSyncRecords
    cuptiActivityEnableAllocationSource
    cuptiActivityEnableAndDump
    cuptiActivityEnableBufferSummary
    cuptiActivityEnableContext
    cuptiActivityEnableDeviceGraph
    cuptiActivityEnableHWTrace
    cuptiActivityEnableLatencyTimestamps
    cuptiActivityEnableLaunchAttributes
    cuptiActivityEnableRawTimestamps
    cuptiActivityFlush
    cuptiActivityGetNvtxExtPayloadAttr
    cuptiActivityGetNvtxExtPayloadEntryTypeInfo
    cuptiComputeCapabilitySupported
    cuptiDeviceEnumEventDomains
    cuptiDeviceEnumMetrics
    cuptiDeviceGetAttribute
    cuptiDeviceGetChipName
    cuptiDeviceGetEventDomainAttribute
    cuptiDeviceGetNumEventDomains
    cuptiDeviceGetNumMetrics
    cuptiDeviceSupported
    cuptiDeviceVirtualizationMode
    cuptiDisableKernelReplayMode
    cuptiDisableLibcuda
    cuptiEnableCigMode
    cuptiEnableKernelReplayMode
    cuptiEnumEventDomains
    cuptiEnumMetrics
    cuptiEventDomainEnumEvents
    cuptiEventDomainGetAttribute
    cuptiEventDomainGetNumEvents
    cuptiEventGetAttribute
    cuptiEventGetIdFromName
    cuptiEventGroupAddEvent
    cuptiEventGroupCreate
    cuptiEventGroupDestroy
    cuptiEventGroupDisable
    cuptiEventGroupEnable
    cuptiEventGroupGetAttribute
    cuptiEventGroupReadAllEvents
    cuptiEventGroupReadEvent
    cuptiEventGroupRemoveAllEvents
    cuptiEventGroupRemoveEvent
    cuptiEventGroupResetAllEvents
    cuptiEventGroupSetAttribute
    cuptiEventGroupSetDisable
    cuptiEventGroupSetEnable
    cuptiEventGroupSetsCreate
    cuptiEventGroupSetsDestroy
    cuptiGetAutoBoostState
    cuptiGetCallbackState
    cuptiGetContextId
    cuptiGetCubinCrc
    cuptiGetGlobalCallbackState
    cuptiGetNumContexts
    cuptiGetNumEventDomains
    cuptiGetNumMetrics
    cuptiGetRecommendedBufferSize
    cuptiGetSassToSourceCorrelation
    cuptiGetStreamId
    cuptiGetStreamIdEx
    cuptiKernelReplaySubscribeUpdate
    cuptiMetricCreateEventGroupSets
    cuptiMetricEnumEvents
    cuptiMetricEnumProperties
    cuptiMetricGetAttribute
    cuptiMetricGetIdFromName
    cuptiMetricGetNumEvents
    cuptiMetricGetNumProperties
    cuptiMetricGetRequiredEventGroupSets
    cuptiMetricGetValue
    cuptiMetricGetValue2
    cuptiNvtxExtensionInitialize
    cuptiNvtxInitialize
    cuptiNvtxInitialize2
    cuptiOpenACCInitialize
    cuptiOpenMpInitialize
    cuptiOpenMpInitialize_v2
    cuptiPCSamplingDisable
    cuptiPCSamplingEnable
    cuptiPCSamplingGetConfigurationAttribute
    cuptiPCSamplingGetData
    cuptiPCSamplingGetNumStallReasons
    cuptiPCSamplingGetStallReasons
    cuptiPCSamplingSetConfigurationAttribute
    cuptiPCSamplingStart
    cuptiPCSamplingStop
    cuptiPmSamplingCounterDataGetSampleInfo
    cuptiPmSamplingCounterDataImageInitialize
    cuptiPmSamplingDecodeData
    cuptiPmSamplingDisable
    cuptiPmSamplingEnable
    cuptiPmSamplingGetCounterAvailability
    cuptiPmSamplingGetCounterDataInfo
    cuptiPmSamplingGetCounterDataSize
    cuptiPmSamplingSetConfig
    cuptiPmSamplingStart
    cuptiPmSamplingStop
    cuptiProfilerBeginPass
    cuptiProfilerBeginSession
    cuptiProfilerCounterDataImageCalculateScratchBufferSize
    cuptiProfilerCounterDataImageCalculateSize
    cuptiProfilerCounterDataImageInitialize
    cuptiProfilerCounterDataImageInitializeScratchBuffer
    cuptiProfilerDeInitialize
    cuptiProfilerDeviceSupported
    cuptiProfilerDisableProfiling
    cuptiProfilerEnableProfiling
    cuptiProfilerEndPass
    cuptiProfilerEndSession
    cuptiProfilerFlushCounterData
    cuptiProfilerGetCounterAvailability
    cuptiProfilerHostConfigAddMetrics
    cuptiProfilerHostDeinitialize
    cuptiProfilerHostEvaluateToGpuValues
    cuptiProfilerHostGetBaseMetrics
    cuptiProfilerHostGetConfigImage
    cuptiProfilerHostGetConfigImageSize
    cuptiProfilerHostGetMaxNumHardwareMetricsPerPass
    cuptiProfilerHostGetMetricProperties
    cuptiProfilerHostGetNumOfPasses
    cuptiProfilerHostGetRangeName
    cuptiProfilerHostGetSubMetrics
    cuptiProfilerHostGetSupportedChips
    cuptiProfilerHostInitialize
    cuptiProfilerInitialize
    cuptiProfilerIsPassCollected
    cuptiProfilerPopRange
    cuptiProfilerPushRange
    cuptiProfilerSetConfig
    cuptiProfilerUnsetConfig
    cuptiRangeProfilerCounterDataGetRangeInfo
    cuptiRangeProfilerCounterDataImageInitialize
    cuptiRangeProfilerDecodeData
    cuptiRangeProfilerDisable
    cuptiRangeProfilerEnable
    cuptiRangeProfilerGetCounterDataInfo
    cuptiRangeProfilerGetCounterDataSize
    cuptiRangeProfilerPopRange
    cuptiRangeProfilerPushRange
    cuptiRangeProfilerSetConfig
    cuptiRangeProfilerStart
    cuptiRangeProfilerStop
    cuptiRegisterComputeCrcCallback
    cuptiSassMetricsDisable
    cuptiSassMetricsEnable
    cuptiSassMetricsFlushData
    cuptiSassMetricsGetDataProperties
    cuptiSassMetricsGetMetrics
    cuptiSassMetricsGetNumOfMetrics
    cuptiSassMetricsGetProperties
    cuptiSassMetricsSetConfig
    cuptiSassMetricsUnsetConfig
    cuptiSetEventCollectionMode
    cuptiStateQuery
    cuptiSubscribe_v2
}
