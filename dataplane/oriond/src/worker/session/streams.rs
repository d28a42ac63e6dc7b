//! Streams, and what they were given to do.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::THREADS_MAX;
use rustc_hash::FxHashMap;

use crate::worker::session::Session;
use crate::worker::state::streams::{Busy, Home};
use crate::worker::state::waits::is_legacy;

impl Session {
    /// A stream as the calling thread means it: 0 and 1 are the legacy default stream, 2 is the thread's own.
    /// Counts as work on that stream.
    pub fn stream(&mut self, word: u64, thread: u16) -> Result<CUstream, CUresult> {
        let stream = self.plain_stream(word, thread)?;
        self.busy(stream).mixed = true;
        Ok(stream)
    }

    /// As [`Self::stream`], for kernels, copies to the device and waits.
    pub fn plain_stream(&mut self, word: u64, thread: u16) -> Result<CUstream, CUresult> {
        let pointer: CUstream = match word {
            // It would be a stream of no context that has work.
            0 | 1 if self.current == 0 => return Err(CUDA_ERROR_INVALID_CONTEXT),
            0 | 1 => word as *mut c_void as CUstream,
            2 => self.thread_stream(thread)?,
            _ => match self.objects.lookup(Kind::Stream, word) {
                Some(stream) => stream.cast(),
                None => return Err(self.green.why_no_stream(word)),
            },
        };
        self.gated_stream = Some(pointer);
        self.busy(pointer).last = self.executed.load(Ordering::Relaxed);
        Ok(pointer)
    }

    /// The context that a stream belongs to. It may be used while another is current, as with several devices it is.
    pub(super) fn home_of(&self, stream: CUstream) -> u64 {
        let made_in = || self.stream_homes.get(&(stream as usize)).map(|home| home.context);
        self.green.context_of(stream).or_else(made_in).unwrap_or(self.current)
    }

    /// A stream was made in the current context.
    pub(super) fn note_stream(&mut self, stream: CUstream) {
        let mut flags = CU_STREAM_DEFAULT;
        let relaxed = self.captures.relax(self.driver);
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { self.driver.cuStreamGetFlags(stream, &mut flags) };
        self.captures.restore(self.driver, relaxed);
        let is_blocking = code != CUDA_SUCCESS || flags & CU_STREAM_NON_BLOCKING == 0;
        self.stream_homes.insert(stream as usize, Home { context: self.current, is_blocking });
    }

    pub(super) fn busy(&mut self, stream: CUstream) -> &mut Busy {
        let context = self.home_of(stream);
        let of_context = self.busy_streams.entry(context).or_default();
        of_context.entry(stream as usize).or_insert(Busy { last: 0, mixed: false })
    }

    /// Memory was taken from a pool.
    pub fn note_pools(&mut self) {
        self.freed.uses_pools = true;
    }

    /// A stream was given work that may free memory of a pool.
    pub fn note_free(&mut self, stream: CUstream) {
        if self.freed.uses_pools {
            self.freed.streams.insert((self.home_of(stream), stream as usize));
        }
    }

    /// The driver itself has waited for all of a context.
    pub fn context_synchronized(&mut self, context: u64) {
        self.freed.streams.retain(|(of, _)| *of != context);
    }

    /// Counts work that is not plain on a stream.
    pub fn mix(&mut self, stream: CUstream) {
        self.busy(stream).mixed = true;
    }

    /// The real per-thread default stream belongs to the worker's thread; each client thread gets a stream of
    /// its own that synchronises with the legacy stream as that one does.
    pub(super) fn thread_stream(&mut self, thread: u16) -> Result<CUstream, CUresult> {
        self.own_stream(thread, CU_STREAM_DEFAULT)
    }

    /// A stream of the current context that never has work.
    pub(super) fn empty_stream(&mut self) -> Result<CUstream, CUresult> {
        self.own_stream(THREADS_MAX, CU_STREAM_NON_BLOCKING)
    }

    fn own_stream(&mut self, thread: u16, flags: u32) -> Result<CUstream, CUresult> {
        let key = (self.current, thread);
        if let Some(stream) = self.thread_streams.get(&key) {
            return Ok(*stream);
        }
        let mut stream = ptr::null_mut();
        let relaxed = self.captures.relax(self.driver);
        // SAFETY: a valid out pointer; the context is current.
        let code = unsafe { self.driver.cuStreamCreate(&mut stream, flags) };
        self.captures.restore(self.driver, relaxed);
        match code {
            CUDA_SUCCESS => {
                self.note_stream(stream);
                self.thread_streams.insert(key, stream);
                Ok(stream)
            }
            code => Err(code),
        }
    }

    /// Streams of the current context that may have work, for `cuCtxSynchronize`, and the time to give to
    /// [`Self::streams_idle`].
    pub fn busy_streams(&mut self) -> (Vec<CUstream>, u64) {
        (self.busy_streams_of(self.current), self.executed.load(Ordering::Relaxed))
    }

