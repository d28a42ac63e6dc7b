//! What the shim knows about the objects of one kind, found by their handles.

// UNSAFETY: looked up without a lock on every call: chunks and values are published by pointer, chunks for good.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use orion_wire::handle::{Handle, PLACE_MAX};

use crate::state::lock::{Lock, Rank};

const CHUNK: usize = 4096;
const CHUNKS: usize = (PLACE_MAX as usize + 1) / CHUNK;

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
    removed: Lock<VecDeque<Value<T>>>,
}

/// Removed values that are kept, in each table.
pub const KEPT: usize = 1024;

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
        let mut removed = self.table.removed.lock();
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
        Table {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            removed: Lock::new(Rank::Leaf, VecDeque::new()),
        }
    }

    fn slot(&self, handle: Handle) -> Option<&Slot<T>> {
        let index = handle.place() as usize;
        // Acquire pairs with the exchange in `insert`: the chunk's slots are initialised.
        let chunk = self.chunks[index / CHUNK].load(Ordering::Acquire);
        // SAFETY: a published chunk is never freed.
        (!chunk.is_null()).then(|| unsafe { &(&*chunk)[index % CHUNK] })
    }

    pub fn get(&self, handle: Handle) -> Option<&'static T> {
        let slot = self.slot(handle)?;
        if slot.generation.load(Ordering::Acquire) != handle.generation() + 1 {
            return None;
        }
        // SAFETY: the value was published before the generation; for how long it lives see `Table`.
        unsafe { slot.value.load(Ordering::Acquire).as_ref() }
    }

    pub fn insert(&self, handle: Handle, value: T) -> &'static T {
        let index = handle.place() as usize;
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
        slot.generation.store(handle.generation() + 1, Ordering::Release);
        // SAFETY: just made; for how long it lives see `Table`.
        unsafe { &*value }
    }

    /// Of several threads that remove it, one is answered.
    pub fn remove(&'static self, handle: Handle) -> Option<Removed<T>> {
        let slot = self.slot(handle)?;
        let value = slot.value.load(Ordering::Acquire);
        let generation = handle.generation() + 1;
        let mine = slot.generation.compare_exchange(generation, 0, Ordering::AcqRel, Ordering::Relaxed);
        mine.is_ok().then(|| Removed { value: Some(Value(value)), table: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_wire::handle::Kind;

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
            let handle = Handle::new(Kind::Event, round, 70_000);
            ALIVE.fetch_add(1, Ordering::Relaxed);
            TABLE.insert(handle, Counted);
            assert!(TABLE.remove(handle).is_some() && TABLE.remove(handle).is_none());
            assert_eq!(ALIVE.load(Ordering::Relaxed) as usize, (round as usize + 1).min(KEPT));
        }
    }
}
