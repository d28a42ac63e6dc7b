//! Mapped host memory of a client that has a copy of its own: what kernels changed goes there before every reply that
//! tells of a completion, and between commands while the device works.
//!
//! The executor does both, and applies what the client changed: nobody else looks at what is known.

use std::time::{Duration, Instant};

use orion_ring::Heap;
use orion_transport::Mirror;
use orion_transport::mirror::{Notice, Scope, Side};
use orion_wire::Fault;
use orion_wire::record::{Header, HeapRange, op};

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
    mirror: Mirror,
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

impl Default for InStep {
    fn default() -> InStep {
        let now = Instant::now();
        InStep {
            mirror: Mirror::new(Side::Worker),
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
}

/// When memory wants to be compared again, and whether the executor may sleep until then.
#[derive(Clone, Copy)]
pub struct Again {
    pub within: Duration,
    pub may_sleep: bool,
}

impl InStep {
    pub fn add(&mut self, heap: &Heap, range: HeapRange) -> Result<(), Fault> {
        self.mirror.add(heap, range)?;
        self.has_live = self.mirror.has_live();
        Ok(())
    }

    pub fn remove(&mut self, range: HeapRange) {
        self.mirror.remove(range.offset);
        self.has_live = self.mirror.has_live();
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
        self.has_live && (self.told_idle < self.last_work || self.mirror.owes_acknowledgement())
    }

    /// Something may happen soon.
    fn hurry(&mut self) {
        if self.has_live {
            self.interval = self.patience;
            self.next = self.next.min(Instant::now() + self.patience);
        }
    }

    fn notice(&self, live: bool) -> Notice {
        Notice { idle_after: self.told_idle, live }
    }
}

/// The client has changed something.
pub fn patch(s: &mut Session, body: &[u8]) -> Result<(), Fault> {
    if !s.mirrored {
        return Err(Fault("patch in shared memory"));
    }
    s.in_step.mirror.apply(&s.heap, body)?;
    // The device may answer at once.
    s.in_step.hurry();
    Ok(())
}

/// A carrier will bring the client these bytes as they are: they are no news any more.
pub fn heap_written(s: &mut Session, range: HeapRange) {
    if !s.in_step.mirror.is_empty() {
        s.in_step.mirror.arrived(&s.heap, range);
    }
}

/// The client is about to learn that work is done: what kernels wrote to mapped host memory has to be there first.
pub fn announce_changes(s: &mut Session) {
    if s.in_step.mirror.is_empty() {
        return;
    }
    if s.in_step.finds == 1 {
        s.in_step.patience = (s.in_step.patience * 2).min(PATIENCE_MAX);
    }
    s.in_step.finds = 0;
    let notice = s.in_step.notice(false);
    let mut patches = s.in_step.mirror.collect(&s.heap, Scope::All, notice);
    if patches.is_empty() && s.in_step.mirror.owes_acknowledgement() {
        patches.push(s.in_step.mirror.bare(notice));
    }
    send(s, patches);
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
        let notice = s.in_step.notice(true);
        let mut patches = s.in_step.mirror.collect(&s.heap, Scope::Live, notice);
        if patches.is_empty() {
            s.in_step.interval = (s.in_step.interval * 2).min(INTERVAL_MAX);
        } else {
            s.in_step.finds += 1;
            if s.in_step.finds > 1 {
                s.in_step.patience = INTERVAL_MIN;
            }
            s.in_step.interval = s.in_step.patience;
        }
        s.in_step.next = now + s.in_step.interval;
        if patches.is_empty() && (told || s.in_step.mirror.owes_acknowledgement()) {
            patches.push(s.in_step.mirror.bare(s.in_step.notice(false)));
        }
        send(s, patches);
    }
    let within = s.in_step.next.saturating_duration_since(now);
    Some(Again { within, may_sleep: quiet >= crate::worker::IDLE_SPIN })
}

fn send(s: &mut Session, patches: Vec<Vec<u8>>) {
    for patch in patches {
        if let Err(fault) = s.replies.heap_patch(&patch) {
            log::warn(&format!("heap patch lost: {fault}"));
        }
    }
}
