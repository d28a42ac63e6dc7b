//! Kernel launches: what CUDA refuses at once, how arguments are taken, occupancy.

// UNSAFETY: C entry points, and arguments given as an array of pointers.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use orion_cuda::sys::*;

use crate::api::{R, api, get, list, put, refuse};
use crate::context::{self, Context};
use crate::device::{SHARED_DEFAULT, SHARED_OPTIN, SM_COUNT};
use crate::exec::state::{Launch, Start};
use crate::module::{self, Function};
use crate::vram::{self, Kind};
use crate::work::{Work, run_launch};
use crate::{cluster, stream};

pub struct KernelLaunch {
    pub function: Arc<Function>,
    /// The handle the application used, which graph queries give back.
    pub handle: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub params: Vec<u8>,
    pub cooperative: bool,
    /// The cluster that the launch asks for.
    pub cluster: Option<[u32; 3]>,
    /// The cluster it gets, which the kernel may require too.
    cluster_size: Option<[u32; 3]>,
}

const THREADS_PER_SM: u32 = 2048;
const BLOCKS_PER_SM: u32 = 32;
const SHARED_PER_SM: u32 = 228 << 10;

impl KernelLaunch {
    /// Checks what the driver checks before it queues a launch.
    pub fn new(
        handle: CUfunction,
        c: &Arc<Context>,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        params: Vec<u8>,
        (cooperative, cluster): (bool, Option<[u32; 3]>),
    ) -> R<Self> {
        let function = module::resolve(handle, Some(c))?;
        let handle = handle as usize;
        let cluster_size = cluster::size(&function, cluster)?;
        let k = Self { handle, function, grid, block, shared, params, cooperative, cluster, cluster_size };
        k.check(c)?;
        Ok(k)
    }

    fn check(&self, c: &Context) -> R {
        let func = &self.function.program.funcs[self.function.index as usize];
        let [bx, by, bz] = self.block;
        if self.grid.contains(&0) || self.block.contains(&0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if self.grid[0] > i32::MAX as u32 || self.grid[1] > 65535 || self.grid[2] > 65535 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Each by itself first: their product could wrap.
        if bx > 1024 || by > 1024 || bz > 64 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let threads = bx * by * bz;
        if threads > func.max_threads.min(1024) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if func.req_ntid.is_some_and(|r| r != self.block) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if func.static_shared > SHARED_DEFAULT || self.shared > self.function.dynamic_shared_max() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let cluster = self.cluster_size.unwrap_or([1; 3]);
        if self.grid.iter().zip(cluster).any(|(n, c)| n % c != 0) {
            return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        if let Some(why) = &func.unsupported {
            c.fail(CUDA_ERROR_LAUNCH_FAILED);
            return refuse("cuLaunchKernel", &format!("kernel {}: {why}", func.name));
        }
        if self.cooperative {
            let fits = blocks_per_sm(&self.function, threads, self.shared) * SM_COUNT;
            let blocks = self.grid.iter().map(|&n| u64::from(n)).product::<u64>();
            if blocks > u64::from(fits) {
                return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
            }
        }
        Ok(())
    }

    pub fn run(&self, c: &Arc<Context>) -> R {
        self.function.settings.load();
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let func = &self.function.program.funcs[self.function.index as usize];
        let workspace = if self.cooperative {
            // Cooperative groups count arrivals in the word at offset 4.
            let r = vram::allocate(64, Kind::Internal, c.device, c.id).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            // SAFETY: the range was just allocated and is 64 bytes long.
            unsafe { std::ptr::write_bytes(r.base as *mut u8, 0, 64) };
            r.base
        } else {
            0
        };
        let mut params = self.params.clone();
        params.resize(func.param_bytes as usize, 0);
        let outcome = run_launch(
            Launch {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                program: self.function.program.clone(),
                table: self.function.table.clone(),
                func: self.function.index,
                grid: self.grid,
                block: self.block,
                cluster: self.cluster_size.unwrap_or([1; 3]),
                explicit_cluster: self.cluster_size.is_some(),
                params,
                static_shared: func.static_shared,
                dynamic_shared: self.shared,
                dynamic_base: func.static_shared.next_multiple_of(128),
                cooperative: self.cooperative,
                workspace,
                device: c.device,
                context: c.id,
                start: Start::default(),
            },
            &func.name,
        );
        if workspace != 0 {
            vram::free(workspace);
        }
        outcome
    }
}

/// Copies a kernel's arguments into one buffer.
///
/// # Safety
/// `params` is null or has one pointer per parameter, each to the parameter's bytes; `extra` is null or a list that
/// ends with `CU_LAUNCH_PARAM_END`.
pub unsafe fn pack_arguments(f: &Function, params: *mut *mut c_void, extra: *mut *mut c_void) -> R<Vec<u8>> {
    let func = &f.program.funcs[f.index as usize];
    let mut out = vec![0u8; func.param_bytes as usize];
    if !params.is_null() && !extra.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if !params.is_null() {
        for (i, p) in func.params.iter().enumerate() {
            // SAFETY: one pointer per parameter by this function's contract.
            let from = unsafe { params.add(i).read_unaligned() };
            if from.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let to = &mut out[p.offset as usize..(p.offset + p.bytes) as usize];
            // SAFETY: the pointer leads to the parameter's bytes by this function's contract.
            unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr(), to.len()) };
        }
        return Ok(out);
    }
    if extra.is_null() {
        return if func.params.is_empty() { Ok(out) } else { Err(CUDA_ERROR_INVALID_VALUE) };
    }
    let (mut buffer, mut size, mut at) = (std::ptr::null::<u8>(), 0usize, extra);
    // The list has two known keys, so more than a few rounds means it is not such a list.
    for _ in 0..8 {
        // SAFETY: the list ends with a zero key, which ends this loop.
        let key = unsafe { at.read_unaligned() } as usize as u32;
        if key == CU_LAUNCH_PARAM_END_AS_INT {
            break;
        }
        // SAFETY: a value follows every key.
        let value = unsafe { at.add(1).read_unaligned() };
        match key {
            CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT => buffer = value.cast(),
            // SAFETY: this key's value points to a size.
            CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT => size = unsafe { get(value.cast::<usize>())? },
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: still before the end key.
        at = unsafe { at.add(2) };
    }
    if buffer.is_null() && size > 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let n = size.min(out.len());
    // SAFETY: the application's buffer has `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping(buffer, out.as_mut_ptr(), n) };
    Ok(out)
}

struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    cooperative: bool,
    cluster: Option<[u32; 3]>,
}

