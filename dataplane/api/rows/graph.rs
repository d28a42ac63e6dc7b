//! Graphs.

/// Not awaited: the shim chooses the handle.
#[by_hand(0x0700, client)]
#[since(10000)]
#[creates(phGraph)]
fn cuGraphCreate(phGraph: Out<CUgraph>, flags: u32);

#[call(0x0701)]
#[since(10000)]
#[creates(phGraphClone)]
fn cuGraphClone(phGraphClone: Out<CUgraph>, originalGraph: CUgraph);

/// The nodes' handles go with it.
#[by_hand(0x0702)]
#[since(10000)]
#[destroys(hGraph)]
fn cuGraphDestroy(hGraph: CUgraph);

/// The nodes' handles go with it.
#[by_hand(0x0703)]
#[since(10000)]
#[destroys(hNode)]
fn cuGraphDestroyNode(hNode: CUgraphNode);

#[client]
#[since(10000)]
#[creates(phGraphNode, hGraph)]
fn cuGraphAddKernelNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
);

#[client]
#[since(10000)]
fn cuGraphKernelNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1);

#[client]
#[since(10000)]
fn cuGraphKernelNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1);

#[client]
#[since(10010)]
fn cuGraphExecKernelNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
);

#[by_hand(0x0704)]
#[since(12000)]
#[creates(phGraphNode, hGraph)]
fn cuGraphAddKernelNode_v2(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
);

#[by_hand(0x0705)]
#[since(12000)]
fn cuGraphKernelNodeGetParams_v2(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS);

#[by_hand(0x0706)]
#[since(12000)]
fn cuGraphKernelNodeSetParams_v2(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS);

#[by_hand(0x0707)]
#[since(12000)]
fn cuGraphExecKernelNodeSetParams_v2(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
);

#[by_hand(0x0708)]
#[since(10000)]
#[creates(phGraphNode, hGraph)]
fn cuGraphAddMemcpyNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    copyParams: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
);

#[by_hand(0x0709)]
#[since(10000)]
fn cuGraphMemcpyNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D);

#[by_hand(0x070a)]
#[since(10000)]
fn cuGraphMemcpyNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D);

#[by_hand(0x070b)]
#[since(10020)]
fn cuGraphExecMemcpyNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    copyParams: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
);

#[call(0x070c)]
#[since(10000)]
#[creates(phGraphNode)]
fn cuGraphAddMemsetNode(
    phGraphNode: Out<CUgraphNode>,
    hGraph: CUgraph,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
    memsetParams: In<CUDA_MEMSET_NODE_PARAMS>,
    ctx: CUcontext,
);

#[call(0x070d)]
#[since(10000)]
fn cuGraphMemsetNodeGetParams(hNode: CUgraphNode, nodeParams: Out<CUDA_MEMSET_NODE_PARAMS>);

#[call(0x070e)]
#[since(10000)]
fn cuGraphMemsetNodeSetParams(hNode: CUgraphNode, nodeParams: In<CUDA_MEMSET_NODE_PARAMS>);

#[call(0x070f)]
#[since(10020)]
fn cuGraphExecMemsetNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    memsetParams: In<CUDA_MEMSET_NODE_PARAMS>,
    ctx: CUcontext,
);

/// The function runs in the application's process.
#[by_hand(0x0710)]
#[since(10000)]
#[creates(phGraphNode, hGraph)]
fn cuGraphAddHostNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_HOST_NODE_PARAMS,
);

/// The function runs in the application's process.
#[by_hand(0x0711)]
#[since(10000)]
fn cuGraphHostNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_HOST_NODE_PARAMS);

/// The function runs in the application's process.
#[by_hand(0x0712)]
#[since(10000)]
fn cuGraphHostNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS);

/// The function runs in the application's process.
#[by_hand(0x0713)]
#[since(10020)]
fn cuGraphExecHostNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS);

