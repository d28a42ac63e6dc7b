//! Libraries and kernels.

// UNSAFETY: reads images and names from the application's memory and writes answers to it.

use std::ffi::{c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};

use crate::answer::write;
use crate::api::execution::{cuFuncGetName, cuFuncGetParamInfo};
use crate::objects::function::{function, set_cache_config};
use crate::objects::module::{file, find, global, load, module_of, name_of, names, unload, write_global};
use crate::objects::{image, owner};
use crate::session::attached::session;
use crate::session::context::current_active;
use crate::session::device;
use crate::state::jit;

/// # Safety
/// As CUDA's `cuKernelGetAttribute`.
pub unsafe fn cuKernelGetAttribute(
    pi: *mut i32,
    id: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let answer = (|| {
        session()?;
        device::exists(device)?;
        function(kernel.cast())?.attribute(id, device as u32)
    })();
    // SAFETY: null or valid for a write.
    unsafe { write(pi, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuKernelSetAttribute(
    id: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    match (session(), function(kernel.cast())) {
        (Err(code), _) | (_, Err(code)) => code,
        (Ok(_), Ok(f)) => match device::exists(device) {
            Ok(()) => f.set_attribute(id, value, device as u32),
            Err(code) => code,
        },
    }
}

/// # Safety
/// As CUDA's `cuKernelGetName`.
pub unsafe fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetName(name, kernel.cast()) }
}

/// A kernel belongs to no context, and CUDA asks for a current one all the same.
///
/// # Safety
/// As CUDA's `cuKernelGetParamInfo`.
pub unsafe fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) -> CUresult {
    if let Err(code) = current_active() {
        return code;
    }
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetParamInfo(kernel.cast(), index, offset, size) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) -> CUresult {
    match session() {
        Ok(_) if device::exists(device).is_err() => CUDA_ERROR_INVALID_DEVICE,
        Ok(_) => set_cache_config(kernel.cast(), config, device as u32),
        Err(code) => code,
    }
}

/// A kernel handle serves as function handle too, as with the driver.
///
/// # Safety
/// As CUDA's `cuKernelGetFunction`.
pub unsafe fn cuKernelGetFunction(f: *mut CUfunction, kernel: CUkernel) -> CUresult {
    let answer = (|| {
        session()?;
        function(kernel.cast()).map(|k| k.handle as CUfunction)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(f, answer) }
}

/// # Safety
/// As CUDA's `cuKernelGetLibrary`.
pub unsafe fn cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) -> CUresult {
    let answer = function(kernel.cast()).and_then(|f| match Handle(f.owner).is(Kind::Library) {
        true => Ok(f.owner as CUlibrary),
        false => Err(CUDA_ERROR_INVALID_HANDLE),
    });
    // SAFETY: the caller's promise.
    unsafe { write(library, answer) }
}

/// Library options are advice about the application's own copy of the image; the worker keeps a copy anyway.
///
/// # Safety
/// As CUDA's `cuLibraryLoadData`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuLibraryLoadData(
    library: *mut CUlibrary,
    code: *const c_void,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: u32,
) -> CUresult {
    let answer = (|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { image::bytes(code) }?;
        // SAFETY: the caller's promise: two arrays of `jit_count` elements.
        let mut options = unsafe { jit::Options::from_raw(jit_count, jit_options, jit_values) }?;
        load(Kind::Library, &bytes, &owner::of(code, &bytes), &mut options).map(|h| h as CUlibrary)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(library, answer) }
}

/// # Safety
/// As CUDA's `cuLibraryLoadFromFile`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuLibraryLoadFromFile(
    library: *mut CUlibrary,
    name: *const c_char,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: u32,
) -> CUresult {
    let answer = (|| {
        // SAFETY: the caller's promise.
        let name = unsafe { name_of(name) }?;
        let bytes = file(name)?;
        // SAFETY: the caller's promise: two arrays of `jit_count` elements.
        let mut options = unsafe { jit::Options::from_raw(jit_count, jit_options, jit_values) }?;
        load(Kind::Library, &bytes, &owner::name(name), &mut options).map(|h| h as CUlibrary)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(library, answer) }
}

/// # Safety
/// As CUDA's `cuLibraryGetManaged`.
pub unsafe fn cuLibraryGetManaged(
    address: *mut CUdeviceptr,
    size: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }.and_then(|n| global(library as u64, n, true));
    // SAFETY: the caller's promise.
    unsafe { write_global(address, size, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuLibraryUnload(library: CUlibrary) -> CUresult {
    let handle = Handle(library as u64);
    if !handle.is(Kind::Library) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unload(handle)
}

/// # Safety
/// As CUDA's `cuLibraryGetKernel`.
pub unsafe fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }.and_then(|name| find(library as u64, name).map(|h| h as CUkernel));
    // SAFETY: the caller's promise.
    unsafe { write(kernel, answer) }
}

/// # Safety
/// As CUDA's `cuLibraryGetKernelCount`.
pub unsafe fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(count, names(library as u64).map(|n| n.len() as u32)) }
}

/// # Safety
/// As CUDA's `cuLibraryEnumerateKernels`.
pub unsafe fn cuLibraryEnumerateKernels(out: *mut CUkernel, count: u32, library: CUlibrary) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let all = names(library as u64).and_then(|names| {
        let found = names.iter().take(count as usize);
        found.map(|n| find(library as u64, n)).collect::<Result<Vec<_>, _>>()
    });
    match all {
        Ok(all) => {
            for (i, k) in all.iter().enumerate() {
                // SAFETY: the caller gave room for `count` handles, and no more were taken.
                unsafe { out.add(i).write(*k as CUkernel) };
            }
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuLibraryGetModule`.
pub unsafe fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(module, module_of(library as u64)) }
}

/// # Safety
/// As CUDA's `cuLibraryGetGlobal`.
pub unsafe fn cuLibraryGetGlobal(
    address: *mut CUdeviceptr,
    size: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }.and_then(|n| global(library as u64, n, false));
    // SAFETY: the caller's promise.
    unsafe { write_global(address, size, answer) }
}
