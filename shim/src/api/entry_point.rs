//! `cuGetProcAddress`: how cudart finds everything. Answered before `cuInit` too.

// UNSAFETY: reads the application's strings and writes through its out pointers.

use std::ffi::{CStr, c_char, c_int, c_void};

use orion_cuda::sys::*;

use crate::api::generated::proc_address::Lookup;
use crate::start::attach::driver_version;

#[cfg(test)]
use tests::find;

/// As driver 580.159: a name that is not there is no error, and a version beyond the driver's is.
pub unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: c_int,
    flags: cuuint64_t,
    symbolStatus: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: pointers of the C API: null or valid.
    unsafe {
        answer(symbol, pfn, cudaVersion, flags, |found| {
            let (address, status) = match found {
                Lookup::Found(p, _) => (p.cast_mut(), CU_GET_PROC_ADDRESS_SUCCESS),
                Lookup::NotFound => (std::ptr::null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
                Lookup::VersionNotSufficient => (std::ptr::null_mut(), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
            };
            // SAFETY: `answer` has checked `pfn`.
            pfn.write(address);
            if !symbolStatus.is_null() {
                // SAFETY: not null; valid for a write by the C API's contract.
                symbolStatus.write(status);
            }
            CUDA_SUCCESS
        })
    }
}

/// The ABI before CUDA 12: what is missing is an error, and the pointer stays as it was.
pub unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: c_int,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: pointers of the C API: null or valid.
    unsafe {
        answer(symbol, pfn, cudaVersion, flags, |found| {
            let Lookup::Found(address, _) = found else { return CUDA_ERROR_NOT_FOUND };
            // SAFETY: `answer` has checked `pfn`.
            pfn.write(address.cast_mut());
            CUDA_SUCCESS
        })
    }
}

/// # Safety
/// `symbol` must be null or a C string.
unsafe fn answer(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    reply: impl FnOnce(Lookup) -> CUresult,
) -> CUresult {
    if symbol.is_null() || pfn.is_null() || flags & !KNOWN_FLAGS != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // A negative version is read as unsigned by the driver's table: the newest.
    let version = if version < 0 { c_int::MAX } else { version };
    if version != c_int::MAX && version > driver_version() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null; a C string as the caller says.
    let name = unsafe { CStr::from_ptr(symbol) };
    let per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM as u64 != 0;
    reply(find(name, version.min(driver_version()), per_thread))
}

/// Both set is allowed, and means per thread.
const KNOWN_FLAGS: u64 = (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) as u64;

/// Functions for which the workers' drivers are too old are not there.
#[cfg(not(test))]
pub fn find(name: &CStr, version: c_int, per_thread: bool) -> Lookup {
    let Ok(name) = name.to_str() else { return Lookup::NotFound };
    match crate::api::generated::proc_address::lookup(name, version, per_thread) {
        Lookup::Found(_, op) if is_missing(op) => Lookup::NotFound,
        found => found,
    }
}

/// From the driver of any node that has vGPUs of the program.
#[cfg(not(test))]
fn is_missing(op: u16) -> bool {
    let mut sessions = crate::state::process::state().attachment.all();
    crate::session::attached::session().is_ok() && sessions.any(|s| s.welcome.missing.contains(&op))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::api::generated::proc_address::Lookup;
    use crate::state::device::fixture::initialise;

    /// Names of a driver that has two functions.
    pub fn find(name: &CStr, version: c_int, per_thread: bool) -> Lookup {
        assert!(version <= 13_000);
        match (name.to_str(), per_thread) {
            (Ok("cuInit"), _) if version >= 2000 => Lookup::Found(std::ptr::without_provenance(0x1000), 0),
            (Ok("cuLaunchKernelEx"), false) if version >= 11060 => {
                Lookup::Found(std::ptr::without_provenance(0x2000), 0)
            }
            (Ok("cuLaunchKernelEx"), true) if version >= 11060 => {
                Lookup::Found(std::ptr::without_provenance(0x2001), 0)
            }
            (Ok("cuInit" | "cuLaunchKernelEx"), _) => Lookup::VersionNotSufficient,
            _ => Lookup::NotFound,
        }
    }

    const KEPT: usize = 5;

    fn v2(name: &CStr, version: c_int, flags: u64) -> (CUresult, usize, u32) {
        let (mut p, mut status) = (std::ptr::without_provenance_mut(KEPT), 77);
        // SAFETY: a C string and valid places.
        let code = unsafe { cuGetProcAddress_v2(name.as_ptr(), &mut p, version, flags, &mut status) };
        (code, p.addr(), status)
    }

    fn v1(name: &CStr, version: c_int, flags: u64) -> (CUresult, usize) {
        let mut p = std::ptr::without_provenance_mut(KEPT);
        // SAFETY: a C string and a valid place.
        (unsafe { cuGetProcAddress(name.as_ptr(), &mut p, version, flags) }, p.addr())
    }

    #[test]
    fn answers_of_the_second_version() {
        initialise();
        for version in [2000, 12999, 13000, -1, c_int::MIN + 1] {
            assert_eq!(v2(c"cuInit", version, 0), (CUDA_SUCCESS, 0x1000, 0));
        }
        for version in [0, 1000, 1999] {
            assert_eq!(v2(c"cuInit", version, 0), (CUDA_SUCCESS, 0, 2));
        }
        for name in [c"", c"cuNope", c"cuInit_v2"] {
            assert_eq!(v2(name, 0, 0), (CUDA_SUCCESS, 0, 1));
        }
        for version in [13001, 13010, 14000, 99000] {
            assert_eq!(v2(c"cuInit", version, 0), (CUDA_ERROR_INVALID_VALUE, KEPT, 77));
        }
    }

    #[test]
    fn flags_choose_the_default_stream() {
        initialise();
        for (flags, address) in [(0, 0x2000), (1, 0x2000), (2, 0x2001), (3, 0x2001)] {
            assert_eq!(v2(c"cuLaunchKernelEx", 13000, flags), (CUDA_SUCCESS, address, 0));
            assert_eq!(v1(c"cuLaunchKernelEx", 13000, flags), (CUDA_SUCCESS, address));
        }
        for flags in [4, 8, 1 << 40] {
            assert_eq!(v2(c"cuNope", 13000, flags), (CUDA_ERROR_INVALID_VALUE, KEPT, 77));
            assert_eq!(v1(c"cuInit", 13000, flags), (CUDA_ERROR_INVALID_VALUE, KEPT));
        }
    }

    #[test]
    fn the_first_version_fails_for_what_is_missing() {
        initialise();
        for (name, version) in [(c"", 13000), (c"cuNope", 13000), (c"cuLaunchKernelEx", 11000)] {
            assert_eq!(v1(name, version, 0), (CUDA_ERROR_NOT_FOUND, KEPT));
        }
    }

    #[test]
    fn null_arguments() {
        initialise();
        let mut p = std::ptr::null_mut();
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(cuGetProcAddress_v2(std::ptr::null(), &mut p, 13000, 0, &mut 0), CUDA_ERROR_INVALID_VALUE);
            let no_place = std::ptr::null_mut();
            assert_eq!(cuGetProcAddress_v2(c"cuInit".as_ptr(), no_place, 13000, 0, &mut 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut p, 13000, 0, std::ptr::null_mut()), CUDA_SUCCESS);
            assert_eq!(p.addr(), 0x1000);
        }
    }
}
