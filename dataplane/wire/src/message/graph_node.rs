//! Parameters of nodes: given with a new one, changed, and asked for.

use crate::generated::ops;
use crate::message::address::ClaimedDevice;
use crate::message::copy::Copy3D;
use crate::message::declare::{messages, variants};
use crate::message::field::{
    Bytes, CONTEXT, CallbackId, EVENT, Existing, FUNCTION, GRAPH, GRAPH_NODE, Halves, List, New, Size,
};
use crate::message::graph::NodePlace;
use crate::message::image::{Layout, Nothing};
use crate::message::virtual_memory::{Access, Location};

/// Operations of one node.
pub const BATCH_OPS_MAX: usize = 1024;
/// Bodies of one conditional node.
pub const BODIES_MAX: usize = 4096;
/// Places that one allocation gives access from.
pub const NODE_ACCESS_MAX: usize = 256;
/// Of a `CUDA_MEMCPY3D`.
pub const COPY_WORDS: usize = 25;
/// Of a `CUstreamBatchMemOpParams`.
pub const MEM_OP_WORDS: usize = 6;
/// Of a `CUlaunchAttributeValue`.
pub const ATTRIBUTE_WORDS: usize = 8;

messages! {
    part KernelNode<'a> {
        /// Of this and the next one is 0.
        function: Existing<FUNCTION>,
        kernel: Existing<FUNCTION>,
        context: Existing<CONTEXT>,
        geometry: Geometry,
        /// Packed, as the function takes them.
        parameters: Bytes<'a>,
    }

    part Geometry {
        /// Blocks of the grid and threads of a block, by x, y and z.
        grid: [u32; 3],
        block: [u32; 3],
        /// Dynamic shared memory.
        shared_bytes: u32,
    }

    part MemcpyNode {
        flags: i32,
        context: Existing<CONTEXT>,
        copy: Copy3D,
        /// Where ranges of the heap begin that were set aside for it: one a side at most.
        set_aside: List<u64, 2>,
    }

    part MemsetNode {
        to: ClaimedDevice,
        /// In bytes.
        pitch: Size,
        value: u32,
        element_bytes: u32,
        /// In elements.
        width: Size,
        rows: Size,
        context: Existing<CONTEXT>,
    }

    part ChildNode {
        graph: Existing<GRAPH>,
        /// `CUgraphChildGraphNodeOwnership`.
        ownership: u32,
    }

    part AllocationNode {
        pool: PoolProperties,
        bytes: Size,
        access: List<Access, NODE_ACCESS_MAX>,
    }

    /// A `CUmemPoolProps`, without what only Windows uses.
    part PoolProperties {
        allocation_type: u32,
        handle_types: u32,
        location: Location,
        bytes_max: Size,
        usage: u16,
    }

    part BatchNode {
        context: Existing<CONTEXT>,
        flags: u32,
        operations: List<MemOp, BATCH_OPS_MAX>,
    }

    /// A `CUstreamBatchMemOpParams`.
    part MemOp {
        /// Which one, and the flags of those that have no address.
        operation_flags: Halves,
        address: ClaimedDevice,
        /// A narrow one in the lower half.
        value: u64,
        flags: u32,
    }

    part ConditionalNode {
        handle: u64,
        /// `CUgraphConditionalNodeType`.
        kind: u32,
        context: Existing<CONTEXT>,
        /// One for each body.
        bodies: List<New<GRAPH>, BODIES_MAX>,
    }

    command GraphAddKernelNode<'a>(ops::CU_GRAPH_ADD_KERNEL_NODE_V2) {
        place: NodePlace,
        params: KernelNode<'a>,
    }

    command GraphAddMemcpyNode(ops::CU_GRAPH_ADD_MEMCPY_NODE) {
        place: NodePlace,
        params: MemcpyNode,
    }

    command GraphAddHostNode(ops::CU_GRAPH_ADD_HOST_NODE) {
        place: NodePlace,
        params: CallbackId,
    }

    command GraphAddBatchMemOpNode(ops::CU_GRAPH_ADD_BATCH_MEM_OP_NODE) {
        place: NodePlace,
        params: BatchNode,
    }

    command GraphAddMemAllocNode(ops::CU_GRAPH_ADD_MEM_ALLOC_NODE) {
        place: NodePlace,
        params: AllocationNode,
    }

    reply GraphAddMemAllocNodeReply(ops::CU_GRAPH_ADD_MEM_ALLOC_NODE) {
        address: u64,
    }

    command GraphAddNode<'a>(ops::CU_GRAPH_ADD_NODE_V2) {
        place: NodePlace,
        params: NodeParams<'a>,
    }

    reply GraphAddNodeReply(ops::CU_GRAPH_ADD_NODE_V2) {
        /// Of an allocation.
        address: Option<u64>,
    }

    command GraphKernelNodeSetParams<'a>(ops::CU_GRAPH_KERNEL_NODE_SET_PARAMS_V2) {
        node: Existing<GRAPH_NODE>,
        params: KernelNode<'a>,
    }

    command GraphMemcpyNodeSetParams(ops::CU_GRAPH_MEMCPY_NODE_SET_PARAMS) {
        node: Existing<GRAPH_NODE>,
        params: MemcpyNode,
    }

    command GraphHostNodeSetParams(ops::CU_GRAPH_HOST_NODE_SET_PARAMS) {
        node: Existing<GRAPH_NODE>,
        params: CallbackId,
    }

    command GraphBatchMemOpNodeSetParams(ops::CU_GRAPH_BATCH_MEM_OP_NODE_SET_PARAMS) {
        node: Existing<GRAPH_NODE>,
        params: BatchNode,
    }

    command GraphNodeSetParams<'a>(ops::CU_GRAPH_NODE_SET_PARAMS) {
        node: Existing<GRAPH_NODE>,
        params: NodeParams<'a>,
    }

    command GraphKernelNodeGetParams(ops::CU_GRAPH_KERNEL_NODE_GET_PARAMS_V2) {
        node: Existing<GRAPH_NODE>,
        /// The function's, if it has none.
        name: New<FUNCTION>,
    }

    reply GraphKernelNodeGetParamsReply<'a>(ops::CU_GRAPH_KERNEL_NODE_GET_PARAMS_V2) {
        params: KernelNode<'a>,
        layout: Layout,
    }

    command GraphMemcpyNodeGetParams(ops::CU_GRAPH_MEMCPY_NODE_GET_PARAMS) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphMemcpyNodeGetParamsReply(ops::CU_GRAPH_MEMCPY_NODE_GET_PARAMS) {
        /// A `CUDA_MEMCPY3D` as it lies in memory, with the client's names for arrays.
        copy: [u64; COPY_WORDS],
    }

    command GraphHostNodeGetParams(ops::CU_GRAPH_HOST_NODE_GET_PARAMS) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphHostNodeGetParamsReply(ops::CU_GRAPH_HOST_NODE_GET_PARAMS) {
        /// 0 if there is none.
        callback: CallbackId,
    }

    command GraphEventRecordNodeGetEvent(ops::CU_GRAPH_EVENT_RECORD_NODE_GET_EVENT) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphEventRecordNodeGetEventReply(ops::CU_GRAPH_EVENT_RECORD_NODE_GET_EVENT) {
        event: Existing<EVENT>,
    }

    command GraphEventWaitNodeGetEvent(ops::CU_GRAPH_EVENT_WAIT_NODE_GET_EVENT) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphEventWaitNodeGetEventReply(ops::CU_GRAPH_EVENT_WAIT_NODE_GET_EVENT) {
        event: Existing<EVENT>,
    }

    command GraphBatchMemOpNodeGetParams(ops::CU_GRAPH_BATCH_MEM_OP_NODE_GET_PARAMS) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphBatchMemOpNodeGetParamsReply(ops::CU_GRAPH_BATCH_MEM_OP_NODE_GET_PARAMS) {
        context: Existing<CONTEXT>,
        flags: u32,
        /// Each a `CUstreamBatchMemOpParams` as it lies in memory.
        operations: List<[u64; MEM_OP_WORDS], BATCH_OPS_MAX>,
    }

    command GraphMemAllocNodeGetParams(ops::CU_GRAPH_MEM_ALLOC_NODE_GET_PARAMS) {
        node: Existing<GRAPH_NODE>,
    }

    reply GraphMemAllocNodeGetParamsReply(ops::CU_GRAPH_MEM_ALLOC_NODE_GET_PARAMS) {
        params: AllocationNode,
        address: u64,
    }

    command GraphKernelNodeGetAttribute(ops::CU_GRAPH_KERNEL_NODE_GET_ATTRIBUTE) {
        node: Existing<GRAPH_NODE>,
        attribute: u32,
    }

    reply GraphKernelNodeGetAttributeReply(ops::CU_GRAPH_KERNEL_NODE_GET_ATTRIBUTE) {
        /// A `CUlaunchAttributeValue`. Events in it are handles.
        value: [u64; ATTRIBUTE_WORDS],
    }

    command GraphKernelNodeSetAttribute(ops::CU_GRAPH_KERNEL_NODE_SET_ATTRIBUTE) {
        node: Existing<GRAPH_NODE>,
        attribute: u32,
        /// As of the reply above. Addresses in it only the device follows.
        value: [u64; ATTRIBUTE_WORDS],
    }
}

variants! {
    /// By `CUgraphNodeType`.
    NodeParams<'a> {
        Kernel(KernelNode<'a>) = 0,
        Memcpy(MemcpyNode) = 1,
        Memset(MemsetNode) = 2,
        Host(CallbackId) = 3,
        Child(ChildNode) = 4,
        Empty(Nothing) = 5,
        WaitEvent(Existing<EVENT>) = 6,
        EventRecord(Existing<EVENT>) = 7,
        Allocation(AllocationNode) = 10,
        Free(ClaimedDevice) = 11,
        Batch(BatchNode) = 12,
        Conditional(ConditionalNode) = 13,
    }
}
