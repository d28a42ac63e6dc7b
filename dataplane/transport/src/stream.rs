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
//! lane:             | CHUNK | len u32 | offset u64 | len bytes of the heap ... |
//! ```
//! Ring bytes that follow a HEAP or BARRIER frame reach the ring only after the heap bytes are in place, which is
//! all that `HEAP_WRITTEN` promises.

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
    fn heap_bytes_outside_the_heap_are_a_fault() {
        for (offset, len) in [(4096, 1), (0, 4097), (u64::MAX, 8)] {
            let h = StreamHeader { frame: Frame::Heap, len, offset };
            assert!(StreamHeader::decode(&h.encode(), 4096).is_err());
        }
    }
}
