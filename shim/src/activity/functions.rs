//! CUPTI's functions, for `libcupti.so.13`.

// UNSAFETY: a C ABI. What each function asks of its caller is in NVIDIA's documentation of CUPTI: pointers are null or
// valid for what the function reads or writes.

#![allow(non_snake_case)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::*;
use orion_cuda::sys::*;
use orion_transport::environment;
use orion_wire::activity;

use crate::activity::buffers::{self, State};
use crate::activity::calls::{pop_external, push_external, register_fork_handler};
use crate::activity::generated::cbids;
use crate::activity::time::{now, set_timestamp};
use crate::activity::{gpu, subscriber};
use crate::report::refuse;
use crate::state::lock::{Lock, Rank};
use crate::state::process::state;
use crate::state::recording::{Chosen, EXTERNAL};

/// The table that `cuGetExportTable` hands out.
pub fn table() -> *const c_void {
    std::ptr::from_ref(&TABLE).cast()
}

macro_rules! functions {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {
        static TABLE: Functions = Functions {
            size: size_of::<Functions>(),
            refused,
            $($name: entries::$name,)*
        };

        /// As exported: they remember what went wrong.
        mod entries {
            use super::*;

            $(pub unsafe extern "C" fn $name($($parameter: $type),*) -> CUptiResult {
                // SAFETY: the caller's promises are the same.
                let result = unsafe { super::$name($($parameter),*) };
                // This one's answer is a result of another.
                if stringify!($name) == "cuptiGetLastError" { result } else { noted(result) }
            })*
        }
    };
}
orion_cuda::cupti_functions!(functions);

thread_local! {
    static LAST_ERROR: Cell<CUptiResult> = const { Cell::new(CUPTI_SUCCESS) };
}

fn noted(result: CUptiResult) -> CUptiResult {
    if result != CUPTI_SUCCESS {
        LAST_ERROR.with(|e| e.set(result));
    }
    result
}

fn checked(holds: bool) -> CUptiResult {
    if holds { CUPTI_SUCCESS } else { CUPTI_ERROR_INVALID_PARAMETER }
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) -> CUptiResult {
    if to.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // SAFETY: not null; the caller's promise.
    unsafe { to.write(value) };
    CUPTI_SUCCESS
}

/// # Safety
/// `name` must be a C string that stays.
unsafe extern "C" fn refused(name: *const c_char) -> CUptiResult {
    // SAFETY: the caller's promise.
    let name: &'static CStr = unsafe { CStr::from_ptr(name) };
    refuse(name.to_str().unwrap_or("a function of CUPTI"), "not a part of CUPTI that works without a GPU beside it")
}

fn refuse(what: &'static str, why: &str) -> CUptiResult {
    refuse::refused(what, why);
    noted(CUPTI_ERROR_NOT_SUPPORTED)
}

// Activities

unsafe fn cuptiActivityEnable(kind: u32) -> CUptiResult {
    enable(kind, true)
}

unsafe fn cuptiActivityDisable(kind: u32) -> CUptiResult {
    enable(kind, false)
}

fn enable(kind: u32, value: bool) -> CUptiResult {
    if !(1..=CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS).contains(&kind) {
        return CUPTI_ERROR_INVALID_KIND;
    }
    if value {
        register_fork_handler();
    }
    match kind {
        CUPTI_ACTIVITY_KIND_DRIVER => state().recording.driver_calls.choose_all(value),
        CUPTI_ACTIVITY_KIND_RUNTIME => state().recording.runtime_calls.choose_all(value),
        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => state().recording.set(EXTERNAL, value),
        // What CUPTI itself costs: there are no such records where CUPTI is elsewhere.
        CUPTI_ACTIVITY_KIND_OVERHEAD => {}
        // NVTX hands its ranges to a library that the application names so. Otherwise CUPTI has none.
        CUPTI_ACTIVITY_KIND_MARKER | CUPTI_ACTIVITY_KIND_MARKER_DATA
            if environment::var_os("NVTX_INJECTION64_PATH").is_none() => {}
        _ if gpu::mask(kind).is_some() => return State::get().gpu.lock_after_panic().choose(kind, value),
        _ if value => {
            let name = format!("cuptiActivityEnable of kind {kind}");
            return refuse(interned(name), "records of this kind are not made");
        }
        _ => {}
    }
    state().recording.choice_changed();
    CUPTI_SUCCESS
}

