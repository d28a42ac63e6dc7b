//! Host memory around the launches of graphs.

// UNSAFETY: reads the heap, which the worker writes too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_wire::message::graph_exec as message;
use orion_wire::record::HeapRange;

use crate::memory::{in_step, payload};
use crate::state::graph_launches::{HostCopy, Launch};
use crate::state::lock::{Lock, Rank};
use crate::state::session::Session;

/// In shared memory only what was set aside needs work.
pub fn note_copies(s: &Session, exec: u64, found: &[message::HostCopy]) {
    let copies: Vec<HostCopy> = found
        .iter()
        .map(|&message::HostCopy { range, to_host, has_gaps }| HostCopy {
            range,
            to_host,
            has_gaps,
            staged: s.graph_copies.staged(range.offset),
        })
        .filter(|copy| s.pages.must_bring() || copy.staged.is_some())
        .collect();
    let mut all = s.graph_launches.copies.lock();
    let all = all.get_or_insert_default();
    if copies.is_empty() {
        all.remove(&exec);
    } else {
        all.insert(exec, Arc::new(copies));
    }
    s.graph_launches.with_copies.store(all.len(), Ordering::Relaxed);
}

/// What a graph reads comes to the worker.
pub fn bring_in(s: &'static Session, copies: &[HostCopy]) {
    for copy in copies.iter().filter(|c| !c.to_host) {
        if let Some(staged) = &copy.staged {
            staged.copy_in(s);
        }
        in_step::announce_source(s, copy.range);
        note_pointers(s, copy.range);
    }
}

/// The bytes of a range of the heap go to the device.
fn note_pointers(s: &'static Session, range: HeapRange) {
    if let Some(at) = s.heap.at(range.offset, range.bytes) {
        // Where in device memory they go is not known here; programs align both alike.
        // SAFETY: the range lies inside the heap.
        unsafe { in_step::note_bytes(s, at.addr() as u64, at, range.bytes as usize) };
    }
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
        Launch { written: Lock::new(Rank::Leaf, written) }
    }

    pub fn bring_out(&self, s: &Session) {
        for (staged, snapshot) in self.written.lock().iter_mut() {
            staged.copy_out(s, snapshot);
        }
    }
}

/// Runs a host function. It sees what copies before it in a graph brought into pageable memory, and what it writes to
/// pinned memory is there for the graph's copies behind it. Copies from pageable memory have read it already: a driver
/// does that when the graph is launched. A launch does not end meanwhile: its pageable memory may be gone then.
pub fn around_host_function(s: &'static Session, function: impl FnOnce()) {
    if s.graph_launches.any_under_way.load(Ordering::Relaxed) {
        s.graph_launches.change_under_way(|all| all.iter().for_each(|launch| launch.bring_out(s)));
    }
    if !s.graph_launches.any_launched.load(Ordering::SeqCst) {
        return function();
    }
    let launched: Vec<_> = s.graph_launches.change_launched(|all| all.values().cloned().collect());
    let pinned = || launched.iter().flat_map(|copies| copies.iter()).filter(|copy| copy.staged.is_none());
    let read = |range: HeapRange| {
        let at = s.heap.at(range.offset, range.bytes);
        // SAFETY: the range lies inside the heap. What a carrier brings there meanwhile is no change of the function's.
        at.map_or_else(Vec::new, |at| unsafe { std::slice::from_raw_parts(at, range.bytes as usize) }.to_vec())
    };
    let written = pinned().filter(|copy| copy.to_host && !in_step::is_kept_in_step(s, copy.range));
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
