//! The functions that are answered.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

mod device;
mod events;
mod handles;
mod internal;
mod memory;
mod place;
mod processes;
mod system;

use std::ffi::{CStr, c_char, c_uint};

use orion_cuda::nvml_table::Device;

pub use self::device::*;
pub use self::events::*;
pub use self::handles::*;
pub use self::internal::*;
pub use self::memory::*;
pub use self::processes::*;
pub use self::system::*;
use crate::library::{self, devices};
use crate::types::*;

/// Does not ask a server, as NVIDIA's does not open a device: whether there is one shows with the first device.
pub unsafe fn nvmlInit_v2() -> nvmlReturn_t {
    library::initialize()
}

pub unsafe fn nvmlInit() -> nvmlReturn_t {
    library::initialize()
}

/// The flags say what may be missing, and whatever they say nothing is asked for here.
pub unsafe fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    library::initialize()
}

pub unsafe fn nvmlShutdown() -> nvmlReturn_t {
    library::shut_down()
}

pub unsafe fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text = match result {
        NVML_SUCCESS => c"Success",
        NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        5 => c"Already Initialized",
        NVML_ERROR_NOT_FOUND => c"Not Found",
        NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        8 => c"Insufficient External Power",
        NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        NVML_ERROR_TIMEOUT => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"Virtual GPU does not support ECC",
        NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        24 => c"Frequency not supported",
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

fn answer(outcome: Result<(), nvmlReturn_t>) -> nvmlReturn_t {
    outcome.err().unwrap_or(NVML_SUCCESS)
}

fn known(device: nvmlDevice_t) -> Result<(usize, &'static Device), nvmlReturn_t> {
    let index = device.addr().wrapping_sub(1);
    Ok((index, devices()?.get(index).ok_or(NVML_ERROR_INVALID_ARGUMENT)?))
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn until_zero(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

/// Cut short where it does not fit, and ended by zeros.
fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

/// # Safety
/// Null, or a C string.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// # Safety
/// Null, or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// Null, or valid for `length` bytes.
unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for it and its zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_nvml_does() {
        let uuid = std::array::from_fn(|i| (i * 17) as u8);
        assert_eq!(uuid_text(&uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn texts_fit_or_are_refused() {
        let mut room = [1; 4];
        // SAFETY: as long as it says.
        assert_eq!(unsafe { put_text(room.as_mut_ptr(), 4, "abcd") }, Err(NVML_ERROR_INSUFFICIENT_SIZE));
        // SAFETY: the same.
        assert_eq!(unsafe { put_text(room.as_mut_ptr(), 4, "abc") }, Ok(()));
        assert_eq!(room.map(|c| c as u8), *b"abc\0");
        assert_eq!(characters::<4>("abcdef").map(|c| c as u8), *b"abc\0");
    }
}