/// Kept for good; there are few different ones.
fn interned(text: String) -> &'static str {
    static KNOWN: Lock<Vec<&'static str>> = Lock::new(Rank::Leaf, Vec::new());
    let mut known = KNOWN.lock_after_panic();
    if let Some(found) = known.iter().find(|k| **k == text) {
        return found;
    }
    known.push(text.leak());
    known[known.len() - 1]
}

unsafe fn cuptiActivityEnableDriverApi(id: u32, enable: u8) -> CUptiResult {
    choose(&state().recording.driver_calls, &cbids::DRIVER, id, enable)
}

unsafe fn cuptiActivityEnableRuntimeApi(id: u32, enable: u8) -> CUptiResult {
    choose(&state().recording.runtime_calls, &cbids::RUNTIME, id, enable)
}

fn choose(calls: &Chosen, names: &[&CStr], id: u32, enable: u8) -> CUptiResult {
    // Runtimes newer than the names have functions of higher numbers.
    if id == 0 || (id as usize) >= 1024 || names.get(id as usize).is_some_and(|n| n.is_empty()) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    if enable != 0 {
        register_fork_handler();
    }
    calls.choose(id, enable != 0);
    state().recording.choice_changed();
    CUPTI_SUCCESS
}

/// Events have no records, and so no times of the device.
unsafe fn cuptiActivityEnableCudaEventDeviceTimestamps(enable: u8) -> CUptiResult {
    match enable {
        0 => CUPTI_SUCCESS,
        _ => refuse("cuptiActivityEnableCudaEventDeviceTimestamps", "CUDA events are not recorded"),
    }
}

unsafe fn cuptiActivityRegisterCallbacks(request: Option<Request>, complete: Option<Complete>) -> CUptiResult {
    let (Some(request), Some(complete)) = (request, complete) else { return CUPTI_ERROR_INVALID_PARAMETER };
    if State::get().register(request, complete) { CUPTI_SUCCESS } else { CUPTI_ERROR_INVALID_OPERATION }
}

unsafe fn cuptiActivityFlushAll(flag: u32) -> CUptiResult {
    State::get().flush(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED != 0)
}

unsafe fn cuptiActivityFlushPeriod(milliseconds: u32) -> CUptiResult {
    State::get().period.store(milliseconds.into(), Ordering::Relaxed);
    CUPTI_SUCCESS
}

unsafe fn cuptiActivityGetNextRecord(buffer: *mut u8, valid_size: usize, record: *mut *mut c_void) -> CUptiResult {
    if record.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // SAFETY: not null; the caller's promises.
    match unsafe { buffers::next(buffer, valid_size, record.read().cast()) } {
        // SAFETY: the same.
        Ok(next) => unsafe { put(record, next.cast()) },
        Err(code) => code,
    }
}

/// Dropped since the last question, of all contexts and streams: records are not sorted by them.
unsafe fn cuptiActivityGetNumDroppedRecords(_context: CUcontext, _stream: u32, dropped: *mut usize) -> CUptiResult {
    if dropped.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // SAFETY: not null; the caller's promise.
    unsafe { put(dropped, State::get().dropped.swap(0, Ordering::Relaxed)) }
}

fn is_external(kind: u32) -> bool {
    (CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN..=CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2).contains(&kind)
}

unsafe fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> CUptiResult {
    if is_external(kind) {
        push_external(kind, id);
    }
    checked(is_external(kind))
}

unsafe fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) -> CUptiResult {
    if !is_external(kind) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    let Some(id) = pop_external(kind) else { return CUPTI_ERROR_QUEUE_EMPTY };
    if !last.is_null() {
        // SAFETY: not null; the caller's promise.
        unsafe { last.write(id) };
    }
    CUPTI_SUCCESS
}

