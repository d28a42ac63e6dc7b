//! Events.

// UNSAFETY: calls the driver with handles that were looked up here.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::event::{EventQuery, EventSynchronize, EventSynchronizeReply};
use orion_wire::record::Header;

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;
use crate::worker::state::waits::Wait;

pub fn cuEventSynchronize(s: &mut Session, header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let event = match s.handle(Kind::Event, EventSynchronize::decode(&mut r)?.event.0) {
        Ok(e) if !e.is_null() => e.cast(),
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)),
    };
    // SAFETY: an event of this session.
    if let Some(code) = s.refuses_to_wait(header, |driver| unsafe { driver.cuEventQuery(event) }) {
        EventSynchronizeReply { events: s.flush_output(code) }.encode(reply);
        return Ok(Outcome::Done(code));
    }
    Ok(s.park(header, Wait::Event(event), move |s, code, reply| {
        let (code, events) = s.flush_output_of_event(event, code);
        EventSynchronizeReply { events }.encode(reply);
        code
    }))
}

pub fn cuEventQuery(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let event = match s.handle(Kind::Event, EventQuery::decode(&mut r)?.event.0) {
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
