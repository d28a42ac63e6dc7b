//! Host functions: the driver calls them here, the client runs them.
//!
//! A driver thread that runs a host function waits here until the client has run the application's function,
//! so what comes after it on the stream waits too, as CUDA promises. Each waits on its own; the executor is
//! never among them.
//!
//! Before that thread runs, the device has interrupted the host and two threads of the driver have woken each other.
//! The executor, which is awake, sees sooner that the stream has come to the function, by an event before it, and asks
//! the client then ([`Due`]); the driver's thread finds the function asked for, or done. It does so only while no other
//! function runs, and the driver's threads bring no other before it has returned, unless one of them comes to the same
//! function: so no two run at a time that would not with the driver alone.

// UNSAFETY: the driver calls the trampolines with the pointer it was given.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use orion_cuda::sys::*;
use orion_ring::Lookahead;
use orion_wire::Writer;
use orion_wire::record::{HeapRange, op};

use crate::worker::out::Events;

/// What the client is asked to do; the first word of `RUN_CALLBACK`.
pub mod kind {
    /// Run `function(data)`; the stream waits.
    pub const HOST_FUNCTION: u64 = 0;
    /// Run `function(stream, status, data)`; the stream waits.
    pub const STREAM_CALLBACK: u64 = 1;
    /// Run `function(data)`, the destructor of the user object `stream`; nothing waits.
    pub const USER_OBJECT: u64 = 2;
    /// No graph refers any more to the heap range at offset `data`; nothing waits.
    pub const HEAP_RANGE: u64 = 3;
}

/// How long a callback waits for the executor to bring word of its end before it looks for itself.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long a driver's thread with another function waits for one that was asked for early. The driver alone might have
/// run them in the other order, and the early one may be waiting for this.
const EARLY_MAX: Duration = Duration::from_millis(250);

/// Callbacks that the client has been asked to run.
pub struct Callbacks {
    events: Arc<Events>,
    commands: Lookahead,
    rounds: Mutex<Rounds>,
    /// Something about the rounds has changed.
    changed: Condvar,
    /// Host functions queued or part of a graph that may still run.
    outstanding: AtomicU64,
    /// User objects whose destructor was called, until the executor forgets their names.
    destroyed: Mutex<Vec<u64>>,
    /// Heap ranges that work under way may write, as of the last launch of a graph. Only for a client with its own copy
    /// of the heap.
    written: Mutex<Vec<HeapRange>>,
}

/// Requests to the client that have not been seen to the end.
#[derive(Default, Clone, PartialEq, Eq, Hash)]
struct Rounds {
    last: u64,
    /// By id: true once the client says it has returned.
    running: BTreeMap<u64, bool>,
    /// The one that the executor asked for, until a driver's thread has come to it.
    early: Option<u64>,
}

/// What a driver's thread does that has come to a host function.
#[derive(Debug, PartialEq, Eq)]
enum Come {
    /// Another function runs that was asked for early.
    WaitFor(u64),
    /// The client has been asked.
    Join(u64),
    Ask(u64),
}

impl Rounds {
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.running.insert(self.last, false);
        self.last
    }

    /// The executor may ask, under this id, for a function that nobody has asked for. Not while another runs.
    fn ask_early(&mut self) -> Option<u64> {
        if self.running.values().any(|returned| !returned) {
            return None;
        }
        let id = self.begin();
        self.early = Some(id);
        Some(id)
    }

    /// A driver's thread comes to a function; `asked` is the id under which the executor has asked for it.
    fn come(&mut self, asked: Option<u64>, is_patient: bool) -> Come {
        match (asked, self.early) {
            (Some(id), early) => {
                // The driver has a thread that is busy with it: what another one brings is at the same time natively.
                self.early = early.filter(|early| *early != id);
                Come::Join(id)
            }
            (None, Some(early)) if is_patient && self.is_running(early) => Come::WaitFor(early),
            (None, _) => Come::Ask(self.begin()),
        }
    }

    fn is_running(&self, id: u64) -> bool {
        self.running.get(&id) == Some(&false)
    }

    fn note_returned(&mut self, id: u64) {
        if let Some(returned) = self.running.get_mut(&id) {
            *returned = true;
        }
    }

    /// The driver's thread goes on.
    fn leave(&mut self, id: u64) {
        self.running.remove(&id);
    }
}

