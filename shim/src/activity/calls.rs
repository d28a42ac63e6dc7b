//! Calls of the driver API and of the runtime, recorded.

// UNSAFETY: a C ABI of raw pointers; reads structures of cudart's.

use std::sync::atomic::Ordering;

use orion_cuda::cupti::*;
use orion_cuda::sys::*;

use crate::activity::api_callbacks::{self, RuntimeCall};
use crate::activity::buffers::State;
use crate::activity::time::{now, thread_id};
use crate::state::process::state;
use crate::state::recording::{CALLED_BACK, DRIVER, EXTERNAL, EXTERNAL_IDS, GPU, ROUTED, RUNTIME, THREAD, leave};

/// A call of the driver API, which is part of another if the thread is inside of one.
pub fn driver_call<P>(cbid: u32, parameters: &P, call: impl FnOnce() -> CUresult) -> CUresult {
    if !state().recording.wants(!ROUTED) {
        return call();
    }
    let begun = enter();
    let called_back = state().recording.wants(CALLED_BACK).then(|| {
        let id = THREAD.with(|t| t.inside.get());
        api_callbacks::DriverCall::enter(cbid, std::ptr::from_ref(parameters).cast(), id)
    });
    let result = call();
    if let Some(called_back) = called_back.flatten() {
        called_back.exit(result);
    }
    if let Some(begun) = begun {
        exit(cbid, begun, result);
    }
    result
}

struct Begun {
    id: u32,
    start: u64,
}

#[inline(never)]
fn enter() -> Option<Begun> {
    THREAD.with(|t| (t.inside.get() == 0).then(|| Begun { id: state().recording.begin(t), start: now() }))
}

#[inline(never)]
fn exit(cbid: u32, call: Begun, result: CUresult) {
    leave();
    if state().recording.wants(DRIVER) && state().recording.driver_calls.has(cbid) {
        record(CUPTI_ACTIVITY_KIND_DRIVER, cbid, call.id, call.start, result);
    }
    State::get().collect_if_due();
}

pub fn record(kind: u32, cbid: u32, id: u32, start: u64, result: u32) {
    let call = CUpti_ActivityAPI {
        kind,
        cbid,
        start,
        end: now(),
        processId: std::process::id(),
        threadId: thread_id(),
        correlationId: id,
        returnValue: result,
    };
    let mut external = [None; CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 as usize + 1];
    if state().recording.wants(EXTERNAL) {
        // Fails only while the thread ends.
        let _ = EXTERNAL_IDS.try_with(|ids| ids.borrow().iter().for_each(|(k, id)| external[*k as usize] = Some(*id)));
    }
    State::get().push(&call, external.iter().enumerate().filter_map(|(kind, id)| Some((kind as u32, (*id)?))));
}

pub fn push_external(kind: u32, id: u64) {
    // Fails only while the thread ends.
    let _ = EXTERNAL_IDS.try_with(|ids| ids.borrow_mut().push((kind, id)));
}

pub fn pop_external(kind: u32) -> Option<u64> {
    let popped = EXTERNAL_IDS.try_with(|ids| {
        let mut ids = ids.borrow_mut();
        let at = ids.iter().rposition(|(k, _)| *k == kind)?;
        Some(ids.remove(at).1)
    });
    popped.ok().flatten()
}

/// The session exists: what was asked for before it did.
pub fn session_started() {
    if state().recording.wants(GPU) {
        State::get().gpu.lock_after_panic().session_started();
    }
}

/// Nothing is recorded in a forked child until it asks for it.
extern "C" fn in_child() {
    state().recording.on.store(0, Ordering::Relaxed);
    state().recording.driver_calls.choose_all(false);
    state().recording.runtime_calls.choose_all(false);
    state().recording.choose_no_callback();
    state().recording.hooks.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    leave();
    State::forget();
}

pub fn register_fork_handler() {
    static REGISTERED: std::sync::Once = std::sync::Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler stores to statics and thread-locals without destructors.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            crate::say!("pthread_atfork failed ({failed}): a forked child will go on recording");
        }
    });
}

/// cudart enters or leaves a function for which it found a word set.
///
/// # Safety
/// `call` must be null or what cudart says.
pub unsafe extern "C" fn runtime_call(cbid: u32, call: *const RuntimeCall) {
    // SAFETY: not null; a structure begins with its size.
    if call.is_null() || (unsafe { (*call).size } as usize) < size_of::<RuntimeCall>() {
        return;
    }
    // SAFETY: at least as large as this.
    let call = unsafe { &*call };
    if call.scratch.is_null() {
        return;
    }
    THREAD.with(|t| {
        if call.leaving == 0 {
            let outermost = state().recording.on() && t.inside.get() == 0;
            let id = if outermost { state().recording.begin(t) } else { 0 };
            t.began.set(if outermost { now() } else { t.began.get() });
            // SAFETY: not null; cudart's word for this.
            unsafe { call.scratch.write(id.into()) };
            if outermost {
                api_callbacks::runtime_call(call, cbid, id, CUPTI_API_ENTER);
            }
            return;
        }
        // SAFETY: as above.
        let id = unsafe { call.scratch.read() } as u32;
        // Another's if there was nobody to see it begin.
        if id == 0 || t.inside.get() != id {
            return;
        }
        api_callbacks::runtime_call(call, cbid, id, CUPTI_API_EXIT);
        leave();
        if state().recording.wants(RUNTIME) && state().recording.runtime_calls.has(cbid) {
            // SAFETY: null or cudart's place for the result, which is there by now.
            let result = if call.result.is_null() { 0 } else { unsafe { call.result.read() } };
            record(CUPTI_ACTIVITY_KIND_RUNTIME, cbid, id, t.began.get(), result);
        }
        State::get().collect_if_due();
    });
}
