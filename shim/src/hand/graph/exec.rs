//! Executable graphs: instantiating, updating and launching them.
//!
//! Updates of an executable graph are posted. XLA changes dozens of kernel nodes before every launch, and what
//! CUDA would refuse at once (an unknown function, no parameters, an empty grid) is refused here.

// UNSAFETY: reads parameters from the application's memory and writes answers to it, as CUDA defines them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use orion_wire::record::HeapRange;

use crate::hand::graph::copies::{self, Staged};
use crate::hand::{in_step, payload};
use crate::session::{Session, session};

/// Host memory that an executable graph copies from or to, and that has to be moved around its launches.
pub struct HostCopy {
    pub range: HeapRange,
    pub to_host: bool,
    pub staged: Option<Staged>,
}

static COPIES: Mutex<Option<HashMap<u64, Arc<Vec<HostCopy>>>>> = Mutex::new(None);
/// Executable graphs in `COPIES`: launches of a process without any look no further.
static WITH_COPIES: AtomicUsize = AtomicUsize::new(0);

/// In shared memory only what was set aside needs work.
pub fn note_copies(s: &Session, exec: u64, found: Vec<(HeapRange, bool)>) {
    let copies: Vec<HostCopy> = found
        .into_iter()
        .map(|(range, to_host)| HostCopy { range, to_host, staged: copies::staged(range.offset) })
        .filter(|copy| s.mirrored || copy.staged.is_some())
        .collect();
    let mut all = COPIES.lock().expect("no panic happens under this lock");
    let all = all.get_or_insert_default();
    if copies.is_empty() {
        all.remove(&exec);
    } else {
        all.insert(exec, Arc::new(copies));
    }
    WITH_COPIES.store(all.len(), Ordering::Relaxed);
}

pub fn copies_of(exec: u64) -> Option<Arc<Vec<HostCopy>>> {
    if WITH_COPIES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    COPIES.lock().expect("no panic happens under this lock").as_ref()?.get(&exec).cloned()
}

/// What a graph reads comes to the worker.
pub fn bring_in(s: &'static Session, copies: &[HostCopy]) {
    for copy in copies.iter().filter(|c| !c.to_host) {
        if let Some(staged) = &copy.staged {
            staged.copy_in(s);
        }
        in_step::announce_source(s, copy.range);
    }
}

/// A launch of a graph that copies pageable memory.
pub struct Launch {
    /// What the application's memory is known to hold of each range that the graph writes.
    written: Mutex<Vec<(Staged, Vec<u8>)>>,
}

/// Those that have not ended. Host functions of graphs run meanwhile.
static UNDER_WAY: Mutex<Vec<Arc<Launch>>> = Mutex::new(Vec::new());
static ANY_UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Where the worker has its own copy of the heap: what graphs copy that were launched and may still run, by the number
/// of the launch among this process's commands.
static LAUNCHED: Mutex<BTreeMap<u64, Arc<Vec<HostCopy>>>> = Mutex::new(BTreeMap::new());

static ANY_LAUNCHED: AtomicBool = AtomicBool::new(false);

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

impl Launch {
    /// The ranges that the graph writes hold what the application has there, in the worker's copy of the heap too.
    pub fn new(s: &'static Session, copies: &[HostCopy]) -> Launch {
        let to_host = copies.iter().filter(|c| c.to_host).filter_map(|c| c.staged);
        let written = to_host
            .map(|staged| {
                staged.copy_in(s);
                in_step::announce_source(s, staged.range);
                (staged, staged.snapshot(s))
            })
            .collect();
        Launch { written: Mutex::new(written) }
    }

    pub fn bring_out(&self, s: &Session) {
        for (staged, snapshot) in self.written.lock().expect("no panic happens under this lock").iter_mut() {
            staged.copy_out(s, snapshot);
        }
    }
}

/// Runs a host function. It sees what copies before it in a graph brought into pageable memory, and what it writes to
/// pinned memory is there for the graph's copies behind it. Copies from pageable memory have read it already: a driver
/// does that when the graph is launched. A launch does not end meanwhile: its pageable memory may be gone then.
pub fn around_host_function(function: impl FnOnce()) {
    let Ok(s) = session() else { return function() };
    if ANY_UNDER_WAY.load(Ordering::Relaxed) {
        change_under_way(|all| all.iter().for_each(|launch| launch.bring_out(s)));
    }
    if !ANY_LAUNCHED.load(Ordering::SeqCst) {
        return function();
    }
    let launched: Vec<_> = change_launched(|all| all.values().cloned().collect());
    let pinned = || launched.iter().flat_map(|copies| copies.iter()).filter(|copy| copy.staged.is_none());
    let read = |range: HeapRange| {
        let at = s.heap.at(range.offset, range.bytes);
        // SAFETY: the range lies inside the heap. What a carrier brings there meanwhile is no change of the function's.
        at.map_or_else(Vec::new, |at| unsafe { std::slice::from_raw_parts(at, range.bytes as usize) }.to_vec())
    };
    let written = pinned().filter(|copy| copy.to_host && !in_step::is_kept_in_step(copy.range));
    let before: Vec<_> = written.map(|copy| (copy.range, read(copy.range))).collect();
    function();
    // More than can be kept in step: what the function changed of what the graph had brought is brought again when the
    // graph is over, from the worker.
    for (range, before) in before {
        for (from, bytes) in changed(&before, &read(range)) {
            payload::announce(s, HeapRange { offset: range.offset + from as u64, bytes: bytes as u64 });
        }
    }
    pinned().filter(|copy| !copy.to_host).for_each(|copy| in_step::announce_source(s, copy.range));
}

/// Runs of bytes that are not what they were: where each begins, and how long it is.
fn changed(before: &[u8], after: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in before.iter().zip(after).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at) {
        match runs.last_mut() {
            Some((from, bytes)) if *from + *bytes == at => *bytes += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}
