//! Tensor maps.

/// Encoded by the driver, once: the same arguments but for the address give the same map.
#[by_hand(0x0595)]
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
#[by_hand(0x0596)]
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
#[by_hand(0x0597)]
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
#[by_hand(0x0598)]
#[since(12000)]
fn cuTensorMapReplaceAddress(tensorMap: *mut CUtensorMap, globalAddress: *mut c_void);
