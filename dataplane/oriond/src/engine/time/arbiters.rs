//! A thread a GPU that has the arbiter decide whose turn it is, and tells the workers.

// UNSAFETY: waits for descriptors, and sets how exactly the kernel keeps this thread's timeouts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use orion_arbiter::{Arbiter, Ledger, Settings, Verdict};
use orion_ring::futex::{self, Among};
use orion_ring::pause_after;
use tracing::{debug, info};

use crate::attach::Registered;
use crate::engine::mail::Mailbox;
use crate::engine::time::policy::Shares;
use crate::seat::{Bell, Page, SEATS_MAX, Seat, now_ns};

/// How often workers see that the arbiter lives; they wait for it for 250 ms.
const BEAT_NS: u64 = 50_000_000;
/// A wait as short as this is not slept through: getting up takes as long.
const SPIN_NS: u64 = 60_000;
/// While a lease goes from one session to another its arbiter looks so long before it waits for their bells.
const CHANGE_SPIN_NS: u64 = 1_000_000;
/// Over how many beats a session's part of the GPU's time is told: a second, as `nvidia-smi` tells it.
const TOLD_BEATS: usize = 20;

/// A session's page and bell, which its worker has too.
#[derive(Clone)]
pub struct Seats {
    pub page: Arc<Page>,
    pub bell: Arc<Bell>,
    pub shares: Shares,
    /// By seat. Oriond's own.
    pub told: Arc<[Told; SEATS_MAX]>,
}

/// What an arbiter has counted for a session on one GPU, as tools are told. The page says it to the worker, and is the
/// worker's to write: who has taken one over would have had no time of the GPU.
#[derive(Default)]
pub struct Told {
    pub used_ns: AtomicU64,
    pub overrun_ns: AtomicU64,
    pub leases: AtomicU64,
    /// Of the last second, in which the GPU worked for the session.
    pub busy_percent: AtomicU32,
}

impl Seats {
    pub fn create(shares: Shares) -> io::Result<Seats> {
        let told = Arc::new(std::array::from_fn(|_| Told::default()));
        Ok(Seats { page: Arc::new(Page::create()?), bell: Arc::new(Bell::create()?), shares, told })
    }
}

impl Told {
    fn ledger(&self, ledger: &Ledger) {
        self.used_ns.store(ledger.used_ns, Relaxed);
        self.overrun_ns.store(ledger.overrun_ns, Relaxed);
        self.leases.store(ledger.leases, Relaxed);
    }
}

/// What a session had used at the last beats: when, and how much, in nanoseconds.
#[derive(Default)]
struct Lately(VecDeque<(u64, u64)>);

impl Lately {
    /// The percentage of the last second that it has used, at a new beat.
    fn beat(&mut self, now_ns: u64, used_ns: u64) -> Option<u32> {
        if self.0.back().is_some_and(|(last_ns, _)| now_ns < last_ns + BEAT_NS) {
            return None;
        }
        self.0.push_back((now_ns, used_ns));
        if self.0.len() > TOLD_BEATS + 1 {
            self.0.pop_front();
        }
        let (since_ns, before_ns) = *self.0.front()?;
        let passed_ns = now_ns - since_ns;
        (passed_ns > 0).then(|| (100 * (used_ns - before_ns) / passed_ns).min(100) as u32)
    }
}

/// The arbiters of this node's GPUs, each from when it is first needed.
pub struct Arbiters {
    settings: Settings,
    posts: HashMap<u64, Arc<Mailbox<Mail>>>,
}

enum Mail {
    Join(Member),
    Leave(u64),
}

struct Member {
    session: u64,
    /// Whose it is, if that is known: who ends a session and begins another owes what the first one had too much.
    owner: Option<u64>,
    index: usize,
    share: u32,
    seats: Seats,
    /// The latest that the arbiter's thread has come while it was there.
    late_ns_max: u64,
    lately: Lately,
}

impl Member {
    fn seat(&self) -> &Seat {
        self.seats.page.seat(self.index)
    }
}

impl Arbiters {
    pub fn new(settings: Settings) -> Arbiters {
        Arbiters { settings, posts: HashMap::new() }
    }

