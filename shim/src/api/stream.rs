//! Streams: created without waiting, and what never changes about one is answered here.

// UNSAFETY: writes answers through the application's pointers.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::calls;
use orion_wire::message::field::Existing;
use orion_wire::message::stream::{StreamDestroy, StreamQuery};

use crate::answer::write;
use crate::objects::capture::{capturing, status};
use crate::objects::event::check;
use crate::objects::stream::{at_home, clamped, find, find_own, stream_id};
use crate::objects::synchronize::{Awaited, query, stream, synchronize};
use crate::report::refuse;
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::{call, give, post};
use crate::session::route::{self, Key};
use crate::session::thread::known_synchronized;
use crate::state::context;
use crate::state::process::state;
use crate::state::stream::Stream;

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamSynchronize(hStream: CUstream) -> CUresult {
    stream(hStream)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamQuery(hStream: CUstream) -> CUresult {
    match session() {
        Ok(s) if known_synchronized(s, hStream as u64) => CUDA_SUCCESS,
        Ok(_) => {
            at_home(hStream, || query(StreamQuery::OP, |w| StreamQuery { stream: Existing(hStream as u64) }.encode(w)))
        }
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    match check(event, stream, flags, CU_EVENT_WAIT_EXTERNAL) {
        Ok(()) => {
            let q = calls::cuStreamWaitEvent { hStream: stream as u64, hEvent: event as u64, Flags: flags };
            let op = calls::cuStreamWaitEvent::OP;
            ahead::queued(stream);
            match state().events.is_shared(event) {
                false => give(op, |w| q.encode(w)),
                // The other process may record it again.
                true => call(op, |w| q.encode(w), |_| Ok(())).err().unwrap_or(CUDA_SUCCESS),
            }
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuStreamCreate`.
pub unsafe fn cuStreamCreate(out: *mut CUstream, flags: u32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { create(out, flags, 0) }
}

/// # Safety
/// As CUDA's `cuStreamCreateWithPriority`.
pub unsafe fn cuStreamCreateWithPriority(out: *mut CUstream, flags: u32, priority: i32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { create(out, flags, priority) }
}

unsafe fn create(out: *mut CUstream, flags: u32, priority: i32) -> CUresult {
    let answer = (|| {
        session()?;
        let ctx = context::current();
        if ctx == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if out.is_null() || flags > CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let priority = clamped(priority, context::current_device().unwrap_or(0))?;
        let handle = state().handles.reserve_in(Kind::Stream, context::current_home());
        let q = calls::cuStreamCreateWithPriority { phStream: handle.0, flags, priority };
        let code = post(calls::cuStreamCreateWithPriority::OP, |w| q.encode(w));
        if code != CUDA_SUCCESS {
            crate::objects::handles::release(handle);
            return Err(code);
        }
        let id = state().streams.next_id.fetch_add(1, Ordering::Relaxed);
        let in_green = crate::session::context::green_of(ctx) != 0;
        state().streams.table.insert(handle, Stream { flags, priority, context: ctx, in_green, id });
        Ok(handle.0 as CUstream)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    if let Err(code) = session() {
        return code;
    }
    let handle = Handle(stream as u64);
    if let Err(code) = find_own(stream) {
        return code;
    }
    let code = post(StreamDestroy::OP, |w| StreamDestroy { stream: handle.into() }.encode(w));
    crate::objects::handles::release(handle);
    code
}

/// # Safety
/// As CUDA's `cuStreamGetPriority`.
pub unsafe fn cuStreamGetPriority(stream: CUstream, priority: *mut i32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(priority, unless_invalid(stream).map(|s| s.map_or(0, |s| s.priority))) }
}

/// As [`find`], for what a captured stream says until its capture is over.
fn unless_invalid(stream: CUstream) -> Result<Option<&'static Stream>, CUresult> {
    let found = find(stream)?;
    if may_be_captured(stream) && status(stream)? == CU_STREAM_CAPTURE_STATUS_INVALIDATED {
        return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    Ok(found)
}

/// The legacy stream never is, and asked for its status it answers for those that it encompasses.
fn may_be_captured(stream: CUstream) -> bool {
    (stream as u64) >= 2 && state().captures.any_open()
}

/// As [`find`], for what a captured stream does not say: the driver refuses it, and the capture is over. Asking whether
/// the stream is idle does the same.
fn told(stream: CUstream) -> Result<Option<&'static Stream>, CUresult> {
    let found = find(stream)?;
    if may_be_captured(stream) && status(stream)? != CU_STREAM_CAPTURE_STATUS_NONE {
        return match query(StreamQuery::OP, |w| StreamQuery { stream: Existing(stream as u64) }.encode(w)) {
            CUDA_SUCCESS | CUDA_ERROR_NOT_READY => Ok(found),
            code => Err(code),
        };
    }
    Ok(found)
}

/// # Safety
/// As CUDA's `cuStreamGetFlags`.
pub unsafe fn cuStreamGetFlags(stream: CUstream, flags: *mut u32) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(flags, told(stream).map(|s| s.map_or(0, |s| s.flags))) }
}

/// # Safety
/// As CUDA's `cuStreamGetId`.
pub unsafe fn cuStreamGetId(stream: CUstream, id: *mut u64) -> CUresult {
    let answer = told(stream).map(|_| stream_id(context::current(), stream).unwrap_or(0));
    // SAFETY: the caller's promise.
    unsafe { write(id, answer) }
}

/// # Safety
/// As CUDA's `cuStreamGetCtx`.
pub unsafe fn cuStreamGetCtx(stream: CUstream, ctx: *mut CUcontext) -> CUresult {
    let answer = unless_invalid(stream).map(|s| s.map_or(context::current(), |s| s.context) as CUcontext);
    // SAFETY: the caller's promise.
    unsafe { write(ctx, answer) }
}

/// Of a stream of a green context: the primary context and the green one.
///
/// # Safety
/// As CUDA's `cuStreamGetCtx_v2`.
pub unsafe fn cuStreamGetCtx_v2(stream: CUstream, ctx: *mut CUcontext, green: *mut CUgreenCtx) -> CUresult {
    let found = find(stream).map(|s| s.map_or(context::current(), |s| s.context)).and_then(|of| {
        let g = crate::session::context::green_of(of);
        // The per-thread default stream is none of a green context's.
        if g != 0 && stream as u64 == 2 {
            Err(CUDA_ERROR_INVALID_HANDLE)
        } else {
            Ok((crate::session::context::home_of(of), g))
        }
    });
    // SAFETY: the caller's promise.
    let code = unsafe { write(ctx, found.map(|(home, _)| home as CUcontext)) };
    if let (CUDA_SUCCESS, Ok((_, g)), false) = (code, found, green.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { green.write(g as CUgreenCtx) };
    }
    code
}

/// # Safety
/// As CUDA's `cuStreamGetGreenCtx`.
pub unsafe fn cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) -> CUresult {
    let of = find(stream).map(|s| s.map_or(context::current(), |s| s.context));
    // SAFETY: the caller's promise.
    unsafe { write(green, of.map(|of| crate::session::context::green_of(of) as CUgreenCtx)) }
}

/// # Safety
/// As CUDA's `cuStreamGetDevice`.
pub unsafe fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) -> CUresult {
    let answer = told(stream).and_then(|s| {
        let ctx = s.map_or(context::current(), |s| s.context);
        crate::session::context::resolve(ctx as CUcontext).map(|c| c.device as CUdevice)
    });
    // SAFETY: the caller's promise.
    unsafe { write(device, answer) }
}

/// A stream waits for another node's event: no driver knows of both, so the calling thread waits. What it puts into the
/// stream from now on comes after.
pub fn wait_apart(stream: CUstream, event: CUevent) -> CUresult {
    if capturing(stream) {
        refuse::refused("cuStreamWaitEvent", "a graph is one node's, and the event that it would wait for another's");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    match Key::Object(event as u64).context() {
        Some(context) => route::with(context, || synchronize(Awaited::Event(event as u64))),
        None => CUDA_ERROR_INVALID_HANDLE,
    }
}
