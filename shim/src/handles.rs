//! Handles this process has handed out, and what it remembers about them.

// UNSAFETY: looked up without a lock on every call: chunks and values are published by pointer, chunks for good.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use orion_cuda::sys::CUresult;
use orion_wire::handle::{Handle, INDEX_MAX, KIND_MAX, Kind, PRIMARY_CONTEXTS_MAX};

use crate::local::bridge;

/// Indices of one kind: which are free, and how often each was used.
struct Pool {
    next: u32,
    free: VecDeque<(u32, u16)>,
    used: Vec<Used>,
}

/// What became of an index.
#[derive(Clone, Copy)]
struct Used {
    generation: u16,
    /// An application that destroys an object twice must not make two objects share a handle.
    alive: bool,
    /// The context that the object ends with; 0 for none.
    context: u64,
}

static POOLS: [Mutex<Pool>; KIND_MAX as usize + 1] =
    [const { Mutex::new(Pool { next: PRIMARY_CONTEXTS_MAX, free: VecDeque::new(), used: Vec::new() }) };
        KIND_MAX as usize + 1];

/// A fresh handle; the worker learns it with the command that creates the object.
///
/// # Panics
/// When 16 million objects of one kind are alive, which no driver survives either.
pub fn reserve(kind: Kind) -> Handle {
    reserve_in(kind, 0)
}

/// As [`reserve`], for an object that ends with its context.
pub fn reserve_in(kind: Kind, context: u64) -> Handle {
    let mut pool = POOLS[kind as usize].lock().expect("no panic happens under this lock");
    // Oldest first, so that a stale handle is told apart for as long as possible.
    if pool.free.len() > 1024
        && let Some((index, generation)) = pool.free.pop_front()
    {
        let generation = generation.wrapping_add(1);
        pool.used[(index - PRIMARY_CONTEXTS_MAX) as usize] = Used { generation, alive: true, context };
        return Handle::new(kind, generation, index);
    }
    let index = pool.next;
    assert!(index < INDEX_MAX, "16 million live CUDA objects of kind {kind:?}");
    pool.next += 1;
    pool.used.push(Used { generation: 0, alive: true, context });
    Handle::new(kind, 0, index)
}

/// Gives a handle back: its creation failed, or its object was destroyed. Those of what lives in the object go too.
pub fn release(handle: Handle) {
    for kind in KINDS {
        if handle.is(kind) {
            // Before somebody else is given the index.
            bridge::object_ended(kind, handle).into_iter().for_each(release);
            give_back(kind, handle);
        }
    }
}

/// Others may be given the handle's index.
fn give_back(kind: Kind, handle: Handle) {
    let mut pool = POOLS[kind as usize].lock().expect("no panic happens under this lock");
    let index = (handle.index() as usize).wrapping_sub(PRIMARY_CONTEXTS_MAX as usize);
    if let Some(used) = pool.used.get_mut(index)
        && (used.generation, used.alive) == (handle.generation(), true)
    {
        used.alive = false;
        pool.free.push_back((handle.index(), handle.generation()));
    }
}

/// What creating the object of a handle answered; the handle is free again if there is none.
pub fn made<T>(handle: Handle, answer: Result<T, CUresult>) -> Result<T, CUresult> {
    answer.inspect_err(|_| release(handle))
}

/// Gives back the handles of everything that was made in a context: it is dead.
pub fn release_all_in(context: u64) {
    KINDS.into_iter().for_each(|kind| made_in(kind, context).into_iter().for_each(release));
}

/// The handles of one kind whose objects live in a context.
fn made_in(kind: Kind, context: u64) -> Vec<Handle> {
    let pool = POOLS[kind as usize].lock().expect("no panic happens under this lock");
    let indices = (PRIMARY_CONTEXTS_MAX..).zip(&pool.used);
    let there = indices.filter(|(_, used)| used.alive && used.context == context);
    there.map(|(index, used)| Handle::new(kind, used.generation, index)).collect()
}

