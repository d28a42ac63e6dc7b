//! A session whose work goes on after its turn is taken off the GPU until it has a turn again.
//!
//! The executor takes it off, since it knows that the GPU works. Letting it go on has a thread of its own: the executor
//! may be inside the driver, in a call that ends when what was taken off has ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use orion_ring::futex::{self, Among};

use crate::lines;
use crate::seat::{Bell, PATIENCE_NS, Page, Seat, grant, now_ns};
use crate::worker::driver::preemption::Preemption;

/// A session whose GPU works for it for so long after its turn is taken off it. What is over sooner costs the others
/// less so: off and on again takes an H200 0.75 ms.
const OFF_AFTER_NS: u64 = 2_000_000;
/// Kernels that wait for each other on two GPUs come no further but while both have their turns, and turns of the same
/// length may miss each other for seconds. So whose work was taken off so often and nothing of it has ended stays on
/// for longer, now more and now less, and up to a little before it would be passed by.
const IN_VAIN_MAX: u32 = 64;
const LONGER_NS_MAX: u64 = 7_000_000;
/// How often whoever waits for a turn looks whether the arbiter lives.
const LOOK: Duration = Duration::from_millis(50);

/// How long a session's work may go on after a turn that ended at `over_ns`, when it was taken off so often in vain.
pub fn off_after_ns(in_vain: u32, over_ns: u64) -> u64 {
    if in_vain < IN_VAIN_MAX {
        return OFF_AFTER_NS;
    }
    // Nobody else has the same nanosecond.
    let random = over_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    OFF_AFTER_NS + random % LONGER_NS_MAX
}

/// Of a session's GPU.
pub struct Preemptor {
    preemption: Preemption,
    /// Which seat of the page is this GPU's.
    index: usize,
    page: Arc<Page>,
    bell: Arc<Bell>,
    /// 1 while the session is off its GPU; slept on as a futex.
    is_off: AtomicU32,
    /// It has failed, and is not tried any more.
    is_broken: AtomicBool,
}

impl Preemptor {
    pub fn start(preemption: Preemption, index: usize, page: Arc<Page>, bell: Arc<Bell>) -> io::Result<Arc<Preemptor>> {
        let (is_off, is_broken) = (AtomicU32::new(0), AtomicBool::new(false));
        let preemptor = Arc::new(Preemptor { preemption, index, page, bell, is_off, is_broken });
        let theirs = preemptor.clone();
        std::thread::Builder::new().name("orion-turns".to_owned()).spawn(move || theirs.run())?;
        Ok(preemptor)
    }

    fn seat(&self) -> &Seat {
        self.page.seat(self.index)
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Acquire) != 0
    }

    /// The executor's: its turn is over, and the GPU still works for it. Answers whether it does not any more.
    pub fn take_off(&self) -> bool {
        if self.is_off() || self.is_broken.load(Ordering::Relaxed) {
            return self.is_off();
        }
        if let Err(why) = self.preemption.stop() {
            self.is_broken.store(true, Ordering::Relaxed);
            lines::warn(&format!("work that goes on after its turn cannot be taken off the GPU any more: {why}"));
            // Some of it may have been.
            let _ = self.preemption.resume();
            return false;
        }
        self.seat().is_taken_off(true, now_ns());
        self.bell.ring();
        self.is_off.store(1, Ordering::Release);
        futex::wake(&self.is_off, Among::Threads);
        true
    }

    fn run(&self) {
        loop {
            while !self.is_off() {
                futex::wait(&self.is_off, 0, None, Among::Threads);
            }
            self.wait_for_turn();
            self.let_go_on();
        }
    }

    fn wait_for_turn(&self) {
        let words = &self.seat().of_arbiter;
        loop {
            let shown = words.grant.load(Ordering::Acquire);
            let is_dead = now_ns().saturating_sub(words.beat_ns.load(Ordering::Relaxed)) > PATIENCE_NS;
            if !matches!(shown, grant::STOP | grant::ARMED) || is_dead || !self.is_off() {
                return;
            }
            futex::wait(&words.grant, shown, Some(LOOK), Among::Processes);
        }
    }

    /// Whatever the arbiter says: the session is over, or has its turn.
    pub fn let_go_on(&self) {
        if !self.is_off() {
            return;
        }
        if let Err(why) = self.preemption.resume() {
            // It would wait for ever for what it has begun.
            lines::warn(&format!("what was taken off the GPU cannot go on, and the session ends: {why}"));
            std::process::abort();
        }
        self.seat().is_taken_off(false, now_ns());
        self.is_off.store(0, Ordering::Release);
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_no_further_stays_on_for_longer_now_more_and_now_less() {
        assert!((0..1000).all(|over_ns| off_after_ns(IN_VAIN_MAX - 1, over_ns) == OFF_AFTER_NS));
        let longer: Vec<u64> =
            (0..1000).map(|turn| off_after_ns(IN_VAIN_MAX, turn * 20_000_000) - OFF_AFTER_NS).collect();
        assert!(longer.iter().all(|ns| *ns < LONGER_NS_MAX));
        let parts = longer.chunks(100).map(|some| some.iter().filter(|ns| **ns < LONGER_NS_MAX / 2).count());
        assert!(parts.clone().all(|few| (25..75).contains(&few)), "{:?}", parts.collect::<Vec<_>>());
    }
}
