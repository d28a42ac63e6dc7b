//! Texture and surface objects, with what they were made from.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;

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
