//! Textures and surfaces.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use std::collections::HashMap;

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::message::calls;

use crate::answer::write;
use crate::session::attached::session;
use crate::session::call::{call, post, put_words};
use crate::session::context::needs_context;
use crate::state::context;
use crate::state::lock::Lock;
use crate::state::process::state;
use crate::state::texture::{Object, objects};

/// The resource's words, and a description with nothing but the fields that its type has.
fn put_resource(w: &mut Vec<u8>, d: &CUDA_RESOURCE_DESC) -> Result<(), CUresult> {
    w.word(d.resType as u64 | (d.flags as u64) << 32);
    // SAFETY: the type says which member of the union is set; all of them are plain numbers.
    let words: Vec<u64> = unsafe {
        match d.resType {
            CU_RESOURCE_TYPE_ARRAY => vec![d.res.array.hArray as u64],
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => vec![d.res.mipmap.hMipmappedArray as u64],
            CU_RESOURCE_TYPE_LINEAR => {
                let l = d.res.linear;
                vec![l.devPtr, l.format as u64 | (l.numChannels as u64) << 32, l.sizeInBytes as u64]
            }
            CU_RESOURCE_TYPE_PITCH2D => {
                let p = d.res.pitch2D;
                let format = p.format as u64 | (p.numChannels as u64) << 32;
                vec![p.devPtr, format, p.width as u64, p.height as u64, p.pitchInBytes as u64]
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    };
    for word in words {
        w.word(word);
    }
    Ok(())
}

fn put_texture(w: &mut Vec<u8>, t: &CUDA_TEXTURE_DESC) {
    for v in t.addressMode {
        w.word(v as u64);
    }
    for v in [t.filterMode, t.flags, t.maxAnisotropy, t.mipmapFilterMode] {
        w.word(v as u64);
    }
    for v in [t.mipmapLevelBias, t.minMipmapLevelClamp, t.maxMipmapLevelClamp] {
        w.word(v.to_bits() as u64);
    }
    for v in t.borderColor {
        w.word(v.to_bits() as u64);
    }
}

fn put_view(w: &mut Vec<u8>, v: Option<&CUDA_RESOURCE_VIEW_DESC>) {
    w.word(v.is_some() as u64);
    if let Some(v) = v {
        put_words(w, &[v.format as u64, v.width as u64, v.height as u64, v.depth as u64]);
        for word in [v.firstMipmapLevel, v.lastMipmapLevel, v.firstLayer, v.lastLayer] {
            w.word(word as u64);
        }
    }
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
        let mut body = Vec::new();
        put_resource(&mut body, &object.resource)?;
        // SAFETY: as above.
        put_texture(&mut body, unsafe { &*texture });
        put_view(&mut body, object.view.as_ref());
        let number = call(ops::CU_TEX_OBJECT_CREATE, |w| w.put(&body), |r| r.word())?;
        objects(&state().textures.textures, |all| all.insert(number, object));
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
        let mut body = Vec::new();
        put_resource(&mut body, &object.resource)?;
        let number = call(ops::CU_SURF_OBJECT_CREATE, |w| w.put(&body), |r| r.word())?;
        objects(&state().textures.surfaces, |all| all.insert(number, object));
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
    if objects(&state().textures.textures, |all| all.remove(&object)).is_none() {
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
    if objects(&state().textures.surfaces, |all| all.remove(&object)).is_none() {
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

pub fn object(of: &Lock<Option<HashMap<u64, Object>>>, number: u64) -> Result<Object, CUresult> {
    session()?;
    objects(of, |all| all.get(&number).copied()).ok_or(CUDA_ERROR_INVALID_VALUE)
}
