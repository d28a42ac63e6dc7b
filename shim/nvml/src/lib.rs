//! Orion's `libnvidia-ml.so.1`: what programs ask about their GPUs before and beside CUDA.
//!
//! TensorFlow, JAX and others show no GPU without this library, and `nvidia-smi` and its kin show what it says. Nothing
//! is known here: the process's `libcuda.so.1` is asked, which knows its session's devices, and without a session asks
//! oriond's door what one would have and which of the user's programs run (`orion_wire::view`). What is the host's
//! (clocks, temperatures, links, settings) is not told: those functions are there and answer that they are not
//! supported, as NVIDIA's do for what a GPU has not. README.md says what a user sees.

// UNSAFETY: a C ABI; what each function asks of its caller is in NVIDIA's documentation.

#![allow(non_snake_case, non_camel_case_types, clippy::missing_safety_doc)]

mod answers;
mod arguments;
mod generated;
mod library;
mod types;

/// Tells this library from NVIDIA's, as the shim's does.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of the library, not a constant of the program")]
pub static orion_shim_marker: u8 = 1;
