//! Events: a point in a stream's order and the time it was reached.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Registry};
use crate::clock::now_ns;
use crate::context::{Context, Point, Stream};

pub struct Event {
    pub flags: c_uint,
    pub context: Arc<Context>,
    pub state: Mutex<Option<Recorded>>,
    /// Set when the last record happened in a stream under capture.
    pub captured: Mutex<Option<CapturedAt>>,
}

pub struct Recorded {
    pub point: Point,
    pub reached_ns: Arc<AtomicU64>,
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
    pub(crate) fn record_after(&self, s: &Arc<Stream>, after: Vec<Point>) -> R {
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

    pub(crate) fn reached_ns(&self) -> R<u64> {
        let s = self.state.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let r = s.as_ref().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if !r.point.stream.is_done(r.point.number) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        Ok(r.reached_ns.load(Ordering::Acquire))
    }
}

pub(crate) fn lookup_event(h: CUevent) -> R<Arc<Event>> {
    crate::device::initialised()?;
    EVENTS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Where in a capture an event was recorded.
pub struct CapturedAt {
    /// By id: the capture may end before the event does.
    pub capture: u64,
    pub after: Vec<usize>,
}
