//! A worker's one session: the parts that it is made of, by name.
//!
//! What can be told of one part alone is in `worker::state`. What takes several of them is a method, in the file of its
//! subject beside this one; the calls of the driver API, which use the methods, are in `worker::calls`.

mod answers;
mod bringing;
mod capturing;
pub mod charging;
mod contexts;
mod fences;
pub mod freeing;
mod gating;
mod handles;
pub mod in_step;
mod lending;
mod marks;
mod metering;
mod parking;
pub mod reach;
mod recording;
mod small_copies;
mod streams;
mod variables;

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_ring::{Heap, Lookahead, Memory};
use orion_telemetry::Recorder;
use orion_wire::Pages;
use orion_wire::record::Header;
use rustc_hash::FxHashMap;

use crate::attach::Attachment;
use crate::meter::Meter;
use crate::worker::driver::cupti;
use crate::worker::driver::helper::Helpers;
use crate::worker::driver::image::Image;
use crate::worker::driver::prints::Prints;
use crate::worker::out::arrivals::{Shared, SpareEvent, Words};
use crate::worker::out::callbacks::Callbacks;
use crate::worker::out::managed;
use crate::worker::out::output::Output;
use crate::worker::out::replies::{Events, Replies};
use crate::worker::state::accounts::Accounts;
use crate::worker::state::addresses::Addresses;
use crate::worker::state::captures::Captures;
use crate::worker::state::gate::Gate;
use crate::worker::state::graphs::Graphs;
use crate::worker::state::green::Greens;
use crate::worker::state::in_step::{InStep, Unasked};
use crate::worker::state::lent::Lent;
use crate::worker::state::links::Links;
use crate::worker::state::marks::Mark;
use crate::worker::state::objects::Objects;
use crate::worker::state::pinned::Pinned;
use crate::worker::state::retired::Retired;
use crate::worker::state::scratch::Scratch;
use crate::worker::state::streams::{BusyStreams, Freed, Home};
use crate::worker::state::vgpus::{Vgpu, Vgpus};
use crate::worker::state::waits::{Held, SmallCopy, Wait};

/// Small copies are held while at least two of the last three or so were waited for.
const HABIT_MAX: u8 = 3;

/// Copies into the heap that a mirrored client has not been told of, and ranges lent to copies.
const RANGES_MAX: usize = 64 << 10;

type Finish = Box<dyn FnOnce(&mut Session, CUresult, &mut Vec<u8>) -> CUresult>;

struct Parked {
    header: Header,
    wait: Wait,
    /// What it waits for besides, in streams that have been captured since.
    earlier: Vec<Rc<SpareEvent>>,
    /// A capture was open when the call was made.
    beside_a_capture: bool,
    /// And a blocking stream of its context was in one.
    beside_an_encompassed: bool,
    /// When it was first looked for in vain.
    since: Option<Instant>,
    /// Runs once the wait is over, with its result; writes the reply's body and gives the final result.
    finish: Finish,
}

pub struct Session {
    pub driver: &'static Driver,
    pub vgpus: Vgpus,
    /// The heap at the client's own address.
    pub heap: Heap,
    pub memory: Memory,
    /// What brings descriptors of the client's.
    pub attachment: Arc<Attachment>,
    pub addresses: Addresses,
    staging: u64,
    staging_bytes: u64,
    /// Whether the client has the same pages, or is to be told of what comes to the heap.
    pub pages: Pages,
    /// Of a mirrored client: what has come to the heap, and everything that tells of it.
    pub arrivals: Option<Shared>,
    pub unasked: Unasked,
    words: Words,
    /// The last command that will be settled when its work is done.
    noted: u64,
    pub replies: Replies,
    pub events: Arc<Events>,
    pub output: Arc<Output>,
    pub callbacks: Arc<Callbacks>,
    pub helpers: Helpers,
    /// Images of loaded modules and libraries, which the driver may refer to while they are loaded.
    pub images: HashMap<u64, Arc<Image>>,
    /// Modules and libraries to unload once the device is idle.
    pub retired: Vec<Retired>,
    /// Which of the function handles are `CUkernel`.
    pub kernels: HashSet<usize>,
    /// Kernel nodes' and other objects' facts that hand modules keep, by handle.
    pub graph_nodes: Graphs,
    pub host_memory: Pinned,
    pub in_step: InStep,
    /// Of modules and libraries, as the driver told of them, and what is carried over.
    pub known_managed: managed::Known,
    pub variables: Arc<managed::Variables>,
    pub links: Links,
    pub green: Greens,
    pub objects: Objects,
    /// What device memory is used for; only where there is a limit.
    pub accounts: Option<Accounts>,
    /// Where it is shown.
    meter: Arc<Meter>,
    /// What is told of its commands.
    pub stats: Recorder,
    /// When it is looked at again, where there is no ledger.
    meter_after: Instant,
    /// Where others have shares of its GPUs too.
    gate: Option<Box<Gate>>,
    /// The stream that the command was for which passed the gate last, if it was for one.
    gated_stream: Option<CUstream>,
    /// By vGPU.
    primary: HashMap<usize, CUcontext>,
    /// The context current on the executor thread, as the client names it.
    current: u64,
    thread_streams: FxHashMap<(u64, u16), CUstream>,
    /// The context that each stream of the application's was made in.
    stream_homes: FxHashMap<usize, Home>,
    /// Streams with work since they were last seen idle, by context, and the last command that named each: what
    /// `cuCtxSynchronize` waits for.
    busy_streams: BusyStreams,
    held: Option<Held>,
    small_copy: Option<SmallCopy>,
    /// A number that the client posted a copy of is landing: see [`Session::copy_after_all`].
    landing: bool,
    habit: u8,
    pub prints: Prints,
    freed: Freed,
    /// Failures of posted commands that nobody has been told of, by context and thread.
    latched: Vec<(u64, u16, CUresult)>,
    parked: Vec<Parked>,
    /// Events, each in a context, behind what streams had queued when they were destroyed.
    orphaned: Vec<Rc<SpareEvent>>,
    marks: Vec<Mark>,
    /// When a fence was last refused, counted in commands.
    fence_refused_at: u64,
    /// What the client lent to copies that may still be reading it, until the event.
    lent: VecDeque<(SpareEvent, Lent)>,
    /// Events without timing, by the context they belong to.
    spare_events: HashMap<u64, Vec<CUevent>>,
    pub scratch: Scratch,
    pub captures: Captures,
    /// Commands executed; for the stats page and tests.
    pub executed: AtomicU64,
    /// The highest thread slot seen, plus one.
    threads: u16,
    /// Whether a profiler records.
    recording: bool,
    pub profiler: cupti::Source,
    /// The client's calls that the commands belong to, by thread slot; 0 is none.
    calls: Vec<u32>,
    /// Of these, that of the command being executed.
    call: u32,
}

