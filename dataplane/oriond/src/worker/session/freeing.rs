//! Giving back what the client has given up, once the device is past it.

// UNSAFETY: unregisters ranges of the heap, and unloads modules.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::record::HeapRange;

use crate::worker::session::Session;
use crate::worker::state::ledger::What;

/// Whether freed ranges wait for the device.
pub fn has_freed(s: &Session) -> bool {
    !s.host_memory.freed.is_empty()
        || s.host_memory.fenced.is_some()
        || !s.retired.is_empty()
        || s.graph_nodes.tickets.has_unused()
}

/// Gives back what the queued work was done with when it was freed. Nothing has to be unregistered for it, so nothing
/// waits for an idle device, which a program that never waits does not have. One fence at a time: what is freed
/// meanwhile gets the next one.
pub fn release_fenced(s: &mut Session) {
    if let Some((mut fence, ranges, tickets)) = s.host_memory.fenced.take() {
        if !s.is_past(&mut fence) {
            s.host_memory.fenced = Some((fence, ranges, tickets));
            return;
        }
        release_parts(s, &ranges);
    }
    if !s.graph_nodes.tickets.has_unused() && !s.host_memory.freed.iter().any(|(_, registered)| *registered == 0) {
        return;
    }
    let Some(mut fence) = s.fence() else { return };
    let mut parts = Vec::new();
    s.host_memory.freed.retain(|(range, registered)| {
        if *registered == 0 {
            parts.push(*range);
        }
        *registered != 0
    });
    let tickets = s.graph_nodes.tickets.take_unused();
    if s.is_past(&mut fence) {
        release_parts(s, &parts);
    } else {
        s.host_memory.fenced = Some((fence, parts, tickets));
    }
}

fn release_parts(s: &mut Session, ranges: &[HeapRange]) {
    ranges.iter().for_each(|range| clear(s, *range));
    ranges.chunks(1000).for_each(|some| s.release_all(some));
}

/// A client with a copy of its own clears it too before it uses the range again. Both begin with the same bytes: what
/// a kernel finds by a pointer that nobody has seen, say a flag that the application cleared, is not what was there.
fn clear(s: &Session, range: HeapRange) {
    if s.pages.are_separate()
        && let Some(at) = s.heap.at(range.offset, range.bytes)
    {
        // SAFETY: the range lies inside the heap. The client has given it up, and nothing queued uses it.
        unsafe { at.write_bytes(0, range.bytes as usize) };
    }
}

/// Gives freed ranges back if the device is idle. On the executor, so nothing is submitted meanwhile and
/// unregistering has nothing to wait for.
pub fn release_freed(s: &mut Session) {
    if !has_freed(s) || s.host_memory.fenced.is_some() || !s.device_idle() {
        return;
    }
    drop(s.graph_nodes.tickets.take_unused());
    unload_retired(s);
    let freed = std::mem::take(&mut s.host_memory.freed);
    for (range, registered) in &freed {
        if *registered == 0 {
            clear(s, *range);
        } else {
            // SAFETY: a range of the heap that the client has given up; if it was not registered the driver says
            // so. Its pages go back to the system.
            unsafe {
                s.driver.cuMemHostUnregister(*registered as *mut c_void);
                libc::madvise(*registered as *mut c_void, range.bytes as usize, libc::MADV_REMOVE);
            }
        }
    }
    for some in freed.chunks(1000) {
        s.release_all(&some.iter().map(|(range, _)| *range).collect::<Vec<_>>());
    }
}

/// Unloads what was retired. The device is idle.
fn unload_retired(s: &mut Session) {
    for retired in std::mem::take(&mut s.retired) {
        // Another thread may load what gets the same handle as soon as it is free.
        let ending = s.accounts.as_ref().map(|accounts| accounts.ledger().ending(What::Globals(retired.handle)));
        // SAFETY: loaded by this session, and unbound when it was retired.
        unsafe {
            if retired.is_library {
                s.driver.cuLibraryUnload(retired.handle as CUlibrary);
            } else {
                s.driver.cuModuleUnload(retired.handle as CUmodule);
            }
        }
        drop(retired.image);
        if let (Some(accounts), Some(ending)) = (&s.accounts, ending) {
            accounts.ledger().release(ending);
        }
    }
}
