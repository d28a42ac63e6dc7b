//! Texture and surface objects.

// UNSAFETY: C entry points, and unions whose member another field tells.

use orion_cuda::sys::*;

use crate::api::{R, Raw, api, get, put};
use crate::array::{self, ARRAYS, Array, MIPMAPPED, element_bytes, is_layered};
use crate::log::refuse;
use crate::texture::{Address, Channel, Image, SURFACES, Surface, TEXTURES, Texture};
use crate::{context, vram};

impl Channel {
    fn of(format: CUarray_format) -> R<Self> {
        Ok(match format {
            CU_AD_FORMAT_UNSIGNED_INT8 => Self::U8,
            CU_AD_FORMAT_UNSIGNED_INT16 => Self::U16,
            CU_AD_FORMAT_UNSIGNED_INT32 => Self::U32,
            CU_AD_FORMAT_SIGNED_INT8 => Self::S8,
            CU_AD_FORMAT_SIGNED_INT16 => Self::S16,
            CU_AD_FORMAT_SIGNED_INT32 => Self::S32,
            CU_AD_FORMAT_HALF => Self::F16,
            CU_AD_FORMAT_FLOAT => Self::F32,
            _ => return refuse("cuTexObjectCreate", "this array format"),
        })
    }
}

impl Image {
    fn of(a: &Array) -> R<Self> {
        let d = &a.descriptor;
        let depth = d.Depth.max(1) as u32;
        let layered = is_layered(d);
        Ok(Self {
            base: a.base,
            pitch: a.pitch,
            slice: a.pitch * a.rows(),
            size: [d.Width as u32, d.Height.max(1) as u32, if layered { 1 } else { depth }],
            layers: if layered { depth } else { 1 },
            channel: Channel::of(d.Format)?,
            channels: d.NumChannels,
        })
    }
}

