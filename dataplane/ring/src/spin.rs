//! How long to look before sleeping.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

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
        if cores > 3 {
            Spin { budget, yields: false }
        } else {
            Spin { budget: budget.min(Duration::from_micros(200)), yields: true }
        }
    }

    /// Looks until `ready` is true or the budget is spent; the last answer of `ready`.
    pub fn until(&self, mut ready: impl FnMut() -> bool) -> bool {
        // The clock costs 24 ns, so it is read once in 64 looks.
        let mut looks = 0u32;
        let start = Instant::now();
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
            if looks.is_multiple_of(64) && start.elapsed() >= self.budget {
                return ready();
            }
        }
    }
}
