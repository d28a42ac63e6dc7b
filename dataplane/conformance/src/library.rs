//! A driver library by its path, for the programs that ask any of them.

// UNSAFETY: opens a library and calls its functions by cuda.h's signatures.

use std::ffi::{CStr, CString, c_void};

use orion_cuda::driver::Driver;
use orion_cuda::sys::CUDA_SUCCESS;

/// Opens and initialises it.
pub fn open(path: &str) -> Result<&'static Driver, String> {
    let name = CString::new(path).map_err(|_| format!("the library's path holds a NUL: {path:?}"))?;
    // SAFETY: a NUL-terminated path; the library's initialisers are the library's own affair.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: dlopen failed in this thread, so dlerror is a NUL-terminated string.
        return Err(format!("cannot open {path}: {}", unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy()));
    }
    let mut lookup = |name: &str| {
        let name = CString::new(name).expect("symbol names hold no NUL");
        // SAFETY: the handle stays open and the name is NUL-terminated.
        unsafe { libc::dlsym(handle, name.as_ptr()) }.cast_const().cast::<c_void>()
    };
    // SAFETY: what the library exports under a name of cuda.h's has its signature.
    let driver: &'static Driver = Box::leak(Box::new(unsafe { Driver::load(&mut lookup) }));
    // SAFETY: no pointers.
    match unsafe { driver.cuInit(0) } {
        CUDA_SUCCESS => Ok(driver),
        code => Err(format!("cuInit answered {code}")),
    }
}
