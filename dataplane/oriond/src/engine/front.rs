//! The door: listening sockets, handshakes, and the pool of workers. Lives on the first engine.
//!
//! ```text
//! accepted -> Hello -> Challenging -> Request -> Waiting -> local client: socket handed to a worker; done here
//!                                                        -> TCP client: Welcome <- worker, START <- client,
//!                                                                       STARTED <- worker; then carried
//!             Join  -> Challenging -> Proof              -> a lane of a carried session
//! worker:  Starting -> Warm -> Serving -> reaped; never Warm again
//! ```
//! A driver reads its environment when it is loaded, so a client whose settings differ from oriond's own gets a worker
//! that is started for it; all others take the next one of the pool.

// UNSAFETY: requests on buffers of boxed objects that stay until no request of theirs is under way.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use orion_ring::Memory;
use orion_ring::memory::Layout;
use orion_transport::proof::{LaneKey, Said, Token, fresh_nonce, is_same};
use orion_transport::{fds, socket};
use orion_wire::environment::Environment;
use orion_wire::hello::{
    Challenge, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Hello, Join, Proof, Request, Start, Welcome, frame, frame_header,
    kind,
};
use orion_wire::refusal::{Reason, Refusal};
use tracing::{error, info, warn};

use super::carried::{Carried, Shared, shutdown};
use super::core::{Core, Owner};
use super::io_ring::{Did, Done};
use super::local_socket::LocalSocket;
use super::nursery::{Newborn, Order, socketpair};
use super::peer::{Peer, Source, strangeness};
use super::post::{Mail, Post};
use super::room::{Stranger, who_goes};
use super::settings::Settings;
use crate::attach::{Assign, Control, send_control};
use crate::cell::User;
use crate::log::OF_A_WORKER;

/// Between accepting a connection and its complete Hello, and between Welcome and Start.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// For a worker that has to be started first.
const WORKER_TIMEOUT: Duration = Duration::from_secs(110);
/// A Hello or a Join is a nonce and a few words, a Start two of them.
const HELLO_BYTES_MAX: usize = 256;
/// A Request is a name, a proof and some environment variables.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Workers that warm up at the same time: each loads the driver and opens the GPUs.
const STARTING_MAX: usize = 4;
/// A worker whose client is gone and that does not end by itself is killed after this.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How exactly timeouts are kept, at most; an engine that spins must not look at them in every turn.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often is looked whether clients that wait for a worker still do.
const WAITING_LOOK_INTERVAL: Duration = Duration::from_millis(50);
const TURNED_OUT_INTERVAL: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Log lines of one worker, and their length. More are not shown.
const WORKER_LINES_MAX: u32 = 100;
const WORKER_LINE_CHARS_MAX: usize = 1000;
/// One that goes on is not ours any more.
const WORKER_LINES_KILL: u32 = 10_000;
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Front {
    settings: Settings,
    posts: Vec<Arc<Post>>,
    nursery: Sender<Order>,
    listeners: Vec<(u32, Listener)>,
    greetings: HashMap<u32, Box<Greeting>>,
    workers: HashMap<u32, Box<Worker>>,
    /// Of the pool and, started for particular clients, beside it.
    warm: VecDeque<u32>,
    waiting: VecDeque<u32>,
    /// What the workers that are being started see beyond our own environment; empty for the pool's.
    starting: Vec<Environment>,
    /// The driver's settings in our own environment, which every worker inherits.
    inherited: Environment,
    sessions: HashMap<u64, Session>,
    sessions_begun: u64,
    greetings_begun: u64,
    /// Strangers that went so that others could come, and when that was last logged.
    turned_out: u64,
    turned_out_said: Option<Instant>,
    /// Sockets of local clients, whose workers have their own copies, by the slot in which their end is awaited.
    guests: HashMap<u32, Guest>,
    /// Workers that ended before they were ready, in a row.
    failures: u32,
    spawn_after: Option<Instant>,
    stopping: Option<Instant>,
    /// Listeners that failed to accept, to be tried again.
    deaf: Vec<u32>,
    look_after: Instant,
    waiting_look_after: Instant,
}

enum Listener {
    Unix(LocalSocket),
    Tcp(TcpListener),
}

struct Guest {
    socket: OwnedFd,
    session: u64,
}

struct Session {
    worker: u32,
    /// A local client, and until when it has to say START; what a worker tells a TCP client goes through us.
    guest: Option<u32>,
    start_by: Option<Instant>,
    /// What its further connections have to know.
    lane_key: LaneKey,
    /// For a carried session: what joining connections need.
    shared: Option<Weak<Shared>>,
    kill_after: Option<Instant>,
}

struct Worker {
    pid: i32,
    pidfd: OwnedFd,
    control: OwnedFd,
    /// Free for another worker once this one is reaped.
    user: Option<Arc<User>>,
    /// Why it cannot serve, in its own words. Others fail at the same time, each for a reason of its own.
    failure: String,
    /// The signal by which we meant to end it.
    sent: Option<i32>,
    /// Lines that it has logged.
    lines: u32,
    buffer: [u8; 4096],
    state: WorkerState,
    /// What it sees beyond our own environment; empty for the pool's.
    environment: Environment,
    under_way: u32,
    exited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Starting,
    Warm,
    Serving(u64),
    /// Told to end because the pool is larger than it should be.
    Retired,
}

/// One connection until its session runs.
struct Greeting {
    socket: OwnedFd,
    peer: Peer,
    number: u64,
    stage: Stage,
    deadline: Instant,
    /// The frame being received.
    buffer: Vec<u8>,
    have: usize,
    out: Vec<u8>,
    out_sent: usize,
    message: Box<Message>,
    memory: Option<OwnedFd>,
    attach: Option<OwnedFd>,
    shared: Option<Arc<Shared>>,
    /// What was said before anybody proves anything, and what this connection is for.
    said: Said,
    purpose: Purpose,
    program: String,
    environment: Environment,
    session: u64,
    under_way: u32,
    ending: bool,
}

