//! Contexts: every thread's stack of current ones, and what is known about each.
//!
//! The stack is the application's business alone; the worker learns which context a command is for from the
//! command. `cuCtxGetCurrent` and `cuCtxGetDevice` are asked millions of times, so they read one thread-local
//! word and the context behind it. A destroyed context stays on the stacks it is on, as in the driver, and still
//! answers there; it is freed when it is on none.

// UNSAFETY: writes through the application's out pointers.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

use super::device::{Facts, facts, not_null, put};
use super::storage::Storage;
use super::{bridge, code, context_wire};
use crate::activity::events;
use crate::handles;

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

#[inline]
pub unsafe fn cuCtxGetCurrent(pctx: *mut CUcontext) -> CUresult {
    if let Some(c) = top()
        && !pctx.is_null()
    {
        // SAFETY: not null; valid for a write by the C API's contract.
        unsafe { pctx.write(c.as_cuda()) };
        return CUDA_SUCCESS;
    }
    // SAFETY: a pointer of the C API: null or valid.
    code(facts().and_then(|_| unsafe { put(pctx, std::ptr::null_mut()) }))
}

#[inline]
pub unsafe fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    if device.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match current_any() {
        Ok(c) => {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { device.write(c.device as CUdevice) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

#[inline]
pub unsafe fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) -> CUresult {
    if device.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    match resolve(ctx) {
        Ok(c) => {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { device.write(c.device as CUdevice) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// A primary context may be made current before it is retained: cudart does so.
pub unsafe fn cuCtxSetCurrent(ctx: CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        // Looked up first: a failed call leaves the stack as it was.
        let next = if ctx.is_null() { None } else { Some(lookup(ctx.addr() as u64)?) };
        pop();
        if let Some(next) = next {
            push(next);
        }
        Ok(())
    }))
}

pub unsafe fn cuCtxPushCurrent_v2(ctx: CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        not_null(ctx)?;
        push(lookup(ctx.addr() as u64)?);
        Ok(())
    }))
}

pub unsafe fn cuCtxPushCurrent(ctx: CUcontext) -> CUresult {
    // SAFETY: the same contract; the versions differ in what CUDA 3 did with floating contexts.
    unsafe { cuCtxPushCurrent_v2(ctx) }
}

pub unsafe fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        let popped = pop().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if !pctx.is_null() {
            // SAFETY: not null; valid for a write by the C API's contract.
            unsafe { pctx.write(popped.as_cuda()) };
        }
        Ok(())
    }))
}

pub unsafe fn cuCtxPopCurrent(pctx: *mut CUcontext) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuCtxPopCurrent_v2(pctx) }
}

pub unsafe fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult {
    // SAFETY: a pointer of the C API: null or valid.
    code(unsafe { create(pctx, flags, dev, API_VERSION) })
}

