//! The sizes of thread block clusters: what a launch may ask for, and what the device holds at once.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::api::R;
use crate::device::SM_COUNT;
use crate::module::Function;

const THREADS_PER_SM: u32 = 2048;
const BLOCKS_PER_SM: u32 = 32;
pub(crate) const SHARED_PER_SM: u32 = 228 << 10;

pub fn blocks_per_sm(f: &Function, threads: u32, shared: u32) -> u32 {
    // First of all, because rounding a number of threads that no block has could overflow.
    if threads > 1024 {
        return 0;
    }
    let threads = threads.max(1).next_multiple_of(32);
    let shared = f.func().static_shared + shared + 1024;
    BLOCKS_PER_SM.min(THREADS_PER_SM / threads).min(SHARED_PER_SM / shared)
}

/// Blocks of a cluster that every GPU with clusters runs, and that one of compute capability 9.0 can run.
const PORTABLE_MAX: u32 = 8;
const NON_PORTABLE_MAX: u32 = 16;

pub(crate) fn blocks([x, y, z]: [u32; 3]) -> u32 {
    x.saturating_mul(y).saturating_mul(z)
}

/// The most blocks that a cluster of this kernel may have.
fn largest(f: &Function) -> u32 {
    let any = f.settings.non_portable.load(Ordering::Relaxed) != 0;
    let declared = f.declared().max_cluster;
    let device = if any { NON_PORTABLE_MAX } else { PORTABLE_MAX };
    declared.map_or(device, |n| n.min(device))
}

/// The cluster of a launch that asks for `asked`, or what the kernel itself requires; `None` when neither says any.
pub fn size(f: &Function, asked: Option<[u32; 3]>) -> R<Option<[u32; 3]>> {
    let required = f.required_cluster();
    if let (Some(asked), Some(required)) = (asked, required)
        && asked != required
    {
        return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    match asked.or(required) {
        Some(c) if c.contains(&0) || blocks(c) > largest(f) => Err(CUDA_ERROR_INVALID_CLUSTER_SIZE),
        None if f.declared().explicit_cluster => Err(CUDA_ERROR_INVALID_CLUSTER_SIZE),
        size => Ok(size),
    }
}

pub fn max_potential_size(f: &Function, threads: u32, shared: u32) -> u32 {
    match f.required_cluster() {
        Some(c) => blocks(c),
        None => largest(f).min(blocks_per_sm(f, threads, shared) * SM_COUNT),
    }
}

pub fn max_active(f: &Function, asked: Option<[u32; 3]>, threads: u32, shared: u32) -> R<u32> {
    let size = size(f, asked)?.ok_or(CUDA_ERROR_INVALID_CLUSTER_SIZE)?;
    // The multiprocessors count as one group, so that any of them serve a cluster.
    Ok(blocks_per_sm(f, threads, shared) * SM_COUNT / blocks(size))
}