/// What a session is made of.
pub struct Parts {
    pub driver: &'static Driver,
    pub vgpus: Vec<Vgpu>,
    /// Primary contexts that the warm worker holds already, by vGPU.
    pub primary: HashMap<usize, CUcontext>,
    pub heap: Heap,
    pub memory: Memory,
    pub attachment: Arc<Attachment>,
    /// Where the first `staging_bytes` of the heap are registered with the driver.
    pub staging: u64,
    pub staging_bytes: u64,
    pub pages: Pages,
    /// Of a client that has pages of its own.
    pub arrivals: Option<Shared>,
    pub replies: Replies,
    pub events: Arc<Events>,
    pub ahead: Lookahead,
    pub output: Arc<Output>,
    pub profiler: cupti::Source,
    pub accounts: Option<Accounts>,
    pub meter: Arc<Meter>,
    pub gate: Option<Gate>,
    pub stats: Recorder,
}

impl Session {
    pub fn new(parts: Parts) -> Session {
        let Parts { driver, vgpus, primary, heap, memory, attachment, pages, .. } = parts;
        let Parts {
            staging,
            staging_bytes,
            arrivals,
            replies,
            events,
            ahead,
            output,
            profiler,
            accounts,
            meter,
            gate,
            stats,
            ..
        } = parts;
        let variables = managed::Variables::new(heap);
        Session {
            driver,
            prints: Prints::new(driver, &vgpus.iter().map(|vgpu| vgpu.device).collect::<Vec<_>>()),
            vgpus: Vgpus::new(vgpus),
            heap,
            memory,
            attachment,
            addresses: Addresses::default(),
            staging,
            staging_bytes,
            pages,
            words: Words::default(),
            noted: 0,
            replies,
            callbacks: Callbacks::new(
                events.clone(),
                ahead,
                arrivals.clone().map(|arrivals| (arrivals, heap)),
                variables.clone(),
            ),
            known_managed: Default::default(),
            variables,
            in_step: InStep::new(arrivals.clone()),
            arrivals,
            unasked: Unasked::default(),
            events,
            output,
            helpers: Helpers::new(driver),
            images: HashMap::new(),
            retired: Vec::new(),
            kernels: HashSet::new(),
            graph_nodes: Default::default(),
            host_memory: Default::default(),
            links: Default::default(),
            green: Default::default(),
            objects: Objects::default(),
            accounts,
            meter,
            stats,
            meter_after: Instant::now(),
            gate: gate.map(Box::new),
            gated_stream: None,
            primary,
            current: 0,
            thread_streams: FxHashMap::default(),
            stream_homes: FxHashMap::default(),
            busy_streams: FxHashMap::default(),
            held: None,
            small_copy: None,
            landing: false,
            habit: HABIT_MAX,
            freed: Freed::default(),
            latched: Vec::new(),
            parked: Vec::new(),
            orphaned: Vec::new(),
            marks: Vec::new(),
            fence_refused_at: u64::MAX,
            lent: VecDeque::new(),
            spare_events: HashMap::new(),
            scratch: Scratch::default(),
            captures: Default::default(),
            executed: AtomicU64::new(0),
            threads: 0,
            recording: false,
            profiler,
            calls: Vec::new(),
            call: 0,
        }
    }

    /// A thread of the client has sent a command.
    #[inline]
    pub fn note_thread(&mut self, thread: u16) {
        self.threads = self.threads.max(thread + 1);
    }

    /// Whether more than one thread of the client has sent commands.
    pub fn several_threads(&self) -> bool {
        self.threads > 1
    }

    /// Which of the client's commands is being executed; the client counts the same ones.
    pub fn number(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }
}
