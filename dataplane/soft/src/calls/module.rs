//! Modules.

// UNSAFETY: C entry points, and images given as pointers.

use std::ffi::{c_char, c_uint, c_void};

use orion_cuda::sys::*;

use crate::api::{R, api, handle, put, put_some, text};
use crate::jit::{Jit, no_jit, parse_ptx, read_file};
use crate::module::{MODULES, Module, eager};
use crate::{capture, context, image};

fn load_module(out: *mut CUmodule, text: &image::Text, jit: &Jit) -> R {
    let c = context::current()?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let ast = parse_ptx(text, jit)?;
    let m = Module::load(&c, &ast, None)?;
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, handle(&m)) }
}

api! {
    fn cuModuleLoad(out: *mut CUmodule, name: *const c_char) {
        load_module(out, &read_file(name)?, &no_jit())
    }
    fn cuModuleLoadData(out: *mut CUmodule, data: *const c_void) {
        context::current()?;
        load_module(out, &image::ptx_at(data)?, &no_jit())
    }
    fn cuModuleLoadDataEx(
        out: *mut CUmodule,
        data: *const c_void,
        n: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) {
        context::current()?;
        load_module(out, &image::ptx_at(data)?, &Jit::new(n, options, values)?)
    }
    fn cuModuleLoadFatBinary(out: *mut CUmodule, data: *const c_void) {
        context::current()?;
        load_module(out, &image::ptx_at(data)?, &no_jit())
    }
    fn cuModuleUnload(h: CUmodule) {
        let c = context::current()?;
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if m.of_library {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        capture::forbid_unsafe()?;
        for s in c.every_stream() {
            s.wait_all();
        }
        m.unload();
        Ok(())
    }
    fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) {
        put(mode, if eager() { CU_MODULE_EAGER_LOADING } else { CU_MODULE_LAZY_LOADING })
    }
    fn cuModuleGetFunction(out: *mut CUfunction, h: CUmodule, name: *const c_char) {
        context::current()?;
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, handle(&m.function(&text(name)?)?))
    }
    fn cuModuleGetFunctionCount(n: *mut c_uint, h: CUmodule) {
        put(n, MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.functions.len() as c_uint)
    }
    fn cuModuleEnumerateFunctions(out: *mut CUfunction, n: c_uint, h: CUmodule) {
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (i, f) in m.functions.iter().take(n as usize).enumerate() {
            put(out.add(i), handle(f))?;
        }
        Ok(())
    }
    fn cuModuleGetGlobal_v2(at: *mut CUdeviceptr, bytes: *mut usize, h: CUmodule, name: *const c_char) {
        context::current()?;
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (address, size) = *m.globals.get(&text(name)?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(at, address);
        put_some(bytes, size as usize);
        Ok(())
    }
}
