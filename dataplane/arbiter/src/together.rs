//! Whether sessions use the GPU together, as its driver shares it out, or each in its turn.
//!
//! A turn is the whole GPU. Who works on it in turns but cannot fill it, because its processor feeds it kernels of
//! microseconds one by one, wastes what the others wait for: of twelve such programs all together got through a third
//! of what they do side by side. Whether programs fill a GPU cannot be seen from outside, so now and then it is
//! tried: for a moment all go on at once, and each session's progress is held against its progress in its own turns.
//! They stay together while each has what its share would be, to 2 % of the GPU, and all together clearly more than
//! the whole.

use std::collections::{BTreeMap, BTreeSet};

/// The progress in turns is that of so long, at least, and for each session, so that each has had a dozen: what a
/// program does in one of them is not what it does in the next. It is tried no sooner.
const APART_NS: u64 = 200_000_000;
const APART_EACH_NS: u64 = 80_000_000;
/// How long it is tried, at least, and for each session: the driver gives each some milliseconds, one after the other.
const TRIAL_NS: u64 = 10_000_000;
const TRIAL_EACH_NS: u64 = 5_000_000;
/// And how often it is looked at after that, at least, and for each session: of twelve some have had twice as much as
/// others in 60 ms, and all have had the same in a second.
const CHECK_NS: u64 = 100_000_000;
const CHECK_EACH_NS: u64 = 40_000_000;
/// Programs change, and what is held against their progress in turns is then another program's. Who does so much more
/// than when they began to be together, in percent, has changed, and the progress in turns is measured anew at once;
/// who does less lacks something, which is looked at anyhow. And it is after so many times what that takes.
const CHANGED_PERCENT: u64 = 150;
const TOGETHER_MAX: u64 = 600;
/// After a failure it is tried again after this, and each time after four times as long while the same sessions work as
/// they did: what each has of a second with a trial in it differs by a hundredth of the GPU from what it has of others.
/// While they change it is after twice as long.
const AGAIN_NS: u64 = 1_000_000_000;
const AGAIN_NS_MAX: u64 = 64_000_000_000;
const CHANGED_NS_MAX: u64 = 16_000_000_000;
/// What all have to gain, in percent of the whole.
const GAIN_PERCENT: u64 = 110;
/// What each may lack of what its share would be, in thousandths of the GPU: what shares are promised to. And what each
/// has to have of its share, however small that is.
const LACKS_MAX: u64 = 20;
const SHARE_PERCENT: u64 = 75;
/// Who lacks more after a trial may have been the last of many: with more than two, the trial goes on for as long as a
/// check takes, where that costs nobody more of the GPU's time.
const HOPE_COSTS_NS: u64 = 30_000_000;
/// Who has worked for less of the time in turns, in percent, does not work.
const WORKS_PERCENT: u64 = 1;
/// Who has worked for less of the time together, in percent, does not count: nothing can be said of it.
const ACTIVE_PERCENT: u64 = 20;
/// Commands of a session from which on something can be said of its pace: whose are longer fills the GPU.
const COMMANDS_LEAST: u64 = 20;
/// In thousandths of its progress in turns; what a session says of itself may be anything.
const SPEED_MAX: u64 = 10_000;

/// What a session says that it has done on the GPU since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Commands that the GPU has done.
    pub passed: u64,
    /// For how long the GPU has had work of its.
    pub busy_ns: u64,
}

/// Of one session.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    now: Progress,
    /// When turns, a trial or a check began.
    then: Progress,
    /// Commands in a second of work, in turns of its own.
    alone: Option<u64>,
    /// And when it was last tried.
    tried: Option<u64>,
    /// And beside the others, at the first check.
    beside: Option<u64>,
}

impl Pace {
    fn busy_ns(&self) -> u64 {
        self.now.busy_ns.saturating_sub(self.then.busy_ns)
    }

    fn passed(&self) -> u64 {
        self.now.passed.saturating_sub(self.then.passed)
    }

    /// It had work for much of the time that has passed since then.
    fn is_active(&self, passed_ns: u64) -> bool {
        self.busy_ns() >= passed_ns * ACTIVE_PERCENT / 100
    }

    /// Commands in a second of work, since then.
    fn rate(&self) -> u64 {
        let passed = u128::from(self.passed()) * 1_000_000_000;
        u64::try_from(passed / u128::from(self.busy_ns().max(1))).unwrap_or(u64::MAX)
    }