unsafe fn cuptiActivityRegisterTimestampCallback(callback: Option<Timestamp>) -> CUptiResult {
    if callback.is_none() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    if set_timestamp(callback) {
        State::get().gpu.lock_after_panic().clock_changed();
    }
    CUPTI_SUCCESS
}

/// One of what is only kept to be asked for again. Some are one byte, as documented.
fn attribute(attribute: u32, size: *mut usize, value: *mut c_void) -> Result<(&'static AtomicU64, usize), CUptiResult> {
    let found = state().recording.attributes.get(attribute as usize).filter(|_| !size.is_null() && !value.is_null());
    let bytes = if matches!(attribute, 5 | 8 | 9) { 1 } else { 8 };
    found.map(|found| (found, bytes)).ok_or(CUPTI_ERROR_INVALID_PARAMETER)
}

unsafe fn cuptiActivityGetAttribute(which: u32, size: *mut usize, value: *mut c_void) -> CUptiResult {
    let (found, bytes) = match attribute(which, size, value) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let word = found.load(Ordering::Relaxed).to_le_bytes();
    // SAFETY: not null; `value` has as many bytes as `size` says, which is compared first.
    unsafe {
        if size.replace(bytes) < bytes {
            return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
        }
        std::ptr::copy_nonoverlapping(word.as_ptr(), value.cast(), bytes);
    }
    CUPTI_SUCCESS
}

unsafe fn cuptiActivitySetAttribute(which: u32, size: *mut usize, value: *mut c_void) -> CUptiResult {
    let (found, bytes) = match attribute(which, size, value) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut word = [0; 8];
    // SAFETY: not null; `value` has as many bytes as `size` says, which is compared first.
    unsafe {
        if size.replace(bytes) < bytes {
            return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
        }
        std::ptr::copy_nonoverlapping(value.cast::<u8>(), word.as_mut_ptr(), bytes);
    }
    found.store(u64::from_le_bytes(word), Ordering::Relaxed);
    CUPTI_SUCCESS
}

unsafe fn cuptiGetTimestamp(time: *mut u64) -> CUptiResult {
    // SAFETY: the caller's promise.
    unsafe { put(time, now()) }
}

unsafe fn cuptiSetThreadIdType(kind: u32) -> CUptiResult {
    if kind < 2 {
        state().recording.system_thread_ids.store(kind, Ordering::Relaxed);
    }
    checked(kind < 2)
}

unsafe fn cuptiGetThreadIdType(kind: *mut u32) -> CUptiResult {
    // SAFETY: the caller's promise.
    unsafe { put(kind, state().recording.system_thread_ids.load(Ordering::Relaxed)) }
}

unsafe fn cuptiGetDeviceId(context: CUcontext, device: *mut u32) -> CUptiResult {
    match crate::session::context::device_of(context as u64) {
        // SAFETY: the caller's promise.
        Some(found) => unsafe { put(device, found) },
        None => CUPTI_ERROR_INVALID_CONTEXT,
    }
}

unsafe fn cuptiGetGraphId(graph: CUgraph, id: *mut u32) -> CUptiResult {
    // SAFETY: the caller's promise.
    put_graph_id(activity::GRAPH, graph as u64, |found| unsafe { put(id, found as u32) })
}

unsafe fn cuptiGetGraphExecId(exec: CUgraphExec, id: *mut u32) -> CUptiResult {
    // SAFETY: the caller's promise.
    put_graph_id(activity::GRAPH_EXEC, exec as u64, |found| unsafe { put(id, found as u32) })
}

unsafe fn cuptiGetGraphNodeId(node: CUgraphNode, id: *mut u64) -> CUptiResult {
    // SAFETY: the caller's promise.
    put_graph_id(activity::GRAPH_NODE, node as u64, |found| unsafe { put(id, found) })
}

