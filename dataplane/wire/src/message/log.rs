//! What the driver logs about a call.

use crate::message::declare::messages;
use crate::message::field::Bytes;
use crate::record::op;

messages! {
    /// Ahead of a reply to the same thread. The result's place holds the level.
    event LogLine<'a>(op::LOG) {
        text: Bytes<'a>,
    }

    /// Answered with `CUDA_SUCCESS`, for the sake of what comes before the reply.
    command LogAsk(op::LOG) {}
}
