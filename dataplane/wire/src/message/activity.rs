//! What a profiler in the application asks of the worker's. Records themselves: [`crate::activity`].

use crate::message::declare::{messages, variants};
use crate::message::field::{Bytes, Existing, GRAPH, GRAPH_EXEC, GRAPH_NODE, Rest};
use crate::record::op;

messages! {
    command ActivityEnable(op::ACTIVITY_ENABLE) {
        /// The sum of [`crate::activity`]'s kinds that are recorded from now on, 0 for none.
        kinds: u64,
    }

    reply ActivityEnableReply(op::ACTIVITY_ENABLE) {
        /// The time of activities (ns).
        clock: u64,
    }

    /// Instead, where the node has no profiler that can.
    reply ActivityRefused<'a>(op::ACTIVITY_ENABLE) {
        why: Bytes<'a>,
    }

    command ActivityTake(op::ACTIVITY_TAKE) {
        /// The profiler hands over what it has first.
        flush: bool,
    }

    reply ActivityTakeReply<'a>(op::ACTIVITY_TAKE) {
        /// There is more to take.
        more: bool,
        /// One [`crate::activity::Activity`] behind the other.
        records: Rest<'a>,
    }

    command ActivityClock(op::ACTIVITY_CLOCK) {}

    reply ActivityClockReply(op::ACTIVITY_CLOCK) {
        clock: u64,
    }

    /// What this thread sends from now on belongs to the application's call with this number.
    command ActivityCorrelation(op::ACTIVITY_CORRELATION) {
        id: u32,
    }

    /// The number that records have for it.
    command ActivityGraphId(op::ACTIVITY_GRAPH_ID) {
        object: GraphObject,
    }

    reply ActivityGraphIdReply(op::ACTIVITY_GRAPH_ID) {
        id: u64,
    }
}

variants! {
    /// What records name of a graph.
    GraphObject {
        Graph(Existing<GRAPH>) = 0,
        Exec(Existing<GRAPH_EXEC>) = 1,
        Node(Existing<GRAPH_NODE>) = 2,
    }
}
