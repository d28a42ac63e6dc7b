//! Arrays, textures, surfaces, tensor maps.

#[by_hand(0x0580, array, client)]
#[since(3020)]
#[creates(pHandle)]
fn cuArrayCreate_v2(pHandle: Out<CUarray>, pAllocateArray: In<CUDA_ARRAY_DESCRIPTOR>);

#[by_hand(0x0581, array, client)]
#[since(3020)]
#[creates(pHandle)]
fn cuArray3DCreate_v2(pHandle: Out<CUarray>, pAllocateArray: In<CUDA_ARRAY3D_DESCRIPTOR>);

#[by_hand(0x0582, array, client)]
#[since(5000)]
#[creates(pHandle)]
fn cuMipmappedArrayCreate(
    pHandle: Out<CUmipmappedArray>,
    pMipmappedArrayDesc: In<CUDA_ARRAY3D_DESCRIPTOR>,
    numMipmapLevels: u32,
);

#[by_hand(0x0583, array, client)]
#[since(2000)]
#[destroys(hArray)]
fn cuArrayDestroy(hArray: CUarray);

#[by_hand(0x0584, array, client)]
#[since(5000)]
#[destroys(hMipmappedArray)]
fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray);

/// Remembered here, but for levels and planes of other arrays.
#[by_hand(0x0585, array, client)]
#[since(3020)]
fn cuArrayGetDescriptor_v2(pArrayDescriptor: Out<CUDA_ARRAY_DESCRIPTOR>, hArray: CUarray);

/// Remembered here, but for levels and planes of other arrays.
#[by_hand(0x0586, array, client)]
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
#[by_hand(0x058c, array, client)]
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

/// The object is the driver's own number: kernels receive it. Arrays in the description are the session's handles.
#[by_hand(0x058d, array)]
#[since(5000)]
#[creates(pTexObject)]
fn cuTexObjectCreate(
    pTexObject: *mut CUtexObject,
    pResDesc: *const CUDA_RESOURCE_DESC,
    pTexDesc: *const CUDA_TEXTURE_DESC,
    pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
);

/// The object is the driver's own number: kernels receive it. Arrays in the description are the session's handles.
#[by_hand(0x058e, array)]
#[since(5000)]
#[creates(pSurfObject)]
fn cuSurfObjectCreate(pSurfObject: *mut CUsurfObject, pResDesc: *const CUDA_RESOURCE_DESC);

#[by_hand(0x058f, array, client)]
#[since(5000)]
#[destroys(texObject)]
fn cuTexObjectDestroy(texObject: CUtexObject);

#[by_hand(0x0590, array, client)]
#[since(5000)]
#[destroys(surfObject)]
fn cuSurfObjectDestroy(surfObject: CUsurfObject);

/// Remembered here.
#[client(array)]
#[since(5000)]
fn cuTexObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, texObject: CUtexObject);

/// Remembered here.
#[client(array)]
#[since(5000)]
fn cuSurfObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, surfObject: CUsurfObject);

/// Remembered here.
#[client(array)]
#[since(5000)]
fn cuTexObjectGetTextureDesc(pTexDesc: *mut CUDA_TEXTURE_DESC, texObject: CUtexObject);

/// Remembered here.
#[client(array)]
#[since(5000)]
fn cuTexObjectGetResourceViewDesc(pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC, texObject: CUtexObject);

/// Encoded by the driver, once: the same arguments but for the address give the same map.
#[by_hand(0x0595, tensor_map)]
#[since(12000)]
fn cuTensorMapEncodeTiled(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: u32,
    globalAddress: *mut c_void,
    globalDim: *const u64,
    globalStrides: *const u64,
    boxDim: *const u32,
    elementStrides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
);

/// Encoded by the driver, once: the same arguments but for the address give the same map.
#[by_hand(0x0596, tensor_map)]
#[since(12000)]
fn cuTensorMapEncodeIm2col(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: u32,
    globalAddress: *mut c_void,
    globalDim: *const u64,
    globalStrides: *const u64,
    pixelBoxLowerCorner: *const i32,
    pixelBoxUpperCorner: *const i32,
    channelsPerPixel: u32,
    pixelsPerColumn: u32,
    elementStrides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
);