enum Purpose {
    Session,
    Lane { session: u64, index: usize, key: LaneKey, shared: Weak<Shared> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Receiving Hello or Join.
    Hello,
    /// Sending Challenge.
    Challenging,
    /// Receiving Request, or a lane's Proof.
    Request,
    /// Accepted, no worker yet.
    Waiting,
    /// Receiving Welcome from the worker.
    Welcome,
    /// Sending Welcome to the client.
    Welcoming,
    /// Receiving Start from the client.
    Start,
    /// Sending Start to the worker.
    Starting,
    /// Receiving Started from the worker.
    Started,
    /// Sending Started to the client; then the session is carried.
    Confirming,
    /// Sending Refused; then the connection is closed.
    Refusing,
}

/// A `recvmsg` with room for descriptors.
struct Message {
    iov: libc::iovec,
    header: libc::msghdr,
    control: fds::Control,
}

// SAFETY: its pointers lead into this box and the greeting's buffer; neither is tied to a thread.
unsafe impl Send for Message {}

impl Front {
    pub fn new(settings: Settings, posts: Vec<Arc<Post>>, nursery: Sender<Order>) -> Result<Front, String> {
        let mut listeners = Vec::new();
        if let Some(path) = &settings.socket {
            listeners.push((0, Listener::Unix(LocalSocket::listen(path, settings.token.is_some())?)));
        }
        if let Some(address) = settings.listen {
            if settings.token.is_none() && !settings.insecure {
                return Err(format!(
                    "refusing to listen on {address} without a token: every user of a machine that reaches it could \
                     use the GPUs; give --token-file, or --insecure if that is what you want"
                ));
            }
            let listener = TcpListener::bind(address).map_err(|e| format!("listening on {address} failed: {e}"))?;
            listeners.push((0, Listener::Tcp(listener)));
        }
        if listeners.is_empty() {
            return Err("nothing to listen on: give --socket or --listen".into());
        }
        Ok(Front {
            settings,
            posts,
            nursery,
            listeners,
            greetings: HashMap::new(),
            workers: HashMap::new(),
            warm: VecDeque::new(),
            waiting: VecDeque::new(),
            starting: Vec::new(),
            inherited: Environment::of(|name| std::env::var(name).ok()),
            sessions: HashMap::new(),
            sessions_begun: 0,
            greetings_begun: 0,
            turned_out: 0,
            turned_out_said: None,
            guests: HashMap::new(),
            failures: 0,
            spawn_after: None,
            stopping: None,
            deaf: Vec::new(),
            look_after: Instant::now(),
            waiting_look_after: Instant::now(),
        })
    }

    pub fn addresses(&self) -> Vec<String> {
        let tcp = |l: &TcpListener| l.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
        self.listeners
            .iter()
            .map(|(_, listener)| match listener {
                Listener::Unix(l) => format!("unix:{}", l.path.display()),
                Listener::Tcp(l) => format!("tcp:{}", tcp(l)),
            })
            .collect()
    }

    pub fn begin(&mut self, core: &mut Core) {
        for (slot, listener) in &mut self.listeners {
            *slot = core.allocate(Owner::Front);
            core.io.accept(*slot, listener.fd());
        }
        self.fill_pool();
    }

    pub fn is_finished(&self) -> bool {
        self.stopping.is_some() && self.workers.is_empty() && self.starting.is_empty()
    }

    /// When [`Self::look`] has to be called although nothing happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let greetings = self.greetings.values().map(|g| g.deadline);
        let leaving = self.sessions.values().filter_map(|s| s.kill_after.or(s.start_by));
        let waiting = (!self.waiting.is_empty()).then_some(self.waiting_look_after);
        let stopping = self.stopping.map(|t| t + STOP_TIMEOUT);
        let deaf = (!self.deaf.is_empty()).then_some(self.look_after);
        let first =
            greetings.chain(leaving).chain(waiting).chain(self.spawn_after).chain(stopping).chain(deaf).min()?;
        // Past deadlines that wait for something else are looked at again soon, but not in a loop.
        Some(first.saturating_duration_since(Instant::now()).max(Duration::from_millis(20)))
    }

    /// Timeouts.
    pub fn look(&mut self, core: &mut Core, now: Instant) {
        if now < self.look_after {
            return;
        }
        self.look_after = now + LOOK_INTERVAL;
        for slot in std::mem::take(&mut self.deaf) {
            if let Some((_, listener)) = self.listeners.iter().find(|(s, _)| *s == slot) {
                core.io.accept(slot, listener.fd());
            }
        }
        if self.spawn_after.is_some_and(|t| now >= t) {
            self.spawn_after = None;
            self.fill_pool();
        }
        let late: Vec<u32> =
            self.greetings.iter().filter(|(_, g)| !g.ending && now >= g.deadline).map(|(s, _)| *s).collect();
        for slot in late {
            let g = self.greetings.get_mut(&slot).expect("just seen");
            warn!(peer = %g.peer, stage = ?g.stage, "handshake timed out");
            if g.stage == Stage::Waiting {
                self.waiting.retain(|s| *s != slot);
                self.refuse(core, slot, Reason::NoWorker, "no worker became ready in time; oriond's log says why");
            } else {
                self.drop_greeting(core, slot);
            }
        }
        if now >= self.waiting_look_after && !self.waiting.is_empty() {
            self.waiting_look_after = now + WAITING_LOOK_INTERVAL;
            self.forget_who_left(core);
        }
        for (number, session) in self.sessions.iter_mut().filter(|(_, s)| s.start_by.is_some_and(|t| now >= t)) {
            session.start_by = None;
            session.kill_after = Some(now + LEAVE_TIMEOUT);
            if let Some(worker) = self.workers.get_mut(&session.worker) {
                warn!(session = number, worker = worker.pid, "the client did not start its session, ending it");
                worker.end(libc::SIGKILL);
            }
        }
        for session in self.sessions.values_mut().filter(|s| s.kill_after.is_some_and(|t| now >= t)) {
            session.kill_after = Some(now + LEAVE_TIMEOUT);
            if let Some(worker) = self.workers.get_mut(&session.worker) {
                warn!(worker = worker.pid, "the worker did not end with its client, killing it");
                worker.end(libc::SIGKILL);
            }
        }
        if self.stopping.is_some_and(|t| now >= t + STOP_TIMEOUT) {
            self.stopping = Some(now);
            self.workers.values_mut().for_each(|w| w.end(libc::SIGKILL));
        }
    }

