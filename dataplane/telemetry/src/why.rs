//! Why a session is slow: what the time between two reports was spent on.
//!
//! A session's commands are executed by one thread, so its time is a line that can be cut: there was nothing to do, or
//! the GPU was waited for, or the driver worked, and so on. What is measured otherwise is cut out of what it lies in:
//! the network out of idleness, a full ring out of the driver's time, the wait for a core out of what is unexplained
//! before the rest. What then is left over is shown as such.

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::events::{of_class, of_session};
use crate::report::Session;

/// What may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    OwnCap,
    OtherTenants,
    Gpu,
    Network,
    RunQueue,
    RingFull,
    Copies,
    /// Orion's own work on commands, without what follows.
    Worker,
    Probes,
    Unexplained,
}

impl Cause {
    pub const ALL: [Cause; 10] = [
        Cause::OwnCap,
        Cause::OtherTenants,
        Cause::Gpu,
        Cause::Network,
        Cause::RunQueue,
        Cause::RingFull,
        Cause::Copies,
        Cause::Worker,
        Cause::Probes,
        Cause::Unexplained,
    ];

    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Cause::OwnCap => "my own cap",
            Cause::OtherTenants => "other tenants",
            Cause::Gpu => "the driver and GPU",
            Cause::Network => "the network",
            Cause::RunQueue => "run queue",
            Cause::RingFull => "ring full",
            Cause::Copies => "copies",
            Cause::Worker => "Orion's worker",
            Cause::Probes => "measuring",
            Cause::Unexplained => "unexplained",
        }
    }
}

/// The time between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    pub interval_ns: u64,
    /// The program wanted nothing.
    pub idle_ns: u64,
    /// The rest, the longest first; causes of nothing are left out.
    pub causes: Vec<(Cause, u64)>,
}

impl Why {
    /// What was waited in all.
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        self.causes.iter().map(|(_, ns)| ns).sum()
    }

    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.causes.iter().find(|(c, _)| *c == cause).map_or(0, |(_, ns)| *ns)
    }

    /// What was waited for most.
    #[must_use]
    pub fn main(&self) -> Option<Cause> {
        self.causes.first().map(|(cause, _)| *cause)
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let percent = |ns: u64| ns as f64 * 100.0 / self.interval_ns.max(1) as f64;
        let waited = percent(self.waited_ns());
        if waited < 1.0 {
            return "not slow: the program wants nothing".to_owned();
        }
        let shown = self.causes.iter().filter(|(_, ns)| percent(*ns) >= 0.5);
        let parts: Vec<String> = shown.map(|(cause, ns)| format!("{} {:.0}%", cause.words(), percent(*ns))).collect();
        format!("{waited:.0}% of the time is waited: {}", parts.join(", "))
    }
}

/// What a session did in between. `interval_ns` is by the clock of who has read both.
#[must_use]
pub fn why(before: &Session, now: &Session, interval_ns: u64) -> Why {
    let counter = |event| now.counter(event).saturating_sub(before.counter(event));
    let sums = |event, is_copy| {
        let of = |s: &Session, class: &Class| s.class(*class).map_or(0, |of| of.counter(event));
        let classes = Class::ALL.iter().filter(|class| class.is_copy() == is_copy);
        classes.fold(0u64, |sum, class| sum.saturating_add(of(now, class).saturating_sub(of(before, class))))
    };
    let both = |event| sums(event, true).saturating_add(sums(event, false));

    let mut left = Left(interval_ns);
    // Exact, so they come first.
    let cap = left.cut(counter(of_session::CAP_WAIT));
    let tenants = left.cut(counter(of_session::LEASE_WAIT));
    let parked = left.cut(counter(of_session::PARKED));
    let mut idle = left.cut(counter(of_session::IDLE));
    // Estimates.
    let mut copying = left.cut(sums(of_class::DRIVER, true));
    let mut driving = left.cut(sums(of_class::DRIVER, false));
    let mut worker = left.cut(both(of_class::WORKER));
    let mut unexplained = left.0;

    let parked_copies = part(parked, sums(of_class::WAIT, true), both(of_class::WAIT));
    let commands = both(of_class::CALLS);
    let probes = (commands as u128 * u128::from(now.counter(of_session::COST)) / 1000).min(worker.into()) as u64;
    worker -= probes;

    // Each answer is waited for from the other end of the network.
    let answered = both(of_class::ANSWERED);
    let rtt = now.wire.map_or(0, |wire| wire.rtt_ns);
    let again = now.wire.zip(before.wire).map_or(0, |(now, before)| now.retransmits.saturating_sub(before.retransmits));
    let network = take(&mut idle, rtt.saturating_mul(answered.saturating_add(again)));

    // While the GPU is waited for it does no harm to wait for a core.
    let queued = now.cores.zip(before.cores).map_or(0, |(now, before)| {
        now.executor_queued_ns.saturating_sub(before.executor_queued_ns).saturating_sub(parked)
    });
    let mut queued_left = if commands == 0 { 0 } else { queued };
    let mut run_queue = 0;
    for from in [&mut unexplained, &mut idle, &mut driving, &mut worker, &mut copying] {
        let taken = take(from, queued_left);
        (run_queue, queued_left) = (run_queue + taken, queued_left - taken);
    }

    // Who finds the ring full waits for what makes room in it: the driver's calls.
    let mut full_left = counter(of_session::RING_FULL);
    let mut ring_full = 0;
    for from in [&mut driving, &mut worker, &mut copying, &mut unexplained] {
        let taken = take(from, full_left);
        (ring_full, full_left) = (ring_full + taken, full_left - taken);
    }

    let mut causes = vec![
        (Cause::OwnCap, cap),
        (Cause::OtherTenants, tenants),
        (Cause::Gpu, driving + (parked - parked_copies)),
        (Cause::Network, network),
        (Cause::RunQueue, run_queue),
        (Cause::RingFull, ring_full),
        (Cause::Copies, copying + parked_copies),
        (Cause::Worker, worker),
        (Cause::Probes, probes),
        (Cause::Unexplained, unexplained),
    ];
    causes.retain(|(_, ns)| *ns > 0);
    causes.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    Why { interval_ns, idle_ns: idle, causes }
}

