//! Which workers there should be. It decides, and does nothing: orders go to the nursery, retired workers are killed,
//! by whoever asked.
//!
//! ```text
//! ordered -> Starting -> Warm -> Serving -> ended; never Warm again
//! ```
//! Workers of some kinds are kept warm: of all GPUs with oriond's own settings, or, where a pool gives GPUs out one
//! by one, of each GPU. Who needs another kind, for his driver's settings or several GPUs, gets a worker that is
//! started for him.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::kind::Kind;

/// Workers that warm up at the same time: each loads the driver and opens the GPUs.
const STARTING_MAX: usize = 4;
/// Failures in a row after which whoever waits is told.
const FAILURES_SAID: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Starting,
    Warm,
    /// This session.
    Serving(u64),
    /// Told to end because nobody needs it.
    Retired,
}

struct Member {
    state: State,
    /// Of one that serves: it has said which vGPUs its session has. It says so before it takes a command; whatever is
    /// said afterwards may be its tenant's word.
    has_started: bool,
    /// It has said that it took the memory that its session was lent, which it says before that.
    has_settled: bool,
    kind: Kind,
}

pub struct Sizes {
    /// Kept warm of each kind that is kept.
    pub warm: usize,
    /// Warm of all kinds together before the first sessions: so many, less those that have begun.
    pub prestart: usize,
    pub sessions_max: usize,
}

pub struct Pool {
    sizes: Sizes,
    members: BTreeMap<u32, Member>,
    /// Warm ones, the next to serve first.
    warm: VecDeque<u32>,
    /// Processes that are being made.
    ordered: Vec<Kind>,
    sessions_begun: u64,
    kept: Vec<Kept>,
    is_closed: bool,
}

/// A kind of which some are kept warm.
#[derive(Default)]
struct Kept {
    kind: Kind,
    /// Workers of it that ended before they were ready, in a row.
    failures: u32,
    again_after: Option<Instant>,
    /// Kept because it was the last one of several GPUs that a session had, until another one is.
    is_lately: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    Retire(u32),
    Start(Kind),
}

/// What a worker that could not be started means for those who wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Whoever waits for a worker of this kind is told now: it may be what is special about it that does not work.
    Told,
    /// It is tried again after this pause; `told` if that has been so for a while.
    Again { pause: Duration, failures: u32, told: bool },
}

impl Pool {
    pub fn new(sizes: Sizes) -> Pool {
        Pool {
            sizes,
            members: BTreeMap::new(),
            warm: VecDeque::new(),
            ordered: Vec::new(),
            sessions_begun: 0,
            kept: vec![Kept::default()],
            is_closed: false,
        }
    }

    /// From now on workers of these kinds are kept warm, and of no others.
    pub fn keep(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        self.kept = kinds.into_iter().map(|kind| Kept { kind, ..Kept::default() }).collect();
    }

    fn is_kept(&self, kind: &Kind) -> bool {
        self.kept.iter().any(|kept| kept.kind == *kind)
    }

