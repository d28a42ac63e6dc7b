//! What a session lets its GPUs have ahead while others have shares of them, and how long that will take.
//!
//! Numbers alone: what asks the driver is in `session/gating.rs`.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::Arc;

use orion_arbiter::Said;
use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::message::execution::LAUNCH_HEAD_BYTES;
use rustc_hash::{FxHashMap, FxHasher};

use crate::seat::{Bell, Page, Seat};
use crate::worker::out::arrivals::SpareEvent;

/// Work that a GPU may have ahead, by what is known of how long it takes: nobody else waits for more than that.
pub const AHEAD_NS_MAX: u64 = 2_000_000;
/// What may be begun just before the lease.
pub const ARMED_NS: u64 = 50_000;
/// Work between two marks.
const MARK_NS: u64 = 200_000;
/// Kernels whose times are known. All are forgotten when there are more.
const TIMES_MAX: usize = 1 << 16;
/// Marks under way, and commands between two.
const MARKS_MAX: usize = 64;
const BATCH_MAX: usize = 256;
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

/// What takes about as long each time: a function with its geometry, a graph.
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
    hasher.write(body.get(..words * 8).unwrap_or(body));
    hasher.finish()
}

/// How long each kind of command has taken.
#[derive(Default)]
pub struct Times(FxHashMap<u64, u64>);

impl Times {
    pub fn of(&self, kind: u64) -> Option<u64> {
        self.0.get(&kind).copied()
    }

    /// These, which were thought to take `expected_ns` together, have taken `took_ns`.
    fn learn(&mut self, batch: &[(u64, u64)], expected_ns: u64, took_ns: u64) {
        if self.0.len() + batch.len() > TIMES_MAX {
            self.0.clear();
        }
        for (kind, part_ns) in batch {
            let part = u128::from(*part_ns) * u128::from(took_ns) / u128::from(expected_ns.max(1));
            let part = u64::try_from(part).unwrap_or(u64::MAX).clamp(TIME_NS_MIN, TIME_NS_MAX);
            self.0.entry(*kind).and_modify(|known| *known = (*known * 3 + part) / 4).or_insert(part);
        }
    }
}

/// An event behind some of the work.
struct Mark {
    event: SpareEvent,
    batch: Vec<(u64, u64)>,
    expected_ns: u64,
    begun_ns: u64,
}

/// What one GPU has ahead.
#[derive(Default)]
pub struct Ahead {
    marks: VecDeque<Mark>,
    /// Not marked yet.
    batch: Vec<(u64, u64)>,
    batch_ns: u64,
    batch_begun_ns: u64,
    all_ns: u64,
    /// When the last mark was passed.
    passed_ns: u64,
}

impl Ahead {
    /// What is ahead by what was expected, without asking for the time.
    pub fn expected_ns(&self) -> u64 {
        self.all_ns
    }

    /// What is ahead, less what must have been done meanwhile.
    pub fn left_ns(&self, now: u64) -> u64 {
        let (begun_ns, first_ns) = match self.marks.front() {
            Some(first) => (first.begun_ns, first.expected_ns),
            None => (self.batch_begun_ns, self.batch_ns),
        };
        self.all_ns - now.saturating_sub(begun_ns.max(self.passed_ns)).min(first_ns)
    }

