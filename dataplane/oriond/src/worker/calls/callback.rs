//! Functions of the application that a stream calls.

// UNSAFETY: calls the driver with handles that were looked up here.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::message::callback::{LaunchHostFunc, StreamAddCallback};
use orion_wire::record::Header;

use crate::worker::calls::graph::keep::keep_ticket;
use crate::worker::out::callbacks::{drop_ticket, host_function, kind, life_of, stream_callback};
use crate::worker::outcome::{Handled, finish};
use crate::worker::session::Session;

pub fn cuLaunchHostFunc(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = LaunchHostFunc::decode(&mut r)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        // A captured host function runs at every launch of the graph, so its ticket belongs to the graph.
        let graph = s.captures.graph_of(s.driver, stream);
        let once = graph.is_none();
        let ticket = s.callbacks.ticket(q.function.0, kind::HOST_FUNCTION, 0, once, q.kept);
        // SAFETY: it was made just now.
        let life = unsafe { life_of(ticket) };
        s.ends_before_function();
        // SAFETY: a stream of this session; the ticket lives until it has run or its graph is gone.
        let code = unsafe { s.driver.cuLaunchHostFunc(stream, Some(host_function), ticket) };
        match (code, graph) {
            (CUDA_SUCCESS, Some(graph)) => _ = keep_ticket(s, graph, ticket),
            (CUDA_SUCCESS, None) => s.stands_behind(stream, life),
            // SAFETY: the driver keeps no reference after a failed call.
            _ => unsafe { drop_ticket(ticket) },
        }
        Ok(code)
    })
}

pub fn cuStreamAddCallback(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    finish(|| {
        let q = StreamAddCallback::decode(&mut r)?;
        let stream = s.stream(q.stream.0, header.thread)?;
        let ticket = s.callbacks.ticket(q.function.0, kind::STREAM_CALLBACK, 0, true, false);
        // SAFETY: it was made just now.
        let life = unsafe { life_of(ticket) };
        s.ends_before_function();
        // SAFETY: a stream of this session; the ticket lives until it has run.
        let code = unsafe { s.driver.cuStreamAddCallback(stream, Some(stream_callback), ticket, q.flags) };
        match code {
            CUDA_SUCCESS => s.stands_behind(stream, life),
            // SAFETY: the driver keeps no reference after a failed call.
            _ => unsafe { drop_ticket(ticket) },
        }
        Ok(code)
    })
}
