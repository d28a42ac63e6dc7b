//! Whether the ledger and the driver agree on what a session's worker uses.
//!
//! The software GPU is asked what it has given this process. NVIDIA's driver tells of a GPU as a whole, and of processes
//! only through NVML, which a sealed worker does not reach: there nothing is compared, and oriond says so at its start.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::worker::state::accounts::lock;
use crate::worker::state::ledger::Ledger;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What is allocated and not noted yet, while a program does nothing else.
const UNDER_WAY_MAX: u64 = 64 << 20;
/// Looks that find the same numbers: then nothing is under way.
const STEADY: u32 = 3;

/// What was seen of one vGPU.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    driver: u64,
    ledger: u64,
    same: u32,
    told: bool,
}

impl Seen {
    /// The bytes that the ledger lacks, once.
    fn lacks(&mut self, driver: u64, ledger: u64) -> Option<u64> {
        let is_same = (driver, ledger) == (self.driver, self.ledger);
        (self.driver, self.ledger) = (driver, ledger);
        self.same = if is_same { self.same + 1 } else { 0 };
        let lacks = driver.saturating_sub(ledger);
        let is_drift = lacks > UNDER_WAY_MAX || lacks > 0 && self.same >= STEADY;
        (is_drift && !std::mem::replace(&mut self.told, is_drift)).then_some(lacks)
    }
}

pub struct Drift {
    ledger: Arc<Mutex<Ledger>>,
    /// What each device had given before the session began.
    before: Vec<u64>,
    seen: Vec<Seen>,
    next: Instant,
    /// How often the ledger was found to lack something.
    pub found: u64,
}

impl Drift {
    pub fn new(ledger: Arc<Mutex<Ledger>>, devices: usize) -> Drift {
        let before = (0..devices).map(|device| orion_soft::device::used_bytes(device as i32)).collect();
        Drift { ledger, before, seen: vec![Seen::default(); devices], next: Instant::now() + LOOK_INTERVAL, found: 0 }
    }

    /// What to tell the operator, if it is time to look and there is anything.
    pub fn look(&mut self) -> Option<String> {
        if Instant::now() < self.next {
            return None;
        }
        self.next = Instant::now() + LOOK_INTERVAL;
        let mut lines = Vec::new();
        for (device, (seen, before)) in self.seen.iter_mut().zip(&self.before).enumerate() {
            // In this order: what is given back in between is no drift.
            let ledger = lock(&self.ledger).used(device);
            let driver = orion_soft::device::used_bytes(device as i32).saturating_sub(*before);
            if let Some(lacks) = seen.lacks(driver, ledger) {
                self.found += 1;
                lines.push(format!(
                    "device {device}: the driver has given {driver} bytes, of which the ledger lacks {lacks} (drift {})",
                    self.found
                ));
            }
        }
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_told_once_and_what_is_under_way_is_not() {
        let mut seen = Seen::default();
        let looks = [(10, 10), (20, 10), (30, 30), (30, 20), (30, 20), (30, 20), (30, 20), (30, 20)];
        let told: Vec<_> = looks.iter().map(|(driver, ledger)| seen.lacks(*driver, *ledger)).collect();
        assert_eq!(told, [None, None, None, None, None, None, Some(10), None]);
        // What pools hold the ledger counts and the driver need not.
        assert_eq!(Seen::default().lacks(0, 1 << 40), None);
        assert_eq!(Seen::default().lacks(1 << 30, 0), Some(1 << 30));
    }
}
