//! Host memory that kernels use in place, where client and worker each have pages of their own.
//!
//! What the application changed goes to the worker before every launch and every wait, and while the device has work a
//! thread looks for more. What the device changed comes with the replies that tell of a completion, and while it works
//! whenever the worker sees it. How the copies are compared and merged: `orion_transport::mirror`.
//!
//! Two locks. Whoever sends holds `SENDING` from comparing until the patch is in the command ring, so patches go out in
//! the order in which they were found. `MIRROR` guards what is known and is held only while memory is looked at: the
//! carrier's receiving thread takes it, and must never wait for room in a ring.

// UNSAFETY: tells the system how punctual the thread's sleeps are to be.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use orion_cuda::sys::*;
use orion_ring::Spin;
use orion_ring::futex::{self, Among};
use orion_transport::Mirror;
use orion_transport::mirror::{MIRRORED_BYTES_MAX, Notice, Scope};
use orion_wire::Fault;
use orion_wire::message::host_memory::{MemHostAlloc, Pinned};
use orion_wire::pages::SharedMemory;
use orion_wire::record::{HeapRange, op};

use crate::memory::{parallel_copy, payload, pointers, words};
use crate::session::call::{call_to, may_send, post_to};
use crate::state::address_map::Range;
use crate::state::heap::PAGE;
use crate::state::in_step::IDLE;
use crate::state::lock::Guard;
use crate::state::process::state;
use crate::state::session::Session;
use crate::system::threads::spawn;

/// How often memory is compared while the device works; see the worker's constants of the same names.
const INTERVAL_MIN: Duration = Duration::from_micros(20);
const INTERVAL_MAX: Duration = Duration::from_millis(1);

/// Of so many bytes it pays to look through them by several threads first.
const MANY: usize = 1 << 20;

