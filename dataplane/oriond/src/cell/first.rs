//! What a worker does first.
//!
//! It may be the first process of its pid namespace, too. The kernel keeps such a one from being ended by a signal that
//! it has no handler for, unless it is SIGKILL from outside or a fault of its own code: `abort` would go on to a fault,
//! and SIGTERM would be ignored. So each signal that ends others gets a handler that ends it.

// UNSAFETY: installs signal handlers, and makes a call about the whole process.

use crate::fallen::STATUS;

/// What ends no process, or cannot be handled, or has a handler of its own later.
const LEFT_ALONE: [i32; 10] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGSYS,
];

/// Nobody but root may look into it, and it leaves no core file.
pub fn hide() -> Result<(), String> {
    // SAFETY: a plain call.
    if unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } != 0 {
        return Err(format!("hiding the process failed: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

fn ending() -> impl Iterator<Item = i32> {
    (1..=libc::SIGRTMAX()).filter(|number| !LEFT_ALONE.contains(number))
}

/// Has this process end by the signals that end others, if it needs to be told.
pub fn end_by_signals() {
    // SAFETY: getpid cannot fail.
    if unsafe { libc::getpid() } == 1 {
        ending().for_each(end_by);
    }
}

/// The C library's own two are refused, which is no loss. Who has a handler keeps it: Rust's runtime does for faults,
/// and takes it away when one has come.
fn end_by(number: i32) {
    // SAFETY: valid structures, and a handler that makes one system call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(number, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = end as extern "C" fn(i32) as usize;
            libc::sigaction(number, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn end(number: i32) {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(STATUS + number) }
}

/// The signal that a worker was ended by which exits with this.
pub fn signal_of(status: i32) -> Option<i32> {
    ending().find(|number| STATUS + number == status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_handler_exits_with_is_a_signal() {
        for number in [libc::SIGABRT, libc::SIGTERM, libc::SIGILL, libc::SIGINT, libc::SIGRTMAX()] {
            assert_eq!(signal_of(128 + number), Some(number));
        }
        for status in [0, 1, 101, 128, 128 + libc::SIGKILL, crate::cell::calls::EXIT_STATUS, 255] {
            assert_eq!(signal_of(status), None, "{status}");
        }
    }
}
