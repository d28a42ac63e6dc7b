//! Managed memory: pages of the session's heap, as pinned memory is. Of other memory advice and prefetches are the
//! driver's to judge.

/// Memory of the session's heap, which the worker maps at the same address.
#[client]
#[since(6000)]
#[creates(dptr)]
fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32);

/// Whoever it is attached to, all reach it.
#[local]
#[since(6000)]
#[per_thread(ptsz)]
fn cuStreamAttachMemAsync(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: u32);

#[local]
#[since(8000)]
fn cuMemRangeGetAttribute(
    data: *mut c_void,
    dataSize: usize,
    attribute: CUmem_range_attribute,
    devPtr: CUdeviceptr,
    count: usize,
);

#[local]
#[since(8000)]
fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    dataSizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    numAttributes: usize,
    devPtr: CUdeviceptr,
    count: usize,
);

/// Nothing moves.
#[local]
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

/// Its content stays.
#[local]
#[since(13000)]
#[per_thread(ptsz)]
fn cuMemDiscardBatchAsync(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, hStream: CUstream);

/// As the two.
#[local]
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

/// Of managed memory it is remembered and has no effect.
#[by_hand(0x0388, client)]
#[since(8000)]
#[at(devPtr, count)]
fn cuMemAdvise(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);

/// As `cuMemAdvise`.
#[by_hand(0x0389, client)]
#[since(12020)]
#[at(devPtr, count)]
fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation);

/// As `cuMemAdvise`.
#[by_hand(0x038a, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[at(devPtr, count)]
fn cuMemPrefetchAsync(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream);

/// As `cuMemAdvise`.
#[by_hand(0x038b, client)]
#[since(12020)]
#[per_thread(ptsz)]
#[at(devPtr, count)]
fn cuMemPrefetchAsync_v2(devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: u32, hStream: CUstream);
