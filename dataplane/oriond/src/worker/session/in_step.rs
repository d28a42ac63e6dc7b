//! Mapped host memory of a client that has a copy of its own: what kernels changed goes there before every reply that
//! tells of a completion, and between commands while the device works.
//!
//! The executor does both, and applies what the client changed: nobody else looks at what is known.

use std::time::{Duration, Instant};

use orion_transport::mirror::Scope;
use orion_wire::Fault;

use crate::lines;
use crate::worker::out::arrivals;
use crate::worker::session::Session;
use crate::worker::state::in_step::{Again, IDLE_SPIN, INTERVAL_MAX, INTERVAL_MIN};

/// Without commands for so long the device is asked whether it is idle. Longer than the pause between a completion and
/// the next launch: whoever is told of an idle device has to be woken again.
const QUIET: Duration = Duration::from_millis(2);

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
        return look_for_copies(s);
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
            lines::warn(&format!("heap patch lost: {fault}"));
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
        // Half of the time is the commands', however much memory there is to look at.
        let done = Instant::now();
        s.in_step.next = done + s.in_step.interval.max(done - now);
        if patches == 0 && (told || s.in_step.owes_acknowledgement()) {
            tell(s);
        }
        s.replies.publish();
    }
    let within = s.in_step.next.saturating_duration_since(now);
    Some(Again { within, may_sleep: quiet >= IDLE_SPIN })
}

/// Brings over copies that have been made by now and that nobody has asked about.
fn look_for_copies(s: &mut Session) -> Option<Again> {
    let next = s.unasked.next?;
    let now = Instant::now();
    if now >= next {
        if let Err(fault) = s.bring(Scope::Live) {
            lines::warn(&format!("bytes of a copy are lost: {fault}"));
        }
        s.replies.publish();
        // None are left.
        s.unasked.next?;
        let done = Instant::now();
        s.unasked.look_again(done, done - now);
    }
    let within = s.unasked.next?.saturating_duration_since(now);
    Some(Again { within, may_sleep: s.unasked.interval == INTERVAL_MAX })
}

/// Sends what a patch says besides bytes.
fn tell(s: &mut Session) {
    let Some(arrivals) = &s.arrivals else { return };
    let mut arrivals = arrivals::lock(arrivals);
    let bare = arrivals.mirror.bare(s.in_step.notice(Scope::All));
    if let Err(fault) = arrivals.patch(&bare) {
        lines::warn(&format!("heap patch lost: {fault}"));
    }
}
