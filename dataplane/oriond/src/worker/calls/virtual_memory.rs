//! Virtual memory management. The client has checked what it can; the driver checks the rest.

// UNSAFETY: calls the driver with addresses that were decided on in `worker::address`.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Existing, MEM_ALLOCATION};
use orion_wire::message::virtual_memory::{Access, AllocationProperties, MemAddressFree, MemAddressReserve};
use orion_wire::message::virtual_memory::{MemAddressReserveReply, MemCreate, MemGetAllocationGranularity};
use orion_wire::message::virtual_memory::{MemGetAllocationGranularityReply, MemMap, MemRelease};
use orion_wire::message::virtual_memory::{MemRetainAllocationHandle, MemSetAccess, MemUnmap};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome, Stop};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;

pub fn cuMemAddressReserve(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = MemAddressReserve::decode(&mut r)?;
    let (bytes, alignment, hint) = (q.bytes.0 as usize, q.alignment.0 as usize, s.wish(q.hint));
    let mut base = 0;
    // SAFETY: a valid out pointer.
    let code = unsafe { s.driver.cuMemAddressReserve(&mut base, bytes, alignment, hint, q.flags) };
    if code == CUDA_SUCCESS {
        s.addresses.given(base, bytes as u64, Of::Reservation);
    }
    MemAddressReserveReply { address: base }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuMemAddressFree(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemAddressFree::decode(&mut r)?;
    let (base, bytes) = (s.reach(q.address, q.bytes.0)?, q.bytes.0 as usize);
    // SAFETY: device addresses of the session; the driver refuses what is not a whole reservation.
    let code = unsafe { s.driver.cuMemAddressFree(base.raw(), bytes) };
    if code == CUDA_SUCCESS {
        s.addresses.ended(base.raw());
    }
    Ok(Outcome::Done(code))
}

/// A place in memory, with the driver's name for the device.
pub fn location(s: &Session, kind: u32, id: i32) -> Result<CUmemLocation, CUresult> {
    let id = if kind == CU_MEM_LOCATION_TYPE_DEVICE { s.device(id)? } else { id };
    Ok(CUmemLocation { type_: kind, id })
}

/// With the vGPU whose memory it is, if it is any's.
fn properties(s: &Session, p: &AllocationProperties) -> Result<(CUmemAllocationProp, Option<usize>), Stop> {
    let (kind, id) = (p.location.kind, p.location.id);
    let vgpu = if kind == CU_MEM_LOCATION_TYPE_DEVICE { Some(s.vgpus.at(id)?) } else { None };
    let prop = CUmemAllocationProp {
        type_: p.allocation_type,
        requestedHandleTypes: p.handle_types,
        location: location(s, kind, id)?,
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: p.compression,
            gpuDirectRDMACapable: p.gpu_direct_rdma,
            usage: p.usage,
            reserved: [0; 4],
        },
    };
    Ok((prop, vgpu))
}

pub fn cuMemCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemCreate::decode(&mut r)?;
    let bytes = q.bytes.0 as usize;
    let (prop, vgpu) = properties(s, &q.properties)?;
    let mut handle = 0;
    let code = s.creating(vgpu, bytes as u64, |d| {
        // SAFETY: valid pointers to locals.
        let code = unsafe { d.cuMemCreate(&mut handle, bytes, &prop, 0) };
        (code, handle)
    });
    if code == CUDA_SUCCESS {
        s.bind(Kind::MemAllocation, q.allocation.0, handle as *mut c_void)?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemRelease(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemRelease::decode(&mut r)?;
    let handle = allocation(s, q.allocation)?;
    // SAFETY: a live handle of this session; the driver crashes on any other.
    let code = unsafe { s.driver.cuMemRelease(handle) };
    match code {
        CUDA_SUCCESS => s.unbind(Kind::MemAllocation, q.allocation.0),
        _ => s.give_up(Kind::MemAllocation, q.allocation.0),
    }
    Ok(Outcome::Done(code))
}

/// The driver's handle; null is no allocation.
fn allocation(s: &mut Session, name: Existing<MEM_ALLOCATION>) -> Result<CUmemGenericAllocationHandle, CUresult> {
    match s.handle(Kind::MemAllocation, name.0)? as u64 {
        0 => Err(CUDA_ERROR_INVALID_VALUE),
        handle => Ok(handle),
    }
}

pub fn cuMemRetainAllocationHandle(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Handled {
    let q = MemRetainAllocationHandle::decode(&mut r)?;
    let address = s.reach(q.address, 1)?;
    let mut handle = 0;
    // SAFETY: a valid out pointer; the driver looks the address up.
    let code = unsafe { s.driver.cuMemRetainAllocationHandle(&mut handle, address.raw() as *mut c_void) };
    if code == CUDA_SUCCESS {
        s.bind(Kind::MemAllocation, q.allocation.0, handle as *mut c_void)?;
        s.physical_retained(handle, address.raw());
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemMap(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemMap::decode(&mut r)?;
    let (bytes, offset) = (q.bytes.0 as usize, q.offset.0 as usize);
    let handle = allocation(s, q.allocation)?;
    let base = s.reach(q.address, q.bytes.0)?;
    // SAFETY: a live handle and device addresses of the session; the driver checks that they are reserved.
    let code = unsafe { s.driver.cuMemMap(base.raw(), bytes, offset, handle, 0) };
    if code == CUDA_SUCCESS {
        s.physical_mapped(handle, base.raw(), bytes as u64);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemUnmap(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemUnmap::decode(&mut r)?;
    let (base, bytes) = (s.reach(q.address, q.bytes.0)?, q.bytes.0 as usize);
    // SAFETY: device addresses of the session; the driver checks what is mapped there.
    let code = unsafe { s.driver.cuMemUnmap(base.raw(), bytes) };
    if code == CUDA_SUCCESS {
        s.physical_unmapped(base.raw(), bytes as u64);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemSetAccess(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = MemSetAccess::decode(&mut r)?;
    let desc = |access: &Access| {
        let location = location(s, access.location.kind, access.location.id)?;
        Ok::<_, CUresult>(CUmemAccessDesc { location, flags: access.flags })
    };
    let descs = q.access.iter().map(desc).collect::<Result<Vec<_>, _>>()?;
    let (base, bytes) = (s.reach(q.address, q.bytes.0)?, q.bytes.0 as usize);
    // SAFETY: an array of the given length, and device addresses of the session.
    Ok(Outcome::Done(unsafe { s.driver.cuMemSetAccess(base.raw(), bytes, descs.as_ptr(), descs.len()) }))
}

pub fn cuMemGetAllocationGranularity(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let q = MemGetAllocationGranularity::decode(&mut r)?;
    let (prop, _) = properties(s, &q.properties)?;
    let mut bytes = 0;
    // SAFETY: valid pointers to locals.
    let code = unsafe { s.driver.cuMemGetAllocationGranularity(&mut bytes, &prop, q.option) };
    MemGetAllocationGranularityReply { bytes: bytes as u64 }.encode(reply);
    Ok(Outcome::Done(code))
}