    pub fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.batch.is_empty()
    }

    /// One more command; true if there should be a mark behind it.
    pub fn add(&mut self, now: impl FnOnce() -> u64, kind: u64, known_ns: Option<u64>) -> bool {
        let ns = known_ns.unwrap_or(UNKNOWN_NS);
        if self.batch.is_empty() {
            self.batch_begun_ns = now();
        }
        self.batch.push((kind, ns));
        self.batch_ns += ns;
        self.all_ns += ns;
        let is_due = known_ns.is_none() || self.batch_ns >= MARK_NS || self.batch.len() >= BATCH_MAX;
        is_due && self.marks.len() < MARKS_MAX
    }

    pub fn mark(&mut self, event: SpareEvent) {
        let (batch, expected_ns) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_ns));
        self.marks.push_back(Mark { event, batch, expected_ns, begun_ns: self.batch_begun_ns });
    }

    /// The event to ask about next.
    pub fn next_event(&self) -> Option<CUevent> {
        self.marks.front().map(|mark| mark.event.1)
    }

    /// That event has happened; it is given back.
    pub fn passed(&mut self, now: u64, times: &mut Times) -> Option<SpareEvent> {
        let mark = self.marks.pop_front()?;
        times.learn(&mark.batch, mark.expected_ns, now.saturating_sub(mark.begun_ns.max(self.passed_ns)));
        self.passed_ns = now;
        self.all_ns -= mark.expected_ns;
        Some(mark.event)
    }

    /// The GPU has nothing more to do.
    pub fn is_over(&mut self, now: u64, times: &mut Times) {
        if !self.batch.is_empty() {
            times.learn(&self.batch, self.batch_ns, now.saturating_sub(self.batch_begun_ns.max(self.passed_ns)));
            self.passed_ns = now;
        }
        self.batch.clear();
        (self.batch_ns, self.all_ns) = (0, self.marks.iter().map(|mark| mark.expected_ns).sum());
    }

    /// Their context is gone.
    pub fn forget(&mut self, context: u64) {
        self.marks.retain(|mark| mark.event.0 != context);
        self.all_ns = self.batch_ns + self.marks.iter().map(|mark| mark.expected_ns).sum::<u64>();
    }
}

/// One GPU of the session.
#[derive(Default)]
pub struct Place {
    pub said: Said,
    pub ahead: Ahead,
    /// Since when a command waits for the lease.
    pub waits_since_ns: u64,
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
}

/// A session's gate: commands pass it on their way from the ring to the driver.
pub struct Gate {
    pub page: Arc<Page>,
    pub bell: Bell,
    /// The driver's devices, in the order of their seats.
    pub devices: Vec<CUdevice>,
    pub places: Vec<Place>,
    pub times: Times,
    /// The device of each context, where there are several.
    pub seat_of: FxHashMap<u64, usize>,
}

impl Gate {
    pub fn new(page: Page, bell: Bell, vgpus: &[CUdevice]) -> Gate {
        let mut devices: Vec<CUdevice> = Vec::new();
        for device in vgpus {
            if !devices.contains(device) {
                devices.push(*device);
            }
        }
        let places = devices.iter().map(|_| Place::default()).collect();
        Gate { page: Arc::new(page), bell, devices, places, times: Times::default(), seat_of: FxHashMap::default() }
    }

    pub fn seat(&self, index: usize) -> &Seat {
        self.page.seat(index)
    }

    /// Says what has changed.
    pub fn say(&mut self, index: usize, said: Said) {
        if self.places[index].said != said {
            self.places[index].said = said;
            self.seat(index).say(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: SpareEvent = (1, std::ptr::null_mut());

    #[test]
    fn what_is_ahead_grows_and_goes() {
        let (mut ahead, mut times) = (Ahead::default(), Times::default());
        assert!(ahead.add(|| 1000, 7, None));
        ahead.mark(EVENT);
        assert_eq!((ahead.expected_ns(), ahead.left_ns(31_000)), (UNKNOWN_NS, UNKNOWN_NS - 30_000));
        // It is not known to be over, so it is not less than nothing.
        assert_eq!(ahead.left_ns(10_000_000), 0);
        ahead.passed(51_000, &mut times);
        assert_eq!((ahead.expected_ns(), times.of(7)), (0, Some(50_000)));
        assert!(!ahead.add(|| 60_000, 7, times.of(7)) && !ahead.add(|| 0, 7, times.of(7)));
        assert_eq!(ahead.expected_ns(), 100_000);
        ahead.is_over(120_000, &mut times);
        assert!(ahead.is_empty() && ahead.expected_ns() == 0);
        assert!((25_000..50_000).contains(&times.of(7).expect("it ran")), "{:?}", times.of(7));
    }

    #[test]
    fn a_mark_is_due_for_the_unknown_and_after_enough() {
        let mut ahead = Ahead::default();
        let known = Some(MARK_NS / 4);
        let due: Vec<bool> = (0..4).map(|i| ahead.add(|| i, 1, known)).collect();
        assert_eq!(due, [false, false, false, true]);
        let mut ahead = Ahead::default();
        for _ in 0..MARKS_MAX {
            assert!(ahead.add(|| 0, 1, None));
            ahead.mark(EVENT);
        }
        assert!(!ahead.add(|| 0, 1, None), "as many marks as there may be");
        ahead.forget(1);
        assert_eq!(ahead.expected_ns(), UNKNOWN_NS);
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
