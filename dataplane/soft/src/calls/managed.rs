//! Managed memory: advice and prefetches.

// UNSAFETY: C entry points.

use std::ffi::c_uint;

use orion_cuda::sys::*;

use crate::api::{api, put};
use crate::memory::allocate;
use crate::stream::{self, resolve};
use crate::vram::{self, Kind};
use crate::{capture, context};

api! {
    fn cuStreamAttachMemAsync(h: CUstream, _at: CUdeviceptr, _length: usize, _flags: c_uint) {
        resolve(h).map(drop)
    }
    fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint) {
        let c = context::current()?;
        capture::forbid_unsafe()?;
        if out.is_null() || !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, allocate(&c, bytes as u64, Kind::Managed)?.base)
    }
    fn cuMemAdvise(_at: CUdeviceptr, _n: usize, _advice: CUmem_advise, _dev: CUdevice) {
        context::current().map(drop)
    }
    fn cuMemPrefetchAsync(at: CUdeviceptr, n: usize, _dev: CUdevice, h: CUstream) {
        stream::resolve(h)?;
        if vram::covers(at, n as u64) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
    fn cuMemAdvise_v2(_at: CUdeviceptr, _n: usize, _advice: CUmem_advise, _where: CUmemLocation) {
        context::current().map(drop)
    }
    fn cuMemPrefetchAsync_v2(at: CUdeviceptr, n: usize, _where: CUmemLocation, _flags: c_uint, h: CUstream) {
        stream::resolve(h)?;
        if vram::covers(at, n as u64) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}
