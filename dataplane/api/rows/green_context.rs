//! Green contexts and device resources.

/// Made together with the `CUcontext` that it converts to.
#[by_hand(0x0800)]
#[since(12040)]
#[creates(phCtx)]
fn cuGreenCtxCreate(phCtx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: u32);

#[by_hand(0x0801)]
#[since(12040)]
#[destroys(hCtx)]
fn cuGreenCtxDestroy(hCtx: CUgreenCtx);

/// Known since the green context was created.
#[client]
#[since(12040)]
#[finds(pContext)]
fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: CUgreenCtx);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0803, worker)]
#[since(12040)]
fn cuDeviceGetDevResource(device: CUdevice, resource: Out<CUdevResource>, type_: CUdevResourceType);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0804, worker)]
#[since(12040)]
fn cuCtxGetDevResource(hCtx: CUcontext, resource: Out<CUdevResource>, type_: CUdevResourceType);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0805, worker)]
#[since(12040)]
fn cuGreenCtxGetDevResource(hCtx: CUgreenCtx, resource: Out<CUdevResource>, type_: CUdevResourceType);

/// Opaque to the client: the worker accepts only resources that it gave out, because the driver trusts what is in
/// them.
#[by_hand(0x0806)]
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
#[by_hand(0x0807)]
#[since(12040)]
#[limit(64)]
#[creates(phDesc)]
fn cuDevResourceGenerateDesc(
    phDesc: *mut CUdevResourceDesc,
    resources: *mut CUdevResource,
    nbResources: u32,
);

#[by_hand(0x0808, client)]
#[since(12040)]
fn cuGreenCtxRecordEvent(hCtx: CUgreenCtx, hEvent: CUevent);

#[by_hand(0x0809, client)]
#[since(12040)]
fn cuGreenCtxWaitEvent(hCtx: CUgreenCtx, hEvent: CUevent);

/// Awaited, unlike the creation of other streams: the driver judges the green context.
#[by_hand(0x080a, client)]
#[since(12050)]
#[creates(phStream)]
fn cuGreenCtxStreamCreate(phStream: Out<CUstream>, greenCtx: CUgreenCtx, flags: u32, priority: i32);

/// The id of the `CUcontext` that it converts to.
#[client]
#[since(12090)]
fn cuGreenCtxGetId(greenCtx: CUgreenCtx, greenCtxId: *mut u64);
