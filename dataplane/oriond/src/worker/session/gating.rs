//! The gate between the ring and the driver, where a session has a share of its GPUs' time: what makes a GPU work stays
//! in the ring until the session holds the lease and the GPU has not too much ahead. Nobody waits for it in here but
//! where there is nothing else to do.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use orion_arbiter::Said;
use orion_cuda::sys::*;
use orion_ring::Spin;
use orion_ring::futex::{self, Among};
use orion_telemetry::events::of_session;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::Kind;
use orion_wire::message::calls;
use orion_wire::message::graph_exec::GraphLaunch;
use orion_wire::record::{Header, op};

use crate::lines;
use crate::seat::{OfArbiter, PATIENCE_NS, UNTIL_TOLD, grant, now_ns};
use crate::worker::out::arrivals::SpareEvent;
use crate::worker::session::Session;
use crate::worker::state::gate::{
    AHEAD_NS_MAX, AHEAD_TOGETHER_NS, ARMED_NS, Behind, Gate, Place, StreamKey, VALUE_WAITS_MAX, concerns, kind_of,
    orders, stays_on_the_device, waits_for_values,
};
use crate::worker::state::graphs::HostNodes;
use crate::worker::state::preemptor::off_after_ns;

/// A session keeps its lease over a pause as short as this: who waits for a kernel sends the next one soon.
const GRACE_NS: u64 = 50_000;
/// What the GPU has ahead may itself wait for a command that is held back.
const STUCK_NS: u64 = 20_000_000;
/// Likewise of one that waits for the lease, where a host function has not returned, and where only a kernel could wait
/// for something. A kernel as long as this is more than a turn can be held to.
const HOST_NS: u64 = 100_000_000;
const HOST_NEXT_NS: u64 = 1_000_000;
const ITSELF_NS: u64 = 2_000_000_000;
/// Who waits for the lease looks so often if work has begun that waited for a host function.
const FUNCTION_LOOK: Duration = Duration::from_micros(500);
/// A wait is told in pieces of this.
const TOLD_EACH_NS: u64 = 50_000_000;
/// How long whoever is next looks for its lease before it sleeps.
const ARMED_SPIN: Duration = Duration::from_millis(1);
/// How long an executor with nothing else to do looks for its lease before it sleeps.
const LEASE_SPIN: Duration = Duration::from_millis(20);

impl Session {
    /// Whether the next command has to stay in the ring until the session has its turn. `stays` says of a copy of a
    /// box whether it is one within the device.
    #[inline]
    pub fn is_held_back(&mut self, header: &Header, stays: impl FnOnce() -> bool) -> bool {
        if self.gate.is_none() {
            return false;
        }
        self.gated_stream = None;
        let computes = concerns(header.op) || header.op == op::COPY_3D && stays();
        if computes && self.stops(header.context) {
            return true;
        }
        let may_wait = header.op == ops::CU_GRAPH_LAUNCH && !self.graph_nodes.host_nodes.is_empty();
        if may_wait || waits_for_values(header.op) {
            self.ends_before_function();
        }
        false
    }

    pub fn divides_time(&self) -> bool {
        self.gate.is_some()
    }

    fn stops(&mut self, context: u64) -> bool {
        let Some(mut gate) = self.gate.take() else { return false };
        let index = self.seat_of(&mut gate, context);
        let stops = !self.lets_pass(&mut gate, index);
        self.gate = Some(gate);
        stops
    }

