//! Functions answered from what this process knows.
//!
//! All of them take what `cuda.h` says and ask of their pointers what it says: null, or valid for the access the
//! function is for. Null is refused where the driver refuses it, and also where the driver would crash.
//!
//! Result codes and their order (null pointer, initialisation, device, context) were compared with driver 580.159.

// UNSAFETY: reads and writes through the application's pointers.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod bridge;
pub mod compile_cache;
mod compile_cache_disk;
pub mod context;
pub mod context_wire;
pub mod device;
pub mod fork;
pub mod integrity;
pub mod logs;
pub mod nvml;
pub mod refuse;
pub mod storage;
mod visible;

use orion_cuda::sys::{CUDA_SUCCESS, CUresult};

/// The `CUresult` of a function whose body is easier to write with `?`.
#[inline]
pub fn code(result: Result<(), CUresult>) -> CUresult {
    match result {
        Ok(()) => CUDA_SUCCESS,
        Err(code) => code,
    }
}
