//! Modules and their functions and globals.

// UNSAFETY: reads images and names from the application's memory and writes answers to it.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use orion_cuda::sys::*;
use orion_transport::environment;
use orion_wire::handle::{Handle, Kind};

use crate::answer::{code, put, write};
use crate::objects::module::{
    file, find, functions_of, global, load, load_image, name_of, names, unload, write_global,
};
use crate::objects::{image, owner};
use crate::session::device::facts;
use crate::state::jit;

/// # Safety
/// As CUDA's `cuModuleLoadData`.
pub unsafe fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(module, load_image(image)) }
}

/// # Safety
/// As CUDA's `cuModuleLoadFatBinary`.
pub unsafe fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuModuleLoadData(module, image) }
}

/// # Safety
/// As CUDA's `cuModuleLoadDataEx`.
pub unsafe fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    let answer = (|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { image::bytes(image) }?;
        // SAFETY: the caller's promise: two arrays of `count` elements.
        let mut options = unsafe { jit::Options::from_raw(count, options, values) }?;
        load(Kind::Module, &bytes, &owner::of(image, &bytes), &mut options).map(|h| h as CUmodule)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(module, answer) }
}

/// # Safety
/// As CUDA's `cuModuleLoad`.
pub unsafe fn cuModuleLoad(module: *mut CUmodule, name: *const c_char) -> CUresult {
    let answer = (|| {
        // SAFETY: the caller's promise.
        let name = unsafe { name_of(name) }?;
        load(Kind::Module, &file(name)?, &owner::name(name), &mut jit::Options::default()).map(|h| h as CUmodule)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(module, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuModuleUnload(module: CUmodule) -> CUresult {
    let handle = Handle(module as u64);
    if !handle.is(Kind::Module) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unload(handle)
}

/// # Safety
/// As CUDA's `cuModuleGetFunction`.
pub unsafe fn cuModuleGetFunction(f: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }.and_then(|name| find(module as u64, name).map(|h| h as CUfunction));
    // SAFETY: the caller's promise.
    unsafe { write(f, answer) }
}

/// # Safety
/// As CUDA's `cuModuleGetFunctionCount`.
pub unsafe fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(count, names(module as u64).map(|n| n.len() as u32)) }
}

/// # Safety
/// As CUDA's `cuModuleEnumerateFunctions`.
pub unsafe fn cuModuleEnumerateFunctions(out: *mut CUfunction, count: u32, module: CUmodule) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match functions_of(module) {
        Ok(all) => {
            for (i, f) in all.iter().take(count as usize).enumerate() {
                // SAFETY: the caller gave room for `count` handles.
                unsafe { out.add(i).write(*f) };
            }
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuModuleGetGlobal_v2`.
pub unsafe fn cuModuleGetGlobal_v2(
    address: *mut CUdeviceptr,
    size: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }.and_then(|n| global(module as u64, n, false));
    // SAFETY: the caller's promise.
    unsafe { write_global(address, size, answer) }
}

/// Lazy unless the application asks otherwise: a kernel then crosses when it is first used.
pub unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> CUresult {
    static EAGER: OnceLock<bool> = OnceLock::new();
    code(facts().and_then(|_| {
        let eager = *EAGER.get_or_init(|| environment::var_os("CUDA_MODULE_LOADING").is_some_and(|v| v == "EAGER"));
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(mode, if eager { CU_MODULE_EAGER_LOADING } else { CU_MODULE_LAZY_LOADING }) }
    }))
}