    fn lets_pass(&mut self, gate: &mut Gate, index: usize) -> bool {
        let words = &gate.seat(index).of_arbiter;
        // Pairs with the store in `Seat::show`.
        let granted = words.grant.load(Ordering::Acquire);
        let until_ns = words.until_ns.load(Ordering::Relaxed);
        let is_busy = gate.places[index].said.busy;
        if granted == grant::FREE && is_busy {
            return true;
        }
        if granted != grant::ARMED {
            gate.places[index].armed_ns = ARMED_NS;
        }
        let may_pass = match granted {
            grant::FREE => true,
            grant::LEASE | grant::TOGETHER => match self.has_room(gate, index, granted, until_ns) {
                Some(has_room) if !has_room => return false,
                has_time => has_time.is_some(),
            },
            grant::ARMED => {
                let place = &gate.places[index];
                place.last_ns.is_some_and(|ns| ns <= place.armed_ns) && now_ns() >= until_ns
            }
            _ => false,
        };
        let is_let_by = may_pass || gate.is_open_without_arbiter(index);
        if !is_let_by && !self.may_wait_for_itself(gate, index) {
            gate.waits(index);
            self.tell_of_wait(&mut gate.places[index], TOLD_EACH_NS);
            return false;
        }
        let place = &mut gate.places[index];
        place.quiet_since_ns = None;
        let still_wants = granted == grant::ARMED || !is_let_by;
        if place.said.wants && !still_wants {
            let waited_ns = now_ns().saturating_sub(place.waits_since_ns);
            gate.seat(index).waited(waited_ns);
            self.tell_of_wait(&mut gate.places[index], 0);
            gate.places[index].was_at_limit = false;
            self.tell_of_time(gate);
        }
        let wants = gate.places[index].said.wants && still_wants;
        gate.say(index, Said { wants, busy: true });
        if !is_busy && !gate.places[index].is_open {
            // The lease may have ended just now: the arbiter has seen that we work, or we see that it has.
            if gate.seat(index).of_arbiter.grant.load(Ordering::SeqCst) == grant::STOP {
                gate.say(index, Said { wants, busy: false });
                gate.waits(index);
                return false;
            }
            if until_ns != UNTIL_TOLD {
                gate.bell.ring();
            }
        }
        true
    }

    /// A wait that lasts is told in pieces of `least_ns`, so that who looks meanwhile hears of it.
    fn tell_of_wait(&mut self, place: &mut Place, least_ns: u64) {
        let now = now_ns();
        let waited_ns = now.saturating_sub(place.told_until_ns);
        if place.said.wants && waited_ns > least_ns {
            place.told_until_ns = now;
            self.stats.held_back(!place.was_at_limit, waited_ns);
        }
    }

    /// Likewise what is off the GPU waits for the lease, if no command does.
    fn tell_of_being_off(&mut self, gate: &mut Gate, index: usize) {
        let is_off = gate.is_off(index);
        let is_at_limit = is_off && gate.seat(index).of_arbiter.is_at_limit.load(Ordering::Relaxed) != 0;
        let place = &mut gate.places[index];
        if !is_off && place.off_told_until_ns.is_none() {
            return;
        }
        place.is_off_by_limit |= is_at_limit;
        let now = now_ns();
        let waited_ns = now - *place.off_told_until_ns.get_or_insert(now);
        if is_off && waited_ns <= TOLD_EACH_NS && !place.said.wants {
            return;
        }
        place.off_told_until_ns = is_off.then_some(now);
        let by_others = !std::mem::take(&mut place.is_off_by_limit);
        if !place.said.wants && waited_ns > 0 {
            self.stats.held_back(by_others, waited_ns);
            gate.seat(index).waited(waited_ns);
            self.tell_of_time(gate);
        }
    }

    /// What the arbiters have counted goes to where it is told.
    fn tell_of_time(&self, gate: &Gate) {
        let seats = (0..gate.places.len()).map(|index| &gate.seat(index).of_arbiter);
        let sum = |of: fn(&OfArbiter) -> &AtomicU64| seats.clone().map(|seat| of(seat).load(Ordering::Relaxed)).sum();
        let page = self.stats.page();
        page.set(of_session::GPU_TIME, sum(|seat| &seat.used_ns));
        page.set(of_session::LEASES, sum(|seat| &seat.leases));
        page.set(of_session::LEASE_OVERRUN, sum(|seat| &seat.overrun_ns));
    }

    /// Whether what the GPU has ahead may itself wait for a command that is held back: then the session would be
    /// charged for ever, and never have its turn. One command passes.
    fn may_wait_for_itself(&self, gate: &mut Gate, index: usize) -> bool {
        let place = &mut gate.places[index];
        if !place.said.busy || !place.said.wants {
            return false;
        }
        let now = now_ns();
        // Much may have to pass before the host function hears that it may return, or the value is written.
        let waits_for_the_client = self.callbacks.outstanding() || !gate.value_waits.is_empty();
        let (patience_ns, next_ns) =
            if waits_for_the_client { (HOST_NS, HOST_NEXT_NS) } else { (ITSELF_NS, ITSELF_NS) };
        let is_stuck = now.saturating_sub(place.waits_since_ns.max(place.progress_ns)) >= patience_ns;
        if is_stuck {
            place.progress_ns = now - (patience_ns - next_ns);
        }
        is_stuck
    }

