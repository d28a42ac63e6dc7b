//! Functions answered from what this process knows.
//!
//! All of them take what `cuda.h` says and ask of their pointers what it says: null, or valid for the access the
//! function is for. Null is refused where the driver refuses it, and also where the driver would crash.
//!
//! Result codes and their order (null pointer, initialisation, device, context) were compared with driver 580.159.

// UNSAFETY: reads and writes through the application's pointers.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod bridge;
mod compile_cache;
mod compile_cache_disk;
pub mod context;
mod context_wire;
pub mod device;
pub mod error;
pub mod export_table;
mod fork;
mod integrity;
pub mod logs;
mod nvml;
pub mod pointer;
pub mod proc_address;
pub mod profiler;
pub mod refuse;
mod storage;
mod visible;

pub use fork::{in_forked_child, register_fork_handler};

use orion_cuda::sys::{CUDA_SUCCESS, CUresult};

/// The `CUresult` of a function whose body is easier to write with `?`.
#[inline]
fn code(result: Result<(), CUresult>) -> CUresult {
    match result {
        Ok(()) => CUDA_SUCCESS,
        Err(code) => code,
    }
}
