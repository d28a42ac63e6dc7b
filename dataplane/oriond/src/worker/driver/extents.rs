//! Whether everything that an image says of itself lies inside the bytes that there are. A driver is given a pointer
//! without a length, and believes what is there.
//!
//! The length is found by what the client finds it by ([`orion_wire::image`]), so what an honest client sends is never
//! refused. Text ends with a NUL, which `Image` puts there.
//!
//! Whether names, symbols and relocations make sense, and what is packed in an entry, is the driver's to find out:
//! libraries hand over binaries that they have put together themselves, which no compiler would write.

use orion_wire::image::{ELF_MAGIC, FATBIN_MAGIC, elf_bytes, fat_binary_bytes};

const FATBIN_HEADER_BYTES: u64 = 16;
const ENTRY_HEADER_BYTES: u64 = 64;

/// What is wrong with an image, as the rest of a sentence that begins with it.
pub fn objection(image: &[u8]) -> Option<String> {
    let read = |at, n| number(image, at, n);
    let end = match u32::from_le_bytes(*image.first_chunk()?) {
        FATBIN_MAGIC => fat_binary_bytes(read),
        ELF_MAGIC => elf_bytes(read),
        _ => return None,
    };
    match end {
        None => Some(format!("is cut off, after {} bytes", image.len())),
        Some(end) if end > image.len() as u64 => Some(format!("has {end} bytes, of which {} came", image.len())),
        Some(end) if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) => entries(&image[..end as usize]),
        Some(_) => None,
    }
}

/// What is wrong with the entries of a fat binary, each `| kind u16 | .. | header u32 | bytes u64 | .. | content |`.
fn entries(image: &[u8]) -> Option<String> {
    let mut at = number(image, 6, 2).unwrap_or(0);
    if at < FATBIN_HEADER_BYTES {
        return Some(format!("has a header of {at} bytes"));
    }
    // Less than a header cannot be an entry; what is left is padding.
    while image.len() as u64 - at >= ENTRY_HEADER_BYTES {
        let (header, bytes) = (number(image, at + 4, 4)?, number(image, at + 8, 8)?);
        let left = image.len() as u64 - at;
        match header.checked_add(bytes) {
            Some(entry) if entry <= left && header >= ENTRY_HEADER_BYTES => at += entry,
            _ => return Some(format!("has an entry of {header} and {bytes} bytes, of {left}")),
        }
    }
    None
}

