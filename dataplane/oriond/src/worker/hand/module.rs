//! Modules and libraries.

// UNSAFETY: hands images to the driver; a hostile image can at worst break this worker's own session.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::{Arc, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader, Writer};

use super::jit;
use crate::worker::address::Of;
use crate::worker::driver_log;
use crate::worker::image::Image;
use crate::worker::session::{Outcome, Session};

/// A client's byte string, from the record or from the heap, as a copy of our own.
pub fn payload(s: &Session, r: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
    match r.word()? {
        0 => Ok(r.bytes()?.to_vec()),
        1 => {
            let range = HeapRange::get(r)?.check(s.heap.bytes())?;
            let from = s.heap_pointer(range)?;
            let mut copy = Vec::with_capacity(range.bytes as usize + 8);
            // SAFETY: the range lies inside the heap; the client may still write to it, and the copy is what
            // counts from here on.
            unsafe {
                ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), range.bytes as usize);
                copy.set_len(range.bytes as usize);
            }
            Ok(copy)
        }
        _ => Err(Fault("payload of an unknown form")),
    }
}

/// What a load leaves behind for its reply, when it has run on a helper thread.
struct Load {
    handle: usize,
    image: Image,
    results: Vec<u8>,
}

/// Loads on a helper thread: the driver may wait for the device in there, and the device for another thread of
/// the client. XLA loads modules while a kernel spins on memory that its own host code will write.
fn load(s: &mut Session, header: &Header, mut r: Reader<'_>, kind: Kind) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let image = Image::new(payload(s, &mut r)?)?;
    // Checked here, where a fault ends the session; decoded again where it is used, because it holds pointers.
    let options = r.rest().to_vec();
    jit::Decoded::decode(&mut r)?;
    let loaded = Arc::new(Mutex::new(Load { handle: 0, image, results: Vec::new() }));
    let mine = loaded.clone();
    let job = move |driver: &'static Driver| {
        let mut load = loaded.lock().expect("no panic happens under this lock");
        if let Some(why) = load.image.objection() {
            driver_log::refuse(&format!("the image {why}; it is not loaded"));
            return CUDA_ERROR_INVALID_IMAGE;
        }
        let Ok(options) = jit::Decoded::decode(&mut Reader::new(&options)) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let (mut keys, mut values) = options.arrays();
        let mut handle: *mut std::ffi::c_void = ptr::null_mut();
        let (count, keys, of) = (keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the image is a copy that is kept while the object lives; the option arrays have as many elements as
        // they say.
        let code = unsafe {
            if kind == Kind::Module {
                driver.cuModuleLoadDataEx(ptr::from_mut(&mut handle).cast(), load.image.as_ptr(), count, keys, of)
            } else {
                let out = ptr::from_mut(&mut handle).cast();
                let (none, no_values) = (ptr::null_mut(), ptr::null_mut());
                driver.cuLibraryLoadData(out, load.image.as_ptr(), keys, of, count, none, no_values, 0)
            }
        };
        load.handle = handle as usize;
        options.encode_results(&mut load.results, &values);
        code
    };
    s.park_blocking(header, job, move |s, code, reply| {
        let mut load = mine.lock().expect("no panic happens under this lock");
        reply.extend_from_slice(&load.results);
        if code == CUDA_SUCCESS {
            if s.bind(kind, word, load.handle as *mut _).is_err() {
                return CUDA_ERROR_INVALID_HANDLE;
            }
            let image = Arc::new(std::mem::take(&mut load.image));
            s.prints.look(&image);
            s.images.insert(word, image);
        }
        code
    })
}

pub fn cuModuleLoadDataEx(
    s: &mut Session,
    header: &Header,
    r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    load(s, header, r, Kind::Module)
}

pub fn cuLibraryLoadData(
    s: &mut Session,
    header: &Header,
    r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    load(s, header, r, Kind::Library)
}

