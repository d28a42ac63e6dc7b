//! Takes the steps of each handshake, gives workers to whoever is let in, and ends what should be over.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use orion_ring::Memory;
use orion_ring::memory::Layout;
use orion_telemetry::Page;
use orion_transport::carrier::Death;
use orion_transport::fds;
use orion_transport::lease;
use orion_transport::proof::{LaneKey, Said, fresh_nonce, is_same};
use orion_transport::socket::peer_credentials;
use orion_wire::Fault;
use orion_wire::address::{Carrier, Leads};
use orion_wire::agent::Gpu;
use orion_wire::environment::Environment;
use orion_wire::hello::{Challenge, Hello, Join, Proof, Request, Start, Welcome, frame, kind};
use orion_wire::lease::{LeaseId, gpu_name};
use orion_wire::refusal::{Reason, Refusal};
use orion_wire::text::acts;
use orion_wire::view::Offer;
use tracing::{error, info, warn};

use super::greeting::{Greeting, Progress, Purpose};
use super::listeners::Listeners;
use super::policy::{Policy, Shown};
use super::room::{Stranger, who_goes};
use super::sessions::{Session, Sessions};
use super::stage::{HANDSHAKE_TIMEOUT, Heard, Next, Stage, WORKER_TIMEOUT};
use super::view::{Client, view, view_of_lease};
use super::words;
use crate::attach::{Assign, Control, Place, Registered, send_control};
use crate::engine::core::{Core, Owner, shutdown};
use crate::engine::io_ring::{Did, Done};
use crate::engine::leases::book::Book;
use crate::engine::peer::{Peer, Source, strangeness};
use crate::engine::post::{Mail, Post};
use crate::engine::settings::Settings;
use crate::engine::spread::{Account, Loads};
use crate::engine::time::arbiters::{Arbiters, Seats};
use crate::engine::time::policy;
use crate::engine::watch::directory::{Directory, OnGpu, Watched};
use crate::engine::watch::utilization::PATIENCE;
use crate::engine::workers::nursery::{Order, socketpair};
use crate::engine::workers::{Kind, News, Serving, Sizes, Workers};
use crate::meter::Meter;
use crate::seat::SEATS_MAX;

/// How exactly timeouts are kept, at most; an engine that spins must not look at them in every turn.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often is looked whether clients that wait for a worker still do.
const WAITING_LOOK_INTERVAL: Duration = Duration::from_millis(50);
const TURNED_OUT_INTERVAL: Duration = Duration::from_secs(10);
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Door {
    policy: Policy,
    /// Where this server belongs to a pool: then leases decide, and the policy only on versions and room.
    leases: Option<Arc<Book>>,
    posts: Vec<Arc<Post>>,
    loads: Arc<Loads>,
    nursery: Sender<Order>,
    listeners: Listeners,
    greetings: HashMap<u32, Box<Greeting>>,
    greetings_begun: u64,
    /// Let in, without a worker yet.
    waiting: VecDeque<u32>,
    /// The node's GPUs by their names, and what a session would have, as the first worker has found them; and who has
    /// asked before that was known.
    gpus: Vec<String>,
    offer: Option<Offer>,
    curious: Vec<u32>,
    one_tenant: bool,
    /// Every session has a limit on memory, and not only who has a lease.
    has_memory_limit: bool,
    /// Shares of GPUs' time, and who keeps sessions to them.
    time: policy::Policy,
    arbiters: Arbiters,
    workers: Workers,
    sessions: Sessions,
    /// The same, for whoever asks about them.
    directory: Arc<Directory>,
    /// Sockets of local clients, whose workers have their own copies, by the slot in which their end is awaited.
    guests: HashMap<u32, Guest>,
    /// The driver's settings in our own environment, which every worker inherits.
    inherited: Environment,
    /// Strangers that went so that others could come, and when that was last logged.
    turned_out: u64,
    turned_out_said: Option<Instant>,
    stopping: Option<Instant>,
    look_after: Instant,
    waiting_look_after: Instant,
    /// Until when who has asked waits for what is measured.
    measured_by: Option<Instant>,
}

struct Guest {
    socket: OwnedFd,
    session: u64,
}

impl Door {
    pub fn new(
        settings: Settings,
        posts: Vec<Arc<Post>>,
        loads: Arc<Loads>,
        nursery: Sender<Order>,
        leases: Option<Arc<Book>>,
        directory: Arc<Directory>,
    ) -> Result<Door, String> {
        let listeners = Listeners::open(&settings)?;
        let Settings { token, sessions_max, warm, prestart, cells, time, has_memory_limit, .. } = settings;
        let Settings { allowance, is_software, .. } = settings;
        Ok(Door {
            policy: Policy { token, sessions_max },
            leases,
            posts,
            loads,
            listeners,
            greetings: HashMap::new(),
            greetings_begun: 0,
            waiting: VecDeque::new(),
            gpus: Vec::new(),
            offer: None,
            curious: Vec::new(),
            one_tenant: cells.seal.one_tenant,
            has_memory_limit,
            time,
            arbiters: Arbiters::new(time.arbiter),
            workers: Workers::new(Sizes { warm, prestart, sessions_max }, nursery.clone(), allowance, is_software),
            nursery,
            sessions: Sessions::default(),
            directory,
            guests: HashMap::new(),
            inherited: Environment::of(|name| std::env::var(name).ok()),
            turned_out: 0,
            turned_out_said: None,
            stopping: None,
            look_after: Instant::now(),
            waiting_look_after: Instant::now(),
            measured_by: None,
        })
    }

