//! Memory and semaphores of other interfaces.

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
