//! Modules, libraries, kernels and their globals.

// UNSAFETY: reads images and names from the application's memory and writes answers to it.

use std::ffi::{CStr, CString, c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::field::{Existing, Halves, Text};
use orion_wire::message::library::{LibraryEnumerateKernels, LibraryEnumerateKernelsReply, LibraryGetGlobal};
use orion_wire::message::library::{LibraryGetGlobalReply, LibraryGetKernel, LibraryGetKernelReply};
use orion_wire::message::library::{LibraryGetModule, LibraryLoadData, LibraryLoadDataReply, LibraryUnload};
use orion_wire::message::module::{ModuleEnumerateFunctions, ModuleEnumerateFunctionsReply, ModuleGetFunction};
use orion_wire::message::module::{ModuleGetFunctionReply, ModuleGetGlobal, ModuleGetGlobalReply, ModuleLoadData};
use orion_wire::message::module::{ModuleLoadDataReply, ModuleUnload};
use orion_wire::{Fault, Reader};

use crate::memory::payload::Payload;
use crate::objects::synchronize::before_freeing;
use crate::objects::{image, owner};
use crate::report::refuse;
use crate::session::attached::session;
use crate::session::call::{call, call_any, post};
use crate::session::{device, poison, route};
use crate::state::address_map::MemoryKind;
use crate::state::function::Function;
use crate::state::lock::{Lock, Rank};
use crate::state::module::Loaded;
use crate::state::process::state;
use crate::state::{context, jit, managed};

pub fn loaded(handle: u64) -> Result<&'static Loaded, CUresult> {
    let handle = Handle(handle);
    let found = if handle.is(Kind::Module) {
        state().modules.modules.get(handle)
    } else if handle.is(Kind::Library) {
        state().modules.libraries.get(handle)
    } else {
        None
    };
    found.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

pub fn remember(handle: Handle, context: u64) {
    let table = if handle.is(Kind::Module) { &state().modules.modules } else { &state().modules.libraries };
    table.insert(
        handle,
        Loaded {
            handle: handle.0,
            context,
            functions: Lock::new(Rank::Object, Default::default()),
            globals: Lock::new(Rank::Object, Default::default()),
            modules: Lock::new(Rank::Object, Default::default()),
        },
    );
}

/// The name behind a pointer.
///
/// # Safety
/// `name` is null or NUL-terminated.
pub unsafe fn name_of(name: *const c_char) -> Result<&'static CStr, CUresult> {
    if name.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and NUL-terminated by the contract; only used during the call.
    Ok(unsafe { CStr::from_ptr(name) })
}

/// Loads an image as a module (needs a context) or as a library (does not). `owner` is the name of the file that it is
/// in, or nothing.
pub fn load(kind: Kind, bytes: &[u8], owner: &CStr, options: &mut jit::Options) -> Result<u64, CUresult> {
    let s = session()?;
    if kind == Kind::Module && context::current() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let payload = Payload::new(s, bytes)?;
    let handle = state().handles.reserve_in(kind, if kind == Kind::Module { context::current_home() } else { 0 });
    let (image, told) = (payload.told(), options.told());
    // The logs come back whatever the result is, if the image got as far as the driver.
    let result = match kind {
        Kind::Module => {
            let q = ModuleLoadData { module: handle.into(), image, options: told, owner: owner.into() };
            call_any(
                ModuleLoadData::OP,
                |w| q.encode(w),
                |result, r| {
                    if !r.is_empty() {
                        options.absorb(&ModuleLoadDataReply::decode(r)?.results);
                    }
                    Ok(result)
                },
            )
        }
        _ => {
            let q = LibraryLoadData { library: handle.into(), image, options: told, owner: owner.into() };
            call_any(
                LibraryLoadData::OP,
                |w| q.encode(w),
                |result, r| {
                    if !r.is_empty() {
                        options.absorb(&LibraryLoadDataReply::decode(r)?.results);
                    }
                    Ok(result)
                },
            )
        }
    };
    match result {
        Ok(CUDA_SUCCESS) => {
            if kind == Kind::Library {
                load_elsewhere(handle, bytes, owner, options);
            }
            remember(handle, context::current_home());
            Ok(handle.0)
        }
        Ok(code) | Err(code) => {
            crate::objects::handles::release(handle);
            Err(code)
        }
    }
}

/// A library is the same in all sessions. Where its image does not fit its kernels are not found.
fn load_elsewhere(handle: Handle, bytes: &[u8], owner: &CStr, options: &jit::Options) {
    route::in_others(|s| {
        let answer = Payload::new(s, bytes).and_then(|payload| {
            let (image, options) = (payload.told(), options.told());
            let q = LibraryLoadData { library: handle.into(), image, options, owner: owner.into() };
            call(LibraryLoadData::OP, |w| q.encode(w), |_| Ok(()))
        });
        if let Err(code) = answer {
            crate::say!(
                "a library was loaded, but not on the node at {} ({code}): its kernels do not run there",
                s.server
            );
        }
    });
}

