//! Modules, libraries, kernels and their globals.

// UNSAFETY: reads images and names from the application's memory and writes answers to it.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Mutex;

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::{Fault, Reader, Writer};

use super::execution::{FUNCTIONS, Function, function, write};
use super::jit;
use super::payload::Payload;
use super::{address_map, image};
use crate::call::{call, call_any, poison, post};
use crate::handles::{self, Table};
use crate::local::{context, device, refuse};
use crate::session::session;

/// A `CUmodule` or a `CUlibrary`: the same questions are asked of both.
struct Loaded {
    handle: u64,
    context: u64,
    functions: Mutex<HashMap<CString, u64>>,
    /// Address and size by name, and by context for libraries, whose globals exist once a context.
    globals: Mutex<HashMap<(CString, u64), (CUdeviceptr, usize)>>,
    /// The module of a library in a context.
    modules: Mutex<HashMap<u64, u64>>,
}

static MODULES: Table<Loaded> = Table::new();
static LIBRARIES: Table<Loaded> = Table::new();

fn loaded(handle: u64) -> Result<&'static Loaded, CUresult> {
    let handle = Handle(handle);
    let found = if handle.is(Kind::Module) {
        MODULES.get(handle)
    } else if handle.is(Kind::Library) {
        LIBRARIES.get(handle)
    } else {
        None
    };
    found.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn remember(handle: Handle, context: u64) {
    let table = if handle.is(Kind::Module) { &MODULES } else { &LIBRARIES };
    table.insert(
        handle,
        Loaded {
            handle: handle.0,
            context,
            functions: Mutex::default(),
            globals: Mutex::default(),
            modules: Mutex::default(),
        },
    );
}

/// The name behind a pointer.
///
/// # Safety
/// `name` is null or NUL-terminated.
unsafe fn name_of(name: *const c_char) -> Result<&'static CStr, CUresult> {
    if name.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and NUL-terminated by the contract; only used during the call.
    Ok(unsafe { CStr::from_ptr(name) })
}

/// Loads an image as a module (needs a context) or as a library (does not).
fn load(kind: Kind, image: &[u8], options: &mut jit::Options) -> Result<u64, CUresult> {
    let s = session()?;
    if kind == Kind::Module && context::current() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let op = if kind == Kind::Module { ops::CU_MODULE_LOAD_DATA_EX } else { ops::CU_LIBRARY_LOAD_DATA };
    let payload = Payload::new(s, image)?;
    let handle = handles::reserve_in(kind, if kind == Kind::Module { context::current_home() } else { 0 });
    let result = call_any(
        op,
        |w| {
            w.word(handle.0);
            payload.encode(w);
            options.encode(w);
        },
        |result, r| {
            // The logs come back whatever the result is.
            if !r.is_empty() {
                options.absorb(r)?;
            }
            Ok(result)
        },
    );
    match result {
        Ok(CUDA_SUCCESS) => {
            remember(handle, context::current_home());
            Ok(handle.0)
        }
        Ok(code) | Err(code) => {
            handles::release(handle);
            Err(code)
        }
    }
}

/// Loads what a private entry of the runtime's table passes: an image, as a module.
///
/// # Safety
/// `image` is an image in one of CUDA's formats.
pub unsafe fn load_image(image: *const c_void) -> Result<CUmodule, CUresult> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { image::bytes(image) }?;
    load(Kind::Module, &bytes, &mut jit::Options::default()).map(|h| h as CUmodule)
}

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
        load(Kind::Module, &bytes, &mut options).map(|h| h as CUmodule)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(module, answer) }
}

/// The file is read here, where the application sees it.
fn file(name: &CStr) -> Result<Vec<u8>, CUresult> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let mut bytes = std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    // A wrapper is pointers, which lead nowhere in a file.
    if bytes.starts_with(&image::WRAPPER_MAGIC.to_le_bytes()) {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    // PTX in a file has no NUL at its end.
    bytes.push(0);
    Ok(bytes)
}

