//! Texture and surface objects by the numbers that kernels name them by.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use orion_cuda::sys::*;

use crate::api::{R, Raw};

/// One channel of a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    U8,
    U16,
    U32,
    S8,
    S16,
    S32,
    F16,
    F32,
}

impl Channel {
    pub fn bytes(self) -> u32 {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 | Self::F16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32)
    }
}

/// Texels in memory: an array, one of its levels, or linear memory.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub base: u64,
    /// Bytes from row to row, and from layer or depth to the next.
    pub pitch: u64,
    pub slice: u64,
    /// Width, height and depth in texels, none of them zero.
    pub size: [u32; 3],
    /// Layers, or faces of cubes.
    pub layers: u32,
    pub channel: Channel,
    pub channels: u32,
}

impl Image {
    pub fn texel_bytes(&self) -> u64 {
        u64::from(self.channel.bytes() * self.channels)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Wrap,
    Clamp,
    Mirror,
    Border,
}

pub struct Texture {
    pub context: u64,
    pub description: Raw<(CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, Option<CUDA_RESOURCE_VIEW_DESC>)>,
    /// From the largest down; never empty.
    pub levels: Vec<Image>,
    pub address: [Address; 3],
    pub linear: bool,
    /// Whether values between two levels are blended.
    pub blends_levels: bool,
    pub normalised: bool,
    /// Whether texels come back as 32-bit integers.
    pub integer: bool,
    pub srgb: bool,
    pub level_bias: f32,
    pub level_min: f32,
    pub level_max: f32,
    pub border: [f32; 4],
}

pub struct Surface {
    pub context: u64,
    pub description: Raw<CUDA_RESOURCE_DESC>,
    pub image: Image,
}

/// Live objects by number.
pub struct Objects<T>(pub RwLock<BTreeMap<u64, Arc<T>>>);

pub(crate) static TEXTURES: Objects<Texture> = Objects(RwLock::new(BTreeMap::new()));
pub(crate) static SURFACES: Objects<Surface> = Objects(RwLock::new(BTreeMap::new()));
pub(crate) static NEXT: AtomicU64 = AtomicU64::new(1);

impl<T> Objects<T> {
    pub(crate) fn add(&self, v: T) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut m) = self.0.write() {
            m.insert(number, Arc::new(v));
        }
        number
    }
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.0.read().ok()?.get(&number).cloned()
    }
    pub(crate) fn remove(&self, number: u64) -> R {
        let hit = self.0.write().ok().and_then(|mut m| m.remove(&number));
        hit.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    pub(crate) fn retain(&self, f: impl Fn(&T) -> bool) {
        if let Ok(mut m) = self.0.write() {
            m.retain(|_, v| f(v));
        }
    }
}

pub fn texture(number: u64) -> Option<Arc<Texture>> {
    TEXTURES.get(number)
}

pub fn surface(number: u64) -> Option<Arc<Surface>> {
    SURFACES.get(number)
}

/// A context ends: its objects go with it.
pub fn end_context(id: u64) {
    TEXTURES.retain(|t| t.context != id);
    SURFACES.retain(|s| s.context != id);
}
