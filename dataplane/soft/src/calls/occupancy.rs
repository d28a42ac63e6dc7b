//! How many blocks fit.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint};

use orion_cuda::sys::*;

use crate::api::{R, api, get, list, put};
use crate::calls::execution::launch_attributes;
use crate::cluster::{self, SHARED_PER_SM, blocks_per_sm};
use crate::device::{SHARED_OPTIN, SM_COUNT};
use crate::ptx::decode::program::max_threads;
use crate::{context, module};

fn occupancy(out: *mut c_int, f: CUfunction, block: c_int, shared: usize) -> R {
    let f = module::resolve(f, None)?;
    if block <= 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let shared = u32::try_from(shared).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's out parameter.
    unsafe { put(out, blocks_per_sm(&f, block as u32, shared.min(1 << 30)) as c_int) }
}

fn best_block(
    grid: *mut c_int,
    block: *mut c_int,
    f: CUfunction,
    per_block: CUoccupancyB2DSize,
    shared: usize,
    limit: c_int,
) -> R {
    let f = module::resolve(f, None)?;
    let top = if limit <= 0 { 1024 } else { limit.min(1024) };
    let top = top.min(max_threads(f.declared()) as c_int);
    let mut best = (0, 0, 0);
    let mut size = top;
    while size > 0 {
        // SAFETY: the application's function, called as CUDA documents it.
        let shared = per_block.map_or(shared, |g| unsafe { g(size) });
        let n = blocks_per_sm(&f, size as u32, u32::try_from(shared).unwrap_or(1 << 30).min(1 << 30));
        if n * size as u32 > best.0 {
            best = (n * size as u32, size, n);
        }
        size = (size - 1) / 32 * 32;
    }
    // SAFETY: the caller's out parameters.
    unsafe {
        put(grid, (best.2 * SM_COUNT) as c_int)?;
        put(block, best.1)
    }
}

api! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut c_int, f: CUfunction, block: c_int, shared: usize) {
        occupancy(out, f, block, shared)
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int,
        f: CUfunction,
        block: c_int,
        shared: usize,
        _flags: c_uint,
    ) {
        occupancy(out, f, block, shared)
    }
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        f: CUfunction,
        per_block: CUoccupancyB2DSize,
        shared: usize,
        limit: c_int,
    ) {
        best_block(grid, block, f, per_block, shared, limit)
    }
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int,
        block: *mut c_int,
        f: CUfunction,
        per_block: CUoccupancyB2DSize,
        shared: usize,
        limit: c_int,
        _flags: c_uint,
    ) {
        best_block(grid, block, f, per_block, shared, limit)
    }
    fn cuOccupancyAvailableDynamicSMemPerBlock(out: *mut usize, f: CUfunction, blocks: c_int, block: c_int) {
        let f = module::resolve(f, None)?;
        if blocks <= 0 || block <= 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fixed = f.func().static_shared + 1024;
        let each = (SHARED_PER_SM / blocks as u32).min(SHARED_OPTIN + 1024);
        put(out, each.saturating_sub(fixed).min(f.dynamic_shared_max()) as usize)
    }
    fn cuOccupancyMaxPotentialClusterSize(out: *mut c_int, f: CUfunction, config: *const CUlaunchConfig) {
        let f = module::resolve(f, None)?;
        let c = get(config)?;
        let threads = c.blockDimX.saturating_mul(c.blockDimY).saturating_mul(c.blockDimZ);
        put(out, cluster::max_potential_size(&f, threads, c.sharedMemBytes.min(1 << 30)) as c_int)
    }
    fn cuOccupancyMaxActiveClusters(out: *mut c_int, f: CUfunction, config: *const CUlaunchConfig) {
        let f = module::resolve(f, None)?;
        let c = get(config)?;
        let threads = c.blockDimX.saturating_mul(c.blockDimY).saturating_mul(c.blockDimZ);
        let (_, cluster) = launch_attributes(&list(c.attrs, c.numAttrs as usize)?)?;
        context::current()?;
        put(out, cluster::max_active(&f, cluster, threads, c.sharedMemBytes.min(1 << 30))? as c_int)
    }
}
