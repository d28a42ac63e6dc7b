//! Host functions: the driver calls them here, the client runs them.
//!
//! A driver thread that runs a host function waits here until the client has run the application's function,
//! so what comes after it on the stream waits too, as CUDA promises. Each waits on its own; the executor is
//! never among them.

// UNSAFETY: the driver calls the trampolines with the pointer it was given.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use orion_cuda::sys::*;
use orion_ring::{Ahead, Heap, Lookahead};
use orion_wire::generated::ops;
use orion_wire::message::address::ClaimedRange;
use orion_wire::message::callback::{CallbackDone, RunCallback, StreamCall, Task};
use orion_wire::message::field::CallbackId;
use orion_wire::message::host_memory::{MemHostAlloc, Pinned};
use orion_wire::record::op;
use orion_wire::{Fault, Reader};

use crate::lines;
use crate::worker::out::arrivals::{self, Shared};
use crate::worker::out::managed::Variables;
use crate::worker::out::replies::Events;

/// What a ticket stands for: see [`Task`].
pub mod kind {
    pub const HOST_FUNCTION: u64 = 0;
    pub const STREAM_CALLBACK: u64 = 1;
    pub const USER_OBJECT: u64 = 2;
    pub const HEAP_RANGE: u64 = 3;
}

/// How long a callback waits for the executor to bring word of its end before it looks for itself.
const PATIENCE: Duration = Duration::from_millis(5);

/// Callbacks that the client has been asked to run.
pub struct Callbacks {
    events: Arc<Events>,
    commands: Lookahead,
    next: AtomicU64,
    /// Rounds under way, by id: true once the client says it has returned.
    running: Mutex<HashMap<u64, bool>>,
    returned: Condvar,
    /// Host functions queued or part of a graph that may still run.
    outstanding: AtomicU64,
    /// User objects whose destructor was called, until the executor forgets their names.
    destroyed: Mutex<Vec<u64>>,
    /// For a client with its own copy of the heap.
    arrivals: Option<(Shared, Heap)>,
    variables: Arc<Variables>,
}

/// Of a host function: whether it runs now, and how many nodes of executable graphs it belongs to.
#[derive(Debug, Default)]
pub struct Runs {
    now: AtomicU32,
    pub nodes: AtomicU32,
}

impl Runs {
    pub fn begin(&self) {
        self.now.fetch_add(1, Ordering::Release);
    }

    pub fn end(&self) {
        self.now.fetch_sub(1, Ordering::Release);
    }

    pub fn are_under_way(&self) -> bool {
        self.now.load(Ordering::Acquire) > 0
    }
}

/// What the driver keeps for one host function.
pub struct Ticket {
    callbacks: Arc<Callbacks>,
    /// By which the client knows what to do: a function of the application's, or an offset in the heap.
    number: u64,
    kind: u64,
    /// The name of the user object that is destroyed.
    object: u64,
    once: bool,
    /// The client keeps the function until it is told that nothing refers to it.
    kept: bool,
    asked_for: AtomicBool,
    /// Ends with it.
    alive: Arc<()>,
    runs: Arc<Runs>,
}

impl Callbacks {
    pub fn new(
        events: Arc<Events>,
        commands: Lookahead,
        arrivals: Option<(Shared, Heap)>,
        variables: Arc<Variables>,
    ) -> Arc<Callbacks> {
        Arc::new(Callbacks {
            events,
            commands,
            next: AtomicU64::new(1),
            running: Mutex::new(HashMap::new()),
            returned: Condvar::new(),
            outstanding: AtomicU64::new(0),
            destroyed: Mutex::new(Vec::new()),
            arrivals,
            variables,
        })
    }

