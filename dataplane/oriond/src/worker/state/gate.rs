//! What a session lets its GPUs have ahead while others have shares of them, and how long that will take.
//!
//! Numbers alone: what asks the driver is in `session/gating.rs`.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::io;
use std::sync::{Arc, Weak};

use orion_arbiter::Said;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::message::calls;
use orion_wire::message::copy::CopyBox;
use orion_wire::message::execution::LAUNCH_HEAD_BYTES;
use orion_wire::record::op;
use rustc_hash::{FxHashMap, FxHasher};

use crate::seat::{Bell, Page, Seat, now_ns};
use crate::worker::driver::preemption::Preemption;
use crate::worker::out::arrivals::SpareEvent;
use crate::worker::state::graphs::HostNodes;
use crate::worker::state::preemptor::Preemptor;

/// Work that a GPU may have ahead, by what is known of how long it takes: nobody else waits for more than that.
pub const AHEAD_NS_MAX: u64 = 2_000_000;
/// The same where others use the GPU at the same time: each has some milliseconds of it, one after the other, and who
/// has nothing ahead any more in his has to wait until he is next.
pub const AHEAD_TOGETHER_NS: u64 = 4_000_000;
/// What may be begun just before the lease. The GPU takes it up when it is done with what the session before gave it,
/// so it bridges the time until whoever is next has heard that the lease is his.
pub const ARMED_NS: u64 = 100_000;
/// Work between two marks.
const MARK_NS: u64 = 200_000;
/// Kernels whose times are known. All are forgotten when there are more.
const TIMES_MAX: usize = 1 << 16;
/// Marks under way, and commands between two whose times are learnt.
const MARKS_MAX: usize = 48;
const BATCH_MAX: usize = 256;
/// Marks under way with those that have to be where a host function is about to follow. A GPU's queue holds them beside
/// what a thread of the client's may have ahead.
const MARKS_OF_ENDS_MAX: usize = 80;
/// Host functions of several streams that some work may wait for.
const BEHIND_MAX: usize = 16;
/// Waits of streams for values in memory that are looked at; what waits behind more of them counts as if it ran.
pub const VALUE_WAITS_MAX: usize = 64;
/// Events that are known to be behind a host function.
const EVENTS_MAX: usize = 4096;
/// Of what has never run.
const UNKNOWN_NS: u64 = 100_000;
const TIME_NS_MIN: u64 = 500;
const TIME_NS_MAX: u64 = 10_000_000_000;

/// Whether a command makes the GPU compute, or copy in a way that may.
#[inline]
pub fn concerns(op: u16) -> bool {
    op == ops::CU_LAUNCH_KERNEL
        || op == ops::CU_GRAPH_LAUNCH
        || (ops::CU_MEMCPY_DTO_D_ASYNC_V2..=ops::CU_MEMSET_D2D32_ASYNC).contains(&op)
}

/// A copy of a box: whether it is one within the device, which computes; bytes that come from the host, or go there,
/// are moved beside what runs.
pub fn stays_on_the_device(body: &[u8]) -> bool {
    let is_there = |memory: u32| matches!(memory, CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_ARRAY);
    CopyBox::decode(&mut Reader::new(body))
        .is_ok_and(|q| is_there(q.copy.source.memory_type) && is_there(q.copy.destination.memory_type))
}

/// Whether a command may have a stream wait for a value in memory.
#[inline]
pub fn waits_for_values(op: u16) -> bool {
    matches!(
        op,
        ops::CU_STREAM_WAIT_VALUE32
            | ops::CU_STREAM_WAIT_VALUE64
            | ops::CU_STREAM_WAIT_VALUE32_V2
            | ops::CU_STREAM_WAIT_VALUE64_V2
            | ops::CU_STREAM_BATCH_MEM_OP
            | ops::CU_STREAM_BATCH_MEM_OP_V2
    )
}

/// Whether a command may bring it about, or end, that a stream waits for another.
#[inline]
pub fn orders(op: u16) -> bool {
    matches!(
        op,
        ops::CU_EVENT_RECORD | ops::CU_EVENT_RECORD_WITH_FLAGS | ops::CU_EVENT_DESTROY_V2 | ops::CU_STREAM_WAIT_EVENT
    )
}

