//! Contexts: every thread's stack of current ones, and what is known about each.
//!
//! The stack is the application's business alone; the worker learns which context a command is for from the
//! command. `cuCtxGetCurrent` and `cuCtxGetDevice` are asked millions of times, so they read one thread-local
//! word and the context behind it. A destroyed context stays on the stacks it is on, as in the driver, and still
//! answers there; it is freed when it is on none.

// UNSAFETY: writes through the application's out pointers.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

use crate::activity::events;
use crate::hand::host_memory::posted;
use crate::handles;
use crate::local::device::{Facts, facts};
use crate::local::storage::Storage;
use crate::local::{bridge, context_wire};

/// The calling thread's current context: its handle, or 0.
#[inline]
pub fn current() -> u64 {
    top().map_or(0, |c| c.handle)
}

/// [`current`] and [`current_device`] at once.
#[inline]
pub fn current_on_device() -> Option<(u64, u32)> {
    top().map(|c| (c.handle, c.device))
}

/// Whether this process has ever had more than one context; most have one, and nothing of theirs is another's.
#[inline]
pub fn several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// The context that came to life first, or 0. What was made while it was the only one is its own.
pub fn first() -> u64 {
    FIRST.load(Ordering::Relaxed)
}

/// Its device, as the application counts devices.
#[inline]
pub fn current_device() -> Option<u32> {
    top().map(|c| c.device)
}

/// The calling thread's current context if it can be used: otherwise `CUDA_ERROR_NOT_INITIALIZED`,
/// `CUDA_ERROR_INVALID_CONTEXT` or `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
#[inline]
pub fn current_active() -> Result<&'static Context, CUresult> {
    let c = current_any()?;
    if c.is_active() { Ok(c) } else { Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}

/// The context of a handle, or the current one for null and for -1, which libraries use for it.
pub fn resolve(ctx: CUcontext) -> Result<&'static Context, CUresult> {
    match ctx.addr() {
        0 | usize::MAX => current_any(),
        handle => lookup(handle as u64),
    }
}

/// The device of a context, as the application counts devices; `None` if the handle names none.
pub fn device_of(handle: u64) -> Option<u32> {
    lookup(handle).ok().map(|c| c.device)
}

/// Runs `f` with another context current (null: the one that is), or answers why that context cannot be used.
pub fn with_current(handle: u64, f: impl FnOnce() -> CUresult) -> CUresult {
    let context = resolve(std::ptr::without_provenance_mut(handle as usize));
    match context {
        Ok(c) if c.is_active() => {
            push(c);
            let result = f();
            pop();
            result
        }
        Ok(_) => CUDA_ERROR_CONTEXT_IS_DESTROYED,
        Err(code) => code,
    }
}

/// The context whose memory, modules and events the current one has: itself, or the primary context that a green one
/// shares.
#[inline]
pub fn current_home() -> u64 {
    top().map_or(0, Context::home)
}

/// As [`current_home`], of any context; what is no context stays as it is.
pub fn home_of(handle: u64) -> u64 {
    lookup(handle).map_or(handle, Context::home)
}

/// The green context that a context was converted from; 0 for an ordinary one.
pub fn green_of(handle: u64) -> u64 {
    lookup(handle).map_or(0, |c| c.green)
}

/// The current context's green context; 0 if it is an ordinary one.
pub fn current_green() -> Result<u64, CUresult> {
    current_any().map(|c| c.green)
}

/// A green context was made: it retains its device's primary context, and its `CUcontext` is known from now on.
pub fn adopt(handle: Handle, green: Handle, dev: CUdevice) -> Result<(), CUresult> {
    let primary = retain(dev)?;
    let context = Context { green: green.0, ..Context::new(handle.0, dev as u32, false, API_VERSION) };
    let context = CREATED.insert(handle, context);
    context.bring_to_life(primary.flags.load(Ordering::Relaxed));
    GREEN.lock().expect("no panic happens under this lock").push(context);
    events::context_created(context.as_cuda());
    Ok(())
}

