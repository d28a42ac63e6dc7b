//! Whether the ledger and the driver agree on what a session's worker uses.
//!
//! The software GPU is asked what it has given this process. NVIDIA's driver tells of a GPU as a whole, and of
//! processes only through NVML, which a sealed worker does not reach: there oriond asks, in
//! `engine/watch/held.rs`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orion_cuda::sys::CUdevice;
use orion_telemetry::OwnPage;
use orion_telemetry::events::of_session;

use crate::worker::state::accounts::lock;
use crate::worker::state::ledger::Ledger;
use crate::worker::state::vgpus::Vgpu;

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
        // It is over when nothing is lacking, and not when something else is under way beside it.
        let was_told = self.told;
        self.told = is_drift || was_told && lacks > 0;
        (is_drift && !was_told).then_some(lacks)
    }
}

/// A physical device of the software GPU's.
struct Of {
    device: i32,
    /// What it had given before the session began.
    before: u64,
    vgpus: Vec<usize>,
    seen: Seen,
}

pub struct Drift {
    ledger: Arc<Mutex<Ledger>>,
    devices: Vec<Of>,
    next: Instant,
    /// How often the ledger was found to lack something.
    found: u64,
    /// Where that is told, and how much it lacks now: nobody else writes these words.
    page: OwnPage,
}

impl Drift {
    pub fn new(ledger: Arc<Mutex<Ledger>>, devices: &[CUdevice], vgpus: &[Vgpu], page: OwnPage) -> Drift {
        let of = |device: &CUdevice| Of {
            device: *device,
            before: orion_soft::device::used_bytes(*device),
            vgpus: (0..vgpus.len()).filter(|vgpu| vgpus[*vgpu].device == *device).collect(),
            seen: Seen::default(),
        };
        let devices = devices.iter().map(of).collect();
        Drift { ledger, devices, next: Instant::now() + LOOK_INTERVAL, found: 0, page }
    }

    /// What to tell the operator, if it is time to look and there is anything.
    pub fn look(&mut self) -> Option<String> {
        if Instant::now() < self.next {
            return None;
        }
        self.next = Instant::now() + LOOK_INTERVAL;
        let (mut lines, mut lacking) = (Vec::new(), 0);
        for of in &mut self.devices {
            // In this order: what is given back in between is no drift.
            let ledger = of.vgpus.iter().map(|vgpu| lock(&self.ledger).used(*vgpu)).sum();
            let driver = orion_soft::device::used_bytes(of.device).saturating_sub(of.before);
            lacking += driver.saturating_sub(ledger);
            if let Some(lacks) = of.seen.lacks(driver, ledger) {
                self.found += 1;
                let (device, found) = (of.device, self.found);
                lines.push(format!(
                    "device {device}: the driver has given {driver} bytes, of which the ledger lacks {lacks} (drift \
                     {found})"
                ));
            }
        }
        self.page.set(of_session::MEMORY_DRIFTS, self.found);
        self.page.set(of_session::MEMORY_LACKING, lacking);
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
        // Nor while something else is under way; it is over, and comes again.
        assert!([40, 40, 40, 40, 40].iter().all(|driver| seen.lacks(*driver, 20).is_none()));
        assert_eq!([seen.lacks(30, 30), seen.lacks(2 << 30, 30)], [None, Some((2 << 30) - 30)]);
        // What pools hold the ledger counts and the driver need not.
        assert_eq!(Seen::default().lacks(0, 1 << 40), None);
        assert_eq!(Seen::default().lacks(1 << 30, 0), Some(1 << 30));
    }
}