    /// Whether the GPU has little enough ahead; nothing if the lease is over.
    fn has_room(&mut self, gate: &mut Gate, index: usize, granted: u32, until_ns: u64) -> Option<bool> {
        let mut most_ns = if granted == grant::TOGETHER { AHEAD_TOGETHER_NS } else { AHEAD_NS_MAX };
        if until_ns != UNTIL_TOLD {
            let now = now_ns();
            if now >= until_ns {
                return None;
            }
            most_ns = most_ns.min(until_ns - now);
        }
        if gate.places[index].ahead.expected_ns() < most_ns {
            return Some(true);
        }
        self.pass_marks(gate, index);
        let now = now_ns();
        let place = &mut gate.places[index];
        // What is over is not ahead, and a lone kernel longer than the rest of a lease has to begin at some time.
        if place.ahead.left_ns(now) < most_ns || place.ahead.expected_ns() == 0 {
            place.stuck_since_ns = None;
            return Some(true);
        }
        let stuck_since_ns = *place.stuck_since_ns.get_or_insert(now);
        Some(now - stuck_since_ns >= STUCK_NS)
    }

    /// A command was executed.
    #[inline]
    pub fn has_passed(&mut self, header: &Header, body: &[u8]) {
        if self.gate.is_none() {
            return;
        }
        if concerns(header.op) || header.op == op::COPY_3D && stays_on_the_device(body) {
            self.note_passed(header, body);
        } else if orders(header.op) {
            self.note_order(header, body);
        } else if waits_for_values(header.op) {
            self.note_value_wait();
        }
    }

    /// A stream may wait for a value from now on. What comes behind that waits until an event behind it is passed.
    fn note_value_wait(&mut self) {
        let Some(stream) = self.gated_stream.take().filter(|_| !self.captures.open()) else { return };
        let Some(mut gate) = self.gate.take() else { return };
        self.pass_value_waits(&mut gate);
        let (key, caller) = (self.key_of(stream), self.current);
        // As a mark: the driver's legacy stream may be held up by the wait, and is not to be by the event.
        if gate.value_waits.len() < VALUE_WAITS_MAX
            && !self.would_hold_up(key)
            && self.make_current(key.0).is_ok()
            && let Ok(event) = self.record_spare_event(key.1 as CUstream)
        {
            let wait = Arc::new(());
            gate.order.stands_behind(key, Arc::downgrade(&wait));
            gate.value_waits.push((event, wait));
        }
        self.gate = Some(gate);
        if caller != u64::MAX {
            let _ = self.make_current(caller);
        }
    }

    fn pass_value_waits(&mut self, gate: &mut Gate) {
        // SAFETY: events this session owns. After an error nothing runs.
        let is_past = |event| unsafe { self.captures.ask_event(self.driver, event) } != CUDA_ERROR_NOT_READY;
        let passed: Vec<SpareEvent> =
            gate.value_waits.extract_if(.., |(event, _)| is_past(event.1)).map(|w| w.0).collect();
        passed.into_iter().for_each(|event| self.return_event(event));
    }

    fn note_passed(&mut self, header: &Header, body: &[u8]) {
        let Some(mut gate) = self.gate.take() else { return };
        let index = self.seat_of(&mut gate, header.context);
        if header.op == ops::CU_GRAPH_LAUNCH {
            gate.order.forget_events();
        }
        let granted = gate.seat(index).of_arbiter.grant.load(Ordering::Relaxed);
        let is_free = granted == grant::FREE;
        // What was refused before it came to a stream does not run, nor does what is captured.
        let stream = self.gated_stream.take().filter(|stream| !(self.captures.open() && self.is_capturing(*stream)));
        gate.places[index].was_free |= is_free && stream.is_some();
        if let Some(stream) = stream.filter(|_| !is_free) {
            let kind = kind_of(header.op, body);
            let known_ns = gate.times.of(kind);
            let behind = self.waits_of(&mut gate, stream);
            let host_nodes = self.host_nodes_of(header, body);
            // Where some work waits and some does not, each command is told apart.
            let is_mixed = !gate.order.is_empty() || self.captures.open();
            let key = self.key_of(stream);
            // Or beside others' work, which it is still behind when they have their turns.
            let is_early = matches!(granted, grant::ARMED | grant::TOGETHER);
            let place = &mut gate.places[index];
            place.armed_ns = place.armed_ns.saturating_sub(known_ns.unwrap_or(ARMED_NS));
            place.last_ns = known_ns;
            let is_due = place.ahead.add(now_ns, key, behind, kind, known_ns)
                | host_nodes.is_some_and(|host_nodes| place.ahead.is_graph(key, host_nodes));
            if is_early {
                place.ahead.is_early(key);
            }
            // Beside a capture streams are not asked, so events have to tell.
            if is_due || is_mixed && place.ahead.may_be_marked() {
                self.mark(&mut gate, index, key);
            }
        }
        self.gate = Some(gate);
    }

