//! Virtual memory management.

use crate::generated::ops;
use crate::message::address::{ClaimedDevice, ClaimedPlace};
use crate::message::declare::messages;
use crate::message::field::{Existing, List, MEM_ALLOCATION, New, Size};

/// Places that one call may give access from.
pub const ACCESS_MAX: usize = 64;

messages! {
    command MemAddressReserve(ops::CU_MEM_ADDRESS_RESERVE) {
        bytes: Size,
        alignment: Size,
        /// Where the application would have it.
        hint: ClaimedPlace,
        flags: u64,
    }

    reply MemAddressReserveReply(ops::CU_MEM_ADDRESS_RESERVE) {
        address: u64,
    }

    command MemAddressFree(ops::CU_MEM_ADDRESS_FREE) {
        address: ClaimedDevice,
        bytes: Size,
    }

    command MemCreate(ops::CU_MEM_CREATE) {
        allocation: New<MEM_ALLOCATION>,
        bytes: Size,
        properties: AllocationProperties,
    }

    command MemRelease(ops::CU_MEM_RELEASE) {
        allocation: Existing<MEM_ALLOCATION>,
    }

    /// The application has another reference to memory that it had given up while it was mapped.
    command MemRetainAllocationHandle(ops::CU_MEM_RETAIN_ALLOCATION_HANDLE) {
        allocation: New<MEM_ALLOCATION>,
        address: ClaimedDevice,
    }

    command MemMap(ops::CU_MEM_MAP) {
        address: ClaimedDevice,
        bytes: Size,
        offset: Size,
        allocation: Existing<MEM_ALLOCATION>,
    }

    command MemUnmap(ops::CU_MEM_UNMAP) {
        address: ClaimedDevice,
        bytes: Size,
    }

    command MemSetAccess(ops::CU_MEM_SET_ACCESS) {
        address: ClaimedDevice,
        bytes: Size,
        access: List<Access, ACCESS_MAX>,
    }

    command MemGetAllocationGranularity(ops::CU_MEM_GET_ALLOCATION_GRANULARITY) {
        option: u32,
        properties: AllocationProperties,
    }

    reply MemGetAllocationGranularityReply(ops::CU_MEM_GET_ALLOCATION_GRANULARITY) {
        bytes: u64,
    }

    /// A `CUmemAllocationProp`, without what only Windows uses.
    part AllocationProperties {
        allocation_type: u32,
        handle_types: u32,
        location: Location,
        compression: u8,
        gpu_direct_rdma: u8,
        usage: u16,
    }

    /// A `CUmemAccessDesc`.
    part Access {
        location: Location,
        flags: u32,
    }

    /// A `CUmemLocation`. A device has the application's number.
    part Location {
        kind: u32,
        id: i32,
    }
}
