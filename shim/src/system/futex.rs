//! Sleeping until a word changes.

// UNSAFETY: waits on futexes.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Returns when woken, when the word is not what was seen, when the time is over, or for no reason.
pub fn futex_wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let time = |t: Duration| libc::timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos() as i64 };
    let time = timeout.map(time);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a valid word, and no time or a valid one; every error means "look again".
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, time) };
}

/// Wakes one thread.
pub fn futex_wake(word: &AtomicU32) {
    wake(word, 1);
}

pub fn futex_wake_all(word: &AtomicU32) {
    wake(word, i32::MAX);
}

fn wake(word: &AtomicU32, threads: i32) {
    // SAFETY: FUTEX_WAKE uses the address as a key only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, threads) };
}
