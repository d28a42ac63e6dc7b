//! Events.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{EVENT, Existing};

messages! {
    command EventQuery(ops::CU_EVENT_QUERY) {
        event: Existing<EVENT>,
    }

    command EventSynchronize(ops::CU_EVENT_SYNCHRONIZE) {
        event: Existing<EVENT>,
    }

    reply EventSynchronizeReply(ops::CU_EVENT_SYNCHRONIZE) {
        /// Sent before it, among them what kernels have printed.
        events: u64,
    }
}
