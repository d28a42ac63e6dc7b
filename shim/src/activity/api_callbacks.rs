//! Callbacks on entry to and exit from calls of the driver API and of the runtime, which a profiler chooses by number.
//!
//! The graphs that a call makes call back between its entry and its exit, as CUPTI has it.

// UNSAFETY: reads the arguments of calls that succeeded, as the call itself did.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use orion_cuda::cupti::*;
use orion_cuda::sys::*;

use crate::activity::generated::cbids;
use crate::activity::subscriber::{self, Subject, calling};
use crate::objects::graph::nodes_of;
use crate::session::context::resolve;
use crate::state::context;
use crate::state::process::state;

/// What cudart says about a call of it, before and after, as seen in cudart 12 and 13.
#[repr(C)]
pub struct RuntimeCall {
    pub size: u32,
    context_id: u64,
    stream_id: u64,
    reserved: u64,
    /// One word for whoever looks, from enter to exit.
    pub scratch: *mut u64,
    pub result: *const u32,
    name: *const c_char,
    parameters: *const c_void,
    context: CUcontext,
    stream: CUstream,
    cbid: u32,
    pub leaving: u32,
}

const _: () = assert!(std::mem::offset_of!(RuntimeCall, scratch) == 0x20);
const _: () = assert!(std::mem::offset_of!(RuntimeCall, leaving) == 0x54);

thread_local! {
    /// The subscriber's word of the runtime's call under way.
    static RUNTIME_WORD: Cell<u64> = const { Cell::new(0) };
}

/// What a subscriber is told about a call of the driver API, from its entry to its exit.
pub struct DriverCall {
    cbid: u32,
    parameters: *const c_void,
    symbol: *const c_char,
    correlation_id: u32,
    word: u64,
}

impl DriverCall {
    /// Nothing if nobody wants to know.
    pub fn enter(cbid: u32, parameters: *const c_void, correlation_id: u32) -> Option<DriverCall> {
        if subscriber::is_calling() {
            return None;
        }
        let mut call = DriverCall { cbid, parameters, symbol: null(), correlation_id, word: 0 };
        if state().recording.driver_callbacks.has(cbid) {
            call.symbol = call.symbol();
            call.tell(CUPTI_API_ENTER, null_mut());
        }
        if state().recording.any_resource() {
            call.what_ends();
        }
        Some(call)
    }

    pub fn exit(mut self, mut result: CUresult) {
        if state().recording.any_resource() && result == CUDA_SUCCESS {
            self.what_began();
        }
        if state().recording.driver_callbacks.has(self.cbid) {
            self.tell(CUPTI_API_EXIT, &mut result);
        }
    }

    fn tell(&mut self, site: u32, result: *mut CUresult) {
        let data = CUpti_CallbackData {
            callbackSite: site,
            functionName: self.name().as_ptr(),
            functionParams: self.parameters,
            functionReturnValue: result.cast(),
            symbolName: self.symbol,
            context: context::current() as CUcontext,
            contextUid: context_number(),
            correlationData: &mut self.word,
            correlationId: self.correlation_id,
        };
        calling(|| subscriber::call_back(CUPTI_CB_DOMAIN_DRIVER_API, self.cbid, (&raw const data).cast()));
    }

