//! The occupancy calculator.

// UNSAFETY: calls the driver with handles that were looked up here.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

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
    let f: CUfunction = match s.handle(Kind::Function, r.word()?) {
        Ok(f) => f.cast(),
        Err(code) => return Ok(Outcome::Done(code)),
    };
    let question = r.word()?;
    let mut small = 0i32;
    let mut large = 0usize;
    // SAFETY: a looked-up function and valid out pointers.
    let (code, answer) = unsafe {
        match question {
            0 => {
                let (threads, shared, flags) = (r.word()? as i32, r.word()? as usize, r.word()? as u32);
                let code = s
                    .driver
                    .cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut small, f, threads, shared, flags);
                (code, small as u64)
            }
            1 => {
                let (blocks, threads) = (r.word()? as i32, r.word()? as i32);
                let code = s.driver.cuOccupancyAvailableDynamicSMemPerBlock(&mut large, f, blocks, threads);
                (code, large as u64)
            }
            2 | 3 => {
                let mut n = [0u32; 7];
                for v in &mut n {
                    *v = r.word()? as u32;
                }
                if r.word()? > 64 {
                    return Err(Fault("too many launch attributes").into());
                }
                let mut attrs = launch_attributes(s, r.rest())??;
                let config = CUlaunchConfig {
                    gridDimX: n[0],
                    gridDimY: n[1],
                    gridDimZ: n[2],
                    blockDimX: n[3],
                    blockDimY: n[4],
                    blockDimZ: n[5],
                    sharedMemBytes: n[6],
                    hStream: ptr::null_mut(),
                    attrs: attrs.as_mut_ptr(),
                    numAttrs: attrs.len() as u32,
                };
                let code = if question == 2 {
                    s.driver.cuOccupancyMaxActiveClusters(&mut small, f, &config)
                } else {
                    s.driver.cuOccupancyMaxPotentialClusterSize(&mut small, f, &config)
                };
                (code, small as u64)
            }
            _ => return Err(Fault("unknown occupancy question").into()),
        }
    };
    reply.word(answer);
    Ok(Outcome::Done(code))
}