/// What takes about as long each time: a function with its geometry, a graph, a copy or a fill of about as many bytes.
pub fn kind_of(op: u16, body: &[u8]) -> u64 {
    /// Words that say which function, and how large: the stream and what follows do not.
    const LAUNCH_WORDS: usize = LAUNCH_HEAD_BYTES / 8 - 2;
    let words = match op {
        ops::CU_LAUNCH_KERNEL => LAUNCH_WORDS,
        ops::CU_GRAPH_LAUNCH => 1,
        _ => 0,
    };
    let mut hasher = FxHasher::default();
    hasher.write_u16(op);
    match words {
        0 => hasher.write_u32(u64::BITS - moved_by(op, body).leading_zeros()),
        _ => hasher.write(body.get(..words * 8).unwrap_or(body)),
    }
    hasher.finish()
}

/// Bytes, or elements where those have a size of their own.
fn moved_by(op: u16, body: &[u8]) -> u64 {
    let mut r = Reader::new(body);
    let area = |width: usize, height: usize| width.saturating_mul(height);
    macro_rules! read {
        ($message:ident, $q:ident => $size:expr) => {
            calls::$message::decode(&mut r).map(|$q| $size)
        };
    }
    let size = match op {
        ops::CU_MEMCPY_DTO_D_ASYNC_V2 => read!(cuMemcpyDtoDAsync_v2, q => q.ByteCount),
        ops::CU_MEMCPY_PEER => read!(cuMemcpyPeer, q => q.ByteCount),
        ops::CU_MEMCPY_PEER_ASYNC => read!(cuMemcpyPeerAsync, q => q.ByteCount),
        ops::CU_MEMCPY_DTO_A_V2 => read!(cuMemcpyDtoA_v2, q => q.ByteCount),
        ops::CU_MEMCPY_ATO_D_V2 => read!(cuMemcpyAtoD_v2, q => q.ByteCount),
        ops::CU_MEMCPY_ATO_A_V2 => read!(cuMemcpyAtoA_v2, q => q.ByteCount),
        ops::CU_MEMSET_D8_ASYNC => read!(cuMemsetD8Async, q => q.N),
        ops::CU_MEMSET_D16_ASYNC => read!(cuMemsetD16Async, q => q.N),
        ops::CU_MEMSET_D32_ASYNC => read!(cuMemsetD32Async, q => q.N),
        ops::CU_MEMSET_D2D8_ASYNC => read!(cuMemsetD2D8Async, q => area(q.Width, q.Height)),
        ops::CU_MEMSET_D2D16_ASYNC => read!(cuMemsetD2D16Async, q => area(q.Width, q.Height)),
        ops::CU_MEMSET_D2D32_ASYNC => read!(cuMemsetD2D32Async, q => area(q.Width, q.Height)),
        op::COPY_3D => {
            let size = |q: CopyBox| q.copy.width.0.saturating_mul(q.copy.rows.0).saturating_mul(q.copy.layers.0);
            return CopyBox::decode(&mut r).map_or(0, size);
        }
        _ => Ok(0),
    };
    // A damaged body is the dispatcher's to refuse.
    size.unwrap_or(0) as u64
}

/// How long each kind of command has taken.
#[derive(Default)]
pub struct Times {
    known: FxHashMap<u64, u64>,
    /// Others use the GPU at the same time, so that everything takes longer than it does.
    pub are_beside_others: bool,
}

impl Times {
    pub fn of(&self, kind: u64) -> Option<u64> {
        self.known.get(&kind).copied()
    }

    /// These are over. They had begun when what was before them was; where that was another session's it is not known
    /// when, and beside others' work they were held up by it, so that they are believed only where nothing else is
    /// known, or where they took less than was thought all the same: who thinks that his kernels are long gives the GPU
    /// few of them, and would go on thinking so.
    fn learn(&mut self, batch: &Batch, now: u64, passed_ns: u64) {
        let took_ns = now.saturating_sub(batch.begun_ns.max(passed_ns));
        if self.known.len() + batch.parts.len() > TIMES_MAX {
            self.known.clear();
        }
        for (kind, part_ns) in &batch.parts {
            let part = u128::from(*part_ns) * u128::from(took_ns) / u128::from(batch.expected_ns.max(1));
            let part = u64::try_from(part).unwrap_or(u64::MAX).clamp(TIME_NS_MIN, TIME_NS_MAX);
            let learn = |known: &mut u64| {
                let is_exact = !batch.is_early && !self.are_beside_others;
                if is_exact || took_ns < batch.expected_ns {
                    *known = (*known * 3 + part) / 4;
                }
            };
            self.known.entry(*kind).and_modify(learn).or_insert(part);
        }
    }
}

