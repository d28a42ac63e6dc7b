//! Arrays and mipmapped arrays.

// UNSAFETY: C entry points.

use std::ffi::c_uint;
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, api, get, handle, put};
use crate::array::{self, ARRAYS, MIPMAPPED, Mipmapped, check, half, is_layered, new_array};
use crate::capture;
use crate::context;

fn create_array(out: *mut CUarray, d: CUDA_ARRAY3D_DESCRIPTOR) -> R {
    let c = context::current()?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    crate::array::check(&d)?;
    let a = new_array(&c, d, false)?;
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, ARRAYS.add(&a)) }
}

fn create(out: *mut CUmipmappedArray, mut d: CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> R {
    let c = context::current()?;
    if out.is_null() || levels == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    check(&d)?;
    let depth = if is_layered(&d) { 0 } else { d.Depth };
    let most = d.Width.max(d.Height).max(depth).ilog2() + 1;
    let mut m = Mipmapped { levels: Vec::new() };
    for _ in 0..levels.min(most) {
        match array::new_array(&c, d, true) {
            Ok(a) => m.levels.push(a),
            Err(e) => {
                m.levels.iter().for_each(|a| a.free());
                return Err(e);
            }
        }
        d = half(d);
    }
    for a in &m.levels {
        ARRAYS.add::<CUarray_st>(a);
    }
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, MIPMAPPED.add(&Arc::new(m))) }
}

api! {
    fn cuArrayCreate_v2(out: *mut CUarray, d: *const CUDA_ARRAY_DESCRIPTOR) {
        let d = get(d)?;
        create_array(out, CUDA_ARRAY3D_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Depth: 0,
            Format: d.Format,
            NumChannels: d.NumChannels,
            Flags: 0,
        })
    }
    fn cuArray3DCreate_v2(out: *mut CUarray, d: *const CUDA_ARRAY3D_DESCRIPTOR) { create_array(out, get(d)?) }
    fn cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, h: CUarray) {
        let d = ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.descriptor;
        put(out, CUDA_ARRAY_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Format: d.Format,
            NumChannels: d.NumChannels,
        })
    }
    fn cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, h: CUarray) {
        put(out, ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.descriptor)
    }
    fn cuArrayDestroy(h: CUarray) {
        let c = context::current()?;
        if ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.is_level {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        capture::forbid_unsafe()?;
        // Copies that are queued look it up when they run.
        for s in c.every_stream() {
            s.wait_all();
        }
        ARRAYS.remove(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.free();
        Ok(())
    }
    fn cuMipmappedArrayCreate(out: *mut CUmipmappedArray, d: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) {
        create(out, get(d)?, levels)
    }
    fn cuMipmappedArrayGetLevel(out: *mut CUarray, h: CUmipmappedArray, level: c_uint) {
        let m = MIPMAPPED.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, handle(m.levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?))
    }
    fn cuMipmappedArrayDestroy(h: CUmipmappedArray) {
        let c = context::current()?;
        MIPMAPPED.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        capture::forbid_unsafe()?;
        let m = MIPMAPPED.remove(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        for s in c.every_stream() {
            s.wait_all();
        }
        for a in &m.levels {
            ARRAYS.remove(Arc::as_ptr(a).cast_mut());
            a.free();
        }
        Ok(())
    }
}
