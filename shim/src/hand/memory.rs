//! Device memory and copies of every shape.
//!
//! A copy's host side is one of two things. *Shared* memory (pinned memory from `cuMemHostAlloc`) has the same
//! address on both sides, so the worker's driver copies straight from or to it. Anything else is *pageable*:
//! small copies travel in the record, larger ones through the staging part of the heap, which is registered with
//! the driver. A pageable source is captured before the call returns, so the call need not wait for the device.

// UNSAFETY: copies between the application's buffers and the heap; addresses and sizes are the application's.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Condvar;
use std::time::Duration;

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::record::{HeapRange, op};

use super::callback::Reading;
use super::execution::write;
use super::graph::Shape;
use super::heap::PAGE;
use super::payload::{INLINE_BYTES_MAX, announce};
use super::{address_map, host_memory, sync};
use crate::call::{Ticket, call, post, post_sealed, start, start_sealed, try_post, wait};
use crate::local::context;
use crate::session::{Session, session};

/// Pageable copies go through the heap in pieces of this size, so that copying and DMA overlap.
const CHUNK_BYTES: usize = 2 << 20;
/// Pieces of one device-to-host copy under way at once.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Wakes those who wait for staging memory.
pub static STAGING_RELEASED: Condvar = Condvar::new();

/// # Safety
/// As CUDA's `cuMemAlloc_v2`.
pub unsafe fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let answer = (|| {
        let ctx = needs_context()?;
        if bytes == 0 || address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let base = call(ops::CU_MEM_ALLOC_V2, |w| w.word(bytes as u64), |r| r.word())?;
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
        let request = |w: &mut Vec<u8>| {
            for v in [width_bytes as u64, height as u64, element_bytes as u64] {
                w.word(v);
            }
        };
        let (base, row) = call(ops::CU_MEM_ALLOC_PITCH_V2, request, |r| Ok((r.word()?, r.word()? as usize)))?;
        insert(base, row.saturating_mul(height), ctx);
        // SAFETY: not null, valid by the caller's promise.
        unsafe { pitch.write(row) };
        Ok(base)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(address, answer) }
}

fn needs_context() -> Result<u64, CUresult> {
    session()?;
    match context::current_home() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        ctx => Ok(ctx),
    }
}

