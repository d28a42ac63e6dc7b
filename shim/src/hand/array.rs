//! Arrays, and the textures and surfaces over them.
//!
//! What an object was made from is remembered, so that questions about it need no answer from the worker.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};

use crate::handles::Table;
use crate::local::context;
use crate::session::session;

/// A `CUarray` or a `CUmipmappedArray`, with the levels that were asked for.
pub struct Array {
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub levels: Mutex<HashMap<u32, u64>>,
}

pub static ARRAYS: Table<Array> = Table::new();
pub static MIPMAPPED: Table<Array> = Table::new();

pub fn needs_context() -> Result<(), CUresult> {
    session()?;
    if context::current() == 0 { Err(CUDA_ERROR_INVALID_CONTEXT) } else { Ok(()) }
}

/// Bytes of an element of an array. `None` for what is no array, and for formats whose elements are blocks.
pub fn element_bytes(array: CUarray) -> Option<usize> {
    let d = &ARRAYS.get(Handle(array as u64))?.descriptor;
    let channel = match d.Format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => return Some(1),
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => return Some(2),
        CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 | CU_AD_FORMAT_UNORM_INT_101010_2 => return Some(4),
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => return Some(2),
        CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => return Some(4),
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => return Some(8),
        _ => return None,
    };
    Some(channel * d.NumChannels as usize)
}

/// An array was destroyed, or its context was; its levels end with it.
pub fn ended(kind: Kind, handle: Handle) -> Vec<Handle> {
    let table = if kind == Kind::Array { &ARRAYS } else { &MIPMAPPED };
    let Some(gone) = table.remove(handle) else { return Vec::new() };
    let levels = std::mem::take(&mut *gone.levels.lock().expect("no panic happens under this lock"));
    levels.into_values().map(Handle).collect()
}

// Texture and surface objects.

#[derive(Clone, Copy)]
pub struct Object {
    pub context: u64,
    pub resource: CUDA_RESOURCE_DESC,
    pub texture: Option<CUDA_TEXTURE_DESC>,
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

// SAFETY: the handles inside are numbers.
unsafe impl Send for Object {}

/// By number; textures and surfaces count separately.
pub static TEXTURES: Mutex<Option<HashMap<u64, Object>>> = Mutex::new(None);
pub static SURFACES: Mutex<Option<HashMap<u64, Object>>> = Mutex::new(None);

pub fn objects<T>(of: &Mutex<Option<HashMap<u64, Object>>>, f: impl FnOnce(&mut HashMap<u64, Object>) -> T) -> T {
    f(of.lock().expect("no panic happens under this lock").get_or_insert_default())
}

/// A context has ended, and with it its objects.
pub fn context_ended(context: u64) {
    for of in [&TEXTURES, &SURFACES] {
        objects(of, |all| all.retain(|_, object| object.context != context));
    }
}

pub fn object(of: &Mutex<Option<HashMap<u64, Object>>>, number: u64) -> Result<Object, CUresult> {
    session()?;
    objects(of, |all| all.get(&number).copied()).ok_or(CUDA_ERROR_INVALID_VALUE)
}
