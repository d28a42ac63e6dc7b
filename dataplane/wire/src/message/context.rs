//! Contexts. A command's header names the one that is current.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{CONTEXT, Existing, New, Ordinal};

messages! {
    command DevicePrimaryCtxRetain(ops::CU_DEVICE_PRIMARY_CTX_RETAIN) {
        device: Ordinal,
    }

    command DevicePrimaryCtxReset(ops::CU_DEVICE_PRIMARY_CTX_RESET_V2) {
        device: Ordinal,
    }

    command DevicePrimaryCtxRelease(ops::CU_DEVICE_PRIMARY_CTX_RELEASE_V2) {
        device: Ordinal,
    }

    command CtxCreate(ops::CU_CTX_CREATE_V2) {
        context: New<CONTEXT>,
        flags: u32,
        device: Ordinal,
    }

    command CtxDestroy(ops::CU_CTX_DESTROY_V2) {
        context: Existing<CONTEXT>,
    }

    command CtxSetLimit(ops::CU_CTX_SET_LIMIT) {
        limit: u32,
        value: u64,
    }

    command CtxSynchronize(ops::CU_CTX_SYNCHRONIZE) {}

    reply CtxSynchronizeReply(ops::CU_CTX_SYNCHRONIZE) {
        /// Sent before it, among them what kernels have printed.
        events: u64,
    }
}
