//! Beginning, end and words.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_char, c_uint};

use crate::library;
use crate::types::*;

/// Does not ask a server, as NVIDIA's does not open a device: whether there is one shows with the first device.
pub unsafe fn nvmlInit_v2() -> nvmlReturn_t {
    library::initialize()
}

pub unsafe fn nvmlInit() -> nvmlReturn_t {
    library::initialize()
}

/// The flags say what may be missing, and whatever they say nothing is asked for here.
pub unsafe fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    library::initialize()
}

pub unsafe fn nvmlShutdown() -> nvmlReturn_t {
    library::shut_down()
}

pub unsafe fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text = match result {
        NVML_SUCCESS => c"Success",
        NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        5 => c"Already Initialized",
        NVML_ERROR_NOT_FOUND => c"Not Found",
        NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        8 => c"Insufficient External Power",
        NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        NVML_ERROR_TIMEOUT => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"Virtual GPU does not support ECC",
        NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        24 => c"Frequency not supported",
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
