//! Virtual memory management: reservations of addresses, physical allocations, and mapping one to the other.
//!
//! Only reserving (the driver picks the address) and creating (memory may be short) are awaited. Mapping,
//! access and unmapping are checked against what is known here and posted: PyTorch's expandable segments do
//! them for every growth.

// UNSAFETY: reads descriptions from the application's memory and writes answers to it.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::{ClaimedDevice, ClaimedPlace};
use orion_wire::message::field::{Existing, List, New, Size, TooLong};
use orion_wire::message::virtual_memory::{ACCESS_MAX, Access, AllocationProperties, Location, MemAddressFree};
use orion_wire::message::virtual_memory::{MemAddressReserve, MemAddressReserveReply, MemCreate};
use orion_wire::message::virtual_memory::{MemGetAllocationGranularity, MemGetAllocationGranularityReply, MemMap};
use orion_wire::message::virtual_memory::{MemRelease, MemRetainAllocationHandle, MemSetAccess, MemUnmap};

use crate::answer::{code, posted, write};
use crate::report::refuse;
use crate::session::attached::session;
use crate::session::call::{call, post};
use crate::session::route::{is_here, is_taken, of_device};
use crate::state::address_map::{self, Range};
use crate::state::context;
use crate::state::process::state;
use crate::state::virtual_memory::Allocation;

/// Granularity of device memory: the smallest of the session's devices, for alignment checks.
fn granularity() -> u64 {
    session().ok().and_then(|s| s.welcome.devices.iter().map(|d| d.granularity.0).min()).unwrap_or(2 << 20).max(4096)
}

/// Ranges that collide with something of this process are given back, but only after a better one was found:
/// otherwise the driver would answer the same again.
const ATTEMPTS: usize = 8;

