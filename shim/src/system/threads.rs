//! Threads of our own in a process of the application's.

// UNSAFETY: blocks signals for new threads.

/// Starts a thread in which all signals are blocked: the application's handlers expect the application's threads.
pub fn spawn(name: &str, stack_bytes: usize, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.into()).stack_size(stack_bytes);
    // SAFETY: plain calls on local signal sets. The new thread inherits what is blocked while it is made.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let spawned = builder.spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        spawned.map(drop)
    }
}
