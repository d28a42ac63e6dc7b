//! An image that the driver links when it loads it, as one byte string: a fat binary and the list of those it is
//! linked from.
//!
//! In memory such an image is a wrapper, the pointers of which mean nothing to a peer. The byte string begins with a
//! wrapper's first eight bytes, its magic and the version that says that there is a list; no other image does. The
//! number of parts follows, then the parts as byte strings, each at a multiple of eight bytes from the beginning.

use std::ops::Range;

use crate::codec::{Fault, Reader, Writer, bytes_size};

const WRAPPER_MAGIC: u64 = 0x4662_43b1;
const VERSION_WITH_LIST: u64 = 2;
/// The first word of a bundle, and of a wrapper that has a list.
pub const FIRST_WORD: u64 = VERSION_WITH_LIST << 32 | WRAPPER_MAGIC;
/// No image is linked from more fat binaries: each is an object file of the program.
pub const LIST_MAX: usize = 4096;

/// The fat binary that comes first is the wrapper's own; its list follows.
pub fn encode(parts: &[&[u8]]) -> Vec<u8> {
    let mut w = Vec::with_capacity(16 + parts.iter().map(|part| bytes_size(part.len())).sum::<usize>());
    w.word(FIRST_WORD);
    w.word(parts.len() as u64);
    for part in parts {
        w.bytes(part);
    }
    w
}

pub fn is_bundle(image: &[u8]) -> bool {
    image.starts_with(&FIRST_WORD.to_le_bytes())
}

/// Where the parts of a bundle lie in it.
pub fn decode(bundle: &[u8]) -> Result<Vec<Range<usize>>, Fault> {
    let mut r = Reader::new(bundle);
    if r.word()? != FIRST_WORD {
        return Err(Fault("bundle of images without its first word"));
    }
    let count = r.word()?;
    if !(2..=1 + LIST_MAX as u64).contains(&count) {
        return Err(Fault("bundle of too few or too many images"));
    }
    let mut parts = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let at = bundle.len() - r.rest().len() + 8;
        let part = r.bytes()?;
        if part.is_empty() {
            return Err(Fault("bundle with an empty image"));
        }
        parts.push(at..at + part.len());
    }
    r.finish()?;
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte 24 is the first of the first part.
    fn three() -> Vec<u8> {
        encode(&[b"the wrapper's own", b"first of the list", b"last"])
    }

    fn with_word(at: usize, word: u64) -> Vec<u8> {
        let mut bundle = three();
        bundle[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bundle
    }

    #[test]
    fn parts_come_back_aligned_and_in_order() {
        let bundle = three();
        assert!(is_bundle(&bundle));
        let parts = decode(&bundle).expect("valid");
        let texts: Vec<&[u8]> = parts.iter().map(|part| &bundle[part.clone()]).collect();
        assert_eq!(texts, [&b"the wrapper's own"[..], b"first of the list", b"last"]);
        assert!(parts.iter().all(|part| part.start % 8 == 0));
    }

    #[test]
    fn every_truncation_is_refused() {
        let bundle = three();
        for len in 0..bundle.len() {
            assert!(decode(&bundle[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn what_follows_the_last_part_is_refused() {
        let mut bundle = three();
        bundle.word(0);
        assert!(decode(&bundle).is_err());
    }

    #[test]
    fn absurd_counts_are_refused() {
        for count in [0, 1, 4, 2 + LIST_MAX as u64, u64::MAX] {
            assert!(decode(&with_word(8, count)).is_err(), "{count}");
        }
    }

    /// A part that is longer than it was takes the length of the next one from inside it.
    #[test]
    fn parts_that_overlap_or_leave_the_bundle_are_refused() {
        for len in [0, 1, 25, 1 << 20, u64::MAX, u64::MAX - 7] {
            assert!(decode(&with_word(16, len)).is_err(), "{len}");
        }
    }

    #[test]
    fn no_other_image_is_a_bundle() {
        for image in
            [&b""[..], b"\xb1\x43\x62\x46", b".version 8.0", b"\xb1\x43\x62\x46\x01\0\0\0", b"\x7fELF\x02\0\0\0"]
        {
            assert!(!is_bundle(image));
            assert!(decode(image).is_err());
        }
    }
}
