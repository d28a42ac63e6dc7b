//! What a worker knows of its one session: handles, the current context, parked calls.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_ring::{Heap, Lookahead, Memory};
use orion_transport::mirror::Scope;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, INDEX_MAX, KIND_MAX, Kind, PRIMARY_CONTEXTS_MAX};
use orion_wire::record::{Header, HeapRange, RECORD_BYTES_MAX, THREADS_MAX, op};
use orion_wire::{Fault, Writer};
use rustc_hash::FxHashMap;

use crate::worker::address::{Addresses, DeviceAddress};
use crate::worker::arrivals::{self, Arrivals, Pending, Shared, SpareEvent, Word, Words};
use crate::worker::callback::Callbacks;
use crate::worker::cupti;
use crate::worker::driver_log;
use crate::worker::hand::in_step::InStep;
use crate::worker::helper::{Helpers, Job};
use crate::worker::out::{Events, Output, Replies};
use crate::worker::prints::Prints;

/// What became of a command.
pub enum Outcome {
    /// The result, to be sent if the command asked for one.
    Done(CUresult),
    /// The reply comes later; the executor goes on with other commands.
    Parked,
}

/// What a parked call waits for.
pub enum Wait {
    Streams(Vec<CUstream>),
    /// Streams of several contexts, each with its own: a default stream can be asked only in its context.
    Everywhere(Vec<(u64, CUstream)>),
    /// The same, and then a call that makes the driver wait for what was queued meanwhile.
    Then(Vec<(u64, CUstream)>, Waiting),
    Event(CUevent),
    /// Copies into this range of the heap.
    Copies(HeapRange),
    Job(Arc<Job>),
    Landing(Landing),
}

/// What a number that lands is copied for: a copy into the heap, which the client posted before it waited.
#[derive(Clone, Copy)]
pub struct Target {
    to: HeapRange,
    from: DeviceAddress,
    context: u64,
    thread: u16,
    /// Which of the client's commands it is.
    number: u64,
}

#[derive(Clone, Copy)]
pub enum Waiting {
    /// `cuCtxSynchronize`, which tells what the streams cannot.
    Synchronize,
    Free(DeviceAddress),
}

impl Waiting {
    fn call(self, driver: &'static Driver) -> CUresult {
        match self {
            // SAFETY: no arguments.
            Waiting::Synchronize => unsafe { driver.cuCtxSynchronize() },
            // SAFETY: device memory of the session; the driver checks that an allocation begins there.
            Waiting::Free(address) => unsafe { driver.cuMemFree_v2(address.raw()) },
        }
    }
}

/// One number on its way from the device into memory of the worker's own, which held something else before. The bytes
/// are seen 2 us before the driver calls the stream idle, because it does so by a write of its own behind them.
pub struct Landing {
    pub slot: *const u8,
    pub bytes: usize,
    pub stream: CUstream,
    looks: u32,
    target: Option<Target>,
}

impl Landing {
    /// What no number read back is likely to be. One that is all the same is noticed by asking the stream.
    const NOTHING: [u8; 8] = [0xa7, 0x5c, 0x91, 0x3e, 0xd8, 0x26, 0x6b, 0xf4];

    /// Prepares `slot` for a copy of `bytes`, a power of two up to 8: those arrive whole.
    ///
    /// # Safety
    /// `slot` is aligned to 8 bytes and has as many, and nothing is being copied there.
    pub unsafe fn prepare(slot: *mut u8, bytes: usize, stream: CUstream) -> Landing {
        // SAFETY: the caller's promise.
        unsafe { slot.cast::<u64>().write_volatile(u64::from_ne_bytes(Self::NOTHING)) };
        Landing { slot, bytes, stream, looks: 0, target: None }
    }

    /// Whether a copy is one that can be watched so.
    pub fn suits(from: DeviceAddress, bytes: u64) -> bool {
        matches!(bytes, 1 | 2 | 4 | 8) && from.raw().is_multiple_of(bytes)
    }

    fn has_landed(&self) -> bool {
        // SAFETY: eight bytes that stay mapped. The device may write to them, so they are read once, whole.
        let now = unsafe { self.slot.cast::<u64>().read_volatile() }.to_ne_bytes();
        now[..self.bytes] != Self::NOTHING[..self.bytes]
    }
}

/// A small copy into pinned memory that waits a moment for the command behind it: if that is a wait for its stream, as
/// with `tensor.item()`, both are done at once, by way of [`Landing`].
struct Held {
    to: HeapRange,
    from: DeviceAddress,
    stream: CUstream,
    context: u64,
    thread: u16,
    since: Instant,
    /// The client's call that made it.
    call: u32,
    /// Which of the client's commands it is.
    number: u64,
}

/// A small copy just made, by what a wait for it would say.
type SmallCopy = (u64, u16, u64);

/// How long a small copy is held. The wait is sent within half a microsecond, where it is sent.
const HELD_MAX: Duration = Duration::from_micros(2);
/// Small copies are held while at least two of the last three or so were waited for.
const HABIT_MAX: u8 = 3;

/// A stream with work since it was last seen idle.
#[derive(Clone, Copy)]
struct Busy {
    /// The last command that named it.
    last: u64,
    /// Whether there was anything but kernels and copies to the device: what those write to host memory is there when
    /// later work of the stream starts, but one copy out of the device may overtake another.
    mixed: bool,
}

/// Calls that wait. A client has no more threads than this, and each waits for one call or for a few pieces of one.
const PARKED_MAX: usize = 2 * THREADS_MAX as usize;
/// Of these, answered together: each answer may have 128 KiB.
const OVER_MAX: usize = 64;
/// Slots of pinned memory for small copies that are under way, half a record each: 128 MiB.
const SCRATCH_MAX: usize = 1024;
/// Copies into the heap that a mirrored client has not been told of, and ranges lent to copies.
const RANGES_MAX: usize = 64 << 10;
/// Contexts and threads with an error that nobody has been told of. Later ones are those of the same cause.
const LATCHED_MAX: usize = THREADS_MAX as usize;

type BusyStreams = FxHashMap<u64, FxHashMap<usize, Busy>>;

fn seen_idle(busy: &mut BusyStreams, context: u64, stream: CUstream) {
    if let Some(busy) = busy.get_mut(&context).and_then(|all| all.get_mut(&(stream as usize))) {
        busy.mixed = false;
    }
}

/// Whether the copies of a command have finished, for the executor, which may ask the driver.
fn is_done(driver: &Driver, pending: &Pending) -> bool {
    // SAFETY: an event this session owns.
    pending.event.is_some_and(|(_, event)| unsafe { driver.cuEventQuery(event) } != CUDA_ERROR_NOT_READY)
}

type Finish = Box<dyn FnOnce(&mut Session, CUresult, &mut Vec<u8>) -> CUresult>;

struct Parked {
    header: Header,
    wait: Wait,
    /// Runs once the wait is over, with its result; writes the reply's body and gives the final result.
    finish: Finish,
}

/// Streams, each with its context, in whose order memory of pools may have been freed since the driver was last asked
/// to wait for them. What a pool holds beyond its threshold it gives back in such a wait; a query that finds the stream
/// idle is none.
#[derive(Default)]
struct Freed {
    /// Whether the session has taken memory from a pool at all.
    uses_pools: bool,
    streams: HashSet<(u64, usize)>,
}

/// Events behind everything that was queued at some time. See [`Session::fence`].
pub struct Fence {
    events: Vec<SpareEvent>,
}

/// A range of the heap that the client has lent. Dropped, it is the client's again, so no failure can lose one.
pub struct Lent {
    range: Option<HeapRange>,
    events: Arc<Events>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(range) = self.range.take() {
            send_released(&self.events, &[range]);
        }
    }
}

fn send_released(events: &Events, ranges: &[HeapRange]) {
    let mut body = Vec::new();
    body.word(ranges.len() as u64);
    for range in ranges {
        range.put(&mut body);
    }
    events.send(op::HEAP_RELEASED, (0, 0), &body);
}

#[derive(Clone, Copy)]
struct Entry {
    /// Generation plus one; 0 while empty.
    generation: u32,
    pointer: *mut c_void,
    /// The context that the object ends with; 0 for none.
    context: u64,
}

impl Entry {
    const EMPTY: Entry = Entry { generation: 0, pointer: ptr::null_mut(), context: 0 };
}

