//! Events: created, recorded and destroyed without waiting; what CUDA refuses at once is refused here.

// UNSAFETY: writes a handle through the application's pointer.

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};

use crate::answer::write;
use crate::objects::event::check;
use crate::objects::stream;
use crate::objects::synchronize::{query, synchronize};
use crate::session::attached::session;
use crate::session::call::{call, post};
use crate::state::context;
use crate::state::process::state;

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventSynchronize(hEvent: CUevent) -> CUresult {
    synchronize(ops::CU_EVENT_SYNCHRONIZE, hEvent as u64, false)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventQuery(hEvent: CUevent) -> CUresult {
    query(ops::CU_EVENT_QUERY, hEvent as u64)
}

/// The driver refuses to record an event on another context's stream.
fn is_elsewhere(event: CUevent, stream: CUstream) -> bool {
    let home = || state().events.homes.lock().get(&(event as u64)).copied();
    state().contexts.several() && home().unwrap_or_else(|| state().contexts.first()) != stream::home(stream)
}

/// Without waiting, unless the driver may refuse it, or another process may act on it: what that one waits for has to
/// have reached the driver when the call returns, for the two are told of each other by other ways.
fn record(op: u16, event: CUevent, stream: CUstream, words: &[u64]) -> CUresult {
    let encode = |w: &mut Vec<u8>| words.iter().for_each(|word| w.word(*word));
    match is_elsewhere(event, stream) || state().events.is_shared(event) {
        false => post(op, encode),
        true => call(op, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS),
    }
}

/// # Safety
/// As CUDA's `cuEventCreate`.
pub unsafe fn cuEventCreate(out: *mut CUevent, flags: u32) -> CUresult {
    const KNOWN: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    let answer = session().and_then(|_| {
        // An event for other processes cannot keep time.
        let shared_with_timing = flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CU_EVENT_INTERPROCESS;
        if out.is_null() || flags & !KNOWN != 0 || shared_with_timing {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if context::current() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let handle = state().handles.reserve_in(Kind::Event, context::current_home());
        if state().contexts.several() {
            state().events.homes.lock().insert(handle.0, context::current_home());
        }
        let code = post(ops::CU_EVENT_CREATE, |w| {
            w.word(handle.0);
            w.word(flags as u64);
        });
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
            let code = post(ops::CU_EVENT_DESTROY_V2, |w| w.word(handle.0));
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
        Ok(()) => record(ops::CU_EVENT_RECORD, event, stream, &[event as u64, stream as u64]),
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) -> CUresult {
    match check(event, stream, flags, CU_EVENT_RECORD_EXTERNAL) {
        Ok(()) => {
            let words = [event as u64, stream as u64, flags as u64];
            record(ops::CU_EVENT_RECORD_WITH_FLAGS, event, stream, &words)
        }
        Err(code) => code,
    }
}
