//! Streams, memory operations, capture.

#[client(stream)]
#[since(2000)]
#[creates(phStream)]
fn cuStreamCreate(phStream: *mut CUstream, Flags: u32);

/// Not awaited: the shim chooses the handle.
#[by_hand(0x0600, stream, client)]
#[since(5050)]
#[creates(phStream)]
fn cuStreamCreateWithPriority(phStream: Out<CUstream>, flags: u32, priority: i32);

#[by_hand(0x0601, stream, sync)]
#[since(4000)]
#[destroys(hStream)]
fn cuStreamDestroy_v2(hStream: CUstream);

#[alias(cuStreamDestroy_v2)]
#[since(2000)]
fn cuStreamDestroy(hStream: CUstream);

/// Known since the stream was created.
#[client(stream)]
#[since(5050)]
#[per_thread(ptsz)]
fn cuStreamGetPriority(hStream: CUstream, priority: *mut i32);

/// Known since the stream was created.
#[client(stream)]
#[since(5050)]
#[per_thread(ptsz)]
fn cuStreamGetFlags(hStream: CUstream, flags: *mut u32);

/// Known since the stream was created.
#[client(stream)]
#[since(12000)]
#[per_thread(ptsz)]
fn cuStreamGetId(hStream: CUstream, streamId: *mut u64);

/// Known since the stream was created.
#[client(stream)]
#[since(12080)]
#[per_thread(ptsz)]
fn cuStreamGetDevice(hStream: CUstream, device: *mut CUdevice);

/// Known since the stream was created.
#[client(stream)]
#[since(9020)]
#[per_thread(ptsz)]
#[finds(pctx)]
fn cuStreamGetCtx(hStream: CUstream, pctx: *mut CUcontext);

/// Known since the stream was created.
#[client(stream)]
#[since(12050)]
#[per_thread(ptsz)]
#[finds(pCtx, pGreenCtx)]
fn cuStreamGetCtx_v2(hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut CUgreenCtx);

/// Known since the stream was created.
#[client(stream)]
#[since(12040)]
#[finds(phCtx)]
fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: *mut CUgreenCtx);

#[by_hand(0x0602, event, client)]
#[since(3020)]
#[per_thread(ptsz)]
fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: u32);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0603, sync)]
#[since(2000)]
#[per_thread(ptsz)]
fn cuStreamQuery(hStream: CUstream);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0604, sync)]
#[since(2000)]
#[per_thread(ptsz)]
fn cuStreamSynchronize(hStream: CUstream);

#[by_hand(0x0605, callback)]
#[since(5000)]
#[per_thread(ptsz)]
fn cuStreamAddCallback(hStream: CUstream, callback: CUstreamCallback, userData: *mut c_void, flags: u32);

#[call(0x0606)]
#[since(11000)]
#[per_thread(ptsz)]
fn cuStreamGetAttribute(hStream: CUstream, attr: CUstreamAttrID, value: Out<CUstreamAttrValue>);

#[call(0x0607)]
#[since(11000)]
#[per_thread(ptsz)]
fn cuStreamSetAttribute(hStream: CUstream, attr: CUstreamAttrID, param: In<CUstreamAttrValue>);

#[post(0x0608)]
#[since(11000)]
#[per_thread(ptsz)]
fn cuStreamCopyAttributes(dstStream: CUstream, srcStream: CUstream);

#[by_hand(0x0609, stream_memory, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[at(addr, 4)]
fn cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060a, stream_memory, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[at(addr, 4)]
fn cuStreamWaitValue32(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060b, stream_memory, client)]
#[since(9000)]
#[per_thread(ptsz)]
#[at(addr, 8)]
fn cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x060c, stream_memory, client)]
#[since(9000)]
#[per_thread(ptsz)]
#[at(addr, 8)]
fn cuStreamWaitValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x060d, stream_memory, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 4)]
fn cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060e, stream_memory, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 4)]
fn cuStreamWaitValue32_v2(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060f, stream_memory, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 8)]
fn cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x0610, stream_memory, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 8)]
fn cuStreamWaitValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x0611, stream_memory, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[limit(256)]
fn cuStreamBatchMemOp(stream: CUstream, count: u32, paramArray: In<[CUstreamBatchMemOpParams; count]>, flags: u32);

#[by_hand(0x0612, stream_memory, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[limit(256)]
fn cuStreamBatchMemOp_v2(stream: CUstream, count: u32, paramArray: In<[CUstreamBatchMemOpParams; count]>, flags: u32);

#[by_hand(0x0613, capture)]
#[since(10010)]
fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);

/// As `cuStreamBeginCapture_v2` in global mode.
#[client(capture)]
#[since(10000)]
#[per_thread(ptsz)]
fn cuStreamBeginCapture(hStream: CUstream);

#[by_hand(0x0614, capture)]
#[since(10010)]
#[per_thread(ptsz)]
fn cuStreamBeginCapture_v2(hStream: CUstream, mode: CUstreamCaptureMode);

#[by_hand(0x0615, capture)]
#[since(12030)]
#[per_thread(ptsz)]
fn cuStreamBeginCaptureToGraph(
    hStream: CUstream,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    mode: CUstreamCaptureMode,
);

#[by_hand(0x0616, capture)]
#[since(10000)]
#[per_thread(ptsz)]
#[creates(phGraph)]
fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut CUgraph);

/// Answered here while no capture is open.
#[by_hand(0x0617, capture, client)]
#[since(10000)]
#[per_thread(ptsz)]
fn cuStreamIsCapturing(hStream: CUstream, captureStatus: Out<CUstreamCaptureStatus>);

#[client(capture)]
#[since(10010)]
#[per_thread(ptsz)]
fn cuStreamGetCaptureInfo(hStream: CUstream, captureStatus_out: *mut CUstreamCaptureStatus, id_out: *mut u64);

#[client(capture)]
#[since(11030)]
#[per_thread(ptsz)]
#[finds(graph_out)]
fn cuStreamGetCaptureInfo_v2(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    numDependencies_out: *mut usize,
);

/// Answered here while no capture is open.
#[by_hand(0x0618, capture)]
#[since(12030)]
#[per_thread(ptsz)]
#[finds(graph_out)]
fn cuStreamGetCaptureInfo_v3(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    edgeData_out: *mut *const CUgraphEdgeData,
    numDependencies_out: *mut usize,
);

#[call(0x0619)]
#[since(11030)]
#[per_thread(ptsz)]
fn cuStreamUpdateCaptureDependencies(
    hStream: CUstream,
    dependencies: In<[CUgraphNode; numDependencies]>,
    numDependencies: usize,
    flags: u32,
);

#[call(0x061a)]
#[since(12030)]
#[per_thread(ptsz)]
fn cuStreamUpdateCaptureDependencies_v2(
    hStream: CUstream,
    dependencies: In<[CUgraphNode; numDependencies]>,
    dependencyData: InOpt<[CUgraphEdgeData; numDependencies]>,
    numDependencies: usize,
    flags: u32,
);
