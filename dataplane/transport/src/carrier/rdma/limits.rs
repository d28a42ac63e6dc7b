//! How much there is of what, and how long a device tries.

use crate::stream::{SHOWN_MAX, TAKEN_BYTES_MIN};

/// Of an inbox, and of an outbox. Both are locked in memory for as long as the session runs, at both ends.
pub const RING_BYTES: usize = 1 << 20;
/// Behind the outbox: records on their way into the other side's ring, and where they end.
pub const STAGE_BYTES: usize = 256 << 10;
/// Records of one write into the other side's ring. A larger one goes by the inbox.
pub const PLACED_BYTES_MAX: usize = 64 << 10;
/// Of the ring that the other side has: its command ring, or its reply ring.
pub const PEER_RING_BYTES_MAX: usize = 4 << 20;
/// Writes with a notice that may be under way; a peer has posted so many receives.
pub const BATCHES_MAX: u32 = 128;
/// Receives that are posted: for those; for credits, of which each gives at least one batch back; for room in a ring,
/// which is told so many bytes at a time; and for ranges that were read.
pub const RECEIVES: u32 = 2 * BATCHES_MAX + PEER_RING_BYTES_MAX as u32 / TAKEN_BYTES_MIN as u32 + SHOWN_MAX as u32 + 16;
/// Work requests of a batch: records go around the ring's end, and then where they end is written.
pub const BATCH_WORKS_MAX: u32 = 3;
/// Work requests in a device's queue: batches, and there are credits and beats.
pub const WORKS_MAX: u32 = BATCH_WORKS_MAX * BATCHES_MAX + 64;
/// Ranges of the other side's that a device reads at a time, where both devices can: enough that one is on its way
/// while the next one is registered.
pub const READS_MAX: u8 = 4;
/// What is read of the other side where this one's pages cannot be registered, and copied from there.
pub const LANDING_BYTES: usize = 128 << 10;
/// From this size on a range is shown. To pin and let go of small pages of a heap takes a system (6.18, of an EPYC) 7
/// us for 256 KiB, 24 for 1 MiB and 47 for 2, and to copy so much 8 to 11, 39 to 44 and 82 to 95. So only from here on
/// is there something to be won that a device may take for a registration of its own. How much that is a card would
/// say; none has been measured.
const SHOWN_FROM_BYTES: u64 = 1 << 20;
/// For tests, in debug builds: another size, so that they have many small ones.
#[cfg(debug_assertions)]
const SHOWN_FROM_VARIABLE: &str = "ORION_SOFT_SHOWN_FROM";

/// From which size on a range is shown to the other side's device.
pub fn shown_from_bytes() -> u64 {
    #[cfg(debug_assertions)]
    if let Ok(text) = crate::environment::var(SHOWN_FROM_VARIABLE) {
        let bytes: u64 = text.parse().expect("ORION_SOFT_SHOWN_FROM is a number of bytes");
        return bytes.max(crate::stream::SHOWN_BYTES_MIN);
    }
    SHOWN_FROM_BYTES
}

/// A device sends again what is not acknowledged for so long: 4.096 us times two to the power of this, 0.27 s. It may
/// take up to four times as long, says the standard.
pub const ACKNOWLEDGED_WITHIN: u8 = 16;
/// How often it does. Then the queue pair is in error. Seven is the most that there is, and Soft-RoCE takes seven for
/// without end.
pub const RETRIES: u8 = 6;
/// So a peer is taken for lost after 2 s to this.
pub const ACKNOWLEDGED_SECONDS_MAX: u64 = 8;