/// What CUDA ends together with a context. Contexts of green ones count as their device's primary one.
const IN_CONTEXTS: [Kind; 6] =
    [Kind::Module, Kind::Stream, Kind::Event, Kind::Array, Kind::MipmappedArray, Kind::LinkState];

pub struct Session {
    pub driver: &'static Driver,
    /// Devices granted to the session; what `CUdevice` means to the driver, by the application's ordinal.
    pub devices: Vec<CUdevice>,
    pub granted: Vec<CUdevice>,
    /// The heap at the client's own address.
    pub heap: Heap,
    pub memory: Memory,
    pub addresses: Addresses,
    staging: u64,
    staging_bytes: u64,
    /// Ranges of the heap have to be announced to the client (TCP).
    pub mirrored: bool,
    /// Of a mirrored client: what has come to the heap, and everything that tells of it.
    pub arrivals: Option<Shared>,
    words: Words,
    /// The last command that will be settled when its work is done.
    noted: u64,
    pub replies: Replies,
    pub events: Arc<Events>,
    pub output: Arc<Output>,
    pub callbacks: Arc<Callbacks>,
    pub helpers: Helpers,
    /// Images of loaded modules and libraries, which the driver may refer to while they are loaded.
    pub images: HashMap<u64, Arc<crate::worker::image::Image>>,
    /// Modules and libraries to unload once the device is idle.
    pub retired: Vec<crate::worker::hand::module::Retired>,
    /// Which of the function handles are `CUkernel`.
    pub kernels: HashSet<usize>,
    /// Kernel nodes' and other objects' facts that hand modules keep, by handle.
    pub graph_nodes: crate::worker::hand::graph::State,
    pub host_memory: crate::worker::hand::host_memory::State,
    pub in_step: crate::worker::hand::in_step::InStep,
    pub links: crate::worker::hand::link::Links,
    pub green: crate::worker::hand::green_context::State,
    tables: Vec<Vec<Entry>>,
    /// What ends with a module, a library or an array: functions, modules, levels.
    inside: FxHashMap<u64, Vec<(Kind, u64)>>,
    /// Reverse of the node, graph and similar tables: queries return the driver's handles.
    names: HashMap<(u8, usize), u64>,
    primary: HashMap<u32, CUcontext>,
    /// The context current on the executor thread, as the client names it.
    current: u64,
    thread_streams: FxHashMap<(u64, u16), CUstream>,
    /// The context that each stream of the application's was made in.
    stream_homes: FxHashMap<usize, u64>,
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
    orphaned: Vec<SpareEvent>,
    /// When a fence was last refused, counted in commands.
    fence_refused_at: u64,
    /// What the client lent to copies that may still be reading it, until the event.
    lent: VecDeque<(SpareEvent, Lent)>,
    /// Events without timing, by the context they belong to.
    spare_events: HashMap<u64, Vec<CUevent>>,
    spare_scratch: Vec<*mut u8>,
    /// Slots that copies use now.
    scratch_used: usize,
    pub captures: crate::worker::hand::stream::Captures,
    /// Commands executed; for the stats page and tests.
    pub executed: AtomicU64,
    reply: Vec<u8>,
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

/// Calls that answer with the error of an earlier posted command. Not those that create something: the client
/// would take the object for refused while it exists here.
fn reports_earlier(op: u16) -> bool {
    matches!(
        op,
        op::PING
            | op::COPY_IN
            | op::COPY_IN_INLINE
            | op::COPY_OUT
            | op::COPY_OUT_INLINE
            | op::COPY_3D
            | ops::CU_STREAM_SYNCHRONIZE
            | ops::CU_EVENT_SYNCHRONIZE
            | ops::CU_CTX_SYNCHRONIZE
            | ops::CU_STREAM_QUERY
            | ops::CU_EVENT_QUERY
            | ops::CU_MEM_FREE_V2
            | ops::CU_LAUNCH_KERNEL
            | ops::CU_STREAM_END_CAPTURE
    )
}

/// What a session is made of.
pub struct Parts {
    pub driver: &'static Driver,
    pub granted: Vec<CUdevice>,
    /// Primary contexts that the warm worker holds already, by ordinal.
    pub primary: HashMap<u32, CUcontext>,
    pub heap: Heap,
    pub memory: Memory,
    /// Where the first `staging_bytes` of the heap are registered with the driver.
    pub staging: u64,
    pub staging_bytes: u64,
    /// Of a client that has a copy of its own of the heap.
    pub arrivals: Option<Shared>,
    pub replies: Replies,
    pub events: Arc<Events>,
    pub ahead: Lookahead,
    pub output: Arc<Output>,
    pub profiler: cupti::Source,
}

impl Session {
    pub fn new(parts: Parts) -> Session {
        let Parts { driver, granted, primary, heap, memory, .. } = parts;
        let Parts { staging, staging_bytes, arrivals, replies, events, ahead, output, profiler, .. } = parts;
        Session {
            driver,
            devices: granted.clone(),
            granted: granted.clone(),
            heap,
            memory,
            addresses: Addresses::default(),
            staging,
            staging_bytes,
            mirrored: arrivals.is_some(),
            words: Words::default(),
            noted: 0,
            replies,
            callbacks: Callbacks::new(events.clone(), ahead, arrivals.clone().map(|arrivals| (arrivals, heap))),
            in_step: InStep::new(arrivals.clone()),
            arrivals,
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
            tables: vec![Vec::new(); KIND_MAX as usize + 1],
            inside: FxHashMap::default(),
            names: HashMap::new(),
            primary,
            current: 0,
            thread_streams: FxHashMap::default(),
            stream_homes: FxHashMap::default(),
            busy_streams: FxHashMap::default(),
            held: None,
            small_copy: None,
            landing: false,
            habit: HABIT_MAX,
            prints: Prints::new(driver, &granted),
            freed: Freed::default(),
            latched: Vec::new(),
            parked: Vec::new(),
            orphaned: Vec::new(),
            fence_refused_at: u64::MAX,
            lent: VecDeque::new(),
            spare_events: HashMap::new(),
            spare_scratch: Vec::new(),
            scratch_used: 0,
            captures: Default::default(),
            executed: AtomicU64::new(0),
            reply: Vec::new(),
            threads: 0,
            recording: false,
            profiler,
            calls: Vec::new(),
            call: 0,
        }
    }

    /// Whether more than one thread of the client has sent commands.
    pub fn several_threads(&self) -> bool {
        self.threads > 1
    }

    /// Executes one command whose body was copied out of the ring.
    pub fn execute(&mut self, header: &Header, body: &[u8]) -> Result<(), Fault> {
        match self.recording {
            false => self.execute_one(header, body),
            true => self.execute_recorded(header, body),
        }
    }

    /// As without a profiler, and what the command makes the driver do belongs to the call that its thread has named.
    #[cold]
    fn execute_recorded(&mut self, header: &Header, body: &[u8]) -> Result<(), Fault> {
        if header.op < op::HAND_FIRST {
            return self.execute_one(header, body);
        }
        self.call = self.calls.get(header.thread as usize).copied().unwrap_or(0);
        let outcome = cupti::on_behalf_of(self.call, || self.execute_one(header, body));
        self.call = 0;
        outcome
    }

    pub fn start_recording(&mut self) {
        self.recording = true;
    }

    /// Calls named so far say nothing about what comes after.
    pub fn stop_recording(&mut self) {
        self.recording = false;
        self.calls.clear();
    }

    /// What this thread of the client sends from now on belongs to its call `id`.
    pub fn name_call(&mut self, thread: u16, id: u32) {
        let thread = thread as usize;
        if thread >= self.calls.len() {
            self.calls.resize(thread + 1, 0);
        }
        self.calls[thread] = id;
    }

