//! Which session a call is for, where a process has several: its vGPUs lie on several nodes then.
//!
//! What a call names decides: an object's handle has its session in it, an address lies in some device's memory, a
//! default stream is the current context's. A call for another session than the current context's is made with a
//! context of that one current, so nothing below knows of this. One that names things of two sessions cannot be made,
//! unless it is a copy or a wait, which are done here in the client.
//!
//! With one session nothing of this is called unless a profiler records, and then it changes nothing:
//! `recording::ROUTED` is not set.

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

use crate::session::context::lookup;
use crate::session::device::facts;
use crate::state::context::{self, Context, pop, push};
use crate::state::process::state;
use crate::state::session::Session;

/// Something that a call names.
#[derive(Debug, Clone, Copy)]
pub enum Key {
    /// An object's handle. Libraries and their kernels are objects of every session.
    Object(u64),
    Context(u64),
    /// A default stream is one of the current context's.
    Stream(u64),
    /// Device memory. Host memory is within reach of every session.
    Address(u64),
    /// Pinned or registered memory, which belongs to the session in whose context it was made.
    Host(u64),
    Device(CUdevice),
    /// What belongs to the current context without being named.
    Current,
}

impl Key {
    /// A context in whose session the thing is; nothing if it is in none, or in all.
    pub fn context(self) -> Option<&'static Context> {
        match self {
            Key::Object(0) => None,
            Key::Object(word) => of_object(Handle(word)),
            Key::Stream(..=2) | Key::Current | Key::Context(0) => context::top(),
            Key::Stream(word) => lookup(state().streams.table.get(Handle(word))?.context).ok(),
            Key::Context(word) => lookup(word).ok(),
            Key::Address(address) => {
                let range = state().addresses.find(address);
                match range.filter(|r| r.is_device()) {
                    Some(r) => of_memory((r.context, r.device)),
                    None => some_context(state().virtual_memory.session(address)?),
                }
            }
            Key::Host(address) => {
                let range = state().addresses.find(address).filter(|r| !r.is_device())?;
                of_memory((range.context, range.device))
            }
            Key::Device(device) => facts().ok()?.device(device).ok().map(|d| &d.primary),
        }
    }

    /// How little it says about the context: a stream is one context's, a pool or a graph all those' of its session.
    fn rank(self) -> u32 {
        match self {
            Key::Stream(_) | Key::Context(_) => 0,
            Key::Object(word) if lookup(state().handles.context_of(Handle(word))).is_ok() => 1,
            Key::Address(_) | Key::Host(_) | Key::Device(_) | Key::Current => 2,
            Key::Object(_) => 3,
        }
    }

    fn is_memory(self) -> bool {
        matches!(self, Key::Address(_) | Key::Host(_))
    }
}

fn of_memory((made_in, device): (u64, u32)) -> Option<&'static Context> {
    let own = lookup(made_in).ok().filter(|c| c.is_active());
    own.or_else(|| facts().ok()?.devices.get(device as usize).map(|d| &d.primary))
}

fn of_object(handle: Handle) -> Option<&'static Context> {
    if handle.is(Kind::Library) {
        return None;
    }
    if handle.is(Kind::Function) {
        let owner = Handle(state().functions.table.get(handle)?.owner);
        return if owner.is(Kind::Library) { None } else { of_object(owner) };
    }
    if handle.is(Kind::Context) && handle.index() < PRIMARY_CONTEXTS_MAX {
        return lookup(handle.0).ok();
    }
    let own = lookup(state().handles.context_of(handle)).ok().filter(|c| c.is_active());
    own.or_else(|| some_context(handle.owner()))
}

/// Some context of a session: the current one, one that is in use, or that of its first device.
fn some_context(session: usize) -> Option<&'static Context> {
    let devices = || facts().ok().into_iter().flat_map(|f| &f.devices).filter(|d| d.session == session);
    let current = context::top().filter(|c| c.session == session && c.is_active());
    let active = || devices().map(|d| &d.primary).find(|c| c.is_active());
    current.or_else(active).or_else(|| devices().next().map(|d| &d.primary))
}

