//! What local answers need from the modules that talk to the worker.

// UNSAFETY: passes on the application's pointers.

use std::ffi::{c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
#[cfg(test)]
pub use tests::{functions_of, load_image, stream_id};

/// Loads a module image: a fatbin wrapper, a fatbin, a cubin or PTX text.
///
/// # Safety
/// `image` must be one of these.
#[cfg(not(test))]
pub unsafe fn load_image(image: *const c_void) -> Result<CUmodule, CUresult> {
    // SAFETY: passed on from the caller.
    unsafe { crate::hand::module::load_image(image) }
}

/// All functions of a module in the driver's order, each with its name, which lives as long as the module.
#[cfg(not(test))]
pub fn functions_of(module: CUmodule) -> Result<Vec<(CUfunction, *const c_char)>, CUresult> {
    let named = |f: CUfunction| {
        let mut name = std::ptr::null();
        // SAFETY: a valid place.
        match unsafe { crate::api::execution::cuFuncGetName(&mut name, f) } {
            CUDA_SUCCESS => Ok((f, name)),
            code => Err(code),
        }
    };
    crate::hand::module::functions_of(module)?.into_iter().map(named).collect()
}

/// What `cuStreamGetId` answers. The legacy default stream has one id under both its names.
#[cfg(not(test))]
pub fn stream_id(ctx: CUcontext, stream: CUstream) -> Option<u64> {
    crate::hand::stream::stream_id(ctx.addr() as u64, stream)
}

/// The context `handle` is dead: everything this process remembers about its objects is void.
pub fn context_died(handle: u64) {
    crate::hand::address_map::forget_context(handle);
    crate::poison::forget(handle);
    crate::handles::release_all_in(handle);
    crate::hand::array::context_ended(handle);
}

/// An object is gone, and what is known of it. Answers what lived in it and goes with it.
pub fn object_ended(kind: Kind, handle: Handle) -> Vec<Handle> {
    match kind {
        Kind::Module | Kind::Library => return crate::hand::module::ended(handle),
        Kind::Array | Kind::MipmappedArray => return crate::hand::array::ended(kind, handle),
        Kind::Function => crate::hand::execution::ended(handle),
        Kind::Stream => crate::hand::stream::ended(handle),
        Kind::Event => crate::hand::event::ended(handle),
        Kind::LinkState => crate::hand::link::ended(handle),
        _ => {}
    }
    Vec::new()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The only module there is.
    pub const MODULE: usize = 0x1234;

    pub unsafe fn load_image(_image: *const c_void) -> Result<CUmodule, CUresult> {
        Ok(std::ptr::without_provenance_mut(MODULE))
    }

    pub fn functions_of(module: CUmodule) -> Result<Vec<(CUfunction, *const c_char)>, CUresult> {
        if module.addr() != MODULE {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let function = std::ptr::without_provenance_mut;
        Ok(vec![(function(0x10), c"alpha".as_ptr()), (function(0x20), c"beta".as_ptr())])
    }

    pub fn stream_id(_ctx: CUcontext, stream: CUstream) -> Option<u64> {
        Some(stream.addr() as u64 + 6)
    }
}
