//! Engine threads: one io_uring each. The first one also answers the door (see [`door`]).
//!
//! An engine never waits for a driver, a disk or a peer. It spins for a while after the last thing that happened,
//! because waking a sleeping core costs more than a round trip, and then sleeps in its io_uring, with the futex words
//! of its sessions' rings armed there.
//!
//! [`door`]: super::door

// UNSAFETY: the kernel writes the mailbox's word after the call that asks for it has returned.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_ring::{load, pause_after, spin};
use tracing::info;

use super::carrier::LocalSocket;
use super::carrier::contract::Lane;
use super::core::{Core, Owner};
use super::door::door::Door;
use super::io_ring::{Did, Done, Io};
use super::leases::book::Book;
use super::leases::socket;
use super::mail::Mailbox;
#[cfg(debug_assertions)]
use super::moves::Shuffle;
use super::moves::{Carried, Mover, Step};
use super::post::{Mail, Post};
use super::settings::Settings;
use super::spread::{Clock, Loads, Look};
use super::watch;
use super::watch::directory::Directory;
use super::watch::utilization::Utilization;
use super::workers::nursery;

/// The engines, running.
pub struct Engines {
    posts: Vec<Arc<Post>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// For the agent, and for tools.
    sockets: Vec<Arc<LocalSocket>>,
    pub addresses: Vec<String>,
}

/// Opens the listening sockets and starts the threads.
pub fn start(settings: Settings) -> Result<Engines, String> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let count = if settings.engines == 0 { (cores / 2).clamp(1, 8) } else { settings.engines };
    let posts = (0..count)
        .map(|_| Mailbox::new().map(Arc::new))
        .collect::<io::Result<Vec<Arc<Post>>>>()
        .map_err(|e| format!("creating the engines' mailboxes failed: {e}"))?;
    let nursery = nursery::start(settings.worker_arguments.clone(), settings.cells.clone(), {
        let door = posts[0].clone();
        move |kind, newborn| door.post(Mail::Born(kind, newborn))
    })
    .map_err(|e| format!("starting the nursery thread failed: {e}"))?;
    let spin = spin_for(settings.spin_us, cores);
    let book = settings.pool.is_some().then(|| {
        let shown = settings.security.as_ref().map(|security| security.server.fingerprint);
        Book::new(settings.is_software, shown)
    });
    let book = book.transpose()?;
    if let Some(list) = settings.security.as_ref().and_then(|security| security.revoked.clone()) {
        let door = posts[0].clone();
        let told = move |outcome: Result<usize, String>| match outcome {
            Ok(certificates) => {
                info!(certificates, "the list of revoked certificates was read anew");
                door.post(Mail::Revoked);
            }
            Err(why) => tracing::error!(why, "the list of revoked certificates stays as it was"),
        };
        list.watch(told).map_err(|e| format!("starting a thread for --revoked failed: {e}"))?;
    }
    let loads = Arc::new(Loads::new(count));
    let (pool, stats, metrics) = (settings.pool.clone(), settings.stats.clone(), settings.metrics);
    let utilization = match settings.nvml.clone() {
        None => Utilization::default(),
        Some(library) => {
            let door = posts[0].clone();
            Utilization::start(library, move || door.post(Mail::Measured))
                .map_err(|e| format!("starting the thread that asks NVML failed: {e}"))?
        }
    };
    let directory = Arc::new(Directory::new(utilization, settings.is_software));
    let door = Door::new(settings, posts.clone(), loads.clone(), nursery, book.clone(), directory.clone())?;
    let mut sockets = Vec::new();
    if let Some((path, book)) = pool.zip(book) {
        sockets.push(socket::open(&path, book, posts[0].clone())?);
    }
    if let Some(path) = stats {
        sockets.push(watch::socket::open(&path, directory.clone())?);
    }
    if let Some(address) = metrics {
        let address = watch::metrics::open(address, directory)?;
        info!(%address, "serving metrics; who reaches the address reads who uses this server");
    }
    let addresses = door.addresses();
    let mut door = Some(door);
    let mut threads = Vec::new();
    for index in 0..count {
        let (posts, door, loads) = (posts.clone(), door.take(), loads.clone());
        let (started, outcome) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("engine-{index}"))
            .spawn(move || match Io::new() {
                Ok(io) => {
                    let _ = started.send(Ok(()));
                    drop(started);
                    Engine::new(io, posts, index, loads, door, spin, cores <= 3).run();
                }
                Err(e) => {
                    let _ = started.send(Err(e));
                }
            })
            .map_err(|e| format!("starting an engine thread failed: {e}"))?;
        outcome.recv().expect("the thread sends before it ends").map_err(|e| {
            format!("io_uring is not available: {e}; containers need a seccomp profile that allows io_uring_setup")
        })?;
        threads.push(thread);
    }
    Ok(Engines { posts, threads, sockets, addresses })
}