/// Loads what a private entry of the runtime's table passes: an image, as a module.
///
/// # Safety
/// `image` is an image in one of CUDA's formats.
pub unsafe fn load_image(image: *const c_void) -> Result<CUmodule, CUresult> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { image::bytes(image) }?;
    load(Kind::Module, &bytes, &owner::of(image, &bytes), &mut jit::Options::default()).map(|h| h as CUmodule)
}

/// The file is read here, where the application sees it.
pub fn file(name: &CStr) -> Result<Vec<u8>, CUresult> {
    use std::os::unix::ffi::OsStrExt;
    let _whole = orion_transport::thread::Uncancelled::hold();
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

/// The module that a library is in the current context.
pub fn module_of(library: u64) -> Result<CUmodule, CUresult> {
    session()?;
    let ctx = context::current_home();
    if ctx == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let owner = loaded(library)?;
    let mut modules = owner.modules.lock();
    if let Some(known) = modules.get(&ctx) {
        return Ok(*known as CUmodule);
    }
    let handle = state().handles.reserve_in(Kind::Module, ctx);
    let q = LibraryGetModule { library: Existing(owner.handle), module: handle.into() };
    if let Err(code) = call(LibraryGetModule::OP, |w| q.encode(w), |_| Ok(())) {
        crate::objects::handles::release(handle);
        return Err(code);
    }
    remember(handle, ctx);
    modules.insert(ctx, handle.0);
    Ok(handle.0 as CUmodule)
}

pub fn unload(handle: Handle) -> CUresult {
    if let Err(code) = loaded(handle.0) {
        return code;
    }
    let result = if handle.is(Kind::Module) {
        if let Err(code) = before_freeing(0) {
            return code;
        }
        post(ModuleUnload::OP, |w| ModuleUnload { module: handle.into() }.encode(w))
    } else {
        let here = post(LibraryUnload::OP, |w| LibraryUnload { library: handle.into() }.encode(w));
        route::in_others(|_| _ = post(LibraryUnload::OP, |w| LibraryUnload { library: handle.into() }.encode(w)));
        here
    };
    crate::objects::handles::release(handle);
    result
}

/// The most bytes that a kernel's parameters have.
const PARAMETER_BYTES_MAX: u32 = 32_764;

/// Offset and size of each parameter. They decide what is read of the application's memory, and how much room it needs.
pub fn layout(told: &[Halves]) -> Result<Vec<(u32, u32)>, Fault> {
    let inside = |parameter: &Halves| {
        let Halves(size, offset) = *parameter;
        match offset.checked_add(size) {
            Some(..=PARAMETER_BYTES_MAX) => Ok((offset, size)),
            _ => Err(Fault("a kernel's parameter lies outside of what a kernel can have")),
        }
    };
    told.iter().map(inside).collect()
}

/// A function or kernel by name; the same handle each time, with its parameter layout.
pub fn find(owner: u64, name: &CStr) -> Result<u64, CUresult> {
    let owner = loaded(owner)?;
    if let Some(known) = owner.functions.lock().get(name) {
        return Ok(*known);
    }
    let handle = state().handles.reserve(Kind::Function);
    let (new, told) = (handle.into(), name.into());
    let answer = if Handle(owner.handle).is(Kind::Module) {
        let q = ModuleGetFunction { module: Existing(owner.handle), function: new, name: told };
        call(ModuleGetFunction::OP, |w| q.encode(w), |r| layout(&ModuleGetFunctionReply::decode(r)?.layout))
    } else {
        let q = LibraryGetKernel { library: Existing(owner.handle), kernel: new, name: told };
        let ask = || call(LibraryGetKernel::OP, |w| q.encode(w), |r| layout(&LibraryGetKernelReply::decode(r)?.layout));
        // Whoever launches it there is told if it is not found.
        ask().inspect(|_| route::in_others(|_| _ = ask()))
    };
    let layout = match answer {
        Ok(layout) => layout,
        Err(code) => {
            crate::objects::handles::release(handle);
            return Err(code);
        }
    };
    let mut functions = owner.functions.lock();
    // Two threads may have asked at once: the first answer stays, because handles are compared.
    let first = *functions.entry(name.to_owned()).or_insert(handle.0);
    if first == handle.0 {
        // Nothing for a library.
        let home = crate::session::context::home_of(state().handles.context_of(Handle(owner.handle)));
        let new = Function::new(handle, name.to_owned(), (owner.handle, home), layout);
        state().functions.table.insert(handle, new);
    } else {
        // The worker knows the other one too, so it stays reserved until the module ends.
        functions.insert(CString::default(), handle.0);
    }
    Ok(first)
}

/// The names of all functions, asked of the worker.
pub fn names(owner: u64) -> Result<Vec<CString>, CUresult> {
    loaded(owner)?;
    let all = |names: &[Text<'_>]| names.iter().map(|name| name.to_c()).collect();
    if Handle(owner).is(Kind::Module) {
        let q = ModuleEnumerateFunctions { module: Existing(owner) };
        let decode = |r: &mut Reader<'_>| Ok(all(&ModuleEnumerateFunctionsReply::decode(r)?.names));
        call(ModuleEnumerateFunctions::OP, |w| q.encode(w), decode)
    } else {
        let q = LibraryEnumerateKernels { library: Existing(owner) };
        let decode = |r: &mut Reader<'_>| Ok(all(&LibraryEnumerateKernelsReply::decode(r)?.names));
        call(LibraryEnumerateKernels::OP, |w| q.encode(w), decode)
    }
}

/// Every function of a module, found by name.
pub fn functions_of(module: CUmodule) -> Result<Vec<CUfunction>, CUresult> {
    names(module as u64)?.iter().map(|name| find(module as u64, name).map(|h| h as CUfunction)).collect()
}

/// A variable, or a `__managed__` one of a library, which the runtime asks for before it has made a context its own.
pub fn global(owner: u64, name: &CStr, managed: bool) -> Result<(CUdeviceptr, usize), CUresult> {
    let s = session()?;
    let owner = loaded(owner)?;
    let ctx = context::current_home();
    let is_module = Handle(owner.handle).is(Kind::Module);
    // A module's variable is of the context that it was loaded into, whichever is current.
    if ctx == 0 && !managed && !is_module {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let key = (name.to_owned(), if is_module { owner.context } else { ctx });
    if let Some(known) = owner.globals.lock().get(&key) {
        return Ok(*known);
    }
    let found = if is_module {
        let q = ModuleGetGlobal { module: Existing(owner.handle), name: name.into() };
        let found = call(ModuleGetGlobal::OP, |w| q.encode(w), ModuleGetGlobalReply::decode)?;
        (found.address, found.bytes as usize, found.is_managed)
    } else {
        let q = LibraryGetGlobal { library: Existing(owner.handle), name: name.into(), managed };
        let found = call(LibraryGetGlobal::OP, |w| q.encode(w), LibraryGetGlobalReply::decode)?;
        (found.address, found.bytes as usize, found.is_managed)
    };
    let (found, is_managed) = ((found.0, found.1), found.2);
    if route::is_taken(found.0, found.1 as u64) {
        refuse::refused("a variable of a module", "it lies at an address where memory of another node's lies");
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let device = context::current_device().unwrap_or(0);
    let kind = if is_managed { MemoryKind::ManagedVariable } else { MemoryKind::ModuleGlobal };
    // A library's managed variables outlive each context.
    let home = if is_managed && Handle(owner.handle).is(Kind::Library) { 0 } else { ctx };
    state().addresses.insert_device(found.0, found.1 as u64, kind, home, device);
    if is_managed {
        // A library is on each node, where its kernels use a variable of that node's. The runtime asks for one of all.
        let is_apart = ctx == 0 && state().attachment.several();
        let shown = match managed::is_on() {
            true if is_apart => {
                Err("the program's vGPUs lie on several nodes, which have no memory together".to_owned())
            }
            true => crate::memory::managed::show(s, found.0, found.1 as u64, ctx, device),
            false => Err("ORION_MANAGED=off; unset it, or use a __device__ variable and cudaMemcpyToSymbol".to_owned()),
        };
        shown.map_err(|why| {
            refuse::refused("a managed variable", &format!("{}: {why}", name.to_string_lossy()));
            end_for_want_of_it();
            CUDA_ERROR_NOT_SUPPORTED
        })?;
    }
    owner.globals.lock().insert(key, found);
    Ok(found)
}

/// The runtime ignores that there is no such variable: a kernel would run on one that the host does not see, and the
/// host would follow a null pointer. So this ends the context, and the launch is what fails.
fn end_for_want_of_it() {
    match context::current() {
        // The runtime will use a device's primary one.
        0 => (0..device::facts().map_or(0, |facts| facts.devices.len()) as u32)
            .for_each(|d| poison::end(Handle::primary_context(d).0, CUDA_ERROR_NOT_SUPPORTED)),
        current => poison::end(current, CUDA_ERROR_NOT_SUPPORTED),
    }
}

/// Either answer may be left out.
///
/// # Safety
/// `address` and `size` are null or valid for writes.
pub unsafe fn write_global(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_that_no_kernel_has_is_a_fault() {
        let decode = |parameters: &[(u32, u32)]| {
            layout(&parameters.iter().map(|(offset, size)| Halves(*size, *offset)).collect::<Vec<_>>())
        };
        assert_eq!(decode(&[(0, 8), (8, 32_756)]), Ok(vec![(0, 8), (8, 32_756)]));
        for bad in [(0, 32_765), (32_764, 1), (u32::MAX, 8), (8, u32::MAX)] {
            assert!(decode(&[bad]).is_err(), "{bad:?}");
        }
    }
}
