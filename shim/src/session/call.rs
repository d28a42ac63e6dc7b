//! Posting and calling: one record to the worker, and perhaps one back.
//!
//! All threads of the process share one command ring, so their commands have one order. The lock around it is
//! this process's own: a peer cannot hold it.

// UNSAFETY: writes records straight into the ring.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orion_cuda::sys::*;
use orion_ring::{Corrupt, Spin};
use orion_transport::thread::Uncancelled;
use orion_wire::message::activity::ActivityCorrelation;
use orion_wire::message::carrier::{HeapWritten, Ping};
use orion_wire::message::field::Rest;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, RECORD_BYTES_MAX, op};
use orion_wire::{Fault, Reader, Writer};

use crate::session::attached::session;
use crate::session::lost::{SESSION_LOST, broken};
use crate::session::poison;
use crate::session::reply::{Ticket, read_what_has_come, wait};
use crate::session::thread::{NO_SLOT, THREAD, thread_slot, too_many_threads};
use crate::state::process::state;
use crate::state::session::Session;

/// Sends a command whose answer nobody needs. A failure surfaces on a later call of the current context.
pub fn post(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    post_sealed(op, encode, |_| ())
}

/// As [`post`], but awaited in a thread without a current context: there is none on which a failure could surface.
pub fn give(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    match crate::state::context::current() {
        0 => call(op, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS),
        _ => post(op, encode),
    }
}

/// As [`post`], for a command that gives something away: `Err` if it was not sent, and `Ok` with the result if it was.
pub fn try_post(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> Result<CUresult, CUresult> {
    try_post_sealed(op, encode, |_| ())
}

/// As [`post`]. `seal` learns which of this process's commands it is, as a carried session's worker counts them, just
/// before the worker can see it and while nobody else can send.
pub fn post_sealed(op: u16, encode: impl FnOnce(&mut Vec<u8>), seal: impl FnOnce(u64)) -> CUresult {
    try_post_sealed(op, encode, seal).unwrap_or_else(|code| code)
}

fn try_post_sealed(op: u16, encode: impl FnOnce(&mut Vec<u8>), seal: impl FnOnce(u64)) -> Result<CUresult, CUresult> {
    let s = session()?;
    let context = crate::state::context::current();
    if let Some(code) = poison::of(context) {
        return Err(code);
    }
    send(s, op, context, 0, encode, seal)?;
    // What carriers and callbacks say to the worker is not the application's work.
    Ok(if op >= op::HAND_FIRST { settle() } else { CUDA_SUCCESS })
}

/// False in a thread beyond as many as a process may have: nothing that it sends goes out.
pub fn may_send() -> bool {
    thread_slot() != NO_SLOT
}

/// As [`post`], also before `cuInit` has succeeded.
pub fn post_to(s: &'static Session, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    send(s, op, 0, 0, encode, |_| ()).err().unwrap_or(CUDA_SUCCESS)
}

/// Has a carrier bring a range of the heap over, if `still` holds while nobody else can send. Answers that.
pub fn post_range(s: &'static Session, range: HeapRange, still: impl FnOnce() -> bool) -> Result<bool, CUresult> {
    let mut held = false;
    send_with(s, HeapWritten::OP, 0, 0, 16, |at| {
        held = still();
        let range = if held { range } else { HeapRange::default() };
        // SAFETY: `send_with` gives sixteen writable bytes, which a range has.
        HeapWritten { range: range.into() }.encode(&mut unsafe { InPlace::at(at) });
    })?;
    Ok(held)
}

/// Writes a message where it lies in the ring.
pub struct InPlace(*mut u8);

impl InPlace {
    /// # Safety
    /// All that is written has room there.
    pub unsafe fn at(at: *mut u8) -> InPlace {
        InPlace(at)
    }
}

impl Writer for InPlace {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        // SAFETY: whoever made this promised room.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len());
            self.0 = self.0.add(bytes.len());
        }
    }
}

