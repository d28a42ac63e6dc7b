//! Copies.

// UNSAFETY: gives the driver addresses that were decided on in `session::reach`.

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::message::copy::{CopyBox, CopyIn, CopyInInline, CopyOut, CopyOutInline};
use orion_wire::message::copy::{CopyOutInlineReply, CopyOutReply, Source};
use orion_wire::record::{Header, HeapRange, RECORD_BYTES_MAX};
use orion_wire::{Fault, Reader};

use crate::worker::calls::graph::keep;
use crate::worker::driver::capture_mode::relaxed;
use crate::worker::driver::log as driver_log;
use crate::worker::outcome::{Handled, Outcome, Stop};
use crate::worker::session::Session;
use crate::worker::session::reach::{HostSpan, ROWS_MAX};
use crate::worker::state::lent::Lent;
use crate::worker::state::waits::{Landing, Wait};

/// Host to device with the bytes in the record: the driver captures small pageable sources before it returns.
pub fn copy_in_inline(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let q = CopyInInline::decode(&mut r)?;
    let bytes = q.bytes.get();
    let (to, stream) = match (s.reach(q.to, bytes.len() as u64), s.plain_stream(q.stream.0, header.thread)) {
        (Ok(to), Ok(stream)) => (to, stream),
        (Err(code), _) | (_, Err(code)) => return Ok(Outcome::Done(code)),
    };
    if s.captures.open() && s.is_capturing(stream) {
        // A graph reads its source at every launch: the bytes live as long as it, and what is made from it, does.
        let kept = bytes.to_vec();
        // SAFETY: the bytes stay where they are when the vector moves, until no graph refers to them.
        let code = unsafe { s.driver.cuMemcpyHtoDAsync_v2(to.raw(), kept.as_ptr().cast(), kept.len(), stream) };
        if code == CUDA_SUCCESS {
            keep::keep_bytes(s, s.captures.graph_of(s.driver, stream), kept);
        }
        return Ok(Outcome::Done(code));
    }
    // SAFETY: the driver has read the source when it returns (a pageable copy of at most 64 KiB).
    let code = unsafe { s.driver.cuMemcpyHtoDAsync_v2(to.raw(), bytes.as_ptr().cast(), bytes.len(), stream) };
    if code == CUDA_SUCCESS && header.sequence != 0 {
        return Ok(s.park(header, Wait::Streams(vec![stream]), |_, code, _| code));
    }
    Ok(Outcome::Done(code))
}

/// A copy whose context is gone or broken: what was lent for it goes back.
pub fn abandon_copy_in(s: &Session, mut r: Reader<'_>) -> Result<(), Fault> {
    let q = CopyIn::decode(&mut r)?;
    if q.source != Source::Kept {
        drop(lent(s, s.shared(q.from, q.bytes.0)?)?);
    }
    Ok(())
}

fn lent(s: &Session, from: HostSpan) -> Result<Lent, Fault> {
    from.range().map(|range| s.lent(range)).ok_or(Fault("memory is lent that is no part of the heap"))
}

pub fn copy_in(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let q = CopyIn::decode(&mut r)?;
    let tell = q.source == Source::Told && header.sequence == 0;
    let from = s.shared(q.from, q.bytes.0)?;
    s.stats.moves(header.op, q.bytes.0);
    let lent = (q.source == Source::Lent).then(|| lent(s, from)).transpose()?;
    let (to, stream) = match (s.reach(q.to, q.bytes.0), s.plain_stream(q.stream.0, header.thread)) {
        (Ok(to), Ok(stream)) => (to, stream),
        (Err(code), _) | (_, Err(code)) => return Ok(Outcome::Done(code)),
    };
    // SAFETY: the source is shared memory, mapped for as long as the session lives.
    let code = unsafe { s.driver.cuMemcpyHtoDAsync_v2(to.raw(), from.raw(s), q.bytes.0 as usize, stream) };
    if let (CUDA_SUCCESS, Some(lent)) = (code, lent) {
        // While the stream is captured nothing is read now, but at every launch of the graph.
        match s.captures.graph_of(s.driver, stream) {
            Some(graph) => keep::keep_lent(s, graph, lent),
            None => s.lend_until_done(lent, stream),
        }
    }
    if tell && code == CUDA_SUCCESS {
        if s.captures.open() && s.is_capturing(stream) {
            s.settle(s.number());
            return Ok(Outcome::Done(code));
        }
        return Ok(Outcome::Done(s.note_heap_copy(s.number(), Vec::new(), stream)));
    }
    if code == CUDA_SUCCESS && header.sequence != 0 {
        return Ok(s.park(header, Wait::Streams(vec![stream]), |_, code, _| code));
    }
    Ok(Outcome::Done(code))
}

