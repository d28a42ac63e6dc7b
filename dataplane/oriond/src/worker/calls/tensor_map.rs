//! Tensor maps, encoded by the driver.

// UNSAFETY: calls the driver with arrays that were decoded and bounded here.

use orion_cuda::sys::*;
use orion_wire::message::tensor_map::{
    TensorMapEncodeIm2col, TensorMapEncodeIm2colReply, TensorMapEncodeIm2colWide, TensorMapEncodeIm2colWideReply,
    TensorMapEncodeTiled, TensorMapEncodeTiledReply, TensorMapReplaceAddress, TensorMapReplaceAddressReply,
};
use orion_wire::record::Header;
use orion_wire::{Fault, Reader};

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;

pub fn cuTensorMapEncodeTiled(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = TensorMapEncodeTiled::decode(&mut r)?;
    let c = &q.map.common;
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: arrays with as many elements as the highest rank asks for; the address is not followed.
    let code = unsafe {
        s.driver.cuTensorMapEncodeTiled(
            &mut map,
            c.data_type,
            c.rank as u32,
            q.address.0 as *mut _,
            c.dimensions.as_ptr(),
            c.strides.as_ptr(),
            q.map.box_dimensions.as_ptr(),
            c.element_strides.as_ptr(),
            c.interleave,
            c.swizzle,
            c.promotion,
            c.fill,
        )
    };
    TensorMapEncodeTiledReply { map: map.opaque }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuTensorMapEncodeIm2col(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = TensorMapEncodeIm2col::decode(&mut r)?;
    let c = &q.map.common;
    if (c.rank as u32) < 3 {
        return Err(Fault("tensor map of an impossible rank").into());
    }
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: as above.
    let code = unsafe {
        s.driver.cuTensorMapEncodeIm2col(
            &mut map,
            c.data_type,
            c.rank as u32,
            q.address.0 as *mut _,
            c.dimensions.as_ptr(),
            c.strides.as_ptr(),
            q.map.lower.as_ptr(),
            q.map.upper.as_ptr(),
            q.map.channels,
            q.map.pixels,
            c.element_strides.as_ptr(),
            c.interleave,
            c.swizzle,
            c.promotion,
            c.fill,
        )
    };
    TensorMapEncodeIm2colReply { map: map.opaque }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuTensorMapEncodeIm2colWide(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let q = TensorMapEncodeIm2colWide::decode(&mut r)?;
    let c = &q.map.common;
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: as above.
    let code = unsafe {
        s.driver.cuTensorMapEncodeIm2colWide(
            &mut map,
            c.data_type,
            c.rank as u32,
            q.address.0 as *mut _,
            c.dimensions.as_ptr(),
            c.strides.as_ptr(),
            q.map.lower,
            q.map.upper,
            q.map.channels,
            q.map.pixels,
            c.element_strides.as_ptr(),
            c.interleave,
            q.map.mode,
            c.swizzle,
            c.promotion,
            c.fill,
        )
    };
    TensorMapEncodeIm2colWideReply { map: map.opaque }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuTensorMapReplaceAddress(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = TensorMapReplaceAddress::decode(&mut r)?;
    let mut map = CUtensorMap { opaque: q.map };
    // SAFETY: 128 bytes, aligned as the type is; the address is not followed.
    let code = unsafe { s.driver.cuTensorMapReplaceAddress(&mut map, q.address.0 as *mut _) };
    TensorMapReplaceAddressReply { map: map.opaque }.encode(reply);
    Ok(Outcome::Done(code))
}
