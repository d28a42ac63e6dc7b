//! Worker processes: how many there should be, how they are made, and what they say.
//!
//! ```text
//! pool        which workers there should be, as a state machine
//! kind        what one is started with
//! process     one of them        nursery   the thread that makes them
//! worker_log  what they write before they are sealed
//! ```

mod kind;
pub mod nursery;
mod pool;
mod process;
mod worker_log;

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::time::Instant;

use orion_wire::agent::Gpu;
use orion_wire::view::Offer;
use tracing::{error, info, warn};

pub use self::kind::Kind;
pub use self::pool::Sizes;
use self::pool::{Act, Failure, Pool, State};
use self::process::{End, Process};
use crate::attach::{Control, Registered};
use crate::cell::Allowance;
use crate::engine::core::{Core, Owner, shutdown};
use crate::engine::io_ring::{Did, Done};
use crate::engine::workers::nursery::{Newborn, Order};
use crate::log::OF_A_WORKER;

/// All workers of this server, by the slots of their requests.
pub struct Workers {
    nursery: Sender<Order>,
    pool: Pool,
    processes: HashMap<u32, Box<Process>>,
    allowance: Allowance,
    /// The software GPU's memory is the host's.
    is_software: bool,
    is_stopping: bool,
}

/// What concerns those who wait for workers, or have one.
pub enum News {
    /// One more is ready, has found these GPUs, and would give these vGPUs.
    Warm(Vec<Gpu>, Offer),
    /// The worker of this session has taken the memory that it was lent.
    Settled(u64),
    /// The client of this session has said START, and has these vGPUs.
    Started(u64, Vec<Registered>),
    SessionOver(u64),
    /// None can be started; whoever waits for one of this kind is told why.
    NoWorker {
        kind: Kind,
        reason: String,
    },
    Nothing,
}

impl Workers {
    pub fn new(sizes: Sizes, nursery: Sender<Order>, allowance: Allowance, is_software: bool) -> Workers {
        let (pool, processes) = (Pool::new(sizes), HashMap::new());
        Workers { nursery, pool, processes, allowance, is_software, is_stopping: false }
    }

    pub fn is_empty(&self) -> bool {
        self.pool.is_empty()
    }

    /// From now on workers of each of these GPUs are kept warm, instead of ones of all GPUs.
    pub fn keep_one_by_one(&mut self, gpus: impl IntoIterator<Item = String>) {
        self.pool.keep(gpus.into_iter().map(|gpu| Kind::of_gpus([gpu])));
    }

    /// Starts what clients that wait for these kinds need, and ends what nobody does.
    pub fn fill(&mut self, waiting: impl Iterator<Item = Kind>) {
        for act in self.pool.fill(waiting) {
            match act {
                Act::Start(kind) => drop(self.nursery.send(Order::Spawn(kind))),
                Act::Retire(slot) => {
                    let process = self.processes.get_mut(&slot).expect("the pool's members are processes");
                    info!(worker = process.pid, "nobody needs this worker any more");
                    process.end(libc::SIGKILL);
                }
            }
        }
    }

    /// When a start that failed is tried again.
    pub fn again_after(&self) -> Option<Instant> {
        self.pool.again_after()
    }

    pub fn is_time(&mut self, now: Instant) -> bool {
        self.pool.is_time(now)
    }

    /// What the nursery has made of an order.
    pub fn made(&mut self, core: &mut Core, kind: Kind, made: std::io::Result<Newborn>) -> News {
        match made {
            Ok(newborn) => {
                let slot = core.allocate(Owner::Door);
                let mut process = Process::begin(newborn, core, slot);
                if self.is_stopping {
                    process.end(libc::SIGKILL);
                }
                self.processes.insert(slot, process);
                self.pool.born(slot, kind);
                News::Nothing
            }
            Err(e) => {
                let failure = self.pool.not_born(&kind, Instant::now());
                self.failed(kind, format!("starting a worker process failed: {e}"), failure)
            }
        }
    }

    fn failed(&self, kind: Kind, reason: String, failure: Failure) -> News {
        if self.is_stopping {
            return News::Nothing;
        }
        match failure {
            Failure::Told => {
                warn!(%kind, reason, "worker failed to start with what a client needs");
                News::NoWorker { kind, reason }
            }
            Failure::Again { pause, failures, told } => {
                let kind_said = (kind != Kind::default()).then(|| tracing::field::display(&kind));
                error!(
                    kind = kind_said,
                    reason,
                    failures,
                    retry_ms = pause.as_millis() as u64,
                    "worker failed to start"
                );
                if told { News::NoWorker { kind, reason } } else { News::Nothing }
            }
        }
    }

    /// A warm worker of this kind.
    pub fn next(&self, kind: &Kind) -> Option<u32> {
        self.pool.next(kind)
    }

    /// From now on a warm worker has no more host memory than a session may come to have. `lent` is the size of a
    /// guest's memory that the session lies in, in bytes.
    pub fn limit(&mut self, slot: u32, lent: u64) -> std::io::Result<()> {
        let process = self.processes.get_mut(&slot).expect("the pool's members are processes");
        let device = if self.is_software { process.device_bytes } else { 0 };
        let more = self.allowance.bytes(lent, device);
        process.group.as_mut().map_or(Ok(()), |group| group.limit(more))
    }

