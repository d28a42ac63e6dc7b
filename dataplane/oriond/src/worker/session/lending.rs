//! Ranges of the heap that the client has lent, and where they lie.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::record::HeapRange;

use crate::worker::session::Session;
use crate::worker::state::lent::{Lent, send_released};

impl Session {
    /// Where the driver knows a shared host address: staging memory is registered at an address of our own.
    pub fn registered(&self, address: u64) -> u64 {
        let offset = address.wrapping_sub(self.heap.base() as u64);
        if offset < self.staging_bytes { self.staging + offset } else { address }
    }

    /// Address of a checked heap range in this process.
    pub fn heap_pointer(&self, range: HeapRange) -> Result<*mut u8, Fault> {
        self.heap.at(range.offset, range.bytes).ok_or(Fault("range outside the session's host heap"))
    }

    /// The client gets the range back once the work queued on `stream` so far is done.
    pub fn lend_until_done(&mut self, lent: Lent, stream: CUstream) {
        // A context that cannot record an event runs nothing any more either.
        if let Ok(event) = self.record_spare_event(stream) {
            self.lent.push_back((event, lent));
        }
    }

    /// A range that came with a command and is the client's again in the end.
    pub fn lent(&self, range: HeapRange) -> Lent {
        Lent { range: Some(range), events: self.events.clone() }
    }

    pub fn release_all(&mut self, ranges: &[HeapRange]) {
        send_released(&self.events, ranges);
    }

    pub fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Gives back every lent range whose copy has finished.
    pub fn poll_lent(&mut self) {
        let mut done = Vec::new();
        while let Some(first) = self.lent.front() {
            // SAFETY: an event this session owns.
            if unsafe { self.captures.ask_event(self.driver, first.0.1) } == CUDA_ERROR_NOT_READY {
                break;
            }
            let Some((event, mut lent)) = self.lent.pop_front() else { break };
            self.return_event(event);
            // Many go back in one message.
            done.extend(lent.range.take());
            if done.len() == 1024 {
                break;
            }
        }
        if !done.is_empty() {
            self.release_all(&done);
        }
    }
}
