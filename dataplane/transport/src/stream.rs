//! What a carried session's connections speak once the handshake is over.
//!
//! ```text
//! main connection:  | kind u32 | len u32 | offset u64 | len bytes ... |
//!   COMMAND, REPLY, EVENT   bytes of that ring, cut anywhere
//!   HEAP                    bytes of the heap at `offset`
//!   PATCH                   a `HEAP_PATCH` for the client, whole
//!   BARRIER                 one word a lane: wait until that many bytes have come in on it
//!   SETTLED                 to the client: its command number `offset` brings no more bytes to the heap
//!   TAKEN                   to the client: the worker has taken the COMMAND bytes up to `offset`
//!   SHOWN                   bytes of the heap at `offset` that the receiver's device is to read: how many, where, key
//! lane:             | CHUNK | len u32 | offset u64 | len bytes of the heap ... |
//! ```
//! Ring bytes that follow a HEAP, BARRIER or SHOWN frame reach the ring only after the heap bytes are in place, which
//! is all that `HEAP_WRITTEN` promises.

use orion_wire::Fault;
use orion_wire::record::{HeapRange, RECORD_BYTES_MAX};

use crate::lanes::LANES_MAX;

pub const STREAM_HEADER_BYTES: usize = 16;
/// How often a client is told what its worker has taken. It keeps the bytes of its commands until then, so a worker
/// that is held up holds up the application and never the connection: word of a host function's end gets through, and
/// the system does not take the connection for dead.
pub const TAKEN_BYTES_MIN: u64 = 128 << 10;
/// Most bytes behind one header. Bounds what one session can make the other side do between two looks at others.
pub const FRAME_LEN_MAX: u32 = 1 << 20;
/// Heap ranges from this size on are striped over the lanes; a smaller one is sent sooner than a lane wakes up.
pub const STRIPE_BYTES_MIN: u64 = 256 << 10;

/// Ranges that one side shows the other's device at a time, and the bytes of each. To pin the largest takes a system 40
/// us with small pages (6.18, of an EPYC), as long as to copy a frame: an engine does no more between two looks at
/// others.
pub const SHOWN_MAX: usize = 4;
pub const SHOWN_BYTES_MAX: u64 = 2 << 20;
/// Fewer are none that anybody shows: each costs its reader a registration.
pub const SHOWN_BYTES_MIN: u64 = 4 << 10;
pub const SHOWN_BODY_BYTES: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Frame {
    Command = 1,
    Reply = 2,
    Event = 3,
    Heap = 4,
    Barrier = 5,
    Chunk = 6,
    Patch = 7,
    Taken = 8,
    Settled = 9,
    Shown = 10,
}

/// A range of the heap, and where the other side's device finds its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    pub range: HeapRange,
    pub address: u64,
    pub key: u32,
}

impl Shown {
    /// What follows the header, which has the offset.
    pub fn body(self) -> [u8; SHOWN_BODY_BYTES] {
        let mut out = [0; SHOWN_BODY_BYTES];
        out[0..8].copy_from_slice(&self.range.bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.address.to_le_bytes());
        out[16..24].copy_from_slice(&u64::from(self.key).to_le_bytes());
        out
    }