/// The ABI of CUDA 2 differs in the API version the context remembers.
pub unsafe fn cuCtxCreate(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult {
    // SAFETY: a pointer of the C API: null or valid.
    code(unsafe { create(pctx, flags, dev, API_VERSION_FIRST) })
}

pub unsafe fn cuCtxCreate_v3(
    pctx: *mut CUcontext,
    paramsArray: *mut CUexecAffinityParam,
    numParams: c_int,
    flags: u32,
    dev: CUdevice,
) -> CUresult {
    if !paramsArray.is_null() && numParams > 0 {
        return facts().map_or_else(|code| code, |_| CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    // SAFETY: a pointer of the C API: null or valid.
    code(unsafe { create(pctx, flags, dev, API_VERSION) })
}

pub unsafe fn cuCtxCreate_v4(
    pctx: *mut CUcontext,
    ctxCreateParams: *mut CUctxCreateParams,
    flags: u32,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: null or valid by the C API's contract.
    let (array, count) = match unsafe { ctxCreateParams.as_ref() } {
        Some(p) if !p.cigParams.is_null() => {
            // Sharing a context with a graphics queue needs both on one host.
            return facts().map_or_else(|code| code, |_| CUDA_ERROR_NOT_SUPPORTED);
        }
        Some(p) => (p.execAffinityParams, p.numExecAffinityParams),
        None => (std::ptr::null_mut(), 0),
    };
    // SAFETY: the same contract.
    unsafe { cuCtxCreate_v3(pctx, array, count, flags, dev) }
}

/// # Safety
/// `pctx` must be null or valid for a write.
unsafe fn create(pctx: *mut CUcontext, flags: u32, dev: CUdevice, api_version: u32) -> Result<(), CUresult> {
    let f = facts()?;
    not_null(pctx)?;
    f.device(dev)?;
    check_flags(flags, CU_CTX_FLAGS_MASK)?;
    let handle = handles::reserve(Kind::Context);
    let context = Context::new(handle.0, dev as u32, false, api_version);
    if let Err(code) = context_wire::create(handle.0, flags, dev as u32) {
        handles::release(handle);
        return Err(code);
    }
    let context = CREATED.insert(handle, context);
    context.bring_to_life(flags);
    push(context);
    events::context_created(context.as_cuda());
    // SAFETY: null or valid, as the caller says.
    unsafe { put(pctx, context.as_cuda()) }
}

pub unsafe fn cuCtxDestroy_v2(ctx: CUcontext) -> CUresult {
    code(facts().and_then(|_| {
        not_null(ctx)?;
        destroy(lookup(ctx.addr() as u64)?)
    }))
}

pub unsafe fn cuCtxDestroy(ctx: CUcontext) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuCtxDestroy_v2(ctx) }
}

fn destroy(context: &'static Context) -> Result<(), CUresult> {
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

/// Deprecated: one more user of the current context.
pub unsafe fn cuCtxAttach(pctx: *mut CUcontext, flags: u32) -> CUresult {
    code(current_active().and_then(|c| {
        not_null(pctx)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        *c.users.lock().expect("no panic happens under this lock") += 1;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pctx, c.as_cuda()) }
    }))
}

/// Deprecated: one user less; the last one destroys.
pub unsafe fn cuCtxDetach(ctx: CUcontext) -> CUresult {
    code(current_active().and_then(|c| {
        if c.as_cuda() != ctx {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if c.is_primary {
            return release(c);
        }
        if c.green != 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let left = {
            let mut users = c.users.lock().expect("no panic happens under this lock");
            *users -= 1;
            *users
        };
        if left == 0 { destroy(c) } else { Ok(()) }
    }))
}

/// A primary context that is not active has no flags, and says so instead of failing.
pub unsafe fn cuCtxGetFlags(flags: *mut u32) -> CUresult {
    code(not_null(flags).and_then(|()| {
        let c = current_any()?;
        let value = if c.is_active() { c.flags.load(Ordering::Relaxed) } else { 0 };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(flags, value) }
    }))
}

pub unsafe fn cuCtxSetFlags(flags: u32) -> CUresult {
    code(current_active().and_then(|c| {
        check_flags(flags, CU_CTX_FLAGS_MASK)?;
        // Mapping host memory cannot be given up, nor asked for later.
        let kept = c.flags.load(Ordering::Relaxed) & CU_CTX_MAP_HOST;
        c.flags.store(flags & !CU_CTX_MAP_HOST | kept, Ordering::Relaxed);
        posted(context_wire::set_flags(flags))
    }))
}

pub unsafe fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64) -> CUresult {
    code(not_null(ctxId).and_then(|()| {
        let c = resolve(ctx)?;
        if !c.is_active() {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(ctxId, c.id()) }
    }))
}

pub unsafe fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32) -> CUresult {
    code(facts().and_then(|_| {
        let c = if ctx.is_null() { current_active()? } else { lookup(ctx.addr() as u64)? };
        if !c.is_active() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(version, c.api_version) }
    }))
}

