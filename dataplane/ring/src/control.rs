//! Positions of one ring: what the two sides agree through.
//!
//! Positions count bytes since the session began and never wrap (2^64 bytes at 100 GB/s last five years).
//!
//! ```text
//!      tail (consumer)          head (producer)
//!        v                        v
//! |______#########################________|
//! ```
//! Sleep and wake use the store-then-load pattern on both sides: the sleeper publishes its flag and then looks
//! at the position again; the other side publishes the position and then looks at the flag. Both pairs are
//! SeqCst, because with anything weaker both could read the old value and the wake-up would be lost (the loom
//! test `no_wakeup_is_lost` fails with Release/Acquire).
//!
//! A carrier's device may write into a ring beside its producer, in turns with it: records, then where they end
//! ([`PlacedWords`]). The head is whichever of the two is further, so neither ever writes the other's word.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The peer wrote positions that no correct peer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ring positions are impossible")
    }
}

/// One cache line, so that the two sides do not fight over each other's word.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// Where a producer stands, and where a device does that writes for it.
#[repr(C, align(64))]
pub struct Head {
    own: AtomicU64,
    placed: [AtomicU64; 2],
}

/// What a device writes behind records: their end, and a word by which it is known to be whole. Nobody promises that a
/// device writes eight bytes at once (the one of Soft-RoCE copies them one by one), so a reader may see some of the one
/// position and some of the next. Zeros are no position.
pub type PlacedWords = [u64; 2];
pub const PLACED_OFFSET: usize = std::mem::offset_of!(Head, placed);
pub const PLACED_BYTES: usize = 16;

#[must_use]
pub fn placed_words(end: u64) -> PlacedWords {
    // An odd factor: what is mixed of two positions does not fit what is mixed of their words.
    [end, !end.wrapping_mul(0x9e37_79b9_7f4a_7c15)]
}

/// Lies in shared memory: every field is an atomic, every value may be hostile.
#[repr(C)]
pub struct Control {
    pub head: Head,
    pub tail: Line<AtomicU64>,
    /// 1 while the consumer sleeps (or is about to) because the ring is empty.
    pub consumer_sleeps: Line<AtomicU32>,
    /// 1 while the producer sleeps because there is no room.
    pub producer_sleeps: Line<AtomicU32>,
}

/// Where in [`Control`] a producer says how far it has written, for code that has to follow the words by itself.
pub const HEAD_OFFSET: usize = std::mem::offset_of!(Control, head.own);

impl Control {
    #[cfg(all(test, loom))]
    fn new() -> Control {
        Control {
            head: Head { own: AtomicU64::new(0), placed: [AtomicU64::new(0), AtomicU64::new(0)] },
            tail: Line(AtomicU64::new(0)),
            consumer_sleeps: Line(AtomicU32::new(0)),
            producer_sleeps: Line(AtomicU32::new(0)),
        }
    }

    /// Bytes free for the producer, whose own position is `head`.
    pub fn room(&self, head: u64, capacity: u64) -> Result<u64, Corrupt> {
        // Acquire pairs with the Release in `release_to`: the consumer has finished reading what it gave back.
        let tail = self.tail.0.load(Ordering::Acquire);
        let used = head.wrapping_sub(tail);
        if used > capacity { Err(Corrupt) } else { Ok(capacity - used) }
    }

    /// As [`Self::room`], where a device writes into the ring as well: the consumer may have taken what it has placed
    /// before this end has heard of it.
    pub fn room_beside_device(&self, head: u64, capacity: u64) -> Result<u64, Corrupt> {
        // Acquire as above.
        let ahead = self.tail.0.load(Ordering::Acquire).wrapping_sub(head);
        if ahead <= capacity { Ok(capacity) } else { self.room(head, capacity) }
    }

    /// Bytes ready for the consumer, whose own position is `tail`.
    pub fn ready(&self, tail: u64, capacity: u64) -> Result<u64, Corrupt> {
        self.ready_of(self.placed().unwrap_or(0), tail, capacity)
    }

    /// Whether a device's words are to be looked at again, by a consumer at `tail` that has last seen this one: there
    /// is nothing else to read, and they have changed.
    pub fn has_placed(&self, seen: u64, tail: u64) -> bool {
        // What this sees is looked at again.
        self.head.own.load(Ordering::Relaxed) <= tail && self.head.placed[0].load(Ordering::Relaxed) != seen
    }

    /// As [`Self::ready`], of where a device was last seen to be.
    pub fn ready_of(&self, placed: u64, tail: u64, capacity: u64) -> Result<u64, Corrupt> {
        let ready = self.written(placed).wrapping_sub(tail);
        if ready > capacity { Err(Corrupt) } else { Ok(ready) }
    }

    /// Up to where bytes are written, by whomever.
    pub fn written(&self, placed: u64) -> u64 {
        // SeqCst for the sleeper's second look. It pairs with the store in `publish_to`: the bytes up to head are
        // written.
        self.head.own.load(Ordering::SeqCst).max(placed)
    }

    /// Up to where a device has. Nothing while it is just writing that.
    pub fn placed(&self) -> Option<u64> {
        // SeqCst as above; a device writes these behind the bytes that they tell of.
        let words = [0, 1].map(|i| self.head.placed[i].load(Ordering::SeqCst));
        (words == placed_words(words[0])).then_some(words[0])
    }

    /// Publishes bytes up to `head`; true if the consumer has to be woken.
    pub fn publish_to(&self, head: u64) -> bool {
        self.head.own.store(head, Ordering::SeqCst);
        store_before_load();
        self.is_consumer_to_wake()
    }

