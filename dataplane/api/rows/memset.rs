//! Fills.

/// Posted where the shim knows the memory, called where only the driver does.
#[by_hand(0x0406, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at(dstDevice, N)]
#[recorded]
fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream);

/// Posted where the shim knows the memory, called where only the driver does.
#[by_hand(0x0407, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at(dstDevice, N, 2)]
#[recorded]
fn cuMemsetD16Async(dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream);

/// Posted where the shim knows the memory, called where only the driver does.
#[by_hand(0x0408, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at(dstDevice, N, 4)]
#[recorded]
fn cuMemsetD32Async(dstDevice: CUdeviceptr, ui: u32, N: usize, hStream: CUstream);

/// Posted where the shim knows the memory, called where only the driver does.
#[by_hand(0x0409, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at_rows(dstDevice, dstPitch, Height, Width)]
#[recorded]
fn cuMemsetD2D8Async(dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: CUstream);

/// Posted where the shim knows the memory, called where only the driver does.
#[by_hand(0x040a, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at_rows(dstDevice, dstPitch, Height, Width, 2)]
#[recorded]
fn cuMemsetD2D16Async(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream);

/// Posted where the shim knows the memory, called where only the driver does.
#[by_hand(0x040b, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at_rows(dstDevice, dstPitch, Height, Width, 4)]
#[recorded]
fn cuMemsetD2D32Async(dstDevice: CUdeviceptr, dstPitch: usize, ui: u32, Width: usize, Height: usize, hStream: CUstream);

/// The asynchronous form on the default stream; waits if the memory is the host's, as CUDA does.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: u8, N: usize);

/// The asynchronous form on the default stream; waits if the memory is the host's, as CUDA does.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemsetD16_v2(dstDevice: CUdeviceptr, us: u16, N: usize);

/// The asynchronous form on the default stream; waits if the memory is the host's, as CUDA does.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemsetD32_v2(dstDevice: CUdeviceptr, ui: u32, N: usize);

/// The asynchronous form on the default stream; waits if the memory is the host's, as CUDA does.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemsetD2D8_v2(dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize);

/// The asynchronous form on the default stream; waits if the memory is the host's, as CUDA does.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemsetD2D16_v2(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize);

/// The asynchronous form on the default stream; waits if the memory is the host's, as CUDA does.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemsetD2D32_v2(dstDevice: CUdeviceptr, dstPitch: usize, ui: u32, Width: usize, Height: usize);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemsetD8(dstDevice: CUdeviceptr_v1, uc: u8, N: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemsetD16(dstDevice: CUdeviceptr_v1, us: u16, N: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemsetD32(dstDevice: CUdeviceptr_v1, ui: u32, N: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemsetD2D8(dstDevice: CUdeviceptr_v1, dstPitch: u32, uc: u8, Width: u32, Height: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemsetD2D16(dstDevice: CUdeviceptr_v1, dstPitch: u32, us: u16, Width: u32, Height: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemsetD2D32(dstDevice: CUdeviceptr_v1, dstPitch: u32, ui: u32, Width: u32, Height: u32);