    /// In thousandths of that in its own turns; nothing where that is not known.
    fn speed(&self) -> Option<u64> {
        let alone = self.alone.filter(|alone| *alone > 0)?;
        Some((u128::from(self.rate()) * 1000 / u128::from(alone)).min(u128::from(SPEED_MAX)) as u64)
    }
}

/// What was seen while all had the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// That worked.
    pub sessions: usize,
    /// What they did altogether, in percent of what they do in turns without what handing over costs.
    pub gained: u64,
    /// What the one with the least had, in percent of its share.
    pub least: u64,
    /// What the one that lacks most lacked of its share, in thousandths of the GPU.
    pub lacks: u64,
    pub is_better: bool,
}

#[derive(Debug, Clone, Copy)]
enum How {
    /// In turns: since when they are looked at, and when something else is tried.
    Turns {
        since_ns: u64,
        tries_ns: u64,
    },
    Trial {
        since_ns: u64,
        until_ns: u64,
        is_long: bool,
    },
    Together {
        since_ns: u64,
        checked_ns: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Together {
    how: How,
    again_ns: u64,
    /// After a failure, where somebody works in another way than then.
    changed_ns: u64,
    paces: BTreeMap<u64, Pace>,
    /// Who worked when it was last tried, and when that was.
    tried: (BTreeSet<u64>, u64),
    /// Whoever drives this may want to tell.
    pub verdict: Option<Verdict>,
}

impl Together {
    pub fn new(now_ns: u64) -> Together {
        let how = How::Turns { since_ns: now_ns, tries_ns: now_ns + APART_NS };
        let (paces, tried) = (BTreeMap::new(), Default::default());
        Together { how, again_ns: AGAIN_NS, changed_ns: AGAIN_NS, paces, tried, verdict: None }
    }

    pub fn is_on(&self) -> bool {
        !matches!(self.how, How::Turns { .. })
    }

    /// And has turned out well: what a trial takes from who has the larger share is paid back.
    pub fn is_settled(&self) -> bool {
        matches!(self.how, How::Together { .. })
    }

    pub fn hear(&mut self, id: u64, progress: Progress) {
        self.paces.entry(id).or_default().now = progress;
    }

    pub fn leave(&mut self, id: u64) {
        self.paces.remove(&id);
    }

    /// When to look again although nobody has said anything.
    pub fn next_look(&self) -> u64 {
        match self.how {
            How::Turns { since_ns, .. } => since_ns + self.apart_ns(),
            How::Trial { until_ns, .. } => until_ns,
            How::Together { checked_ns, .. } => checked_ns + self.check_ns(),
        }
    }

    fn apart_ns(&self) -> u64 {
        let working = self.paces.values().filter(|pace| pace.busy_ns() > 0).count();
        APART_NS.max(APART_EACH_NS * working as u64)
    }

    fn check_ns(&self) -> u64 {
        CHECK_NS.max(CHECK_EACH_NS * self.tried.0.len() as u64)
    }

    /// Goes on as is best, of sessions by their shares; `may` says whether none of them has a limit and several have
    /// work. Answers whether something has changed.
    pub fn decide(&mut self, now_ns: u64, may: bool, shares: &BTreeMap<u64, u64>) -> bool {
        if self.is_on() && !may {
            self.apart(now_ns, APART_NS);
            return true;
        }
        if now_ns < self.next_look() {
            return false;
        }
        match self.how {
            How::Turns { since_ns, tries_ns } => {
                let working = self.learn(now_ns - since_ns);
                if working != self.tried.0 {
                    (self.again_ns, self.changed_ns) = (AGAIN_NS, AGAIN_NS);
                }
                let is_other = working != self.tried.0 || self.work_in_another_way(&working);
                let is_time = now_ns >= tries_ns || is_other && now_ns >= self.tried.1 + self.changed_ns;
                let trial_ns = TRIAL_NS.max(TRIAL_EACH_NS * working.len() as u64);
                if !(may && is_time && working.len() > 1 && self.can_be_judged(&working, trial_ns)) {
                    self.begin(How::Turns { since_ns: now_ns, tries_ns });
                    return false;
                }
                let until_ns = now_ns + trial_ns;
                self.paces.values_mut().for_each(|pace| pace.tried = pace.alone);
                self.tried = (working, now_ns);
                self.begin(How::Trial { since_ns: now_ns, until_ns, is_long: false });
            }
            How::Trial { since_ns, is_long, .. } => {
                let verdict = self.look(now_ns - since_ns, shares);
                if verdict.is_better {
                    (self.again_ns, self.changed_ns) = (AGAIN_NS, AGAIN_NS);
                    self.begin(How::Together { since_ns: now_ns, checked_ns: now_ns });
                    return false;
                }
                let costs_ns = self.check_ns() * verdict.lacks / 1000;
                let are_many = self.tried.0.len() > 2;
                if !is_long && are_many && verdict.gained >= GAIN_PERCENT && costs_ns <= HOPE_COSTS_NS {
                    self.how = How::Trial { since_ns, until_ns: since_ns + self.check_ns(), is_long: true };
                    return false;
                }
                self.apart(now_ns, self.again_ns);
                self.again_ns = (self.again_ns * 4).min(AGAIN_NS_MAX);
                self.changed_ns = (self.changed_ns * 2).min(CHANGED_NS_MAX);
            }
            How::Together { since_ns, checked_ns } => {
                let verdict = self.look(now_ns - checked_ns, shares);
                // Who has it to himself now and works as in his turns lacks nothing, and the others come back as they
                // were.
                let are_few = verdict.sessions < 2 && verdict.least >= SHARE_PERCENT;
                if are_few {
                    self.verdict = None;
                }
                let goes_on = are_few || verdict.is_better && !self.have_changed(now_ns - checked_ns);
                if goes_on && now_ns - since_ns < TOGETHER_MAX * self.apart_ns() {
                    self.begin(How::Together { since_ns, checked_ns: now_ns });
                    return false;
                }
                self.apart(now_ns, if verdict.is_better { APART_NS } else { AGAIN_NS });
            }
        }
        true
    }

    fn begin(&mut self, how: How) {
        self.how = how;
        self.paces.values_mut().for_each(|pace| pace.then = pace.now);
    }

    fn apart(&mut self, now_ns: u64, tries_after_ns: u64) {
        self.begin(How::Turns { since_ns: now_ns, tries_ns: now_ns + tries_after_ns });
    }

    /// The progress of each in turns, and who works. Who has hardly had any keeps what is known of it.
    fn learn(&mut self, passed_ns: u64) -> BTreeSet<u64> {
        let enough_ns = passed_ns * WORKS_PERCENT / 100;
        let working = self.paces.iter_mut().filter(|(_, pace)| pace.busy_ns() >= enough_ns.max(1));
        let learn = |(id, pace): (&u64, &mut Pace)| {
            (pace.alone, pace.beside) = (Some(pace.rate()), None);
            *id
        };
        working.map(learn).collect()
    }

    /// Whether somebody does much more or less in its turns than when it was last tried.
    fn work_in_another_way(&self, working: &BTreeSet<u64>) -> bool {
        let differ = |one: u64, other: u64| u128::from(one) * 100 > u128::from(other) * u128::from(CHANGED_PERCENT);
        working.iter().filter_map(|id| self.paces.get(id)).any(|pace| match (pace.alone, pace.tried) {
            (Some(alone), Some(tried)) => differ(alone, tried) || differ(tried, alone),
            (alone, tried) => alone != tried,
        })
    }

    /// Whether a trial can turn out well: whoever has long commands does too few of them in it for that.
    fn can_be_judged(&self, working: &BTreeSet<u64>, trial_ns: u64) -> bool {
        let alone = |id: &u64| self.paces.get(id).and_then(|pace| pace.alone).unwrap_or(0);
        let does = |id: &u64| u128::from(alone(id)) * u128::from(trial_ns) / 1_000_000_000;
        working.iter().all(|id| does(id) >= u128::from(COMMANDS_LEAST))
    }

    /// Whether somebody does much more than at first.
    fn have_changed(&mut self, passed_ns: u64) -> bool {
        let active = self.paces.values_mut().filter(|pace| pace.is_active(passed_ns));
        let has_changed = |pace: &mut Pace| {
            let rate = pace.rate();
            let first = *pace.beside.get_or_insert(rate);
            u128::from(rate) * 100 > u128::from(first) * u128::from(CHANGED_PERCENT)
        };
        // Each is looked at, so that each has a first time.
        active.map(has_changed).fold(false, |some, one| some | one)
    }

    /// Whether each session had its share of speed in the time that has passed, and all together more than the whole.
    fn look(&mut self, passed_ns: u64, shares: &BTreeMap<u64, u64>) -> Verdict {
        let active: Vec<(u64, &Pace)> =
            self.paces.iter().filter(|(_, pace)| pace.is_active(passed_ns)).map(|(id, pace)| (*id, pace)).collect();
        let share_of = |id: u64| shares.get(&id).copied().unwrap_or(0);
        let all: u64 = active.iter().map(|(id, _)| share_of(*id)).sum();
        let (mut gained, mut least, mut lacks) = (0, u64::MAX, 0);
        for (id, pace) in &active {
            // Of one that is new nothing is known.
            let speed = pace.speed().filter(|_| pace.passed() >= COMMANDS_LEAST).unwrap_or(0);
            least = least.min(speed * all / (share_of(*id) * 10).max(1));
            lacks = lacks.max((share_of(*id) * 1000 / all.max(1)).saturating_sub(speed));
            gained += u128::from(speed) * u128::from(pace.busy_ns().min(passed_ns)) / u128::from(passed_ns.max(1));
        }
        let gained = (gained / 10) as u64;
        let has_each = least >= SHARE_PERCENT && lacks <= LACKS_MAX;
        let is_better = active.len() > 1 && has_each && gained >= GAIN_PERCENT;
        *self.verdict.insert(Verdict { sessions: active.len(), gained, least, lacks, is_better })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Sessions that make so many commands in a millisecond of work in their own turns, and together.
    struct Gpu {
        together: Together,
        said: Vec<Progress>,
        alone: Vec<u64>,
        beside: Vec<u64>,
        now_ns: u64,
        on_ns: u64,
        /// Nobody has work.
        pauses: bool,
    }

    impl Gpu {
        fn new(alone: &[u64], beside: &[u64]) -> Gpu {
            let said = vec![Progress::default(); alone.len()];
            let (alone, beside) = (alone.to_vec(), beside.to_vec());
            Gpu { together: Together::new(0), said, alone, beside, now_ns: 0, on_ns: 0, pauses: false }
        }

        fn run(&mut self, ms: u64) {
            let shares = (0..self.said.len() as u64).map(|id| (id, 10)).collect();
            for at in 0..ms {
                self.now_ns += MS;
                let (is_on, turn) = (self.together.is_on(), at as usize % self.said.len());
                self.on_ns += if is_on { MS } else { 0 };
                for (id, said) in self.said.iter_mut().enumerate() {
                    if !self.pauses && (is_on || id == turn) {
                        said.passed += if is_on { self.beside[id] } else { self.alone[id] };
                        said.busy_ns += MS;
                    }
                    self.together.hear(id as u64, *said);
                }
                self.together.decide(self.now_ns, true, &shares);
            }
        }
    }

    #[test]
    fn who_cannot_fill_the_gpu_shares_it_and_who_fills_it_takes_turns() {
        // Each is at 80 % of its speed beside the other: 160 together.
        let mut gpu = Gpu::new(&[100, 50], &[80, 40]);
        gpu.run(10_000);
        assert!(gpu.on_ns > 9500 * MS, "{} ms together", gpu.on_ns / MS);
        // Half each: nothing is gained.
        let mut gpu = Gpu::new(&[100, 50], &[50, 25]);
        gpu.run(60_000);
        assert!(gpu.on_ns < 200 * MS, "{} ms together", gpu.on_ns / MS);
        // The first gains, at the cost of the other.
        let mut gpu = Gpu::new(&[100, 50], &[98, 15]);
        gpu.run(60_000);
        assert!(gpu.on_ns < 200 * MS, "{} ms together", gpu.on_ns / MS);
    }

    #[test]
    fn it_is_tried_ever_more_rarely_until_somebody_works_in_another_way() {
        let mut gpu = Gpu::new(&[100, 50], &[50, 25]);
        let trials = |gpu: &mut Gpu, seconds: u64| {
            let mut tried = Vec::new();
            // A turn of each.
            for _ in 0..seconds * 500 {
                let before = gpu.together.is_on();
                gpu.run(2);
                if gpu.together.is_on() && !before {
                    tried.push(gpu.now_ns / (1000 * MS));
                }
            }
            tried
        };
        assert_eq!(trials(&mut gpu, 60), [0, 1, 5, 21]);
        // Twice as much in each turn, and again in the old way.
        (gpu.alone, gpu.beside) = (vec![200, 50], vec![100, 25]);
        assert_eq!(trials(&mut gpu, 20).len(), 1, "it is tried at once");
        (gpu.alone, gpu.beside) = (vec![100, 50], vec![50, 25]);
        assert_eq!(trials(&mut gpu, 20).len(), 1, "it is tried at once");
    }

    /// The driver gives each its time slices, 20 ms of a fourth of a second, in which the others go on slowly.
    #[test]
    fn many_are_looked_at_until_each_has_had_its_slices() {
        let progress = |gpu: &Gpu| gpu.said.iter().map(|said| said.passed).collect::<Vec<_>>();
        for (slow, is_it) in [(5, true), (2, false)] {
            let mut gpu = Gpu::new(&[100; 12], &[slow; 12]);
            let before = progress(&gpu);
            for slice in 0..100 {
                gpu.beside = vec![slow; 12];
                gpu.beside[slice % 12] = 60;
                gpu.run(20);
            }
            assert!(progress(&gpu).iter().zip(&before).all(|(now, then)| now > then));
            assert_eq!(gpu.together.is_settled(), is_it, "{slow}");
        }
    }

    /// A worker may have been taken over, and says anything; the other one loses nothing by that.
    #[test]
    fn whatever_one_says_of_its_progress_keeps_nobody_from_his_share() {
        let mut seed = 7u64;
        let mut anything = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            [seed >> 33, 0, u64::MAX, u64::MAX - (seed >> 40), seed][(seed >> 61) as usize % 5]
        };
        // Its neighbour has nothing left beside it.
        let mut gpu = Gpu::new(&[100, 50], &[100, 5]);
        for _ in 0..60_000 {
            gpu.run(1);
            let said = Progress { passed: anything(), busy_ns: anything() };
            gpu.together.hear(0, said);
            gpu.said[0] = Progress { passed: said.passed >> 1, busy_ns: said.busy_ns >> 1 };
        }
        assert!(gpu.on_ns < 1000 * MS, "{} ms together in a minute", gpu.on_ns / MS);
    }

    #[test]
    fn who_goes_on_as_he_was_is_not_sent_into_turns_again() {
        let mut gpu = Gpu::new(&[100, 50], &[80, 40]);
        gpu.run(2000);
        let before_ns = gpu.on_ns;
        gpu.run(60_000);
        assert_eq!(gpu.on_ns - before_ns, 60_000 * MS);
        // Nor who pauses.
        gpu.pauses = true;
        gpu.run(5000);
        gpu.pauses = false;
        gpu.run(5000);
        assert_eq!(gpu.on_ns - before_ns, 70_000 * MS);
        // Now both have shorter commands, and the second hardly gets any beside the first: by what was known it does
        // well.
        (gpu.alone, gpu.beside) = (vec![1000, 500], vec![900, 45]);
        gpu.run(1000);
        assert!(!gpu.together.is_on());
        let before_ns = gpu.on_ns;
        gpu.run(10_000);
        assert!(gpu.on_ns - before_ns < 100 * MS);
    }

    /// A worker that says that it does nothing, and takes half of the GPU.
    #[test]
    fn who_says_that_he_pauses_does_not_keep_the_other_together_with_him() {
        let mut gpu = Gpu::new(&[100, 50], &[80, 40]);
        gpu.run(2000);
        assert!(gpu.together.is_on());
        gpu.said.truncate(1);
        gpu.beside = vec![50];
        gpu.run(300);
        assert!(!gpu.together.is_on());
    }

    #[test]
    fn programs_that_change_are_looked_at_again() {
        let mut gpu = Gpu::new(&[100, 50], &[80, 40]);
        gpu.run(2000);
        assert!(gpu.together.is_on());
        // Now the second needs the GPU as a whole.
        gpu.beside = vec![80, 10];
        gpu.run(200);
        assert!(!gpu.together.is_on());
        // Whoever says that it has done more than can be does not keep the others where they are.
        let mut gpu = Gpu::new(&[100, 50], &[80, 40]);
        gpu.run(2000);
        gpu.beside = vec![u64::MAX >> 20, 10];
        gpu.run(200);
        assert!(!gpu.together.is_on());
        // A limit, or nobody else.
        let mut gpu = Gpu::new(&[100, 50], &[80, 40]);
        gpu.run(2000);
        assert!(gpu.together.decide(gpu.now_ns, false, &BTreeMap::new()) && !gpu.together.is_on());
    }
}
