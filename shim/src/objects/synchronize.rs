//! Waiting: streams, events, contexts.

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::message::context::{CtxSynchronize, CtxSynchronizeReply};
use orion_wire::message::event::{EventSynchronize, EventSynchronizeReply};
use orion_wire::message::field::Existing;
use orion_wire::message::host_memory::{MemHostAlloc, Pinned};
use orion_wire::message::stream::{StreamSynchronize, StreamSynchronizeReply};
use orion_wire::record::HeapRange;

use crate::session::attached::session;
use crate::session::call::{call_to, start};
use crate::session::context::with_home;
use crate::session::reply::wait;
use crate::session::thread::{known_synchronized, note_synchronized};
use crate::state::context;
use crate::state::process::state;

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

/// Makes a call that the worker answers when the device is idle, in the current context, or where there is none in
/// `home`, if that is one.
///
/// # Errors
/// What the call answers.
pub fn call_waiting(home: u64, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), CUresult> {
    let s = session()?;
    with_home(
        || home,
        || {
            // What the host wrote to mapped memory may be what the device waits for.
            crate::memory::in_step::before_launch(s);
            call_to(s, op, encode, |_| Ok(()))
        },
    )
}

/// Before something is freed that a device may be using: waits until all that was queued before is done, and what it
/// wrote is here. The driver does so in `cuMemFreeHost`, `cuMemHostUnregister` and `cuModuleUnload` (an H200, driver
/// 580), also where another context than `home`'s is current, or none.
///
/// # Errors
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` where a capture forbids it, which has ended that. An error of the context
/// is told by what is done next.
pub fn before_freeing(home: u64) -> Result<(), CUresult> {
    refusal(home, Pinned::Idle)
}

/// What the driver forbids beside a capture and is done here without asking it.
///
/// # Errors
/// As [`before_freeing`].
pub fn refused_beside_captures() -> Result<(), CUresult> {
    if state().captures.any_open() { refusal(0, Pinned::Allowed) } else { Ok(()) }
}

fn refusal(home: u64, request: Pinned) -> Result<(), CUresult> {
    let q = MemHostAlloc { request, range: HeapRange::default().into() };
    match call_waiting(home, MemHostAlloc::OP, |w| q.encode(w)) {
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        _ => Ok(()),
    }
}

pub fn query(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    if let Ok(s) = session() {
        crate::memory::in_step::before_launch(s);
    }
    crate::session::call::call(op, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS)
}