    pub fn addresses(&self) -> Vec<String> {
        self.listeners.addresses()
    }

    pub fn begin(&mut self, core: &mut Core) {
        self.listeners.begin(core);
        self.fill_pool();
    }

    pub fn is_finished(&self) -> bool {
        self.stopping.is_some() && self.workers.is_empty()
    }

    /// When [`Self::look`] has to be called although nothing happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let greetings = self.greetings.values().map(|g| g.deadline);
        let waiting = (!self.waiting.is_empty()).then_some(self.waiting_look_after);
        let stopping = self.stopping.map(|t| t + STOP_TIMEOUT);
        let first = greetings
            .chain(self.sessions.next_deadline())
            .chain(waiting)
            .chain(self.measured_by)
            .chain(self.workers.again_after())
            .chain(stopping)
            .chain(self.listeners.again_after())
            .min()?;
        // Past deadlines that wait for something else are looked at again soon, but not in a loop.
        Some(first.saturating_duration_since(Instant::now()).max(Duration::from_millis(20)))
    }

    /// Timeouts.
    pub fn look(&mut self, core: &mut Core, now: Instant) {
        if now < self.look_after {
            return;
        }
        self.look_after = now + LOOK_INTERVAL;
        self.listeners.try_again(core, now);
        if self.workers.is_time(now) {
            self.fill_pool();
        }
        self.end_late_greetings(core, now);
        if now >= self.waiting_look_after && !self.waiting.is_empty() {
            self.waiting_look_after = now + WAITING_LOOK_INTERVAL;
            self.forget_who_left(core);
        }
        if self.measured_by.is_some_and(|by| now >= by) {
            self.tell_the_curious(core);
        }
        for late in self.sessions.late(now) {
            self.workers.kill(late.worker, late.session, late.why);
        }
        if self.stopping.is_some_and(|t| now >= t + STOP_TIMEOUT) {
            self.stopping = Some(now);
            self.workers.stop(libc::SIGKILL);
        }
    }

    fn end_late_greetings(&mut self, core: &mut Core, now: Instant) {
        let late: Vec<u32> =
            self.greetings.iter().filter(|(_, g)| !g.ending && now >= g.deadline).map(|(s, _)| *s).collect();
        for slot in late {
            let g = self.greeting(slot);
            warn!(peer = %g.peer, stage = ?g.stage, "handshake timed out");
            if g.stage.hears_the_worker() && !g.is_late {
                g.hear_no_more();
                g.deadline = now + HANDSHAKE_TIMEOUT;
            } else if matches!(g.stage, Stage::Waiting | Stage::Curious) {
                self.waiting.retain(|s| *s != slot);
                self.curious.retain(|s| *s != slot);
                self.refuse(core, slot, Reason::NoWorker, "no worker became ready in time; oriond's log says why");
            } else {
                self.drop_greeting(core, slot);
            }
        }
    }

    /// Stops accepting and ends all workers, and with them the sessions.
    pub fn stop(&mut self, core: &mut Core) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Instant::now());
        self.listeners.close();
        let slots: Vec<u32> = self.greetings.keys().copied().collect();
        for slot in slots {
            self.drop_greeting(core, slot);
        }
        self.workers.stop(libc::SIGTERM);
    }

    pub fn received(&mut self, core: &mut Core, mail: Mail) {
        match mail {
            Mail::Born(kind, made) => {
                let news = self.workers.made(core, kind, made);
                self.heard_of_workers(core, news);
                // Whoever it is for may be gone by now.
                self.fill_pool();
            }
            Mail::SessionOver(session) => self.sessions.left(session),
            Mail::Revoked => self.end_who_is_revoked(),
            Mail::Measured => self.tell_the_curious(core),
            Mail::LeasesOver(ids) => ids.into_iter().for_each(|id| self.lease_is_over(core, id)),
            Mail::Kick(_) | Mail::Carry(..) | Mail::Join(_) | Mail::Stop => unreachable!("the engine handles these"),
        }
    }

    pub fn done(&mut self, core: &mut Core, done: Done) {
        if done.did == Did::Accept {
            self.accepted(core, done);
        } else if self.workers.has(done.slot) {
            let news = self.workers.done(core, done);
            self.heard_of_workers(core, news);
            self.fill_pool();
        } else if self.greetings.contains_key(&done.slot) {
            self.greeting_done(core, done);
        } else if let Some(guest) = self.guests.remove(&done.slot) {
            core.release(done.slot);
            // Its worker has seen it too, unless the client has stopped it.
            if let Some(session) = self.sessions.get_mut(guest.session) {
                session.guest = None;
                info!(session = guest.session, why = Death::Gone.of("the client"), "session ends");
            }
            self.sessions.left(guest.session);
        }
    }
}

