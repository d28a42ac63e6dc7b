//! Locks with an order.
//!
//! A thread that holds one of them takes only such as come later in [`Rank`]. A debug build looks at it and panics with
//! both names; a release build has plain locks.

use std::ops::{Deref, DerefMut};
use std::sync::{
    Condvar, LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::Duration;

/// First what is held while most other things happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The process attaches to a worker.
    Attaching,
    /// A profiler's buffers are filled and handed over to functions of the application's.
    Delivery,
    /// The worker is asked for what its profiler recorded.
    Gpu,
    /// The worker is asked about one object.
    Object,
    /// The worker is told of one of several objects of a kind.
    Objects,
    /// Memory whose addresses were sent is looked for and kept in step.
    Following,
    /// Changes of mirrored memory go into the ring in the order in which they were found.
    Sending,
    /// Mirrored memory is looked at.
    Mirror,
    /// The application's callbacks for lines of the log run.
    LogCallbacks,
    /// A thread reads the replies of all.
    Replies,
    /// A command goes into the ring.
    Ring,
    /// The heap is divided.
    Heap,
    /// Under these nothing else is locked.
    Leaf,
}

/// What one thread holds, in a debug build.
#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;

    use super::Rank::{self, *};

    const ALL: [Rank; 13] = [
        Attaching,
        Delivery,
        Gpu,
        Object,
        Objects,
        Following,
        Sending,
        Mirror,
        LogCallbacks,
        Replies,
        Ring,
        Heap,
        Leaf,
    ];

    thread_local! {
        static HELD: Cell<u16> = const { Cell::new(0) };
    }

    pub struct Held(Rank);

    impl Held {
        /// # Panics
        /// When the thread holds a lock that does not come earlier.
        pub fn new(rank: Rank, is_attempt: bool) -> Held {
            HELD.with(|held| {
                let late = ALL.iter().rev().find(|other| **other >= rank && held.get() >> **other as u16 & 1 != 0);
                if let Some(late) = late.filter(|_| !is_attempt) {
                    panic!("the lock {rank:?} is taken under the lock {late:?}");
                }
                held.set(held.get() | 1 << rank as u16);
            });
            Held(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| held.set(held.get() & !(1 << self.0 as u16)));
        }
    }
}

/// A release build ends with a panic, so there a lock is never found poisoned and nothing is paid for looking.
#[inline(always)]
fn unpoisoned<G>(locked: LockResult<G>) -> G {
    match cfg!(debug_assertions) {
        true => locked.expect("no panic happens under this lock"),
        false => locked.unwrap_or_else(PoisonError::into_inner),
    }
}

pub struct Lock<T> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> Lock<T> {
    pub const fn new(rank: Rank, value: T) -> Lock<T> {
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Lock {
            #[cfg(debug_assertions)]
            rank,
            inner: Mutex::new(value),
        }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        Guard {
            #[cfg(debug_assertions)]
            held: held::Held::new(self.rank, false),
            inner: unpoisoned(self.inner.lock()),
        }
    }

    /// For locks under which functions of the application's run, which may unwind.
    pub fn lock_after_panic(&self) -> Guard<'_, T> {
        Guard {
            #[cfg(debug_assertions)]
            held: held::Held::new(self.rank, false),
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Nothing if somebody has it. Whoever does not wait may ask out of order.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Guard {
            #[cfg(debug_assertions)]
            held: held::Held::new(self.rank, true),
            inner,
        })
    }
}

pub struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    held: held::Held,
}

impl<'a, T> Guard<'a, T> {
    /// Lets go of the lock until somebody notifies.
    pub fn wait(self, condvar: &Condvar) -> Guard<'a, T> {
        Guard {
            inner: unpoisoned(condvar.wait(self.inner)),
            #[cfg(debug_assertions)]
            held: self.held,
        }
    }

    /// As [`Guard::wait`], but no longer than `timeout`.
    pub fn wait_timeout(self, condvar: &Condvar, timeout: Duration) -> Guard<'a, T> {
        Guard {
            inner: unpoisoned(condvar.wait_timeout(self.inner, timeout)).0,
            #[cfg(debug_assertions)]
            held: self.held,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A lock that many may read under.
pub struct Shared<T> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: RwLock<T>,
}

impl<T> Shared<T> {
    pub const fn new(rank: Rank, value: T) -> Shared<T> {
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Shared {
            #[cfg(debug_assertions)]
            rank,
            inner: RwLock::new(value),
        }
    }

    #[inline]
    pub fn read(&self) -> Reading<'_, T> {
        Reading {
            #[cfg(debug_assertions)]
            _held: held::Held::new(self.rank, false),
            inner: unpoisoned(self.inner.read()),
        }
    }

    pub fn write(&self) -> Writing<'_, T> {
        Writing {
            #[cfg(debug_assertions)]
            _held: held::Held::new(self.rank, false),
            inner: unpoisoned(self.inner.write()),
        }
    }
}

pub struct Reading<'a, T> {
    inner: RwLockReadGuard<'a, T>,
    #[cfg(debug_assertions)]
    _held: held::Held,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

pub struct Writing<'a, T> {
    inner: RwLockWriteGuard<'a, T>,
    #[cfg(debug_assertions)]
    _held: held::Held,
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_locks_are_taken_under_earlier_ones() {
        let (ring, leaf) = (Lock::new(Rank::Ring, 1), Lock::new(Rank::Leaf, 2));
        let (a, b) = (ring.lock(), leaf.lock());
        // Given back in any order.
        drop(a);
        drop(b);
        assert_eq!(*ring.lock(), 1);
        assert_eq!(*leaf.lock(), 2);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the lock Ring is taken under the lock Leaf")]
    fn an_earlier_lock_under_a_later_one_is_an_error() {
        let (ring, leaf) = (Lock::new(Rank::Ring, ()), Lock::new(Rank::Leaf, ()));
        let _later = leaf.lock();
        let _earlier = ring.lock();
    }

    #[test]
    fn whoever_does_not_wait_may_ask_out_of_order() {
        let (ring, leaf) = (Lock::new(Rank::Ring, ()), Lock::new(Rank::Leaf, ()));
        let _later = leaf.lock();
        assert!(ring.try_lock().is_some());
    }
}
