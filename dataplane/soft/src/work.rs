//! What a stream does with work.

// UNSAFETY: calls host functions the application handed over.

use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::Raw;
use crate::context::Context;
use crate::graph::Work;
use crate::{busy, cupti, vram};

impl Work {
    /// Runs on a stream's thread. After a failure of the context only its consequences remain, so nothing runs.
    /// `origin` is what a profiler has to be told of it.
    pub fn run(&self, c: &Arc<Context>, origin: Option<cupti::Origin>) {
        if c.error() != CUDA_SUCCESS {
            return;
        }
        let running = cupti::begin(self, origin);
        let outcome = match self {
            Self::Empty | Self::Record(_) | Self::Wait(_) | Self::Child(_) | Self::Conditional(_) => Ok(()),
            Self::Alloc(a) => {
                vram::update(a.base, |r| r.flags |= crate::memory::GRAPH_LIVE);
                Ok(())
            }
            Self::Kernel(k) => busy::during(c.device, || k.run(c)),
            Self::Copy(copy) => busy::during(c.device, || copy.run()),
            Self::Set(set) => {
                busy::during(c.device, || set.run());
                Ok(())
            }
            Self::Host(call) => {
                let Raw((f, data)) = *call;
                if let Some(f) = f {
                    // SAFETY: the application's function with the application's argument, in stream order.
                    crate::device::host_function(|| unsafe { f(data) });
                }
                Ok(())
            }
            Self::MemOps(ops) => {
                ops.iter().for_each(|op| op.run(c));
                Ok(())
            }
            Self::Free(at) => {
                if let Some(r) = vram::find(*at).filter(|r| r.base == *at) {
                    crate::memory::give_back(&r);
                }
                Ok(())
            }
        };
        match (outcome, running) {
            (Err(e), _) => c.fail(e),
            (Ok(()), Some(running)) => running.end(self, c),
            (Ok(()), None) => {}
        }
    }
}
