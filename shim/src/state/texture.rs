//! Texture and surface objects, with what they were made from.

// UNSAFETY: sends descriptions, whose handles are numbers, between threads.

use std::collections::HashMap;

use orion_cuda::sys::*;

use crate::state::lock::{Lock, Rank};

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

/// By session and number.
pub type Objects = Lock<Option<HashMap<(usize, u64), Object>>>;

pub struct Textures {
    /// Textures and surfaces count separately.
    pub textures: Objects,
    pub surfaces: Objects,
}

impl Textures {
    pub const fn new() -> Textures {
        Textures { textures: Lock::new(Rank::Leaf, None), surfaces: Lock::new(Rank::Leaf, None) }
    }

    /// A context has ended, and with it its objects.
    pub fn context_ended(&self, context: u64) {
        for of in [&self.textures, &self.surfaces] {
            objects(of, |all| all.retain(|_, object| object.context != context));
        }
    }
}

pub fn objects<T>(of: &Objects, f: impl FnOnce(&mut HashMap<(usize, u64), Object>) -> T) -> T {
    f(of.lock().get_or_insert_default())
}