/// Host functions that have to return before some work can begin. Each is alive until it has.
#[derive(Debug, Clone, Default)]
pub struct Behind(Vec<Weak<()>>);

impl Behind {
    pub fn one(function: Weak<()>) -> Behind {
        Behind(vec![function])
    }

    /// Whether all of them have returned.
    pub fn is_over(&self) -> bool {
        self.0.iter().all(|function| function.strong_count() == 0)
    }

    /// And those, but for any beyond [`BEHIND_MAX`]: what waits for them alone counts as if it ran.
    pub fn add(&mut self, others: &Behind) {
        self.0.retain(|function| function.strong_count() > 0);
        for other in &others.0 {
            let is_new = !self.0.iter().any(|known| known.ptr_eq(other));
            if is_new && other.strong_count() > 0 && self.0.len() < BEHIND_MAX {
                self.0.push(other.clone());
            }
        }
    }
}

/// A stream, by the context it belongs to. The legacy default stream is 0.
pub type StreamKey = (u64, usize);

/// Some of the work of a stream: the kinds of commands, and how long each was expected to take.
#[derive(Default)]
struct Batch {
    parts: Vec<(u64, u64)>,
    expected_ns: u64,
    begun_ns: u64,
    /// It was begun before the lease, behind another session's work.
    is_early: bool,
    /// What its first command stands behind.
    behind: Behind,
    /// Of a graph, if that is all of it: it may wait in the middle.
    host_nodes: Option<Arc<HostNodes>>,
    /// Since when it does.
    waits_since_ns: Option<u64>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.expected_ns == 0
    }

    /// Whether it waits for a host function. Who waited until now begins now, or goes on.
    fn waits(&mut self, now: u64) -> bool {
        if !self.behind.0.is_empty() {
            if !self.behind.is_over() {
                return true;
            }
            self.behind = Behind::default();
            self.begun_ns = now;
        }
        let Some(host_nodes) = &self.host_nodes else { return false };
        match host_nodes.is_waited_for() {
            true => self.waits_since_ns = self.waits_since_ns.or(Some(now)),
            // The time for which it waited is not its own.
            false => self.begun_ns += self.waits_since_ns.take().map_or(0, |since_ns| now.saturating_sub(since_ns)),
        }
        self.waits_since_ns.is_some()
    }
}

/// An event behind some of the work.
struct Mark {
    event: SpareEvent,
    batch: Batch,
}

/// What one stream has ahead, in order.
#[derive(Default)]
struct Line {
    marks: VecDeque<Mark>,
    /// Not marked yet.
    batch: Batch,
    all_ns: u64,
    /// Its first work waits for a host function, as far as is known.
    waits: bool,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.batch.is_empty()
    }

    fn first(&self) -> &Batch {
        self.marks.front().map_or(&self.batch, |mark| &mark.batch)
    }

    fn first_mut(&mut self) -> &mut Batch {
        self.marks.front_mut().map_or(&mut self.batch, |mark| &mut mark.batch)
    }
}

/// What one GPU has ahead.
#[derive(Default)]
pub struct Ahead {
    /// None is empty.
    lines: FxHashMap<StreamKey, Line>,
    marks: usize,
    /// Of what does not wait for a host function.
    all_ns: u64,
    /// When the last mark was passed.
    passed_ns: u64,
    /// Commands that are over and that nobody has been told of.
    pub done: u64,
}

impl Ahead {
    /// What is ahead by what was expected, without asking for the time.
    pub fn expected_ns(&self) -> u64 {
        self.all_ns
    }

