//! How much there is of what, and how long a device tries.

/// Of an inbox, and of an outbox. Both are locked in memory for as long as the session runs, at both ends.
pub const RING_BYTES: usize = 1 << 20;
/// Writes with a notice that may be under way; a peer has posted so many receives.
pub const BATCHES_MAX: u32 = 128;
/// Receives that are posted: for those, and for credits, of which at most nine can be under way, for each stands for a
/// quarter of the batches or of the bytes.
pub const RECEIVES: u32 = BATCHES_MAX + 32;
/// Work requests in a device's queue: a batch that goes around the ring's end is two, and there are credits and beats.
pub const WORKS_MAX: u32 = 2 * BATCHES_MAX + 32;
/// A device sends again what is not acknowledged for so long: 4.096 us times two to the power of this, 0.27 s. It may
/// take up to four times as long, says the standard.
pub const ACKNOWLEDGED_WITHIN: u8 = 16;
/// How often it does. Then the queue pair is in error. Seven is the most that there is, and Soft-RoCE takes seven for
/// without end.
pub const RETRIES: u8 = 6;
/// So a peer is taken for lost after 2 s to this.
pub const ACKNOWLEDGED_SECONDS_MAX: u64 = 8;