/// What the driver keeps for one host function.
pub struct Ticket {
    callbacks: Arc<Callbacks>,
    /// The application's function and its data, as it named them.
    function: u64,
    data: u64,
    kind: u64,
    stream: u64,
    once: bool,
    /// Heap ranges that a client with its own copy of the heap has to have before it runs the function. A graph's
    /// function has those of its launch.
    before: Vec<HeapRange>,
    /// Of a `once` ticket, the id under which the client was asked; 0 before. Under the lock of the rounds.
    asked: AtomicU64,
}

/// Host functions queued in streams, each with an event before it, for the executor to look at.
///
/// Only the first is looked at: the others are later ones of its stream, or wait for the driver's thread, as do those
/// beyond [`DUE_MAX`].
pub struct Due<Event> {
    queued: VecDeque<(Event, Weak<Ticket>)>,
}

/// While commands keep coming nobody looks, and events would pile up.
const DUE_MAX: usize = 32;

/// What became of the work before a host function.
pub enum Before {
    UnderWay,
    Done,
    /// The driver will not run the function, or only it can tell.
    Failed,
}

impl<Event> Due<Event> {
    pub fn new() -> Due<Event> {
        Due { queued: VecDeque::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.queued.len() < DUE_MAX
    }

    pub fn push(&mut self, event: Event, ticket: Weak<Ticket>) {
        self.queued.push_back((event, ticket));
    }

    /// Asks the client to run what has become due, one after the other, and gives back the events that are not needed
    /// any more.
    pub fn look(&mut self, mut ask: impl FnMut(&Event) -> Before) -> Vec<Event> {
        let mut spare = Vec::new();
        while let Some((event, ticket)) = self.queued.front() {
            if let Some(ticket) = ticket.upgrade() {
                match ask(event) {
                    Before::UnderWay => break,
                    Before::Done if !ticket.callbacks.ask_early(&ticket) => break,
                    Before::Done | Before::Failed => {}
                }
            }
            spare.extend(self.queued.pop_front().map(|(event, _)| event));
        }
        spare
    }

    /// Forgets those whose event is gone.
    pub fn retain(&mut self, mut keep: impl FnMut(&Event) -> bool) {
        self.queued.retain(|(event, _)| keep(event));
    }
}

impl Callbacks {
    pub fn new(events: Arc<Events>, commands: Lookahead) -> Arc<Callbacks> {
        Arc::new(Callbacks {
            events,
            commands,
            rounds: Mutex::default(),
            changed: Condvar::new(),
            outstanding: AtomicU64::new(0),
            destroyed: Mutex::new(Vec::new()),
            written: Mutex::new(Vec::new()),
        })
    }

    /// A ticket for the driver. A `once` ticket is freed when it has run; another one belongs to a graph, which
    /// runs it any number of times and frees it through [`drop_ticket`].
    pub fn ticket(self: &Arc<Self>, function: u64, data: u64, kind: u64, stream: u64, once: bool) -> *mut c_void {
        self.ticket_after(function, data, kind, stream, once, Vec::new())
    }

    /// As [`Self::ticket`], for a function that runs after copies into `before`.
    pub fn ticket_after(
        self: &Arc<Self>,
        function: u64,
        data: u64,
        kind: u64,
        stream: u64,
        once: bool,
        before: Vec<HeapRange>,
    ) -> *mut c_void {
        if matches!(kind, kind::HOST_FUNCTION | kind::STREAM_CALLBACK) {
            self.outstanding.fetch_add(1, Ordering::Relaxed);
        }
        let asked = AtomicU64::new(0);
        let ticket = Ticket { callbacks: self.clone(), function, data, kind, stream, once, before, asked };
        Arc::into_raw(Arc::new(ticket)).cast_mut().cast()
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().expect("no panic happens under this lock")
    }

    /// The client has run callback `id`.
    pub fn done(&self, id: u64) {
        self.rounds().note_returned(id);
        self.changed.notify_all();
    }

    /// Whether a driver call that waits for the device could wait for the client.
    pub fn outstanding(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > 0
    }

    /// A graph is about to be launched: what its host functions may want to see.
    pub fn graph_starts(&self, written: Vec<HeapRange>) {
        *self.written.lock().expect("no panic happens under this lock") = written;
    }

