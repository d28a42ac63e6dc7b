//! Which records go straight into the other side's ring.

// UNSAFETY: shows a ring's bytes to the pipe by address.

use orion_ring::Consumer;
use orion_wire::Fault;
use orion_wire::record::HEADER_BYTES;

use super::pipe::Pipe;
use crate::carrier::contract::Death;
use crate::gather::Gather;
use crate::stream::Frame;

/// Writes what is ready of a ring into the other side's, as far as it travels as it is, and answers how many bytes that
/// was. What is left goes by the stream, or waits.
pub fn place(pipe: &Pipe, batch: &mut Gather, frame: Frame, from: &mut Consumer) -> Result<usize, Death> {
    let ready = from.ready().map_err(|_| Fault("ring positions are impossible"))?;
    if ready < HEADER_BYTES as u64 || !batch.is_idle() {
        return Ok(0);
    }
    let at = batch.carried();
    let most = pipe.placeable(at)?;
    let bytes = batch.plain(frame, from, most)?;
    if bytes > 0 {
        // SAFETY: so many bytes are ready, and the ring is mapped twice in a row.
        unsafe { pipe.place(at, from.pointer(), bytes)? };
        batch.carry(bytes);
    }
    Ok(bytes)
}
