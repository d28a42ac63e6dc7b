//! Allocation and copies.

// UNSAFETY: gives the driver addresses that were checked to lie in the session's shared memory, and device
// addresses, which the driver checks.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::{Header, HeapRange, RECORD_BYTES_MAX};
use orion_wire::{Fault, Reader, Writer};

use crate::worker::session::{Landing, Outcome, Session, Wait, Waiting};

pub fn cuMemAlloc_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let mut address = 0;
    // SAFETY: a valid out pointer.
    let code = unsafe { s.driver.cuMemAlloc_v2(&mut address, r.word()? as usize) };
    reply.word(address);
    Ok(Outcome::Done(code))
}

pub fn cuMemAllocPitch_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (width, height, element) = (r.word()? as usize, r.word()? as usize, r.word()? as u32);
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: valid out pointers.
    let code = unsafe { s.driver.cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, element) };
    reply.word(address);
    reply.word(pitch as u64);
    Ok(Outcome::Done(code))
}

/// Waits for the device; on a helper thread where the device may be waiting for the client.
pub fn cuMemFree_v2(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let address = r.word()?;
    s.note_free(ptr::null_mut());
    // Not while a capture is open: asking a captured stream would end its capture.
    if (s.callbacks.outstanding() || s.several_threads()) && header.sequence != 0 && !s.captures.open() {
        // Waited for by asking: inside the driver the wait could hold up what the device is waiting for.
        let streams = s.busy_streams().0.into_iter().map(|stream| (header.context, stream)).collect();
        return Ok(s.park(header, Wait::Then(streams, Waiting::Free(address)), |_, code, _| code));
    }
    // SAFETY: an address of the client's; the driver checks it.
    Ok(Outcome::Done(unsafe { s.driver.cuMemFree_v2(address) }))
}

pub fn cuMemGetInfo_v2(
    s: &mut Session,
    _header: &Header,
    _r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: valid out pointers.
    let code = unsafe { s.driver.cuMemGetInfo_v2(&mut free, &mut total) };
    reply.word(free as u64);
    reply.word(total as u64);
    Ok(Outcome::Done(code))
}

/// Host to device with the bytes in the record: the driver captures small pageable sources before it returns.
pub fn copy_in_inline(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Result<Outcome, Fault> {
    let (to, stream) = (r.word()?, s.plain_stream(r.word()?, header.thread));
    let bytes = r.bytes()?;
    let stream = match stream {
        Ok(stream) => stream,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    if s.captures.open() && s.is_capturing(stream) {
        // A graph reads its source at every launch: the bytes have to stay. They are as long-lived as the
        // session, because a graph can be cloned and instantiated any number of times.
        let kept: &'static [u8] = Box::leak(bytes.to_vec().into_boxed_slice());
        // SAFETY: leaked bytes live for ever.
        return Ok(Outcome::Done(unsafe {
            s.driver.cuMemcpyHtoDAsync_v2(to, kept.as_ptr().cast(), kept.len(), stream)
        }));
    }
    // SAFETY: the driver has read the source when it returns (a pageable copy of at most 64 KiB).
    let code = unsafe { s.driver.cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), stream) };
    if code == CUDA_SUCCESS && header.sequence != 0 {
        return Ok(s.park(header, Wait::Streams(vec![stream]), |_, code, _| code));
    }
    Ok(Outcome::Done(code))
}

/// An address of shared host memory, checked.
pub fn shared(s: &Session, address: u64, bytes: u64) -> Result<HeapRange, Fault> {
    super::host_memory::shared_range(s, address, bytes).ok_or(Fault("host address outside the session's memory"))
}