    /// User objects that are gone since the last time somebody asked.
    pub fn take_destroyed(&self) -> Vec<u64> {
        std::mem::take(&mut self.destroyed.lock().expect("no panic happens under this lock"))
    }

    fn send(&self, ticket: &Ticket, status: CUresult, id: u64) {
        let mut body = Vec::new();
        for word in [ticket.kind, ticket.function, ticket.data, ticket.stream, status as u64] {
            body.word(word);
        }
        self.events.send(op::RUN_CALLBACK, (id, 0), &body);
    }

    /// Asks the client to run the function, once it has these ranges.
    fn ask(&self, ticket: &Ticket, status: CUresult, id: u64, before: &[HeapRange]) {
        // In the ring of the request itself: a carrier keeps the order within a ring, not between two.
        for range in before {
            let mut body = Vec::new();
            range.put(&mut body);
            self.events.send(op::HEAP_WRITTEN, (0, 0), &body);
        }
        self.send(ticket, status, id);
    }

    /// For the executor. False if another function runs: then it is too early, or the driver's thread brings it.
    fn ask_early(&self, ticket: &Ticket) -> bool {
        let mut rounds = self.rounds();
        if ticket.asked().is_some() {
            return true;
        }
        let Some(id) = rounds.ask_early() else { return false };
        ticket.asked.store(id, Ordering::Relaxed);
        drop(rounds);
        self.ask(ticket, CUDA_SUCCESS, id, &ticket.before);
        true
    }

    /// For a driver's thread: asks, unless the executor has, and waits until the function has returned.
    fn run(&self, ticket: &Ticket, status: CUresult) {
        let start = Instant::now();
        let mut rounds = self.rounds();
        let come = loop {
            match rounds.come(ticket.asked(), start.elapsed() < EARLY_MAX) {
                Come::WaitFor(early) => rounds = self.wait(rounds, early),
                come => break come,
            }
        };
        let id = match come {
            Come::Ask(id) => {
                if ticket.once {
                    ticket.asked.store(id, Ordering::Relaxed);
                }
                drop(rounds);
                let before = if ticket.once {
                    ticket.before.clone()
                } else {
                    self.written.lock().expect("no panic happens under this lock").clone()
                };
                self.ask(ticket, status, id, &before);
                id
            }
            Come::Join(id) | Come::WaitFor(id) => {
                drop(rounds);
                self.changed.notify_all();
                id
            }
        };
        let mut rounds = self.rounds();
        while rounds.is_running(id) {
            rounds = self.wait(rounds, id);
        }
        rounds.leave(id);
    }

    /// Waits a while for news, and looks whether `id` has returned if there is none.
    fn wait<'a>(&self, rounds: MutexGuard<'a, Rounds>, id: u64) -> MutexGuard<'a, Rounds> {
        let (mut rounds, waited) =
            self.changed.wait_timeout(rounds, PATIENCE).expect("no panic happens under this lock");
        if waited.timed_out() && self.has_returned(id) {
            rounds.note_returned(id);
        }
        rounds
    }

    /// Whether word of the end lies in the ring and the executor cannot come to it: it may be inside a driver call that
    /// waits for the device, which waits here. A launch is one when the GPU's queue is full.
    fn has_returned(&self, id: u64) -> bool {
        let found = self.commands.find(|header, word| match header.op {
            op::CALLBACK_DONE if word == id => Some(true),
            // What the function wrote to mapped memory has to be there before the stream goes on.
            op::HEAP_PATCH => Some(false),
            _ => None,
        });
        found == Some(true)
    }
}