/// Where a call is to go.
enum Way {
    /// The current context's session, or any.
    Here,
    There(&'static Context),
    /// It names things of two.
    Nowhere {
        has_memory: bool,
    },
}

fn way(keys: &[Key]) -> Way {
    // A profiler has calls come by here too.
    if !state().attachment.several() {
        return Way::Here;
    }
    let found: Vec<(&Key, &'static Context)> = keys.iter().filter_map(|key| Some((key, key.context()?))).collect();
    if found.windows(2).any(|pair| pair[0].1.session != pair[1].1.session) {
        return Way::Nowhere { has_memory: keys.iter().any(|key| key.is_memory()) };
    }
    // Of the contexts of one session the one that the call's work is done in.
    match found.iter().min_by_key(|(key, _)| key.rank()).map(|(_, context)| *context) {
        Some(c) if context::top().is_none_or(|current| current.session != c.session) => Way::There(c),
        _ => Way::Here,
    }
}

/// With a context of another session current.
pub fn with<T>(context: &'static Context, f: impl FnOnce() -> T) -> T {
    push(context);
    let answer = f();
    pop();
    answer
}

/// Makes a call where all that it names is. `Err` if that is in two places; then `f` was not called.
pub fn through<T>(keys: &[Key], f: impl FnOnce() -> T) -> Result<T, Apart> {
    match way(keys) {
        Way::Here => Ok(f()),
        Way::There(context) => Ok(with(context, f)),
        Way::Nowhere { has_memory } => Err(Apart { has_memory }),
    }
}

/// As [`through`], of work that is done in a context: without a current one and a stream's it is refused as always.
pub fn in_a_context<T>(keys: &[Key], f: impl FnOnce() -> T) -> Result<T, Apart> {
    let names_one = keys.iter().any(|key| matches!(key, Key::Stream(stream) if *stream > 2));
    match context::top() {
        None if !names_one => Ok(f()),
        _ => through(keys, f),
    }
}

/// What a call names lies on two nodes.
#[derive(Debug, Clone, Copy)]
pub struct Apart {
    has_memory: bool,
}

impl Apart {
    /// The driver's code for objects of two contexts that do not go together. What it could do with memory of another
    /// device is refused in words.
    pub fn refused(self, name: &'static str) -> CUresult {
        match name {
            "cuCtxEnablePeerAccess" => CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
            "cuCtxDisablePeerAccess" => CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
            _ if self.has_memory => {
                crate::report::refuse::refused(
                    name,
                    "what it names lies on two nodes, which do not reach each other's",
                );
                CUDA_ERROR_NOT_SUPPORTED
            }
            _ => CUDA_ERROR_INVALID_HANDLE,
        }
    }
}

/// Whether what a description names goes together with the current context. Refused in words if not.
pub fn together(name: &'static str, [a, b]: &[Key; 2]) -> Result<(), CUresult> {
    if !state().attachment.several() {
        return Ok(());
    }
    through(&[*a, *b, Key::Current], || ()).map_err(|_| Apart { has_memory: true }.refused(name))
}

/// Has `f` make its call, which needs no context, where a device is.
pub fn of_device<T>(device: u32, f: impl FnOnce() -> T) -> T {
    // A worker refuses whatever comes with a context that has ended.
    let is_dead = context::is_dead();
    let primary = || facts().ok()?.devices.get(device as usize).map(|d| &d.primary);
    match primary().filter(|c| state().attachment.several() && (is_dead || c.session != context::current_session())) {
        Some(c) => with(c, f),
        None if is_dead => context::without(f),
        None => f(),
    }
}

/// Has `f` make its call in each session but the current context's, as long as there is one to make it in.
pub fn in_others(f: impl Fn(&'static Session)) {
    if !state().attachment.several() {
        return;
    }
    let here = context::current_session();
    for s in state().attachment.all().filter(|s| s.number != here && !crate::session::carrier::lost(s)) {
        if let Some(context) = some_context(s.number) {
            with(context, || f(s));
        }
    }
}

/// Whether a device is of this session.
pub fn is_of(s: &Session, device: u32) -> bool {
    !state().attachment.several()
        || facts().ok().and_then(|f| f.devices.get(device as usize)).is_none_or(|d| d.session == s.number)
}

/// Whether a device is of the current context's session.
pub fn is_here(device: CUdevice) -> bool {
    !state().attachment.several()
        || facts().ok().and_then(|f| f.device(device).ok()).is_none_or(|d| d.session == context::current_session())
}

/// Device memory of this session that lies where another session's does: each worker's driver chooses its addresses
/// for itself.
pub fn is_taken(base: u64, bytes: u64) -> bool {
    if !state().attachment.several() {
        return false;
    }
    let here = context::current_session();
    let session_of = |device: u32| facts().ok().and_then(|f| f.devices.get(device as usize)).map(|d| d.session);
    let taken = |device: u32| session_of(device).is_some_and(|session| session != here);
    state().addresses.any_overlapping(base, bytes, |r| taken(r.device))
        || state().virtual_memory.is_elsewhere(base, bytes, here)
}

/// How often memory is asked for that lies where no other session's does.
const ATTEMPTS: usize = 8;

/// Memory that lies where no other session's does. What lies elsewhere is given back, but only after better was found:
/// otherwise the driver would answer the same again.
pub fn apart<T>(
    ask: impl FnMut() -> Result<T, CUresult>,
    range: impl Fn(&T) -> (u64, u64),
    give_back: impl FnMut(T),
) -> Result<T, CUresult> {
    let taken = |found: &T| {
        let (base, bytes) = range(found);
        is_taken(base, bytes)
    };
    until(ask, |found| !taken(found), give_back)
}

fn until<T>(
    mut ask: impl FnMut() -> Result<T, CUresult>,
    is_good: impl Fn(&T) -> bool,
    give_back: impl FnMut(T),
) -> Result<T, CUresult> {
    let mut rejected = Vec::new();
    let answer = loop {
        match ask() {
            Ok(found) if !is_good(&found) => rejected.push(found),
            other => break other,
        }
        if rejected.len() == ATTEMPTS {
            crate::say!("a node has device memory only at addresses where another one has some of this program's");
            break Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
    };
    rejected.into_iter().for_each(give_back);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_asked_for_until_it_lies_apart_and_the_rest_is_given_back() {
        let mut next = 0..;
        let mut back = Vec::new();
        let ask = || Ok(next.next().expect("without end"));
        assert_eq!(until(ask, |n| *n == 3, |n| back.push(n)), Ok(3));
        assert_eq!(back, [0, 1, 2]);
        back.clear();
        assert_eq!(until(|| Ok(7), |_| false, |n| back.push(n)), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(back, [7; ATTEMPTS]);
        back.clear();
        let full: Result<u64, CUresult> = Err(CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(until(|| full, |_| true, |n| back.push(n)), full);
        assert!(back.is_empty());
    }

    #[test]
    fn handles_say_whose_they_are_and_libraries_are_everybodys() {
        let handles = &state().handles;
        let of = |kind, session| handles.reserve_of(kind, session, 0);
        let (first, second) = (of(Kind::Event, 0), of(Kind::Event, 1));
        // Each worker is told indices from the beginning, and in the client no two objects are one.
        assert_eq!((first.index(), first.owner(), second.index(), second.owner()), (64, 0, 64, 1));
        assert_ne!(first.place(), second.place());
        assert_eq!((of(Kind::Library, 1).owner(), of(Kind::Function, 2).owner()), (0, 0));
        handles.give_back(first);
        assert_eq!((of(Kind::Event, 0).index(), of(Kind::Event, 1).index()), (65, 65));
    }
}
