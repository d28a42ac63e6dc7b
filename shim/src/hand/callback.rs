//! Host functions and user objects: the worker's driver says when, this process runs them.
//!
//! Natively the driver runs them on threads of its own, and a program may rely on as much concurrency as it has.
//! Here every function that the worker's driver has started, and so is waiting for, gets a thread at once: what
//! the driver does one after the other stays so, and what it does at the same time may wait for each other.
//!
//! Functions and data stay in this process. The worker has numbers, and one that was not given out, or was used up,
//! ends the session: a false server must not choose what a program calls.

// UNSAFETY: calls functions of the application with the data it gave for them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use orion_cuda::sys::*;
use orion_wire::handle::Handle;
use orion_wire::record::{Header, HeapRange, op};
use orion_wire::{Reader, Writer};

use crate::call::post;
use crate::handles;
use crate::session::{Session, session};

/// What the worker asks for; the same numbers as in its `callback::kind`.
pub const HOST_FUNCTION: u64 = 0;
const STREAM_CALLBACK: u64 = 1;
pub const USER_OBJECT: u64 = 2;
const HEAP_RANGE: u64 = 3;
const FORGET: u64 = 4;

/// A function that the application gave, and the data it is to be called with. The worker knows it by number only: what
/// it says decides when this runs, never what.
#[derive(Clone, Copy)]
pub struct Registered {
    function: Function,
    data: usize,
    /// The worker says when it is not needed any more; otherwise it runs once at most.
    kept: bool,
}

#[derive(Clone, Copy)]
pub enum Function {
    Host(unsafe extern "C" fn(*mut c_void)),
    Stream(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), usize),
    /// Destroys the user object with this name.
    Destroy(unsafe extern "C" fn(*mut c_void), Handle),
}

/// By index; a number is an index and how often it had been used.
pub struct Table {
    slots: Vec<(u32, Option<Registered>)>,
    free: Vec<u32>,
}

static REGISTERED: Mutex<Table> = Mutex::new(Table { slots: Vec::new(), free: Vec::new() });

impl Table {
    fn put(&mut self, registered: Registered) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        *slot = (slot.0.wrapping_add(1), Some(registered));
        (slot.0 as u64) << 32 | index as u64
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<Registered>> {
        let (generation, registered) = self.slots.get_mut(number as u32 as usize)?;
        (*generation == (number >> 32) as u32).then_some(registered)
    }

    fn take(&mut self, number: u64) -> Option<Registered> {
        let taken = self.slot(number)?.take();
        if taken.is_some() {
            self.free.push(number as u32);
        }
        taken
    }

    /// What to call when the worker asks for `number`.
    fn asked_for(&mut self, number: u64, kind: u64) -> Option<Registered> {
        let registered = (*self.slot(number)?)?;
        if registered.function.kind() != kind {
            return None;
        }
        if registered.kept { Some(registered) } else { self.take(number) }
    }
}

impl Function {
    fn kind(self) -> u64 {
        match self {
            Function::Host(_) => HOST_FUNCTION,
            Function::Stream(..) => STREAM_CALLBACK,
            Function::Destroy(..) => USER_OBJECT,
        }
    }
}

pub fn register(function: Function, data: *mut c_void, kept: bool) -> u64 {
    REGISTERED.lock().expect("no panic happens under this lock").put(Registered { function, data: data as usize, kept })
}

/// For a host node, whose function runs whenever the graph does.
pub fn register_for_graph(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> u64 {
    register(Function::Host(function), data, true)
}

/// What was registered for a host node under this number.
pub fn of_graph(number: u64) -> Option<CUDA_HOST_NODE_PARAMS> {
    let mut table = REGISTERED.lock().expect("no panic happens under this lock");
    match (*table.slot(number)?)? {
        Registered { function: Function::Host(function), data, .. } => {
            Some(CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data as *mut c_void })
        }
        _ => None,
    }
}

/// One function to run.
struct Job {
    id: u64,
    registered: Registered,
    status: CUresult,
}

