//! A driver library opened by path, the shim or NVIDIA's, with what every workload needs set up.

// UNSAFETY: calls the library's C functions.

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr::null_mut;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

const PTX: &str = concat!(include_str!("../ptx/bench.ptx"), "\0");

/// The call's name and code, unless it succeeded.
macro_rules! ok {
    ($cu:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments are valid for this call: out pointers to locals, handles made by the same library.
        let code = unsafe { $cu.$name($($argument),*) };
        if code != orion_cuda::sys::CUDA_SUCCESS {
            return Err(format!("{} answered {code}", stringify!($name)));
        }
    }};
}
pub(crate) use ok;

pub fn open(library: &Path) -> Result<&'static Driver, String> {
    // SAFETY: the library is a libcuda, made to be loaded.
    let opened = unsafe { libloading::Library::new(library) };
    let opened = opened.map_err(|e| format!("opening {} failed: {e}", library.display()))?;
    // Never closed: its threads run to the end of the process.
    let opened: &'static libloading::Library = Box::leak(Box::new(opened));
    let mut lookup = |name: &str| {
        // SAFETY: only the address is taken here.
        unsafe { opened.get::<*const c_void>(name.as_bytes()) }.map_or(std::ptr::null(), |symbol| *symbol)
    };
    // SAFETY: a libcuda exports functions with the signatures of cuda.h.
    Ok(Box::leak(Box::new(unsafe { Driver::load(&mut lookup) })))
}

#[derive(Clone, Copy)]
pub struct Gpu {
    pub cu: &'static Driver,
    pub device: CUdevice,
    pub context: CUcontext,
    module: CUmodule,
}

// SAFETY: CUDA's handles may be used from any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Initialises, makes the primary context of device 0 current and loads the kernels.
    pub fn new(cu: &'static Driver) -> Result<Gpu, String> {
        let (mut device, mut context, mut module) = (0, null_mut(), null_mut());
        ok!(cu, cuInit(0));
        ok!(cu, cuDeviceGet(&mut device, 0));
        ok!(cu, cuDevicePrimaryCtxRetain(&mut context, device));
        ok!(cu, cuCtxSetCurrent(context));
        ok!(cu, cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        Ok(Gpu { cu, device, context, module })
    }

    pub fn function(&self, name: &str) -> Result<CUfunction, String> {
        let (mut function, name) = (null_mut(), CString::new(name).expect("names hold no NUL"));
        ok!(self.cu, cuModuleGetFunction(&mut function, self.module, name.as_ptr()));
        Ok(function)
    }

    /// The same as a kernel of a library, which the runtime uses.
    pub fn kernel(&self, name: &str) -> Result<CUkernel, String> {
        let (mut library, mut kernel) = (null_mut(), null_mut());
        let name = CString::new(name).expect("names hold no NUL");
        let code = PTX.as_ptr().cast();
        let (options, values) = (null_mut(), null_mut());
        ok!(self.cu, cuLibraryLoadData(&mut library, code, null_mut(), null_mut(), 0, options, values, 0));
        ok!(self.cu, cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
        Ok(kernel)
    }

    pub fn alloc(&self, bytes: usize) -> Result<CUdeviceptr, String> {
        let mut address = 0;
        ok!(self.cu, cuMemAlloc_v2(&mut address, bytes));
        Ok(address)
    }

    pub fn free(&self, address: CUdeviceptr) -> Result<(), String> {
        ok!(self.cu, cuMemFree_v2(address));
        Ok(())
    }

    pub fn pinned(&self, bytes: usize) -> Result<*mut c_void, String> {
        let mut address = null_mut();
        ok!(self.cu, cuMemHostAlloc(&mut address, bytes, CU_MEMHOSTALLOC_PORTABLE));
        Ok(address)
    }

    pub fn stream(&self) -> Result<CUstream, String> {
        let mut stream = null_mut();
        ok!(self.cu, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        Ok(stream)
    }

    pub fn name(&self) -> Result<String, String> {
        let mut name = [0u8; 256];
        ok!(self.cu, cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, self.device));
        Ok(String::from_utf8_lossy(name.split(|b| *b == 0).next().unwrap_or_default()).into_owned())
    }

    /// A call that crosses to the worker and back, and that any driver answers quickly.
    pub fn ask(&self) -> Result<(), String> {
        let (mut free, mut total) = (0, 0);
        ok!(self.cu, cuMemGetInfo_v2(&mut free, &mut total));
        Ok(())
    }

    pub fn launch(&self, f: CUfunction, stream: CUstream, parameters: &mut [*mut c_void]) -> Result<(), String> {
        ok!(self.cu, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut()));
        Ok(())
    }

    pub fn synchronize(&self, stream: CUstream) -> Result<(), String> {
        ok!(self.cu, cuStreamSynchronize(stream));
        Ok(())
    }
}
