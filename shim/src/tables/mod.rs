//! Private tables: what NVIDIA's libraries and Orion's own ask of the driver besides its API.

#![allow(non_snake_case)]

pub mod compile_cache;
pub mod compile_cache_disk;
pub mod integrity;
pub mod nvml;