impl Job {
    fn run(self) {
        // Relaxed: what matters is what this thread itself sees.
        ANY_CALLBACK.store(true, Ordering::Relaxed);
        crate::hand::graph::exec::around_host_function(|| self.call());
        if let Function::Destroy(_, name) = self.registered.function {
            handles::release(name);
        } else {
            announce_again(!self.registered.kept);
            post(op::CALLBACK_DONE, |w| w.word(self.id));
        }
    }

    /// The application's function. Inside it CUDA may not be called.
    fn call(&self) {
        IN_CALLBACK.with(|flag| flag.set(true));
        let data = self.registered.data as *mut c_void;
        // SAFETY: the application's own function and data, called as CUDA calls it.
        unsafe {
            match self.registered.function {
                Function::Host(function) | Function::Destroy(function, _) => function(data),
                Function::Stream(function, stream) => function(stream as CUstream, self.status, data),
            }
        }
        IN_CALLBACK.with(|flag| flag.set(false));
    }
}

/// A host function has run in this process. Most have none, and a thread's own variable costs every call ten times as
/// much as this one.
static ANY_CALLBACK: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a host function, where CUDA answers `CUDA_ERROR_NOT_PERMITTED`.
#[inline]
pub fn in_callback() -> bool {
    ANY_CALLBACK.load(Ordering::Relaxed) && IN_CALLBACK.with(Cell::get)
}

/// Host functions enqueued that have not run, other than those of graphs.
pub static OUTSTANDING: AtomicU32 = AtomicU32::new(0);
/// Some graph has host functions: nobody knows how many have still to run.
static IN_GRAPHS: AtomicBool = AtomicBool::new(false);

/// A graph gets a host function.
pub fn note_in_graph() {
    IN_GRAPHS.store(true, Ordering::Relaxed);
}

/// Whether a host function may be on its way.
#[inline]
pub fn may_run() -> bool {
    OUTSTANDING.load(Ordering::SeqCst) > 0 || IN_GRAPHS.load(Ordering::Relaxed)
}

/// Whether any graph may have host functions.
pub fn any_in_graphs() -> bool {
    IN_GRAPHS.load(Ordering::Relaxed)
}

/// Pinned memory that a copy under way reads. Where the worker has its own copy of the heap the bytes were brought over
/// when the copy was made, and a host function ahead of it may write to them.
struct Source {
    token: u64,
    /// Which of this process's commands reads it; 0 until it is in the ring.
    number: u64,
    ranges: Vec<HeapRange>,
}

static SOURCES: Mutex<Vec<Source>> = Mutex::new(Vec::new());
static ANY_SOURCE: AtomicBool = AtomicBool::new(false);
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

fn change_sources<T>(change: impl FnOnce(&mut Vec<Source>) -> T) -> T {
    let mut all = SOURCES.lock().expect("no panic happens under this lock");
    let answer = change(&mut all);
    ANY_SOURCE.store(!all.is_empty(), Ordering::SeqCst);
    answer
}

/// A copy that is about to be made. Its source is noted from before its bytes are brought over until the worker says
/// that the copy is done.
pub struct Reading {
    token: u64,
}

impl Reading {
    /// Nothing where no host function can be ahead of the copy.
    pub fn of(s: &Session, ranges: impl FnOnce() -> Vec<HeapRange>) -> Reading {
        if !s.mirrored || !may_run() {
            return Reading { token: 0 };
        }
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        change_sources(|all| all.push(Source { token, number: 0, ranges: ranges() }));
        Reading { token }
    }

    /// Whether the worker has to say when the copy is done.
    pub fn is_noted(&self) -> bool {
        self.token != 0
    }

    /// The copy goes into the ring as this command.
    pub fn posted(&self, number: u64) {
        if self.is_noted() {
            change_sources(|all| all.iter_mut().filter(|s| s.token == self.token).for_each(|s| s.number = number));
        }
    }
}

impl Drop for Reading {
    /// A copy that was waited for, or never sent, reads nothing any more.
    fn drop(&mut self) {
        if self.is_noted() {
            change_sources(|all| all.retain(|s| s.token != self.token || s.number != 0));
        }
    }
}

