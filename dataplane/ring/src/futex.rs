//! Sleeping until a word changes, and waking who sleeps there.

// UNSAFETY: waits on futexes.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Who may be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// Threads of this process. The kernel finds them quicker.
    Threads,
    /// Whoever has mapped the page, in whichever process.
    Processes,
}

/// Returns when woken, when the word is not what was seen, when the time is over, or for no reason.
pub fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>, among: Among) {
    let time = |t: Duration| libc::timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos() as i64 };
    let time = timeout.map(time);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a valid word, and no time or a valid one; every error means "look again".
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | among.flag(), seen, time) };
}

/// Wakes one of those who wait.
pub fn wake(word: &AtomicU32, among: Among) {
    wake_some(word, 1, among);
}

pub fn wake_all(word: &AtomicU32, among: Among) {
    wake_some(word, i32::MAX, among);
}

fn wake_some(word: &AtomicU32, sleepers: i32, among: Among) {
    // SAFETY: FUTEX_WAKE uses the address as a key only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | among.flag(), sleepers) };
}

impl Among {
    fn flag(self) -> i32 {
        match self {
            Among::Threads => libc::FUTEX_PRIVATE_FLAG,
            Among::Processes => 0,
        }
    }
}
