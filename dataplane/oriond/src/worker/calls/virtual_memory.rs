//! Virtual memory management. The client has checked what it can; the driver checks the rest.

// UNSAFETY: calls the driver with addresses that were decided on in `worker::address`.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::outcome::{Handled, Outcome, Stop};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;

const ACCESS_MAX: usize = 64;

pub fn cuMemAddressReserve(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (bytes, alignment, hint, flags) = (r.word()? as usize, r.word()? as usize, r.word()?, r.word()?);
    let mut base = 0;
    // SAFETY: a valid out pointer.
    let code = unsafe { s.driver.cuMemAddressReserve(&mut base, bytes, alignment, hint, flags) };
    if code == CUDA_SUCCESS {
        s.addresses.given(base, bytes as u64, Of::Reservation);
    }
    reply.word(base);
    Ok(Outcome::Done(code))
}

pub fn cuMemAddressFree(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (base, bytes) = (r.word()?, r.word()? as usize);
    let base = s.reach(ClaimedDevice::new(base), bytes as u64)?;
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

/// What the shim's `put_properties` wrote.
/// With the vGPU whose memory it is, if it is any's.
fn properties(s: &Session, r: &mut Reader<'_>) -> Result<(CUmemAllocationProp, Option<usize>), Stop> {
    let (type_, handle_types) = (r.word()? as u32, r.word()? as u32);
    let (kind, id) = (r.word()? as u32, r.word()? as u32 as i32);
    let flags = r.word()?;
    let vgpu = if kind == CU_MEM_LOCATION_TYPE_DEVICE { Some(s.vgpus.at(id)?) } else { None };
    let prop = CUmemAllocationProp {
        type_,
        requestedHandleTypes: handle_types,
        location: location(s, kind, id)?,
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: flags as u8,
            gpuDirectRDMACapable: (flags >> 8) as u8,
            usage: (flags >> 16) as u16,
            reserved: [0; 4],
        },
    };
    Ok((prop, vgpu))
}

pub fn cuMemCreate(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (word, bytes) = (r.word()?, r.word()? as usize);
    let (prop, vgpu) = properties(s, &mut r)?;
    let mut handle = 0;
    let code = s.creating(vgpu, bytes as u64, |d| {
        // SAFETY: valid pointers to locals.
        let code = unsafe { d.cuMemCreate(&mut handle, bytes, &prop, 0) };
        (code, handle)
    });
    if code == CUDA_SUCCESS {
        s.bind(Kind::MemAllocation, word, handle as *mut c_void)?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemRelease(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = r.word()?;
    let handle = allocation(s, word)?;
    // SAFETY: a live handle of this session; the driver crashes on any other.
    let code = unsafe { s.driver.cuMemRelease(handle) };
    match code {
        CUDA_SUCCESS => s.unbind(Kind::MemAllocation, word),
        _ => s.give_up(Kind::MemAllocation, word),
    }
    Ok(Outcome::Done(code))
}

/// The driver's handle; null is no allocation.
fn allocation(s: &mut Session, word: u64) -> Result<CUmemGenericAllocationHandle, CUresult> {
    match s.handle(Kind::MemAllocation, word)? as u64 {
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
    let (word, address) = (r.word()?, r.word()?);
    let address = s.reach(ClaimedDevice::new(address), 1)?;
    let mut handle = 0;
    // SAFETY: a valid out pointer; the driver looks the address up.
    let code = unsafe { s.driver.cuMemRetainAllocationHandle(&mut handle, address.raw() as *mut c_void) };
    if code == CUDA_SUCCESS {
        s.bind(Kind::MemAllocation, word, handle as *mut c_void)?;
        s.physical_retained(handle, address.raw());
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemMap(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (base, bytes, offset) = (r.word()?, r.word()? as usize, r.word()? as usize);
    let handle = allocation(s, r.word()?)?;
    let base = s.reach(ClaimedDevice::new(base), bytes as u64)?;
    // SAFETY: a live handle and device addresses of the session; the driver checks that they are reserved.
    let code = unsafe { s.driver.cuMemMap(base.raw(), bytes, offset, handle, 0) };
    if code == CUDA_SUCCESS {
        s.physical_mapped(handle, base.raw(), bytes as u64);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemUnmap(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (base, bytes) = (r.word()?, r.word()? as usize);
    let base = s.reach(ClaimedDevice::new(base), bytes as u64)?;
    // SAFETY: device addresses of the session; the driver checks what is mapped there.
    let code = unsafe { s.driver.cuMemUnmap(base.raw(), bytes) };
    if code == CUDA_SUCCESS {
        s.physical_unmapped(base.raw(), bytes as u64);
    }
    Ok(Outcome::Done(code))
}

pub fn cuMemSetAccess(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let (base, bytes) = (r.word()?, r.word()? as usize);
    let words = r.list(ACCESS_MAX, |r| Ok((r.word()?, r.word()?)))?;
    let mut descs = Vec::new();
    for (place, flags) in words {
        match location(s, place as u32, (place >> 32) as u32 as i32) {
            Ok(location) => descs.push(CUmemAccessDesc { location, flags: flags as u32 }),
            Err(code) => return Ok(Outcome::Done(code)),
        }
    }
    let base = s.reach(ClaimedDevice::new(base), bytes as u64)?;
    // SAFETY: an array of the given length, and device addresses of the session.
    Ok(Outcome::Done(unsafe { s.driver.cuMemSetAccess(base.raw(), bytes, descs.as_ptr(), descs.len()) }))
}

pub fn cuMemGetAllocationGranularity(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let option = r.word()? as u32;
    let (prop, _) = properties(s, &mut r)?;
    let mut bytes = 0;
    // SAFETY: valid pointers to locals.
    let code = unsafe { s.driver.cuMemGetAllocationGranularity(&mut bytes, &prop, option) };
    reply.word(bytes as u64);
    Ok(Outcome::Done(code))
}
