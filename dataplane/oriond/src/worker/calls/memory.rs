//! Device memory.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::message::memory::{MemAlloc, MemAllocPitch, MemAllocPitchReply, MemAllocReply};
use orion_wire::message::memory::{MemFree, MemGetInfo, MemGetInfoReply};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::addresses::Of;
use crate::worker::state::ledger::What;
use crate::worker::state::waits::{Wait, Waiting};

/// Rows of `cuMemAllocPitch` begin at multiples of this.
const PITCH: u64 = 512;

pub fn cuMemAlloc_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let (bytes, mut address) = (MemAlloc::decode(&mut r)?.bytes.0, 0);
    let code = s.allocating(bytes, |d| {
        // SAFETY: a valid out pointer.
        let code = unsafe { d.cuMemAlloc_v2(&mut address, bytes as usize) };
        (code, What::Memory(address))
    });
    if code == CUDA_SUCCESS {
        s.addresses.given(address, bytes, Of::Memory(s.green.home(header.context)));
    }
    MemAllocReply { address }.encode(reply);
    Ok(Outcome::Done(code))
}

pub fn cuMemAllocPitch_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = MemAllocPitch::decode(&mut r)?;
    let (width, height) = (q.width.0 as usize, q.rows.0 as usize);
    let (mut address, mut pitch) = (0, 0);
    // The pitch that the driver chooses on every device that there is.
    let bytes = (width as u64).div_ceil(PITCH).saturating_mul(PITCH).saturating_mul(height as u64);
    let code = s.allocating(bytes, |d| {
        // SAFETY: valid out pointers.
        let code = unsafe { d.cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, q.element_bytes) };
        (code, What::Memory(address))
    });
    if code == CUDA_SUCCESS {
        let bytes = (pitch as u64).saturating_mul(height as u64);
        s.addresses.given(address, bytes, Of::Memory(s.green.home(header.context)));
    }
    MemAllocPitchReply { address, pitch: pitch as u64 }.encode(reply);
    Ok(Outcome::Done(code))
}

/// Waits for the device, but for what came out of a pool.
pub fn cuMemFree_v2(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    // Nothing to free is no error.
    let q = MemFree::decode(&mut r)?;
    let address = s.reach(q.address, u64::from(!q.address.is_null()))?;
    if s.is_managed_variable(address) {
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_VALUE));
    }
    // What came out of a pool the driver frees without waiting.
    let waits = s.addresses.is_allocation(address.raw()) || s.callbacks.outstanding() || s.several_threads();
    s.addresses.ended(address.raw());
    s.note_free(ptr::null_mut());
    // Where a capture forbids it the driver refuses at once.
    if waits && header.sequence != 0 && !s.captures.forbids(header.thread) {
        // Waited for by asking: inside the driver the wait would hold up what the device is waiting for, be it a word
        // that a thread of the client's writes which makes no call of CUDA's.
        let streams = s.busy_streams().0.into_iter().map(|stream| (header.context, stream)).collect();
        let streams = s.beside_captures(streams);
        let ending = s.memory_ends(address.raw());
        return Ok(s.park(header, Wait::Then(streams, Waiting::Free(address)), move |s, code, _| {
            s.memory_ended(ending, code == CUDA_SUCCESS);
            code
        }));
    }
    let ending = s.memory_ends(address.raw());
    // SAFETY: device memory of the session; the driver checks that an allocation begins there.
    let code = unsafe { s.driver.cuMemFree_v2(address.raw()) };
    s.memory_ended(ending, code == CUDA_SUCCESS);
    // The driver has waited for the device, and who called goes on as after any wait.
    s.flush_ranges()?;
    Ok(Outcome::Done(code))
}

pub fn cuMemGetInfo_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    MemGetInfo::decode(&mut r)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: valid out pointers.
    let code = unsafe { s.driver.cuMemGetInfo_v2(&mut free, &mut total) };
    let (free, total) = s.within_limit(free as u64, total as u64);
    MemGetInfoReply { free, total }.encode(reply);
    Ok(Outcome::Done(code))
}
