//! A child forked after `cuInit` has no session: CUDA documents that it may not be used there.

// UNSAFETY: registers a handler with `pthread_atfork`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::state::lock::Guard;
use crate::state::process::state;
use crate::state::session::SESSIONS_MAX;

/// For how long a fork waits until another thread has registered its memory. That may itself wait for the device, and
/// the device for the host function that forks.
const PATIENCE: Duration = Duration::from_secs(2);

type Moved = Option<Guard<'static, BTreeMap<u64, (u64, u64)>>>;

thread_local! {
    /// Held by the thread that forks, from just before until just behind. Has no destructor, so that the child's thread
    /// finds it without allocating.
    static MOVED: Cell<ManuallyDrop<[Moved; SESSIONS_MAX]>> =
        const { Cell::new(ManuallyDrop::new([const { None }; SESSIONS_MAX])) };
}

/// Called when the session exists. A process that forks earlier needs nothing: its child may start its own.
pub fn register_fork_handler() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers touch atomics, thread-locals and locks that the forking thread holds, without
        // allocating, so they may run in the child of a process with threads. glibc unregisters them should this
        // library be unloaded.
        let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        if failed != 0 {
            crate::say!("pthread_atfork failed ({failed}): a forked child that uses CUDA will disturb this one");
        }
    });
}

/// A lock that another thread holds stays locked in the child, and what is under it may be half done.
unsafe extern "C" fn prepare() {
    let mut held = MOVED.take();
    let until = Instant::now() + PATIENCE;
    for (s, held) in state().attachment.all().zip(held.iter_mut()).filter(|_| !state().fork.in_forked_child()) {
        while held.is_none() {
            *held = s.host_memory.moved.try_lock();
            if held.is_some() || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    MOVED.set(held);
}

unsafe extern "C" fn parent() {
    drop(ManuallyDrop::into_inner(MOVED.take()));
}

unsafe extern "C" fn child() {
    let held = ManuallyDrop::into_inner(MOVED.take());
    for (s, moved) in state().attachment.all().zip(&held).filter(|_| !state().fork.in_forked_child()) {
        if let Some(moved) = moved {
            crate::memory::host_memory::in_forked_child(s, moved);
        }
        crate::session::carrier::forget_in_child(s);
    }
    drop(held);
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
