//! Contexts, and every thread's stack of current ones.
//!
//! The stack is the application's business alone; the worker learns which context a command is for from the
//! command. `cuCtxGetCurrent` and `cuCtxGetDevice` are asked millions of times, so they read one thread-local
//! word and the context behind it. A destroyed context stays on the stacks it is on, as in the driver, and still
//! answers there; it is freed when it is on none.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::state::lock::{Lock, Rank};
use crate::state::storage::Storage;
use crate::state::table;

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

/// Its device, as the application counts devices.
#[inline]
pub fn current_device() -> Option<u32> {
    top().map(|c| c.device)
}

/// The session that the current context's device is of; the first one without a context.
pub fn current_session() -> usize {
    top().map_or(0, |c| c.session)
}

/// The context whose memory, modules and events the current one has: itself, or the primary context that a green one
/// shares.
#[inline]
pub fn current_home() -> u64 {
    top().map_or(0, Context::home)
}

/// What `cuCtxGetApiVersion` answers for every context but those of the first ABI.
pub const API_VERSION: u32 = 3020;
const LIMITS: usize = CU_LIMIT_MAX as usize;
pub const LIMIT_UNTOUCHED: u64 = u64::MAX;

/// Not active: a primary context nobody holds, or any context after its death.
pub const INACTIVE: u8 = 0;
pub const ACTIVE: u8 = 1;
/// Destructors of its local storage run.
pub const DYING: u8 = 2;

pub struct Context {
    pub handle: u64,
    pub device: u32,
    /// Of which session the device is.
    pub session: usize,
    pub is_primary: bool,
    /// The green context it was converted from, or 0. Everything but its multiprocessors and its streams is its
    /// device's primary context's.
    pub green: u64,
    pub api_version: u32,
    pub state: AtomicU8,
    /// Unique in the process and never used again; another one after each reset.
    pub id: AtomicU64,
    pub flags: AtomicU32,
    /// Of a primary context: what the next activation takes.
    pub flags_wanted: AtomicU32,
    pub cache_config: AtomicU32,
    pub limits: [AtomicU64; LIMITS],
    /// Retains of a primary context; creator and `cuCtxAttach`es of another.
    pub users: Lock<u32>,
    /// How often it is on threads' stacks. Of a primary context, which is never freed, nobody counts.
    pub on_stacks: AtomicU32,
    pub storage: Storage,
}

pub struct Contexts {
    pub created: table::Table<Context>,
    /// Dead ones that are on the stack of some thread, and those that have left it since the last one died.
    pub dead: Lock<Vec<table::Removed<Context>>>,
    /// Those of green contexts.
    pub green: Lock<Vec<&'static Context>>,
    pub ids: AtomicU64,
    pub first: AtomicU64,
    pub several: AtomicBool,
}

impl Contexts {
    pub const fn new() -> Contexts {
        Contexts {
            created: table::Table::new(),
            dead: Lock::new(Rank::Objects, Vec::new()),
            green: Lock::new(Rank::Leaf, Vec::new()),
            ids: AtomicU64::new(1),
            first: AtomicU64::new(0),
            several: AtomicBool::new(false),
        }
    }

    /// A context begins to live, for the first time or again.
    pub fn bring_to_life(&self, context: &Context, flags: u32) {
        // A green context has all but its streams from the one it shares.
        let first = self.first.compare_exchange(0, context.home(), Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first| first != context.home()) {
            self.several.store(true, Ordering::Relaxed);
        }
        context.id.store(self.ids.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        context.flags.store(flags, Ordering::Relaxed);
        context.cache_config.store(CU_FUNC_CACHE_PREFER_NONE, Ordering::Relaxed);
        for limit in &context.limits {
            limit.store(LIMIT_UNTOUCHED, Ordering::Relaxed);
        }
        context.state.store(ACTIVE, Ordering::Release);
    }

    /// Whether this process has ever had more than one context; most have one, and nothing of theirs is another's.
    #[inline]
    pub fn several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// The context that came to life first, or 0. What was made while it was the only one is its own.
    pub fn first(&self) -> u64 {
        self.first.load(Ordering::Relaxed)
    }
}

impl Context {
    pub fn primary(ordinal: u32, session: usize) -> Context {
        let users = Lock::new(Rank::Leaf, 0);
        Context { users, is_primary: true, ..Context::new(Handle::primary_context(ordinal).0, (ordinal, session)) }
    }

    /// `device`: as the application counts it, and whose it is.
    pub fn new(handle: u64, (device, session): (u32, usize)) -> Context {
        Context {
            handle,
            device,
            session,
            is_primary: false,
            green: 0,
            api_version: API_VERSION,
            state: AtomicU8::new(INACTIVE),
            id: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            flags_wanted: AtomicU32::new(0),
            cache_config: AtomicU32::new(CU_FUNC_CACHE_PREFER_NONE),
            limits: [const { AtomicU64::new(LIMIT_UNTOUCHED) }; LIMITS],
            users: Lock::new(Rank::Leaf, 1),
            on_stacks: AtomicU32::new(0),
            storage: Storage::new(),
        }
    }

    pub fn as_cuda(&self) -> CUcontext {
        std::ptr::without_provenance_mut(self.handle as usize)
    }

    pub fn home(&self) -> u64 {
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

/// With no context current for the calling thread, whose stack stays as it is.
pub fn without<T>(f: impl FnOnce() -> T) -> T {
    let top = STACK.with(|s| s.top.take());
    let answer = f();
    STACK.with(|s| s.top.set(top));
    answer
}

/// Whether the current context has ended: destroyed while it was on the thread's stack more than once, or by another
/// thread.
pub fn is_dead() -> bool {
    top().is_some_and(|c| !c.is_primary && !c.is_active())
}

/// Destroying the current context takes it from the top, once; where it lies deeper it stays.
pub fn pop_if_top(context: &'static Context) {
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
