//! Waiting: streams, events, contexts.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::message::context::{CtxSynchronize, CtxSynchronizeReply};
use orion_wire::message::event::{EventSynchronize, EventSynchronizeReply};
use orion_wire::message::field::Existing;
use orion_wire::message::stream::{StreamSynchronize, StreamSynchronizeReply};

use crate::session::attached::session;
use crate::session::call::start;
use crate::session::reply::wait;
use crate::session::thread::{known_synchronized, note_synchronized};
use crate::state::context;

/// Waits for a stream; nothing is asked if it is known to be idle.
pub fn stream(stream: CUstream) -> CUresult {
    synchronize(Awaited::Stream(stream as u64))
}

/// What is waited for.
#[derive(Clone, Copy)]
pub enum Awaited {
    Stream(u64),
    Event(u64),
    /// The current one.
    Context,
}

impl Awaited {
    fn op(self) -> u16 {
        match self {
            Awaited::Stream(_) => StreamSynchronize::OP,
            Awaited::Event(_) => EventSynchronize::OP,
            Awaited::Context => CtxSynchronize::OP,
        }
    }

    fn encode(self, w: &mut Vec<u8>) {
        match self {
            Awaited::Stream(stream) => StreamSynchronize { stream: Existing(stream) }.encode(w),
            Awaited::Event(event) => EventSynchronize { event: Existing(event) }.encode(w),
            Awaited::Context => CtxSynchronize {}.encode(w),
        }
    }

    /// How many events came before the reply. One about a wait that never began has no body.
    fn events(self, body: &[u8]) -> Option<u64> {
        let r = &mut Reader::new(body);
        match self {
            Awaited::Stream(_) => StreamSynchronizeReply::decode(r).map(|q| q.events),
            Awaited::Event(_) => EventSynchronizeReply::decode(r).map(|q| q.events),
            Awaited::Context => CtxSynchronizeReply::decode(r).map(|q| q.events),
        }
        .ok()
    }
}

/// Sends a synchronising call and waits for it and for the output of the kernels it covers.
pub fn synchronize(what: Awaited) -> CUresult {
    let answer = (|| {
        let s = session()?;
        // A handle says which context is meant; the default streams and the context itself need a current one.
        let names_one = matches!(what, Awaited::Stream(object) | Awaited::Event(object) if object > 2);
        if !names_one && context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if let Awaited::Stream(stream) = what
            && known_synchronized(s, stream)
        {
            return Ok(());
        }
        // What the host wrote to mapped memory may be what the device waits for.
        crate::memory::in_step::before_launch(s);
        let ticket = start(s, what.op(), |w| what.encode(w))?;
        let reply = wait(s, ticket)?;
        let handled = what.events(&reply.body).map_or(Ok(()), |events| crate::session::progress::wait_for(s, events));
        if reply.result != CUDA_SUCCESS {
            return Err(reply.result);
        }
        handled?;
        if let Awaited::Stream(stream) = what {
            note_synchronized(stream, ticket.sent);
        }
        Ok(())
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

pub fn query(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    if let Ok(s) = session() {
        crate::memory::in_step::before_launch(s);
    }
    crate::session::call::call(op, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS)
}