// Connections.
impl Door {
    fn accepted(&mut self, core: &mut Core, done: Done) {
        let Some(arrival) = self.listeners.accepted(core, done) else { return };
        let peer = arrival.peer;
        let slot = core.allocate(Owner::Door);
        self.greetings_begun += 1;
        let mut greeting = Box::new(Greeting::new(arrival, self.greetings_begun));
        greeting.expect(core, slot, Stage::Hello);
        self.greetings.insert(slot, greeting);
        self.make_room(core, peer.leads_to());
    }

    /// Whoever has come may stay; if that is one too many, another one goes. Kinds of sockets are counted apart, so
    /// that nobody on the network can keep local programs out.
    fn make_room(&mut self, core: &mut Core, from: Leads) {
        let here = |g: &Greeting| g.stage.takes_room() && !g.ending && g.peer.leads_to() == from;
        let strangers: Vec<Stranger> = (self.greetings.iter().filter(|(_, g)| here(g)))
            .map(|(slot, g)| Stranger {
                slot: *slot,
                source: Source::of(g.peer),
                number: g.number,
                has_spoken: g.stage != Stage::Hello,
            })
            .collect();
        let Some(slot) = who_goes(&strangers) else { return };
        self.turned_out += 1;
        // One line for many: whoever floods the door must not flood the log too.
        if self.turned_out_said.is_none_or(|t| t.elapsed() >= TURNED_OUT_INTERVAL) {
            let peer = self.greetings[&slot].peer;
            warn!(%peer, so_far = self.turned_out, "closed a connection that has no session, to make room for others");
            self.turned_out_said = Some(Instant::now());
        }
        self.drop_greeting(core, slot);
    }

    fn greeting_done(&mut self, core: &mut Core, done: Done) {
        let slot = done.slot;
        let g = self.greetings.get_mut(&slot).expect("the caller looked");
        match g.done(core, done) {
            Progress::More => {}
            Progress::Sent => self.sent(core, slot),
            Progress::Frame(kind, body) => self.frame(core, slot, kind, body),
            Progress::Gone(who) => {
                if !g.stage.is_strangers() {
                    info!(session = g.session, peer = %g.peer, who, "gone during the handshake");
                }
                match g.stage.hears_the_worker() {
                    true => self.has_no_worker(core, slot),
                    false => self.drop_greeting(core, slot),
                }
            }
            Progress::Broken if g.stage.tells_the_worker() => self.has_no_worker(core, slot),
            Progress::Broken | Progress::Ended => self.drop_greeting(core, slot),
            Progress::Wrong(rule) => self.broke(core, slot, &rule),
        }
    }

    fn broke(&mut self, core: &mut Core, slot: u32, rule: &str) {
        let g = &self.greetings[&slot];
        warn!(session = g.session, peer = %g.peer, rule, "protocol broken during the handshake");
        match g.stage.hears_the_worker() {
            true => self.has_no_worker(core, slot),
            false => self.drop_greeting(core, slot),
        }
    }

    /// The client is told that it has none, and loses its session. Nothing is being received any more.
    fn has_no_worker(&mut self, core: &mut Core, slot: u32) {
        let why = match self.greetings[&slot].is_late {
            true => "its worker did not get ready in time; oriond's log says how long that was",
            false => "its worker ended before it was ready; oriond's log says why",
        };
        self.refuse(core, slot, Reason::NoWorker, why);
    }

    fn frame(&mut self, core: &mut Core, slot: u32, frame_kind: u32, body: Vec<u8>) {
        let g = &self.greetings[&slot];
        let heard = match g.stage.heard(g.purpose.what(), frame_kind) {
            Ok(heard) => heard,
            Err(rule) => return self.broke(core, slot, &rule),
        };
        let checked = match heard {
            Heard::Hello => return self.hello(core, slot, &body),
            Heard::Join => return self.join(core, slot, &body),
            Heard::Request => return self.request(core, slot, &body),
            Heard::Ask => return self.ask(core, slot, &body),
            Heard::LaneProof => return self.lane(core, slot, &body),
            Heard::Welcome => self.welcome(slot, &body),
            Heard::Start => Start::decode(&body).map(drop).map_err(|fault| fault.0.to_owned()),
            Heard::Started | Heard::Refused => Ok(()),
        };
        match (checked, heard.passing()) {
            (Ok(()), Some(next)) => self.greeting(slot).say(core, slot, next, frame(frame_kind, &body)),
            (Ok(()), None) => unreachable!("what is not passed on was answered above"),
            (Err(rule), _) => self.broke(core, slot, &rule),
        }
    }

    fn sent(&mut self, core: &mut Core, slot: u32) {
        let g = self.greeting(slot);
        match g.stage.sent() {
            Next::Expect(stage, within) => {
                if let Some(within) = within {
                    g.deadline = Instant::now() + within;
                }
                g.expect(core, slot, stage);
            }
            Next::Carry => self.carry(core, slot),
            Next::Close => self.drop_greeting(core, slot),
        }
    }

