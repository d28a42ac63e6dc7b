//! Tenants that try to get more of a GPU's time than their share, beside one that has half of it and keeps count.

mod holder;
mod oracle;
mod program;
mod ways;

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use clap::ValueEnum;
use orion_transport::client::Server;

use crate::server::Oriond;
use crate::server_log::{complaints, crashes};
use oracle::Held;
pub use ways::{WORK_CONSERVING, Way};

/// What each session is promised.
const SHARE: &str = "50";
/// What of it a session has on the software GPU, whose clock is a busy machine's, in each second: of what two honest
/// ones make of that GPU.
const LEAST: f64 = 0.50 - 0.13;
/// How long it waits at most, beyond a kernel of somebody else, unless honest sessions wait for so long too.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// What oriond's log says when sessions do without.
const NO_ARBITER: &str = "nobody divides the time of GPU";
/// The machine has other things to do, which come and go. What takes from others takes each time. Each try is twice as
/// long as the one before: the longer it lasts, the less it matters who had a core when.
const TRIES: usize = 3;

/// Each way for so long.
pub fn run(oriond: &Path, ways: &[Way], time: Duration) -> Result<(), String> {
    let ways = if ways.is_empty() { Way::value_variants() } else { ways };
    let mut baseline = honest(oriond, time)?;
    let (mut held, mut broken) = (0, 0);
    for (way, level) in ways.iter().flat_map(|way| way.levels().iter().map(move |level| (*way, *level))) {
        match beside_baseline(oriond, way, level, time, &mut baseline) {
            Ok(had) => {
                println!("{way:?} at level {level}: {had}");
                held += 1;
            }
            Err(text) => {
                println!("FOUND {way:?} at level {level}: {text}");
                broken += 1;
            }
        }
    }
    println!("{held} passed, {broken} failed");
    if broken == 0 { Ok(()) } else { Err(format!("{broken} ways take from others")) }
}

/// What a witness had beside that. Too little is found if it is so each time, and so is an arbiter that nobody hears of
/// for a while, as one without a core; what must not be at all, at once.
fn beside_baseline(
    oriond: &Path,
    way: Way,
    level: u32,
    time: Duration,
    baseline: &mut Baseline,
) -> Result<Held, String> {
    let (mut tries, mut long) = (1, time);
    loop {
        let judged = match attack(start(oriond, level)?, way, long) {
            Ok(held) => verdict(&held, way, level, baseline).map(|()| held),
            Err(text) if text.contains(NO_ARBITER) => Err(text),
            Err(text) => return Err(text),
        };
        match judged {
            Err(text) if tries < TRIES => {
                println!("{way:?}: once more, for {text}");
                *baseline = honest(oriond, time)?;
                (tries, long) = (tries + 1, 2 * long);
            }
            outcome => return outcome,
        }
    }
}

/// That too little is found, too long a wait, and an arbiter that has ended: of four sessions that are promised half a
/// GPU each none has it, and whose worker is stopped waits.
pub fn canary(oriond: &Path) -> Result<(), String> {
    let time = Duration::from_secs(3);
    let baseline = honest(oriond, time)?;
    let crowd = side_by_side(&start(oriond, WORK_CONSERVING)?, 4, time)?;
    let crowd = crowd.into_iter().min_by(|a, b| a.mean.total_cmp(&b.mean)).expect("four of them");
    if crowd.mean >= LEAST * baseline.usable {
        return Err(format!(
            "one of four sessions that were promised half of a GPU each was not found to lack it: {crowd}"
        ));
    }
    let server = start(oriond, WORK_CONSERVING)?;
    let stopped = beside(&server, time, |worker| {
        std::thread::sleep(time / 2);
        ways::signal(worker, libc::SIGSTOP);
        std::thread::sleep(2 * WAIT_MAX);
        ways::signal(worker, libc::SIGCONT);
    })?;
    if stopped.longest_wait <= WAIT_MAX {
        return Err(format!("a session whose worker was stopped was not found to wait: {stopped}"));
    }
    drop(server);
    let without_arbiter = start_in(oriond, WORK_CONSERVING, &[("ORION_SOFT_ARBITER_STOPS_MS", "500")])?;
    match attack(without_arbiter, Way::Tiny, time) {
        Err(text) if text.contains(NO_ARBITER) => {}
        Err(text) => return Err(format!("that an arbiter had ended was not found, but that {text}")),
        Ok(held) => return Err(format!("that an arbiter had ended was not found: {held}")),
    }
    println!("1 passed, 0 failed");
    Ok(())
}

/// What two sessions that do nothing wrong make of the software GPU.
struct Baseline {
    /// The part of it that they have together.
    usable: f64,
    /// Each has its half of that in every second. A machine that is busy with other things does not let them.
    is_steady: bool,
    longest_wait: Duration,
}

