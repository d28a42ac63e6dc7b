//! Executable graphs: made, changed, launched.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{CallbackId, Existing, GRAPH, GRAPH_EXEC, GRAPH_NODE, List, New, STREAM};
use crate::message::graph::NODES_MAX;
use crate::message::graph_node::{BatchNode, ChildNode, KernelNode, MemcpyNode, NodeParams};
use crate::record::HeapRange;

/// Host memory that an executable graph touches. Of more than fit the first are told.
pub type HostCopies = List<HostCopy, NODES_MAX>;

messages! {
    part HostCopy {
        range: HeapRange,
        /// The graph writes it; otherwise it reads it.
        to_host: bool,
        /// It is of rows, between which lies memory that the graph leaves alone.
        has_gaps: bool,
    }

    command GraphInstantiateWithFlags(ops::CU_GRAPH_INSTANTIATE_WITH_FLAGS) {
        exec: New<GRAPH_EXEC>,
        graph: Existing<GRAPH>,
        flags: u64,
        /// The client has set memory aside for copies at some time.
        some_set_aside: bool,
    }

    reply GraphInstantiateWithFlagsReply(ops::CU_GRAPH_INSTANTIATE_WITH_FLAGS) {
        copies: HostCopies,
        /// Its nodes allocate, so that a launch may find no memory, which it has to answer.
        allocates: bool,
    }

    command GraphInstantiateWithParams(ops::CU_GRAPH_INSTANTIATE_WITH_PARAMS) {
        exec: New<GRAPH_EXEC>,
        graph: Existing<GRAPH>,
        flags: u64,
        upload: Existing<STREAM>,
        some_set_aside: bool,
        /// The node's that is wrong, if it has none.
        name: New<GRAPH_NODE>,
    }

    /// Whatever the result is.
    reply GraphInstantiateWithParamsReply(ops::CU_GRAPH_INSTANTIATE_WITH_PARAMS) {
        /// `CUgraphInstantiateResult`.
        result: u32,
        error_node: Existing<GRAPH_NODE>,
        copies: HostCopies,
        /// Its nodes allocate, so that a launch may find no memory, which it has to answer.
        allocates: bool,
    }

    command GraphExecUpdate(ops::CU_GRAPH_EXEC_UPDATE_V2) {
        exec: Existing<GRAPH_EXEC>,
        graph: Existing<GRAPH>,
        some_set_aside: bool,
        /// Of the nodes in the reply, if they have none.
        names: [New<GRAPH_NODE>; 2],
    }

    /// Whatever the result is.
    reply GraphExecUpdateReply(ops::CU_GRAPH_EXEC_UPDATE_V2) {
        /// `CUgraphExecUpdateResult`.
        result: u32,
        error_node: Existing<GRAPH_NODE>,
        /// Where the edge begins that is wrong.
        error_from_node: Existing<GRAPH_NODE>,
        copies: HostCopies,
        /// Its nodes allocate, so that a launch may find no memory, which it has to answer.
        allocates: bool,
    }

    command GraphExecDestroy(ops::CU_GRAPH_EXEC_DESTROY) {
        exec: Existing<GRAPH_EXEC>,
    }

    command GraphLaunch(ops::CU_GRAPH_LAUNCH) {
        exec: Existing<GRAPH_EXEC>,
        stream: Existing<STREAM>,
        /// The reply comes only when the graph has run.
        is_awaited: bool,
    }

    command GraphExecKernelNodeSetParams<'a>(ops::CU_GRAPH_EXEC_KERNEL_NODE_SET_PARAMS_V2) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        params: KernelNode<'a>,
    }

    command GraphExecMemcpyNodeSetParams(ops::CU_GRAPH_EXEC_MEMCPY_NODE_SET_PARAMS) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        params: MemcpyNode,
    }

    reply GraphExecMemcpyNodeSetParamsReply(ops::CU_GRAPH_EXEC_MEMCPY_NODE_SET_PARAMS) {
        /// Of the whole graph, from now on.
        copies: HostCopies,
    }

    command GraphNodeSetEnabled(ops::CU_GRAPH_NODE_SET_ENABLED) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        is_enabled: bool,
    }

    reply GraphNodeSetEnabledReply(ops::CU_GRAPH_NODE_SET_ENABLED) {
        /// Of the whole graph, from now on.
        copies: HostCopies,
    }

    command GraphExecHostNodeSetParams(ops::CU_GRAPH_EXEC_HOST_NODE_SET_PARAMS) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        params: CallbackId,
    }

    command GraphExecChildGraphNodeSetParams(ops::CU_GRAPH_EXEC_CHILD_GRAPH_NODE_SET_PARAMS) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        params: ChildNode,
    }

    reply GraphExecChildGraphNodeSetParamsReply(ops::CU_GRAPH_EXEC_CHILD_GRAPH_NODE_SET_PARAMS) {
        /// As above.
        copies: HostCopies,
    }

    command GraphExecBatchMemOpNodeSetParams(ops::CU_GRAPH_EXEC_BATCH_MEM_OP_NODE_SET_PARAMS) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        params: BatchNode,
    }

    command GraphExecNodeSetParams<'a>(ops::CU_GRAPH_EXEC_NODE_SET_PARAMS) {
        exec: Existing<GRAPH_EXEC>,
        node: Existing<GRAPH_NODE>,
        params: NodeParams<'a>,
    }

    reply GraphExecNodeSetParamsReply(ops::CU_GRAPH_EXEC_NODE_SET_PARAMS) {
        /// As above. None where they cannot have changed.
        copies: Option<HostCopies>,
    }
}
