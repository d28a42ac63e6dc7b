//! What this process knows, as one value with named parts.

use crate::state::address_map::AddressMap;
use crate::state::array::Arrays;
use crate::state::callback::Callbacks;
use crate::state::capture::Captures;
use crate::state::context::Contexts;
use crate::state::device::{Devices, Facts};
use crate::state::event::Events;
use crate::state::fork::Fork;
use crate::state::function::Functions;
use crate::state::graph::Graphs;
use crate::state::green_context::GreenContexts;
use crate::state::handles::Handles;
use crate::state::link::Links;
use crate::state::log::Logs;
use crate::state::managed::Managed;
use crate::state::module::Modules;
use crate::state::output::Output;
use crate::state::poison::Poison;
use crate::state::pool::MemoryPools;
use crate::state::recording::Recording;
use crate::state::refuse::Refusals;
use crate::state::session::Attachment;
use crate::state::stream::Streams;
use crate::state::tensor_map::TensorMaps;
use crate::state::texture::Textures;
use crate::state::thread::Threads;
use crate::state::virtual_memory::VirtualMemory;

/// Each part is described where its type is.
pub struct State {
    pub addresses: AddressMap,
    pub arrays: Arrays,
    pub attachment: Attachment,
    pub callbacks: Callbacks,
    pub captures: Captures,
    pub contexts: Contexts,
    pub devices: Devices,
    pub events: Events,
    pub fork: Fork,
    pub functions: Functions,
    pub graphs: Graphs,
    pub green_contexts: GreenContexts,
    pub handles: Handles,
    pub links: Links,
    pub log: Logs,
    pub managed: Managed,
    pub modules: Modules,
    pub output: Output,
    pub poison: Poison,
    pub pools: MemoryPools,
    pub recording: Recording,
    pub refusals: Refusals,
    pub streams: Streams,
    pub tensor_maps: TensorMaps,
    pub textures: Textures,
    pub threads: Threads,
    pub virtual_memory: VirtualMemory,
}

impl State {
    /// The devices of all sessions, as the application sees them.
    pub fn devices(&'static self) -> &'static Facts {
        self.devices.facts_of(&self.attachment)
    }

    const fn new() -> State {
        State {
            addresses: AddressMap::new(),
            arrays: Arrays::new(),
            attachment: Attachment::new(),
            callbacks: Callbacks::new(),
            captures: Captures::new(),
            contexts: Contexts::new(),
            devices: Devices::new(),
            events: Events::new(),
            fork: Fork::new(),
            functions: Functions::new(),
            graphs: Graphs::new(),
            green_contexts: GreenContexts::new(),
            handles: Handles::new(),
            links: Links::new(),
            log: Logs::new(),
            managed: Managed::new(),
            modules: Modules::new(),
            output: Output::new(),
            poison: Poison::new(),
            pools: MemoryPools::new(),
            recording: Recording::new(),
            refusals: Refusals::new(),
            streams: Streams::new(),
            tensor_maps: TensorMaps::new(),
            textures: Textures::new(),
            threads: Threads::new(),
            virtual_memory: VirtualMemory::new(),
        }
    }
}

#[cfg(not(test))]
static STATE: State = State::new();

/// The one door to it.
#[cfg(not(test))]
#[inline(always)]
pub fn state() -> &'static State {
    &STATE
}

/// In tests every thread is a process of its own, so that they need not take turns. States outlive their threads, as
/// what is asked for by `'static` reference has to, and are remembered, or they would read as leaks.
#[cfg(test)]
pub fn state() -> &'static State {
    static ALL: std::sync::Mutex<Vec<&'static State>> = std::sync::Mutex::new(Vec::new());
    thread_local! {
        static STATE: &'static State = {
            let state: &'static State = Box::leak(Box::new(State::new()));
            ALL.lock().expect("nothing panics under this lock").push(state);
            state
        };
    }
    STATE.with(|state| *state)
}

/// Whether a profiler records calls: all that a call pays for profilers while there is none.
#[inline(always)]
pub fn is_recorded() -> bool {
    state().recording.on()
}
