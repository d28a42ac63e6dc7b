//! Capture of streams into graphs.

#[by_hand(0x0613)]
#[since(10010)]
fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);

/// As `cuStreamBeginCapture_v2` in global mode.
#[client]
#[since(10000)]
#[per_thread(ptsz)]
fn cuStreamBeginCapture(hStream: CUstream);

#[by_hand(0x0614)]
#[since(10010)]
#[per_thread(ptsz)]
fn cuStreamBeginCapture_v2(hStream: CUstream, mode: CUstreamCaptureMode);

#[by_hand(0x0615)]
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

#[by_hand(0x0616)]
#[since(10000)]
#[per_thread(ptsz)]
#[creates(phGraph)]
fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut CUgraph);

/// Answered here while no capture is open.
#[by_hand(0x0617, client)]
#[since(10000)]
#[per_thread(ptsz)]
fn cuStreamIsCapturing(hStream: CUstream, captureStatus: Out<CUstreamCaptureStatus>);

#[client]
#[since(10010)]
#[per_thread(ptsz)]
fn cuStreamGetCaptureInfo(hStream: CUstream, captureStatus_out: *mut CUstreamCaptureStatus, id_out: *mut u64);

#[client]
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
#[by_hand(0x0618)]
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
