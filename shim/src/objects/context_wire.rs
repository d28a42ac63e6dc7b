//! What contexts say to the worker. Ordinals and handles are the application's; the command's context is the
//! calling thread's current one, so what names no context is about that.

use orion_cuda::sys::*;
use orion_wire::generated::ops;

#[cfg(not(test))]
use orion_wire::Writer;
#[cfg(test)]
use tests::{call, post};

/// Creates a context under a handle of our choice.
pub fn create(handle: u64, flags: u32, device: u32) -> Result<(), CUresult> {
    call(ops::CU_CTX_CREATE_V2, &[handle, flags as u64, device as u64]).map(drop)
}

pub fn destroy(handle: u64) -> Result<(), CUresult> {
    call(ops::CU_CTX_DESTROY_V2, &[handle]).map(drop)
}

pub fn set_flags(flags: u32) -> CUresult {
    post(ops::CU_CTX_SET_FLAGS, &[flags as u64])
}

/// Sets a limit and answers what it became: the driver rounds.
pub fn set_limit(limit: CUlimit, value: u64) -> Result<u64, CUresult> {
    call(ops::CU_CTX_SET_LIMIT, &[limit as u64, value])?;
    call(ops::CU_CTX_GET_LIMIT, &[limit as u64]).map(|value| value.unwrap_or(0))
}

pub fn set_cache_config(config: CUfunc_cache) -> CUresult {
    post(ops::CU_CTX_SET_CACHE_CONFIG, &[config as u64])
}

pub fn reset_persisting_l2_cache() -> CUresult {
    post(ops::CU_CTX_RESET_PERSISTING_L2_CACHE, &[])
}

/// The last release of a device's primary context: everything in it goes. Retaining says nothing, the worker
/// has the context again when it is next used. Posted, because cudart releases while the process exits.
pub fn primary_released(device: u32) -> CUresult {
    post(ops::CU_DEVICE_PRIMARY_CTX_RELEASE_V2, &[device as u64])
}

pub fn primary_reset(device: u32) -> Result<(), CUresult> {
    call(ops::CU_DEVICE_PRIMARY_CTX_RESET_V2, &[device as u64]).map(drop)
}

pub fn primary_set_flags(device: u32, flags: u32) -> CUresult {
    post(ops::CU_DEVICE_PRIMARY_CTX_SET_FLAGS_V2, &[device as u64, flags as u64])
}

#[cfg(not(test))]
pub fn post(op: u16, words: &[u64]) -> CUresult {
    crate::session::call::post(op, |w| words.iter().for_each(|v| w.word(*v)))
}

/// The reply's first word, if it has one.
#[cfg(not(test))]
pub fn call(op: u16, words: &[u64]) -> Result<Option<u64>, CUresult> {
    crate::session::call::call(
        op,
        |w| words.iter().for_each(|v| w.word(*v)),
        |r| if r.is_empty() { Ok(None) } else { r.word().map(Some) },
    )
}

/// A worker that agrees to everything and remembers what this thread asked.
#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static SENT: RefCell<Vec<(u16, Vec<u64>)>> = const { RefCell::new(Vec::new()) };
    }

    pub fn post(op: u16, words: &[u64]) -> CUresult {
        SENT.with_borrow_mut(|sent| sent.push((op, words.to_vec())));
        CUDA_SUCCESS
    }

    pub fn call(op: u16, words: &[u64]) -> Result<Option<u64>, CUresult> {
        post(op, words);
        match op {
            // As the driver: stack sizes come in steps of 16 bytes.
            ops::CU_CTX_GET_LIMIT => Ok(Some(5008)),
            ops::CU_CTX_SET_LIMIT if words[0] == CU_LIMIT_SHMEM_SIZE as u64 => Err(CUDA_ERROR_NOT_PERMITTED),
            _ => Ok(None),
        }
    }

    /// Operations this thread asked for since the last look.
    pub fn sent() -> Vec<u16> {
        SENT.take().into_iter().map(|(op, _)| op).collect()
    }

    pub const CREATE: u16 = ops::CU_CTX_CREATE_V2;
    pub const DESTROY: u16 = ops::CU_CTX_DESTROY_V2;
    pub const RELEASE: u16 = ops::CU_DEVICE_PRIMARY_CTX_RELEASE_V2;
    pub const RESET: u16 = ops::CU_DEVICE_PRIMARY_CTX_RESET_V2;
}
