//! Threads as the session numbers them.

// UNSAFETY: has the C library call a function of ours when a thread ends.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::record::THREADS_MAX;

use crate::state::ahead::Ahead;
use crate::state::process::state;
use crate::state::session::Session;

/// Has no destructor, so that it can be used to the very end: cudart unloads its libraries from an exit handler,
/// after the thread's destructors have run.
pub struct Thread {
    slot: Cell<u16>,
    pub sequence: Cell<u64>,
    /// Freed by [`thread_ended`].
    pub buffer: Cell<ManuallyDrop<Vec<u8>>>,
    pub ahead: Ahead,
    /// The sequence with which this thread began: answers up to it were another's, who had the slot.
    pub first: Cell<u64>,
    /// A stream this thread has seen idle, the context that was current, and how many records had been sent then.
    synchronized: Cell<(u64, u64, u64)>,
}

pub const NO_SLOT: u16 = u16::MAX;

thread_local! {
    pub static THREAD: Thread = const {
        Thread {
            slot: Cell::new(NO_SLOT),
            sequence: Cell::new(0),
            buffer: Cell::new(ManuallyDrop::new(Vec::new())),
            ahead: Ahead::new(),
            first: Cell::new(0),
            synchronized: Cell::new((0, 0, 0)),
        }
    };
}

/// Has `thread_ended` called when the calling thread ends: after the destructors of its variables, which may still call
/// CUDA, and once more after any other destructor that does.
fn expect_end(slot: u16) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a valid place; the function stays, because this library is never unloaded.
        (unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) } == 0).then_some(key)
    });
    // Where there is no key left the slot is simply not given back.
    if let Some(key) = key {
        // SAFETY: a key of our own; 0 would mean that there is nothing to end.
        unsafe { libc::pthread_setspecific(*key, std::ptr::without_provenance(slot as usize + 1)) };
    }
}

/// Gives a thread's slot back.
unsafe extern "C" fn thread_ended(slot: *mut libc::c_void) {
    let slot = (slot.addr() - 1) as u16;
    let last = THREAD.with(|t| {
        drop(ManuallyDrop::into_inner(t.buffer.take()));
        t.ahead.end();
        t.slot.set(NO_SLOT);
        t.sequence.get()
    });
    {
        let mut sequences = state().threads.slot_sequences.lock();
        let index = slot as usize;
        if sequences.len() <= index {
            sequences.resize(index + 1, 0);
        }
        sequences[index] = last;
    }
    state().threads.free_slots.lock().1.push(slot);
}

/// This thread's number in the session; [`NO_SLOT`] if more threads use CUDA at once than a session numbers.
pub fn thread_slot() -> u16 {
    THREAD.with(|t| {
        if t.slot.get() == NO_SLOT {
            let slot = {
                let mut free = state().threads.free_slots.lock();
                match free.1.pop() {
                    Some(slot) => slot,
                    None if free.0 == THREADS_MAX => return NO_SLOT,
                    None => {
                        free.0 += 1;
                        free.0 - 1
                    }
                }
            };
            let sequences = state().threads.slot_sequences.lock();
            t.sequence.set(sequences.get(slot as usize).copied().unwrap_or(0));
            drop(sequences);
            t.first.set(t.sequence.get());
            t.slot.set(slot);
            expect_end(slot);
        }
        t.slot.get()
    })
}

#[cold]
pub fn too_many_threads() -> CUresult {
    let text =
        format!("more than {THREADS_MAX} threads of this process use CUDA at once: end some, or let them take turns");
    crate::say!("{text}");
    crate::report::log::error("", &text);
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Remembers that `stream` was seen idle by the command with index `sent`.
pub fn note_synchronized(stream: u64, sent: u64) {
    THREAD.with(|t| t.synchronized.set((stream, crate::state::context::current(), sent)));
}

/// Whether `stream` is known to be idle: it was seen so, and nothing has been sent since. The default streams are
/// another context's own.
pub fn known_synchronized(s: &Session, stream: u64) -> bool {
    let now = (stream, crate::state::context::current(), s.sent.load(Ordering::Relaxed));
    THREAD.with(|t| t.synchronized.get()) == now
}
