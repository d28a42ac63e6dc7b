//! Values that libraries attach to a context, each under a key of its own (the address of something in its
//! image). Every static cudart in the process has one, so there are about eight, and each runtime call of the
//! application gets one: 226,000 times in five GPT-2 generations.
//!
//! Reading takes no lock. Writers hold one and make a version odd while they change what readers see; a reader
//! that met a change looks again. The eighth of eight values takes 3 ns more than the first (12 against 9), so a
//! thread-local copy of the last one, which would have to be checked too, is not worth having.

// UNSAFETY: follows pointers to chunks that are never freed, and calls destructors that libraries left.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

use crate::state::lock::{Lock, Rank};

/// `void destructor(CUcontext, void *key, void *value)`.
pub type Destructor = unsafe extern "C" fn(usize, usize, usize);

pub struct Storage {
    version: AtomicU32,
    first: Chunk,
    /// What is stored, oldest first. Readers never look here.
    stored: Lock<Vec<Stored>>,
}

#[derive(Clone, Copy)]
struct Stored {
    key: usize,
    value: usize,
    destructor: Option<Destructor>,
}

const CHUNK: usize = 16;

struct Chunk {
    entries: [Entry; CHUNK],
    /// More entries; never freed, as a reader may be there.
    next: AtomicPtr<Chunk>,
}

struct Entry {
    /// 1 while `key` and `value` mean something: every key is allowed, null too.
    used: AtomicU32,
    key: AtomicUsize,
    value: AtomicUsize,
}

impl Chunk {
    const fn new() -> Chunk {
        Chunk {
            entries: [const { Entry { used: AtomicU32::new(0), key: AtomicUsize::new(0), value: AtomicUsize::new(0) } };
                CHUNK],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

impl Default for Storage {
    fn default() -> Storage {
        Storage::new()
    }
}

impl Storage {
    pub const fn new() -> Storage {
        Storage { version: AtomicU32::new(0), first: Chunk::new(), stored: Lock::new(Rank::Leaf, Vec::new()) }
    }

    #[inline]
    pub fn get(&self, key: usize) -> Option<usize> {
        loop {
            // Acquire pairs with the Release store at the end of `change`.
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let found = self.find(key).map(|e| e.value.load(Ordering::Relaxed));
                // Pairs with the Release fence in `change`: whoever read a new word here reads a new version below.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return found;
                }
            }
            std::thread::yield_now();
        }
    }

    /// False if the key has a value already; that stays, as in the driver.
    pub fn put(&self, key: usize, value: usize, destructor: Option<Destructor>) -> bool {
        let mut stored = self.stored.lock();
        if stored.iter().any(|s| s.key == key) {
            return false;
        }
        stored.push(Stored { key, value, destructor });
        let free = self.entries().find(|e| e.used.load(Ordering::Relaxed) == 0);
        let entry = free.unwrap_or_else(|| &self.grow().entries[0]);
        self.change(|| {
            entry.key.store(key, Ordering::Relaxed);
            entry.value.store(value, Ordering::Relaxed);
            entry.used.store(1, Ordering::Relaxed);
        });
        true
    }

    /// Forgets a value without running its destructor. False if there is none.
    pub fn delete(&self, key: usize) -> bool {
        let mut stored = self.stored.lock();
        let Some(at) = stored.iter().position(|s| s.key == key) else { return false };
        stored.remove(at);
        if let Some(entry) = self.find(key) {
            self.change(|| entry.used.store(0, Ordering::Relaxed));
        }
        true
    }

    /// Runs all destructors, the youngest value first; each still finds its value. The owner lets nobody put
    /// values meanwhile.
    pub fn destroy(&self, context: u64) {
        loop {
            let last = self.stored.lock().last().copied();
            let Some(Stored { key, value, destructor }) = last else { return };
            if let Some(destructor) = destructor {
                // SAFETY: whoever put the value gave this function for it, and it is called once. No lock is
                // held: it may call back.
                unsafe { destructor(context as usize, key, value) };
            }
            self.delete(key);
        }
    }

    fn find(&self, key: usize) -> Option<&Entry> {
        self.entries().find(|e| e.key.load(Ordering::Relaxed) == key && e.used.load(Ordering::Relaxed) == 1)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let chunks = std::iter::successors(Some(&self.first), |c| {
            // Acquire pairs with the store in `grow`. SAFETY: a chunk is never freed.
            unsafe { c.next.load(Ordering::Acquire).as_ref() }
        });
        chunks.flat_map(|c| &c.entries)
    }

    /// One more chunk at the end. The caller holds the lock.
    fn grow(&self) -> &Chunk {
        let mut last = &self.first;
        // SAFETY: a chunk is never freed.
        while let Some(next) = unsafe { last.next.load(Ordering::Acquire).as_ref() } {
            last = next;
        }
        let fresh: &'static Chunk = Box::leak(Box::new(Chunk::new()));
        last.next.store(std::ptr::from_ref(fresh).cast_mut(), Ordering::Release);
        fresh
    }

    /// Changes what readers see. The caller holds the lock.
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the Acquire fence in `get`.
        fence(Ordering::Release);
        change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_first_value_of_a_key_stays() {
        let s = Storage::new();
        assert!(s.put(1, 2, None));
        assert!(!s.put(1, 3, None));
        assert_eq!(s.get(1), Some(2));
        assert!(s.delete(1) && !s.delete(1));
        assert_eq!(s.get(1), None);
        assert!(s.put(1, 3, None));
        assert_eq!(s.get(1), Some(3));
    }

    #[test]
    fn null_is_a_key_and_a_value() {
        let s = Storage::new();
        assert_eq!(s.get(0), None);
        assert!(s.put(0, 0, None));
        assert_eq!(s.get(0), Some(0));
    }

    #[test]
    fn more_values_than_a_chunk_holds() {
        let s = Storage::new();
        assert!((0..100).all(|k| s.put(k, k + 1, None)));
        assert!((0..100).all(|k| s.get(k) == Some(k + 1)));
        assert!((0..100).step_by(2).all(|k| s.delete(k)));
        assert!((0..100).all(|k| s.get(k).is_some() == (k % 2 == 1)));
    }

    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    static UNDER_TEST: Storage = Storage::new();

    unsafe extern "C" fn note(context: usize, key: usize, value: usize) {
        assert_eq!((context, UNDER_TEST.get(key)), (77, Some(value)));
        ORDER.lock().unwrap().push(key);
    }

    #[test]
    fn destructors_run_youngest_first_and_still_see_their_value() {
        for key in [10, 11, 12, 13] {
            UNDER_TEST.put(key, key * 2, (key != 11).then_some(note as Destructor));
        }
        UNDER_TEST.delete(12);
        UNDER_TEST.destroy(77);
        assert_eq!(*ORDER.lock().unwrap(), [13, 10]);
        assert_eq!(UNDER_TEST.get(11), None);
    }

    #[test]
    fn a_reader_never_sees_another_keys_value() {
        let s = Storage::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let key = 1 + round % 3;
                    s.put(key, key * 1000, None);
                    s.delete(key);
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                for key in 1..4 {
                    assert!(s.get(key).is_none_or(|v| v == key * 1000));
                }
            }
        });
    }
}