/// A green context is gone, and its `CUcontext` with it. False if it was gone already.
pub fn disown(handle: Handle) -> bool {
    let Ok(c) = lookup(handle.0) else { return false };
    let gone = end_green(c);
    if gone {
        GREEN.lock().expect("no panic happens under this lock").retain(|g| !std::ptr::eq(*g, c));
    }
    gone
}

fn end_green(c: &'static Context) -> bool {
    let mine = c.begin_death();
    if mine {
        c.end_life();
        pop_if_top(c);
        bury(c);
    }
    mine
}

/// Gives up what [`adopt`] retained.
pub fn release_green(dev: CUdevice) -> Result<(), CUresult> {
    release(&facts()?.device(dev)?.primary)
}

pub fn destroy(context: &'static Context) -> Result<(), CUresult> {
    // A green one is the primary one with fewer multiprocessors, and ends with its green context.
    if context.is_primary || context.green != 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    // Of two threads that destroy it, one does.
    if !context.begin_death() {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    let destroyed = context_wire::destroy(context.handle);
    context.end_life();
    pop_if_top(context);
    bury(context);
    handles::release(Handle(context.handle));
    destroyed
}

/// Forgets a dead context that had a handle of its own.
fn bury(context: &Context) {
    let mut dead = DEAD.lock().expect("no panic happens under this lock");
    dead.extend(CREATED.remove(Handle(context.handle)));
    dead.retain(|c| c.on_stacks.load(Ordering::Relaxed) > 0);
}

pub fn retain(dev: CUdevice) -> Result<&'static Context, CUresult> {
    let f: &'static Facts = facts()?;
    let primary = &f.device(dev)?.primary;
    let mut users = primary.users.lock().expect("no panic happens under this lock");
    // It may have users and not be active: somebody reset it.
    let began = activate(primary);
    *users += 1;
    drop(users);
    if began {
        events::context_created(primary.as_cuda());
    }
    Ok(primary)
}

pub fn release(primary: &'static Context) -> Result<(), CUresult> {
    {
        let mut users = primary.users.lock().expect("no panic happens under this lock");
        if *users == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        *users -= 1;
        if *users > 0 {
            return Ok(());
        }
    }
    // Without the lock: destructors call back.
    if !primary.begin_death() {
        return Ok(());
    }
    let sent = posted(context_wire::primary_released(primary.device));
    primary.end_life();
    // Whoever retained meanwhile was told that the context is active.
    let users = primary.users.lock().expect("no panic happens under this lock");
    let began = *users > 0 && activate(primary);
    drop(users);
    if began {
        events::context_created(primary.as_cuda());
    }
    sent
}

/// Whether it was not active. The caller holds the lock of the users.
fn activate(primary: &Context) -> bool {
    let begins = !primary.is_active();
    if begins {
        primary.bring_to_life(primary.flags_wanted.load(Ordering::Relaxed) | CU_CTX_MAP_HOST);
    }
    begins
}

/// The worker ends a device's green contexts with its primary one; none of them retains it any more.
pub fn green_reset(primary: &Context) {
    let gone = {
        let mut green = GREEN.lock().expect("no panic happens under this lock");
        let (here, elsewhere) = green.iter().copied().partition(|c| c.device == primary.device);
        *green = elsewhere;
        let here: Vec<&'static Context> = here;
        here
    };
    let ended = gone.into_iter().filter(|c| end_green(c)).count();
    let mut users = primary.users.lock().expect("no panic happens under this lock");
    *users = users.saturating_sub(ended as u32);
}

/// What `cuCtxGetApiVersion` answers for every context but those of the first ABI.
pub const API_VERSION: u32 = 3020;
const LIMITS: usize = CU_LIMIT_MAX as usize;
pub const LIMIT_UNTOUCHED: u64 = u64::MAX;

