//! Calls that wait, and what they wait for.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::record::{Header, THREADS_MAX};

use crate::worker::driver::cupti;
use crate::worker::out::arrivals::{self, Pending};
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::bringing::is_done;
use crate::worker::session::{Parked, RANGES_MAX, Session};
use crate::worker::state::scratch::SCRATCH_MAX;
use crate::worker::state::streams::seen_idle;
use crate::worker::state::waits::{Wait, Waiting, is_legacy};

/// Calls that wait. A client has no more threads than this, and each waits for one call or for a few pieces of one.
const PARKED_MAX: usize = 2 * THREADS_MAX as usize;

/// Of these, answered together: each answer may have 128 KiB.
const OVER_MAX: usize = 64;

impl Session {
    /// Parks the current command until `wait` is over.
    pub fn park(
        &mut self,
        header: &Header,
        wait: Wait,
        finish: impl FnOnce(&mut Session, CUresult, &mut Vec<u8>) -> CUresult + 'static,
    ) -> Outcome {
        let (header, beside_a_capture, finish) = (*header, self.captures.open(), Box::new(finish));
        let beside_an_encompassed = self.captures.are_encompassed(header.context);
        let earlier = match &wait {
            Wait::Everywhere(streams) | Wait::Then(streams, _) => self.behind_destroyed_streams(|context| {
                context == header.context || streams.iter().any(|(of, _)| *of == context)
            }),
            _ => Vec::new(),
        };
        self.parked.push(Parked {
            header,
            wait,
            earlier,
            beside_a_capture,
            beside_an_encompassed,
            since: None,
            finish,
        });
        Outcome::Parked
    }

    /// Runs a blocking driver call on a helper thread, in the current context, and parks the command.
    pub fn park_blocking(
        &mut self,
        header: &Header,
        job: impl FnOnce(&'static Driver) -> CUresult + Send + 'static,
        finish: impl FnOnce(&mut Session, CUresult, &mut Vec<u8>) -> CUresult + 'static,
    ) -> Handled {
        // A green context may be current to one thread only, and is to the executor's; what blocks concerns memory and
        // modules, which it shares with the primary one.
        let context = match self.context(self.green.home(header.context)) {
            Ok(c) => c,
            Err(code) => return Ok(Outcome::Done(code)),
        };
        if self.captures.forbids(header.thread) {
            // Refused at once, and only on the thread that captures.
            let mut body = Vec::new();
            let result = job(self.driver);
            return Ok(Outcome::Done(finish(self, result, &mut body)));
        }
        let job = match (self.recording, self.call) {
            (false, _) => self.helpers.run(context, job),
            (true, call) => self.helpers.run(context, move |driver| cupti::on_behalf_of(call, || job(driver))),
        };
        Ok(self.park(header, Wait::Job(job), finish))
    }

    /// Whether the session holds as much as it may. Until some of it is done no further command is taken, which holds
    /// up the client that sent so much and nobody else.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.parked.len() >= PARKED_MAX
            || self.scratch.used() >= SCRATCH_MAX
            || self.lent.len() >= RANGES_MAX
            || self.arrivals.as_ref().is_some_and(|arrivals| arrivals::lock(arrivals).pending.len() >= RANGES_MAX)
    }

    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Completes what can be completed; true if anything was.
    pub fn poll_parked(&mut self) -> Result<bool, Fault> {
        // Mapped memory is compared once for all that are over.
        let mut over = Vec::new();
        let mut i = 0;
        while i < self.parked.len() && over.len() < OVER_MAX {
            let context = self.parked[i].header.context;
            let result = match self.make_current(context) {
                Ok(()) => self.poll_one(i),
                Err(code) => Some(code),
            };
            let Some(result) = result else {
                i += 1;
                continue;
            };
            // Order among the rest does not matter: each has its own thread or its own sequence.
            over.push((self.parked.swap_remove(i), result));
        }
        self.note_waits();
        if over.is_empty() {
            return Ok(false);
        }
        let mut answers = Vec::with_capacity(over.len());
        for (parked, result) in over {
            if let Wait::Landing(landing) = &parked.wait {
                self.land(landing, result);
            }
            // If it cannot be made so, that is the result already.
            let _ = self.make_current(parked.header.context);
            let mut body = Vec::new();
            let result = (parked.finish)(self, result, &mut body);
            self.stats.waited(&parked.header, parked.since);
            answers.push((parked.header, result, body));
        }
        self.flush_ranges()?;
        for (header, result, body) in answers {
            self.answer(&header, result, &body)?;
        }
        Ok(true)
    }

    /// What is left was looked for in vain.
    fn note_waits(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let now = self.stats.asked_in_vain();
        for parked in self.parked.iter_mut().filter(|parked| parked.since.is_none()) {
            parked.since = Some(now);
            self.stats.waits(&parked.header);
        }
    }

    pub(super) fn poll_one(&mut self, i: usize) -> Option<CUresult> {
        let relaxed = self.captures.relax(self.driver);
        let result = match self.poll_earlier(i) {
            Some(CUDA_SUCCESS) => self.poll_wait(i),
            not_yet_or_error => not_yet_or_error,
        };
        self.captures.restore(self.driver, relaxed);
        match (&self.parked[i].wait, result) {
            (Wait::Then(_, call), Some(CUDA_SUCCESS)) => self.call_waiting(i, *call),
            _ => result,
        }
    }