fn number(bytes: &[u8], at: u64, n: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let mut value = [0; 8];
    value[..n].copy_from_slice(bytes.get(at..at.checked_add(n)?)?);
    Some(u64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHT_PROGBITS: u64 = 1;
    const SHT_SYMTAB: u64 = 2;
    const SHT_STRTAB: u64 = 3;
    const SHT_RELA: u64 = 4;
    const NAMES: &[u8] = b"\0.names\0.text\0f\0";
    /// Where the parts of `binary` lie.
    const NAMES_AT: usize = 64;
    const SYMBOLS_AT: usize = 88;
    const RELOCATIONS_AT: usize = 136;
    const SEGMENTS_AT: usize = 160;
    const SECTIONS_AT: usize = 216;
    const BINARY_BYTES: usize = SECTIONS_AT + 5 * 64;

    /// One segment; sections of names, symbols (one, of the code), relocations (one, of the code), and the code, which
    /// is the names again.
    fn binary() -> Vec<u8> {
        let mut b = vec![0; BINARY_BYTES];
        b[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x33");
        b[NAMES_AT..NAMES_AT + NAMES.len()].copy_from_slice(NAMES);
        put(&mut b, 16, &[(2, 2), (190, 2), (1, 4)]);
        put(&mut b, 32, &[(SEGMENTS_AT as u64, 8), (SECTIONS_AT as u64, 8), (0, 4), (64, 2)]);
        put(&mut b, 54, &[(56, 2), (1, 2), (64, 2), (5, 2), (1, 2)]);
        put(&mut b, SYMBOLS_AT + 24, &[(14, 4), (0, 2), (4, 2)]);
        put(&mut b, RELOCATIONS_AT, &[(8, 8), (1 << 32 | 2, 8)]);
        put(&mut b, SEGMENTS_AT, &[(1, 4), (0, 4), (64, 8), (0, 16), (24, 8), (24, 8)]);
        let names = (NAMES_AT, NAMES.len());
        let sections = [
            (1, SHT_STRTAB, names, 0, 0),
            (0, SHT_SYMTAB, (SYMBOLS_AT, 48), 1, 0),
            (0, SHT_RELA, (RELOCATIONS_AT, 24), 2, 4),
            (8, SHT_PROGBITS, names, 0, 0),
        ];
        for (i, (name, kind, (at, bytes), link, info)) in sections.into_iter().enumerate() {
            let fields = [(name, 4), (kind, 4), (0, 16), (at as u64, 8), (bytes as u64, 8), (link, 4), (info, 4)];
            put(&mut b, SECTIONS_AT + 64 * (i + 1), &fields);
        }
        b
    }

    fn put(bytes: &mut [u8], mut at: usize, fields: &[(u64, usize)]) {
        for (value, n) in fields {
            let field = value.to_le_bytes();
            let len = (*n).min(8);
            bytes[at..at + len].copy_from_slice(&field[..len]);
            at += n;
        }
    }

    fn fat(entries: &[(u32, &[u8])]) -> Vec<u8> {
        let mut f = FATBIN_MAGIC.to_le_bytes().to_vec();
        f.extend([1, 0, 16, 0]);
        f.extend([0; 8]);
        for (packed, content) in entries {
            let at = f.len();
            f.resize(at + ENTRY_HEADER_BYTES as usize, 0);
            put(&mut f, at, &[(2, 2), (0x101, 2), (64, 4), (content.len() as u64, 8), (u64::from(*packed), 4)]);
            f.extend(*content);
        }
        let bytes = f.len() as u64 - 16;
        put(&mut f, 8, &[(bytes, 8)]);
        f
    }

    #[test]
    fn images_whose_parts_lie_inside_them_are_good() {
        for image in [
            b".version 8.0\0".to_vec(),
            b"any bytes: the driver says what it thinks of them".to_vec(),
            Vec::new(),
            binary(),
            fat(&[]),
            fat(&[(0, &binary()), (5, b"packed  "), (0, b".version 8.0\0\0\0\0")]),
        ] {
            assert_eq!(objection(&image), None, "{:?}", String::from_utf8_lossy(&image));
        }
    }

    #[test]
    fn a_binary_that_is_cut_off_is_refused_wherever_it_is_cut() {
        let (binary, packed) = (binary(), fat(&[(0, &binary()), (8, b"packed  ")]));
        for cut in 4..binary.len() {
            assert!(objection(&binary[..cut]).is_some(), "{cut} bytes of a binary");
        }
        for cut in 4..packed.len() {
            assert!(objection(&packed[..cut]).is_some(), "{cut} bytes of a fat binary");
        }
    }

    #[test]
    fn what_a_binary_says_of_itself_is_not_believed() {
        let section = |i: usize, field: usize| SECTIONS_AT + 64 * i + field;
        // Where, and how many bytes; what no binary of this size can say there.
        let lies = [
            ("segments", 32, 8, 500),
            ("segments far away", 32, 8, u64::MAX - 8),
            ("many segments", 56, 2, 40),
            ("sections", 40, 8, 300),
            ("many sections", 60, 2, 400),
            ("a segment", SEGMENTS_AT + 8, 8, 530),
            ("a long segment", SEGMENTS_AT + 32, 8, 1 << 40),
            ("a section", section(4, 24), 8, u64::MAX - 4),
            ("a long section", section(4, 32), 8, 1 << 40),
        ];
        for (what, at, n, value) in lies {
            let mut image = binary();
            put(&mut image, at, &[(value, n)]);
            assert!(objection(&image).is_some(), "{what}");
        }
    }

    /// NVIDIA's libraries hand over binaries without names and with numbers of sections and symbols that are not there.
    #[test]
    fn names_symbols_and_relocations_are_the_drivers_to_judge() {
        for (at, n, value) in [
            (62, 2, 9),
            (SECTIONS_AT + 64 * 4, 4, 1000),
            (SECTIONS_AT + 64 * 2 + 40, 4, 77),
            (SYMBOLS_AT + 24, 4, 1 << 20),
            (SYMBOLS_AT + 30, 2, 5),
            (RELOCATIONS_AT, 8, 17),
            (RELOCATIONS_AT + 12, 4, 2),
        ] {
            let mut image = binary();
            put(&mut image, at, &[(value, n)]);
            assert_eq!(objection(&image), None, "{value} at {at}");
        }
    }

    #[test]
    fn what_a_fat_binary_says_of_itself_is_not_believed() {
        let good = fat(&[(0, b"12345678"), (8, b"packed  ")]);
        for (what, at, n, value) in [
            ("its header", 6, 2, 8),
            ("its bytes", 8, 8, 1000),
            ("its bytes far away", 8, 8, u64::MAX - 4),
            ("an entry's header", 20, 4, 8),
            ("an entry's header far away", 20, 4, u32::MAX.into()),
            ("an entry's bytes", 24, 8, 1000),
            ("an entry's bytes far away", 24, 8, u64::MAX - 63),
        ] {
            let mut image = good.clone();
            put(&mut image, at, &[(value, n)]);
            assert!(objection(&image).is_some(), "{what}");
        }
    }
}
