use super::*;

fn at(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

fn loads(of: &[(u32, usize)]) -> Loads {
    let loads = Loads::new(of.len());
    for (engine, (busy, sessions)) in of.iter().enumerate() {
        loads.say(engine, *busy, *busy, loads.began);
        (0..*sessions).for_each(|_| loads.session_begins(engine));
    }
    loads
}

fn chosen(of: &[(u32, usize)]) -> usize {
    let loads = loads(of);
    loads.choose(loads.began)
}

#[test]
fn a_session_goes_where_others_are_while_there_is_time() {
    assert_eq!(chosen(&[(0, 0), (0, 0)]), 0);
    assert_eq!(chosen(&[(400, 3), (0, 0)]), 0);
    assert_eq!(chosen(&[(400, 4), (0, 0)]), 1);
    assert_eq!(chosen(&[(600, 1), (300, 2)]), 1);
}

#[test]
fn where_all_have_much_to_do_it_goes_to_the_one_with_least() {
    assert_eq!(chosen(&[(900, 4), (700, 9), (800, 1)]), 1);
    assert_eq!(chosen(&[(0, 5), (0, 4), (0, 4)]), 1);
}

#[test]
fn an_engine_that_sleeps_has_nothing_to_do_whatever_it_said_last() {
    let loads = loads(&[(900, 1), (300, 1)]);
    assert_eq!(loads.choose(at(loads.began, 100)), 1);
    assert_eq!(loads.choose(at(loads.began, 1000)), 0);
}

#[test]
fn the_time_of_busy_turns_counts() {
    let loads = Arc::new(Loads::new(1));
    let start = loads.began;
    let busy = || loads.engines[0].busy.load(Ordering::Relaxed);
    let mut clock = Clock::new(loads.clone(), 0, start);
    (1..=100).for_each(|turn| assert!(clock.turn(at(start, turn), turn % 4 == 0).is_none()));
    assert_eq!(busy(), 250);
    assert!(clock.turn(at(start, 300), false).is_none());
    assert_eq!((busy(), loads.engines[0].peak.load(Ordering::Relaxed)), (0, 250));
    let look = clock.turn(at(start, 400), true).expect("three periods are over");
    assert_eq!((look.busy, look.is_crowded), (416, false));
}

#[test]
fn a_session_is_charged_for_its_turns_and_no_other() {
    let loads = Arc::new(Loads::new(1));
    let start = loads.began;
    let mut clock = Clock::new(loads, 0, start);
    let (mut quick, mut slow) = (Account::default(), Account::default());
    let mut now = start;
    let look = loop {
        let turns =
            [(1, true, false, false), (1, false, false, true), (7, false, true, false), (1, true, false, false)];
        let looks = turns.map(|(ms, quick_works, slow_works, other)| {
            clock.begin(Some(now));
            quick.turn(&clock);
            slow.turn(&clock);
            if other {
                clock.piece();
            }
            if quick_works {
                quick.piece(&mut clock);
            }
            if slow_works {
                slow.piece(&mut clock);
            }
            let look = clock.turn(now, true);
            now += Duration::from_millis(ms);
            look
        });
        if let Some(look) = looks.into_iter().flatten().next() {
            break look;
        }
    };
    let parts = [quick.close(&look), slow.close(&look)];
    assert!(parts[0].abs_diff(200) < 40 && parts[1].abs_diff(700) < 40, "{parts:?} of {}", look.busy);
    assert_eq!([quick.close(&look), slow.close(&look)], [0, 0]);
}

#[test]
fn the_session_moves_with_which_both_have_least_to_do() {
    let to = |busy, parts: &[u32], others: &[u32]| {
        relief(busy, parts.iter().copied().enumerate(), others.iter().copied().enumerate())
    };
    assert_eq!(to(1000, &[250, 250, 250, 250], &[0, 0]), Some((0, 0)));
    assert_eq!(to(1000, &[100, 500, 400], &[300, 0]), Some((1, 1)));
    // One that fills an engine is left alone by the others.
    assert_eq!(to(1000, &[900, 100], &[0]), Some((1, 0)));
    assert_eq!(to(900, &[880, 10], &[0]), None);
    assert_eq!(to(1000, &[500, 500], &[460]), None);
    assert_eq!(to(1000, &[500, 500], &[]), None);
    assert_eq!(to(700, &[0, 0], &[0]), None);
    assert_eq!(to(700, &[], &[0]), None);
}

#[test]
fn an_engine_is_given_one_session_at_a_time() {
    let loads = loads(&[(1000, 2), (1000, 2), (0, 0)]);
    let relieve = |engine, ms| {
        [1000, 1000, 0].into_iter().enumerate().for_each(|(of, busy)| loads.say(of, busy, busy, at(loads.began, ms)));
        loads.relieve(engine, 1000, [('a', 500), ('b', 500)].into_iter(), at(loads.began, ms))
    };
    assert_eq!(relieve(0, 1000), Some(('a', 2)));
    assert_eq!(loads.engines[2].given_ms.load(Ordering::Relaxed), 1000);
    assert_eq!(relieve(1, 1001), None);
    assert_eq!(relieve(1, 1500), Some(('a', 2)));
}

#[test]
fn a_session_that_has_moved_stays_longer_each_time() {
    let (start, mut account) = (Instant::now(), Account::default());
    assert!(account.may_move(start));
    account.moves(start);
    assert!(!account.may_move(at(start, 999)) && account.may_move(at(start, 1000)));
    account.moves(start);
    assert!(!account.may_move(at(start, 1999)) && account.may_move(at(start, 2000)));
    (0..60).for_each(|_| account.moves(start));
    assert!(account.may_move(at(start, 32_000)));
}

/// Engines that turn once in a millisecond and sessions that want so much of it.
struct Simulated {
    loads: Arc<Loads>,
    engines: Vec<Clock>,
    sessions: Vec<Wanting>,
    random: u64,
    moves: Vec<u64>,
    ms: u64,
}

struct Wanting {
    account: Account,
    engine: usize,
    /// Thousandths.
    wants: u64,
    /// Pieces of a millisecond that are to be done.
    waits: u64,
}

impl Simulated {
    fn new(engines: usize, wants: &[u64], random: u64) -> Simulated {
        let loads = Arc::new(Loads::new(engines));
        let clock = |engine| Clock::new(loads.clone(), engine, loads.began);
        let session = |wants: &u64| Wanting { account: Account::default(), engine: 0, wants: *wants, waits: 0 };
        Simulated {
            engines: (0..engines).map(clock).collect(),
            sessions: wants.iter().map(session).collect(),
            random,
            moves: Vec::new(),
            ms: 0,
            loads,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            for index in 0..self.sessions.len() {
                // A client that is not answered does not ask for ever more.
                if self.random(1000) < self.sessions[index].wants && self.sessions[index].waits < 3 {
                    self.sessions[index].waits += 1;
                }
            }
            (0..self.engines.len()).for_each(|engine| self.turn(engine));
        }
    }

    fn turn(&mut self, engine: usize) {
        let now = at(self.loads.began, self.ms);
        let clock = &mut self.engines[engine];
        clock.begin(Some(now));
        let mut own: Vec<_> = self.sessions.iter_mut().filter(|session| session.engine == engine).collect();
        own.iter_mut().for_each(|session| session.account.turn(clock));
        let waiting = own.into_iter().filter(|session| session.waits > 0);
        let longest = waiting.max_by_key(|session| session.waits);
        let was_busy = longest.is_some();
        if let Some(session) = longest {
            session.waits -= 1;
            session.account.piece(clock);
        }
        let Some(look) = clock.turn(now, was_busy) else { return };
        let parts = |(index, session): (usize, &mut Wanting)| {
            let part = (session.engine == engine).then(|| session.account.close(&look))?;
            session.account.may_move(now).then_some((index, part))
        };
        let parts: Vec<(usize, u32)> = self.sessions.iter_mut().enumerate().filter_map(parts).collect();
        if !look.is_crowded {
            return;
        }
        if let Some((index, to)) = self.loads.relieve(engine, look.busy, parts.into_iter(), now) {
            self.sessions[index].engine = to;
            self.sessions[index].account.moves(now);
            self.moves.push(self.ms);
        }
    }

    /// What engines would have to do.
    fn wanted(&self) -> Vec<u64> {
        let of = |engine| self.sessions.iter().filter(|s| s.engine == engine).map(|s| s.wants).sum();
        (0..self.engines.len()).map(of).collect()
    }
}

#[test]
fn four_busy_sessions_among_sixty_idle_ones_get_an_engine_each() {
    let wants: Vec<u64> = (0..64).map(|index| if index % 16 == 0 { 700 } else { 0 }).collect();
    let mut simulated = Simulated::new(4, &wants, 7);
    simulated.run(5000);
    assert_eq!(simulated.wanted(), [700; 4]);
    assert_eq!(simulated.moves.len(), 3, "{:?}", simulated.moves);
    assert!(simulated.sessions.iter().all(|session| session.wants > 0 || session.engine == 0), "an idle one moved");
}

#[test]
fn sessions_that_want_what_they_want_come_to_rest_whatever_that_is() {
    for seed in 1..=60u64 {
        let mut dice = Simulated::new(1, &[], seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (engines, count) = (2 + dice.random(5) as usize, 2 + dice.random(15));
        let wants: Vec<u64> = (0..count).map(|_| dice.random(10).pow(3)).collect();
        let mut simulated = Simulated::new(engines, &wants, dice.random);
        simulated.run(20_000);
        let (then, settled) = (simulated.moves.len(), simulated.wanted());
        simulated.run(60_000);
        let later = simulated.moves.len() - then;
        let say = format!("seed {seed}: {wants:?} over {engines}: {:?}, {settled:?}", simulated.moves);
        assert!(later <= 3, "{say}");
        assert!(then <= 2 * count as usize, "{say}");
        // Nobody shares a full engine while another has time for him.
        let spare = settled.iter().min().expect("there are engines");
        for (engine, wanted) in settled.iter().enumerate() {
            let own = simulated.sessions.iter().filter(|s| s.engine == engine && s.wants > 100);
            let smallest = own.clone().map(|s| s.wants).min().unwrap_or(0);
            let is_crowded = *wanted > u64::from(CROWDED) + 100 && own.count() > 1;
            assert!(
                !is_crowded
                    || spare + u64::from(CLEARLY) + 100 > (*wanted).min(1000)
                    || spare + smallest + 150 > (*wanted).min(1000),
                "{say}"
            );
        }
    }
}
