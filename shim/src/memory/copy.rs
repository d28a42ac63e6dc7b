//! What copies and fills have in common.

use orion_cuda::sys::*;
use orion_wire::message::address::{ClaimedDevice, ClaimedHost};
use orion_wire::message::copy::{Copy3D, CopySide};
use orion_wire::message::field::{Existing, Size};

use crate::answer::posted;
use crate::memory::host_memory;
use crate::session::call::{call, post};
use crate::state::address_map;
use crate::state::process::state;
use crate::state::session::Session;

/// A copy of any shape, as the worker is told.
pub fn message(c: &CUDA_MEMCPY3D) -> Copy3D {
    let source = CopySide {
        x: Size::of(c.srcXInBytes),
        y: Size::of(c.srcY),
        z: Size::of(c.srcZ),
        level: Size::of(c.srcLOD),
        memory_type: c.srcMemoryType,
        host: ClaimedHost::new(c.srcHost as u64),
        device: ClaimedDevice::new(c.srcDevice),
        array: Existing(c.srcArray as u64),
        reserved: 0,
        pitch: Size::of(c.srcPitch),
        height: Size::of(c.srcHeight),
    };
    let destination = CopySide {
        x: Size::of(c.dstXInBytes),
        y: Size::of(c.dstY),
        z: Size::of(c.dstZ),
        level: Size::of(c.dstLOD),
        memory_type: c.dstMemoryType,
        host: ClaimedHost::new(c.dstHost as u64),
        device: ClaimedDevice::new(c.dstDevice),
        array: Existing(c.dstArray as u64),
        reserved: 0,
        pitch: Size::of(c.dstPitch),
        height: Size::of(c.dstHeight),
    };
    let (width, rows, layers) = (Size::of(c.WidthInBytes), Size::of(c.Height), Size::of(c.Depth));
    Copy3D { source, destination, width, rows, layers }
}

/// Posts work on device memory that the shim knows. What it does not know (memory opened from elsewhere, or
/// rubbish) the driver has to judge, so that the caller learns of it at once.
pub fn post_or_call(op: u16, known: bool, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), CUresult> {
    if known { posted(post(op, encode)) } else { call(op, encode, |_| Ok(())) }
}

pub fn is_known(s: &Session, address: u64, bytes: usize) -> bool {
    match state().addresses.find(address) {
        Some(range) => {
            address.saturating_add(bytes as u64) <= range.end() || range.kind != address_map::MemoryKind::Device
        }
        None => host_memory::shared(s, address, bytes as u64).is_some(),
    }
}
