//! Green contexts and the descriptors of their resources.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::state::table::Table;

pub struct Green {
    /// What it converts to.
    pub context: Handle,
    pub device: CUdevice,
}

pub static GREENS: Table<Green> = Table::new();

/// Descriptors by the resources that they were made of: CUDA has nothing to destroy one with, so equal ones are one.
pub static DESCRIPTORS: Mutex<Option<HashMap<Vec<u8>, u64>>> = Mutex::new(None);
