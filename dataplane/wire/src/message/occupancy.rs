//! The occupancy calculator.

use crate::generated::ops;
use crate::message::declare::{messages, variants};
use crate::message::field::{Existing, FUNCTION, Rest, Size};

messages! {
    command Occupancy<'a>(ops::CU_OCCUPANCY_MAX_ACTIVE_BLOCKS_PER_MULTIPROCESSOR) {
        function: Existing<FUNCTION>,
        question: Question<'a>,
    }

    reply OccupancyReply(ops::CU_OCCUPANCY_MAX_ACTIVE_BLOCKS_PER_MULTIPROCESSOR) {
        answer: u64,
    }

    part Blocks {
        threads: i32,
        shared_bytes: Size,
        flags: u32,
    }

    part SharedMemory {
        blocks: i32,
        threads: i32,
    }

    /// A `CUlaunchConfig`.
    part Clusters<'a> {
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared_bytes: u32,
        /// `CUlaunchAttribute`s, whose events are handles.
        attributes: Rest<'a>,
    }
}

variants! {
    Question<'a> {
        /// How many blocks a multiprocessor runs at once.
        Blocks(Blocks) = 0,
        /// How much dynamic shared memory a block may have.
        SharedMemory(SharedMemory) = 1,
        /// How many clusters the device runs at once.
        Clusters(Clusters<'a>) = 2,
        /// How large a cluster may be.
        ClusterSize(Clusters<'a>) = 3,
    }
}
