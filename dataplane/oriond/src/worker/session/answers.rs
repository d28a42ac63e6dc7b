//! What a command is answered, and what is kept for a later call.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::generated::ops;
use orion_wire::record::{Header, THREADS_MAX, op};

use crate::lines;
use crate::worker::driver::log as driver_log;
use crate::worker::out::arrivals;
use crate::worker::session::Session;

/// Contexts and threads with an error that nobody has been told of. Later ones are those of the same cause.
const LATCHED_MAX: usize = THREADS_MAX as usize;

/// Calls that answer with the error of an earlier posted command. Not those that create something: the client
/// would take the object for refused while it exists here.
fn reports_earlier(op: u16) -> bool {
    matches!(
        op,
        op::PING
            | op::COPY_IN
            | op::COPY_IN_INLINE
            | op::COPY_OUT
            | op::COPY_OUT_INLINE
            | op::COPY_3D
            | ops::CU_STREAM_SYNCHRONIZE
            | ops::CU_EVENT_SYNCHRONIZE
            | ops::CU_CTX_SYNCHRONIZE
            | ops::CU_STREAM_QUERY
            | ops::CU_EVENT_QUERY
            | ops::CU_MEM_FREE_V2
            | ops::CU_LAUNCH_KERNEL
            | ops::CU_STREAM_END_CAPTURE
    )
}

impl Session {
    /// Sends the reply of a call, or keeps the error of a posted command for a later call.
    pub fn answer(&mut self, header: &Header, result: CUresult, body: &[u8]) -> Result<(), Fault> {
        if header.sequence == 0 {
            if result != CUDA_SUCCESS {
                lines::debug(&format!("posted command {} failed with {result}", op::name(header.op)));
                self.latch(header.context, header.thread, result);
            }
            return self.settle_unless_noted(header.op, result);
        }
        self.send_logs(header)?;
        let mut result = result;
        if result == CUDA_SUCCESS
            && reports_earlier(header.op)
            && let Some(earlier) = self.take_latched(header)
        {
            result = earlier;
        }
        // What the driver wrote about an error is the application's to read before its call returns.
        let events = if matches!(result, CUDA_SUCCESS | CUDA_ERROR_NOT_READY) { 0 } else { self.flush_output(result) };
        self.replies.send(header, result, events, body)
    }

    /// A client that has its own copy of the heap hears the end of every posted command that may bring bytes there:
    /// also of one that failed, and of one that only was captured. Of a copy from the heap it hears if it asked to.
    pub(super) fn settle_unless_noted(&mut self, op: u16, result: CUresult) -> Result<(), Fault> {
        let brings = match op {
            op::COPY_OUT | op::COPY_3D | ops::CU_GRAPH_LAUNCH => true,
            op::COPY_IN => result != CUDA_SUCCESS,
            _ => false,
        };
        let number = self.number();
        match &self.arrivals {
            Some(arrivals) if brings && self.noted != number => arrivals::lock(arrivals).settled(number),
            _ => Ok(()),
        }
    }

    pub(super) fn latch(&mut self, context: u64, thread: u16, code: CUresult) {
        let is_new = || !self.latched.iter().any(|l| (l.0, l.1) == (context, thread));
        if self.latched.len() < LATCHED_MAX && is_new() {
            self.latched.push((context, thread, code));
        }
    }

    /// The failure that a call reports: of a command of its own thread, or of any in its context, lest it is lost.
    /// While a capture is open every thread asks for its own at once, and nobody may take it from under it.
    pub(super) fn take_latched(&mut self, header: &Header) -> Option<CUresult> {
        let own = self.latched.iter().position(|l| (l.0, l.1) == (header.context, header.thread));
        let others = || self.latched.iter().position(|l| l.0 == header.context && !self.captures.open());
        let at = own.or_else(others)?;
        Some(self.latched.remove(at).2)
    }

    /// What the driver logged goes to the client ahead of a reply: where a call failed, it is about that call.
    #[inline]
    pub(super) fn send_logs(&mut self, header: &Header) -> Result<(), Fault> {
        if driver_log::is_empty() {
            return Ok(());
        }
        for (level, text) in driver_log::take() {
            self.replies.log(header, level, &text)?;
        }
        Ok(())
    }

    /// As [`Self::flush_output`], of an event that was seen to have happened.
    pub fn flush_output_of_event(&mut self, event: CUevent, code: CUresult) -> (CUresult, u64) {
        let mut code = code;
        if code == CUDA_SUCCESS && !self.freed.streams.is_empty() {
            let relaxed = self.captures.relax(self.driver);
            // SAFETY: an event of this session. Another thread of the client may have recorded it again, and that is
            // not waited for.
            code = unsafe {
                match self.captures.ask_event(self.driver, event) {
                    CUDA_SUCCESS => self.driver.cuEventSynchronize(event),
                    CUDA_ERROR_NOT_READY => CUDA_SUCCESS,
                    code => code,
                }
            };
            self.captures.restore(self.driver, relaxed);
        }
        (code, self.flush_output(code))
    }

    /// Flushes what kernels printed, where any may have; the number of events sent so far, which the client waits for.
    pub fn flush_output(&self, code: CUresult) -> u64 {
        // A failed assertion prints too, and breaks the context.
        if code != CUDA_SUCCESS || self.prints.possible() {
            self.output.drain();
        }
        self.events.sent()
    }

    /// As [`Self::flush_output`], of a stream that was seen idle: the driver prints, and pools give back, when it is
    /// asked to wait.
    pub fn flush_output_of(&mut self, stream: CUstream, code: CUresult) -> (CUresult, u64) {
        let mut code = code;
        if code == CUDA_SUCCESS && (self.prints.possible() || !self.freed.streams.is_empty()) {
            let relaxed = self.captures.relax(self.driver);
            // SAFETY: a stream of this session, still alive: a destroyed one leaves the wait list. Another thread of
            // the client may have given it more to do, and that is not waited for.
            code = unsafe {
                match self.captures.ask_stream(self.driver, stream) {
                    CUDA_SUCCESS => {
                        self.freed.streams.remove(&(self.home_of(stream), stream as usize));
                        self.driver.cuStreamSynchronize(stream)
                    }
                    CUDA_ERROR_NOT_READY => CUDA_SUCCESS,
                    code => code,
                }
            };
            self.captures.restore(self.driver, relaxed);
        }
        (code, self.flush_output(code))
    }
}
