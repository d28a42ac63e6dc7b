//! Records on their way into the application's buffers.
//!
//! Calls append to a queue of this process. Now and then, and when the application flushes, the queue and what the
//! worker has are moved into buffers that the application is asked for; a full one is handed over at once, any other
//! when it flushes. One thread delivers at a time, and holds no other lock while the application's callbacks run.

// UNSAFETY: writes into the application's buffers and calls its functions.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::{Complete, Request};
use orion_cuda::sys::CUresult;

use crate::activity::gpu::Gpu;
use crate::state::lock::{Lock, Rank};

/// A queue of this size is worth moving. As large as what a profiler's buffer holds for a second or so.
const DUE_BYTES: usize = 256 << 10;
/// Calls after which the worker is asked what it has.
const DUE_CALLS: u32 = 4096;
/// With nobody who takes them, records beyond this are dropped.
const QUEUE_BYTES_MAX: usize = 64 << 20;

pub struct State {
    /// Records, one after the other: all are words.
    queue: Lock<Vec<u64>>,
    queued: AtomicUsize,
    calls: AtomicU32,
    delivery: Lock<Delivery>,
    /// Whether the application was asked for the buffer that comes next.
    asked: AtomicBool,
    pub gpu: Lock<Gpu>,
    pub dropped: AtomicUsize,
    /// Milliseconds between two looks, or 0; and when the last one was.
    pub period: AtomicU64,
    looked: AtomicU64,
    epoch: Instant,
}

pub struct Delivery {
    callbacks: Option<(Request, Complete)>,
    open: Option<Buffer>,
}

/// The application's.
struct Buffer {
    at: *mut u8,
    size: usize,
    used: usize,
    /// Records that still fit by the application's own count.
    room: usize,
}

// SAFETY: the application gave the buffer away until it is handed over, and says nothing of threads.
unsafe impl Send for Buffer {}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether this thread is in a callback for buffers.
    static DELIVERING: Cell<bool> = const { Cell::new(false) };
}

pub fn delivering() -> bool {
    DELIVERING.with(Cell::get)
}

