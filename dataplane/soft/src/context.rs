//! Contexts and the streams in them: the per-thread stack, primary contexts, sticky errors.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::ThreadId;

use orion_cuda::sys::*;

use crate::api::{R, Registry};
use crate::device;

pub struct Context {
    /// Whose memory, modules and events it has: a green context shares them with its device's primary one, and so
    /// has that one's id.
    pub id: u64,
    /// What `cuCtxGetId` answers.
    pub number: u64,
    pub device: i32,
    /// The multiprocessors of a green context, a bit each.
    pub green: Option<u64>,
    pub primary: bool,
    pub alive: AtomicBool,
    pub flags: AtomicU32,
    /// First asynchronous error; every later call on the context answers it.
    pub error: Arc<AtomicU32>,
    pub cache_config: AtomicU32,
    pub limits: Mutex<HashMap<CUlimit, usize>>,
    pub legacy: Mutex<Option<Arc<Stream>>>,
    pub per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
    pub streams: Mutex<Vec<Arc<Stream>>>,
    /// Held while work is put on a stream, so that the order between streams is the order of the calls.
    pub order: Mutex<()>,
    pub peers: Mutex<Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The default stream that orders itself with every blocking stream.
    Legacy,
    PerThread,
    Blocking,
    NonBlocking,
}

pub struct Stream {
    pub id: u64,
    pub class: Class,
    pub flags: c_uint,
    pub priority: c_int,
    pub context: Arc<Context>,
    pub state: Mutex<State>,
    /// New work, and the end of work.
    pub changed: Condvar,
    pub completed: AtomicU64,
    /// The capture that records it, by id, or 0.
    pub capture: AtomicU64,
}

#[derive(Default)]
pub struct State {
    pub queue: VecDeque<Command>,
    pub submitted: u64,
    pub thread: bool,
    pub closing: bool,
}

/// A point in a stream's order.
#[derive(Clone)]
pub struct Point {
    pub stream: Arc<Stream>,
    pub number: u64,
}

pub struct Command {
    pub after: Vec<Point>,
    pub work: Job,
}

pub type Job = Box<dyn FnOnce(&Arc<Context>) + Send>;

pub static CONTEXTS: Registry<Context> = Registry::new();
pub(crate) static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
pub struct Primary {
    pub context: Option<Arc<Context>>,
    pub references: u32,
    pub flags: u32,
}

pub(crate) fn primary(dev: i32) -> &'static Mutex<Primary> {
    static SLOTS: OnceLock<Vec<Mutex<Primary>>> = OnceLock::new();
    &SLOTS.get_or_init(|| (0..device::DEVICES_MAX).map(|_| Mutex::default()).collect())[dev as usize]
}

impl Context {
    pub fn new(device: i32, flags: u32, primary: bool) -> Arc<Self> {
        let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self::add(Self::fresh(device, number, number, flags, primary))
    }

    /// A green context on some multiprocessors of a device, which retains the device's primary context.
    pub fn green(device: i32, processors: u64) -> R<Arc<Self>> {
        let home = retain_primary(device)?;
        let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let fresh = Self::fresh(device, home.id, number, home.flags.load(Ordering::Relaxed), false);
        Ok(Self::add(Self { green: Some(processors), error: home.error.clone(), ..fresh }))
    }

    /// A context in which nothing has happened; `id` is its home's.
    fn fresh(device: i32, id: u64, number: u64, flags: u32, primary: bool) -> Self {
        Self {
            id,
            number,
            device,
            green: None,
            primary,
            alive: AtomicBool::new(true),
            flags: AtomicU32::new(flags),
            error: Arc::new(AtomicU32::new(CUDA_SUCCESS)),
            cache_config: AtomicU32::new(0),
            limits: Mutex::default(),
            legacy: Mutex::new(None),
            per_thread: Mutex::default(),
            streams: Mutex::default(),
            order: Mutex::new(()),
            peers: Mutex::default(),
        }
    }

    pub(crate) fn add(self) -> Arc<Self> {
        let c = Arc::new(self);
        CONTEXTS.add::<CUctx_st>(&c);
        c
    }

    pub fn fail(&self, error: CUresult) {
        // The first error stays; later ones are usually its consequences.
        let _ = self.error.compare_exchange(CUDA_SUCCESS, error, Ordering::AcqRel, Ordering::Acquire);
    }

    pub fn error(&self) -> CUresult {
        self.error.load(Ordering::Acquire)
    }