/// Encoded by the driver, once: the same arguments but for the address give the same map.
#[by_hand(0x0597, tensor_map)]
#[since(12080)]
fn cuTensorMapEncodeIm2colWide(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: u32,
    globalAddress: *mut c_void,
    globalDim: *const u64,
    globalStrides: *const u64,
    pixelBoxLowerCornerWidth: i32,
    pixelBoxUpperCornerWidth: i32,
    channelsPerPixel: u32,
    pixelsPerColumn: u32,
    elementStrides: *const u32,
    interleave: CUtensorMapInterleave,
    mode: CUtensorMapIm2ColWideMode,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
);

/// The address is the first word of a map that was encoded here.
#[by_hand(0x0598, tensor_map)]
#[since(12000)]
fn cuTensorMapReplaceAddress(tensorMap: *mut CUtensorMap, globalAddress: *mut c_void);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefSetArray(hTexRef: CUtexref, hArray: CUarray, Flags: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefSetMipmappedArray(hTexRef: CUtexref, hMipmappedArray: CUmipmappedArray, Flags: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
fn cuTexRefSetAddress_v2(ByteOffset: *mut usize, hTexRef: CUtexref, dptr: CUdeviceptr, bytes: usize);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(4010)]
fn cuTexRefSetAddress2D_v3(hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefSetFormat(hTexRef: CUtexref, fmt: CUarray_format, NumPackedComponents: i32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefSetAddressMode(hTexRef: CUtexref, dim: i32, am: CUaddress_mode);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefSetFilterMode(hTexRef: CUtexref, fm: CUfilter_mode);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefSetMipmapFilterMode(hTexRef: CUtexref, fm: CUfilter_mode);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefSetMipmapLevelBias(hTexRef: CUtexref, bias: f32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefSetMipmapLevelClamp(hTexRef: CUtexref, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefSetMaxAnisotropy(hTexRef: CUtexref, maxAniso: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(8000)]
fn cuTexRefSetBorderColor(hTexRef: CUtexref, pBorderColor: *mut f32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefSetFlags(hTexRef: CUtexref, Flags: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
fn cuTexRefGetAddress_v2(pdptr: *mut CUdeviceptr, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefGetArray(phArray: *mut CUarray, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefGetMipmappedArray(phMipmappedArray: *mut CUmipmappedArray, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefGetAddressMode(pam: *mut CUaddress_mode, hTexRef: CUtexref, dim: i32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefGetFilterMode(pfm: *mut CUfilter_mode, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefGetFormat(pFormat: *mut CUarray_format, pNumChannels: *mut i32, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefGetMipmapFilterMode(pfm: *mut CUfilter_mode, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefGetMipmapLevelBias(pbias: *mut f32, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefGetMipmapLevelClamp(pminMipmapLevelClamp: *mut f32, pmaxMipmapLevelClamp: *mut f32, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(5000)]
fn cuTexRefGetMaxAnisotropy(pmaxAniso: *mut i32, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(8000)]
fn cuTexRefGetBorderColor(pBorderColor: *mut f32, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefGetFlags(pFlags: *mut u32, hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefCreate(pTexRef: *mut CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefDestroy(hTexRef: CUtexref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuSurfRefSetArray(hSurfRef: CUsurfref, hArray: CUarray, Flags: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuSurfRefGetArray(phArray: *mut CUarray, hSurfRef: CUsurfref);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3020)]
fn cuTexRefSetAddress2D_v2(hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefSetAddress(ByteOffset: *mut u32, hTexRef: CUtexref, dptr: CUdeviceptr_v1, bytes: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2020)]
fn cuTexRefSetAddress2D(hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR_v1, dptr: CUdeviceptr_v1, Pitch: u32);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuTexRefGetAddress(pdptr: *mut CUdeviceptr_v1, hTexRef: CUtexref);
