//! Whether ledgers and NVIDIA's driver agree: what NVML says of the worker's process on a GPU is held against what the
//! session's ledger counts there, on all of its vGPUs.
//!
//! The ledger's part is the worker's word, which a tenant may have taken over: he can hide what he has, as he could in
//! the worker, and he can have a line a minute written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::nvml::Gpu;
use crate::meter::Meter;

/// What the driver has for kernels' code and local memory and the ledger does not count, as far as it is no drift. The
/// ledger counts variables of modules, and what limits of contexts take, where that can be known. PyTorch with cuBLAS,
/// cuDNN and cuFFT had 114 MiB on an H200 (`perf/suite/drift.py`).
const UNCOUNTED_MAX: u64 = 256 << 20;
/// Of each further vGPU on the same GPU, which has a context of its own from its first use on: some 500 MiB that are
/// not of the session's memory.
const CONTEXT_MAX: u64 = 640 << 20;
/// Looks in a row: what all of them find stays, and what none of them finds is over.
const LOOKS: usize = 3;
/// Lines of one session and GPU are no closer. The counter counts what is between.
const LINES_APART: Duration = Duration::from_secs(60);

/// A session with a limit.
pub struct Held {
    session: u64,
    pid: u32,
    meter: Arc<Meter>,
    gpus: Vec<OnGpu>,
    /// How often its ledger was found to lack something.
    drifts: u64,
    looks: usize,
    /// NVML has known its process on some GPU.
    was_seen: bool,
}

/// Its vGPUs on one GPU.
struct OnGpu {
    uuid: String,
    vgpus: Vec<usize>,
    before: Before,
    /// What the ledger lacked at the last looks.
    lacked: VecDeque<u64>,
    /// It lacks too much, and that was told.
    is_drift: bool,
    line_at: Option<Instant>,
}

/// What the driver had given the process before its session, as far as that is known: a warm worker has a context.
#[derive(Clone, Copy)]
enum Before {
    Unknown,
    /// The least difference that there was between driver and ledger.
    AtMost(u64),
    /// The ledger counted nothing yet.
    Is(u64),
}

/// What a ledger counted ahead of a look, by GPU.
pub type Counted = Vec<u64>;

/// Something for oriond's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub session: u64,
    pub gpu: String,
    /// What NVML says of the process, and what it said before the session.
    pub driver_bytes: u64,
    pub before_bytes: u64,
    pub ledger_bytes: u64,
    pub lacks_bytes: u64,
    pub drifts: u64,
}

/// What is known of a session that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drifts {
    pub drifts: u64,
    /// What the ledger lacks now, what is tolerated included.
    pub lacking_bytes: u64,
}

impl Held {
    /// `gpus` are those that its vGPUs lie on, in their order, as NVML names them.
    pub fn new(session: u64, pid: u32, meter: Arc<Meter>, gpus: &[String]) -> Held {
        let mut by_gpu: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
        gpus.iter().enumerate().for_each(|(vgpu, uuid)| by_gpu.entry(uuid).or_default().push(vgpu));
        let on = |(uuid, vgpus): (&String, Vec<usize>)| OnGpu {
            uuid: uuid.clone(),
            vgpus,
            before: Before::Unknown,
            lacked: VecDeque::new(),
            is_drift: false,
            line_at: None,
        };
        Held { session, pid, meter, gpus: by_gpu.into_iter().map(on).collect(), drifts: 0, looks: 0, was_seen: false }
    }

    pub fn counted(&self) -> Counted {
        let used: Vec<u64> = self.meter.read().iter().map(|reading| reading.used).collect();
        let of = |vgpu: &usize| used.get(*vgpu).copied().unwrap_or(0);
        self.gpus.iter().map(|on| on.vgpus.iter().map(of).fold(0, u64::saturating_add)).collect()
    }

