//! The occupancy calculator.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::field::Rest;
use orion_wire::message::occupancy::{Occupancy, OccupancyReply, Question};
use orion_wire::record::Header;
use orion_wire::{Fault, Reader};

use crate::worker::calls::execution::launch_attributes;
use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;

/// The occupancy calculator: a function, which question, and its numbers.
pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    s: &mut Session,
    _header: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Handled {
    let q = Occupancy::decode(&mut r)?;
    let f: CUfunction = s.handle(Kind::Function, q.function.0)?.cast();
    let mut small = 0i32;
    let mut large = 0usize;
    // SAFETY: a looked-up function and valid out pointers.
    let (code, answer) = unsafe {
        match &q.question {
            Question::Blocks(q) => {
                let (threads, shared, flags) = (q.threads, q.shared_bytes.0 as usize, q.flags);
                let code = s
                    .driver
                    .cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut small, f, threads, shared, flags);
                (code, small as u64)
            }
            Question::SharedMemory(q) => {
                let code = s.driver.cuOccupancyAvailableDynamicSMemPerBlock(&mut large, f, q.blocks, q.threads);
                (code, large as u64)
            }
            Question::Clusters(c) | Question::ClusterSize(c) => {
                let Rest(attributes) = c.attributes;
                let mut attrs = launch_attributes(s, attributes)??;
                if attrs.len() > 64 || size_of_val(attrs.as_slice()) != attributes.len() {
                    return Err(Fault("too many launch attributes").into());
                }
                let config = CUlaunchConfig {
                    gridDimX: c.gx,
                    gridDimY: c.gy,
                    gridDimZ: c.gz,
                    blockDimX: c.bx,
                    blockDimY: c.by,
                    blockDimZ: c.bz,
                    sharedMemBytes: c.shared_bytes,
                    hStream: ptr::null_mut(),
                    attrs: attrs.as_mut_ptr(),
                    numAttrs: attrs.len() as u32,
                };
                let code = if matches!(q.question, Question::Clusters(_)) {
                    s.driver.cuOccupancyMaxActiveClusters(&mut small, f, &config)
                } else {
                    s.driver.cuOccupancyMaxPotentialClusterSize(&mut small, f, &config)
                };
                (code, small as u64)
            }
        }
    };
    OccupancyReply { answer }.encode(reply);
    Ok(Outcome::Done(code))
}
