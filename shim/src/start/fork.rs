//! A child forked after `cuInit` has no session: CUDA documents that it may not be used there. One that is forked
//! earlier may start its own.

// UNSAFETY: registers a handler with `pthread_atfork`, and maps memory for what its child reads.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::memory::host_memory::MovedRange;
use crate::state::host_memory;
use crate::state::lock::Guard;
use crate::state::process::state;
use crate::state::session::SESSIONS_MAX;

/// For how long a fork waits until another thread has registered its memory. That may itself wait for the device, and
/// the device for the host function that forks.
const PATIENCE: Duration = Duration::from_secs(2);

type Moved = Option<Guard<'static, host_memory::Moved>>;

thread_local! {
    /// Held by the thread that forks, from just before until just behind. Has no destructor, so that the child's thread
    /// finds it without allocating.
    static MOVED: Cell<ManuallyDrop<[Moved; SESSIONS_MAX]>> =
        const { Cell::new(ManuallyDrop::new([const { None }; SESSIONS_MAX])) };
    static RANGES: Cell<Ranges> = const { Cell::new(Ranges::none()) };
}

/// What is under the locks, by session, for the child: where registered memory begins or ends in the middle of a page,
/// that page is the allocator's too, and so still the parent's in the child, whose other threads go on changing it. The
/// map may lie there. This does not: it has pages of its own.
#[derive(Clone, Copy)]
struct Ranges {
    at: *mut MovedRange,
    counts: [usize; SESSIONS_MAX],
}

impl Ranges {
    const fn none() -> Ranges {
        Ranges { at: std::ptr::null_mut(), counts: [0; SESSIONS_MAX] }
    }

    fn bytes(&self) -> usize {
        self.counts.iter().sum::<usize>() * size_of::<MovedRange>()
    }

    fn of(held: &[Moved; SESSIONS_MAX]) -> Ranges {
        let mut ranges = Ranges::none();
        for (count, moved) in ranges.counts.iter_mut().zip(held) {
            *count = moved.as_ref().map_or(0, |moved| moved.len());
        }
        if ranges.bytes() == 0 {
            return ranges;
        }
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), ranges.bytes(), access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            crate::say!("a forked child shares registered memory with this process: there is no memory for their list");
            return Ranges::none();
        }
        ranges.at = at.cast();
        let all = held.iter().flatten().flat_map(|moved| moved.iter());
        for (index, (at, pages)) in all.enumerate() {
            // SAFETY: as many fit as were counted above, under the same locks.
            unsafe { ranges.at.add(index).write(MovedRange { at: *at, range: pages.range }) };
        }
        ranges
    }

    /// Those of each session.
    fn by_session(&self) -> [&[MovedRange]; SESSIONS_MAX] {
        let mut begin = 0;
        self.counts.map(|count| {
            if count == 0 {
                return &[][..];
            }
            begin += count;
            // SAFETY: `of` has written so many.
            unsafe { std::slice::from_raw_parts(self.at.add(begin - count), count) }
        })
    }

    fn free(self) {
        if !self.at.is_null() {
            // SAFETY: mapped by `of`, and nobody reads it any more.
            unsafe { libc::munmap(self.at.cast(), self.bytes()) };
        }
    }
}

/// Called by the loader with this library, before a program that was started with it has handlers of its own. What
/// those do in the child comes behind these, and finds memory of its own; what they wait for before the fork they have
/// when these begin.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = {
    extern "C" fn register() {
        // glibc before 2.24 registers its allocator's handlers when the first memory is asked for. They have to be
        // before these: what is waited for here may be about to allocate.
        // SAFETY: memory of its own, which is looked at by nobody.
        unsafe { libc::free(std::hint::black_box(libc::malloc(1))) };
        // SAFETY: the handlers touch atomics, thread-locals and locks that the forking thread holds, without
        // allocating, so they may run in the child of a process with threads. glibc unregisters them should this
        // library be unloaded.
        let failed = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        if failed != 0 {
            crate::say!("pthread_atfork failed ({failed}): a forked child that uses CUDA will disturb this process");
        }
    }
    register
};

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
        if held.is_none() {
            crate::say!(
                "a forked child shares registered memory with this process: another thread registers for {} s already",
                PATIENCE.as_secs()
            );
        }
    }
    RANGES.set(Ranges::of(&held));
    MOVED.set(held);
}

unsafe extern "C" fn parent() {
    RANGES.replace(Ranges::none()).free();
    drop(ManuallyDrop::into_inner(MOVED.take()));
}

unsafe extern "C" fn child() {
    let ranges = RANGES.replace(Ranges::none());
    for (s, moved) in state().attachment.all().zip(ranges.by_session()).filter(|_| !state().fork.in_forked_child()) {
        crate::memory::host_memory::in_forked_child(s, moved);
        crate::session::carrier::forget_in_child(s);
    }
    ranges.free();
    drop(ManuallyDrop::into_inner(MOVED.take()));
    if !has_begun() {
        return;
    }
    state().fork.forked.store(true, Ordering::Relaxed);
    // The hottest calls look at the context stack only; an empty one sends them the way that asks for the session.
    crate::state::context::forget_stack();
}

/// Whether there is a session, or another thread that is about to have one: it is not here to bring that to an end.
fn has_begun() -> bool {
    let (attachment, facts) = (&state().attachment, &state().devices.facts);
    let is_attaching = attachment.attaching.try_lock().is_none();
    is_attaching || attachment.get(0).is_some() || !facts.load(Ordering::Relaxed).is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_child_is_marked() {
        crate::state::device::fixture::initialise();
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
