//! Numbers copied out of the device, which are waited for by looking.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::time::{Duration, Instant};

use orion_cuda::sys::*;
use orion_ring::once;
use orion_wire::message::stream::{StreamSynchronize, StreamSynchronizeReply};
use orion_wire::record::{Header, HeapRange};
use orion_wire::{Fault, Reader};

use crate::lines;
use crate::worker::session::{HABIT_MAX, Session};
use crate::worker::state::addresses::DeviceAddress;
use crate::worker::state::scratch::Slot;
use crate::worker::state::waits::{Held, Landing, Target, Wait};

/// How long a small copy is held. The wait is sent within half a microsecond, where it is sent.
const HELD_MAX: Duration = Duration::from_micros(2);

impl Session {
    /// Whether the next command may be about a small copy: one was just made, or lands.
    #[inline]
    pub fn has_small_copy(&self) -> bool {
        self.small_copy.is_some() | self.landing
    }

    /// Whether one number copied out of the device tells by its arrival that all earlier work of the stream is done,
    /// and nothing has to be printed before the client hears of it.
    pub fn may_watch(&mut self, stream: CUstream) -> bool {
        !self.captures.open() && !self.prints.possible() && self.freed.streams.is_empty() && !self.busy(stream).mixed
    }

    /// A small copy into pinned memory; true if it is held for the command behind it.
    pub fn hold(
        &mut self,
        header: &Header,
        to: HeapRange,
        from: DeviceAddress,
        stream: CUstream,
        stream_word: u64,
    ) -> bool {
        if header.sequence != 0 || !Landing::suits(from, to.bytes) || !self.may_watch(stream) {
            return false;
        }
        self.small_copy = Some((header.context, header.thread, stream_word));
        if self.habit < 2 {
            return false;
        }
        let (context, thread) = (header.context, header.thread);
        let (since, call, number) = (Instant::now(), self.call, self.number());
        self.held = Some(Held { to, from, stream, context, thread, since, call, number });
        self.noted = number;
        true
    }

    /// Whether a copy is held; one that was held too long is let go.
    pub fn holds(&mut self) -> bool {
        if let Some(held) = &self.held
            && held.since.elapsed() >= HELD_MAX
        {
            self.habit = self.habit.saturating_sub(1);
            self.small_copy = None;
            self.let_go();
        }
        self.held.is_some()
    }

    /// The command behind a small copy has come; true if it is dealt with.
    #[cold]
    pub fn follows_small_copy(&mut self, header: &Header, body: &[u8]) -> Result<bool, Fault> {
        self.copy_after_all();
        let Some(copied) = self.small_copy.take() else { return Ok(false) };
        let waits = header.op == StreamSynchronize::OP
            && StreamSynchronize::decode(&mut Reader::new(body))
                .is_ok_and(|q| copied == (header.context, header.thread, q.stream.0));
        self.habit = if waits { (self.habit + 1).min(HABIT_MAX) } else { self.habit.saturating_sub(1) };
        if !waits {
            self.let_go();
            return Ok(false);
        }
        let Some(held) = self.held.take() else { return Ok(false) };
        let watch = |s: &mut Session| s.watch(held.from, held.to.bytes as usize, held.stream);
        match self.make_current(held.context).and_then(|()| self.on_behalf_of(held.call, watch)) {
            Ok(mut landing) => {
                let slot = landing.slot;
                let Held { to, from, context, thread, number, .. } = held;
                landing.target = Some(Target { to, from, context, thread, number });
                self.landing = true;
                self.park(header, Wait::Landing(landing), move |s, code, reply| {
                    s.scratch.give_back(slot);
                    StreamSynchronizeReply { events: s.flush_output(code) }.encode(reply);
                    code
                });
            }
            Err(code) => {
                self.settle(held.number);
                self.answer(header, code, &[])?;
            }
        }
        Ok(true)
    }

    /// Another command has come while a number lands that is meant for the heap, from another thread. That thread may
    /// learn by other means that the copy is done, and look. So the copy is made as any other, behind the one that is
    /// watched and ahead of the command.
    #[cold]
    pub(super) fn copy_after_all(&mut self) {
        self.landing = false;
        let mut copies = Vec::new();
        for parked in &mut self.parked {
            if let Wait::Landing(Landing { target: Some(target), stream, .. }) = parked.wait {
                copies.push((target, stream));
                parked.wait = Wait::Streams(vec![stream]);
            }
        }
        for (Target { to, from, context, thread, number }, stream) in copies {
            let (since, call) = (Instant::now(), self.call);
            self.copy_held(Held { to, from, stream, context, thread, since, call, number });
        }
    }

    /// A number has landed: it goes where the client wanted it.
    pub(super) fn land(&mut self, landing: &Landing, code: CUresult) {
        let Some(Target { to, number, .. }) = landing.target else { return };
        self.landing = false;
        self.begins_copy(&[to]);
        if let (CUDA_SUCCESS, Some(at)) = (code, self.heap.at(to.offset, to.bytes)) {
            // SAFETY: the slot has the bytes, and the range lies inside the heap.
            unsafe { once::copy(landing.slot.at, at, to.bytes as usize) };
        }
        self.copied(code, vec![to]);
        self.settle(number);
    }

    /// Copies one number to where its arrival can be seen.
    pub fn watch(&mut self, from: DeviceAddress, bytes: usize, stream: CUstream) -> Result<Landing, CUresult> {
        let slot = self.scratch_for(stream)?;
        // SAFETY: scratch memory is page-aligned, and ours alone.
        let landing = unsafe { Landing::prepare(slot, bytes, stream) };
        // SAFETY: a stream of this session; the slot has room.
        match unsafe { self.driver.cuMemcpyDtoHAsync_v2(slot.at.cast(), from.raw(), bytes, stream) } {
            CUDA_SUCCESS => Ok(landing),
            code => {
                self.scratch.give_back(slot);
                Err(code)
            }
        }
    }

    /// Makes the copy that is held, as any other posted one.
    pub(super) fn let_go(&mut self) {
        if let Some(held) = self.held.take() {
            self.copy_held(held);
        }
    }

    pub(super) fn copy_held(&mut self, held: Held) {
        let code = self.make_current(held.context).and_then(|()| {
            let to = self.heap.at(held.to.offset, held.to.bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            self.busy(held.stream).mixed = true;
            self.begins_copy(&[held.to]);
            let code = self.on_behalf_of(held.call, |s| {
                // SAFETY: the range was checked when the copy came; a stream of this session.
                unsafe {
                    s.driver.cuMemcpyDtoHAsync_v2(to.cast(), held.from.raw(), held.to.bytes as usize, held.stream)
                }
            });
            match code {
                CUDA_SUCCESS => match self.note_heap_copy(held.number, vec![held.to], held.stream) {
                    CUDA_SUCCESS => Ok(()),
                    code => Err(code),
                },
                code => Err(code),
            }
        });
        if let Err(code) = code {
            self.ends_copy(&[held.to]);
            self.settle(held.number);
            lines::debug(&format!("posted copy out of the device failed with {code}"));
            self.latch(held.context, held.thread, code);
        }
    }

    /// Pinned memory for one copy in this stream.
    pub fn scratch_for(&mut self, stream: CUstream) -> Result<Slot, CUresult> {
        let home = self.home_of(stream);
        self.within(home, |s| s.scratch.take(s.driver, home))?
    }
}