impl Ticket {
    fn asked(&self) -> Option<u64> {
        Some(self.asked.load(Ordering::Relaxed)).filter(|id| *id != 0)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if matches!(self.kind, kind::HOST_FUNCTION | kind::STREAM_CALLBACK) {
            self.callbacks.outstanding.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// For [`Due`]: it may have run, and be gone, as soon as the driver knows of it.
///
/// # Safety
/// `ticket` came from [`Callbacks::ticket`] and is alive.
pub unsafe fn watch(ticket: *const c_void) -> Weak<Ticket> {
    // SAFETY: the caller's promise; the count that the pointer stands for stays.
    let ticket = unsafe { ManuallyDrop::new(Arc::from_raw(ticket.cast::<Ticket>())) };
    Arc::downgrade(&ticket)
}

/// Function and data of a host function that this worker gave the driver.
///
/// # Safety
/// `ticket` came from [`Callbacks::ticket`] and is alive.
pub unsafe fn application_side(ticket: *const c_void) -> (u64, u64) {
    // SAFETY: the caller's promise.
    let ticket = unsafe { &*ticket.cast::<Ticket>() };
    (ticket.function, ticket.data)
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
    ticket.callbacks.run(ticket, status);
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
    drop(unsafe { Arc::from_raw(data.cast::<Ticket>()) });
}

/// Tells the client that what the ticket stands for is gone, and frees it. The destructor of user objects;
/// the driver's thread does not wait, because nothing on the device does.
///
/// # Safety
/// As [`drop_ticket`].
pub unsafe extern "C" fn released(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let ticket = unsafe { Arc::from_raw(data.cast::<Ticket>()) };
    let callbacks = &ticket.callbacks;
    if ticket.kind == kind::USER_OBJECT {
        callbacks.destroyed.lock().expect("no panic happens under this lock").push(ticket.stream);
    }
    // Nobody waits for its end, so it is no round.
    callbacks.send(&ticket, CUDA_SUCCESS, 0);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use orion_ring::memory::Which;
    use orion_ring::{Consumer, Layout, Memory};

    use super::*;

    fn callbacks() -> (Arc<Callbacks>, Consumer) {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let events = Events::new(memory.producer(Which::Event).unwrap());
        let commands = memory.consumer(Which::Command).unwrap().lookahead();
        (Callbacks::new(events, commands), memory.consumer(Which::Event).unwrap())
    }

    fn queued(callbacks: &Arc<Callbacks>, due: &mut Due<u32>, event: u32) -> *mut c_void {
        let ticket = callbacks.ticket(0x1000 + event as u64, 0, kind::HOST_FUNCTION, 0, true);
        // SAFETY: just made.
        due.push(event, unsafe { watch(ticket) });
        ticket
    }

    /// The ids under which the client was asked.
    fn asked(events: &mut Consumer) -> Vec<u64> {
        std::iter::from_fn(|| {
            let header = events.next().unwrap()?;
            events.consume(header.size as usize);
            assert_eq!(header.op, op::RUN_CALLBACK);
            Some(header.context)
        })
        .collect()
    }

    #[test]
    fn what_is_due_is_asked_for_once() {
        let (callbacks, mut events) = callbacks();
        let mut due = Due::new();
        let ticket = queued(&callbacks, &mut due, 1);
        assert!(due.look(|_| Before::UnderWay).is_empty());
        assert!(asked(&mut events).is_empty());
        assert_eq!(due.look(|_| Before::Done), [1]);
        let ids = asked(&mut events);
        assert_eq!(ids.len(), 1);
        callbacks.done(ids[0]);
        // The driver's thread comes to it: the client has run it, and is not asked again.
        // SAFETY: as the driver calls it, once.
        unsafe { host_function(ticket) };
        assert!(asked(&mut events).is_empty() && !callbacks.outstanding());
    }

    /// A thread of the driver's comes to a ticket.
    fn driver_runs(ticket: *mut c_void) -> thread::JoinHandle<()> {
        let ticket = ticket as usize;
        // SAFETY: as the driver calls it, once for each ticket.
        thread::spawn(move || unsafe { host_function(ticket as *mut c_void) })
    }

    /// The next request, which comes within a while.
    fn next(events: &mut Consumer) -> u64 {
        let start = Instant::now();
        loop {
            match asked(events)[..] {
                [] => assert!(start.elapsed() < Duration::from_secs(10)),
                [id] => return id,
                ref more => panic!("{} at once", more.len()),
            }
        }
    }

    /// Two functions, and the id under which the executor has asked for the first.
    fn one_early_of_two() -> (Arc<Callbacks>, Consumer, [*mut c_void; 2], u64) {
        let (callbacks, mut events) = callbacks();
        let mut due = Due::new();
        let tickets = [1, 2].map(|event| queued(&callbacks, &mut due, event));
        assert_eq!(due.look(|event| if *event == 1 { Before::Done } else { Before::UnderWay }), [1]);
        let early = next(&mut events);
        (callbacks, events, tickets, early)
    }

    #[test]
    fn the_driver_may_come_first() {
        let (callbacks, mut events) = callbacks();
        let mut due = Due::new();
        let driver = driver_runs(queued(&callbacks, &mut due, 1));
        let id = next(&mut events);
        // It waits for the client, and the executor finds its event done.
        assert_eq!(due.look(|_| Before::Done), [1]);
        assert!(asked(&mut events).is_empty());
        callbacks.done(id);
        driver.join().unwrap();
        assert!(due.is_empty() && !callbacks.outstanding());
    }

    #[test]
    fn the_executor_asks_for_one_at_a_time() {
        let (callbacks, mut events) = callbacks();
        let mut due = Due::new();
        let tickets = [1, 2].map(|event| queued(&callbacks, &mut due, event));
        assert_eq!(due.look(|_| Before::Done), [1]);
        let first = next(&mut events);
        assert!(due.look(|_| Before::Done).is_empty() && asked(&mut events).is_empty());
        callbacks.done(first);
        assert_eq!(due.look(|_| Before::Done), [2]);
        callbacks.done(next(&mut events));
        tickets.map(driver_runs).into_iter().for_each(|driver| driver.join().unwrap());
        assert!(asked(&mut events).is_empty() && !callbacks.outstanding());
    }

    #[test]
    fn a_driver_of_one_thread_brings_no_other_while_an_early_one_runs() {
        let (callbacks, mut events, tickets, early) = one_early_of_two();
        let driver = driver_runs(tickets[1]);
        thread::sleep(EARLY_MAX / 10);
        assert!(asked(&mut events).is_empty());
        callbacks.done(early);
        callbacks.done(next(&mut events));
        driver.join().unwrap();
        driver_runs(tickets[0]).join().unwrap();
        assert!(asked(&mut events).is_empty() && !callbacks.outstanding());
    }

    #[test]
    fn a_driver_of_two_threads_runs_two() {
        let (callbacks, mut events, tickets, early) = one_early_of_two();
        let drivers = tickets.map(driver_runs);
        // The early one waits for it.
        callbacks.done(next(&mut events));
        callbacks.done(early);
        drivers.into_iter().for_each(|driver| driver.join().unwrap());
        assert!(asked(&mut events).is_empty() && !callbacks.outstanding());
    }

    #[test]
    fn one_that_waits_for_a_later_one_gets_it() {
        let (callbacks, mut events, tickets, early) = one_early_of_two();
        // The driver alone would have run this one first.
        let driver = driver_runs(tickets[1]);
        callbacks.done(next(&mut events));
        driver.join().unwrap();
        callbacks.done(early);
        driver_runs(tickets[0]).join().unwrap();
        assert!(!callbacks.outstanding());
    }

    #[test]
    fn what_the_driver_has_run_or_refused_is_forgotten() {
        let (callbacks, mut events) = callbacks();
        let mut due = Due::new();
        let tickets = [1, 2].map(|event| queued(&callbacks, &mut due, event));
        // SAFETY: the driver never learnt of it.
        unsafe { drop_ticket(tickets[0]) };
        assert_eq!(due.look(|_| Before::Failed), [1, 2]);
        assert!(asked(&mut events).is_empty());
        // SAFETY: as above.
        unsafe { drop_ticket(tickets[1]) };
        assert!(!callbacks.outstanding());
    }

    #[test]
    fn one_context_goes_the_others_stay() {
        let (callbacks, _events) = callbacks();
        let mut due = Due::new();
        let tickets = [1, 2, 3].map(|event| queued(&callbacks, &mut due, event));
        due.retain(|event| *event != 2);
        assert_eq!(due.look(|_| Before::Failed), [1, 3]);
        // SAFETY: nothing refers to them afterwards.
        tickets.into_iter().for_each(|ticket| unsafe { drop_ticket(ticket) });
    }

    /// Every order in which a driver's threads, the executor and the client can do what they do, for a few functions in
    /// a few streams.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Model {
        rounds: Rounds,
        /// By function, in the order of its stream.
        streams: Vec<Vec<usize>>,
        asked: BTreeMap<usize, u64>,
        /// The driver's threads: the function that one has come to, and the id it waits for.
        threads: Vec<Option<(usize, Option<u64>)>>,
        returned: Vec<usize>,
        finished: Vec<usize>,
        /// A function that returns only when the other has.
        waits_for: Option<(usize, usize)>,
    }

    impl Model {
        fn new(threads: usize, streams: &[&[usize]], waits_for: Option<(usize, usize)>) -> Model {
            Model {
                rounds: Rounds::default(),
                streams: streams.iter().map(|functions| functions.to_vec()).collect(),
                asked: BTreeMap::new(),
                threads: vec![None; threads],
                returned: Vec::new(),
                finished: Vec::new(),
                waits_for,
            }
        }

        fn running(&self) -> Vec<usize> {
            self.asked.keys().copied().filter(|function| !self.returned.contains(function)).collect()
        }

        fn ask(&mut self, function: usize, id: u64) {
            assert_eq!(self.asked.insert(function, id), None, "function {function} runs twice");
        }

        /// The functions that streams have come to.
        fn due(&self) -> Vec<usize> {
            self.streams.iter().filter_map(|functions| functions.first().copied()).collect()
        }

        fn next(&self, is_patient: bool) -> Vec<Model> {
            let mut all = Vec::new();
            for function in self.due() {
                if !self.asked.contains_key(&function) {
                    let mut then = self.clone();
                    if let Some(id) = then.rounds.ask_early() {
                        then.ask(function, id);
                        all.push(then);
                    }
                }
                let is_taken = self.threads.iter().flatten().any(|(taken, _)| *taken == function);
                if let (false, Some(idle)) = (is_taken, self.threads.iter().position(Option::is_none)) {
                    let mut then = self.clone();
                    then.threads[idle] = Some((function, None));
                    all.push(then);
                }
            }
            for function in self.running() {
                if self.waits_for.is_none_or(|(one, other)| one != function || self.returned.contains(&other)) {
                    let mut then = self.clone();
                    then.returned.push(function);
                    then.rounds.note_returned(self.asked[&function]);
                    all.push(then);
                }
            }
            for (index, thread) in self.threads.iter().enumerate() {
                let mut then = self.clone();
                match *thread {
                    Some((function, None)) => match then.rounds.come(self.asked.get(&function).copied(), is_patient) {
                        Come::WaitFor(_) => continue,
                        Come::Join(id) => then.threads[index] = Some((function, Some(id))),
                        Come::Ask(id) => {
                            then.ask(function, id);
                            then.threads[index] = Some((function, Some(id)));
                        }
                    },
                    Some((function, Some(id))) if !self.rounds.is_running(id) => {
                        then.rounds.leave(id);
                        then.threads[index] = None;
                        then.finished.push(function);
                        then.streams.iter_mut().for_each(|functions| functions.retain(|f| *f != function));
                    }
                    _ => continue,
                }
                all.push(then);
            }
            all
        }

        /// Checks all that can happen. The most functions that ran at a time, and whether a thread lost its patience.
        fn explore(self, functions: usize) -> (usize, bool) {
            let (mut seen, mut open) = (HashSet::from([self.clone()]), vec![self]);
            let (mut most, mut impatient) = (0, false);
            while let Some(state) = open.pop() {
                most = most.max(state.running().len());
                let mut next = state.next(true);
                if next.is_empty() && state.finished.len() < functions {
                    impatient = true;
                    next = state.next(false);
                    assert!(!next.is_empty(), "nothing goes on");
                }
                if next.is_empty() {
                    assert!(state.rounds.running.is_empty() && state.rounds.early.is_none());
                }
                open.extend(next.into_iter().filter(|then| seen.insert(then.clone())));
            }
            (most, impatient)
        }
    }

    #[test]
    fn functions_run_once_and_as_many_at_a_time_as_the_driver_has_threads() {
        assert_eq!(Model::new(1, &[&[0, 1], &[2], &[3]], None).explore(4), (1, false));
        assert_eq!(Model::new(1, &[&[0, 1, 2], &[3, 4]], None).explore(5), (1, false));
        assert_eq!(Model::new(2, &[&[0, 1], &[2], &[3]], None).explore(4), (2, false));
        // One waits for another, which a driver of two threads runs at the same time.
        assert_eq!(Model::new(2, &[&[0], &[1]], Some((0, 1))).explore(2), (2, false));
        // Both threads may have come to others when the first was asked for early.
        assert_eq!(Model::new(2, &[&[0], &[1], &[2]], Some((0, 1))).explore(3), (2, true));
    }
}
