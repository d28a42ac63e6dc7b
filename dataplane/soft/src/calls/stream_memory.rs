//! Words that streams write and wait for.

// UNSAFETY: C entry points.

use std::ffi::c_uint;

use orion_cuda::sys::*;

use crate::api::{R, api, list};
use crate::enqueue::enqueue;
use crate::graph::Work;
use crate::stream::resolve;
use crate::stream_memory::MemOp;

fn mem_op(h: CUstream, op: MemOp) -> R {
    mem_ops(h, vec![op])
}

fn mem_ops(h: CUstream, ops: Vec<MemOp>) -> R {
    let s = resolve(h)?;
    for op in &ops {
        let (at, bytes) = op.target();
        // Where there is no memory is found when it runs, if it is recorded.
        let is_judged = bytes != 1 && s.capture().is_none();
        if at % bytes != 0 || (is_judged && !crate::vram::covers(at, bytes)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    enqueue(&s, Work::MemOps(ops)).map(drop)
}

/// As driver 580 on an H200 takes flags.
fn write(h: CUstream, op: MemOp, flags: c_uint) -> R {
    if flags == CU_STREAM_WRITE_VALUE_DEFAULT { mem_op(h, op) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

fn wait(h: CUstream, op: MemOp, flags: c_uint) -> R {
    resolve(h)?;
    match flags & !CU_STREAM_WAIT_VALUE_FLUSH {
        ..=CU_STREAM_WAIT_VALUE_NOR if flags & CU_STREAM_WAIT_VALUE_FLUSH != 0 => Err(CUDA_ERROR_NOT_SUPPORTED),
        ..=CU_STREAM_WAIT_VALUE_NOR => mem_op(h, op),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Driver 580 refuses them, unless its kernel module was told to allow them.
fn first_version(h: CUstream) -> R {
    match resolve(h)?.capture() {
        Some(capture) => {
            capture.invalidate();
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}

fn batch(h: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams) -> R {
    // SAFETY: the caller passes `count` entries.
    let params = unsafe { list(params, count as usize)? };
    mem_ops(h, crate::stream_memory::mem_ops(&params)?)
}

api! {
    fn cuStreamWriteValue32_v2(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        write(h, MemOp::Write { at, bytes: 4, value: u64::from(value) }, flags)
    }
    fn cuStreamWriteValue64_v2(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        write(h, MemOp::Write { at, bytes: 8, value }, flags)
    }
    fn cuStreamWaitValue32_v2(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        wait(h, MemOp::Wait { at, bytes: 4, value: u64::from(value), flags }, flags)
    }
    fn cuStreamWaitValue64_v2(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        wait(h, MemOp::Wait { at, bytes: 8, value, flags }, flags)
    }
    fn cuStreamWriteValue32(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        let _ = (at, value, flags);
        first_version(h)
    }
    fn cuStreamWriteValue64(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        let _ = (at, value, flags);
        first_version(h)
    }
    fn cuStreamWaitValue32(h: CUstream, at: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        let _ = (at, value, flags);
        first_version(h)
    }
    fn cuStreamWaitValue64(h: CUstream, at: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        let _ = (at, value, flags);
        first_version(h)
    }
    fn cuStreamBatchMemOp(h: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams, flags: c_uint) {
        let _ = flags;
        batch(h, count, params)
    }
    fn cuStreamBatchMemOp_v2(h: CUstream, count: c_uint, params: *mut CUstreamBatchMemOpParams, flags: c_uint) {
        let _ = flags;
        batch(h, count, params)
    }
}