fn launch(f: CUfunction, s: Shape, h: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) -> R {
    let s_ref = stream::resolve(h)?;
    let function = module::resolve(f, Some(&s_ref.context))?;
    // A `CUkernel` is its stream's context's.
    if h as usize > 2 && function.context != s_ref.context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    // SAFETY: the application's argument arrays.
    let bytes = unsafe { pack_arguments(&function, params, extra)? };
    let k = KernelLaunch::new(f, &s_ref.context, s.grid, s.block, s.shared, bytes, (s.cooperative, s.cluster))?;
    s_ref.wait_for_room();
    let end = stream::enqueue(&s_ref, Work::Kernel(Arc::new(k)))?;
    match end.filter(|_| launches_block()) {
        Some(end) => {
            end.stream.wait(end.number);
            s_ref.context.check()
        }
        None => Ok(()),
    }
}

/// `CUDA_LAUNCH_BLOCKING`, as it is set when the first kernel is launched.
fn launches_block() -> bool {
    static BLOCKING: OnceLock<bool> = OnceLock::new();
    *BLOCKING.get_or_init(|| std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|v| v.trim().parse() != Ok(0)))
}

/// Reads the attributes of an extended launch: whether it is cooperative, and its cluster.
fn launch_attributes(attributes: &[CUlaunchAttribute]) -> R<(bool, Option<[u32; 3]>)> {
    let (mut cooperative, mut cluster) = (false, None);
    for a in attributes {
        // SAFETY: the id says which member of the union is set.
        unsafe {
            match a.id {
                CU_LAUNCH_ATTRIBUTE_COOPERATIVE => cooperative = a.value.cooperative != 0,
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    let d = a.value.clusterDim;
                    cluster = Some([d.x, d.y, d.z]);
                }
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                    context::lacks();
                    return refuse("cuLaunchKernelEx", "an event inside the launch");
                }
                CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                    context::lacks();
                    return refuse("cuLaunchKernelEx", "a device-updatable node");
                }
                // The rest are hints about placement and overlap.
                _ => {}
            }
        }
    }
    Ok((cooperative, cluster))
}

pub fn blocks_per_sm(f: &Function, threads: u32, shared: u32) -> u32 {
    let func = &f.program.funcs[f.index as usize];
    let threads = threads.max(1).next_multiple_of(32);
    let shared = func.static_shared + shared + 1024;
    if threads > 1024 {
        return 0;
    }
    BLOCKS_PER_SM.min(THREADS_PER_SM / threads).min(SHARED_PER_SM / shared)
}

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
    let top = top.min(f.program.funcs[f.index as usize].max_threads as c_int);
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
    fn cuLaunchKernel(
        f: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        h: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: false, cluster: None };
        launch(f, shape, h, params, extra)
    }
    fn cuLaunchCooperativeKernel(
        f: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        h: CUstream,
        params: *mut *mut c_void,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, cooperative: true, cluster: None };
        launch(f, shape, h, params, std::ptr::null_mut())
    }
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        f: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let c = get(config)?;
        let (cooperative, cluster) = launch_attributes(&list(c.attrs, c.numAttrs as usize)?)?;
        let shape = Shape {
            grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
            block: [c.blockDimX, c.blockDimY, c.blockDimZ],
            shared: c.sharedMemBytes,
            cooperative,
            cluster,
        };
        launch(f, shape, c.hStream, params, extra)
    }
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
        let fixed = f.program.funcs[f.index as usize].static_shared + 1024;
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