    fn greeting(&mut self, slot: u32) -> &mut Greeting {
        self.greetings.get_mut(&slot).expect("the caller has it")
    }

    fn hello(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let refused = match Hello::decode(body) {
            Ok(hello) => self.policy.greeting(&hello),
            Err(fault) => Some(Refusal::new(Reason::Other, format!("the greeting is damaged: {}", fault.0))),
        };
        let refused = refused.or_else(|| self.admit(slot).err());
        if let Some(refusal) = refused {
            return self.turn_away(core, slot, refusal);
        }
        let token = self.policy.token.clone();
        self.challenge(core, slot, body, Purpose::Session, |said| token.map(|t| t.server_proof(said)));
    }

    /// Whether he speaks as he has to, and shows what he has to.
    fn admit(&mut self, slot: u32) -> Result<(), Refusal> {
        let g = self.greeting(slot);
        let Some(security) = &g.security else { return Ok(()) };
        g.identity = security.admit(g.peer, g.secured())?;
        Ok(())
    }

    /// A further connection of a session that is being carried.
    fn join(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let Ok(Join { session, lane, .. }) = Join::decode(body) else {
            return self.refuse(core, slot, Reason::Other, "the join frame is damaged");
        };
        if let Err(refusal) = self.admit(slot) {
            return self.turn_away(core, slot, refusal);
        }
        let known = self.sessions.get(session);
        let known = known.and_then(|s| Some((s.lane_key.clone(), s.shared.clone()?)));
        let Some((key, shared)) = known else {
            // Its client has closed it before its last connection came in; nothing to worry about.
            return self.refuse(core, slot, Reason::Other, "no such session");
        };
        let purpose = Purpose::Lane { session, index: lane as usize, key: key.clone(), shared };
        self.challenge(core, slot, body, purpose, |said| Some(key.server_proof(said)));
    }

    fn challenge(
        &mut self,
        core: &mut Core,
        slot: u32,
        first: &[u8],
        purpose: Purpose,
        prove: impl FnOnce(&Said) -> Option<Proof>,
    ) {
        let nonce = match fresh_nonce() {
            Ok(nonce) => nonce,
            Err(e) => return self.refuse(core, slot, Reason::Other, format!("the server has no random bytes: {e}")),
        };
        let g = self.greeting(slot);
        let certificate = g.secured().and(g.security.as_ref()).map(|security| security.server.fingerprint);
        g.said = Said { first: first.to_vec(), nonce, certificate };
        g.purpose = purpose;
        let challenge = Challenge { nonce, proof: prove(&g.said) };
        g.say(core, slot, Stage::Challenging, frame(kind::CHALLENGE, &challenge.encode()));
    }

    fn request(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        let (request, covered, proof) = match Request::decode(body) {
            Ok(request) => request,
            Err(fault) => return self.turn_away(core, slot, damaged(&fault)),
        };
        g.environment = request.environment.beyond(&self.inherited);
        g.client = Some(client(g.peer, &request));
        let room = self.policy.room(self.sessions.staying() + self.waiting.len());
        let refused = match &self.leases {
            None => {
                let shown = Shown { peer: g.peer, said: &g.said, request: covered, proof, lease: &request.lease };
                self.policy.request(&shown, || strangeness(g.socket.as_fd())).or(room)
            }
            // Taken last: a lease is good for one session, and who finds no room may come again with his.
            Some(_) if room.is_some() => room,
            Some(book) => {
                let shown = lease::Shown { lease: &request.lease, said: &g.said, request: covered, proof };
                book.take(&shown).map(|held| g.lease = Some(held)).err()
            }
        };
        if let Some(refusal) = refused {
            return self.turn_away(core, slot, refusal);
        }
        g.stage = Stage::Waiting;
        g.deadline = Instant::now() + WORKER_TIMEOUT;
        self.waiting.push_back(slot);
        self.match_up(core);
    }

    /// As a request, of who wants no session: he is shown what one would have, and what his own have. In a pool that is
    /// what the lease is for that he shows, and its session.
    fn ask(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        let (request, covered, proof) = match Request::decode(body) {
            Ok(request) => request,
            Err(fault) => return self.turn_away(core, slot, damaged(&fault)),
        };
        g.client = Some(client(g.peer, &request));
        let refused = match &self.leases {
            None => {
                let shown = Shown { peer: g.peer, said: &g.said, request: covered, proof, lease: &request.lease };
                self.policy.request(&shown, || strangeness(g.socket.as_fd()))
            }
            Some(book) => {
                let shown = lease::Shown { lease: &request.lease, said: &g.said, request: covered, proof };
                book.look_with(&shown).map(|lease| g.looks_with = Some(lease)).err()
            }
        };
        if let Some(refusal) = refused {
            return self.turn_away(core, slot, refusal);
        }
        g.stage = Stage::Curious;
        g.deadline = Instant::now() + WORKER_TIMEOUT;
        self.curious.push(slot);
        self.tell_the_curious(core);
    }

