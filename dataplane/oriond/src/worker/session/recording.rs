//! Whose work the driver does, for a profiler.

use crate::worker::driver::cupti;
use crate::worker::session::Session;

impl Session {
    /// Whether a profiler records.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Executes a command for the call that its thread has named.
    pub fn recorded<T>(&mut self, thread: u16, work: impl FnOnce(&mut Session) -> T) -> T {
        self.call = self.calls.get(thread as usize).copied().unwrap_or(0);
        let answer = cupti::on_behalf_of(self.call, || work(self));
        self.call = 0;
        answer
    }

    pub fn start_recording(&mut self) {
        self.recording = true;
    }

    /// Calls named so far say nothing about what comes after.
    pub fn stop_recording(&mut self) {
        self.recording = false;
        self.calls.clear();
    }

    /// What this thread of the client sends from now on belongs to its call `id`.
    pub fn name_call(&mut self, thread: u16, id: u32) {
        let thread = thread as usize;
        if thread >= self.calls.len() {
            self.calls.resize(thread + 1, 0);
        }
        self.calls[thread] = id;
    }

    /// Does something now for an earlier call of the client's.
    pub(super) fn on_behalf_of<T>(&mut self, call: u32, work: impl FnOnce(&mut Session) -> T) -> T {
        match self.recording {
            false => work(self),
            true => cupti::on_behalf_of(call, || work(self)),
        }
    }
}