    /// Of a launch of a graph that has any.
    fn host_nodes_of(&mut self, header: &Header, body: &[u8]) -> Option<Arc<HostNodes>> {
        if header.op != ops::CU_GRAPH_LAUNCH || self.graph_nodes.host_nodes.is_empty() {
            return None;
        }
        let name = GraphLaunch::decode(&mut Reader::new(body)).ok()?.exec.0;
        let exec = self.handle(Kind::GraphExec, name).ok()?;
        self.graph_nodes.host_nodes.get(&(exec as usize)).cloned()
    }

    /// Puts an event behind what a stream was given.
    fn mark(&mut self, gate: &mut Gate, index: usize, key: StreamKey) {
        let caller = self.current;
        let relaxed = self.captures.relax(self.driver);
        if self.make_current(key.0).is_ok()
            && let Ok(event) = self.record_spare_event(key.1 as CUstream)
        {
            gate.places[index].ahead.mark(key, event);
        }
        self.captures.restore(self.driver, relaxed);
        // After a failure the next command says so.
        if caller != u64::MAX {
            let _ = self.make_current(caller);
        }
    }

    /// Whether an event in the legacy default stream of a context would make work wait that need not, now that other
    /// streams were given more.
    fn would_hold_up(&mut self, (context, handle): StreamKey) -> bool {
        if handle != 0 || self.make_current(context).is_err() {
            return false;
        }
        let mut streams = self.busy_streams_of(context);
        // SAFETY: streams of this session, whose context is current. After an error nothing runs.
        streams.retain(|s| unsafe { self.captures.ask_stream(self.driver, *s) } == CUDA_ERROR_NOT_READY);
        streams.push(std::ptr::null_mut());
        self.would_order(&streams)
    }

    fn key_of(&self, stream: CUstream) -> StreamKey {
        let handle = stream as usize;
        (self.home_of(stream), if handle <= 1 { 0 } else { handle })
    }

    /// What the next work of a stream waits for.
    fn waits_of(&mut self, gate: &mut Gate, stream: CUstream) -> Behind {
        if gate.order.is_empty() {
            return Behind::default();
        }
        gate.order.forget_what_is_over();
        gate.order.of(self.key_of(stream), |other| self.would_order(&[std::ptr::null_mut(), other as CUstream]))
    }

    /// A stream or an event may have come to stand behind a host function, or no longer does.
    fn note_order(&mut self, header: &Header, body: &[u8]) {
        let stream = self.gated_stream.take();
        let Some(mut gate) = self.gate.take() else { return };
        if !gate.order.is_empty() {
            self.note_order_in(&mut gate, stream, header, body);
        }
        self.gate = Some(gate);
    }

    fn note_order_in(&mut self, gate: &mut Gate, stream: Option<CUstream>, header: &Header, body: &[u8]) {
        // What is captured orders the nodes of a graph. Of an event that is gone the name may be another's soon.
        if header.op == ops::CU_EVENT_DESTROY_V2 || self.captures.open() {
            return gate.order.forget_events();
        }
        let mut r = Reader::new(body);
        let word = match header.op {
            ops::CU_EVENT_RECORD => calls::cuEventRecord::decode(&mut r).map(|q| q.hEvent),
            ops::CU_EVENT_RECORD_WITH_FLAGS => calls::cuEventRecordWithFlags::decode(&mut r).map(|q| q.hEvent),
            _ => calls::cuStreamWaitEvent::decode(&mut r).map(|q| q.hEvent),
        };
        let event = word.ok().and_then(|word| self.handle(Kind::Event, word).ok()).map(|event| event as usize);
        if let (Some(stream), Some(event)) = (stream, event) {
            let key = self.key_of(stream);
            match header.op {
                ops::CU_STREAM_WAIT_EVENT => gate.order.waits_for_event(key, event),
                _ => {
                    let behind = self.waits_of(gate, stream);
                    gate.order.recorded(event, behind);
                }
            }
        }
    }

