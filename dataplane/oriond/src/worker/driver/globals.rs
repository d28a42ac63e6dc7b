//! How much device memory the variables of an image take, as far as the image says.

use orion_wire::image::ELF_MAGIC;

use crate::worker::driver::image::Image;

/// Bytes of the `__device__` and `__constant__` variables of what a device of one of these compute capabilities would
/// load. Each begins at a multiple of 16.
pub fn bytes_in(image: &Image, capabilities: &[u32]) -> u64 {
    let of_part = |part: &[u8]| {
        let mut most = 0;
        let told = orion_soft::image::each_program(part, capabilities, |program| {
            most = bytes_of(program).max(most);
            true
        });
        // What nobody can look into no device of these would load.
        told.map_or(0, |()| most)
    };
    image.parts().map(of_part).fold(0, u64::saturating_add)
}

fn bytes_of(program: &[u8]) -> u64 {
    match program.starts_with(&ELF_MAGIC.to_le_bytes()) {
        true => in_cubin(program).unwrap_or(0),
        false => in_text(program),
    }
}

/// The sections `.nv.global`, `.nv.global.init` and `.nv.constant…` of a cubin. Of constant banks only the third is of
/// the program's variables.
fn in_cubin(elf: &[u8]) -> Option<u64> {
    let read = |at: u64, n: usize| {
        let mut value = [0; 8];
        value[..n].copy_from_slice(elf.get(usize::try_from(at).ok()?..)?.get(..n)?);
        Some(u64::from_le_bytes(value))
    };
    let (table, each, count, names) = (read(40, 8)?, read(58, 2)?, read(60, 2)?, read(62, 2)?);
    let section = |index: u64| table.checked_add(index.checked_mul(each)?);
    let names = read(section(names)?.checked_add(24)?, 8)?;
    let mut bytes = 0u64;
    for index in 0..count {
        let at = section(index)?;
        let name = elf.get(usize::try_from(names.checked_add(read(at, 4)?)?).ok()?..)?;
        let name = &name[..name.iter().position(|b| *b == 0)?];
        if name == b".nv.constant3" || name.starts_with(b".nv.global") {
            bytes = bytes.saturating_add(up_to(read(at.checked_add(32)?, 8)?, 16));
        }
    }
    Some(bytes)
}

/// Declarations like `.visible .global .align 4 .f32 name[256];` outside of functions, one a line as compilers write
/// them.
fn in_text(ptx: &[u8]) -> u64 {
    let declared =
        ptx.split(|b| *b == b'\n' || *b == b';').filter_map(|line| declared(std::str::from_utf8(line).ok()?));
    declared.fold(0, |all: u64, bytes| all.saturating_add(bytes))
}

fn declared(line: &str) -> Option<u64> {
    let line = line.trim_start();
    // Instructions begin with a name, and what is declared elsewhere takes nothing here.
    if !line.starts_with('.') || line.starts_with(".extern") {
        return None;
    }
    let mut words = line.split_ascii_whitespace();
    words.find(|word| matches!(*word, ".global" | ".const"))?;
    let (mut element, mut align) = (None, 16u64);
    while let Some(word) = words.next() {
        match word {
            ".align" => align = words.next()?.parse().ok()?,
            word if word.starts_with('.') => element = bits(word).or(element),
            name => {
                // The sizes stand behind the name, and all of it before an initial value.
                let name = line[name.as_ptr() as usize - line.as_ptr() as usize..].split('=').next()?;
                let sizes = name.split('[').skip(1).map(|size| size.split(']').next().unwrap_or("").trim());
                let count = sizes.map(|size| size.parse::<u64>().unwrap_or(0)).fold(1u64, u64::saturating_mul);
                return Some(up_to(count.saturating_mul(element? / 8).max(1), align.max(16)));
            }
        }
    }
    None
}

/// What an image says may be anything.
fn up_to(bytes: u64, multiple: u64) -> u64 {
    bytes.checked_next_multiple_of(multiple).unwrap_or(u64::MAX)
}

/// Bits of a type like `.b8`, `.f32`, `.u64`.
fn bits(word: &str) -> Option<u64> {
    word.strip_prefix(['.'])?.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_text_declares_is_counted_once_and_instructions_are_not() {
        let text = b".version 8.0\n.target sm_90\n.address_size 64\n\
            .visible .global .align 4 .f32 a[256];\n\
            .global .align 8 .b8 b[3] = {1, 2, 3};\n\
            .const .align 4 .u32 c;\n\
            .visible .global .align 16 .b8 d[1073741824];\n\
            .extern .global .align 4 .u32 e;\n\
            .visible .entry k(.param .u64 p)\n{\n\tld.global.u32 %r1, [%rd1];\n\
            \t.shared .align 4 .b8 s[64];\n\tret;\n}\n";
        assert_eq!(in_text(text), 1024 + 16 + 16 + (1 << 30));
        assert_eq!(declared(".global .align 4 .b8 m[2][3][4]"), Some(32));
        assert_eq!(declared(".global .texref t"), None);
        assert_eq!(declared(".global .b8 m[18446744073709551615]"), Some(u64::MAX));
    }

    #[test]
    fn what_is_no_image_has_nothing() {
        for bytes in [&b""[..], b"\x7fELF", &[0x7f, b'E', b'L', b'F', 0xff, 0xff, 0xff, 0xff].repeat(20)] {
            assert_eq!(bytes_of(bytes), 0);
        }
    }
}