fn honest(oriond: &Path, time: Duration) -> Result<Baseline, String> {
    let again = |long| side_by_side(&start(oriond, WORK_CONSERVING)?, 2, long);
    let (mut both, mut long) = (again(time)?, time);
    // Nothing can be judged without it, so there is one try more.
    for _ in 0..TRIES {
        if is_half(&both) {
            break;
        }
        long *= 2;
        println!("side by side once more, for {}; and {}", both[0], both[1]);
        both = again(long)?;
    }
    let usable = both.iter().map(|held| held.mean).sum::<f64>().min(1.0);
    let is_steady = both.iter().all(|held| held.least.is_some_and(|least| least >= LEAST * usable));
    println!("side by side: {}; and {}; {:.0} % together", both[0], both[1], 100.0 * usable);
    if !is_steady {
        println!(
            "the machine is busy: what a session has in each second says nothing, and what it has in all is judged"
        );
    }
    match is_half(&both) {
        true => Ok(Baseline { usable, is_steady, longest_wait: both[0].longest_wait.max(both[1].longest_wait) }),
        false => Err("two sessions that do nothing wrong do not have half each".to_owned()),
    }
}

fn is_half(both: &[Held]) -> bool {
    let all = both.iter().map(|held| held.mean).sum::<f64>();
    both.iter().all(|held| held.mean >= LEAST * all) && all > 0.0
}

/// Whether a witness had what it is promised beside that.
fn verdict(held: &Held, way: Way, level: u32, baseline: &Baseline) -> Result<(), String> {
    let Baseline { usable, is_steady, longest_wait } = *baseline;
    let wait_max = WAIT_MAX.max(2 * longest_wait) + way.kernel();
    // A kernel of the software GPU that goes on has a core as long as it lasts.
    let least = if way.goes_on() && !is_steady { LEAST / 2.0 } else { LEAST };
    // With a cap what such kernels take is had back over five seconds.
    let in_each_second = is_steady && (level == WORK_CONSERVING || !way.goes_on());
    let lacks = in_each_second && held.least.is_none_or(|had| had < LEAST * usable);
    if held.mean < least * usable || lacks {
        Err(format!("a witness that is promised {SHARE} % of {:.0} % had less: {held}", 100.0 * usable))
    } else if held.longest_wait > wait_max {
        Err(format!("a witness waited for longer than {} ms: {held}", wait_max.as_millis()))
    } else {
        Ok(())
    }
}

/// So many witnesses at the same time.
fn side_by_side(server: &Oriond, count: usize, time: Duration) -> Result<Vec<Held>, String> {
    let local = shared_memory(server);
    std::thread::scope(|scope| {
        let one = || holder::run(local, server.token(), time, |_| {});
        let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|witness| witness.join().expect("a witness does not panic")).collect()
    })
}

/// A witness beside sessions that go this way; what it had. Workers that end as none should are an error, and so is an
/// arbiter that does.
fn attack(server: Oriond, way: Way, time: Duration) -> Result<Held, String> {
    let hosts: Vec<&Server> = server.addresses().iter().collect();
    let mut killed = Ok(Vec::new());
    let held = beside(&server, time + MARGIN, |_| killed = way.go(&hosts, server.token(), time))?;
    let killed = killed?;
    if !server.is_alive() {
        return Err(format!("oriond is gone:\n{}", server.end()));
    }
    let log = server.end();
    let was_killed = |(worker, status): &(u32, String)| killed.contains(worker) && status == "signal 9";
    let died: Vec<_> = crashes(&log).into_iter().filter(|died| !was_killed(died)).collect();
    if !died.is_empty() {
        return Err(format!("workers died: {died:?}"));
    }
    let without = log.lines().find(|l| l.contains(NO_ARBITER)).map(str::to_owned);
    match complaints(&log).into_iter().chain(without).next() {
        Some(line) => Err(line),
        None => Ok(held),
    }
}

/// So much longer a witness goes on than what it is a witness of.
const MARGIN: Duration = Duration::from_millis(200);

/// A witness for so long, in a thread of its own, beside what is done meanwhile, which is told of its worker.
fn beside(server: &Oriond, time: Duration, meanwhile: impl FnOnce(u32)) -> Result<Held, String> {
    let local = shared_memory(server);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let witness = scope.spawn(move || holder::run(local, server.token(), time, |worker| _ = tell.send(worker)));
        if let Ok(worker) = told.recv() {
            meanwhile(worker);
        }
        witness.join().expect("a witness does not panic")
    })
}

fn shared_memory(server: &Oriond) -> &Server {
    server.addresses().iter().find(|a| a.transport() == "shm").expect("it listens on all")
}

fn start(oriond: &Path, level: u32) -> Result<Oriond, String> {
    start_in(oriond, level, &[])
}

fn start_in(oriond: &Path, level: u32, environment: &[(&str, &str)]) -> Result<Oriond, String> {
    let environment = [&[("ORION_SOFT_MEMORY_MIB", "64")], environment].concat();
    let level = level.to_string();
    let options = ["--heap", "256 MiB", "--share", SHARE, "--throttle-level", &level];
    Oriond::start_with(oriond, "soft", &options, &environment)
}