#[call(0x0714)]
#[since(10000)]
#[creates(phGraphNode)]
fn cuGraphAddChildGraphNode(
    phGraphNode: Out<CUgraphNode>,
    hGraph: CUgraph,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
    childGraph: CUgraph,
);

#[call(0x0715)]
#[since(10000)]
#[creates(phGraphNode)]
fn cuGraphAddEmptyNode(
    phGraphNode: Out<CUgraphNode>,
    hGraph: CUgraph,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
);

#[call(0x0716)]
#[since(11010)]
#[creates(phGraphNode)]
fn cuGraphAddEventRecordNode(
    phGraphNode: Out<CUgraphNode>,
    hGraph: CUgraph,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
    event: CUevent,
);

#[call(0x0717)]
#[since(11010)]
#[creates(phGraphNode)]
fn cuGraphAddEventWaitNode(
    phGraphNode: Out<CUgraphNode>,
    hGraph: CUgraph,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
    event: CUevent,
);

#[call(0x0718)]
#[since(11040)]
#[creates(phGraphNode)]
#[at(dptr, 1)]
fn cuGraphAddMemFreeNode(
    phGraphNode: Out<CUgraphNode>,
    hGraph: CUgraph,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
    dptr: CUdeviceptr,
);

#[by_hand(0x0719)]
#[since(10000)]
#[finds(phGraph)]
fn cuGraphChildGraphNodeGetGraph(hNode: CUgraphNode, phGraph: *mut CUgraph);

#[by_hand(0x071a)]
#[since(11010)]
#[finds(event_out)]
fn cuGraphEventRecordNodeGetEvent(hNode: CUgraphNode, event_out: *mut CUevent);

#[by_hand(0x071b)]
#[since(11010)]
#[finds(event_out)]
fn cuGraphEventWaitNodeGetEvent(hNode: CUgraphNode, event_out: *mut CUevent);

#[by_hand(0x071c)]
#[since(10000)]
#[finds(phNode)]
fn cuGraphNodeFindInClone(phNode: *mut CUgraphNode, hOriginalNode: CUgraphNode, hClonedGraph: CUgraph);

#[call(0x071d)]
#[since(11010)]
fn cuGraphEventRecordNodeSetEvent(hNode: CUgraphNode, event: CUevent);

#[call(0x071e)]
#[since(11010)]
fn cuGraphEventWaitNodeSetEvent(hNode: CUgraphNode, event: CUevent);

/// Awaited: another child may copy other host memory, or be refused.
#[by_hand(0x071f)]
#[since(11010)]
fn cuGraphExecChildGraphNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, childGraph: CUgraph);

#[call(0x0720)]
#[since(11010)]
fn cuGraphExecEventRecordNodeSetEvent(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent);

#[call(0x0721)]
#[since(11010)]
fn cuGraphExecEventWaitNodeSetEvent(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphAddExternalSemaphoresSignalNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphExternalSemaphoresSignalNodeGetParams(hNode: CUgraphNode, params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphExternalSemaphoresSignalNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphAddExternalSemaphoresWaitNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphExternalSemaphoresWaitNodeGetParams(hNode: CUgraphNode, params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphExternalSemaphoresWaitNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
);

#[by_hand(0x0722)]
#[since(11070)]
#[creates(phGraphNode, hGraph)]
fn cuGraphAddBatchMemOpNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
);

#[by_hand(0x0723)]
#[since(11070)]
fn cuGraphBatchMemOpNodeGetParams(hNode: CUgraphNode, nodeParams_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS);

#[by_hand(0x0724)]
#[since(11070)]
fn cuGraphBatchMemOpNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);

#[by_hand(0x0725)]
#[since(11070)]
fn cuGraphExecBatchMemOpNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
);

#[by_hand(0x0726)]
#[since(11040)]
#[creates(phGraphNode, hGraph)]
#[charges(by_hand)]
fn cuGraphAddMemAllocNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
);

