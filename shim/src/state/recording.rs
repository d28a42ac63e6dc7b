//! What a profiler wants to see, and the call under way in each thread.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use orion_cuda::cupti_table::Callback;
use orion_cuda::sys::CUcontext;

pub struct Subscribed {
    pub callback: Option<Callback>,
    pub user: *mut c_void,
}

pub struct Recording {
    /// Never freed: somebody may be calling it while it goes. No lock, so that a forked child finds none held.
    pub subscriber: AtomicPtr<Subscribed>,
    /// The last one that `cuptiFinalize` has forgotten.
    pub finalized: AtomicPtr<Subscribed>,
    /// Functions whose calls call the subscriber back.
    pub driver_callbacks: Chosen,
    pub runtime_callbacks: Chosen,
    /// CUPTI's numbers of the events of contexts, streams and graphs that call back, as bits.
    pub resources: AtomicU32,
    /// The clock of the application's records: its own, or the one CUPTI has otherwise.
    pub timestamp: AtomicPtr<c_void>,
    /// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM` instead of the default, the pthread's number.
    pub system_thread_ids: AtomicU32,
    /// What is recorded, as bits; 0 nearly always.
    pub on: AtomicU32,
    pub driver_calls: Chosen,
    pub runtime_calls: Chosen,
    pub last_id: AtomicU32,
    /// For each function of the runtime API whether a profiler wants to see it. cudart reads one on every call.
    pub hooks: [AtomicU32; 2048],
    /// Sizes and numbers of CUPTI's own buffers on a GPU: kept to be asked for again.
    pub attributes: [AtomicU64; 11],
    /// Who wants to know of contexts that begin and end.
    pub told_of_contexts: OnceLock<fn(CUcontext, bool)>,
}

impl Recording {
    pub const fn new() -> Recording {
        Recording {
            finalized: AtomicPtr::new(std::ptr::null_mut()),
            subscriber: AtomicPtr::new(std::ptr::null_mut()),
            driver_callbacks: Chosen::new(),
            runtime_callbacks: Chosen::new(),
            resources: AtomicU32::new(0),
            timestamp: AtomicPtr::new(std::ptr::null_mut()),
            system_thread_ids: AtomicU32::new(0),
            on: AtomicU32::new(0),
            driver_calls: Chosen::new(),
            runtime_calls: Chosen::new(),
            last_id: AtomicU32::new(0),
            hooks: [const { AtomicU32::new(0) }; 2048],
            // What they are until they are set, as documented.
            attributes: [
                AtomicU64::new(3_200_000),
                AtomicU64::new(8 << 20),
                AtomicU64::new(250),
                AtomicU64::new(25_000),
                AtomicU64::new(250),
                AtomicU64::new(0),
                AtomicU64::new(3),
                AtomicU64::new(3),
                AtomicU64::new(0),
                AtomicU64::new(1),
                AtomicU64::new(16 << 20),
            ],
            told_of_contexts: OnceLock::new(),
        }
    }

    /// After the choice has changed.
    pub fn choice_changed(&self) {
        self.set(DRIVER, self.driver_calls.any());
        let runtime = self.runtime_calls.any();
        self.set(RUNTIME, runtime);
        // All of them: what a call does inside belongs to it, recorded or not.
        let hooked = runtime || self.runtime_callbacks.any();
        self.hooks.iter().for_each(|word| word.store(hooked as u32, Ordering::Relaxed));
        self.set(CALLED_BACK, self.driver_callbacks.any() || self.runtime_callbacks.any() || self.any_resource());
    }

    pub fn choose_no_callback(&self) {
        self.driver_callbacks.choose_all(false);
        self.runtime_callbacks.choose_all(false);
    }

    pub fn any_resource(&self) -> bool {
        self.resources.load(Ordering::Relaxed) != 0
    }

    pub fn has_resource(&self, id: u32) -> bool {
        self.resources.load(Ordering::Relaxed) & 1 << id != 0
    }

    pub fn choose_resource(&self, id: u32, value: bool) {
        if value {
            self.resources.fetch_or(1 << id, Ordering::Relaxed);
        } else {
            self.resources.fetch_and(!(1 << id), Ordering::Relaxed);
        }
    }

    pub fn choose_no_resource(&self) {
        self.resources.store(0, Ordering::Relaxed);
    }

    /// Whether anything is recorded. All that the driver API pays for profilers while there is none.
    #[inline(always)]
    pub fn on(&self) -> bool {
        self.on.load(Ordering::Relaxed) != 0
    }

    pub fn wants(&self, bit: u32) -> bool {
        self.on.load(Ordering::Relaxed) & bit != 0
    }

    pub fn set(&self, bit: u32, value: bool) {
        if value {
            self.on.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.on.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub fn begin(&self, t: &Thread) -> u32 {
        let id = loop {
            // 0 is none.
            match self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
                0 => {}
                id => break id,
            }
        };
        t.inside.set(id);
        if self.wants(GPU) {
            t.untold.set(id);
        }
        id
    }

    pub fn tell_of_contexts(&self, told: fn(CUcontext, bool)) {
        self.told_of_contexts.get_or_init(|| told);
    }

    /// A context has been created.
    pub fn context_created(&self, context: CUcontext) {
        if let Some(told) = self.told_of_contexts.get() {
            told(context, true);
        }
    }

    /// A context is about to end.
    pub fn context_ends(&self, context: CUcontext) {
        if let Some(told) = self.told_of_contexts.get() {
            told(context, false);
        }
    }
}

pub const DRIVER: u32 = 1;
pub const RUNTIME: u32 = 2;
pub const EXTERNAL: u32 = 4;
pub const GPU: u32 = 8;
/// Somebody is called back, which is not recorded.
pub const CALLED_BACK: u32 = 16;
/// Nothing is recorded for its sake: calls are looked at, because the process has several sessions.
pub const ROUTED: u32 = 32;

/// Which functions of an API are recorded, by CUPTI's numbers.
pub struct Chosen([AtomicU64; 16]);

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