pub fn copy_out(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let q = CopyOut::decode(&mut r)?;
    let to = s.shared(q.to, q.bytes.0)?;
    s.stats.moves(header.op, q.bytes.0);
    let range = to.range();
    let (from, stream) = match (s.reach(q.from, q.bytes.0), s.plain_stream(q.stream.0, header.thread)) {
        (Ok(from), Ok(stream)) => (from, stream),
        (Err(code), _) | (_, Err(code)) => return Ok(Outcome::Done(code)),
    };
    if let Some(range) = range
        && s.hold(header, range, from, stream, q.stream.0)
    {
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    s.mix(stream);
    let written: Vec<HeapRange> = range.into_iter().collect();
    s.begins_copy(&written);
    // SAFETY: the destination is shared memory, mapped for as long as the session lives.
    let code = unsafe { s.driver.cuMemcpyDtoHAsync_v2(to.raw(s), from.raw(), q.bytes.0 as usize, stream) };
    if code != CUDA_SUCCESS || s.captures.open() && s.is_capturing(stream) {
        s.ends_copy(&written);
        return Ok(Outcome::Done(code));
    }
    if header.sequence == 0 {
        return Ok(Outcome::Done(s.note_heap_copy(s.number(), written, stream)));
    }
    // An event rather than the stream: later work on the stream must not hold this reply up.
    let event = s.record_spare_event(stream).inspect_err(|_| s.ends_copy(&written))?;
    Ok(s.park(header, Wait::Event(event.1), move |s, code, reply| {
        s.return_event(event);
        s.copied(code, written);
        let (code, events) = s.flush_output_of(stream, code);
        CopyOutReply { events }.encode(reply);
        code
    }))
}

/// Device to host with the bytes in the reply, by way of pinned memory of the worker's own.
pub fn copy_out_inline(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let q = CopyOutInline::decode(&mut r)?;
    let bytes = q.bytes.0 as usize;
    s.stats.moves(header.op, q.bytes.0);
    let stream = s.plain_stream(q.stream.0, header.thread)?;
    if bytes > RECORD_BYTES_MAX / 2 {
        return Err(Fault("copy too long for a reply").into());
    }
    let from = s.reach(q.from, bytes as u64)?;
    if Landing::suits(from, bytes as u64) && s.may_watch(stream) {
        let landing = s.watch(from, bytes, stream)?;
        let slot = landing.slot;
        return Ok(s.park(header, Wait::Landing(landing), move |s, code, reply| {
            let events = s.flush_output(code);
            // SAFETY: the copy has finished (or failed); the slot is ours.
            let copied = unsafe { std::slice::from_raw_parts(slot.at, bytes) };
            CopyOutInlineReply { bytes: copied.into(), events }.encode(reply);
            s.scratch.give_back(slot);
            code
        }));
    }
    s.mix(stream);
    let slot = s.scratch_for(stream)?;
    // SAFETY: a scratch slot has room for half a record.
    let code = unsafe { s.driver.cuMemcpyDtoHAsync_v2(slot.at.cast(), from.raw(), bytes, stream) };
    if code != CUDA_SUCCESS {
        s.scratch.give_back(slot);
        return Ok(Outcome::Done(code));
    }
    Ok(s.park(header, Wait::Streams(vec![stream]), move |s, code, reply| {
        let (code, events) = s.flush_output_of(stream, code);
        // SAFETY: the copy has finished (or failed); the slot is ours.
        let copied = unsafe { std::slice::from_raw_parts(slot.at, bytes) };
        CopyOutInlineReply { bytes: copied.into(), events }.encode(reply);
        s.scratch.give_back(slot);
        code
    }))
}

/// Any shape. Host sides are shared memory, arrays are handles.
pub fn copy_3d(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let q = CopyBox::decode(&mut r)?;
    let stream = s.stream(q.stream.0, header.thread)?;
    let copy = match s.copy_3d(&q.copy) {
        Ok(copy) => copy,
        Err(Stop::Code(code)) => return Ok(Outcome::Done(code)),
        Err(Stop::Fault(fault)) => return Err(fault.into()),
    };
    let written = match s.pages.must_bring() {
        true => copy.rows_to_host(),
        false => Some(Vec::new()),
    };
    let Some(written) = written else {
        let rows = copy.raw().Height as u64 * copy.raw().Depth as u64;
        driver_log::refuse(&format!(
            "a copy of {rows} rows with gaps to host memory is not made over TCP, where each goes over by itself: \
             copy at most {ROWS_MAX} at a time, or without gaps"
        ));
        return Ok(Outcome::Done(CUDA_ERROR_NOT_SUPPORTED));
    };
    if header.sequence != 0 && !s.captures.forbids(header.thread) && copy.is_pageable(s.driver) {
        let on = stream as usize;
        // SAFETY: both sides were decided on, and the client uses neither before it has the answer.
        let job = move |driver: &'static Driver| unsafe {
            let on = on as CUstream;
            relaxed(driver, || match driver.cuMemcpy3DAsync_v2(copy.raw(), on) {
                CUDA_SUCCESS => driver.cuStreamSynchronize(on),
                code => code,
            })
        };
        s.begins_copy(&written);
        return s.park_blocking(header, job, move |s, code, _| {
            s.copied(code, written);
            code
        });
    }
    s.begins_copy(&written);
    // SAFETY: both sides were decided on.
    let code = unsafe { s.driver.cuMemcpy3DAsync_v2(copy.raw(), stream) };
    // Captured, nothing is copied now, and asking whether it is done would end the capture.
    if code != CUDA_SUCCESS || s.captures.open() && s.is_capturing(stream) {
        s.ends_copy(&written);
        return Ok(Outcome::Done(code));
    }
    if header.sequence == 0 {
        // What it reads of the heap it reads until then, too.
        let concerns_heap = !written.is_empty() || copy.reads_shared();
        return Ok(Outcome::Done(match concerns_heap {
            true => s.note_heap_copy(s.number(), written, stream),
            false => CUDA_SUCCESS,
        }));
    }
    Ok(s.park(header, Wait::Streams(vec![stream]), move |s, code, _| {
        s.copied(code, written);
        code
    }))
}
