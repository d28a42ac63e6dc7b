//! Host functions of the application: which are registered, and how many have still to run.

// UNSAFETY: sends data of the application's between threads.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::state::lock::{Lock, Rank};
use crate::state::session::Session;

/// A function that the application gave, and the data it is to be called with. The worker knows it by number only: what
/// it says decides when this runs, never what.
#[derive(Clone, Copy)]
pub struct Registered {
    pub function: Function,
    pub data: usize,
    /// The worker says when it is not needed any more; otherwise it runs once at most.
    pub kept: bool,
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

pub struct Callbacks {
    pub registered: Lock<Table>,
    /// A host function has run in this process. Most have none, and a thread's own variable costs every call ten times
    /// as much as this one.
    pub any_run: AtomicBool,
    /// Host functions enqueued that have not run, other than those of graphs.
    pub outstanding: AtomicU32,
    /// Some graph has host functions: nobody knows how many have still to run.
    pub in_graphs: AtomicBool,
    pub pool: Lock<Pool>,
    pub work: Condvar,
}

impl Callbacks {
    pub const fn new() -> Callbacks {
        Callbacks {
            registered: Lock::new(Rank::Leaf, Table { slots: Vec::new(), free: Vec::new() }),
            any_run: AtomicBool::new(false),
            outstanding: AtomicU32::new(0),
            in_graphs: AtomicBool::new(false),
            pool: Lock::new(Rank::Leaf, Pool { jobs: VecDeque::new(), idle: 0, is_served: false }),
            work: Condvar::new(),
        }
    }

    pub fn register(&self, function: Function, data: *mut c_void, kept: bool) -> u64 {
        self.registered.lock().put(Registered { function, data: data as usize, kept })
    }

    /// For a host node, whose function runs whenever the graph does.
    pub fn register_for_graph(&self, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> u64 {
        self.register(Function::Host(function), data, true)
    }

    /// What was registered for a host node under this number.
    pub fn of_graph(&self, number: u64) -> Option<CUDA_HOST_NODE_PARAMS> {
        let mut table = self.registered.lock();
        match (*table.slot(number)?)? {
            Registered { function: Function::Host(function), data, .. } => {
                Some(CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data as *mut c_void })
            }
            _ => None,
        }
    }

    /// Whether the calling thread is inside a host function, where CUDA answers `CUDA_ERROR_NOT_PERMITTED`.
    #[inline]
    pub fn in_callback(&self) -> bool {
        self.any_run.load(Ordering::Relaxed) && IN_CALLBACK.with(Cell::get)
    }

    /// A graph gets a host function.
    pub fn note_in_graph(&self) {
        self.in_graphs.store(true, Ordering::Relaxed);
    }

    /// Whether a host function may be on its way.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.outstanding.load(Ordering::SeqCst) > 0 || self.in_graphs.load(Ordering::Relaxed)
    }

    /// Whether any graph may have host functions.
    pub fn any_in_graphs(&self) -> bool {
        self.in_graphs.load(Ordering::Relaxed)
    }
}

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

    pub fn take(&mut self, number: u64) -> Option<Registered> {
        let taken = self.slot(number)?.take();
        if taken.is_some() {
            self.free.push(number as u32);
        }
        taken
    }

    /// What to call when the worker asks for `number`, and `is_kind` says that it may be a function of that kind.
    pub fn asked_for(&mut self, number: u64, is_kind: fn(&Function) -> bool) -> Option<Registered> {
        let registered = (*self.slot(number)?)?;
        if !is_kind(&registered.function) {
            return None;
        }
        if registered.kept { Some(registered) } else { self.take(number) }
    }
}

impl Function {
    pub fn is_host(&self) -> bool {
        matches!(self, Function::Host(_))
    }

    pub fn is_stream(&self) -> bool {
        matches!(self, Function::Stream(..))
    }

    pub fn is_destructor(&self) -> bool {
        matches!(self, Function::Destroy(..))
    }
}

/// One function to run, for a session's worker.
pub struct Job {
    pub s: &'static Session,
    pub id: u64,
    pub registered: Registered,
    pub status: CUresult,
}

thread_local! {
    pub static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

pub struct Pool {
    pub jobs: VecDeque<Job>,
    pub idle: usize,
    /// Some thread runs them.
    pub is_served: bool,
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
        assert!(table.asked_for(0, Function::is_host).is_none());
        let once = table.put(host(false));
        for wrong in [0, once + 1, once + (1 << 32), nothing as *const () as u64, u64::MAX] {
            assert!(table.asked_for(wrong, Function::is_host).is_none());
        }
        // As a user object's destructor the worker would not wait for it.
        assert!(table.asked_for(once, Function::is_destructor).is_none());
        assert!(table.asked_for(once, Function::is_host).is_some());
        assert!(table.asked_for(once, Function::is_host).is_none());
        let kept = table.put(host(true));
        assert_ne!(kept, once);
        assert!((0..3).all(|_| table.asked_for(kept, Function::is_host).is_some()));
        assert!(table.take(once).is_none());
        assert!(table.take(kept).is_some() && table.take(kept).is_none());
        assert_eq!(table.slots.len(), 1);
    }
}
