//! From the worker's clock to the application's.
//!
//! The application's clock may count anything (kineto's counts the processor's ticks), so there is no rate to begin
//! with. An anchor is a moment in both: the worker's answer, and the middle of the round trip that asked for it, which
//! is right to half of that. Between two anchors time is a straight line, and what lies before the first or behind the
//! last is on the nearest line. A line does not change once both its ends are there, so order is kept.

/// A moment in both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Anchor {
    worker: u64,
    application: u64,
}

/// Far more than a profile has flushes; the oldest go.
const ANCHORS_MAX: usize = 4096;

#[derive(Default)]
pub struct Clock(Vec<Anchor>);

/// One question for the worker's time: when it was asked and answered, and the answer.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub before: u64,
    pub worker: u64,
    pub after: u64,
}

impl Clock {
    pub const fn new() -> Clock {
        Clock(Vec::new())
    }

    /// The best of some samples becomes an anchor, unless one of the clocks has not moved on.
    pub fn anchor(&mut self, samples: &[Sample]) {
        let Some(best) = samples.iter().min_by_key(|s| s.after.saturating_sub(s.before)) else { return };
        let new = Anchor { worker: best.worker, application: best.before + best.after.saturating_sub(best.before) / 2 };
        if self.0.last().is_some_and(|last| new.worker <= last.worker || new.application <= last.application) {
            return;
        }
        if self.0.len() == ANCHORS_MAX {
            self.0.drain(..ANCHORS_MAX / 2);
        }
        self.0.push(new);
    }

    /// 0 is no time and stays so.
    pub fn application(&self, worker: u64) -> u64 {
        if worker == 0 {
            return 0;
        }
        let (from, to) = match self.0.as_slice() {
            [] => return worker,
            // One moment says nothing of the rate; nanoseconds are what CUPTI's own clock counts.
            [one] => (*one, Anchor { worker: one.worker + 1, application: one.application + 1 }),
            all => {
                let after = all.partition_point(|a| a.worker <= worker).clamp(1, all.len() - 1);
                (all[after - 1], all[after])
            }
        };
        let rise = i128::from(to.application - from.application);
        let run = i128::from(to.worker - from.worker);
        let time = i128::from(from.application) + (i128::from(worker) - i128::from(from.worker)) * rise / run;
        u64::try_from(time.max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(worker: u64, application: u64) -> Sample {
        Sample { before: application - 5, worker, after: application + 5 }
    }

    #[test]
    fn ticks_of_another_rate_and_origin() {
        let mut clock = Clock::new();
        // 2.5 ticks a nanosecond.
        clock.anchor(&[at(1_000, 50_000)]);
        clock.anchor(&[at(3_000, 55_000)]);
        assert_eq!(clock.application(0), 0);
        for (worker, application) in [(1_000, 50_000), (2_000, 52_500), (3_000, 55_000), (400, 48_500), (4_000, 57_500)]
        {
            assert_eq!(clock.application(worker), application);
        }
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut clock = Clock::new();
        let slow = Sample { before: 100, worker: 1_000, after: 900 };
        clock.anchor(&[slow, at(1_100, 1_100), slow]);
        assert_eq!(clock.application(1_200), 1_200);
        assert_eq!(clock.application(1_000), 1_000);
    }

    #[test]
    fn what_was_placed_stays_and_order_is_kept() {
        let mut clock = Clock::new();
        clock.anchor(&[at(1_000_000_000_000, 7_000_000_000_000_000)]);
        clock.anchor(&[at(1_000_000_001_000, 7_000_000_000_002_900)]);
        let placed = clock.application(1_000_000_000_777);
        // A clock that stands still or runs back is none.
        clock.anchor(&[at(1_000_000_001_000, 7_000_000_000_009_000)]);
        clock.anchor(&[at(1_000_000_000_500, 7_000_000_000_009_000)]);
        clock.anchor(&[at(1_000_000_005_000, 7_000_000_000_014_000)]);
        assert_eq!(clock.application(1_000_000_000_777), placed);
        let all: Vec<u64> = (0..7_000).map(|i| clock.application(999_999_999_500 + i)).collect();
        assert!(all.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn one_anchor_counts_nanoseconds() {
        let mut clock = Clock::new();
        assert_eq!(clock.application(5), 5);
        clock.anchor(&[at(1_000, 9_000)]);
        assert_eq!(clock.application(1_500), 9_500);
    }
}