/// Sends a command and waits for its reply. `decode` sees the reply's body if the result is `CUDA_SUCCESS`.
pub fn call<T>(
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, CUresult> {
    call_to(session()?, op, encode, decode)
}

/// As [`call`], of a session that may be another than the current context's: a thread of the shim's has no context.
pub fn call_to<T>(
    s: &'static Session,
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, CUresult> {
    let ticket = start(s, op, encode)?;
    let reply = wait(s, ticket)?;
    if reply.result != CUDA_SUCCESS {
        return Err(reply.result);
    }
    decode(&mut Reader::new(&reply.body)).map_err(|fault| broken(fault.0))
}

/// As [`call`], for functions whose reply has a body with other results too.
pub fn call_any<T>(
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    decode: impl FnOnce(CUresult, &mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, CUresult> {
    let s = session()?;
    let ticket = start(s, op, encode)?;
    let reply = wait(s, ticket)?;
    decode(reply.result, &mut Reader::new(&reply.body)).map_err(|fault| broken(fault.0))
}

/// Sends a command without waiting; [`wait`] has to be called by the same thread.
pub fn start(s: &'static Session, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> Result<Ticket, CUresult> {
    start_sealed(s, op, encode, |_| ())
}

/// As [`start`], with what [`post_sealed`] does.
pub fn start_sealed(
    s: &'static Session,
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
    seal: impl FnOnce(u64),
) -> Result<Ticket, CUresult> {
    if let Some(code) = poison::of(crate::state::context::current())
        && poison::stops(op)
    {
        return Err(code);
    }
    let sequence = next_sequence();
    let sent = send(s, op, crate::state::context::current(), sequence, encode, seal)?;
    Ok(Ticket { sequence, sent, op })
}

/// As [`start`], with a body of `len` bytes (a multiple of 8) that `fill` writes in place.
pub fn start_with(s: &'static Session, op: u16, len: usize, fill: impl FnOnce(*mut u8)) -> Result<Ticket, CUresult> {
    let sequence = next_sequence();
    let sent = send_with(s, op, crate::state::context::current(), sequence, len, fill)?;
    Ok(Ticket { sequence, sent, op })
}

fn next_sequence() -> u64 {
    // A slot that another thread had goes on where that one stopped, whose last reply may still be to come.
    thread_slot();
    THREAD.with(|t| {
        t.sequence.set(t.sequence.get() + 1);
        t.sequence.get()
    })
}

/// Encodes into the thread's buffer and sends. Answers the index of the command.
fn send(
    s: &'static Session,
    op: u16,
    context: u64,
    sequence: u64,
    encode: impl FnOnce(&mut Vec<u8>),
    seal: impl FnOnce(u64),
) -> Result<u64, CUresult> {
    THREAD.with(|t| {
        // Taken, not borrowed: what goes wrong below is told to callbacks of the application's, which may call CUDA.
        let mut buffer = t.buffer.take();
        buffer.clear();
        encode(&mut buffer);
        let body: &[u8] = &buffer;
        let sent = send_with(s, op, context, sequence, body.len(), |at| {
            // SAFETY: `send_with` gives `body.len()` writable bytes.
            unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), at, body.len()) };
            // Counted below, under the same lock.
            seal(s.commands.load(Ordering::Relaxed) + 1);
        });
        drop(ManuallyDrop::into_inner(t.buffer.replace(buffer)));
        sent
    })
}

/// What the application's commands leave free in the ring.
const SPARE_BYTES: usize = 16 << 10;
/// As above where a host function may have changed memory that kernels use in place, and each side has a copy of it:
/// then what it changed goes into the ring ahead of word of its end.
const SPARE_FOR_CHANGES_BYTES: usize = 1 << 20;

fn spare(s: &Session) -> usize {
    let may_change = s.pages.must_bring() && state().callbacks.may_run() && s.in_step.any();
    if may_change { SPARE_FOR_CHANGES_BYTES } else { SPARE_BYTES }
}

/// Tells the worker which of the application's calls the next command belongs to, if it does not know.
#[cold]
#[inline(never)]
fn name_call(s: &'static Session, op: u16) -> Result<(), CUresult> {
    if op >= op::HAND_FIRST
        && let Some(id) = crate::state::recording::take_untold()
    {
        send_with(s, ActivityCorrelation::OP, 0, 0, 8, |at| {
            // SAFETY: `send_with` gives eight writable bytes, which a number has.
            ActivityCorrelation { id }.encode(&mut unsafe { InPlace::at(at) });
        })?;
    }
    Ok(())
}

/// Sends a record whose body of `len` bytes (a multiple of 8) `fill` writes in place.
pub fn send_with(
    s: &'static Session,
    op: u16,
    context: u64,
    sequence: u64,
    len: usize,
    fill: impl FnOnce(*mut u8),
) -> Result<u64, CUresult> {
    if state().recording.on() {
        name_call(s, op)?;
    }
    let size = HEADER_BYTES + len;
    if size > RECORD_BYTES_MAX {
        let name = orion_wire::generated::ops::find(op).map_or("", |o| o.name);
        let text = format!("a command of {size} bytes exceeds the limit of {RECORD_BYTES_MAX}");
        crate::say!("{text} (operation {op:#x})");
        crate::report::log::error(name, &text);
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    debug_assert!(len.is_multiple_of(8));
    let thread = thread_slot();
    if thread == NO_SLOT {
        return Err(too_many_threads());
    }
    let header = Header { size: size as u32, op, thread, context, sequence }.encode();
    // Word of a host function's end must get by when the GPU's queue and the ring are full of what waits for it.
    let room = if op >= op::HAND_FIRST { size + spare(s) } else { size };
    let mut producer = s.sender.lock();
    let at = loop {
        match producer.reserve(room) {
            Ok(Some(at)) => break at,
            Ok(None) => {
                let _whole = Uncancelled::hold();
                if crate::session::carrier::lost(s) {
                    return Err(SESSION_LOST);
                }
                let spin = Spin::adaptive(Duration::from_micros(200));
                let there = producer.wait_room(room, spin, Duration::from_millis(5));
                let Ok(there) = there else {
                    drop(producer);
                    return Err(broken("ring"));
                };
                if !there {
                    drop(producer);
                    read_what_has_come(s)?;
                    // The lock is not fair: somebody who sleeps for it needs a moment to wake up.
                    std::thread::sleep(Duration::from_micros(50));
                    producer = s.sender.lock();
                }
            }
            Err(Corrupt) => {
                // What is logged about it calls the application back, which may send.
                drop(producer);
                return Err(broken("command ring positions are impossible"));
            }
        }
    };
    // SAFETY: `reserve` gave `size` writable bytes that the consumer does not read before `commit`.
    unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), at, HEADER_BYTES) };
    // SAFETY: inside the same reservation.
    fill(unsafe { at.add(HEADER_BYTES) });
    producer.commit(size);
    if s.pages.must_bring() && op != op::HEAP_WRITTEN {
        // Under the lock, so both only grow.
        let commands = s.commands.load(Ordering::Relaxed) + 1;
        s.commands.store(commands, Ordering::Relaxed);
        if op >= op::HAND_FIRST {
            s.last_work.store(commands, Ordering::Relaxed);
            s.in_step.work_sent();
        }
    }
    // Counted under the ring's lock, so no other thread writes it meanwhile: a locked addition would cost 20 cycles.
    let sent = s.sent.load(Ordering::Relaxed) + 1;
    s.sent.store(sent, Ordering::Relaxed);
    drop(producer);
    Ok(sent)
}

/// After a posted command: while captures are open, what the driver made of it is this call's result, because a
/// capture's errors are reported where they are made. Otherwise nothing is asked.
#[inline]
pub fn settle() -> CUresult {
    if !state().captures.any_open() {
        return CUDA_SUCCESS;
    }
    // The worker answers any call with the failure of an earlier posted command, if there is one.
    call(Ping::OP, |w| Ping { padding: Rest(&[]) }.encode(w), |_| Ok(())).err().unwrap_or(CUDA_SUCCESS)
}
