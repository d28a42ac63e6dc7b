//! Words that streams write and wait for.

// UNSAFETY: reads and writes words at addresses that were checked, and unions whose member another field tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use orion_cuda::sys::*;

use crate::api::R;
use crate::context::Context;
use crate::vram;

#[derive(Clone, Copy)]
pub enum MemOp {
    Write { at: u64, bytes: u64, value: u64 },
    Wait { at: u64, bytes: u64, value: u64, flags: u32 },
    Barrier,
}

impl MemOp {
    pub fn target(self) -> (u64, u64) {
        match self {
            Self::Write { at, bytes, .. } | Self::Wait { at, bytes, .. } => (at, bytes),
            Self::Barrier => (0, 1),
        }
    }
}

pub fn mem_ops(params: &[CUstreamBatchMemOpParams]) -> R<Vec<MemOp>> {
    let mut out = Vec::new();
    for p in params {
        // SAFETY: every member of the union begins with the operation.
        let op = unsafe { p.operation };
        let wide = matches!(op, CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64);
        let bytes = if wide { 8 } else { 4 };
        let trim = |v: u64| if wide { v } else { v & 0xffff_ffff };
        // SAFETY: the operation says which member is set.
        out.push(unsafe {
            match op {
                CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    let w = p.waitValue;
                    MemOp::Wait { at: w.address, bytes, value: trim(w.__bindgen_anon_1.value64), flags: w.flags }
                }
                CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    let w = p.writeValue;
                    MemOp::Write { at: w.address, bytes, value: trim(w.__bindgen_anon_1.value64) }
                }
                CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | CU_STREAM_MEM_OP_BARRIER => MemOp::Barrier,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        });
    }
    Ok(out)
}

impl MemOp {
    pub fn run(self, c: &Arc<Context>) {
        match self {
            Self::Barrier => std::sync::atomic::fence(Ordering::SeqCst),
            Self::Write { at, bytes, value } => {
                if !vram::covers(at, bytes) {
                    c.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
                    return;
                }
                // SAFETY: covered by a live range, and aligned as the caller checked.
                unsafe {
                    if bytes == 4 {
                        AtomicU32::from_ptr(at as *mut u32).store(value as u32, Ordering::SeqCst);
                    } else {
                        AtomicU64::from_ptr(at as *mut u64).store(value, Ordering::SeqCst);
                    }
                }
            }
            Self::Wait { at, bytes, value, flags } => loop {
                if !vram::covers(at, bytes) {
                    c.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
                }
                // A wait that nobody satisfies ends with the context, as it would on hardware.
                if c.error() != CUDA_SUCCESS {
                    return;
                }
                // SAFETY: as above.
                let now = unsafe {
                    if bytes == 4 {
                        u64::from(AtomicU32::from_ptr(at as *mut u32).load(Ordering::SeqCst))
                    } else {
                        AtomicU64::from_ptr(at as *mut u64).load(Ordering::SeqCst)
                    }
                };
                let top = 8 * bytes as u32 - 1;
                let met = match flags & 3 {
                    CU_STREAM_WAIT_VALUE_EQ => now == value,
                    CU_STREAM_WAIT_VALUE_AND => now & value != 0,
                    CU_STREAM_WAIT_VALUE_NOR => {
                        (now | value) != if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX }
                    }
                    _ => now.wrapping_sub(value) >> top & 1 == 0,
                };
                if met {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_micros(20));
            },
        }
    }
}
