//! Copies of bytes that lie side by side.
//!
//! A copy's host side is one of two things. *Shared* memory (pinned memory from `cuMemHostAlloc`) has the same
//! address on both sides, so the worker's driver copies straight from or to it. Anything else is *pageable*:
//! small copies travel in the record, larger ones through the staging part of the heap, which is registered with
//! the driver. A pageable source is captured before the call returns, so the call need not wait for the device.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use std::collections::VecDeque;
use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::message::address::{ClaimedDevice, ClaimedHost};
use orion_wire::message::calls;
use orion_wire::message::copy::{CopyBox, CopyIn, CopyInInline, CopyOut, CopyOutInline};
use orion_wire::message::copy::{CopyOutInlineReply, CopyOutReply, Source};
use orion_wire::message::field::{Existing, STREAM, Size};
use orion_wire::pages::SharedMemory;
use orion_wire::record::HeapRange;

use crate::answer::posted;
use crate::memory::copy::{message, post_or_call};
use crate::memory::payload::{INLINE_BYTES_MAX, announce};
use crate::memory::reading::Reading;
use crate::memory::staging::Staging;
use crate::memory::{host_memory, in_step};
use crate::objects::stream::in_context_of_copy;
use crate::objects::{capture, synchronize};
use crate::session::attached::session;
use crate::session::call::{call, post, post_sealed, start, start_sealed, try_post};
use crate::session::context::needs_context;
use crate::session::reply::{Ticket, wait};
use crate::state::address_map;
use crate::state::graph_copies::Shape;
use crate::state::process::state;
use crate::state::session::Session;

/// Pageable copies go through the heap in pieces of this size, so that copying and DMA overlap.
const CHUNK_BYTES: usize = 2 << 20;
/// Pieces of one device-to-host copy under way at once.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Where an address of a copy lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Device,
    /// The same bytes at the same address in the worker.
    Shared(SharedMemory),
    Pageable,
}

pub fn side(s: &Session, address: u64, bytes: usize) -> Result<Side, CUresult> {
    host_memory::ends_in_one_allocation(address, bytes as u64)?;
    if let Some(memory) = host_memory::shared(s, address, bytes as u64) {
        Ok(Side::Shared(memory))
    } else if state().addresses.is_device(address) {
        Ok(Side::Device)
    } else {
        host_memory::check_registered(s, address, bytes as u64).map(|()| Side::Pageable)
    }
}

