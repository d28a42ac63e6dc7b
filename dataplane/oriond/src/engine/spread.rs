//! Which engine carries a session: by what engines have to do, not by how many sessions there are.
//!
//! An engine with a session in use looks for news all the time, so a session on each costs a core for each, and four on
//! one cost one core together. Four programs of four hundred small operations a step (395,000 commands a second) were
//! as quick over one engine as over eight, and the server took 4.6 cores instead of 5.7 (H100 machine, 16 cores).

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An engine takes further sessions while it has less to do than this, in thousandths of its time.
const BUSY_MAX: u32 = 500;
/// And while it has fewer than this: how much new ones will do is not known yet.
const SESSIONS_MAX: usize = 4;
/// Over how long it is measured.
const PERIOD: Duration = Duration::from_millis(100);

/// What one engine has to do.
#[derive(Default)]
pub struct Load {
    sessions: AtomicUsize,
    /// Thousandths of its time in which there was something to do.
    busy: AtomicU32,
}

impl Load {
    pub fn session_begins(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub fn session_ends(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The engine for the next session: the first that has time left, else the one that has most of it.
pub fn choose(loads: &[Load]) -> usize {
    let all = loads.iter().map(|load| (load.busy.load(Ordering::Relaxed), load.sessions.load(Ordering::Relaxed)));
    let all: Vec<(u32, usize)> = all.collect();
    let has_time = |(busy, sessions): &(u32, usize)| *busy < BUSY_MAX && *sessions < SESSIONS_MAX;
    let least = || (0..all.len()).min_by_key(|index| all[*index]).expect("there is an engine");
    all.iter().position(has_time).unwrap_or_else(least)
}

/// An engine's own account of its time.
pub struct Clock {
    since: Instant,
    last: Instant,
    busy: Duration,
}

impl Clock {
    pub fn new(now: Instant) -> Clock {
        Clock { since: now, last: now, busy: Duration::ZERO }
    }

    /// A turn is over, in which there was something to do or not. `now` may be the time of a turn before.
    pub fn turn(&mut self, now: Instant, was_busy: bool, load: &Load) {
        if was_busy {
            self.busy += now.saturating_duration_since(self.last);
        }
        self.last = now;
        let passed = now.saturating_duration_since(self.since);
        if passed >= PERIOD {
            let part = 1000 * self.busy.as_micros() / passed.as_micros();
            load.busy.store(part.min(1000) as u32, Ordering::Relaxed);
            (self.since, self.busy) = (now, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[(u32, usize)]) -> Vec<Load> {
        let load = |(busy, sessions): &(u32, usize)| Load { sessions: (*sessions).into(), busy: (*busy).into() };
        of.iter().map(load).collect()
    }

    #[test]
    fn a_session_goes_where_others_are_while_there_is_time() {
        assert_eq!(choose(&loads(&[(0, 0), (0, 0)])), 0);
        assert_eq!(choose(&loads(&[(400, 3), (0, 0)])), 0);
        assert_eq!(choose(&loads(&[(400, 4), (0, 0)])), 1);
        assert_eq!(choose(&loads(&[(600, 1), (300, 2)])), 1);
    }

    #[test]
    fn where_all_have_much_to_do_it_goes_to_the_one_with_least() {
        assert_eq!(choose(&loads(&[(900, 4), (700, 9), (800, 1)])), 1);
        assert_eq!(choose(&loads(&[(0, 5), (0, 4), (0, 4)])), 1);
    }

    #[test]
    fn the_time_of_busy_turns_counts() {
        let (start, load) = (Instant::now(), Load::default());
        let mut clock = Clock::new(start);
        for turn in 1..=100 {
            clock.turn(start + Duration::from_millis(turn), turn % 4 == 0, &load);
        }
        assert_eq!(load.busy.load(Ordering::Relaxed), 250);
        clock.turn(start + Duration::from_millis(300), false, &load);
        assert_eq!(load.busy.load(Ordering::Relaxed), 0);
    }
}
