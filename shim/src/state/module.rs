//! Modules and libraries, with what was found in them.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Mutex;

use orion_cuda::sys::*;

use crate::state::table::Table;

/// A `CUmodule` or a `CUlibrary`: the same questions are asked of both.
pub struct Loaded {
    pub handle: u64,
    pub context: u64,
    pub functions: Mutex<HashMap<CString, u64>>,
    /// Address and size by name, and by context for libraries, whose globals exist once a context.
    pub globals: Mutex<HashMap<(CString, u64), (CUdeviceptr, usize)>>,
    /// The module of a library in a context.
    pub modules: Mutex<HashMap<u64, u64>>,
}

pub static MODULES: Table<Loaded> = Table::new();
pub static LIBRARIES: Table<Loaded> = Table::new();