    /// Bytes were written, by whomever: true if the consumer has to be woken.
    pub fn is_consumer_to_wake(&self) -> bool {
        self.consumer_sleeps.0.load(Ordering::SeqCst) != 0 && self.consumer_sleeps.0.swap(0, Ordering::SeqCst) != 0
    }

    /// Gives bytes up to `tail` back; true if the producer has to be woken.
    pub fn release_to(&self, tail: u64) -> bool {
        self.tail.0.store(tail, Ordering::SeqCst);
        store_before_load();
        self.producer_sleeps.0.load(Ordering::SeqCst) != 0 && self.producer_sleeps.0.swap(0, Ordering::SeqCst) != 0
    }

    /// The consumer is about to sleep: true if nothing arrived meanwhile and it may.
    pub fn consumer_may_sleep(&self, tail: u64) -> bool {
        self.consumer_sleeps.0.store(1, Ordering::SeqCst);
        store_before_load();
        self.written(self.placed().unwrap_or(0)) == tail
    }

    /// The producer is about to sleep until more than `room` bytes are free: true if it may.
    pub fn producer_may_sleep(&self, tail_seen: u64) -> bool {
        self.producer_sleeps.0.store(1, Ordering::SeqCst);
        store_before_load();
        self.tail.0.load(Ordering::SeqCst) == tail_seen
    }
}

/// Loom takes SeqCst accesses for AcqRel ones and knows SeqCst fences only, so its model has the fence that the
/// accesses around it imply by themselves.
#[cfg(loom)]
fn store_before_load() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
fn store_before_load() {}

// UNSAFETY: the model's payload is loom's UnsafeCell, which fails the test when two threads reach it unordered.
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    const CAPACITY: u64 = 8;

    /// A consumer that decided to sleep is always woken by a later publish.
    #[test]
    fn no_wakeup_is_lost() {
        loom::model(|| {
            let c = Arc::new(Control::new());
            let p = c.clone();
            let producer = loom::thread::spawn(move || p.publish_to(8));
            let slept = c.consumer_may_sleep(0);
            let woken = producer.join().unwrap();
            assert!(!slept || woken, "consumer sleeps and nobody wakes it");
        });
    }

    /// A producer that decided to sleep is always woken when room is given back.
    #[test]
    fn no_wakeup_for_room_is_lost() {
        loom::model(|| {
            let c = Arc::new(Control::new());
            c.publish_to(CAPACITY);
            let k = c.clone();
            let consumer = loom::thread::spawn(move || k.release_to(CAPACITY));
            let slept = c.producer_may_sleep(0);
            let woken = consumer.join().unwrap();
            assert!(!slept || woken, "producer sleeps and nobody wakes it");
        });
    }

    /// What was written before publishing is seen after `ready`.
    #[test]
    fn published_bytes_are_written() {
        loom::model(|| {
            let c = Arc::new(Control::new());
            let data = Arc::new(UnsafeCell::new(0u64));
            let (p, d) = (c.clone(), data.clone());
            let producer = loom::thread::spawn(move || {
                write(&d, 7);
                p.publish_to(8);
            });
            if c.ready(0, 64) == Ok(8) {
                assert_eq!(read(&data), 7);
            }
            producer.join().unwrap();
        });
    }

    /// Room is only reported once the consumer has read: the producer may overwrite.
    #[test]
    fn released_bytes_are_read() {
        loom::model(|| {
            let c = Arc::new(Control::new());
            c.publish_to(64);
            let data = Arc::new(UnsafeCell::new(7u64));
            let (k, d) = (c.clone(), data.clone());
            let consumer = loom::thread::spawn(move || {
                assert_eq!(read(&d), 7);
                k.release_to(64);
            });
            if c.room(64, 64) == Ok(64) {
                write(&data, 8);
            }
            consumer.join().unwrap();
        });
    }

    /// Both sides at once, sleeping whenever they may: a ring that holds one word passes two, in order, and neither
    /// side sleeps for ever.
    #[test]
    fn words_pass_through_a_ring_that_holds_one() {
        let mut model = loom::model::Builder::new();
        // Without a bound the model takes minutes; lost wake-ups need two switches.
        model.preemption_bound = Some(3);
        model.check(|| {
            let c = Arc::new(Control::new());
            let data = Arc::new(UnsafeCell::new(0u64));
            let (p, d) = (c.clone(), data.clone());
            let producer = loom::thread::spawn(move || {
                for word in 0..2 {
                    let head = word * CAPACITY;
                    while p.room(head, CAPACITY) == Ok(0) {
                        if p.producer_may_sleep(head - CAPACITY) {
                            sleep(&p.producer_sleeps.0);
                        }
                    }
                    write(&d, 7 + word);
                    p.publish_to(head + CAPACITY);
                }
            });
            for word in 0..2 {
                let tail = word * CAPACITY;
                while c.ready(tail, CAPACITY) == Ok(0) {
                    if c.consumer_may_sleep(tail) {
                        sleep(&c.consumer_sleeps.0);
                    }
                }
                assert_eq!(read(&data), 7 + word);
                c.release_to(tail + CAPACITY);
            }
            producer.join().unwrap();
        });
    }

    /// The bell: returns once somebody has taken the 1 away. Loom gives up on a model that waits for ever.
    fn sleep(word: &AtomicU32) {
        while word.load(Ordering::SeqCst) == 1 {
            loom::thread::yield_now();
        }
    }

    fn write(cell: &UnsafeCell<u64>, value: u64) {
        // SAFETY: loom checks that no other thread is in the cell.
        cell.with_mut(|v| unsafe { *v = value });
    }

    fn read(cell: &UnsafeCell<u64>) -> u64 {
        // SAFETY: as above.
        cell.with(|v| unsafe { *v })
    }
}