    /// A host function is about to follow what streams were given: where that ends can be told now and not later.
    pub fn ends_before_function(&mut self) {
        if self.captures.open() {
            return;
        }
        let Some(mut gate) = self.gate.take() else { return };
        let caller = self.current;
        for index in 0..gate.places.len() {
            for key in gate.places[index].ahead.unmarked() {
                if !self.would_hold_up(key) {
                    self.mark(&mut gate, index, key);
                }
            }
        }
        self.gate = Some(gate);
        if caller != u64::MAX {
            let _ = self.make_current(caller);
        }
    }

    /// A stream was given a host function, which lives until it has returned.
    pub fn stands_behind(&mut self, stream: CUstream, function: Weak<()>) {
        let key = self.key_of(stream);
        if let Some(gate) = &mut self.gate {
            gate.order.forget_what_is_over();
            gate.order.stands_behind(key, function);
        }
    }

    /// A stream is about to be destroyed; what it was given runs all the same.
    pub(super) fn gate_loses_stream(&mut self, stream: CUstream) {
        let key = self.key_of(stream);
        let Some(mut gate) = self.gate.take() else { return };
        for index in 0..gate.places.len() {
            if gate.places[index].ahead.unmarked().contains(&key) {
                self.mark(&mut gate, index, key);
            }
        }
        gate.order.stream_gone(key);
        self.gate = Some(gate);
    }