    /// Whoever has asked, once a worker has said what there is, and, if there are sessions, it is known how busy they
    /// keep their GPUs.
    fn tell_the_curious(&mut self, core: &mut Core) {
        let Some(offer) = self.offer.clone() else { return self.fill_pool() };
        if !self.curious.is_empty() && self.sessions.len() > 0 && !self.directory.utilization.look() {
            self.measured_by = Some(Instant::now() + PATIENCE);
            return;
        }
        self.measured_by = None;
        for slot in std::mem::take(&mut self.curious) {
            let g = self.greetings.get_mut(&slot).expect("it waits");
            let asks = g.client.as_ref().expect("it has asked");
            let shown = match &g.looks_with {
                None => Ok(view(&offer, self.sessions.in_use(&self.directory), asks, self.one_tenant)),
                Some(lease) => view_of_lease(&offer, lease, self.sessions.use_of(lease.id, &self.directory), asks),
            };
            match shown {
                Ok(view) => {
                    g.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
                    g.say(core, slot, Stage::Refusing, frame(kind::VIEW, &view.encode()));
                }
                Err(why) => self.turn_away(core, slot, Refusal::new(Reason::Other, why)),
            }
        }
    }

    fn turn_away(&mut self, core: &mut Core, slot: u32, refusal: Refusal) {
        warn!(peer = %self.greetings[&slot].peer, reason = refusal.text, "session refused");
        self.refuse(core, slot, refusal.reason, refusal.text);
    }

    fn lane(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let g = &self.greetings[&slot];
        let Purpose::Lane { session, index, key, shared } = &g.purpose else { unreachable!("the caller looked") };
        let (session, index, shared) = (*session, *index, shared.clone());
        let is_proved = <&Proof>::try_from(body).is_ok_and(|proof| is_same(proof, &key.client_proof(&g.said)));
        if !is_proved {
            warn!(peer = %g.peer, session, "somebody who does not belong to a session tried to join it");
        }
        let Some(shared) = shared.upgrade().filter(|s| is_proved && s.claim_lane(index)) else {
            return self.refuse(core, slot, Reason::Other, "no such session, wrong proof, or the lane is taken");
        };
        // A fresh connection takes these few bytes at once.
        let g = self.greeting(slot);
        let started = g.sealed(frame(kind::STARTED, &[]));
        let sent = fds::send_some(g.socket.as_fd(), &started, &[], libc::MSG_DONTWAIT);
        if !sent.is_ok_and(|n| n == started.len()) {
            return self.drop_greeting(core, slot);
        }
        let greeting = self.greetings.remove(&slot).expect("the caller has it");
        core.release(slot);
        // Bulk data is not to hold up small records, for which the first engine is taken before others.
        let last = self.posts.len() - 1;
        let engine = last - (session as usize + index) % last.max(1);
        self.posts[engine].post(Mail::Join(shared.join(greeting.into_connection().0, index)));
    }

    /// The worker's Welcome: its memory is mapped here too.
    fn welcome(&mut self, slot: u32, body: &[u8]) -> Result<(), String> {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        let welcome = Welcome::decode(body).map_err(|fault| fault.0.to_owned())?;
        let layout = Layout { heap_bytes: welcome.heap_bytes };
        let fd = g.memory.take().ok_or("the worker's welcome came without its memory")?;
        let memory = Memory::open(fd, layout).map_err(|e| format!("mapping the session memory failed: {e}"))?;
        let prepare = g.prepare.as_ref().expect("else its worker has the connection, and greets");
        let shared = prepare(g.session, memory, self.nursery.clone())
            .map_err(|e| format!("mapping the session's heap failed: {e}"))?;
        if let Some(session) = self.sessions.get_mut(g.session) {
            session.shared = Some(Arc::downgrade(&shared));
        }
        self.directory.is_carried(g.session, Arc::downgrade(&shared));
        g.shared = Some(shared);
        Ok(())
    }

    /// The handshake is over: an engine carries the session from now on.
    fn carry(&mut self, core: &mut Core, slot: u32) {
        let mut g = *self.greetings.remove(&slot).expect("the caller has it");
        core.release(slot);
        let (number, shared) = (g.session, g.shared.take());
        let (connection, attach) = g.into_connection();
        let (Some(attach), Some(shared)) = (attach, shared) else { unreachable!("set by the stages before") };
        match shared.carry(connection, attach) {
            Ok(session) => {
                let engine = self.loads.choose(Instant::now());
                self.loads.session_begins(engine);
                self.posts[engine].post(Mail::Carry(session, Account::default()));
            }
            Err(e) => error!(session = number, error = %e, "mapping the session's rings failed"),
        }
    }

    fn refuse(&mut self, core: &mut Core, slot: u32, reason: Reason, text: impl Into<String>) {
        let g = self.greeting(slot);
        g.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        g.say(core, slot, Stage::Refusing, frame(kind::REFUSED, &Refusal::new(reason, text).encode()));
    }

