//! Objects of the application's that graphs keep.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::record::Header;

use crate::worker::calls::handlers::handlers;
use crate::worker::out::callbacks::{drop_ticket, kind, released};
use crate::worker::outcome::{Answer, Handled, Stop, finish};
use crate::worker::session::Session;

/// An object's name is free again once its destructor was called, which the executor learns here.
fn forget_destroyed(s: &mut Session) {
    for name in s.callbacks.take_destroyed() {
        s.unbind(Kind::UserObject, name);
    }
}

fn object(s: &mut Session, r: &mut Reader<'_>) -> Result<CUuserObject, Stop> {
    forget_destroyed(s);
    Ok(s.existing(Kind::UserObject, r.word()?)?.cast())
}

handlers! {
    /// name, function, references, flags
    fn cuUserObjectCreate(s, r, reply) {
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
    fn cuUserObjectRetain(s, r, reply) {
        let object = object(s, r)?;
        let count = r.word()? as u32;
        // SAFETY: an object of this session.
        Ok(unsafe { s.driver.cuUserObjectRetain(object, count) })
    }

    /// object, references
    fn cuUserObjectRelease(s, r, reply) {
        let object = object(s, r)?;
        let count = r.word()? as u32;
        // SAFETY: an object of this session.
        Ok(unsafe { s.driver.cuUserObjectRelease(object, count) })
    }

    /// graph, object, references, flags
    fn cuGraphRetainUserObject(s, r, reply) {
        let graph = s.existing(Kind::Graph, r.word()?)?.cast();
        let object = object(s, r)?;
        let (count, flags) = (r.word()? as u32, r.word()? as u32);
        // SAFETY: handles of this session.
        Ok(unsafe { s.driver.cuGraphRetainUserObject(graph, object, count, flags) })
    }

    /// graph, object, references
    fn cuGraphReleaseUserObject(s, r, reply) {
        let graph = s.existing(Kind::Graph, r.word()?)?.cast();
        let object = object(s, r)?;
        let count = r.word()? as u32;
        // SAFETY: handles of this session.
        Ok(unsafe { s.driver.cuGraphReleaseUserObject(graph, object, count) })
    }
}
