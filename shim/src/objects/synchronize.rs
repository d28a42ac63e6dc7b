//! Waiting: streams, events, contexts.

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;

use crate::session::attached::session;
use crate::session::call::start;
use crate::session::reply::wait;
use crate::session::thread::{known_synchronized, note_synchronized};
use crate::state::context;

/// Waits for a stream; nothing is asked if it is known to be idle.
pub fn stream(stream: CUstream) -> CUresult {
    synchronize(ops::CU_STREAM_SYNCHRONIZE, stream as u64, true)
}

/// Sends a synchronising call for `object` and waits for it and for the output of the kernels it covers.
pub fn synchronize(op: u16, object: u64, is_stream: bool) -> CUresult {
    let answer = (|| {
        let s = session()?;
        // A handle says which context is meant; the default streams and the context itself need a current one.
        if object <= 2 && context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if is_stream && known_synchronized(s, object) {
            return Ok(());
        }
        // What the host wrote to mapped memory may be what the device waits for.
        crate::memory::in_step::before_launch();
        let ticket = start(s, op, |w| w.word(object))?;
        let reply = wait(s, ticket)?;
        let mut r = orion_wire::Reader::new(&reply.body);
        let handled = r.word().map_or(Ok(()), |events| crate::session::progress::wait_for(s, events));
        if reply.result != CUDA_SUCCESS {
            return Err(reply.result);
        }
        handled?;
        if is_stream {
            note_synchronized(object, ticket.sent);
        }
        Ok(())
    })();
    answer.err().unwrap_or(CUDA_SUCCESS)
}

pub fn query(op: u16, object: u64) -> CUresult {
    crate::memory::in_step::before_launch();
    crate::session::call::call(op, |w| w.word(object), |_| Ok(())).err().unwrap_or(CUDA_SUCCESS)
}