    fn name(&self) -> &'static CStr {
        cbids::DRIVER.get(self.cbid as usize).copied().unwrap_or_default()
    }

    /// Argument number `index`, counted from 0, of a call whose first ones are words.
    fn word_at(&self, index: usize) -> u64 {
        // SAFETY: the callers know that the call has so many arguments of eight bytes.
        unsafe { self.parameters.cast::<u64>().add(index).read() }
    }

    /// What the call's first argument points to: a handle that a successful call has written.
    fn created(&self) -> u64 {
        match self.word_at(0) as *const u64 {
            at if at.is_null() => 0,
            // SAFETY: the call succeeded, so the application's pointer was good for a handle.
            at => unsafe { at.read() },
        }
    }

    /// The kernel that a launch names, if it is one.
    fn symbol(&self) -> *const c_char {
        let function = match self.name().to_bytes() {
            name if name.starts_with(b"cuLaunchKernelEx") => self.word_at(1),
            name if name.starts_with(b"cuLaunchKernel") || name == b"cuLaunchCooperativeKernel" => self.word_at(0),
            _ => return null(),
        };
        crate::objects::function::function(function as *const c_void).map_or(null(), |f| f.name.as_ptr())
    }

    fn what_ends(&self) {
        let (id, subject) = match self.name().to_bytes() {
            b"cuGraphDestroy" => {
                (CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, Subject { graph: self.word_at(0), ..Subject::default() })
            }
            b"cuGraphExecDestroy" => (
                CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
                Subject { exec: self.word_at(0), ..Subject::default() },
            ),
            b"cuGraphDestroyNode" => (
                CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING,
                Subject { node: self.word_at(0), ..Subject::default() },
            ),
            b"cuStreamDestroy" | b"cuStreamDestroy_v2" => {
                return subscriber::stream(CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING, self.word_at(0));
            }
            _ => return,
        };
        subscriber::graph(id, subject);
    }

    fn what_began(&self) {
        match self.name().to_bytes() {
            b"cuStreamCreate" | b"cuStreamCreateWithPriority" => {
                subscriber::stream(CUPTI_CBID_RESOURCE_STREAM_CREATED, self.created());
            }
            b"cuGraphCreate" => {
                let graph = self.created();
                subscriber::graph(CUPTI_CBID_RESOURCE_GRAPH_CREATED, Subject { graph, ..Subject::default() });
            }
            name if name.starts_with(b"cuStreamEndCapture") => {
                let graph = match self.word_at(1) as *const u64 {
                    at if at.is_null() => return,
                    // SAFETY: as in `created`.
                    at => unsafe { at.read() },
                };
                subscriber::graph(CUPTI_CBID_RESOURCE_GRAPH_CREATED, Subject { graph, ..Subject::default() });
                for node in nodes_of(graph).unwrap_or_default() {
                    let subject = Subject { graph, node, ..Subject::default() };
                    subscriber::graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, subject);
                }
            }
            b"cuGraphClone" => {
                let (graph, original_graph) = (self.created(), self.word_at(1));
                let clone = Subject { graph, original_graph, ..Subject::default() };
                subscriber::graph(CUPTI_CBID_RESOURCE_GRAPH_CLONED, clone);
                // A clone has its nodes in the order of the original's.
                for (node, original_node) in
                    nodes_of(graph).into_iter().flatten().zip(nodes_of(original_graph).into_iter().flatten())
                {
                    subscriber::graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, Subject { node, original_node, ..clone });
                }
            }
            name if name.starts_with(b"cuGraphInstantiate") => {
                let (exec, graph) = (self.created(), self.word_at(1));
                subscriber::graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, Subject { exec, graph, ..Subject::default() });
            }
            name if name.starts_with(b"cuGraphAdd") && !name.starts_with(b"cuGraphAddDependencies") => {
                let (node, graph) = (self.created(), self.word_at(1));
                subscriber::graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, Subject { node, graph, ..Subject::default() });
            }
            _ => {}
        }
    }
}

/// `contextUid` of the current context; 0 if there is none.
fn context_number() -> u32 {
    resolve(null_mut()).map_or(0, |c| c.id() as u32)
}

/// A call of the runtime, on entry (without a result) and on exit. The kernel of a launch is not known here: cudart
/// passes the address of a function of the application.
pub fn runtime_call(call: &RuntimeCall, cbid: u32, correlation_id: u32, site: u32) {
    if !state().recording.runtime_callbacks.has(cbid) || subscriber::is_calling() {
        return;
    }
    let mut word = if site == CUPTI_API_ENTER { 0 } else { RUNTIME_WORD.get() };
    let data = CUpti_CallbackData {
        callbackSite: site,
        functionName: call.name,
        functionParams: call.parameters,
        functionReturnValue: if site == CUPTI_API_ENTER { null_mut() } else { call.result.cast_mut().cast() },
        symbolName: null(),
        context: call.context,
        contextUid: context_number(),
        correlationData: &mut word,
        correlationId: correlation_id,
    };
    calling(|| subscriber::call_back(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, (&raw const data).cast()));
    RUNTIME_WORD.set(word);
}