    /// A ticket for the driver. A `once` ticket is freed when it has run; another one belongs to a graph, which
    /// runs it any number of times and frees it through [`drop_ticket`].
    pub fn ticket(self: &Arc<Self>, number: u64, kind: u64, object: u64, once: bool, kept: bool) -> *mut c_void {
        if matches!(kind, kind::HOST_FUNCTION | kind::STREAM_CALLBACK) {
            self.outstanding.fetch_add(1, Ordering::Relaxed);
        }
        let (callbacks, asked_for, alive) = (self.clone(), AtomicBool::new(false), Arc::new(()));
        let runs = Arc::default();
        let ticket = Ticket { callbacks, number, kind, object, once, kept, asked_for, alive, runs };
        Box::into_raw(Box::new(ticket)).cast()
    }

    /// The client has run callback `id`.
    pub fn done(&self, id: u64) {
        if let Some(flag) = self.running.lock().expect("no panic happens under this lock").get_mut(&id) {
            *flag = true;
        }
        self.returned.notify_all();
    }

    /// Whether a driver call that waits for the device could wait for the client.
    pub fn outstanding(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > 0
    }

    /// User objects that are gone since the last time somebody asked.
    pub fn take_destroyed(&self) -> Vec<u64> {
        std::mem::take(&mut self.destroyed.lock().expect("no panic happens under this lock"))
    }

    fn send(&self, ticket: &Ticket, status: CUresult, id: u64) {
        let function = CallbackId(ticket.number);
        let task = match ticket.kind {
            kind::STREAM_CALLBACK => Task::StreamCallback(StreamCall { function, status }),
            kind::USER_OBJECT => Task::UserObject(function),
            kind::HEAP_RANGE => Task::HeapRange(ticket.number),
            _ => Task::HostFunction(function),
        };
        ticket.asked_for.store(true, Ordering::Relaxed);
        self.ask(id, task);
    }

    fn ask(&self, round: u64, task: Task) {
        let mut body = Vec::new();
        RunCallback { task }.encode(&mut body);
        self.events.send(RunCallback::OP, (round, 0), &body);
    }

    fn run(&self, ticket: &Ticket, status: CUresult) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.running.lock().expect("no panic happens under this lock").insert(id, false);
        self.variables.take();
        if let Some((arrivals, heap)) = &self.arrivals
            && let Err(fault) = arrivals::lock(arrivals).before_function(heap, !ticket.once)
        {
            lines::warn(&format!("heap ranges lost ahead of a host function: {fault}"));
        }
        self.send(ticket, status, id);
        let mut running = self.running.lock().expect("no panic happens under this lock");
        while running.get(&id) == Some(&false) {
            let (guard, waited) =
                self.returned.wait_timeout(running, PATIENCE).expect("no panic happens under this lock");
            running = guard;
            if waited.timed_out() && self.has_returned(id) {
                break;
            }
        }
        running.remove(&id);
        drop(running);
        self.variables.give();
    }

    /// Whether word of the end lies in the ring and the executor cannot come to it: it may be inside a driver call that
    /// waits for the device, which waits here. A launch is one when the GPU's queue is full.
    ///
    /// What the function wrote to mapped memory has to be there before the stream goes on, and lies in the ring ahead
    /// of its end: it is put there now, as it would be at once if that memory were one and the same. The executor
    /// passes over it when it comes to it.
    fn has_returned(&self, id: u64) -> bool {
        let is_end = |record: &Ahead<'_>| {
            record.header.op == CallbackDone::OP
                && CallbackDone::decode(&mut Reader::new(&record.body())).is_ok_and(|q| q.round == id)
        };
        if self.commands.find(|record| is_end(record).then_some(())).is_none() {
            return false;
        }
        let (mut news, mut freed) = (Vec::new(), false);
        let found = self.commands.find(|record| {
            match record.header.op {
                _ if is_end(record) => return Some(true),
                op::HEAP_PATCH => news.push(News::Patch(record.body())),
                MemHostAlloc::OP => {
                    if let Ok(MemHostAlloc { request: Pinned::Mapped, range }) =
                        MemHostAlloc::decode(&mut Reader::new(&record.body()))
                    {
                        // It may be a range that the executor still knows as another.
                        if freed {
                            return Some(false);
                        }
                        news.push(News::Mapped(range));
                    }
                }
                ops::CU_MEM_FREE_HOST | ops::CU_MEM_HOST_UNREGISTER => freed = true,
                _ => {}
            }
            None
        });
        found == Some(true) && self.take(news).is_ok()
    }

    fn take(&self, news: Vec<News>) -> Result<(), Fault> {
        let Some((arrivals, heap)) = &self.arrivals else { return Ok(()) };
        let mirror = &mut arrivals::lock(arrivals).mirror;
        for news in news {
            match news {
                News::Patch(body) => drop(mirror.apply(heap, &body)?),
                News::Mapped(range) => mirror.add(heap, range.check(heap.bytes())?)?,
            }
        }
        Ok(())
    }
}

