//! Occupancy.

// UNSAFETY: reads launch descriptors from the application's memory and writes answers to it.

use orion_cuda::sys::*;
use orion_wire::message::field::{Rest, Size};
use orion_wire::message::occupancy::{Blocks, Clusters, Question, SharedMemory};

use crate::answer::write;
use crate::objects::function::{current_device, function};
use crate::session::attached::session;

/// # Safety
/// As CUDA's `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut i32,
    f: CUfunction,
    threads: i32,
    shared_bytes: usize,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared_bytes, 0) }
}

/// # Safety
/// As CUDA's `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`.
pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut i32,
    f: CUfunction,
    threads: i32,
    shared_bytes: usize,
    flags: u32,
) -> CUresult {
    let answer = (|| {
        session()?;
        let f = function(f.cast())?;
        let blocks = f.occupancy(Question::Blocks(Blocks { threads, shared_bytes: Size::of(shared_bytes), flags }))?;
        Ok(blocks as i32)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(blocks, answer) }
}

/// # Safety
/// As CUDA's `cuOccupancyAvailableDynamicSMemPerBlock`.
pub unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    f: CUfunction,
    blocks: i32,
    threads: i32,
) -> CUresult {
    let answer = (|| {
        current_device()?;
        let f = function(f.cast())?;
        Ok(f.occupancy(Question::SharedMemory(SharedMemory { blocks, threads }))? as usize)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(bytes, answer) }
}

/// A configuration, and its attributes as they travel.
///
/// # Safety
/// `config` is null or valid, as its attributes are.
unsafe fn configuration<'a>(config: *const CUlaunchConfig) -> Result<(&'a CUlaunchConfig, Vec<u8>), CUresult> {
    // SAFETY: null or a valid configuration.
    let config = unsafe { config.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if config.numAttrs > 64 || (config.numAttrs > 0 && config.attrs.is_null()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut attributes = Vec::new();
    for i in 0..config.numAttrs as usize {
        // SAFETY: as many attributes as the configuration says, each nine words.
        let words = unsafe { config.attrs.add(i).cast::<u64>() };
        // The word of the id has four bytes of padding that carry nothing.
        // SAFETY: as above.
        attributes.extend((unsafe { words.read() } & 0xffff_ffff).to_le_bytes());
        // SAFETY: as above.
        attributes.extend((1..9).flat_map(|k| unsafe { words.add(k).read() }.to_le_bytes()));
    }
    Ok((config, attributes))
}

fn asked<'a>(config: &CUlaunchConfig, attributes: &'a [u8]) -> Clusters<'a> {
    Clusters {
        gx: config.gridDimX,
        gy: config.gridDimY,
        gz: config.gridDimZ,
        bx: config.blockDimX,
        by: config.blockDimY,
        bz: config.blockDimZ,
        shared_bytes: config.sharedMemBytes,
        attributes: Rest(attributes),
    }
}

/// # Safety
/// As CUDA's `cuOccupancyMaxActiveClusters`.
pub unsafe fn cuOccupancyMaxActiveClusters(
    clusters: *mut i32,
    f: CUfunction,
    config: *const CUlaunchConfig,
) -> CUresult {
    let answer = (|| {
        session()?;
        // SAFETY: the caller's promise.
        let (config, attributes) = unsafe { configuration(config) }?;
        let question = Question::Clusters(asked(config, &attributes));
        Ok(function(f.cast())?.occupancy(question)? as i32)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(clusters, answer) }
}

/// # Safety
/// As CUDA's `cuOccupancyMaxPotentialClusterSize`.
pub unsafe fn cuOccupancyMaxPotentialClusterSize(
    size: *mut i32,
    f: CUfunction,
    config: *const CUlaunchConfig,
) -> CUresult {
    let answer = (|| {
        session()?;
        // SAFETY: the caller's promise.
        let (config, attributes) = unsafe { configuration(config) }?;
        let question = Question::ClusterSize(asked(config, &attributes));
        Ok(function(f.cast())?.occupancy(question)? as i32)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(size, answer) }
}

/// # Safety
/// As CUDA's `cuOccupancyMaxPotentialBlockSize`.
pub unsafe fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut i32,
    block: *mut i32,
    f: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared_bytes: usize,
    limit: i32,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, shared_of, shared_bytes, limit, 0) }
}

/// The application's size function runs here; only the occupancy of each candidate is the worker's answer.
///
/// # Safety
/// As CUDA's `cuOccupancyMaxPotentialBlockSizeWithFlags`.
pub unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut i32,
    block: *mut i32,
    f: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared_bytes: usize,
    limit: i32,
    flags: u32,
) -> CUresult {
    let answer = (|| {
        let device = current_device()?;
        let f = function(f.cast())?;
        let most = f.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device)?;
        let most = if limit > 0 { most.min(limit) } else { most };
        let of = |id| crate::session::device::attribute(device, id).ok_or(CUDA_ERROR_INVALID_DEVICE);
        let resident = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        let processors = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let (mut best, mut best_block, mut best_blocks) = (0, 0, 0);
        // The largest block comes first, so that it wins ties; blocks are whole warps but for the largest.
        let mut threads = (most as u32).next_multiple_of(32) as i32;
        while threads > 0 {
            let size = threads.min(most);
            // SAFETY: the application's own function, called as CUDA calls it.
            let shared = shared_of.map_or(shared_bytes, |of| unsafe { of(size) });
            let blocks =
                f.occupancy(Question::Blocks(Blocks { threads: size, shared_bytes: Size::of(shared), flags }))? as i32;
            if size * blocks > best {
                (best, best_block, best_blocks) = (size * blocks, size, blocks);
            }
            if best == resident {
                break;
            }
            threads -= 32;
        }
        Ok((best_blocks * processors, best_block))
    })();
    match answer {
        Ok(_) if grid.is_null() || block.is_null() => CUDA_ERROR_INVALID_VALUE,
        Ok((g, b)) => {
            // SAFETY: not null, valid by the contract.
            unsafe {
                grid.write(g);
                block.write(b);
            }
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}