    /// What is ahead, less what must have been done meanwhile.
    pub fn left_ns(&self, now: u64) -> u64 {
        let running = self.lines.values().filter(|line| !line.waits).map(Line::first);
        let Some(first) = running.min_by_key(|batch| batch.begun_ns) else { return 0 };
        self.all_ns - now.saturating_sub(first.begun_ns.max(self.passed_ns)).min(first.expected_ns)
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether there is anything, and all of it waits for host functions.
    pub fn only_waits(&self) -> bool {
        !self.is_empty() && self.lines.values().all(|line| line.waits)
    }

    /// One more command; true if there should be a mark behind it.
    pub fn add(
        &mut self,
        now: impl FnOnce() -> u64,
        stream: StreamKey,
        behind: Behind,
        kind: u64,
        known_ns: Option<u64>,
    ) -> bool {
        let ns = known_ns.unwrap_or(UNKNOWN_NS);
        let line = self.lines.entry(stream).or_default();
        let waits_for_more = !behind.0.is_empty();
        // With more than a graph in it nobody knows of the rest.
        line.batch.host_nodes = None;
        if line.batch.is_empty() {
            line.batch.begun_ns = now();
            line.waits |= line.marks.is_empty() && waits_for_more;
            line.batch.behind = behind;
        }
        if line.batch.parts.len() < BATCH_MAX {
            line.batch.parts.push((kind, ns));
        }
        line.batch.expected_ns += ns;
        line.all_ns += ns;
        if !line.waits {
            self.all_ns += ns;
        }
        let is_due = known_ns.is_none()
            || waits_for_more
            || line.batch.expected_ns >= MARK_NS
            || line.batch.parts.len() >= BATCH_MAX;
        is_due && self.marks < MARKS_MAX
    }

    /// What a stream was given just now was begun before the lease.
    pub fn is_early(&mut self, stream: StreamKey) {
        if let Some(line) = self.lines.get_mut(&stream) {
            line.batch.is_early = true;
        }
    }

    /// What a stream was given just now is a graph with host functions. True if there should be a mark behind it.
    pub fn is_graph(&mut self, stream: StreamKey, host_nodes: Arc<HostNodes>) -> bool {
        let Some(line) = self.lines.get_mut(&stream) else { return false };
        let is_alone = line.batch.parts.len() == 1;
        line.batch.host_nodes = is_alone.then_some(host_nodes);
        is_alone && self.marks < MARKS_MAX
    }

    /// An event behind all that a stream has ahead.
    pub fn mark(&mut self, stream: StreamKey, event: SpareEvent) {
        if let Some(line) = self.lines.get_mut(&stream) {
            line.marks.push_back(Mark { event, batch: std::mem::take(&mut line.batch) });
            self.marks += 1;
        }
    }

    /// Streams whose last work has no mark, if there may be that many more.
    pub fn unmarked(&self) -> Vec<StreamKey> {
        let lines = self.lines.iter().filter(|(_, line)| !line.batch.is_empty());
        lines.map(|(stream, _)| *stream).take(MARKS_OF_ENDS_MAX.saturating_sub(self.marks)).collect()
    }

    pub fn may_be_marked(&self) -> bool {
        self.marks < MARKS_OF_ENDS_MAX
    }

    /// Streams that have nothing ahead but what has no mark: they have to be asked themselves.
    pub fn ends(&self) -> Vec<StreamKey> {
        let is_end = |line: &Line| line.marks.is_empty() && !line.waits;
        self.lines.iter().filter(|(_, line)| is_end(line)).map(|(stream, _)| *stream).collect()
    }

    /// Asks about marks in the order of each stream until one is not passed, and answers those that were.
    pub fn pass(&mut self, now: u64, times: &mut Times, is_past: impl Fn(CUevent) -> bool) -> Vec<SpareEvent> {
        let mut passed = Vec::new();
        for line in self.lines.values_mut() {
            let waited = line.waits;
            loop {
                line.waits = line.first_mut().waits(now);
                let Some(mark) = line.marks.pop_front_if(|mark| !line.waits && is_past(mark.event.1)) else { break };
                times.learn(&mark.batch, now, self.passed_ns);
                self.done += mark.batch.parts.len() as u64;
                line.all_ns -= mark.batch.expected_ns;
                passed.push(mark.event);
                self.passed_ns = now;
                if !waited {
                    self.all_ns -= mark.batch.expected_ns;
                }
            }
            match (waited, line.waits) {
                (false, true) => self.all_ns -= line.all_ns,
                (true, false) => self.all_ns += line.all_ns,
                _ => {}
            }
        }
        self.marks -= passed.len();
        self.lines.retain(|_, line| !line.is_empty());
        passed
    }

    /// A stream has nothing more to do.
    pub fn is_over(&mut self, stream: StreamKey, now: u64, times: &mut Times) {
        let Some(line) = self.lines.get_mut(&stream) else { return };
        if !line.batch.is_empty() {
            times.learn(&line.batch, now, self.passed_ns);
            self.done += line.batch.parts.len() as u64;
            line.all_ns -= line.batch.expected_ns;
            if !line.waits {
                self.all_ns -= line.batch.expected_ns;
            }
            line.batch = Batch::default();
            self.passed_ns = now;
        }
        if line.is_empty() {
            self.lines.remove(&stream);
        }
    }

    /// Their context is gone.
    pub fn forget(&mut self, context: u64) {
        self.lines.retain(|(of, _), _| *of != context);
        self.marks = self.lines.values().map(|line| line.marks.len()).sum();
        self.all_ns = self.lines.values().filter(|line| !line.waits).map(|line| line.all_ns).sum();
    }
}

/// Where work has to wait for host functions, or for values in memory, of the session's streams and events. It is
/// complete for those that streams were given: who waits for the event behind a graph that waits for its own counts as
/// if it ran.
#[derive(Default)]
pub struct Order {
    streams: FxHashMap<StreamKey, Behind>,
    events: FxHashMap<usize, Behind>,
}

impl Order {
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.events.is_empty()
    }

