//! Copies.

// UNSAFETY: C entry points.

use std::ffi::c_void;
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, Raw, api, get, list};
use crate::array::ARRAYS;
use crate::context::Context;
use crate::copy::Copy3D;
use crate::graph::Work;
use crate::{context, enqueue, stream, vram};

/// Runs a copy on the calling context's default stream and waits, as the synchronous calls do.
fn copy_now(copy: Copy3D) -> R {
    let c = context::current()?;
    copy.check()?;
    enqueue::run_now(&c.legacy_stream()?, Work::Copy(copy))
}

/// Queues a copy. Pageable memory is handled as the driver documents it: a source is taken before the call returns, a
/// destination is written before the call returns.
fn copy_async(mut copy: Copy3D, h: CUstream) -> R {
    let s = stream::resolve(h)?;
    copy.check()?;
    if s.capture().is_some() {
        return enqueue::enqueue(&s, Work::Copy(copy)).map(drop);
    }
    let (source, destination) = copy.pageable();
    if source {
        copy.stage()?;
    }
    if destination { enqueue::run_now(&s, Work::Copy(copy)) } else { enqueue::enqueue(&s, Work::Copy(copy)).map(drop) }
}

const HOST: CUmemorytype = CU_MEMORYTYPE_HOST;
const DEVICE: CUmemorytype = CU_MEMORYTYPE_DEVICE;
const UNIFIED: CUmemorytype = CU_MEMORYTYPE_UNIFIED;

fn from_2d(c: &CUDA_MEMCPY2D) -> Copy3D {
    // SAFETY: all zeroes is a valid value of this C struct.
    let mut r: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (r.srcXInBytes, r.srcY, r.srcMemoryType) = (c.srcXInBytes, c.srcY, c.srcMemoryType);
    (r.srcHost, r.srcDevice, r.srcArray, r.srcPitch) = (c.srcHost, c.srcDevice, c.srcArray, c.srcPitch);
    (r.dstXInBytes, r.dstY, r.dstMemoryType) = (c.dstXInBytes, c.dstY, c.dstMemoryType);
    (r.dstHost, r.dstDevice, r.dstArray, r.dstPitch) = (c.dstHost, c.dstDevice, c.dstArray, c.dstPitch);
    (r.WidthInBytes, r.Height, r.Depth) = (c.WidthInBytes, c.Height, 1);
    Copy3D { raw: Raw(r), staged: None }
}

fn from_peer(c: &CUDA_MEMCPY3D_PEER) -> Copy3D {
    // SAFETY: all zeroes is a valid value of this C struct.
    let mut r: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (r.srcXInBytes, r.srcY, r.srcZ, r.srcMemoryType) = (c.srcXInBytes, c.srcY, c.srcZ, c.srcMemoryType);
    (r.srcHost, r.srcDevice, r.srcArray) = (c.srcHost, c.srcDevice, c.srcArray);
    (r.srcPitch, r.srcHeight) = (c.srcPitch, c.srcHeight);
    (r.dstXInBytes, r.dstY, r.dstZ, r.dstMemoryType) = (c.dstXInBytes, c.dstY, c.dstZ, c.dstMemoryType);
    (r.dstHost, r.dstDevice, r.dstArray) = (c.dstHost, c.dstDevice, c.dstArray);
    (r.dstPitch, r.dstHeight) = (c.dstPitch, c.dstHeight);
    (r.WidthInBytes, r.Height, r.Depth) = (c.WidthInBytes, c.Height, c.Depth);
    Copy3D { raw: Raw(r), staged: None }
}

fn plain(c: CUDA_MEMCPY3D) -> Copy3D {
    Copy3D { raw: Raw(c), staged: None }
}

