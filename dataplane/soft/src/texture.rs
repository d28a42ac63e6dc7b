//! Texture and surface objects by the numbers that kernels name them by.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use orion_cuda::sys::*;

use crate::api::{R, Raw};
use crate::context::{CONTEXTS, Point};

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

/// What belongs to a context.
pub trait Owned {
    fn context(&self) -> u64;
}

impl Owned for Texture {
    fn context(&self) -> u64 {
        self.context
    }
}

impl Owned for Surface {
    fn context(&self) -> u64 {
        self.context
    }
}

struct Table<T> {
    live: BTreeMap<u64, Arc<T>>,
    /// What was destroyed, until the work ends that its context's streams had then: programs destroy an object right
    /// behind the launch of a kernel that samples it.
    leaving: BTreeMap<u64, (Arc<T>, Vec<Point>)>,
}

fn is_busy(work: &[Point]) -> bool {
    work.iter().any(|p| !p.stream.is_done(p.number))
}

/// Objects by number.
pub struct Objects<T>(RwLock<Table<T>>);

pub(crate) static TEXTURES: Objects<Texture> = Objects::new();
pub(crate) static SURFACES: Objects<Surface> = Objects::new();
pub(crate) static NEXT: AtomicU64 = AtomicU64::new(1);

impl<T: Owned> Objects<T> {
    const fn new() -> Self {
        Self(RwLock::new(Table { live: BTreeMap::new(), leaving: BTreeMap::new() }))
    }
    pub(crate) fn add(&self, v: T) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut t) = self.0.write() {
            t.live.insert(number, Arc::new(v));
        }
        number
    }
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.0.read().ok()?.live.get(&number).cloned()
    }
    /// What a kernel finds by a number that it was given.
    fn reached(&self, number: u64) -> Option<Arc<T>> {
        let t = self.0.read().ok()?;
        let leaving = || t.leaving.get(&number).filter(|(_, work)| is_busy(work)).map(|(v, _)| v);
        t.live.get(&number).or_else(leaving).cloned()
    }
    pub(crate) fn remove(&self, number: u64) -> R {
        let context = self.get(number).ok_or(CUDA_ERROR_INVALID_VALUE)?.context();
        // Green contexts have the number of the context that they share.
        let contexts = CONTEXTS.all().into_iter().filter(|c| c.id == context);
        let work = contexts.flat_map(|c| c.every_stream()).map(|s| s.end());
        let work: Vec<Point> = work.collect();
        let mut t = self.0.write().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        t.leaving.retain(|_, (_, work)| is_busy(work));
        let gone = t.live.remove(&number).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if is_busy(&work) {
            t.leaving.insert(number, (gone, work));
        }
        Ok(())
    }
    fn end_context(&self, id: u64) {
        if let Ok(mut t) = self.0.write() {
            t.live.retain(|_, v| v.context() != id);
            t.leaving.retain(|_, (v, work)| v.context() != id && is_busy(work));
        }
    }
}

/// What a kernel samples by this number.
pub fn texture(number: u64) -> Option<Arc<Texture>> {
    TEXTURES.reached(number)
}

/// What a kernel loads from and stores to by this number.
pub fn surface(number: u64) -> Option<Arc<Surface>> {
    SURFACES.reached(number)
}

/// A context ends: its objects go with it.
pub fn end_context(id: u64) {
    TEXTURES.end_context(id);
    SURFACES.end_context(id);
}
