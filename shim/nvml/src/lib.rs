//! Orion's `libnvidia-ml.so.1`: what programs ask about their GPUs before and beside CUDA.
//!
//! TensorFlow, JAX and others show no GPU without this library. The devices are those of the process's session, as its
//! `libcuda.so.1` knows them. What NVML tells beyond that (clocks, temperatures, links, processes, settings) is not
//! known here: those functions are there and answer that they are not supported, as NVIDIA's do for what a GPU has not.

// UNSAFETY: a C ABI; what each function asks of its caller is in NVIDIA's documentation.

#![allow(non_snake_case, non_camel_case_types, clippy::missing_safety_doc)]

mod answers;
mod generated;
mod library;
mod types;

/// Tells this library from NVIDIA's, as the shim's does.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of the library, not a constant of the program")]
pub static orion_shim_marker: u8 = 1;