/// From what the session's devices started with and what was set since.
pub unsafe fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) -> CUresult {
    code(current_active().and_then(|c| {
        not_null(pvalue)?;
        let slot = c.limits.get(limit as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let value = match slot.load(Ordering::Relaxed) {
            LIMIT_UNTOUCHED => {
                let fresh = &facts()?.device(c.device as CUdevice)?.limits;
                fresh.iter().find(|(id, _)| *id == limit).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?.1
            }
            value => value,
        };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pvalue, value as usize) }
    }))
}

pub unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult {
    code(current_active().and_then(|c| {
        let slot = c.limits.get(limit as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        slot.store(context_wire::set_limit(limit, value as u64)?, Ordering::Relaxed);
        Ok(())
    }))
}

pub unsafe fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache) -> CUresult {
    code(current_active().and_then(|c| {
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pconfig, c.cache_config.load(Ordering::Relaxed)) }
    }))
}

pub unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> CUresult {
    code(current_active().and_then(|c| {
        if config > CU_FUNC_CACHE_PREFER_EQUAL {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        c.cache_config.store(config, Ordering::Relaxed);
        posted(context_wire::set_cache_config(config))
    }))
}

/// Banks are four bytes wide on everything since Maxwell, whatever was asked for.
pub unsafe fn cuCtxGetSharedMemConfig(pConfig: *mut CUsharedconfig) -> CUresult {
    code(current_active().and_then(|_| {
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pConfig, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) }
    }))
}

pub unsafe fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> CUresult {
    code(current_active().and_then(|_| {
        let known = config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
        if known { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }))
}

/// Either pointer may be null.
pub unsafe fn cuCtxGetStreamPriorityRange(leastPriority: *mut c_int, greatestPriority: *mut c_int) -> CUresult {
    code(current_active().and_then(|c| {
        let (least, greatest) = facts()?.device(c.device as CUdevice)?.stream_priorities;
        for (out, value) in [(leastPriority, least), (greatestPriority, greatest)] {
            if !out.is_null() {
                // SAFETY: not null; valid for a write by the C API's contract.
                unsafe { out.write(value) };
            }
        }
        Ok(())
    }))
}

pub unsafe fn cuCtxResetPersistingL2Cache() -> CUresult {
    code(current_active().and_then(|_| posted(context_wire::reset_persisting_l2_cache())))
}

/// Without affinity a context has all multiprocessors.
pub unsafe fn cuCtxGetExecAffinity(pExecAffinity: *mut CUexecAffinityParam, type_: CUexecAffinityType) -> CUresult {
    code(current_active().and_then(|c| {
        not_null(pExecAffinity)?;
        if type_ != CU_EXEC_AFFINITY_TYPE_SM_COUNT {
            return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        let device = facts()?.device(c.device as CUdevice)?;
        let val = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(0) as u32;
        let param = CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val } };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pExecAffinity, CUexecAffinityParam { type_, param }) }
    }))
}

pub unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> CUresult {
    code(facts().and_then(|_| {
        not_null(pctx)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pctx, retain(dev)?.as_cuda()) }
    }))
}

fn retain(dev: CUdevice) -> Result<&'static Context, CUresult> {
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

pub unsafe fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| release(&f.device(dev)?.primary)))
}

pub unsafe fn cuDevicePrimaryCtxRelease(dev: CUdevice) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxRelease_v2(dev) }
}

fn release(primary: &'static Context) -> Result<(), CUresult> {
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

/// Destroys everything in the context; its users stay, and the next retain brings it back to life.
pub unsafe fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        let primary = &f.device(dev)?.primary;
        if !primary.begin_death() {
            primary.flags_wanted.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let reset = context_wire::primary_reset(primary.device);
        primary.end_life();
        green_reset(primary);
        reset
    }))
}

/// The worker ends a device's green contexts with its primary one; none of them retains it any more.
fn green_reset(primary: &Context) {
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

pub unsafe fn cuDevicePrimaryCtxReset(dev: CUdevice) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxReset_v2(dev) }
}

