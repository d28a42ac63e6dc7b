//! Objects of the application's that graphs keep.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Existing, USER_OBJECT};
use orion_wire::message::user_object::{
    GraphReleaseUserObject, GraphRetainUserObject, UserObjectCreate, UserObjectRelease, UserObjectRetain,
};
use orion_wire::record::Header;

use crate::worker::calls::handlers::handlers;
use crate::worker::out::callbacks::{drop_ticket, kind, released};
use crate::worker::outcome::{Handled, finish};
use crate::worker::session::Session;

/// An object's name is free again once its destructor was called, which the executor learns here.
fn forget_destroyed(s: &mut Session) {
    for name in s.callbacks.take_destroyed() {
        s.unbind(Kind::UserObject, name);
    }
}

fn named(s: &mut Session, object: Existing<USER_OBJECT>) -> Result<CUuserObject, CUresult> {
    forget_destroyed(s);
    Ok(s.existing(Kind::UserObject, object.0)?.cast())
}

handlers! {
    fn cuUserObjectCreate(s, r, reply) {
        let q = UserObjectCreate::decode(r)?;
        forget_destroyed(s);
        let ticket = s.callbacks.ticket(q.destructor.0, kind::USER_OBJECT, q.object.0, false, false);
        let mut object = ptr::null_mut();
        // SAFETY: a valid out pointer; the destructor frees the ticket.
        let code = unsafe { s.driver.cuUserObjectCreate(&mut object, ticket, Some(released), q.references, q.flags) };
        if code == CUDA_SUCCESS {
            s.bind(Kind::UserObject, q.object.0, object.cast())?;
        } else {
            // SAFETY: the driver keeps no reference after a failed call.
            unsafe { drop_ticket(ticket) };
        }
        Ok(code)
    }

    fn cuUserObjectRetain(s, r, reply) {
        let q = UserObjectRetain::decode(r)?;
        let object = named(s, q.object)?;
        // SAFETY: an object of this session.
        Ok(unsafe { s.driver.cuUserObjectRetain(object, q.references) })
    }

    fn cuUserObjectRelease(s, r, reply) {
        let q = UserObjectRelease::decode(r)?;
        let object = named(s, q.object)?;
        // SAFETY: an object of this session.
        Ok(unsafe { s.driver.cuUserObjectRelease(object, q.references) })
    }

    fn cuGraphRetainUserObject(s, r, reply) {
        let q = GraphRetainUserObject::decode(r)?;
        let graph = s.existing(Kind::Graph, q.graph.0)?.cast();
        let object = named(s, q.object)?;
        // SAFETY: handles of this session.
        Ok(unsafe { s.driver.cuGraphRetainUserObject(graph, object, q.references, q.flags) })
    }

    fn cuGraphReleaseUserObject(s, r, reply) {
        let q = GraphReleaseUserObject::decode(r)?;
        let graph = s.existing(Kind::Graph, q.graph.0)?.cast();
        let object = named(s, q.object)?;
        // SAFETY: handles of this session.
        Ok(unsafe { s.driver.cuGraphReleaseUserObject(graph, object, q.references) })
    }
}
