//! The subscriber, and what it is called back for: the beginning and the end of contexts.

// UNSAFETY: calls the application's function with its own word.

use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::{Callback, Subscriber};
use orion_cuda::sys::*;

struct Subscribed {
    callback: Callback,
    user: *mut c_void,
}

/// Never freed: somebody may be calling it while it goes. No lock, so that a forked child finds none held.
static SUBSCRIBER: AtomicPtr<Subscribed> = AtomicPtr::new(std::ptr::null_mut());
/// CUPTI's numbers of the events that call back, as bits.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Nothing if there is one already.
pub fn subscribe(callback: Callback, user: *mut c_void) -> Option<Subscriber> {
    let new = Box::into_raw(Box::new(Subscribed { callback, user }));
    match SUBSCRIBER.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed) {
        Ok(_) => {
            register_exit_handler();
            Some(new.cast())
        }
        Err(_) => {
            // SAFETY: just made, and seen by nobody.
            drop(unsafe { Box::from_raw(new) });
            None
        }
    }
}

pub fn is_subscriber(subscriber: Subscriber) -> bool {
    !subscriber.is_null() && SUBSCRIBER.load(Ordering::Relaxed) == subscriber.cast()
}

pub fn unsubscribe() {
    choose_none();
    SUBSCRIBER.store(std::ptr::null_mut(), Ordering::Release);
}

pub fn happens(id: u32) -> bool {
    matches!(id, CUPTI_CBID_RESOURCE_CONTEXT_CREATED | CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING)
}

pub fn choose(id: u32, value: bool) {
    if value {
        CHOSEN.fetch_or(1 << id, Ordering::Relaxed);
    } else {
        CHOSEN.fetch_and(!(1 << id), Ordering::Relaxed);
    }
}

pub fn choose_none() {
    CHOSEN.store(0, Ordering::Relaxed);
}

/// The runtime ends its contexts from an exit handler, when the subscriber's own objects may be gone.
fn register_exit_handler() {
    static REGISTERED: Once = Once::new();
    extern "C" fn at_exit() {
        choose_none();
    }
    REGISTERED.call_once(|| {
        // SAFETY: the handler stores to one static.
        unsafe { libc::atexit(at_exit) };
    });
}

/// The caller holds no lock.
pub fn context_created(context: CUcontext) {
    happened(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, context);
}

/// It still answers.
pub fn context_ends(context: CUcontext) {
    happened(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context);
}

fn happened(id: u32, context: CUcontext) {
    if CHOSEN.load(Ordering::Relaxed) & 1 << id == 0 {
        return;
    }
    // SAFETY: null or never freed.
    let Some(Subscribed { callback, user }) = (unsafe { SUBSCRIBER.load(Ordering::Acquire).as_ref() }) else { return };
    let data = CUpti_ResourceData { context, stream: std::ptr::null_mut(), resourceDescriptor: std::ptr::null_mut() };
    // SAFETY: the application's own function, with its own word.
    unsafe { callback(*user, CUPTI_CB_DOMAIN_RESOURCE, id, (&raw const data).cast()) };
}