const KINDS: [Kind; KIND_MAX as usize] = [
    Kind::Context,
    Kind::Module,
    Kind::Library,
    Kind::Function,
    Kind::Stream,
    Kind::Event,
    Kind::Array,
    Kind::MipmappedArray,
    Kind::Graph,
    Kind::GraphNode,
    Kind::GraphExec,
    Kind::MemPool,
    Kind::MemAllocation,
    Kind::LinkState,
    Kind::GreenContext,
    Kind::UserObject,
    Kind::TexRef,
    Kind::SurfRef,
    Kind::ExternalMemory,
    Kind::ExternalSemaphore,
    Kind::DevResourceDesc,
    Kind::AsyncCallback,
    Kind::LogCallback,
];

const CHUNK: usize = 4096;
const CHUNKS: usize = (INDEX_MAX as usize + 1) / CHUNK;

struct Slot<T> {
    /// Generation of the handle the value belongs to, plus one; 0 while empty.
    generation: AtomicU32,
    value: AtomicPtr<T>,
}

/// What the shim knows about the objects of one kind. Reading takes no lock: launches look functions up here.
///
/// Who still reads a removed value belongs to a program that destroys an object in one thread and uses it in another,
/// which CUDA leaves undefined. All the same a value is kept until so many more were removed that no call which was
/// under way can be reading it.
pub struct Table<T: 'static> {
    chunks: [AtomicPtr<[Slot<T>; CHUNK]>; CHUNKS],
    removed: Mutex<VecDeque<Value<T>>>,
}

/// Removed values that are kept, in each table.
const KEPT: usize = 1024;

/// A value that no table refers to any more.
struct Value<T>(*mut T);

// SAFETY: it owns the value, as a box would.
unsafe impl<T: Send> Send for Value<T> {}

impl<T> Drop for Value<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and nobody else frees it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// What was removed from a table, to be used by who removed it. Then it is kept for a while.
pub struct Removed<T: Send + 'static> {
    value: Option<Value<T>>,
    table: &'static Table<T>,
}

impl<T: Send> Deref for Removed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        let value = self.value.as_ref().expect("taken only by drop");
        // SAFETY: the value is ours until it is dropped.
        unsafe { &*value.0 }
    }
}

impl<T: Send> Drop for Removed<T> {
    fn drop(&mut self) {
        let Ok(mut removed) = self.table.removed.lock() else { return };
        removed.extend(self.value.take());
        let oldest = if removed.len() > KEPT { removed.pop_front() } else { None };
        drop(removed);
        // Outside of the lock: a value may have others in it.
        drop(oldest);
    }
}

impl<T: Send + Sync> Default for Table<T> {
    fn default() -> Table<T> {
        Table::new()
    }
}

