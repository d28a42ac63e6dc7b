//! Shapes of arrays: what may be made, how large, and arrays with levels.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, get, handle, put, refuse};
use crate::context;
use crate::memory::{self, ARRAYS, Array};
use crate::vram;

/// What textures and surfaces of compute capability 9.0 may measure, as device attributes.
pub fn limit(attribute: CUdevice_attribute) -> Option<c_int> {
    Some(match attribute {
        CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER => 1,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH => 131_072,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT => 65536,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT => 65000,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH => 2_097_120,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH => 1 << 28,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH => 16384,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE => 8192,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS => 2048,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => 2046,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH => 32768,
        _ => return None,
    })
}

pub fn has(d: &CUDA_ARRAY3D_DESCRIPTOR, flag: u32) -> bool {
    d.Flags & flag != 0
}

/// Whether the third extent counts layers or faces, which have no neighbours in that direction.
pub fn is_layered(d: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    has(d, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)
}

/// Checks the shape of an array that is to be made.
pub fn check(d: &CUDA_ARRAY3D_DESCRIPTOR) -> R {
    const KNOWN: u32 =
        CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
    if d.Flags & !KNOWN != 0 {
        return refuse("cuArray3DCreate", "this array flag");
    }
    let (layered, cube) = (has(d, CUDA_ARRAY3D_LAYERED), has(d, CUDA_ARRAY3D_CUBEMAP));
    let extent = [d.Width, d.Height, d.Depth];
    let allowed: [usize; 3] = match (cube, layered) {
        _ if d.Width == 0 => return Err(CUDA_ERROR_INVALID_VALUE),
        (true, _) if d.Width != d.Height || d.Depth == 0 || !d.Depth.is_multiple_of(6) => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        (true, true) => [32768, 32768, 2046],
        (true, false) => [32768, 32768, 6],
        (false, true) if d.Depth == 0 => return Err(CUDA_ERROR_INVALID_VALUE),
        (false, true) => [32768, 32768, 2048],
        (false, false) if d.Depth > 0 && d.Height == 0 => return Err(CUDA_ERROR_INVALID_VALUE),
        (false, false) if d.Depth > 0 && d.Width.max(d.Height).max(d.Depth) > 16384 => [8192, 8192, 32768],
        (false, false) if d.Depth > 0 => [16384; 3],
        (false, false) if has(d, CUDA_ARRAY3D_TEXTURE_GATHER) => [32768, 32768, 0],
        (false, false) => [131_072, 65536, 0],
    };
    let gathers = !has(d, CUDA_ARRAY3D_TEXTURE_GATHER) || (d.Height > 0 && (d.Depth == 0 || layered || cube));
    if gathers && extent.iter().zip(allowed).all(|(e, most)| *e <= most) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

pub struct Mipmapped {
    pub levels: Vec<Arc<Array>>,
}

pub static MIPMAPPED: Registry<Mipmapped> = Registry::new();

/// A context ends: its arrays go with it. Their memory is still known, and goes next.
pub fn end_context(id: u64) {
    let lives_there = |a: &Array| vram::find(a.base).is_some_and(|r| r.context == id);
    for a in ARRAYS.all().iter().filter(|a| lives_there(a)) {
        ARRAYS.remove(Arc::as_ptr(a).cast_mut());
    }
    for m in MIPMAPPED.all().iter().filter(|m| m.levels.iter().all(|a| lives_there(a))) {
        MIPMAPPED.remove(Arc::as_ptr(m).cast_mut());
    }
}

/// The extents of the next level.
fn half(d: CUDA_ARRAY3D_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    let halve = |n: usize| if n == 0 { 0 } else { (n / 2).max(1) };
    let depth = if is_layered(&d) { d.Depth } else { halve(d.Depth) };
    CUDA_ARRAY3D_DESCRIPTOR { Width: halve(d.Width), Height: halve(d.Height), Depth: depth, ..d }
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
        match memory::new_array(&c, d, true) {
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
    fn cuMipmappedArrayCreate(out: *mut CUmipmappedArray, d: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) {
        create(out, get(d)?, levels)
    }
    fn cuMipmappedArrayGetLevel(out: *mut CUarray, h: CUmipmappedArray, level: c_uint) {
        let m = MIPMAPPED.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, handle(m.levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?))
    }
    fn cuMipmappedArrayDestroy(h: CUmipmappedArray) {
        let c = context::current()?;
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