fn array_at(h: CUarray, offset: usize, bytes: usize) -> R<u64> {
    let array = ARRAYS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    match array.has_line(offset, bytes) {
        true => Ok(array.base + offset as u64),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Copies inside device memory do not wait, which only a query of the default stream could show.
fn copy_inside(c: &Arc<Context>, dst: CUdeviceptr, src: CUdeviceptr, n: usize) -> R {
    let copy = Copy3D::flat(dst, DEVICE, src, DEVICE, n);
    copy.check()?;
    match vram::is_hosts(dst) || vram::is_hosts(src) {
        true => enqueue::run_now(&c.legacy_stream()?, Work::Copy(copy)),
        false => enqueue::enqueue(&c.legacy_stream()?, Work::Copy(copy)).map(drop),
    }
}

api! {
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, n: usize) {
        copy_now(Copy3D::flat(dst, UNIFIED, src, UNIFIED, n))
    }
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst, UNIFIED, src, UNIFIED, n), h)
    }
    fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, n: usize) {
        copy_now(Copy3D::flat(dst, DEVICE, src as u64, HOST, n))
    }
    fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, n: usize) {
        copy_now(Copy3D::flat(dst as u64, HOST, src, DEVICE, n))
    }
    fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize) {
        copy_inside(&context::current()?, dst, src, n)
    }
    fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst, DEVICE, src as u64, HOST, n), h)
    }
    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst as u64, HOST, src, DEVICE, n), h)
    }
    fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst, DEVICE, src, DEVICE, n), h)
    }
    fn cuMemcpyPeer(dst: CUdeviceptr, to: CUcontext, src: CUdeviceptr, from: CUcontext, n: usize) {
        let here = context::current()?;
        let mut others = vec![context::from_handle(to)?, context::from_handle(from)?];
        others.retain(|other| other.id != here.id);
        // All that is queued in either context comes before it, and all that will be behind it.
        let before = others.iter().map(|other| other.legacy_stream()?.submit(Vec::new(), Box::new(|_| ())));
        let before = before.collect::<R<Vec<_>>>()?;
        if !before.is_empty() {
            here.legacy_stream()?.submit(before, Box::new(|_| ()))?;
        }
        copy_inside(&here, dst, src, n)?;
        for other in others {
            let copied = here.legacy_stream()?.submit(Vec::new(), Box::new(|_| ()))?;
            other.legacy_stream()?.submit(vec![copied], Box::new(|_| ()))?;
        }
        Ok(())
    }
    fn cuMemcpyPeerAsync(
        dst: CUdeviceptr,
        to: CUcontext,
        src: CUdeviceptr,
        from: CUcontext,
        n: usize,
        h: CUstream,
    ) {
        context::from_handle(to)?;
        context::from_handle(from)?;
        if let Some(capture) = stream::resolve(h)?.capture() {
            capture.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        copy_async(Copy3D::flat(dst, DEVICE, src, DEVICE, n), h)
    }
    fn cuMemcpyDtoA_v2(dst: CUarray, offset: usize, src: CUdeviceptr, n: usize) {
        copy_now(Copy3D::flat(array_at(dst, offset, n)?, DEVICE, src, DEVICE, n))
    }
    fn cuMemcpyAtoD_v2(dst: CUdeviceptr, src: CUarray, offset: usize, n: usize) {
        copy_now(Copy3D::flat(dst, DEVICE, array_at(src, offset, n)?, DEVICE, n))
    }
    fn cuMemcpyHtoA_v2(dst: CUarray, offset: usize, src: *const c_void, n: usize) {
        copy_now(Copy3D::flat(array_at(dst, offset, n)?, DEVICE, src as u64, HOST, n))
    }
    fn cuMemcpyAtoH_v2(dst: *mut c_void, src: CUarray, offset: usize, n: usize) {
        copy_now(Copy3D::flat(dst as u64, HOST, array_at(src, offset, n)?, DEVICE, n))
    }
    fn cuMemcpyAtoA_v2(dst: CUarray, to: usize, src: CUarray, from: usize, n: usize) {
        copy_now(Copy3D::flat(array_at(dst, to, n)?, DEVICE, array_at(src, from, n)?, DEVICE, n))
    }
    fn cuMemcpyHtoAAsync_v2(dst: CUarray, offset: usize, src: *const c_void, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(array_at(dst, offset, n)?, DEVICE, src as u64, HOST, n), h)
    }
    fn cuMemcpyAtoHAsync_v2(dst: *mut c_void, src: CUarray, offset: usize, n: usize, h: CUstream) {
        copy_async(Copy3D::flat(dst as u64, HOST, array_at(src, offset, n)?, DEVICE, n), h)
    }
    fn cuMemcpy2D_v2(c: *const CUDA_MEMCPY2D) { copy_now(from_2d(&get(c)?)) }
    fn cuMemcpy2DUnaligned_v2(c: *const CUDA_MEMCPY2D) { copy_now(from_2d(&get(c)?)) }
    fn cuMemcpy2DAsync_v2(c: *const CUDA_MEMCPY2D, h: CUstream) { copy_async(from_2d(&get(c)?), h) }
    fn cuMemcpy3D_v2(c: *const CUDA_MEMCPY3D) { copy_now(plain(get(c)?)) }
    fn cuMemcpy3DAsync_v2(c: *const CUDA_MEMCPY3D, h: CUstream) { copy_async(plain(get(c)?), h) }
    fn cuMemcpy3DPeer(c: *const CUDA_MEMCPY3D_PEER) { copy_now(from_peer(&get(c)?)) }
    fn cuMemcpy3DPeerAsync(c: *const CUDA_MEMCPY3D_PEER, h: CUstream) { copy_async(from_peer(&get(c)?), h) }
    fn cuMemcpyBatchAsync_v2(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        indices: *mut usize,
        attr_count: usize,
        h: CUstream,
    ) {
        // None of the default streams but a thread's own.
        if count == 0 || attr_count > count || (h as usize) < 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let orders = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM..=CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
        let (attrs, indices) = (list(attrs, attr_count)?, list(indices, attr_count)?);
        let rises = indices.windows(2).all(|pair| pair[0] < pair[1]);
        let in_turn = rises && indices.first().is_none_or(|first| *first == 0);
        if !in_turn || attrs.iter().any(|a| !orders.contains(&a.srcAccessOrder)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (d, s, n) = (list(dsts, count)?, list(srcs, count)?, list(sizes, count)?);
        for i in 0..count {
            copy_async(Copy3D::flat(d[i], UNIFIED, s[i], UNIFIED, n[i]), h)?;
        }
        Ok(())
    }
}