impl<T: Send + Sync> Table<T> {
    pub const fn new() -> Table<T> {
        Table { chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS], removed: Mutex::new(VecDeque::new()) }
    }

    fn slot(&self, handle: Handle) -> Option<&Slot<T>> {
        let index = handle.index() as usize;
        // Acquire pairs with the exchange in `insert`: the chunk's slots are initialised.
        let chunk = self.chunks[index / CHUNK].load(Ordering::Acquire);
        // SAFETY: a published chunk is never freed.
        (!chunk.is_null()).then(|| unsafe { &(&*chunk)[index % CHUNK] })
    }

    pub fn get(&self, handle: Handle) -> Option<&'static T> {
        let slot = self.slot(handle)?;
        if slot.generation.load(Ordering::Acquire) != handle.generation() as u32 + 1 {
            return None;
        }
        // SAFETY: the value was published before the generation; for how long it lives see `Table`.
        unsafe { slot.value.load(Ordering::Acquire).as_ref() }
    }

    pub fn insert(&self, handle: Handle, value: T) -> &'static T {
        let index = handle.index() as usize;
        let place = &self.chunks[index / CHUNK];
        if place.load(Ordering::Acquire).is_null() {
            let fresh = Box::into_raw(Box::new(
                [const { Slot { generation: AtomicU32::new(0), value: AtomicPtr::new(std::ptr::null_mut()) } }; CHUNK],
            ));
            if place.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread was first; nobody has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        let slot = self.slot(handle).expect("the chunk was just published");
        let value = Box::into_raw(Box::new(value));
        slot.value.store(value, Ordering::Release);
        slot.generation.store(handle.generation() as u32 + 1, Ordering::Release);
        // SAFETY: just made; for how long it lives see `Table`.
        unsafe { &*value }
    }

    /// Of several threads that remove it, one is answered.
    pub fn remove(&'static self, handle: Handle) -> Option<Removed<T>> {
        let slot = self.slot(handle)?;
        let value = slot.value.load(Ordering::Acquire);
        let generation = handle.generation() as u32 + 1;
        let mine = slot.generation.compare_exchange(generation, 0, Ordering::AcqRel, Ordering::Relaxed);
        mine.is_ok().then(|| Removed { value: Some(Value(value)), table: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_finds_nothing() {
        static TABLE: Table<u32> = Table::new();
        let table = &TABLE;
        let old = Handle::new(Kind::Event, 0, 70_000);
        let new = Handle::new(Kind::Event, 1, 70_000);
        table.insert(old, 1);
        assert_eq!(table.get(old), Some(&1));
        assert_eq!(table.get(new), None);
        table.remove(old);
        table.insert(new, 2);
        assert_eq!((table.get(old), table.get(new)), (None, Some(&2)));
    }

    #[test]
    fn removed_values_are_kept_for_a_while_and_then_dropped() {
        static ALIVE: AtomicU32 = AtomicU32::new(0);
        struct Counted;
        impl Drop for Counted {
            fn drop(&mut self) {
                ALIVE.fetch_sub(1, Ordering::Relaxed);
            }
        }
        static TABLE: Table<Counted> = Table::new();
        for round in 0..5000 {
            let handle = Handle::new(Kind::Event, round as u16, 70_000);
            ALIVE.fetch_add(1, Ordering::Relaxed);
            TABLE.insert(handle, Counted);
            assert!(TABLE.remove(handle).is_some() && TABLE.remove(handle).is_none());
            assert_eq!(ALIVE.load(Ordering::Relaxed) as usize, (round + 1).min(KEPT));
        }
    }

    #[test]
    fn a_handle_released_twice_is_given_out_once() {
        let first: Vec<_> = (0..2000).map(|_| reserve(Kind::LogCallback)).collect();
        for h in first.iter().chain(&first) {
            release(*h);
        }
        let again: std::collections::HashSet<_> = (0..4000).map(|_| reserve(Kind::LogCallback).0).collect();
        assert_eq!(again.len(), 4000);
    }

    #[test]
    fn what_was_made_in_a_context_ends_with_it() {
        let (here, elsewhere) = (1 << 40 | 7, 1 << 40 | 8);
        let made: Vec<_> = (0..1500).map(|_| reserve_in(Kind::ExternalMemory, here)).collect();
        let others: Vec<_> = (0..1500).map(|_| reserve_in(Kind::ExternalMemory, elsewhere)).collect();
        release_all_in(here);
        let again: Vec<_> = (0..400).map(|_| reserve(Kind::ExternalMemory)).collect();
        assert!(again.iter().all(|h| !others.contains(h) && !made.contains(h)));
        assert!(again.iter().all(|h| made.iter().any(|old| old.index() == h.index())), "their indices are free again");
    }

    #[test]
    fn reserved_handles_differ() {
        let (a, b) = (reserve(Kind::Array), reserve(Kind::Array));
        assert_ne!(a, b);
        assert!(a.is(Kind::Array) && a.index() >= PRIMARY_CONTEXTS_MAX);
    }
}