    /// Gives a warm worker to a session; `hand_over` tells it. One that cannot be told is ended.
    pub fn serve(
        &mut self,
        slot: u32,
        hand_over: impl FnOnce(u64, &Process) -> std::io::Result<()>,
    ) -> Result<Serving, String> {
        let process = self.processes.get_mut(&slot).expect("the pool's members are processes");
        let session = self.pool.upcoming();
        match hand_over(session, process) {
            Ok(()) => {
                self.pool.serve(slot);
                Ok(Serving { session, worker: process.pid })
            }
            Err(e) => {
                self.pool.retire(slot);
                process.end(libc::SIGKILL);
                Err(format!("worker {} took no session: {e}", process.pid))
            }
        }
    }

    pub fn kill(&mut self, slot: u32, session: u64, why: &str) {
        if let Some(process) = self.processes.get_mut(&slot) {
            warn!(session, worker = process.pid, "{why}");
            process.end(libc::SIGKILL);
        }
    }

    /// Ends all of them, and starts no more.
    pub fn stop(&mut self, number: i32) {
        self.is_stopping = true;
        self.pool.close();
        self.processes.values_mut().for_each(|p| p.end(number));
    }

    pub fn has(&self, slot: u32) -> bool {
        self.processes.contains_key(&slot)
    }

    pub fn done(&mut self, core: &mut Core, done: Done) -> News {
        let slot = done.slot;
        let process = self.processes.get_mut(&slot).expect("the caller looked");
        process.under_way -= 1;
        let mut news = News::Nothing;
        if done.did == Did::Exit {
            process.exited = true;
            // The control socket closes with the process, but a stray child of it could hold it open.
            shutdown(&process.control);
        } else if done.result > 0 {
            news = heard(&mut self.pool, process, slot, done.result as usize);
            process.listen(core, slot);
        }
        // Only now: why it ended may have been its last word.
        if process.exited && process.under_way == 0 {
            news = self.ended(slot);
            core.release(slot);
        }
        news
    }

    fn ended(&mut self, slot: u32) -> News {
        let mut process = self.processes.remove(&slot).expect("the caller looked");
        let state = self.pool.state(slot).expect("the pool's members are processes");
        let session = session_of(state);
        process.hear_the_rest(state == State::Starting, session);
        let end = self.said_how_it_ended(&process, state);
        if let Some(group) = process.group.take() {
            drop(self.nursery.send(Order::Remove(group)));
        }
        let failed = self.pool.ended(slot, Instant::now());
        match (failed, state) {
            (Some((kind, failure)), _) => {
                let reason = match process.failure {
                    said if said.is_empty() => format!("the worker ended before it was ready ({end})"),
                    said => said,
                };
                self.failed(kind, reason, failure)
            }
            (None, State::Serving(session)) => News::SessionOver(session),
            (None, _) => News::Nothing,
        }
    }

    fn said_how_it_ended(&self, process: &Process, state: State) -> End {
        let ((end, by_us), pid, session) = (process.reap(), process.pid, session_of(state));
        // One that waits for a session ends by itself when we are gone.
        let by_itself = end == End::Exit(0) && (self.is_stopping || matches!(state, State::Serving(_)));
        let is_meant = by_us || by_itself;
        let why = (end == End::Signal(libc::SIGKILL) && !by_us).then(|| why_it_was_killed(process));
        let why = why.as_deref();
        // There is one line of each worker, so these are not counted as lines of one kind.
        match state {
            State::Serving(_) if is_meant => {
                info!(worker = pid, session, status = %end, "session over, worker ended");
            }
            State::Serving(_) => {
                warn!(target: OF_A_WORKER, worker = pid, session, why, status = %end, "session over, worker died");
            }
            _ if is_meant => {}
            State::Starting => warn!(target: OF_A_WORKER, worker = pid, why, status = %end, "a starting worker died"),
            State::Warm => warn!(target: OF_A_WORKER, worker = pid, why, status = %end, "a warm worker died"),
            State::Retired => warn!(target: OF_A_WORKER, worker = pid, why, status = %end, "a retired worker died"),
        }
        end
    }
}

/// If not by us.
fn why_it_was_killed(process: &Process) -> String {
    match process.group.as_ref().and_then(|group| group.overrun()) {
        Some(limit) => format!(
            "it took more host memory than {} MiB, and the kernel ended it; what a session may have is --host-memory, \
             and --heap beside that",
            limit >> 20
        ),
        None => "not by oriond: when memory runs out the kernel does so, see dmesg".to_owned(),
    }
}

/// What a session begins with.
pub struct Serving {
    pub session: u64,
    pub worker: i32,
}

fn heard(pool: &mut Pool, process: &mut Process, slot: u32, bytes: usize) -> News {
    let state = pool.state(slot).expect("the pool's members are processes");
    match (process.heard(bytes), state) {
        (Some(Control::Ready { gpus, offer }), State::Starting | State::Retired) => {
            process.device_bytes = gpus.iter().fold(0, |sum, gpu| gpu.memory_bytes.saturating_add(sum));
            if !pool.ready(slot) {
                return News::Nothing;
            }
            info!(worker = process.pid, user = process.user.as_ref().map(|u| u.id), "worker warm");
            return News::Warm(gpus, offer);
        }
        (Some(Control::Started { vgpus }), State::Serving(session)) if pool.starts(slot) => {
            return News::Started(session, vgpus);
        }
        (Some(Control::Settled), State::Serving(session)) if pool.settles(slot) => return News::Settled(session),
        (Some(Control::Failed { reason }), State::Starting) => process.failure = reason,
        (Some(Control::Failed { reason: text } | Control::Log { text }), _) => process.log(session_of(state), &text),
        _ => {
            warn!(worker = process.pid, "the worker said something unexpected, killing it");
            process.end(libc::SIGKILL);
        }
    }
    News::Nothing
}

/// 0 if it has none.
fn session_of(state: State) -> u64 {
    match state {
        State::Serving(session) => session,
        _ => 0,
    }
}