/// A command, perhaps a copy from pinned memory, is done.
pub fn settled(number: u64) {
    if ANY_SOURCE.load(Ordering::SeqCst) {
        change_sources(|all| all.retain(|s| s.number != number));
    }
}

/// A host function has run: what it may have written comes to the worker before the copies behind it start.
fn announce_again(counted: bool) {
    if let Ok(s) = session() {
        let ranges: Vec<HeapRange> = change_sources(|all| all.iter().flat_map(|s| &s.ranges).copied().collect());
        for range in ranges {
            crate::hand::in_step::announce_source(s, range);
        }
        crate::hand::in_step::before_launch();
    }
    if counted {
        // Nothing is lost if the count is too high: more copies are noted than have to be.
        let less = |n: u32| Some(n.saturating_sub(1));
        let _ = OUTSTANDING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

struct Pool {
    jobs: VecDeque<Job>,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { jobs: VecDeque::new(), idle: 0 });
static WORK: Condvar = Condvar::new();

/// The worker asks for a function to be run. The service thread hands it on: it has output to print meanwhile.
pub fn run(s: &'static Session, header: &Header, mut r: Reader<'_>) {
    let (Ok(kind), Ok(number), Ok(status)) = (r.word(), r.word(), r.word()) else {
        crate::call::broken("a callback without its words");
        return;
    };
    let table = || REGISTERED.lock().expect("no panic happens under this lock");
    match kind {
        HEAP_RANGE => crate::hand::graph::copies::release_staged(s, number),
        FORGET => drop(table().take(number)),
        _ => {
            let asked_for = table().asked_for(number, kind);
            match asked_for {
                Some(registered) => hand_on(Job { id: header.context, registered, status: status as CUresult }),
                None => {
                    crate::call::broken("a callback that this program did not register");
                }
            }
        }
    }
}

fn hand_on(job: Job) {
    let mut pool = POOL.lock().expect("no panic happens under this lock");
    pool.jobs.push_back(job);
    if pool.idle >= pool.jobs.len() {
        WORK.notify_one();
        return;
    }
    drop(pool);
    let spawned = crate::hand::events::with_signals_blocked(|| {
        std::thread::Builder::new().name("orion-callback".into()).stack_size(8 << 20).spawn(serve)
    });
    if let Err(e) = spawned {
        // Whoever is busy will come to it.
        crate::say!("starting a callback thread failed: {e}; host functions may run late");
    }
}

fn serve() {
    loop {
        let mut pool = POOL.lock().expect("no panic happens under this lock");
        pool.idle += 1;
        let job = loop {
            match pool.jobs.pop_front() {
                Some(job) => break job,
                None => pool = WORK.wait(pool).expect("no panic happens under this lock"),
            }
        };
        pool.idle -= 1;
        drop(pool);
        job.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn nothing(_: *mut c_void) {}

    fn host(kept: bool) -> Registered {
        Registered { function: Function::Host(nothing), data: 7, kept }
    }

    #[test]
    fn only_what_was_registered_is_found_and_once_if_it_runs_once() {
        let mut table = Table { slots: Vec::new(), free: Vec::new() };
        assert!(table.asked_for(0, HOST_FUNCTION).is_none());
        let once = table.put(host(false));
        for wrong in [0, once + 1, once + (1 << 32), nothing as *const () as u64, u64::MAX] {
            assert!(table.asked_for(wrong, HOST_FUNCTION).is_none());
        }
        // As a user object's destructor the worker would not wait for it.
        assert!(table.asked_for(once, USER_OBJECT).is_none());
        assert!(table.asked_for(once, HOST_FUNCTION).is_some());
        assert!(table.asked_for(once, HOST_FUNCTION).is_none());
        let kept = table.put(host(true));
        assert_ne!(kept, once);
        assert!((0..3).all(|_| table.asked_for(kept, HOST_FUNCTION).is_some()));
        assert!(table.take(once).is_none());
        assert!(table.take(kept).is_some() && table.take(kept).is_none());
        assert_eq!(table.slots.len(), 1);
    }
}
