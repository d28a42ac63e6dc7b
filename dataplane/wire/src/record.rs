//! Records: what lies in the rings.
//!
//! ```text
//! command  | size u32 | op u16 | thread u16 | context u64 | sequence u64 | body ... |
//! reply    | size u32 | op u16 | thread u16 | result  u64 | sequence u64 | body ... |
//! event    | size u32 | op u16 | 0          | argument u64| argument u64 | body ... |
//! ```
//! `size` counts the whole record and is a multiple of 8. A command with sequence 0 is *posted*: no reply is
//! sent for it. Otherwise the reply carries the same thread and sequence.

use crate::codec::{Fault, Reader, Writer};

pub const HEADER_BYTES: usize = 24;
/// A record larger than this is refused; bigger payloads travel through the host heap by reference.
pub const RECORD_BYTES_MAX: usize = 256 << 10;
/// Threads of one client process that may talk to the worker at the same time.
pub const THREADS_MAX: u16 = u16::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub size: u32,
    /// Row id of the API table, or one of [`op`].
    pub op: u16,
    /// Slot of the calling thread in its process.
    pub thread: u16,
    /// Command: the calling thread's current context. Reply: the `CUresult` in the lower half; if that is an error, the
    /// upper half is the number of events sent before the reply, for what is to be said about it is among them.
    pub context: u64,
    pub sequence: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        out[0..4].copy_from_slice(&self.size.to_le_bytes());
        out[4..6].copy_from_slice(&self.op.to_le_bytes());
        out[6..8].copy_from_slice(&self.thread.to_le_bytes());
        out[8..16].copy_from_slice(&self.context.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out
    }

    pub fn decode(b: &[u8; HEADER_BYTES]) -> Result<Header, Fault> {
        let h = Header {
            size: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            op: u16::from_le_bytes([b[4], b[5]]),
            thread: u16::from_le_bytes([b[6], b[7]]),
            context: u64::from_le_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
            sequence: u64::from_le_bytes([b[16], b[17], b[18], b[19], b[20], b[21], b[22], b[23]]),
        };
        let size = h.size as usize;
        if !(HEADER_BYTES..=RECORD_BYTES_MAX).contains(&size) || !size.is_multiple_of(8) {
            return Err(Fault("record size out of range"));
        }
        // Slots are counted below it, and nothing is above it.
        if h.thread == THREADS_MAX {
            return Err(Fault("thread slot out of range"));
        }
        Ok(h)
    }
}

/// A range of the session's host heap, which both sides see: how payloads too large for a record travel.
///
/// In a command the bytes were written by the client before the record; over TCP its carrier sends them
/// first. In a reply they were written by the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeapRange {
    pub offset: u64,
    pub bytes: u64,
}

impl HeapRange {
    pub fn put(self, w: &mut impl Writer) {
        w.word(self.offset);
        w.word(self.bytes);
    }

    pub fn get(r: &mut Reader<'_>) -> Result<HeapRange, Fault> {
        Ok(HeapRange { offset: r.word()?, bytes: r.word()? })
    }

    pub fn overlaps(self, other: HeapRange) -> bool {
        self.offset < other.offset.saturating_add(other.bytes) && other.offset < self.offset.saturating_add(self.bytes)
    }

    /// The range if it lies inside a heap of `heap_bytes`.
    pub fn check(self, heap_bytes: u64) -> Result<HeapRange, Fault> {
        match self.offset.checked_add(self.bytes) {
            Some(end) if end <= heap_bytes => Ok(self),
            _ => Err(Fault("range outside the session's host heap")),
        }
    }
}

/// Operations that are not functions of the driver API. Rows of the table have ids from 0x0100 to 0x7fff.
pub mod op {
    use crate::generated::ops;

    macro_rules! operations {
        ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
            $($(#[$doc])* pub const $name: u16 = $id;)*

            /// What an operation is called in logs: by NVIDIA's name if it is a row of the table.
            pub fn name(op: u16) -> &'static str {
                match op {
                    $($name => stringify!($name),)*
                    _ => ops::name(op).unwrap_or("an unknown operation"),
                }
            }
        };
    }