    /// Closes the connection; what is freed is freed once the kernel is done with it.
    fn drop_greeting(&mut self, core: &mut Core, slot: u32) {
        let Some(g) = self.greetings.get_mut(&slot) else { return };
        if !g.close() {
            return;
        }
        if matches!(g.stage, Stage::Waiting | Stage::Curious) {
            self.waiting.retain(|s| *s != slot);
            self.curious.retain(|s| *s != slot);
        }
        // A worker that was assigned to it sees its attach socket close and ends.
        self.sessions.left(g.session);
        self.greetings.remove(&slot);
        core.release(slot);
    }
}

// Workers.
impl Door {
    fn fill_pool(&mut self) {
        let all = self.waiting.iter().chain(&self.curious);
        let kinds: Vec<Kind> = all.map(|slot| self.kind(&self.greetings[slot])).collect();
        self.workers.fill(kinds.into_iter());
    }

    /// What a session's worker has to be started with. It sees no GPU that the session's lease is not for: whoever
    /// takes it over could use that, whatever the lease says. Which GPUs there are is not known before the first
    /// worker.
    fn kind(&self, g: &Greeting) -> Kind {
        let leased = g.lease.iter().flat_map(|held| held.lease.vgpus.iter().map(|vgpu| vgpu.gpu.clone()));
        let kind = Kind { environment: g.environment.clone(), ..Kind::of_gpus(leased) };
        match self.gpus.iter().all(|gpu| kind.gpus.contains(gpu)) {
            true => Kind { environment: kind.environment, ..Kind::default() },
            false => kind,
        }
    }

    /// What the first worker has found. Where leases say on which GPU a session is, a worker sees one only.
    fn has_found(&mut self, gpus: Vec<Gpu>, offer: Offer) {
        if self.offer.is_some() {
            return;
        }
        self.gpus = gpus.iter().map(|gpu| gpu_name(&gpu.uuid)).collect();
        self.directory.has_gpus(&gpus);
        self.offer = Some(offer);
        if let Some(book) = &self.leases {
            book.has_gpus(gpus);
            if self.gpus.len() > 1 {
                self.workers.keep_one_by_one(self.gpus.iter().cloned());
            }
        }
    }

    fn heard_of_workers(&mut self, core: &mut Core, news: News) {
        match news {
            News::Warm(gpus, offer) => {
                self.has_found(gpus, offer);
                self.tell_the_curious(core);
                self.match_up(core);
            }
            News::Settled(session) => self.sessions.settled(session, Instant::now() + HANDSHAKE_TIMEOUT),
            News::Started(session, mut vgpus) => {
                self.number(&mut vgpus);
                words::started(session, &vgpus);
                self.takes_seats(session, &vgpus);
                self.sessions.started(session);
            }
            News::SessionOver(session) => {
                self.arbiters.leave(session);
                // The client learns that its worker is gone.
                self.directory.ends(session);
                let guest = self.sessions.over(session);
                guest.and_then(|slot| self.guests.get(&slot)).inspect(|g| shutdown(&g.socket));
                self.match_up(core);
            }
            News::NoWorker { kind, reason } => self.no_worker(core, &kind, &reason),
            News::Nothing => {}
        }
    }

    /// The session's vGPUs are known, and so is on which GPUs it has to wait for its turn.
    fn takes_seats(&mut self, session: u64, vgpus: &[Registered]) {
        let Some(of_session) = self.sessions.get(session) else { return };
        let on = |vgpu: &Registered, seat| OnGpu { gpu: vgpu.gpu, uuid: vgpu.uuid, seat };
        let Some(seats) = &of_session.seats else {
            return self.directory.has_vgpus(session, vgpus.iter().map(|vgpu| on(vgpu, None)).collect());
        };
        let gpus: Vec<u64> = vgpus.iter().map(|vgpu| vgpu.gpu).collect();
        let seated = seats.shares.by_gpu(&gpus);
        let seat = |gpu: u64| seated.iter().position(|(of, _)| *of == gpu).filter(|seat| *seat < SEATS_MAX);
        self.directory.has_vgpus(session, vgpus.iter().map(|vgpu| on(vgpu, seat(vgpu.gpu))).collect());
        let tenant = of_session.lease.as_ref().map(|held| held.lease.tenant.as_str());
        let owner = owner_of(tenant, of_session.client.source);
        if let Err(error) = self.arbiters.join(session, owner, vgpus, seats) {
            error!(session, %error, "starting an arbiter failed: the session uses its GPUs unasked");
        }
    }

    /// A worker numbers the GPUs that it sees, and here they have the numbers of the node.
    fn number(&self, vgpus: &mut [Registered]) {
        for vgpu in vgpus {
            let number = self.gpus.iter().position(|gpu| *gpu == gpu_name(&vgpu.uuid));
            vgpu.gpu = number.map_or(vgpu.gpu, |number| number as u64);
        }
    }

