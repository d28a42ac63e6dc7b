//! What a caller's pointers lead to, and the texts that NVML has.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{CStr, c_char, c_uint};

use orion_cuda::nvml_table::Device;

use crate::library::devices;
use crate::types::*;

pub fn answer(outcome: Result<(), nvmlReturn_t>) -> nvmlReturn_t {
    outcome.err().unwrap_or(NVML_SUCCESS)
}

pub fn known(device: nvmlDevice_t) -> Result<(usize, &'static Device), nvmlReturn_t> {
    let index = device.addr().wrapping_sub(1);
    Ok((index, devices()?.get(index).ok_or(NVML_ERROR_INVALID_ARGUMENT)?))
}

pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub fn until_zero(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

/// Cut short where it does not fit, and ended by zeros.
pub fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

/// # Safety
/// Null, or a C string.
pub unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// # Safety
/// Null, or valid for a write.
pub unsafe fn put<T>(to: *mut T, value: T) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// Null, or valid for `length` bytes.
pub unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), nvmlReturn_t> {
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

/// `count` says for how many there is room, and how many there are.
///
/// # Safety
/// `count` null or valid, and `to` valid for as many as it says.
pub unsafe fn put_all<'a, F, T: From<&'a F>>(all: &'a [F], count: *mut c_uint, to: *mut T) -> Result<(), nvmlReturn_t> {
    if count.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null.
    let room = unsafe { count.replace(all.len() as c_uint) } as usize;
    if room < all.len() {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    if to.is_null() && !all.is_empty() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    for (i, one) in all.iter().enumerate() {
        // SAFETY: there is room for it.
        unsafe { to.add(i).write(one.into()) };
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