    /// Stops accepting and ends all workers, and with them the sessions.
    pub fn stop(&mut self, core: &mut Core) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Instant::now());
        for (_, listener) in &self.listeners {
            if let Listener::Unix(socket) = listener {
                socket.remove();
            }
            // SAFETY: a plain call on a descriptor we own.
            unsafe { libc::shutdown(listener.fd(), libc::SHUT_RDWR) };
        }
        let slots: Vec<u32> = self.greetings.keys().copied().collect();
        for slot in slots {
            self.drop_greeting(core, slot);
        }
        self.workers.values_mut().for_each(|w| w.end(libc::SIGTERM));
    }

    pub fn received(&mut self, core: &mut Core, mail: Mail) {
        match mail {
            Mail::Born(environment, Ok(newborn)) => self.born(core, environment, newborn),
            Mail::Born(environment, Err(e)) => {
                self.started(&environment);
                self.failed(core, &environment, format!("starting a worker process failed: {e}"));
            }
            Mail::SessionOver(session) => {
                if let Some(s) = self.sessions.get_mut(&session) {
                    s.kill_after = Some(Instant::now() + LEAVE_TIMEOUT);
                }
            }
            Mail::Kick(_) | Mail::Carry(_) | Mail::Join { .. } | Mail::Stop => unreachable!("the engine handles these"),
        }
    }

    pub fn done(&mut self, core: &mut Core, done: Done) {
        if done.did == Did::Accept {
            self.accepted(core, done);
        } else if self.workers.contains_key(&done.slot) {
            self.worker_done(core, done);
        } else if self.greetings.contains_key(&done.slot) {
            self.greeting_done(core, done);
        } else if let Some(guest) = self.guests.remove(&done.slot) {
            core.release(done.slot);
            // Its worker has seen it too, unless the client has stopped it.
            if let Some(session) = self.sessions.get_mut(&guest.session) {
                session.guest = None;
                session.start_by = None;
                session.kill_after = Some(Instant::now() + LEAVE_TIMEOUT);
            }
        }
    }
}

// Connections.
impl Front {
    fn accepted(&mut self, core: &mut Core, done: Done) {
        let Some((_, listener)) = self.listeners.iter().find(|(slot, _)| *slot == done.slot) else { return };
        let is_unix = matches!(listener, Listener::Unix(_));
        let fd = listener.fd();
        if !done.more && done.result >= 0 && self.stopping.is_none() {
            core.io.accept(done.slot, fd);
        }
        if done.result < 0 {
            if self.stopping.is_none() {
                // Most likely out of descriptors; trying again at once would only fail again.
                self.deaf.push(done.slot);
                self.look_after = Instant::now() + ACCEPT_PAUSE;
                warn!(error = %io::Error::from_raw_os_error(-done.result), "accepting a connection failed");
            }
            return;
        }
        // SAFETY: accept returned a new descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(done.result) };
        if self.stopping.is_some() {
            return;
        }
        let peer = if is_unix {
            let Ok(peer) = Peer::of_unix(&socket) else { return };
            peer
        } else {
            if let Err(e) = socket::tune_tcp(socket.as_fd()) {
                warn!(error = %e, "setting options of a connection failed");
                return;
            }
            Peer::of_tcp(&socket)
        };
        let slot = core.allocate(Owner::Front);
        self.greetings_begun += 1;
        self.greetings.insert(slot, Box::new(Greeting::new(socket, peer, self.greetings_begun)));
        self.expect_frame(core, slot, Stage::Hello);
        self.make_room(core, is_unix);
    }

