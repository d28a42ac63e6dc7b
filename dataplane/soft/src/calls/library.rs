//! Libraries and kernels.

// UNSAFETY: C entry points, and images given as pointers.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, api, get, handle, put, put_some, text};
use crate::calls::execution::{param_info, set_function_attribute};
use crate::context::{self, Context};
use crate::jit::{Jit, parse_ptx, read_file};
use crate::module::{KERNELS, Kernel, LIBRARIES, Library, Placed, function_attribute, kernel_function};
use crate::ptx::decode::program::kernel_params;
use crate::{capture, image};

impl Library {
    /// # Safety
    /// As `image::ptx_at` and `Jit::new`.
    fn load(text: &image::Text, jit: &Jit) -> R<Arc<Self>> {
        let ast = parse_ptx(text, jit)?;
        let l = Arc::new(Self {
            ast: ast.clone(),
            kernels: Mutex::default(),
            instances: Mutex::default(),
            managed: Mutex::default(),
        });
        let entries = ast.functions.iter().filter(|f| f.is_entry);
        let kernels: Vec<_> = entries
            .enumerate()
            .map(|(ordinal, f)| {
                let k = Arc::new(Kernel {
                    library: Arc::downgrade(&l),
                    name: CString::new(f.name.as_str()).unwrap_or_default(),
                    ordinal,
                    params: kernel_params(f).0,
                    dynamic_shared_max: AtomicI32::new(-1),
                });
                KERNELS.add::<CUkern_st>(&k);
                k
            })
            .collect();
        *l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)? = kernels;
        LIBRARIES.add::<CUlib_st>(&l);
        Ok(l)
    }
}

fn kernel_context(dev: CUdevice) -> R<Arc<Context>> {
    let dev = crate::device::check(dev)?;
    match context::current() {
        Ok(c) if c.device == dev => Ok(c),
        // Attributes are asked per device, also by threads that have no context on it.
        _ => context::retain_primary(dev),
    }
}

fn library(l: CUlibrary) -> R<Arc<Library>> {
    crate::device::initialised()?;
    LIBRARIES.get(l).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn kernel(k: CUkernel) -> R<Arc<Kernel>> {
    crate::device::initialised()?;
    KERNELS.get(k).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

api! {
    fn cuLibraryLoadData(
        out: *mut CUlibrary,
        code: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        n: c_uint,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_n: c_uint,
    ) {
        crate::device::initialised()?;
        get(out)?;
        put(out, handle(&Library::load(&image::ptx_at(code)?, &Jit::new(n, options, values)?)?))
    }
    fn cuLibraryLoadFromFile(
        out: *mut CUlibrary,
        name: *const c_char,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        n: c_uint,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_n: c_uint,
    ) {
        crate::device::initialised()?;
        get(out)?;
        put(out, handle(&Library::load(&read_file(name)?, &Jit::new(n, options, values)?)?))
    }
    fn cuLibraryUnload(h: CUlibrary) {
        let l = library(h)?;
        capture::forbid_unsafe()?;
        LIBRARIES.remove(h);
        for k in l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.iter() {
            KERNELS.remove(Arc::as_ptr(k).cast_mut());
        }
        for (id, m) in l.instances.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.drain() {
            if let Some(c) = context::by_id(id) {
                c.streams_of_all().iter().for_each(|s| s.wait_all());
            }
            m.unload();
        }
        l.managed.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.take().inspect(Placed::give_back);
        Ok(())
    }
    fn cuLibraryGetKernel(out: *mut CUkernel, h: CUlibrary, name: *const c_char) {
        let (l, name) = (library(h)?, text(name)?);
        let kernels = l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let k = kernels.iter().find(|k| k.name.to_bytes() == name.as_bytes()).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put(out, handle(k))
    }
    fn cuLibraryGetKernelCount(n: *mut c_uint, h: CUlibrary) {
        put(n, library(h)?.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.len() as c_uint)
    }
    fn cuLibraryEnumerateKernels(out: *mut CUkernel, n: c_uint, h: CUlibrary) {
        let l = library(h)?;
        for (i, k) in l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.iter().take(n as usize).enumerate() {
            put(out.add(i), handle(k))?;
        }
        Ok(())
    }
    fn cuLibraryGetModule(out: *mut CUmodule, h: CUlibrary) {
        let c = context::current()?;
        put(out, handle(&library(h)?.instance(&c)?))
    }
    fn cuLibraryGetGlobal(at: *mut CUdeviceptr, bytes: *mut usize, h: CUlibrary, name: *const c_char) {
        let c = context::current()?;
        let m = library(h)?.instance(&c)?;
        let (address, size) = *m.globals.get(&text(name)?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(at, address);
        put_some(bytes, size as usize);
        Ok(())
    }
    fn cuLibraryGetManaged(at: *mut CUdeviceptr, bytes: *mut usize, h: CUlibrary, name: *const c_char) {
        let c = context::current()?;
        let (l, name) = (library(h)?, text(name)?);
        if !l.ast.variables.iter().any(|v| v.is_managed && v.name == name) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        let m = l.instance(&c)?;
        let (address, size) = *m.globals.get(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(at, address);
        put_some(bytes, size as usize);
        Ok(())
    }
    fn cuKernelGetFunction(out: *mut CUfunction, k: CUkernel) {
        let c = context::current()?;
        put(out, handle(&kernel_function(&*kernel(k)?, &c)?))
    }
    fn cuKernelGetLibrary(out: *mut CUlibrary, k: CUkernel) {
        put(out, handle(&kernel(k)?.library.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?))
    }
    fn cuKernelGetName(out: *mut *const c_char, k: CUkernel) {
        if k.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, kernel(k)?.name.as_ptr())
    }
    fn cuKernelGetParamInfo(k: CUkernel, index: usize, offset: *mut usize, size: *mut usize) {
        context::current()?;
        param_info(&kernel(k)?.params, index, offset, size)
    }
    fn cuKernelGetAttribute(out: *mut c_int, attrib: CUfunction_attribute, k: CUkernel, dev: CUdevice) {
        let f = kernel_function(&*kernel(k)?, &kernel_context(dev)?)?;
        put(out, function_attribute(&f, attrib)?)
    }
    fn cuKernelSetAttribute(attrib: CUfunction_attribute, v: c_int, k: CUkernel, dev: CUdevice) {
        let k = kernel(k)?;
        let f = kernel_function(&k, &kernel_context(dev)?)?;
        set_function_attribute(&f, attrib, v)?;
        if attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES {
            k.dynamic_shared_max.store(v, Ordering::Relaxed);
        }
        Ok(())
    }
    fn cuKernelSetCacheConfig(k: CUkernel, _config: CUfunc_cache, dev: CUdevice) {
        crate::device::check(dev)?;
        kernel(k).map(drop)
    }
}