    /// What has to be started, and what is not needed any more, for clients that wait for these kinds.
    pub fn fill(&mut self, waiting: impl Iterator<Item = Kind>) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.is_closed {
            return acts;
        }
        let pool = self.pool();
        let mut wanted: Vec<(Kind, usize)> = self.kept.iter().map(|kept| (kept.kind.clone(), pool)).collect();
        for kind in waiting {
            match wanted.iter_mut().find(|(k, _)| *k == kind) {
                Some((_, count)) => *count += 1,
                None => wanted.push((kind, 1)),
            }
        }
        self.retire_the_warm(&mut wanted, &mut acts);
        self.retire_the_starting(&wanted, &mut acts);
        let starting_max = STARTING_MAX.max(pool);
        let count_max = self.sizes.sessions_max + pool * self.kept.len();
        for (kind, count) in wanted {
            if self.kept.iter().any(|kept| kept.kind == kind && kept.again_after.is_some()) {
                continue;
            }
            for _ in self.starting(&kind)..count {
                // A retired one counts until it has ended.
                if self.starting_at_all() >= starting_max || self.count() >= count_max {
                    return acts;
                }
                self.ordered.push(kind.clone());
                acts.push(Act::Start(kind.clone()));
            }
        }
        acts
    }

    /// Left over from a burst, or from clients that did not wait: each holds a context on a GPU.
    fn retire_the_warm(&mut self, wanted: &mut [(Kind, usize)], acts: &mut Vec<Act>) {
        for slot in std::mem::take(&mut self.warm) {
            let member = self.members.get_mut(&slot).expect("a warm worker has not ended");
            match wanted.iter_mut().find(|(k, count)| *k == member.kind && *count > 0) {
                Some((_, count)) => {
                    *count -= 1;
                    self.warm.push_back(slot);
                }
                None => {
                    member.state = State::Retired;
                    acts.push(Act::Retire(slot));
                }
            }
        }
    }

    /// Started for clients that did not wait for them. One of the pool is of use to the next client.
    fn retire_the_starting(&mut self, wanted: &[(Kind, usize)], acts: &mut Vec<Act>) {
        let own: Vec<u32> = (self.members.iter())
            .filter(|(_, m)| m.state == State::Starting && !self.is_kept(&m.kind))
            .map(|(slot, _)| *slot)
            .collect();
        for slot in own {
            let kind = &self.members[&slot].kind;
            let needed = wanted.iter().find(|(k, _)| k == kind).map_or(0, |(_, count)| *count);
            if self.starting(kind) > needed {
                self.members.get_mut(&slot).expect("just seen").state = State::Retired;
                acts.push(Act::Retire(slot));
            }
        }
    }

    /// How many are kept of each kind.
    fn pool(&self) -> usize {
        let to_come = self.sizes.prestart.saturating_sub(self.sessions_begun as usize);
        self.sizes.warm.max(to_come.div_ceil(self.kept.len().max(1)))
    }

    fn starting(&self, kind: &Kind) -> usize {
        let born = self.members.values().filter(|m| m.state == State::Starting && m.kind == *kind);
        born.count() + self.ordered.iter().filter(|k| *k == kind).count()
    }

    fn starting_at_all(&self) -> usize {
        self.members.values().filter(|m| m.state == State::Starting).count() + self.ordered.len()
    }

    /// All there are and all that have been ordered.
    fn count(&self) -> usize {
        self.members.len() + self.ordered.len()
    }

    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The process of an order is there.
    pub fn born(&mut self, slot: u32, kind: Kind) {
        self.arrived(&kind);
        self.members.insert(slot, Member { state: State::Starting, has_started: false, has_settled: false, kind });
    }

    /// The process of an order could not be made.
    pub fn not_born(&mut self, kind: &Kind, now: Instant) -> Failure {
        self.arrived(kind);
        self.failed(kind, now)
    }

    fn arrived(&mut self, kind: &Kind) {
        let at = self.ordered.iter().position(|k| k == kind).expect("it was ordered");
        self.ordered.swap_remove(at);
    }

    /// The worker is ready; false if nobody needs it any more.
    pub fn ready(&mut self, slot: u32) -> bool {
        let member = self.members.get_mut(&slot).expect("it has not ended");
        if member.state != State::Starting {
            return false;
        }
        member.state = State::Warm;
        let kept = self.kept.iter_mut().find(|kept| kept.kind == member.kind);
        kept.into_iter().for_each(|kept| kept.failures = 0);
        self.warm.push_back(slot);
        true
    }

    /// The next warm worker of this kind, for the next session.
    pub fn next(&self, kind: &Kind) -> Option<u32> {
        self.warm.iter().copied().find(|slot| self.members[slot].kind == *kind)
    }

    /// The number of the session that begins next.
    pub fn upcoming(&self) -> u64 {
        self.sessions_begun + 1
    }

    /// It begins.
    pub fn serve(&mut self, slot: u32) {
        self.sessions_begun += 1;
        self.give_up(slot, State::Serving(self.sessions_begun));
        // Programs on several GPUs come one after the other, or as ranks of one job, for the same ones.
        let kind = &self.members[&slot].kind;
        if kind.gpus.len() != 1 && kind.environment.is_empty() && !self.is_kept(kind) {
            let kind = kind.clone();
            self.kept.retain(|kept| !kept.is_lately);
            self.kept.push(Kept { kind, is_lately: true, ..Kept::default() });
        }
    }

    /// It says which vGPUs its session has. Answers whether it may.
    pub fn starts(&mut self, slot: u32) -> bool {
        let serves = self.members.get_mut(&slot).filter(|member| matches!(member.state, State::Serving(_)));
        serves.is_some_and(|member| !std::mem::replace(&mut member.has_started, true))
    }

    /// It says that it has taken the memory that its session was lent. Answers whether it may.
    pub fn settles(&mut self, slot: u32) -> bool {
        let serves = self.members.get_mut(&slot).filter(|member| matches!(member.state, State::Serving(_)));
        serves.is_some_and(|member| !std::mem::replace(&mut member.has_settled, true) && !member.has_started)
    }

    /// A warm worker that did not take a session.
    pub fn retire(&mut self, slot: u32) {
        self.give_up(slot, State::Retired);
    }

    fn give_up(&mut self, slot: u32, state: State) {
        self.warm.retain(|s| *s != slot);
        self.members.get_mut(&slot).expect("it was warm").state = state;
    }

    pub fn state(&self, slot: u32) -> Option<State> {
        self.members.get(&slot).map(|m| m.state)
    }

    /// The process has ended. If it was being started, that has failed.
    pub fn ended(&mut self, slot: u32, now: Instant) -> Option<(Kind, Failure)> {
        let member = self.members.remove(&slot)?;
        self.warm.retain(|s| *s != slot);
        (member.state == State::Starting && !self.is_closed).then(|| {
            let failure = self.failed(&member.kind, now);
            (member.kind, failure)
        })
    }

    /// Tried again, ever more slowly, and the other kinds meanwhile as ever; who waits is told after the third time.
    /// One that was started for a client's own settings is that client's concern only.
    fn failed(&mut self, kind: &Kind, now: Instant) -> Failure {
        let Some(kept) = self.kept.iter_mut().find(|kept| kept.kind == *kind) else { return Failure::Told };
        kept.failures += 1;
        let pause = Duration::from_millis(100 << kept.failures.min(7));
        kept.again_after = Some(now + pause);
        Failure::Again { pause, failures: kept.failures, told: kept.failures >= FAILURES_SAID }
    }

    /// When the first of the failed starts is tried again.
    pub fn again_after(&self) -> Option<Instant> {
        self.kept.iter().filter_map(|kept| kept.again_after).min()
    }

    /// Whether it is time to.
    pub fn is_time(&mut self, now: Instant) -> bool {
        self.kept.iter_mut().filter_map(|kept| kept.again_after.take_if(|t| now >= *t)).count() > 0
    }

    /// No more is started.
    pub fn close(&mut self) {
        self.is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use orion_wire::environment::Environment;

    use super::*;

    fn kind(value: u32) -> Kind {
        let set = |name: &str| (value > 0 && name == "CUDA_BINARY_LOADER_THREAD_COUNT").then(|| value.to_string());
        Kind { environment: Environment::of(set), ..Kind::default() }
    }

    fn of_gpu(gpu: u32) -> Kind {
        Kind::of_gpus([format!("GPU-{gpu}")])
    }

    fn pool(warm: usize, prestart: usize, sessions_max: usize) -> Pool {
        Pool::new(Sizes { warm, prestart, sessions_max })
    }

    #[test]
    fn the_first_sessions_find_what_was_started_before() {
        let mut pool = pool(1, 3, 8);
        assert_eq!(pool.fill([].into_iter()).len(), 3);
        for slot in 0..3 {
            pool.born(slot, kind(0));
            assert!(pool.ready(slot));
        }
        // One session less to come, so one less is kept.
        pool.serve(0);
        assert_eq!(pool.fill([].into_iter()), []);
        pool.serve(1);
        pool.serve(2);
        assert_eq!(pool.fill([].into_iter()), [Act::Start(kind(0))]);
    }

    #[test]
    fn a_worker_of_ones_own_is_retired_when_its_client_has_gone() {
        let (mut pool, own) = (pool(0, 0, 8), kind(3));
        assert_eq!(pool.fill([own.clone()].into_iter()), [Act::Start(own.clone())]);
        pool.born(5, own.clone());
        assert_eq!(pool.fill([].into_iter()), [Act::Retire(5)]);
        assert!(!pool.ready(5));
        assert_eq!(pool.ended(5, Instant::now()), None);
        assert!(pool.is_empty());
    }

    #[test]
    fn who_waits_is_told_after_three_failures_and_of_his_own_settings_at_once() {
        let (mut pool, now) = (pool(1, 0, 8), Instant::now());
        for round in 1..=4 {
            assert_eq!(pool.fill([].into_iter()).len(), 1);
            let Failure::Again { failures, told, pause } = pool.not_born(&kind(0), now) else { panic!() };
            assert_eq!((failures, told), (round, round >= 3));
            assert_eq!(pool.fill([].into_iter()), []);
            assert!(!pool.is_time(now) && pool.is_time(now + pause));
        }
        let own = kind(7);
        pool.fill([own.clone()].into_iter());
        assert_eq!(pool.not_born(&own, now), Failure::Told);
    }

    #[test]
    fn workers_of_each_gpu_are_kept_and_of_several_those_that_a_session_had_last() {
        let (mut pool, now) = (pool(1, 0, 8), Instant::now());
        let orders = |acts: Vec<Act>| acts.into_iter().filter(|act| matches!(act, Act::Start(_))).collect::<Vec<_>>();
        pool.fill([].into_iter());
        pool.born(0, kind(0));
        assert!(pool.ready(0));
        pool.keep([of_gpu(0), of_gpu(1)]);
        let acts = pool.fill([].into_iter());
        assert_eq!(acts, [Act::Retire(0), Act::Start(of_gpu(0)), Act::Start(of_gpu(1))]);
        // One of a GPU that does not start leaves the others alone.
        assert!(matches!(pool.not_born(&of_gpu(0), now), Failure::Again { failures: 1, .. }));
        pool.born(1, of_gpu(1));
        assert!(pool.ready(1));
        pool.serve(1);
        assert_eq!(orders(pool.fill([].into_iter())), [Act::Start(of_gpu(1))]);
        assert!(pool.is_time(pool.again_after().expect("it failed")));
        assert_eq!(orders(pool.fill([].into_iter())), [Act::Start(of_gpu(0))]);
        // All of them, for one that waits; when it has begun another one is kept.
        assert_eq!(orders(pool.fill([kind(0)].into_iter())), [Act::Start(kind(0))]);
        pool.born(2, kind(0));
        assert!(pool.ready(2));
        pool.serve(2);
        assert_eq!(orders(pool.fill([].into_iter())), [Act::Start(kind(0))]);
        // Until it is other ones.
        let some = Kind::of_gpus(["GPU-0".to_owned(), "GPU-2".to_owned()]);
        assert_eq!(orders(pool.fill([some.clone()].into_iter())), [Act::Start(some.clone())]);
        pool.born(3, some.clone());
        assert!(pool.ready(3));
        pool.serve(3);
        assert_eq!(orders(pool.fill([].into_iter())), [Act::Start(some)]);
        assert!(!pool.is_kept(&kind(0)));
    }

    /// A client that has come and what it needs, workers that are born, get ready, serve and end, in any order: there
    /// are never more than there may be, nobody who waits is forgotten, and at the end only the pool is left.
    #[test]
    fn a_million_random_steps_never_start_too_many_and_forget_nobody() {
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        let mut below = |n: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % n as u64) as usize
        };
        for _ in 0..100 {
            let (warm, prestart, max) = (below(4), below(6), 1 + below(12));
            let (mut pool, mut now) = (pool(warm, prestart, max), Instant::now());
            let gpus = below(4) as u32;
            if gpus > 0 {
                pool.keep((0..gpus).map(of_gpu));
            }
            let (mut waiting, mut ordered): (Vec<Kind>, Vec<Kind>) = Default::default();
            let (mut alive, mut serving): (Vec<u32>, usize) = Default::default();
            let mut next = 0;
            for step in 0..10_000 {
                let is_quiet = step > 9_000;
                match below(6) {
                    0 if !is_quiet && serving + waiting.len() < max => {
                        waiting.push(match below(2) {
                            0 if gpus > 0 => of_gpu(below(gpus as usize) as u32),
                            _ => kind(below(3) as u32),
                        });
                    }
                    1 if !waiting.is_empty() && !is_quiet => drop(waiting.swap_remove(below(waiting.len()))),
                    2 if !ordered.is_empty() => {
                        let it = ordered.swap_remove(below(ordered.len()));
                        match below(8) {
                            0 if !is_quiet => match pool.not_born(&it, now) {
                                Failure::Told => waiting.retain(|e| *e != it),
                                Failure::Again { told: true, .. } => waiting.clear(),
                                Failure::Again { told: false, .. } => {}
                            },
                            _ => {
                                next += 1;
                                alive.push(next);
                                pool.born(next, it);
                            }
                        }
                    }
                    3 if !alive.is_empty() => {
                        let slot = alive[below(alive.len())];
                        match pool.state(slot).expect("alive") {
                            State::Starting => assert!(pool.ready(slot)),
                            State::Serving(_) if is_quiet || below(2) == 0 => {
                                serving -= 1;
                                alive.retain(|s| *s != slot);
                                assert_eq!(pool.ended(slot, now), None);
                            }
                            _ => {}
                        }
                    }
                    4 if !alive.is_empty() => {
                        let slot = alive[below(alive.len())];
                        let state = pool.state(slot).expect("alive");
                        if state == State::Retired || (!is_quiet && below(20) == 0) {
                            serving -= usize::from(matches!(state, State::Serving(_)));
                            alive.retain(|s| *s != slot);
                            match pool.ended(slot, now) {
                                Some((it, Failure::Told)) => waiting.retain(|e| *e != it),
                                Some((_, Failure::Again { told: true, .. })) => waiting.clear(),
                                _ => {}
                            }
                        }
                    }
                    _ => {
                        now += Duration::from_secs(20);
                        pool.is_time(now);
                    }
                }
                // As the door does: whoever can be served is, then the pool is filled.
                waiting.retain(|kind| match pool.next(kind) {
                    Some(slot) => {
                        pool.serve(slot);
                        serving += 1;
                        false
                    }
                    None => true,
                });
                ordered.extend(pool.fill(waiting.iter().cloned()).into_iter().filter_map(|act| match act {
                    Act::Start(kind) => Some(kind),
                    Act::Retire(slot) => {
                        assert!(alive.contains(&slot));
                        None
                    }
                }));
                let most = max + warm.max(prestart) * (gpus as usize + 1);
                assert!(alive.len() + ordered.len() <= most, "{} and {} of {most}", alive.len(), ordered.len());
            }
            assert!(waiting.is_empty(), "{} still wait", waiting.len());
            assert_eq!((serving, ordered.len()), (0, 0));
            assert!(alive.iter().all(|slot| pool.state(*slot) == Some(State::Warm)));
        }
    }
}
