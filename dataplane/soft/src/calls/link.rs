//! Linking of PTX.

// UNSAFETY: C entry points.

use std::ffi::{CString, c_char, c_uint, c_void};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, list, put, put_some};
use crate::jit::{no_jit, parse_ptx, read_file};
use crate::log::refuse;
use crate::ptx::link;
use crate::{context, image};

/// Texts collected for `cuLinkComplete`, which puts one behind the other; loading links them.
struct Linker {
    inputs: Mutex<Vec<String>>,
    made_by: std::thread::ThreadId,
    output: Mutex<CString>,
}

static LINKERS: Registry<Linker> = Registry::new();

impl Linker {
    /// NVIDIA's linker allocates by thread, and crashes now and then if that is not heeded.
    fn check_thread(&self, name: &str) -> R {
        match std::thread::current().id() == self.made_by {
            true => Ok(()),
            false => refuse(name, "a link that another thread made, at which NVIDIA's driver may crash"),
        }
    }
}

fn link_add(state: CUlinkState, kind: CUjitInputType, text: R<image::Text>) -> R {
    let l = LINKERS.get(state).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    l.check_thread("cuLinkAddData")?;
    if !matches!(kind, CU_JIT_INPUT_PTX | CU_JIT_INPUT_FATBINARY) {
        return refuse("cuLinkAddData", "input other than PTX");
    }
    l.inputs.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.push(text?.ptx.to_string());
    Ok(())
}

api! {
    fn cuLinkCreate_v2(_n: c_uint, _options: *mut CUjit_option, _values: *mut *mut c_void, out: *mut CUlinkState) {
        context::current()?;
        let (inputs, output) = (Mutex::default(), Mutex::default());
        let l = Arc::new(Linker { inputs, made_by: std::thread::current().id(), output });
        put(out, LINKERS.add(&l))
    }
    fn cuLinkAddData_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        size: usize,
        _name: *const c_char,
        _n: c_uint,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) {
        link_add(state, kind, image::ptx_in(&list(data.cast::<u8>(), size)?))
    }
    fn cuLinkAddFile_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        path: *const c_char,
        _n: c_uint,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) {
        link_add(state, kind, read_file(path))
    }
    fn cuLinkComplete(state: CUlinkState, out: *mut *mut c_void, size: *mut usize) {
        let l = LINKERS.get(state).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        l.check_thread("cuLinkComplete")?;
        let all = l.inputs.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.join(link::NEXT);
        parse_ptx(&image::Text { ptx: Arc::new(all.clone()), compiled: false, owner: String::new() }, &no_jit())?;
        let mut kept = l.output.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        *kept = CString::new(all).map_err(|_| CUDA_ERROR_INVALID_PTX)?;
        put(out, kept.as_ptr().cast_mut().cast())?;
        put_some(size, kept.as_bytes_with_nul().len());
        Ok(())
    }
    fn cuLinkDestroy(state: CUlinkState) {
        LINKERS.get(state).ok_or(CUDA_ERROR_INVALID_HANDLE)?.check_thread("cuLinkDestroy")?;
        LINKERS.remove(state).ok_or(CUDA_ERROR_INVALID_HANDLE).map(drop)
    }
}
