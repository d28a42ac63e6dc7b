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

/// Lies in shared memory: every field is an atomic, every value may be hostile.
#[repr(C)]
pub struct Control {
    pub head: Line<AtomicU64>,
    pub tail: Line<AtomicU64>,
    /// 1 while the consumer sleeps (or is about to) because the ring is empty. A futex word.
    pub consumer_sleeps: Line<AtomicU32>,
    /// 1 while the producer sleeps because there is no room. A futex word.
    pub producer_sleeps: Line<AtomicU32>,
}

impl Control {
    #[cfg(loom)]
    pub fn new() -> Control {
        Control {
            head: Line(AtomicU64::new(0)),
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

    /// Bytes ready for the consumer, whose own position is `tail`.
    pub fn ready(&self, tail: u64, capacity: u64) -> Result<u64, Corrupt> {
        // Acquire pairs with the store in `publish_to`: the bytes up to head are written.
        let head = self.head.0.load(Ordering::Acquire);
        let ready = head.wrapping_sub(tail);
        if ready > capacity { Err(Corrupt) } else { Ok(ready) }
    }

    /// Publishes bytes up to `head`; true if the consumer has to be woken.
    pub fn publish_to(&self, head: u64) -> bool {
        self.head.0.store(head, Ordering::SeqCst);
        self.consumer_sleeps.0.load(Ordering::SeqCst) != 0 && self.consumer_sleeps.0.swap(0, Ordering::SeqCst) != 0
    }

    /// Gives bytes up to `tail` back; true if the producer has to be woken.
    pub fn release_to(&self, tail: u64) -> bool {
        self.tail.0.store(tail, Ordering::SeqCst);
        self.producer_sleeps.0.load(Ordering::SeqCst) != 0 && self.producer_sleeps.0.swap(0, Ordering::SeqCst) != 0
    }

    /// The consumer is about to sleep: true if nothing arrived meanwhile and it may.
    pub fn consumer_may_sleep(&self, tail: u64) -> bool {
        self.consumer_sleeps.0.store(1, Ordering::SeqCst);
        self.head.0.load(Ordering::SeqCst) == tail
    }

    /// The producer is about to sleep until more than `room` bytes are free: true if it may.
    pub fn producer_may_sleep(&self, tail_seen: u64) -> bool {
        self.producer_sleeps.0.store(1, Ordering::SeqCst);
        self.tail.0.load(Ordering::SeqCst) == tail_seen
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

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

    /// What was written before publishing is seen after `ready`.
    #[test]
    fn published_bytes_are_written() {
        loom::model(|| {
            let c = Arc::new(Control::new());
            let data = Arc::new(loom::cell::UnsafeCell::new(0u64));
            let (p, d) = (c.clone(), data.clone());
            let producer = loom::thread::spawn(move || {
                d.with_mut(|v| unsafe { *v = 7 });
                p.publish_to(8);
            });
            if c.ready(0, 64) == Ok(8) {
                data.with(|v| assert_eq!(unsafe { *v }, 7));
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
            let data = Arc::new(loom::cell::UnsafeCell::new(7u64));
            let (k, d) = (c.clone(), data.clone());
            let consumer = loom::thread::spawn(move || {
                d.with(|v| assert_eq!(unsafe { *v }, 7));
                k.release_to(64);
            });
            if c.room(64, 64) == Ok(64) {
                data.with_mut(|v| unsafe { *v = 8 });
            }
            consumer.join().unwrap();
        });
    }
}