pub fn cuModuleUnload(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let module = match s.handle(Kind::Module, word) {
        Ok(m) => m,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let context = s.context_of(Kind::Module, word);
    s.addresses.unloaded(word);
    let image = s.images.remove(&word);
    s.unbind(Kind::Module, word);
    s.retired.push(Retired { handle: module as usize, is_library: false, context, image });
    Ok(Outcome::Done(CUDA_SUCCESS))
}

pub fn cuLibraryUnload(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let library = match s.handle(Kind::Library, word) {
        Ok(l) => l,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    s.addresses.unloaded(word);
    let image = s.images.remove(&word);
    s.unbind(Kind::Library, word);
    s.retired.push(Retired { handle: library as usize, is_library: true, context: 0, image });
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// A module or library that the client has unloaded. The driver waits for the device when it unloads, so that is
/// left for a moment when the device is idle: what it waits for may be waiting for another command of the client.
pub struct Retired {
    handle: usize,
    is_library: bool,
    /// The context that a module was loaded into.
    pub context: u64,
    image: Option<Arc<Image>>,
}

/// Unloads what was retired. The device is idle.
pub fn unload_retired(s: &mut Session) {
    for retired in std::mem::take(&mut s.retired) {
        // SAFETY: loaded by this session, and unbound when it was retired.
        unsafe {
            if retired.is_library {
                s.driver.cuLibraryUnload(retired.handle as CUlibrary);
            } else {
                s.driver.cuModuleUnload(retired.handle as CUmodule);
            }
        }
        drop(retired.image);
    }
}

fn text(r: &mut Reader<'_>) -> Result<CString, Fault> {
    CString::new(r.bytes()?).map_err(|_| Fault("name holds a NUL"))
}

/// Parameter layout of a function or kernel: offset and size of each, until the driver knows no more.
fn layout(s: &Session, f: *mut std::ffi::c_void, is_kernel: bool, reply: &mut Vec<u8>) -> CUresult {
    let mut found = Vec::new();
    let result = loop {
        let (mut offset, mut size) = (0usize, 0usize);
        // SAFETY: a function of the kind the call takes; valid out pointers.
        let code = unsafe {
            if is_kernel {
                s.driver.cuKernelGetParamInfo(f.cast(), found.len(), &mut offset, &mut size)
            } else {
                s.driver.cuFuncGetParamInfo(f.cast(), found.len(), &mut offset, &mut size)
            }
        };
        match code {
            CUDA_SUCCESS if found.len() < 4096 => found.push((offset as u64) << 32 | size as u64),
            CUDA_SUCCESS | CUDA_ERROR_INVALID_VALUE => break CUDA_SUCCESS,
            code => break code,
        }
    };
    reply.word(found.len() as u64);
    for v in found {
        reply.word(v);
    }
    result
}

pub fn cuModuleGetFunction(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (owner, word, name) = (r.word()?, r.word()?, text(&mut r)?);
    let module = match s.handle(Kind::Module, owner) {
        Ok(m) => m,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut f = ptr::null_mut();
    // SAFETY: a looked-up module, a NUL-terminated name, a valid out pointer.
    let mut code = unsafe { s.driver.cuModuleGetFunction(&mut f, module.cast(), name.as_ptr()) };
    if code == CUDA_SUCCESS {
        code = layout(s, f.cast(), false, reply);
    }
    if code == CUDA_SUCCESS {
        s.bind_inside(owner, Kind::Function, word, f.cast())?;
    }
    Ok(Outcome::Done(code))
}

/// The first device's primary context.
const ANY_CONTEXT: u64 = Handle::primary_context(0).0;

pub fn cuLibraryGetKernel(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (owner, word, name) = (r.word()?, r.word()?, text(&mut r)?);
    let library = match s.handle(Kind::Library, owner) {
        Ok(l) => l,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut kernel = ptr::null_mut();
    // SAFETY: a looked-up library, a NUL-terminated name, a valid out pointer.
    let mut code = unsafe { s.driver.cuLibraryGetKernel(&mut kernel, library.cast(), name.as_ptr()) };
    if code == CUDA_SUCCESS {
        code = layout(s, kernel.cast(), true, reply);
        // The driver wants some context to look a kernel's parameters up in; the client need not have one.
        if code == CUDA_ERROR_INVALID_CONTEXT && header.context == 0 && s.make_current(ANY_CONTEXT).is_ok() {
            reply.clear();
            code = layout(s, kernel.cast(), true, reply);
        }
    }
    if code == CUDA_SUCCESS {
        s.bind_inside(owner, Kind::Function, word, kernel.cast())?;
        s.kernels.insert(kernel as usize);
    }
    Ok(Outcome::Done(code))
}

/// Names of all functions of a module.
pub fn cuModuleEnumerateFunctions(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let module = match s.handle(Kind::Module, r.word()?) {
        Ok(m) => m,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut count = 0;
    // SAFETY: a looked-up module and a valid out pointer.
    let mut code = unsafe { s.driver.cuModuleGetFunctionCount(&mut count, module.cast()) };
    let mut functions: Vec<CUfunction> = vec![ptr::null_mut(); count as usize];
    if code == CUDA_SUCCESS && count > 0 {
        // SAFETY: room for `count` handles.
        code = unsafe { s.driver.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module.cast()) };
    }
    let names = functions.iter().filter_map(|f| {
        let mut name = ptr::null();
        // SAFETY: a function of the driver's own list; its name lives as long as the module.
        unsafe {
            (s.driver.cuFuncGetName(&mut name, *f) == CUDA_SUCCESS).then(|| CStr::from_ptr(name).to_bytes().to_vec())
        }
    });
    put_names(reply, names.collect());
    Ok(Outcome::Done(code))
}

/// Names of all kernels of a library.
pub fn cuLibraryEnumerateKernels(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let library = match s.handle(Kind::Library, r.word()?) {
        Ok(l) => l,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut count = 0;
    // SAFETY: a looked-up library and a valid out pointer.
    let mut code = unsafe { s.driver.cuLibraryGetKernelCount(&mut count, library.cast()) };
    let mut kernels: Vec<CUkernel> = vec![ptr::null_mut(); count as usize];
    if code == CUDA_SUCCESS && count > 0 {
        // SAFETY: room for `count` handles.
        code = unsafe { s.driver.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library.cast()) };
    }
    let names = kernels.iter().filter_map(|k| {
        let mut name = ptr::null();
        // SAFETY: a kernel of the driver's own list; its name lives as long as the library.
        unsafe {
            (s.driver.cuKernelGetName(&mut name, *k) == CUDA_SUCCESS).then(|| CStr::from_ptr(name).to_bytes().to_vec())
        }
    });
    put_names(reply, names.collect());
    Ok(Outcome::Done(code))
}

fn put_names(reply: &mut Vec<u8>, names: Vec<Vec<u8>>) {
    reply.word(names.len() as u64);
    for name in names {
        reply.bytes(&name);
    }
}

pub fn cuLibraryGetModule(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (owner, word) = (r.word()?, r.word()?);
    let library = match s.handle(Kind::Library, owner) {
        Ok(l) => l,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut module = ptr::null_mut();
    // SAFETY: a looked-up library and a valid out pointer.
    let code = unsafe { s.driver.cuLibraryGetModule(&mut module, library.cast()) };
    if code == CUDA_SUCCESS {
        s.bind_inside(owner, Kind::Module, word, module.cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuModuleGetGlobal_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (word, name) = (r.word()?, text(&mut r)?);
    let module = s.handle(Kind::Module, word);
    let module = match module {
        Ok(m) => m,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let (mut address, mut size) = (0, 0);
    // SAFETY: a looked-up module, a NUL-terminated name, valid out pointers.
    let code = unsafe { s.driver.cuModuleGetGlobal_v2(&mut address, &mut size, module.cast(), name.as_ptr()) };
    if code == CUDA_SUCCESS {
        s.addresses.given(address, size as u64, Of::Globals(word));
    }
    reply.word(address);
    reply.word(size as u64);
    Ok(Outcome::Done(code))
}

pub fn cuLibraryGetGlobal(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (word, name) = (r.word()?, text(&mut r)?);
    let library = s.handle(Kind::Library, word);
    let library = match library {
        Ok(l) => l,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let (mut address, mut size) = (0, 0);
    // SAFETY: a looked-up library, a NUL-terminated name, valid out pointers.
    let code = unsafe { s.driver.cuLibraryGetGlobal(&mut address, &mut size, library.cast(), name.as_ptr()) };
    if code == CUDA_SUCCESS {
        s.addresses.given(address, size as u64, Of::Globals(word));
    }
    reply.word(address);
    reply.word(size as u64);
    Ok(Outcome::Done(code))
}
