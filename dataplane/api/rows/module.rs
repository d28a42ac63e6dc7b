//! Modules.

/// Reads the image here and loads it as `cuModuleLoadDataEx` does.
#[client]
#[since(2000)]
#[creates(module)]
fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char);

/// Reads the image here and loads it as `cuModuleLoadDataEx` does.
#[client]
#[since(2000)]
#[creates(module)]
fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);

/// Reads the image here and loads it as `cuModuleLoadDataEx` does.
#[client]
#[since(2000)]
#[creates(module)]
fn cuModuleLoadFatBinary(module: *mut CUmodule, fatCubin: *const c_void);

/// The reply brings the functions' names, attributes and parameter layouts.
#[by_hand(0x0200)]
#[since(2010)]
#[creates(module)]
#[charges(by_hand)]
fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
);

#[by_hand(0x0201)]
#[since(2000)]
#[destroys(hmod)]
fn cuModuleUnload(hmod: CUmodule);

#[by_hand(0x0202)]
#[since(2000)]
#[creates(hfunc, hmod)]
fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char);

#[client]
#[since(12040)]
fn cuModuleGetFunctionCount(count: *mut u32, mod_: CUmodule);

#[by_hand(0x0203)]
#[since(12040)]
#[finds(functions)]
fn cuModuleEnumerateFunctions(functions: *mut CUfunction, numFunctions: u32, mod_: CUmodule);

#[by_hand(0x0204)]
#[since(3020)]
fn cuModuleGetGlobal_v2(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char);

#[local]
#[since(11070)]
fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuModuleGetTexRef(pTexRef: *mut CUtexref, hmod: CUmodule, name: *const c_char);

/// Texture and surface references were removed in CUDA 12; texture and surface objects are answered.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(3000)]
fn cuModuleGetSurfRef(pSurfRef: *mut CUsurfref, hmod: CUmodule, name: *const c_char);

/// The interface of CUDA before 3.2, whose device addresses have 32 bits; no GPU address fits.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(2000)]
fn cuModuleGetGlobal(dptr: *mut CUdeviceptr_v1, bytes: *mut u32, hmod: CUmodule, name: *const c_char);
