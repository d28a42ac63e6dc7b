//! Bulk bytes travel on lanes: further connections of a session, each with its own thread or engine.
//!
//! A lane is a FIFO, so "all chunks sent so far have arrived" is one byte count per lane: the sender writes its
//! counts into a BARRIER frame and the receiver waits until its own have reached them. No table of transfers, and
//! nothing a peer can make grow.

use std::sync::atomic::{AtomicU64, Ordering};

use orion_wire::record::HeapRange;

pub const LANES_MAX: usize = 8;
/// Large enough that headers and wake-ups do not show, small enough to spread 1 MiB over the lanes.
pub const CHUNK_BYTES_MAX: u64 = 512 << 10;
/// Only the end of a range is less.
pub const CHUNK_BYTES_MIN: u64 = 128 << 10;

/// Heap bytes received on each lane since the session began.
#[derive(Default)]
pub struct LaneCounts([AtomicU64; LANES_MAX]);

impl LaneCounts {
    /// `bytes` more are in the heap. SeqCst pairs with the load in [`Self::reached`], and with the waiter's flag:
    /// whoever counts up looks at the flag afterwards.
    pub fn add(&self, lane: usize, bytes: u64) {
        self.0[lane].fetch_add(bytes, Ordering::SeqCst);
    }

    pub fn reached(&self, targets: &[u64; LANES_MAX]) -> bool {
        self.0.iter().zip(targets).all(|(have, want)| have.load(Ordering::SeqCst) >= *want)
    }
}

/// Deals a large heap range out to lanes.
#[derive(Default)]
pub struct Striper {
    sent: [u64; LANES_MAX],
    next: usize,
}

impl Striper {
    /// Cuts `range` into chunks for `lanes` lanes (at least 1) and counts them. After this, [`Self::sent`] is what
    /// the receiver has to wait for.
    pub fn deal(&mut self, range: HeapRange, lanes: usize, mut give: impl FnMut(usize, HeapRange)) {
        let lanes = lanes.clamp(1, LANES_MAX);
        let share = range.bytes.div_ceil(lanes as u64).next_multiple_of(64 << 10);
        let chunk = share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let mut at = 0;
        while at < range.bytes {
            let bytes = chunk.min(range.bytes - at);
            let lane = self.next % lanes;
            self.next = self.next.wrapping_add(1);
            self.sent[lane] += bytes;
            give(lane, HeapRange { offset: range.offset + at, bytes });
            at += bytes;
        }
    }

    pub fn sent(&self) -> &[u64; LANES_MAX] {
        &self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_range_once_and_the_counts_add_up() {
        for bytes in [1, 4096, 256 << 10, (256 << 10) + 1, 5 << 20, (64 << 20) + 12345] {
            for lanes in 1..=LANES_MAX {
                let counts = LaneCounts::default();
                let mut striper = Striper::default();
                let mut at = 1000;
                striper.deal(HeapRange { offset: 1000, bytes }, lanes, |lane, r| {
                    assert_eq!(r.offset, at);
                    assert!(lane < lanes && r.bytes <= CHUNK_BYTES_MAX);
                    at += r.bytes;
                    counts.add(lane, r.bytes);
                });
                assert_eq!(at, 1000 + bytes);
                assert!(counts.reached(striper.sent()));
            }
        }
    }

    #[test]
    fn bytes_of_a_later_transfer_do_not_open_the_barrier_of_an_earlier_one() {
        let counts = LaneCounts::default();
        let mut striper = Striper::default();
        striper.deal(HeapRange { offset: 0, bytes: 1 << 20 }, 2, |_, _| {});
        let first = *striper.sent();
        counts.add(1, 100 << 20);
        assert!(!counts.reached(&first));
    }
}
