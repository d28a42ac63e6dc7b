//! What a profiler wants to see, and the call under way in each thread.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::Callback;
use orion_cuda::sys::{*, CUcontext};

pub struct Subscribed {
    callback: Callback,
    user: *mut c_void,
}

/// Never freed: somebody may be calling it while it goes. No lock, so that a forked child finds none held.
pub static SUBSCRIBER: AtomicPtr<Subscribed> = AtomicPtr::new(std::ptr::null_mut());

/// Functions whose calls call the subscriber back.
pub static DRIVER_CALLBACKS: Chosen = Chosen::new();
pub static RUNTIME_CALLBACKS: Chosen = Chosen::new();
/// CUPTI's numbers of the events of contexts, streams and graphs that call back, as bits.
static RESOURCES: AtomicU32 = AtomicU32::new(0);

/// After the choice has changed.
pub fn choice_changed() {
    set(DRIVER, DRIVER_CALLS.any());
    let runtime = RUNTIME_CALLS.any();
    set(RUNTIME, runtime);
    // All of them: what a call does inside belongs to it, recorded or not.
    let hooked = runtime || RUNTIME_CALLBACKS.any();
    HOOKS.iter().for_each(|word| word.store(hooked as u32, Ordering::Relaxed));
    set(CALLED_BACK, DRIVER_CALLBACKS.any() || RUNTIME_CALLBACKS.any() || any_resource());
}

pub fn choose_no_callback() {
    DRIVER_CALLBACKS.choose_all(false);
    RUNTIME_CALLBACKS.choose_all(false);
}

pub fn any_resource() -> bool {
    RESOURCES.load(Ordering::Relaxed) != 0
}

pub fn has_resource(id: u32) -> bool {
    RESOURCES.load(Ordering::Relaxed) & 1 << id != 0
}

pub fn choose_resource(id: u32, value: bool) {
    if value {
        RESOURCES.fetch_or(1 << id, Ordering::Relaxed);
    } else {
        RESOURCES.fetch_and(!(1 << id), Ordering::Relaxed);
    }
}

pub fn choose_no_resource() {
    RESOURCES.store(0, Ordering::Relaxed);
}

/// The clock of the application's records: its own, or the one CUPTI has otherwise.
pub static TIMESTAMP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM` instead of the default, the pthread's number.
pub static SYSTEM_THREAD_IDS: AtomicU32 = AtomicU32::new(0);

/// What is recorded, as bits; 0 nearly always.
pub static ON: AtomicU32 = AtomicU32::new(0);
pub const DRIVER: u32 = 1;
pub const RUNTIME: u32 = 2;
pub const EXTERNAL: u32 = 4;
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

pub static DRIVER_CALLS: Chosen = Chosen::new();
pub static RUNTIME_CALLS: Chosen = Chosen::new();

impl Chosen {
    pub const fn new() -> Chosen {
        Chosen([const { AtomicU64::new(0) }; 16])
    }

    pub fn has(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|w| w.load(Ordering::Relaxed) >> (id % 64) & 1 != 0)
    }

    pub fn choose(&self, id: u32, value: bool) {
        if let Some(word) = self.0.get(id as usize / 64) {
            if value {
                word.fetch_or(1 << (id % 64), Ordering::Relaxed);
            } else {
                word.fetch_and(!(1 << (id % 64)), Ordering::Relaxed);
            }
        }
    }

    pub fn choose_all(&self, value: bool) {
        self.0.iter().for_each(|w| w.store(if value { u64::MAX } else { 0 }, Ordering::Relaxed));
    }

    pub fn any(&self) -> bool {
        self.0.iter().any(|w| w.load(Ordering::Relaxed) != 0)
    }
}

pub struct Thread {
    /// The correlation id of the call under way, or 0.
    pub inside: Cell<u32>,
    /// The same until the worker has been told.
    untold: Cell<u32>,
    /// When the runtime's call under way began.
    pub began: Cell<u64>,
}

thread_local! {
    // Without a destructor: cudart calls from exit handlers.
    pub static THREAD: Thread =
        const { Thread { inside: Cell::new(0), untold: Cell::new(0), began: Cell::new(0) } };
    /// What the application says its calls belong to: kind and id.
    pub static EXTERNAL_IDS: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

static LAST_ID: AtomicU32 = AtomicU32::new(0);

pub fn begin(t: &Thread) -> u32 {
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

pub fn leave() {
    THREAD.with(|t| {
        t.inside.set(0);
        t.untold.set(0);
    });
}

/// The id that the worker has to hear of before what this thread sends next.
#[cold]
#[inline(never)]
pub fn take_untold() -> Option<u32> {
    THREAD.with(|t| Some(t.untold.replace(0)).filter(|id| *id != 0))
}

/// For each function of the runtime API whether a profiler wants to see it. cudart reads one on every call.
pub static HOOKS: [AtomicU32; 2048] = [const { AtomicU32::new(0) }; 2048];

/// Who wants to know of contexts that begin and end.
static TOLD_OF_CONTEXTS: OnceLock<fn(CUcontext, bool)> = OnceLock::new();

pub fn tell_of_contexts(told: fn(CUcontext, bool)) {
    TOLD_OF_CONTEXTS.get_or_init(|| told);
}

/// A context has been created.
pub fn context_created(context: CUcontext) {
    if let Some(told) = TOLD_OF_CONTEXTS.get() {
        told(context, true);
    }
}

/// A context is about to end.
pub fn context_ends(context: CUcontext) {
    if let Some(told) = TOLD_OF_CONTEXTS.get() {
        told(context, false);
    }
}
