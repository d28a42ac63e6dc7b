//! What a profiler has chosen to see, and to be called back about.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::state::recording::{CALLED_BACK, Chosen, DRIVER, DRIVER_CALLS, HOOKS, RUNTIME, RUNTIME_CALLS, set};

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
