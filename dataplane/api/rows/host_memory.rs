//! Pinned host memory.

/// Memory of the session's heap, which the worker maps at the same address.
#[by_hand(0x0384)]
#[since(2020)]
#[creates(pp)]
fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: u32);

#[client]
#[since(3020)]
#[creates(pp)]
fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);

#[by_hand(0x0385)]
#[since(2000)]
#[destroys(p)]
fn cuMemFreeHost(p: *mut c_void);

#[client]
#[since(3020)]
fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: u32);

#[client]
#[since(2030)]
fn cuMemHostGetFlags(pFlags: *mut u32, p: *mut c_void);

/// The pages are moved onto the session's heap in place; those of a file in memory stay, and the worker maps the file.
#[by_hand(0x0386)]
#[since(6050)]
#[creates(p)]
fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: u32);

#[by_hand(0x0387)]
#[since(4000)]
#[destroys(p)]
fn cuMemHostUnregister(p: *mut c_void);

#[alias(cuMemHostRegister_v2)]
#[since(4000)]
fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemAllocHost(pp: *mut *mut c_void, bytesize: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2020)]
fn cuMemHostGetDevicePointer(pdptr: *mut CUdeviceptr_v1, p: *mut c_void, Flags: u32);