#[by_hand(0x0727)]
#[since(11040)]
fn cuGraphMemAllocNodeGetParams(hNode: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);

#[call(0x0728)]
#[since(11040)]
fn cuGraphMemFreeNodeGetParams(hNode: CUgraphNode, dptr_out: Out<CUdeviceptr>);

#[call(0x0729)]
#[since(11040)]
#[no_context]
fn cuDeviceGraphMemTrim(device: CUdevice);

#[call(0x072a)]
#[since(11040)]
#[no_context]
fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: Out<u64>);

#[call(0x072b)]
#[since(11040)]
#[no_context]
fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: In<u64>);

#[call(0x072c)]
#[since(10000)]
fn cuGraphNodeGetType(hNode: CUgraphNode, type_: Out<CUgraphNodeType>);

#[by_hand(0x072d)]
#[since(10000)]
#[finds(nodes)]
fn cuGraphGetNodes(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize);

#[by_hand(0x072e)]
#[since(10000)]
#[finds(rootNodes)]
fn cuGraphGetRootNodes(hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize);

#[by_hand(0x072f)]
#[since(10000)]
#[finds(from, to)]
fn cuGraphGetEdges(hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, numEdges: *mut usize);

#[by_hand(0x0730)]
#[since(12030)]
#[finds(from, to)]
fn cuGraphGetEdges_v2(
    hGraph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numEdges: *mut usize,
);

#[by_hand(0x0731)]
#[since(10000)]
#[finds(dependencies)]
fn cuGraphNodeGetDependencies(hNode: CUgraphNode, dependencies: *mut CUgraphNode, numDependencies: *mut usize);

#[by_hand(0x0732)]
#[since(12030)]
#[finds(dependencies)]
fn cuGraphNodeGetDependencies_v2(
    hNode: CUgraphNode,
    dependencies: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numDependencies: *mut usize,
);

#[by_hand(0x0733)]
#[since(10000)]
#[finds(dependentNodes)]
fn cuGraphNodeGetDependentNodes(hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, numDependentNodes: *mut usize);

#[by_hand(0x0734)]
#[since(12030)]
#[finds(dependentNodes)]
fn cuGraphNodeGetDependentNodes_v2(
    hNode: CUgraphNode,
    dependentNodes: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numDependentNodes: *mut usize,
);

#[call(0x0735)]
#[since(10000)]
fn cuGraphAddDependencies(
    hGraph: CUgraph,
    from: In<[CUgraphNode; numDependencies]>,
    to: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
);

#[call(0x0736)]
#[since(10000)]
fn cuGraphRemoveDependencies(
    hGraph: CUgraph,
    from: In<[CUgraphNode; numDependencies]>,
    to: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
);

#[call(0x0737)]
#[since(12030)]
fn cuGraphAddDependencies_v2(
    hGraph: CUgraph,
    from: In<[CUgraphNode; numDependencies]>,
    to: In<[CUgraphNode; numDependencies]>,
    edgeData: InOpt<[CUgraphEdgeData; numDependencies]>,
    numDependencies: usize,
);

#[call(0x0738)]
#[since(12030)]
fn cuGraphRemoveDependencies_v2(
    hGraph: CUgraph,
    from: In<[CUgraphNode; numDependencies]>,
    to: In<[CUgraphNode; numDependencies]>,
    edgeData: InOpt<[CUgraphEdgeData; numDependencies]>,
    numDependencies: usize,
);

/// The reply says which host memory the graph copies from and to.
#[by_hand(0x0739)]
#[since(11040)]
#[creates(phGraphExec)]
fn cuGraphInstantiateWithFlags(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: u64);

#[by_hand(0x073a)]
#[since(12000)]
#[per_thread(ptsz)]
#[creates(phGraphExec)]
fn cuGraphInstantiateWithParams(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
);

