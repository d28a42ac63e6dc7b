//! Waiting. Nothing here blocks the executor: the call is parked and the device is asked between commands.

// UNSAFETY: queries streams and events that were looked up.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

use crate::worker::session::{Outcome, Session, Wait, Waiting};

/// The reply of a synchronising call says how many events (kernel output) came before it.
pub fn cuStreamSynchronize(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let stream = match s.plain_stream(r.word()?, header.thread) {
        Ok(stream) => stream,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    Ok(s.park(header, Wait::Streams(vec![stream]), move |s, code, reply| {
        let (code, events) = s.flush_output_of(stream, code);
        reply.word(events);
        code
    }))
}

pub fn cuEventSynchronize(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let event = match s.handle(Kind::Event, r.word()?) {
        Ok(e) if !e.is_null() => e.cast(),
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)),
    };
    Ok(s.park(header, Wait::Event(event), move |s, code, reply| {
        let (code, events) = s.flush_output_of_event(event, code);
        reply.word(events);
        code
    }))
}

pub fn cuCtxSynchronize(
    s: &mut Session,
    header: &Header,
    _r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let (own, until) = s.busy_streams();
    let context = header.context;
    let mut streams: Vec<(u64, CUstream)> = own.into_iter().map(|stream| (header.context, stream)).collect();
    streams.push((header.context, ptr::null_mut()));
    // The green contexts on a primary context's device are synchronised with it.
    let green = s.green.contexts_on(header.context);
    for context in &green {
        streams.extend(s.busy_streams_of(*context).into_iter().map(|stream| (*context, stream)));
        streams.push((*context, ptr::null_mut()));
    }
    Ok(s.park(header, Wait::Then(streams, Waiting::Synchronize), move |s, code, reply| {
        s.streams_idle(until);
        for context in green {
            s.streams_idle_in(context, until);
        }
        s.context_synchronized(context);
        reply.word(s.flush_output(code));
        code
    }))
}

pub fn cuStreamQuery(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let stream = match s.plain_stream(r.word()?, header.thread) {
        Ok(stream) => stream,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    // SAFETY: a stream of this session.
    let code = unsafe { s.driver.cuStreamQuery(stream) };
    if code == CUDA_SUCCESS {
        s.flush_ranges()?;
    }
    Ok(Outcome::Done(code))
}

pub fn cuEventQuery(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let event = match s.handle(Kind::Event, r.word()?) {
        Ok(e) if !e.is_null() => e.cast(),
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)),
    };
    // SAFETY: an event of this session.
    let code = unsafe { s.driver.cuEventQuery(event) };
    if code == CUDA_SUCCESS {
        s.flush_ranges()?;
    }
    Ok(Outcome::Done(code))
}

/// Streams with work waiting are remembered no longer.
pub fn cuStreamDestroy_v2(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let word = r.word()?;
    let stream = match s.handle(Kind::Stream, word) {
        Ok(stream) if !stream.is_null() => stream.cast(),
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)),
    };
    s.stream_gone(stream);
    s.unbind(Kind::Stream, word);
    // SAFETY: a stream of this session that nothing refers to any more.
    Ok(Outcome::Done(unsafe { s.driver.cuStreamDestroy_v2(stream) }))
}