    /// Compares what NVML has said with what was counted before it was asked and is now: what changed meanwhile is no
    /// drift.
    pub fn look(&mut self, counted: &Counted, gpus: &BTreeMap<String, Gpu>, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        let after = self.counted();
        for (on, (before, after)) in self.gpus.iter_mut().zip(counted.iter().zip(after)) {
            let Some(driver) = gpus.get(&on.uuid).and_then(|gpu| gpu.memory.get(&self.pid).copied()) else {
                on.lacked.clear();
                continue;
            };
            self.was_seen = true;
            let ledger = after.max(*before);
            on.before.learn(driver, *before, after);
            let Some(lacks_bytes) = on.lacks(driver, ledger) else { continue };
            self.drifts = self.drifts.saturating_add(1);
            if on.line_at.is_some_and(|at| now.saturating_duration_since(at) < LINES_APART) {
                continue;
            }
            on.line_at = Some(now);
            lines.push(Line {
                session: self.session,
                gpu: on.uuid.clone(),
                driver_bytes: driver,
                before_bytes: on.before.bytes(),
                ledger_bytes: ledger,
                lacks_bytes,
                drifts: self.drifts,
            });
        }
        self.looks = self.looks.saturating_add(1);
        lines
    }

    /// Whether NVML does not know its process after some looks. One that it knew is about to end.
    pub fn is_unseen(&self) -> bool {
        !self.was_seen && self.looks >= LOOKS
    }

    /// Nothing while NVML does not know its process on any GPU.
    pub fn drifts(&self) -> Option<Drifts> {
        let lacked = self.gpus.iter().filter_map(|on| on.lacked.back()).copied();
        let lacking_bytes = lacked.reduce(u64::saturating_add)?;
        Some(Drifts { drifts: self.drifts, lacking_bytes })
    }
}

impl OnGpu {
    /// What stays, once. Of who allocates and frees without a pause some look finds the moment between the two.
    fn lacks(&mut self, driver: u64, ledger: u64) -> Option<u64> {
        let others = CONTEXT_MAX.saturating_mul(self.vgpus.len().saturating_sub(1) as u64);
        let given = driver.saturating_sub(self.before.bytes());
        self.lacked.push_back(given.saturating_sub(others).saturating_sub(ledger));
        if self.lacked.len() > LOOKS {
            self.lacked.pop_front();
        }
        let (all, known) = (self.lacked.iter().copied(), self.lacked.len() == LOOKS);
        let least = all.clone().min().filter(|_| known).unwrap_or(0);
        let was_drift = self.is_drift;
        self.is_drift = match was_drift {
            true => !known || all.max() > Some(UNCOUNTED_MAX),
            false => least > UNCOUNTED_MAX,
        };
        (self.is_drift && !was_drift).then_some(least)
    }
}

impl Before {
    /// A ledger that counts more than the driver has given (memory that is not on the GPU yet, say) says nothing, nor
    /// does one that has changed meanwhile but for the first time.
    fn learn(&mut self, driver: u64, before: u64, after: u64) {
        let ledger = before.max(after);
        let difference = driver.saturating_sub(ledger);
        *self = match *self {
            Before::Is(bytes) => Before::Is(bytes),
            Before::AtMost(bytes) if ledger == 0 => Before::Is(bytes.min(driver)),
            Before::Unknown if ledger == 0 => Before::Is(driver),
            Before::Unknown if ledger <= driver => Before::AtMost(difference),
            Before::AtMost(bytes) if before == after && ledger <= driver => Before::AtMost(bytes.min(difference)),
            other => other,
        };
    }