fn spin_for(configured_us: Option<u64>, cores: usize) -> Duration {
    // As long as a wait for the device usually takes: see the client's `Tuning`. With few cores the worker and the
    // client need ours more than we do.
    Duration::from_micros(configured_us.unwrap_or(if cores > 3 { 20_000 } else { 50 }))
}

impl Engines {
    /// Ends all sessions and workers and waits until they have ended.
    pub fn stop(self) {
        self.sockets.iter().for_each(|socket| socket.remove());
        for post in self.posts.iter().rev() {
            post.post(Mail::Stop);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// How often the clock is read while nothing happens: once in about two microseconds, later in a hundred.
const TURNS_PER_TIME: u32 = 32;

/// Bulk data keeps coming or not at all: see the client's.
const LANE_SPIN: Duration = Duration::from_micros(200);

struct Engine {
    core: Core,
    post: Arc<Post>,
    mail_slot: u32,
    mail_word: Box<u64>,
    door: Option<Door>,
    /// Of all engines, the door's first, and which this one is.
    posts: Vec<Arc<Post>>,
    index: usize,
    carried: HashMap<u32, Carried>,
    /// The session that is to go to another engine.
    mover: Option<Mover>,
    lanes: HashMap<u32, Box<dyn Lane>>,
    /// Sessions that are looked at in every turn, with the time something last happened.
    active: Vec<(u32, Instant)>,
    /// The time as of the last turn that was busy, or of one a few turns ago: reading the clock was a third of what an
    /// engine did.
    now: Instant,
    loads: Arc<Loads>,
    clock: Clock,
    #[cfg(debug_assertions)]
    shuffle: Option<Shuffle>,
    spin: Duration,
    yields: bool,
    stopping: bool,
}

impl Engine {
    fn new(
        io: Io,
        posts: Vec<Arc<Post>>,
        index: usize,
        loads: Arc<Loads>,
        door: Option<Door>,
        spin: Duration,
        yields: bool,
    ) -> Engine {
        let mut core = Core::new(io);
        let mail_slot = core.allocate(Owner::Mail);
        let now = Instant::now();
        Engine {
            core,
            post: posts[index].clone(),
            mail_slot,
            mail_word: Box::new(0),
            door,
            clock: Clock::new(loads.clone(), index, now),
            #[cfg(debug_assertions)]
            shuffle: Shuffle::configured(index, posts.len()),
            posts,
            index,
            carried: HashMap::new(),
            mover: None,
            lanes: HashMap::new(),
            active: Vec::new(),
            now,
            loads,
            spin,
            yields,
            stopping: false,
        }
    }

    fn run(mut self) {
        self.read_mail_word();
        if let Some(door) = &mut self.door {
            door.begin(&mut self.core);
        }
        let (mut done, mut mail) = (Vec::new(), Vec::new());
        let mut last = self.now;
        let (mut turn, mut idle_turns) = (0u32, 0u32);
        loop {
            turn = turn.wrapping_add(1);
            self.core.io.turn();
            self.core.io.drain(&mut done);
            self.post.take(&mut mail);
            let mut busy = !done.is_empty() || !mail.is_empty();
            let is_read = busy || turn.is_multiple_of(TURNS_PER_TIME);
            if is_read {
                self.now = Instant::now();
            }
            self.clock.begin(is_read.then_some(self.now));
            for d in done.drain(..) {
                self.completed(d);
            }
            for m in mail.drain(..) {
                self.received(m);
            }
            self.see_off();
            busy |= self.pump();
            if let Some(door) = &mut self.door {
                door.look(&mut self.core, self.now);
            }
            if self.stopping && self.door.as_ref().is_none_or(|f| f.is_finished()) {
                // The process ends next. Until then the kernel may still write into buffers of what is left here.
                std::mem::forget(self);
                return;
            }
            let look = self.clock.turn(self.now, busy);
            self.relieve(look);
            if busy {
                last = self.now;
                idle_turns = 0;
            } else if self.now.saturating_duration_since(last) < self.spin_now() {
                if self.yields {
                    std::thread::yield_now();
                } else {
                    idle_turns = idle_turns.saturating_add(1);
                    pause_after(idle_turns);
                }
            } else if self.active.is_empty() {
                self.sleep();
                self.now = Instant::now();
                last = self.now;
                let look = self.clock.slept(self.now);
                self.relieve(look);
            }
        }
    }

    /// How long to look for news where nothing has happened.
    fn patience(&self) -> Duration {
        if self.yields || load::core_is_free(self.now) { self.spin } else { self.spin.min(spin::ALWAYS) }
    }

    /// Without a session to look at there is only what completes, most of it chunks.
    fn spin_now(&self) -> Duration {
        if self.active.is_empty() { self.patience().min(LANE_SPIN) } else { self.patience() }
    }

    fn read_mail_word(&mut self) {
        // SAFETY: the word is boxed and lives as long as the engine, which outlives its requests.
        unsafe { self.core.io.read_eventfd(self.mail_slot, self.post.eventfd(), &raw mut *self.mail_word) };
    }

    fn sleep(&mut self) {
        if self.post.may_sleep() {
            let mut timeout = self.door.as_ref().and_then(Door::next_deadline);
            if !self.core.io.has_futex() && !self.carried.is_empty() {
                timeout = Some(Duration::from_millis(1));
            }
            #[cfg(debug_assertions)]
            if let Some(shuffle) = self.shuffle.as_ref().filter(|_| !self.carried.is_empty()) {
                timeout = Some(shuffle.interval);
            }
            self.core.io.wait(timeout);
            if !self.core.io.has_futex() {
                let now = Instant::now();
                self.active = self.carried.keys().map(|slot| (*slot, now)).collect();
            }
        }
        self.post.awake();
    }

    fn completed(&mut self, done: Done) {
        let slot = done.slot;
        match self.core.owner(slot) {
            Some(Owner::Mail) => self.read_mail_word(),
            Some(Owner::Door) => {
                self.clock.piece();
                if let Some(door) = &mut self.door {
                    door.done(&mut self.core, done);
                }
            }
            Some(Owner::Carried) => {
                let session = self.carried.get_mut(&slot).expect("an object stays while requests are under way");
                let is_news = done.did != Did::Time;
                session.main.done(&mut self.core.io, slot, done);
                match is_news {
                    true => self.activate(slot),
                    false => self.activate_once(slot),
                }
            }
            Some(Owner::Lane) => {
                self.clock.piece();
                let lane = self.lanes.get_mut(&slot).expect("an object stays while requests are under way");
                lane.done(&mut self.core.io, slot, done);
                self.bury_lane(slot);
            }
            None => unreachable!("a completion for a slot without requests"),
        }
    }

    fn received(&mut self, mail: Mail) {
        match mail {
            Mail::Kick(slot) => {
                if self.carried.contains_key(&slot) {
                    self.activate(slot);
                } else if let Some(lane) = self.lanes.get_mut(&slot) {
                    lane.kicked(&mut self.core.io, slot);
                    self.bury_lane(slot);
                }
            }
            Mail::Carry(mut main, account) => {
                let slot = self.core.allocate(Owner::Carried);
                main.begin(&mut self.core.io, slot, self.post.clone());
                self.carried.insert(slot, Carried { main, account });
                self.activate(slot);
            }
            Mail::Join(mut lane) => {
                let slot = self.core.allocate(Owner::Lane);
                lane.begin(&mut self.core.io, slot, self.post.clone());
                self.lanes.insert(slot, lane);
                self.bury_lane(slot);
            }
            Mail::Stop => {
                self.stopping = true;
                if let Some(door) = &mut self.door {
                    door.stop(&mut self.core);
                }
            }
            other => {
                if let Some(door) = &mut self.door {
                    door.received(&mut self.core, other);
                }
            }
        }
    }

    fn activate(&mut self, slot: u32) {
        let now = self.now;
        match self.active.iter_mut().find(|(s, _)| *s == slot) {
            Some((_, last)) => *last = now,
            None => self.active.push((slot, now)),
        }
    }

    /// That time has passed is no sign of more to come: the session is looked at, and no longer than that.
    fn activate_once(&mut self, slot: u32) {
        if self.active.iter().all(|(active, _)| *active != slot) {
            let long_ago = self.now.checked_sub(self.spin.max(spin::ALWAYS)).unwrap_or(self.now);
            self.active.push((slot, long_ago));
        }
    }

    fn pump(&mut self) -> bool {
        let mut busy = false;
        let mut index = 0;
        let patience = self.patience();
        while index < self.active.len() {
            let (slot, last) = self.active[index];
            let Carried { main: session, account } = self.carried.get_mut(&slot).expect("active sessions exist");
            account.turn(&self.clock);
            if session.pump(&mut self.core.io, slot) {
                account.piece(&mut self.clock);
                self.active[index].1 = self.now;
                busy = true;
                index += 1;
            } else if session.is_finished() {
                self.bury(slot);
                self.active.swap_remove(index);
                busy = true;
            } else if self.now.saturating_duration_since(last) >= patience && session.park(&mut self.core.io, slot) {
                self.active.swap_remove(index);
            } else {
                index += 1;
            }
        }
        busy
    }

    fn bury(&mut self, slot: u32) {
        let session = self.carried.remove(&slot).expect("it was just looked at").main;
        self.core.release(slot);
        self.loads.session_ends(self.index);
        self.mover.take_if(|mover| mover.slot == slot);
        let over = Mail::SessionOver(session.session());
        drop(session);
        self.posts[0].post(over);
    }

    fn bury_lane(&mut self, slot: u32) {
        if self.lanes.get(&slot).is_some_and(|l| l.is_finished()) {
            self.lanes.remove(&slot);
            self.core.release(slot);
        }
    }
}

// Sessions that move.
impl Engine {
    /// Now and then: whether another engine is to have one of the sessions.
    fn relieve(&mut self, look: Option<Look>) {
        #[cfg(debug_assertions)]
        self.shuffle();
        let Some(look) = look else { return };
        let now = self.now;
        let all = self.carried.iter_mut();
        let parts = all.map(|(slot, session)| (*slot, session.account.close(&look), session.account.may_move(now)));
        let parts: Vec<_> = parts.filter(|(.., may)| *may).map(|(slot, part, _)| (slot, part)).collect();
        if !look.is_crowded || self.stopping || self.mover.is_some() {
            return;
        }
        let found = self.loads.relieve(self.index, look.busy, parts.into_iter(), now);
        self.mover = found.map(|(slot, to)| Mover::new(slot, to, now));
    }

    fn see_off(&mut self) {
        let Some(mover) = &mut self.mover else { return };
        let session = self.carried.get_mut(&mover.slot).expect("a mover is forgotten when it ends");
        match mover.turn(session, &mut self.core.io, self.now) {
            Step::Waits => {}
            Step::Stays => self.mover = None,
            Step::Goes => self.hand_over(),
        }
    }

    fn hand_over(&mut self) {
        let Mover { slot, to, .. } = self.mover.take().expect("the caller looked");
        let Carried { main, mut account } = self.carried.remove(&slot).expect("the caller looked");
        self.active.retain(|(active, _)| *active != slot);
        self.core.release(slot);
        account.moves(self.now);
        info!(session = main.session(), from = self.index, to, "session moves");
        self.loads.session_begins(to);
        self.loads.session_ends(self.index);
        self.posts[to].post(Mail::Carry(main, account));
    }

    #[cfg(debug_assertions)]
    fn shuffle(&mut self) {
        let Some(shuffle) = self.shuffle.as_mut().filter(|_| self.mover.is_none() && !self.stopping) else { return };
        let (now, count) = (self.now, self.posts.len());
        let picked = shuffle.pick(&self.carried, count, now);
        self.mover = picked.map(|(slot, by)| Mover::new(slot, (self.index + by) % count, now));
    }
}
