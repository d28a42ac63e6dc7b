//! Functions of the application that a stream calls.

// UNSAFETY: C entry points, which keep functions and data of the application's.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::message::callback::{LaunchHostFunc, StreamAddCallback};
use orion_wire::message::field::{CallbackId, Existing};

use crate::objects::callback::will_be_served;
use crate::objects::capture::check_stream;
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::post;
use crate::state::callback::Function;
use crate::state::process::state;

/// Posts the command that enqueues a host function.
fn enqueue(stream: CUstream, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    ahead::queued(stream);
    // What is captured runs once a launch, or never.
    if state().captures.any_open() {
        state().callbacks.note_in_graph();
    }
    // Counted first: it may run before `post` returns.
    state().callbacks.outstanding.fetch_add(1, Ordering::SeqCst);
    post(op, encode)
}

/// # Safety
/// As CUDA's `cuLaunchHostFunc`: `function` may be called with `data` until it has run.
pub unsafe fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) -> CUresult {
    if let Err(code) = session().and_then(|_| check_stream(stream)) {
        return code;
    }
    let Some(function) = function else { return CUDA_ERROR_INVALID_VALUE };
    if let Err(code) = will_be_served() {
        return code;
    }
    // A captured one runs at every launch of its graph.
    let kept = state().captures.any_open();
    let number = state().callbacks.register(Function::Host(function), data, kept);
    let q = LaunchHostFunc { stream: Existing(stream as u64), function: CallbackId(number), kept };
    enqueue(stream, LaunchHostFunc::OP, |w| q.encode(w))
}

/// # Safety
/// As CUDA's `cuStreamAddCallback`.
pub unsafe fn cuStreamAddCallback(
    stream: CUstream,
    function: CUstreamCallback,
    data: *mut c_void,
    flags: u32,
) -> CUresult {
    if let Err(code) = session().and_then(|_| check_stream(stream)) {
        return code;
    }
    let (Some(function), 0) = (function, flags) else { return CUDA_ERROR_INVALID_VALUE };
    if let Err(code) = will_be_served() {
        return code;
    }
    let number = state().callbacks.register(Function::Stream(function, stream as usize), data, false);
    let q = StreamAddCallback { stream: Existing(stream as u64), function: CallbackId(number), flags };
    enqueue(stream, StreamAddCallback::OP, |w| q.encode(w))
}
