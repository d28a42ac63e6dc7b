//! Stream capture.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{Existing, GRAPH, GRAPH_NODE, List, New, STREAM};
use crate::message::graph::{Dependencies, Dependency, NODES_MAX};

messages! {
    command StreamBeginCapture(ops::CU_STREAM_BEGIN_CAPTURE_V2) {
        stream: Existing<STREAM>,
        mode: u32,
    }

    command StreamBeginCaptureToGraph(ops::CU_STREAM_BEGIN_CAPTURE_TO_GRAPH) {
        stream: Existing<STREAM>,
        graph: Existing<GRAPH>,
        on: Dependencies,
        mode: u32,
    }

    command StreamEndCapture(ops::CU_STREAM_END_CAPTURE) {
        stream: Existing<STREAM>,
        /// The graph's, if it has none.
        name: New<GRAPH>,
        /// Where ranges of the heap begin that were set aside for captured copies.
        set_aside: List<u64, NODES_MAX>,
    }

    /// Whatever the result is.
    reply StreamEndCaptureReply(ops::CU_STREAM_END_CAPTURE) {
        is_over: bool,
        graph: Existing<GRAPH>,
    }

    command StreamGetCaptureInfo(ops::CU_STREAM_GET_CAPTURE_INFO_V3) {
        stream: Existing<STREAM>,
        /// As of [`StreamEndCapture`].
        name: New<GRAPH>,
        /// For nodes that have no name yet.
        names: List<New<GRAPH_NODE>, NODES_MAX>,
    }

    reply StreamGetCaptureInfoReply(ops::CU_STREAM_GET_CAPTURE_INFO_V3) {
        /// `CUstreamCaptureStatus`.
        status: u32,
        /// Captures that are open in the session.
        open: u32,
        id: u64,
        graph: Existing<GRAPH>,
        /// A node is 0 where names were too few.
        dependencies: List<Dependency, NODES_MAX>,
    }

    /// The calling thread's mode from now on. The client answers the exchange itself.
    command ThreadExchangeStreamCaptureMode(ops::CU_THREAD_EXCHANGE_STREAM_CAPTURE_MODE) {
        mode: u32,
    }
}
