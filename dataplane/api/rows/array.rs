//! Arrays.

#[by_hand(0x0580, client)]
#[since(3020)]
#[creates(pHandle)]
#[charges(array)]
fn cuArrayCreate_v2(pHandle: Out<CUarray>, pAllocateArray: In<CUDA_ARRAY_DESCRIPTOR>);

#[by_hand(0x0581, client)]
#[since(3020)]
#[creates(pHandle)]
#[charges(array)]
fn cuArray3DCreate_v2(pHandle: Out<CUarray>, pAllocateArray: In<CUDA_ARRAY3D_DESCRIPTOR>);

#[by_hand(0x0582, client)]
#[since(5000)]
#[creates(pHandle)]
#[charges(mipmapped_array)]
fn cuMipmappedArrayCreate(
    pHandle: Out<CUmipmappedArray>,
    pMipmappedArrayDesc: In<CUDA_ARRAY3D_DESCRIPTOR>,
    numMipmapLevels: u32,
);

/// Waits for the device.
#[by_hand(0x0583)]
#[since(2000)]
#[destroys(hArray)]
fn cuArrayDestroy(hArray: CUarray);

/// Waits for the device.
#[by_hand(0x0584)]
#[since(5000)]
#[destroys(hMipmappedArray)]
fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray);

/// Remembered here, but for levels and planes of other arrays.
#[by_hand(0x0585, client)]
#[since(3020)]
fn cuArrayGetDescriptor_v2(pArrayDescriptor: Out<CUDA_ARRAY_DESCRIPTOR>, hArray: CUarray);

/// Remembered here, but for levels and planes of other arrays.
#[by_hand(0x0586, client)]
#[since(3020)]
fn cuArray3DGetDescriptor_v2(pArrayDescriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>, hArray: CUarray);

#[call(0x0587)]
#[since(11010)]
fn cuArrayGetSparseProperties(sparseProperties: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUarray);

#[call(0x0588)]
#[since(11010)]
fn cuMipmappedArrayGetSparseProperties(sparseProperties: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, mipmap: CUmipmappedArray);

#[call(0x0589)]
#[since(11060)]
fn cuArrayGetMemoryRequirements(
    memoryRequirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    array: CUarray,
    device: CUdevice,
);

#[call(0x058a)]
#[since(11060)]
fn cuMipmappedArrayGetMemoryRequirements(
    memoryRequirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    mipmap: CUmipmappedArray,
    device: CUdevice,
);

#[call(0x058b)]
#[since(11020)]
#[creates(pPlaneArray, hArray)]
fn cuArrayGetPlane(pPlaneArray: Out<CUarray>, hArray: CUarray, planeIdx: u32);

/// The same handle for the same level.
#[by_hand(0x058c, client)]
#[since(5000)]
#[creates(pLevelArray, hMipmappedArray)]
fn cuMipmappedArrayGetLevel(pLevelArray: Out<CUarray>, hMipmappedArray: CUmipmappedArray, level: u32);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuArrayCreate(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuArrayGetDescriptor(pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, hArray: CUarray);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuArray3DCreate(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR_v1);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuArray3DGetDescriptor(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, hArray: CUarray);
