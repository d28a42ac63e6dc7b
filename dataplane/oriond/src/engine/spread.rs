//! Which engine carries a session: by what engines have to do, not by how many sessions there are.
//!
//! An engine with a session in use looks for news all the time, so a session on each costs a core for each, and four on
//! one cost one core together. Four programs of four hundred small operations a step (395,000 commands a second) were
//! as quick over one engine as over eight, and the server took 4.6 cores instead of 5.7 (H100 machine, 16 cores).
//!
//! What a session will do is not known when it begins. So an engine that has had much to do for a while gives one of
//! its sessions to another engine, if both have less to do then than it has now. Idle sessions stay where they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An engine takes further sessions while it has less to do than this, in thousandths of its time.
const BUSY_MAX: u32 = 500;
/// And while it has fewer than this: how much new ones will do is not known yet.
const SESSIONS_MAX: usize = 4;
/// Over how long it is measured.
const PERIOD: Duration = Duration::from_millis(100);
/// An engine looks whether to give a session away once in so many periods.
const PERIODS: usize = 3;
/// And does if it had more to do than this in each of them. It is more than up to where sessions are put there.
const CROWDED: u32 = 600;
/// To an engine with so much less to do. What is measured in these periods differs by some hundredths each time.
const CLEARLY: u32 = 250;
/// By how much less both have to do afterwards.
const MARGIN: u32 = 50;
/// How long a session stays, once it has moved: twice as long after each time, up to so many times.
const REST: Duration = Duration::from_secs(1);
const REST_DOUBLED_MAX: u32 = 5;

/// What all engines have to do.
pub struct Loads {
    began: Instant,
    engines: Box<[Load]>,
}

#[derive(Default)]
struct Load {
    sessions: AtomicUsize,
    /// Thousandths of its time in which there was something to do: in the last period, and the most of the last few.
    busy: AtomicU32,
    peak: AtomicU32,
    /// When it has said so, and when it was given a session by another engine, in milliseconds since the beginning.
    said_ms: AtomicU64,
    given_ms: AtomicU64,
}

impl Loads {
    pub fn new(engines: usize) -> Loads {
        Loads { began: Instant::now(), engines: (0..engines).map(|_| Load::default()).collect() }
    }

