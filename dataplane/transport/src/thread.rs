//! Threads in somebody else's process.

// UNSAFETY: pthread_sigmask, pthread_setcancelstate.

use std::io;

/// What to look at where none can be made.
pub const LIMIT: &str = "is there a limit on threads (ulimit -u, the pids of a container)?";

pub fn spawn(name: String, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // glibc takes the thread-local storage of every loaded library out of the stack.
    std::thread::Builder::new().name(name).stack_size(2 << 20).spawn(f).map(drop)
}

/// While it lives the calling thread is not cancelled (`pthread_cancel`). Whoever ends in the midst of a call leaves
/// what he holds, a lock that others wait for, as it is: a release build has nothing that would tidy up.
pub struct Uncancelled(libc::c_int);

impl Uncancelled {
    pub fn hold() -> Uncancelled {
        const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
        let mut before = 0;
        // SAFETY: a place of our own.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: what it was before.
        unsafe { pthread_setcancelstate(self.0, &mut 0) };
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
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
