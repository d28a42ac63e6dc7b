//! Giving handles back, and what ends with an object.

use orion_cuda::sys::CUresult;
use orion_wire::handle::{Handle, Kind};

use crate::state::handles::{KINDS, kind_of};
use crate::state::jit::Options;
use crate::state::process::state;

/// Gives a handle back: its creation failed, or its object was destroyed. Those of what lives in the object go too.
pub fn release(handle: Handle) {
    if let Some(kind) = kind_of(handle) {
        // Before somebody else is given the index.
        object_ended(kind, handle).into_iter().for_each(release);
        state().handles.give_back(handle);
    }
}

/// What creating the object of a handle answered; the handle is free again if there is none.
pub fn made<T>(handle: Handle, answer: Result<T, CUresult>) -> Result<T, CUresult> {
    answer.inspect_err(|_| release(handle))
}

/// Gives back the handles of everything that was made in a context: it is dead.
pub fn release_all_in(context: u64) {
    KINDS.into_iter().for_each(|kind| state().handles.made_in(kind, context).into_iter().for_each(release));
}

/// An object is gone, and what is known of it. Answers what lived in it and goes with it.
fn object_ended(kind: Kind, handle: Handle) -> Vec<Handle> {
    match kind {
        Kind::Module | Kind::Library => return module_ended(handle),
        Kind::Array | Kind::MipmappedArray => return array_ended(kind, handle),
        Kind::Function => function_ended(handle),
        Kind::Stream => stream_ended(handle),
        Kind::Event => event_ended(handle),
        Kind::LinkState => link_ended(handle),
        _ => {}
    }
    Vec::new()
}

/// An array was destroyed, or its context was; its levels end with it.
pub fn array_ended(kind: Kind, handle: Handle) -> Vec<Handle> {
    let table = if kind == Kind::Array { &state().arrays.arrays } else { &state().arrays.mipmapped };
    let Some(gone) = table.remove(handle) else { return Vec::new() };
    let levels = std::mem::take(&mut *gone.levels.lock());
    levels.into_values().map(Handle).collect()
}

/// The module or library of a function is gone.
pub fn function_ended(handle: Handle) {
    state().functions.table.remove(handle);
}

/// An event was destroyed, or its context was.
pub fn event_ended(handle: Handle) {
    if state().events.any_shared() {
        state().events.shared.lock().remove(&handle.0);
    }
    if state().contexts.several() {
        state().events.homes.lock().remove(&handle.0);
    }
}

/// Functions, globals and the modules of a library end with it.
pub fn module_ended(handle: Handle) -> Vec<Handle> {
    let table = if handle.is(Kind::Module) { &state().modules.modules } else { &state().modules.libraries };
    let Some(gone) = table.remove(handle) else { return Vec::new() };
    let functions = std::mem::take(&mut *gone.functions.lock());
    let modules = std::mem::take(&mut *gone.modules.lock());
    for (base, _) in std::mem::take(&mut *gone.globals.lock()).values() {
        state().addresses.remove(*base);
    }
    functions.into_values().chain(modules.into_values()).map(Handle).collect()
}

/// A stream was destroyed, or its context was.
pub fn stream_ended(handle: Handle) {
    if state().streams.table.remove(handle).is_some() {
        state().captures.stream_destroyed(handle.0);
    }
}

/// A link was destroyed, or its context was.
pub fn link_ended(handle: Handle) {
    let Some(gone) = state().links.table.remove(handle) else { return };
    // The table keeps its values for a while; what is large goes now.
    gone.cubin.lock().take();
    *gone.options.lock() = Options::default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_wire::handle::PRIMARY_CONTEXTS_MAX;

    #[test]
    fn a_handle_released_twice_is_given_out_once() {
        let first: Vec<_> = (0..2000).map(|_| state().handles.reserve(Kind::LogCallback)).collect();
        for h in first.iter().chain(&first) {
            release(*h);
        }
        let again: std::collections::HashSet<_> =
            (0..4000).map(|_| state().handles.reserve(Kind::LogCallback).0).collect();
        assert_eq!(again.len(), 4000);
    }

    #[test]
    fn what_was_made_in_a_context_ends_with_it() {
        let (here, elsewhere) = (1 << 40 | 7, 1 << 40 | 8);
        let made: Vec<_> = (0..1500).map(|_| state().handles.reserve_in(Kind::ExternalMemory, here)).collect();
        let others: Vec<_> = (0..1500).map(|_| state().handles.reserve_in(Kind::ExternalMemory, elsewhere)).collect();
        release_all_in(here);
        let again: Vec<_> = (0..400).map(|_| state().handles.reserve(Kind::ExternalMemory)).collect();
        assert!(again.iter().all(|h| !others.contains(h) && !made.contains(h)));
        assert!(again.iter().all(|h| made.iter().any(|old| old.index() == h.index())), "their indices are free again");
    }

    #[test]
    fn reserved_handles_differ() {
        let (a, b) = (state().handles.reserve(Kind::Array), state().handles.reserve(Kind::Array));
        assert_ne!(a, b);
        assert!(a.is(Kind::Array) && a.index() >= PRIMARY_CONTEXTS_MAX);
    }
}
