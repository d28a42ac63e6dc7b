//! Module images: how many bytes lie behind a pointer that comes without a length.

// UNSAFETY: walks an image in the application's memory, within the bounds that the image itself declares; CUDA
// asks the same trust of its caller.

use std::borrow::Cow;
use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::bundle;
use orion_wire::image::{ELF_MAGIC, FATBIN_MAGIC, IMAGE_BYTES_MAX, elf_bytes, fat_binary_bytes};

pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// The bytes of an image: of what a wrapper points to, never the wrapper itself. A wrapper with a list of fat binaries,
/// which programs of separate compilation have, becomes a bundle: the driver links the list if the wrapper's own fat
/// binary has no machine code for the device.
///
/// # Safety
/// `image` points to a fat binary wrapper, a fat binary, a cubin or NUL-terminated PTX.
pub unsafe fn bytes(image: *const c_void) -> Result<Cow<'static, [u8]>, CUresult> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let image = image.cast::<u8>();
    // SAFETY: by the contract at least four bytes of one of the formats are there (PTX is longer than that), and a
    // wrapper is magic, version, the pointer to the data and one more.
    unsafe {
        if read::<u32>(image, 0) != WRAPPER_MAGIC {
            return part(image).map(Cow::Borrowed);
        }
        let data: *const u8 = read(image, 8);
        if data.is_null() {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let mut parts = vec![part(data)?];
        if read::<u64>(image, 0) == bundle::FIRST_WORD {
            list(read(image, 16), &mut parts)?;
        }
        if let [data] = parts[..] {
            return Ok(Cow::Borrowed(data));
        }
        if parts.iter().map(|part| part.len() as u64).sum::<u64>() > IMAGE_BYTES_MAX {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        Ok(Cow::Owned(bundle::encode(&parts)))
    }
}

/// Appends the fat binaries of a wrapper's list.
///
/// # Safety
/// `list` is null or leads to pointers to fat binaries, the last of which is null.
unsafe fn list(list: *const u8, parts: &mut Vec<&'static [u8]>) -> Result<(), CUresult> {
    if list.is_null() {
        return Ok(());
    }
    for i in 0.. {
        // SAFETY: no null pointer has been met in the list.
        let next: *const u8 = unsafe { read(list, 8 * i) };
        if next.is_null() {
            break;
        }
        if i == bundle::LIST_MAX as u64 {
            crate::say!("an image that is linked from more than {i} fat binaries is not forwarded");
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: the caller's promise.
        parts.push(unsafe { part(next) }?);
    }
    Ok(())
}

/// # Safety
/// A fat binary, a cubin or NUL-terminated PTX starts at `at`, in memory that stays during the call.
unsafe fn part(at: *const u8) -> Result<&'static [u8], CUresult> {
    // SAFETY: each of them has four bytes, and the magic says which header follows. What a header leads to is there,
    // as far as the caller keeps its promise.
    let number = |offset, bytes| unsafe {
        Some(match bytes {
            2 => read::<u16>(at, offset).into(),
            4 => read::<u32>(at, offset).into(),
            _ => read::<u64>(at, offset),
        })
    };
    // SAFETY: as above.
    let len = match unsafe { read::<u32>(at, 0) } {
        LTO_IR_MAGIC => {
            let why = "LTO-IR does not say how long it is; link it into a cubin first (nvJitLink, cuLinkAddData)";
            crate::report::refuse::refused("cuModuleLoadData", why);
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        FATBIN_MAGIC => fat_binary_bytes(number),
        ELF_MAGIC => elf_bytes(number),
        // SAFETY: the caller's promise.
        _ => Some(unsafe { text_bytes(at) }?),
    };
    let len = len.unwrap_or(u64::MAX);
    if len > IMAGE_BYTES_MAX {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: that many bytes belong to the image; the application keeps it alive during the call.
    Ok(unsafe { std::slice::from_raw_parts(at, len as usize) })
}

/// # Safety
/// `size_of::<T>()` bytes at `at + offset` are readable.
unsafe fn read<T: Copy>(at: *const u8, offset: u64) -> T {
    // SAFETY: the caller's promise; images have no alignment.
    unsafe { at.add(offset as usize).cast::<T>().read_unaligned() }
}

/// What nvcc and NVRTC make with `-dlto`.
const LTO_IR_MAGIC: u32 = 0x7f4e_43ed;

/// Length of PTX with its NUL. Anything that does not begin like text is no image.
///
/// # Safety
/// A NUL-terminated string starts at `at`, if text does.
unsafe fn text_bytes(at: *const u8) -> Result<u64, CUresult> {
    // SAFETY: one byte is readable.
    let first = unsafe { at.read() };
    if !(first.is_ascii_graphic() || first.is_ascii_whitespace()) {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { libc::strlen(at.cast()) } as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(image: &[u8]) -> Result<usize, CUresult> {
        // SAFETY: each test image is well formed.
        unsafe { bytes(image.as_ptr().cast()) }.map(|bytes| bytes.len())
    }

    fn fat_binary(bytes: u64) -> Vec<u8> {
        let mut f = Vec::new();
        f.extend(FATBIN_MAGIC.to_le_bytes());
        f.extend([1, 0, 16, 0]);
        f.extend(bytes.to_le_bytes());
        f.resize(16 + bytes as usize, bytes as u8);
        f
    }

    fn wrapper(version: u32, data: &[u8], list: *const *const u8) -> Vec<u8> {
        let mut wrapper = Vec::new();
        wrapper.extend(WRAPPER_MAGIC.to_le_bytes());
        wrapper.extend(version.to_le_bytes());
        wrapper.extend((data.as_ptr() as u64).to_le_bytes());
        wrapper.extend((list as u64).to_le_bytes());
        wrapper
    }

    #[test]
    fn ptx_ends_with_its_nul() {
        assert_eq!(len(b".version 8.0\n\0"), Ok(14));
    }

    #[test]
    fn a_fat_binary_says_its_own_length() {
        let f = fat_binary(40);
        assert_eq!(len(&f), Ok(56));
        assert_eq!(len(&wrapper(1, &f, std::ptr::null())), Ok(56));
    }

    #[test]
    fn a_list_of_fat_binaries_comes_along() {
        let (data, first, second) = (fat_binary(0), fat_binary(40), fat_binary(24));
        let list = [first.as_ptr(), second.as_ptr(), std::ptr::null()];
        let image = wrapper(2, &data, list.as_ptr());
        // SAFETY: every pointer of the wrapper leads to a fat binary.
        let bundle = unsafe { bytes(image.as_ptr().cast()) }.expect("a good image");
        assert_eq!(*bundle, bundle::encode(&[&data, &first, &second]));
    }

    #[test]
    fn a_wrapper_without_a_list_is_its_data() {
        let (data, list) = (fat_binary(40), [std::ptr::null()]);
        assert_eq!(len(&wrapper(2, &data, std::ptr::null())), Ok(56));
        assert_eq!(len(&wrapper(2, &data, list.as_ptr())), Ok(56));
        // In version 1 the pointer is the name of a file.
        assert_eq!(len(&wrapper(1, &data, [data.as_ptr(), std::ptr::null()].as_ptr())), Ok(56));
    }

    #[test]
    fn a_list_that_is_too_long_is_refused() {
        let data = fat_binary(0);
        let mut list = vec![data.as_ptr(); bundle::LIST_MAX];
        list.push(std::ptr::null());
        assert!(len(&wrapper(2, &data, list.as_ptr())).is_ok());
        list.insert(0, data.as_ptr());
        assert_eq!(len(&wrapper(2, &data, list.as_ptr())), Err(CUDA_ERROR_NOT_SUPPORTED));
    }

    #[test]
    fn an_elf_that_declares_nothing_is_a_header() {
        let mut f = [0u8; 100];
        f[..4].copy_from_slice(b"\x7fELF");
        assert_eq!(len(&f), Ok(64));
    }

    #[test]
    fn binary_rubbish_is_no_image() {
        assert_eq!(len(&[1, 2, 3, 4, 0]), Err(CUDA_ERROR_INVALID_IMAGE));
    }
}
