//! Streams.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{Existing, STREAM};

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

    reply StreamSynchronizeReply(ops::CU_STREAM_SYNCHRONIZE) {
        /// Sent before it, among them what kernels have printed.
        events: u64,
    }
}