/// # Safety
/// As CUDA's `cuModuleLoad`.
pub unsafe fn cuModuleLoad(module: *mut CUmodule, name: *const c_char) -> CUresult {
    let answer = (|| {
        // SAFETY: the caller's promise.
        let bytes = file(unsafe { name_of(name) }?)?;
        load(Kind::Module, &bytes, &mut jit::Options::default()).map(|h| h as CUmodule)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(module, answer) }
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
        load(Kind::Library, &bytes, &mut options).map(|h| h as CUlibrary)
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
        let bytes = file(unsafe { name_of(name) }?)?;
        // SAFETY: the caller's promise: two arrays of `jit_count` elements.
        let mut options = unsafe { jit::Options::from_raw(jit_count, jit_options, jit_values) }?;
        load(Kind::Library, &bytes, &mut options).map(|h| h as CUlibrary)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(library, answer) }
}

/// The runtime asks for a program's `__managed__` variables before its first kernel, and ignores what it is answered:
/// the kernel would run, on a variable that the host does not see, and the host would follow a null pointer. So this
/// ends the context, and the launch is what fails.
///
/// # Safety
/// As CUDA's `cuLibraryGetManaged`.
pub unsafe fn cuLibraryGetManaged(
    dptr: *mut CUdeviceptr,
    _bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    let answer = (|| {
        loaded(library as u64)?;
        // SAFETY: the caller's promise.
        let name = unsafe { name_of(name) }?.to_string_lossy();
        refuse::refused(
            "cuLibraryGetManaged",
            &format!(
                "{name} is a __managed__ variable, and managed memory needs page faults shared between this host and \
                 the GPU; use a __device__ variable and cudaMemcpyToSymbol"
            ),
        );
        match context::current() {
            // It asks before it has made a context its own, and will use a device's primary one.
            0 => (0..device::count(session()?))
                .for_each(|d| poison::end(Handle::primary_context(d).0, CUDA_ERROR_NOT_SUPPORTED)),
            current => poison::end(current, CUDA_ERROR_NOT_SUPPORTED),
        }
        Err(CUDA_ERROR_NOT_SUPPORTED)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(dptr, answer) }
}

/// Functions, globals and the modules of a library end with it.
pub fn ended(handle: Handle) {
    let table = if handle.is(Kind::Module) { &MODULES } else { &LIBRARIES };
    let Some(gone) = table.remove(handle) else { return };
    let functions = std::mem::take(&mut *gone.functions.lock().expect("no panic happens under this lock"));
    let modules = std::mem::take(&mut *gone.modules.lock().expect("no panic happens under this lock"));
    for inside in functions.into_values().chain(modules.into_values()) {
        handles::release(Handle(inside));
    }
    for (base, _) in std::mem::take(&mut *gone.globals.lock().expect("no panic happens under this lock")).values() {
        address_map::remove(*base);
    }
}

fn unload(handle: Handle, op: u16) -> CUresult {
    if let Err(code) = loaded(handle.0) {
        return code;
    }
    let result = post(op, |w| w.word(handle.0));
    handles::release(handle);
    result
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuModuleUnload(module: CUmodule) -> CUresult {
    let handle = Handle(module as u64);
    if !handle.is(Kind::Module) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unload(handle, ops::CU_MODULE_UNLOAD)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuLibraryUnload(library: CUlibrary) -> CUresult {
    let handle = Handle(library as u64);
    if !handle.is(Kind::Library) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unload(handle, ops::CU_LIBRARY_UNLOAD)
}

/// The most bytes that a kernel's parameters have.
const PARAMETER_BYTES_MAX: u64 = 32_764;

/// Offset and size of each parameter. They decide what is read of the application's memory, and how much room it needs.
pub fn layout(r: &mut Reader<'_>, count_max: usize) -> Result<Vec<(u32, u32)>, Fault> {
    r.list(count_max, |r| {
        let word = r.word()?;
        let (offset, size) = (word >> 32, word & 0xffff_ffff);
        if offset + size > PARAMETER_BYTES_MAX {
            return Err(Fault("a kernel's parameter lies outside of what a kernel can have"));
        }
        Ok((offset as u32, size as u32))
    })
}

/// A function or kernel by name; the same handle each time, with its parameter layout.
fn find(owner: u64, name: &CStr, op: u16) -> Result<u64, CUresult> {
    let owner = loaded(owner)?;
    if let Some(known) = owner.functions.lock().expect("no panic happens under this lock").get(name) {
        return Ok(*known);
    }
    let handle = handles::reserve(Kind::Function);
    let answer = call(
        op,
        |w| {
            w.word(owner.handle);
            w.word(handle.0);
            w.bytes(name.to_bytes());
        },
        |r| layout(r, 4096),
    );
    let layout = match answer {
        Ok(layout) => layout,
        Err(code) => {
            handles::release(handle);
            return Err(code);
        }
    };
    let is_kernel = Handle(owner.handle).is(Kind::Library);
    let mut functions = owner.functions.lock().expect("no panic happens under this lock");
    // Two threads may have asked at once: the first answer stays, because handles are compared.
    let first = *functions.entry(name.to_owned()).or_insert(handle.0);
    if first == handle.0 {
        FUNCTIONS.insert(handle, Function::new(handle, name.to_owned(), owner.handle, is_kernel, layout));
    } else {
        // The worker knows the other one too, so it stays reserved until the module ends.
        functions.insert(CString::default(), handle.0);
    }
    Ok(first)
}

/// # Safety
/// As CUDA's `cuModuleGetFunction`.
pub unsafe fn cuModuleGetFunction(f: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }
        .and_then(|name| find(module as u64, name, ops::CU_MODULE_GET_FUNCTION).map(|h| h as CUfunction));
    // SAFETY: the caller's promise.
    unsafe { write(f, answer) }
}

/// # Safety
/// As CUDA's `cuLibraryGetKernel`.
pub unsafe fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> CUresult {
    // SAFETY: the caller's promise.
    let answer = unsafe { name_of(name) }
        .and_then(|name| find(library as u64, name, ops::CU_LIBRARY_GET_KERNEL).map(|h| h as CUkernel));
    // SAFETY: the caller's promise.
    unsafe { write(kernel, answer) }
}

/// The names of all functions, asked of the worker.
fn names(owner: u64, op: u16) -> Result<Vec<CString>, CUresult> {
    loaded(owner)?;
    call(
        op,
        |w| w.word(owner),
        |r| r.list(1 << 20, |r| CString::new(r.bytes()?).map_err(|_| Fault("function name holds a NUL"))),
    )
}

/// Every function of a module, found by name.
pub fn functions_of(module: CUmodule) -> Result<Vec<CUfunction>, CUresult> {
    let names = names(module as u64, ops::CU_MODULE_ENUMERATE_FUNCTIONS)?;
    names.iter().map(|name| find(module as u64, name, ops::CU_MODULE_GET_FUNCTION).map(|h| h as CUfunction)).collect()
}

/// # Safety
/// As CUDA's `cuModuleGetFunctionCount`.
pub unsafe fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(count, names(module as u64, ops::CU_MODULE_ENUMERATE_FUNCTIONS).map(|n| n.len() as u32)) }
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
/// As CUDA's `cuLibraryGetKernelCount`.
pub unsafe fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(count, names(library as u64, ops::CU_LIBRARY_ENUMERATE_KERNELS).map(|n| n.len() as u32)) }
}

