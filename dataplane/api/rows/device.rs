//! Device management.

#[local]
#[since(2000)]
fn cuDeviceGet(device: *mut CUdevice, ordinal: i32);

#[local]
#[since(2000)]
fn cuDeviceGetCount(count: *mut i32);

#[local]
#[since(2000)]
fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice);

#[local]
#[since(11040)]
fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice);

#[local]
#[since(9020)]
fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice);

#[local]
#[since(10000)]
fn cuDeviceGetLuid(luid: *mut c_char, deviceNodeMask: *mut u32, dev: CUdevice);

#[local]
#[since(3020)]
fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);

#[local]
#[since(2000)]
fn cuDeviceTotalMem(bytes: *mut u32, dev: CUdevice);

#[local]
#[since(2000)]
fn cuDeviceGetAttribute(pi: *mut i32, attrib: CUdevice_attribute, dev: CUdevice);

#[local]
#[since(2000)]
fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice);

#[local]
#[since(2000)]
fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, dev: CUdevice);

#[local]
#[since(4010)]
fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pciBusId: *const c_char);

#[local]
#[since(4010)]
fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: i32, dev: CUdevice);

#[local]
#[since(11010)]
fn cuDeviceGetTexture1DLinearMaxWidth(
    maxWidthInElements: *mut usize,
    format: CUarray_format,
    numChannels: u32,
    dev: CUdevice,
);

#[local]
#[since(11040)]
fn cuDeviceGetExecAffinitySupport(pi: *mut i32, type_: CUexecAffinityType, dev: CUdevice);

/// NvSci objects belong to this host; the driver's answer without them.
#[local]
#[since(10020)]
fn cuDeviceGetNvSciSyncAttributes(nvSciSyncAttrList: *mut c_void, dev: CUdevice, flags: i32);

#[call(0x0100)]
#[since(13000)]
#[no_context]
#[limit(64)]
fn cuDeviceGetHostAtomicCapabilities(
    capabilities: Out<[u32; count]>,
    operations: In<[CUatomicOperation; count]>,
    count: u32,
    dev: CUdevice,
);

#[call(0x0102)]
#[since(11030)]
fn cuFlushGPUDirectRDMAWrites(target: CUflushGPUDirectRDMAWritesTarget, scope: CUflushGPUDirectRDMAWritesScope);

/// The only notification is that the memory budget changed, and a vGPU's never does.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12040)]
fn cuDeviceRegisterAsyncNotification(
    device: CUdevice,
    callbackFunc: CUasyncCallback,
    userData: *mut c_void,
    callback: *mut CUasyncCallbackHandle,
);

/// The only notification is that the memory budget changed, and a vGPU's never does.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12040)]
fn cuDeviceUnregisterAsyncNotification(device: CUdevice, callback: CUasyncCallbackHandle);
