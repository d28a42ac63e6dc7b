//! Events.

// UNSAFETY: C entry points.

use std::ffi::c_uint;
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, api, put};
use crate::capture::{self, forbid_captured};
use crate::event::{EVENTS, Event, lookup_event};
use crate::log::refuse;
use crate::{context, pool, stream};

fn record(h: CUevent, stream: CUstream, flags: c_uint) -> R {
    let s = stream::resolve(stream)?;
    let e = lookup_event(h)?;
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if e.context.id != s.context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let is_external = flags & CU_EVENT_RECORD_EXTERNAL != 0;
    match capture::record_event(&s, &e, is_external)? {
        true => Ok(()),
        // External to a graph it is in a captured stream alone.
        false if is_external => Err(CUDA_ERROR_ILLEGAL_STATE),
        false => e.record(&s),
    }
}

fn elapsed(ms: *mut f32, start: CUevent, end: CUevent) -> R {
    let (start, end) = (lookup_event(start)?, lookup_event(end)?);
    if (start.flags | end.flags) & CU_EVENT_DISABLE_TIMING != 0 || start.context.id != end.context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    start.context.check()?;
    let (a, b) = (start.reached_ns()?, end.reached_ns()?);
    // SAFETY: the caller's out parameter.
    unsafe { put(ms, (b as f64 - a as f64) as f32 / 1e6) }
}

fn destroy(h: CUevent) -> R {
    lookup_event(h)?;
    EVENTS.remove(h);
    Ok(())
}

api! {
    fn cuEventCreate(out: *mut CUevent, flags: c_uint) {
        let context = context::current()?;
        let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        let shared_and_timed = flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CU_EVENT_INTERPROCESS;
        if out.is_null() || flags & !known != 0 || shared_and_timed {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & CU_EVENT_INTERPROCESS != 0 {
            return refuse("cuEventCreate", "an interprocess event");
        }
        let e = Arc::new(Event { flags, context, state: Mutex::new(None), captured: Mutex::new(None) });
        put(out, EVENTS.add(&e))
    }
    fn cuEventDestroy(h: CUevent) { destroy(h) }
    fn cuEventDestroy_v2(h: CUevent) { destroy(h) }
    fn cuEventRecord(h: CUevent, stream: CUstream) { record(h, stream, 0) }
    fn cuEventRecordWithFlags(h: CUevent, stream: CUstream, flags: c_uint) { record(h, stream, flags) }
    fn cuEventQuery(h: CUevent) {
        let e = lookup_event(h)?;
        forbid_captured(&e)?;
        capture::forbid_unsafe()?;
        let done = e.point().is_none_or(|p| p.stream.is_done(p.number));
        e.context.check()?;
        if done { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }
    fn cuEventSynchronize(h: CUevent) {
        let e = lookup_event(h)?;
        forbid_captured(&e)?;
        capture::forbid_unsafe()?;
        if let Some(p) = e.point() {
            p.stream.wait(p.number);
        }
        pool::synchronized();
        e.context.check()
    }
    fn cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent) { elapsed(ms, start, end) }
    fn cuEventElapsedTime_v2(ms: *mut f32, start: CUevent, end: CUevent) { elapsed(ms, start, end) }
}
