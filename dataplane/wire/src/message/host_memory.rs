//! Pinned and registered host memory: ranges of the heap, and of files that several programs map.

use crate::generated::ops;
use crate::message::address::{ClaimedHost, ClaimedPlace, ClaimedRange};
use crate::message::declare::{choices, messages};

messages! {
    command MemHostAlloc(ops::CU_MEM_HOST_ALLOC) {
        request: Pinned,
        range: ClaimedRange,
    }

    command MemFreeHost(ops::CU_MEM_FREE_HOST) {
        range: ClaimedRange,
        /// It is no part of a block that is registered as a whole.
        registered_alone: bool,
    }

    command MemHostRegister(ops::CU_MEM_HOST_REGISTER_V2) {
        pages: PagesOf,
        /// Of the heap, or of the file.
        range: ClaimedRange,
        /// Where it is mapped, too: at the application's own address.
        address: ClaimedPlace,
    }

    command MemHostUnregister(ops::CU_MEM_HOST_UNREGISTER) {
        address: ClaimedHost,
    }
}

choices! {
    /// What memory is registered.
    PagesOf {
        Heap = 0,
        /// Of the file whose descriptor was the last that the client has handed over.
        File = 1,
    }

    /// What is to be done with a range of pinned memory.
    Pinned {
        /// Register it with the driver.
        Register = 0,
        /// Kernels may touch it: tell a client with pages of its own what they change.
        Mapped = 1,
        /// Answer when the copies into it that are under way are done, and their bytes have been announced.
        Copied = 2,
        /// Whatever the range: answer when every context is idle and what was written has been announced. Before
        /// something is freed the driver waits for that; beside a capture that forbids it it refuses, and ends that.
        Idle = 3,
        /// Whatever the range: refuse as `Idle` does, and wait for nothing.
        Allowed = 4,
    }
}
