//! Libraries and their kernels.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ffi::CStr;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::Text;
use orion_wire::message::library::{LibraryEnumerateKernels, LibraryEnumerateKernelsReply, LibraryGetGlobal};
use orion_wire::message::library::{LibraryGetGlobalReply, LibraryGetKernel, LibraryGetKernelReply};
use orion_wire::message::library::{LibraryGetModule, LibraryLoadData, LibraryUnload, ManagedVariable};
use orion_wire::record::Header;

use crate::worker::calls::images::{layout, load};
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::retired::Retired;

pub fn cuLibraryLoadData(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = LibraryLoadData::decode(&mut r)?;
    load(s, header, Kind::Library, q.library.0, &q.image, &q.options, q.owner)
}

pub fn cuLibraryUnload(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = LibraryUnload::decode(&mut r)?.library.0;
    let library = s.handle(Kind::Library, word)?;
    s.globals_unloaded(word);
    let image = s.images.remove(&word);
    s.unbind(Kind::Library, word);
    s.retired.push(Retired { handle: library as usize, is_library: true, context: 0, image });
    Ok(Outcome::Done(CUDA_SUCCESS))
}

pub fn cuLibraryGetKernel(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = LibraryGetKernel::decode(&mut r)?;
    let (library, name) = (s.handle(Kind::Library, q.library.0)?, q.name.to_c());
    let mut kernel = ptr::null_mut();
    // SAFETY: a looked-up library, a NUL-terminated name, a valid out pointer.
    let code = unsafe { s.driver.cuLibraryGetKernel(&mut kernel, library.cast(), name.as_ptr()) };
    if code != CUDA_SUCCESS {
        return Ok(Outcome::Done(code));
    }
    let layout = match layout(s, kernel.cast(), true) {
        // The driver wants some context to look a kernel's parameters up in; the client need not have one.
        Err(CUDA_ERROR_INVALID_CONTEXT) if header.context == 0 && s.make_current(s.any_context()).is_ok() => {
            layout(s, kernel.cast(), true)?
        }
        layout => layout?,
    };
    s.bind_inside(q.library.0, Kind::Function, q.kernel.0, kernel.cast())?;
    s.kernels.insert(kernel as usize);
    LibraryGetKernelReply { layout }.encode(reply);
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Names of all kernels of a library.
pub fn cuLibraryEnumerateKernels(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = LibraryEnumerateKernels::decode(&mut r)?;
    let library = s.handle(Kind::Library, q.library.0)?;
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
        unsafe { (s.driver.cuKernelGetName(&mut name, *k) == CUDA_SUCCESS).then(|| Text::from(CStr::from_ptr(name))) }
    });
    LibraryEnumerateKernelsReply { names: names.collect::<Vec<_>>().into() }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuLibraryGetModule(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = LibraryGetModule::decode(&mut r)?;
    let library = s.handle(Kind::Library, q.library.0)?;
    let mut module = ptr::null_mut();
    // SAFETY: a looked-up library and a valid out pointer.
    let code = unsafe { s.driver.cuLibraryGetModule(&mut module, library.cast()) };
    if code == CUDA_SUCCESS {
        s.bind_inside(q.library.0, Kind::Module, q.module.0, module.cast())?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuLibraryGetGlobal(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = LibraryGetGlobal::decode(&mut r)?;
    let (library, name) = (s.handle(Kind::Library, q.library.0)?, q.name.to_c());
    let (mut address, mut size) = (0, 0);
    // SAFETY: a looked-up library, a NUL-terminated name, valid out pointers.
    let mut ask = |s: &Session| unsafe {
        let (library, name) = (library.cast(), name.as_ptr());
        match q.managed {
            true => s.driver.cuLibraryGetManaged(&mut address, &mut size, library, name),
            false => s.driver.cuLibraryGetGlobal(&mut address, &mut size, library, name),
        }
    };
    let code = match ask(s) {
        // The runtime asks for managed variables before it has made a context its own.
        CUDA_ERROR_INVALID_CONTEXT if header.context == 0 && s.make_current(s.any_context()).is_ok() => ask(s),
        code => code,
    };
    let is_managed = code == CUDA_SUCCESS && s.found_global(address, size as u64, q.library.0);
    LibraryGetGlobalReply { address, bytes: size as u64, is_managed }.encode(reply);
    Ok(Outcome::Done(code))
}

/// The client has pages where a managed variable is.
pub fn cuLibraryGetManaged(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = ManagedVariable::decode(&mut r)?;
    let range = q.range.check(s.heap.bytes())?;
    let (address, owner) = s.managed_variable(q.address, range)?;
    // SAFETY: a variable of the session's, which is dropped before it is unloaded.
    if unsafe { s.variables.add(address, range, owner) }.is_err() {
        return Ok(Outcome::Done(CUDA_ERROR_OUT_OF_MEMORY));
    }
    s.flush_ranges()?;
    Ok(Outcome::Done(CUDA_SUCCESS))
}
