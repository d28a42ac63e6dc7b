//! Copies.

/// Pageable sources are captured before the call returns; the session's own host memory travels by reference.
#[client]
#[since(3020)]
#[per_thread(ptsz)]
fn cuMemcpyHtoDAsync_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream);

#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize);

/// Complete for the client only once the bytes are written here.
#[client]
#[since(3020)]
#[per_thread(ptsz)]
fn cuMemcpyDtoHAsync_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream);

#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize);

/// Either side may be the session's host memory.
#[by_hand(0x0400, client)]
#[since(3020)]
#[per_thread(ptsz)]
#[at(dstDevice, ByteCount)]
#[at(srcDevice, ByteCount)]
fn cuMemcpyDtoDAsync_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream);

#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize);

/// Which side is which is read from the map of addresses.
#[client]
#[since(4000)]
#[per_thread(ptds)]
fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize);

/// Which side is which is read from the map of addresses.
#[client]
#[since(4000)]
#[per_thread(ptsz)]
fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream);

#[client]
#[since(3020)]
#[per_thread(ptsz)]
fn cuMemcpy3DAsync_v2(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptsz)]
fn cuMemcpy2DAsync_v2(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream);

/// As `cuMemcpyPeerAsync`, and in order with all work of the three contexts.
#[by_hand(0x0401, client)]
#[since(4000)]
#[per_thread(ptds)]
#[at(dstDevice, ByteCount)]
#[at(srcDevice, ByteCount)]
fn cuMemcpyPeer(
    dstDevice: CUdeviceptr,
    dstContext: CUcontext,
    srcDevice: CUdeviceptr,
    srcContext: CUcontext,
    ByteCount: usize,
);

/// Not awaited where the client knows that the driver takes it.
#[by_hand(0x0402, client)]
#[since(4000)]
#[per_thread(ptsz)]
#[at(dstDevice, ByteCount)]
#[at(srcDevice, ByteCount)]
fn cuMemcpyPeerAsync(
    dstDevice: CUdeviceptr,
    dstContext: CUcontext,
    srcDevice: CUdeviceptr,
    srcContext: CUcontext,
    ByteCount: usize,
    hStream: CUstream,
);

#[client]
#[since(4000)]
#[per_thread(ptsz)]
fn cuMemcpy3DPeerAsync(pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream);

#[client]
#[since(4000)]
#[per_thread(ptds)]
fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_PEER);

/// Copy by copy.
#[client]
#[since(12080)]
#[per_thread(ptsz)]
fn cuMemcpyBatchAsync(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrsIdxs: *mut usize,
    numAttrs: usize,
    failIdx: *mut usize,
    hStream: CUstream,
);

/// Copy by copy.
#[client]
#[since(13000)]
#[per_thread(ptsz)]
fn cuMemcpyBatchAsync_v2(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrsIdxs: *mut usize,
    numAttrs: usize,
    hStream: CUstream,
);

/// Copy by copy.
#[client]
#[since(12080)]
#[per_thread(ptsz)]
fn cuMemcpy3DBatchAsync(
    numOps: usize,
    opList: *mut CUDA_MEMCPY3D_BATCH_OP,
    failIdx: *mut usize,
    flags: u64,
    hStream: CUstream,
);

/// Copy by copy.
#[client]
#[since(13000)]
#[per_thread(ptsz)]
fn cuMemcpy3DBatchAsync_v2(numOps: usize, opList: *mut CUDA_MEMCPY3D_BATCH_OP, flags: u64, hStream: CUstream);

#[call(0x0403)]
#[since(3020)]
#[per_thread(ptds)]
#[at(srcDevice, ByteCount)]
fn cuMemcpyDtoA_v2(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize);

#[call(0x0404)]
#[since(3020)]
#[per_thread(ptds)]
#[at(dstDevice, ByteCount)]
fn cuMemcpyAtoD_v2(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize);

#[call(0x0405)]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpyAtoA_v2(dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpyHtoA_v2(dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptsz)]
fn cuMemcpyHtoAAsync_v2(
    dstArray: CUarray,
    dstOffset: usize,
    srcHost: *const c_void,
    ByteCount: usize,
    hStream: CUstream,
);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptds)]
fn cuMemcpyAtoH_v2(dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize);

/// As `cuMemcpy3DAsync_v2`.
#[client]
#[since(3020)]
#[per_thread(ptsz)]
fn cuMemcpyAtoHAsync_v2(dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyHtoD(dstDevice: CUdeviceptr_v1, srcHost: *const c_void, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyDtoH(dstHost: *mut c_void, srcDevice: CUdeviceptr_v1, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyDtoD(dstDevice: CUdeviceptr_v1, srcDevice: CUdeviceptr_v1, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyDtoA(dstArray: CUarray, dstOffset: u32, srcDevice: CUdeviceptr_v1, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyAtoD(dstDevice: CUdeviceptr_v1, srcArray: CUarray, srcOffset: u32, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyHtoA(dstArray: CUarray, dstOffset: u32, srcHost: *const c_void, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyAtoH(dstHost: *mut c_void, srcArray: CUarray, srcOffset: u32, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyAtoA(dstArray: CUarray, dstOffset: u32, srcArray: CUarray, srcOffset: u32, ByteCount: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyHtoAAsync(dstArray: CUarray, dstOffset: u32, srcHost: *const c_void, ByteCount: u32, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyAtoHAsync(dstHost: *mut c_void, srcArray: CUarray, srcOffset: u32, ByteCount: u32, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpy2D(pCopy: *const CUDA_MEMCPY2D_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpy2DUnaligned(pCopy: *const CUDA_MEMCPY2D_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpy3D(pCopy: *const CUDA_MEMCPY3D_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyHtoDAsync(dstDevice: CUdeviceptr_v1, srcHost: *const c_void, ByteCount: u32, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpyDtoHAsync(dstHost: *mut c_void, srcDevice: CUdeviceptr_v1, ByteCount: u32, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuMemcpyDtoDAsync(dstDevice: CUdeviceptr_v1, srcDevice: CUdeviceptr_v1, ByteCount: u32, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpy2DAsync(pCopy: *const CUDA_MEMCPY2D_v1, hStream: CUstream);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuMemcpy3DAsync(pCopy: *const CUDA_MEMCPY3D_v1, hStream: CUstream);