    fn poll_wait(&mut self, i: usize) -> Option<CUresult> {
        let leaves_legacy = self.leaves_legacy_alone(&self.parked[i], self.parked[i].header.context);
        match &mut self.parked[i].wait {
            Wait::Job(job) => job.result(),
            Wait::Copies(range) => {
                let range = *range;
                let under_way = self.arrivals.as_ref().is_some_and(|arrivals| {
                    let writes = |p: &&Pending| p.ranges.iter().any(|r| r.overlaps(range));
                    arrivals::lock(arrivals)
                        .pending
                        .iter()
                        .filter(writes)
                        .any(|p| !is_done(&self.captures, self.driver, p))
                });
                (!under_way).then_some(CUDA_SUCCESS)
            }
            Wait::Event(event) => {
                // SAFETY: an event this session owns.
                match unsafe { self.captures.ask_event(self.driver, *event) } {
                    CUDA_ERROR_NOT_READY => None,
                    code => Some(code),
                }
            }
            Wait::Landing(landing) => {
                landing.looks += 1;
                // A profiler has the copy's record when the stream is idle, and may be asked for it next.
                if !self.recording && landing.has_landed() {
                    Some(CUDA_SUCCESS)
                } else if leaves_legacy && is_legacy(landing.stream) {
                    None
                } else if self.recording || landing.looks.is_multiple_of(32) {
                    // SAFETY: a stream of this session.
                    match unsafe { self.captures.ask_stream(self.driver, landing.stream) } {
                        CUDA_ERROR_NOT_READY => None,
                        code => Some(code),
                    }
                } else {
                    None
                }
            }
            Wait::Everywhere(_) | Wait::Then(..) => self.poll_everywhere(i),
            Wait::Streams(streams) => loop {
                let Some(stream) = streams.last() else { break Some(CUDA_SUCCESS) };
                if leaves_legacy && is_legacy(*stream) {
                    break None;
                }
                // SAFETY: streams this session owns, or a default stream of the current context.
                match unsafe { self.captures.ask_stream(self.driver, *stream) } {
                    CUDA_SUCCESS => {
                        seen_idle(&mut self.busy_streams, self.current, *stream);
                        streams.pop();
                    }
                    CUDA_ERROR_NOT_READY => break None,
                    code => break Some(code),
                }
            },
        }
    }

    /// Makes the call now that each stream was seen idle.
    pub(super) fn call_waiting(&mut self, i: usize, call: Waiting) -> Option<CUresult> {
        match call {
            Waiting::Synchronize => Some(self.synchronize(i)),
            _ => self.free_waiting(i, call),
        }
    }

    /// Tells what the streams cannot. Other threads of the client may have queued more meanwhile, and nothing waits for
    /// that: not here, where it may wait for what is done next, and not on a helper thread, where the call would end
    /// what is captured by the time that it comes to the driver.
    fn synchronize(&mut self, i: usize) -> CUresult {
        if self.is_before_captures(&self.parked[i]) {
            // The driver would refuse. Each stream has been waited for, and none has told of an error.
            return CUDA_SUCCESS;
        }
        let (context, thread) = (self.parked[i].header.context, self.parked[i].header.thread);
        // Beside a capture that was there before, the driver refuses at once. Beside one of another context it waits.
        let refuses = self.captures.open() && (self.captures.forbids(thread) || self.is_captured_in(context));
        let is_idle = !refuses && self.host_memory.fence().is_none() && self.device_idle();
        if let Err(code) = self.make_current(context) {
            return code;
        }
        if refuses || is_idle {
            self.captures.prepare(self.driver, thread);
            let code = Waiting::Synchronize.call(self.driver);
            self.addresses.doubt();
            self.context_synchronized(context);
            return code;
        }
        // Whichever stream is waited for, the driver prints what kernels have printed, and pools give back.
        match self.empty_stream() {
            // SAFETY: a stream of this session in which nothing is queued.
            Ok(stream) => unsafe { self.driver.cuStreamSynchronize(stream) },
            Err(code) => code,
        }
    }

    /// On a helper thread if it may wait: other threads of the client can have queued host functions meanwhile, which
    /// end when the executor has answered somebody.
    fn free_waiting(&mut self, i: usize, call: Waiting) -> Option<CUresult> {
        let context = self.parked[i].header.context;
        let returns = self.host_memory.fence().is_none() && self.device_idle();
        if let Err(code) = self.make_current(context) {
            return Some(code);
        }
        if returns {
            let code = call.call(self.driver);
            self.addresses.doubt();
            return Some(code);
        }
        match self.context(self.green.home(context)) {
            Ok(home) => {
                let job = self.helpers.run(home, move |driver| call.call(driver));
                self.parked[i].wait = Wait::Job(job);
                None
            }
            Err(code) => Some(code),
        }
    }

    /// Asks each stream in its own context, and leaves the caller's context current.
    pub(super) fn poll_everywhere(&mut self, i: usize) -> Option<CUresult> {
        let context = self.parked[i].header.context;
        let result = loop {
            let (Wait::Everywhere(streams) | Wait::Then(streams, _)) = &self.parked[i].wait else {
                break Some(CUDA_SUCCESS);
            };
            let Some((of, stream)) = streams.last().copied() else { break Some(CUDA_SUCCESS) };
            if is_legacy(stream) && self.leaves_legacy_alone(&self.parked[i], of) {
                break None;
            }
            // A context that has gone meanwhile has nothing to wait for.
            if self.make_current(of).is_ok() {
                // SAFETY: a stream this session owns, or a default stream of the current context.
                match unsafe { self.captures.ask_stream(self.driver, stream) } {
                    CUDA_SUCCESS => seen_idle(&mut self.busy_streams, of, stream),
                    CUDA_ERROR_NOT_READY => break None,
                    code => break Some(code),
                }
            }
            if let Wait::Everywhere(streams) | Wait::Then(streams, _) = &mut self.parked[i].wait {
                streams.pop();
            }
        };
        match self.make_current(context) {
            Ok(()) => result,
            Err(code) => Some(code),
        }
    }
}
