//! Arrays: what may be made, how large, and arrays with levels.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, Registry};
use crate::context::Context;
use crate::log::refuse;
use crate::memory::{allocate, drop_range};
use crate::vram::{self, Kind};

pub struct Array {
    pub base: u64,
    pub pitch: u64,
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// A level of a mipmapped array, which alone ends it.
    pub is_level: bool,
}

impl Array {
    pub fn free(&self) {
        if let Some(r) = vram::find(self.base) {
            drop_range(&r);
        }
    }
    pub fn rows(&self) -> u64 {
        self.descriptor.Height.max(1) as u64
    }

    /// Whether a box of bytes, rows and layers lies inside, from this place on.
    pub fn has(&self, at: [usize; 3], extents: [usize; 3]) -> bool {
        let most = [self.pitch, self.rows(), self.descriptor.Depth.max(1) as u64];
        (0..3).all(|i| at[i].checked_add(extents[i]).is_some_and(|end| end as u64 <= most[i]))
    }

    /// Whether so many bytes in a row do, which may run across rows.
    pub fn has_line(&self, offset: usize, bytes: usize) -> bool {
        let most = self.pitch * self.rows() * self.descriptor.Depth.max(1) as u64;
        offset.checked_add(bytes).is_some_and(|end| end as u64 <= most)
    }
}

pub static ARRAYS: Registry<Array> = Registry::new();

pub fn element_bytes(format: CUarray_format, channels: c_uint) -> R<u64> {
    let one = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return refuse("cuArrayCreate", "this array format"),
    };
    if matches!(channels, 1 | 2 | 4) { Ok(one * u64::from(channels)) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Memory for an array whose shape was checked.
pub fn new_array(c: &Context, d: CUDA_ARRAY3D_DESCRIPTOR, is_level: bool) -> R<Arc<Array>> {
    let pitch = element_bytes(d.Format, d.NumChannels)?.checked_mul(d.Width as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let cells = (d.Height.max(1) as u64).checked_mul(d.Depth.max(1) as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let bytes = pitch.checked_mul(cells).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let r = allocate(c, bytes, Kind::Internal)?;
    Ok(Arc::new(Array { base: r.base, pitch, descriptor: d, is_level }))
}

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
pub(crate) fn half(d: CUDA_ARRAY3D_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    let halve = |n: usize| if n == 0 { 0 } else { (n / 2).max(1) };
    let depth = if is_layered(&d) { d.Depth } else { halve(d.Depth) };
    CUDA_ARRAY3D_DESCRIPTOR { Width: halve(d.Width), Height: halve(d.Height), Depth: depth, ..d }
}
