//! Libraries and their kernels.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ffi::CStr;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::calls::images::{layout, load, put_names, text};
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;
use crate::worker::state::retired::Retired;

pub fn cuLibraryLoadData(s: &mut Session, header: &Header, r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    load(s, header, r, Kind::Library)
}

pub fn cuLibraryUnload(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = r.word()?;
    let library = s.handle(Kind::Library, word)?;
    s.addresses.unloaded(word);
    let image = s.images.remove(&word);
    s.unbind(Kind::Library, word);
    s.retired.push(Retired { handle: library as usize, is_library: true, context: 0, image });
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// The first device's primary context.
const ANY_CONTEXT: u64 = Handle::primary_context(0).0;

pub fn cuLibraryGetKernel(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (owner, word, name) = (r.word()?, r.word()?, text(&mut r)?);
    let library = s.handle(Kind::Library, owner)?;
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

/// Names of all kernels of a library.
pub fn cuLibraryEnumerateKernels(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let library = s.handle(Kind::Library, r.word()?)?;
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

pub fn cuLibraryGetModule(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (owner, word) = (r.word()?, r.word()?);
    let library = s.handle(Kind::Library, owner)?;
    let mut module = ptr::null_mut();
    // SAFETY: a looked-up library and a valid out pointer.
    let code = unsafe { s.driver.cuLibraryGetModule(&mut module, library.cast()) };
    if code == CUDA_SUCCESS {
        s.bind_inside(owner, Kind::Module, word, module.cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuLibraryGetGlobal(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (word, name) = (r.word()?, text(&mut r)?);
    let library = s.handle(Kind::Library, word);
    let library = library?;
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
