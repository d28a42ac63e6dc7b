//! Functions by name.

// UNSAFETY: C entry points.

use std::ffi::{c_char, c_int, c_void};

use orion_cuda::sys::*;

use crate::api::{Symbol, api, get, put, put_some, text};

/// Address of a driver function by its exported name, or `None` when the software GPU has no such function.
pub fn symbol(name: &str) -> Option<Symbol> {
    let files = [
        super::array::lookup,
        super::callback::lookup,
        super::capture::lookup,
        super::context::lookup,
        super::copy::lookup,
        super::device::lookup,
        lookup,
        super::error::lookup,
        super::event::lookup,
        super::execution::lookup,
        super::graph::lookup,
        super::green_context::lookup,
        super::host_memory::lookup,
        super::initialization::lookup,
        super::library::lookup,
        super::link::lookup,
        super::log::lookup,
        super::managed::lookup,
        super::memory::lookup,
        super::memset::lookup,
        super::module::lookup,
        super::occupancy::lookup,
        super::peer::lookup,
        super::pointer::lookup,
        super::pool::lookup,
        super::stream::lookup,
        super::stream_memory::lookup,
        super::texture::lookup,
        super::user_object::lookup,
        super::virtual_memory::lookup,
    ];
    files.iter().find_map(|f| f(name))
}

/// What `cuGetProcAddress` answers: names come without their version suffix, and the newest that the caller's CUDA
/// version knew is meant.
pub fn versioned_symbol(name: &str, version: i32) -> Option<Symbol> {
    let newest = match name {
        // The signatures of these changed with CUDA 13, the plain name meaning the new one from then on.
        "cuCtxCreate" if version < 13000 => 2,
        "cuStreamGetCaptureInfo" | "cuGraphAddDependencies" | "cuGraphGetEdges" if version < 12030 => 2,
        _ => 5,
    };
    let suffixed = (2..=newest).rev().find_map(|v| symbol(&format!("{name}_v{v}")));
    suffixed.or_else(|| symbol(name))
}

api! {
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, _flags: cuuint64_t) {
        let hit = versioned_symbol(&text(symbol)?, version);
        put(pfn, hit.unwrap_or(std::ptr::null()).cast_mut())?;
        if hit.is_some() { Ok(()) } else { Err(CUDA_ERROR_NOT_FOUND) }
    }
    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        version: c_int,
        _flags: cuuint64_t,
        status: *mut CUdriverProcAddressQueryResult,
    ) {
        let name = text(symbol)?;
        get(pfn)?;
        let hit = versioned_symbol(&name, version);
        put(pfn, hit.unwrap_or(std::ptr::null()).cast_mut())?;
        let found = if hit.is_some() { CU_GET_PROC_ADDRESS_SUCCESS } else { CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND };
        put_some(status, found);
        if hit.is_some() { Ok(()) } else { Err(CUDA_ERROR_NOT_FOUND) }
    }
}