    /// All but whether there are such pages, which a device finds.
    pub fn decode(offset: u64, body: &[u8; SHOWN_BODY_BYTES], heap_bytes: u64) -> Result<Shown, Fault> {
        let [bytes, address, key] = [0, 8, 16].map(|at| {
            let word: [u8; 8] = std::array::from_fn(|i| body[at + i]);
            u64::from_le_bytes(word)
        });
        if !(SHOWN_BYTES_MIN..=SHOWN_BYTES_MAX).contains(&bytes) {
            return Err(Fault("a range of an impossible size was shown"));
        }
        let range = HeapRange { offset, bytes }.check(heap_bytes)?;
        match (address.checked_add(bytes), u32::try_from(key)) {
            (Some(_), Ok(key)) => Ok(Shown { range, address, key }),
            _ => Err(Fault("a range was shown where nothing can be")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHeader {
    pub frame: Frame,
    pub len: u32,
    pub offset: u64,
}

impl StreamHeader {
    pub fn encode(self) -> [u8; STREAM_HEADER_BYTES] {
        let mut out = [0; STREAM_HEADER_BYTES];
        out[0..4].copy_from_slice(&(self.frame as u32).to_le_bytes());
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    /// Decodes and checks everything that can be checked without knowing who receives.
    pub fn decode(b: &[u8; STREAM_HEADER_BYTES], heap_bytes: u64) -> Result<StreamHeader, Fault> {
        let kind = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let len = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        let offset = u64::from_le_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]);
        let frame = match kind {
            1 => Frame::Command,
            2 => Frame::Reply,
            3 => Frame::Event,
            4 => Frame::Heap,
            5 => Frame::Barrier,
            6 => Frame::Chunk,
            7 => Frame::Patch,
            8 => Frame::Taken,
            9 => Frame::Settled,
            10 => Frame::Shown,
            _ => return Err(Fault("unknown frame in a session's stream")),
        };
        if len > FRAME_LEN_MAX {
            return Err(Fault("frame too long"));
        }
        match frame {
            Frame::Heap | Frame::Chunk => {
                HeapRange { offset, bytes: len as u64 }.check(heap_bytes)?;
            }
            Frame::Barrier => {
                if !len.is_multiple_of(8) || len as usize > LANES_MAX * 8 {
                    return Err(Fault("barrier frame has an impossible length"));
                }
            }
            Frame::Patch => {
                if len as usize > RECORD_BYTES_MAX {
                    return Err(Fault("patch too long"));
                }
            }
            Frame::Taken | Frame::Settled => {
                if len != 0 {
                    return Err(Fault("a frame that is a number has a body"));
                }
            }
            Frame::Shown => {
                if len as usize != SHOWN_BODY_BYTES {
                    return Err(Fault("a range was shown in an impossible length"));
                }
            }
            Frame::Command | Frame::Reply | Frame::Event => {}
        }
        Ok(StreamHeader { frame, len, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for frame in [Frame::Command, Frame::Reply, Frame::Event, Frame::Heap, Frame::Chunk, Frame::Patch] {
            let h = StreamHeader { frame, len: 4096, offset: 8192 };
            assert_eq!(StreamHeader::decode(&h.encode(), 12288), Ok(h));
        }
    }

    #[test]
    fn a_shown_range_comes_back_and_one_that_cannot_be_is_a_fault() {
        const HEAP: u64 = 4 << 20;
        let range = HeapRange { offset: 4096, bytes: SHOWN_BYTES_MAX };
        let shown = Shown { range, address: 0x7000_0000, key: u32::MAX };
        assert_eq!(Shown::decode(4096, &shown.body(), HEAP), Ok(shown));
        for (offset, bytes, address) in [
            (4096, SHOWN_BYTES_MIN - 1, 0),
            (4096, SHOWN_BYTES_MAX + 1, 0),
            (HEAP - SHOWN_BYTES_MIN + 1, SHOWN_BYTES_MIN, 0),
            (u64::MAX, SHOWN_BYTES_MIN, 0),
            (0, SHOWN_BYTES_MIN, u64::MAX - SHOWN_BYTES_MIN + 1),
        ] {
            let bad = Shown { range: HeapRange { offset, bytes }, address, key: 1 };
            assert!(Shown::decode(offset, &bad.body(), HEAP).is_err(), "{bad:?}");
        }
        let mut body = shown.body();
        body[20] = 1;
        assert!(Shown::decode(4096, &body, HEAP).is_err(), "a key has 32 bits");
        let header = StreamHeader { frame: Frame::Shown, len: SHOWN_BODY_BYTES as u32, offset: 4096 };
        assert_eq!(StreamHeader::decode(&header.encode(), HEAP), Ok(header));
        assert!(StreamHeader::decode(&StreamHeader { len: 16, ..header }.encode(), HEAP).is_err());
    }

    #[test]
    fn heap_bytes_outside_the_heap_are_a_fault() {
        for (offset, len) in [(4096, 1), (0, 4097), (u64::MAX, 8)] {
            let h = StreamHeader { frame: Frame::Heap, len, offset };
            assert!(StreamHeader::decode(&h.encode(), 4096).is_err());
        }
    }
}
