//! Whether work that was queued is done.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::ptr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::worker::out::arrivals::SpareEvent;
use crate::worker::session::Session;
use crate::worker::state::fence::Fence;
use crate::worker::state::waits::is_legacy;

impl Session {
    /// An event of the current context, without timing, from the stock.
    pub(super) fn spare_event(&mut self) -> Result<CUevent, CUresult> {
        if let Some(e) = self.spare_events.entry(self.current).or_default().pop() {
            return Ok(e);
        }
        let mut event = ptr::null_mut();
        // SAFETY: a valid out pointer; a context is current.
        match unsafe { self.driver.cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING) } {
            CUDA_SUCCESS => Ok(event),
            code => Err(code),
        }
    }

    pub fn return_event(&mut self, (context, event): SpareEvent) {
        self.spare_events.entry(context).or_default().push(event);
    }

    /// Back to the stock, once nobody else waits for it.
    pub(super) fn done_with(&mut self, event: Rc<SpareEvent>) {
        Rc::into_inner(event).into_iter().for_each(|event| self.return_event(event));
    }

    /// What streams of these contexts still do that were destroyed: no stream can be asked about it.
    pub(super) fn behind_destroyed_streams(&mut self, is_of: impl Fn(u64) -> bool) -> Vec<Rc<SpareEvent>> {
        let fenced = self.host_memory.fence().map_or(&[][..], |fence| &fence.events);
        self.orphaned.iter().chain(fenced).filter(|event| is_of(event.0)).cloned().collect()
    }

    /// An event after everything queued on `stream` so far: one of the stream's own context, the driver takes no other.
    pub fn record_spare_event(&mut self, stream: CUstream) -> Result<SpareEvent, CUresult> {
        let (home, caller) = (self.home_of(stream), self.current);
        if home != caller {
            self.make_current(home)?;
            let recorded = self.record_spare_event(stream);
            // Not if it is not known who was.
            if caller != u64::MAX {
                self.make_current(caller)?;
            }
            return recorded;
        }
        let event = (home, self.spare_event()?);
        // SAFETY: an event and a stream of one context.
        match unsafe { self.driver.cuEventRecord(event.1, stream) } {
            CUDA_SUCCESS => Ok(event),
            code => {
                self.return_event(event);
                Err(code)
            }
        }
    }

    /// What will have happened once all work queued so far is done; nothing if that cannot be told without changing
    /// what the work does.
    pub fn fence(&mut self) -> Option<Fence> {
        let now = self.executed.load(Ordering::Relaxed);
        // In a stream that is being captured it would become part of the graph. What could not be told a moment ago
        // is not asked again before something has been executed: each time asks every stream.
        if self.captures.open() || self.fence_refused_at == now {
            return None;
        }
        let mut fence = Fence { events: Vec::new() };
        let contexts: Vec<u64> = self.busy_streams.keys().copied().collect();
        for context in contexts {
            if context == 0 || self.make_current(context).is_err() {
                continue;
            }
            let (mut streams, _) = self.busy_streams();
            // SAFETY: streams of this session, or default streams of the current context. After an error nothing runs.
            streams.retain(|s| unsafe { self.captures.ask_stream(self.driver, *s) } == CUDA_ERROR_NOT_READY);
            if self.would_order(&streams) {
                self.refuse_fence(fence, now);
                return None;
            }
            for stream in streams {
                match self.record_spare_event(stream) {
                    Ok(event) => fence.events.push(Rc::new(event)),
                    Err(_) => {
                        self.refuse_fence(fence, now);
                        return None;
                    }
                }
            }
        }
        fence.events.append(&mut self.orphaned);
        Some(fence)
    }

    pub(super) fn refuse_fence(&mut self, fence: Fence, now: u64) {
        fence.events.into_iter().for_each(|event| self.done_with(event));
        self.fence_refused_at = now;
    }

    /// Whether events in these streams of the current context would make work wait that need not: one in the legacy
    /// default stream waits for all blocking streams, which may wait for each other through the host.
    pub(super) fn would_order(&self, streams: &[CUstream]) -> bool {
        let is_ordered = |stream: &CUstream| !is_legacy(*stream) && self.is_blocking(*stream);
        streams.iter().any(|stream| is_legacy(*stream)) && streams.iter().any(is_ordered)
    }

    /// Whether all of it is done. It asks for the rest only.
    pub fn is_past(&mut self, fence: &mut Fence) -> bool {
        while let Some(event) = fence.events.pop() {
            // SAFETY: an event this session owns.
            if unsafe { self.captures.ask_event(self.driver, event.1) } == CUDA_ERROR_NOT_READY {
                fence.events.push(event);
                return false;
            }
            self.done_with(event);
        }
        true
    }

    /// Whether every stream that had work, in every context, has none now.
    pub fn device_idle(&mut self) -> bool {
        // Asking a stream that is being captured would end its capture.
        if self.captures.open() {
            return false;
        }
        let mut orphaned = Fence { events: std::mem::take(&mut self.orphaned) };
        if !self.is_past(&mut orphaned) {
            self.orphaned = orphaned.events;
            return false;
        }
        let contexts: Vec<u64> = self.busy_streams.keys().copied().collect();
        for context in contexts {
            if context == 0 || self.make_current(context).is_err() {
                continue;
            }
            let (streams, until) = self.busy_streams();
            let idle = streams.iter().all(|stream| {
                // SAFETY: a stream of this session, or a default stream of the current context. An error means that
                // nothing runs any more.
                unsafe { self.captures.ask_stream(self.driver, *stream) != CUDA_ERROR_NOT_READY }
            });
            if !idle {
                return false;
            }
            self.streams_idle(until);
        }
        true
    }
}
