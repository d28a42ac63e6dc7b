//! What comes to host memory, for a client with a copy of its own.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::sync::atomic::Ordering;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_transport::mirror::Scope;
use orion_wire::Fault;
use orion_wire::record::HeapRange;

use crate::lines;
use crate::worker::out::arrivals::{self, Arrivals, Pending, SpareEvent, Word};
use crate::worker::session::Session;
use crate::worker::state::captures::Captures;

/// Whether the copies of a command have finished, for the executor, which may ask the driver.
pub(super) fn is_done(captures: &Captures, driver: &'static Driver, pending: &Pending) -> bool {
    // SAFETY: an event this session owns.
    pending.event.is_some_and(|(_, event)| unsafe { captures.ask_event(driver, event) } != CUDA_ERROR_NOT_READY)
}

impl Session {
    /// The driver is about to be asked for a copy into these ranges of a client's that has pages of its own.
    pub fn begins_copy(&self, ranges: &[HeapRange]) {
        if self.in_step.any
            && let Some(arrivals) = &self.arrivals
        {
            arrivals::lock(arrivals).copying.extend_from_slice(ranges);
        }
    }

    /// The copy was not made, or is over and told of.
    pub fn ends_copy(&self, ranges: &[HeapRange]) {
        if let Some(arrivals) = &self.arrivals {
            arrivals::lock(arrivals).no_more_copying(ranges);
        }
    }

    /// Command `number` has queued copies into these ranges on `stream`; a mirrored client gets the bytes once they are
    /// there.
    pub fn note_heap_copy(&mut self, number: u64, ranges: Vec<HeapRange>, stream: CUstream) -> CUresult {
        if !self.pages.must_bring() {
            return CUDA_SUCCESS;
        }
        let word = self.word();
        let (word, event) = match self.have_told(word, stream) {
            Ok(told) => told,
            Err(code) => {
                self.ends_copy(&ranges);
                return code;
            }
        };
        self.noted = number;
        if let Some(arrivals) = &self.arrivals {
            let mut arrivals = arrivals::lock(arrivals);
            arrivals.no_more_copying(&ranges);
            let pending = Pending { number, event: Some(event), word, ranges, in_step: Vec::new(), before: None };
            arrivals.pending.push(pending);
            drop(arrivals);
            self.unasked.copied();
        }
        CUDA_SUCCESS
    }

    /// As [`Self::note_heap_copy`], of a graph that is about to be launched. Its own host functions may look at what
    /// its copies have brought before it is over; what they may see is told from what was there before.
    pub fn note_graph_copies(&mut self, mut ranges: Vec<HeapRange>) {
        let word = self.word();
        let Some(arrivals) = &self.arrivals else { return };
        // Memory that is kept in step comes with the rest of it, as far as it has changed.
        let mut in_step = ranges.clone();
        in_step.retain(|range| arrivals::lock(arrivals).mirror.covers(*range));
        ranges.retain(|range| !in_step.contains(range));
        let before = self.callbacks.outstanding().then(|| arrivals::snapshot(&self.heap, &ranges));
        let number = self.executed.load(Ordering::Relaxed);
        arrivals::lock(arrivals).pending.push(Pending { number, event: None, word, ranges, in_step, before });
        self.unasked.copied();
    }

    /// The graph of [`Self::note_graph_copies`] has been launched on `stream`, or could not be.
    pub fn graph_launched(&mut self, launched: bool, stream: CUstream) -> CUresult {
        let (number, Some(arrivals)) = (self.number(), self.arrivals.clone()) else { return CUDA_SUCCESS };
        let find = |a: &mut Arrivals| a.pending.iter().position(|p| p.number == number);
        // It stays in the list meanwhile: the graph may run already.
        let told = launched.then(|| {
            let word = {
                let mut arrivals = arrivals::lock(&arrivals);
                find(&mut arrivals).and_then(|at| arrivals.pending[at].word)
            };
            self.have_told(word, stream)
        });
        let mut arrivals = arrivals::lock(&arrivals);
        let Some(at) = find(&mut arrivals) else {
            // A host function behind the graph was quicker.
            self.noted = number;
            return CUDA_SUCCESS;
        };
        match told {
            Some(Ok((word, event))) => {
                self.noted = number;
                (arrivals.pending[at].word, arrivals.pending[at].event) = (word, Some(event));
                CUDA_SUCCESS
            }
            told => {
                let gone = arrivals.pending.remove(at);
                if let (None, Some(word)) = (&told, gone.word) {
                    self.words.give_back(word);
                }
                told.map_or(CUDA_SUCCESS, |told| told.err().unwrap_or(CUDA_SUCCESS))
            }
        }
    }

    /// A place for the device to say that a copy is done. In the primary context, which outlives all others.
    pub(super) fn word(&mut self) -> Option<Word> {
        if !self.words.has_one() {
            self.within(self.any_context(), |s| s.words.add_page(s.driver)).ok()?;
        }
        self.words.take()
    }

