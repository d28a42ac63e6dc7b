//! An image as the driver takes it, in memory of the worker's own.

use std::ffi::c_void;
use std::ops::Range;

use orion_wire::{Fault, bundle};

use crate::worker::driver::extents;

/// Zeros behind an image. Text has to end in one, and CuPy leaves out the last byte of binaries, which is one. A driver
/// that looks for a further entry of a fat binary finds none.
const PADDING: usize = 64;

/// The bytes of an image. A bundle is given to the driver as a wrapper over its parts.
#[derive(Default)]
pub struct Image {
    bytes: Vec<u8>,
    parts: Vec<Range<usize>>,
    /// Empty if the image is no bundle.
    wrapper: Vec<u64>,
}

impl Image {
    pub fn new(mut bytes: Vec<u8>) -> Result<Image, Fault> {
        let is_bundle = bundle::is_bundle(&bytes);
        let parts = if is_bundle { bundle::decode(&bytes)? } else { std::iter::once(0..bytes.len()).collect() };
        bytes.resize(bytes.len() + PADDING, 0);
        let mut image = Image { bytes, parts, wrapper: Vec::new() };
        if is_bundle {
            image.wrap();
        }
        Ok(image)
    }

    /// Magic and version, a pointer to the first part, a pointer to the list; then the list of the others with a null
    /// pointer at its end.
    fn wrap(&mut self) {
        const HEAD_WORDS: usize = 3;
        let address = |part: &Range<usize>| self.bytes[part.start..].as_ptr().expose_provenance() as u64;
        let mut words = Vec::with_capacity(HEAD_WORDS + self.parts.len());
        words.extend([bundle::FIRST_WORD, address(&self.parts[0]), 0]);
        words.extend(self.parts[1..].iter().map(address));
        words.push(0);
        // The words stay where they are when the image is moved.
        words[2] = words[HEAD_WORDS..].as_ptr().expose_provenance() as u64;
        self.wrapper = words;
    }

    /// What the driver reads, which must live as long as what it loads from it.
    pub fn as_ptr(&self) -> *const c_void {
        if self.wrapper.is_empty() { self.bytes.as_ptr().cast() } else { self.wrapper.as_ptr().cast() }
    }

    /// Why no driver may have it, if so.
    pub fn objection(&self) -> Option<String> {
        if self.wrapper.is_empty() {
            // With the byte that may have been left out.
            return extents::objection(&self.bytes[..(self.bytes.len() + 1).saturating_sub(PADDING)]);
        }
        self.parts().find_map(extents::objection)
    }

    /// The image, or the images of a bundle.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &self.bytes[part.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_images_stay_what_they_are() {
        let image = Image::new(b".version 8.0".to_vec()).expect("no bundle");
        assert_eq!(image.as_ptr(), image.bytes.as_ptr().cast());
        assert_eq!(image.bytes.last(), Some(&0));
        assert_eq!(image.parts().collect::<Vec<_>>(), [b".version 8.0"]);
    }

    #[test]
    fn the_extents_of_each_part_are_looked_at() {
        let fat_binary =
            |bytes: u64| [&0xba55_ed50u64.to_le_bytes()[..4], &[1, 0, 16, 0], &bytes.to_le_bytes()].concat();
        let (good, bad) = (fat_binary(0), fat_binary(8));
        let of = |parts: &[&[u8]]| Image::new(bundle::encode(parts)).expect("a valid bundle").objection();
        assert_eq!(of(&[&good, &good]), None);
        assert!(of(&[&good, &bad]).is_some());
        assert!(of(&[&bad, &good]).is_some());
        assert_eq!(Image::new(good).expect("no bundle").objection(), None);
        assert!(Image::new(bad).expect("no bundle").objection().is_some());
        assert_eq!(Image::default().objection(), None);
    }

    #[test]
    fn a_bundle_is_a_wrapper_over_its_parts() {
        let parts: [&[u8]; 3] = [b"data", b"first", b"second"];
        let image = Image::new(bundle::encode(&parts)).expect("a valid bundle");
        // Moved, as into the session's table.
        let image = Box::new(image);
        assert_eq!(image.parts().collect::<Vec<_>>(), parts);
        let addresses: Vec<u64> = image.parts().map(|part| part.as_ptr() as u64).collect();
        assert!(addresses.iter().all(|address| address % 8 == 0));
        let list = image.as_ptr() as u64 + 24;
        assert_eq!(image.wrapper, [bundle::FIRST_WORD, addresses[0], list, addresses[1], addresses[2], 0]);
    }

    #[test]
    fn a_broken_bundle_is_a_fault() {
        let mut bundle = bundle::encode(&[b"data", b"first"]);
        bundle.truncate(bundle.len() - 1);
        assert!(Image::new(bundle).is_err());
    }
}
