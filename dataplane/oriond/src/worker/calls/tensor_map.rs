//! Tensor maps, encoded by the driver.

// UNSAFETY: calls the driver with arrays that were decoded and bounded here.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;

const DIMENSIONS_MAX: u32 = 5;

/// What every kind of map has.
struct Common {
    address: *mut c_void,
    data_type: u32,
    rank: u32,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

fn common(r: &mut Reader<'_>) -> Result<Common, Fault> {
    let address = r.word()? as *mut c_void;
    // The device is that of the current context, and which function it is the operation says.
    let (_device, _function) = (r.word()?, r.word()?);
    let mut word = || r.word().map(|v| v as u32);
    let c = Common {
        address,
        data_type: word()?,
        rank: word()?,
        interleave: word()?,
        swizzle: word()?,
        promotion: word()?,
        fill: word()?,
    };
    if c.rank == 0 || c.rank > DIMENSIONS_MAX {
        return Err(Fault("tensor map of an impossible rank"));
    }
    Ok(c)
}

fn words<T>(r: &mut Reader<'_>, count: u32, to: impl Fn(u64) -> T) -> Result<Vec<T>, Fault> {
    (0..count).map(|_| r.word().map(&to)).collect()
}

fn done(map: &CUtensorMap, code: CUresult, reply: &mut Vec<u8>) -> Handled {
    for word in map.opaque {
        reply.word(word);
    }
    Ok(Outcome::Done(code))
}

pub fn cuTensorMapEncodeTiled(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let c = common(&mut r)?;
    let (dims, strides) = (words(&mut r, c.rank, |v| v)?, words(&mut r, c.rank - 1, |v| v)?);
    let box_dims = words(&mut r, c.rank, |v| v as u32)?;
    let element_strides = words(&mut r, c.rank, |v| v as u32)?;
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: arrays with as many elements as the rank asks for; the address is not followed.
    let code = unsafe {
        s.driver.cuTensorMapEncodeTiled(
            &mut map,
            c.data_type,
            c.rank,
            c.address,
            dims.as_ptr(),
            strides.as_ptr(),
            box_dims.as_ptr(),
            element_strides.as_ptr(),
            c.interleave,
            c.swizzle,
            c.promotion,
            c.fill,
        )
    };
    done(&map, code, reply)
}

pub fn cuTensorMapEncodeIm2col(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let c = common(&mut r)?;
    if c.rank < 3 {
        return Err(Fault("tensor map of an impossible rank").into());
    }
    let (channels, pixels) = (r.word()? as u32, r.word()? as u32);
    let (dims, strides) = (words(&mut r, c.rank, |v| v)?, words(&mut r, c.rank - 1, |v| v)?);
    let lower = words(&mut r, c.rank - 2, |v| v as u32 as i32)?;
    let upper = words(&mut r, c.rank - 2, |v| v as u32 as i32)?;
    let element_strides = words(&mut r, c.rank, |v| v as u32)?;
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: as above.
    let code = unsafe {
        s.driver.cuTensorMapEncodeIm2col(
            &mut map,
            c.data_type,
            c.rank,
            c.address,
            dims.as_ptr(),
            strides.as_ptr(),
            lower.as_ptr(),
            upper.as_ptr(),
            channels,
            pixels,
            element_strides.as_ptr(),
            c.interleave,
            c.swizzle,
            c.promotion,
            c.fill,
        )
    };
    done(&map, code, reply)
}

pub fn cuTensorMapEncodeIm2colWide(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let c = common(&mut r)?;
    let (channels, pixels, mode) = (r.word()? as u32, r.word()? as u32, r.word()? as u32);
    let (lower, upper) = (r.word()? as u32 as i32, r.word()? as u32 as i32);
    let (dims, strides) = (words(&mut r, c.rank, |v| v)?, words(&mut r, c.rank - 1, |v| v)?);
    let element_strides = words(&mut r, c.rank, |v| v as u32)?;
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: as above.
    let code = unsafe {
        s.driver.cuTensorMapEncodeIm2colWide(
            &mut map,
            c.data_type,
            c.rank,
            c.address,
            dims.as_ptr(),
            strides.as_ptr(),
            lower,
            upper,
            channels,
            pixels,
            element_strides.as_ptr(),
            c.interleave,
            mode,
            c.swizzle,
            c.promotion,
            c.fill,
        )
    };
    done(&map, code, reply)
}

pub fn cuTensorMapReplaceAddress(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let address = r.word()? as *mut c_void;
    let mut map = CUtensorMap { opaque: [0; 16] };
    for word in &mut map.opaque {
        *word = r.word()?;
    }
    // SAFETY: 128 bytes, aligned as the type is; the address is not followed.
    let code = unsafe { s.driver.cuTensorMapReplaceAddress(&mut map, address) };
    done(&map, code, reply)
}
