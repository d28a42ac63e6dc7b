//! How long an image of code is, by what it says of itself.
//!
//! A client finds the end of an image behind a bare pointer by this, and a worker finds out by the same whether an
//! image fits into the bytes that came. So what an honest client sends is never refused.
//!
//! ```text
//! fat binary:  | magic u32 | version u16 | header u16 | bytes u64 | entries ... |
//! ELF:         header -> tables of segments and sections -> their contents
//! ```
//! Layouts as NVIDIA's public `fatbinary_section.h` and the ELF specification give them.

pub const FATBIN_MAGIC: u32 = 0xba55_ed50;
pub const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
/// No image is larger; one that says so is none.
pub const IMAGE_BYTES_MAX: u64 = 4 << 30;

/// Length of a fat binary. `read` answers the number of so many bytes at an offset, and nothing where there are none;
/// then nothing is answered here either.
pub fn fat_binary_bytes(read: impl Fn(u64, usize) -> Option<u64>) -> Option<u64> {
    Some(read(6, 2)?.saturating_add(read(8, 8)?))
}

/// End of the last section, segment or header table of a 64-bit ELF file, as [`fat_binary_bytes`] reads it. Beyond
/// [`IMAGE_BYTES_MAX`] nothing more is read.
pub fn elf_bytes(read: impl Fn(u64, usize) -> Option<u64>) -> Option<u64> {
    const NO_BITS: u64 = 8;
    /// The header is there even if it says that nothing follows it.
    const HEADER_BYTES: u64 = 64;
    let table = |place, entry, count| Some((read(place, 8)?, read(entry, 2)?, read(count, 2)?));
    let (segments, segment_bytes, segment_count) = table(32, 54, 56)?;
    let (sections, section_bytes, section_count) = table(40, 58, 60)?;
    let mut end = segments.saturating_add(segment_bytes * segment_count);
    end = end.max(sections.saturating_add(section_bytes * section_count)).max(HEADER_BYTES);
    if end > IMAGE_BYTES_MAX {
        return Some(end);
    }
    for s in (0..section_count).map(|i| sections + i * section_bytes) {
        if read(s + 4, 4)? != NO_BITS {
            end = end.max(read(s + 24, 8)?.saturating_add(read(s + 32, 8)?));
        }
    }
    for p in (0..segment_count).map(|i| segments + i * segment_bytes) {
        end = end.max(read(p + 8, 8)?.saturating_add(read(p + 32, 8)?));
    }
    Some(end)
}
