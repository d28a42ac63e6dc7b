//! Virtual memory.

/// The shim reserves the same range of its own address space.
#[by_hand(0x0480)]
#[since(10020)]
#[creates(ptr)]
fn cuMemAddressReserve(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64);

#[by_hand(0x0481)]
#[since(10020)]
#[destroys(ptr)]
fn cuMemAddressFree(ptr: CUdeviceptr, size: usize);

#[by_hand(0x0482)]
#[since(10020)]
#[creates(handle)]
#[charges(by_hand)]
fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: u64);

#[by_hand(0x0483)]
#[since(10020)]
#[destroys(handle)]
fn cuMemRelease(handle: CUmemGenericAllocationHandle);

#[by_hand(0x0484)]
#[since(10020)]
#[creates(ptr)]
fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);

#[by_hand(0x0485)]
#[since(10020)]
#[destroys(ptr)]
fn cuMemUnmap(ptr: CUdeviceptr, size: usize);

#[by_hand(0x0486)]
#[since(10020)]
fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize);

#[call(0x0487)]
#[since(10020)]
#[at(ptr, 1)]
fn cuMemGetAccess(flags: Out<u64>, location: In<CUmemLocation>, ptr: CUdeviceptr);

/// A file descriptor of this host cannot stand for memory of the GPU's host; refused in words.
#[client]
#[since(10020)]
fn cuMemExportToShareableHandle(
    shareableHandle: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    handleType: CUmemAllocationHandleType,
    flags: u64,
);

/// A file descriptor of this host cannot stand for memory of the GPU's host; refused in words.
#[client]
#[since(10020)]
#[creates(handle)]
fn cuMemImportFromShareableHandle(
    handle: *mut CUmemGenericAllocationHandle,
    osHandle: *mut c_void,
    shHandleType: CUmemAllocationHandleType,
);

#[by_hand(0x048a)]
#[since(10020)]
fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
);

/// Remembered here.
#[client]
#[since(10020)]
fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);

#[by_hand(0x048c)]
#[since(11000)]
#[creates(handle)]
fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void);

/// Sparse arrays are not forwarded; the device attribute says so.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(11010)]
#[per_thread(ptsz)]
fn cuMemMapArrayAsync(mapInfoList: *mut CUarrayMapInfo, count: u32, hStream: CUstream);
