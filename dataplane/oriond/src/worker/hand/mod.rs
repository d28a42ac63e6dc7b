//! Commands that need more than the table can say, and the way to all others.

// NVIDIA's names stay as they are.
#![allow(non_snake_case)]

pub mod activity;
pub mod array;
pub mod callback;
pub mod capture;
pub mod context;
pub mod execution;
pub mod graph;
pub mod green_context;
pub mod host_memory;
pub mod in_step;
pub mod ipc;
pub mod jit;
pub mod link;
pub mod memory;
pub mod module;
pub mod pool;
pub mod stream;
pub mod sync;
pub mod tensor_map;
pub mod virtual_memory;

use orion_cuda::sys::*;
use orion_wire::record::{Header, HeapRange, op};
use orion_wire::{Fault, Reader};

use super::session::{Outcome, Session};

/// A command that cannot be executed because its context is gone or broken: what it gives up is given up all the same.
pub fn abandon(s: &mut Session, header: &Header, body: &[u8]) -> Result<(), Fault> {
    let r = Reader::new(body);
    match header.op {
        op::COPY_IN => memory::abandon_copy_in(s, r),
        ops::CU_MEM_FREE_HOST => host_memory::cuMemFreeHost(s, header, r, &mut Vec::new()).map(drop),
        _ => Ok(()),
    }
}

/// Executes one command in its context, which is current.
pub fn dispatch(s: &mut Session, header: &Header, body: &[u8], reply: &mut Vec<u8>) -> Result<Outcome, Fault> {
    let mut r = Reader::new(body);
    match header.op {
        ops::CU_LAUNCH_KERNEL => execution::cuLaunchKernel(s, header, r, reply),
        op::COPY_IN_INLINE => memory::copy_in_inline(s, header, r),
        op::COPY_IN => memory::copy_in(s, header, r),
        op::COPY_OUT => memory::copy_out(s, header, r),
        op::COPY_OUT_INLINE => memory::copy_out_inline(s, header, r),
        op::COPY_3D => memory::copy_3d(s, header, r),
        op::PING | op::LOG => Ok(Outcome::Done(CUDA_SUCCESS)),
        op::CALLBACK_DONE => {
            s.callbacks.done(r.word()?);
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        op::VISIBLE_DEVICES => {
            s.devices = r.devices(&s.granted)?;
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        // A carrier's business, which keeps it; in shared memory there is nothing to do.
        op::HEAP_WRITTEN => {
            HeapRange::get(&mut r)?.check(s.heap.bytes())?;
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        op::HEAP_PATCH => {
            in_step::patch(s, body)?;
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        op::ACTIVITY_CORRELATION => activity::correlation(s, header, r),
        op::ACTIVITY_GRAPH_ID => activity::graph_id(s, r, reply),
        op::ACTIVITY_CLOCK => activity::clock(r, reply),
        op::ACTIVITY_TAKE => activity::take(s, header, r, reply),
        op::ACTIVITY_ENABLE => activity::enable(s, header, r, reply),
        _ => {
            s.addresses.doubt();
            crate::generated::dispatch::dispatch(s, header, r, reply)
        }
    }
}

use orion_wire::generated::ops;

trait Devices {
    fn devices(&mut self, granted: &[CUdevice]) -> Result<Vec<CUdevice>, Fault>;
}

impl Devices for Reader<'_> {
    fn devices(&mut self, granted: &[CUdevice]) -> Result<Vec<CUdevice>, Fault> {
        let mut devices = Vec::new();
        while !self.is_empty() {
            let index = self.word()? as usize;
            devices.push(*granted.get(index).ok_or(Fault("visible device that was not granted"))?);
        }
        Ok(devices)
    }
}
