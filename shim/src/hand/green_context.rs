//! Green contexts: contexts on part of a device's multiprocessors.
//!
//! Each is made together with the `CUcontext` it converts to, so everything about that one is known here. Resources
//! pass through as bytes: the worker knows what it gave out.

// UNSAFETY: reads resources from the application's memory and writes answers to it.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::handles::Table;

pub struct Green {
    /// What it converts to.
    pub context: Handle,
    pub device: CUdevice,
}

pub static GREENS: Table<Green> = Table::new();

/// Descriptors by the resources that they were made of: CUDA has nothing to destroy one with, so equal ones are one.
pub static DESCRIPTORS: Mutex<Option<HashMap<Vec<u8>, u64>>> = Mutex::new(None);