fn limited(value: usize, attribute: CUdevice_attribute) -> R<u32> {
    let most = array::limit(attribute).unwrap_or(0) as usize;
    if (1..=most).contains(&value) { Ok(value as u32) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// The levels of a resource.
fn images(d: &CUDA_RESOURCE_DESC) -> R<Vec<Image>> {
    if d.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the type says which member is set; all are integers and pointers, which are values whatever their bits.
    unsafe {
        match d.resType {
            CU_RESOURCE_TYPE_ARRAY => {
                let a = ARRAYS.get(d.res.array.hArray).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                Ok(vec![Image::of(&a)?])
            }
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                let m = MIPMAPPED.get(d.res.mipmap.hMipmappedArray).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                m.levels.iter().map(|a| Image::of(a)).collect()
            }
            CU_RESOURCE_TYPE_LINEAR => {
                let l = d.res.linear;
                let texel = element_bytes(l.format, l.numChannels)?;
                let width = limited(
                    (l.sizeInBytes as u64 / texel) as usize,
                    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH,
                )?;
                let channel = Channel::of(l.format)?;
                let bytes = l.sizeInBytes as u64;
                linear(l.devPtr, [width, 1], bytes, channel, l.numChannels, bytes)
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                let p = d.res.pitch2D;
                let texel = element_bytes(p.format, p.numChannels)?;
                let width = limited(p.width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH)?;
                let height = limited(p.height, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)?;
                let pitch = limited(p.pitchInBytes, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)?;
                let row = u64::from(width) * texel;
                if u64::from(pitch) < row || pitch % 32 != 0 {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let bytes = u64::from(pitch) * u64::from(height - 1) + row;
                linear(p.devPtr, [width, height], pitch.into(), Channel::of(p.format)?, p.numChannels, bytes)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

fn linear(base: u64, [w, h]: [u32; 2], pitch: u64, channel: Channel, channels: u32, bytes: u64) -> R<Vec<Image>> {
    if !base.is_multiple_of(512) || !vram::covers(base, bytes) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(vec![Image { base, pitch, slice: 0, size: [w, h, 1], layers: 1, channel, channels }])
}

/// Narrows a resource to the format, levels and layers of a view.
fn viewed(mut levels: Vec<Image>, v: &CUDA_RESOURCE_VIEW_DESC) -> R<Vec<Image>> {
    use Channel::{F16, F32, S8, S16, S32, U8, U16, U32};
    let format = match v.format {
        CU_RES_VIEW_FORMAT_NONE => None,
        f @ CU_RES_VIEW_FORMAT_UINT_1X8..=CU_RES_VIEW_FORMAT_FLOAT_4X32 => {
            let [kind, width] = [(f - 1) / 3, (f - 1) % 3];
            Some(([U8, S8, U16, S16, U32, S32, F16, F32][kind as usize], 1 << width))
        }
        CU_RES_VIEW_FORMAT_UNSIGNED_BC1..=CU_RES_VIEW_FORMAT_UNSIGNED_BC7 => {
            return refuse("cuTexObjectCreate", "a block-compressed view");
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let (first, last) = (v.firstMipmapLevel as usize, v.lastMipmapLevel as usize);
    let all = levels[0];
    let extents = [(v.width, all.size[0]), (v.height, all.size[1]), (v.depth, all.size[2])];
    // The third extent of layers is the layers' own business.
    let extents = &extents[..if all.layers > 1 { 2 } else { 3 }];
    if first > last
        || last >= levels.len()
        || v.firstLayer > v.lastLayer
        || v.lastLayer >= all.layers
        || extents.iter().any(|&(view, own)| view.max(1) != own as usize)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    levels = levels[first..=last].to_vec();
    for i in &mut levels {
        if let Some((channel, channels)) = format {
            if u64::from(channel.bytes() * channels) != i.texel_bytes() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            (i.channel, i.channels) = (channel, channels);
        }
        i.base += u64::from(v.firstLayer) * i.slice;
        i.layers = v.lastLayer - v.firstLayer + 1;
    }
    Ok(levels)
}

fn address(mode: CUaddress_mode, normalised: bool) -> R<Address> {
    Ok(match mode {
        // These two are for normalised coordinates only.
        CU_TR_ADDRESS_MODE_WRAP | CU_TR_ADDRESS_MODE_MIRROR if !normalised => Address::Clamp,
        CU_TR_ADDRESS_MODE_WRAP => Address::Wrap,
        CU_TR_ADDRESS_MODE_MIRROR => Address::Mirror,
        CU_TR_ADDRESS_MODE_CLAMP => Address::Clamp,
        CU_TR_ADDRESS_MODE_BORDER => Address::Border,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

fn filter(mode: CUfilter_mode) -> R<bool> {
    match mode {
        CU_TR_FILTER_MODE_POINT => Ok(false),
        CU_TR_FILTER_MODE_LINEAR => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn new_texture(
    resource: CUDA_RESOURCE_DESC,
    t: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
) -> R<Texture> {
    let c = context::current()?;
    let mut levels = images(&resource)?;
    let is_linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
    let flat = is_linear || resource.resType == CU_RESOURCE_TYPE_PITCH2D;
    if let Some(v) = &view {
        if flat {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        levels = viewed(levels, v)?;
    }
    const KNOWN: u32 = CU_TRSF_READ_AS_INTEGER
        | CU_TRSF_NORMALIZED_COORDINATES
        | CU_TRSF_SRGB
        | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
        | CU_TRSF_SEAMLESS_CUBEMAP;
    if t.flags & !KNOWN != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if t.flags & CU_TRSF_SEAMLESS_CUBEMAP != 0 {
        return refuse("cuTexObjectCreate", "seamless filtering of cubes");
    }
    let channel = levels[0].channel;
    let wide = matches!(channel, Channel::U32 | Channel::S32);
    let integer = wide || (!channel.is_float() && t.flags & CU_TRSF_READ_AS_INTEGER != 0);
    let linear = filter(t.filterMode)? && !is_linear;
    let blends = filter(t.mipmapFilterMode)? && !integer;
    // Of linear memory a kernel reads single texels by number, and zero beside them.
    let normalised = t.flags & CU_TRSF_NORMALIZED_COORDINATES != 0 && !is_linear;
    let mipmapped = resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    // 32 bits are no fractions, so to filter them they have to be asked for as integers.
    let is_asked_for = t.flags & CU_TRSF_READ_AS_INTEGER != 0;
    if (linear && wide && !is_asked_for) || (mipmapped && !normalised) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut modes = [Address::Border; 3];
    if !is_linear {
        for (to, mode) in modes.iter_mut().zip(t.addressMode) {
            *to = address(mode, normalised)?;
        }
    }
    Ok(Texture {
        context: c.id,
        description: Raw((resource, t, view)),
        levels,
        address: modes,
        linear,
        blends_levels: blends,
        normalised,
        integer,
        srgb: t.flags & CU_TRSF_SRGB != 0 && channel == Channel::U8 && !integer,
        level_bias: t.mipmapLevelBias,
        level_min: t.minMipmapLevelClamp,
        level_max: t.maxMipmapLevelClamp,
        border: if is_linear { [0.0; 4] } else { t.borderColor },
    })
}

fn new_surface(resource: CUDA_RESOURCE_DESC) -> R<Surface> {
    let c = context::current()?;
    if resource.resType != CU_RESOURCE_TYPE_ARRAY {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the type says that this member is set.
    let a = ARRAYS.get(unsafe { resource.res.array.hArray }).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if resource.flags != 0 || !array::has(&a.descriptor, CUDA_ARRAY3D_SURFACE_LDST) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Surface { context: c.id, description: Raw(resource), image: Image::of(&a)? })
}

/// The descriptions a texture was made with.
fn described<T>(number: CUtexObject, f: impl Fn(&Texture) -> Option<T>) -> R<T> {
    TEXTURES.get(number).and_then(|t| f(&t)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

api! {
    fn cuTexObjectCreate(
        out: *mut CUtexObject,
        resource: *const CUDA_RESOURCE_DESC,
        description: *const CUDA_TEXTURE_DESC,
        view: *const CUDA_RESOURCE_VIEW_DESC,
    ) {
        let view = if view.is_null() { None } else { Some(get(view)?) };
        let t = new_texture(get(resource)?, get(description)?, view)?;
        get(out)?;
        put(out, TEXTURES.add(t))
    }
    fn cuTexObjectDestroy(number: CUtexObject) {
        context::current()?;
        TEXTURES.remove(number)
    }
    fn cuTexObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, number: CUtexObject) {
        put(out, described(number, |t| Some(t.description.0.0))?)
    }
    fn cuTexObjectGetTextureDesc(out: *mut CUDA_TEXTURE_DESC, number: CUtexObject) {
        put(out, described(number, |t| Some(t.description.0.1))?)
    }
    fn cuTexObjectGetResourceViewDesc(out: *mut CUDA_RESOURCE_VIEW_DESC, number: CUtexObject) {
        put(out, described(number, |t| t.description.0.2)?)
    }
    fn cuSurfObjectCreate(out: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) {
        let s = new_surface(get(resource)?)?;
        get(out)?;
        put(out, SURFACES.add(s))
    }
    fn cuSurfObjectDestroy(number: CUsurfObject) {
        context::current()?;
        SURFACES.remove(number)
    }
    fn cuSurfObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, number: CUsurfObject) {
        put(out, SURFACES.get(number).ok_or(CUDA_ERROR_INVALID_VALUE)?.description.0)
    }
}