/// PyTorch asks this 64 times a training step.
#[inline]
pub unsafe fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut c_int) -> CUresult {
    code(facts().and_then(|f| {
        not_null(flags)?;
        not_null(active)?;
        let primary = &f.device(dev)?.primary;
        // SAFETY: pointers of the C API: null or valid.
        unsafe {
            put(flags, primary.flags_wanted.load(Ordering::Relaxed)).and(put(active, primary.is_active() as c_int))
        }
    }))
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) -> CUresult {
    code(facts().and_then(|f| {
        let primary = &f.device(dev)?.primary;
        check_flags(flags, CU_CTX_FLAGS_MASK & !CU_CTX_MAP_HOST)?;
        primary.flags_wanted.store(flags, Ordering::Relaxed);
        primary.flags.store(flags | CU_CTX_MAP_HOST, Ordering::Relaxed);
        posted(context_wire::primary_set_flags(primary.device, flags))
    }))
}

pub unsafe fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: u32) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxSetFlags_v2(dev, flags) }
}

/// What `cuCtxGetApiVersion` answers for every context but those of the first ABI.
const API_VERSION: u32 = 3020;
const API_VERSION_FIRST: u32 = 3010;
const LIMITS: usize = CU_LIMIT_MAX as usize;
const LIMIT_UNTOUCHED: u64 = u64::MAX;

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
    green: u64,
    api_version: u32,
    state: AtomicU8,
    /// Unique in the process and never used again; another one after each reset.
    id: AtomicU64,
    flags: AtomicU32,
    /// Of a primary context: what the next activation takes.
    flags_wanted: AtomicU32,
    cache_config: AtomicU32,
    limits: [AtomicU64; LIMITS],
    /// Retains of a primary context; creator and `cuCtxAttach`es of another.
    users: Mutex<u32>,
    /// How often it is on threads' stacks. Of a primary context, which is never freed, nobody counts.
    on_stacks: AtomicU32,
    pub storage: Storage,
}

