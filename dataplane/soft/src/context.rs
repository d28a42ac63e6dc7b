//! Contexts: the per-thread stack, primary contexts, sticky errors, limits.

// UNSAFETY: C entry points.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, handle, put, put_some, refuse};
use crate::device;
use crate::pool;
use crate::stream::{self, Stream};
use crate::vram;

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
    flags: AtomicU32,
    /// First asynchronous error; every later call on the context answers it.
    error: Arc<AtomicU32>,
    cache_config: AtomicU32,
    limits: Mutex<HashMap<CUlimit, usize>>,
    legacy: Mutex<Option<Arc<Stream>>>,
    per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
    pub streams: Mutex<Vec<Arc<Stream>>>,
    /// Held while work is put on a stream, so that the order between streams is the order of the calls.
    pub order: Mutex<()>,
    peers: Mutex<Vec<u64>>,
}

pub static CONTEXTS: Registry<Context> = Registry::new();
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Primary {
    context: Option<Arc<Context>>,
    references: u32,
    flags: u32,
}

fn primary(dev: i32) -> &'static Mutex<Primary> {
    static SLOTS: OnceLock<Vec<Mutex<Primary>>> = OnceLock::new();
    &SLOTS.get_or_init(|| (0..device::DEVICES_MAX).map(|_| Mutex::default()).collect())[dev as usize]
}