    /// A session begins on the GPUs of these vGPUs.
    pub fn join(&mut self, session: u64, owner: Option<u64>, vgpus: &[Registered], seats: &Seats) -> io::Result<()> {
        let gpus: Vec<u64> = vgpus.iter().map(|vgpu| vgpu.gpu).collect();
        for (index, (gpu, share)) in seats.shares.by_gpu(&gpus).into_iter().take(SEATS_MAX).enumerate() {
            let member = Member {
                session,
                owner,
                index,
                share,
                seats: seats.clone(),
                late_ns_max: 0,
                lately: Lately::default(),
            };
            self.post_of(gpu)?.post(Mail::Join(member));
        }
        Ok(())
    }

    /// Its worker has ended.
    pub fn leave(&self, session: u64) {
        self.posts.values().for_each(|post| post.post(Mail::Leave(session)));
    }

    fn post_of(&mut self, gpu: u64) -> io::Result<&Arc<Mailbox<Mail>>> {
        if !self.posts.contains_key(&gpu) {
            let post = Arc::new(Mailbox::new()?);
            let (theirs, settings) = (post.clone(), self.settings);
            std::thread::Builder::new()
                .name(format!("arbiter-{gpu}"))
                .spawn(move || Thread::new(gpu, theirs, settings).run())?;
            info!(gpu, level = settings.level, quantum_us = settings.quantum_ns / 1000, "dividing the GPU's time");
            self.posts.insert(gpu, post);
        }
        Ok(&self.posts[&gpu])
    }
}

struct Thread {
    gpu: u64,
    mail: Arc<Mailbox<Mail>>,
    arbiter: Arbiter,
    members: BTreeMap<u64, Member>,
    spins: bool,
    /// That sessions have it together.
    has_told: bool,
}

