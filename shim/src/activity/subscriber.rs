//! The subscriber, and what calls it back about resources: contexts, streams, graphs.

// UNSAFETY: calls the application's function with its own word.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::Ordering;

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::{Callback, Subscriber};
use orion_cuda::sys::*;

use crate::objects::graph::type_of;
use crate::state::context;
use crate::state::process::state;
use crate::state::recording::Subscribed;

thread_local! {
    /// Whether this thread is in the subscriber's function: what that calls does not call back.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Nothing if there is one already.
pub fn subscribe(callback: Option<Callback>, user: *mut c_void) -> Option<Subscriber> {
    let new = Box::into_raw(Box::new(Subscribed { callback, user }));
    match state().recording.subscriber.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed)
    {
        Ok(_) => {
            register_exit_handler();
            state().recording.tell_of_contexts(context_lives);
            Some(new.cast())
        }
        Err(_) => {
            // SAFETY: just made, and seen by nobody.
            drop(unsafe { Box::from_raw(new) });
            None
        }
    }
}

pub fn is_subscriber(subscriber: Subscriber) -> bool {
    !subscriber.is_null() && state().recording.subscriber.load(Ordering::Relaxed) == subscriber.cast()
}

/// Whether `cuptiFinalize` has forgotten this one: its owner may still unsubscribe it.
pub fn is_finalized(subscriber: Subscriber) -> bool {
    !subscriber.is_null() && state().recording.finalized.load(Ordering::Relaxed) == subscriber.cast()
}

/// Forgets the subscriber, if there is one.
pub fn finalize() {
    let subscriber = state().recording.subscriber.load(Ordering::Relaxed);
    if !subscriber.is_null() {
        state().recording.finalized.store(subscriber, Ordering::Relaxed);
    }
    unsubscribe();
}

pub fn unsubscribe() {
    state().recording.choose_no_resource();
    state().recording.choose_no_callback();
    state().recording.choice_changed();
    state().recording.subscriber.store(std::ptr::null_mut(), Ordering::Release);
}

/// What calls back at all. Modules do not: their machine code is on the GPU's node.
pub fn happens(id: u32) -> bool {
    matches!(
        id,
        CUPTI_CBID_RESOURCE_CONTEXT_CREATED
            | CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING
            | CUPTI_CBID_RESOURCE_STREAM_CREATED
            | CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING
            | CUPTI_CBID_RESOURCE_GRAPH_CREATED
            | CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING
            | CUPTI_CBID_RESOURCE_GRAPH_CLONED
            | CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED
            | CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING
            | CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED
            | CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING
            | CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED
    )
}

/// The runtime ends its contexts from an exit handler, when the subscriber's own objects may be gone.
fn register_exit_handler() {
    static REGISTERED: Once = Once::new();
    extern "C" fn at_exit() {
        state().recording.choose_no_resource();
    }
    REGISTERED.call_once(|| {
        // SAFETY: the handler stores to one static.
        unsafe { libc::atexit(at_exit) };
    });
}

/// A context has been created, or is about to end.
fn context_lives(context: CUcontext, begins: bool) {
    let id = match begins {
        true => CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
        false => CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    };
    resource(id, CUpti_ResourceData { context, stream: null_mut(), resourceDescriptor: null_mut() });
}

pub fn stream(id: u32, stream: u64) {
    let context = context::current() as CUcontext;
    resource(id, CUpti_ResourceData { context, stream: stream as CUstream, resourceDescriptor: null_mut() });
}

/// What happens to a graph; 0 for what it does not concern.
#[derive(Default, Clone, Copy)]
pub struct Subject {
    pub graph: u64,
    pub original_graph: u64,
    pub node: u64,
    pub original_node: u64,
    pub exec: u64,
}

pub fn graph(id: u32, subject: Subject) {
    if !state().recording.has_resource(id) {
        return;
    }
    let node_type = match subject.node {
        0 => CU_GRAPH_NODE_TYPE_EMPTY,
        node => type_of(node).unwrap_or(CU_GRAPH_NODE_TYPE_EMPTY),
    };
    let mut graph = CUpti_GraphData {
        graph: subject.graph as CUgraph,
        originalGraph: subject.original_graph as CUgraph,
        node: subject.node as CUgraphNode,
        originalNode: subject.original_node as CUgraphNode,
        nodeType: node_type,
        dependency: null_mut(),
        graphExec: subject.exec as CUgraphExec,
    };
    let context = context::current() as CUcontext;
    resource(id, CUpti_ResourceData { context, stream: null_mut(), resourceDescriptor: (&raw mut graph).cast() });
}

fn resource(id: u32, data: CUpti_ResourceData) {
    if state().recording.has_resource(id) {
        calling(|| call_back(CUPTI_CB_DOMAIN_RESOURCE, id, (&raw const data).cast()));
    }
}

/// Calls the subscriber, if there is one.
pub fn call_back(domain: u32, id: u32, data: *const c_void) {
    // SAFETY: null or never freed.
    let Some(Subscribed { callback, user }) =
        (unsafe { state().recording.subscriber.load(Ordering::Acquire).as_ref() })
    else {
        return;
    };
    if let Some(callback) = callback {
        // SAFETY: the application's own function, with its own word.
        unsafe { callback(*user, domain, id, data) };
    }
}

/// Calls the subscriber, and nobody from within.
pub fn calling(call: impl FnOnce()) {
    CALLING.with(|calling| {
        if !calling.replace(true) {
            call();
            calling.set(false);
        }
    });
}

pub fn is_calling() -> bool {
    CALLING.get()
}
