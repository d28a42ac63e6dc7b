//! Streams: one host thread each, ordered queues, and what waits for what.
//!
//! Every piece of work gets a number in its stream. Waiting is always for a (stream, number) pair that was handed out
//! earlier, so waits cannot form a circle.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Registry};
use crate::context::{self, Class, Command, Context, Job, Point, Stream};

pub const PRIORITY_GREATEST: c_int = -5;
pub static STREAMS: Registry<Stream> = Registry::new();
pub(crate) static NEXT_ID: AtomicU64 = AtomicU64::new(1);

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
            capture: AtomicU64::new(0),
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

    /// Waits until half of the queue is free if it is full, of launches with so many bytes of parameters. An H200's
    /// holds 717 with 4,000 bytes: as if it had 4 MiB, and each launch took 1,850 bytes besides.
    pub fn wait_for_room(&self, parameter_bytes: usize) {
        let (submitted, place) = (self.submitted(), (parameter_bytes as u64 + 1850).max(4096));
        let queued = submitted.saturating_sub(self.completed.load(Ordering::Acquire));
        if queued * place >= Self::QUEUE_MAX * 4096 {
            self.wait(submitted - queued / 2);
        }
    }

    pub(crate) fn submitted(&self) -> u64 {
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
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        self.is_done(self.submitted()) && self.preceding().iter().all(|p| p.stream.is_done(p.number))
    }

    /// Work of other streams that the default stream's rules put before new work here.
    pub(crate) fn preceding(self: &Arc<Self>) -> Vec<Point> {
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
}

/// Random pauses around everything that a stream does, so that streams finish in every order and a result is there for
/// a while before its stream says so, as on hardware. With `ORION_SOFT_JITTER` set to a seed.
pub struct Jitter(pub u64);

impl Jitter {
    pub(crate) fn of(stream: u64) -> Option<Jitter> {
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
pub(crate) fn living(h: CUstream) -> R<Arc<Stream>> {
    let s = STREAMS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if s.context.alive.load(Ordering::Acquire) { Ok(s) } else { Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}