    /// Whoever has come may stay; if that is one too many, another one goes. Kinds of sockets are counted apart, so
    /// that nobody on the network can keep local programs out.
    fn make_room(&mut self, core: &mut Core, is_unix: bool) {
        let here = |g: &Greeting| g.stage.is_strangers() && !g.ending && g.peer.is_unix() == is_unix;
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
            warn!(%peer, so_far = self.turned_out, "closed a connection that said nothing, to make room for others");
            self.turned_out_said = Some(Instant::now());
        }
        self.drop_greeting(core, slot);
    }

    fn expect_frame(&mut self, core: &mut Core, slot: u32, stage: Stage) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        g.stage = stage;
        g.have = 0;
        g.buffer.clear();
        g.buffer.resize(FRAME_HEADER_BYTES, 0);
        g.receive(core, slot);
    }

    fn send(&mut self, core: &mut Core, slot: u32, stage: Stage, bytes: Vec<u8>) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        g.stage = stage;
        g.out = bytes;
        g.out_sent = 0;
        g.send(core, slot);
    }

    fn greeting_done(&mut self, core: &mut Core, done: Done) {
        let slot = done.slot;
        let g = self.greetings.get_mut(&slot).expect("the caller looked");
        g.under_way -= 1;
        if g.ending {
            return self.drop_greeting(core, slot);
        }
        let again = matches!(-done.result, libc::EAGAIN | libc::EINTR);
        match done.did {
            Did::Send | Did::SendAttach => {
                if done.result < 0 && !again {
                    return self.drop_greeting(core, slot);
                }
                g.out_sent += done.result.max(0) as usize;
                if g.out_sent < g.out.len() { g.send(core, slot) } else { self.sent(core, slot) }
            }
            _ => {
                if again {
                    return g.receive(core, slot);
                }
                if done.result <= 0 {
                    if !g.stage.is_strangers() {
                        let who = if done.did == Did::ReceiveAttach { "worker" } else { "client" };
                        info!(session = g.session, peer = %g.peer, who, "gone during the handshake");
                    }
                    return self.drop_greeting(core, slot);
                }
                if done.did == Did::ReceiveAttach {
                    g.memory = fds::received_fds(&g.message.header).pop().or(g.memory.take());
                }
                g.have += done.result as usize;
                match g.advance_frame() {
                    Ok(None) => g.receive(core, slot),
                    Ok(Some((kind, body))) => self.frame(core, slot, kind, body),
                    Err(rule) => {
                        warn!(peer = %g.peer, rule, "protocol broken during the handshake");
                        self.drop_greeting(core, slot);
                    }
                }
            }
        }
    }

    fn frame(&mut self, core: &mut Core, slot: u32, frame_kind: u32, body: Vec<u8>) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        let outcome = match (g.stage, frame_kind) {
            (Stage::Hello, kind::HELLO) => return self.hello(core, slot, &body),
            (Stage::Hello, kind::JOIN) => return self.join(core, slot, &body),
            (Stage::Request, kind::REQUEST) if g.purpose.is_session() => return self.request(core, slot, &body),
            (Stage::Request, kind::PROOF) if !g.purpose.is_session() => return self.lane(core, slot, &body),
            (Stage::Welcome, kind::WELCOME) => self.welcome(slot, &body).map(|()| Stage::Welcoming),
            (Stage::Start, kind::START) => match Start::decode(&body) {
                Ok(_) => Ok(Stage::Starting),
                Err(fault) => Err(fault.0.to_owned()),
            },
            (Stage::Started, kind::STARTED) => Ok(Stage::Confirming),
            (Stage::Welcome | Stage::Started, kind::REFUSED) => Ok(Stage::Refusing),
            _ => Err(format!("frame of kind {frame_kind} at the wrong time")),
        };
        match outcome {
            Ok(next) => self.send(core, slot, next, frame(frame_kind, &body)),
            Err(rule) => {
                let g = &self.greetings[&slot];
                warn!(session = g.session, peer = %g.peer, rule, "protocol broken during the handshake");
                self.drop_greeting(core, slot);
            }
        }
    }

    fn sent(&mut self, core: &mut Core, slot: u32) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        match g.stage {
            Stage::Challenging => self.expect_frame(core, slot, Stage::Request),
            Stage::Welcoming => {
                g.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
                self.expect_frame(core, slot, Stage::Start);
            }
            Stage::Starting => {
                g.deadline = Instant::now() + WORKER_TIMEOUT;
                self.expect_frame(core, slot, Stage::Started);
            }
            Stage::Confirming => self.carry(core, slot),
            _ => self.drop_greeting(core, slot),
        }
    }

    fn hello(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let refused = match Hello::decode(body) {
            Ok(hello) => version_objection(&hello),
            Err(fault) => Some(Refusal::new(Reason::Other, format!("the greeting is damaged: {}", fault.0))),
        };
        if let Some(refusal) = refused {
            return self.turn_away(core, slot, refusal);
        }
        let token = self.settings.token.clone();
        self.challenge(core, slot, body, Purpose::Session, |said| token.map(|t| t.server_proof(said)));
    }

    /// A further connection of a session that is being carried.
    fn join(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let Ok(Join { session, lane, .. }) = Join::decode(body) else {
            return self.refuse(core, slot, Reason::Other, "the join frame is damaged");
        };
        let known = self.sessions.get(&session);
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
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        g.said = Said { first: first.to_vec(), nonce };
        g.purpose = purpose;
        let challenge = Challenge { nonce, proof: prove(&g.said) };
        self.send(core, slot, Stage::Challenging, frame(kind::CHALLENGE, &challenge.encode()));
    }

    fn request(&mut self, core: &mut Core, slot: u32, body: &[u8]) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        let refused = match Request::decode(body) {
            Ok((request, covered, proof)) => {
                g.environment = request.environment.beyond(&self.inherited);
                g.program = printable(&request.program);
                self.settings.objection(g, covered, proof)
            }
            Err(fault) => Some(Refusal::new(Reason::Other, format!("the request is damaged: {}", fault.0))),
        };
        let refused = refused.or_else(|| {
            let max = self.settings.sessions_max;
            (self.sessions.len() + self.waiting.len() >= max).then(|| {
                let text =
                    format!("all {max} sessions of this server are taken; try again later, or raise --sessions-max");
                Refusal::new(Reason::Full, text)
            })
        });
        if let Some(refusal) = refused {
            return self.turn_away(core, slot, refusal);
        }
        g.stage = Stage::Waiting;
        g.deadline = Instant::now() + WORKER_TIMEOUT;
        self.waiting.push_back(slot);
        self.match_up(core);
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
        let ok = fds::send_some(g.socket.as_fd(), &frame(kind::STARTED, &[]), &[], libc::MSG_DONTWAIT);
        if ok.is_err() {
            return self.drop_greeting(core, slot);
        }
        let greeting = self.greetings.remove(&slot).expect("the caller has it");
        core.release(slot);
        // Off the session's own engine, so that bulk data does not hold up its small records.
        let engine = (session as usize + 1 + index) % self.posts.len();
        self.posts[engine].post(Mail::Join { socket: greeting.socket, shared, index });
    }

    /// The worker's Welcome: its memory is mapped here too.
    fn welcome(&mut self, slot: u32, body: &[u8]) -> Result<(), String> {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        let welcome = Welcome::decode(body).map_err(|fault| fault.0.to_owned())?;
        let layout = Layout { heap_bytes: welcome.heap_bytes };
        let fd = g.memory.take().ok_or("the worker's welcome came without its memory")?;
        let memory = Memory::open(fd, layout).map_err(|e| format!("mapping the session memory failed: {e}"))?;
        let shared = Shared::new(g.session, memory, self.nursery.clone())
            .map_err(|e| format!("mapping the session's heap failed: {e}"))?;
        let shared = Arc::new(shared);
        if let Some(session) = self.sessions.get_mut(&g.session) {
            session.shared = Some(Arc::downgrade(&shared));
        }
        g.shared = Some(shared);
        Ok(())
    }

    /// The handshake of a TCP client is over: an engine carries the session from now on.
    fn carry(&mut self, core: &mut Core, slot: u32) {
        let g = *self.greetings.remove(&slot).expect("the caller has it");
        core.release(slot);
        let (Some(attach), Some(shared)) = (g.attach, g.shared) else { unreachable!("set by the stages before") };
        match Carried::new(g.socket, attach, shared) {
            Ok(session) => self.posts[g.session as usize % self.posts.len()].post(Mail::Carry(session)),
            Err(e) => error!(session = g.session, error = %e, "mapping the session's rings failed"),
        }
    }

    fn refuse(&mut self, core: &mut Core, slot: u32, reason: Reason, text: impl Into<String>) {
        let g = self.greetings.get_mut(&slot).expect("the caller has it");
        g.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        self.send(core, slot, Stage::Refusing, frame(kind::REFUSED, &Refusal::new(reason, text).encode()));
    }

    /// Closes the connection; what is freed is freed once the kernel is done with it.
    fn drop_greeting(&mut self, core: &mut Core, slot: u32) {
        let Some(g) = self.greetings.get_mut(&slot) else { return };
        if g.under_way > 0 {
            if !g.ending {
                g.ending = true;
                shutdown(&g.socket);
                g.attach.as_ref().inspect(|a| shutdown(a));
            }
            return;
        }
        if g.stage == Stage::Waiting {
            self.waiting.retain(|s| *s != slot);
        }
        // A worker that was assigned to it sees its attach socket close and ends.
        if let Some(session) = self.sessions.get_mut(&g.session) {
            session.kill_after = Some(Instant::now() + LEAVE_TIMEOUT);
        }
        self.greetings.remove(&slot);
        core.release(slot);
    }
}

