//! How much there is of what, and how long a device tries.

use crate::stream::TAKEN_BYTES_MIN;

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
/// Receives that are posted: for those; for credits, of which each gives at least one batch back; and for room in a
/// ring, which is told so many bytes at a time.
pub const RECEIVES: u32 = 2 * BATCHES_MAX + PEER_RING_BYTES_MAX as u32 / TAKEN_BYTES_MIN as u32 + 16;
/// Work requests of a batch: records go around the ring's end, and then where they end is written.
pub const BATCH_WORKS_MAX: u32 = 3;
/// Work requests in a device's queue: batches, and there are credits and beats.
pub const WORKS_MAX: u32 = BATCH_WORKS_MAX * BATCHES_MAX + 64;
/// A device sends again what is not acknowledged for so long: 4.096 us times two to the power of this, 0.27 s. It may
/// take up to four times as long, says the standard.
pub const ACKNOWLEDGED_WITHIN: u8 = 16;
/// How often it does. Then the queue pair is in error. Seven is the most that there is, and Soft-RoCE takes seven for
/// without end.
pub const RETRIES: u8 = 6;
/// So a peer is taken for lost after 2 s to this.
pub const ACKNOWLEDGED_SECONDS_MAX: u64 = 8;