fn insert(base: u64, bytes: usize, ctx: u64) {
    let device = context::current_device().unwrap_or(0);
    address_map::insert_device(base, bytes as u64, address_map::Kind::Device, ctx, device);
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
    let Some(range) = address_map::find(address).filter(|range| range.base == address) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    match call(ops::CU_MEM_FREE_V2, |w| w.word(address), |_| Ok(())) {
        Ok(()) => {
            // Another thread may have been given the address by now.
            address_map::remove_if(address, |r| r.id == range.id && r.kind != address_map::Kind::Graph);
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuMemGetInfo_v2`.
pub unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    let answer = needs_context()
        .and_then(|_| call(ops::CU_MEM_GET_INFO_V2, |_| {}, |r| Ok((r.word()? as usize, r.word()? as usize))));
    match answer {
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

/// Where an address of a copy lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Device,
    /// The same bytes at the same address in the worker.
    Shared(HeapRange),
    Pageable,
}

fn side(s: &Session, address: u64, bytes: usize) -> Result<Side, CUresult> {
    if let Some(range) = host_memory::shared_range(s, address, bytes as u64) {
        Ok(Side::Shared(range))
    } else if address_map::is_device(address) {
        Ok(Side::Device)
    } else {
        host_memory::check_registered(address, bytes as u64).map(|()| Side::Pageable)
    }
}

/// Whether a device range ends inside its allocation, where the shim knows the allocation.
fn check_device(address: u64, bytes: usize) -> Result<(), CUresult> {
    match address_map::find(address) {
        Some(range) if range.base.saturating_add(range.bytes) < address.saturating_add(bytes as u64) => {
            // VMM mappings and pools lie side by side; a copy may run across several.
            if range.kind == address_map::Kind::Device { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
        }
        Some(_) => Ok(()),
        // Memory the shim has not seen made (opened by others, device-side heap): the driver decides.
        None => Ok(()),
    }
}

/// Host to device. `synchronous` copies from shared memory return when the source may be changed.
///
/// # Safety
/// `from` has `bytes` readable bytes.
unsafe fn copy_in(to: CUdeviceptr, from: *const u8, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    super::stream::in_context_of(stream, || unsafe { copy_in_here(to, from, bytes, stream, synchronous) })
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
        if host_memory::shared_range(s, to, bytes as u64).is_some() {
            // Addresses are unified: what is said to be the device's may be pinned memory.
            // SAFETY: the caller's promise.
            return result(unsafe { copy_any_here(to, from as u64, bytes, stream, synchronous) });
        }
        check_device(to, bytes)?;
        match side(s, from as u64, bytes)? {
            Side::Device => {
                let request = |w: &mut Vec<u8>| copy_words(w, &[to, from as u64, bytes as u64, stream as u64]);
                result(post(ops::CU_MEMCPY_DTO_D_ASYNC_V2, request))
            }
            Side::Shared(range) => {
                let reading = Reading::of(s, || vec![range]);
                host_memory::announce_source(s, range);
                let posted = !synchronous && is_known(s, to, bytes);
                let tell = if posted && reading.is_noted() { 2 } else { 0 };
                let request = |w: &mut Vec<u8>| copy_words(w, &[to, from as u64, bytes as u64, stream as u64, tell]);
                match posted {
                    true => result(post_sealed(op::COPY_IN, request, |number| reading.posted(number))),
                    false => call(op::COPY_IN, request, |_| Ok(())),
                }
            }
            // SAFETY: the caller's promise.
            Side::Pageable => unsafe { copy_in_pageable(s, to, from, bytes, stream, synchronous) },
        }
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

fn copy_words(w: &mut Vec<u8>, words: &[u64]) {
    for v in words {
        w.word(*v);
    }
}

fn result(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// # Safety
/// `from` has `bytes` readable bytes.
unsafe fn copy_in_pageable(
    s: &'static Session,
    to: CUdeviceptr,
    from: *const u8,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> Result<(), CUresult> {
    if let Some(at) = super::capture::set_aside(s, stream, from as u64, Shape::line(bytes))? {
        return result(post(op::COPY_IN, |w| copy_words(w, &[to, at, bytes as u64, stream as u64, 0])));
    }
    // CUDA allows the synchronous form to return before the device has the bytes, but programs that launch on a
    // non-blocking stream next rely on what the driver does, and it waits.
    if bytes <= INLINE_BYTES_MAX {
        // SAFETY: the caller's promise.
        let source = unsafe { std::slice::from_raw_parts(from, bytes) };
        let request = |w: &mut Vec<u8>| {
            w.word(to);
            w.word(stream as u64);
            w.bytes(source);
        };
        return if is_known(s, to, bytes) && !synchronous {
            result(post(op::COPY_IN_INLINE, request))
        } else {
            call(op::COPY_IN_INLINE, request, |_| Ok(()))
        };
    }
    let mut done = 0;
    while done < bytes {
        let len = CHUNK_BYTES.min(bytes - done);
        let piece = Staging::take(s, len)?;
        let at = piece.pointer();
        // SAFETY: the caller's promise, and the staging range is ours alone until the worker releases it.
        unsafe { super::stream_copy::copy(at, from.add(done), len) };
        announce(s, piece.range);
        let words = [to + done as u64, at as u64, len as u64, stream as u64, 1];
        done += len;
        if done == bytes && synchronous {
            let ticket = start(s, op::COPY_IN, |w| copy_words(w, &words))?;
            piece.lend();
            result(wait(s, ticket)?.result)?;
        } else {
            let sent = try_post(op::COPY_IN, |w| copy_words(w, &words))?;
            piece.lend();
            result(sent)?;
        }
    }
    Ok(())
}

/// A piece of staging memory, given back when dropped.
struct Staging {
    s: &'static Session,
    range: HeapRange,
}

impl Staging {
    /// Waits for the worker to release some if all of it is under way.
    fn take(s: &'static Session, bytes: usize) -> Result<Staging, CUresult> {
        let mut allocator = s.heap_allocator.lock().expect("no panic happens under this lock");
        loop {
            if let Some(offset) = allocator.staging.allocate(bytes as u64, PAGE) {
                return Ok(Staging { s, range: HeapRange { offset, bytes: bytes as u64 } });
            }
            if crate::carrier::lost() {
                return Err(crate::call::SESSION_LOST);
            }
            allocator = STAGING_RELEASED
                .wait_timeout(allocator, Duration::from_millis(100))
                .expect("no panic happens under this lock")
                .0;
        }
    }

    fn pointer(&self) -> *mut u8 {
        self.s.heap.at(self.range.offset, self.range.bytes).expect("staging lies inside the heap")
    }

    /// A command that lends it to the worker was sent: the worker gives it back, whatever becomes of the command.
    fn lend(self) {
        std::mem::forget(self);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        release_staging(self.s, &[self.range]);
    }
}

/// The worker has read what was lent to it.
pub fn release_staging(s: &Session, ranges: &[HeapRange]) {
    for range in ranges {
        if !host_memory::released(s, *range) {
            let mut allocator = s.heap_allocator.lock().expect("no panic happens under this lock");
            allocator.staging.release(range.offset, range.bytes);
        }
    }
    STAGING_RELEASED.notify_all();
}

/// Device to host. Into pageable memory the call returns when the bytes are there, whichever form was asked for.
///
/// # Safety
/// `to` has `bytes` writable bytes.
unsafe fn copy_out(to: *mut u8, from: CUdeviceptr, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    super::stream::in_context_of(stream, || unsafe { copy_out_here(to, from, bytes, stream, synchronous) })
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
        if host_memory::shared_range(s, from, bytes as u64).is_some() {
            // SAFETY: the caller's promise.
            return result(unsafe { copy_any_here(to as u64, from, bytes, stream, synchronous) });
        }
        check_device(from, bytes)?;
        match side(s, to as u64, bytes)? {
            Side::Device => {
                let request = |w: &mut Vec<u8>| copy_words(w, &[to as u64, from, bytes as u64, stream as u64]);
                result(post(ops::CU_MEMCPY_DTO_D_ASYNC_V2, request))
            }
            Side::Shared(range) => {
                host_memory::before_overwrite(s, range);
                let request = |w: &mut Vec<u8>| copy_words(w, &[to as u64, from, bytes as u64, stream as u64]);
                let bringing = Bringing::new(s, vec![range]);
                if !synchronous && is_known(s, from, bytes) {
                    return result(post_sealed(op::COPY_OUT, request, |number| bringing.posted(number)));
                }
                let ticket = start_sealed(s, op::COPY_OUT, request, |number| bringing.called(number))?;
                finish_out(s, ticket, stream)
            }
            // SAFETY: the caller's promise.
            Side::Pageable => unsafe { copy_out_pageable(s, to, from, bytes, stream) },
        }
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// A command that brings bytes to pinned memory, where the worker has a copy of it.
struct Bringing {
    ranges: Vec<HeapRange>,
    mirrored: bool,
    /// The command, if this is who knows when it is over.
    number: std::cell::Cell<u64>,
}

impl Bringing {
    fn new(s: &Session, ranges: Vec<HeapRange>) -> Bringing {
        Bringing { ranges, mirrored: s.mirrored, number: Default::default() }
    }

    /// The worker tells when it is over.
    fn posted(&self, number: u64) {
        if self.mirrored && !self.ranges.is_empty() {
            super::on_the_way::expect(number, self.ranges.clone());
        }
    }

    /// It is over when this goes, behind the reply.
    fn called(&self, number: u64) {
        self.posted(number);
        self.number.set(number);
    }
}

impl Drop for Bringing {
    fn drop(&mut self) {
        if self.mirrored && self.number.get() != 0 {
            super::on_the_way::settled(self.number.get());
        }
    }
}

fn finish_out(s: &'static Session, ticket: Ticket, stream: CUstream) -> Result<(), CUresult> {
    let reply = wait(s, ticket)?;
    let mut r = orion_wire::Reader::new(&reply.body);
    show_output(s, &mut r)?;
    result(reply.result)?;
    crate::call::note_synchronized(stream as u64, ticket.sent);
    Ok(())
}

/// What kernels before a copy printed is out before the copy returns.
fn show_output(s: &Session, r: &mut orion_wire::Reader<'_>) -> Result<(), CUresult> {
    match r.word() {
        Ok(events) => super::events::wait_for(s, events),
        // A copy that failed has no body.
        Err(_) => Ok(()),
    }
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
    if let Some(at) = super::capture::set_aside(s, stream, to as u64, Shape::line(bytes))? {
        return result(post(op::COPY_OUT, |w| copy_words(w, &[at, from, bytes as u64, stream as u64])));
    }
    if bytes <= INLINE_BYTES_MAX {
        let ticket = start(s, op::COPY_OUT_INLINE, |w| copy_words(w, &[from, bytes as u64, stream as u64]))?;
        let reply = wait(s, ticket)?;
        result(reply.result)?;
        let mut r = orion_wire::Reader::new(&reply.body);
        let data = r.bytes().map_err(|f| crate::call::broken(f.0))?;
        show_output(s, &mut r)?;
        if data.len() != bytes {
            return Err(crate::call::broken("copy of another length"));
        }
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, bytes) };
        crate::call::note_synchronized(stream as u64, ticket.sent);
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
                let words = [piece.pointer() as u64, source, len as u64, stream as u64];
                Ok((start(s, op::COPY_OUT, |w| copy_words(w, &words))?, piece))
            });
            match sent {
                Ok((ticket, piece)) => in_flight.push_back((ticket, piece, asked)),
                Err(code) => failure = Err(code),
            }
            asked += len;
            continue;
        }
        let Some((ticket, piece, offset)) = in_flight.pop_front() else { break };
        match wait(s, ticket).and_then(|reply| result(reply.result)) {
            // SAFETY: the caller's promise; the worker has finished writing the piece.
            Ok(()) => unsafe { super::stream_copy::copy(to.add(offset), piece.pointer(), piece.range.bytes as usize) },
            Err(code) => failure = Err(code),
        }
    }
    failure
}

/// Both sides are host memory: the stream's work first, then a plain copy.
///
/// # Safety
/// As `memmove`.
unsafe fn copy_host(to: *mut u8, from: *const u8, bytes: usize, stream: CUstream) -> CUresult {
    let code = sync::stream(stream);
    if code == CUDA_SUCCESS {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(from, to, bytes) };
    }
    code
}

/// The direction follows from the addresses.
///
/// # Safety
/// Host addresses have `bytes` bytes.
unsafe fn copy_any(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    super::stream::in_context_of(stream, || unsafe { copy_any_here(to, from, bytes, stream, synchronous) })
}

/// As above, in a context.
unsafe fn copy_any_here(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let s = match session() {
        Ok(s) => s,
        Err(code) => return code,
    };
    if bytes == 0 {
        return needs_context().err().unwrap_or(CUDA_SUCCESS);
    }
    let (a, b) = match (side(s, to, bytes), side(s, from, bytes)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(code), _) | (_, Err(code)) => return code,
    };
    // SAFETY: the caller's promise, for whichever side is the host's.
    unsafe {
        match (a, b) {
            (Side::Device, Side::Device) => copy_device(to, from, bytes, stream),
            (Side::Device, _) => copy_in(to, from as *const u8, bytes, stream, synchronous),
            (_, Side::Device) => copy_out(to as *mut u8, from, bytes, stream, synchronous),
            _ => copy_host(to as *mut u8, from as *const u8, bytes, stream),
        }
    }
}

fn copy_device(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    if let Err(code) = needs_context().and_then(|_| check_device(to, bytes)).and_then(|()| check_device(from, bytes)) {
        return code;
    }
    let words = [to, from, bytes as u64, stream as u64];
    let known = session().is_ok_and(|s| is_known(s, to, bytes) && is_known(s, from, bytes));
    post_or_call(ops::CU_MEMCPY_DTO_D_ASYNC_V2, known, &words).err().unwrap_or(CUDA_SUCCESS)
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
/// As CUDA's `cuMemcpyDtoD_v2`.
pub unsafe fn cuMemcpyDtoD_v2(d: CUstream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_any(to, from, bytes, d, false) }
}

/// # Safety
/// As CUDA's `cuMemcpyDtoDAsync_v2`.
pub unsafe fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_any(to, from, bytes, stream, false) }
}

/// Two-dimensional copies are three-dimensional ones of depth 1.
fn as_3d(c: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    d.srcXInBytes = c.srcXInBytes;
    d.srcY = c.srcY;
    d.srcMemoryType = c.srcMemoryType;
    d.srcHost = c.srcHost;
    d.srcDevice = c.srcDevice;
    d.srcArray = c.srcArray;
    d.srcPitch = c.srcPitch;
    d.dstXInBytes = c.dstXInBytes;
    d.dstY = c.dstY;
    d.dstMemoryType = c.dstMemoryType;
    d.dstHost = c.dstHost;
    d.dstDevice = c.dstDevice;
    d.dstArray = c.dstArray;
    d.dstPitch = c.dstPitch;
    d.WidthInBytes = c.WidthInBytes;
    d.Height = c.Height;
    d.Depth = 1;
    d
}

/// One side's host memory in a shaped copy: rows of a box.
struct Rows {
    first: *mut u8,
    pitch: usize,
    slice: usize,
    width: usize,
    height: usize,
    depth: usize,
}

impl Rows {
    fn packed_bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    fn shape(&self) -> Shape {
        let Rows { pitch, slice, width, height, depth, .. } = *self;
        Shape { width, rows: height, slices: depth, pitch, slice_pitch: slice }
    }

    /// The rows in the heap, where `all` is from the first to the last byte touched. Rows without a gap are one.
    fn ranges(&self, all: HeapRange) -> Vec<HeapRange> {
        let mut rows: Vec<HeapRange> = Vec::new();
        for at in (0..self.depth).flat_map(|z| (0..self.height).map(move |y| z * self.slice + y * self.pitch)) {
            let (offset, bytes) = (all.offset + at as u64, self.width as u64);
            match rows.last_mut() {
                Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
                _ => rows.push(HeapRange { offset, bytes }),
            }
        }
        rows
    }

    /// Bytes from the first to the last one touched.
    fn span(&self) -> usize {
        (self.depth - 1) * self.slice + (self.height - 1) * self.pitch + self.width
    }

    /// # Safety
    /// Every row lies in the application's memory; `packed` has `packed_bytes`.
    unsafe fn each(&self, packed: *mut u8, mut copy: impl FnMut(*mut u8, *mut u8, usize)) {
        let mut at = packed;
        for z in 0..self.depth {
            for y in 0..self.height {
                // SAFETY: the caller's promise.
                unsafe {
                    copy(self.first.add(z * self.slice + y * self.pitch), at, self.width);
                    at = at.add(self.width);
                }
            }
        }
    }
}

/// Any shape. A pageable side is packed through the heap, so a copy with one is complete when the call returns.
///
/// # Safety
/// Host sides have the rows that the descriptor names.
unsafe fn copy_3d(c: *const CUDA_MEMCPY3D, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    super::stream::in_context_of(stream, || unsafe { copy_3d_here(c, stream, synchronous) })
}

/// As above, in a context.
unsafe fn copy_3d_here(c: *const CUDA_MEMCPY3D, stream: CUstream, synchronous: bool) -> CUresult {
    let answer = (|| {
        let s = session()?;
        needs_context()?;
        // SAFETY: null or a valid descriptor.
        let mut d = *unsafe { c.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if d.WidthInBytes == 0 || d.Height == 0 || d.Depth == 0 {
            return Ok(());
        }
        // "Unified" says: find out by the address.
        let resolve = |kind: &mut CUmemorytype, device: u64, host: &mut u64| {
            if *kind == CU_MEMORYTYPE_UNIFIED {
                if side(s, device, 1) == Ok(Side::Device) {
                    *kind = CU_MEMORYTYPE_DEVICE;
                } else {
                    (*kind, *host) = (CU_MEMORYTYPE_HOST, device);
                }
            }
        };
        let (mut src_host, mut dst_host) = (d.srcHost as u64, d.dstHost as u64);
        resolve(&mut d.srcMemoryType, d.srcDevice, &mut src_host);
        resolve(&mut d.dstMemoryType, d.dstDevice, &mut dst_host);
        let rows = |base: u64, x: usize, y: usize, z: usize, pitch: usize, height: usize| {
            let pitch = if pitch == 0 { d.WidthInBytes } else { pitch };
            let slice = pitch * if height == 0 { d.Height } else { height };
            if base == 0 || pitch < d.WidthInBytes {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let first = (base as usize + z * slice + y * pitch + x) as *mut u8;
            Ok(Rows { first, pitch, slice, width: d.WidthInBytes, height: d.Height, depth: d.Depth })
        };
        let src = match d.srcMemoryType {
            CU_MEMORYTYPE_HOST => Some(rows(src_host, d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch, d.srcHeight)?),
            _ => None,
        };
        let dst = match d.dstMemoryType {
            CU_MEMORYTYPE_HOST => Some(rows(dst_host, d.dstXInBytes, d.dstY, d.dstZ, d.dstPitch, d.dstHeight)?),
            _ => None,
        };
        if let (Some(from), Some(to)) = (&src, &dst) {
            result(sync::stream(stream))?;
            for z in 0..d.Depth {
                for y in 0..d.Height {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let (a, b) = (to.first.add(z * to.slice + y * to.pitch), z * from.slice + y * from.pitch);
                        std::ptr::copy(from.first.add(b), a, d.WidthInBytes);
                    }
                }
            }
            return Ok(());
        }
        // What is captured is copied when the graph runs.
        let set_aside = |rows: &Rows| match synchronous {
            true => Ok(None),
            false => super::capture::set_aside(s, stream, rows.first as u64, rows.shape()),
        };
        let mut loan = None;
        let mut unpack = None;
        let (mut to_host, mut reading) = (Vec::new(), None);
        if let Some(from) = src {
            d.srcHost = src_host as *const c_void;
            match host_memory::shared_range(s, from.first as u64, from.span() as u64) {
                Some(range) if s.mirrored => {
                    let rows = from.ranges(range);
                    reading = Some(Reading::of(s, || rows.clone()));
                    host_memory::announce_rows(s, range, &rows);
                }
                Some(_) => {}
                None => match set_aside(&from)? {
                    Some(at) => {
                        d.srcHost = at as *const c_void;
                        (d.srcPitch, d.srcHeight) = (from.pitch, from.slice / from.pitch);
                        (d.srcXInBytes, d.srcY, d.srcZ) = (0, 0, 0);
                    }
                    None => {
                        let l = super::payload::Loan::general(s, from.packed_bytes())?;
                        // SAFETY: the caller's promise; the loan has room for the packed rows.
                        unsafe { from.each(l.pointer(), |row, at, n| std::ptr::copy_nonoverlapping(row, at, n)) };
                        announce(s, l.range);
                        d.srcHost = l.pointer().cast_const().cast();
                        (d.srcPitch, d.srcHeight) = (d.WidthInBytes, d.Height);
                        (d.srcXInBytes, d.srcY, d.srcZ) = (0, 0, 0);
                        loan = Some(l);
                    }
                },
            }
        }
        if let Some(to) = dst {
            d.dstHost = dst_host as *mut c_void;
            if let Some(range) = host_memory::shared_range(s, to.first as u64, to.span() as u64) {
                if s.mirrored {
                    to_host = to.ranges(range);
                }
                host_memory::before_overwrite(s, range);
            } else if let Some(at) = set_aside(&to)? {
                d.dstHost = at as *mut c_void;
                (d.dstPitch, d.dstHeight) = (to.pitch, to.slice / to.pitch);
                (d.dstXInBytes, d.dstY, d.dstZ) = (0, 0, 0);
            } else {
                let l = super::payload::Loan::general(s, to.packed_bytes())?;
                d.dstHost = l.pointer().cast();
                (d.dstPitch, d.dstHeight) = (d.WidthInBytes, d.Height);
                (d.dstXInBytes, d.dstY, d.dstZ) = (0, 0, 0);
                loan = Some(l);
                unpack = Some(to);
            }
        }
        let request = |w: &mut Vec<u8>| {
            w.word(stream as u64);
            // SAFETY: a descriptor is plain data of 200 bytes; its reserved fields were the application's zeros.
            w.put(unsafe {
                std::slice::from_raw_parts(std::ptr::from_ref(&d).cast::<u8>(), std::mem::size_of_val(&d))
            });
        };
        let bringing = Bringing::new(s, to_host);
        if !synchronous && loan.is_none() {
            return result(post_sealed(op::COPY_3D, request, |number| {
                bringing.posted(number);
                reading.iter().for_each(|reading| reading.posted(number));
            }));
        }
        let ticket = start_sealed(s, op::COPY_3D, request, |number| bringing.called(number))?;
        result(wait(s, ticket)?.result)?;
        if let (Some(to), Some(l)) = (unpack, &loan) {
            // SAFETY: the caller's promise; the copy into the loan is complete.
            unsafe { to.each(l.pointer(), |row, at, n| std::ptr::copy_nonoverlapping(at, row, n)) };
        }
        Ok(())
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// # Safety
/// `c` is null or a valid descriptor whose host side has the rows it names.
unsafe fn copy_2d(c: *const CUDA_MEMCPY2D, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: the caller's promise.
    let Some(c) = (unsafe { c.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&as_3d(c), stream, synchronous) }
}

/// # Safety
/// As CUDA's `cuMemcpy2D_v2`.
pub unsafe fn cuMemcpy2D_v2(d: CUstream, c: *const CUDA_MEMCPY2D) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_2d(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy2DUnaligned_v2`.
pub unsafe fn cuMemcpy2DUnaligned_v2(d: CUstream, c: *const CUDA_MEMCPY2D) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_2d(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy2DAsync_v2`.
pub unsafe fn cuMemcpy2DAsync_v2(c: *const CUDA_MEMCPY2D, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_2d(c, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpy3D_v2`.
pub unsafe fn cuMemcpy3D_v2(d: CUstream, c: *const CUDA_MEMCPY3D) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy3DAsync_v2`.
pub unsafe fn cuMemcpy3DAsync_v2(c: *const CUDA_MEMCPY3D, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d(c, stream, false) }
}

/// Within one device a peer copy is a plain one; between devices the worker's driver takes its own path.
///
/// # Safety
/// As CUDA's `cuMemcpy3DPeer`.
unsafe fn copy_3d_peer(c: *const CUDA_MEMCPY3D_PEER, stream: CUstream, synchronous: bool) -> CUresult {
    // SAFETY: null or a valid descriptor.
    let Some(p) = (unsafe { c.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.srcXInBytes, d.srcY, d.srcZ, d.srcLOD) = (p.srcXInBytes, p.srcY, p.srcZ, p.srcLOD);
    (d.srcMemoryType, d.srcHost, d.srcDevice, d.srcArray) = (p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray);
    (d.srcPitch, d.srcHeight) = (p.srcPitch, p.srcHeight);
    (d.dstXInBytes, d.dstY, d.dstZ, d.dstLOD) = (p.dstXInBytes, p.dstY, p.dstZ, p.dstLOD);
    (d.dstMemoryType, d.dstHost, d.dstDevice, d.dstArray) = (p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray);
    (d.dstPitch, d.dstHeight) = (p.dstPitch, p.dstHeight);
    (d.WidthInBytes, d.Height, d.Depth) = (p.WidthInBytes, p.Height, p.Depth);
    // Addresses are unified: the driver finds both devices from them, whichever context is current.
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&d, stream, synchronous) }
}

/// # Safety
/// As CUDA's `cuMemcpy3DPeer`.
pub unsafe fn cuMemcpy3DPeer(d: CUstream, c: *const CUDA_MEMCPY3D_PEER) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d_peer(c, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpy3DPeerAsync`.
pub unsafe fn cuMemcpy3DPeerAsync(c: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_3d_peer(c, stream, false) }
}

/// A row in an array, as a copy of height 1.
fn array_row(array: CUarray, offset: usize, bytes: usize) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.srcMemoryType, d.srcArray, d.srcXInBytes) = (CU_MEMORYTYPE_ARRAY, array, offset);
    (d.dstMemoryType, d.dstArray, d.dstXInBytes) = (CU_MEMORYTYPE_ARRAY, array, offset);
    (d.WidthInBytes, d.Height, d.Depth) = (bytes, 1, 1);
    d
}

unsafe fn copy_into_array(
    array: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let mut d = array_row(array, offset, bytes);
    (d.srcMemoryType, d.srcHost, d.srcXInBytes) = (CU_MEMORYTYPE_HOST, from, 0);
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&d, stream, synchronous) }
}

