//! How far streams have come, told to a client that asks. A launch waits inside the driver when the GPU's queue is
//! full, and with it all that the client's other threads ask for, which may be what the GPU waits for. So a thread of
//! the client's waits before that, as it does in the driver of a bare GPU, and nobody else does.
//!
//! Who is answered has not seen a completion as CUDA means it: nothing is brought to the client's memory for it.

// UNSAFETY: asks the driver about events.

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::message::stream::MARKS_AHEAD;
use orion_wire::record::Header;

use crate::worker::out::arrivals::SpareEvent;
use crate::worker::session::Session;
use crate::worker::state::marks::Mark;
use crate::worker::state::waits::is_legacy;

/// A thread of an honest client has nine in each of its streams. Whoever asks for more than all of them is answered at
/// once.
const MARKS_MAX: usize = 4096;

impl Session {
    /// Answers `header` when `stream` has done what it has been given so far. False where that cannot be told, or is
    /// not to be: what is recorded in a captured stream would be part of the graph, and a profiler would show it.
    pub fn answers_when_passed(&mut self, header: &Header, stream: CUstream) -> bool {
        if self.captures.open() || self.recording || self.marks.len() >= MARKS_MAX {
            return false;
        }
        if is_legacy(stream) {
            let mut streams = self.busy_streams_of(self.current);
            streams.push(stream);
            if self.would_order(&streams) {
                return false;
            }
        }
        let Ok(event) = self.record_spare_event(stream) else { return false };
        self.marks.push(Mark { header: *header, stream: stream as usize, event: Some(event) });
        true
    }

    pub fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Whether a thread of the client's waits for one: it has nothing else to do, and the GPU has.
    pub fn holds_up_a_thread(&self) -> bool {
        let of = |mark: &Mark| (mark.header.thread, mark.stream);
        let is_full = |mark: &Mark| self.marks.iter().filter(|other| of(other) == of(mark)).count() >= MARKS_AHEAD;
        self.marks.len() >= MARKS_AHEAD && self.marks.iter().rev().take(MARKS_AHEAD).any(is_full)
    }

    /// Answers those that have been passed.
    pub fn poll_marks(&mut self) -> Result<(), Fault> {
        if self.marks.is_empty() {
            return Ok(());
        }
        let mut marks = std::mem::take(&mut self.marks);
        let mut passed = Vec::new();
        marks.retain(|mark| {
            // SAFETY: an event this session owns. After an error nothing runs.
            let asked = |event: SpareEvent| unsafe { self.captures.ask_event(self.driver, event.1) };
            let is_passed = mark.event.is_none_or(|event| asked(event) != CUDA_ERROR_NOT_READY);
            passed.extend(is_passed.then_some((mark.header, mark.event)));
            !is_passed
        });
        self.marks = marks;
        for (header, event) in passed {
            event.into_iter().for_each(|event| self.return_event(event));
            self.answer(&header, CUDA_SUCCESS, &[])?;
        }
        Ok(())
    }

    /// Nothing of a context that is gone is waited for.
    pub(super) fn forget_marks_of(&mut self, context: u64) {
        for mark in &mut self.marks {
            mark.event.take_if(|event| event.0 == context);
        }
    }
}