// Workers.
impl Front {
    fn fill_pool(&mut self) {
        if self.stopping.is_some() || self.spawn_after.is_some() {
            return;
        }
        let first = self.settings.prestart.saturating_sub(self.sessions_begun as usize);
        let pool = self.settings.warm.max(first);
        let starting_max = STARTING_MAX.max(pool);
        let mut wanted: Vec<(Environment, usize)> = vec![(Environment::default(), pool)];
        for slot in &self.waiting {
            let environment = &self.greetings[slot].environment;
            match wanted.iter_mut().find(|(e, _)| e == environment) {
                Some((_, count)) => *count += 1,
                None => wanted.push((environment.clone(), 1)),
            }
        }
        // Left over from a burst, or from clients that did not wait: each holds a context on every GPU.
        for slot in std::mem::take(&mut self.warm) {
            let worker = self.workers.get_mut(&slot).expect("a warm worker has not ended");
            match wanted.iter_mut().find(|(e, count)| *e == worker.environment && *count > 0) {
                Some((_, count)) => {
                    *count -= 1;
                    self.warm.push_back(slot);
                }
                None => worker.retire(),
            }
        }
        // Started for clients that did not wait for them. One of the pool is of use to the next client.
        for (slot, worker) in &mut self.workers {
            if worker.state != WorkerState::Starting || worker.environment.is_empty() {
                continue;
            }
            let needed = wanted.iter().find(|(e, _)| *e == worker.environment).map_or(0, |(_, count)| *count);
            if self.starting.iter().filter(|e| **e == worker.environment).count() > needed {
                let at = self.starting.iter().position(|e| *e == worker.environment).expect("just counted");
                self.starting.swap_remove(at);
                info!(worker = worker.pid, slot, "the client that this worker was started for is gone");
                worker.retire();
            }
        }
        for (environment, count) in wanted {
            let starting = self.starting.iter().filter(|e| **e == environment).count();
            for _ in starting..count {
                // A retired one counts until it has ended.
                let workers_max = self.settings.sessions_max + pool;
                if self.starting.len() >= starting_max || self.workers_to_be() >= workers_max {
                    return;
                }
                self.starting.push(environment.clone());
                let _ = self.nursery.send(Order::Spawn(environment.clone()));
            }
        }
    }

    /// All there are and all that have been ordered.
    fn workers_to_be(&self) -> usize {
        let born = self.workers.values().filter(|w| w.state == WorkerState::Starting && !w.exited).count();
        self.workers.len() + self.starting.len().saturating_sub(born)
    }

    /// Clients that have gone while they waited for a worker.
    fn forget_who_left(&mut self, core: &mut Core) {
        let gone = |slot: &u32| !is_still_there(&self.greetings[slot].socket);
        let gone: Vec<u32> = self.waiting.iter().copied().filter(gone).collect();
        for slot in &gone {
            let g = &self.greetings[slot];
            info!(peer = %g.peer, program = g.program, "gone while it waited for a worker");
            self.drop_greeting(core, *slot);
        }
        if !gone.is_empty() {
            self.fill_pool();
        }
    }

    /// A worker with this environment is not being started any more.
    fn started(&mut self, environment: &Environment) {
        let at = self.starting.iter().position(|e| e == environment).expect("it was being started");
        self.starting.swap_remove(at);
    }

    fn born(&mut self, core: &mut Core, environment: Environment, newborn: Newborn) {
        let slot = core.allocate(Owner::Front);
        let Newborn { pid, pidfd, control, user } = newborn;
        let mut worker = Box::new(Worker {
            pid,
            pidfd,
            control,
            user,
            failure: String::new(),
            sent: None,
            lines: 0,
            buffer: [0; 4096],
            state: WorkerState::Starting,
            environment,
            under_way: 1,
            exited: false,
        });
        if self.stopping.is_some() {
            worker.end(libc::SIGKILL);
        }
        core.io.wait_exit(slot, worker.pidfd.as_raw_fd());
        worker.listen(core, slot);
        self.workers.insert(slot, worker);
        // Whoever it is for may be gone by now.
        self.fill_pool();
    }

