//! Posting and calling: one record to the worker, and perhaps one back.

use orion_cuda::sys::*;
use orion_wire::{Fault, Reader};

/// Sends a command whose answer nobody needs. A failure surfaces on a later call of the current context.
pub fn post(_op: u16, _encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    CUDA_ERROR_NOT_INITIALIZED
}

/// Sends a command and waits for its reply. `decode` sees the reply's body if the result is `CUDA_SUCCESS`.
pub fn call<T>(
    _op: u16,
    _encode: impl FnOnce(&mut Vec<u8>),
    _decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<T, CUresult> {
    Err(CUDA_ERROR_NOT_INITIALIZED)
}
