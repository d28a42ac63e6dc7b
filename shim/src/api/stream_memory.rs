//! Streams that write a value to memory or wait for one. In host memory the other party is the application, so what is
//! said of a kernel's parameters holds for these addresses too.

// UNSAFETY: reads the application's arrays.

use orion_cuda::sys::*;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls;

use crate::answer::code;
use crate::memory::copy::post_or_call;
use crate::memory::in_step::{before_flag, before_launch, note, note_words};
use crate::objects::stream::at_home;
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::call;
use crate::state::context;
use crate::state::process::state;

/// As the row says; the driver's own limit is not known.
const OPERATIONS_MAX: usize = 256;

/// What the driver takes with a wait: how to compare, and nothing else (580 refuses to flush).
const COMPARISONS: &[u32] =
    &[CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_EQ, CU_STREAM_WAIT_VALUE_AND, CU_STREAM_WAIT_VALUE_NOR];
/// With a write: one without a barrier was the first version's.
const WRITES: &[u32] = &[CU_STREAM_WRITE_VALUE_DEFAULT];
/// The first version's functions the driver refuses, unless its module was loaded with a parameter for them.
const JUDGED_BY_THE_DRIVER: &[u32] = &[];

/// Whether the driver accepts a word of so many bytes at an address.
fn is_sound(addr: CUdeviceptr, bytes: u64) -> bool {
    addr.is_multiple_of(bytes) && state().addresses.find(addr).is_some_and(|range| range.bytes_from(addr) >= bytes)
}

/// Not awaited, unless the driver may refuse it.
fn one(
    (stream, addr, bytes, value): (CUstream, CUdeviceptr, usize, u64),
    flags_are_sound: bool,
    op: u16,
    encode: impl FnOnce(&mut Vec<u8>),
) -> CUresult {
    let s = match session() {
        Ok(s) => s,
        Err(code) => return code,
    };
    note_words(s, &value.to_le_bytes());
    if let Err(code) = before_flag(s, addr, bytes as u64) {
        return code;
    }
    let known = flags_are_sound && context::current() != 0 && is_sound(addr, bytes as u64);
    ahead::queued(stream);
    code(at_home(stream, || post_or_call(op, known, encode)))
}

macro_rules! one_value {
    ($($name:ident: $value:ty, $flags:ident;)*) => {$(
        /// # Safety
        /// None beyond the C ABI.
        pub unsafe fn $name(stream: CUstream, addr: CUdeviceptr, value: $value, flags: u32) -> CUresult {
            let q = calls::$name { stream: stream as u64, addr: ClaimedDevice::new(addr), value, flags };
            let what = (stream, addr, size_of::<$value>(), u64::from(value));
            one(what, $flags.contains(&flags), calls::$name::OP, |w| q.encode(w))
        }
    )*};
}

one_value! {
    cuStreamWriteValue32: u32, JUDGED_BY_THE_DRIVER;
    cuStreamWaitValue32: u32, JUDGED_BY_THE_DRIVER;
    cuStreamWriteValue64: u64, JUDGED_BY_THE_DRIVER;
    cuStreamWaitValue64: u64, JUDGED_BY_THE_DRIVER;
    cuStreamWriteValue32_v2: u32, WRITES;
    cuStreamWaitValue32_v2: u32, COMPARISONS;
    cuStreamWriteValue64_v2: u64, WRITES;
    cuStreamWaitValue64_v2: u64, COMPARISONS;
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
            code(at_home(stream, || call(calls::$name::OP, |w| q.encode(w), |_| Ok(()))))
        }
    )*};
}

several_values! {
    cuStreamBatchMemOp
    cuStreamBatchMemOp_v2
}
