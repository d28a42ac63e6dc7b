//! Modules and their functions.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ffi::CStr;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::calls::images::{layout, load, put_names, text};
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;
use crate::worker::state::retired::Retired;

pub fn cuModuleLoadDataEx(s: &mut Session, header: &Header, r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    load(s, header, r, Kind::Module)
}

pub fn cuModuleUnload(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = r.word()?;
    let module = s.handle(Kind::Module, word)?;
    let context = s.objects.context_of(Kind::Module, word);
    s.addresses.unloaded(word);
    let image = s.images.remove(&word);
    s.unbind(Kind::Module, word);
    s.retired.push(Retired { handle: module as usize, is_library: false, context, image });
    Ok(Outcome::Done(CUDA_SUCCESS))
}

pub fn cuModuleGetFunction(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (owner, word, name) = (r.word()?, r.word()?, text(&mut r)?);
    let module = s.handle(Kind::Module, owner)?;
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

/// Names of all functions of a module.
pub fn cuModuleEnumerateFunctions(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let module = s.handle(Kind::Module, r.word()?)?;
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

pub fn cuModuleGetGlobal_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (word, name) = (r.word()?, text(&mut r)?);
    let module = s.handle(Kind::Module, word);
    let module = module?;
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
