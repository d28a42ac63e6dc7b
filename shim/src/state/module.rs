//! Modules and libraries, with what was found in them.

use crate::state::address_map;
use orion_wire::handle::{Handle, Kind};
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

/// Functions, globals and the modules of a library end with it.
pub fn ended(handle: Handle) -> Vec<Handle> {
    let table = if handle.is(Kind::Module) { &MODULES } else { &LIBRARIES };
    let Some(gone) = table.remove(handle) else { return Vec::new() };
    let functions = std::mem::take(&mut *gone.functions.lock().expect("no panic happens under this lock"));
    let modules = std::mem::take(&mut *gone.modules.lock().expect("no panic happens under this lock"));
    for (base, _) in std::mem::take(&mut *gone.globals.lock().expect("no panic happens under this lock")).values() {
        address_map::remove(*base);
    }
    functions.into_values().chain(modules.into_values()).map(Handle).collect()
}
