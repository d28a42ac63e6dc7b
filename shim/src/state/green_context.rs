//! Green contexts and the descriptors of their resources.

use std::collections::HashMap;

use orion_cuda::sys::*;
use orion_wire::handle::Handle;
use orion_wire::message::green_context::RESOURCE_BYTES;

use crate::state::lock::{Lock, Rank};
use crate::state::table::Table;

pub struct Green {
    /// What it converts to.
    pub context: Handle,
    pub device: CUdevice,
}

pub struct GreenContexts {
    pub table: Table<Green>,
    /// Descriptors by the resources that they were made of: CUDA has nothing to destroy one with, so equal ones are
    /// one.
    pub descriptors: Lock<Option<HashMap<Vec<[u8; RESOURCE_BYTES]>, u64>>>,
}

impl GreenContexts {
    pub const fn new() -> GreenContexts {
        GreenContexts { table: Table::new(), descriptors: Lock::new(Rank::Objects, None) }
    }
}
