//! Arrays, with what they were made from.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;

use crate::state::table::Table;

/// A `CUarray` or a `CUmipmappedArray`, with the levels that were asked for.
pub struct Array {
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub levels: Mutex<HashMap<u32, u64>>,
}

pub static ARRAYS: Table<Array> = Table::new();
pub static MIPMAPPED: Table<Array> = Table::new();
