//! Host functions and user objects: the application's functions, which the client runs.

// UNSAFETY: gives the driver trampolines with the tickets they expect.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader};

use super::graph::{Answer, existing, finish, keep_ticket};
use crate::worker::callback::{drop_ticket, host_function, kind, released, stream_callback};
use crate::worker::session::{Outcome, Session};

/// stream, function, whether the client keeps it until told
pub fn cuLaunchHostFunc(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let (function, kept) = (r.word()?, r.word()? != 0);
        // A captured host function runs at every launch of the graph, so its ticket belongs to the graph.
        let graph = s.captures.graph_of(s.driver, stream);
        let once = graph.is_none();
        let ticket = s.callbacks.ticket(function, kind::HOST_FUNCTION, 0, once, kept);
        // SAFETY: a stream of this session; the ticket lives until it has run or its graph is gone.
        let code = unsafe { s.driver.cuLaunchHostFunc(stream, Some(host_function), ticket) };
        match (code, graph) {
            (CUDA_SUCCESS, Some(graph)) => _ = keep_ticket(s, graph, ticket),
            (CUDA_SUCCESS, None) => {}
            // SAFETY: the driver keeps no reference after a failed call.
            _ => unsafe { drop_ticket(ticket) },
        }
        Ok(code)
    })
}

/// stream, function, flags
pub fn cuStreamAddCallback(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let stream = s.stream(r.word()?, header.thread)?;
        let (function, flags) = (r.word()?, r.word()? as u32);
        let ticket = s.callbacks.ticket(function, kind::STREAM_CALLBACK, 0, true, false);
        // SAFETY: a stream of this session; the ticket lives until it has run.
        let code = unsafe { s.driver.cuStreamAddCallback(stream, Some(stream_callback), ticket, flags) };
        if code != CUDA_SUCCESS {
            // SAFETY: the driver keeps no reference after a failed call.
            unsafe { drop_ticket(ticket) };
        }
        Ok(code)
    })
}

/// An object's name is free again once its destructor was called, which the executor learns here.
fn forget_destroyed(s: &mut Session) {
    for name in s.callbacks.take_destroyed() {
        s.unbind(Kind::UserObject, name);
    }
}

fn object(s: &mut Session, r: &mut Reader<'_>) -> Result<CUuserObject, super::graph::Stop> {
    forget_destroyed(s);
    Ok(existing(s, Kind::UserObject, r.word()?)?.cast())
}

macro_rules! handlers {
    ($($(#[$doc:meta])* fn $name:ident($s:ident, $r:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Result<Outcome, Fault> {
            fn handler($s: &mut Session, $r: &mut Reader<'_>) -> Answer $body
            finish(|| handler(s, &mut r))
        }
    )*};
}

handlers! {
    /// name, function, references, flags
    fn cuUserObjectCreate(s, r) {
        forget_destroyed(s);
        let (name, function) = (r.word()?, r.word()?);
        let (references, flags) = (r.word()? as u32, r.word()? as u32);
        let ticket = s.callbacks.ticket(function, kind::USER_OBJECT, name, false, false);
        let mut object = ptr::null_mut();
        // SAFETY: a valid out pointer; the destructor frees the ticket.
        let code = unsafe { s.driver.cuUserObjectCreate(&mut object, ticket, Some(released), references, flags) };
        if code == CUDA_SUCCESS {
            s.bind(Kind::UserObject, name, object.cast())?;
        } else {
            // SAFETY: the driver keeps no reference after a failed call.
            unsafe { drop_ticket(ticket) };
        }
        Ok(code)
    }

    /// object, references
    fn cuUserObjectRetain(s, r) {
        let object = object(s, r)?;
        let count = r.word()? as u32;
        // SAFETY: an object of this session.
        Ok(unsafe { s.driver.cuUserObjectRetain(object, count) })
    }

    /// object, references
    fn cuUserObjectRelease(s, r) {
        let object = object(s, r)?;
        let count = r.word()? as u32;
        // SAFETY: an object of this session.
        Ok(unsafe { s.driver.cuUserObjectRelease(object, count) })
    }

    /// graph, object, references, flags
    fn cuGraphRetainUserObject(s, r) {
        let graph = existing(s, Kind::Graph, r.word()?)?.cast();
        let object = object(s, r)?;
        let (count, flags) = (r.word()? as u32, r.word()? as u32);
        // SAFETY: handles of this session.
        Ok(unsafe { s.driver.cuGraphRetainUserObject(graph, object, count, flags) })
    }

    /// graph, object, references
    fn cuGraphReleaseUserObject(s, r) {
        let graph = existing(s, Kind::Graph, r.word()?)?.cast();
        let object = object(s, r)?;
        let count = r.word()? as u32;
        // SAFETY: handles of this session.
        Ok(unsafe { s.driver.cuGraphReleaseUserObject(graph, object, count) })
    }
}
