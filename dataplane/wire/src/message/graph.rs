//! Graphs and their nodes: where nodes are put, lists of them, and which names end.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{Bytes, Existing, GRAPH, GRAPH_NODE, List, New};

/// Nodes, edges or names in one record.
pub const NODES_MAX: usize = 8192;
/// Names that end in one record. More stay reserved in the client, which costs it nothing but numbers.
pub const GONE_MAX: usize = 4 * NODES_MAX - 64;

/// Of graphs and of nodes.
pub type Gone = List<u64, GONE_MAX>;

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

    /// Where a new node goes.
    part NodePlace {
        graph: Existing<GRAPH>,
        node: New<GRAPH_NODE>,
        on: Dependencies,
    }

    command GraphDestroy(ops::CU_GRAPH_DESTROY) {
        graph: Existing<GRAPH>,
    }

    reply GraphDestroyReply(ops::CU_GRAPH_DESTROY) {
        gone: Gone,
    }

    command GraphDestroyNode(ops::CU_GRAPH_DESTROY_NODE) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphDestroyNodeReply(ops::CU_GRAPH_DESTROY_NODE) {
        gone: Gone,
    }

    command GraphNodeFindInClone(ops::CU_GRAPH_NODE_FIND_IN_CLONE) {
        node: Existing<GRAPH_NODE>,
        clone: Existing<GRAPH>,
        /// The found node's, if it has none.
        name: New<GRAPH_NODE>,
    }

    reply GraphNodeFindInCloneReply(ops::CU_GRAPH_NODE_FIND_IN_CLONE) {
        node: Existing<GRAPH_NODE>,
    }

    command GraphChildGraphNodeGetGraph(ops::CU_GRAPH_CHILD_GRAPH_NODE_GET_GRAPH) {
        node: Existing<GRAPH_NODE>,
        /// The graph's, if it has none.
        name: New<GRAPH>,
    }

    reply GraphChildGraphNodeGetGraphReply(ops::CU_GRAPH_CHILD_GRAPH_NODE_GET_GRAPH) {
        graph: Existing<GRAPH>,
    }

    /// Which part of a list is asked for.
    part Page {
        first: u64,
        wanted: u64,
        /// For nodes that have no name yet.
        names: List<New<GRAPH_NODE>, NODES_MAX>,
    }

    /// Part of a list of nodes.
    part NodePage {
        /// Of the whole list.
        total: u64,
        nodes: List<Dependency, NODES_MAX>,
    }

    /// Part of a list of edges.
    part EdgePage {
        total: u64,
        edges: List<Edge, NODES_MAX>,
    }

    part Edge {
        from: Existing<GRAPH_NODE>,
        to: Existing<GRAPH_NODE>,
        /// As of [`Dependency`].
        edge: u64,
    }

    command GraphGetNodes(ops::CU_GRAPH_GET_NODES) {
        graph: Existing<GRAPH>,
        page: Page,
    }

    reply GraphGetNodesReply(ops::CU_GRAPH_GET_NODES) {
        page: NodePage,
    }

    command GraphGetRootNodes(ops::CU_GRAPH_GET_ROOT_NODES) {
        graph: Existing<GRAPH>,
        page: Page,
    }

    reply GraphGetRootNodesReply(ops::CU_GRAPH_GET_ROOT_NODES) {
        page: NodePage,
    }

    command GraphNodeGetDependencies(ops::CU_GRAPH_NODE_GET_DEPENDENCIES) {
        node: Existing<GRAPH_NODE>,
        page: Page,
    }

    reply GraphNodeGetDependenciesReply(ops::CU_GRAPH_NODE_GET_DEPENDENCIES) {
        page: NodePage,
    }

    /// With the edges' data.
    command GraphNodeGetDependenciesAndEdges(ops::CU_GRAPH_NODE_GET_DEPENDENCIES_V2) {
        node: Existing<GRAPH_NODE>,
        page: Page,
    }

    reply GraphNodeGetDependenciesAndEdgesReply(ops::CU_GRAPH_NODE_GET_DEPENDENCIES_V2) {
        page: NodePage,
    }

    command GraphNodeGetDependentNodes(ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES) {
        node: Existing<GRAPH_NODE>,
        page: Page,
    }

    reply GraphNodeGetDependentNodesReply(ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES) {
        page: NodePage,
    }

    /// With the edges' data.
    command GraphNodeGetDependentNodesAndEdges(ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES_V2) {
        node: Existing<GRAPH_NODE>,
        page: Page,
    }

    reply GraphNodeGetDependentNodesAndEdgesReply(ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES_V2) {
        page: NodePage,
    }

    command GraphGetEdges(ops::CU_GRAPH_GET_EDGES) {
        graph: Existing<GRAPH>,
        page: Page,
    }

    reply GraphGetEdgesReply(ops::CU_GRAPH_GET_EDGES) {
        page: EdgePage,
    }

    /// With the edges' data.
    command GraphGetEdgesAndData(ops::CU_GRAPH_GET_EDGES_V2) {
        graph: Existing<GRAPH>,
        page: Page,
    }

    reply GraphGetEdgesAndDataReply(ops::CU_GRAPH_GET_EDGES_V2) {
        page: EdgePage,
    }

    /// The driver's text, in parts.
    command GraphDebugDotPrint(ops::CU_GRAPH_DEBUG_DOT_PRINT) {
        graph: Existing<GRAPH>,
        flags: u32,
        /// Above 0 it goes on with the last text.
        offset: u64,
    }

    reply GraphDebugDotPrintReply<'a>(ops::CU_GRAPH_DEBUG_DOT_PRINT) {
        /// Bytes of the whole text.
        total: u64,
        part: Bytes<'a>,
    }
}
