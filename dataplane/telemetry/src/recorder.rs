//! What the worker's executor does for each command: three additions in the class's own cache line, and for one in
//! 128 a look at the clock; for more of them where commands take so long that there is time for it.
//!
//! A sample stands for all commands since the one before, so sums of samples are estimates of the whole. Which command
//! is next is drawn, lest a loop of as many commands always meets the same one. Waits are no samples: who waits has the
//! time to look at the clock; and of what takes a driver long by itself (loading code, making contexts) each is timed.
//!
//! An estimate is held against what really went by since the sample before. A driver whose queue is full lets hundreds
//! of launches through in a moment and keeps the next one for long: if that one was timed, the others did not take as
//! long as it; and if it was not, what nothing else accounts for was its.

use std::io;
use std::time::Instant;

use orion_wire::record::Header;

use crate::class::Class;
use crate::events::{of_class, of_session, times};
use crate::page::{OwnPage, add, monotonic_ns};
use crate::probe;

/// Commands from one sample to the next, in the middle of what is drawn.
const PERIOD: u32 = 128;
/// Samples need not be nearer to each other than this, in nanoseconds: one costs about a tenth of a microsecond.
const APART_NS: u64 = 20_000;
/// Nothing that is estimated is so far from the truth, in nanoseconds, unless a command took long that was not timed.
const UNNOTICED_NS: u64 = 1_000_000;
/// Short moments without work of which one is timed.
const IDLE_PERIOD: u32 = 64;
/// With no more room than this a ring counts as full. A client that waits for room leaves 16 KiB (the shim's
/// `SPARE_BYTES`), and before the next sample a worker may take 191 more commands, of 144 bytes each if they are
/// launches: 27 KiB.
const FULL_BYTES: u64 = 48 << 10;
/// Looks for work after which a moment of idleness is long enough to be timed.
const LONG_LOOKS: u32 = 256;

pub struct Recorder {
    page: OwnPage,
    session: u64,
    /// Commands until the next sample, and since the last one.
    left: u32,
    drawn: u32,
    seed: u32,
    sample: Option<Sample>,
    window: Window,
    mark: Option<Mark>,
    /// Where the mark lies, to be compared with; nowhere without one.
    mark_at: u64,
    /// When the ring was last looked at, unless the worker has slept since.
    looked_at: Option<Instant>,
    /// When the GPU was last asked in vain, and whether nothing else was done since.
    asked: Instant,
    only_asked: bool,
    idles: u32,
    /// How long the last timed command of each class was handled.
    handled_ns: [u64; Class::COUNT],
}

/// A command that is being timed.
struct Sample {
    class: Class,
    op: u16,
    weight: u64,
    taken: Instant,
    handled: Option<Instant>,
    /// What those took for which it stands beside itself, in nanoseconds; `None` where that is not known.
    others_ns: Option<u64>,
}

/// From one drawn sample to the next.
struct Window {
    since: Instant,
    /// What is accounted for already: waits, and commands that were timed by themselves.
    accounted_ns: u64,
    /// There were moments without work that were not timed.
    has_untimed_idles: bool,
}

impl Window {
    fn begin() -> Window {
        Window { since: Instant::now(), accounted_ns: 0, has_untimed_idles: false }
    }

    /// What is not accounted for, in nanoseconds.
    fn left(&self, now: Instant) -> u64 {
        ns(self.since, now).saturating_sub(self.accounted_ns)
    }
}

/// The end of what was in the ring at a moment: when it is taken is known how long it was there.
struct Mark {
    since: Instant,
    weight: u64,
}

/// Where a command was, in the ring.
pub struct Position {
    /// Behind it.
    pub end: u64,
    pub capacity: u64,
}

impl Recorder {
    #[must_use]
    pub fn new(page: OwnPage, session: u64) -> Recorder {
        let mut recorder = Recorder {
            page,
            session,
            left: 1,
            drawn: 1,
            seed: 0x9e37_79b9,
            sample: None,
            window: Window::begin(),
            mark: None,
            mark_at: u64::MAX,
            looked_at: None,
            asked: Instant::now(),
            only_asked: false,
            idles: 0,
            handled_ns: [0; Class::COUNT],
        };
        recorder.draw(PERIOD);
        recorder
    }

