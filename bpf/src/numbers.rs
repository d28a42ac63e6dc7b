//! The numbers of `include/numbers.h`, read from there while this is compiled, so that neither side has its own.

const HEADER: &str = include_str!("../include/numbers.h");

pub const SUB_BITS: u32 = number("ORION_SUB_BITS") as u32;
pub const TOP_BIT: u32 = number("ORION_TOP_BIT") as u32;
pub const BUCKETS: usize = number("ORION_BUCKETS") as usize;
pub const SLOTS_MAX: usize = number("ORION_SLOTS_MAX") as usize;
pub const PROCESSES_MAX: usize = number("ORION_PROCESSES_MAX") as usize;
pub const THREADS_MAX: usize = number("ORION_THREADS_MAX") as usize;
pub const PORTS_MAX: usize = number("ORION_PORTS_MAX") as usize;
pub const PROBES_MAX: usize = number("ORION_PROBES_MAX") as usize;
pub const NAMES_MAX: usize = number("ORION_NAMES_MAX") as usize;
pub const COOKIE_KIND_SHIFT: u32 = number("ORION_COOKIE_KIND_SHIFT") as u32;
pub const COOKIE_NAMES_SHIFT: u32 = number("ORION_COOKIE_NAMES_SHIFT") as u32;
pub const COOKIE_PAIR_SHIFT: u32 = number("ORION_COOKIE_PAIR_SHIFT") as u32;
pub const KIND_ALONE: u64 = number("ORION_KIND_ALONE");
pub const KIND_BEGIN: u64 = number("ORION_KIND_BEGIN");
pub const KIND_END: u64 = number("ORION_KIND_END");
pub const NO_OPCODE: u32 = number("ORION_NO_OPCODE") as u32;

/// What the header defines the name as; does not compile where it does not.
const fn number(name: &str) -> u64 {
    let (text, name) = (HEADER.as_bytes(), name.as_bytes());
    let before = b"#define ";
    let mut at = 0;
    while at < text.len() {
        if is_at(text, at, before) && is_at(text, at + before.len(), name) {
            let mut digit = at + before.len() + name.len();
            if text[digit] == b' ' {
                digit += 1;
                let mut value = 0;
                assert!(text[digit].is_ascii_digit(), "a number stands behind the name");
                while text[digit].is_ascii_digit() {
                    value = value * 10 + (text[digit] - b'0') as u64;
                    digit += 1;
                }
                assert!(text[digit] == b'\n', "nothing but a decimal number stands behind the name");
                return value;
            }
        }
        at += 1;
    }
    panic!("the header does not define it")
}

const fn is_at(text: &[u8], at: usize, word: &[u8]) -> bool {
    if at + word.len() >= text.len() {
        return false;
    }
    let mut i = 0;
    while i < word.len() {
        if text[at + i] != word[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_taken_for_a_longer_one() {
        assert_eq!(number("ORION_PROBES_MAX"), 64);
        assert_eq!((number("ORION_KIND_ALONE"), number("ORION_KIND_BEGIN"), number("ORION_KIND_END")), (0, 1, 2));
    }
}
