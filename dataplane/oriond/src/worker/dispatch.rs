//! From a command to its handler.

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::message::callback::CallbackDone;
use orion_wire::message::carrier::{HeapWritten, OF_ANOTHER_SERVER, Ping, VisibleDevices};
use orion_wire::message::field::Ordinal;
use orion_wire::message::log::LogAsk;
use orion_wire::record::{Header, op};
use orion_wire::{Fault, Reader};

use crate::worker::calls::{activity, copy, execution, generated, host_memory, stream};
use crate::worker::outcome::{Handled, Outcome, Stop};
use crate::worker::session::{Session, in_step};

/// A command that cannot be executed because its context is gone or broken: what it gives up is given up all the same.
pub fn abandon(s: &mut Session, header: &Header, body: &[u8]) -> Result<(), Fault> {
    let r = Reader::new(body);
    let given_up = match header.op {
        op::COPY_IN => return copy::abandon_copy_in(s, r),
        ops::CU_MEM_FREE_HOST => host_memory::cuMemFreeHost(s, header, r, &mut Vec::new()),
        _ => return Ok(()),
    };
    match given_up {
        Err(Stop::Fault(fault)) => Err(fault),
        Ok(_) | Err(Stop::Code(_)) => Ok(()),
    }
}

/// Executes one command in its context, which is current.
pub fn dispatch(s: &mut Session, header: &Header, body: &[u8], reply: &mut Vec<u8>) -> Handled {
    let mut r = Reader::new(body);
    match header.op {
        ops::CU_LAUNCH_KERNEL => execution::cuLaunchKernel(s, header, r, reply),
        op::COPY_IN_INLINE => copy::copy_in_inline(s, header, r),
        op::COPY_IN => copy::copy_in(s, header, r),
        op::COPY_OUT => copy::copy_out(s, header, r),
        op::COPY_OUT_INLINE => copy::copy_out_inline(s, header, r),
        op::COPY_3D => copy::copy_3d(s, header, r),
        op::STREAM_MARK => stream::mark(s, header, r),
        op::PING => {
            Ping::decode(&mut r)?;
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        op::LOG => {
            LogAsk::decode(&mut r)?;
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        op::CALLBACK_DONE => {
            s.callbacks.done(CallbackDone::decode(&mut r)?.round);
            Ok(Outcome::Done(CUDA_SUCCESS))
        }
        op::VISIBLE_DEVICES => {
            let q = VisibleDevices::decode(&mut r)?;
            let own = |device: &Ordinal| (*device != OF_ANOTHER_SERVER).then_some(device.0 as usize);
            match s.vgpus.show(q.devices.iter().map(own).collect()) {
                true => Ok(Outcome::Done(CUDA_SUCCESS)),
                false => Err(Fault("visible device that was not granted").into()),
            }
        }
        // A carrier's business, which keeps it; in shared memory there is nothing to do.
        op::HEAP_WRITTEN => {
            HeapWritten::decode(&mut r)?.range.check(s.heap.bytes())?;
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
            generated::dispatch(s, header, r, reply)
        }
    }
}