    /// Measures what this costs a command here, on a page that nobody sees.
    ///
    /// # Errors
    ///
    /// What the system answers when asked for a page.
    pub fn cost_picoseconds() -> io::Result<u64> {
        const COMMANDS: u32 = 4096;
        let page = OwnPage::alone()?;
        let mut trial = Recorder::new(page, 0);
        let header = Header { size: 144, op: 0x0300, thread: 0, context: 0, sequence: 0 };
        let mut best = u64::MAX;
        for _ in 0..2 {
            let start = Instant::now();
            for n in 0..u64::from(COMMANDS) {
                trial.takes(&header, &Position { end: 144 * n, capacity: 1 << 20 }, || 144 * n);
                trial.handled(&header, false);
                trial.done();
            }
            // The first round touches the page.
            best = best.min(start.elapsed().as_nanos() as u64 * 1000 / u64::from(COMMANDS));
        }
        Ok(best)
    }

    /// A command was taken. `published` answers up to where there are more.
    #[inline(always)]
    pub fn takes(&mut self, header: &Header, at: &Position, published: impl FnOnce() -> u64) {
        let class = Class::of(header.op);
        let line = self.page.line(class);
        add(&line[of_class::CALLS.index], 1);
        add(&line[of_class::ANSWERED.index], u64::from(header.sequence != 0));
        add(&line[of_class::BYTES.index], header.size.into());
        probe::command_begin(self.session, header.op.into(), header.sequence, header.size.into());
        if at.end >= self.mark_at {
            self.passed(class);
        }
        self.only_asked = false;
        if class.is_slow() {
            return self.begin(class, header, None, at, published());
        }
        self.left -= 1;
        if self.left == 0 {
            self.begin(class, header, Some(self.drawn), at, published());
        }
    }

