//! Events: created, recorded and destroyed without waiting; what CUDA refuses at once is refused here.

// UNSAFETY: writes a handle through the application's pointer.

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::calls;
use orion_wire::message::event::EventQuery;
use orion_wire::message::field::Existing;

use crate::answer::write;
use crate::objects::event::check;
use crate::objects::stream;
use crate::objects::synchronize::{Awaited, query, synchronize};
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::{call, give, post};
use crate::state::context;
use crate::state::process::state;

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventSynchronize(hEvent: CUevent) -> CUresult {
    synchronize(Awaited::Event(hEvent as u64))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventQuery(hEvent: CUevent) -> CUresult {
    query(EventQuery::OP, |w| EventQuery { event: Existing(hEvent as u64) }.encode(w))
}

/// The driver refuses to record an event on another context's stream.
fn is_elsewhere(event: CUevent, stream: CUstream) -> bool {
    let home = || state().events.homes.lock().get(&(event as u64)).copied();
    state().contexts.several() && home().unwrap_or_else(|| state().contexts.first()) != stream::home(stream)
}

/// Without waiting, unless the driver may refuse it, or another process may act on it: what that one waits for has to
/// have reached the driver when the call returns, for the two are told of each other by other ways.
fn record(op: u16, event: CUevent, stream: CUstream, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    ahead::queued(stream);
    match is_elsewhere(event, stream) || state().events.is_shared(event) {
        false => give(op, encode),
        true => call(op, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS),
    }
}

/// # Safety
/// As CUDA's `cuEventCreate`.
pub unsafe fn cuEventCreate(out: *mut CUevent, flags: u32) -> CUresult {
    const KNOWN: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    let answer = session().and_then(|_| {
        if context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        // An event for other processes cannot keep time.
        let shared_with_timing = flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CU_EVENT_INTERPROCESS;
        if out.is_null() || flags & !KNOWN != 0 || shared_with_timing {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = state().handles.reserve_in(Kind::Event, context::current_home());
        if state().contexts.several() {
            state().events.homes.lock().insert(handle.0, context::current_home());
        }
        let q = calls::cuEventCreate { phEvent: handle.0, Flags: flags };
        let code = post(calls::cuEventCreate::OP, |w| q.encode(w));
        if flags & CU_EVENT_INTERPROCESS != 0 {
            state().events.share(handle);
        }
        // A handle whose creation was refused stays reserved: the worker may have bound it before.
        if code == CUDA_SUCCESS { Ok(handle.0 as CUevent) } else { Err(code) }
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventDestroy_v2(event: CUevent) -> CUresult {
    let handle = Handle(event as u64);
    match session() {
        Ok(_) if !handle.is(Kind::Event) => CUDA_ERROR_INVALID_HANDLE,
        Ok(_) => {
            let code = post(calls::cuEventDestroy_v2::OP, |w| calls::cuEventDestroy_v2 { hEvent: handle.0 }.encode(w));
            crate::objects::handles::release(handle);
            code
        }
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult {
    match check(event, stream, 0, 0) {
        Ok(()) => {
            let q = calls::cuEventRecord { hEvent: event as u64, hStream: stream as u64 };
            record(calls::cuEventRecord::OP, event, stream, |w| q.encode(w))
        }
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) -> CUresult {
    match check(event, stream, flags, CU_EVENT_RECORD_EXTERNAL) {
        Ok(()) => {
            let q = calls::cuEventRecordWithFlags { hEvent: event as u64, hStream: stream as u64, flags };
            record(calls::cuEventRecordWithFlags::OP, event, stream, |w| q.encode(w))
        }
        Err(code) => code,
    }
}
