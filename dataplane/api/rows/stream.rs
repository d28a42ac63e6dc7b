//! Streams.

#[client]
#[since(2000)]
#[creates(phStream)]
fn cuStreamCreate(phStream: *mut CUstream, Flags: u32);

/// Not awaited: the shim chooses the handle.
#[by_hand(0x0600, client)]
#[since(5050)]
#[creates(phStream)]
fn cuStreamCreateWithPriority(phStream: Out<CUstream>, flags: u32, priority: i32);

#[by_hand(0x0601)]
#[since(4000)]
#[destroys(hStream)]
fn cuStreamDestroy_v2(hStream: CUstream);

#[alias(cuStreamDestroy_v2)]
#[since(2000)]
fn cuStreamDestroy(hStream: CUstream);

/// Known since the stream was created.
#[client]
#[since(5050)]
#[per_thread(ptsz)]
fn cuStreamGetPriority(hStream: CUstream, priority: *mut i32);

/// Known since the stream was created.
#[client]
#[since(5050)]
#[per_thread(ptsz)]
fn cuStreamGetFlags(hStream: CUstream, flags: *mut u32);

/// Known since the stream was created.
#[client]
#[since(12000)]
#[per_thread(ptsz)]
fn cuStreamGetId(hStream: CUstream, streamId: *mut u64);

/// Known since the stream was created.
#[client]
#[since(12080)]
#[per_thread(ptsz)]
fn cuStreamGetDevice(hStream: CUstream, device: *mut CUdevice);

/// Known since the stream was created.
#[client]
#[since(9020)]
#[per_thread(ptsz)]
#[finds(pctx)]
fn cuStreamGetCtx(hStream: CUstream, pctx: *mut CUcontext);

/// Known since the stream was created.
#[client]
#[since(12050)]
#[per_thread(ptsz)]
#[finds(pCtx, pGreenCtx)]
fn cuStreamGetCtx_v2(hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut CUgreenCtx);

/// Known since the stream was created.
#[client]
#[since(12040)]
#[finds(phCtx)]
fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: *mut CUgreenCtx);

#[by_hand(0x0602, client)]
#[since(3020)]
#[per_thread(ptsz)]
fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: u32);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0603)]
#[since(2000)]
#[per_thread(ptsz)]
fn cuStreamQuery(hStream: CUstream);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0604)]
#[since(2000)]
#[per_thread(ptsz)]
fn cuStreamSynchronize(hStream: CUstream);

#[call(0x0606)]
#[since(11000)]
#[per_thread(ptsz)]
fn cuStreamGetAttribute(hStream: CUstream, attr: CUstreamAttrID, value: Out<CUstreamAttrValue>);

#[call(0x0607)]
#[since(11000)]
#[per_thread(ptsz)]
fn cuStreamSetAttribute(hStream: CUstream, attr: CUstreamAttrID, param: In<CUstreamAttrValue>);

#[call(0x0608)]
#[since(11000)]
#[per_thread(ptsz)]
fn cuStreamCopyAttributes(dstStream: CUstream, srcStream: CUstream);