    fn worker_done(&mut self, core: &mut Core, done: Done) {
        let slot = done.slot;
        let w = self.workers.get_mut(&slot).expect("the caller looked");
        w.under_way -= 1;
        if done.did == Did::Exit {
            w.exited = true;
            // The control socket closes with the process, but a stray child of it could hold it open.
            shutdown(&w.control);
        } else if done.result > 0 {
            let message = Control::decode(&w.buffer[..done.result as usize]);
            match message {
                Ok(Control::Ready) if w.state == WorkerState::Starting => {
                    w.state = WorkerState::Warm;
                    info!(worker = w.pid, user = w.user.as_ref().map(|u| u.id), "worker warm");
                    let environment = w.environment.clone();
                    self.started(&environment);
                    self.failures = 0;
                    self.warm.push_back(slot);
                    self.match_up(core);
                }
                Ok(Control::Ready) if w.state == WorkerState::Retired => {}
                Ok(Control::Started) if matches!(w.state, WorkerState::Serving(_)) => {
                    if let WorkerState::Serving(session) = w.state
                        && let Some(session) = self.sessions.get_mut(&session)
                    {
                        session.start_by = None;
                    }
                }
                Ok(Control::Failed { reason }) if w.state == WorkerState::Starting => w.failure = reason,
                Ok(Control::Failed { reason: text } | Control::Log { text }) => w.log(&text),
                _ => {
                    warn!(worker = w.pid, "the worker said something unexpected, killing it");
                    w.end(libc::SIGKILL);
                }
            }
            if let Some(w) = self.workers.get_mut(&slot) {
                w.listen(core, slot);
            }
        }
        // Only now: why it ended may have been its last word.
        if self.workers.get(&slot).is_some_and(|w| w.exited && w.under_way == 0) {
            self.worker_exited(core, slot);
            self.workers.remove(&slot);
            core.release(slot);
        }
    }

    fn worker_exited(&mut self, core: &mut Core, slot: u32) {
        let w = self.workers.get_mut(&slot).expect("the caller looked");
        w.hear_the_rest();
        let (pid, status, state) = (w.pid, reap(&w.pidfd), w.state);
        let is_stopping = self.stopping.is_some();
        let is_meant = match status {
            End::Signal(number) => w.sent == Some(number),
            // One that waits for a session ends by itself when we are gone.
            End::Exit(0) => is_stopping || matches!(state, WorkerState::Serving(_)),
            _ => false,
        };
        let session = match state {
            WorkerState::Serving(session) => session,
            _ => 0,
        };
        // There is one line of each worker, so these are not counted as lines of one kind.
        match state {
            WorkerState::Serving(_) if is_meant => info!(worker = pid, session, %status, "session over, worker ended"),
            WorkerState::Serving(_) => {
                warn!(target: OF_A_WORKER, worker = pid, session, %status, "session over, worker died");
            }
            _ if is_meant => {}
            WorkerState::Starting => warn!(target: OF_A_WORKER, worker = pid, %status, "a starting worker died"),
            WorkerState::Warm => warn!(target: OF_A_WORKER, worker = pid, %status, "a warm worker died"),
            WorkerState::Retired => warn!(target: OF_A_WORKER, worker = pid, %status, "a retired worker died"),
        }
        match state {
            WorkerState::Starting => {
                let (environment, mut reason) = (w.environment.clone(), std::mem::take(&mut w.failure));
                if reason.is_empty() {
                    reason = format!("the worker ended before it was ready ({status})");
                }
                self.started(&environment);
                if !is_stopping {
                    self.failed(core, &environment, reason);
                }
            }
            WorkerState::Warm => self.warm.retain(|s| *s != slot),
            WorkerState::Retired => {}
            WorkerState::Serving(session) => {
                let guest = self.sessions.remove(&session).and_then(|s| s.guest);
                // The client learns that its worker is gone.
                guest.and_then(|slot| self.guests.get(&slot)).inspect(|g| shutdown(&g.socket));
            }
        }
        self.fill_pool();
    }

    /// A worker could not be started. Tried again, ever more slowly; who waits is told after the third time. One that
    /// was started for a client's own settings is that client's concern only: it may be they that do not work.
    fn failed(&mut self, core: &mut Core, environment: &Environment, reason: String) {
        if !environment.is_empty() {
            warn!(%environment, reason, "worker failed to start with a client's settings");
            let (theirs, others): (VecDeque<u32>, _) =
                self.waiting.drain(..).partition(|slot| self.greetings[slot].environment == *environment);
            self.waiting = others;
            for slot in theirs {
                let text = format!("no worker can be started with {environment}: {reason}");
                self.refuse(core, slot, Reason::NoWorker, text);
            }
            return;
        }
        self.failures += 1;
        let pause = Duration::from_millis(100 << self.failures.min(7));
        error!(reason, failures = self.failures, retry_ms = pause.as_millis() as u64, "worker failed to start");
        self.spawn_after = Some(Instant::now() + pause);
        if self.failures >= 3 {
            for slot in std::mem::take(&mut self.waiting) {
                self.refuse(core, slot, Reason::NoWorker, format!("no worker can be started: {reason}"));
            }
        }
    }

