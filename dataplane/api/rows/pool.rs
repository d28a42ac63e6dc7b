//! Stream-ordered allocation.

#[by_hand(0x0500)]
#[since(11020)]
#[per_thread(ptsz)]
#[creates(dptr)]
#[charges(by_hand)]
fn cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream);

#[by_hand(0x0501)]
#[since(11020)]
#[per_thread(ptsz)]
#[creates(dptr)]
#[charges(by_hand)]
fn cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream);

#[by_hand(0x0502)]
#[since(11020)]
#[per_thread(ptsz)]
#[destroys(dptr)]
fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream);

#[call(0x0503)]
#[since(11020)]
fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize);

/// The attribute decides the size of its value.
#[by_hand(0x0504)]
#[since(11020)]
fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void);

/// The attribute decides the size of its value.
#[by_hand(0x0505)]
#[since(11020)]
fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void);

#[call(0x0506)]
#[since(11020)]
#[limit(64)]
fn cuMemPoolSetAccess(pool: CUmemoryPool, map: In<[CUmemAccessDesc; count]>, count: usize);

#[call(0x0507)]
#[since(11020)]
fn cuMemPoolGetAccess(flags: Out<CUmemAccess_flags>, memPool: CUmemoryPool, location: In<CUmemLocation>);

#[by_hand(0x0508)]
#[since(11020)]
#[creates(pool)]
fn cuMemPoolCreate(pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps);

#[by_hand(0x0509)]
#[since(11020)]
#[destroys(pool)]
fn cuMemPoolDestroy(pool: CUmemoryPool);

/// Remembered here: the same handle for the same pool.
#[client]
#[since(11020)]
#[finds(pool)]
fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice);

/// Remembered here: the same handle for the same pool.
#[by_hand(0x050b)]
#[since(11020)]
#[finds(pool_out)]
fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice);

/// Remembered here: the same handle for the same pool.
#[client]
#[since(13000)]
#[finds(pool_out)]
fn cuMemGetDefaultMemPool(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType);

/// Remembered here: the same handle for the same pool.
#[client]
#[since(13000)]
#[finds(pool)]
fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType);

/// Changes what `cuMemGetMemPool` answers.
#[by_hand(0x050e)]
#[since(11020)]
fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool);

/// Changes what `cuMemGetMemPool` answers.
#[client]
#[since(13000)]
fn cuMemSetMemPool(location: *mut CUmemLocation, type_: CUmemAllocationType, pool: CUmemoryPool);

/// A pool is shared by a file descriptor of the GPU's host.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: CUmemoryPool,
    handleType: CUmemAllocationHandleType,
    flags: u64,
);

/// A pool is shared by a file descriptor of the GPU's host.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut CUmemoryPool,
    handle: *mut c_void,
    handleType: CUmemAllocationHandleType,
    flags: u64,
);

/// A pool is shared by a file descriptor of the GPU's host.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuMemPoolExportPointer(shareData_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr);

/// A pool is shared by a file descriptor of the GPU's host.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11020)]
fn cuMemPoolImportPointer(ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, shareData: *mut CUmemPoolPtrExportData);
