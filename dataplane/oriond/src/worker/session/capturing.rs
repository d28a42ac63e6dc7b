//! Calls that wait while another thread of the client's begins a capture. They were allowed when they were made, and
//! go on as they would have.

// UNSAFETY: asks the driver about events.

use std::ptr;
use std::rc::Rc;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::message::calls;
use orion_wire::record::Header;

use crate::worker::session::{Parked, Session};
use crate::worker::state::captures::Captured;
use crate::worker::state::waits::is_legacy;

impl Session {
    /// A stream is about to be captured, and must not be asked about then: that is refused, and ends the capture. Nor
    /// must the legacy default stream, if that one encompasses it. Who waits for them waits instead for an event behind
    /// what they have to do already.
    pub fn will_capture(&mut self, stream: CUstream) -> Captured {
        let captured = Captured { context: self.home_of(stream), is_blocking: self.is_blocking(stream) };
        let relaxed = self.captures.relax(self.driver);
        if !self.is_capturing(stream) {
            self.wait_for_an_event_instead(captured.context, stream, stream);
        }
        if captured.is_blocking && !self.captures.are_encompassed(captured.context) {
            self.wait_for_an_event_instead(captured.context, ptr::null_mut(), stream);
        }
        self.captures.restore(self.driver, relaxed);
        captured
    }

    fn wait_for_an_event_instead(&mut self, context: u64, stream: CUstream, captured: CUstream) {
        let names = |parked: &Parked| parked.wait.names(parked.header.context, context, stream);
        if !self.parked.iter().any(names) {
            return;
        }
        let caller = self.current;
        let recorded = match self.make_current(context) {
            // It is not asked until the captures have ended.
            Ok(()) if is_legacy(stream) && self.would_hold_up_others(captured) => return self.back_to(caller),
            Ok(()) => self.record_spare_event(stream),
            Err(code) => Err(code),
        };
        self.back_to(caller);
        // A stream that takes no event is of a broken context, which those who wait are told by asking.
        let Ok(event) = recorded.map(Rc::new) else { return };
        for parked in &mut self.parked {
            if parked.wait.names(parked.header.context, context, stream) {
                parked.wait.leave_out(parked.header.context, context, stream);
                parked.earlier.push(event.clone());
            }
        }
    }

    /// Whether an event in the legacy default stream of the current context would make work wait that need not. That of
    /// a captured stream waits for the graph anyhow.
    fn would_hold_up_others(&self, captured: CUstream) -> bool {
        let mut streams = self.busy_streams_of(self.current);
        streams.retain(|stream| !is_legacy(*stream) && *stream != captured && !self.is_capturing(*stream));
        // SAFETY: streams of this session. After an error nothing runs.
        streams.retain(|s| unsafe { self.captures.ask_stream(self.driver, *s) } == CUDA_ERROR_NOT_READY);
        streams.push(ptr::null_mut());
        self.would_order(&streams)
    }

    fn back_to(&mut self, caller: u64) {
        // Not if it is not known who was. Whoever is next makes sure of its own.
        if caller != u64::MAX {
            let _ = self.make_current(caller);
        }
    }

    /// What a call that waits is refused with beside a capture. Who must not wait must not ask either, so the driver
    /// tells by a question, in which nothing waits.
    pub fn refuses_to_wait(&self, header: &Header, ask: impl FnOnce(&'static Driver) -> CUresult) -> Option<CUresult> {
        if !self.captures.forbids(header.thread) {
            return None;
        }
        let code = ask(self.driver);
        (!matches!(code, CUDA_SUCCESS | CUDA_ERROR_NOT_READY)).then_some(code)
    }

    /// A command beside an open capture: a stream that waits for a captured event is captured from then on.
    #[cold]
    pub fn may_join_a_capture(&mut self, header: &Header, body: &[u8]) {
        if header.op != ops::CU_STREAM_WAIT_EVENT {
            return;
        }
        let stream = calls::cuStreamWaitEvent::decode(&mut Reader::new(body)).map(|q| q.hStream);
        if let Some(stream) = stream.ok().and_then(|word| self.stream(word, header.thread).ok()) {
            let captured = self.will_capture(stream);
            self.captures.note(captured);
        }
    }

    /// Whether what a parked call waited for in streams that are captured now is done.
    pub(super) fn poll_earlier(&mut self, i: usize) -> Option<CUresult> {
        while let Some(event) = self.parked[i].earlier.last() {
            // SAFETY: an event this session owns.
            match unsafe { self.captures.ask_event(self.driver, event.1) } {
                CUDA_ERROR_NOT_READY => return None,
                code if code != CUDA_SUCCESS && event.0 == self.parked[i].header.context => return Some(code),
                // In a context that is broken nothing runs any more, and it is told to those who ask there.
                _ => {}
            }
            let event = self.parked[i].earlier.pop();
            event.into_iter().for_each(|event| self.done_with(event));
        }
        Some(CUDA_SUCCESS)
    }

    /// Whether the legacy default stream of a context is not asked now for a parked call, made before one was captured
    /// that it encompasses.
    pub(super) fn leaves_legacy_alone(&self, parked: &Parked, context: u64) -> bool {
        !parked.beside_an_encompassed && self.captures.are_encompassed(context)
    }

    /// Whether a capture has begun since the call was made, which may not keep it from what it was allowed.
    pub(super) fn is_before_captures(&self, parked: &Parked) -> bool {
        self.captures.open() && !parked.beside_a_capture
    }
}
