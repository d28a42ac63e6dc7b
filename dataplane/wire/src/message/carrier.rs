//! What shim, carrier and worker say to each other of a session itself: its heap, its devices, its output.

use crate::message::address::ClaimedRange;
use crate::message::declare::messages;
use crate::message::field::{Bytes, List, Ordinal, Rest};
use crate::record::op;

/// Devices that a session may be granted.
pub const DEVICES_MAX: usize = 32;
/// In a list of devices: the application has one there, of another server.
pub const OF_ANOTHER_SERVER: Ordinal = Ordinal(-1);
/// Ranges that one event gives back.
pub const RELEASED_MAX: usize = 1024;

messages! {
    /// Answered with `CUDA_SUCCESS`, for round trips.
    command Ping<'a>(op::PING) {
        /// As much as is to be carried.
        padding: Rest<'a>,
    }

    /// The range has to be at the other side before the next record. In the reply ring, too.
    command HeapWritten(op::HEAP_WRITTEN) {
        range: ClaimedRange,
    }

    /// The worker has read these, which the client lent to posted copies.
    event HeapReleased(op::HEAP_RELEASED) {
        ranges: List<ClaimedRange, RELEASED_MAX>,
    }

    /// A command that was to bring bytes to host memory has done so, or failed. Argument 1 is the command's number.
    event HeapSettled(op::HEAP_SETTLED) {}

    /// Bytes of host memory that one side has changed and the other has a copy of. In the reply ring, too, where the
    /// client's carrier keeps it.
    command HeapPatch<'a>(op::HEAP_PATCH) {
        head: PatchHead,
        /// Of each a [`PatchRun`], a mask of changed bytes for each of its words, padded to a word, and the words.
        runs: Rest<'a>,
    }

    part PatchHead {
        /// Which of this side's.
        number: u64,
        /// The last one of the other side's that has been applied.
        acknowledged: u64,
        /// The device had nothing to do when so many commands had been executed.
        idle_after: u64,
        live: bool,
    }

    part PatchRun {
        offset: u64,
        words: u64,
    }

    /// Printed by the driver or by kernels. Argument 1 is the descriptor.
    event Output<'a>(op::OUTPUT) {
        text: Bytes<'a>,
    }

    /// The devices that the application sees, in its order; [`OF_ANOTHER_SERVER`] in the place of one that is.
    command VisibleDevices(op::VISIBLE_DEVICES) {
        devices: List<Ordinal, DEVICES_MAX>,
    }
}
