//! Modules and libraries, with what was found in them.

use std::collections::HashMap;
use std::ffi::CString;

use orion_cuda::sys::*;

use crate::state::lock::Lock;
use crate::state::table::Table;

/// A `CUmodule` or a `CUlibrary`: the same questions are asked of both.
pub struct Loaded {
    pub handle: u64,
    pub context: u64,
    pub functions: Lock<HashMap<CString, u64>>,
    /// Address and size by name, and by context for libraries, whose globals exist once a context.
    pub globals: Lock<HashMap<(CString, u64), (CUdeviceptr, usize)>>,
    /// The module of a library in a context.
    pub modules: Lock<HashMap<u64, u64>>,
}

pub struct Modules {
    pub modules: Table<Loaded>,
    pub libraries: Table<Loaded>,
}

impl Modules {
    pub const fn new() -> Modules {
        Modules { modules: Table::new(), libraries: Table::new() }
    }
}