    /// Whether the GPUs have to be asked, again and again, if they are done, or if what waited for a host function has
    /// begun.
    #[inline]
    pub fn gate_watches(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| {
            let is_watched = |index: usize| gate.seat(index).of_arbiter.grant.load(Ordering::Relaxed) != grant::FREE;
            let has_work = |index: usize| gate.places[index].has_work() && !gate.is_off(index);
            (0..gate.places.len()).any(|index| has_work(index) && is_watched(index))
        })
    }

    /// Between commands: tells the arbiters what has changed. Where a command is held back and nothing else is to do it
    /// waits for the lease, for a while.
    pub fn look_at_gate(&mut self, may_wait: Option<Duration>) {
        let Some(mut gate) = self.gate.take() else { return };
        for index in 0..gate.places.len() {
            self.tell_of_being_off(&mut gate, index);
            if gate.places[index].has_work() && !gate.is_off(index) {
                self.look_at_place(&mut gate, index);
            }
        }
        if let Some(within) = may_wait
            && !(0..gate.places.len()).any(|index| gate.places[index].said.busy && !gate.is_off(index))
        {
            let only_waits = gate.places.iter().any(|place| !place.ahead.is_empty());
            gate.wait_for_lease(if only_waits { within.min(FUNCTION_LOOK) } else { within });
        }
        self.gate = Some(gate);
    }

    fn look_at_place(&mut self, gate: &mut Gate, index: usize) {
        self.pass_marks(gate, index);
        let now = now_ns();
        let said = gate.places[index].said;
        if self.gpu_works(gate, index, now) {
            gate.places[index].quiet_since_ns = None;
            // What waited for a host function has begun, whoever's turn it is.
            if !said.busy {
                gate.say(index, Said { busy: true, ..said });
                gate.bell.ring();
            }
            gate.looks_at_turn(index, now);
            return;
        }
        (gate.places[index].is_over_since_ns, gate.places[index].in_vain) = (None, 0);
        if !said.busy {
            return;
        }
        let quiet_since_ns = *gate.places[index].quiet_since_ns.get_or_insert(now);
        let words = &gate.seat(index).of_arbiter;
        let has_lease = matches!(words.grant.load(Ordering::Relaxed), grant::LEASE | grant::TOGETHER);
        let until_ns = words.until_ns.load(Ordering::Relaxed);
        if !has_lease || now >= until_ns || now - quiet_since_ns >= GRACE_NS {
            gate.say(index, Said { busy: false, ..said });
            if !has_lease || until_ns != UNTIL_TOLD {
                gate.bell.ring();
            }
        }
    }

    /// Whether a GPU has anything to do for the session that does not wait for a host function.
    fn gpu_works(&mut self, gate: &mut Gate, index: usize, now: u64) -> bool {
        if !self.captures.open() {
            for key in gate.places[index].ahead.ends() {
                if self.is_idle(key) {
                    let Gate { places, times, .. } = gate;
                    places[index].ahead.is_over(key, now, times);
                }
            }
            if gate.places[index].was_free {
                gate.places[index].was_free = !self.gpu_is_idle(gate, index);
            }
        }
        let place = &gate.places[index];
        place.was_free && !self.captures.open() || !place.ahead.is_empty() && !place.ahead.only_waits()
    }

    fn is_idle(&mut self, (context, handle): StreamKey) -> bool {
        if self.make_current(context).is_err() {
            return true;
        }
        // SAFETY: a stream of this session, or the default stream of the current context.
        unsafe { self.captures.ask_stream(self.driver, handle as CUstream) != CUDA_ERROR_NOT_READY }
    }

    /// For how long an executor that has nothing to do may sleep.
    pub fn rests_at_gate(&mut self) -> Duration {
        const LONG: Duration = Duration::from_secs(1);
        if self.gate.as_ref().is_none_or(|gate| !gate.places.iter().any(Place::has_work)) {
            return LONG;
        }
        self.look_at_gate(None);
        let is_busy = self.gate.as_ref().is_some_and(|gate| gate.places.iter().any(Place::has_work));
        if is_busy { Duration::from_millis(1) } else { LONG }
    }

    /// Marks of this GPU that are behind us.
    fn pass_marks(&mut self, gate: &mut Gate, index: usize) {
        if !gate.value_waits.is_empty() {
            self.pass_value_waits(gate);
        }
        let is_together = gate.seat(index).of_arbiter.grant.load(Ordering::Relaxed) == grant::TOGETHER;
        let Gate { places, times, .. } = gate;
        let place = &mut places[index];
        if place.ahead.is_empty() {
            return;
        }
        let now = now_ns();
        times.are_beside_others = is_together;
        // SAFETY: events this session owns. After an error nothing runs.
        let is_past = |event| unsafe { self.captures.ask_event(self.driver, event) } != CUDA_ERROR_NOT_READY;
        let passed = place.ahead.pass(now, times, is_past);
        let done = std::mem::take(&mut place.ahead.done);
        if !passed.is_empty() {
            place.stuck_since_ns = None;
            place.progress_ns = now;
            place.in_vain = 0;
        }
        gate.seat(index).has_done(done);
        passed.into_iter().for_each(|event| self.return_event(event));
    }

    fn gpu_is_idle(&mut self, gate: &mut Gate, index: usize) -> bool {
        if gate.devices.len() == 1 {
            return self.device_idle();
        }
        let contexts: Vec<u64> = self.busy_streams.keys().copied().filter(|context| *context != 0).collect();
        contexts.into_iter().all(|context| {
            if self.seat_of(gate, context) != index || self.make_current(context).is_err() {
                return true;
            }
            let (streams, until) = self.busy_streams();
            // SAFETY: streams of this session, or default streams of the current context.
            let is_idle = |s: &CUstream| unsafe { self.captures.ask_stream(self.driver, *s) } != CUDA_ERROR_NOT_READY;
            let are_idle = streams.iter().all(is_idle);
            if are_idle {
                self.streams_idle(until);
            }
            are_idle
        })
    }

    /// A context is gone.
    pub(super) fn gate_forgets(&mut self, context: u64) {
        if let Some(gate) = &mut self.gate {
            gate.seat_of.remove(&context);
            gate.order.context_gone(context);
            gate.value_waits.retain(|((of, _), _)| *of != context);
            gate.places.iter_mut().for_each(|place| place.ahead.forget(context));
        }
    }

    /// Which GPU a context is on.
    fn seat_of(&mut self, gate: &mut Gate, context: u64) -> usize {
        if gate.devices.len() == 1 {
            return 0;
        }
        if let Some(index) = gate.seat_of.get(&context) {
            return *index;
        }
        let mut device = 0;
        // SAFETY: a valid out pointer; a context that this session owns is current.
        let is_known =
            self.make_current(context).is_ok() && unsafe { self.driver.cuCtxGetDevice(&mut device) } == CUDA_SUCCESS;
        let index = gate.devices.iter().position(|one| *one == device).filter(|_| is_known);
        // A command in a context that is gone fails, whichever gate it passes.
        if let Some(index) = index {
            gate.seat_of.insert(context, index);
        }
        index.unwrap_or(0)
    }
}

