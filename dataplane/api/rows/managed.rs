//! Managed memory.

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