impl State {
    pub fn get() -> &'static State {
        let p = STATE.load(Ordering::Acquire);
        if !p.is_null() {
            // SAFETY: what was published is never freed.
            return unsafe { &*p };
        }
        let new = Box::into_raw(Box::new(State {
            queue: Lock::new(Rank::Leaf, Vec::new()),
            queued: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            delivery: Lock::new(Rank::Delivery, Delivery { callbacks: None, open: None }),
            asked: AtomicBool::new(false),
            gpu: Lock::new(Rank::Gpu, Gpu::new()),
            dropped: AtomicUsize::new(0),
            period: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            epoch: Instant::now(),
        }));
        match STATE.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just made, and published for good.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: just made and seen by nobody; the other one is never freed.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }

    /// In a forked child, where another thread may have held a lock.
    pub fn forget() {
        STATE.store(std::ptr::null_mut(), Ordering::Release);
        DELIVERING.with(|d| d.set(false));
    }

    /// One call, and before it what it belongs to.
    pub fn push(&self, call: &CUpti_ActivityAPI, external: impl Iterator<Item = (u32, u64)>) {
        let mut queue = self.queue.lock_after_panic();
        if queue.len() * 8 > QUEUE_BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for (kind, id) in external {
            let record = CUpti_ActivityExternalCorrelation {
                kind: CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                externalKind: kind,
                externalId: id,
                correlationId: call.correlationId,
                reserved: 0,
            };
            append(&mut queue, &record);
        }
        append(&mut queue, call);
        self.queued.store(queue.len() * 8, Ordering::Relaxed);
    }

    /// After each call while something is recorded: nothing piles up, and there is a buffer from the first call on.
    /// kineto does not fetch anything as long as it was asked for none.
    pub fn collect_if_due(&self) {
        let full = self.queued.load(Ordering::Relaxed) > DUE_BYTES;
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) % DUE_CALLS == DUE_CALLS - 1;
        let period = self.period.load(Ordering::Relaxed);
        let late = period != 0 && {
            let now = self.epoch.elapsed().as_millis() as u64;
            let looked = self.looked.load(Ordering::Relaxed);
            now.saturating_sub(looked) >= period
                && self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let asked = self.asked.load(Ordering::Relaxed);
        if asked && !(full || calls || late) || delivering() {
            return;
        }
        let Some(mut delivery) = self.delivery.try_lock() else { return };
        // Nobody takes any; then it is the worker that bounds its own.
        if delivery.callbacks.is_none() {
            return;
        }
        if !asked {
            self.ask(&mut delivery);
        }
        if full || calls || late {
            // What fails now is asked for again by the next flush.
            let _ = self.collect(&mut delivery, false);
        }
    }

    fn ask(&self, delivery: &mut Delivery) {
        self.asked.store(true, Ordering::Relaxed);
        if delivery.open.is_none() {
            delivery.open = delivery.request();
        }
    }

    /// Everything that there is, into buffers that are handed over. Unless it is forced, which is the last time, one
    /// is out afterwards as it was before.
    pub fn flush(&self, last: bool) -> CUptiResult {
        if delivering() {
            return CUPTI_ERROR_INVALID_OPERATION;
        }
        let mut delivery = self.delivery.lock_after_panic();
        if delivery.callbacks.is_none() {
            return CUPTI_ERROR_INVALID_OPERATION;
        }
        let collected = self.collect(&mut delivery, true);
        self.asked.store(false, Ordering::Relaxed);
        if delivery.hand_over() && !last {
            self.ask(&mut delivery);
        }
        if collected.is_ok() { CUPTI_SUCCESS } else { CUPTI_ERROR_UNKNOWN }
    }

    fn collect(&self, delivery: &mut Delivery, all: bool) -> Result<(), CUresult> {
        let calls = {
            let mut queue = self.queue.lock_after_panic();
            self.queued.store(0, Ordering::Relaxed);
            std::mem::take(&mut *queue)
        };
        self.deliver(delivery, &calls);
        // Taken before it is delivered: the application's functions run without this lock.
        let taken = self.gpu.lock_after_panic().take(all);
        self.dropped.fetch_add(taken.lost as usize, Ordering::Relaxed);
        self.deliver(delivery, &taken.records);
        taken.result
    }

    fn deliver(&self, delivery: &mut Delivery, mut records: &[u64]) {
        while let Some(first) = records.first() {
            let size = record_size(*first as u32).expect("only such records are made");
            let (record, rest) = records.split_at(size / 8);
            if !delivery.write(record) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            records = rest;
        }
    }

    /// False within the application's own functions for buffers.
    pub fn register(&self, request: Request, complete: Complete) -> bool {
        if delivering() {
            return false;
        }
        self.delivery.lock_after_panic().callbacks = Some((request, complete));
        true
    }
}

/// `record` is one of CUPTI's structures, all of which are words.
fn append<T: Copy>(queue: &mut Vec<u64>, record: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    // SAFETY: as many words, aligned, and without padding between its fields.
    queue.extend_from_slice(unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>() / 8)
    });
}

impl Delivery {
    /// False if the application gave no buffer that it fits into.
    fn write(&mut self, record: &[u64]) -> bool {
        let size = size_of_val(record);
        if self.open.as_ref().is_some_and(|b| b.size - b.used < size || b.room == 0) {
            self.hand_over();
        }
        if self.open.is_none() {
            self.open = self.request();
        }
        let Some(buffer) = self.open.as_mut().filter(|b| b.size - b.used >= size) else { return false };
        // SAFETY: there is room for it; the application's buffer need not be aligned.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr().cast(), buffer.at.add(buffer.used), size) };
        buffer.used += size;
        buffer.room -= 1;
        true
    }

    fn request(&self) -> Option<Buffer> {
        let (request, _) = self.callbacks?;
        let (mut at, mut size, mut count) = (std::ptr::null_mut(), 0, 0);
        DELIVERING.with(|d| d.set(true));
        // SAFETY: the application's own function, with places to write to.
        unsafe { request(&mut at, &mut size, &mut count) };
        DELIVERING.with(|d| d.set(false));
        // An application that wants no more gives none.
        let room = if count == 0 { usize::MAX } else { count };
        (!at.is_null() && size != 0).then_some(Buffer { at, size, used: 0, room })
    }

    /// Whether there was a buffer.
    fn hand_over(&mut self) -> bool {
        let (Some(buffer), Some((_, complete))) = (self.open.take(), self.callbacks) else { return false };
        DELIVERING.with(|d| d.set(true));
        // SAFETY: the application's own function, with its own buffer. Records are of no one context or stream.
        unsafe { complete(std::ptr::null_mut(), 0, buffer.at, buffer.size, buffer.used) };
        DELIVERING.with(|d| d.set(false));
        true
    }
}