/// # Safety
/// As CUDA's `cuLibraryEnumerateKernels`.
pub unsafe fn cuLibraryEnumerateKernels(out: *mut CUkernel, count: u32, library: CUlibrary) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let all = names(library as u64, ops::CU_LIBRARY_ENUMERATE_KERNELS).and_then(|names| {
        let found = names.iter().take(count as usize);
        found.map(|n| find(library as u64, n, ops::CU_LIBRARY_GET_KERNEL)).collect::<Result<Vec<_>, _>>()
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
    let answer = (|| {
        session()?;
        let ctx = context::current_home();
        if ctx == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let owner = loaded(library as u64)?;
        let mut modules = owner.modules.lock().expect("no panic happens under this lock");
        if let Some(known) = modules.get(&ctx) {
            return Ok(*known as CUmodule);
        }
        let handle = handles::reserve_in(Kind::Module, ctx);
        let request = |w: &mut Vec<u8>| {
            w.word(owner.handle);
            w.word(handle.0);
        };
        if let Err(code) = call(ops::CU_LIBRARY_GET_MODULE, request, |_| Ok(())) {
            handles::release(handle);
            return Err(code);
        }
        remember(handle, ctx);
        modules.insert(ctx, handle.0);
        Ok(handle.0 as CUmodule)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(module, answer) }
}

/// # Safety
/// As CUDA's `cuFuncGetModule`.
pub unsafe fn cuFuncGetModule(module: *mut CUmodule, f: CUfunction) -> CUresult {
    match function(f.cast()) {
        Ok(f) if Handle(f.owner).is(Kind::Module) => {
            // SAFETY: the caller's promise.
            unsafe { write(module, Ok(f.owner as CUmodule)) }
        }
        // SAFETY: the caller's promise.
        Ok(f) => unsafe { cuLibraryGetModule(module, f.owner as CUlibrary) },
        Err(code) => code,
    }
}

fn global(owner: u64, name: &CStr, op: u16) -> Result<(CUdeviceptr, usize), CUresult> {
    session()?;
    let owner = loaded(owner)?;
    let ctx = context::current_home();
    if ctx == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let key = (name.to_owned(), if Handle(owner.handle).is(Kind::Module) { owner.context } else { ctx });
    if let Some(known) = owner.globals.lock().expect("no panic happens under this lock").get(&key) {
        return Ok(*known);
    }
    let found = call(
        op,
        |w| {
            w.word(owner.handle);
            w.bytes(name.to_bytes());
        },
        |r| Ok((r.word()?, r.word()? as usize)),
    )?;
    let device = context::current_device().unwrap_or(0);
    address_map::insert_device(found.0, found.1 as u64, address_map::Kind::ModuleGlobal, ctx, device);
    owner.globals.lock().expect("no panic happens under this lock").insert(key, found);
    Ok(found)
}

/// Either answer may be left out.
///
/// # Safety
/// `address` and `size` are null or valid for writes.
unsafe fn write_global(
    address: *mut CUdeviceptr,
    size: *mut usize,
    answer: Result<(CUdeviceptr, usize), CUresult>,
) -> CUresult {
    match answer {
        Ok(_) if address.is_null() && size.is_null() => CUDA_ERROR_INVALID_VALUE,
        Ok((a, n)) => {
            // SAFETY: each is null or valid.
            unsafe {
                if !address.is_null() {
                    address.write(a);
                }
                if !size.is_null() {
                    size.write(n);
                }
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
    let answer = unsafe { name_of(name) }.and_then(|n| global(module as u64, n, ops::CU_MODULE_GET_GLOBAL_V2));
    // SAFETY: the caller's promise.
    unsafe { write_global(address, size, answer) }
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
    let answer = unsafe { name_of(name) }.and_then(|n| global(library as u64, n, ops::CU_LIBRARY_GET_GLOBAL));
    // SAFETY: the caller's promise.
    unsafe { write_global(address, size, answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_that_no_kernel_has_is_a_fault() {
        let decode = |parameters: &[(u64, u64)]| {
            let mut w = Vec::new();
            orion_wire::Writer::word(&mut w, parameters.len() as u64);
            parameters.iter().for_each(|(offset, size)| orion_wire::Writer::word(&mut w, offset << 32 | size));
            layout(&mut Reader::new(&w), 4096)
        };
        assert_eq!(decode(&[(0, 8), (8, 32_756)]), Ok(vec![(0, 8), (8, 32_756)]));
        for bad in [(0, 32_765), (32_764, 1), (u32::MAX as u64, 8), (8, u32::MAX as u64)] {
            assert!(decode(&[bad]).is_err(), "{bad:?}");
        }
    }
}
