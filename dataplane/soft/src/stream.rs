//! Streams: one host thread each, ordered queues, and what waits for what.
//!
//! Every piece of work gets a number in its stream. Waiting is always for a (stream, number) pair that was handed out
//! earlier, so waits cannot form a circle.

// UNSAFETY: C entry points.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Raw, Registry, api, get, handle, list, put, put_some, refuse};
use crate::context::{self, Context};
use crate::cupti;
use crate::event::EVENTS;
use crate::graph::{self, Capture};
use crate::green_context;
use crate::pool;
use crate::work::{MemOp, Work};

pub const PRIORITY_GREATEST: c_int = -5;

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
    state: Mutex<State>,
    /// New work, and the end of work.
    changed: Condvar,
    completed: AtomicU64,
    pub capture: Mutex<Option<Arc<Capture>>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Command>,
    submitted: u64,
    thread: bool,
    closing: bool,
}

/// A point in a stream's order.
#[derive(Clone)]
pub struct Point {
    pub stream: Arc<Stream>,
    pub number: u64,
}

struct Command {
    after: Vec<Point>,
    work: Job,
}

type Job = Box<dyn FnOnce(&Arc<Context>) + Send>;

pub static STREAMS: Registry<Stream> = Registry::new();
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Stream {
    pub fn new(context: &Arc<Context>, class: Class, flags: c_uint, priority: c_int) -> Arc<Self> {
        let s = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            class,
            flags,
            priority,
            context: context.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
            completed: AtomicU64::new(0),
            capture: Mutex::new(None),
        });
        if let Ok(mut all) = context.streams.lock() {
            // Streams that were destroyed while busy are forgotten here, once they have ended.
            all.retain(|t| !t.is_finished());
            all.push(s.clone());
        }
        s
    }

    pub fn is_done(&self, number: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= number
    }

    pub fn wait(&self, number: u64) {
        if self.is_done(number) {
            return;
        }
        let Ok(mut s) = self.state.lock() else { return };
        while !self.is_done(number) {
            match self.changed.wait(s) {
                Ok(guard) => s = guard,
                Err(_) => return,
            }
        }
    }

    /// Kernels that a stream holds; the next launch waits, as it does on a GPU.
    const QUEUE_MAX: u64 = 1024;

    /// Waits until half of the queue is free if it is full.
    pub fn wait_for_room(&self) {
        let submitted = self.submitted();
        if submitted.saturating_sub(self.completed.load(Ordering::Acquire)) >= Self::QUEUE_MAX {
            self.wait(submitted - Self::QUEUE_MAX / 2);
        }
    }

    fn submitted(&self) -> u64 {
        self.state.lock().map_or(0, |s| s.submitted)
    }

    /// Where its order ends now.
    pub fn end(self: &Arc<Self>) -> Point {
        Point { stream: self.clone(), number: self.submitted() }
    }

    pub fn wait_all(&self) {
        self.wait(self.submitted());
    }

    /// Whether everything that this stream's order includes has ended.
    fn is_idle(self: &Arc<Self>) -> bool {
        self.is_done(self.submitted()) && self.preceding().iter().all(|p| p.stream.is_done(p.number))
    }

    /// Work of other streams that the default stream's rules put before new work here.
    fn preceding(self: &Arc<Self>) -> Vec<Point> {
        let at_end = |s: &Arc<Self>| {
            let number = s.submitted();
            (!s.is_done(number)).then(|| Point { stream: s.clone(), number })
        };
        let meets = |s: &Arc<Self>| match self.class {
            Class::Legacy => matches!(s.class, Class::Blocking | Class::PerThread),
            Class::Blocking | Class::PerThread => s.class == Class::Legacy,
            Class::NonBlocking => false,
        };
        self.context.every_stream().iter().filter(|s| meets(s)).filter_map(at_end).collect()
    }

    /// Puts a job at the end of the stream. It runs even after the context has failed; `Work` checks that itself.
    pub fn submit(self: &Arc<Self>, mut after: Vec<Point>, work: Job) -> R<Point> {
        let _order = self.context.order.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        after.extend(self.preceding());
        let mut s = self.state.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        s.submitted += 1;
        let number = s.submitted;
        s.queue.push_back(Command { after, work });
        if !s.thread {
            s.thread = true;
            let me = self.clone();
            std::thread::Builder::new()
                .name(format!("soft-stream-{}", self.id))
                .spawn(move || me.serve())
                .map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
        }
        drop(s);
        self.changed.notify_all();
        Ok(Point { stream: self.clone(), number })
    }

    fn serve(self: Arc<Self>) {
        let mut jitter = Jitter::of(self.id);
        let Ok(mut s) = self.state.lock() else { return };
        loop {
            if let Some(c) = s.queue.pop_front() {
                drop(s);
                for p in &c.after {
                    p.stream.wait(p.number);
                }
                drop(c.after);
                if let Some(jitter) = &mut jitter {
                    jitter.pause();
                }
                (c.work)(&self.context);
                // What the work did can be seen for a while before the stream says that it is done.
                if let Some(jitter) = &mut jitter {
                    jitter.pause();
                }
                match self.state.lock() {
                    Ok(guard) => s = guard,
                    Err(_) => return,
                }
                self.completed.fetch_add(1, Ordering::Release);
                self.changed.notify_all();
            } else if s.closing {
                return;
            } else {
                match self.changed.wait(s) {
                    Ok(guard) => s = guard,
                    Err(_) => return,
                }
            }
        }
    }

    /// Lets the thread end once the queue is empty.
    pub fn close(&self) {
        if let Ok(mut s) = self.state.lock() {
            s.closing = true;
        }
        self.changed.notify_all();
    }

    fn is_finished(&self) -> bool {
        self.state.lock().is_ok_and(|s| s.closing && self.is_done(s.submitted))
    }

    pub fn capture(&self) -> Option<Arc<Capture>> {
        self.capture.lock().ok()?.clone()
    }
}

