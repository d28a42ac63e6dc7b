//! What lives as long as a graph and what was made from it.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::sys::*;

use crate::lines;
use crate::worker::out::callbacks::{self, kind};
use crate::worker::session::Session;
use crate::worker::state::lent::Lent;

/// Makes a graph, its clones and its executable graphs share the ownership of a ticket: by the object that it answers.
pub fn share_ticket(
    s: &Session,
    graph: CUgraph,
    ticket: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
) -> Option<CUuserObject> {
    let mut object = ptr::null_mut();
    // SAFETY: a valid out pointer; `destroy` frees the ticket.
    let made = unsafe {
        s.driver.cuUserObjectCreate(&mut object, ticket, Some(destroy), 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    };
    if made != CUDA_SUCCESS {
        return None;
    }
    // SAFETY: a live graph; our only reference moves into it.
    let moved = unsafe { s.driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) };
    if moved != CUDA_SUCCESS {
        // Released, the object would free a ticket that a node may still use; so both are left alone.
        lines::debug(&format!("keeping a host function's ticket for good: {moved}"));
        return None;
    }
    Some(object)
}

/// The host functions of a graph's nodes live as long as the graph and what was made from it.
pub fn keep_ticket(s: &Session, graph: CUgraph, ticket: *mut c_void) -> Option<CUuserObject> {
    share_ticket(s, graph, ticket, callbacks::drop_ticket)
}

/// A node has other parameters from now on, or is gone: its graph gives up what it had for the node's sake. Clones and
/// executable graphs have shares of their own.
pub fn give_up(s: &mut Session, node: CUgraphNode) {
    for (graph, object) in s.graph_nodes.kept.remove(&(node as usize)).unwrap_or_default() {
        // SAFETY: a graph that is alive, as its node was, and an object that it has a share of.
        unsafe { s.driver.cuGraphReleaseUserObject(graph as CUgraph, object as CUuserObject, 1) };
    }
}

/// A range that a captured copy reads goes back to the client with the graph and what was made from it.
pub fn keep_lent(s: &Session, graph: CUgraph, lent: Lent) {
    unsafe extern "C" fn give_back(lent: *mut c_void) {
        // SAFETY: the box below, once.
        drop(unsafe { Box::from_raw(lent.cast::<Lent>()) });
    }
    // A driver without user objects never tells, and the range stays lent.
    share_ticket(s, graph, Box::into_raw(Box::new(lent)).cast(), give_back);
}

/// Bytes that a node of the graph reads.
pub fn keep_bytes(s: &Session, graph: Option<CUgraph>, bytes: Vec<u8>) {
    /// `CUhostFn` for the driver.
    unsafe extern "C" fn free(bytes: *mut c_void) {
        // SAFETY: from `into_raw` below; the driver calls this once, when nothing refers to the object any more.
        drop(unsafe { Box::from_raw(bytes.cast::<Vec<u8>>()) });
    }
    let kept = Box::into_raw(Box::new(bytes)).cast();
    // Without a graph, or user objects, nobody tells when they are not needed any more: they stay.
    if let Some(graph) = graph {
        share_ticket(s, graph, kept, free);
    }
}

/// Has the client told when no graph refers any more to the range it set aside at `offset`; at once if none does.
pub fn keep_range(s: &Session, graph: Option<CUgraph>, offset: u64) -> Option<CUuserObject> {
    let ticket = s.callbacks.ticket(offset, kind::HEAP_RANGE, 0, false, false);
    match graph {
        // A driver without user objects never tells, and the range stays set aside.
        Some(graph) => share_ticket(s, graph, ticket, callbacks::released),
        None => {
            // SAFETY: nothing refers to the ticket but this.
            unsafe { callbacks::released(ticket) };
            None
        }
    }
}
