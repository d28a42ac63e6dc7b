//! Arrays and mipmapped arrays.
//!
//! What an object was made from is remembered, so that questions about it need no answer from the worker.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::array::{ArrayDestroy, MipmappedArrayDestroy};
use orion_wire::message::calls;

use crate::answer::{code, write};
use crate::objects::synchronize::call_waiting;
use crate::session::attached::session;
use crate::session::call::call;
use crate::session::context::needs_context;
use crate::state::array::Array;
use crate::state::context;
use crate::state::lock::{Lock, Rank};
use crate::state::process::state;
use crate::state::table::Table;

fn remember(table: &'static Table<Array>, handle: Handle, descriptor: CUDA_ARRAY3D_DESCRIPTOR) {
    table.insert(handle, Array { descriptor, levels: Lock::new(Rank::Object, Default::default()) });
}

/// The bytes of a C structure without pointers and without gaps.
///
/// # Safety
/// `T` is such a structure.
unsafe fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: every byte is initialised by the contract.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
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
        let handle = state().handles.reserve_in(Kind::Array, context::current_home());
        // SAFETY: two sizes and two 32-bit numbers: no gaps.
        let request = calls::cuArrayCreate_v2 { pHandle: handle.0, pAllocateArray: unsafe { bytes_of(&d) } };
        crate::objects::handles::made(handle, call(ops::CU_ARRAY_CREATE_V2, |w| request.encode(w), |_| Ok(())))?;
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Depth: 0,
            Format: d.Format,
            NumChannels: d.NumChannels,
            Flags: 0,
        };
        remember(&state().arrays.arrays, handle, descriptor);
        Ok(handle.0 as CUarray)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// A 3D description without the four bytes of padding at its end.
struct Plain3D([u8; size_of::<CUDA_ARRAY3D_DESCRIPTOR>()]);

impl Plain3D {
    fn new(d: &CUDA_ARRAY3D_DESCRIPTOR) -> Plain3D {
        let kind = u64::from(d.Format) | u64::from(d.NumChannels) << 32;
        let words = [d.Width as u64, d.Height as u64, d.Depth as u64, kind, d.Flags.into()];
        let mut out = [0; size_of::<CUDA_ARRAY3D_DESCRIPTOR>()];
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
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
        let handle = state().handles.reserve_in(Kind::Array, context::current_home());
        let plain = Plain3D::new(&d);
        let request = calls::cuArray3DCreate_v2 { pHandle: handle.0, pAllocateArray: &plain.0 };
        crate::objects::handles::made(handle, call(ops::CU_ARRAY3_D_CREATE_V2, |w| request.encode(w), |_| Ok(())))?;
        remember(&state().arrays.arrays, handle, d);
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
        let handle = state().handles.reserve_in(Kind::MipmappedArray, context::current_home());
        let plain = Plain3D::new(&d);
        let request =
            calls::cuMipmappedArrayCreate { pHandle: handle.0, pMipmappedArrayDesc: &plain.0, numMipmapLevels: levels };
        crate::objects::handles::made(handle, call(ops::CU_MIPMAPPED_ARRAY_CREATE, |w| request.encode(w), |_| Ok(())))?;
        remember(&state().arrays.mipmapped, handle, d);
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
    if !handle.is(Kind::Array) || state().arrays.arrays.get(handle).is_none() {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    let q = ArrayDestroy { array: handle.into() };
    ended(handle, call_waiting(0, ArrayDestroy::OP, |w| q.encode(w)))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMipmappedArrayDestroy(array: CUmipmappedArray) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    let handle = Handle(array as u64);
    if !handle.is(Kind::MipmappedArray) || state().arrays.mipmapped.get(handle).is_none() {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    let q = MipmappedArrayDestroy { array: handle.into() };
    ended(handle, call_waiting(0, MipmappedArrayDestroy::OP, |w| q.encode(w)))
}

/// What is refused, beside a capture or without a context, has not happened.
fn ended(handle: Handle, answer: Result<(), CUresult>) -> CUresult {
    if !matches!(answer, Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED | CUDA_ERROR_INVALID_CONTEXT)) {
        crate::objects::handles::release(handle);
    }
    code(answer)
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
        let owner = Some(Handle(array as u64))
            .filter(|h| h.is(Kind::MipmappedArray))
            .and_then(|h| state().arrays.mipmapped.get(h));
        let owner = owner.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let mut levels = owner.levels.lock();
        if let Some(known) = levels.get(&level) {
            return Ok(*known as CUarray);
        }
        let handle = state().handles.reserve(Kind::Array);
        let request = calls::cuMipmappedArrayGetLevel { pLevelArray: handle.0, hMipmappedArray: array as u64, level };
        crate::objects::handles::made(
            handle,
            call(ops::CU_MIPMAPPED_ARRAY_GET_LEVEL, |w| request.encode(w), |_| Ok(())),
        )?;
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
        if let Some(known) = state().arrays.arrays.get(handle) {
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
