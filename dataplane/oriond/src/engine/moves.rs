//! A session on its way to another engine.

#[cfg(debug_assertions)]
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::carrier::contract::Main;
use super::io_ring::Io;
use super::spread::Account;

/// A session that cannot leave within this time stays.
const LEAVING_MAX: Duration = Duration::from_millis(100);

/// A session that an engine carries.
pub struct Carried {
    pub main: Box<dyn Main>,
    pub account: Account,
}

/// The one that is to go to another engine.
pub struct Mover {
    pub slot: u32,
    pub to: usize,
    since: Instant,
    is_leaving: bool,
}

#[derive(PartialEq, Eq)]
pub enum Step {
    /// Looked at again in the next turn.
    Waits,
    Stays,
    /// Nothing of it is under way here any more.
    Goes,
}

impl Mover {
    pub fn new(slot: u32, to: usize, now: Instant) -> Mover {
        Mover { slot, to, since: now, is_leaving: false }
    }

    /// In every turn, before the session begins to do anything new.
    pub fn turn(&mut self, carried: &mut Carried, io: &mut Io, now: Instant) -> Step {
        if self.is_leaving {
            return if carried.main.may_go() { Step::Goes } else { Step::Waits };
        }
        self.is_leaving = carried.main.leave(io, self.slot);
        let is_late = now.saturating_duration_since(self.since) > LEAVING_MAX;
        if is_late && !self.is_leaving { Step::Stays } else { Step::Waits }
    }
}

/// For tests: sessions go to other engines at random, whatever they do.
#[cfg(debug_assertions)]
pub struct Shuffle {
    pub interval: Duration,
    next: Instant,
    random: u64,
}

#[cfg(debug_assertions)]
impl Shuffle {
    pub fn configured(index: usize, engines: usize) -> Option<Shuffle> {
        let us = std::env::var("ORION_SOFT_MOVES_US").ok()?.parse().ok()?;
        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        (engines > 1).then(|| Shuffle { interval: Duration::from_micros(us), next: Instant::now(), random })
    }

    /// Which session goes, and by how many engines it goes on.
    pub fn pick(&mut self, all: &HashMap<u32, Carried>, engines: usize, now: Instant) -> Option<(u32, usize)> {
        if now < self.next || all.is_empty() {
            return None;
        }
        self.next = now + self.interval;
        let slot = *all.keys().nth(self.below(all.len())).expect("fewer than there are");
        Some((slot, 1 + self.below(engines - 1)))
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }
}