/// Not active: a primary context nobody holds, or any context after its death.
const INACTIVE: u8 = 0;
const ACTIVE: u8 = 1;
/// Destructors of its local storage run.
const DYING: u8 = 2;

pub struct Context {
    pub handle: u64,
    pub device: u32,
    pub is_primary: bool,
    /// The green context it was converted from, or 0. Everything but its multiprocessors and its streams is its
    /// device's primary context's.
    pub green: u64,
    pub api_version: u32,
    state: AtomicU8,
    /// Unique in the process and never used again; another one after each reset.
    id: AtomicU64,
    pub flags: AtomicU32,
    /// Of a primary context: what the next activation takes.
    pub flags_wanted: AtomicU32,
    pub cache_config: AtomicU32,
    pub limits: [AtomicU64; LIMITS],
    /// Retains of a primary context; creator and `cuCtxAttach`es of another.
    pub users: Mutex<u32>,
    /// How often it is on threads' stacks. Of a primary context, which is never freed, nobody counts.
    on_stacks: AtomicU32,
    pub storage: Storage,
}

pub static CREATED: handles::Table<Context> = handles::Table::new();
/// Dead ones that are on the stack of some thread, and those that have left it since the last one died.
static DEAD: Mutex<Vec<handles::Removed<Context>>> = Mutex::new(Vec::new());
/// Those of green contexts.
static GREEN: Mutex<Vec<&'static Context>> = Mutex::new(Vec::new());
static IDS: AtomicU64 = AtomicU64::new(1);
static FIRST: AtomicU64 = AtomicU64::new(0);
static SEVERAL: AtomicBool = AtomicBool::new(false);

impl Context {
    pub fn primary(ordinal: u32) -> Context {
        let users = Mutex::new(0);
        Context { users, ..Context::new(Handle::primary_context(ordinal).0, ordinal, true, API_VERSION) }
    }

    pub fn new(handle: u64, device: u32, is_primary: bool, api_version: u32) -> Context {
        Context {
            handle,
            device,
            is_primary,
            green: 0,
            api_version,
            state: AtomicU8::new(INACTIVE),
            id: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            flags_wanted: AtomicU32::new(0),
            cache_config: AtomicU32::new(CU_FUNC_CACHE_PREFER_NONE),
            limits: [const { AtomicU64::new(LIMIT_UNTOUCHED) }; LIMITS],
            users: Mutex::new(1),
            on_stacks: AtomicU32::new(0),
            storage: Storage::new(),
        }
    }

    pub fn as_cuda(&self) -> CUcontext {
        std::ptr::without_provenance_mut(self.handle as usize)
    }

    fn home(&self) -> u64 {
        if self.green == 0 { self.handle } else { Handle::primary_context(self.device).0 }
    }

    /// 0 if it is not active, as the driver's tables answer.
    pub fn id(&self) -> u64 {
        if self.is_active() { self.id.load(Ordering::Relaxed) } else { 0 }
    }

    #[inline]
    pub fn is_active(&self) -> bool {
        // Acquire pairs with the Release in `bring_to_life`: id and flags are those of this life.
        self.state.load(Ordering::Acquire) != INACTIVE
    }

    /// Whether values may be put into its storage: not while it dies, lest that never ends.
    pub fn takes_values(&self) -> bool {
        self.state.load(Ordering::Acquire) == ACTIVE
    }