/// What is not explained so far.
struct Left(u64);

impl Left {
    fn cut(&mut self, ns: u64) -> u64 {
        take(&mut self.0, ns)
    }
}

fn take(from: &mut u64, ns: u64) -> u64 {
    let taken = ns.min(*from);
    *from -= taken;
    taken
}

fn part(whole: u64, of: u64, all: u64) -> u64 {
    if all == 0 { 0 } else { (u128::from(whole) * u128::from(of) / u128::from(all)) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Event;
    use crate::report::{Cores, OfClass, Wire};

    const SECOND: u64 = 1_000_000_000;

    fn session(of_session: &[(Event, u64)], classes: &[(Class, &[(Event, u64)])]) -> Session {
        let named = |all: &[(Event, u64)]| all.iter().map(|(e, n)| (e.name.to_owned(), *n)).collect();
        Session {
            counters: named(of_session),
            classes: classes
                .iter()
                .map(|(class, all)| (class.name().to_owned(), OfClass { counters: named(all), ..OfClass::default() }))
                .collect(),
            ..Session::default()
        }
    }

    fn of(now: &Session) -> Why {
        let before = Session {
            cores: now.cores.map(|_| Cores::default()),
            wire: now.wire.map(|_| Wire::default()),
            ..Session::default()
        };
        let why = why(&before, now, SECOND);
        assert_eq!(why.idle_ns + why.waited_ns(), SECOND, "{why:?}");
        why
    }

    #[test]
    fn each_cause_is_named() {
        use of_class::{ANSWERED, CALLS, DRIVER, WAIT};
        use of_session::{CAP_WAIT, IDLE, LEASE_WAIT, PARKED, RING_FULL};
        let ms = |n: u64| n * 1_000_000;
        let rest = |n: u64| (IDLE, ms(n));
        let one = |event, n| session(&[(event, ms(n)), rest(1000 - n)], &[]);
        assert_eq!(of(&one(CAP_WAIT, 700)).main(), Some(Cause::OwnCap));
        assert_eq!(of(&one(LEASE_WAIT, 700)).main(), Some(Cause::OtherTenants));
        assert_eq!(of(&one(PARKED, 700)).main(), Some(Cause::Gpu));
        let copies = session(&[(PARKED, ms(800)), rest(200)], &[(Class::CopyOut, &[(WAIT, ms(790))])]);
        assert_eq!(of(&copies).main(), Some(Cause::Copies));
        let full = session(&[(RING_FULL, ms(600))], &[(Class::Launch, &[(DRIVER, ms(900))])]);
        assert_eq!((of(&full).main(), of(&full).of(Cause::Gpu)), (Some(Cause::RingFull), ms(300)));
        let mut far = session(&[rest(1000)], &[(Class::Wait, &[(ANSWERED, 100), (CALLS, 100)])]);
        far.wire = Some(Wire { rtt_ns: ms(5), ..Wire::default() });
        assert_eq!((of(&far).main(), of(&far).of(Cause::Network)), (Some(Cause::Network), ms(500)));
        let mut queued = session(&[rest(200)], &[(Class::Launch, &[(DRIVER, ms(300)), (CALLS, 9)])]);
        queued.cores = Some(Cores { executor_queued_ns: ms(600), ..Cores::default() });
        assert_eq!((of(&queued).main(), of(&queued).of(Cause::RunQueue)), (Some(Cause::RunQueue), ms(600)));
        let unknown = of(&session(&[rest(400)], &[]));
        assert_eq!((unknown.main(), unknown.of(Cause::Unexplained)), (Some(Cause::Unexplained), ms(600)));
        assert_eq!(unknown.line(), "60% of the time is waited: unexplained 60%");
    }

    #[test]
    fn a_program_that_wants_nothing_is_not_slow() {
        let why = of(&session(&[(of_session::IDLE, SECOND)], &[]));
        assert_eq!((why.main(), why.idle_ns), (None, SECOND));
        assert!(why.line().starts_with("not slow"), "{}", why.line());
    }

    #[test]
    fn numbers_that_no_worker_writes_are_cut_to_the_interval() {
        let wild = session(
            &[(of_session::PARKED, u64::MAX), (of_session::COST, u64::MAX), (of_session::RING_FULL, u64::MAX)],
            &[(Class::Launch, &[(of_class::DRIVER, u64::MAX), (of_class::CALLS, u64::MAX)])],
        );
        assert_eq!(of(&wild).waited_ns(), SECOND);
    }
}
