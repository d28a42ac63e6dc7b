//! Device and host memory, attributes of pointers, IPC.

/// Free and total of the session's limit, not of the GPU.
#[by_hand(0x0380, memory)]
#[since(3020)]
fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);

/// Past the session's limit the answer is `CUDA_ERROR_OUT_OF_MEMORY`, as on a full device.
#[by_hand(0x0381, memory)]
#[since(3020)]
#[creates(dptr)]
fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);

/// Past the session's limit the answer is `CUDA_ERROR_OUT_OF_MEMORY`, as on a full device.
#[by_hand(0x0382, memory)]
#[since(3020)]
#[creates(dptr)]
fn cuMemAllocPitch_v2(
    dptr: *mut CUdeviceptr,
    pPitch: *mut usize,
    WidthInBytes: usize,
    Height: usize,
    ElementSizeBytes: u32,
);

#[by_hand(0x0383, memory)]
#[since(3020)]
#[destroys(dptr)]
fn cuMemFree_v2(dptr: CUdeviceptr);

#[local(pointer)]
#[since(3020)]
fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr);

/// Memory of the session's heap, which the worker maps at the same address.
#[by_hand(0x0384, host_memory)]
#[since(2020)]
#[creates(pp)]
fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: u32);

#[client(host_memory)]
#[since(3020)]
#[creates(pp)]
fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);

#[by_hand(0x0385, host_memory)]
#[since(2000)]
#[destroys(p)]
fn cuMemFreeHost(p: *mut c_void);

#[client(host_memory)]
#[since(3020)]
fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: u32);

#[client(host_memory)]
#[since(2030)]
fn cuMemHostGetFlags(pFlags: *mut u32, p: *mut c_void);

/// The pages are moved onto the session's heap in place.
#[by_hand(0x0386, host_memory)]
#[since(6050)]
#[creates(p)]
fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: u32);

#[by_hand(0x0387, host_memory)]
#[since(4000)]
#[destroys(p)]
fn cuMemHostUnregister(p: *mut c_void);

#[alias(cuMemHostRegister_v2)]
#[since(4000)]
fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: u32);

/// From the map of addresses that the shim keeps.
#[local(pointer)]
#[since(4000)]
fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);

/// From the map of addresses that the shim keeps.
#[local(pointer)]
#[since(7000)]
fn cuPointerGetAttributes(
    numAttributes: u32,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
);

/// From the map of addresses that the shim keeps.
#[local(pointer)]
#[since(6000)]
fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(6000)]
fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(6000)]
#[per_thread(ptsz)]
fn cuStreamAttachMemAsync(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: u32);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(8000)]
fn cuMemRangeGetAttribute(
    data: *mut c_void,
    dataSize: usize,
    attribute: CUmem_range_attribute,
    devPtr: CUdeviceptr,
    count: usize,
);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(8000)]
fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    dataSizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    numAttributes: usize,
    devPtr: CUdeviceptr,
    count: usize,
);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(13000)]
#[per_thread(ptsz)]
fn cuMemPrefetchBatchAsync(
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: u64,
    hStream: CUstream,
);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(13000)]
#[per_thread(ptsz)]
fn cuMemDiscardBatchAsync(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, hStream: CUstream);

/// Managed memory needs page faults shared between this host and the GPU; a session has none to pass.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(13000)]
#[per_thread(ptsz)]
fn cuMemDiscardAndPrefetchBatchAsync(
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: u64,
    hStream: CUstream,
);

#[call(0x0388)]
#[since(8000)]
#[at(devPtr, count)]
fn cuMemAdvise(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);

#[call(0x0389)]
#[since(12020)]
#[at(devPtr, count)]
fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation);

#[post(0x038a)]
#[since(8000)]
#[per_thread(ptsz)]
#[at(devPtr, count)]
fn cuMemPrefetchAsync(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream);

#[post(0x038b)]
#[since(12020)]
#[per_thread(ptsz)]
#[at(devPtr, count)]
fn cuMemPrefetchAsync_v2(devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: u32, hStream: CUstream);

/// The answer is a dma-buf of the GPU's host, which means nothing here.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11070)]
fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    dptr: CUdeviceptr,
    size: usize,
    handleType: CUmemRangeHandleType,
    flags: u64,
);

/// Hardware decompression of a batch is not forwarded; the device attribute says so.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12060)]
#[per_thread(ptsz)]
fn cuMemBatchDecompressAsync(
    paramsArray: *mut CUmemDecompressParams,
    count: usize,
    flags: u32,
    errorIndex: *mut usize,
    stream: CUstream,
);

/// Exported by the driver without being in any header; its parameters are unknown.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
fn cuMemGetAttribute();

/// Exported by the driver without being in any header; its parameters are unknown.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
fn cuMemGetAttribute_v2();

/// A handle of the GPU's host: another session on the same host can open it.
#[call(0x038c)]
#[since(4010)]
fn cuIpcGetEventHandle(pHandle: Out<CUipcEventHandle>, event: CUevent);

/// Remembers that another process looks at the event.
#[by_hand(0x038d, event, client)]
#[since(4010)]
#[creates(phEvent)]
fn cuIpcOpenEventHandle(phEvent: Out<CUevent>, handle: CUipcEventHandle);

/// A handle of the GPU's host: another session on the same host can open it.
#[call(0x038e)]
#[since(4010)]
#[at(dptr, 1)]
fn cuIpcGetMemHandle(pHandle: Out<CUipcMemHandle>, dptr: CUdeviceptr);

#[by_hand(0x038f, ipc)]
#[since(11000)]
#[creates(pdptr)]
fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32);

#[by_hand(0x0390, ipc)]
#[since(4010)]
#[destroys(dptr)]
fn cuIpcCloseMemHandle(dptr: CUdeviceptr);

#[alias(cuIpcOpenMemHandle_v2)]
#[since(4010)]
fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemGetInfo(free: *mut u32, total: *mut u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemAlloc(dptr: *mut CUdeviceptr_v1, bytesize: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemAllocPitch(dptr: *mut CUdeviceptr_v1, pPitch: *mut u32, WidthInBytes: u32, Height: u32, ElementSizeBytes: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemFree(dptr: CUdeviceptr_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemGetAddressRange(pbase: *mut CUdeviceptr_v1, psize: *mut u32, dptr: CUdeviceptr_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemAllocHost(pp: *mut *mut c_void, bytesize: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2020)]
fn cuMemHostGetDevicePointer(pdptr: *mut CUdeviceptr_v1, p: *mut c_void, Flags: u32);
