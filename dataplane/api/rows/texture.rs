//! Textures and surfaces.

/// The object is the driver's own number: kernels receive it. Arrays in the description are the session's handles.
#[by_hand(0x058d)]
#[since(5000)]
#[creates(pTexObject)]
fn cuTexObjectCreate(
    pTexObject: *mut CUtexObject,
    pResDesc: *const CUDA_RESOURCE_DESC,
    pTexDesc: *const CUDA_TEXTURE_DESC,
    pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
);

/// The object is the driver's own number: kernels receive it. Arrays in the description are the session's handles.
#[by_hand(0x058e)]
#[since(5000)]
#[creates(pSurfObject)]
fn cuSurfObjectCreate(pSurfObject: *mut CUsurfObject, pResDesc: *const CUDA_RESOURCE_DESC);

#[by_hand(0x058f, client)]
#[since(5000)]
#[destroys(texObject)]
fn cuTexObjectDestroy(texObject: CUtexObject);

#[by_hand(0x0590, client)]
#[since(5000)]
#[destroys(surfObject)]
fn cuSurfObjectDestroy(surfObject: CUsurfObject);

/// Remembered here.
#[client]
#[since(5000)]
fn cuTexObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, texObject: CUtexObject);

/// Remembered here.
#[client]
#[since(5000)]
fn cuSurfObjectGetResourceDesc(pResDesc: *mut CUDA_RESOURCE_DESC, surfObject: CUsurfObject);

/// Remembered here.
#[client]
#[since(5000)]
fn cuTexObjectGetTextureDesc(pTexDesc: *mut CUDA_TEXTURE_DESC, texObject: CUtexObject);

/// Remembered here.
#[client]
#[since(5000)]
fn cuTexObjectGetResourceViewDesc(pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC, texObject: CUtexObject);

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
