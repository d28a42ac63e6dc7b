//! The CUDA driver API as data: types and constants of CUDA 13.0's `cuda.h`, and error names.
//!
//! `sys` holds layouts and signatures only. C enumerations are plain integers, because a newer driver or
//! a peer may send any value.

#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all, unsafe_op_in_unsafe_fn)]
#[rustfmt::skip]
pub mod sys;

#[allow(non_camel_case_types, non_snake_case)]
pub mod cupti;
#[allow(non_snake_case)]
pub mod cupti_table;
pub mod driver;
pub mod find;
pub mod names;
pub mod nvml_table;

/// What the software GPU calls itself, by which both ends know it.
pub const SOFTWARE_GPU: &str = "Orion software GPU";
