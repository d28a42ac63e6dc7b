//! Module images: how many bytes lie behind a pointer that comes without a length.
//!
//! Layouts as NVIDIA's public `fatbinary_section.h` and the ELF specification give them.

// UNSAFETY: walks an image in the application's memory, within the bounds that the image itself declares; CUDA
// asks the same trust of its caller.

use std::ffi::c_void;

use orion_cuda::sys::*;

const WRAPPER_MAGIC: u32 = 0x4662_43b1;
const FATBIN_MAGIC: u32 = 0xba55_ed50;
const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
/// No image is larger; a header that says so is not one.
const IMAGE_BYTES_MAX: u64 = 4 << 30;

/// The bytes of an image: of what a wrapper points to, never the wrapper itself.
///
/// # Safety
/// `image` points to a fat binary wrapper, a fat binary, a cubin or NUL-terminated PTX.
pub unsafe fn bytes(image: *const c_void) -> Result<&'static [u8], CUresult> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut at = image.cast::<u8>();
    // SAFETY: by the contract at least four bytes of one of the formats are there (PTX is longer than that).
    let mut magic = unsafe { read::<u32>(at, 0) };
    if magic == WRAPPER_MAGIC {
        // SAFETY: a wrapper is magic, version and the pointer to the data.
        at = unsafe { read::<u64>(at, 8) } as *const u8;
        if at.is_null() {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        // SAFETY: the wrapper's data starts with a header.
        magic = unsafe { read::<u32>(at, 0) };
    }
    // SAFETY: the magic says which header follows.
    let len = unsafe {
        match magic {
            FATBIN_MAGIC => read::<u16>(at, 6) as u64 + read::<u64>(at, 8),
            ELF_MAGIC => elf_bytes(at),
            _ => text_bytes(at)?,
        }
    };
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

/// End of the last section, segment or header table.
///
/// # Safety
/// A 64-bit ELF file starts at `at`.
unsafe fn elf_bytes(at: *const u8) -> u64 {
    const NO_BITS: u32 = 8;
    /// The header is there even if it says that nothing follows it.
    const HEADER_BYTES: u64 = 64;
    // SAFETY: offsets of the ELF-64 header and of entries whose number and size it gives.
    unsafe {
        let (segments, sections) = (read::<u64>(at, 32), read::<u64>(at, 40));
        let (segment_bytes, segment_count) = (read::<u16>(at, 54) as u64, read::<u16>(at, 56) as u64);
        let (section_bytes, section_count) = (read::<u16>(at, 58) as u64, read::<u16>(at, 60) as u64);
        let mut end = (segments.saturating_add(segment_bytes * segment_count))
            .max(sections.saturating_add(section_bytes * section_count))
            .max(HEADER_BYTES);
        if end > IMAGE_BYTES_MAX {
            return end;
        }
        for i in 0..section_count {
            let s = sections + i * section_bytes;
            if read::<u32>(at, s + 4) != NO_BITS {
                end = end.max(read::<u64>(at, s + 24).saturating_add(read::<u64>(at, s + 32)));
            }
        }
        for i in 0..segment_count {
            let p = segments + i * segment_bytes;
            end = end.max(read::<u64>(at, p + 8).saturating_add(read::<u64>(at, p + 32)));
        }
        end
    }
}

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
        unsafe { bytes(image.as_ptr().cast()) }.map(<[u8]>::len)
    }

    #[test]
    fn ptx_ends_with_its_nul() {
        assert_eq!(len(b".version 8.0\n\0"), Ok(14));
    }

    #[test]
    fn a_fat_binary_says_its_own_length() {
        let mut f = Vec::new();
        f.extend(FATBIN_MAGIC.to_le_bytes());
        f.extend([1, 0, 16, 0]);
        f.extend(40u64.to_le_bytes());
        f.extend([0; 40]);
        assert_eq!(len(&f), Ok(56));
        let mut wrapper = Vec::new();
        wrapper.extend(WRAPPER_MAGIC.to_le_bytes());
        wrapper.extend(1u32.to_le_bytes());
        wrapper.extend((f.as_ptr() as u64).to_le_bytes());
        wrapper.extend([0; 8]);
        assert_eq!(len(&wrapper), Ok(56));
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