/// Random pauses around everything that a stream does, so that streams finish in every order and a result is there for
/// a while before its stream says so, as on hardware. With `ORION_SOFT_JITTER` set to a seed.
struct Jitter(u64);

impl Jitter {
    fn of(stream: u64) -> Option<Jitter> {
        let seed = crate::device::jitter()?;
        Some(Jitter((seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1))
    }

    /// Mostly none, sometimes a few microseconds, now and then long enough for others to overtake.
    fn pause(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        match self.0 % 16 {
            0..10 => {}
            10..15 => std::thread::sleep(std::time::Duration::from_micros(self.0 >> 16 & 31)),
            _ => std::thread::sleep(std::time::Duration::from_micros(self.0 >> 16 & 511)),
        }
    }
}

/// The stream behind a handle, with the special values for the default streams.
pub fn resolve(h: CUstream) -> R<Arc<Stream>> {
    let s = match h as usize {
        0 | 1 => context::current()?.legacy_stream()?,
        2 => context::current()?.thread_stream()?,
        _ => living(h)?,
    };
    s.context.check()?;
    Ok(s)
}

/// A stream of the application's. Those of a green context stay after its end, and say what became of them.
fn living(h: CUstream) -> R<Arc<Stream>> {
    let s = STREAMS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if s.context.alive.load(Ordering::Acquire) { Ok(s) } else { Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}

/// Runs work on a stream, or records it when the stream is being captured.
pub fn enqueue(s: &Arc<Stream>, work: Work) -> R<Option<Point>> {
    if let Some(c) = s.capture() {
        graph::record(&c, s, work)?;
        return Ok(None);
    }
    if s.class == Class::Legacy {
        forbid_legacy(&s.context)?;
    }
    s.context.check()?;
    let origin = cupti::call(s.id);
    s.submit(Vec::new(), Box::new(move |c| work.run(c, origin))).map(Some)
}

/// Runs work on a stream and waits for it.
pub fn run_now(s: &Arc<Stream>, work: Work) -> R {
    if s.capture().is_some() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if let Some(p) = enqueue(s, work)? {
        p.stream.wait(p.number);
    }
    s.context.check()
}

/// The legacy stream would have to wait for a blocking stream that is only being captured.
fn forbid_legacy(c: &Arc<Context>) -> R {
    for s in c.every_stream() {
        if matches!(s.class, Class::Blocking | Class::PerThread)
            && let Some(capture) = s.capture()
        {
            capture.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
    }
    Ok(())
}

/// Calls that wait for the whole context are not allowed while one of its streams is captured.
pub fn forbid_capture(c: &Arc<Context>) -> R {
    for s in c.streams_of_all() {
        if let Some(capture) = s.capture() {
            capture.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    Ok(())
}

fn create(out: *mut CUstream, flags: c_uint, priority: c_int) -> R {
    // SAFETY: the caller's out parameter.
    unsafe { create_in(&context::current()?, out, flags, priority) }
}

/// # Safety
/// `out` is null or valid for writing a handle.
pub unsafe fn create_in(c: &Arc<Context>, out: *mut CUstream, flags: c_uint, priority: c_int) -> R {
    if out.is_null() || flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let class = if flags & CU_STREAM_NON_BLOCKING != 0 { Class::NonBlocking } else { Class::Blocking };
    let s = Stream::new(c, class, flags, priority.clamp(PRIORITY_GREATEST, 0));
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, STREAMS.add(&s)) }
}

fn destroy(h: CUstream) -> R {
    let s = living(h)?;
    STREAMS.remove(h);
    if let Some(c) = s.capture() {
        graph::abandon(&s, &c);
    }
    // Work already queued still runs; the context keeps the stream until then so that synchronising includes it.
    s.close();
    let me = s.clone();
    if s.is_done(s.submitted())
        && let Ok(mut all) = s.context.streams.lock()
    {
        all.retain(|t| !Arc::ptr_eq(t, &me));
    }
    Ok(())
}

fn mem_op(h: CUstream, op: MemOp) -> R {
    mem_ops(h, vec![op])
}

fn mem_ops(h: CUstream, ops: Vec<MemOp>) -> R {
    let s = resolve(h)?;
    for op in &ops {
        let (at, bytes) = op.target();
        if at % bytes != 0 || (bytes != 1 && !crate::vram::covers(at, bytes)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    enqueue(&s, Work::MemOps(ops)).map(drop)
}

fn batch(h: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams) -> R {
    // SAFETY: the caller passes `count` entries.
    let params = unsafe { list(params, count as usize)? };
    mem_ops(h, crate::work::mem_ops(&params)?)
}

api! {
    fn cuStreamCreate(out: *mut CUstream, flags: c_uint) { create(out, flags, 0) }
    fn cuStreamCreateWithPriority(out: *mut CUstream, flags: c_uint, priority: c_int) { create(out, flags, priority) }
    fn cuStreamDestroy(h: CUstream) { destroy(h) }
    fn cuStreamDestroy_v2(h: CUstream) { destroy(h) }
    fn cuStreamQuery(h: CUstream) {
        let s = resolve(h)?;
        if let Some(c) = s.capture() {
            c.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let idle = s.is_idle();
        s.context.check()?;
        if idle { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }
    fn cuStreamSynchronize(h: CUstream) {
        let s = resolve(h)?;
        if let Some(c) = s.capture() {
            c.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        for p in s.preceding() {
            p.stream.wait(p.number);
        }
        s.wait_all();
        pool::synchronized();
        s.context.check()
    }
    fn cuStreamGetPriority(h: CUstream, priority: *mut c_int) {
        put(priority, resolve(h)?.priority)
    }
    fn cuStreamGetFlags(h: CUstream, flags: *mut c_uint) {
        put(flags, resolve(h)?.flags)
    }
    fn cuStreamGetId(h: CUstream, id: *mut c_ulonglong) {
        put(id, resolve(h)?.id)
    }
    fn cuStreamGetDevice(h: CUstream, device: *mut CUdevice) {
        put(device, resolve(h)?.context.device)
    }
    fn cuStreamGetCtx(h: CUstream, ctx: *mut CUcontext) {
        put(ctx, handle(&resolve(h)?.context))
    }
    fn cuStreamGetCtx_v2(h: CUstream, ctx: *mut CUcontext, green: *mut CUgreenCtx) {
        let c = resolve(h)?.context.clone();
        if c.green.is_none() {
            put(ctx, handle(&c))?;
            put_some(green, std::ptr::null_mut());
            return Ok(());
        }
        if h as usize == 2 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        put(ctx, handle(&context::by_id(c.id).ok_or(CUDA_ERROR_INVALID_CONTEXT)?))?;
        put_some(green, green_context::of(&c));
        Ok(())
    }
    fn cuStreamGetGreenCtx(h: CUstream, green: *mut CUgreenCtx) {
        put(green, green_context::of(&resolve(h)?.context))
    }
    fn cuStreamWaitEvent(h: CUstream, e: CUevent, flags: c_uint) {
        let s = resolve(h)?;
        let e = EVENTS.get(e).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if flags & !CU_EVENT_WAIT_EXTERNAL != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if graph::wait_event(&s, &e, flags & CU_EVENT_WAIT_EXTERNAL != 0)? {
            return Ok(());
        }
        match e.point() {
            // Waiting for work of the same stream, or for nothing, changes nothing.
            Some(p) if !Arc::ptr_eq(&p.stream, &s) => s.submit(vec![p], Box::new(|_| ())).map(drop),
            _ => Ok(()),
        }
    }
    fn cuLaunchHostFunc(h: CUstream, f: CUhostFn, data: *mut c_void) {
        let s = resolve(h)?;
        if f.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        enqueue(&s, Work::Host(Raw((f, data)))).map(drop)
    }
    fn cuStreamAddCallback(h: CUstream, f: CUstreamCallback, data: *mut c_void, flags: c_uint) {
        let s = resolve(h)?;
        let Some(f) = f else { return Err(CUDA_ERROR_INVALID_VALUE) };
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if s.capture().is_some() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let call = Raw((f, h, data));
        s.submit(Vec::new(), Box::new(move |c| {
            let call = call;
            let Raw((f, h, data)) = call;
            // SAFETY: the application's function with the application's argument, once, as CUDA promises.
            crate::device::host_function(|| unsafe { f(h, c.error(), data) });
        })).map(drop)
    }
    fn cuStreamAttachMemAsync(h: CUstream, _at: CUdeviceptr, _length: usize, _flags: c_uint) {
        resolve(h).map(drop)
    }
    fn cuStreamWriteValue32_v2(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        let _ = flags;
        mem_op(h, MemOp::Write { at, bytes: 4, value: u64::from(value) })
    }
    fn cuStreamWriteValue64_v2(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        let _ = flags;
        mem_op(h, MemOp::Write { at, bytes: 8, value })
    }
    fn cuStreamWaitValue32_v2(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        mem_op(h, MemOp::Wait { at, bytes: 4, value: u64::from(value), flags })
    }
    fn cuStreamWaitValue64_v2(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        mem_op(h, MemOp::Wait { at, bytes: 8, value, flags })
    }
    fn cuStreamWriteValue32(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        let _ = flags;
        mem_op(h, MemOp::Write { at, bytes: 4, value: u64::from(value) })
    }
    fn cuStreamWriteValue64(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        let _ = flags;
        mem_op(h, MemOp::Write { at, bytes: 8, value })
    }
    fn cuStreamWaitValue32(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        mem_op(h, MemOp::Wait { at, bytes: 4, value: u64::from(value), flags })
    }
    fn cuStreamWaitValue64(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        mem_op(h, MemOp::Wait { at, bytes: 8, value, flags })
    }
    fn cuStreamBatchMemOp(h: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams, flags: c_uint) {
        let _ = flags;
        batch(h, count, params)
    }
    fn cuStreamBatchMemOp_v2(h: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams, flags: c_uint) {
        let _ = flags;
        batch(h, count, params)
    }
    fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) {
        resolve(dst)?;
        resolve(src).map(drop)
    }
    fn cuStreamGetAttribute(h: CUstream, attr: CUstreamAttrID, value: *mut CUstreamAttrValue) {
        let s = resolve(h)?;
        let mut v: CUstreamAttrValue = std::mem::zeroed();
        match attr {
            CU_LAUNCH_ATTRIBUTE_PRIORITY => v.priority = s.priority,
            CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => v.syncPolicy = CU_SYNC_POLICY_AUTO,
            CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {}
            _ => return refuse("cuStreamGetAttribute", "this attribute"),
        }
        put(value, v)
    }
    fn cuStreamSetAttribute(h: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue) {
        resolve(h)?;
        get(value)?;
        match attr {
            CU_LAUNCH_ATTRIBUTE_PRIORITY
            | CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
            | CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => Ok(()),
            _ => refuse("cuStreamSetAttribute", "this attribute"),
        }
    }
}
