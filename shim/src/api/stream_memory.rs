//! Streams that write a value to memory or wait for one. In host memory the other party is the application, so what is
//! said of a kernel's parameters holds for these addresses too.

// UNSAFETY: reads the application's arrays.

use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;

use crate::memory::in_step::{before_flag, before_launch, note, note_words};
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::post;

/// As the row says; the driver's own limit is not known.
const OPERATIONS_MAX: usize = 256;

fn one(addr: CUdeviceptr, bytes: usize, value: u64, op: u16, encode: impl FnOnce(&mut Vec<u8>)) -> CUresult {
    match session() {
        Ok(s) => {
            note_words(s, &value.to_le_bytes());
            if let Err(code) = before_flag(s, addr, bytes as u64) {
                return code;
            }
        }
        Err(code) => return code,
    }
    post(op, encode)
}

macro_rules! one_value {
    ($($name:ident: $value:ty;)*) => {$(
        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $name(stream: CUstream, addr: CUdeviceptr, value: $value, flags: u32) -> CUresult {
            let q = calls::$name { stream: stream as u64, addr: ClaimedDevice::new(addr), value, flags };
            ahead::queued(stream);
            one(addr, size_of::<$value>(), u64::from(value), calls::$name::OP, |w| q.encode(w))
        }
    )*};
}

one_value! {
    cuStreamWriteValue32: u32;
    cuStreamWaitValue32: u32;
    cuStreamWriteValue64: u64;
    cuStreamWaitValue64: u64;
    cuStreamWriteValue32_v2: u32;
    cuStreamWaitValue32_v2: u32;
    cuStreamWriteValue64_v2: u64;
    cuStreamWaitValue64_v2: u64;
}

/// The application's array, and its bytes.
///
/// # Safety
/// `operations` is null or has `count` elements.
unsafe fn several<'a>(count: u32, operations: *const CUstreamBatchMemOpParams) -> Result<&'a [u8], CUresult> {
    let s = session()?;
    let count = count as usize;
    if count > OPERATIONS_MAX || (operations.is_null() && count != 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if count == 0 {
        return Ok(&[]);
    }
    for i in 0..count {
        // SAFETY: the caller's promise; all of an operation's bytes belong to `pad`.
        let operation = unsafe { &(*operations.add(i)).pad };
        note(s, operation)?;
        operation.iter().for_each(|word| note_words(s, &word.to_le_bytes()));
    }
    before_launch(s);
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(operations.cast(), count * size_of::<CUstreamBatchMemOpParams>()) })
}

macro_rules! several_values {
    ($($name:ident)*) => {$(
        /// # Safety
        /// `operations` has `count` elements.
        pub unsafe fn $name(
            stream: CUstream,
            count: u32,
            operations: *mut CUstreamBatchMemOpParams,
            flags: u32,
        ) -> CUresult {
            // SAFETY: the caller's promise.
            let sent_paramArray = match unsafe { several(count, operations) } {
                Ok(bytes) => bytes,
                Err(code) => return code,
            };
            let q = calls::$name { stream: stream as u64, count, paramArray: sent_paramArray, flags };
            ahead::queued(stream);
            post(calls::$name::OP, |w| q.encode(w))
        }
    )*};
}

several_values! {
    cuStreamBatchMemOp
    cuStreamBatchMemOp_v2
}
