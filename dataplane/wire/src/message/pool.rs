//! Stream-ordered allocation and its pools.

use crate::generated::ops;
use crate::message::address::ClaimedDevice;
use crate::message::declare::messages;
use crate::message::field::{Existing, MEM_POOL, New, Ordinal, STREAM, Size};

messages! {
    command MemAllocAsync(ops::CU_MEM_ALLOC_ASYNC) {
        bytes: Size,
        stream: Existing<STREAM>,
    }

    reply MemAllocAsyncReply(ops::CU_MEM_ALLOC_ASYNC) {
        address: u64,
    }

    command MemAllocFromPoolAsync(ops::CU_MEM_ALLOC_FROM_POOL_ASYNC) {
        bytes: Size,
        stream: Existing<STREAM>,
        pool: Existing<MEM_POOL>,
    }

    reply MemAllocFromPoolAsyncReply(ops::CU_MEM_ALLOC_FROM_POOL_ASYNC) {
        address: u64,
    }

    command MemFreeAsync(ops::CU_MEM_FREE_ASYNC) {
        address: ClaimedDevice,
        stream: Existing<STREAM>,
    }

    command MemPoolSetAttribute(ops::CU_MEM_POOL_SET_ATTRIBUTE) {
        pool: Existing<MEM_POOL>,
        attribute: u32,
        /// A narrow one in the lower half.
        value: u64,
    }

    command MemPoolGetAttribute(ops::CU_MEM_POOL_GET_ATTRIBUTE) {
        pool: Existing<MEM_POOL>,
        attribute: u32,
    }

    reply MemPoolGetAttributeReply(ops::CU_MEM_POOL_GET_ATTRIBUTE) {
        value: u64,
    }

    command MemPoolCreate(ops::CU_MEM_POOL_CREATE) {
        pool: New<MEM_POOL>,
        allocation_type: u32,
        handle_types: u32,
        device: Ordinal,
        bytes_max: Size,
        usage: u16,
    }

    command MemPoolDestroy(ops::CU_MEM_POOL_DESTROY) {
        pool: Existing<MEM_POOL>,
    }

    /// Gives the device's default pool this name.
    command DeviceGetDefaultMemPool(ops::CU_DEVICE_GET_DEFAULT_MEM_POOL) {
        pool: New<MEM_POOL>,
        device: Ordinal,
    }

    command DeviceSetMemPool(ops::CU_DEVICE_SET_MEM_POOL) {
        device: Ordinal,
        pool: Existing<MEM_POOL>,
    }
}
