//! Sleeping until a word changes.

// UNSAFETY: writes records straight into the ring, and waits on futexes.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let ts = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos() as i64 };
    // SAFETY: a valid word and timespec; every error means "look again".
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, &ts) };
}

pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address as a key only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}