    fn match_up(&mut self, core: &mut Core) {
        let mut index = 0;
        while let Some(&greeting) = self.waiting.get(index) {
            let g = &self.greetings[&greeting];
            let Some(at) = self.warm.iter().position(|slot| self.workers[slot].environment == g.environment) else {
                index += 1;
                continue;
            };
            self.waiting.remove(index);
            if !is_still_there(&g.socket) {
                self.drop_greeting(core, greeting);
                continue;
            }
            let worker = self.warm.remove(at).expect("just found");
            if let Err(e) = self.assign(core, greeting, worker) {
                let w = self.workers.get_mut(&worker).expect("it was warm");
                warn!(worker = w.pid, error = %e, "the worker took no session, killing it");
                w.end(libc::SIGKILL);
                self.waiting.insert(index, greeting);
            }
        }
        self.fill_pool();
    }

    fn assign(&mut self, core: &mut Core, greeting: u32, worker: u32) -> io::Result<()> {
        let g = self.greetings.get_mut(&greeting).expect("it was waiting");
        let w = self.workers.get_mut(&worker).expect("it was warm");
        let session = self.sessions_begun + 1;
        let assign = Control::Assign(Assign { session, worker_pid: w.pid as u32 });
        let local = g.peer.is_unix();
        if local {
            send_control(w.control.as_fd(), &assign, Some(g.socket.as_fd()))?;
        } else {
            let (ours, theirs) = socketpair(libc::SOCK_STREAM)?;
            send_control(w.control.as_fd(), &assign, Some(theirs.as_fd()))?;
            g.attach = Some(ours);
        }
        self.sessions_begun = session;
        w.state = WorkerState::Serving(session);
        g.session = session;
        let (pid, peer, program) = (w.pid, g.peer, g.program.as_str());
        info!(session, %peer, program, worker = pid, environment = %g.environment, "session begins");
        let lane_key = LaneKey::new(self.settings.token.as_ref(), &g.said);
        let start_by = local.then(|| Instant::now() + HANDSHAKE_TIMEOUT);
        let guest = local.then_some(greeting);
        let begun = Session { worker, guest, start_by, lane_key, shared: None, kill_after: None };
        self.sessions.insert(session, begun);
        if local {
            // From here on client and worker talk to each other. Our copy of the socket tells when the client goes.
            let socket = self.greetings.remove(&greeting).expect("it was waiting").socket;
            core.io.wait_hangup(greeting, socket.as_raw_fd());
            self.guests.insert(greeting, Guest { socket, session });
        } else {
            g.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
            self.expect_frame(core, greeting, Stage::Welcome);
        }
        Ok(())
    }
}

impl Listener {
    fn fd(&self) -> RawFd {
        match self {
            Listener::Unix(l) => l.listener.as_raw_fd(),
            Listener::Tcp(l) => l.as_raw_fd(),
        }
    }
}

impl Worker {
    /// A line that the worker wants in the log. Who has taken a worker over can send what he likes, so it is one line,
    /// printable and short, and there are not many.
    fn log(&mut self, text: &str) {
        self.lines = self.lines.saturating_add(1);
        let session = match self.state {
            WorkerState::Serving(session) => session,
            _ => 0,
        };
        match self.lines {
            ..=WORKER_LINES_MAX => {
                let text: String = text.chars().filter(|c| !c.is_control()).take(WORKER_LINE_CHARS_MAX).collect();
                warn!(target: OF_A_WORKER, worker = self.pid, session, text, "worker says");
            }
            n if n == WORKER_LINES_MAX + 1 => {
                let what = format!("worker says more than {WORKER_LINES_MAX} lines; no more are shown");
                warn!(target: OF_A_WORKER, worker = self.pid, session, "{what}");
            }
            WORKER_LINES_KILL => {
                warn!(worker = self.pid, session, "worker does not stop logging, killing it");
                self.end(libc::SIGKILL);
            }
            _ => {}
        }
    }

    /// It has no session and will have none. Stopped or not, it ends.
    fn retire(&mut self) {
        self.state = WorkerState::Retired;
        self.end(libc::SIGKILL);
    }

    /// A signal that is to end it. What ends it otherwise is worth a line in the log.
    fn end(&mut self, number: i32) {
        self.sent = Some(number);
        // SAFETY: a plain system call; a process that has ended already is no error to us.
        unsafe {
            let no_info = std::ptr::null::<libc::siginfo_t>();
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), number, no_info, 0)
        };
    }

    /// It has ended. A request that looked at the socket before its last words were there, and at whether it was
    /// closed after it was, has answered that there is nothing more.
    fn hear_the_rest(&mut self) {
        while let Ok((n, _)) = fds::recv_some(self.control.as_fd(), &mut self.buffer, libc::MSG_DONTWAIT)
            && n > 0
        {
            match Control::decode(&self.buffer[..n]) {
                Ok(Control::Failed { reason }) if self.state == WorkerState::Starting => self.failure = reason,
                Ok(Control::Failed { reason: text } | Control::Log { text }) => self.log(&text),
                // Too late for anything else.
                _ => {}
            }
        }
    }

    fn listen(&mut self, core: &mut Core, slot: u32) {
        self.under_way += 1;
        let (to, len) = (self.buffer.as_mut_ptr(), self.buffer.len());
        // SAFETY: the worker is boxed and stays while requests are under way.
        unsafe { core.io.receive(slot, Did::Receive, self.control.as_raw_fd(), to, len, 0) };
    }
}

impl Greeting {
    fn new(socket: OwnedFd, peer: Peer, number: u64) -> Greeting {
        Greeting {
            socket,
            peer,
            number,
            stage: Stage::Hello,
            deadline: Instant::now() + HANDSHAKE_TIMEOUT,
            buffer: Vec::new(),
            have: 0,
            out: Vec::new(),
            out_sent: 0,
            // SAFETY: all-zero is valid for each of the C structs.
            message: Box::new(Message {
                iov: unsafe { std::mem::zeroed() },
                header: unsafe { std::mem::zeroed() },
                control: fds::Control::default(),
            }),
            memory: None,
            attach: None,
            shared: None,
            said: Said { first: Vec::new(), nonce: [0; 32] },
            purpose: Purpose::Session,
            program: String::new(),
            environment: Environment::default(),
            session: 0,
            under_way: 0,
            ending: false,
        }
    }

