//! Threads in somebody else's process.

// UNSAFETY: pthread_sigmask.

use std::io;

pub fn spawn(name: String, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // glibc takes the thread-local storage of every loaded library out of the stack.
    std::thread::Builder::new().name(name).stack_size(2 << 20).spawn(f).map(drop)
}

/// Threads inherit a mask with every signal blocked: the application's handlers expect its own threads.
pub fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: plain calls on local signal sets.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}
