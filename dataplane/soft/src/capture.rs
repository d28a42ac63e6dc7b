//! Recording of streams into graphs.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use orion_cuda::sys::*;

use crate::api::{R, Raw};
use crate::context::{self, Class, Stream};
use crate::event::{CapturedAt, Event};
use crate::graph::{Graph, Node, Work, address, allocation, lock};

pub(crate) fn forbid_captured(e: &Event) -> R {
    match lock(&e.captured)?.as_ref().and_then(|at| open(at.capture)) {
        Some(c) => {
            c.invalidate();
            Err(CUDA_ERROR_CAPTURED_EVENT)
        }
        None => Ok(()),
    }
}

/// Recording of streams into a graph.
pub struct Capture {
    pub id: u64,
    pub graph: Arc<Graph>,
    pub origin: u64,
    pub thread: ThreadId,
    pub mode: CUstreamCaptureMode,
    pub invalid: AtomicBool,
    /// The nodes each stream's next work follows, by stream.
    pub tails: Mutex<HashMap<u64, Vec<usize>>>,
    pub shown: Mutex<Vec<Raw<CUgraphNode>>>,
    pub edges_shown: Mutex<Vec<CUgraphEdgeData>>,
    /// The application's own graph, which it keeps when the capture fails.
    pub borrowed: bool,
}

impl Capture {
    pub fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> R {
        if self.invalid.load(Ordering::Acquire) { Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    pub(crate) fn status(&self) -> CUstreamCaptureStatus {
        match self.check() {
            Ok(()) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
            Err(_) => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        }
    }

    pub(crate) fn tail(&self, s: &Stream) -> R<Vec<usize>> {
        Ok(lock(&self.tails)?.get(&s.id).cloned().unwrap_or_default())
    }
}

impl Stream {
    /// The capture that records the stream.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        // Pairs with the Release of whoever put it there, which was open then.
        open(self.capture.load(Ordering::Acquire))
    }
}

/// A capture that has not ended. An event recorded in one that has counts as never recorded.
fn open(id: u64) -> Option<Arc<Capture>> {
    if id == 0 { None } else { OPEN.lock().ok()?.iter().find(|c| c.id == id).cloned() }
}

/// Adds captured work behind what the stream recorded last.
pub fn record(c: &Arc<Capture>, s: &Arc<Stream>, work: Work) -> R<Arc<Node>> {
    c.check()?;
    let after = c.tail(s)?;
    let n = c.graph.add(&after, work, 0)?;
    lock(&c.tails)?.insert(s.id, vec![address(&n)]);
    Ok(n)
}

/// Handles an event record on a captured stream; false when the stream is not captured.
pub fn record_event(s: &Arc<Stream>, e: &Arc<Event>, external: bool) -> R<bool> {
    let Some(c) = s.capture() else { return Ok(false) };
    c.check()?;
    if external {
        record(&c, s, Work::Record(e.clone()))?;
        return Ok(true);
    }
    let after = c.tail(s)?;
    *lock(&e.captured)? = Some(CapturedAt { capture: c.id, after });
    Ok(true)
}

/// Handles a wait that touches a capture; false when neither side is captured.
pub fn wait_event(s: &Arc<Stream>, e: &Arc<Event>, external: bool) -> R<bool> {
    let mine = s.capture();
    if let (Some(c), true) = (&mine, external) {
        record(c, s, Work::Wait(e.clone()))?;
        return Ok(true);
    }
    let theirs = lock(&e.captured)?.as_ref().and_then(|at| Some((open(at.capture)?, at.after.clone())));
    match (mine, theirs) {
        (None, None) => Ok(false),
        (Some(c), None) => {
            c.check()?;
            c.invalidate();
            Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        (None, Some((c, after))) => {
            c.check()?;
            if s.class == Class::Legacy {
                c.invalidate();
                return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            lock(&c.tails)?.insert(s.id, after);
            // Pairs with the Acquire of `Stream::capture`.
            s.capture.store(c.id, Ordering::Release);
            Ok(true)
        }
        (Some(c), Some((other, after))) => {
            c.check()?;
            if !Arc::ptr_eq(&c, &other) {
                c.invalidate();
                other.invalidate();
                return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            let mut tails = lock(&c.tails)?;
            let tail = tails.entry(s.id).or_default();
            for a in after {
                if !tail.contains(&a) {
                    tail.push(a);
                }
            }
            Ok(true)
        }
    }
}

/// An allocation on a captured stream becomes a node; `None` when the stream is not captured.
pub fn capture_alloc(s: &Arc<Stream>, bytes: usize) -> R<Option<u64>> {
    let Some(c) = s.capture() else { return Ok(None) };
    c.check()?;
    let a = allocation(&s.context, s.context.device, bytes as u64)?;
    let at = a.base;
    record(&c, s, Work::Alloc(a))?;
    Ok(Some(at))
}

/// Captures that have not ended, and how many: the calls that ask are many, captures are few.
pub(crate) static OPEN: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
pub(crate) static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn close(c: &Arc<Capture>) {
    if let Ok(mut open) = OPEN.lock() {
        open.retain(|o| !Arc::ptr_eq(o, c));
        OPEN_COUNT.store(open.len(), Ordering::Release);
    }
}

/// Refuses a call that would upset a capture, such as one that allocates, waits or asks: captures in global mode
/// forbid it to every thread, captures in thread-local mode to their own. A thread can lift that for itself by
/// exchanging its mode. Which calls those are was asked of the driver 580.
pub fn forbid_unsafe() -> R {
    if OPEN_COUNT.load(Ordering::Acquire) == 0 || MODE.get() == CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let me = std::thread::current().id();
    let everywhere = MODE.get() == CU_STREAM_CAPTURE_MODE_GLOBAL;
    let mut outcome = Ok(());
    for c in lock(&OPEN)?.iter() {
        let mine = c.thread == me && c.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        if mine || (everywhere && c.mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
            c.invalidate();
            outcome = Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    outcome
}

/// A stream goes away while it is captured: with the stream that a capture began on, the capture goes too. What another
/// stream has recorded stays, and has to be joined as before.
pub fn abandon(s: &Stream, c: &Arc<Capture>) {
    if c.origin == s.id {
        c.invalidate();
        release_streams(c);
        close(c);
        if !c.borrowed {
            c.graph.forget();
        }
    }
}

/// Also those of other devices and of green contexts.
pub(crate) fn release_streams(c: &Arc<Capture>) {
    for t in context::CONTEXTS.all().iter().flat_map(|context| context.every_stream()) {
        // Pairs with the Acquire of `Stream::capture`. Another capture's stays.
        let _ = t.capture.compare_exchange(c.id, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}

thread_local! {
    pub static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}
