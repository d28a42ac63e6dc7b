//! Mapped host memory of a client that has a copy of its own: what kernels changed goes there before every reply that
//! tells of a completion, and between commands while the device works.
//!
//! The executor does both, and applies what the client changed: nobody else looks at what is known.

use std::time::{Duration, Instant};

use orion_ring::Heap;
use orion_transport::Mirror;
use orion_transport::mirror::{Notice, Scope};
use orion_wire::Fault;
use orion_wire::record::{Header, HeapRange, op};

use crate::worker::arrivals::{self, Shared};
use crate::worker::session::{Session, log};

/// How often memory is compared while the device works: quickly after something was found, ever more rarely after
/// that.
const INTERVAL_MIN: Duration = Duration::from_micros(20);
const INTERVAL_MAX: Duration = Duration::from_millis(1);
/// Where a kernel is short, its completion brings what it wrote just as soon, and looking first only costs a message.
/// So `patience` grows up to this while completions follow upon the first find, and ends with the second find without.
const PATIENCE_MAX: Duration = Duration::from_micros(640);
/// Without commands for so long the device is asked whether it is idle. Longer than the pause between a completion and
/// the next launch: whoever is told of an idle device has to be woken again.
const QUIET: Duration = Duration::from_millis(2);

pub struct InStep {
    /// Only of a client that has a copy of its own.
    arrivals: Option<Shared>,
    has_live: bool,
    /// Number of the last command that may have given the device something to do, and of all when the client was last
    /// told that it has nothing.
    last_work: u64,
    told_idle: u64,
    /// Commands at the last look, and since when there have been no others.
    executed: u64,
    quiet_since: Instant,
    next: Instant,
    interval: Duration,
    /// What the interval starts from after a look that found something: see [`PATIENCE_MAX`].
    patience: Duration,
    /// Looks that found something since the last completion.
    finds: u32,
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
            has_live: false,
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

    fn change<T>(&mut self, change: impl FnOnce(&mut Mirror) -> T) -> Option<T> {
        let mut arrivals = arrivals::lock(self.arrivals.as_ref()?);
        let answer = change(&mut arrivals.mirror);
        self.has_live = arrivals.mirror.has_live();
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
        if self.has_live && self.told_idle >= self.last_work {
            self.hurry();
        }
        self.last_work = executed;
    }

    /// Whether memory has to be compared now and then.
    #[inline]
    pub fn wanted(&self) -> bool {
        self.has_live && (self.told_idle < self.last_work || self.owes_acknowledgement())
    }

    fn owes_acknowledgement(&self) -> bool {
        self.arrivals.as_ref().is_some_and(|arrivals| arrivals::lock(arrivals).mirror.owes_acknowledgement())
    }

    /// Something may happen soon.
    fn hurry(&mut self) {
        if self.has_live {
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

/// The client has changed something.
pub fn patch(s: &mut Session, body: &[u8]) -> Result<(), Fault> {
    let heap = s.heap;
    s.in_step.change(|mirror| mirror.apply(&heap, body)).ok_or(Fault("patch in shared memory"))??;
    // The device may answer at once.
    s.in_step.hurry();
    Ok(())
}

/// Between commands: tells the client what the device changed meanwhile, and once that the device has nothing to do.
/// Costs two comparisons where no memory is kept in step or nothing is under way.
pub fn look(s: &mut Session) -> Option<Again> {
    if !s.in_step.wanted() {
        return None;
    }
    let now = Instant::now();
    let executed = s.executed.load(std::sync::atomic::Ordering::Relaxed);
    if executed != s.in_step.executed {
        s.in_step.executed = executed;
        s.in_step.quiet_since = now;
    }
    let quiet = now - s.in_step.quiet_since;
    if now >= s.in_step.next {
        // Asked before the memory is compared: all that the device wrote is found then.
        if quiet >= QUIET && s.in_step.told_idle < executed && s.device_idle() {
            s.in_step.told_idle = executed;
        }
        let told = s.in_step.told_idle == executed;
        let patches = s.bring(Scope::Live).unwrap_or_else(|fault| {
            log::warn(&format!("heap patch lost: {fault}"));
            0
        });
        if patches == 0 {
            s.in_step.interval = (s.in_step.interval * 2).min(INTERVAL_MAX);
        } else {
            s.in_step.finds += 1;
            if s.in_step.finds > 1 {
                s.in_step.patience = INTERVAL_MIN;
            }
            s.in_step.interval = s.in_step.patience;
        }
        s.in_step.next = now + s.in_step.interval;
        if patches == 0 && (told || s.in_step.owes_acknowledgement()) {
            tell(s);
        }
        s.replies.publish();
    }
    let within = s.in_step.next.saturating_duration_since(now);
    Some(Again { within, may_sleep: quiet >= crate::worker::IDLE_SPIN })
}

/// Sends what a patch says besides bytes.
fn tell(s: &mut Session) {
    let Some(arrivals) = &s.arrivals else { return };
    let mut arrivals = arrivals::lock(arrivals);
    let bare = arrivals.mirror.bare(s.in_step.notice(Scope::All));
    if let Err(fault) = arrivals.patch(&bare) {
        log::warn(&format!("heap patch lost: {fault}"));
    }
}
