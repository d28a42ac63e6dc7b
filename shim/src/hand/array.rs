//! Arrays, and the textures and surfaces over them.
//!
//! What an object was made from is remembered, so that questions about it need no answer from the worker.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use std::collections::HashMap;
use std::sync::Mutex;

use orion_cuda::sys::*;
use orion_wire::generated::{calls, ops};
use orion_wire::handle::{Handle, Kind};
use orion_wire::{Fault, Writer};

use super::execution::write;
use crate::call::{call, post};
use crate::handles::{self, Table};
use crate::local::context;
use crate::session::session;

/// A `CUarray` or a `CUmipmappedArray`, with the levels that were asked for.
struct Array {
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: Mutex<HashMap<u32, u64>>,
}

static ARRAYS: Table<Array> = Table::new();
static MIPMAPPED: Table<Array> = Table::new();

fn needs_context() -> Result<(), CUresult> {
    session()?;
    if context::current() == 0 { Err(CUDA_ERROR_INVALID_CONTEXT) } else { Ok(()) }
}

fn remember(table: &'static Table<Array>, handle: Handle, descriptor: CUDA_ARRAY3D_DESCRIPTOR) {
    table.insert(handle, Array { descriptor, levels: Mutex::default() });
}

/// The bytes of a C structure without pointers and without gaps.
///
/// # Safety
/// `T` is such a structure.
unsafe fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: every byte is initialised by the contract.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
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