    /// Times a command, which stands for as many as were `drawn`, or for itself.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, class: Class, header: &Header, drawn: Option<u32>, at: &Position, published: u64) {
        let taken = Instant::now();
        let others_ns = drawn.and_then(|drawn| self.next_window(drawn, taken));
        let weight = drawn.map_or(1, u64::from);
        self.sample = Some(Sample { class, op: header.op, weight, taken, handled: None, others_ns });
        // What a client wrote there is nothing to rely on.
        let behind = published.saturating_sub(at.end).min(at.capacity);
        if behind == 0 {
            self.page.record(class, times::RING, 0, weight);
        } else if self.mark.is_none() {
            self.mark = Some(Mark { since: taken, weight });
            self.mark_at = at.end + behind;
        }
        let free = at.capacity - behind;
        let looked_at = self.looked_at.replace(taken);
        if free >= FULL_BYTES {
            return;
        }
        probe::ring_full(self.session, free);
        // A client fills it in no time while a driver keeps a command: since when it is full is not known any better.
        if let Some(before) = looked_at {
            self.page.add(of_session::RING_FULL, ns(before, taken));
        }
    }

    #[cold]
    #[inline(never)]
    fn passed(&mut self, class: Class) {
        self.mark_at = u64::MAX;
        let Some(Mark { since, weight }) = self.mark.take() else { return };
        let waited = ns(since, Instant::now());
        self.page.record(class, times::RING, waited, weight);
        add(&self.page.line(class)[of_class::RING.index], waited.saturating_mul(weight));
    }

    /// Ends a window of so many commands. Answers what all but the one that is taken now took, in nanoseconds.
    fn next_window(&mut self, drawn: u32, now: Instant) -> Option<u64> {
        let (passed, left) = (ns(self.window.since, now).max(1), self.window.left(now));
        let is_known = !self.window.has_untimed_idles;
        self.window = Window { since: now, accounted_ns: 0, has_untimed_idles: false };
        let period = (u64::from(drawn) * APART_NS / passed).clamp(1, PERIOD.into());
        self.draw(period as u32);
        is_known.then_some(left)
    }

    /// The next sample, somewhere around so many commands from here.
    fn draw(&mut self, period: u32) {
        // Xorshift: good enough to be out of step with any loop.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        self.drawn = (period / 2 + self.seed % period).max(1);
        self.left = self.drawn;
    }

    /// The handler of the last command has returned; `waits` if the command now waits for something.
    #[inline(always)]
    pub fn handled(&mut self, header: &Header, waits: bool) {
        probe::command_end(self.session, header.op.into(), header.sequence, waits.into());
        if self.sample.is_some() {
            self.note_handled(header.op, waits);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_handled(&mut self, op: u16, waits: bool) {
        let Some(sample) = &mut self.sample else { return };
        if sample.op != op {
            self.sample = None;
            return;
        }
        let now = Instant::now();
        sample.handled = Some(now);
        let (class, weight, driver) = (sample.class, sample.weight, ns(sample.taken, now));
        let others = driver.saturating_mul(weight - 1);
        let others = match sample.others_ns {
            Some(took) if took > others.saturating_add(UNNOTICED_NS) => took,
            Some(took) => others.min(took),
            None => others,
        };
        let line = self.page.line(class);
        self.handled_ns[class as usize] = driver;
        self.window.accounted_ns += driver;
        add(&line[of_class::SAMPLES.index], 1);
        add(&line[of_class::DRIVER.index], driver.saturating_add(others));
        self.page.record(class, times::DRIVER, driver, weight);
        if waits {
            self.sample = None;
        }
    }

    /// And it was answered, if it was to be.
    #[inline(always)]
    pub fn done(&mut self) {
        if self.sample.is_some() {
            self.note_done();
        }
    }

    #[cold]
    #[inline(never)]
    fn note_done(&mut self) {
        let Some(Sample { class, weight, taken, handled: Some(handled), .. }) = self.sample.take() else { return };
        let now = Instant::now();
        self.window.accounted_ns += ns(handled, now);
        self.page.record(class, times::TIME, ns(taken, now), weight);
        add(&self.page.line(class)[of_class::WORKER.index], ns(handled, now).saturating_mul(weight));
    }

    /// Bytes that a copy moves, beyond those of its command.
    #[inline]
    pub fn moves(&self, op: u16, bytes: u64) {
        add(&self.page.line(Class::of(op))[of_class::BYTES.index], bytes);
    }

    /// Commands wait, and the GPU was asked in vain. Answers when that was.
    pub fn asked_in_vain(&mut self) -> Instant {
        let now = Instant::now();
        if self.only_asked {
            let parked = ns(self.asked, now);
            self.window.accounted_ns += parked;
            self.page.add(of_session::PARKED, parked);
        }
        (self.asked, self.only_asked) = (now, true);
        now
    }

    /// A command waits from now on.
    pub fn waits(&self, header: &Header) {
        probe::wait_begin(self.session, header.op.into(), header.sequence);
    }

    /// What a command waited for has come, `since` being when it was first asked for in vain.
    pub fn waited(&self, header: &Header, since: Option<Instant>) {
        let class = Class::of(header.op);
        let waited = since.map_or(0, |since| ns(since, self.asked));
        // Before it waited it was handled, which is not timed each time.
        self.page.record(class, times::TIME, waited + self.handled_ns[class as usize], 1);
        if since.is_some() {
            add(&self.page.line(class)[of_class::WAIT.index], waited);
            probe::wait_end(self.session, header.op.into(), header.sequence, waited);
        }
    }

    /// The worker had nothing to do since then, and sleeps until there is something.
    pub fn sleeps(&self, since: Instant) {
        let already = since.elapsed().as_nanos() as u64;
        self.page.set(of_session::ASLEEP_SINCE, monotonic_ns().saturating_sub(already));
    }

    /// The worker had nothing to do since then, and looked so often for something. A short moment is timed now and
    /// then, and stands for others.
    #[inline]
    pub fn idled(&mut self, since: Instant, looks: u32, slept: bool) {
        self.only_asked = false;
        let weight = match slept || looks >= LONG_LOOKS {
            true => 1,
            false => {
                self.idles += 1;
                self.window.has_untimed_idles = true;
                if !self.idles.is_multiple_of(IDLE_PERIOD) {
                    return;
                }
                IDLE_PERIOD
            }
        };
        let idle = ns(since, Instant::now());
        self.window.accounted_ns += idle;
        self.page.add(of_session::IDLE, idle * u64::from(weight));
        if slept {
            // The first command after a sleep, so that something is known of sessions with little to do.
            self.drawn -= self.left - 1;
            self.left = 1;
            self.looked_at = None;
            self.page.set(of_session::ASLEEP_SINCE, 0);
        }
    }

    /// Held back by the arbiter of shares: by other tenants, or by the session's own limit.
    pub fn held_back(&mut self, by_others: bool, ns: u64) {
        self.window.accounted_ns += ns;
        self.page.add(if by_others { of_session::LEASE_WAIT } else { of_session::CAP_WAIT }, ns);
        probe::held_back(self.session, by_others.into(), ns);
    }

    /// For who has words of his own there.
    #[must_use]
    pub fn page(&self) -> &OwnPage {
        &self.page
    }
}

fn ns(from: Instant, to: Instant) -> u64 {
    to.saturating_duration_since(from).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orion_wire::generated::ops;

    use super::*;

    fn header(op: u16, sequence: u64) -> Header {
        Header { size: 128, op, thread: 0, context: 0, sequence }
    }

    fn recorder() -> Recorder {
        Recorder::new(OwnPage::alone().expect("a page"), 7)
    }

    fn run(recorder: &mut Recorder, count: u64, behind: u64) {
        let launch = header(ops::CU_LAUNCH_KERNEL, 0);
        for n in 1..=count {
            let end = 128 * n;
            recorder.takes(&launch, &Position { end, capacity: 1 << 20 }, || end + behind);
            recorder.handled(&launch, false);
            recorder.done();
        }
    }

    #[test]
    fn every_command_is_counted_and_samples_stand_for_all() {
        const COUNT: u64 = 100_000;
        let mut recorder = recorder();
        let start = Instant::now();
        run(&mut recorder, COUNT, 0);
        // Where commands take longer there is time for more samples; half of those that it takes here anyway are none.
        let more = (ns(start, Instant::now()) / APART_NS).saturating_sub(COUNT / u64::from(PERIOD) / 2);
        let read = recorder.page().read();
        assert_eq!(read.class(Class::Launch, of_class::CALLS), COUNT);
        assert_eq!(read.class(Class::Launch, of_class::BYTES), COUNT * 128);
        assert_eq!(read.class(Class::Launch, of_class::ANSWERED), 0);
        let samples = read.class(Class::Launch, of_class::SAMPLES);
        assert!((COUNT / 150..COUNT / 110 + more).contains(&samples), "{samples}, {more} for the time it took");
        let timed: u64 = read.histogram(Class::Launch, times::TIME).iter().map(|(_, n)| n).sum();
        assert!((COUNT - 400..=COUNT).contains(&timed), "{timed} of {COUNT} are stood for");
    }

    /// Launches, of which one in so many is kept for 10 ms. Answers what is said that the driver took, and what really
    /// went by.
    fn launches_of_which_one_in(many: u64, count: u64) -> (u64, u64) {
        let mut recorder = recorder();
        let launch = header(ops::CU_LAUNCH_KERNEL, 0);
        let start = Instant::now();
        for n in 1..=count {
            recorder.takes(&launch, &Position { end: 128 * n, capacity: 1 << 20 }, || 128 * n + (1 << 20));
            if n % many == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
            recorder.handled(&launch, false);
            recorder.done();
        }
        // Something of which it is known that it is timed: what comes before it is told with it.
        recorder.idled(Instant::now(), LONG_LOOKS, true);
        recorder.takes(&launch, &Position { end: 0, capacity: 1 << 20 }, || 0);
        recorder.handled(&launch, false);
        recorder.done();
        (recorder.page().read().class(Class::Launch, of_class::DRIVER), ns(start, Instant::now()))
    }

    #[test]
    fn a_driver_that_keeps_one_launch_of_many_is_told_of_exactly() {
        for many in [512, 2000] {
            let (told, took) = launches_of_which_one_in(many, 20_000);
            let slept = 20_000 / many * 10_000_000;
            assert!((slept..=took).contains(&told), "{told} ns are told of {slept} to {took} (one in {many})");
        }
    }

    #[test]
    fn where_each_command_takes_long_each_is_timed() {
        let mut recorder = recorder();
        let launch = header(ops::CU_LAUNCH_KERNEL, 0);
        for n in 1..=400 {
            recorder.takes(&launch, &Position { end: 128 * n, capacity: 1 << 20 }, || 128 * n);
            std::thread::sleep(Duration::from_micros(200));
            recorder.handled(&launch, false);
            recorder.done();
        }
        let samples = recorder.page().read().class(Class::Launch, of_class::SAMPLES);
        assert!(samples > 200, "{samples} of 400, though there was time for all");
    }

    #[test]
    fn what_lies_behind_a_command_is_how_long_the_ring_takes() {
        let mut recorder = recorder();
        run(&mut recorder, 1000, 128 * 100);
        let read = recorder.page().read();
        assert!(read.class(Class::Launch, of_class::RING) > 0);
        assert_eq!(read.session(of_session::RING_FULL), 0);
        run(&mut recorder, 1000, 1 << 20);
        assert!(recorder.page().read().session(of_session::RING_FULL) > 0);
        // Positions that no client writes.
        run(&mut recorder, 1000, u64::MAX >> 1);
    }

    /// It drains the ring in a moment, and the client fills it again while the driver keeps a launch.
    #[test]
    fn a_ring_that_is_full_whenever_the_driver_goes_on_is_full() {
        let mut recorder = recorder();
        let launch = header(ops::CU_LAUNCH_KERNEL, 0);
        let (capacity, full) = (1 << 20, (1 << 20) - (16 << 10));
        for n in 1..=20 * 512u64 {
            let behind = full - 128 * (n % 512);
            recorder.takes(&launch, &Position { end: 128 * n, capacity }, || 128 * n + behind);
            if n % 512 == 511 {
                std::thread::sleep(Duration::from_millis(10));
            }
            recorder.handled(&launch, false);
            recorder.done();
        }
        let told = recorder.page().read().session(of_session::RING_FULL);
        assert!(told >= 150_000_000, "{told} ns are told of 200 ms");
    }

    #[test]
    fn a_wait_is_from_the_first_look_in_vain_to_the_last() {
        let mut recorder = recorder();
        let wait = header(ops::CU_STREAM_SYNCHRONIZE, 9);
        recorder.takes(&wait, &Position { end: 128, capacity: 1 << 20 }, || 128);
        recorder.handled(&wait, true);
        let since = recorder.asked_in_vain();
        recorder.waits(&wait);
        std::thread::sleep(Duration::from_millis(20));
        recorder.asked_in_vain();
        recorder.waited(&wait, Some(since));
        // And one whose answer was there at once.
        recorder.waited(&wait, None);
        let read = recorder.page().read();
        assert_eq!(read.class(Class::Wait, of_class::ANSWERED), 1);
        let waited = read.class(Class::Wait, of_class::WAIT);
        assert!(waited >= 20_000_000, "{waited}");
        assert_eq!(read.session(of_session::PARKED), waited);
        assert_eq!(read.histogram(Class::Wait, times::TIME).iter().map(|(_, n)| n).sum::<u64>(), 2);
    }

    #[test]
    fn idleness_counts_when_it_is_long_and_the_command_behind_a_sleep_is_timed() {
        let mut recorder = recorder();
        let start = Instant::now();
        recorder.sleeps(start);
        std::thread::sleep(Duration::from_millis(5));
        // It is told while it lasts, too.
        assert!(recorder.page().read().session(of_session::IDLE) >= 5_000_000);
        recorder.idled(start, 0, true);
        assert!(recorder.page().read().session(of_session::IDLE) >= 5_000_000);
        run(&mut recorder, 1, 0);
        assert_eq!(recorder.page().read().class(Class::Launch, of_class::SAMPLES), 1);
    }

    #[test]
    fn the_cost_is_measured() {
        // Half a millisecond each, which another program's turn on this core may fall into.
        let cost = (0..20).map(|_| Recorder::cost_picoseconds().expect("a page")).min().expect("twenty of them");
        // Of a debug build, in picoseconds.
        assert!((100..1_000_000).contains(&cost), "{cost}");
    }
}
