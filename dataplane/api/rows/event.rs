//! Events, and external synchronisation.

/// Not awaited: the shim chooses the handle.
#[by_hand(0x0680, event, client)]
#[since(2000)]
#[creates(phEvent)]
fn cuEventCreate(phEvent: Out<CUevent>, Flags: u32);

#[by_hand(0x0681, event, client)]
#[since(4000)]
#[destroys(hEvent)]
fn cuEventDestroy_v2(hEvent: CUevent);

#[alias(cuEventDestroy_v2)]
#[since(2000)]
fn cuEventDestroy(hEvent: CUevent);

#[by_hand(0x0682, event, client)]
#[since(2000)]
#[per_thread(ptsz)]
fn cuEventRecord(hEvent: CUevent, hStream: CUstream);

#[by_hand(0x0683, event, client)]
#[since(11010)]
#[per_thread(ptsz)]
fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: u32);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0684, sync)]
#[since(2000)]
fn cuEventQuery(hEvent: CUevent);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0685, sync)]
#[since(2000)]
fn cuEventSynchronize(hEvent: CUevent);

#[call(0x0686)]
#[since(12080)]
fn cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent);

#[call(0x0687)]
#[since(2000)]
fn cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
fn cuImportExternalMemory(extMem_out: *mut CUexternalMemory, memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
fn cuExternalMemoryGetMappedBuffer(
    devPtr: *mut CUdeviceptr,
    extMem: CUexternalMemory,
    bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
fn cuExternalMemoryGetMappedMipmappedArray(
    mipmap: *mut CUmipmappedArray,
    extMem: CUexternalMemory,
    mipmapDesc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
fn cuDestroyExternalMemory(extMem: CUexternalMemory);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
fn cuImportExternalSemaphore(
    extSem_out: *mut CUexternalSemaphore,
    semHandleDesc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
fn cuDestroyExternalSemaphore(extSem: CUexternalSemaphore);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
#[per_thread(ptsz)]
fn cuSignalExternalSemaphoresAsync(
    extSemArray: *const CUexternalSemaphore,
    paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    numExtSems: u32,
    stream: CUstream,
);

/// External memory and semaphores are objects of this host, and the GPU is in another.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(10000)]
#[per_thread(ptsz)]
fn cuWaitExternalSemaphoresAsync(
    extSemArray: *const CUexternalSemaphore,
    paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    numExtSems: u32,
    stream: CUstream,
);
