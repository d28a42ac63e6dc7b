//! Modules and their functions.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ffi::CStr;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::Text;
use orion_wire::message::module::ModuleUnload;
use orion_wire::message::module::{ModuleEnumerateFunctions, ModuleEnumerateFunctionsReply, ModuleGetFunction};
use orion_wire::message::module::{ModuleGetFunctionReply, ModuleGetGlobal, ModuleGetGlobalReply, ModuleLoadData};
use orion_wire::record::Header;

use crate::worker::calls::images::{layout, load};
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::retired::Retired;

pub fn cuModuleLoadDataEx(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = ModuleLoadData::decode(&mut r)?;
    load(s, header, Kind::Module, q.module.0, &q.image, &q.options, q.owner)
}

pub fn cuModuleUnload(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = ModuleUnload::decode(&mut r)?.module.0;
    let module = s.handle(Kind::Module, word)?;
    let context = s.objects.context_of(Kind::Module, word);
    s.globals_unloaded(word);
    let image = s.images.remove(&word);
    s.unbind(Kind::Module, word);
    s.retired.push(Retired { handle: module as usize, is_library: false, context, image });
    Ok(Outcome::Done(CUDA_SUCCESS))
}

pub fn cuModuleGetFunction(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = ModuleGetFunction::decode(&mut r)?;
    let (module, name) = (s.handle(Kind::Module, q.module.0)?, q.name.to_c());
    let mut f = ptr::null_mut();
    // SAFETY: a looked-up module, a NUL-terminated name, a valid out pointer.
    let code = unsafe { s.driver.cuModuleGetFunction(&mut f, module.cast(), name.as_ptr()) };
    if code != CUDA_SUCCESS {
        return Ok(Outcome::Done(code));
    }
    let layout = layout(s, f.cast(), false)?;
    s.bind_inside(q.module.0, Kind::Function, q.function.0, f.cast())?;
    ModuleGetFunctionReply { layout }.encode(reply);
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// Names of all functions of a module.
pub fn cuModuleEnumerateFunctions(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let q = ModuleEnumerateFunctions::decode(&mut r)?;
    let module = s.handle(Kind::Module, q.module.0)?;
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
        unsafe { (s.driver.cuFuncGetName(&mut name, *f) == CUDA_SUCCESS).then(|| Text::from(CStr::from_ptr(name))) }
    });
    ModuleEnumerateFunctionsReply { names: names.collect::<Vec<_>>().into() }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuModuleGetGlobal_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = ModuleGetGlobal::decode(&mut r)?;
    let (module, name) = (s.handle(Kind::Module, q.module.0)?, q.name.to_c());
    let (mut address, mut size) = (0, 0);
    // SAFETY: a looked-up module, a NUL-terminated name, valid out pointers.
    let code = unsafe { s.driver.cuModuleGetGlobal_v2(&mut address, &mut size, module.cast(), name.as_ptr()) };
    let is_managed = code == CUDA_SUCCESS && s.found_global(address, size as u64, q.module.0);
    ModuleGetGlobalReply { address, bytes: size as u64, is_managed }.encode(reply);
    Ok(Outcome::Done(code))
}
