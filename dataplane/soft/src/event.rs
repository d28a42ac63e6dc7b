//! Events: a point in a stream's order and the time it was reached.

// UNSAFETY: C entry points.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, put};
use crate::clock::now_ns;
use crate::context::{self, Context};
use crate::graph::{self, CapturedAt};
use crate::pool;
use crate::stream::{self, Point, Stream};

pub struct Event {
    pub flags: c_uint,
    pub context: Arc<Context>,
    state: Mutex<Option<Recorded>>,
    /// Set when the last record happened in a stream under capture.
    pub captured: Mutex<Option<CapturedAt>>,
}

struct Recorded {
    point: Point,
    reached_ns: Arc<AtomicU64>,
}

pub static EVENTS: Registry<Event> = Registry::new();

/// A context ends: its events go with it.
pub fn end_context(id: u64) {
    EVENTS.retain(|e| e.context.id != id);
}

impl Event {
    pub fn point(&self) -> Option<Point> {
        self.state.lock().ok()?.as_ref().map(|r| r.point.clone())
    }

    /// Puts this event at the end of a stream.
    pub fn record(&self, s: &Arc<Stream>) -> R {
        self.record_after(s, Vec::new())
    }

    /// As `record`; it also waits for points of other streams.
    fn record_after(&self, s: &Arc<Stream>, after: Vec<Point>) -> R {
        let reached_ns = Arc::new(AtomicU64::new(0));
        let cell = reached_ns.clone();
        let point = s.submit(after, Box::new(move |_| cell.store(now_ns(), Ordering::Release)))?;
        *self.state.lock().map_err(|_| CUDA_ERROR_UNKNOWN)? = Some(Recorded { point, reached_ns });
        if let Ok(mut c) = self.captured.lock() {
            *c = None;
        }
        Ok(())
    }

    /// A record node of a graph: the event counts as reached when the whole launch is, at the time the node ran.
    pub fn record_at(&self, point: Point, reached_ns: Arc<AtomicU64>) {
        if let Ok(mut s) = self.state.lock() {
            *s = Some(Recorded { point, reached_ns });
        }
    }

    fn reached_ns(&self) -> R<u64> {
        let s = self.state.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let r = s.as_ref().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if !r.point.stream.is_done(r.point.number) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        Ok(r.reached_ns.load(Ordering::Acquire))
    }
}

fn lookup_event(h: CUevent) -> R<Arc<Event>> {
    crate::device::initialised()?;
    EVENTS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn forbid_captured(e: &Event) -> R {
    match e.captured.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.as_ref() {
        Some(c) if c.capture.is_open() => {
            c.capture.invalidate();
            Err(CUDA_ERROR_CAPTURED_EVENT)
        }
        _ => Ok(()),
    }
}

fn record(h: CUevent, stream: CUstream, flags: c_uint) -> R {
    let e = lookup_event(h)?;
    let s = stream::resolve(stream)?;
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if e.context.id != s.context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if graph::record_event(&s, &e, flags & CU_EVENT_RECORD_EXTERNAL != 0)? {
        return Ok(());
    }
    e.record(&s)
}

fn elapsed(ms: *mut f32, start: CUevent, end: CUevent) -> R {
    let (start, end) = (lookup_event(start)?, lookup_event(end)?);
    if (start.flags | end.flags) & CU_EVENT_DISABLE_TIMING != 0 || start.context.id != end.context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    start.context.check()?;
    let (a, b) = (start.reached_ns()?, end.reached_ns()?);
    // SAFETY: the caller's out parameter.
    unsafe { put(ms, (b as f64 - a as f64) as f32 / 1e6) }
}

fn destroy(h: CUevent) -> R {
    lookup_event(h)?;
    EVENTS.remove(h);
    Ok(())
}

api! {
    fn cuEventCreate(out: *mut CUevent, flags: c_uint) {
        let context = context::current()?;
        let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        let shared_and_timed = flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CU_EVENT_INTERPROCESS;
        if out.is_null() || flags & !known != 0 || shared_and_timed {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & CU_EVENT_INTERPROCESS != 0 {
            return crate::api::refuse("cuEventCreate", "an interprocess event");
        }
        let e = Arc::new(Event { flags, context, state: Mutex::new(None), captured: Mutex::new(None) });
        put(out, EVENTS.add(&e))
    }
    fn cuEventDestroy(h: CUevent) { destroy(h) }
    fn cuEventDestroy_v2(h: CUevent) { destroy(h) }
    fn cuEventRecord(h: CUevent, stream: CUstream) { record(h, stream, 0) }
    fn cuEventRecordWithFlags(h: CUevent, stream: CUstream, flags: c_uint) { record(h, stream, flags) }
    fn cuEventQuery(h: CUevent) {
        let e = lookup_event(h)?;
        forbid_captured(&e)?;
        let done = e.point().is_none_or(|p| p.stream.is_done(p.number));
        e.context.check()?;
        if done { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }
    fn cuEventSynchronize(h: CUevent) {
        let e = lookup_event(h)?;
        forbid_captured(&e)?;
        if let Some(p) = e.point() {
            p.stream.wait(p.number);
        }
        pool::synchronized();
        e.context.check()
    }
    fn cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent) { elapsed(ms, start, end) }
    fn cuEventElapsedTime_v2(ms: *mut f32, start: CUevent, end: CUevent) { elapsed(ms, start, end) }
    fn cuCtxRecordEvent(ctx: CUcontext, h: CUevent) {
        let c = context::from_handle(ctx)?;
        record_context(&c, h)
    }
    fn cuCtxWaitEvent(ctx: CUcontext, h: CUevent) {
        let c = context::from_handle(ctx)?;
        wait_context(&c, h)
    }
}

/// Captures everything that a context has been given so far.
pub fn record_context(c: &Arc<Context>, h: CUevent) -> R {
    let e = lookup_event(h)?;
    if e.context.id != c.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    stream::forbid_capture(c)?;
    let s = c.legacy_stream()?;
    let ends = c.streams_of_all().iter().filter(|t| !Arc::ptr_eq(t, &s)).map(|t| t.end()).collect();
    e.record_after(&s, ends)
}

/// Whatever a context is given from now on waits for the event.
pub fn wait_context(c: &Arc<Context>, h: CUevent) -> R {
    let e = lookup_event(h)?;
    forbid_captured(&e)?;
    stream::forbid_capture(c)?;
    // The default stream is there before it is used.
    c.legacy_stream()?;
    if let Some(p) = e.point() {
        for s in c.streams_of_all() {
            if !Arc::ptr_eq(&s, &p.stream) {
                s.submit(vec![p.clone()], Box::new(|_| ()))?;
            }
        }
    }
    Ok(())
}
