//! Streams.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{Existing, STREAM};
use crate::record::op;

/// A thread of a client that has been answered none of so many [`StreamMark`]s of a stream waits before it sends
/// another.
pub const MARKS_AHEAD: usize = 9;

messages! {
    command StreamDestroy(ops::CU_STREAM_DESTROY_V2) {
        stream: Existing<STREAM>,
    }

    command StreamQuery(ops::CU_STREAM_QUERY) {
        stream: Existing<STREAM>,
    }

    command StreamSynchronize(ops::CU_STREAM_SYNCHRONIZE) {
        stream: Existing<STREAM>,
    }

    /// Answered once the stream has done what it had been given by then, or may have. No wait for the stream: what the
    /// device has written need not be there.
    command StreamMark(op::STREAM_MARK) {
        stream: Existing<STREAM>,
    }

    reply StreamSynchronizeReply(ops::CU_STREAM_SYNCHRONIZE) {
        /// Sent before it, among them what kernels have printed.
        events: u64,
    }
}