    /// Where nothing is known all may have been there before.
    fn bytes(self) -> u64 {
        match self {
            Before::Unknown => u64::MAX,
            Before::AtMost(bytes) | Before::Is(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const CONTEXT: u64 = 500 * MIB;
    const PID: u32 = 10;

    /// A session, what NVML says of it in MiB by GPU, and a clock that is a second on at each look.
    struct Scene {
        held: Held,
        meter: Arc<Meter>,
        now: Instant,
    }

    impl Scene {
        fn of(gpus: &[&str]) -> Scene {
            let meter = Arc::new(Meter::create().expect("a page"));
            meter.begin(&vec![u64::MAX; gpus.len()]);
            let gpus: Vec<String> = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
            Scene { held: Held::new(7, PID, Arc::clone(&meter), &gpus), meter, now: Instant::now() }
        }

        fn uses(&self, mib: &[u64]) {
            (0..).zip(mib).for_each(|(vgpu, mib)| self.meter.uses(vgpu, mib.saturating_mul(MIB)));
        }

        fn look(&mut self, driver: &[(&str, u64)]) -> Vec<Line> {
            let counted = self.held.counted();
            self.look_after(&counted, driver)
        }

        fn look_after(&mut self, counted: &Counted, driver: &[(&str, u64)]) -> Vec<Line> {
            self.now += Duration::from_secs(1);
            let gpu = |mib: u64| Gpu { memory: BTreeMap::from([(PID, mib * MIB), (1, 9)]), ..Gpu::default() };
            let gpus = driver.iter().map(|(name, mib)| ((*name).to_owned(), gpu(*mib))).collect();
            self.held.look(counted, &gpus, self.now)
        }

        /// How many lines so many looks tell.
        fn told(&mut self, looks: usize, driver: &[(&str, u64)]) -> usize {
            (0..looks).map(|_| self.look(driver).len()).sum()
        }
    }

    #[test]
    fn what_stays_beyond_what_the_worker_had_before_is_told_once_and_counted() {
        let mut scene = Scene::of(&["A"]);
        assert_eq!(scene.held.drifts(), None);
        assert_eq!(scene.told(5, &[("A", 500)]), 0);
        assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 0, lacking_bytes: 0 }));
        // What the ledger counts, and a little for kernels' code.
        scene.uses(&[1000]);
        assert_eq!(scene.told(5, &[("A", 1600)]), 0);
        assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 0, lacking_bytes: 100 * MIB }));
        assert_eq!(scene.told(2, &[("A", 1800)]), 0, "it may be under way");
        let line = Line {
            session: 7,
            gpu: "A".into(),
            driver_bytes: 1800 * MIB,
            before_bytes: CONTEXT,
            ledger_bytes: 1000 * MIB,
            lacks_bytes: 300 * MIB,
            drifts: 1,
        };
        assert_eq!(scene.look(&[("A", 1800)]), [line]);
        assert_eq!(scene.told(100, &[("A", 1800)]), 0);
        assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 1, lacking_bytes: 300 * MIB }));
        // It comes and goes around what is tolerated, which is one drift, is gone, and comes again.
        (0..10).for_each(|_| assert_eq!(scene.told(1, &[("A", 1500)]) + scene.told(1, &[("A", 1800)]), 0));
        assert_eq!(scene.held.drifts().map(|drifts| drifts.drifts), Some(1));
        assert_eq!(scene.told(3, &[("A", 1500)]), 0);
        assert_eq!(scene.told(3, &[("A", 1800)]), 1);
        assert_eq!(scene.held.drifts().map(|drifts| drifts.drifts), Some(2));
    }

    #[test]
    fn what_is_under_way_and_what_the_ledger_has_more_is_no_drift() {
        let mut scene = Scene::of(&["A"]);
        scene.told(1, &[("A", 500)]);
        // Given while NVML was asked, each time anew, and noted by the next look.
        for used in 1..20 {
            let counted = scene.held.counted();
            scene.uses(&[1000 * used]);
            assert_eq!(scene.look_after(&counted, &[("A", 500 + 1000 * used)]), []);
            assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 0, lacking_bytes: 0 }));
        }
        // Every other look finds a gigabyte that is not noted.
        for _ in 0..20 {
            assert_eq!(scene.told(1, &[("A", 20500)]) + scene.told(1, &[("A", 19500)]), 0);
        }
        // A pool's memory that the driver has given back, and managed memory that is on the host.
        scene.uses(&[70_000]);
        assert_eq!(scene.told(10, &[("A", 500)]), 0);
        assert_eq!(scene.told(10, &[("A", 70_500)]), 0, "what it had before is what it was");
        assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 0, lacking_bytes: 0 }));
    }

    /// NVML was not loaded when the session began.
    #[test]
    fn where_nobody_looked_in_time_what_it_had_before_is_the_least_difference() {
        let mut scene = Scene::of(&["A"]);
        scene.uses(&[100]);
        // An allocation of 900 MiB was under way.
        scene.look_after(&vec![0], &[("A", 1500)]);
        scene.uses(&[1000]);
        assert_eq!(scene.told(3, &[("A", 1500)]), 0);
        assert_eq!(scene.told(3, &[("A", 1800)]), 1, "500 were there before, and 300 are lacking");
        // On a GPU on which it had no context yet.
        let mut scene = Scene::of(&["A", "B"]);
        scene.told(3, &[("A", 500)]);
        scene.uses(&[0, 20]);
        assert_eq!(scene.told(5, &[("A", 500), ("B", 540)]), 0);
        assert_eq!(scene.told(5, &[("A", 500), ("B", 800)]), 1);
    }

    #[test]
    fn vgpus_on_one_gpu_are_summed_and_each_further_one_may_have_a_context() {
        let mut scene = Scene::of(&["A", "B", "A"]);
        assert_eq!(scene.told(1, &[("A", 500), ("B", 500)]), 0);
        scene.uses(&[1000, 300, 2000]);
        assert_eq!(scene.told(5, &[("A", 500 + 526 + 3000), ("B", 800)]), 0);
        assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 0, lacking_bytes: 0 }));
        let counted = scene.held.counted();
        assert_eq!(counted, [3000 * MIB, 300 * MIB]);
        assert_eq!(scene.told(5, &[("A", 500 + 640 + 3000), ("B", 1300)]), 1);
        assert_eq!(scene.held.drifts(), Some(Drifts { drifts: 1, lacking_bytes: 500 * MIB }));
    }

    #[test]
    fn a_process_that_nvml_does_not_list_is_not_compared() {
        let mut scene = Scene::of(&["A"]);
        assert_eq!(scene.told(2, &[]), 0);
        assert!(!scene.held.is_unseen(), "its worker has just begun");
        assert_eq!(scene.told(1, &[("another", 10_000)]), 0);
        assert!(scene.held.is_unseen() && scene.held.drifts().is_none());
        scene.told(1, &[("A", 500)]);
        assert!(!scene.held.is_unseen() && scene.held.drifts().is_some());
        scene.told(5, &[]);
        assert!(!scene.held.is_unseen(), "it ends");
        // NVML does not answer in between: what was before does not stay.
        scene.told(2, &[("A", 5000)]);
        scene.told(1, &[]);
        assert_eq!(scene.held.drifts(), None);
        assert_eq!(scene.told(2, &[("A", 5000)]), 0);
        assert_eq!(scene.told(1, &[("A", 5000)]), 1);
    }

    #[test]
    fn a_worker_that_was_taken_over_gets_a_line_a_minute_and_nothing_overflows() {
        let mut scene = Scene::of(&["A", "A"]);
        scene.told(1, &[("A", 500)]);
        let mut lines = 0;
        for second in 0..600 {
            // It flaps, as slowly as it has to that each is a drift.
            let lies = if second % 6 < 3 { u64::MAX } else { 0 };
            scene.uses(&[lies, lies]);
            lines += scene.told(1, &[("A", 50_000)]);
        }
        assert!((1..=10).contains(&lines), "{lines} lines");
        assert_eq!(scene.held.drifts().map(|drifts| drifts.drifts), Some(100));
        // Nor does one that says so from the first look on.
        let mut scene = Scene::of(&["A", "A"]);
        scene.uses(&[u64::MAX, u64::MAX]);
        assert_eq!(scene.told(10, &[("A", 50_000)]), 0);
        let gpu = Gpu { memory: BTreeMap::from([(PID, u64::MAX)]), ..Gpu::default() };
        let gpus = BTreeMap::from([("A".to_owned(), gpu)]);
        for used in [0, u64::MAX, 1] {
            scene.uses(&[used, used]);
            let counted = scene.held.counted();
            scene.held.look(&counted, &gpus, scene.now);
        }
        assert!(scene.held.drifts().is_some());
    }
}