impl Thread {
    fn new(gpu: u64, mail: Arc<Mailbox<Mail>>, settings: Settings) -> Thread {
        let spins = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 3);
        let arbiter = Arbiter::new(settings, now_ns());
        Thread { gpu, mail, arbiter, members: BTreeMap::new(), spins, has_told: false }
    }

    fn run(mut self) {
        // SAFETY: a plain call. A timeout that comes 50 us late is a hundredth of a lease.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        #[cfg(debug_assertions)]
        let stops_ns = stops_after_ns().map(|ns| now_ns() + ns);
        let mut mail = Vec::new();
        loop {
            self.mail.take(&mut mail);
            mail.drain(..).for_each(|mail| self.received(mail));
            #[cfg(debug_assertions)]
            if stops_ns.is_some_and(|at| now_ns() >= at) {
                return;
            }
            let now = now_ns();
            self.hear(now);
            let look = self.arbiter.decide(now);
            if let Some(Verdict { sessions, gained, least, lacks, is_better }) = self.arbiter.verdict() {
                debug!(gpu = self.gpu, sessions, gained, least, lacks, is_better, "sessions had the GPU together");
            }
            if self.arbiter.has_all_together() && !std::mem::replace(&mut self.has_told, true) {
                info!(gpu = self.gpu, "sessions have the GPU together now and then, for each gains by that");
            }
            self.show(now);
            self.wait(look);
            self.note_lateness(look);
        }
    }

    fn received(&mut self, mail: Mail) {
        let now = now_ns();
        match mail {
            Mail::Join(member) => {
                self.arbiter.join(now, member.session, member.owner, member.share);
                self.members.insert(member.session, member);
            }
            Mail::Leave(session) => {
                let Some(member) = self.members.remove(&session) else { return };
                let ledger = self.arbiter.leave(now, session).unwrap_or_default();
                let words = &member.seat().of_worker;
                let waited_ms = words.waited_ns.load(Relaxed) / 1_000_000;
                info!(
                    session,
                    gpu = self.gpu,
                    share = member.share,
                    used_ms = ledger.used_ns / 1_000_000,
                    overrun_ms = ledger.overrun_ns / 1_000_000,
                    leases = ledger.leases,
                    taken_off = words.taken_off.load(Relaxed),
                    waited_ms,
                    waited_for_others_ms_max = ledger.waited_ns_max / 1_000_000,
                    arbiter_late_ms_max = member.late_ns_max / 1_000_000,
                    "the session's part of the GPU's time"
                );
            }
        }
    }

    fn hear(&mut self, now: u64) {
        for (session, member) in &self.members {
            self.arbiter.hear(now, *session, member.seat().said());
            self.arbiter.progress(*session, member.seat().progress(now));
        }
    }

    fn show(&mut self, now: u64) {
        for (session, member) in &mut self.members {
            let seat = member.seats.page.seat(member.index);
            seat.of_arbiter.beat_ns.store(now, Relaxed);
            if let Some(ledger) = self.arbiter.ledger(*session) {
                seat.show_ledger(&ledger);
                let told = &member.seats.told[member.index];
                told.ledger(&ledger);
                let percent = member.lately.beat(now, ledger.used_ns);
                percent.inspect(|percent| told.busy_percent.store(*percent, Relaxed));
            }
            if seat.show(self.arbiter.grant(*session), self.arbiter.is_held_by_its_limit(*session)) {
                futex::wake_all(&seat.of_arbiter.grant, Among::Processes);
            }
        }
    }

    /// Until somebody says something, or the time has come.
    fn wait(&self, look: Option<u64>) {
        let start = now_ns();
        let until = look.unwrap_or(u64::MAX).min(start + BEAT_NS);
        let is_soon = until.saturating_sub(start) <= SPIN_NS;
        if self.spins && (is_soon || self.arbiter.is_changing()) {
            let mut looks = 0;
            while !self.has_news() {
                let now = now_ns();
                if now >= until {
                    return;
                }
                if now - start > CHANGE_SPIN_NS {
                    break;
                }
                looks += 1;
                pause_after(looks);
            }
        }
        if self.mail.may_sleep() && !self.has_news() {
            let now = now_ns();
            // Without a session there is nobody to show that this thread lives.
            self.sleep((!self.members.is_empty()).then(|| until.saturating_sub(now)));
        }
        self.mail.awake();
    }

    /// By how much the time that was to be waited for is past: more than the machine's usual is its load.
    fn note_lateness(&mut self, look: Option<u64>) {
        let late_ns = look.map_or(0, |look| now_ns().saturating_sub(look));
        self.members.values_mut().for_each(|member| member.late_ns_max = member.late_ns_max.max(late_ns));
    }

    fn has_news(&self) -> bool {
        self.members.iter().any(|(session, member)| self.arbiter.heard(*session) != Some(member.seat().said()))
    }

    fn sleep(&self, ns: Option<u64>) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let bells = self.members.values().map(|member| member.seats.bell.fd().as_raw_fd());
        let mut fds: Vec<libc::pollfd> = std::iter::once(self.mail.eventfd()).chain(bells).map(entry).collect();
        let time = ns.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as many valid entries as it is told, and a time or none.
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, time, std::ptr::null()) };
        if fds[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes into a local, from an eventfd that says it has them.
            unsafe { libc::read(self.mail.eventfd(), (&raw mut count).cast(), 8) };
        }
        let rung = self.members.values().zip(&fds[1..]).filter(|(_, fd)| fd.revents != 0);
        rung.for_each(|(member, _)| member.seats.bell.silence());
    }
}

/// For the test of what workers do when nobody answers.
#[cfg(debug_assertions)]
fn stops_after_ns() -> Option<u64> {
    let text = std::env::var("ORION_SOFT_ARBITER_STOPS_MS").ok()?;
    text.parse::<u64>().ok().map(|ms| ms * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_is_told_beat_by_beat() {
        let mut lately = Lately::default();
        assert_eq!(lately.beat(1_000, 0), None, "nothing has passed");
        assert_eq!(lately.beat(1_000 + BEAT_NS / 2, 5), None, "it is no beat yet");
        let mut told = Vec::new();
        // Busy for a second, then idle for two.
        for beat in 1..=3 * TOLD_BEATS as u64 {
            let used_ns = beat.min(TOLD_BEATS as u64) * BEAT_NS;
            told.push(lately.beat(1_000 + beat * BEAT_NS, used_ns).expect("a beat"));
        }
        assert!(told[..TOLD_BEATS].iter().all(|percent| *percent == 100), "{told:?}");
        assert_eq!((told[TOLD_BEATS + 9], told[2 * TOLD_BEATS - 1], told[3 * TOLD_BEATS - 1]), (50, 0, 0), "{told:?}");
    }
}
