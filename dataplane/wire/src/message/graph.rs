//! Graphs, their nodes, and what is made of them.

use crate::message::declare::messages;
use crate::message::field::{Existing, GRAPH_NODE, List};

/// Nodes, edges or names in one record.
pub const NODES_MAX: usize = 8192;

messages! {
    /// What a new node comes after.
    part Dependencies {
        /// Whether the edges' data counts.
        with_edges: bool,
        nodes: List<Dependency, NODES_MAX>,
    }

    part Dependency {
        node: Existing<GRAPH_NODE>,
        /// The bytes of a `CUgraphEdgeData`.
        edge: u64,
    }
}