    pub fn session_begins(&self, engine: usize) {
        self.engines[engine].sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub fn session_ends(&self, engine: usize) {
        self.engines[engine].sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// The engine for the next session: the first that has time left, else the one that has most of it.
    pub fn choose(&self, now: Instant) -> usize {
        let now_ms = self.ms(now);
        let all = self.engines.iter().map(|load| (load.now(&load.busy, now_ms), load.sessions.load(Ordering::Relaxed)));
        let all: Vec<(u32, usize)> = all.collect();
        let has_time = |(busy, sessions): &(u32, usize)| *busy < BUSY_MAX && *sessions < SESSIONS_MAX;
        let least = || (0..all.len()).min_by_key(|index| all[*index]).expect("there is an engine");
        all.iter().position(has_time).unwrap_or_else(least)
    }

    /// Which of `engine`'s sessions goes to which other engine, and that one is told to be given one. `parts` are those
    /// that may, with their part of its time.
    pub fn relieve<T>(
        &self,
        engine: usize,
        busy: u32,
        parts: impl Iterator<Item = (T, u32)>,
        now: Instant,
    ) -> Option<(T, usize)> {
        let now_ms = self.ms(now);
        let others =
            self.engines.iter().enumerate().filter(|(index, load)| *index != engine && load.is_settled(now_ms));
        let found = relief(busy, parts, others.map(|(index, load)| (index, load.now(&load.peak, now_ms))))?;
        self.engines[found.1].is_given(now_ms).then_some(found)
    }

    fn say(&self, engine: usize, busy: u32, peak: u32, now: Instant) {
        let load = &self.engines[engine];
        load.busy.store(busy, Ordering::Relaxed);
        load.peak.store(peak, Ordering::Relaxed);
        load.said_ms.store(self.ms(now), Ordering::Relaxed);
    }

    fn ms(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64
    }
}

impl Load {
    /// One that says nothing any more sleeps.
    fn now(&self, what: &AtomicU32, now_ms: u64) -> u32 {
        let silent_ms = now_ms.saturating_sub(self.said_ms.load(Ordering::Relaxed));
        if silent_ms > 2 * PERIOD.as_millis() as u64 { 0 } else { what.load(Ordering::Relaxed) }
    }

    /// What it has to do counts the session that was given to it last.
    fn is_settled(&self, now_ms: u64) -> bool {
        let since_ms = now_ms.saturating_sub(self.given_ms.load(Ordering::Relaxed));
        since_ms > (PERIODS as u64 + 1) * PERIOD.as_millis() as u64
    }

    /// False if another engine was first.
    fn is_given(&self, now_ms: u64) -> bool {
        let last = self.given_ms.load(Ordering::Relaxed);
        self.is_settled(now_ms)
            && self.given_ms.compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The session with which the busier of the two engines has least to do, if that is clearly less than now, and of two
/// the smaller one. One that does nothing, or nearly all of what the engine does, is not found.
fn relief<T>(
    busy: u32,
    parts: impl Iterator<Item = (T, u32)>,
    others: impl Iterator<Item = (usize, u32)>,
) -> Option<(T, usize)> {
    let (to, least) = others.min_by_key(|(_, busy)| *busy).filter(|(_, least)| least + CLEARLY <= busy)?;
    let after = |part: u32| busy.saturating_sub(part).max(least + part);
    let (session, part) = parts.min_by_key(|(_, part)| (after(*part), *part))?;
    (after(part) + MARGIN <= busy).then_some((session, to))
}

/// An engine's own account of its time.
pub struct Clock {
    loads: Arc<Loads>,
    engine: usize,
    since: Instant,
    last: Instant,
    busy: Duration,
    /// Pieces of work since the clock was read.
    pieces: u32,
    /// What one of them took, if the clock was read in this turn.
    piece_ns: u64,
    /// What all of them took since the last look at the sessions.
    pieces_ns: u64,
    /// How busy the last periods were, the next one's place first.
    periods: [u32; PERIODS],
    period: usize,
}

/// Some periods of an engine.
pub struct Look {
    /// What sessions have used of this is known.
    pieces_ns: u64,
    /// On average.
    pub busy: u32,
    /// Had much to do all the time.
    pub is_crowded: bool,
}

impl Clock {
    pub fn new(loads: Arc<Loads>, engine: usize, now: Instant) -> Clock {
        Clock {
            loads,
            engine,
            since: now,
            last: now,
            busy: Duration::ZERO,
            pieces: 0,
            piece_ns: 0,
            pieces_ns: 0,
            periods: [0; PERIODS],
            period: 0,
        }
    }

    /// A turn begins, of which the time is known or not.
    pub fn begin(&mut self, now: Option<Instant>) {
        self.piece_ns = 0;
        let Some(now) = now.filter(|_| self.pieces > 0) else { return };
        let took_ns = now.saturating_duration_since(self.last).as_nanos() as u64;
        // The last pieces' time is up to here. Most often there was one.
        self.piece_ns = if self.pieces == 1 { took_ns } else { took_ns / u64::from(self.pieces) };
        self.pieces_ns += took_ns;
        self.pieces = 0;
    }

    /// Something was done that is no session's.
    pub fn piece(&mut self) {
        self.pieces += 1;
    }

    /// A turn is over, in which there was something to do or not. `now` may be the time of a turn before.
    pub fn turn(&mut self, now: Instant, was_busy: bool) -> Option<Look> {
        if was_busy {
            self.busy += now.saturating_duration_since(self.last);
        }
        self.last = now;
        let passed = now.saturating_duration_since(self.since);
        if passed < PERIOD {
            return None;
        }
        let part = (1000 * self.busy.as_micros() / passed.as_micros()).min(1000) as u32;
        self.periods[self.period] = part;
        self.period = (self.period + 1) % PERIODS;
        let peak = self.periods.into_iter().max().expect("there are some");
        self.loads.say(self.engine, part, peak, now);
        (self.since, self.busy) = (now, Duration::ZERO);
        (self.period == 0).then(|| Look {
            pieces_ns: std::mem::take(&mut self.pieces_ns),
            busy: self.periods.iter().sum::<u32>() / PERIODS as u32,
            is_crowded: self.periods.iter().all(|busy| *busy >= CROWDED),
        })
    }

    /// The engine has slept since.
    pub fn slept(&mut self, now: Instant) -> Option<Look> {
        self.pieces = 0;
        self.turn(now, false)
    }
}

/// What is known of a session's use of its engine. It goes with it.
#[derive(Default)]
pub struct Account {
    /// Pieces of work of which the time is not known yet.
    pieces: u32,
    /// Since the engine last looked at its sessions.
    used_ns: u64,
    moves: u32,
    stays_until: Option<Instant>,
}

impl Account {
    /// A turn of the engine comes to this session.
    pub fn turn(&mut self, clock: &Clock) {
        if clock.piece_ns > 0 {
            self.used_ns += u64::from(std::mem::take(&mut self.pieces)) * clock.piece_ns;
        }
    }

    /// It has done something in it.
    pub fn piece(&mut self, clock: &mut Clock) {
        self.pieces += 1;
        clock.pieces += 1;
    }

    /// Its part of the engine's time, in thousandths.
    pub fn close(&mut self, look: &Look) -> u32 {
        let used_ns = std::mem::take(&mut self.used_ns).min(look.pieces_ns);
        (u64::from(look.busy) * used_ns / look.pieces_ns.max(1)) as u32
    }

    pub fn may_move(&self, now: Instant) -> bool {
        self.stays_until.is_none_or(|until| now >= until)
    }

    pub fn moves(&mut self, now: Instant) {
        self.stays_until = Some(now + REST * (1 << self.moves.min(REST_DOUBLED_MAX)));
        self.moves += 1;
    }
}

#[cfg(test)]
mod tests;
