//! Textures and surfaces.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::message::calls;
use orion_wire::message::field::{Existing, FollowedByDevice, Size};
use orion_wire::message::texture::{
    self as message, ResourceOf, SurfObjectCreate, SurfObjectCreateReply, TexObjectCreate, TexObjectCreateReply,
};

use crate::answer::write;
use crate::session::attached::session;
use crate::session::call::{call, post};
use crate::session::context::needs_context;
use crate::state::context;
use crate::state::process::state;
use crate::state::texture::{Object, Objects, objects};

/// What of a description its type has.
fn resource_of(d: &CUDA_RESOURCE_DESC) -> Result<message::Resource, CUresult> {
    // SAFETY: the type says which member of the union is set; all of them are plain numbers.
    let of = unsafe {
        match d.resType {
            CU_RESOURCE_TYPE_ARRAY => ResourceOf::Array(Existing(d.res.array.hArray as u64)),
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => ResourceOf::Mipmapped(Existing(d.res.mipmap.hMipmappedArray as u64)),
            CU_RESOURCE_TYPE_LINEAR => {
                let l = d.res.linear;
                let (address, bytes) = (FollowedByDevice(l.devPtr), Size::of(l.sizeInBytes));
                ResourceOf::Linear(message::Linear { address, format: l.format, channels: l.numChannels, bytes })
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                let p = d.res.pitch2D;
                ResourceOf::Rows(message::Rows {
                    address: FollowedByDevice(p.devPtr),
                    format: p.format,
                    channels: p.numChannels,
                    width: Size::of(p.width),
                    rows: Size::of(p.height),
                    pitch: Size::of(p.pitchInBytes),
                })
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    };
    Ok(message::Resource { flags: d.flags, of })
}

fn texture_of(t: &CUDA_TEXTURE_DESC) -> message::Texture {
    message::Texture {
        address_modes: t.addressMode,
        filter_mode: t.filterMode,
        flags: t.flags,
        max_anisotropy: t.maxAnisotropy,
        mipmap_filter_mode: t.mipmapFilterMode,
        mipmap_level_bias: t.mipmapLevelBias,
        min_mipmap_level: t.minMipmapLevelClamp,
        max_mipmap_level: t.maxMipmapLevelClamp,
        border: t.borderColor,
    }
}

fn view_of(v: &CUDA_RESOURCE_VIEW_DESC) -> message::View {
    message::View {
        format: v.format,
        width: Size::of(v.width),
        height: Size::of(v.height),
        depth: Size::of(v.depth),
        first_level: v.firstMipmapLevel,
        last_level: v.lastMipmapLevel,
        first_layer: v.firstLayer,
        last_layer: v.lastLayer,
    }
}

/// A driver numbers its objects, and so does each node's.
fn named(number: u64) -> (usize, u64) {
    (context::current_session(), number)
}

/// # Safety
/// As CUDA's `cuTexObjectCreate`.
pub unsafe fn cuTexObjectCreate(
    out: *mut CUtexObject,
    resource: *const CUDA_RESOURCE_DESC,
    texture: *const CUDA_TEXTURE_DESC,
    view: *const CUDA_RESOURCE_VIEW_DESC,
) -> CUresult {
    let answer = (|| {
        needs_context()?;
        if out.is_null() || resource.is_null() || texture.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = context::current_home();
        // SAFETY: not null where it may not be, valid by the caller's promise.
        let object =
            unsafe { Object { context, resource: *resource, texture: Some(*texture), view: view.as_ref().copied() } };
        let q = TexObjectCreate {
            resource: resource_of(&object.resource)?,
            // SAFETY: as above.
            texture: texture_of(unsafe { &*texture }),
            view: object.view.as_ref().map(view_of),
        };
        let number = call(TexObjectCreate::OP, |w| q.encode(w), TexObjectCreateReply::decode)?.texture;
        objects(&state().textures.textures, |all| all.insert(named(number), object));
        Ok(number)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuSurfObjectCreate`.
pub unsafe fn cuSurfObjectCreate(out: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) -> CUresult {
    let answer = (|| {
        needs_context()?;
        if out.is_null() || resource.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, valid by the caller's promise.
        let object =
            Object { context: context::current_home(), resource: unsafe { *resource }, texture: None, view: None };
        let q = SurfObjectCreate { resource: resource_of(&object.resource)? };
        let number = call(SurfObjectCreate::OP, |w| q.encode(w), SurfObjectCreateReply::decode)?.surface;
        objects(&state().textures.surfaces, |all| all.insert(named(number), object));
        Ok(number)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// The driver accepts any number here, also one that is no texture.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuTexObjectDestroy(object: CUtexObject) -> CUresult {
    if let Err(code) = needs_context() {
        return code;
    }
    if objects(&state().textures.textures, |all| all.remove(&named(object))).is_none() {
        return CUDA_SUCCESS;
    }
    post(ops::CU_TEX_OBJECT_DESTROY, |w| calls::cuTexObjectDestroy { texObject: object }.encode(w))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuSurfObjectDestroy(object: CUsurfObject) -> CUresult {
    if let Err(code) = needs_context() {
        return code;
    }
    if objects(&state().textures.surfaces, |all| all.remove(&named(object))).is_none() {
        return CUDA_SUCCESS;
    }
    post(ops::CU_SURF_OBJECT_DESTROY, |w| calls::cuSurfObjectDestroy { surfObject: object }.encode(w))
}

/// # Safety
/// As CUDA's `cuTexObjectGetResourceDesc`.
pub unsafe fn cuTexObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, number: CUtexObject) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, object(&state().textures.textures, number).map(|o| o.resource)) }
}

/// # Safety
/// As CUDA's `cuSurfObjectGetResourceDesc`.
pub unsafe fn cuSurfObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, number: CUsurfObject) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, object(&state().textures.surfaces, number).map(|o| o.resource)) }
}

/// # Safety
/// As CUDA's `cuTexObjectGetTextureDesc`.
pub unsafe fn cuTexObjectGetTextureDesc(out: *mut CUDA_TEXTURE_DESC, number: CUtexObject) -> CUresult {
    let answer = object(&state().textures.textures, number).and_then(|o| o.texture.ok_or(CUDA_ERROR_INVALID_VALUE));
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// Without a view of its own a texture has an empty one.
///
/// # Safety
/// As CUDA's `cuTexObjectGetResourceViewDesc`.
pub unsafe fn cuTexObjectGetResourceViewDesc(out: *mut CUDA_RESOURCE_VIEW_DESC, number: CUtexObject) -> CUresult {
    // SAFETY: an all-zero view is a valid one.
    let answer =
        object(&state().textures.textures, number).map(|o| o.view.unwrap_or_else(|| unsafe { std::mem::zeroed() }));
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

pub fn object(of: &Objects, number: u64) -> Result<Object, CUresult> {
    session()?;
    objects(of, |all| all.get(&named(number)).copied()).ok_or(CUDA_ERROR_INVALID_VALUE)
}