/// # Safety
/// As CUDA's `cuArrayCreate_v2`.
pub unsafe fn cuArrayCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult {
    let answer = (|| {
        needs_context()?;
        if out.is_null() || descriptor.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, valid by the caller's promise.
        let d = unsafe { descriptor.read() };
        let handle = handles::reserve_in(Kind::Array, context::current_home());
        // SAFETY: two sizes and two 32-bit numbers: no gaps.
        let request = calls::cuArrayCreate_v2 { pHandle: handle.0, pAllocateArray: unsafe { bytes_of(&d) } };
        handles::made(handle, call(ops::CU_ARRAY_CREATE_V2, |w| request.encode(w), |_| Ok(())))?;
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Depth: 0,
            Format: d.Format,
            NumChannels: d.NumChannels,
            Flags: 0,
        };
        remember(&ARRAYS, handle, descriptor);
        Ok(handle.0 as CUarray)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// A 3D description without the four bytes of padding at its end.
struct Plain3D([u8; size_of::<CUDA_ARRAY3D_DESCRIPTOR>()]);

impl Plain3D {
    fn new(d: &CUDA_ARRAY3D_DESCRIPTOR) -> Plain3D {
        let mut w = Vec::new();
        for v in [d.Width as u64, d.Height as u64, d.Depth as u64] {
            w.word(v);
        }
        w.word(d.Format as u64 | (d.NumChannels as u64) << 32);
        w.word(d.Flags as u64);
        let mut out = [0; size_of::<CUDA_ARRAY3D_DESCRIPTOR>()];
        out.copy_from_slice(&w);
        Plain3D(out)
    }
}

/// # Safety
/// As CUDA's `cuArray3DCreate_v2`.
pub unsafe fn cuArray3DCreate_v2(out: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult {
    let answer = (|| {
        needs_context()?;
        if out.is_null() || descriptor.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, valid by the caller's promise.
        let d = unsafe { descriptor.read() };
        let handle = handles::reserve_in(Kind::Array, context::current_home());
        let plain = Plain3D::new(&d);
        let request = calls::cuArray3DCreate_v2 { pHandle: handle.0, pAllocateArray: &plain.0 };
        handles::made(handle, call(ops::CU_ARRAY3_D_CREATE_V2, |w| request.encode(w), |_| Ok(())))?;
        remember(&ARRAYS, handle, d);
        Ok(handle.0 as CUarray)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuMipmappedArrayCreate`.
pub unsafe fn cuMipmappedArrayCreate(
    out: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> CUresult {
    let answer = (|| {
        needs_context()?;
        if out.is_null() || descriptor.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, valid by the caller's promise.
        let d = unsafe { descriptor.read() };
        let handle = handles::reserve_in(Kind::MipmappedArray, context::current_home());
        let plain = Plain3D::new(&d);
        let request =
            calls::cuMipmappedArrayCreate { pHandle: handle.0, pMipmappedArrayDesc: &plain.0, numMipmapLevels: levels };
        handles::made(handle, call(ops::CU_MIPMAPPED_ARRAY_CREATE, |w| request.encode(w), |_| Ok(())))?;
        remember(&MIPMAPPED, handle, d);
        Ok(handle.0 as CUmipmappedArray)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuArrayDestroy(array: CUarray) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    let handle = Handle(array as u64);
    // A level or a plane goes with the array it belongs to.
    if !handle.is(Kind::Array) || ARRAYS.get(handle).is_none() {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    let result = post(ops::CU_ARRAY_DESTROY, |w| calls::cuArrayDestroy { hArray: handle.0 }.encode(w));
    handles::release(handle);
    result
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMipmappedArrayDestroy(array: CUmipmappedArray) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    let handle = Handle(array as u64);
    if !handle.is(Kind::MipmappedArray) || MIPMAPPED.get(handle).is_none() {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    let request = calls::cuMipmappedArrayDestroy { hMipmappedArray: handle.0 };
    let result = post(ops::CU_MIPMAPPED_ARRAY_DESTROY, |w| request.encode(w));
    handles::release(handle);
    result
}

/// An array was destroyed, or its context was; its levels end with it.
pub fn ended(kind: Kind, handle: Handle) {
    let table = if kind == Kind::Array { &ARRAYS } else { &MIPMAPPED };
    let Some(gone) = table.remove(handle) else { return };
    let levels = std::mem::take(&mut *gone.levels.lock().expect("no panic happens under this lock"));
    levels.into_values().for_each(|level| handles::release(Handle(level)));
}

/// The same handle for the same level each time, as the driver.
///
/// # Safety
/// As CUDA's `cuMipmappedArrayGetLevel`.
pub unsafe fn cuMipmappedArrayGetLevel(out: *mut CUarray, array: CUmipmappedArray, level: u32) -> CUresult {
    let answer = (|| {
        needs_context()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let owner = Some(Handle(array as u64)).filter(|h| h.is(Kind::MipmappedArray)).and_then(|h| MIPMAPPED.get(h));
        let owner = owner.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let mut levels = owner.levels.lock().expect("no panic happens under this lock");
        if let Some(known) = levels.get(&level) {
            return Ok(*known as CUarray);
        }
        let handle = handles::reserve(Kind::Array);
        let request = calls::cuMipmappedArrayGetLevel { pLevelArray: handle.0, hMipmappedArray: array as u64, level };
        handles::made(handle, call(ops::CU_MIPMAPPED_ARRAY_GET_LEVEL, |w| request.encode(w), |_| Ok(())))?;
        levels.insert(level, handle.0);
        Ok(handle.0 as CUarray)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// Copies a reply's structure out.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn plain<T>(bytes: &[u8]) -> Result<T, Fault> {
    if bytes.len() != size_of::<T>() {
        return Err(Fault("a value has another size than its type"));
    }
    // SAFETY: as many bytes as a `T` has.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// # Safety
/// As CUDA's `cuArray3DGetDescriptor_v2`.
pub unsafe fn cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) -> CUresult {
    let answer = session().and_then(|_| {
        let handle = Some(Handle(array as u64)).filter(|h| h.is(Kind::Array)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(known) = ARRAYS.get(handle) {
            return Ok(known.descriptor);
        }
        let request = calls::cuArray3DGetDescriptor_v2 { hArray: handle.0 };
        call(
            ops::CU_ARRAY3_D_GET_DESCRIPTOR_V2,
            |w| request.encode(w),
            // SAFETY: integers only.
            |r| unsafe { plain(calls::cuArray3DGetDescriptor_v2_reply::decode(r)?.pArrayDescriptor) },
        )
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuArrayGetDescriptor_v2`.
pub unsafe fn cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: an all-zero description is a valid place to write one to.
    let mut d: CUDA_ARRAY3D_DESCRIPTOR = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place.
    let code = unsafe { cuArray3DGetDescriptor_v2(&mut d, array) };
    if code == CUDA_SUCCESS {
        let answer =
            CUDA_ARRAY_DESCRIPTOR { Width: d.Width, Height: d.Height, Format: d.Format, NumChannels: d.NumChannels };
        // SAFETY: not null, valid by the caller's promise.
        unsafe { out.write(answer) };
    }
    code
}

// Texture and surface objects.

#[derive(Clone, Copy)]
struct Object {
    context: u64,
    resource: CUDA_RESOURCE_DESC,
    texture: Option<CUDA_TEXTURE_DESC>,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

// SAFETY: the handles inside are numbers.
unsafe impl Send for Object {}

/// By number; textures and surfaces count separately.
static TEXTURES: Mutex<Option<HashMap<u64, Object>>> = Mutex::new(None);
static SURFACES: Mutex<Option<HashMap<u64, Object>>> = Mutex::new(None);

fn objects<T>(of: &Mutex<Option<HashMap<u64, Object>>>, f: impl FnOnce(&mut HashMap<u64, Object>) -> T) -> T {
    f(of.lock().expect("no panic happens under this lock").get_or_insert_default())
}

/// A context has ended, and with it its objects.
pub fn context_ended(context: u64) {
    for of in [&TEXTURES, &SURFACES] {
        objects(of, |all| all.retain(|_, object| object.context != context));
    }
}

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
        for word in [v.format as u64, v.width as u64, v.height as u64, v.depth as u64] {
            w.word(word);
        }
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
        objects(&TEXTURES, |all| all.insert(number, object));
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
        objects(&SURFACES, |all| all.insert(number, object));
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
    if objects(&TEXTURES, |all| all.remove(&object)).is_none() {
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
    if objects(&SURFACES, |all| all.remove(&object)).is_none() {
        return CUDA_SUCCESS;
    }
    post(ops::CU_SURF_OBJECT_DESTROY, |w| calls::cuSurfObjectDestroy { surfObject: object }.encode(w))
}

fn object(of: &Mutex<Option<HashMap<u64, Object>>>, number: u64) -> Result<Object, CUresult> {
    session()?;
    objects(of, |all| all.get(&number).copied()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// # Safety
/// As CUDA's `cuTexObjectGetResourceDesc`.
pub unsafe fn cuTexObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, number: CUtexObject) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, object(&TEXTURES, number).map(|o| o.resource)) }
}

/// # Safety
/// As CUDA's `cuSurfObjectGetResourceDesc`.
pub unsafe fn cuSurfObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, number: CUsurfObject) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, object(&SURFACES, number).map(|o| o.resource)) }
}

/// # Safety
/// As CUDA's `cuTexObjectGetTextureDesc`.
pub unsafe fn cuTexObjectGetTextureDesc(out: *mut CUDA_TEXTURE_DESC, number: CUtexObject) -> CUresult {
    let answer = object(&TEXTURES, number).and_then(|o| o.texture.ok_or(CUDA_ERROR_INVALID_VALUE));
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// Without a view of its own a texture has an empty one.
///
/// # Safety
/// As CUDA's `cuTexObjectGetResourceViewDesc`.
pub unsafe fn cuTexObjectGetResourceViewDesc(out: *mut CUDA_RESOURCE_VIEW_DESC, number: CUtexObject) -> CUresult {
    // SAFETY: an all-zero view is a valid one.
    let answer = object(&TEXTURES, number).map(|o| o.view.unwrap_or_else(|| unsafe { std::mem::zeroed() }));
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}
