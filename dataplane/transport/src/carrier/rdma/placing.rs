//! Which records go straight into the other side's ring.

// UNSAFETY: shows a ring's bytes to the pipe by address.

use orion_ring::Consumer;
use orion_wire::Fault;
use orion_wire::record::HEADER_BYTES;

use super::pipe::Pipe;
use crate::carrier::contract::Death;
use crate::gather::Gather;
use crate::stream::Frame;

/// Whose fault it is that nothing could be written.
pub enum Failed {
    /// What this side's ring has cannot be.
    Own(Fault),
    /// The other side says what cannot be, or the way to it broke.
    Other(Death),
}

impl From<Failed> for Death {
    fn from(failed: Failed) -> Death {
        match failed {
            Failed::Own(fault) => fault.into(),
            Failed::Other(death) => death,
        }
    }
}

/// Writes what is ready of a ring into the other side's, as far as it travels as it is, and answers how many bytes that
/// was. What is left goes by the stream, or waits.
pub fn place(pipe: &Pipe, batch: &mut Gather, frame: Frame, from: &mut Consumer) -> Result<usize, Failed> {
    let ready = from.ready().map_err(|_| Failed::Own(Fault("ring positions are impossible")))?;
    if ready < HEADER_BYTES as u64 || !batch.is_idle() {
        return Ok(0);
    }
    let at = batch.carried();
    let most = pipe.placeable(at).map_err(Failed::Other)?;
    let bytes = batch.plain(frame, from, most).map_err(Failed::Own)?;
    if bytes > 0 {
        // SAFETY: so many bytes are ready, and the ring is mapped twice in a row.
        unsafe { pipe.place(at, from.pointer(), bytes) }.map_err(Failed::Other)?;
        batch.carry(bytes);
    }
    Ok(bytes)
}
