//! Pinned and registered memory.

// UNSAFETY: C entry points.

use std::ffi::{c_uint, c_void};

use orion_cuda::sys::*;

use crate::api::{R, api, put};
use crate::log::refuse;
use crate::memory::drop_range;
use crate::vram::{self, Kind, Range};
use crate::{capture, context};

fn host_allocate(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> R {
    let c = context::current()?;
    capture::forbid_unsafe()?;
    let known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if out.is_null() || flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if bytes == 0 {
        // SAFETY: not null, and the caller's out parameter.
        return unsafe { put(out, std::ptr::null_mut()) };
    }
    let r = vram::allocate(bytes as u64, Kind::Host, c.device, c.id).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    vram::update(r.base, |r| r.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP);
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, r.base as *mut c_void) }
}

/// Whether there is memory at all of it, as the driver has it: it could not be pinned.
fn is_mapped(base: u64, bytes: u64) -> bool {
    const PAGE: u64 = 4096;
    const PAGES_AT_A_TIME: usize = 16384;
    let Some(end) = base.checked_add(bytes) else { return false };
    let mut resident = [0u8; PAGES_AT_A_TIME];
    (base / PAGE..end.div_ceil(PAGE)).step_by(PAGES_AT_A_TIME).all(|page| {
        let here = (end.div_ceil(PAGE) - page).min(PAGES_AT_A_TIME as u64);
        // SAFETY: whatever lies there, the call only tells which pages are in memory, a byte for each.
        unsafe { libc::mincore((page * PAGE) as *mut c_void, (here * PAGE) as usize, resident.as_mut_ptr()) == 0 }
    })
}

fn register(p: *mut c_void, bytes: usize, flags: c_uint) -> R {
    let c = context::current()?;
    if p.is_null() || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        return refuse("cuMemHostRegister", "I/O memory");
    }
    capture::forbid_unsafe()?;
    let base = p as u64;
    if !is_mapped(base, bytes as u64) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if vram::overlaps(base, bytes as u64) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    vram::insert(Range {
        base,
        bytes: bytes as u64,
        reach: bytes as u64,
        kind: Kind::Registered,
        device: c.device,
        context: c.id,
        flags: flags | CU_MEMHOSTREGISTER_DEVICEMAP,
        id: 0,
        writable: flags & CU_MEMHOSTREGISTER_READ_ONLY == 0,
        pool: 0,
    });
    Ok(())
}

api! {
    fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) { host_allocate(out, bytes, 0) }
    fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) { host_allocate(out, bytes, flags) }
    fn cuMemFreeHost(p: *mut c_void) {
        let c = context::current_if_any()?;
        capture::forbid_unsafe()?;
        let r = vram::find(p as u64).filter(|r| r.base == p as u64 && r.kind == Kind::Host);
        let r = r.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        for s in context::home(r.context, c)?.streams_of_all() {
            s.wait_all();
        }
        drop_range(&r);
        Ok(())
    }
    fn cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, p: *mut c_void, flags: c_uint) {
        context::current()?;
        let r = vram::find(p as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 || !matches!(r.kind, Kind::Host | Kind::Registered) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, p as u64)
    }
    fn cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void) {
        context::current()?;
        let r = vram::find(p as u64).filter(|r| r.kind == Kind::Host).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(flags, r.flags)
    }
    fn cuMemHostRegister_v2(p: *mut c_void, bytes: usize, flags: c_uint) { register(p, bytes, flags) }
    fn cuMemHostUnregister(p: *mut c_void) {
        let c = context::current_if_any()?;
        let r = vram::find(p as u64).filter(|r| r.base == p as u64 && r.kind == Kind::Registered);
        let r = r.ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        capture::forbid_unsafe()?;
        for s in context::home(r.context, c)?.streams_of_all() {
            s.wait_all();
        }
        drop_range(&r);
        Ok(())
    }
}
