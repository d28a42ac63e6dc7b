//! What CUPTI's users see: calls recorded here, and what the worker's profiler recorded about the GPU.
//!
//! A call that a profiler wants to see has a correlation id from where it enters to where it leaves: a call of the
//! runtime API if cudart reports it, a call of the driver API otherwise. Calls made inside of one are part of it. The
//! first command that such a call sends is preceded by its id, and so the worker's records have it too.

// UNSAFETY: a C ABI of raw pointers; reads structures of cudart's.

mod api_callbacks;
pub mod buffers;
pub mod choice;
mod clock;
pub mod events;
pub mod functions;
pub mod parameters;
mod worker;

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::Timestamp;
use orion_cuda::sys::*;

use crate::activity::buffers::State;

/// What is recorded, as bits; 0 nearly always.
static ON: AtomicU32 = AtomicU32::new(0);
const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;
const EXTERNAL: u32 = 4;
pub const GPU: u32 = 8;
/// Somebody is called back, which is not recorded.
pub const CALLED_BACK: u32 = 16;

/// Whether anything is recorded. All that the driver API pays for profilers while there is none.
#[inline(always)]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

pub fn wants(bit: u32) -> bool {
    ON.load(Ordering::Relaxed) & bit != 0
}

pub fn set(bit: u32, value: bool) {
    if value {
        ON.fetch_or(bit, Ordering::Relaxed);
    } else {
        ON.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Which functions of an API are recorded, by CUPTI's numbers.
pub struct Chosen([AtomicU64; 16]);

static DRIVER_CALLS: Chosen = Chosen::new();
static RUNTIME_CALLS: Chosen = Chosen::new();

impl Chosen {
    const fn new() -> Chosen {
        Chosen([const { AtomicU64::new(0) }; 16])
    }

    fn has(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|w| w.load(Ordering::Relaxed) >> (id % 64) & 1 != 0)
    }

    fn choose(&self, id: u32, value: bool) {
        if let Some(word) = self.0.get(id as usize / 64) {
            if value {
                word.fetch_or(1 << (id % 64), Ordering::Relaxed);
            } else {
                word.fetch_and(!(1 << (id % 64)), Ordering::Relaxed);
            }
        }
    }

    fn choose_all(&self, value: bool) {
        self.0.iter().for_each(|w| w.store(if value { u64::MAX } else { 0 }, Ordering::Relaxed));
    }

    fn any(&self) -> bool {
        self.0.iter().any(|w| w.load(Ordering::Relaxed) != 0)
    }
}

/// The clock of the application's records: its own, or the one CUPTI has otherwise.
static TIMESTAMP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn set_timestamp(callback: Option<Timestamp>) -> bool {
    let new = callback.map_or(std::ptr::null_mut(), |f| f as *mut c_void);
    TIMESTAMP.swap(new, Ordering::SeqCst) != new
}

pub fn now() -> u64 {
    let callback = TIMESTAMP.load(Ordering::Relaxed);
    if callback.is_null() {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid place; this clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
        return time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    }
    // SAFETY: only `set_timestamp` stores here, and only such functions.
    let callback: Timestamp = unsafe { std::mem::transmute(callback) };
    // SAFETY: the application's own function, which takes nothing.
    unsafe { callback() }
}

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM` instead of the default, the pthread's number.
static SYSTEM_THREAD_IDS: AtomicU32 = AtomicU32::new(0);

fn thread_id() -> u32 {
    // SAFETY: neither has conditions.
    unsafe {
        match SYSTEM_THREAD_IDS.load(Ordering::Relaxed) {
            0 => libc::pthread_self() as u32,
            _ => libc::syscall(libc::SYS_gettid) as u32,
        }
    }
}

struct Thread {
    /// The correlation id of the call under way, or 0.
    inside: Cell<u32>,
    /// The same until the worker has been told.
    untold: Cell<u32>,
    /// When the runtime's call under way began.
    began: Cell<u64>,
}

thread_local! {
    // Without a destructor: cudart calls from exit handlers.
    static THREAD: Thread =
        const { Thread { inside: Cell::new(0), untold: Cell::new(0), began: Cell::new(0) } };
    /// What the application says its calls belong to: kind and id.
    static EXTERNAL_IDS: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

static LAST_ID: AtomicU32 = AtomicU32::new(0);

fn begin(t: &Thread) -> u32 {
    let id = loop {
        // 0 is none.
        match LAST_ID.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
            0 => {}
            id => break id,
        }
    };
    t.inside.set(id);
    if wants(GPU) {
        t.untold.set(id);
    }
    id
}

/// A call of the driver API, which is part of another if the thread is inside of one.
pub fn driver_call<P>(cbid: u32, parameters: &P, call: impl FnOnce() -> CUresult) -> CUresult {
    let begun = enter();
    let called_back = wants(CALLED_BACK).then(|| {
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
    THREAD.with(|t| (t.inside.get() == 0).then(|| Begun { id: begin(t), start: now() }))
}

#[inline(never)]
fn exit(cbid: u32, call: Begun, result: CUresult) {
    leave();
    if wants(DRIVER) && DRIVER_CALLS.has(cbid) {
        record(CUPTI_ACTIVITY_KIND_DRIVER, cbid, call.id, call.start, result);
    }
    State::get().collect_if_due();
}

fn leave() {
    THREAD.with(|t| {
        t.inside.set(0);
        t.untold.set(0);
    });
}

fn record(kind: u32, cbid: u32, id: u32, start: u64, result: u32) {
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
    if wants(EXTERNAL) {
        // Fails only while the thread ends.
        let _ = EXTERNAL_IDS.try_with(|ids| ids.borrow().iter().for_each(|(k, id)| external[*k as usize] = Some(*id)));
    }
    State::get().push(&call, external.iter().enumerate().filter_map(|(kind, id)| Some((kind as u32, (*id)?))));
}

fn push_external(kind: u32, id: u64) {
    // Fails only while the thread ends.
    let _ = EXTERNAL_IDS.try_with(|ids| ids.borrow_mut().push((kind, id)));
}

fn pop_external(kind: u32) -> Option<u64> {
    let popped = EXTERNAL_IDS.try_with(|ids| {
        let mut ids = ids.borrow_mut();
        let at = ids.iter().rposition(|(k, _)| *k == kind)?;
        Some(ids.remove(at).1)
    });
    popped.ok().flatten()
}

/// The id that the worker has to hear of before what this thread sends next.
#[cold]
#[inline(never)]
pub fn take_untold() -> Option<u32> {
    THREAD.with(|t| Some(t.untold.replace(0)).filter(|id| *id != 0))
}

/// The session exists: what was asked for before it did.
pub fn session_started() {
    if wants(GPU) {
        buffers::lock(&State::get().gpu).session_started();
    }
}

/// Nothing is recorded in a forked child until it asks for it.
extern "C" fn in_child() {
    ON.store(0, Ordering::Relaxed);
    DRIVER_CALLS.choose_all(false);
    RUNTIME_CALLS.choose_all(false);
    choice::choose_no_callback();
    HOOKS.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    leave();
    State::forget();
}

fn register_fork_handler() {
    static REGISTERED: std::sync::Once = std::sync::Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler stores to statics and thread-locals without destructors.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            crate::say!("pthread_atfork failed ({failed}): a forked child will go on recording");
        }
    });
}

/// For each function of the runtime API whether a profiler wants to see it. cudart reads one on every call.
pub static HOOKS: [AtomicU32; 2048] = [const { AtomicU32::new(0) }; 2048];

/// What cudart says about a call of it, before and after, as seen in cudart 12 and 13.
#[repr(C)]
pub struct RuntimeCall {
    size: u32,
    context_id: u64,
    stream_id: u64,
    reserved: u64,
    /// One word for whoever looks, from enter to exit.
    scratch: *mut u64,
    result: *const u32,
    name: *const c_char,
    parameters: *const c_void,
    context: CUcontext,
    stream: CUstream,
    cbid: u32,
    leaving: u32,
}

const _: () = assert!(std::mem::offset_of!(RuntimeCall, scratch) == 0x20);
const _: () = assert!(std::mem::offset_of!(RuntimeCall, leaving) == 0x54);

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
            let outermost = on() && t.inside.get() == 0;
            let id = if outermost { begin(t) } else { 0 };
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
        if wants(RUNTIME) && RUNTIME_CALLS.has(cbid) {
            // SAFETY: null or cudart's place for the result, which is there by now.
            let result = if call.result.is_null() { 0 } else { unsafe { call.result.read() } };
            record(CUPTI_ACTIVITY_KIND_RUNTIME, cbid, id, t.began.get(), result);
        }
        State::get().collect_if_due();
    });
}
