//! Device memory.

/// Free and total of the session's limit, not of the GPU.
#[by_hand(0x0380)]
#[since(3020)]
fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);

/// Past the session's limit the answer is `CUDA_ERROR_OUT_OF_MEMORY`, as on a full device.
#[by_hand(0x0381)]
#[since(3020)]
#[creates(dptr)]
#[charges(by_hand)]
fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);

/// Past the session's limit the answer is `CUDA_ERROR_OUT_OF_MEMORY`, as on a full device.
#[by_hand(0x0382)]
#[since(3020)]
#[creates(dptr)]
#[charges(by_hand)]
fn cuMemAllocPitch_v2(
    dptr: *mut CUdeviceptr,
    pPitch: *mut usize,
    WidthInBytes: usize,
    Height: usize,
    ElementSizeBytes: u32,
);

#[by_hand(0x0383)]
#[since(3020)]
#[destroys(dptr)]
fn cuMemFree_v2(dptr: CUdeviceptr);

#[local]
#[since(3020)]
fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr);

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