    /// The rest of the frame, and never more: what follows belongs to somebody else.
    fn receive(&mut self, core: &mut Core, slot: u32) {
        let rest = &mut self.buffer[self.have..];
        let (to, len) = (rest.as_mut_ptr(), rest.len());
        self.under_way += 1;
        if !matches!(self.stage, Stage::Welcome | Stage::Started) {
            // SAFETY: the buffer is not touched before the completion.
            return unsafe { core.io.receive(slot, Did::Receive, self.socket.as_raw_fd(), to, len, 0) };
        }
        let attach = self.attach.as_ref().expect("set when the worker was assigned").as_raw_fd();
        let m = &mut *self.message;
        m.iov = libc::iovec { iov_base: to.cast(), iov_len: len };
        m.header.msg_iov = &raw mut m.iov;
        m.header.msg_iovlen = 1;
        m.header.msg_control = (&raw mut m.control).cast();
        m.header.msg_controllen = size_of::<fds::Control>();
        // SAFETY: the message is boxed, the buffer not touched before the completion.
        unsafe { core.io.receive_message(slot, Did::ReceiveAttach, attach, &raw mut m.header) };
    }

    fn send(&mut self, core: &mut Core, slot: u32) {
        let rest = &self.out[self.out_sent..];
        let (did, to) = match (self.stage, &self.attach) {
            (Stage::Starting, Some(attach)) => (Did::SendAttach, attach.as_raw_fd()),
            _ => (Did::Send, self.socket.as_raw_fd()),
        };
        self.under_way += 1;
        // SAFETY: `out` is not touched before the completion.
        unsafe { core.io.send(slot, did, to, rest.as_ptr(), rest.len()) };
    }

    /// Kind and body, once the frame is complete.
    fn advance_frame(&mut self) -> Result<Option<(u32, Vec<u8>)>, &'static str> {
        if self.have < self.buffer.len() {
            return Ok(None);
        }
        let header = self.buffer[..FRAME_HEADER_BYTES].try_into().expect("a whole header");
        let (kind, len) = frame_header(&header).map_err(|fault| fault.0)?;
        let bytes_max = match self.stage {
            Stage::Welcome | Stage::Started => FRAME_BYTES_MAX,
            Stage::Request => REQUEST_BYTES_MAX,
            _ => HELLO_BYTES_MAX,
        };
        if len > bytes_max {
            return Err("handshake frame too long");
        }
        if self.have < FRAME_HEADER_BYTES + len {
            self.buffer.resize(FRAME_HEADER_BYTES + len, 0);
            return Ok(None);
        }
        Ok(Some((kind, self.buffer[FRAME_HEADER_BYTES..].to_vec())))
    }
}

impl Settings {
    /// Why this client gets no session, if so.
    fn objection(&self, g: &Greeting, request: &[u8], proof: Option<Proof>) -> Option<Refusal> {
        let refuse = |text: String| Some(Refusal::new(Reason::NotPermitted, text));
        let right = |token: &Token| proof.is_some_and(|proof| is_same(&proof, &token.client_proof(&g.said, request)));
        if self.token.as_ref().is_some_and(right) {
            return None;
        }
        match g.peer {
            Peer::Tcp(_) if self.token.is_none() => None,
            Peer::Tcp(_) => refuse("the token is wrong or missing; set ORION_TOKEN or ORION_TOKEN_FILE".into()),
            Peer::Unix { .. } => {
                let why = strangeness(&g.socket)?;
                refuse(match (&self.token, proof) {
                    (None, _) => format!("{why}, and this server has no token (--token-file); run your own"),
                    (Some(_), None) => format!("{why}; give its token (ORION_TOKEN_FILE), or run your own"),
                    (Some(_), Some(_)) => format!("{why}, and the token in ORION_TOKEN or ORION_TOKEN_FILE is wrong"),
                })
            }
        }
    }
}

fn version_objection(hello: &Hello) -> Option<Refusal> {
    let refuse = |text: String| Some(Refusal::new(Reason::Version, text));
    if hello.protocol_version != orion_wire::PROTOCOL_VERSION {
        return refuse(format!(
            "the client speaks protocol version {}, this server {}; install the same version of Orion on both sides",
            hello.protocol_version,
            orion_wire::PROTOCOL_VERSION
        ));
    }
    if hello.api_hash != orion_wire::API_HASH {
        return refuse(format!(
            "the client's API table is {:016x}, this server's {:016x}; install the same version of Orion on both sides",
            hello.api_hash,
            orion_wire::API_HASH
        ));
    }
    None
}

impl Purpose {
    fn is_session(&self) -> bool {
        matches!(self, Purpose::Session)
    }
}

impl Stage {
    /// Whether somebody at this stage has not shown yet that he may be here.
    fn is_strangers(self) -> bool {
        matches!(self, Stage::Hello | Stage::Challenging | Stage::Request)
    }
}

/// It goes into a log line.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Whether the client has closed its connection while it waited.
fn is_still_there(socket: &OwnedFd) -> bool {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry. What it sent before it went does not hide that it has gone.
    unsafe { libc::poll(&raw mut entry, 1, 0) <= 0 }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
    Unknown,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exit(status) => write!(f, "exit {status}"),
            End::Signal(number) => write!(f, "signal {number}"),
            End::Unknown => f.write_str("unknown"),
        }
    }
}

fn reap(pidfd: &OwnedFd) -> End {
    // SAFETY: all-zero is a valid siginfo_t to overwrite.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for writes.
    let rc = unsafe { libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd() as u32, &mut info, libc::WEXITED | libc::WNOHANG) };
    if rc != 0 {
        return End::Unknown;
    }
    // SAFETY: waitid filled in the fields of a SIGCHLD.
    let status = unsafe { info.si_status() };
    if info.si_code == libc::CLD_EXITED { End::Exit(status) } else { End::Signal(status) }
}
