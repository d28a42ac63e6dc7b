//! Calls that wait while another thread of the client's begins a capture. They were allowed when they were made, and
//! go on as they would have.

// UNSAFETY: asks the driver about events.

use std::rc::Rc;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::message::calls;
use orion_wire::record::Header;

use crate::worker::session::{Parked, Session};

impl Session {
    /// A stream is about to be captured, and must not be asked about then: that is refused, and ends the capture. Who
    /// waits for it waits instead for an event behind what it has to do already.
    pub fn will_capture(&mut self, stream: CUstream) {
        if !self.parked.iter().any(|parked| parked.wait.names(stream)) || self.is_capturing(stream) {
            return;
        }
        let relaxed = self.captures.relax(self.driver);
        let recorded = self.record_spare_event(stream);
        self.captures.restore(self.driver, relaxed);
        // A stream that takes no event is of a broken context, which those who wait are told by asking.
        let Ok(event) = recorded.map(Rc::new) else { return };
        for parked in self.parked.iter_mut().filter(|parked| parked.wait.names(stream)) {
            parked.wait.leave_out(stream);
            parked.earlier.push(event.clone());
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
        if header.op != ops::CU_STREAM_WAIT_EVENT || self.parked.is_empty() {
            return;
        }
        let stream = calls::cuStreamWaitEvent::decode(&mut Reader::new(body)).map(|q| q.hStream);
        if let Some(stream) = stream.ok().and_then(|word| self.stream(word, header.thread).ok()) {
            self.will_capture(stream);
        }
    }

    /// Whether what a parked call waited for in streams that are captured now is done.
    pub(super) fn poll_earlier(&mut self, i: usize) -> Option<CUresult> {
        while let Some(event) = self.parked[i].earlier.last() {
            // SAFETY: an event this session owns.
            match unsafe { self.captures.ask_event(self.driver, event.1) } {
                CUDA_SUCCESS => {}
                CUDA_ERROR_NOT_READY => return None,
                code => return Some(code),
            }
            let event = self.parked[i].earlier.pop().and_then(Rc::into_inner);
            event.into_iter().for_each(|event| self.return_event(event));
        }
        Some(CUDA_SUCCESS)
    }

    /// Whether a capture has begun since the call was made, which may not keep it from what it was allowed.
    pub(super) fn is_before_captures(&self, parked: &Parked) -> bool {
        self.captures.open() && !parked.beside_a_capture
    }
}
