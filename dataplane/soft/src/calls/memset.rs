//! Fills.

// UNSAFETY: C entry points.

use std::ffi::{c_uchar, c_uint, c_ushort};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, api};
use crate::context::{self, Stream};
use crate::graph::Work;
use crate::memset::Set;
use crate::vram::{self, Kind};
use crate::{enqueue, pool, stream};

/// Fills memory; `None` is the default stream, and waits where the memory is the host's.
fn fill(set: Set, h: Option<CUstream>) -> R {
    let c = context::current()?;
    let s: Arc<Stream> = match h {
        Some(h) => stream::resolve(h)?,
        None => c.legacy_stream()?,
    };
    match s.capture() {
        Some(_) => set.check_shape()?,
        None => set.check()?,
    }
    if set.width == 0 || set.height == 0 {
        return Ok(());
    }
    let in_reach = vram::find(set.dst).is_none_or(|r| match r.kind {
        Kind::Device => c.reaches(r.device),
        Kind::Pool => pool::reaches(&r, c.device),
        _ => true,
    });
    if !in_reach {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if h.is_none() && vram::is_hosts(set.dst) {
        return enqueue::run_now(&s, Work::Set(set));
    }
    enqueue::enqueue(&s, Work::Set(set)).map(drop)
}

fn row(dst: u64, value: u32, element: u32, n: usize) -> Set {
    Set { dst, pitch: 0, value, element, width: n as u64, height: 1 }
}

fn rows(dst: u64, pitch: usize, value: u32, element: u32, w: usize, h: usize) -> Set {
    Set { dst, pitch: pitch as u64, value, element, width: w as u64, height: h as u64 }
}

api! {
    fn cuMemsetD8_v2(at: CUdeviceptr, v: c_uchar, n: usize) { fill(row(at, v.into(), 1, n), None) }
    fn cuMemsetD16_v2(at: CUdeviceptr, v: c_ushort, n: usize) { fill(row(at, v.into(), 2, n), None) }
    fn cuMemsetD32_v2(at: CUdeviceptr, v: c_uint, n: usize) { fill(row(at, v, 4, n), None) }
    fn cuMemsetD2D8_v2(at: CUdeviceptr, pitch: usize, v: c_uchar, w: usize, h: usize) {
        fill(rows(at, pitch, v.into(), 1, w, h), None)
    }
    fn cuMemsetD2D16_v2(at: CUdeviceptr, pitch: usize, v: c_ushort, w: usize, h: usize) {
        fill(rows(at, pitch, v.into(), 2, w, h), None)
    }
    fn cuMemsetD2D32_v2(at: CUdeviceptr, pitch: usize, v: c_uint, w: usize, h: usize) {
        fill(rows(at, pitch, v, 4, w, h), None)
    }
    fn cuMemsetD8Async(at: CUdeviceptr, v: c_uchar, n: usize, s: CUstream) { fill(row(at, v.into(), 1, n), Some(s)) }
    fn cuMemsetD16Async(at: CUdeviceptr, v: c_ushort, n: usize, s: CUstream) {
        fill(row(at, v.into(), 2, n), Some(s))
    }
    fn cuMemsetD32Async(at: CUdeviceptr, v: c_uint, n: usize, s: CUstream) { fill(row(at, v, 4, n), Some(s)) }
    fn cuMemsetD2D8Async(at: CUdeviceptr, pitch: usize, v: c_uchar, w: usize, h: usize, s: CUstream) {
        fill(rows(at, pitch, v.into(), 1, w, h), Some(s))
    }
    fn cuMemsetD2D16Async(at: CUdeviceptr, pitch: usize, v: c_ushort, w: usize, h: usize, s: CUstream) {
        fill(rows(at, pitch, v.into(), 2, w, h), Some(s))
    }
    fn cuMemsetD2D32Async(at: CUdeviceptr, pitch: usize, v: c_uint, w: usize, h: usize, s: CUstream) {
        fill(rows(at, pitch, v, 4, w, h), Some(s))
    }
}
