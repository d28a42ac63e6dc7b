//! Launches by what was set of a function before: its block's shape, its shared memory and each argument. CUDA 4.0
//! deprecated them, and the driver still has them; PyCUDA launches this way. What is refused and when, and that a
//! function begins with blocks of one thread, is as an H200 with driver 580 answers. Where that is of no use it is not:
//! arguments that were set count also without `cuParamSetSize`, those that were not are zeros, an offset outside of
//! all arguments is refused, and a capture takes such launches. `cuLaunchKernel` changes what was set, as there, but
//! only of a function of which something was set before: who launches has nothing to pay for the others.

// UNSAFETY: reads arguments from the application's memory, as CUDA defines them.

use std::ffi::c_void;
use std::ptr::null_mut;

use orion_cuda::sys::*;

use super::launch::{Geometry, launch};
use crate::answer::code;
use crate::objects::function::function;
use crate::session::attached::session;
use crate::session::poison;
use crate::state::context;
use crate::state::function::{Function, Prepared};

/// CUDA's most for the arguments of a launch.
const PARAMETER_BYTES_MAX: usize = 32_764;

/// A function, of which something may be set: there is a context, and it has not failed.
fn settable(f: CUfunction) -> Result<(&'static Function, u32), CUresult> {
    session()?;
    let (ctx, device) = context::current_on_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    match poison::of(ctx) {
        Some(code) => Err(code),
        None => Ok((function(f.cast())?, device)),
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetBlockShape(f: CUfunction, x: i32, y: i32, z: i32) -> CUresult {
    code(settable(f).and_then(|(f, device)| {
        // What is negative is too large.
        let block = [x as u32, y as u32, z as u32];
        Geometry { grid: [1; 3], block, shared_bytes: 0 }.check(f, device)?;
        f.prepare().block = block;
        Ok(())
    }))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetSharedSize(f: CUfunction, bytes: u32) -> CUresult {
    code(settable(f).and_then(|(f, device)| {
        let most = f.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, device)?;
        if i64::from(bytes) > i64::from(most) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        f.prepare().shared_bytes = bytes;
        Ok(())
    }))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuParamSetSize(f: CUfunction, bytes: u32) -> CUresult {
    code(settable(f).and_then(|(f, _)| {
        if bytes as usize > PARAMETER_BYTES_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        f.prepare().parameter_bytes = bytes as usize;
        Ok(())
    }))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuParamSeti(f: CUfunction, offset: i32, value: u32) -> CUresult {
    set(f, offset, &value.to_ne_bytes())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuParamSetf(f: CUfunction, offset: i32, value: f32) -> CUresult {
    set(f, offset, &value.to_ne_bytes())
}

/// # Safety
/// As CUDA's `cuParamSetv`: `from` is null or has `bytes`.
pub unsafe fn cuParamSetv(f: CUfunction, offset: i32, from: *mut c_void, bytes: u32) -> CUresult {
    if bytes as usize > PARAMETER_BYTES_MAX || from.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    set(f, offset, unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes as usize) })
}

/// The driver checks no offset; what lies outside of all arguments that CUDA allows is refused here.
fn set(f: CUfunction, offset: i32, value: &[u8]) -> CUresult {
    code(settable(f).and_then(|(f, _)| {
        let first = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = first.checked_add(value.len()).filter(|end| *end <= PARAMETER_BYTES_MAX);
        f.prepare().set(first..end.ok_or(CUDA_ERROR_INVALID_VALUE)?, value);
        Ok(())
    }))
}

/// # Safety
/// As CUDA's `cuLaunch`.
pub unsafe fn cuLaunch(f: CUfunction) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { launch_prepared(f, 1, 1, null_mut()) }
}

/// # Safety
/// As CUDA's `cuLaunchGrid`.
pub unsafe fn cuLaunchGrid(f: CUfunction, width: i32, height: i32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { launch_prepared(f, width, height, null_mut()) }
}

/// # Safety
/// As CUDA's `cuLaunchGridAsync`.
pub unsafe fn cuLaunchGridAsync(f: CUfunction, width: i32, height: i32, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { launch_prepared(f, width, height, stream) }
}

unsafe fn launch_prepared(f: CUfunction, width: i32, height: i32, stream: CUstream) -> CUresult {
    let known = match settable(f) {
        Ok((known, _)) => known,
        Err(code) => return code,
    };
    let bytes = known.parameter_bytes as usize;
    let Prepared { block, shared_bytes, parameter_bytes, mut values } = known.prepared.lock().clone();
    if parameter_bytes > bytes {
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    values.resize(bytes, 0);
    // What is negative is too large.
    let geometry = Geometry { grid: [width as u32, height as u32, 1], block, shared_bytes };
    let mut size = bytes;
    let mut packed = [
        CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
        values.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
        (&raw mut size).cast(),
        CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
    ];
    let extra = if bytes == 0 { null_mut() } else { packed.as_mut_ptr() };
    // SAFETY: a list of CUDA's form, and as many bytes as it says.
    unsafe { launch(f, geometry, stream, &[], null_mut(), extra) }
}
