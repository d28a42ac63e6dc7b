//! Interop with graphics and video.

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
#[per_thread(ptsz)]
fn cuGraphicsMapResources(count: u32, resources: *mut CUgraphicsResource, hStream: CUstream);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
#[per_thread(ptsz)]
fn cuGraphicsUnmapResources(count: u32, resources: *mut CUgraphicsResource, hStream: CUstream);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuGraphicsUnregisterResource(resource: CUgraphicsResource);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuGraphicsSubResourceGetMappedArray(
    pArray: *mut CUarray,
    resource: CUgraphicsResource,
    arrayIndex: u32,
    mipLevel: u32,
);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuGraphicsResourceGetMappedMipmappedArray(pMipmappedArray: *mut CUmipmappedArray, resource: CUgraphicsResource);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
fn cuGraphicsResourceGetMappedPointer_v2(pDevPtr: *mut CUdeviceptr, pSize: *mut usize, resource: CUgraphicsResource);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuGraphicsResourceGetMappedPointer(pDevPtr: *mut CUdeviceptr_v1, pSize: *mut u32, resource: CUgraphicsResource);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(6050)]
fn cuGraphicsResourceSetMapFlags_v2(resource: CUgraphicsResource, flags: u32);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuGraphicsResourceSetMapFlags(resource: CUgraphicsResource, flags: u32);

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
fn cuEGLApiInit();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamConsumerAcquireFrame();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamConsumerConnect();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(8000)]
fn cuEGLStreamConsumerConnectWithFlags();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamConsumerDisconnect();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamConsumerReleaseFrame();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamProducerConnect();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamProducerDisconnect();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamProducerPresentFrame();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuEGLStreamProducerReturnFrame();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuGLCtxCreate();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
fn cuGLCtxCreate_v2();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(4010)]
fn cuGLGetDevices();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(6050)]
fn cuGLGetDevices_v2();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuGLInit();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuGLMapBufferObject();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2030)]
fn cuGLMapBufferObjectAsync();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
#[per_thread(ptsz)]
fn cuGLMapBufferObjectAsync_v2();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
#[per_thread(ptds)]
fn cuGLMapBufferObject_v2();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuGLRegisterBufferObject();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2030)]
fn cuGLSetBufferObjectMapFlags();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuGLUnmapBufferObject();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2030)]
fn cuGLUnmapBufferObjectAsync();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuGLUnregisterBufferObject();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuGraphicsEGLRegisterImage();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuGraphicsGLRegisterBuffer();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuGraphicsGLRegisterImage();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(7000)]
fn cuGraphicsResourceGetMappedEglFrame();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3010)]
fn cuGraphicsVDPAURegisterOutputSurface();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3010)]
fn cuGraphicsVDPAURegisterVideoSurface();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3010)]
fn cuVDPAUCtxCreate();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
fn cuVDPAUCtxCreate_v2();

/// Interop shares memory with a display driver on the same host; a pooled GPU has none to share with.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3010)]
fn cuVDPAUGetDevice();
