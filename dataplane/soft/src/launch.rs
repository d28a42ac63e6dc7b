//! Kernel launches: what CUDA refuses at once, how arguments are taken, and what a fault becomes.

// UNSAFETY: takes arguments given as an array of pointers.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orion_cuda::sys::*;

use crate::api::{R, get};
use crate::cluster::{self, blocks_per_sm};
use crate::context::Context;
use crate::device::{SHARED_DEFAULT, SM_COUNT};
use crate::exec::fault::{Fault, FaultKind};
use crate::exec::grid;
use crate::exec::state::{Launch, Start};
use crate::log::refuse_for;
use crate::module::{self, Function};
use crate::say;
use crate::vram::{self, Kind};

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
    pub cluster_size: Option<[u32; 3]>,
}

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

    pub fn check(&self, c: &Context) -> R {
        let func = self.function.func();
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
            return refuse_for("cuLaunchKernel", &self.function.told(), why);
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
        let func = self.function.func();
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
                program: self.function.code().program.clone(),
                table: self.function.code().table.clone(),
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
            || self.function.told(),
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
    let func = f.func();
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

pub fn fault_code(f: &Fault) -> CUresult {
    match f.kind {
        FaultKind::IllegalAddress => CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::Misaligned => CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Assert => CUDA_ERROR_ASSERT,
        FaultKind::Unsupported => CUDA_ERROR_NOT_SUPPORTED,
        FaultKind::Trap | FaultKind::Deadlock => CUDA_ERROR_LAUNCH_FAILED,
    }
}

/// Logs why a kernel stopped; the application only gets the code.
fn log_fault(kernel: &str, f: &Fault) {
    say::say(&format!("{kernel}: {} (PTX line {})", f.what, f.line));
}

pub fn run_launch(l: Launch, kernel: impl Fn() -> String) -> R {
    grid::run(l).map_err(|f| {
        log_fault(&kernel(), &f);
        fault_code(&f)
    })
}
