//! Streams. Nothing here blocks the executor: a call that waits is parked, and the device is asked between commands.

// UNSAFETY: calls the driver with handles that were looked up here.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::stream::{StreamDestroy, StreamMark, StreamQuery, StreamSynchronize, StreamSynchronizeReply};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::waits::Wait;

/// The reply of a synchronising call says how many events (kernel output) came before it.
pub fn cuStreamSynchronize(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = StreamSynchronize::decode(&mut r)?;
    let stream = s.plain_stream(q.stream.0, header.thread)?;
    // SAFETY: a stream of this session.
    if let Some(code) = s.refuses_to_wait(header, |driver| unsafe { driver.cuStreamQuery(stream) }) {
        StreamSynchronizeReply { events: s.flush_output(code) }.encode(reply);
        return Ok(Outcome::Done(code));
    }
    Ok(s.park(header, Wait::Streams(vec![stream]), move |s, code, reply| {
        let (code, events) = s.flush_output_of(stream, code);
        StreamSynchronizeReply { events }.encode(reply);
        code
    }))
}

pub fn cuStreamQuery(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = StreamQuery::decode(&mut r)?;
    let stream = s.plain_stream(q.stream.0, header.thread)?;
    // SAFETY: a stream of this session.
    let code = unsafe { s.driver.cuStreamQuery(stream) };
    if code == CUDA_SUCCESS {
        s.flush_ranges()?;
    }
    Ok(Outcome::Done(code))
}

/// A client asks how far a stream has come, so that it has no more ahead of it than the GPU's queue holds.
pub fn mark(s: &mut Session, header: &Header, mut r: Reader<'_>) -> Handled {
    let word = StreamMark::decode(&mut r)?.stream.0;
    // Who posts it learns nothing.
    if header.sequence == 0 {
        return Ok(Outcome::Done(CUDA_SUCCESS));
    }
    let stream = s.plain_stream(word, header.thread)?;
    match s.answers_when_passed(header, stream) {
        true => Ok(Outcome::Parked),
        false => Ok(Outcome::Done(CUDA_SUCCESS)),
    }
}

/// Streams with work waiting are remembered no longer.
pub fn cuStreamDestroy_v2(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let word = StreamDestroy::decode(&mut r)?.stream.0;
    let stream = match s.handle(Kind::Stream, word) {
        Ok(stream) if !stream.is_null() => stream.cast(),
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)),
    };
    s.stream_gone(stream);
    s.unbind(Kind::Stream, word);
    // SAFETY: a stream of this session that nothing refers to any more.
    Ok(Outcome::Done(unsafe { s.driver.cuStreamDestroy_v2(stream) }))
}