/// What the client has said of mapped memory, and the executor has not come to.
enum News {
    Patch(Vec<u8>),
    Mapped(ClaimedRange),
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if matches!(self.kind, kind::HOST_FUNCTION | kind::STREAM_CALLBACK) {
            self.callbacks.outstanding.fetch_sub(1, Ordering::Relaxed);
        }
        // One that the client does not keep it has forgotten when it was asked for it.
        let known = self.kept || !*self.asked_for.get_mut();
        if known && self.kind != kind::HEAP_RANGE {
            self.callbacks.ask(0, Task::Forget(CallbackId(self.number)));
        }
    }
}

/// The client's number of a host function that this worker gave the driver.
///
/// # Safety
/// `ticket` came from [`Callbacks::ticket`] and is alive.
pub unsafe fn number_of(ticket: *const c_void) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*ticket.cast::<Ticket>() }.number
}

/// What lives until a `once` ticket has run.
///
/// # Safety
/// As [`number_of`].
pub unsafe fn life_of(ticket: *const c_void) -> Weak<()> {
    // SAFETY: the caller's promise.
    Arc::downgrade(&unsafe { &*ticket.cast::<Ticket>() }.alive)
}

/// What tells whether a ticket's function runs.
///
/// # Safety
/// As [`number_of`].
pub unsafe fn runs_of(ticket: *const c_void) -> Arc<Runs> {
    // SAFETY: the caller's promise.
    unsafe { &*ticket.cast::<Ticket>() }.runs.clone()
}

/// `CUhostFn` for the driver.
pub unsafe extern "C" fn host_function(data: *mut c_void) {
    run_ticket(data, CUDA_SUCCESS);
}

/// `CUstreamCallback` for the driver.
pub unsafe extern "C" fn stream_callback(_stream: CUstream, status: CUresult, data: *mut c_void) {
    run_ticket(data, status);
}

fn run_ticket(data: *mut c_void, status: CUresult) {
    // SAFETY: the pointer came from `Callbacks::ticket`; a `once` ticket is freed only below, after its only run,
    // another one only after the graphs that run it.
    let ticket = unsafe { &*data.cast::<Ticket>() };
    ticket.runs.begin();
    ticket.callbacks.run(ticket, status);
    ticket.runs.end();
    if ticket.once {
        // SAFETY: a `once` ticket runs once, and this was it.
        unsafe { drop_ticket(data) };
    }
}

/// Frees a ticket that will not run any more. Also the destructor of the user object by which a graph, its
/// clones and its executable graphs share the tickets of their host nodes.
///
/// # Safety
/// `data` came from [`Callbacks::ticket`]; nothing refers to it afterwards.
pub unsafe extern "C" fn drop_ticket(data: *mut c_void) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(data.cast::<Ticket>()) });
}

/// Tells the client that what the ticket stands for is gone, and frees it. The destructor of user objects;
/// the driver's thread does not wait, because nothing on the device does.
///
/// # Safety
/// As [`drop_ticket`].
pub unsafe extern "C" fn released(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let ticket = unsafe { Box::from_raw(data.cast::<Ticket>()) };
    let callbacks = &ticket.callbacks;
    if ticket.kind == kind::USER_OBJECT {
        callbacks.destroyed.lock().expect("no panic happens under this lock").push(ticket.object);
    }
    callbacks.send(&ticket, CUDA_SUCCESS, callbacks.next.fetch_add(1, Ordering::Relaxed));
}
