//! The clock of the application's records, and the number of its threads.

// UNSAFETY: calls the application's clock.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::cupti_table::Timestamp;

use crate::state::process::state;

pub fn set_timestamp(callback: Option<Timestamp>) -> bool {
    let new = callback.map_or(std::ptr::null_mut(), |f| f as *mut c_void);
    state().recording.timestamp.swap(new, Ordering::SeqCst) != new
}

pub fn now() -> u64 {
    let callback = state().recording.timestamp.load(Ordering::Relaxed);
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

pub fn thread_id() -> u32 {
    // SAFETY: neither has conditions.
    unsafe {
        match state().recording.system_thread_ids.load(Ordering::Relaxed) {
            0 => libc::pthread_self() as u32,
            _ => libc::syscall(libc::SYS_gettid) as u32,
        }
    }
}