    pub fn check(&self) -> R {
        match self.error() {
            CUDA_SUCCESS => Ok(()),
            e => Err(e),
        }
    }

    pub fn legacy_stream(self: &Arc<Self>) -> R<Arc<Stream>> {
        let mut slot = self.legacy.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        Ok(slot.get_or_insert_with(|| Stream::new(self, Class::Legacy, 0, 0)).clone())
    }

    pub fn thread_stream(self: &Arc<Self>) -> R<Arc<Stream>> {
        let mut map = self.per_thread.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let id = std::thread::current().id();
        Ok(map.entry(id).or_insert_with(|| Stream::new(self, Class::PerThread, 0, 0)).clone())
    }

    /// Whether memory of a device can be used from here: its own, and that of peers whose access is enabled.
    pub fn reaches(&self, device: i32) -> bool {
        let is_peer = |id: &u64| by_id(*id).is_some_and(|p| p.device == device);
        device == self.device || self.peers.lock().is_ok_and(|peers| peers.iter().any(is_peer))
    }

    pub fn every_stream(&self) -> Vec<Arc<Stream>> {
        self.streams.lock().map(|s| s.clone()).unwrap_or_default()
    }

    /// Its own streams, and those of green contexts where it is the context that they share.
    pub fn streams_of_all(&self) -> Vec<Arc<Stream>> {
        let mut streams = self.every_stream();
        if self.primary {
            let green = CONTEXTS.all().into_iter().filter(|c| c.green.is_some() && c.id == self.id);
            streams.extend(green.flat_map(|c| c.every_stream()));
        }
        streams
    }

    /// A stream refers to its context, and the context to its streams.
    pub(crate) fn forget_streams(&self) {
        if let Ok(mut l) = self.legacy.lock() {
            *l = None;
        }
        if let Ok(mut t) = self.per_thread.lock() {
            t.clear();
        }
        if let Ok(mut s) = self.streams.lock() {
            s.clear();
        }
    }
}

pub(crate) fn stack<T>(f: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> T {
    STACK.with_borrow_mut(f)
}

/// The calling thread's context, whatever its state.
pub fn current_any() -> R<Arc<Context>> {
    device::initialised()?;
    let c = stack(|s| s.last().cloned()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if c.alive.load(Ordering::Acquire) { Ok(c) } else { Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}

/// The calling thread's context, if no asynchronous error has ended it.
pub fn current() -> R<Arc<Context>> {
    let c = current_any()?;
    c.check()?;
    Ok(c)
}

/// The calling thread's context wanted what a GPU would have done and the software GPU cannot do. Libraries that have
/// never met a GPU without it do not look at the result of such a call, and would take memory that nobody wrote for a
/// result: from now on the context answers an error, as after a fault of a kernel.
pub fn lacks() {
    if let Ok(c) = current_any() {
        c.fail(CUDA_ERROR_LAUNCH_FAILED);
    }
}

pub fn from_handle(ctx: CUcontext) -> R<Arc<Context>> {
    device::initialised()?;
    CONTEXTS.get(ctx).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

pub(crate) fn from_handle_or_current(ctx: CUcontext) -> R<Arc<Context>> {
    if ctx.is_null() { current_any() } else { from_handle(ctx) }
}

/// As [`current`], or the context of a handle.
pub fn current_or(ctx: CUcontext) -> R<Arc<Context>> {
    if ctx.is_null() { current() } else { from_handle(ctx) }
}

pub fn by_id(id: u64) -> Option<Arc<Context>> {
    CONTEXTS.all().into_iter().find(|c| c.id == id && c.green.is_none())
}

/// As [`current`], for functions that need none: an error that ended it is told.
pub fn current_if_any() -> R<Option<Arc<Context>>> {
    device::initialised()?;
    if stack(|s| s.is_empty()) { Ok(None) } else { current().map(Some) }
}

/// Where something was made, or else the current one.
pub fn home(id: u64, current: Option<Arc<Context>>) -> R<Arc<Context>> {
    by_id(id).or(current).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Retains a device's primary context.
pub fn retain_primary(dev: i32) -> R<Arc<Context>> {
    let mut p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    p.references += 1;
    let flags = p.flags;
    let c = p.context.get_or_insert_with(|| Context::new(dev, flags, true)).clone();
    c.alive.store(true, Ordering::Release);
    c.flags.store(flags, Ordering::Relaxed);
    Ok(c)
}
