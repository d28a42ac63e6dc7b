//! Green contexts: contexts on part of a device's multiprocessors.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{CONTEXT, DEV_RESOURCE_DESC, Exactly, Existing, GREEN_CONTEXT, List, New, Ordinal};

/// Of a `CUdevResource`.
pub const RESOURCE_BYTES: usize = 144;
/// Resources of a descriptor.
pub const RESOURCES_MAX: usize = 64;
/// Groups of one split: more than a device has multiprocessors.
pub const GROUPS_MAX: usize = 1024;

/// The client's copy of a resource, with a number by which the worker knows what it gave out.
pub type ResourceCopy = Exactly<RESOURCE_BYTES>;

messages! {
    command DevSmResourceSplitByCount(ops::CU_DEV_SM_RESOURCE_SPLIT_BY_COUNT) {
        wants_groups: bool,
        /// For so many groups.
        room: u32,
        wants_rest: bool,
        input: ResourceCopy,
        flags: u32,
        least: u32,
    }

    reply DevSmResourceSplitByCountReply(ops::CU_DEV_SM_RESOURCE_SPLIT_BY_COUNT) {
        /// That there are, whether they are wanted or not.
        count: u32,
        rest: ResourceCopy,
        groups: List<ResourceCopy, GROUPS_MAX>,
    }

    command DevResourceGenerateDesc(ops::CU_DEV_RESOURCE_GENERATE_DESC) {
        descriptor: New<DEV_RESOURCE_DESC>,
        resources: List<ResourceCopy, RESOURCES_MAX>,
    }

    command GreenCtxCreate(ops::CU_GREEN_CTX_CREATE) {
        green: New<GREEN_CONTEXT>,
        /// The `CUcontext` that it converts to.
        context: New<CONTEXT>,
        descriptor: Existing<DEV_RESOURCE_DESC>,
        device: Ordinal,
        flags: u32,
    }

    command GreenCtxDestroy(ops::CU_GREEN_CTX_DESTROY) {
        green: Existing<GREEN_CONTEXT>,
    }
}
