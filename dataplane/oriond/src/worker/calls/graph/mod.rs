//! Graphs, their nodes, and what is made of them.

pub mod dependencies;
mod exec;
pub mod keep;
pub mod names;
mod nesting;
mod node_params;
mod nodes;
mod params;

pub use exec::{
    cuGraphExecBatchMemOpNodeSetParams, cuGraphExecChildGraphNodeSetParams, cuGraphExecDestroy,
    cuGraphExecHostNodeSetParams, cuGraphExecKernelNodeSetParams_v2, cuGraphExecMemcpyNodeSetParams,
    cuGraphExecNodeSetParams, cuGraphExecUpdate_v2, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
    cuGraphLaunch, cuGraphNodeSetEnabled,
};
pub use node_params::{
    cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeSetParams, cuGraphEventRecordNodeGetEvent,
    cuGraphEventWaitNodeGetEvent, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphKernelNodeGetAttribute,
    cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetParams_v2,
    cuGraphMemAllocNodeGetParams, cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, cuGraphNodeSetParams,
};
pub use nodes::{
    cuGraphAddBatchMemOpNode, cuGraphAddHostNode, cuGraphAddKernelNode_v2, cuGraphAddMemAllocNode,
    cuGraphAddMemcpyNode, cuGraphAddNode_v2, cuGraphChildGraphNodeGetGraph, cuGraphDebugDotPrint, cuGraphDestroy,
    cuGraphDestroyNode, cuGraphGetEdges, cuGraphGetEdges_v2, cuGraphGetNodes, cuGraphGetRootNodes,
    cuGraphNodeFindInClone, cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependentNodes,
    cuGraphNodeGetDependentNodes_v2,
};