impl Context {
    fn new(device: i32, flags: u32, primary: bool) -> Arc<Self> {
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

    fn add(self) -> Arc<Self> {
        let c = Arc::new(self);
        CONTEXTS.add::<CUctx_st>(&c);
        c
    }

    /// Ends a green context. Its streams are not destroyed with it, but nothing can be done with them any more.
    pub fn end_green(self: &Arc<Self>) -> R {
        for s in self.every_stream() {
            s.wait_all();
            s.close();
        }
        self.forget_streams();
        self.alive.store(false, Ordering::Release);
        CONTEXTS.remove::<CUctx_st>(handle(self));
        stack(|s| {
            if s.last().is_some_and(|t| Arc::ptr_eq(t, self)) {
                s.pop();
            }
        });
        release_primary(self.device, false)
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
        Ok(slot.get_or_insert_with(|| Stream::new(self, stream::Class::Legacy, 0, 0)).clone())
    }

    pub fn thread_stream(self: &Arc<Self>) -> R<Arc<Stream>> {
        let mut map = self.per_thread.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let id = std::thread::current().id();
        Ok(map.entry(id).or_insert_with(|| Stream::new(self, stream::Class::PerThread, 0, 0)).clone())
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

    pub fn synchronize(&self) -> R {
        for s in self.streams_of_all() {
            s.wait_all();
        }
        pool::synchronized();
        self.check()
    }

    /// A stream refers to its context, and the context to its streams.
    fn forget_streams(&self) {
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

    /// Ends everything that lives in the context.
    fn tear_down(&self) {
        for s in self.every_stream() {
            s.wait_all();
            s.close();
            stream::STREAMS.remove(Arc::as_ptr(&s).cast_mut());
        }
        self.forget_streams();
        crate::event::end_context(self.id);
        crate::module::unload_context(self.id);
        crate::texture::end_context(self.id);
        crate::array::end_context(self.id);
        for r in vram::all(|r| r.context == self.id) {
            crate::memory::drop_range(&vram::Range { flags: r.flags & !crate::memory::GRAPH_OWNED, ..r });
        }
        self.error.store(CUDA_SUCCESS, Ordering::Release);
        self.alive.store(false, Ordering::Release);
    }
}

fn stack<T>(f: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> T {
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

fn from_handle_or_current(ctx: CUcontext) -> R<Arc<Context>> {
    if ctx.is_null() { current_any() } else { from_handle(ctx) }
}

pub fn by_id(id: u64) -> Option<Arc<Context>> {
    CONTEXTS.all().into_iter().find(|c| c.id == id && c.green.is_none())
}

fn create(out: *mut CUcontext, flags: c_uint, dev: CUdevice) -> R {
    let dev = device::check(dev)?;
    if out.is_null() || flags & !CU_CTX_FLAGS_MASK != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let c = Context::new(dev, flags, false);
    stack(|s| s.push(c.clone()));
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, handle(&c)) }
}

fn destroy(ctx: CUcontext) -> R {
    let c = from_handle(ctx)?;
    // A green context shares the primary one, which is not destroyed but released.
    if c.primary || c.green.is_some() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    CONTEXTS.remove(ctx);
    c.tear_down();
    stack(|s| {
        if s.last().is_some_and(|t| Arc::ptr_eq(t, &c)) {
            s.pop();
        }
    });
    Ok(())
}

fn push(ctx: CUcontext) -> R {
    device::initialised()?;
    if ctx.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let c = from_handle(ctx)?;
    stack(|s| s.push(c));
    Ok(())
}

fn pop(out: *mut CUcontext) -> R {
    device::initialised()?;
    let c = stack(Vec::pop).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    // SAFETY: the caller's out parameter, which may be null.
    unsafe { put_some(out, handle(&c)) };
    Ok(())
}

fn release_primary(dev: CUdevice, all: bool) -> R {
    let dev = device::check(dev)?;
    let mut p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    if !all && p.references == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    p.references = if all { 0 } else { p.references - 1 };
    if p.references == 0
        && let Some(c) = &p.context
    {
        c.tear_down();
    }
    Ok(())
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

fn set_primary_flags(dev: CUdevice, flags: c_uint) -> R {
    let dev = device::check(dev)?;
    if flags & !CU_CTX_FLAGS_MASK != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    p.flags = flags;
    if let Some(c) = &p.context {
        c.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn limit_default(limit: CUlimit) -> R<usize> {
    Ok(match limit {
        CU_LIMIT_STACK_SIZE => 1024,
        CU_LIMIT_PRINTF_FIFO_SIZE => 1 << 20,
        CU_LIMIT_MALLOC_HEAP_SIZE => 8 << 20,
        CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH => 2,
        CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => 2048,
        CU_LIMIT_MAX_L2_FETCH_GRANULARITY => 128,
        CU_LIMIT_PERSISTING_L2_CACHE_SIZE => 0,
        // No graphics shares the context. cuBLAS 13 asks for the second, and takes an error that it does not know for
        // success without an answer.
        CU_LIMIT_SHMEM_SIZE | CU_LIMIT_CIG_ENABLED | CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED => 0,
        CU_LIMIT_MAX.. => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

api! {
    fn cuCtxCreate_v2(out: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        create(out, flags, dev)
    }
    fn cuCtxCreate_v3(
        out: *mut CUcontext,
        _params: *mut CUexecAffinityParam,
        count: c_int,
        flags: c_uint,
        dev: CUdevice,
    ) {
        if count > 0 {
            return refuse("cuCtxCreate_v3", "execution affinity");
        }
        create(out, flags, dev)
    }
    fn cuCtxCreate_v4(out: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice) {
        if !params.is_null() && ((*params).numExecAffinityParams > 0 || !(*params).cigParams.is_null()) {
            return refuse("cuCtxCreate_v4", "execution affinity");
        }
        create(out, flags, dev)
    }
    fn cuCtxDestroy(ctx: CUcontext) { destroy(ctx) }
    fn cuCtxDestroy_v2(ctx: CUcontext) { destroy(ctx) }
    fn cuCtxPushCurrent(ctx: CUcontext) { push(ctx) }
    fn cuCtxPushCurrent_v2(ctx: CUcontext) { push(ctx) }
    fn cuCtxPopCurrent(out: *mut CUcontext) { pop(out) }
    fn cuCtxPopCurrent_v2(out: *mut CUcontext) { pop(out) }
    fn cuCtxSetCurrent(ctx: CUcontext) {
        device::initialised()?;
        if ctx.is_null() {
            stack(Vec::pop);
            return Ok(());
        }
        let c = from_handle(ctx)?;
        stack(|s| {
            s.pop();
            s.push(c);
        });
        Ok(())
    }
    fn cuCtxGetCurrent(out: *mut CUcontext) {
        device::initialised()?;
        put(out, stack(|s| s.last().map_or(std::ptr::null_mut(), handle)))
    }
    fn cuCtxGetDevice(dev: *mut CUdevice) {
        put(dev, current_any()?.device)
    }
    fn cuCtxGetDevice_v2(dev: *mut CUdevice, ctx: CUcontext) {
        put(dev, from_handle_or_current(ctx)?.device)
    }
    fn cuCtxGetFlags(flags: *mut c_uint) {
        put(flags, current_any()?.flags.load(Ordering::Relaxed))
    }
    fn cuCtxSetFlags(flags: c_uint) {
        if flags & !CU_CTX_FLAGS_MASK != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        current_any()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }
    fn cuCtxGetId(ctx: CUcontext, id: *mut c_ulonglong) {
        put(id, from_handle_or_current(ctx)?.number)
    }
    fn cuCtxSynchronize() {
        let c = current_any()?;
        stream::forbid_capture(&c)?;
        c.synchronize()
    }
    fn cuCtxSynchronize_v2(ctx: CUcontext) {
        let c = from_handle_or_current(ctx)?;
        stream::forbid_capture(&c)?;
        c.synchronize()
    }
    fn cuCtxSetLimit(limit: CUlimit, value: usize) {
        let c = current()?;
        limit_default(limit)?;
        c.limits.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.insert(limit, value);
        Ok(())
    }
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) {
        let c = current()?;
        let default = limit_default(limit)?;
        let set = c.limits.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.get(&limit).copied();
        put(value, set.unwrap_or(default))
    }
    fn cuCtxGetCacheConfig(config: *mut CUfunc_cache) {
        put(config, current()?.cache_config.load(Ordering::Relaxed))
    }
    fn cuCtxSetCacheConfig(config: CUfunc_cache) {
        current()?.cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }
    fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig) {
        current()?;
        put(config, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
    }
    fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) {
        current().map(drop)
    }
    fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) {
        from_handle_or_current(ctx)?;
        put(version, 3020)
    }
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?;
        put_some(least, 0);
        put_some(greatest, stream::PRIORITY_GREATEST);
        Ok(())
    }
    fn cuCtxResetPersistingL2Cache() {
        current().map(drop)
    }
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) {
        let c = current()?;
        let p = from_handle(peer)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if p.device == c.device {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let mut peers = c.peers.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if peers.contains(&p.id) {
            return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(p.id);
        Ok(())
    }
    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        let c = current()?;
        let p = from_handle(peer)?;
        let mut peers = c.peers.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let at = peers.iter().position(|&id| id == p.id).ok_or(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?;
        peers.remove(at);
        Ok(())
    }
    fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, dev: CUdevice) {
        let dev = device::check(dev)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, handle(&retain_primary(dev)?))
    }
    fn cuDevicePrimaryCtxRelease(dev: CUdevice) { release_primary(dev, false) }
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) { release_primary(dev, false) }
    fn cuDevicePrimaryCtxReset(dev: CUdevice) { release_primary(dev, true) }
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) { release_primary(dev, true) }
    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) { set_primary_flags(dev, flags) }
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) { set_primary_flags(dev, flags) }
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let dev = device::check(dev)?;
        let p = primary(dev).lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        put(flags, p.flags)?;
        put(active, c_int::from(p.context.as_ref().is_some_and(|c| c.alive.load(Ordering::Relaxed))))
    }
}