/// Whether the shim knows the allocation that a device range lies in, which then ends inside of it: such a copy is done
/// without doubt, and may be posted. Memory that the shim has not seen made (opened by others, device-side heap) the
/// driver has to judge.
pub fn is_allocation_known(address: u64, bytes: usize) -> Result<bool, CUresult> {
    match state().addresses.find(address) {
        Some(range) if host_memory::ends_before(&range, address, bytes as u64) => Err(CUDA_ERROR_INVALID_VALUE),
        // VMM mappings and pools lie side by side; a copy may run across several.
        Some(range) if range.kind == address_map::MemoryKind::Device && range.bytes_from(address) < bytes as u64 => {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
        found => Ok(found.is_some()),
    }
}

/// Host to device. `synchronous` copies from shared memory return when the source may be changed.
///
/// # Safety
/// `from` has `bytes` readable bytes.
unsafe fn copy_in(to: CUdeviceptr, from: *const u8, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    let copy = || unsafe { copy_in_here(to, from, bytes, stream, synchronous) };
    in_context_of_copy(stream, (to, from as u64), synchronous, copy)
}

/// As above, in a context.
unsafe fn copy_in_here(
    to: CUdeviceptr,
    from: *const u8,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let answer = (|| {
        let s = session()?;
        needs_context()?;
        if bytes == 0 {
            return Ok(());
        }
        if to == 0 || from.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if host_memory::shared(s, to, bytes as u64).is_some() {
            // Addresses are unified: what is said to be the device's may be pinned memory.
            // SAFETY: the caller's promise.
            return posted(unsafe { copy_any_here(to, from as u64, bytes, stream, synchronous) });
        }
        let is_known = is_allocation_known(to, bytes)?;
        match side(s, from as u64, bytes)? {
            Side::Device => {
                let q = between(to, from as u64, bytes, stream);
                posted(post(calls::cuMemcpyDtoDAsync_v2::OP, |w| q.encode(w)))
            }
            Side::Shared(memory) => {
                let reading = Reading::of(s, || Vec::from_iter(memory.heap()));
                memory.heap().into_iter().for_each(|range| in_step::announce_source(s, range));
                let is_posted = !synchronous && is_known;
                let source = if is_posted && reading.is_noted() { Source::Told } else { Source::Kept };
                let q = copy_in_of(to, from as u64, bytes, stream, source);
                let sent = match is_posted {
                    true => posted(post_sealed(CopyIn::OP, |w| q.encode(w), |number| reading.posted(number))),
                    false => call(CopyIn::OP, |w| q.encode(w), |_| Ok(())),
                };
                // While the bytes are on their way.
                // SAFETY: the caller's promise.
                unsafe { in_step::note_bytes(s, to, from, bytes) };
                sent
            }
            // SAFETY: the caller's promise.
            Side::Pageable => unsafe { copy_in_pageable(s, to, is_known, from, bytes, stream, synchronous) },
        }
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

fn named(stream: CUstream) -> Existing<STREAM> {
    Existing(stream as u64)
}

fn copy_in_of(to: u64, from: u64, bytes: usize, stream: CUstream, source: Source) -> CopyIn {
    let (to, from) = (ClaimedDevice::new(to), ClaimedHost::new(from));
    CopyIn { to, from, bytes: Size::of(bytes), stream: named(stream), source }
}

fn copy_out_of(to: u64, from: u64, bytes: usize, stream: CUstream) -> CopyOut {
    let (to, from) = (ClaimedHost::new(to), ClaimedDevice::new(from));
    CopyOut { to, from, bytes: Size::of(bytes), stream: named(stream) }
}

fn between(to: u64, from: u64, bytes: usize, stream: CUstream) -> calls::cuMemcpyDtoDAsync_v2 {
    let (dstDevice, srcDevice) = (ClaimedDevice::new(to), ClaimedDevice::new(from));
    calls::cuMemcpyDtoDAsync_v2 { dstDevice, srcDevice, ByteCount: bytes, hStream: stream as u64 }
}

/// `is_known` says whether `to` is, as [`is_allocation_known`] has it.
///
/// # Safety
/// `from` has `bytes` readable bytes.
pub unsafe fn copy_in_pageable(
    s: &'static Session,
    to: CUdeviceptr,
    is_known: bool,
    from: *const u8,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> Result<(), CUresult> {
    if let Some(at) = capture::set_aside(s, stream, from as u64, Shape::line(bytes))? {
        let q = copy_in_of(to, at, bytes, stream, Source::Kept);
        return posted(post(CopyIn::OP, |w| q.encode(w)));
    }
    // CUDA allows the synchronous form to return before the device has the bytes, but programs that launch on a
    // non-blocking stream next rely on what the driver does, and it waits.
    if bytes <= INLINE_BYTES_MAX {
        // SAFETY: the caller's promise.
        unsafe { in_step::note_bytes(s, to, from, bytes) };
        // SAFETY: the caller's promise.
        let source = unsafe { std::slice::from_raw_parts(from, bytes) };
        let q = CopyInInline { to: ClaimedDevice::new(to), stream: named(stream), bytes: source.into() };
        return post_or_call(CopyInInline::OP, is_known && !synchronous, |w| q.encode(w));
    }
    let mut done = 0;
    while done < bytes {
        let len = CHUNK_BYTES.min(bytes - done);
        let piece = Staging::take(s, len)?;
        let at = piece.pointer();
        // SAFETY: the caller's promise, and the staging range is ours alone until the worker releases it.
        let is_near = unsafe { in_step::copy_and_look(s, to + done as u64, at, from.add(done), len) };
        announce(s, piece.range);
        let q = copy_in_of(to + done as u64, at as u64, len, stream, Source::Lent);
        let note = || {
            if is_near {
                // SAFETY: the caller's promise.
                unsafe { in_step::note_bytes(s, to + done as u64, from.add(done), len) };
            }
        };
        if done + len == bytes && synchronous {
            let ticket = start(s, CopyIn::OP, |w| q.encode(w))?;
            piece.lend();
            note();
            posted(wait(s, ticket)?.result)?;
        } else {
            let sent = try_post(CopyIn::OP, |w| q.encode(w))?;
            piece.lend();
            // While the bytes are on their way.
            note();
            posted(sent)?;
        }
        done += len;
    }
    Ok(())
}

/// Device to host. Into pageable memory the call returns when the bytes are there, whichever form was asked for.
///
/// # Safety
/// `to` has `bytes` writable bytes.
unsafe fn copy_out(to: *mut u8, from: CUdeviceptr, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    let copy = || unsafe { copy_out_here(to, from, bytes, stream, synchronous) };
    in_context_of_copy(stream, (to as u64, from), synchronous, copy)
}

/// As above, in a context.
unsafe fn copy_out_here(to: *mut u8, from: CUdeviceptr, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    let answer = (|| {
        let s = session()?;
        needs_context()?;
        if bytes == 0 {
            return Ok(());
        }
        if from == 0 || to.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if host_memory::shared(s, from, bytes as u64).is_some() {
            // SAFETY: the caller's promise.
            return posted(unsafe { copy_any_here(to as u64, from, bytes, stream, synchronous) });
        }
        let is_known = is_allocation_known(from, bytes)?;
        match side(s, to as u64, bytes)? {
            Side::Device => {
                let q = between(to as u64, from, bytes, stream);
                posted(post(calls::cuMemcpyDtoDAsync_v2::OP, |w| q.encode(w)))
            }
            Side::Shared(memory) => {
                memory.heap().into_iter().for_each(|range| in_step::before_overwrite(s, range));
                let q = copy_out_of(to as u64, from, bytes, stream);
                let bringing = Bringing::new(s, Vec::from_iter(memory.heap()));
                if !synchronous && is_known {
                    return posted(post_sealed(CopyOut::OP, |w| q.encode(w), |number| bringing.posted(number)));
                }
                let ticket = start_sealed(s, CopyOut::OP, |w| q.encode(w), |number| bringing.called(number))?;
                finish_out(s, ticket, stream)
            }
            // SAFETY: the caller's promise.
            Side::Pageable => unsafe { copy_out_pageable(s, to, from, bytes, stream) },
        }
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// A command that brings bytes to pinned memory, where the worker has a copy of it.
pub struct Bringing {
    s: &'static Session,
    ranges: Vec<HeapRange>,
    must_bring: bool,
    /// The command, if this is who knows when it is over.
    number: std::cell::Cell<u64>,
}

impl Bringing {
    pub fn new(s: &'static Session, ranges: Vec<HeapRange>) -> Bringing {
        Bringing { s, ranges, must_bring: s.pages.must_bring(), number: Default::default() }
    }

    /// The worker tells when it is over.
    pub fn posted(&self, number: u64) {
        if self.must_bring && !self.ranges.is_empty() {
            self.s.on_the_way.expect(number, self.ranges.clone());
        }
    }

    /// It is over when this goes, behind the reply.
    pub fn called(&self, number: u64) {
        self.posted(number);
        self.number.set(number);
    }
}

impl Drop for Bringing {
    fn drop(&mut self) {
        if self.must_bring && self.number.get() != 0 {
            self.s.on_the_way.settled(self.number.get());
        }
    }
}

fn finish_out(s: &'static Session, ticket: Ticket, stream: CUstream) -> Result<(), CUresult> {
    let reply = wait(s, ticket)?;
    // A copy that failed before it was made has no body. What kernels before it printed is out before it returns.
    if let Ok(q) = CopyOutReply::decode(&mut Reader::new(&reply.body)) {
        crate::session::progress::wait_for(s, q.events)?;
    }
    posted(reply.result)?;
    crate::session::thread::note_synchronized(stream as u64, ticket.sent);
    Ok(())
}

/// # Safety
/// `to` has `bytes` writable bytes.
unsafe fn copy_out_pageable(
    s: &'static Session,
    to: *mut u8,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), CUresult> {
    if let Some(at) = capture::set_aside(s, stream, to as u64, Shape::line(bytes))? {
        let q = copy_out_of(at, from, bytes, stream);
        return posted(post(CopyOut::OP, |w| q.encode(w)));
    }
    if bytes <= INLINE_BYTES_MAX {
        let q = CopyOutInline { from: ClaimedDevice::new(from), bytes: Size::of(bytes), stream: named(stream) };
        let ticket = start(s, CopyOutInline::OP, |w| q.encode(w))?;
        let reply = wait(s, ticket)?;
        posted(reply.result)?;
        let answer = CopyOutInlineReply::decode(&mut Reader::new(&reply.body));
        let CopyOutInlineReply { bytes: data, events } = answer.map_err(|f| crate::session::lost::broken(f.0))?;
        crate::session::progress::wait_for(s, events)?;
        let data = data.get();
        if data.len() != bytes {
            return Err(crate::session::lost::broken("copy of another length"));
        }
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, bytes) };
        crate::session::thread::note_synchronized(stream as u64, ticket.sent);
        return Ok(());
    }
    let mut in_flight: VecDeque<(Ticket, Staging, usize)> = VecDeque::new();
    let mut asked = 0;
    let mut failure = Ok(());
    while (asked < bytes && failure.is_ok()) || !in_flight.is_empty() {
        if asked < bytes && in_flight.len() < CHUNKS_IN_FLIGHT && failure.is_ok() {
            let len = CHUNK_BYTES.min(bytes - asked);
            let source = from + asked as u64;
            // Nothing may be given back while a piece before it is being written: what is under way is waited for.
            let sent = Staging::take(s, len).and_then(|piece| {
                let q = copy_out_of(piece.pointer() as u64, source, len, stream);
                Ok((start(s, CopyOut::OP, |w| q.encode(w))?, piece))
            });
            match sent {
                Ok((ticket, piece)) => in_flight.push_back((ticket, piece, asked)),
                Err(code) => failure = Err(code),
            }
            asked += len;
            continue;
        }
        let Some((ticket, piece, offset)) = in_flight.pop_front() else { break };
        match wait(s, ticket).and_then(|reply| posted(reply.result)) {
            // SAFETY: the caller's promise; the worker has finished writing the piece.
            Ok(()) => unsafe {
                crate::memory::parallel_copy::copy(to.add(offset), piece.pointer(), piece.range.bytes as usize)
            },
            Err(code) => failure = Err(code),
        }
    }
    failure
}

/// Both sides are host memory, and nothing is captured: the stream's work first, then a plain copy.
///
/// # Safety
/// As `memmove`.
unsafe fn copy_host(to: *mut u8, from: *const u8, bytes: usize, stream: CUstream) -> CUresult {
    let code = synchronize::stream(stream);
    if code == CUDA_SUCCESS {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(from, to, bytes) };
    }
    code
}

/// A copy within host memory on a stream that is being captured: the worker makes it when the graph runs.
fn record_host(s: &'static Session, to: u64, from: u64, bytes: usize, stream: CUstream) -> Result<(), CUresult> {
    needs_context()?;
    let aside = |host| capture::set_aside(s, stream, host, Shape::line(bytes))?.ok_or(CUDA_ERROR_INVALID_VALUE);
    let [of_source, of_destination] = [from, to].map(|host| host_memory::shared(s, host, bytes as u64));
    let range = of_source.and_then(SharedMemory::heap);
    let reading = Reading::of(s, || Vec::from_iter(range));
    range.into_iter().for_each(|range| in_step::announce_source(s, range));
    let written = of_destination.and_then(SharedMemory::heap);
    written.into_iter().for_each(|range| in_step::before_overwrite(s, range));
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    let source = if of_source.is_some() { from } else { aside(from)? };
    let destination = if of_destination.is_some() { to } else { aside(to)? };
    (d.srcMemoryType, d.srcHost) = (CU_MEMORYTYPE_HOST, source as *const c_void);
    (d.dstMemoryType, d.dstHost) = (CU_MEMORYTYPE_HOST, destination as *mut c_void);
    (d.WidthInBytes, d.Height, d.Depth) = (bytes, 1, 1);
    let (q, bringing) =
        (CopyBox { stream: named(stream), copy: message(&d) }, Bringing::new(s, Vec::from_iter(written)));
    let note = |number| {
        bringing.posted(number);
        reading.posted(number);
    };
    posted(post_sealed(CopyBox::OP, |w| q.encode(w), note))
}

/// The direction follows from the addresses.
///
/// # Safety
/// Host addresses have `bytes` bytes.
unsafe fn copy_any(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    let copy = || unsafe { copy_any_here(to, from, bytes, stream, synchronous) };
    in_context_of_copy(stream, (to, from), synchronous, copy)
}

/// As above, in a context.
pub unsafe fn copy_any_here(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_sides(to, from, bytes, stream, synchronous, |_| true) }
}

/// Between what is said to be devices' memory: pinned memory may be, and what no driver knows may not.
///
/// # Safety
/// Pinned memory has `bytes` bytes.
unsafe fn copy_between(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let is_known = |side| side != Side::Pageable;
    // SAFETY: the caller's promise.
    let copy = || unsafe { copy_sides(to, from, bytes, stream, synchronous, is_known) };
    in_context_of_copy(stream, (to, from), synchronous, copy)
}

/// # Safety
/// Host addresses that `may_be` a side of it have `bytes` bytes.
unsafe fn copy_sides(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
    may_be: impl Fn(Side) -> bool,
) -> CUresult {
    let s = match session() {
        Ok(s) => s,
        Err(code) => return code,
    };
    if bytes == 0 {
        return needs_context().err().unwrap_or(CUDA_SUCCESS);
    }
    let (a, b) = match (side(s, to, bytes), side(s, from, bytes)) {
        (Ok(a), Ok(b)) if may_be(a) && may_be(b) => (a, b),
        (Ok(_), Ok(_)) => return CUDA_ERROR_INVALID_VALUE,
        (Err(code), _) | (_, Err(code)) => return code,
    };
    // SAFETY: the caller's promise, for whichever side is the host's.
    unsafe {
        match (a, b) {
            (Side::Device, Side::Device) => copy_device(to, from, bytes, stream),
            (Side::Device, _) => copy_in(to, from as *const u8, bytes, stream, synchronous),
            (_, Side::Device) => copy_out(to as *mut u8, from, bytes, stream, synchronous),
            _ if synchronous => copy_host(to as *mut u8, from as *const u8, bytes, stream),
            _ => match capture::is_active(stream) {
                Ok(true) => record_host(s, to, from, bytes, stream).err().unwrap_or(CUDA_SUCCESS),
                Ok(false) => copy_host(to as *mut u8, from as *const u8, bytes, stream),
                Err(code) => code,
            },
        }
    }
}

fn copy_device(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    let answer = (|| {
        needs_context()?;
        let (to_known, from_known) = (is_allocation_known(to, bytes)?, is_allocation_known(from, bytes)?);
        let q = between(to, from, bytes, stream);
        post_or_call(calls::cuMemcpyDtoDAsync_v2::OP, to_known && from_known, |w| q.encode(w))
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// # Safety
/// As CUDA's `cuMemcpyHtoD_v2`.
pub unsafe fn cuMemcpyHtoD_v2(d: CUstream, to: CUdeviceptr, from: *const c_void, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_in(to, from.cast(), bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyHtoDAsync_v2`.
pub unsafe fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_in(to, from.cast(), bytes, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpyDtoH_v2`.
pub unsafe fn cuMemcpyDtoH_v2(d: CUstream, to: *mut c_void, from: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_out(to.cast(), from, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyDtoHAsync_v2`.
pub unsafe fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_out(to.cast(), from, bytes, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpy`.
pub unsafe fn cuMemcpy(d: CUstream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_any(to, from, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyAsync`.
pub unsafe fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_any(to, from, bytes, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpyDtoD_v2`. Between memory of devices it does not wait; a side that is the host's after all is done
/// when the call returns.
pub unsafe fn cuMemcpyDtoD_v2(d: CUstream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_between(to, from, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyDtoDAsync_v2`.
pub unsafe fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_between(to, from, bytes, stream, false) }
}