/// # Safety
/// As CUDA's `cuMemAddressReserve`.
pub unsafe fn cuMemAddressReserve(
    out: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut rejected = Vec::new();
        let mut answer = Err(CUDA_ERROR_OUT_OF_MEMORY);
        for _ in 0..ATTEMPTS {
            let (size, alignment) = (Size::of(bytes), Size::of(alignment));
            let q = MemAddressReserve { bytes: size, alignment, hint: ClaimedPlace::new(hint), flags };
            let reply = call(MemAddressReserve::OP, |w| q.encode(w), MemAddressReserveReply::decode);
            match reply.map(|q| q.address) {
                Ok(base) if !is_taken(base, bytes as u64) && state().addresses.reserve(base, bytes as u64).is_ok() => {
                    state().addresses.given_anew(base, bytes as u64);
                    state()
                        .virtual_memory
                        .reservations
                        .write()
                        .insert(base, (bytes as u64, context::current_session()));
                    answer = Ok(base);
                    break;
                }
                Ok(base) => rejected.push(base),
                Err(code) => {
                    answer = Err(code);
                    break;
                }
            }
        }
        for base in rejected {
            post_address_free(base, bytes as u64)?;
        }
        answer
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

fn post_address_free(base: u64, bytes: u64) -> Result<(), CUresult> {
    let q = MemAddressFree { address: ClaimedDevice::new(base), bytes: Size(bytes) };
    posted(post(MemAddressFree::OP, |w| q.encode(w)))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemAddressFree(base: CUdeviceptr, bytes: usize) -> CUresult {
    code((|| {
        session()?;
        let mut all = state().virtual_memory.reservations.write();
        if all.get(&base).map(|(bytes, _)| *bytes) != Some(bytes as u64)
            || state().addresses.overlapping(base, bytes as u64).is_some()
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        all.remove(&base);
        post_address_free(base, bytes as u64)?;
        state().addresses.unreserve(base, bytes as u64);
        Ok(())
    })())
}

fn told(p: &CUmemAllocationProp) -> AllocationProperties {
    let f = &p.allocFlags;
    AllocationProperties {
        allocation_type: p.type_,
        handle_types: p.requestedHandleTypes,
        location: place(&p.location),
        compression: f.compressionType,
        gpu_direct_rdma: f.gpuDirectRDMACapable,
        usage: f.usage,
    }
}

fn place(location: &CUmemLocation) -> Location {
    Location { kind: location.type_, id: location.id }
}

/// # Safety
/// As CUDA's `cuMemCreate`.
pub unsafe fn cuMemCreate(
    out: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    let answer = (|| {
        session()?;
        // SAFETY: the caller's promise.
        let properties = unsafe { properties(prop) }?;
        if out.is_null() || bytes == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if properties.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            // The memory would be the GPU's host's, at an address that is nobody's here.
            crate::say!("cuMemCreate of host memory is not forwarded; cuMemHostAlloc is");
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let handle = of_device(properties.location.id as u32, || {
            let handle = state().handles.reserve(Kind::MemAllocation);
            let q = MemCreate { allocation: handle.into(), bytes: Size::of(bytes), properties: told(&properties) };
            crate::objects::handles::made(handle, call(MemCreate::OP, |w| q.encode(w), |_| Ok(handle)))
        })?;
        let allocation = Allocation { bytes: bytes as u64, properties, references: 1, mappings: 0 };
        state().virtual_memory.allocations(|a| a.insert(handle.0, allocation));
        Ok(handle.0)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult {
    code((|| {
        session()?;
        if !Handle(handle).is(Kind::MemAllocation) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (last, gone) = state().virtual_memory.allocations(|all| -> Result<(bool, bool), CUresult> {
            // Multicast objects are created elsewhere, and counted by the driver alone.
            let Some(a) = all.get_mut(&handle) else { return Ok((true, true)) };
            a.references = a.references.checked_sub(1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let last = a.references == 0;
            let gone = last && a.mappings == 0;
            if gone {
                all.remove(&handle);
            }
            Ok((last, gone))
        })?;
        if last {
            posted(post(MemRelease::OP, |w| MemRelease { allocation: Existing(handle) }.encode(w)))?;
        }
        if gone {
            crate::objects::handles::release(Handle(handle));
        }
        Ok(())
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemMap(
    base: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    code((|| {
        session()?;
        let bytes = bytes as u64;
        let unit = granularity();
        let inside = state()
            .virtual_memory
            .reservation(base)
            .is_some_and(|(start, size)| base.checked_add(bytes).is_some_and(|end| end <= start + size));
        let is_allocation = Handle(handle).is(Kind::MemAllocation);
        if flags != 0 || bytes == 0 || !base.is_multiple_of(unit) || !is_allocation {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // As driver 580 tells them apart: what cannot be mapped anywhere, and what cannot be mapped here.
        if !bytes.is_multiple_of(unit) || !(offset as u64).is_multiple_of(unit) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = state().virtual_memory.allocations(|all| {
            let a = all.get_mut(&handle);
            if a.as_ref().is_some_and(|a| (offset as u64).checked_add(bytes).is_none_or(|end| end > a.bytes)) {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            if !inside || state().addresses.overlapping(base, bytes).is_some() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let Some(a) = a else { return Ok(0) };
            if a.references == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            a.mappings += 1;
            Ok(a.properties.location.id as u32)
        })?;
        let mut range = Range::new(base, bytes, address_map::MemoryKind::Vmm, 0, device);
        range.owner = handle;
        // Nobody may access it yet.
        (range.access, range.device_pointer) = (0, 0);
        state().addresses.insert(range);
        let (address, offset) = (ClaimedDevice::new(base), Size::of(offset));
        let q = MemMap { address, bytes: Size(bytes), offset, allocation: Existing(handle) };
        posted(post(MemMap::OP, |w| q.encode(w)))
    })())
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemUnmap(base: CUdeviceptr, bytes: usize) -> CUresult {
    code((|| {
        session()?;
        let bytes = bytes as u64;
        let end = base.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Mappings are undone whole.
        let cut = |address: u64| state().addresses.find(address).is_some_and(|r| r.base < base || r.end() > end);
        if cut(base) || cut(end - 1) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Where nothing is mapped the driver succeeds (an H200). What is no mapping stays.
        let is_mapped = |r: &Range| r.kind == address_map::MemoryKind::Vmm;
        let gone = state().addresses.remove_inside_if(base, bytes, is_mapped).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        for range in &gone {
            let q = MemUnmap { address: ClaimedDevice::new(range.base), bytes: Size(range.bytes) };
            posted(post(MemUnmap::OP, |w| q.encode(w)))?;
        }
        state().virtual_memory.allocations(|all| {
            for range in gone {
                let Some(a) = all.get_mut(&range.owner) else { continue };
                a.mappings = a.mappings.saturating_sub(1);
                if a.mappings == 0 && a.references == 0 {
                    all.remove(&range.owner);
                    crate::objects::handles::release(Handle(range.owner));
                }
            }
        });
        Ok(())
    })())
}

/// # Safety
/// As CUDA's `cuMemSetAccess`.
pub unsafe fn cuMemSetAccess(base: CUdeviceptr, bytes: usize, desc: *const CUmemAccessDesc, count: usize) -> CUresult {
    code((|| {
        session()?;
        let end = base.checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if desc.is_null() || count == 0 || count > ACCESS_MAX || bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Every address has to be mapped.
        let mut mapped = Vec::new();
        let mut at = base;
        while at < end {
            let range = state().addresses.find(at).filter(|r| r.kind == address_map::MemoryKind::Vmm);
            let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            at = range.end();
            mapped.push(range);
        }
        // SAFETY: an array of `count` elements by the caller's promise.
        let descs = unsafe { std::slice::from_raw_parts(desc, count) };
        if descs.iter().any(|d| d.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE && !is_here(d.location.id)) {
            refuse::refused("cuMemSetAccess", "a device of another node does not reach this one's memory");
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let access = descs.iter().map(|d| Access { location: place(&d.location), flags: d.flags }).collect();
        let access = List::of(access).map_err(|TooLong| CUDA_ERROR_INVALID_VALUE)?;
        let q = MemSetAccess { address: ClaimedDevice::new(base), bytes: Size::of(bytes), access };
        posted(post(MemSetAccess::OP, |w| q.encode(w)))?;
        for range in mapped {
            for d in descs {
                if d.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE && d.location.id as u32 == range.device {
                    state().addresses.update(range.base, |r| {
                        r.access = d.flags;
                        r.device_pointer = if d.flags == 0 { 0 } else { r.base };
                    });
                }
            }
        }
        Ok(())
    })())
}

/// # Safety
/// As CUDA's `cuMemGetAllocationGranularity`.
pub unsafe fn cuMemGetAllocationGranularity(
    out: *mut usize,
    prop: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> CUresult {
    let answer = (|| {
        let s = session()?;
        // SAFETY: the caller's promise.
        let p = unsafe { properties(prop) }?;
        if out.is_null() || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = (p.type_ == CU_MEM_ALLOCATION_TYPE_PINNED && p.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE)
            // The driver does not look whether there is such a device either.
            .then(|| crate::session::device::told(p.location.id as u32).or_else(|| s.welcome.devices.first()))
            .flatten();
        if let Some(device) = device {
            let (minimum, recommended) = device.granularity;
            return Ok(if option == CU_MEM_ALLOC_GRANULARITY_MINIMUM { minimum } else { recommended } as usize);
        }
        let q = MemGetAllocationGranularity { option, properties: told(&p) };
        let decode = MemGetAllocationGranularityReply::decode;
        Ok(call(MemGetAllocationGranularity::OP, |w| q.encode(w), decode)?.bytes as usize)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuMemGetAllocationPropertiesFromHandle`.
pub unsafe fn cuMemGetAllocationPropertiesFromHandle(
    out: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let answer = session().and_then(|_| {
        state().virtual_memory.allocations(|a| a.get(&handle).map(|a| a.properties)).ok_or(CUDA_ERROR_INVALID_VALUE)
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuMemRetainAllocationHandle`.
pub unsafe fn cuMemRetainAllocationHandle(out: *mut CUmemGenericAllocationHandle, address: *mut c_void) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let range = state().addresses.find(address as u64).filter(|r| r.kind == address_map::MemoryKind::Vmm);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let revived = state().virtual_memory.allocations(|all| -> Result<bool, CUresult> {
            let a = all.get_mut(&range.owner).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            a.references += 1;
            Ok(a.references == 1)
        })?;
        // The driver's own reference went with the last release; the mapping kept the memory.
        if revived {
            let (allocation, address) = (New(range.owner), ClaimedDevice::new(range.base));
            let q = MemRetainAllocationHandle { allocation, address };
            posted(post(MemRetainAllocationHandle::OP, |w| q.encode(w)))?;
        }
        Ok(range.owner)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// A descriptor of this process cannot stand for memory of the GPU's host, and nobody else here could open it.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemExportToShareableHandle(
    _out: *mut c_void,
    _handle: CUmemGenericAllocationHandle,
    _kind: CUmemAllocationHandleType,
    _flags: u64,
) -> CUresult {
    refuse_sharing()
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemImportFromShareableHandle(
    _out: *mut CUmemGenericAllocationHandle,
    _os_handle: *mut c_void,
    _kind: CUmemAllocationHandleType,
) -> CUresult {
    refuse_sharing()
}

fn refuse_sharing() -> CUresult {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        crate::say!("sharing device memory by file descriptor or fabric handle is not forwarded; cuIpc* is");
    });
    CUDA_ERROR_NOT_SUPPORTED
}

/// Properties without the pointer that only Windows uses.
///
/// # Safety
/// `from` is null or valid for a read.
pub unsafe fn properties(from: *const CUmemAllocationProp) -> Result<CUmemAllocationProp, CUresult> {
    if from.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, valid by the contract.
    let mut p = unsafe { from.read() };
    p.win32HandleMetaData = std::ptr::null_mut();
    Ok(p)
}