    operations! {
        /// Carrier only: "the heap range in the body has to be at the other side before the next record".
        /// In shared memory both sides ignore it. Body: [`super::HeapRange`]. Command and reply rings.
        HEAP_WRITTEN = 0x0001;
        /// Event: run a host callback. argument 1 = callback id, argument 2 = 0. Body: function word, data word.
        RUN_CALLBACK = 0x0002;
        /// Command: the callback with this id has returned.
        CALLBACK_DONE = 0x0003;
        /// Event: bytes the worker's driver printed (kernel `printf`). argument 1 = 1 stdout, 2 stderr. Body: bytes.
        OUTPUT = 0x0004;
        /// Command: answers with `CUDA_SUCCESS`; for round-trip measurements.
        PING = 0x0006;
        /// Command: which of the session's devices the application sees, in its order. Body: one word each.
        VISIBLE_DEVICES = 0x0007;
        /// Event: the worker has read these ranges of the heap, which the client lent to posted copies. Body: list
        /// of [`super::HeapRange`].
        HEAP_RELEASED = 0x0008;
        /// In the reply ring, before a reply to the same thread: something the worker's driver logged since the last
        /// reply. The result's place holds the `CUlogLevel`, with [`LOG_OF_ORION`] if it is not the driver's. Body:
        /// bytes. As a command: answers with `CUDA_SUCCESS`, for the sake of what comes before.
        LOG = 0x0009;
        /// Carried sessions only: bytes of host memory that one side has changed and the other has a copy of. Body:
        /// see `orion_transport::mirror`. Command ring, for the worker; reply ring, for the client's carrier, which
        /// keeps it.
        HEAP_PATCH = 0x000a;
        /// Command: which kinds of activity the worker's profiler records from now on. Body: one word, the sum of
        /// [`crate::activity`]'s kinds, 0 to stop. Reply: the clock of the activities' times (ns). If the node has no
        /// profiler that can, the result is `CUDA_ERROR_NOT_SUPPORTED` and the body says why (a byte string).
        ACTIVITY_ENABLE = 0x000b;
        /// Command: what was recorded. Body: one word, 1 to make the profiler hand over what it has first. Reply: a
        /// word, 1 if there is more to take, then the records: see [`crate::activity`].
        ACTIVITY_TAKE = 0x000c;
        /// Command: reply with the clock of the activities' times (ns), to know how it differs from the application's.
        ACTIVITY_CLOCK = 0x000d;
        /// Posted command: what this thread sends from now on belongs to the application's call with this correlation
        /// id. Body: one word.
        ACTIVITY_CORRELATION = 0x000e;
        /// Command: the number that records of activities have for something of a graph. Body: what it is
        /// ([`crate::activity::GRAPH`] and so on), its handle. Reply: one word. `CUDA_ERROR_NOT_INITIALIZED` while the
        /// worker has no profiler.
        ACTIVITY_GRAPH_ID = 0x000f;
        /// Carried sessions only, in the reply ring: a command that was to bring bytes to host memory has done so, and
        /// what came before this record brings them over; or it failed, and none come. argument 1 = which of the
        /// client's commands, counted from 1.
        HEAP_SETTLED = 0x0010;
        // Copies: see `message::copy`.
        COPY_IN_INLINE = 0x0040;
        COPY_IN = 0x0041;
        COPY_OUT = 0x0042;
        COPY_OUT_INLINE = 0x0043;
        COPY_3D = 0x0044;
        /// Command: answered, with `CUDA_SUCCESS`, once the stream has done what it had been given by then. Body: the
        /// stream.
        STREAM_MARK = 0x0045;
    }

    /// What Orion refuses and a bare GPU does not: the program's standard error gets it, too.
    pub const LOG_OF_ORION: u64 = 1 << 32;
    /// Operations from here on are the application's work in a context; those before are between shim, carrier and
    /// worker.
    pub const HAND_FIRST: u16 = 0x0040;
    /// First and last id that rows of the table use.
    pub const ROW_FIRST: u16 = 0x0100;
    pub const ROW_LAST: u16 = 0x7fff;
}