    /// A stream was given a host function: what comes later waits for it, and so for all that it waits for itself.
    pub fn stands_behind(&mut self, stream: StreamKey, function: Weak<()>) {
        self.forget_what_is_over();
        self.streams.insert(stream, Behind::one(function));
    }

    /// What the next work of a stream waits for. The legacy default stream and the blocking ones of its context wait
    /// for each other.
    pub fn of(&mut self, stream: StreamKey, is_blocking: impl Fn(usize) -> bool) -> Behind {
        let (context, handle) = stream;
        let mut behind = self.streams.get(&stream).cloned().unwrap_or_default();
        if handle == 0 {
            let all = self.streams.iter().filter(|((of, other), _)| *of == context && *other != 0);
            all.filter(|((_, other), _)| is_blocking(*other)).for_each(|(_, others)| behind.add(others));
        } else if let Some(legacy) = self.streams.get(&(context, 0))
            && is_blocking(handle)
        {
            behind.add(legacy);
        }
        behind.0.retain(|function| function.strong_count() > 0);
        if !behind.0.is_empty() {
            self.streams.insert(stream, behind.clone());
        }
        behind
    }

    pub fn recorded(&mut self, event: usize, behind: Behind) {
        self.events.remove(&event);
        if !behind.0.is_empty() && self.events.len() < EVENTS_MAX {
            self.events.insert(event, behind);
        }
    }

    pub fn waits_for_event(&mut self, stream: StreamKey, event: usize) {
        if let Some(behind) = self.events.get(&event) {
            self.streams.entry(stream).or_default().add(behind);
        }
    }

    /// A graph may record any event.
    pub fn forget_events(&mut self) {
        self.events.clear();
    }

    pub fn stream_gone(&mut self, stream: StreamKey) {
        self.streams.remove(&stream);
    }

    pub fn context_gone(&mut self, context: u64) {
        self.streams.retain(|(of, _), _| *of != context);
        self.forget_events();
    }

    pub fn forget_what_is_over(&mut self) {
        self.streams.retain(|_, behind| !behind.is_over());
        self.events.retain(|_, behind| !behind.is_over());
    }
}