fn lock_to_receive(s: &'static Session) -> Guard<'static, Mirror> {
    s.in_step.receiving.fetch_add(1, Ordering::SeqCst);
    let mirror = lock(s);
    s.in_step.receiving.fetch_sub(1, Ordering::SeqCst);
    mirror
}

fn lock(s: &'static Session) -> Guard<'static, Mirror> {
    s.in_step.mirror.lock()
}

fn count(s: &Session, mirror: &Mirror) {
    s.in_step.mirrored_count.store(mirror.len(), Ordering::Release);
}

/// The pages of a pinned or registered allocation.
fn in_heap(entry: &Range) -> HeapRange {
    if entry.moved.bytes != 0 {
        return entry.moved;
    }
    HeapRange { offset: entry.owner, bytes: (entry.base % PAGE + entry.bytes).next_multiple_of(PAGE) }
}

/// From now on changes of an allocation reach kernels, and theirs reach the application. False if they did before.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if that is more than can be kept in step.
fn mirror(s: &'static Session, entry: &Range) -> Result<bool, CUresult> {
    let range = in_heap(entry);
    if lock(s).has(range) {
        return Ok(false);
    }
    // What copies are still writing to it in the worker has to be here first: all of it is announced below. Nothing
    // else is waited for: a kernel that runs may be waiting for this very thread.
    let request = |request| MemHostAlloc { request, range: range.into() };
    call_to(s, MemHostAlloc::OP, |w| request(Pinned::Copied).encode(w), |_| Ok(()))?;
    let _in_order = s.in_step.sending.lock();
    {
        let mut mirror = lock(s);
        if mirror.has(range) {
            return Ok(false);
        }
        let total = range.bytes + mirror.bytes();
        if total > MIRRORED_BYTES_MAX {
            crate::say!(
                "{total} bytes of host memory are mapped into kernels; over the network at most \
                 {MIRRORED_BYTES_MAX} can be kept in step (use copies, or run on the GPU's own host)"
            );
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        mirror.know_holes(s.holes);
        mirror.add(&s.heap, range).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        count(s, &mirror);
    }
    payload::announce(s, range);
    let code = post_to(s, MemHostAlloc::OP, |w| request(Pinned::Mapped).encode(w));
    if code != CUDA_SUCCESS {
        forget_mirrored(s, range);
        return Err(code);
    }
    start_looking(s);
    Ok(true)
}

pub fn forget_mirrored(s: &'static Session, range: HeapRange) {
    if s.in_step.mirrored_count.load(Ordering::Relaxed) != 0 {
        let mut mirror = lock(s);
        mirror.remove(range.offset);
        count(s, &mirror);
    }
}

/// As [`forget_mirrored`], of an allocation that is freed or unregistered.
pub fn freed(s: &'static Session, entry: &Range, range: HeapRange) {
    gone(s, entry, range);
    forget_mirrored(s, range);
}

/// Kernels may know an allocation by its address that is none any more, though its pages may be kept in step for
/// others.
pub fn gone(s: &'static Session, entry: &Range, range: HeapRange) {
    if is_kept_in_step(s, range) {
        let mut gone = s.in_step.gone.lock();
        let (mut first, mut end) = (entry.base, entry.end());
        while let Some((&at, &until)) = gone.range(..=end).next_back().filter(|(_, until)| **until >= first) {
            gone.remove(&at);
            (first, end) = (first.min(at), end.max(until));
        }
        gone.insert(first, end);
    }
}

/// Memory that was asked for as mapped lies where other such memory did: kernels may find it by an address of that.
pub fn allocated(s: &'static Session, entry: Range) {
    let lies_there = || {
        let gone = s.in_step.gone.lock();
        gone.range(..entry.end()).next_back().is_some_and(|(_, until)| *until > entry.base)
    };
    if entry.is_mapped && s.pages.must_bring() && lies_there() {
        // Refused beyond the bound, with a line that says so.
        let _ = follow(s, entry);
    }
}

/// A carrier is about to bring bytes from the worker: they are no change of the application's.
pub fn arriving(s: &'static Session, offset: u64, bytes: u64) {
    s.on_the_way.lands(HeapRange { offset, bytes });
    if s.in_step.mirrored_count.load(Ordering::Acquire) != 0 {
        lock_to_receive(s).arriving(HeapRange { offset, bytes });
    }
}

pub fn arrived(s: &'static Session, offset: u64, bytes: u64) {
    if s.in_step.mirrored_count.load(Ordering::Acquire) != 0 {
        lock_to_receive(s).arrived(&s.heap, HeapRange { offset, bytes });
    }
}

/// Whether some of a range that a carrier brings is kept in step.
pub fn keeps(s: &'static Session, offset: u64, bytes: u64) -> bool {
    s.in_step.mirrored_count.load(Ordering::Acquire) != 0 && lock_to_receive(s).overlaps(HeapRange { offset, bytes })
}

/// Writes what a carrier brings there. The application may see it and change it at once.
pub fn write(s: &'static Session, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    lock_to_receive(s).write(&s.heap, offset, bytes)
}

/// A carrier has bytes that the device changed.
pub fn patch(s: &'static Session, body: &[u8]) -> Result<(), Fault> {
    let notice = lock_to_receive(s).apply(&s.heap, body)?;
    s.in_step.idle_after.fetch_max(notice.idle_after, Ordering::Relaxed);
    if notice.live && s.in_step.eager.load(Ordering::Relaxed) {
        s.in_step.answer.store(true, Ordering::Relaxed);
        s.in_step.wake_if(|why| why != 0);
    }
    Ok(())
}

/// The device is about to read or write shared memory at `address` in place, outside a copy or a kernel. Whatever it
/// writes must not be taken back by content of the client's that is older.
///
/// # Errors
/// As [`note_parameter`].
pub fn before_access(s: &'static Session, address: u64) -> Result<(), CUresult> {
    if s.pages.must_bring() {
        note_parameter(s, address)?;
        before_launch(s);
    }
    Ok(())
}

/// As [`before_access`], of a word that a stream writes or waits for.
///
/// # Errors
/// As [`note_parameter`].
pub fn before_flag(s: &'static Session, address: u64, bytes: u64) -> Result<(), CUresult> {
    if s.pages.must_bring() {
        note_parameter(s, address)?;
        name_flag(s, address, bytes);
        before_launch(s);
    }
    Ok(())
}

/// Has a carrier bring the source of a copy over, but for what an earlier copy writes there. Of mirrored memory only
/// what the application changed: the rest of it the worker has, and perhaps newer, from a kernel.
pub fn announce_source(s: &'static Session, range: HeapRange) {
    if s.in_step.mirrored_count.load(Ordering::Relaxed) != 0 && lock(s).covers(range) {
        send(s, Scope::All);
        return;
    }
    announce_unexpected(s, range);
}

/// As [`announce_source`], of the rows of a copy; `all` is from the first to the last.
pub fn announce_rows(s: &'static Session, all: HeapRange, rows: &[HeapRange]) {
    if s.in_step.mirrored_count.load(Ordering::Relaxed) != 0 && lock(s).covers(all) {
        send(s, Scope::All);
    } else {
        rows.iter().for_each(|row| announce_unexpected(s, *row));
    }
}

/// The one place in which it is decided that bytes of pinned memory go to the worker. Another thread may have something
/// brought there at the same time, so it is looked at again when nobody else can send.
fn announce_unexpected(s: &'static Session, range: HeapRange) {
    if !s.pages.must_bring() {
        return;
    }
    loop {
        let (parts, ever) = s.on_the_way.not_expected(range);
        let still = || s.on_the_way.ever() == ever;
        // What is lost with the session is no loss.
        if parts.into_iter().all(|part| crate::session::call::post_range(s, part, still).unwrap_or(true)) {
            return;
        }
    }
}

/// A copy is about to be made whose destination is `range`: what the application wrote there before goes first, or it
/// would be found later and undo the copy.
pub fn before_overwrite(s: &'static Session, range: HeapRange) {
    if s.in_step.mirrored_count.load(Ordering::Relaxed) != 0 && lock(s).overlaps(range) {
        send(s, Scope::All);
    }
}

/// Whether all of the range is kept in step.
pub fn is_kept_in_step(s: &'static Session, range: HeapRange) -> bool {
    s.in_step.mirrored_count.load(Ordering::Relaxed) != 0 && lock(s).covers(range)
}

/// A graph writes to the range, and what it has written may be looked at before it is over: from now on a mirrored
/// client keeps that memory in step.
pub fn note_written(s: &'static Session, range: HeapRange) {
    if !is_kept_in_step(s, range)
        && let Some(address) = crate::memory::host_memory::address_of(s, range)
    {
        // Beyond the bound there is a line that says so, and the bytes come when all is over.
        let _ = note_parameter(s, address);
    }
}

/// `word` goes to the device, as a parameter or a value: if it points to pinned memory, kernels may use that memory in
/// place, so from now on a mirrored client keeps it in step.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED`, with a line that says so, if that is more than can be kept in step: kernels would read
/// what is not there, and write what nobody sees.
pub fn note_parameter(s: &'static Session, word: u64) -> Result<(), CUresult> {
    pointers::pinned(s, word).map_or(Ok(()), |range| follow(s, range))
}

/// Bytes go to the device, to `to` there. What they point to is kept in step, too.
///
/// # Safety
/// `from` has `bytes` readable bytes.
pub unsafe fn note_bytes(s: &'static Session, to: u64, from: *const u8, bytes: usize) {
    // A host function's thread must not wait for the worker: the device waits for it.
    if !s.pages.must_bring() || state().callbacks.in_callback() {
        return;
    }
    let bounds = state().addresses.mapped_bounds();
    if bounds.1 == 0 {
        return;
    }
    // Many bytes are looked through by several threads, and it is rare that something is found.
    // SAFETY: the caller's promise.
    if bytes >= MANY && to.is_multiple_of(8) && !unsafe { parallel_copy::look(from, bytes, bounds) } {
        return;
    }
    let mut found = Vec::new();
    // SAFETY: the caller's promise.
    unsafe { pointers::look(s, to, from, bytes, &mut found) };
    for range in found {
        // Refused beyond the bound, with a line that says so.
        let _ = follow(s, range);
    }
}

/// Copies bytes that go to the device, to `to` there, and tells whether they have to be noted by [`note_bytes`].
///
/// # Safety
/// As `memcpy`, of `from` to `at`.
pub unsafe fn copy_and_look(s: &'static Session, to: u64, at: *mut u8, from: *const u8, bytes: usize) -> bool {
    let bounds = state().addresses.mapped_bounds();
    if !s.pages.must_bring() || bounds.1 == 0 || !to.is_multiple_of(8) {
        // SAFETY: the caller's promise.
        unsafe { parallel_copy::copy(at, from, bytes) };
        return s.pages.must_bring() && bounds.1 != 0;
    }
    // SAFETY: the caller's promise.
    unsafe { parallel_copy::copy_and_look(at, from, bytes, bounds) }
}

/// As [`note_bytes`], of words that the shim has itself.
pub fn note_words(s: &'static Session, bytes: &[u8]) {
    // SAFETY: a slice.
    unsafe { note_bytes(s, 0, bytes.as_ptr(), bytes.len()) };
}

/// From now on an allocation is kept in step, and with it all that can be reached by the addresses in it.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if that is more than can be kept in step.
pub fn follow(s: &'static Session, range: Range) -> Result<(), CUresult> {
    let is_new = mirror(s, &range)?;
    let mut added = Vec::from_iter(is_new.then_some(range));
    while let Some(range) = added.pop() {
        let whole = in_heap(&range);
        let mut found = Vec::new();
        // What nobody has written to is not read: that would make pages of it.
        let parts = lock(s).seen(whole);
        for part in parts {
            let Some(words) = s.heap.at(part.offset, part.bytes) else { continue };
            // Read in the heap, which stays mapped: another thread may unregister this memory and give it back.
            // SAFETY: the range lies inside the heap.
            unsafe { pointers::look(s, 0, words, part.bytes as usize, &mut found) };
        }
        added.extend(found.into_iter().filter(|range| mirror(s, range) == Ok(true)));
    }
    Ok(())
}

/// Brings the worker what the application changed in memory that kernels may read. One load where there is no
/// such memory.
#[inline]
pub fn before_launch(s: &'static Session) {
    if s.in_step.mirrored_count.load(Ordering::Relaxed) != 0 {
        announce_changes(s);
    }
}

#[cold]
fn announce_changes(s: &'static Session) {
    send(s, Scope::All);
}

/// True if anything had changed. What the application wrote may be an address that kernels follow.
fn send(s: &'static Session, scope: Scope) -> bool {
    let any = send_changes(s, scope);
    follow_sent(s);
    any
}

/// False also where another thread's comparison serves this one, too.
fn send_changes(s: &'static Session, scope: Scope) -> bool {
    // What is collected counts as sent.
    if !may_send() {
        return false;
    }
    // One comparison serves all who came before it began. Also publishes what this thread wrote.
    let begun = s.in_step.comparisons.fetch_add(0, Ordering::SeqCst);
    let _in_order = s.in_step.sending.lock();
    if scope == Scope::All {
        if s.in_step.comparisons.load(Ordering::SeqCst) != begun {
            return false;
        }
        s.in_step.comparisons.fetch_add(1, Ordering::SeqCst);
    }
    // The carrier goes first: all wait for what it brings, and the lock is not fair.
    while s.in_step.receiving.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    let patches = lock(s).collect(&s.heap, scope, Notice::default());
    let any = !patches.is_empty();
    for body in &patches {
        // What is lost with the session is no loss.
        post_to(s, op::HEAP_PATCH, |w| w.extend_from_slice(body));
    }
    let bounds = state().addresses.mapped_bounds();
    // SAFETY: slices.
    let may_hold_addresses = |body: &Vec<u8>| unsafe { words::any_near(body.as_ptr(), body.len(), bounds) };
    if bounds.1 != 0 {
        let mut to_follow = s.in_step.to_follow.lock();
        to_follow.extend(patches.into_iter().filter(may_hold_addresses));
        s.in_step.must_follow.fetch_or(!to_follow.is_empty(), Ordering::SeqCst);
    }
    any
}

/// Whichever thread has sent an address, no other goes on before the memory that it points to is kept in step: what it
/// launches may follow it. A host function's thread leaves that to others: the device waits for it.
fn follow_sent(s: &'static Session) {
    if !s.in_step.must_follow.load(Ordering::SeqCst) || state().callbacks.in_callback() {
        return;
    }
    let _others_wait = s.in_step.following.lock();
    loop {
        let patches = std::mem::take(&mut *s.in_step.to_follow.lock());
        patches.iter().for_each(|body| note_words(s, body));
        let to_follow = s.in_step.to_follow.lock();
        if to_follow.is_empty() {
            s.in_step.must_follow.store(false, Ordering::SeqCst);
            return;
        }
    }
}

/// Answers waited for in vain before the next one has to be noticed in passing.
const EAGERNESS: u32 = 8;
/// It is too early to look again: commands bring what they found changed along and do not end it.
const PAUSE: u32 = 2;

fn start_looking(s: &'static Session) {
    s.in_step.looking.call_once(|| {
        s.in_step.started.store(true, Ordering::SeqCst);
        if let Err(e) = spawn("orion-in-step", 1 << 20, move || look(s)) {
            crate::say!("starting a thread failed: {e}; running kernels will not see what the host writes");
        }
    });
}

fn look(s: &'static Session) {
    // SAFETY: a number for the calling thread; sleeps end when they should, not up to 50 us later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let may_be_busy = || {
        s.in_step.mirrored_count.load(Ordering::Acquire) != 0
            && s.last_work.load(Ordering::SeqCst) > s.in_step.idle_after.load(Ordering::SeqCst)
    };
    let (mut interval, mut eagerness) = (INTERVAL_MIN, EAGERNESS);
    while !crate::session::carrier::lost(s) {
        if !may_be_busy() {
            doze(s, IDLE, Duration::from_secs(1), || !may_be_busy());
            interval = INTERVAL_MIN;
            continue;
        }
        let asked = s.in_step.answer.swap(false, Ordering::Relaxed);
        let looked = Instant::now();
        if send(s, Scope::Live) {
            (interval, eagerness) = (INTERVAL_MIN, EAGERNESS);
        } else if asked && eagerness > 0 {
            (interval, eagerness) = (INTERVAL_MIN, eagerness - 1);
        } else {
            interval = (interval * 2).min(INTERVAL_MAX);
        }
        s.in_step.eager.store(eagerness > 0, Ordering::Relaxed);
        // Half of the time is the calls', however much memory there is to look at.
        let interval = interval.max(looked.elapsed());
        let spin = Spin::adaptive(interval);
        let answered = || s.in_step.answer.load(Ordering::Relaxed);
        // With cores to spare a short pause is spent awake: it would take longer to wake up.
        let began = Instant::now();
        let is_short = interval <= Duration::from_micros(100) && !spin.yields;
        if !(is_short && spin.until(answered)) {
            let rest = interval.saturating_sub(began.elapsed());
            if !rest.is_zero() {
                doze(s, PAUSE, rest, || !answered());
            }
        }
    }
}

/// Sleeps until woken, at most `timeout`, if there still is reason to.
fn doze(s: &Session, why: u32, timeout: Duration, still: impl Fn() -> bool) {
    s.in_step.asleep.store(why, Ordering::SeqCst);
    // Set first, then one more look: whoever gives reason to wake up looks at the word afterwards.
    fence(Ordering::SeqCst);
    if still() {
        futex::wait(&s.in_step.asleep, why, Some(timeout), Among::Threads);
    }
    s.in_step.asleep.store(0, Ordering::SeqCst);
}

/// One operation of a batch may use host memory: its address is the second word of all that have one.
pub fn note(s: &'static Session, operation: &[u64; 6]) -> Result<(), CUresult> {
    let kind = operation[0] as u32;
    let has_address = matches!(
        kind,
        CU_STREAM_MEM_OP_WAIT_VALUE_32
            | CU_STREAM_MEM_OP_WAIT_VALUE_64
            | CU_STREAM_MEM_OP_WRITE_VALUE_32
            | CU_STREAM_MEM_OP_WRITE_VALUE_64
    );
    if s.pages.must_bring() && has_address {
        note_parameter(s, operation[1])?;
        let is_long = matches!(kind, CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64);
        name_flag(s, operation[1], if is_long { 8 } else { 4 });
    }
    Ok(())
}

/// A stream writes these bytes or waits for them: they tell of what was written before them, and do not go to the
/// worker ahead of that.
fn name_flag(s: &'static Session, address: u64, bytes: u64) {
    if s.in_step.any()
        && let Some(range) = crate::memory::host_memory::shared(s, address, bytes).and_then(SharedMemory::heap)
    {
        lock(s).name_flag(range);
    }
}