/// As `cuGraphInstantiateWithFlags`; the log stays empty.
#[client]
#[since(10000)]
#[creates(phGraphExec)]
#[finds(phErrorNode)]
fn cuGraphInstantiate(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    phErrorNode: *mut CUgraphNode,
    logBuffer: *mut c_char,
    bufferSize: usize,
);

/// As `cuGraphInstantiateWithFlags`; the log stays empty.
#[client]
#[since(11000)]
#[creates(phGraphExec)]
#[finds(phErrorNode)]
fn cuGraphInstantiate_v2(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    phErrorNode: *mut CUgraphNode,
    logBuffer: *mut c_char,
    bufferSize: usize,
);

#[call(0x073b)]
#[since(12000)]
fn cuGraphExecGetFlags(hGraphExec: CUgraphExec, flags: Out<u64>);

#[call(0x073c)]
#[since(11010)]
#[per_thread(ptsz)]
#[charges(graph)]
fn cuGraphUpload(hGraph: CUgraphExec, hStream: CUstream);

/// Not awaited, unless the graph copies from or to pageable memory, which is read before and written after.
#[by_hand(0x073d)]
#[since(10000)]
#[per_thread(ptsz)]
#[charges(by_hand)]
fn cuGraphLaunch(hGraph: CUgraphExec, hStream: CUstream);

#[by_hand(0x073e)]
#[since(10000)]
#[destroys(hGraphExec)]
fn cuGraphExecDestroy(hGraphExec: CUgraphExec);

#[client]
#[since(10020)]
#[finds(hErrorNode_out)]
fn cuGraphExecUpdate(
    hGraphExec: CUgraphExec,
    hGraph: CUgraph,
    hErrorNode_out: *mut CUgraphNode,
    updateResult_out: *mut CUgraphExecUpdateResult,
);

/// A refused update is an answer, and says which node was the reason.
#[by_hand(0x073f)]
#[since(12000)]
fn cuGraphExecUpdate_v2(hGraphExec: CUgraphExec, hGraph: CUgraph, resultInfo: *mut CUgraphExecUpdateResultInfo);

/// Awaited: a copy that is not made leaves host memory alone.
#[by_hand(0x0740)]
#[since(11060)]
fn cuGraphNodeSetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: u32);

#[call(0x0741)]
#[since(11060)]
fn cuGraphNodeGetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: Out<u32>);

#[call(0x0742)]
#[since(11000)]
fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode);

/// Attributes may hold events.
#[by_hand(0x0743)]
#[since(11000)]
fn cuGraphKernelNodeGetAttribute(hNode: CUgraphNode, attr: CUkernelNodeAttrID, value_out: *mut CUkernelNodeAttrValue);

/// Attributes may hold events.
#[by_hand(0x0744)]
#[since(11000)]
fn cuGraphKernelNodeSetAttribute(hNode: CUgraphNode, attr: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue);

/// The file is written here.
#[by_hand(0x0745)]
#[since(11030)]
fn cuGraphDebugDotPrint(hGraph: CUgraph, path: *const c_char, flags: u32);

#[client]
#[since(12020)]
#[creates(phGraphNode, hGraph)]
fn cuGraphAddNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
);

#[by_hand(0x074b)]
#[since(12030)]
#[creates(phGraphNode, hGraph)]
#[charges(by_hand)]
fn cuGraphAddNode_v2(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
);

#[by_hand(0x074c)]
#[since(12020)]
fn cuGraphNodeSetParams(hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams);

#[by_hand(0x074d)]
#[since(12020)]
fn cuGraphExecNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams);

/// The handle is the driver's own number: kernels receive it.
#[call(0x074e)]
#[since(12030)]
fn cuGraphConditionalHandleCreate(
    pHandle_out: Out<CUgraphConditionalHandle>,
    hGraph: CUgraph,
    ctx: CUcontext,
    defaultLaunchValue: u32,
    flags: u32,
);
