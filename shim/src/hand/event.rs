//! Events: created, recorded and destroyed without waiting; what CUDA refuses at once is refused here.

// UNSAFETY: writes a handle through the application's pointer.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::{calls, ops};
use orion_wire::handle::{Handle, Kind};

use super::execution::write;
use super::stream;
use crate::call::{call, post};
use crate::handles;
use crate::local::context;
use crate::session::session;

/// Whose events are, of those made since there are several contexts. Older ones are the first one's.
static HOMES: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

/// The driver refuses to record an event on another context's stream.
fn is_elsewhere(event: CUevent, stream: CUstream) -> bool {
    let home = || HOMES.lock().expect("no panic happens under this lock").get(&(event as u64)).copied();
    context::several() && home().unwrap_or_else(context::first) != stream::home(stream)
}

/// Events that other processes may look at, of this process or opened by it.
static SHARED: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);
/// Whether there ever was one; most programs have none.
static ANY_SHARED: AtomicBool = AtomicBool::new(false);

fn share(event: Handle) {
    SHARED.lock().expect("no panic happens under this lock").insert(event.0);
    ANY_SHARED.store(true, Ordering::Relaxed);
}

fn is_shared(event: CUevent) -> bool {
    // Relaxed: whoever made the event told this thread of it by other means.
    ANY_SHARED.load(Ordering::Relaxed)
        && SHARED.lock().expect("no panic happens under this lock").contains(&(event as u64))
}

/// Whether some event may be looked at by other processes: then a graph, too, has reached the driver when it has been
/// launched, because it may record one.
pub fn any_shared() -> bool {
    ANY_SHARED.load(Ordering::Relaxed)
}

/// Without waiting, unless the driver may refuse it, or another process may act on it: what that one waits for has to
/// have reached the driver when the call returns, for the two are told of each other by other ways.
fn record(op: u16, event: CUevent, stream: CUstream, words: &[u64]) -> CUresult {
    let encode = |w: &mut Vec<u8>| words.iter().for_each(|word| w.word(*word));
    match is_elsewhere(event, stream) || is_shared(event) {
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
        let handle = handles::reserve_in(Kind::Event, context::current_home());
        if context::several() {
            HOMES.lock().expect("no panic happens under this lock").insert(handle.0, context::current_home());
        }
        let code = post(ops::CU_EVENT_CREATE, |w| {
            w.word(handle.0);
            w.word(flags as u64);
        });
        if flags & CU_EVENT_INTERPROCESS != 0 {
            share(handle);
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
            handles::release(handle);
            code
        }
        Err(code) => code,
    }
}

/// # Safety
/// As CUDA's `cuIpcOpenEventHandle`.
pub unsafe fn cuIpcOpenEventHandle(out: *mut CUevent, handle: CUipcEventHandle) -> CUresult {
    let answer = (|| {
        session()?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let event = handles::reserve_in(Kind::Event, context::current_home());
        let name = handle.reserved.map(|b| b as u8);
        let request = calls::cuIpcOpenEventHandle { phEvent: event.0, handle: &name };
        handles::made(event, call(ops::CU_IPC_OPEN_EVENT_HANDLE, |w| request.encode(w), |_| Ok(())))?;
        share(event);
        Ok(event.0 as CUevent)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// An event was destroyed, or its context was.
pub fn ended(handle: Handle) {
    if any_shared() {
        SHARED.lock().expect("no panic happens under this lock").remove(&handle.0);
    }
    if context::several() {
        HOMES.lock().expect("no panic happens under this lock").remove(&handle.0);
    }
}

/// What the driver checks of an event and a stream at once.
fn check(event: CUevent, stream: CUstream, flags: u32, known: u32) -> Result<(), CUresult> {
    session()?;
    if flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if !Handle(event as u64).is(Kind::Event) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if (stream as u64) <= 2 && context::current() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    Ok(())
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

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    match check(event, stream, flags, CU_EVENT_WAIT_EXTERNAL) {
        Ok(()) => {
            let encode = |w: &mut Vec<u8>| [stream as u64, event as u64, flags as u64].iter().for_each(|v| w.word(*v));
            match is_shared(event) {
                false => post(ops::CU_STREAM_WAIT_EVENT, encode),
                // The other process may record it again.
                true => call(ops::CU_STREAM_WAIT_EVENT, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS),
            }
        }
        Err(code) => code,
    }
}
