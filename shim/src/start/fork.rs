//! A child forked after `cuInit` has no session: CUDA documents that it may not be used there.

// UNSAFETY: registers a handler with `pthread_atfork`.

use std::sync::Once;
use std::sync::atomic::Ordering;

use crate::state::process::state;

/// Called when the session exists. A process that forks earlier needs nothing: its child may start its own.
pub fn register_fork_handler() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler touches one atomic and one thread-local without allocating, so it may run in the
        // child of a process with threads. glibc unregisters it should this library be unloaded.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        if failed != 0 {
            crate::say!("pthread_atfork failed ({failed}): a forked child that uses CUDA will disturb this one");
        }
    });
}

unsafe extern "C" fn child() {
    let initialized = state().attachment.initialized.load(Ordering::Acquire);
    for s in state().attachment.all().filter(|_| !state().fork.in_forked_child()) {
        if initialized && !state().callbacks.in_callback() {
            crate::memory::host_memory::in_forked_child(s);
        }
        crate::session::carrier::forget_in_child(s);
    }
    state().fork.forked.store(true, Ordering::Relaxed);
    // The hottest calls look at the context stack only; an empty one sends them the way that asks for the session.
    crate::state::context::forget_stack();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_child_is_marked() {
        register_fork_handler();
        // SAFETY: the child only reads an atomic and leaves.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(state().fork.in_forked_child() as i32);
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            status
        };
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(!state().fork.in_forked_child());
    }
}
