//! Green contexts and device resources.

#[by_hand(0x0800, green_context, worker)]
#[since(12040)]
#[creates(phCtx)]
fn cuGreenCtxCreate(phCtx: Out<CUgreenCtx>, desc: CUdevResourceDesc, dev: CUdevice, flags: u32);

#[post(0x0801)]
#[since(12040)]
#[destroys(hCtx)]
fn cuGreenCtxDestroy(hCtx: CUgreenCtx);

#[call(0x0802)]
#[since(12040)]
#[creates(pContext)]
fn cuCtxFromGreenCtx(pContext: Out<CUcontext>, hCtx: CUgreenCtx);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0803, green_context, worker)]
#[since(12040)]
fn cuDeviceGetDevResource(device: CUdevice, resource: Out<CUdevResource>, type_: CUdevResourceType);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0804, green_context, worker)]
#[since(12040)]
fn cuCtxGetDevResource(hCtx: CUcontext, resource: Out<CUdevResource>, type_: CUdevResourceType);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0805, green_context, worker)]
#[since(12040)]
fn cuGreenCtxGetDevResource(hCtx: CUgreenCtx, resource: Out<CUdevResource>, type_: CUdevResourceType);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0806, green_context)]
#[since(12040)]
fn cuDevSmResourceSplitByCount(
    result: *mut CUdevResource,
    nbGroups: *mut u32,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    useFlags: u32,
    minCount: u32,
);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0807, green_context, worker)]
#[since(12040)]
#[limit(64)]
#[creates(phDesc)]
fn cuDevResourceGenerateDesc(
    phDesc: Out<CUdevResourceDesc>,
    resources: In<[CUdevResource; nbResources]>,
    nbResources: u32,
);

#[post(0x0808)]
#[since(12040)]
fn cuGreenCtxRecordEvent(hCtx: CUgreenCtx, hEvent: CUevent);

#[post(0x0809)]
#[since(12040)]
fn cuGreenCtxWaitEvent(hCtx: CUgreenCtx, hEvent: CUevent);

#[by_hand(0x080a, stream, client)]
#[since(12050)]
#[creates(phStream)]
fn cuGreenCtxStreamCreate(phStream: Out<CUstream>, greenCtx: CUgreenCtx, flags: u32, priority: i32);

#[call(0x080b)]
#[since(12090)]
fn cuGreenCtxGetId(greenCtx: CUgreenCtx, greenCtxId: Out<u64>);
