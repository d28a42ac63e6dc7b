//! Which workers there should be. It decides, and does nothing: orders go to the nursery, retired workers are killed,
//! by whoever asked.
//!
//! ```text
//! ordered -> Starting -> Warm -> Serving -> ended; never Warm again
//! ```
//! A driver reads its environment when it is loaded, so a client whose settings differ from oriond's own gets a worker
//! that is started for it; all others take the next one of the pool.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use orion_wire::environment::Environment;

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
    /// What it sees beyond our own environment; empty for the pool's.
    environment: Environment,
}

pub struct Sizes {
    /// Kept warm.
    pub warm: usize,
    /// Warm before the first sessions: so many, less those that have begun.
    pub prestart: usize,
    pub sessions_max: usize,
}

pub struct Pool {
    sizes: Sizes,
    members: BTreeMap<u32, Member>,
    /// Warm ones, the next to serve first.
    warm: VecDeque<u32>,
    /// Processes that are being made.
    ordered: Vec<Environment>,
    sessions_begun: u64,
    /// Workers that ended before they were ready, in a row.
    failures: u32,
    again_after: Option<Instant>,
    is_closed: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    Retire(u32),
    Start(Environment),
}

/// What a worker that could not be started means for those who wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Whoever waits for a worker with this environment is told now: it may be that environment that does not work.
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
            failures: 0,
            again_after: None,
            is_closed: false,
        }
    }

    /// What has to be started, and what is not needed any more, for clients that wait with these environments.
    pub fn fill<'a>(&mut self, waiting: impl Iterator<Item = &'a Environment>) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.is_closed || self.again_after.is_some() {
            return acts;
        }
        let pool = self.pool();
        let mut wanted: Vec<(Environment, usize)> = vec![(Environment::default(), pool)];
        for environment in waiting {
            match wanted.iter_mut().find(|(e, _)| e == environment) {
                Some((_, count)) => *count += 1,
                None => wanted.push((environment.clone(), 1)),
            }
        }
        self.retire_the_warm(&mut wanted, &mut acts);
        self.retire_the_starting(&wanted, &mut acts);
        let starting_max = STARTING_MAX.max(pool);
        for (environment, count) in wanted {
            for _ in self.starting(&environment)..count {
                // A retired one counts until it has ended.
                if self.starting_at_all() >= starting_max || self.count() >= self.sizes.sessions_max + pool {
                    return acts;
                }
                self.ordered.push(environment.clone());
                acts.push(Act::Start(environment.clone()));
            }
        }
        acts
    }

    /// Left over from a burst, or from clients that did not wait: each holds a context on every GPU.
    fn retire_the_warm(&mut self, wanted: &mut [(Environment, usize)], acts: &mut Vec<Act>) {
        for slot in std::mem::take(&mut self.warm) {
            let member = self.members.get_mut(&slot).expect("a warm worker has not ended");
            match wanted.iter_mut().find(|(e, count)| *e == member.environment && *count > 0) {
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
    fn retire_the_starting(&mut self, wanted: &[(Environment, usize)], acts: &mut Vec<Act>) {
        let own: Vec<u32> = (self.members.iter())
            .filter(|(_, m)| m.state == State::Starting && !m.environment.is_empty())
            .map(|(slot, _)| *slot)
            .collect();
        for slot in own {
            let environment = &self.members[&slot].environment;
            let needed = wanted.iter().find(|(e, _)| e == environment).map_or(0, |(_, count)| *count);
            if self.starting(environment) > needed {
                self.members.get_mut(&slot).expect("just seen").state = State::Retired;
                acts.push(Act::Retire(slot));
            }
        }
    }

    fn pool(&self) -> usize {
        self.sizes.warm.max(self.sizes.prestart.saturating_sub(self.sessions_begun as usize))
    }

    fn starting(&self, environment: &Environment) -> usize {
        let born = self.members.values().filter(|m| m.state == State::Starting && m.environment == *environment);
        born.count() + self.ordered.iter().filter(|e| *e == environment).count()
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
    pub fn born(&mut self, slot: u32, environment: Environment) {
        self.arrived(&environment);
        self.members
            .insert(slot, Member { state: State::Starting, has_started: false, has_settled: false, environment });
    }

    /// The process of an order could not be made.
    pub fn not_born(&mut self, environment: &Environment, now: Instant) -> Failure {
        self.arrived(environment);
        self.failed(environment, now)
    }

    fn arrived(&mut self, environment: &Environment) {
        let at = self.ordered.iter().position(|e| e == environment).expect("it was ordered");
        self.ordered.swap_remove(at);
    }

    /// The worker is ready; false if nobody needs it any more.
    pub fn ready(&mut self, slot: u32) -> bool {
        let member = self.members.get_mut(&slot).expect("it has not ended");
        if member.state != State::Starting {
            return false;
        }
        member.state = State::Warm;
        self.failures = 0;
        self.warm.push_back(slot);
        true
    }

    /// The next warm worker with this environment, for the next session.
    pub fn next(&self, environment: &Environment) -> Option<u32> {
        self.warm.iter().copied().find(|slot| self.members[slot].environment == *environment)
    }

    /// The number of the session that begins next.
    pub fn upcoming(&self) -> u64 {
        self.sessions_begun + 1
    }

    /// It begins.
    pub fn serve(&mut self, slot: u32) {
        self.sessions_begun += 1;
        self.give_up(slot, State::Serving(self.sessions_begun));
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
    pub fn ended(&mut self, slot: u32, now: Instant) -> Option<(Environment, Failure)> {
        let member = self.members.remove(&slot)?;
        self.warm.retain(|s| *s != slot);
        (member.state == State::Starting && !self.is_closed).then(|| {
            let failure = self.failed(&member.environment, now);
            (member.environment, failure)
        })
    }

    /// Tried again, ever more slowly; who waits is told after the third time. One that was started for a client's own
    /// settings is that client's concern only.
    fn failed(&mut self, environment: &Environment, now: Instant) -> Failure {
        if !environment.is_empty() {
            return Failure::Told;
        }
        self.failures += 1;
        let pause = Duration::from_millis(100 << self.failures.min(7));
        self.again_after = Some(now + pause);
        Failure::Again { pause, failures: self.failures, told: self.failures >= FAILURES_SAID }
    }

    /// When a failed start is tried again.
    pub fn again_after(&self) -> Option<Instant> {
        self.again_after
    }

    /// Whether it is time to.
    pub fn is_time(&mut self, now: Instant) -> bool {
        self.again_after.take_if(|t| now >= *t).is_some()
    }

    /// No more is started.
    pub fn close(&mut self) {
        self.is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(value: u32) -> Environment {
        match value {
            0 => Environment::default(),
            _ => Environment::of(|name| (name == "CUDA_BINARY_LOADER_THREAD_COUNT").then(|| value.to_string())),
        }
    }

    fn pool(warm: usize, prestart: usize, sessions_max: usize) -> Pool {
        Pool::new(Sizes { warm, prestart, sessions_max })
    }

    #[test]
    fn the_first_sessions_find_what_was_started_before() {
        let mut pool = pool(1, 3, 8);
        assert_eq!(pool.fill([].iter()).len(), 3);
        for slot in 0..3 {
            pool.born(slot, environment(0));
            assert!(pool.ready(slot));
        }
        // One session less to come, so one less is kept.
        pool.serve(0);
        assert_eq!(pool.fill([].iter()), []);
        pool.serve(1);
        pool.serve(2);
        assert_eq!(pool.fill([].iter()), [Act::Start(environment(0))]);
    }

    #[test]
    fn a_worker_of_ones_own_is_retired_when_its_client_has_gone() {
        let (mut pool, own) = (pool(0, 0, 8), environment(3));
        assert_eq!(pool.fill([own.clone()].iter()), [Act::Start(own.clone())]);
        pool.born(5, own.clone());
        assert_eq!(pool.fill([].iter()), [Act::Retire(5)]);
        assert!(!pool.ready(5));
        assert_eq!(pool.ended(5, Instant::now()), None);
        assert!(pool.is_empty());
    }

    #[test]
    fn who_waits_is_told_after_three_failures_and_of_his_own_settings_at_once() {
        let (mut pool, now) = (pool(1, 0, 8), Instant::now());
        for round in 1..=4 {
            assert_eq!(pool.fill([].iter()).len(), 1);
            let Failure::Again { failures, told, pause } = pool.not_born(&environment(0), now) else { panic!() };
            assert_eq!((failures, told), (round, round >= 3));
            assert_eq!(pool.fill([].iter()), []);
            assert!(!pool.is_time(now) && pool.is_time(now + pause));
        }
        let own = environment(7);
        pool.fill([own.clone()].iter());
        assert_eq!(pool.not_born(&own, now), Failure::Told);
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
            let (mut waiting, mut ordered): (Vec<Environment>, Vec<Environment>) = Default::default();
            let (mut alive, mut serving): (Vec<u32>, usize) = Default::default();
            let mut next = 0;
            for step in 0..10_000 {
                let is_quiet = step > 9_000;
                match below(6) {
                    0 if !is_quiet && serving + waiting.len() < max => waiting.push(environment(below(3) as u32)),
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
                waiting.retain(|environment| match pool.next(environment) {
                    Some(slot) => {
                        pool.serve(slot);
                        serving += 1;
                        false
                    }
                    None => true,
                });
                ordered.extend(pool.fill(waiting.iter()).into_iter().filter_map(|act| match act {
                    Act::Start(environment) => Some(environment),
                    Act::Retire(slot) => {
                        assert!(alive.contains(&slot));
                        None
                    }
                }));
                let most = max + warm.max(prestart);
                assert!(alive.len() + ordered.len() <= most, "{} and {} of {most}", alive.len(), ordered.len());
            }
            assert!(waiting.is_empty(), "{} still wait", waiting.len());
            assert_eq!((serving, ordered.len()), (0, 0));
            assert!(alive.iter().all(|slot| pool.state(*slot) == Some(State::Warm)));
        }
    }
}