pub fn copy_in(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Result<Outcome, Fault> {
    let (to, from, bytes) = (r.word()?, r.word()?, r.word()?);
    let stream = s.plain_stream(r.word()?, header.thread);
    let lent = r.word()? != 0;
    let range = shared(s, from, bytes)?;
    let stream = match stream {
        Ok(stream) => stream,
        Err(code) => {
            if lent {
                s.release_heap(range);
            }
            return Ok(Outcome::Done(code));
        }
    };
    if s.captures.open() {
        s.captures.note_copy(stream, range, true);
    }
    // SAFETY: the source is shared memory, mapped for as long as the session lives.
    let code = unsafe { s.driver.cuMemcpyHtoDAsync_v2(to, s.registered(from) as *const _, bytes as usize, stream) };
    if lent {
        // While the stream is captured nothing is read now; the range stays lent.
        if code != CUDA_SUCCESS {
            s.release_heap(range);
        } else if !(s.captures.open() && s.is_capturing(stream)) {
            s.lend_until_done(range, stream);
        }
    }
    if code == CUDA_SUCCESS && header.sequence != 0 {
        return Ok(s.park(header, Wait::Streams(vec![stream]), |_, code, _| code));
    }
    Ok(Outcome::Done(code))
}

pub fn copy_out(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Result<Outcome, Fault> {
    let (to, from, bytes, stream_word) = (r.word()?, r.word()?, r.word()?, r.word()?);
    let range = shared(s, to, bytes)?;
    let stream = match s.plain_stream(stream_word, header.thread) {
        Ok(stream) => stream,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    if s.hold(header, range, from, stream, stream_word) {
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    s.mix(stream);
    if s.captures.open() {
        s.captures.note_copy(stream, range, false);
    }
    // SAFETY: the destination is shared memory, mapped for as long as the session lives.
    let code = unsafe { s.driver.cuMemcpyDtoHAsync_v2(s.registered(to) as *mut _, from, bytes as usize, stream) };
    if code != CUDA_SUCCESS {
        return Ok(Outcome::Done(code));
    }
    if s.captures.open() && s.is_capturing(stream) {
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    if header.sequence == 0 {
        return Ok(Outcome::Done(s.note_heap_copy(range, stream)));
    }
    // An event rather than the stream: later work on the stream must not hold this reply up.
    let event = match s.record_spare_event(stream) {
        Ok(event) => event,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    Ok(s.park(header, Wait::Event(event.1), move |s, code, reply| {
        s.return_event(event);
        if s.mirrored && code == CUDA_SUCCESS {
            s.announce(range);
        }
        let (code, events) = s.flush_output_of(stream, code);
        reply.word(events);
        code
    }))
}

/// Device to host with the bytes in the reply, by way of pinned memory of the worker's own.
pub fn copy_out_inline(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Result<Outcome, Fault> {
    let (from, bytes) = (r.word()?, r.word()? as usize);
    let stream = match s.plain_stream(r.word()?, header.thread) {
        Ok(stream) => stream,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    if bytes > RECORD_BYTES_MAX / 2 {
        return Err(Fault("copy too long for a reply"));
    }
    if Landing::suits(from, bytes as u64) && s.may_watch(stream) {
        let landing = match s.watch(from, bytes, stream) {
            Ok(landing) => landing,
            Err(code) => return Ok(Outcome::Done(code)),
        };
        let slot = landing.slot.cast_mut();
        return Ok(s.park(header, Wait::Landing(landing), move |s, code, reply| {
            // SAFETY: the copy has finished (or failed); the slot is ours.
            reply.bytes(unsafe { std::slice::from_raw_parts(slot, bytes) });
            reply.word(s.flush_output(code));
            s.return_scratch(slot);
            code
        }));
    }
    s.mix(stream);
    let slot = match s.scratch() {
        Ok(slot) => slot,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    // SAFETY: a scratch slot has room for half a record.
    let code = unsafe { s.driver.cuMemcpyDtoHAsync_v2(slot.cast(), from, bytes, stream) };
    if code != CUDA_SUCCESS {
        s.return_scratch(slot);
        return Ok(Outcome::Done(code));
    }
    Ok(s.park(header, Wait::Streams(vec![stream]), move |s, code, reply| {
        // SAFETY: the copy has finished (or failed); the slot is ours.
        reply.bytes(unsafe { std::slice::from_raw_parts(slot, bytes) });
        s.return_scratch(slot);
        let (code, events) = s.flush_output_of(stream, code);
        reply.word(events);
        code
    }))
}

/// Any shape. Host sides are shared memory, arrays are handles.
pub fn copy_3d(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Result<Outcome, Fault> {
    let stream = s.stream(r.word()?, header.thread);
    if r.rest().len() != std::mem::size_of::<CUDA_MEMCPY3D>() {
        return Err(Fault("copy descriptor of the wrong length"));
    }
    // SAFETY: any bytes are a valid descriptor: integers and pointers.
    let mut d: CUDA_MEMCPY3D = unsafe { ptr::read_unaligned(r.rest().as_ptr().cast()) };
    let stream = match stream {
        Ok(stream) => stream,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let mut to_host = None;
    match d.srcMemoryType {
        CU_MEMORYTYPE_ARRAY => match s.handle(Kind::Array, d.srcArray as u64) {
            Ok(a) => d.srcArray = a.cast(),
            Err(code) => return Ok(Outcome::Done(code)),
        },
        CU_MEMORYTYPE_HOST => {
            let place = (d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch, d.srcHeight);
            shared(s, d.srcHost as u64, span(&d, place)?)?;
        }
        _ => {}
    }
    match d.dstMemoryType {
        CU_MEMORYTYPE_ARRAY => match s.handle(Kind::Array, d.dstArray as u64) {
            Ok(a) => d.dstArray = a.cast(),
            Err(code) => return Ok(Outcome::Done(code)),
        },
        CU_MEMORYTYPE_HOST => {
            let place = (d.dstXInBytes, d.dstY, d.dstZ, d.dstPitch, d.dstHeight);
            to_host = Some(shared(s, d.dstHost as u64, span(&d, place)?)?);
        }
        _ => {}
    }
    // SAFETY: handles are the driver's, host ranges lie in the session's memory.
    let code = unsafe { s.driver.cuMemcpy3DAsync_v2(&d, stream) };
    if code != CUDA_SUCCESS {
        return Ok(Outcome::Done(code));
    }
    // Captured, nothing is copied now, and asking whether it is done would end the capture.
    if s.captures.open() && s.is_capturing(stream) {
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    if header.sequence == 0 {
        return Ok(Outcome::Done(match to_host {
            Some(range) => s.note_heap_copy(range, stream),
            None => CUDA_SUCCESS,
        }));
    }
    Ok(s.park(header, Wait::Streams(vec![stream]), move |s, code, _| {
        if let (Some(range), true, CUDA_SUCCESS) = (to_host, s.mirrored, code) {
            s.announce(range);
        }
        code
    }))
}

/// Bytes from a host side's base to the end of its last row.
fn span(d: &CUDA_MEMCPY3D, place: (usize, usize, usize, usize, usize)) -> Result<u64, Fault> {
    let (x, y, z, pitch, height) = place;
    let pitch = if pitch == 0 { d.WidthInBytes } else { pitch } as u128;
    let slice = pitch * if height == 0 { d.Height } else { height } as u128;
    let end = (z as u128 + (d.Depth as u128).saturating_sub(1)) * slice
        + (y as u128 + (d.Height as u128).saturating_sub(1)) * pitch
        + x as u128
        + d.WidthInBytes as u128;
    u64::try_from(end).map_err(|_| Fault("copy larger than memory"))
}