/// The number that records of the GPU's work have for something: only the worker's profiler knows it.
fn put_graph_id(what: u64, handle: u64, put: impl FnOnce(u64) -> CUptiResult) -> CUptiResult {
    if handle == 0 {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    match gpu::graph_id(what, handle) {
        Ok(id) => put(id),
        Err(CUDA_ERROR_INVALID_VALUE) => CUPTI_ERROR_INVALID_PARAMETER,
        Err(_) => CUPTI_ERROR_NOT_INITIALIZED,
    }
}

// Subscribers

/// Without a callback too: who only records activities subscribes so, as JAX's Mosaic does.
unsafe fn cuptiSubscribe(subscriber: *mut Subscriber, callback: Option<Callback>, user: *mut c_void) -> CUptiResult {
    if subscriber.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    match subscriber::subscribe(callback, user) {
        // SAFETY: not null; the caller's promise. Callers only hand it back.
        Some(new) => unsafe { put(subscriber, new) },
        None => CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
    }
}

unsafe fn cuptiUnsubscribe(subscriber: Subscriber) -> CUptiResult {
    let is_known = subscriber::is_subscriber(subscriber);
    if is_known {
        subscriber::unsubscribe();
    }
    checked(is_known || subscriber::is_finalized(subscriber))
}

unsafe fn cuptiSupportedDomains(count: *mut usize, domains: *mut *mut u32) -> CUptiResult {
    static DOMAINS: [AtomicU32; 3] = [
        AtomicU32::new(CUPTI_CB_DOMAIN_DRIVER_API),
        AtomicU32::new(CUPTI_CB_DOMAIN_RUNTIME_API),
        AtomicU32::new(CUPTI_CB_DOMAIN_RESOURCE),
    ];
    // SAFETY: the caller's promises.
    match unsafe { put(count, DOMAINS.len()) } {
        // SAFETY: the same.
        CUPTI_SUCCESS => unsafe { put(domains, DOMAINS[0].as_ptr()) },
        code => code,
    }
}

unsafe fn cuptiEnableCallback(enable: u32, subscriber: Subscriber, domain: u32, id: u32) -> CUptiResult {
    if subscriber::is_subscriber(subscriber) {
        let known = |names: &[&CStr]| names.get(id as usize).is_some_and(|name| !name.is_empty());
        match domain {
            CUPTI_CB_DOMAIN_RESOURCE if subscriber::happens(id) => state().recording.choose_resource(id, enable != 0),
            CUPTI_CB_DOMAIN_DRIVER_API if known(&cbids::DRIVER) => {
                state().recording.driver_callbacks.choose(id, enable != 0)
            }
            CUPTI_CB_DOMAIN_RUNTIME_API if known(&cbids::RUNTIME) => {
                state().recording.runtime_callbacks.choose(id, enable != 0)
            }
            CUPTI_CB_DOMAIN_DRIVER_API | CUPTI_CB_DOMAIN_RUNTIME_API => return CUPTI_ERROR_INVALID_PARAMETER,
            _ => return callbacks(enable, subscriber, "cuptiEnableCallback", is_domain(domain)),
        }
        return called_back();
    }
    callbacks(enable, subscriber, "cuptiEnableCallback", is_domain(domain))
}

unsafe fn cuptiEnableDomain(enable: u32, subscriber: Subscriber, domain: u32) -> CUptiResult {
    if subscriber::is_subscriber(subscriber) {
        match domain {
            CUPTI_CB_DOMAIN_DRIVER_API => state().recording.driver_callbacks.choose_all(enable != 0),
            CUPTI_CB_DOMAIN_RUNTIME_API => state().recording.runtime_callbacks.choose_all(enable != 0),
            CUPTI_CB_DOMAIN_RESOURCE if enable == 0 => state().recording.choose_no_resource(),
            _ => return callbacks(enable, subscriber, "cuptiEnableDomain", is_domain(domain)),
        }
        return called_back();
    }
    CUPTI_ERROR_INVALID_PARAMETER
}

fn is_domain(domain: u32) -> bool {
    (1..=CUPTI_CB_DOMAIN_STATE).contains(&domain)
}

/// The choice of callbacks has changed.
fn called_back() -> CUptiResult {
    register_fork_handler();
    state().recording.choice_changed();
    CUPTI_SUCCESS
}

unsafe fn cuptiEnableAllDomains(enable: u32, subscriber: Subscriber) -> CUptiResult {
    let code = callbacks(enable, subscriber, "cuptiEnableAllDomains", true);
    if code == CUPTI_SUCCESS {
        state().recording.choose_no_resource();
        state().recording.choose_no_callback();
        state().recording.choice_changed();
    }
    code
}

/// What nobody would ever be called back for can only be switched off.
fn callbacks(enable: u32, subscriber: Subscriber, function: &'static str, known: bool) -> CUptiResult {
    match (known && subscriber::is_subscriber(subscriber), enable) {
        (false, _) => CUPTI_ERROR_INVALID_PARAMETER,
        (true, 0) => CUPTI_SUCCESS,
        (true, _) => refuse(
            function,
            "calls, contexts, streams and graphs call back; modules, waits and NVTX, and all resources or domains at \
             once, do not",
        ),
    }
}

/// Forgets the subscriber and what was asked for. What was recorded and not flushed is lost, as in CUPTI.
unsafe fn cuptiFinalize() -> CUptiResult {
    if buffers::delivering() {
        return CUPTI_ERROR_INVALID_OPERATION;
    }
    for kind in 1..=CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS {
        let _ = enable(kind, false);
    }
    subscriber::finalize();
    CUPTI_SUCCESS
}

// Names

unsafe fn cuptiGetVersion(version: *mut u32) -> CUptiResult {
    // SAFETY: the caller's promise.
    unsafe { put(version, CUPTI_API_VERSION) }
}

unsafe fn cuptiGetResultString(result: CUptiResult, text: *mut *const c_char) -> CUptiResult {
    match result_name(result) {
        // SAFETY: the caller's promise.
        Some(name) => unsafe { put(text, name.as_ptr()) },
        None => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

unsafe fn cuptiGetErrorMessage(result: CUptiResult, text: *mut *const c_char) -> CUptiResult {
    match result_message(result) {
        // SAFETY: the caller's promise.
        Some(message) => unsafe { put(text, message.as_ptr()) },
        None => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

unsafe fn cuptiGetLastError() -> CUptiResult {
    LAST_ERROR.with(|e| e.replace(CUPTI_SUCCESS))
}

unsafe fn cuptiGetCallbackName(domain: u32, id: u32, name: *mut *const c_char) -> CUptiResult {
    let names: &[&'static CStr] = match domain {
        CUPTI_CB_DOMAIN_DRIVER_API => &cbids::DRIVER,
        CUPTI_CB_DOMAIN_RUNTIME_API => &cbids::RUNTIME,
        _ => return CUPTI_ERROR_INVALID_PARAMETER,
    };
    match names.get(id as usize).filter(|n| !n.is_empty()) {
        // SAFETY: the caller's promise.
        Some(found) => unsafe { put(name, found.as_ptr()) },
        None => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(which: u32, room: usize) -> (CUptiResult, usize, u64) {
        let (mut size, mut value) = (room, 0u64);
        // SAFETY: a place of as many bytes as are named.
        let code = unsafe { cuptiActivityGetAttribute(which, &mut size, (&raw mut value).cast()) };
        (code, size, value)
    }

    #[test]
    fn what_is_kept_for_a_profiler_is_its_process_s_own() {
        let (mut size, mut value) = (8, 77u64);
        // SAFETY: a place of eight bytes.
        let code = unsafe { cuptiActivitySetAttribute(2, &mut size, (&raw mut value).cast()) };
        assert_eq!((code, ask(2, 8)), (CUPTI_SUCCESS, (CUPTI_SUCCESS, 8, 77)));
        // In a test another thread is another process.
        let elsewhere = std::thread::spawn(|| ask(2, 8)).join().expect("no panic");
        assert_eq!(elsewhere, (CUPTI_SUCCESS, 8, 250));
        assert_eq!(ask(9, 1), (CUPTI_SUCCESS, 1, 1));
        assert_eq!(ask(0, 4), (CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT, 8, 0));
        assert_eq!(ask(11, 8).0, CUPTI_ERROR_INVALID_PARAMETER);
    }
}