    // Twice in the code rather than called: this is the way of every command.
    #[inline(always)]
    fn execute_one(&mut self, header: &Header, body: &[u8]) -> Result<(), Fault> {
        let executed = self.executed.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_step.note(header, executed);
        // What the client's own thread changes in mapped memory is not another thread's work.
        if header.op != op::HEAP_PATCH {
            self.threads = self.threads.max(header.thread + 1);
        }
        if (self.small_copy.is_some() | self.landing)
            && header.op >= op::HAND_FIRST
            && self.follows_small_copy(header, body)?
        {
            return Ok(());
        }
        let mut reply = std::mem::take(&mut self.reply);
        reply.clear();
        // What concerns no context must not change the current one, nor fail because there is none.
        let concerns = header.op >= op::HAND_FIRST;
        self.captures.prepare(self.driver, header.thread);
        let outcome = match if concerns { self.make_current(header.context) } else { Ok(()) } {
            Ok(()) => crate::worker::hand::dispatch(self, header, body, &mut reply),
            Err(code) => crate::worker::hand::abandon(self, header, body).map(|()| Outcome::Done(code)),
        };
        let result = match outcome {
            Ok(Outcome::Done(result)) => self.answer(header, result, &reply),
            Ok(Outcome::Parked) => Ok(()),
            Err(fault) => Err(fault),
        };
        self.reply = reply;
        result
    }

    /// Sends the reply of a call, or keeps the error of a posted command for a later call.
    fn answer(&mut self, header: &Header, result: CUresult, body: &[u8]) -> Result<(), Fault> {
        if header.sequence == 0 {
            if result != CUDA_SUCCESS {
                log::debug(&format!("posted command {:#x} failed with {result}", header.op));
                self.latch(header.context, header.thread, result);
            }
            return self.settle_unless_noted(header.op, result);
        }
        self.send_logs(header)?;
        let mut result = result;
        if result == CUDA_SUCCESS
            && reports_earlier(header.op)
            && let Some(earlier) = self.take_latched(header)
        {
            result = earlier;
        }
        // What the driver wrote about an error is the application's to read before its call returns.
        let events = if matches!(result, CUDA_SUCCESS | CUDA_ERROR_NOT_READY) { 0 } else { self.flush_output(result) };
        self.replies.send(header, result, events, body)
    }

    /// A client that has its own copy of the heap hears the end of every posted command that may bring bytes there:
    /// also of one that failed, and of one that only was captured. Of a copy from the heap it hears if it asked to.
    fn settle_unless_noted(&mut self, op: u16, result: CUresult) -> Result<(), Fault> {
        let brings = match op {
            op::COPY_OUT | op::COPY_3D | ops::CU_GRAPH_LAUNCH => true,
            op::COPY_IN => result != CUDA_SUCCESS,
            _ => false,
        };
        let number = self.number();
        match &self.arrivals {
            Some(arrivals) if brings && self.noted != number => arrivals::lock(arrivals).settled(number),
            _ => Ok(()),
        }
    }