    /// Of workers that see all GPUs with our own settings everybody needs one, sooner or later; of others, who waits
    /// for the same.
    fn no_worker(&mut self, core: &mut Core, kind: &Kind, reason: &str) {
        let is_everybodys = *kind == Kind::default();
        let is_theirs = |slot: &u32| is_everybodys || self.kind(&self.greetings[slot]) == *kind;
        let (mut theirs, others): (VecDeque<u32>, _) = self.waiting.iter().copied().partition(is_theirs);
        self.waiting = others;
        theirs.extend(std::mem::take(&mut self.curious));
        let with = if is_everybodys { String::new() } else { format!(" with {kind}") };
        for slot in theirs {
            self.refuse(core, slot, Reason::NoWorker, format!("no worker can be started{with}: {reason}"));
        }
    }

    /// The controller has given its vGPUs back: whoever still has them loses them.
    fn lease_is_over(&mut self, core: &mut Core, id: LeaseId) {
        if let Some((session, worker)) = self.sessions.of_lease(id) {
            return self.workers.kill(worker, session, "the pool's controller says that its lease is over, ending it");
        }
        let is_its = |slot: &u32| self.greetings[slot].lease.as_ref().is_some_and(|held| held.lease.id == id);
        if let Some(at) = self.waiting.iter().position(is_its) {
            let slot = self.waiting.remove(at).expect("just found");
            let text = format!("the lease {id} was taken back while the program waited for a worker");
            self.turn_away(core, slot, Refusal::new(Reason::NotPermitted, text));
        }
    }

    /// Who was let in by a certificate that is not taken any more.
    fn end_who_is_revoked(&mut self) {
        let Some(security) = self.listeners.security() else { return };
        for (session, worker) in self.sessions.whose(|who| security.is_revoked(who)) {
            self.workers.kill(worker, session, "the certificate of its client was revoked, ending it");
        }
    }

    /// Clients that have gone while they waited for a worker.
    fn forget_who_left(&mut self, core: &mut Core) {
        let gone = |slot: &u32| !self.greetings[slot].is_still_there();
        let gone: Vec<u32> = self.waiting.iter().copied().filter(gone).collect();
        for slot in &gone {
            let g = &self.greetings[slot];
            info!(peer = %g.peer, program = g.program(), "gone while it waited for a worker");
            self.drop_greeting(core, *slot);
        }
        if !gone.is_empty() {
            self.fill_pool();
        }
    }

    fn match_up(&mut self, core: &mut Core) {
        let mut index = 0;
        // Who waits for the place of a session that is about to end waits until it has ended.
        while self.policy.room(self.sessions.len()).is_none()
            && let Some(&slot) = self.waiting.get(index)
        {
            let g = &self.greetings[&slot];
            let Some(worker) = self.workers.next(&self.kind(g)) else {
                index += 1;
                continue;
            };
            self.waiting.remove(index);
            if !g.is_still_there() {
                self.drop_greeting(core, slot);
                continue;
            }
            match self.assign(core, slot, worker) {
                Ok(()) => {}
                Err(Unserved::ByThisWorker(why)) => {
                    warn!("{why}");
                    self.waiting.insert(index, slot);
                }
                // What is lacking is not there for the next one either, and the sessions that have it have to be heard.
                Err(Unserved::ByThisServer(why)) => {
                    let text = format!("no session can be begun: {why}");
                    self.turn_away(core, slot, Refusal::new(Reason::NoWorker, text));
                }
            }
        }
        self.fill_pool();
    }

