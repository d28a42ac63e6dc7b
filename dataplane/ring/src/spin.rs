//! How long to look before sleeping.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::load;

/// So long is looked in any case: a program's calls come within that of each other, and each would have to wake whoever
/// sleeps.
pub const ALWAYS: Duration = Duration::from_micros(20);
/// So long at most where the core is given up between looks: on machines with few. Whoever wants it has it at once, so
/// it is not asked whether it is free. To sleep after 20 us there made an answer over TCP take 50 us instead of 32, and
/// four programs' 130 instead of 93 (two cores).
pub const YIELDING: Duration = Duration::from_micros(200);

/// Between two looks: the longer nothing has come, the more of the core is left to a thread that shares it; about a
/// hundredth of the time that has passed, 3 us at most. `looks` is how many have been in vain, each some 0.1 us.
pub fn pause_after(looks: u32) {
    for _ in 0..=(looks / 32).min(64) {
        std::hint::spin_loop();
    }
}

/// Waking a sleeping core costs 15 to 40 us in a VM, so a session in use spins; an idle one must cost nothing.
#[derive(Debug, Clone, Copy)]
pub struct Spin {
    pub budget: Duration,
    /// With few cores the peer needs ours: give it up between looks.
    pub yields: bool,
}

impl Spin {
    /// `budget` where there are cores to spare, else a short look with yields.
    pub fn adaptive(budget: Duration) -> Spin {
        // Asking reads the control group's files: ten microseconds, far too many for every wait.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        if cores > 3 { Spin { budget, yields: false } } else { Spin { budget: budget.min(YIELDING), yields: true } }
    }

    /// Looks until `ready` is true, the budget is spent, or somebody else could use the core; the last answer of
    /// `ready`.
    pub fn until(&self, mut ready: impl FnMut() -> bool) -> bool {
        // The clock costs 24 ns, so it is read once in 64 looks.
        let mut looks = 0u32;
        let start = Instant::now();
        let mut last = start;
        loop {
            if ready() {
                return true;
            }
            looks += 1;
            if self.yields && looks.is_multiple_of(16) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            if looks.is_multiple_of(64) {
                let now = Instant::now();
                if !self.goes_on(start, last, now) {
                    return ready();
                }
                last = now;
            }
        }
    }

    /// Whether one who began to look at `start`, and did so at `last`, still does.
    pub fn goes_on(&self, start: Instant, last: Instant, now: Instant) -> bool {
        let looked = now.saturating_duration_since(start);
        if !self.yields {
            load::looked_between(last, now);
        }
        looked < self.budget && (looked < ALWAYS || self.yields || load::core_is_free(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_for_long_on_a_core_that_somebody_else_wants() {
        let now = Instant::now();
        let spin = Spin { budget: Duration::from_millis(20), yields: false };
        load::looked_between(now - Duration::from_millis(5), now);
        assert!(spin.goes_on(now, now, now + ALWAYS / 2));
        assert!(!spin.goes_on(now, now, now + ALWAYS));
    }

    #[test]
    fn who_gives_the_core_up_between_looks_looks_on_whoever_wants_it() {
        let now = Instant::now();
        let spin = Spin { budget: YIELDING, yields: true };
        load::looked_between(now - Duration::from_millis(5), now);
        assert!(spin.goes_on(now, now, now + ALWAYS));
        assert!(!spin.goes_on(now, now, now + YIELDING));
    }

    #[test]
    fn the_budget_ends_looking_too() {
        let now = Instant::now();
        let spin = Spin { budget: Duration::from_micros(5), yields: true };
        assert!(spin.goes_on(now, now, now + Duration::from_micros(4)));
        assert!(!spin.goes_on(now, now, now + Duration::from_micros(5)));
    }
}