    /// Contexts whose streams may have work.
    pub fn busy_contexts(&self) -> Vec<u64> {
        self.busy_streams.keys().copied().collect()
    }

    /// What is waited for until the device is idle: streams of all contexts that may have work, and the default ones
    /// there and in `context`.
    pub fn streams_of_all(&self, context: u64) -> Vec<(u64, CUstream)> {
        let mut contexts = self.busy_contexts();
        // In some, only streams are at work that have been destroyed.
        contexts.extend(self.orphaned.iter().map(|event| event.0));
        contexts.push(context);
        contexts.sort_unstable();
        contexts.dedup();
        let mut streams = Vec::new();
        for context in contexts {
            streams.extend(self.busy_streams_of(context).into_iter().map(|stream| (context, stream)));
            streams.push((context, ptr::null_mut()));
        }
        streams
    }

    /// Without those that a capture is about: asking would end it.
    pub fn beside_captures(&self, mut streams: Vec<(u64, CUstream)>) -> Vec<(u64, CUstream)> {
        if self.captures.open() {
            streams.retain(|(context, stream)| match is_legacy(*stream) {
                true => !self.captures.are_encompassed(*context),
                false => !self.is_capturing(*stream),
            });
        }
        streams
    }

    /// Streams of a context on which captures have begun.
    pub fn captured_in(&self, context: u64) -> Vec<CUstream> {
        let captured = self.captures.open.iter().map(|open| open.stream as CUstream);
        captured.filter(|stream| self.home_of(*stream) == context).collect()
    }

    /// Whether a stream of the context is in a capture, wherever that began.
    pub(super) fn is_captured_in(&self, context: u64) -> bool {
        let is_captured = |stream: &CUstream| !is_legacy(*stream) && self.is_capturing(*stream);
        self.busy_streams_of(context).iter().chain(&self.captured_in(context)).any(is_captured)
    }

    /// Whether the legacy default stream encompasses it. The driver is not asked: of a captured stream it refuses to
    /// tell, and the capture is over.
    pub(super) fn is_blocking(&self, stream: CUstream) -> bool {
        self.stream_homes.get(&(stream as usize)).is_none_or(|home| home.is_blocking)
    }

    /// Streams of any context that may have work.
    pub fn busy_streams_of(&self, context: u64) -> Vec<CUstream> {
        self.busy_streams.get(&context).map_or_else(Vec::new, |b| b.keys().map(|p| *p as CUstream).collect())
    }

    /// All work of the current context up to that time is done.
    pub fn streams_idle(&mut self, until: u64) {
        self.streams_idle_in(self.current, until);
    }

    pub fn streams_idle_in(&mut self, context: u64, until: u64) {
        if let Some(busy) = self.busy_streams.get_mut(&context) {
            busy.retain(|_, busy| busy.last > until);
        }
    }

    /// Nobody else looks as long as nothing is freed, and a program may make and destroy streams without end. The more
    /// are left the more rarely.
    pub(super) fn forget_orphans_that_are_past(&mut self) {
        const MANY: usize = 64;
        if self.orphaned.len() < MANY || !self.orphaned.len().is_power_of_two() {
            return;
        }
        for event in std::mem::take(&mut self.orphaned) {
            // SAFETY: an event this session owns.
            match unsafe { self.captures.ask_event(self.driver, event.1) } {
                CUDA_ERROR_NOT_READY => self.orphaned.push(event),
                _ => self.done_with(event),
            }
        }
    }

    /// A stream will be destroyed: nothing may ask about it any more. What it has queued still runs.
    pub fn stream_gone(&mut self, stream: CUstream) {
        self.freed.streams.retain(|(_, one)| *one != stream as usize);
        self.gate_loses_stream(stream);
        let is_busy = |busy: &FxHashMap<usize, Busy>| busy.contains_key(&(stream as usize));
        // SAFETY: a stream of this session.
        let runs = || unsafe { self.captures.ask_stream(self.driver, stream) } == CUDA_ERROR_NOT_READY;
        // One that is captured has been given no work since, and takes no event but into the graph.
        let is_captured = self.captures.open() && self.is_capturing(stream);
        if !is_captured && self.busy_streams.get(&self.home_of(stream)).is_some_and(is_busy) && runs() {
            self.forget_orphans_that_are_past();
            // One of a broken context takes no event.
            if let Ok(event) = self.record_spare_event(stream) {
                self.orphaned.push(Rc::new(event));
            }
        }
        self.captures.stream_gone(stream);
        self.green.stream_gone(stream);
        self.stream_homes.remove(&(stream as usize));
        for busy in self.busy_streams.values_mut() {
            busy.remove(&(stream as usize));
        }
        for parked in &mut self.parked {
            parked.wait.leave_out(parked.header.context, parked.header.context, stream);
        }
    }

    pub fn is_capturing(&self, stream: CUstream) -> bool {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { self.driver.cuStreamIsCapturing(stream, &mut status) };
        code == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE
    }
}
