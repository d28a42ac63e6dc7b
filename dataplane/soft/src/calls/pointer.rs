//! What is known of a pointer.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint, c_void};

use orion_cuda::sys::*;

use crate::api::{R, api, get, handle, list, put, put_some};
use crate::log::refuse;
use crate::vram::{self, Kind};
use crate::{context, device};

/// Writes one pointer attribute.
///
/// # Safety
/// `data` has room for the attribute's type.
unsafe fn attribute(data: *mut c_void, attribute: CUpointer_attribute, at: u64) -> R {
    let r = vram::find(at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let host = matches!(r.kind, Kind::Host | Kind::Registered);
    // SAFETY: forwarded from this function's contract.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => {
                let c = context::by_id(r.context);
                put(data.cast::<CUcontext>(), c.as_ref().map_or(std::ptr::null_mut(), handle))
            }
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                put(data.cast::<c_uint>(), if host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE })
            }
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put(data.cast::<u64>(), at),
            CU_POINTER_ATTRIBUTE_HOST_POINTER if host || r.kind == Kind::Managed => put(data.cast::<u64>(), at),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(CUDA_ERROR_INVALID_VALUE),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => put(data.cast::<c_uint>(), r.flags >> 31),
            CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => put(data.cast::<u64>(), r.id),
            // Booleans are one byte, as cuda.h's documentation has it for these.
            CU_POINTER_ATTRIBUTE_IS_MANAGED => put(data.cast::<u8>(), u8::from(r.kind == Kind::Managed)),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast::<c_int>(), r.device),
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => put(data.cast::<u8>(), 0),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
                put(data.cast::<u64>(), r.base)
            }
            CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
                put(data.cast::<usize>(), r.bytes as usize)
            }
            CU_POINTER_ATTRIBUTE_MAPPED => put(data.cast::<u8>(), 1),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => put(data.cast::<u64>(), 0),
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                let flags = if r.writable {
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                } else {
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                };
                put(data.cast::<c_uint>(), flags)
            }
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => put(data.cast::<CUmemoryPool>(), r.pool as CUmemoryPool),
            unknown if unknown == 0 || unknown > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => {
                Err(CUDA_ERROR_INVALID_VALUE)
            }
            _ => refuse("cuPointerGetAttribute", "this attribute"),
        }
    }
}

api! {
    fn cuPointerGetAttribute(data: *mut c_void, which: CUpointer_attribute, at: CUdeviceptr) {
        device::initialised()?;
        attribute(data, which, at)
    }
    fn cuPointerGetAttributes(n: c_uint, which: *mut CUpointer_attribute, data: *mut *mut c_void, at: CUdeviceptr) {
        device::initialised()?;
        let (which, data) = (list(which, n as usize)?, list(data, n as usize)?);
        let known = vram::find(at).is_some();
        for (w, d) in which.iter().zip(data) {
            if known && attribute(d, *w, at).is_ok() {
                continue;
            }
            // Memory CUDA does not know gets zeroes and no error, as the plural call documents, and its own address.
            match *w {
                CU_POINTER_ATTRIBUTE_HOST_POINTER if !known => put_some(d.cast::<u64>(), at),
                CU_POINTER_ATTRIBUTE_CONTEXT
                | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
                | CU_POINTER_ATTRIBUTE_HOST_POINTER
                | CU_POINTER_ATTRIBUTE_BUFFER_ID
                | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
                | CU_POINTER_ATTRIBUTE_RANGE_SIZE
                | CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
                | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => put_some(d.cast::<u64>(), 0),
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put_some(d.cast::<c_int>(), -2),
                CU_POINTER_ATTRIBUTE_IS_MANAGED
                | CU_POINTER_ATTRIBUTE_MAPPED
                | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
                | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => put_some(d.cast::<u8>(), 0),
                _ => put_some(d.cast::<c_uint>(), 0),
            }
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: *const c_void, which: CUpointer_attribute, at: CUdeviceptr) {
        context::current()?;
        if which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let on = get(value.cast::<c_uint>())?;
        let r = vram::find(at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        vram::update(r.base, |r| r.flags = (r.flags & !(1 << 31)) | (u32::from(on != 0) << 31));
        Ok(())
    }
}
