//! Copies between host and device, and of boxes.

use crate::message::address::{ClaimedDevice, ClaimedHost};
use crate::message::declare::{choices, messages};
use crate::message::field::{ARRAY, Bytes, Existing, STREAM, Size};
use crate::record::op;

messages! {
    /// Host to device, bytes in the record.
    command CopyInInline<'a>(op::COPY_IN_INLINE) {
        to: ClaimedDevice,
        stream: Existing<STREAM>,
        bytes: Bytes<'a>,
    }

    /// Host to device from shared host memory.
    command CopyIn(op::COPY_IN) {
        to: ClaimedDevice,
        from: ClaimedHost,
        bytes: Size,
        stream: Existing<STREAM>,
        source: Source,
    }

    /// Device to shared host memory. Called: the reply comes when the bytes are there.
    command CopyOut(op::COPY_OUT) {
        to: ClaimedHost,
        from: ClaimedDevice,
        bytes: Size,
        stream: Existing<STREAM>,
    }

    reply CopyOutReply(op::COPY_OUT) {
        /// What was sent before it, among it what kernels before the copy have printed.
        events: u64,
    }

    /// Device to host, bytes in the reply.
    command CopyOutInline(op::COPY_OUT_INLINE) {
        from: ClaimedDevice,
        bytes: Size,
        stream: Existing<STREAM>,
    }

    reply CopyOutInlineReply<'a>(op::COPY_OUT_INLINE) {
        bytes: Bytes<'a>,
        /// As of [`CopyOutReply`].
        events: u64,
    }

    /// Any shape. Host addresses are of shared memory, arrays are handles. Called: the reply comes when it is complete.
    command CopyBox(op::COPY_3D) {
        stream: Existing<STREAM>,
        copy: Copy3D,
    }

    /// A `CUDA_MEMCPY3D`, with its words in the same order.
    part Copy3D {
        source: CopySide,
        destination: CopySide,
        width: Size,
        rows: Size,
        layers: Size,
    }

    part CopySide {
        /// In bytes, the others in rows and layers.
        x: Size,
        y: Size,
        z: Size,
        level: Size,
        /// `CUmemorytype`: which of the three below is meant.
        memory_type: u32,
        host: ClaimedHost,
        device: ClaimedDevice,
        array: Existing<ARRAY>,
        /// CUDA's own.
        reserved: u64,
        pitch: Size,
        height: Size,
    }
}

choices! {
    /// What becomes of the shared memory that a copy reads.
    Source {
        /// It stays the application's.
        Kept = 0,
        /// A loan of the heap that has to be reported as released.
        Lent = 1,
        /// The application's, and [`op::HEAP_SETTLED`] is to tell that it has been read.
        Told = 2,
    }
}
