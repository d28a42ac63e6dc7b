//! What contexts say to the worker. Ordinals and handles are the application's; the command's context is the
//! calling thread's current one, so what names no context is about that.

use orion_cuda::sys::*;
use orion_wire::message::calls;
use orion_wire::message::context::{
    CtxCreate, CtxDestroy, CtxSetLimit, DevicePrimaryCtxRelease, DevicePrimaryCtxReset,
};
use orion_wire::message::field::{Existing, New, Ordinal};

#[cfg(not(test))]
use crate::session::call::{call, post};
use crate::session::route::of_device;
use crate::state::context::Context;
#[cfg(test)]
use tests::{call, post};

/// Creates a context under a handle of our choice.
pub fn create(handle: u64, flags: u32, device: u32) -> Result<(), CUresult> {
    let q = CtxCreate { context: New(handle), flags, device: Ordinal(device as i32) };
    of_device(device, || call(CtxCreate::OP, |w| q.encode(w), |_| Ok(())))
}

pub fn destroy(context: &Context) -> Result<(), CUresult> {
    let q = CtxDestroy { context: Existing(context.handle) };
    of_device(context.device, || call(CtxDestroy::OP, |w| q.encode(w), |_| Ok(())))
}

pub fn set_flags(flags: u32) -> CUresult {
    post(calls::cuCtxSetFlags::OP, |w| calls::cuCtxSetFlags { flags }.encode(w))
}

/// Sets a limit and answers what it became: the driver rounds.
pub fn set_limit(limit: CUlimit, value: u64) -> Result<u64, CUresult> {
    let q = CtxSetLimit { limit, value };
    call(CtxSetLimit::OP, |w| q.encode(w), |_| Ok(()))?;
    let q = calls::cuCtxGetLimit { limit };
    let answer = call(calls::cuCtxGetLimit::OP, |w| q.encode(w), calls::cuCtxGetLimit_reply::decode)?;
    Ok(answer.pvalue as u64)
}

pub fn set_cache_config(config: CUfunc_cache) -> CUresult {
    post(calls::cuCtxSetCacheConfig::OP, |w| calls::cuCtxSetCacheConfig { config }.encode(w))
}

pub fn reset_persisting_l2_cache() -> CUresult {
    post(calls::cuCtxResetPersistingL2Cache::OP, |w| calls::cuCtxResetPersistingL2Cache {}.encode(w))
}

/// The last release of a device's primary context: everything in it goes. Retaining says nothing, the worker
/// has the context again when it is next used. Posted, because cudart releases while the process exits.
pub fn primary_released(device: u32) -> CUresult {
    let q = DevicePrimaryCtxRelease { device: Ordinal(device as i32) };
    of_device(device, || post(DevicePrimaryCtxRelease::OP, |w| q.encode(w)))
}

pub fn primary_reset(device: u32) -> Result<(), CUresult> {
    let q = DevicePrimaryCtxReset { device: Ordinal(device as i32) };
    of_device(device, || call(DevicePrimaryCtxReset::OP, |w| q.encode(w), |_| Ok(())))
}

pub fn primary_set_flags(device: u32, flags: u32) -> CUresult {
    let q = calls::cuDevicePrimaryCtxSetFlags_v2 { dev: device as i32, flags };
    of_device(device, || post(calls::cuDevicePrimaryCtxSetFlags_v2::OP, |w| q.encode(w)))
}

/// A worker that agrees to everything and remembers what this thread asked.
#[cfg(test)]
pub mod tests {
    use super::*;
    use orion_wire::{Fault, Reader};
    use std::cell::RefCell;

    thread_local! {
        static SENT: RefCell<Vec<u16>> = const { RefCell::new(Vec::new()) };
    }

    pub fn post(op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
        encode(&mut Vec::new());
        SENT.with_borrow_mut(|sent| sent.push(op));
        CUDA_SUCCESS
    }

    pub fn call<T>(
        op: u16,
        encode: impl FnOnce(&mut Vec<u8>),
        decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
    ) -> Result<T, CUresult> {
        let (mut body, mut reply) = (Vec::new(), Vec::new());
        post(op, |w| {
            encode(w);
            body.clone_from(w);
        });
        match op {
            // As the driver: stack sizes come in steps of 16 bytes.
            calls::cuCtxGetLimit::OP => calls::cuCtxGetLimit_reply { pvalue: 5008 }.encode(&mut reply),
            CtxSetLimit::OP => {
                let q = CtxSetLimit::decode(&mut Reader::new(&body)).expect("what was just encoded");
                if q.limit == CU_LIMIT_SHMEM_SIZE {
                    return Err(CUDA_ERROR_NOT_PERMITTED);
                }
            }
            _ => {}
        }
        Ok(decode(&mut Reader::new(&reply)).expect("the reply that was asked for"))
    }

    /// Operations this thread asked for since the last look.
    pub fn sent() -> Vec<u16> {
        SENT.take()
    }

    pub const CREATE: u16 = CtxCreate::OP;
    pub const DESTROY: u16 = CtxDestroy::OP;
    pub const RELEASE: u16 = DevicePrimaryCtxRelease::OP;
    pub const RESET: u16 = DevicePrimaryCtxReset::OP;
}
