//! Words and byte strings: the whole wire encoding.
//!
//! A value is one little-endian 64-bit word; a byte string is a word with its length followed by the bytes,
//! padded with zeros to a multiple of 8. Nothing of the application's memory crosses by accident: padding is
//! written as zeros.

use std::fmt;

/// A peer broke the protocol. Says which rule; the session it came from ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub &'static str);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Fault {}

/// Where encoders put their bytes.
pub trait Writer {
    fn put(&mut self, bytes: &[u8]);

    fn word(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.put(bytes);
        self.put(&[0u8; 8][..bytes.len().wrapping_neg() % 8]);
    }
}

impl Writer for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Bytes that [`Writer::bytes`] writes for a string of `len` bytes.
pub const fn bytes_size(len: usize) -> usize {
    8 + len.next_multiple_of(8)
}

/// Reads what a [`Writer`] wrote, from a private copy.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn word(&mut self) -> Result<u64, Fault> {
        let (head, rest) = self.rest.split_first_chunk::<8>().ok_or(Fault("record ends inside a word"))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*head))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let len = usize::try_from(self.word()?).map_err(|_| Fault("byte string longer than memory"))?;
        let padded = len.checked_next_multiple_of(8).ok_or(Fault("byte string longer than memory"))?;
        if padded > self.rest.len() {
            return Err(Fault("record ends inside a byte string"));
        }
        let (head, rest) = self.rest.split_at(padded);
        self.rest = rest;
        Ok(&head[..len])
    }

    /// A UTF-8 string.
    pub fn text(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Fault("text is not UTF-8"))
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read, as if it were read now.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Ends decoding; bytes left over mean that the two sides disagree about the record.
    pub fn finish(self) -> Result<(), Fault> {
        if self.rest.is_empty() { Ok(()) } else { Err(Fault("record is longer than its operation")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_strings_come_back() {
        let mut w = Vec::new();
        w.word(7);
        w.bytes(b"orion");
        w.bytes(b"");
        w.word(u64::MAX);
        assert_eq!(w.len(), 8 + 16 + 8 + 8);
        let mut r = Reader::new(&w);
        assert_eq!(r.word(), Ok(7));
        assert_eq!(r.bytes(), Ok(&b"orion"[..]));
        assert_eq!(r.bytes(), Ok(&b""[..]));
        assert_eq!(r.word(), Ok(u64::MAX));
        assert_eq!(r.finish(), Ok(()));
    }

    #[test]
    fn truncated_input_is_a_fault() {
        assert!(Reader::new(&[1, 2, 3]).word().is_err());
        let mut w = Vec::new();
        w.word(u64::MAX);
        assert!(Reader::new(&w).bytes().is_err());
        let mut w = Vec::new();
        w.word(9);
        w.word(0);
        assert!(Reader::new(&w).bytes().is_err());
    }
}