static CREATED: handles::Table<Context> = handles::Table::new();
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

    fn new(handle: u64, device: u32, is_primary: bool, api_version: u32) -> Context {
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

    fn bring_to_life(&self, flags: u32) {
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

    /// Runs the destructors, while the context still answers. False if it is not alive, or dying already.
    fn begin_death(&self) -> bool {
        let mine = self.state.compare_exchange(ACTIVE, DYING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if mine {
            events::context_ends(self.as_cuda());
            self.storage.destroy(self.handle);
        }
        mine
    }

    fn end_life(&self) {
        self.flags_wanted.store(0, Ordering::Relaxed);
        self.state.store(INACTIVE, Ordering::Release);
        bridge::context_died(self.handle);
    }
}

/// The context of a handle. One that was destroyed is told from one that never was.
fn lookup(handle: u64) -> Result<&'static Context, CUresult> {
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

/// Valid flags: known bits, and at most one way of waiting.
fn check_flags(flags: u32, mask: u32) -> Result<(), CUresult> {
    let one_wait = matches!(
        flags & CU_CTX_SCHED_MASK,
        CU_CTX_SCHED_AUTO | CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD | CU_CTX_SCHED_BLOCKING_SYNC
    );
    if flags & !mask == 0 && one_wait { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn posted(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
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
fn top() -> Option<&'static Context> {
    STACK.with(|s| s.top.get())
}

#[inline]
fn current_any() -> Result<&'static Context, CUresult> {
    match top() {
        Some(c) => Ok(c),
        None => Err(facts().map_or_else(|code| code, |_| CUDA_ERROR_INVALID_CONTEXT)),
    }
}

fn push(context: &'static Context) {
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

fn pop() -> Option<&'static Context> {
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
pub(super) fn forget_stack() {
    STACK.with(|s| {
        s.top.set(None);
        s.depth.set(0);
    });
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::context_wire::tests::{CREATE, DESTROY, RELEASE, RESET, sent};
    use super::*;
    use std::sync::MutexGuard;

    /// Tests that retain primary contexts take turns; each starts with an empty stack in its own thread.
    pub fn serial() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        super::super::device::tests::initialise();
        TURN.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn primary(ordinal: u32) -> CUcontext {
        std::ptr::without_provenance_mut(Handle::primary_context(ordinal).0 as usize)
    }

    pub fn retain(dev: CUdevice) -> CUcontext {
        let mut c = std::ptr::null_mut();
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&mut c, dev) }, CUDA_SUCCESS);
        c
    }

    fn now() -> CUcontext {
        let mut c = std::ptr::without_provenance_mut(1);
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuCtxGetCurrent(&mut c) }, CUDA_SUCCESS);
        c
    }

    fn state(dev: CUdevice) -> (u32, c_int) {
        let (mut flags, mut active) = (77, 77);
        // SAFETY: valid places.
        assert_eq!(unsafe { cuDevicePrimaryCtxGetState(dev, &mut flags, &mut active) }, CUDA_SUCCESS);
        (flags, active)
    }

    fn flags() -> u32 {
        let mut flags = 0;
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuCtxGetFlags(&mut flags) }, CUDA_SUCCESS);
        flags
    }

    fn id(c: CUcontext) -> Result<u64, CUresult> {
        let mut id = 0;
        // SAFETY: a valid place.
        match unsafe { cuCtxGetId(c, &mut id) } {
            CUDA_SUCCESS => Ok(id),
            code => Err(code),
        }
    }

    const NULL: CUcontext = std::ptr::null_mut();

    #[test]
    fn without_a_context_calls_say_so() {
        let _turn = serial();
        let (mut v, mut u, mut p, mut size) = (0, 0, NULL, 0);
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(now(), NULL);
            assert_eq!(cuCtxGetCurrent(std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxGetDevice(std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxPushCurrent_v2(NULL), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
            for code in [
                cuCtxGetDevice(&mut v),
                cuCtxGetDevice_v2(&mut v, NULL),
                cuCtxGetFlags(&mut u),
                cuCtxSetFlags(0),
                cuCtxPopCurrent_v2(&mut p),
                cuCtxGetApiVersion(NULL, &mut u),
                cuCtxGetLimit(&mut size, 0),
                cuCtxSetLimit(0, 1024),
                cuCtxGetStreamPriorityRange(&mut v, &mut v),
                cuCtxGetCacheConfig(&mut u),
                cuCtxResetPersistingL2Cache(),
                cuCtxAttach(&mut p, 0),
                cuCtxDetach(NULL),
                super::super::profiler::cuProfilerStart(),
                cuCtxSetCurrent(std::ptr::without_provenance_mut(0x7777)),
                cuCtxPushCurrent_v2(std::ptr::without_provenance_mut(0x7777)),
                cuCtxSetCurrent(primary(2)),
            ] {
                assert_eq!(code, CUDA_ERROR_INVALID_CONTEXT);
            }
        }
        assert_eq!(id(NULL), Err(CUDA_ERROR_INVALID_CONTEXT));
        assert_eq!(sent(), []);
    }

    #[test]
    fn a_primary_context_may_be_current_before_it_is_retained() {
        let _turn = serial();
        let mut v = -1;
        // SAFETY: valid places.
        unsafe {
            assert_eq!(cuCtxSetCurrent(primary(1)), CUDA_SUCCESS);
            assert_eq!((now(), current(), current_device()), (primary(1), primary(1).addr() as u64, Some(1)));
            assert_eq!(cuCtxGetDevice(&mut v), CUDA_SUCCESS);
            assert_eq!((v, flags(), state(1)), (1, 0, (0, 0)));
            assert_eq!(id(primary(1)), Err(CUDA_ERROR_CONTEXT_IS_DESTROYED));
            let mut u = 0;
            assert_eq!(cuCtxGetApiVersion(primary(1), &mut u), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(cuCtxGetApiVersion(NULL, &mut u), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            assert_eq!(cuCtxDestroy_v2(primary(1)), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(retain(1), primary(1));
            assert_eq!(cuCtxGetApiVersion(NULL, &mut u), CUDA_SUCCESS);
            assert_eq!((u, flags(), state(1)), (3020, CU_CTX_MAP_HOST, (0, 1)));
            assert_eq!(cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
            assert_eq!(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!((now(), state(1)), (primary(1), (0, 0)));
        }
        assert_eq!(sent(), [RELEASE]);
    }

    #[test]
    fn users_of_a_primary_context_survive_its_reset() {
        let _turn = serial();
        // SAFETY: plain calls.
        unsafe {
            retain(0);
            retain(0);
            let first = id(primary(0));
            assert_eq!(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
            assert_eq!(state(0), (0, 0));
            retain(0);
            assert_eq!(state(0), (0, 1));
            assert!(id(primary(0)).is_ok() && id(primary(0)) != first);
            for active in [1, 1, 0] {
                assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
                assert_eq!(state(0), (0, active));
            }
            assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        }
        assert_eq!(sent(), [RESET, RELEASE]);
    }

    #[test]
    fn flags_of_a_primary_context() {
        let _turn = serial();
        // SAFETY: plain calls.
        unsafe {
            for bad in [3, 8, 0x100, 0x200] {
                assert_eq!(cuDevicePrimaryCtxSetFlags_v2(0, bad), CUDA_ERROR_INVALID_VALUE);
            }
            assert_eq!(cuDevicePrimaryCtxSetFlags_v2(0, 4), CUDA_SUCCESS);
            retain(0);
            cuCtxSetCurrent(primary(0));
            assert_eq!((flags(), state(0)), (12, (4, 1)));
            assert_eq!(cuCtxSetFlags(1), CUDA_SUCCESS);
            assert_eq!((flags(), state(0)), (9, (4, 1)));
            assert_eq!(cuCtxSetFlags(3), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetFlags(0x80), CUDA_SUCCESS);
            assert_eq!(flags(), 0x88);
            cuDevicePrimaryCtxRelease_v2(0);
            assert_eq!((flags(), state(0)), (0, (0, 0)));
        }
    }

    fn make(flags: u32) -> CUcontext {
        let mut c = NULL;
        // SAFETY: a valid place.
        assert_eq!(unsafe { cuCtxCreate_v2(&mut c, flags, 0) }, CUDA_SUCCESS);
        c
    }

    #[test]
    fn creating_makes_current_and_destroying_pops() {
        let _turn = serial();
        let mut p = NULL;
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxCreate_v2(std::ptr::null_mut(), 0, 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxCreate_v2(&mut p, 0, 9), CUDA_ERROR_INVALID_DEVICE);
            for bad in [3, 0xff, 0x100] {
                assert_eq!(cuCtxCreate_v2(&mut p, bad, 0), CUDA_ERROR_INVALID_VALUE);
            }
            let a = make(4);
            assert_eq!((now(), flags()), (a, 4));
            assert_eq!(std::thread::spawn(current).join().ok(), Some(0));
            let b = make(0);
            assert!(id(b).is_ok() && id(a) != id(b));
            cuCtxPushCurrent_v2(a);
            assert_eq!(cuCtxDestroy_v2(b), CUDA_SUCCESS);
            assert_eq!(now(), a);
            assert_eq!(cuCtxPopCurrent_v2(&mut p), CUDA_SUCCESS);
            // A dead context stays where it is, and still says what it was.
            assert_eq!((p, now(), flags()), (a, b, 0));
            assert_eq!(current_active().err(), Some(CUDA_ERROR_CONTEXT_IS_DESTROYED));
            assert_eq!(cuCtxGetDevice(&mut 0), CUDA_SUCCESS);
            assert_eq!(cuCtxDestroy_v2(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            assert_eq!(cuCtxPopCurrent(&mut p), CUDA_SUCCESS);
            assert_eq!(cuCtxDestroy(a), CUDA_SUCCESS);
            assert_eq!(now(), NULL);
        }
        assert_eq!(sent(), [CREATE, CREATE, DESTROY, DESTROY]);
    }

    #[test]
    fn destroying_pops_once() {
        let _turn = serial();
        let a = make(8);
        // SAFETY: plain calls.
        unsafe {
            assert_eq!(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
            assert_eq!((now(), cuCtxPopCurrent_v2(std::ptr::null_mut())), (NULL, CUDA_ERROR_INVALID_CONTEXT));
            cuCtxSetCurrent(a);
            cuCtxPushCurrent_v2(a);
            cuCtxPushCurrent_v2(a);
            assert_eq!(cuCtxDestroy_v2(a), CUDA_SUCCESS);
            for left in [a, a, NULL] {
                assert_eq!(now(), left);
                cuCtxPopCurrent_v2(std::ptr::null_mut());
            }
        }
    }

    #[test]
    fn versions_of_creating() {
        let _turn = serial();
        let (mut c, mut version) = (NULL, 0);
        let mut params: CUctxCreateParams = CUctxCreateParams {
            execAffinityParams: std::ptr::null_mut(),
            numExecAffinityParams: 0,
            cigParams: std::ptr::null_mut(),
        };
        let mut affinity = CUexecAffinityParam {
            type_: CU_EXEC_AFFINITY_TYPE_SM_COUNT,
            param: CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val: 4 } },
        };
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxCreate(&mut c, 0, 0), CUDA_SUCCESS);
            cuCtxGetApiVersion(c, &mut version);
            assert_eq!(version, 3010);
            cuCtxDestroy_v2(c);
            assert_eq!(cuCtxCreate_v4(&mut c, &mut params, 0, 0), CUDA_SUCCESS);
            cuCtxGetApiVersion(c, &mut version);
            assert_eq!(version, 3020);
            cuCtxDestroy_v2(c);
            params.execAffinityParams = &mut affinity;
            params.numExecAffinityParams = 1;
            assert_eq!(cuCtxCreate_v4(&mut c, &mut params, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
    }

    #[test]
    fn attaching_counts_users() {
        let _turn = serial();
        let a = make(0);
        let mut p = NULL;
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxAttach(&mut p, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxAttach(&mut p, 0), CUDA_SUCCESS);
            assert_eq!((p, cuCtxDetach(NULL)), (a, CUDA_ERROR_INVALID_CONTEXT));
            assert_eq!(cuCtxDetach(a), CUDA_SUCCESS);
            assert_eq!(now(), a);
            assert_eq!(cuCtxDetach(a), CUDA_SUCCESS);
            assert_eq!(now(), NULL);
        }
    }

    #[test]
    fn limits_are_those_of_a_fresh_context_until_set() {
        let _turn = serial();
        let a = make(0);
        let mut v = 0;
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!((cuCtxGetLimit(&mut v, CU_LIMIT_STACK_SIZE), v), (CUDA_SUCCESS, 1024));
            assert_eq!(cuCtxGetLimit(&mut v, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
            assert_eq!(cuCtxGetLimit(&mut v, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetLimit(CU_LIMIT_MAX, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxGetLimit(std::ptr::null_mut(), 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 5000), CUDA_SUCCESS);
            assert_eq!((cuCtxGetLimit(&mut v, CU_LIMIT_STACK_SIZE), v), (CUDA_SUCCESS, 5008));
            assert_eq!(cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1), CUDA_ERROR_NOT_PERMITTED);
            cuCtxDestroy_v2(a);
        }
    }

    #[test]
    fn configurations() {
        let _turn = serial();
        let a = make(0);
        let (mut u, mut least, mut greatest) = (77, 7, 7);
        let mut affinity = CUexecAffinityParam {
            type_: 9,
            param: CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val: 9 } },
        };
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuCtxSetCacheConfig(4), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetCacheConfig(3), CUDA_SUCCESS);
            assert_eq!((cuCtxGetCacheConfig(&mut u), u), (CUDA_SUCCESS, 3));
            assert_eq!(cuCtxSetSharedMemConfig(3), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuCtxSetSharedMemConfig(2), CUDA_SUCCESS);
            assert_eq!((cuCtxGetSharedMemConfig(&mut u), u), (CUDA_SUCCESS, 1));
            assert_eq!(cuCtxGetStreamPriorityRange(&mut least, std::ptr::null_mut()), CUDA_SUCCESS);
            assert_eq!(cuCtxGetStreamPriorityRange(std::ptr::null_mut(), &mut greatest), CUDA_SUCCESS);
            assert_eq!((least, greatest), (0, -5));
            assert_eq!(cuCtxGetExecAffinity(&mut affinity, 1), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
            assert_eq!(cuCtxGetExecAffinity(&mut affinity, 0), CUDA_SUCCESS);
            assert_eq!((affinity.type_, affinity.param.smCount.val), (0, 132));
            cuCtxDestroy_v2(a);
        }
    }

    #[test]
    fn another_context_can_be_current_for_a_call() {
        let _turn = serial();
        let a = make(0);
        let ask = |handle: CUcontext| {
            let mut seen = 0;
            let code = with_current(handle.addr() as u64, || {
                seen = current();
                CUDA_ERROR_NOT_READY
            });
            (code, seen)
        };
        assert_eq!(ask(primary(1)), (CUDA_ERROR_CONTEXT_IS_DESTROYED, 0));
        retain(1);
        assert_eq!(ask(primary(1)), (CUDA_ERROR_NOT_READY, primary(1).addr() as u64));
        assert_eq!(ask(NULL), (CUDA_ERROR_NOT_READY, a.addr() as u64));
        assert_eq!(now(), a);
        assert_eq!((device_of(a.addr() as u64), device_of(current() + 1)), (Some(0), None));
        // SAFETY: plain calls.
        unsafe {
            cuCtxDestroy_v2(a);
            cuDevicePrimaryCtxRelease_v2(1);
        }
        assert_eq!(ask(NULL), (CUDA_ERROR_INVALID_CONTEXT, 0));
        assert_eq!(ask(a), (CUDA_ERROR_CONTEXT_IS_DESTROYED, 0));
    }

    #[test]
    fn deep_stacks_unwind_in_order() {
        let _turn = serial();
        // SAFETY: plain calls.
        unsafe {
            for i in 0..50 {
                assert_eq!(cuCtxPushCurrent_v2(primary(i % 2)), CUDA_SUCCESS);
            }
            for i in (0..50).rev() {
                assert_eq!(now(), primary(i % 2), "at depth {i}");
                assert_eq!(cuCtxPopCurrent_v2(std::ptr::null_mut()), CUDA_SUCCESS);
            }
        }
        assert_eq!(now(), NULL);
    }

    #[test]
    fn nothing_works_in_a_forked_child() {
        let _turn = serial();
        super::super::register_fork_handler();
        // SAFETY: the child makes calls that take no lock another thread may hold, and leaves.
        let status = unsafe {
            cuCtxSetCurrent(primary(0));
            let pid = libc::fork();
            if pid == 0 {
                let (mut c, mut v) = (NULL, 0);
                let codes =
                    [cuCtxGetCurrent(&mut c), cuCtxGetDevice(&mut v), cuCtxSetCurrent(primary(0)), cuCtxSetFlags(0)];
                libc::_exit(codes.iter().all(|code| *code == CUDA_ERROR_NOT_INITIALIZED) as i32);
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            status
        };
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert_eq!(now(), primary(0));
    }
}