/// One GPU of the session.
#[derive(Default)]
pub struct Place {
    pub said: Said,
    pub ahead: Ahead,
    /// Since when a command waits for the lease, and until when that has been told.
    pub waits_since_ns: u64,
    pub told_until_ns: u64,
    /// It was the session's own limit that it waited for, at some time since then.
    pub was_at_limit: bool,
    /// What may still be begun before the lease, and how long the last command was expected to take.
    pub armed_ns: u64,
    pub last_ns: Option<u64>,
    /// Since when it has nothing to do.
    pub quiet_since_ns: Option<u64>,
    /// Since when no mark was passed although the GPU has too much ahead.
    pub stuck_since_ns: Option<u64>,
    /// When a mark was last passed, or a command let by for the sake of what is ahead.
    pub progress_ns: u64,
    /// The arbiter does not live, so nobody is waited for.
    pub is_open: bool,
    /// Something passed that nobody has counted, because the session had the GPU to itself.
    pub was_free: bool,
    /// Since when its turn is over although the GPU works for it.
    pub is_over_since_ns: Option<u64>,
    /// Since when what it has begun is off the GPU, as far as that was not told yet, and whether its own limit was the
    /// reason at some time.
    pub off_told_until_ns: Option<u64>,
    pub is_off_by_limit: bool,
    /// How often its work was taken off the GPU since something of it last ended.
    pub in_vain: u32,
}

impl Place {
    /// Whether there is anything to ask its GPU about.
    pub fn has_work(&self) -> bool {
        self.said.busy || !self.ahead.is_empty()
    }
}

/// A session's gate: commands pass it on their way from the ring to the driver.
pub struct Gate {
    pub page: Arc<Page>,
    pub bell: Arc<Bell>,
    /// Where kernels can be taken off its GPU, in the order of their seats.
    pub preemptors: Vec<Option<Arc<Preemptor>>>,
    /// The driver's devices, in the order of their seats.
    pub devices: Vec<CUdevice>,
    pub places: Vec<Place>,
    pub times: Times,
    /// The device of each context, where there are several.
    pub seat_of: FxHashMap<u64, usize>,
    pub order: Order,
    /// Waits for values, each as the event behind it and what lives until that is passed.
    pub value_waits: Vec<(SpareEvent, Arc<()>)>,
}

impl Gate {
    /// `preemption` says of a device how kernels can be taken off it, where they can.
    pub fn new(
        page: Page,
        bell: Bell,
        vgpus: &[CUdevice],
        preemption: impl Fn(CUdevice) -> Option<Preemption>,
    ) -> io::Result<Gate> {
        let mut devices: Vec<CUdevice> = Vec::new();
        for device in vgpus {
            if !devices.contains(device) {
                devices.push(*device);
            }
        }
        let places = devices.iter().map(|_| Place::default()).collect();
        let (page, bell) = (Arc::new(page), Arc::new(bell));
        let preemptor = |(index, device): (usize, &CUdevice)| {
            let start = |how| Preemptor::start(how, index, page.clone(), bell.clone());
            preemption(*device).map(start).transpose()
        };
        let preemptors = devices.iter().enumerate().map(preemptor).collect::<io::Result<_>>()?;
        let (times, seat_of, order, value_waits) = Default::default();
        Ok(Gate { page, bell, preemptors, devices, places, times, seat_of, order, value_waits })
    }

    pub fn seat(&self, index: usize) -> &Seat {
        self.page.seat(index)
    }

    /// What the session has begun is off this GPU, and goes on with its next turn there.
    pub fn is_off(&self, index: usize) -> bool {
        self.preemptors[index].as_ref().is_some_and(|preemptor| preemptor.is_off())
    }