    /// Which of the client's commands is being executed; the client counts the same ones.
    pub fn number(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    fn latch(&mut self, context: u64, thread: u16, code: CUresult) {
        let is_new = || !self.latched.iter().any(|l| (l.0, l.1) == (context, thread));
        if self.latched.len() < LATCHED_MAX && is_new() {
            self.latched.push((context, thread, code));
        }
    }

    /// The failure that a call reports: of a command of its own thread, or of any in its context, lest it is lost.
    /// While a capture is open every thread asks for its own at once, and nobody may take it from under it.
    fn take_latched(&mut self, header: &Header) -> Option<CUresult> {
        let own = self.latched.iter().position(|l| (l.0, l.1) == (header.context, header.thread));
        let others = || self.latched.iter().position(|l| l.0 == header.context && !self.captures.open());
        let at = own.or_else(others)?;
        Some(self.latched.remove(at).2)
    }

    /// What the driver logged goes to the client ahead of a reply: where a call failed, it is about that call.
    #[inline]
    fn send_logs(&mut self, header: &Header) -> Result<(), Fault> {
        if driver_log::is_empty() {
            return Ok(());
        }
        for (level, text) in driver_log::take() {
            self.replies.log(header, level, &text)?;
        }
        Ok(())
    }

    /// Makes the client's context current on the executor thread.
    pub fn make_current(&mut self, context: u64) -> Result<(), CUresult> {
        if self.current == context {
            return Ok(());
        }
        let pointer = self.context(context)?;
        // SAFETY: null or a context this session owns.
        match unsafe { self.driver.cuCtxSetCurrent(pointer) } {
            CUDA_SUCCESS => {
                self.current = context;
                Ok(())
            }
            code => Err(code),
        }
    }

    /// Forgets which context is current, after something that changed it behind our back.
    pub fn forget_current(&mut self) {
        self.current = u64::MAX;
    }

    /// The driver's context for a handle; primary contexts are retained at first use.
    pub fn context(&mut self, word: u64) -> Result<CUcontext, CUresult> {
        if word == 0 {
            return Ok(ptr::null_mut());
        }
        let handle = Handle(word);
        if !handle.is(Kind::Context) {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if handle.index() >= PRIMARY_CONTEXTS_MAX {
            return self.lookup(Kind::Context, word).map(|p| p.cast()).ok_or(CUDA_ERROR_INVALID_CONTEXT);
        }
        if let Some(p) = self.primary.get(&handle.index()) {
            return Ok(*p);
        }
        let device = self.device(handle.index() as i32)?;
        let mut context = ptr::null_mut();
        // SAFETY: a device of this session and a valid out pointer.
        match unsafe { self.driver.cuDevicePrimaryCtxRetain(&mut context, device) } {
            CUDA_SUCCESS => {
                self.primary.insert(handle.index(), context);
                Ok(context)
            }
            code => Err(code),
        }
    }

    /// Drops everything known of a context that is gone or was reset.
    pub fn context_gone(&mut self, word: u64) {
        self.forget_context(word);
        self.addresses.context_gone(word);
        self.unbind_all_in(word);
        // They went with their context.
        self.retired.retain(|r| r.context != word);
        if Handle(word).index() < PRIMARY_CONTEXTS_MAX {
            self.primary.remove(&Handle(word).index());
            // What was registered with or allocated in a primary context goes with it. Staging works on from
            // the heap itself, unregistered.
            self.spare_scratch.clear();
            self.words.forget();
            self.staging_bytes = 0;
        }
    }

    /// Drops what is kept by context: streams, events and copies under way.
    pub fn forget_context(&mut self, word: u64) {
        self.thread_streams.retain(|(context, _), _| *context != word);
        self.stream_homes.retain(|_, context| *context != word);
        self.busy_streams.remove(&word);
        self.latched.retain(|l| l.0 != word);
        self.spare_events.remove(&word);
        self.settle_context(word);
        self.lent.retain(|((context, _), _)| *context != word);
        self.orphaned.retain(|(context, _)| *context != word);
        if let Some(fence) = self.host_memory.fence() {
            fence.events.retain(|(context, _)| *context != word);
        }
        self.forget_current();
    }

    /// Streams and events that were made for the session itself in a context.
    pub fn own_objects(&self, word: u64) -> (Vec<CUstream>, Vec<CUevent>) {
        let streams =
            self.thread_streams.iter().filter(|((context, _), _)| *context == word).map(|(_, s)| *s).collect();
        (streams, self.spare_events.get(&word).cloned().unwrap_or_default())
    }

    /// The primary context of `ordinal` if this worker holds it.
    pub fn primary(&self, ordinal: u32) -> Option<CUcontext> {
        self.primary.get(&ordinal).copied()
    }

    pub fn device(&self, ordinal: i32) -> Result<CUdevice, CUresult> {
        usize::try_from(ordinal).ok().and_then(|i| self.devices.get(i)).copied().ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// A stream as the calling thread means it: 0 and 1 are the legacy default stream, 2 is the thread's own.
    /// Counts as work on that stream.
    pub fn stream(&mut self, word: u64, thread: u16) -> Result<CUstream, CUresult> {
        let stream = self.plain_stream(word, thread)?;
        self.busy(stream).mixed = true;
        Ok(stream)
    }

    /// As [`Self::stream`], for kernels, copies to the device and waits.
    pub fn plain_stream(&mut self, word: u64, thread: u16) -> Result<CUstream, CUresult> {
        let pointer: CUstream = match word {
            0 | 1 => word as *mut c_void as CUstream,
            2 => self.thread_stream(thread)?,
            _ => match self.lookup(Kind::Stream, word) {
                Some(stream) => stream.cast(),
                None => return Err(self.green.why_no_stream(word)),
            },
        };
        self.busy(pointer).last = self.executed.load(Ordering::Relaxed);
        Ok(pointer)
    }

    /// The context that a stream belongs to. It may be used while another is current, as with several devices it is.
    fn home_of(&self, stream: CUstream) -> u64 {
        let made_in = || self.stream_homes.get(&(stream as usize)).copied();
        self.green.context_of(stream).or_else(made_in).unwrap_or(self.current)
    }

    fn busy(&mut self, stream: CUstream) -> &mut Busy {
        let context = self.home_of(stream);
        let of_context = self.busy_streams.entry(context).or_default();
        of_context.entry(stream as usize).or_insert(Busy { last: 0, mixed: false })
    }

    /// Memory was taken from a pool.
    pub fn note_pools(&mut self) {
        self.freed.uses_pools = true;
    }

    /// A stream was given work that may free memory of a pool.
    pub fn note_free(&mut self, stream: CUstream) {
        if self.freed.uses_pools {
            self.freed.streams.insert((self.home_of(stream), stream as usize));
        }
    }

    /// The driver itself has waited for all of a context.
    pub fn context_synchronized(&mut self, context: u64) {
        self.freed.streams.retain(|(of, _)| *of != context);
    }

    /// As [`Self::flush_output`], of an event that was seen to have happened.
    pub fn flush_output_of_event(&mut self, event: CUevent, code: CUresult) -> (CUresult, u64) {
        let mut code = code;
        if code == CUDA_SUCCESS && !self.freed.streams.is_empty() {
            // SAFETY: an event of this session. Another thread of the client may have recorded it again, and that is
            // not waited for.
            code = unsafe {
                match self.driver.cuEventQuery(event) {
                    CUDA_SUCCESS => self.driver.cuEventSynchronize(event),
                    CUDA_ERROR_NOT_READY => CUDA_SUCCESS,
                    code => code,
                }
            };
        }
        (code, self.flush_output(code))
    }

    /// Counts work that is not plain on a stream.
    pub fn mix(&mut self, stream: CUstream) {
        self.busy(stream).mixed = true;
    }

    /// Whether one number copied out of the device tells by its arrival that all earlier work of the stream is done,
    /// and nothing has to be printed before the client hears of it.
    pub fn may_watch(&mut self, stream: CUstream) -> bool {
        !self.captures.open() && !self.prints.possible() && self.freed.streams.is_empty() && !self.busy(stream).mixed
    }

    /// A small copy into pinned memory; true if it is held for the command behind it.
    pub fn hold(
        &mut self,
        header: &Header,
        to: HeapRange,
        from: DeviceAddress,
        stream: CUstream,
        stream_word: u64,
    ) -> bool {
        if header.sequence != 0 || !Landing::suits(from, to.bytes) || !self.may_watch(stream) {
            return false;
        }
        self.small_copy = Some((header.context, header.thread, stream_word));
        if self.habit < 2 {
            return false;
        }
        let (context, thread) = (header.context, header.thread);
        let (since, call, number) = (Instant::now(), self.call, self.number());
        self.held = Some(Held { to, from, stream, context, thread, since, call, number });
        self.noted = number;
        true
    }

    /// Whether a copy is held; one that was held too long is let go.
    pub fn holds(&mut self) -> bool {
        if let Some(held) = &self.held
            && held.since.elapsed() >= HELD_MAX
        {
            self.habit = self.habit.saturating_sub(1);
            self.small_copy = None;
            self.let_go();
        }
        self.held.is_some()
    }

    /// The command behind a small copy has come; true if it is dealt with.
    #[cold]
    fn follows_small_copy(&mut self, header: &Header, body: &[u8]) -> Result<bool, Fault> {
        self.copy_after_all();
        let Some(copied) = self.small_copy.take() else { return Ok(false) };
        let word = body.first_chunk::<8>().map_or(u64::MAX, |b| u64::from_le_bytes(*b));
        let waits = header.op == ops::CU_STREAM_SYNCHRONIZE && copied == (header.context, header.thread, word);
        self.habit = if waits { (self.habit + 1).min(HABIT_MAX) } else { self.habit.saturating_sub(1) };
        if !waits {
            self.let_go();
            return Ok(false);
        }
        let Some(held) = self.held.take() else { return Ok(false) };
        let watch = |s: &mut Session| s.watch(held.from, held.to.bytes as usize, held.stream);
        match self.make_current(held.context).and_then(|()| self.on_behalf_of(held.call, watch)) {
            Ok(mut landing) => {
                let slot = landing.slot.cast_mut();
                let Held { to, from, context, thread, number, .. } = held;
                landing.target = Some(Target { to, from, context, thread, number });
                self.landing = true;
                self.park(header, Wait::Landing(landing), move |s, code, reply| {
                    s.return_scratch(slot);
                    reply.word(s.flush_output(code));
                    code
                });
            }
            Err(code) => {
                self.settle(held.number);
                self.answer(header, code, &[])?;
            }
        }
        Ok(true)
    }

    /// Another command has come while a number lands that is meant for the heap, from another thread. That thread may
    /// learn by other means that the copy is done, and look. So the copy is made as any other, behind the one that is
    /// watched and ahead of the command.
    #[cold]
    fn copy_after_all(&mut self) {
        self.landing = false;
        let mut copies = Vec::new();
        for parked in &mut self.parked {
            if let Wait::Landing(Landing { target: Some(target), stream, .. }) = parked.wait {
                copies.push((target, stream));
                parked.wait = Wait::Streams(vec![stream]);
            }
        }
        for (Target { to, from, context, thread, number }, stream) in copies {
            let (since, call) = (Instant::now(), self.call);
            self.copy_held(Held { to, from, stream, context, thread, since, call, number });
        }
    }

    /// A number has landed: it goes where the client wanted it.
    fn land(&mut self, landing: &Landing, code: CUresult) {
        let Some(Target { to, number, .. }) = landing.target else { return };
        self.landing = false;
        if let (CUDA_SUCCESS, Some(at)) = (code, self.heap.at(to.offset, to.bytes)) {
            // SAFETY: the slot has the bytes, and the range lies inside the heap.
            unsafe { ptr::copy_nonoverlapping(landing.slot, at, to.bytes as usize) };
            self.announce(to);
        }
        self.settle(number);
    }

    /// Copies one number to where its arrival can be seen.
    pub fn watch(&mut self, from: DeviceAddress, bytes: usize, stream: CUstream) -> Result<Landing, CUresult> {
        let slot = self.scratch()?;
        // SAFETY: scratch memory is the driver's, page-aligned, and ours alone.
        let landing = unsafe { Landing::prepare(slot, bytes, stream) };
        // SAFETY: a stream of this session; the slot has room.
        match unsafe { self.driver.cuMemcpyDtoHAsync_v2(slot.cast(), from.raw(), bytes, stream) } {
            CUDA_SUCCESS => Ok(landing),
            code => {
                self.return_scratch(slot);
                Err(code)
            }
        }
    }

    /// Does something now for an earlier call of the client's.
    fn on_behalf_of<T>(&mut self, call: u32, work: impl FnOnce(&mut Session) -> T) -> T {
        match self.recording {
            false => work(self),
            true => cupti::on_behalf_of(call, || work(self)),
        }
    }

    /// Makes the copy that is held, as any other posted one.
    fn let_go(&mut self) {
        if let Some(held) = self.held.take() {
            self.copy_held(held);
        }
    }

    fn copy_held(&mut self, held: Held) {
        let code = self.make_current(held.context).and_then(|()| {
            let to = self.heap.at(held.to.offset, held.to.bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            self.busy(held.stream).mixed = true;
            let code = self.on_behalf_of(held.call, |s| {
                // SAFETY: the range was checked when the copy came; a stream of this session.
                unsafe {
                    s.driver.cuMemcpyDtoHAsync_v2(to.cast(), held.from.raw(), held.to.bytes as usize, held.stream)
                }
            });
            match code {
                CUDA_SUCCESS => match self.note_heap_copy(held.number, vec![held.to], held.stream) {
                    CUDA_SUCCESS => Ok(()),
                    code => Err(code),
                },
                code => Err(code),
            }
        });
        if let Err(code) = code {
            self.settle(held.number);
            log::debug(&format!("posted copy out of the device failed with {code}"));
            self.latch(held.context, held.thread, code);
        }
    }

    /// The real per-thread default stream belongs to the worker's thread; each client thread gets a stream of
    /// its own that synchronises with the legacy stream as that one does.
    fn thread_stream(&mut self, thread: u16) -> Result<CUstream, CUresult> {
        let key = (self.current, thread);
        if let Some(stream) = self.thread_streams.get(&key) {
            return Ok(*stream);
        }
        let mut stream = ptr::null_mut();
        let relaxed = self.captures.relax(self.driver, thread);
        // SAFETY: a valid out pointer; the context is current.
        let code = unsafe { self.driver.cuStreamCreate(&mut stream, CU_STREAM_DEFAULT) };
        self.captures.restore(self.driver, relaxed);
        match code {
            CUDA_SUCCESS => {
                self.thread_streams.insert(key, stream);
                Ok(stream)
            }
            code => Err(code),
        }
    }

    fn lookup(&self, kind: Kind, word: u64) -> Option<*mut c_void> {
        let handle = Handle(word);
        if !handle.is(kind) {
            return None;
        }
        let entry = self.tables[kind as usize].get(handle.index() as usize)?;
        (entry.generation == handle.generation() as u32 + 1).then_some(entry.pointer)
    }

    /// The driver's handle; 0 is null.
    pub fn handle(&mut self, kind: Kind, word: u64) -> Result<*mut c_void, CUresult> {
        match (kind, word) {
            (_, 0) => Ok(ptr::null_mut()),
            (Kind::Context, _) => self.context(word).map(|p| p.cast()),
            _ => self.lookup(kind, word).ok_or(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Gives a client-chosen handle its meaning.
    pub fn bind(&mut self, kind: Kind, word: u64, pointer: *mut c_void) -> Result<(), Fault> {
        let handle = Handle(word);
        if !handle.is(kind) {
            return Err(Fault("new handle of the wrong kind"));
        }
        let context = if IN_CONTEXTS.contains(&kind) { self.green.home(self.current) } else { 0 };
        let (index, table) = (handle.index() as usize, &mut self.tables[kind as usize]);
        // The client takes indices in order, so a table can grow only as fast as objects are made.
        if index >= table.len() {
            if index > table.len() + (1 << 16) || index as u32 > INDEX_MAX {
                return Err(Fault("new handle far beyond those in use"));
            }
            table.resize(index + 1, Entry::EMPTY);
        }
        let generation = handle.generation() as u32 + 1;
        match table[index].generation {
            0 => {}
            known if known == generation => return Err(Fault("new handle is in use")),
            // The client gave it up without a word: a call that was to find the object's name failed after it had.
            known => self.unbind(kind, Handle::new(kind, (known - 1) as u16, index as u32).0),
        }
        self.tables[kind as usize][index] = Entry { generation, pointer, context };
        self.names.insert((kind as u8, pointer as usize), word);
        if kind == Kind::Stream {
            self.stream_homes.insert(pointer as usize, self.current);
            self.green.stream_made(self.driver, word, pointer.cast());
        }
        Ok(())
    }

    /// The context that an object ends with, if it was made in one.
    pub fn context_of(&self, kind: Kind, word: u64) -> u64 {
        let entry = self.tables[kind as usize].get(Handle(word).index() as usize);
        entry.map_or(0, |entry| entry.context)
    }

    /// As [`Self::bind`], for what lives in `owner` and ends with it.
    pub fn bind_inside(&mut self, owner: u64, kind: Kind, word: u64, pointer: *mut c_void) -> Result<(), Fault> {
        self.bind(kind, word, pointer)?;
        self.inside.entry(owner).or_default().push((kind, word));
        Ok(())
    }

    /// Forgets a handle, and those of what lives in its object: the client may give them to other objects from now on.
    pub fn unbind(&mut self, kind: Kind, word: u64) {
        let Some(pointer) = self.lookup(kind, word) else { return };
        self.tables[kind as usize][Handle(word).index() as usize] = Entry::EMPTY;
        // Two handles of one object: the other one is still its name.
        if self.names.get(&(kind as u8, pointer as usize)) == Some(&word) {
            self.names.remove(&(kind as u8, pointer as usize));
        }
        match kind {
            Kind::Function => _ = self.kernels.remove(&(pointer as usize)),
            Kind::LinkState => _ = self.links.remove(&word),
            Kind::Module | Kind::Library => _ = self.images.remove(&word),
            _ => {}
        }
        for (kind, word) in self.inside.remove(&word).unwrap_or_default() {
            self.unbind(kind, word);
        }
    }

    /// A context has ended, and all that was made in it.
    fn unbind_all_in(&mut self, context: u64) {
        for kind in IN_CONTEXTS {
            for index in 0..self.tables[kind as usize].len() {
                let entry = self.tables[kind as usize][index];
                if entry.generation != 0 && entry.context == context {
                    self.unbind(kind, Handle::new(kind, (entry.generation - 1) as u16, index as u32).0);
                }
            }
        }
    }

    /// The client's name for one of the driver's handles, if it has one.
    pub fn name_of(&self, kind: Kind, pointer: *mut c_void) -> Option<u64> {
        self.names.get(&(kind as u8, pointer as usize)).copied()
    }

    /// Where the driver knows a shared host address: staging memory is registered at an address of our own.
    pub fn registered(&self, address: u64) -> u64 {
        let offset = address.wrapping_sub(self.heap.base() as u64);
        if offset < self.staging_bytes { self.staging + offset } else { address }
    }

    /// Address of a checked heap range in this process.
    pub fn heap_pointer(&self, range: HeapRange) -> Result<*mut u8, Fault> {
        self.heap.at(range.offset, range.bytes).ok_or(Fault("range outside the session's host heap"))
    }

    /// Parks the current command until `wait` is over.
    pub fn park(
        &mut self,
        header: &Header,
        wait: Wait,
        finish: impl FnOnce(&mut Session, CUresult, &mut Vec<u8>) -> CUresult + 'static,
    ) -> Outcome {
        self.parked.push(Parked { header: *header, wait, finish: Box::new(finish) });
        Outcome::Parked
    }

    /// Runs a blocking driver call on a helper thread, in the current context, and parks the command.
    pub fn park_blocking(
        &mut self,
        header: &Header,
        job: impl FnOnce(&'static Driver) -> CUresult + Send + 'static,
        finish: impl FnOnce(&mut Session, CUresult, &mut Vec<u8>) -> CUresult + 'static,
    ) -> Result<Outcome, Fault> {
        // A green context may be current to one thread only, and is to the executor's; what blocks concerns memory and
        // modules, which it shares with the primary one.
        let context = match self.context(self.green.home(header.context)) {
            Ok(c) => c,
            Err(code) => return Ok(Outcome::Done(code)),
        };
        if self.captures.forbids(header.thread) {
            // Refused at once, and only on the thread that captures.
            let mut body = Vec::new();
            let result = job(self.driver);
            return Ok(Outcome::Done(finish(self, result, &mut body)));
        }
        let job = match (self.recording, self.call) {
            (false, _) => self.helpers.run(context, job),
            (true, call) => self.helpers.run(context, move |driver| cupti::on_behalf_of(call, || job(driver))),
        };
        Ok(self.park(header, Wait::Job(job), finish))
    }

    /// Whether the session holds as much as it may. Until some of it is done no further command is taken, which holds
    /// up the client that sent so much and nobody else.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.parked.len() >= PARKED_MAX
            || self.scratch_used >= SCRATCH_MAX
            || self.lent.len() >= RANGES_MAX
            || self.arrivals.as_ref().is_some_and(|arrivals| arrivals::lock(arrivals).pending.len() >= RANGES_MAX)
    }

    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Completes what can be completed; true if anything was.
    pub fn poll_parked(&mut self) -> Result<bool, Fault> {
        // Mapped memory is compared once for all that are over.
        let mut over = Vec::new();
        let mut i = 0;
        while i < self.parked.len() && over.len() < OVER_MAX {
            let (context, thread) = (self.parked[i].header.context, self.parked[i].header.thread);
            let result = match self.make_current(context) {
                Ok(()) => self.poll_one(i, thread),
                Err(code) => Some(code),
            };
            let Some(result) = result else {
                i += 1;
                continue;
            };
            // Order among the rest does not matter: each has its own thread or its own sequence.
            over.push((self.parked.swap_remove(i), result));
        }
        if over.is_empty() {
            return Ok(false);
        }
        let mut answers = Vec::with_capacity(over.len());
        for (parked, result) in over {
            if let Wait::Landing(landing) = &parked.wait {
                self.land(landing, result);
            }
            // If it cannot be made so, that is the result already.
            let _ = self.make_current(parked.header.context);
            let mut body = Vec::new();
            let result = (parked.finish)(self, result, &mut body);
            answers.push((parked.header, result, body));
        }
        self.flush_ranges()?;
        for (header, result, body) in answers {
            self.answer(&header, result, &body)?;
        }
        Ok(true)
    }

    fn poll_one(&mut self, i: usize, thread: u16) -> Option<CUresult> {
        let relaxed = self.captures.relax(self.driver, thread);
        let result = match &mut self.parked[i].wait {
            Wait::Job(job) => job.result(),
            Wait::Copies(range) => {
                let range = *range;
                let under_way = self.arrivals.as_ref().is_some_and(|arrivals| {
                    let writes = |p: &&Pending| p.ranges.iter().any(|r| r.overlaps(range));
                    arrivals::lock(arrivals).pending.iter().filter(writes).any(|p| !is_done(self.driver, p))
                });
                (!under_way).then_some(CUDA_SUCCESS)
            }
            Wait::Event(event) => {
                // SAFETY: an event this session owns.
                match unsafe { self.driver.cuEventQuery(*event) } {
                    CUDA_ERROR_NOT_READY => None,
                    code => Some(code),
                }
            }
            Wait::Landing(landing) => {
                landing.looks += 1;
                // A profiler has the copy's record when the stream is idle, and may be asked for it next.
                if !self.recording && landing.has_landed() {
                    Some(CUDA_SUCCESS)
                } else if self.recording || landing.looks.is_multiple_of(32) {
                    // SAFETY: a stream of this session.
                    match unsafe { self.driver.cuStreamQuery(landing.stream) } {
                        CUDA_ERROR_NOT_READY => None,
                        code => Some(code),
                    }
                } else {
                    None
                }
            }
            Wait::Everywhere(_) | Wait::Then(..) => self.poll_everywhere(i),
            Wait::Streams(streams) => loop {
                let Some(stream) = streams.last() else { break Some(CUDA_SUCCESS) };
                // SAFETY: streams this session owns, or a default stream of the current context.
                match unsafe { self.driver.cuStreamQuery(*stream) } {
                    CUDA_SUCCESS => {
                        seen_idle(&mut self.busy_streams, self.current, *stream);
                        streams.pop();
                    }
                    CUDA_ERROR_NOT_READY => break None,
                    code => break Some(code),
                }
            },
        };
        self.captures.restore(self.driver, relaxed);
        match (&self.parked[i].wait, result) {
            (Wait::Then(_, call), Some(CUDA_SUCCESS)) => self.call_waiting(i, *call),
            _ => result,
        }
    }

    /// Makes the call now that each stream was seen idle. On a helper thread if it may wait: other threads of the
    /// client can have queued host functions meanwhile, which end when the executor has answered somebody.
    fn call_waiting(&mut self, i: usize, call: Waiting) -> Option<CUresult> {
        let context = self.parked[i].header.context;
        // With a capture open the driver refuses at once.
        let returns = self.captures.open() || self.host_memory.fence().is_none() && self.device_idle();
        if let Err(code) = self.make_current(context) {
            return Some(code);
        }
        if returns {
            let code = call.call(self.driver);
            self.addresses.doubt();
            return Some(code);
        }
        match self.context(self.green.home(context)) {
            Ok(home) => {
                let job = self.helpers.run(home, move |driver| call.call(driver));
                self.parked[i].wait = Wait::Job(job);
                None
            }
            Err(code) => Some(code),
        }
    }

    /// Asks each stream in its own context, and leaves the caller's context current.
    fn poll_everywhere(&mut self, i: usize) -> Option<CUresult> {
        let context = self.parked[i].header.context;
        let result = loop {
            let (Wait::Everywhere(streams) | Wait::Then(streams, _)) = &self.parked[i].wait else {
                break Some(CUDA_SUCCESS);
            };
            let Some((of, stream)) = streams.last().copied() else { break Some(CUDA_SUCCESS) };
            // A context that has gone meanwhile has nothing to wait for.
            if self.make_current(of).is_ok() {
                // SAFETY: a stream this session owns, or a default stream of the current context.
                match unsafe { self.driver.cuStreamQuery(stream) } {
                    CUDA_SUCCESS => seen_idle(&mut self.busy_streams, of, stream),
                    CUDA_ERROR_NOT_READY => break None,
                    code => break Some(code),
                }
            }
            if let Wait::Everywhere(streams) | Wait::Then(streams, _) = &mut self.parked[i].wait {
                streams.pop();
            }
        };
        match self.make_current(context) {
            Ok(()) => result,
            Err(code) => Some(code),
        }
    }

    /// Streams of the current context that may have work, for `cuCtxSynchronize`, and the time to give to
    /// [`Self::streams_idle`].
    pub fn busy_streams(&mut self) -> (Vec<CUstream>, u64) {
        (self.busy_streams_of(self.current), self.executed.load(Ordering::Relaxed))
    }

    /// Streams of any context that may have work.
    pub fn busy_streams_of(&self, context: u64) -> Vec<CUstream> {
        self.busy_streams.get(&context).map_or_else(Vec::new, |b| b.keys().map(|p| *p as CUstream).collect())
    }

    /// All work of the current context up to that time is done.
    pub fn streams_idle(&mut self, until: u64) {
        self.streams_idle_in(self.current, until);
    }

    pub fn streams_idle_in(&mut self, context: u64, until: u64) {
        if let Some(busy) = self.busy_streams.get_mut(&context) {
            busy.retain(|_, busy| busy.last > until);
        }
    }

    /// Nobody else looks as long as nothing is freed, and a program may make and destroy streams without end. The more
    /// are left the more rarely.
    fn forget_orphans_that_are_past(&mut self) {
        const MANY: usize = 64;
        if self.orphaned.len() < MANY || !self.orphaned.len().is_power_of_two() {
            return;
        }
        for event in std::mem::take(&mut self.orphaned) {
            // SAFETY: an event this session owns.
            match unsafe { self.driver.cuEventQuery(event.1) } {
                CUDA_ERROR_NOT_READY => self.orphaned.push(event),
                _ => self.return_event(event),
            }
        }
    }

    /// A stream will be destroyed: nothing may ask about it any more. What it has queued still runs.
    pub fn stream_gone(&mut self, stream: CUstream) {
        self.freed.streams.retain(|(_, one)| *one != stream as usize);
        let is_busy = |busy: &FxHashMap<usize, Busy>| busy.contains_key(&(stream as usize));
        // SAFETY: a stream of this session.
        let runs = || unsafe { self.driver.cuStreamQuery(stream) } == CUDA_ERROR_NOT_READY;
        if !self.captures.open() && self.busy_streams.get(&self.home_of(stream)).is_some_and(is_busy) && runs() {
            self.forget_orphans_that_are_past();
            // One of a broken context takes no event.
            if let Ok(event) = self.record_spare_event(stream) {
                self.orphaned.push(event);
            }
        }
        self.captures.stream_gone(stream);
        self.green.stream_gone(stream);
        self.stream_homes.remove(&(stream as usize));
        for busy in self.busy_streams.values_mut() {
            busy.remove(&(stream as usize));
        }
        for parked in &mut self.parked {
            match &mut parked.wait {
                Wait::Streams(streams) => streams.retain(|s| *s != stream),
                Wait::Everywhere(streams) | Wait::Then(streams, _) => streams.retain(|(_, s)| *s != stream),
                Wait::Landing(landing) if landing.stream == stream => parked.wait = Wait::Streams(Vec::new()),
                Wait::Landing(_) | Wait::Event(_) | Wait::Copies(_) | Wait::Job(_) => {}
            }
        }
    }

    /// Command `number` has queued copies into these ranges on `stream`; a mirrored client gets the bytes once they are
    /// there.
    pub fn note_heap_copy(&mut self, number: u64, ranges: Vec<HeapRange>, stream: CUstream) -> CUresult {
        if !self.mirrored {
            return CUDA_SUCCESS;
        }
        let word = self.word();
        let (word, event) = match self.have_told(word, stream) {
            Ok(told) => told,
            Err(code) => return code,
        };
        self.noted = number;
        if let Some(arrivals) = &self.arrivals {
            let pending = Pending { number, event: Some(event), word, ranges, in_step: Vec::new(), before: None };
            arrivals::lock(arrivals).pending.push(pending);
        }
        CUDA_SUCCESS
    }

    /// As [`Self::note_heap_copy`], of a graph that is about to be launched. Its own host functions may look at what
    /// its copies have brought before it is over; what they may see is told from what was there before.
    pub fn note_graph_copies(&mut self, mut ranges: Vec<HeapRange>) {
        let word = self.word();
        let Some(arrivals) = &self.arrivals else { return };
        // Memory that is kept in step comes with the rest of it, as far as it has changed.
        let mut in_step = ranges.clone();
        in_step.retain(|range| arrivals::lock(arrivals).mirror.covers(*range));
        ranges.retain(|range| !in_step.contains(range));
        let before = self.callbacks.outstanding().then(|| arrivals::snapshot(&self.heap, &ranges));
        let number = self.executed.load(Ordering::Relaxed);
        arrivals::lock(arrivals).pending.push(Pending { number, event: None, word, ranges, in_step, before });
    }

    /// The graph of [`Self::note_graph_copies`] has been launched on `stream`, or could not be.
    pub fn graph_launched(&mut self, launched: bool, stream: CUstream) -> CUresult {
        let (number, Some(arrivals)) = (self.number(), self.arrivals.clone()) else { return CUDA_SUCCESS };
        let find = |a: &mut Arrivals| a.pending.iter().position(|p| p.number == number);
        // It stays in the list meanwhile: the graph may run already.
        let told = launched.then(|| {
            let word = {
                let mut arrivals = arrivals::lock(&arrivals);
                find(&mut arrivals).and_then(|at| arrivals.pending[at].word)
            };
            self.have_told(word, stream)
        });
        let mut arrivals = arrivals::lock(&arrivals);
        let Some(at) = find(&mut arrivals) else {
            // A host function behind the graph was quicker.
            self.noted = number;
            return CUDA_SUCCESS;
        };
        match told {
            Some(Ok((word, event))) => {
                self.noted = number;
                (arrivals.pending[at].word, arrivals.pending[at].event) = (word, Some(event));
                CUDA_SUCCESS
            }
            told => {
                let gone = arrivals.pending.remove(at);
                if let (None, Some(word)) = (&told, gone.word) {
                    self.words.give_back(word);
                }
                told.map_or(CUDA_SUCCESS, |told| told.err().unwrap_or(CUDA_SUCCESS))
            }
        }
    }

    /// A place for the device to say that a copy is done. In the primary context, which outlives all others.
    fn word(&mut self) -> Option<Word> {
        if self.words.has_one() {
            return self.words.take();
        }
        let caller = self.current;
        let primary = Handle::primary_context(0).0;
        if self.make_current(primary).is_err() {
            return None;
        }
        let relaxed = self.captures.relax(self.driver, 0);
        self.words.add_page(self.driver);
        self.captures.restore(self.driver, relaxed);
        // Not if it is not known who was.
        if caller != u64::MAX {
            self.make_current(caller).ok()?;
        }
        self.words.take()
    }

    /// Has the stream tell of what was queued there so far, by a word that it writes and an event.
    fn have_told(&mut self, word: Option<Word>, stream: CUstream) -> Result<(Option<Word>, SpareEvent), CUresult> {
        let mut word = word;
        if let Some(w) = word {
            // SAFETY: a stream of this session, and a word that the driver knows.
            let code = unsafe { self.driver.cuStreamWriteValue32_v2(stream, w.on_device, w.value, 0) };
            if code != CUDA_SUCCESS {
                self.words.refuse();
                word = None;
            }
        }
        Ok((word, self.record_spare_event(stream)?))
    }

    /// An event of the current context, without timing, from the stock.
    fn spare_event(&mut self) -> Result<CUevent, CUresult> {
        if let Some(e) = self.spare_events.entry(self.current).or_default().pop() {
            return Ok(e);
        }
        let mut event = ptr::null_mut();
        // SAFETY: a valid out pointer; a context is current.
        match unsafe { self.driver.cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING) } {
            CUDA_SUCCESS => Ok(event),
            code => Err(code),
        }
    }

    pub fn return_event(&mut self, (context, event): SpareEvent) {
        self.spare_events.entry(context).or_default().push(event);
    }

    /// Announces the heap ranges whose copies have finished, and what kernels changed in mapped host memory. Called
    /// before every reply that tells the client of a completion, so the bytes are there first.
    pub fn flush_ranges(&mut self) -> Result<(), Fault> {
        match self.mirrored {
            true => self.bring(Scope::All).map(drop),
            false => Ok(()),
        }
    }

    /// Brings over what has come by now; how many patches of mapped memory that makes.
    pub fn bring(&mut self, scope: Scope) -> Result<usize, Fault> {
        let Some(arrivals) = &self.arrivals else { return Ok(0) };
        let notice = self.in_step.notice(scope);
        let (patches, spent) = {
            let mut arrivals = arrivals::lock(arrivals);
            let patches = arrivals.bring(&self.heap, scope, notice, |pending| is_done(self.driver, pending))?;
            if scope == Scope::All && patches == 0 {
                arrivals.acknowledge(notice)?;
            }
            (patches, arrivals.take_spent())
        };
        if scope == Scope::All {
            self.in_step.completed();
        }
        self.reuse(spent);
        Ok(patches)
    }

    fn reuse(&mut self, spent: Vec<Pending>) {
        for Pending { event, word, .. } in spent {
            if let Some(event) = event {
                self.return_event(event);
            }
            if let Some(word) = word {
                self.words.put(word);
            }
        }
    }

    /// A client has given a range up, and may use it for something else before the copies into it are seen to be done.
    pub fn forget_heap_copies(&mut self, range: HeapRange) {
        if let Some(arrivals) = &self.arrivals {
            for pending in &mut arrivals::lock(arrivals).pending {
                if pending.ranges.iter().any(|r| r.overlaps(range)) {
                    pending.ranges.retain(|r| !r.overlaps(range));
                    pending.before = None;
                }
            }
        }
    }

    /// A context is gone, and with it its work: what its copies have brought goes over.
    fn settle_context(&mut self, word: u64) {
        let Some(arrivals) = &self.arrivals else { return };
        let mut arrivals = arrivals::lock(arrivals);
        let of_context = |p: &mut Pending| p.event.is_some_and(|(context, _)| context == word);
        let gone: Vec<Pending> = arrivals.pending.extract_if(.., of_context).collect();
        for pending in gone {
            if let Err(fault) = arrivals.settle(&self.heap, pending) {
                log::warn(&format!("heap ranges lost: {fault}"));
            }
        }
        // Their events went with the context.
        for Pending { word, .. } in arrivals.take_spent() {
            if let Some(word) = word {
                self.words.put(word);
            }
        }
    }

    /// Tells a mirrored client of bytes that are there.
    pub fn announce(&mut self, range: HeapRange) {
        if let Some(arrivals) = &self.arrivals
            && let Err(fault) = arrivals::lock(arrivals).announce(&self.heap, range)
        {
            log::warn(&format!("heap range lost: {fault}"));
        }
    }

    /// Tells a mirrored client that one of its commands brings nothing more.
    pub fn settle(&mut self, number: u64) {
        if let Some(arrivals) = &self.arrivals
            && let Err(fault) = arrivals::lock(arrivals).settled(number)
        {
            log::warn(&format!("the end of a copy is lost: {fault}"));
        }
    }

    /// An event after everything queued on `stream` so far: one of the stream's own context, the driver takes no other.
    pub fn record_spare_event(&mut self, stream: CUstream) -> Result<SpareEvent, CUresult> {
        let (home, caller) = (self.home_of(stream), self.current);
        if home != caller {
            self.make_current(home)?;
            let recorded = self.record_spare_event(stream);
            // Not if it is not known who was.
            if caller != u64::MAX {
                self.make_current(caller)?;
            }
            return recorded;
        }
        let event = (home, self.spare_event()?);
        // SAFETY: an event and a stream of one context.
        match unsafe { self.driver.cuEventRecord(event.1, stream) } {
            CUDA_SUCCESS => Ok(event),
            code => {
                self.return_event(event);
                Err(code)
            }
        }
    }

    pub fn is_capturing(&self, stream: CUstream) -> bool {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { self.driver.cuStreamIsCapturing(stream, &mut status) };
        code == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE
    }

    /// The client gets the range back once the work queued on `stream` so far is done.
    pub fn lend_until_done(&mut self, lent: Lent, stream: CUstream) {
        // A context that cannot record an event runs nothing any more either.
        if let Ok(event) = self.record_spare_event(stream) {
            self.lent.push_back((event, lent));
        }
    }

    /// A range that came with a command and is the client's again in the end.
    pub fn lent(&self, range: HeapRange) -> Lent {
        Lent { range: Some(range), events: self.events.clone() }
    }

    pub fn release_all(&mut self, ranges: &[HeapRange]) {
        send_released(&self.events, ranges);
    }

    /// What will have happened once all work queued so far is done; nothing if that cannot be told without changing
    /// what the work does.
    pub fn fence(&mut self) -> Option<Fence> {
        let now = self.executed.load(Ordering::Relaxed);
        // In a stream that is being captured it would become part of the graph. What could not be told a moment ago
        // is not asked again before something has been executed: each time asks every stream.
        if self.captures.open() || self.fence_refused_at == now {
            return None;
        }
        let mut fence = Fence { events: Vec::new() };
        let contexts: Vec<u64> = self.busy_streams.keys().copied().collect();
        for context in contexts {
            if context == 0 || self.make_current(context).is_err() {
                continue;
            }
            let (mut streams, _) = self.busy_streams();
            // SAFETY: streams of this session, or default streams of the current context. After an error nothing runs.
            streams.retain(|s| unsafe { self.driver.cuStreamQuery(*s) } == CUDA_ERROR_NOT_READY);
            if self.would_order(&streams) {
                self.refuse_fence(fence, now);
                return None;
            }
            for stream in streams {
                match self.record_spare_event(stream) {
                    Ok(event) => fence.events.push(event),
                    Err(_) => {
                        self.refuse_fence(fence, now);
                        return None;
                    }
                }
            }
        }
        fence.events.append(&mut self.orphaned);
        Some(fence)
    }

    fn refuse_fence(&mut self, fence: Fence, now: u64) {
        for event in fence.events {
            self.return_event(event);
        }
        self.fence_refused_at = now;
    }

    /// Whether events in these streams of the current context would make work wait that need not: one in the legacy
    /// default stream waits for all blocking streams, which may wait for each other through the host.
    fn would_order(&self, streams: &[CUstream]) -> bool {
        let is_blocking = |stream: &CUstream| {
            let mut flags = CU_STREAM_DEFAULT;
            // SAFETY: a stream of this session and a valid out pointer.
            let code = unsafe { self.driver.cuStreamGetFlags(*stream, &mut flags) };
            code != CUDA_SUCCESS || flags & CU_STREAM_NON_BLOCKING == 0
        };
        let is_legacy = |stream: &CUstream| *stream as usize <= 1;
        streams.iter().any(is_legacy) && streams.iter().any(|s| !is_legacy(s) && is_blocking(s))
    }

    /// Whether all of it is done. It asks for the rest only.
    pub fn is_past(&mut self, fence: &mut Fence) -> bool {
        while let Some(event) = fence.events.last().copied() {
            // SAFETY: an event this session owns.
            if unsafe { self.driver.cuEventQuery(event.1) } == CUDA_ERROR_NOT_READY {
                return false;
            }
            fence.events.pop();
            self.return_event(event);
        }
        true
    }

    /// Whether every stream that had work, in every context, has none now.
    pub fn device_idle(&mut self) -> bool {
        // Asking a stream that is being captured would end its capture.
        if self.captures.open() {
            return false;
        }
        let mut orphaned = Fence { events: std::mem::take(&mut self.orphaned) };
        if !self.is_past(&mut orphaned) {
            self.orphaned = orphaned.events;
            return false;
        }
        let contexts: Vec<u64> = self.busy_streams.keys().copied().collect();
        for context in contexts {
            if context == 0 || self.make_current(context).is_err() {
                continue;
            }
            let (streams, until) = self.busy_streams();
            let relaxed = self.captures.relax(self.driver, 0);
            let idle = streams.iter().all(|stream| {
                // SAFETY: a stream of this session, or a default stream of the current context. An error means that
                // nothing runs any more.
                unsafe { self.driver.cuStreamQuery(*stream) != CUDA_ERROR_NOT_READY }
            });
            self.captures.restore(self.driver, relaxed);
            if !idle {
                return false;
            }
            self.streams_idle(until);
        }
        true
    }

    pub fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Gives back every lent range whose copy has finished.
    pub fn poll_lent(&mut self) {
        let mut done = Vec::new();
        while let Some(first) = self.lent.front() {
            // SAFETY: an event this session owns.
            if unsafe { self.driver.cuEventQuery(first.0.1) } == CUDA_ERROR_NOT_READY {
                break;
            }
            let Some((event, mut lent)) = self.lent.pop_front() else { break };
            self.return_event(event);
            // Many go back in one message.
            done.extend(lent.range.take());
            if done.len() == 1024 {
                break;
            }
        }
        if !done.is_empty() {
            self.release_all(&done);
        }
    }

    /// Pinned memory for one inline copy.
    pub fn scratch(&mut self) -> Result<*mut u8, CUresult> {
        if let Some(slot) = self.spare_scratch.pop() {
            self.scratch_used += 1;
            return Ok(slot);
        }
        let mut slot = ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: a valid out pointer.
        match unsafe { self.driver.cuMemHostAlloc(&mut slot, RECORD_BYTES_MAX / 2, flags) } {
            CUDA_SUCCESS => {
                self.scratch_used += 1;
                Ok(slot.cast())
            }
            code => Err(code),
        }
    }

    pub fn return_scratch(&mut self, slot: *mut u8) {
        self.scratch_used -= 1;
        self.spare_scratch.push(slot);
    }

    /// Flushes what kernels printed, where any may have; the number of events sent so far, which the client waits for.
    pub fn flush_output(&self, code: CUresult) -> u64 {
        // A failed assertion prints too, and breaks the context.
        if code != CUDA_SUCCESS || self.prints.possible() {
            self.output.drain();
        }
        self.events.sent()
    }

    /// As [`Self::flush_output`], of a stream that was seen idle: the driver prints, and pools give back, when it is
    /// asked to wait.
    pub fn flush_output_of(&mut self, stream: CUstream, code: CUresult) -> (CUresult, u64) {
        let mut code = code;
        if code == CUDA_SUCCESS && (self.prints.possible() || !self.freed.streams.is_empty()) {
            // SAFETY: a stream of this session, still alive: a destroyed one leaves the wait list. Another thread of
            // the client may have given it more to do, and that is not waited for.
            code = unsafe {
                match self.driver.cuStreamQuery(stream) {
                    CUDA_SUCCESS => {
                        self.freed.streams.remove(&(self.home_of(stream), stream as usize));
                        self.driver.cuStreamSynchronize(stream)
                    }
                    CUDA_ERROR_NOT_READY => CUDA_SUCCESS,
                    code => code,
                }
            };
        }
        (code, self.flush_output(code))
    }
}

pub mod log {
    //! One line in oriond's log, through oriond: a worker has no descriptor of the log itself.

    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::OnceLock;

    use crate::attach::{Control, send_control};

    /// More of a line is cut off: a control message has to fit into a packet.
    const TEXT_BYTES_MAX: usize = 2000;

    static CONTROL: OnceLock<OwnedFd> = OnceLock::new();

    /// Lines go to oriond from now on; before they go to stderr.
    pub fn through(control: BorrowedFd<'_>) -> std::io::Result<()> {
        let own = control.try_clone_to_owned()?;
        let _ = CONTROL.set(own);
        Ok(())
    }

    /// Where lines go, if it is to oriond.
    pub fn control() -> Option<BorrowedFd<'static>> {
        CONTROL.get().map(OwnedFd::as_fd)
    }

    pub fn debug(text: &str) {
        static ON: OnceLock<bool> = OnceLock::new();
        if *ON.get_or_init(|| std::env::var_os("ORION_DEBUG").is_some()) {
            warn(text);
        }
    }

    pub fn warn(text: &str) {
        let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        match CONTROL.get() {
            // A log that cannot be written has nowhere to say so.
            Some(control) => {
                let _ = send_control(control.as_fd(), &Control::Log { text: text[..end].to_owned() }, None);
            }
            None => crate::log::say(&format!("oriond: {text}")),
        }
    }
}
