//! What executable graphs copy from and to host memory, and which launches are under way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use orion_wire::record::HeapRange;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::state::graph_copies::Staged;
use crate::state::lock::{Lock, Rank};

/// Host memory that an executable graph copies from or to, and that has to be moved around its launches.
pub struct HostCopy {
    pub range: HeapRange,
    pub to_host: bool,
    /// It is of rows, and what lies between them is the application's.
    pub has_gaps: bool,
    pub staged: Option<Staged>,
}

/// Nodes of an executable graph, and functions that the driver has accepted in them.
type Accepted = FxHashSet<(u64, u64)>;

pub struct GraphLaunches {
    pub copies: Lock<Option<HashMap<u64, Arc<Vec<HostCopy>>>>>,
    /// Executable graphs in `COPIES`: launches of a process without any look no further.
    pub with_copies: AtomicUsize,
    /// Executable graphs whose nodes allocate, and whether there are any.
    allocating: Lock<Option<HashSet<u64>>>,
    any_allocating: AtomicBool,
    accepted: Lock<Option<FxHashMap<u64, Accepted>>>,
    /// Those that have not ended. Host functions of graphs run meanwhile.
    pub under_way: Lock<Vec<Arc<Launch>>>,
    pub any_under_way: AtomicBool,
    /// Where the worker has its own copy of the heap: what graphs copy that were launched and may still run, by the
    /// number of the launch among this process's commands.
    pub launched: Lock<BTreeMap<u64, Arc<Vec<HostCopy>>>>,
    pub any_launched: AtomicBool,
}

impl GraphLaunches {
    pub const fn new() -> GraphLaunches {
        GraphLaunches {
            copies: Lock::new(Rank::Leaf, None),
            with_copies: AtomicUsize::new(0),
            allocating: Lock::new(Rank::Leaf, None),
            any_allocating: AtomicBool::new(false),
            accepted: Lock::new(Rank::Leaf, None),
            under_way: Lock::new(Rank::Objects, Vec::new()),
            any_under_way: AtomicBool::new(false),
            launched: Lock::new(Rank::Leaf, BTreeMap::new()),
            any_launched: AtomicBool::new(false),
        }
    }

    pub fn copies_of(&self, exec: u64) -> Option<Arc<Vec<HostCopy>>> {
        if self.with_copies.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.copies.lock().as_ref()?.get(&exec).cloned()
    }

    /// Whether a launch may find no memory. It is answered then: otherwise the next call would be told, which may be
    /// another thread's.
    pub fn allocates(&self, exec: u64) -> bool {
        self.any_allocating.load(Ordering::Relaxed)
            && self.allocating.lock().as_ref().is_some_and(|a| a.contains(&exec))
    }

    pub fn note_allocates(&self, exec: u64, allocates: bool) {
        if !allocates && !self.any_allocating.load(Ordering::Relaxed) {
            return;
        }
        let mut all = self.allocating.lock();
        let all = all.get_or_insert_default();
        match allocates {
            true => all.insert(exec),
            false => all.remove(&exec),
        };
        self.any_allocating.store(!all.is_empty(), Ordering::Relaxed);
    }

    /// Whether the driver has accepted this function in that node.
    pub fn has_accepted(&self, exec: u64, node: u64, function: u64) -> bool {
        let all = self.accepted.lock();
        all.as_ref().and_then(|all| all.get(&exec)).is_some_and(|of| of.contains(&(node, function)))
    }

    pub fn accept(&self, exec: u64, node: u64, function: u64) {
        self.accepted.lock().get_or_insert_default().entry(exec).or_default().insert((node, function));
    }

    /// It has ended, or is another's image from now on.
    pub fn forget_accepted(&self, exec: u64) {
        if let Some(all) = self.accepted.lock().as_mut() {
            all.remove(&exec);
        }
    }

    pub fn change_launched<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Arc<Vec<HostCopy>>>) -> T) -> T {
        let mut all = self.launched.lock();
        let answer = change(&mut all);
        self.any_launched.store(!all.is_empty(), Ordering::SeqCst);
        answer
    }

    /// A command, perhaps a launch, brings nothing more to host memory.
    pub fn settled(&self, number: u64) {
        if self.any_launched.load(Ordering::SeqCst) {
            self.change_launched(|all| all.remove(&number));
        }
    }

    pub fn change_under_way(&self, change: impl FnOnce(&mut Vec<Arc<Launch>>)) {
        let mut all = self.under_way.lock();
        change(&mut all);
        self.any_under_way.store(!all.is_empty(), Ordering::Relaxed);
    }
}

/// A launch of a graph that copies pageable memory.
pub struct Launch {
    /// What the application's memory is known to hold of each range that the graph writes.
    pub written: Lock<Vec<(Staged, Vec<u8>)>>,
}