    /// Says what has changed.
    pub fn say(&mut self, index: usize, said: Said) {
        if self.places[index].said != said {
            if self.places[index].said.busy != said.busy {
                self.seat(index).works(said.busy, now_ns());
            }
            self.places[index].said = said;
            self.seat(index).say(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::out::callbacks::Runs;

    const EVENT: SpareEvent = (1, std::ptr::null_mut());

    const STREAM: StreamKey = (1, 8);
    const OTHER: StreamKey = (1, 16);

    fn add(ahead: &mut Ahead, now: u64, kind: u64, known_ns: Option<u64>) -> bool {
        ahead.add(|| now, STREAM, Behind::default(), kind, known_ns)
    }

    #[test]
    fn what_is_ahead_grows_and_goes() {
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        assert!(add(&mut ahead, 1000, 7, None));
        ahead.mark(STREAM, EVENT);
        assert_eq!((ahead.expected_ns(), ahead.left_ns(31_000)), (UNKNOWN_NS, UNKNOWN_NS - 30_000));
        // It is not known to be over, so it is not less than nothing.
        assert_eq!(ahead.left_ns(10_000_000), 0);
        assert_eq!(ahead.pass(50_000, &mut times, |_| false), []);
        assert_eq!(ahead.pass(51_000, &mut times, |_| true), [EVENT]);
        assert_eq!((ahead.expected_ns(), times.of(7), ahead.is_empty()), (0, Some(50_000), true));
        assert!(!add(&mut ahead, 60_000, 7, times.of(7)) && !add(&mut ahead, 0, 7, times.of(7)));
        assert_eq!((ahead.expected_ns(), ahead.ends()), (100_000, vec![STREAM]));
        ahead.is_over(STREAM, 120_000, &mut times);
        assert!(ahead.is_empty() && ahead.expected_ns() == 0);
        assert!((25_000..50_000).contains(&times.of(7).expect("it ran")), "{:?}", times.of(7));
    }

    #[test]
    fn what_was_begun_behind_anothers_work_says_nothing_of_how_long_it_takes() {
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        let mut run = |begun_ns, is_early, over_ns| {
            add(&mut ahead, begun_ns, 7, times.of(7));
            if is_early {
                ahead.is_early(STREAM);
            }
            ahead.mark(STREAM, EVENT);
            ahead.pass(over_ns, &mut times, |_| true);
            times.of(7)
        };
        assert_eq!(run(0, false, 50_000), Some(50_000));
        assert_eq!(run(100_000, true, 350_000), Some(50_000));
        assert_eq!(run(400_000, false, 480_000), Some(57_500));
        // Of what has never run that is all that is known.
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        add(&mut ahead, 0, 8, None);
        ahead.is_early(STREAM);
        ahead.mark(STREAM, EVENT);
        ahead.pass(90_000, &mut times, |_| true);
        assert_eq!(times.of(8), Some(90_000));
    }

    #[test]
    fn what_runs_beside_others_says_nothing_of_how_long_it_takes() {
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        let mut run = |begun_ns, are_beside_others, over_ns| {
            times.are_beside_others = are_beside_others;
            add(&mut ahead, begun_ns, 7, times.of(7));
            ahead.mark(STREAM, EVENT);
            ahead.pass(over_ns, &mut times, |_| true);
            times.of(7)
        };
        assert_eq!(run(0, false, 50_000), Some(50_000));
        assert_eq!(run(100_000, true, 700_000), Some(50_000));
        // Unless it took less than was thought: some of that was the others'.
        assert_eq!(run(800_000, false, 1_250_000), Some(150_000));
        assert_eq!(run(1_300_000, true, 1_370_000), Some(130_000));
        assert_eq!(ahead.done, 4);
    }

    #[test]
    fn a_mark_is_due_for_the_unknown_and_after_enough() {
        let mut ahead = Ahead::default();
        let known = Some(MARK_NS / 4);
        let due: Vec<bool> = (0..4).map(|i| add(&mut ahead, i, 1, known)).collect();
        assert_eq!(due, [false, false, false, true]);
        let mut ahead = Ahead::default();
        for _ in 0..MARKS_MAX {
            assert!(add(&mut ahead, 0, 1, None));
            ahead.mark(STREAM, EVENT);
        }
        assert!(!add(&mut ahead, 0, 1, None), "as many marks as there may be");
        ahead.forget(STREAM.0);
        assert_eq!((ahead.expected_ns(), ahead.is_empty()), (0, true));
    }

    #[test]
    fn what_waits_for_a_host_function_is_not_ahead_until_it_has_returned() {
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        let function = Arc::new(());
        let behind = || Behind::one(Arc::downgrade(&function));
        assert!(ahead.add(|| 0, STREAM, behind(), 1, Some(1000)), "it is marked, whatever it takes");
        ahead.mark(STREAM, EVENT);
        assert_eq!((ahead.expected_ns(), ahead.only_waits(), ahead.ends()), (0, true, vec![]));
        // What another stream does is seen although this one waits.
        ahead.add(|| 0, OTHER, Behind::default(), 2, Some(3000));
        ahead.mark(OTHER, EVENT);
        assert_eq!((ahead.expected_ns(), ahead.only_waits()), (3000, false));
        assert_eq!(ahead.pass(4000, &mut times, |_| true), [EVENT]);
        assert_eq!((ahead.expected_ns(), ahead.only_waits()), (0, true));
        drop(function);
        assert_eq!(ahead.pass(9_000_000, &mut times, |_| false), []);
        assert_eq!((ahead.expected_ns(), ahead.only_waits()), (1000, false));
        assert_eq!(ahead.pass(9_002_000, &mut times, |_| true), [EVENT]);
        // The time for which it waited is not its own.
        assert_eq!((times.of(1), ahead.is_empty()), (Some(2000), true));
    }

    #[test]
    fn a_graph_is_not_ahead_while_it_waits_for_its_own_host_function() {
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        let function = Arc::new(Runs::default());
        let nodes = || Arc::new(HostNodes::new(vec![(1, function.clone())], true));
        add(&mut ahead, 0, 1, Some(5000));
        let of_first = nodes();
        assert!(ahead.is_graph(STREAM, of_first.clone()));
        ahead.mark(STREAM, EVENT);
        assert_eq!(ahead.pass(1000, &mut times, |_| false), []);
        assert_eq!((ahead.expected_ns(), ahead.only_waits()), (5000, false));
        function.begin();
        assert_eq!(ahead.pass(2000, &mut times, |_| true), []);
        assert_eq!((ahead.expected_ns(), ahead.only_waits()), (0, true));
        function.end();
        assert_eq!(ahead.pass(9_002_000, &mut times, |_| false), []);
        assert_eq!((ahead.expected_ns(), ahead.only_waits()), (5000, false));
        assert_eq!(ahead.pass(9_003_000, &mut times, |_| true), [EVENT]);
        assert_eq!((times.of(1), ahead.is_empty()), (Some(3000), true), "of 9,003,000 they were its own");
        // A kernel behind it that has no mark of its own may run while the function does, for another launch.
        add(&mut ahead, 0, 1, Some(5000));
        assert!(ahead.is_graph(STREAM, of_first.clone()));
        add(&mut ahead, 0, 2, Some(5000));
        assert!(!ahead.is_graph(STREAM, of_first));
        function.begin();
        ahead.pass(1000, &mut times, |_| false);
        assert!(!ahead.only_waits());
    }

    #[test]
    fn work_stands_behind_host_functions_of_other_streams() {
        let mut order = Order::default();
        let (first, second) = (Arc::new(()), Arc::new(()));
        let blocking = |stream: usize| stream == 8;
        order.stands_behind(STREAM, Arc::downgrade(&first));
        order.stands_behind(OTHER, Arc::downgrade(&second));
        assert!(order.of((1, 24), blocking).is_over() && !order.of(STREAM, blocking).is_over());
        // An event brings it to another stream; until it is recorded elsewhere.
        let behind = order.of(OTHER, blocking);
        order.recorded(5, behind);
        order.waits_for_event((1, 24), 5);
        assert!(!order.of((1, 24), blocking).is_over());
        order.recorded(5, Behind::default());
        order.waits_for_event((1, 32), 5);
        assert!(order.of((1, 32), blocking).is_over());
        // The legacy stream waits for the blocking one alone, and then a blocking one for it; not in another context.
        drop(second);
        assert!(!order.of((1, 0), blocking).is_over() && order.of((2, 0), blocking).is_over());
        drop(first);
        order.forget_what_is_over();
        assert!(order.is_empty());
    }

    #[test]
    fn a_launch_is_of_the_same_kind_whatever_its_stream_and_parameters() {
        let body = |function: u8, stream: u8| {
            let mut body = vec![0u8; LAUNCH_HEAD_BYTES + 8];
            (body[0], body[40], body[LAUNCH_HEAD_BYTES]) = (function, stream, stream);
            body
        };
        let kind = |op, function, stream| kind_of(op, &body(function, stream));
        assert_eq!(kind(ops::CU_LAUNCH_KERNEL, 1, 2), kind(ops::CU_LAUNCH_KERNEL, 1, 3));
        assert_ne!(kind(ops::CU_LAUNCH_KERNEL, 1, 2), kind(ops::CU_LAUNCH_KERNEL, 2, 2));
        assert_eq!(kind(ops::CU_MEMSET_D8_ASYNC, 1, 2), kind(ops::CU_MEMSET_D8_ASYNC, 2, 2));
        // A damaged body is the dispatcher's to refuse.
        assert_eq!(kind_of(ops::CU_LAUNCH_KERNEL, &[]), kind_of(ops::CU_LAUNCH_KERNEL, &[]));
    }
}