    pub fn bring_to_life(&self, flags: u32) {
        // A green context has all but its streams from the one it shares.
        let first = FIRST.compare_exchange(0, self.home(), Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first| first != self.home()) {
            SEVERAL.store(true, Ordering::Relaxed);
        }
        self.id.store(IDS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.cache_config.store(CU_FUNC_CACHE_PREFER_NONE, Ordering::Relaxed);
        for limit in &self.limits {
            limit.store(LIMIT_UNTOUCHED, Ordering::Relaxed);
        }
        self.state.store(ACTIVE, Ordering::Release);
    }
}

impl Context {
    /// Runs the destructors, while the context still answers. False if it is not alive, or dying already.
    pub fn begin_death(&self) -> bool {
        let mine = self.state.compare_exchange(ACTIVE, DYING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if mine {
            events::context_ends(self.as_cuda());
            self.storage.destroy(self.handle);
        }
        mine
    }

    pub fn end_life(&self) {
        self.flags_wanted.store(0, Ordering::Relaxed);
        self.state.store(INACTIVE, Ordering::Release);
        bridge::context_died(self.handle);
    }
}

/// The context of a handle. One that was destroyed is told from one that never was.
pub fn lookup(handle: u64) -> Result<&'static Context, CUresult> {
    let f: &'static Facts = facts()?;
    let h = Handle(handle);
    if !h.is(Kind::Context) {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if h.index() < PRIMARY_CONTEXTS_MAX {
        let device = f.devices.get(h.index() as usize).filter(|_| h.generation() == 0);
        return device.map(|d| &d.primary).ok_or(CUDA_ERROR_INVALID_CONTEXT);
    }
    CREATED.get(h).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

/// Entries kept in the thread's own block; deeper ones are on the heap. Real stacks have one or two.
const STACK_INLINE: usize = 16;

struct Stack {
    /// The same as the last entry: what the hot calls read.
    top: Cell<Option<&'static Context>>,
    depth: Cell<usize>,
    entries: [Cell<Option<&'static Context>>; STACK_INLINE],
}

thread_local! {
    // No destructors, so a first access costs nothing, and they work while the thread ends. What a thread leaves
    // on the heap by ending with a deep stack is lost.
    static STACK: Stack = const {
        Stack { top: Cell::new(None), depth: Cell::new(0), entries: [const { Cell::new(None) }; STACK_INLINE] }
    };
    static STACK_DEEP: RefCell<ManuallyDrop<Vec<&'static Context>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

#[inline]
pub fn top() -> Option<&'static Context> {
    STACK.with(|s| s.top.get())
}

#[inline]
pub fn current_any() -> Result<&'static Context, CUresult> {
    match top() {
        Some(c) => Ok(c),
        None => Err(facts().map_or_else(|code| code, |_| CUDA_ERROR_INVALID_CONTEXT)),
    }
}

pub fn push(context: &'static Context) {
    if !context.is_primary {
        context.on_stacks.fetch_add(1, Ordering::Relaxed);
    }
    STACK.with(|s| {
        let depth = s.depth.get();
        match s.entries.get(depth) {
            Some(entry) => entry.set(Some(context)),
            None => STACK_DEEP.with_borrow_mut(|deep| deep.push(context)),
        }
        s.depth.set(depth + 1);
        s.top.set(Some(context));
    });
}

pub fn pop() -> Option<&'static Context> {
    STACK.with(|s| {
        let popped = s.top.get()?;
        let depth = s.depth.get() - 1;
        if depth >= STACK_INLINE {
            STACK_DEEP.with_borrow_mut(|deep| deep.pop());
        }
        s.depth.set(depth);
        s.top.set(match depth {
            0 => None,
            1..=STACK_INLINE => s.entries[depth - 1].get(),
            _ => STACK_DEEP.with_borrow(|deep| deep.last().copied()),
        });
        if !popped.is_primary {
            popped.on_stacks.fetch_sub(1, Ordering::Relaxed);
        }
        Some(popped)
    })
}

/// Destroying the current context takes it from the top, once; where it lies deeper it stays.
fn pop_if_top(context: &'static Context) {
    if top().is_some_and(|t| std::ptr::eq(t, context)) {
        pop();
    }
}

/// Empties the calling thread's stack without allocating: in a forked child there is nothing to be current.
pub fn forget_stack() {
    STACK.with(|s| {
        s.top.set(None);
        s.depth.set(0);
    });
}