impl Gate {
    /// A command waits for the lease.
    fn waits(&mut self, index: usize) {
        let said = self.places[index].said;
        let is_at_limit = self.seat(index).of_arbiter.is_at_limit.load(Ordering::Relaxed) != 0;
        self.places[index].was_at_limit |= is_at_limit && said.wants;
        if !said.wants {
            self.places[index].waits_since_ns = now_ns();
            self.places[index].told_until_ns = self.places[index].waits_since_ns;
            self.places[index].was_at_limit = false;
            self.say(index, Said { wants: true, ..said });
            self.bell.ring();
        }
    }

    /// The GPU works for the session: if its turn has been over for long, it is taken off.
    fn looks_at_turn(&mut self, index: usize, now: u64) {
        let Some(preemptor) = &self.preemptors[index] else { return };
        let is_over = self.seat(index).of_arbiter.grant.load(Ordering::Acquire) == grant::STOP;
        let place = &mut self.places[index];
        if !is_over || place.is_open {
            place.is_over_since_ns = None;
            return;
        }
        let over_ns = *place.is_over_since_ns.get_or_insert(now);
        if now - over_ns >= off_after_ns(place.in_vain, over_ns) {
            place.is_over_since_ns = None;
            place.in_vain += u32::from(preemptor.take_off());
        }
    }

    /// Whether there is no arbiter that lives, so that nobody is waited for.
    fn is_open_without_arbiter(&mut self, index: usize) -> bool {
        let place = &self.places[index];
        if !place.said.wants && !place.is_open {
            return false;
        }
        let now = now_ns();
        let beat_ns = self.seat(index).of_arbiter.beat_ns.load(Ordering::Relaxed);
        let is_dead = now.saturating_sub(beat_ns) > PATIENCE_NS;
        let has_waited = place.is_open || now.saturating_sub(place.waits_since_ns) > PATIENCE_NS;
        if place.is_open != (is_dead && has_waited) {
            self.places[index].is_open = !self.places[index].is_open;
            let device = self.devices[index];
            lines::warn(&match self.places[index].is_open {
                true => format!("nobody divides the time of GPU {device} any more: the session uses it unasked"),
                false => format!("the time of GPU {device} is divided again"),
            });
        }
        self.places[index].is_open
    }

    /// Until what the arbiter shows changes, or whoever is next may begin.
    fn wait_for_lease(&self, within: Duration) {
        let waiting = self.places.iter().enumerate().filter(|(_, place)| place.said.wants);
        let shown = |index: usize| self.seat(index).of_arbiter.grant.load(Ordering::Acquire);
        let Some((index, word)) = waiting
            .map(|(index, _)| (index, shown(index)))
            .find(|(_, word)| matches!(*word, grant::STOP | grant::ARMED))
        else {
            return;
        };
        let mut within = within;
        if word == grant::ARMED {
            let from_ns = self.seat(index).of_arbiter.until_ns.load(Ordering::Relaxed);
            match from_ns.saturating_sub(now_ns()) {
                // What it has is too long to be begun before the lease, which comes soon.
                0 => {}
                ns => within = within.min(Duration::from_nanos(ns)),
            }
        }
        let spin = Spin::adaptive(LEASE_SPIN);
        let has_waited = Duration::from_nanos(now_ns().saturating_sub(self.places[index].waits_since_ns));
        let spin = match word {
            // Its turn is about to come.
            grant::ARMED => Spin { budget: spin.budget.min(ARMED_SPIN).min(within), ..spin },
            _ => Spin { budget: spin.budget.saturating_sub(has_waited).min(within), ..spin },
        };
        if !spin.until(|| shown(index) != word) && spin.budget < within {
            let seat = &self.seat(index).of_arbiter.grant;
            futex::wait(seat, word, Some(within - spin.budget), Among::Processes);
        }
    }
}
