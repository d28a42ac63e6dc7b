//! Host functions and user objects: the worker's driver says when, this process runs them.
//!
//! Natively the driver runs them on threads of its own, and a program may rely on as much concurrency as it has.
//! Here every function that the worker's driver has started, and so is waiting for, gets a thread at once: what
//! the driver does one after the other stays so, and what it does at the same time may wait for each other.
//!
//! Functions and data stay in this process. The worker has numbers, and one that was not given out, or was used up,
//! ends the session: a false server must not choose what a program calls.

// UNSAFETY: calls functions of the application with the data it gave for them.

use crate::session::call::put_words;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::generated::ops;

use crate::objects::capture::check_stream;
use crate::session::attached::session;
use crate::session::call::post;
use crate::state::callback::Function;
use crate::state::process::state;

/// Posts the command that enqueues a host function.
fn enqueue(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
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
    // A captured one runs at every launch of its graph.
    let kept = state().captures.any_open();
    let number = state().callbacks.register(Function::Host(function), data, kept);
    enqueue(ops::CU_LAUNCH_HOST_FUNC, |w| {
        put_words(w, &[stream as u64, number, kept as u64]);
    })
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
    let number = state().callbacks.register(Function::Stream(function, stream as usize), data, false);
    enqueue(ops::CU_STREAM_ADD_CALLBACK, |w| {
        put_words(w, &[stream as u64, number, flags as u64]);
    })
}
