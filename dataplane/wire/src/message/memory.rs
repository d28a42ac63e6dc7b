//! Device memory.

use crate::generated::ops;
use crate::message::address::ClaimedDevice;
use crate::message::declare::messages;
use crate::message::field::Size;

messages! {
    command MemAlloc(ops::CU_MEM_ALLOC_V2) {
        bytes: Size,
    }

    reply MemAllocReply(ops::CU_MEM_ALLOC_V2) {
        address: u64,
    }

    command MemAllocPitch(ops::CU_MEM_ALLOC_PITCH_V2) {
        /// Of a row, in bytes.
        width: Size,
        rows: Size,
        element_bytes: u32,
    }

    reply MemAllocPitchReply(ops::CU_MEM_ALLOC_PITCH_V2) {
        address: u64,
        pitch: u64,
    }

    command MemFree(ops::CU_MEM_FREE_V2) {
        address: ClaimedDevice,
    }

    command MemGetInfo(ops::CU_MEM_GET_INFO_V2) {}

    reply MemGetInfoReply(ops::CU_MEM_GET_INFO_V2) {
        free: u64,
        total: u64,
    }
}
