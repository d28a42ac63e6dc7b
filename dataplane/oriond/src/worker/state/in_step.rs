//! When mapped host memory of a client that has a copy of its own is compared.

use std::time::{Duration, Instant};

use orion_ring::Heap;
use orion_transport::Mirror;
use orion_transport::mirror::{Notice, Scope};
use orion_wire::Fault;
use orion_wire::record::{Header, HeapRange, op};

use crate::worker::out::arrivals::{self, Shared};

/// How often memory is compared while the device works: quickly after something was found, ever more rarely after
/// that.
pub const INTERVAL_MIN: Duration = Duration::from_micros(20);

pub const INTERVAL_MAX: Duration = Duration::from_millis(1);

/// Where a kernel is short, its completion brings what it wrote just as soon, and looking first only costs a message.
/// So `patience` doubles, up to this, each time a completion comes after one look has found something. When two looks
/// in a row find something and no completion has come, the kernel is a long one, and `patience` is the shortest
/// again.
pub const PATIENCE_MAX: Duration = Duration::from_micros(640);

pub struct InStep {
    /// Only of a client that has a copy of its own.
    pub arrivals: Option<Shared>,
    pub any: bool,
    /// Number of the last command that may have given the device something to do, and of all when the client was last
    /// told that it has nothing.
    pub last_work: u64,
    pub told_idle: u64,
    /// Commands at the last look, and since when there have been no others.
    pub executed: u64,
    pub quiet_since: Instant,
    pub next: Instant,
    pub interval: Duration,
    /// What the interval starts from after a look that found something: see [`PATIENCE_MAX`].
    pub patience: Duration,
    /// Looks that found something since the last completion.
    pub finds: u32,
}

/// Copies to the host that the client has not asked about: a program may look at the memory alone, and make no call
/// until the bytes are there.
#[derive(Default)]
pub struct Unasked {
    /// When they are asked about, if there are any.
    pub next: Option<Instant>,
    pub interval: Duration,
}

/// Most programs wait for what they copy, and sooner than that.
const UNASKED_FIRST: Duration = Duration::from_micros(100);

impl Unasked {
    #[inline]
    pub fn any(&self) -> bool {
        self.next.is_some()
    }

    /// A copy was queued.
    pub fn copied(&mut self) {
        if self.next.is_none() {
            self.interval = UNASKED_FIRST;
            self.next = Some(Instant::now() + UNASKED_FIRST);
        }
    }

    /// They were asked about, for `took`, and some are under way still.
    pub fn look_again(&mut self, now: Instant, took: Duration) {
        self.interval = (self.interval * 2).min(INTERVAL_MAX);
        self.next = Some(now + self.interval.max(took));
    }
}

/// When memory wants to be compared again, and whether the executor may sleep until then.
#[derive(Clone, Copy)]
pub struct Again {
    pub within: Duration,
    pub may_sleep: bool,
}

impl InStep {
    pub fn new(arrivals: Option<Shared>) -> InStep {
        let now = Instant::now();
        InStep {
            arrivals,
            any: false,
            last_work: 0,
            told_idle: 0,
            executed: 0,
            quiet_since: now,
            next: now,
            interval: INTERVAL_MIN,
            patience: INTERVAL_MIN,
            finds: 0,
        }
    }

    pub fn change<T>(&mut self, change: impl FnOnce(&mut Mirror) -> T) -> Option<T> {
        let mut arrivals = arrivals::lock(self.arrivals.as_ref()?);
        let answer = change(&mut arrivals.mirror);
        self.any = !arrivals.mirror.is_empty();
        Some(answer)
    }

    pub fn add(&mut self, heap: &Heap, range: HeapRange) -> Result<(), Fault> {
        self.change(|mirror| mirror.add(heap, range)).unwrap_or(Ok(()))
    }

    pub fn remove(&mut self, range: HeapRange) {
        self.change(|mirror| mirror.remove(range.offset));
    }

    /// Takes note of a command that was executed. The client counts the same ones.
    pub fn note(&mut self, header: &Header, executed: u64) {
        if header.op < op::HAND_FIRST {
            return;
        }
        if self.any && self.told_idle >= self.last_work {
            self.hurry();
        }
        self.last_work = executed;
    }

    /// Whether memory has to be compared now and then.
    #[inline]
    pub fn wanted(&self) -> bool {
        self.any && (self.told_idle < self.last_work || self.owes_acknowledgement())
    }

    pub fn owes_acknowledgement(&self) -> bool {
        self.arrivals.as_ref().is_some_and(|arrivals| arrivals::lock(arrivals).mirror.owes_acknowledgement())
    }

    /// Something may happen soon.
    pub fn hurry(&mut self) {
        if self.any {
            self.interval = self.patience;
            self.next = self.next.min(Instant::now() + self.patience);
        }
    }

    /// The client is told of a completion.
    pub fn completed(&mut self) {
        if self.finds == 1 {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
        }
        self.finds = 0;
    }

    pub fn notice(&self, scope: Scope) -> Notice {
        Notice { idle_after: self.told_idle, live: scope == Scope::Live }
    }
}

/// How long an executor without work keeps looking before it sleeps: longer than the pause between two training
/// steps, shorter than what anybody would call idle.
pub const IDLE_SPIN: Duration = Duration::from_millis(20);
