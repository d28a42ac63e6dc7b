//! Allocation of device memory.

// UNSAFETY: C entry points.

use std::ffi::c_uint;

use orion_cuda::sys::*;

use crate::api::{R, api, put, put_some};
use crate::memory::{FREED, allocate, give_back};
use crate::vram::{self, Kind};
use crate::{capture, context, device};

fn free(at: u64) -> R {
    let c = context::current_if_any()?;
    capture::forbid_unsafe()?;
    if at == 0 {
        return Ok(());
    }
    let r = vram::find(at).filter(|r| r.base == at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !matches!(r.kind, Kind::Device | Kind::Pool | Kind::Managed) || r.flags & FREED != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Freeing waits for the device, so that no kernel loses its memory.
    let owner = context::home(r.context, c)?;
    for s in owner.streams_of_all() {
        s.wait_all();
    }
    give_back(&r);
    owner.check()
}

api! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let c = context::current()?;
        put_some(free, device::total_bytes().saturating_sub(device::used_bytes(c.device)) as usize);
        put_some(total, device::total_bytes() as usize);
        Ok(())
    }
    fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize) {
        let c = context::current()?;
        capture::forbid_unsafe()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, allocate(&c, bytes as u64, Kind::Device)?.base)
    }
    fn cuMemAllocPitch_v2(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) {
        let c = context::current()?;
        capture::forbid_unsafe()?;
        if out.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let p = width.checked_next_multiple_of(512).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = p.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(out, allocate(&c, bytes as u64, Kind::Device)?.base)?;
        put(pitch, p)
    }
    fn cuMemFree_v2(at: CUdeviceptr) { free(at) }
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, at: CUdeviceptr) {
        context::current()?;
        let r = vram::find(at).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(base, r.base);
        put_some(size, r.bytes as usize);
        Ok(())
    }
}