/// The record after `record` (null: the first) among `valid` bytes at `buffer`.
///
/// # Safety
/// `buffer` must hold `valid` bytes that were handed over, `record` be null or have come from here.
pub unsafe fn next(buffer: *mut u8, valid: usize, record: *mut u8) -> Result<*mut u8, CUptiResult> {
    if buffer.is_null() {
        return Err(CUPTI_ERROR_INVALID_PARAMETER);
    }
    let size_at = |offset: usize| {
        if valid - offset < 4 {
            return Err(CUPTI_ERROR_MAX_LIMIT_REACHED);
        }
        // SAFETY: inside the buffer.
        let kind = unsafe { buffer.add(offset).cast::<u32>().read_unaligned() };
        record_size(kind).ok_or(CUPTI_ERROR_INVALID_KIND)
    };
    let mut offset = 0;
    if !record.is_null() {
        offset =
            record.addr().checked_sub(buffer.addr()).filter(|o| *o < valid).ok_or(CUPTI_ERROR_INVALID_PARAMETER)?;
        offset += size_at(offset)?;
    }
    if offset >= valid || valid - offset < size_at(offset)? {
        return Err(CUPTI_ERROR_MAX_LIMIT_REACHED);
    }
    // SAFETY: inside the buffer.
    Ok(unsafe { buffer.add(offset) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn walk(words: &mut [u64], valid: usize) -> (Vec<u32>, CUptiResult) {
        let (mut kinds, mut record) = (Vec::new(), std::ptr::null_mut());
        loop {
            // SAFETY: the words are there.
            match unsafe { next(words.as_mut_ptr().cast(), valid, record) } {
                Ok(found) => {
                    record = found;
                    // SAFETY: a record begins with its kind.
                    kinds.push(unsafe { found.cast::<u32>().read() });
                }
                Err(code) => return (kinds, code),
            }
        }
    }

    #[test]
    fn a_buffer_is_walked_by_kind() {
        let mut words = [0u64; 64];
        // 216, 40, 24 and 96 bytes.
        for (at, kind) in [(0, 10), (27, 4), (32, 39), (35, 1)] {
            words[at] = kind;
        }
        assert_eq!(walk(&mut words, 47 * 8), (vec![10, 4, 39, 1], CUPTI_ERROR_MAX_LIMIT_REACHED));
        assert_eq!(walk(&mut words, 46 * 8), (vec![10, 4, 39], CUPTI_ERROR_MAX_LIMIT_REACHED));
        assert_eq!(walk(&mut words, 0), (vec![], CUPTI_ERROR_MAX_LIMIT_REACHED));
        assert_eq!(walk(&mut words, 48 * 8), (vec![10, 4, 39, 1], CUPTI_ERROR_INVALID_KIND));
        // SAFETY: null is refused.
        assert_eq!(unsafe { next(std::ptr::null_mut(), 8, std::ptr::null_mut()) }, Err(CUPTI_ERROR_INVALID_PARAMETER));
    }

    static HANDED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn give(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
        // SAFETY: valid places.
        unsafe {
            buffer.write(Box::leak(Box::new([0u64; 13])).as_mut_ptr().cast());
            size.write(13 * 8);
            records.write(0);
        }
    }

    unsafe extern "C" fn take(_: orion_cuda::sys::CUcontext, _: u32, buffer: *mut u8, size: usize, valid: usize) {
        HANDED.lock().unwrap().push((size, valid));
        // SAFETY: from `give`, and back for good.
        drop(unsafe { Box::from_raw(buffer.cast::<[u64; 13]>()) });
    }

    #[test]
    fn full_buffers_are_handed_over_and_what_fits_none_is_dropped() {
        let mut delivery = Delivery { callbacks: Some((give, take)), open: None };
        let call = [4u64, 0, 0, 0, 0];
        assert!(delivery.write(&call) && delivery.write(&call));
        assert!(HANDED.lock().unwrap().is_empty());
        assert!(delivery.write(&call));
        assert_eq!(*HANDED.lock().unwrap(), [(104, 80)]);
        assert!(!delivery.write(&[10; 27]));
        delivery.hand_over();
        assert_eq!(*HANDED.lock().unwrap(), [(104, 80), (104, 40), (104, 0)]);
        assert!(!Delivery { callbacks: None, open: None }.write(&call));
    }
}
