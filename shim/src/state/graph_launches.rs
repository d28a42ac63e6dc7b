//! What executable graphs copy from and to host memory, and which launches are under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use orion_wire::record::HeapRange;

use crate::state::graph_copies::Staged;

/// Host memory that an executable graph copies from or to, and that has to be moved around its launches.
pub struct HostCopy {
    pub range: HeapRange,
    pub to_host: bool,
    pub staged: Option<Staged>,
}

pub static COPIES: Mutex<Option<HashMap<u64, Arc<Vec<HostCopy>>>>> = Mutex::new(None);
/// Executable graphs in `COPIES`: launches of a process without any look no further.
pub static WITH_COPIES: AtomicUsize = AtomicUsize::new(0);

pub fn copies_of(exec: u64) -> Option<Arc<Vec<HostCopy>>> {
    if WITH_COPIES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    COPIES.lock().expect("no panic happens under this lock").as_ref()?.get(&exec).cloned()
}

/// A launch of a graph that copies pageable memory.
pub struct Launch {
    /// What the application's memory is known to hold of each range that the graph writes.
    pub written: Mutex<Vec<(Staged, Vec<u8>)>>,
}

/// Those that have not ended. Host functions of graphs run meanwhile.
static UNDER_WAY: Mutex<Vec<Arc<Launch>>> = Mutex::new(Vec::new());
pub static ANY_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Where the worker has its own copy of the heap: what graphs copy that were launched and may still run, by the number
/// of the launch among this process's commands.
static LAUNCHED: Mutex<BTreeMap<u64, Arc<Vec<HostCopy>>>> = Mutex::new(BTreeMap::new());

pub static ANY_LAUNCHED: AtomicBool = AtomicBool::new(false);

pub fn change_launched<T>(change: impl FnOnce(&mut BTreeMap<u64, Arc<Vec<HostCopy>>>) -> T) -> T {
    let mut all = LAUNCHED.lock().expect("no panic happens under this lock");
    let answer = change(&mut all);
    ANY_LAUNCHED.store(!all.is_empty(), Ordering::SeqCst);
    answer
}

/// A command, perhaps a launch, brings nothing more to host memory.
pub fn settled(number: u64) {
    if ANY_LAUNCHED.load(Ordering::SeqCst) {
        change_launched(|all| all.remove(&number));
    }
}

pub fn change_under_way(change: impl FnOnce(&mut Vec<Arc<Launch>>)) {
    let mut all = UNDER_WAY.lock().expect("no panic happens under this lock");
    change(&mut all);
    ANY_UNDER_WAY.store(!all.is_empty(), Ordering::Relaxed);
}
