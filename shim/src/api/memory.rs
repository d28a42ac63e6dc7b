//! Device memory.

// UNSAFETY: writes answers through the application's pointers.

use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::field::Size;
use orion_wire::message::memory::{MemAlloc, MemAllocPitch, MemAllocPitchReply, MemAllocReply, MemFree};

use crate::answer::{code, write};
use crate::api::managed;
use crate::objects::memory::free_and_total;
use crate::objects::synchronize::call_waiting;
use crate::session::attached::session;
use crate::session::call::call;
use crate::session::context::needs_context;
use crate::session::route::apart;
use crate::state::address_map::{self, MemoryKind};
use crate::state::context;
use crate::state::process::state;

/// # Safety
/// As CUDA's `cuMemAlloc_v2`.
pub unsafe fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let answer = (|| {
        let ctx = needs_context()?;
        if bytes == 0 || address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let q = MemAlloc { bytes: Size::of(bytes) };
        let ask = || Ok(call(MemAlloc::OP, |w| q.encode(w), MemAllocReply::decode)?.address);
        let base = apart(ask, |base| (*base, bytes as u64), give_back)?;
        insert(base, bytes, ctx);
        Ok(base)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(address, answer) }
}

/// # Safety
/// As CUDA's `cuMemAllocPitch_v2`.
pub unsafe fn cuMemAllocPitch_v2(
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width_bytes: usize,
    height: usize,
    element_bytes: u32,
) -> CUresult {
    let answer = (|| {
        let ctx = needs_context()?;
        if address.is_null() || pitch.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let q = MemAllocPitch { width: Size::of(width_bytes), rows: Size::of(height), element_bytes };
        let ask = || {
            let answer = call(MemAllocPitch::OP, |w| q.encode(w), MemAllocPitchReply::decode)?;
            Ok((answer.address, answer.pitch as usize))
        };
        let range = |(base, row): &(u64, usize)| (*base, row.saturating_mul(height) as u64);
        let (base, row) = apart(ask, range, |(base, _)| give_back(base))?;
        insert(base, row.saturating_mul(height), ctx);
        // SAFETY: not null, valid by the caller's promise.
        unsafe { pitch.write(row) };
        Ok(base)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(address, answer) }
}

fn insert(base: u64, bytes: usize, ctx: u64) {
    let device = context::current_device().unwrap_or(0);
    state().addresses.insert_device(base, bytes as u64, address_map::MemoryKind::Device, ctx, device);
}

fn give_back(base: u64) {
    let q = MemFree { address: ClaimedDevice::new(base) };
    // What is lost with the session is no loss.
    let _ = call(MemFree::OP, |w| q.encode(w), |_| Ok(()));
}

/// Waits for the device as the driver's does, so it is called, not posted.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemFree_v2(address: CUdeviceptr) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    if address == 0 {
        return CUDA_SUCCESS;
    }
    let Some(range) = state().addresses.find(address).filter(|range| range.base == address) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    if range.kind == MemoryKind::Managed {
        return managed::free(&range);
    }
    let q = MemFree { address: ClaimedDevice::new(address) };
    match call_waiting(range.context, MemFree::OP, |w| q.encode(w)) {
        Ok(()) => {
            // Another thread may have been given the address by now.
            state().addresses.remove_if(address, |r| r.id == range.id && r.kind != address_map::MemoryKind::Graph);
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuMemGetInfo_v2`.
pub unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    match free_and_total() {
        Ok((f, t)) => {
            // SAFETY: each may be left out.
            unsafe {
                if !free.is_null() {
                    free.write(f);
                }
                if !total.is_null() {
                    total.write(t);
                }
            }
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

pub unsafe fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, ptr: CUdeviceptr) -> CUresult {
    code((|| {
        session()?;
        // Unlike the attributes of a pointer, its range is told in a context only, whatever the address.
        if context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        // Mapped memory that no device may access yet does not count.
        let found = state().addresses.find(ptr).filter(|r| !(r.kind == MemoryKind::Vmm && r.access == 0));
        // SAFETY: each is null or valid by the caller's promise.
        unsafe {
            if !base.is_null() {
                base.write(found.map_or(0, |r| r.base));
            }
            if !bytes.is_null() {
                bytes.write(found.map_or(0, |r| r.bytes as usize));
            }
        }
        if found.is_some() { Ok(()) } else { Err(CUDA_ERROR_NOT_FOUND) }
    })())
}