unsafe fn copy_out_of_array(
    to: *mut c_void,
    array: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
    synchronous: bool,
) -> CUresult {
    let mut d = array_row(array, offset, bytes);
    (d.dstMemoryType, d.dstHost, d.dstXInBytes) = (CU_MEMORYTYPE_HOST, to, 0);
    // SAFETY: the caller's promise.
    unsafe { copy_3d(&d, stream, synchronous) }
}

/// # Safety
/// As CUDA's `cuMemcpyHtoA_v2`.
pub unsafe fn cuMemcpyHtoA_v2(d: CUstream, a: CUarray, offset: usize, from: *const c_void, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_into_array(a, offset, from, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyHtoAAsync_v2`.
pub unsafe fn cuMemcpyHtoAAsync_v2(
    a: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_into_array(a, offset, from, bytes, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpyAtoH_v2`.
pub unsafe fn cuMemcpyAtoH_v2(d: CUstream, to: *mut c_void, a: CUarray, offset: usize, bytes: usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_out_of_array(to, a, offset, bytes, d, true) }
}

/// # Safety
/// As CUDA's `cuMemcpyAtoHAsync_v2`.
pub unsafe fn cuMemcpyAtoHAsync_v2(
    to: *mut c_void,
    a: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { copy_out_of_array(to, a, offset, bytes, stream, false) }
}

/// # Safety
/// As CUDA's `cuMemcpyBatchAsync_v2`: three arrays of `count` elements.
#[allow(clippy::too_many_arguments, reason = "the header's signature")]
pub unsafe fn cuMemcpyBatchAsync_v2(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> CUresult {
    // The driver refuses the default streams here.
    if to.is_null() || from.is_null() || bytes.is_null() || count == 0 || (stream as u64) < 2 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's promise: two arrays of `attribute_count` elements.
    let orders = match unsafe { access_orders(attributes, indices, attribute_count, count) } {
        Ok(orders) => orders,
        Err(code) => return code,
    };
    let mut next = orders.iter().peekable();
    let mut order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for i in 0..count {
        if let Some((_, of_more)) = next.next_if(|(first, _)| *first == i) {
            order = *of_more;
        }
        // SAFETY: the caller's promise.
        let code = unsafe { copy_ordered(*to.add(i), *from.add(i), *bytes.add(i), stream, order) };
        if code != CUDA_SUCCESS {
            return code;
        }
    }
    CUDA_SUCCESS
}

/// From which copy on which order of reading the source holds. The first attributes are the first copy's.
///
/// # Safety
/// Both arrays have `attribute_count` elements.
unsafe fn access_orders(
    attributes: *const CUmemcpyAttributes,
    indices: *const usize,
    attribute_count: usize,
    count: usize,
) -> Result<Vec<(usize, CUmemcpySrcAccessOrder)>, CUresult> {
    let known = CU_MEMCPY_FLAG_DEFAULT | CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    if attribute_count > count || (attribute_count > 0 && (attributes.is_null() || indices.is_null())) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut orders: Vec<(usize, CUmemcpySrcAccessOrder)> = Vec::with_capacity(attribute_count);
    for i in 0..attribute_count {
        // SAFETY: inside the caller's arrays.
        let (first, a) = unsafe { (*indices.add(i), &*attributes.add(i)) };
        let in_turn = orders.last().map_or(first == 0, |(last, _)| *last < first);
        let ordered = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM..=CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
        if !in_turn || first >= count || !ordered.contains(&a.srcAccessOrder) || a.flags & !known != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        orders.push((first, a.srcAccessOrder));
    }
    Ok(orders)
}

/// A copy of a batch: its source, if it is the host's, is read before this returns, or in stream order, or whenever.
///
/// # Safety
/// Host addresses have `bytes` bytes.
unsafe fn copy_ordered(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    order: CUmemcpySrcAccessOrder,
) -> CUresult {
    super::stream::in_context_of(stream, || {
        let of_source = session().and_then(|s| Ok((s, side(s, from, bytes)?)));
        match of_source {
            // As from pageable memory: the bytes travel with the command, and nothing is waited for.
            Ok((s, Side::Shared(_)))
                if order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
                    && bytes != 0
                    && matches!(side(s, to, bytes), Ok(Side::Device)) =>
            {
                let from = from as *const u8;
                // SAFETY: the caller's promise.
                let copied = check_device(to, bytes)
                    .and_then(|()| unsafe { copy_in_pageable(s, to, from, bytes, stream, false) });
                copied.err().unwrap_or(CUDA_SUCCESS)
            }
            // It is captured now, so what the stream does before the copy has to be over.
            Ok((_, Side::Pageable))
                if order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && !super::capture::capturing(stream) =>
            {
                match sync::stream(stream) {
                    // SAFETY: the caller's promise.
                    CUDA_SUCCESS => unsafe { copy_any_here(to, from, bytes, stream, false) },
                    code => code,
                }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { copy_any_here(to, from, bytes, stream, false) },
        }
    })
}

/// # Safety
/// As CUDA's `cuMemcpyBatchAsync` of 12.8, which also reports the index that failed.
#[allow(clippy::too_many_arguments, reason = "the header's signature")]
pub unsafe fn cuMemcpyBatchAsync(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe {
        let code = cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, indices, attribute_count, stream);
        if code != CUDA_SUCCESS && !failed.is_null() {
            failed.write(usize::MAX);
        }
        code
    }
}

/// One copy of a 3D batch as a 3D copy, and when its source is read.
fn batch_copy(op: &CUDA_MEMCPY3D_BATCH_OP) -> Result<(CUDA_MEMCPY3D, CUmemcpySrcAccessOrder), CUresult> {
    let known = CU_MEMCPY_FLAG_DEFAULT | CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    let ordered = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM..=CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    let extent = op.extent;
    if op.flags & !known != 0
        || !ordered.contains(&op.srcAccessOrder)
        || [extent.width, extent.height, extent.depth].contains(&0)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Extents count elements: an array's, which have to be the same where both sides are arrays, or bytes.
    let element = match (element_of(&op.src)?, element_of(&op.dst)?) {
        (Some(a), Some(b)) if a != b => return Err(CUDA_ERROR_INVALID_VALUE),
        (Some(a), _) | (None, Some(a)) => a,
        (None, None) => 1,
    };
    let (src, dst) = (batch_side(&op.src, extent, element)?, batch_side(&op.dst, extent, element)?);
    // SAFETY: all-zero is a valid descriptor.
    let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (d.srcMemoryType, d.srcDevice, d.srcArray) = (src.kind, src.address, src.array);
    (d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch, d.srcHeight) = (src.at[0], src.at[1], src.at[2], src.pitch, src.height);
    (d.dstMemoryType, d.dstDevice, d.dstArray) = (dst.kind, dst.address, dst.array);
    (d.dstXInBytes, d.dstY, d.dstZ, d.dstPitch, d.dstHeight) = (dst.at[0], dst.at[1], dst.at[2], dst.pitch, dst.height);
    let width = extent.width.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    (d.WidthInBytes, d.Height, d.Depth) = (width, extent.height, extent.depth);
    Ok((d, op.srcAccessOrder))
}

/// Bytes of a copy between pointers that leaves nothing out on either side: a plain one, which captures pageable
/// memory without waiting.
fn gapless(d: &CUDA_MEMCPY3D) -> Option<usize> {
    let pointers = d.srcMemoryType == CU_MEMORYTYPE_UNIFIED && d.dstMemoryType == CU_MEMORYTYPE_UNIFIED;
    let rows = d.Height * d.Depth == 1 || (d.srcPitch == d.WidthInBytes && d.dstPitch == d.WidthInBytes);
    let layers = d.Depth == 1 || (d.srcHeight == d.Height && d.dstHeight == d.Height);
    (pointers && rows && layers).then_some(d.WidthInBytes * d.Height * d.Depth)
}

/// The size of an operand's elements, if it says one.
fn element_of(operand: &CUmemcpy3DOperand) -> Result<Option<usize>, CUresult> {
    match operand.type_ {
        CU_MEMCPY_OPERAND_TYPE_POINTER => Ok(None),
        // SAFETY: the type says which it is; any bits are a handle.
        CU_MEMCPY_OPERAND_TYPE_ARRAY => match super::array::element_bytes(unsafe { operand.op.array.array }) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        },
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// One side of a copy, in bytes.
struct BatchSide {
    kind: CUmemorytype,
    address: u64,
    array: CUarray,
    at: [usize; 3],
    pitch: usize,
    height: usize,
}

fn batch_side(operand: &CUmemcpy3DOperand, extent: CUextent3D, element: usize) -> Result<BatchSide, CUresult> {
    if operand.type_ == CU_MEMCPY_OPERAND_TYPE_ARRAY {
        // SAFETY: the type says which it is.
        let a = unsafe { operand.op.array };
        let x = a.offset.x.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let at = [x, a.offset.y, a.offset.z];
        return Ok(BatchSide { kind: CU_MEMORYTYPE_ARRAY, address: 0, array: a.array, at, pitch: 0, height: 0 });
    }
    // SAFETY: the type says which it is.
    let p = unsafe { operand.op.ptr };
    let packed = |given: usize, least: usize| match given {
        0 => Ok(least),
        n if n >= least => Ok(n),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    };
    let (row, height) = (packed(p.rowLength, extent.width)?, packed(p.layerHeight, extent.height)?);
    let pitch = row.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // Bytes from the first to the end of the last layer have to be an address range at all.
    let end =
        pitch.checked_mul(height).and_then(|n| n.checked_mul(extent.depth)).and_then(|n| n.checked_add(p.ptr as usize));
    if p.ptr == 0 || end.is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (kind, array) = (CU_MEMORYTYPE_UNIFIED, std::ptr::null_mut());
    // Whether it is the host's is found out by the address; hints where to place it are for managed memory.
    Ok(BatchSide { kind, address: p.ptr, array, at: [0; 3], pitch, height })
}

/// Judges the whole batch before anything of it is copied. The error names the copy at fault, if it is one's.
///
/// # Safety
/// As CUDA's `cuMemcpy3DBatchAsync_v2`: an array of `count` copies.
unsafe fn batch_3d(
    count: usize,
    list: *const CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> Result<(), (usize, CUresult)> {
    let whole = |code| (usize::MAX, code);
    session().map_err(whole)?;
    // The driver refuses the default streams here.
    if list.is_null() || count == 0 || flags != 0 || (stream as u64) < 2 {
        return Err(whole(CUDA_ERROR_INVALID_VALUE));
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let judged = list.iter().enumerate().map(|(i, op)| batch_copy(op).map_err(|code| (i, code)));
    let copies = judged.collect::<Result<Vec<_>, _>>()?;
    for (i, (copy, order)) in copies.iter().enumerate() {
        let at_once = *order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        // SAFETY: the caller's promise.
        let code = unsafe {
            match gapless(copy) {
                Some(bytes) => copy_ordered(copy.dstDevice, copy.srcDevice, bytes, stream, *order),
                None => copy_3d(copy, stream, at_once),
            }
        };
        if code != CUDA_SUCCESS {
            return Err((i, code));
        }
    }
    Ok(())
}

/// # Safety
/// As CUDA's `cuMemcpy3DBatchAsync_v2`.
pub unsafe fn cuMemcpy3DBatchAsync_v2(
    count: usize,
    list: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { batch_3d(count, list, flags, stream) }.map_or_else(|(_, code)| code, |()| CUDA_SUCCESS)
}

/// # Safety
/// As CUDA's `cuMemcpy3DBatchAsync` of 12.8, which also reports the index that failed, or `SIZE_MAX`.
pub unsafe fn cuMemcpy3DBatchAsync(
    count: usize,
    list: *mut CUDA_MEMCPY3D_BATCH_OP,
    failed: *mut usize,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's promise.
    match unsafe { batch_3d(count, list, flags, stream) } {
        Ok(()) => CUDA_SUCCESS,
        Err((index, code)) => {
            if !failed.is_null() {
                // SAFETY: not null; the caller's promise.
                unsafe { failed.write(index) };
            }
            code
        }
    }
}

/// Posts work on device memory that the shim knows. What it does not know (memory opened from elsewhere, or
/// rubbish) the driver has to judge, so that the caller learns of it at once.
fn post_or_call(op: u16, known: bool, words: &[u64]) -> Result<(), CUresult> {
    if known { result(post(op, |w| copy_words(w, words))) } else { call(op, |w| copy_words(w, words), |_| Ok(())) }
}

fn is_known(s: &Session, address: u64, bytes: usize) -> bool {
    match address_map::find(address) {
        Some(range) => address.saturating_add(bytes as u64) <= range.end() || range.kind != address_map::Kind::Device,
        None => host_memory::shared_range(s, address, bytes as u64).is_some(),
    }
}

/// Whether a memset of this is done without doubt. What is another device's may be out of reach.
fn is_settable(s: &Session, to: CUdeviceptr, bytes: usize, align: u64) -> bool {
    let elsewhere =
        context::several() && address_map::find(to).is_some_and(|r| Some(r.device) != context::current_device());
    is_known(s, to, bytes) && to.is_multiple_of(align) && !elsewhere
}

/// On device memory neither form waits for the host.
fn memset(op: u16, to: CUdeviceptr, bytes: usize, align: u64, words: &[u64]) -> CUresult {
    let stream = words.last().map_or(0, |s| *s) as CUstream;
    super::stream::in_context_of(stream, || memset_here(op, to, bytes, align, words))
}

fn memset_here(op: u16, to: CUdeviceptr, bytes: usize, align: u64, words: &[u64]) -> CUresult {
    let answer = session().and_then(|s| {
        needs_context()?;
        if bytes == 0 {
            return Ok(());
        }
        host_memory::before_access(s, to);
        post_or_call(op, is_settable(s, to, bytes, align), words)
    });
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD8_v2(d: CUstream, to: CUdeviceptr, value: u8, count: usize) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD8Async(to, value, count, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult {
    let bytes = count.saturating_mul(1);
    memset(ops::CU_MEMSET_D8_ASYNC, to, bytes, 1, &[to, value as u64, count as u64, stream as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D8_v2(
    d: CUstream,
    to: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD2D8Async(to, pitch, value, width, height, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D8Async(
    to: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let row = width.saturating_mul(1);
    let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
    let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
    memset(ops::CU_MEMSET_D2D8_ASYNC, to, bytes, 1, &words)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD16_v2(d: CUstream, to: CUdeviceptr, value: u16, count: usize) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD16Async(to, value, count, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult {
    let bytes = count.saturating_mul(2);
    memset(ops::CU_MEMSET_D16_ASYNC, to, bytes, 2, &[to, value as u64, count as u64, stream as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D16_v2(
    d: CUstream,
    to: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD2D16Async(to, pitch, value, width, height, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D16Async(
    to: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let row = width.saturating_mul(2);
    let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
    let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
    memset(ops::CU_MEMSET_D2D16_ASYNC, to, bytes, 2, &words)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD32_v2(d: CUstream, to: CUdeviceptr, value: u32, count: usize) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD32Async(to, value, count, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CUresult {
    let bytes = count.saturating_mul(4);
    memset(ops::CU_MEMSET_D32_ASYNC, to, bytes, 4, &[to, value as u64, count as u64, stream as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D32_v2(
    d: CUstream,
    to: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
) -> CUresult {
    // SAFETY: nothing is asked of the caller.
    unsafe { cuMemsetD2D32Async(to, pitch, value, width, height, d) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuMemsetD2D32Async(
    to: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    let row = width.saturating_mul(4);
    let bytes = if height == 0 { 0 } else { pitch.saturating_mul(height - 1).saturating_add(row) };
    let words = [to, pitch as u64, value as u64, width as u64, height as u64, stream as u64];
    memset(ops::CU_MEMSET_D2D32_ASYNC, to, bytes, 4, &words)
}