    /// Has the stream tell of what was queued there so far, by a word that it writes and an event.
    pub(super) fn have_told(
        &mut self,
        word: Option<Word>,
        stream: CUstream,
    ) -> Result<(Option<Word>, SpareEvent), CUresult> {
        let mut word = word;
        if let Some(w) = word {
            // SAFETY: a stream of this session, and a word that the driver knows.
            let code = unsafe { self.driver.cuStreamWriteValue32_v2(stream, w.on_device, w.value, 0) };
            if code != CUDA_SUCCESS {
                self.words.refuse();
                word = None;
            }
        }
        Ok((word, self.record_spare_event(stream)?))
    }

    /// Announces the heap ranges whose copies have finished, and what kernels changed in mapped host memory. Called
    /// before every reply that tells the client of a completion, so the bytes are there first.
    pub fn flush_ranges(&mut self) -> Result<(), Fault> {
        self.variables.take();
        match self.pages.must_bring() {
            true => self.bring(Scope::All).map(drop),
            false => Ok(()),
        }
    }

    /// Brings over what has come by now; how many patches of mapped memory that makes.
    pub fn bring(&mut self, scope: Scope) -> Result<usize, Fault> {
        let Some(arrivals) = &self.arrivals else { return Ok(0) };
        let notice = self.in_step.notice(scope);
        let (patches, spent, is_any_left) = {
            let mut arrivals = arrivals::lock(arrivals);
            let patches =
                arrivals.bring(&self.heap, scope, notice, |pending| is_done(&self.captures, self.driver, pending))?;
            if scope == Scope::All && patches == 0 {
                arrivals.acknowledge(notice)?;
            }
            (patches, arrivals.take_spent(), !arrivals.pending.is_empty())
        };
        self.unasked.next.take_if(|_| !is_any_left);
        if scope == Scope::All {
            self.in_step.completed();
        }
        self.reuse(spent);
        Ok(patches)
    }

    pub(super) fn reuse(&mut self, spent: Vec<Pending>) {
        for Pending { event, word, .. } in spent {
            if let Some(event) = event {
                self.return_event(event);
            }
            if let Some(word) = word {
                self.words.put(word);
            }
        }
    }

    /// A client has given a range up, and may use it for something else before the copies into it are seen to be done.
    pub fn forget_heap_copies(&mut self, range: HeapRange) {
        if let Some(arrivals) = &self.arrivals {
            for pending in &mut arrivals::lock(arrivals).pending {
                if pending.ranges.iter().any(|r| r.overlaps(range)) {
                    pending.ranges.retain(|r| !r.overlaps(range));
                    pending.before = None;
                }
            }
        }
    }

    /// A context is gone, and with it its work: what its copies have brought goes over.
    pub(super) fn settle_context(&mut self, word: u64) {
        let Some(arrivals) = &self.arrivals else { return };
        let mut arrivals = arrivals::lock(arrivals);
        let of_context = |p: &mut Pending| p.event.is_some_and(|(context, _)| context == word);
        let gone: Vec<Pending> = arrivals.pending.extract_if(.., of_context).collect();
        for pending in gone {
            if let Err(fault) = arrivals.settle(&self.heap, pending) {
                lines::warn(&format!("heap ranges lost: {fault}"));
            }
        }
        // Their events went with the context.
        for Pending { word, .. } in arrivals.take_spent() {
            if let Some(word) = word {
                self.words.put(word);
            }
        }
    }

    /// Tells a mirrored client of bytes that are there.
    pub fn announce(&mut self, range: HeapRange) {
        if let Some(arrivals) = &self.arrivals
            && let Err(fault) = arrivals::lock(arrivals).announce(&self.heap, range)
        {
            lines::warn(&format!("heap range lost: {fault}"));
        }
    }

    /// As [`Self::announce`], of a copy that somebody waits for, if it was made.
    pub fn copied(&mut self, code: CUresult, ranges: Vec<HeapRange>) {
        let Some(arrivals) = &self.arrivals else { return };
        let mut arrivals = arrivals::lock(arrivals);
        arrivals.no_more_copying(&ranges);
        for range in ranges.into_iter().filter(|_| code == CUDA_SUCCESS) {
            if let Err(fault) = arrivals.announce(&self.heap, range) {
                lines::warn(&format!("heap range lost: {fault}"));
            }
        }
    }

    /// Tells a mirrored client that one of its commands brings nothing more.
    pub fn settle(&mut self, number: u64) {
        if let Some(arrivals) = &self.arrivals
            && let Err(fault) = arrivals::lock(arrivals).settled(number)
        {
            lines::warn(&format!("the end of a copy is lost: {fault}"));
        }
    }
}