    fn assign(&mut self, core: &mut Core, slot: u32, worker: u32) -> Result<(), Unserved> {
        let g = self.greetings.get_mut(&slot).expect("it was waiting");
        // Where nobody else carries the session its worker does.
        let local = g.prepare.is_none();
        let meter = Meter::create().map_err(|e| lacking("meter", &e))?;
        let vgpus = g.lease.as_ref().map(|held| held.lease.vgpus.clone()).unwrap_or_default();
        let seats = self.time.shares(&vgpus).map(Seats::create).transpose();
        let seats = seats.map_err(|e| lacking("page of seats", &e))?;
        let page = Page::create().map_err(|e| lacking("page for statistics", &e))?;
        let theirs = if local { None } else { Some(attach(g).map_err(|e| lacking("connection to its worker", &e))?) };
        let lent_bytes = g.lent.as_ref().map_or(0, |lent| lent.bytes);
        self.workers.limit(worker, lent_bytes).map_err(|e| lacking("limit of host memory", &e))?;
        let served = self.workers.serve(worker, |session, process| {
            let (worker_pid, has_seats) = (process.pid as u32, seats.is_some());
            let lent = g.lent.clone();
            let place = lent.as_ref().map(|l| Place { offset: l.offset, bytes: l.bytes, has_bell: l.bell.is_some() });
            let assign = Control::Assign(Assign { session, worker_pid, vgpus, has_seats, lent: place });
            let socket = theirs.as_ref().unwrap_or(&g.socket);
            let meter = meter.fd().expect("it was made here");
            let seats = seats.iter().flat_map(|s| [s.page.fd().expect("it was made here"), s.bell.fd()]);
            let lent = lent.iter().flat_map(|l| [Some(&l.memory), l.bell.as_ref()]).flatten().map(|fd| fd.as_fd());
            let fds: Vec<_> = [page.fd(), meter].into_iter().chain(seats).chain(lent).chain([socket.as_fd()]).collect();
            send_control(process.control.as_fd(), &assign, &fds)
        });
        let Serving { session, worker: pid } = served.map_err(Unserved::ByThisWorker)?;
        g.session = session;
        let (peer, program) = (g.peer, g.program());
        let lease = g.lease.as_ref().map(|held| tracing::field::display(held.lease.id));
        let tenant = g.lease.as_ref().map(|held| held.lease.tenant.as_str());
        let certificate = g.identity.as_ref().map(tracing::field::display);
        let encrypted = g.security.as_ref().map(|_| g.secured().is_some());
        info!(
            session, %peer, program, worker = pid, environment = %g.environment, lease, tenant, certificate, encrypted,
            "session begins"
        );
        let is_of_reserve = g.lease.as_ref().is_some_and(|held| held.is_of_reserve);
        if is_of_reserve {
            info!(session, "its vGPUs are of this node's own reserve: the agent has lent them");
        }
        let has_choice = self.listeners.addresses().len() > 1;
        words::begun(session, g.lease.is_some() && !is_of_reserve, g.carrier, has_choice);
        let token = g.lease.as_ref().map(|held| &held.token).or(self.policy.token.as_ref());
        // Memory that a worker was not made with takes it longer, however little its client waits for then.
        let to_start = if g.lent.is_some() { WORKER_TIMEOUT } else { HANDSHAKE_TIMEOUT };
        let meter = Arc::new(meter);
        g.lease.as_ref().inspect(|held| held.is_metered(&meter));
        let begun = Session {
            worker,
            guest: local.then_some(slot),
            start_by: local.then(|| Instant::now() + to_start),
            lane_key: LaneKey::new(token, &g.said),
            shared: None,
            kill_after: None,
            lease: g.lease.take(),
            client: g.client.clone().expect("it has sent its request"),
            identity: g.identity.take(),
            meter,
            seats,
        };
        let is_limited = self.has_memory_limit || begun.has_leased_vgpus();
        self.directory.begins(session, watched(&begun, &g.socket, pid, page, g.peer, g.carrier, is_limited));
        self.sessions.begin(session, begun);
        if local {
            // From here on client and worker talk to each other. Our copy of the socket tells when the client goes.
            let socket = self.greetings.remove(&slot).expect("it was waiting").socket;
            core.io.wait_hangup(slot, socket.as_raw_fd());
            self.guests.insert(slot, Guest { socket, session });
        } else {
            g.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
            g.expect(core, slot, Stage::Welcome);
        }
        Ok(())
    }
}

fn watched(
    session: &Session,
    socket: &OwnedFd,
    worker_pid: i32,
    page: Page,
    peer: Peer,
    carrier: &'static Carrier,
    is_limited: bool,
) -> Watched {
    let (client, lease) = (&session.client, session.lease.as_ref().map(|held| &held.lease));
    Watched {
        source: client.source,
        from: peer.place(),
        program: client.program.clone(),
        pid: client.pid,
        local_pid: if peer.is_local() { peer_credentials(socket.as_fd()).map_or(0, |peer| peer.pid) } else { 0 },
        transport: carrier.name,
        tenant: lease.map(|lease| lease.tenant.clone()),
        lease: lease.map(|lease| lease.id.to_string()),
        ratio: lease.and_then(|lease| Some(lease.vgpus.first()?.ratio)),
        worker_pid,
        begun: Instant::now(),
        page,
        meter: Arc::clone(&session.meter),
        is_limited,
        carried: OnceLock::new(),
        place: OnceLock::new(),
        seats: session.seats.clone(),
        vgpus: OnceLock::new(),
    }
}

/// Why a program that waited has no session.
enum Unserved {
    /// Another worker may serve it.
    ByThisWorker(String),
    /// None would.
    ByThisServer(String),
}

fn lacking(what: &str, e: &io::Error) -> Unserved {
    let hint = match e.raw_os_error() {
        Some(libc::EMFILE) => "; raise oriond's limit of open files (LimitNOFILE= of its unit, ulimit -n)",
        _ => "",
    };
    Unserved::ByThisServer(format!("making a session's {what} failed: {e}{hint}"))
}

/// A connection between us and the worker; answers the worker's end.
fn attach(g: &mut Greeting) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(libc::SOCK_STREAM)?;
    g.attach = Some(ours);
    Ok(theirs)
}

fn damaged(fault: &Fault) -> Refusal {
    Refusal::new(Reason::Other, format!("the request is damaged: {}", fault.0))
}

fn client(peer: Peer, request: &Request) -> Client {
    let program = printable(&request.program);
    Client { source: Source::of(peer), home: request.home, pid: request.pid, program }
}

/// Whose a session is, as a number: a tenant's, or else a user's or a host's.
fn owner_of(tenant: Option<&str>, source: Source) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    if tenant.is_none() && source == Source::Unknown {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    match tenant {
        Some(tenant) => tenant.hash(&mut hasher),
        None => source.hash(&mut hasher),
    }
    Some(hasher.finish())
}

/// It goes into a log line.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !acts(*c)).take(64).collect()
}
