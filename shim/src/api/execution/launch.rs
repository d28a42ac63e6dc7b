//! Launches, and attributes of functions.

// UNSAFETY: reads kernel parameters and launch descriptors from the application's memory, as CUDA defines them.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_transport::environment;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::execution::{FuncIsLoaded, FuncIsLoadedReply, FuncLoad, LAUNCH_HEAD_BYTES};
use orion_wire::message::execution::{LaunchHead, LaunchKernel};
use orion_wire::message::field::{Existing, Halves, Size};
use orion_wire::message::occupancy::{Blocks, Question};

use crate::answer::{code, write};
use crate::objects::function::{Parameters, current_device, function, set_cache_config};
use crate::objects::module::module_of;
use crate::objects::stream::at_home;
use crate::session::ahead;
use crate::session::attached::session;
use crate::session::call::{InPlace, call, send_with, start_with};
use crate::session::reply::{Ticket, wait};
use crate::state::context;
use crate::state::function::Function;
use crate::state::process::state;
use crate::state::session::Session;

/// The current context's device, or the first one: questions about functions need no context.
fn any_device() -> u32 {
    context::current_device().unwrap_or(0)
}

#[derive(Clone, Copy)]
pub struct Geometry {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
}

impl Geometry {
    /// What the driver checks before it enqueues anything. Limits of compute capability 3.0 and later. False if
    /// the function's own limits stand in the way: then the driver has to say how.
    pub fn check(&self, f: &Function, device: u32) -> Result<bool, CUresult> {
        let [gx, gy, gz] = self.grid;
        let [bx, by, bz] = self.block;
        let threads = bx as u64 * by as u64 * bz as u64;
        if gx == 0 || gy == 0 || gz == 0 || threads == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if gx > i32::MAX as u32 || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 || bz > 64 || threads > 1024 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(f.limits(device).is_some_and(|most| most.allow(threads, self.shared_bytes)))
    }
}

/// From now on what kernels reach by their parameters is kept in step.
///
/// # Safety
/// As `cuLaunchKernelEx`.
unsafe fn keep_in_step(s: &'static Session, f: &Function, parameters: &Parameters) -> Result<(), CUresult> {
    let mut kept = Ok(());
    // SAFETY: the caller's promise.
    unsafe {
        parameters.each_word(&f.layout, |word| {
            if kept.is_ok() {
                kept = crate::memory::in_step::note_parameter(s, word);
            }
        });
    }
    kept
}

/// Checks and posts one launch.
///
/// # Safety
/// As `cuLaunchKernelEx`.
pub(super) unsafe fn launch(
    f: CUfunction,
    geometry: Geometry,
    stream: CUstream,
    attributes: &[CUlaunchAttribute],
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let s = match session() {
        Ok(s) => s,
        Err(code) => return code,
    };
    let Some((ctx, device)) = context::current_on_device() else {
        // SAFETY: the caller's promise.
        return unsafe { launch_in_context_of_stream(f, geometry, stream, attributes, each, extra) };
    };
    let f = match function(f.cast()) {
        Ok(f) => f,
        Err(code) => return code,
    };
    if let Some(code) = crate::session::poison::of(ctx) {
        return code;
    }
    let fits = match geometry.check(f, device) {
        Ok(fits) => fits,
        // What the driver refuses in a captured stream ends the capture.
        Err(_) if state().captures.any_open() => false,
        Err(code) => return code,
    };
    // SAFETY: the caller's promise.
    let (parameters, parameter_bytes) = match unsafe { Parameters::new(f, each, extra) } {
        Ok(p) => p,
        Err(code) => return code,
    };
    if s.pages.must_bring() {
        // SAFETY: the caller's promise.
        if let Err(code) = unsafe { keep_in_step(s, f, &parameters) } {
            // Whoever ignores it would take for a result what no kernel wrote.
            crate::session::poison::end(ctx, code);
            return code;
        }
    }
    if f.is_prepared.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        unsafe { remember(f, &geometry, &parameters, parameter_bytes) };
    }
    crate::memory::in_step::before_launch(s);
    let padded = parameter_bytes.next_multiple_of(8);
    let len = LAUNCH_HEAD_BYTES + padded + std::mem::size_of_val(attributes);
    let Geometry { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes } = geometry;
    let head = LaunchHead {
        function: Existing(f.handle),
        gx_gy: Halves(gx, gy),
        gz_bx: Halves(gz, bx),
        by_bz: Halves(by, bz),
        shared_attributes: Halves(shared_bytes, attributes.len() as u32),
        stream: Existing(stream as u64),
        parameter_bytes: Size::of(parameter_bytes),
    };
    let fill = |at: *mut u8| {
        // SAFETY: `at` has `len` bytes. Parameters are zeroed first because a layout may have gaps, and what
        // lies in the ring from before must not become a parameter.
        unsafe {
            head.encode(&mut InPlace::at(at));
            let at = at.add(LAUNCH_HEAD_BYTES);
            std::ptr::write_bytes(at, 0, padded);
            parameters.pack(f, at);
            // Most launches have none, and a call of `memcpy` for nothing is a call.
            if !attributes.is_empty() {
                let bytes = std::mem::size_of_val(attributes);
                std::ptr::copy_nonoverlapping(attributes.as_ptr().cast(), at.add(padded), bytes);
            }
        }
    };
    let question = (!attributes.is_empty()).then(|| acceptance(&geometry, attributes));
    let accepted = question.as_ref().is_none_or(|q| divides(&geometry, attributes) && f.accepted.lock().contains(q));
    if fits && accepted && !crate::objects::stream::is_elsewhere(stream, ctx, f.home) {
        return match send_with(s, LaunchKernel::OP, ctx, 0, len, fill) {
            Ok(_) if launches_block() => after_blocking_launch(stream),
            Ok(_) => {
                ahead::launched(stream, parameter_bytes);
                crate::session::call::settle()
            }
            Err(code) => code,
        };
    }
    let code = launch_and_wait(s, f, ctx, stream, question, |op| start_with(s, op, len, fill));
    ahead::launched(stream, parameter_bytes);
    code
}

/// `cuLaunch` launches with what the last launch had, where nothing else is set.
///
/// # Safety
/// As [`launch`], whose parameters these are.
#[cold]
#[inline(never)]
unsafe fn remember(f: &Function, geometry: &Geometry, parameters: &Parameters, bytes: usize) {
    let mut values = vec![0; bytes.next_multiple_of(8)];
    // SAFETY: the caller's promise, and room for all of them.
    unsafe { parameters.pack(f, values.as_mut_ptr()) };
    let mut prepared = f.prepared.lock();
    prepared.block = geometry.block;
    prepared.shared_bytes = geometry.shared_bytes;
    prepared.parameter_bytes = bytes;
    prepared.values = values;
}

/// A thread without a context launches in the stream's.
///
/// # Safety
/// As [`launch`].
#[cold]
#[inline(never)]
unsafe fn launch_in_context_of_stream(
    f: CUfunction,
    geometry: Geometry,
    stream: CUstream,
    attributes: &[CUlaunchAttribute],
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    if (stream as u64) <= 2 {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    crate::objects::stream::in_context_of(stream, || match context::current() {
        0 => CUDA_ERROR_INVALID_CONTEXT,
        // SAFETY: the caller's promise.
        _ => unsafe { launch(f, geometry, stream, attributes, each, extra) },
    })
}

/// A launch of which the driver has to say whether it can be. What it accepts with attributes it accepts again.
#[inline(always)]
fn launch_and_wait(
    s: &'static Session,
    f: &Function,
    ctx: u64,
    stream: CUstream,
    question: Option<Vec<u64>>,
    start: impl FnOnce(u16) -> Result<Ticket, CUresult>,
) -> CUresult {
    match start(LaunchKernel::OP).and_then(|ticket| wait(s, ticket)) {
        Ok(reply) => {
            if let (CUDA_SUCCESS, Some(q)) = (reply.result, question) {
                f.accepted.lock().insert(q);
            }
            match reply.result {
                CUDA_SUCCESS if launches_block() => after_blocking_launch(stream),
                CUDA_ERROR_NOT_SUPPORTED if f.is_refused.load(Ordering::Relaxed) => {
                    // The context has failed, and what is only posted from now on is to say so too.
                    crate::session::poison::end(ctx, CUDA_ERROR_LAUNCH_FAILED);
                    CUDA_ERROR_NOT_SUPPORTED
                }
                result => result,
            }
        }
        Err(code) => code,
    }
}

/// `CUDA_LAUNCH_BLOCKING`: a launch returns when its kernel has run, with the kernel's own error. The worker's driver
/// is not told: it would wait inside the launch.
fn launches_block() -> bool {
    static BLOCKING: OnceLock<bool> = OnceLock::new();
    *BLOCKING.get_or_init(|| environment::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|v| v.trim().parse() != Ok(0)))
}

#[cold]
fn after_blocking_launch(stream: CUstream) -> CUresult {
    // What is captured does not run, and asking about a stream that is being captured ends the capture.
    match state().captures.any_open() {
        true => crate::session::call::settle(),
        false => crate::objects::synchronize::stream(stream),
    }
}

/// What the driver judges a launch with attributes by, but for the grid.
fn acceptance(geometry: &Geometry, attributes: &[CUlaunchAttribute]) -> Vec<u64> {
    let [bx, by, bz] = geometry.block.map(u64::from);
    let mut key = Vec::with_capacity(2 + 3 * attributes.len());
    key.extend([bx | by << 32, bz | (geometry.shared_bytes as u64) << 32]);
    for a in attributes {
        // SAFETY: an attribute is nine words of plain data.
        let words = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(a).cast::<u64>(), 9) };
        key.push(words[0] & 0xffff_ffff);
        match a.id {
            // Which event it is makes no difference.
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {}
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => key.extend(&words[1..3]),
            CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => key.push(words[3]),
            _ => key.push(words[1]),
        }
    }
    key
}

/// Whether the cluster size, if there is one, divides the grid.
fn divides(geometry: &Geometry, attributes: &[CUlaunchAttribute]) -> bool {
    attributes.iter().filter(|a| a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).all(|a| {
        // SAFETY: the id says which member is meant; all are plain data.
        let c = unsafe { a.value.clusterDim };
        let [gx, gy, gz] = geometry.grid;
        c.x > 0 && c.y > 0 && c.z > 0 && gx % c.x == 0 && gy % c.y == 0 && gz % c.z == 0
    })
}

/// `kernelParams` is packed with the layout learned when the function was found.
///
/// # Safety
/// As CUDA's `cuLaunchKernel`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuLaunchKernel(
    f: CUfunction,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared_bytes: u32,
    stream: CUstream,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let geometry = Geometry { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes };
    // SAFETY: the caller's promise.
    unsafe { launch(f, geometry, stream, &[], each, extra) }
}

/// # Safety
/// As CUDA's `cuLaunchCooperativeKernel`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuLaunchCooperativeKernel(
    f: CUfunction,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared_bytes: u32,
    stream: CUstream,
    each: *mut *mut c_void,
) -> CUresult {
    let geometry = Geometry { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes };
    // The driver answers 720 at once if the grid cannot be resident; so does this.
    let fits = at_home(stream, || {
        let f = function(f.cast())?;
        match geometry.check(f, current_device()?) {
            Ok(true) => {}
            // The launch itself is refused, in the driver's words; a capture ends with that.
            Ok(false) => return Ok(()),
            Err(_) if state().captures.any_open() => return Ok(()),
            Err(code) => return Err(code),
        }
        let threads = bx * by * bz;
        let blocks = f.occupancy(Question::Blocks(Blocks {
            threads: threads as i32,
            shared_bytes: Size(shared_bytes.into()),
            flags: 0,
        }))?;
        let device = current_device()?;
        let processors =
            crate::session::device::attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(i32::MAX);
        if gx as u64 * gy as u64 * gz as u64 > blocks * processors as u64 {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    });
    if let Err(code) = fits {
        return code;
    }
    // SAFETY: all-zero is a valid attribute.
    let mut cooperative: CUlaunchAttribute = unsafe { std::mem::zeroed() };
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    // SAFETY: the caller's promise.
    unsafe { launch(f, geometry, stream, &[cooperative], each, std::ptr::null_mut()) }
}

/// Attributes travel verbatim; events in them are the session's handles and are translated by the worker.
///
/// # Safety
/// As CUDA's `cuLaunchKernelEx`.
pub unsafe fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    f: CUfunction,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise; null is refused.
    unsafe { launch_ex(config, f, each, extra, false) }
}

/// # Safety
/// As CUDA's `cuLaunchKernelEx_ptsz`.
pub unsafe fn cuLaunchKernelEx_ptsz(
    config: *const CUlaunchConfig,
    f: CUfunction,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise; null is refused.
    unsafe { launch_ex(config, f, each, extra, true) }
}

unsafe fn launch_ex(
    config: *const CUlaunchConfig,
    f: CUfunction,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
    per_thread: bool,
) -> CUresult {
    // SAFETY: null or a valid configuration.
    let Some(config) = (unsafe { config.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    let attributes = if config.numAttrs == 0 {
        &[]
    } else if config.attrs.is_null() || config.numAttrs > 64 {
        return CUDA_ERROR_INVALID_VALUE;
    } else {
        // SAFETY: as many attributes as the configuration says.
        unsafe { std::slice::from_raw_parts(config.attrs, config.numAttrs as usize) }
    };
    let geometry = Geometry {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared_bytes: config.sharedMemBytes,
    };
    if attributes.iter().any(|a| a.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
        crate::report::refuse::refused("cuLaunchKernelEx", "device-updatable kernel nodes are not forwarded");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    let stream = if per_thread && config.hStream.is_null() { 2 as CUstream } else { config.hStream };
    // SAFETY: the caller's promise.
    unsafe { launch(f, geometry, stream, attributes, each, extra) }
}

/// # Safety
/// As CUDA's `cuFuncGetAttribute`.
pub unsafe fn cuFuncGetAttribute(pi: *mut i32, id: CUfunction_attribute, f: CUfunction) -> CUresult {
    let answer = (|| {
        session()?;
        function(f.cast())?.attribute(id, any_device())
    })();
    // SAFETY: null or valid for a write.
    unsafe { write(pi, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetAttribute(f: CUfunction, id: CUfunction_attribute, value: i32) -> CUresult {
    match (session(), function(f.cast())) {
        (Err(code), _) | (_, Err(code)) => code,
        (Ok(_), Ok(f)) => f.set_attribute(id, value, any_device()),
    }
}

/// Without a function it is the value that is wrong, where CUDA's other questions about one call the handle so.
///
/// # Safety
/// As CUDA's `cuFuncGetName`.
pub unsafe fn cuFuncGetName(name: *mut *const c_char, f: CUfunction) -> CUresult {
    if f.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's promise; names live as long as the process.
    unsafe { write(name, function(f.cast()).map(|f| f.name.as_ptr())) }
}

/// # Safety
/// As CUDA's `cuFuncGetParamInfo`.
pub unsafe fn cuFuncGetParamInfo(f: CUfunction, index: usize, offset: *mut usize, size: *mut usize) -> CUresult {
    let answer = function(f.cast()).and_then(|f| f.layout.get(index).ok_or(CUDA_ERROR_INVALID_VALUE));
    match answer {
        Ok(_) if offset.is_null() => CUDA_ERROR_INVALID_VALUE,
        Ok((o, n)) => {
            // SAFETY: the caller's promise; the size may be left out.
            unsafe {
                offset.write(*o as usize);
                if !size.is_null() {
                    size.write(*n as usize);
                }
            }
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// Functions are loaded by the worker's driver when they are first used.
///
/// # Safety
/// As CUDA's `cuFuncIsLoaded`.
pub unsafe fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, f: CUfunction) -> CUresult {
    let answer = session().and_then(|_| function(f.cast())).and_then(|f| {
        // It can only be asked of the driver: a launch, a question or another thread may have loaded it meanwhile.
        let q = FuncIsLoaded { function: Existing(f.handle) };
        Ok(call(FuncIsLoaded::OP, |w| q.encode(w), FuncIsLoadedReply::decode)?.state)
    });
    // SAFETY: the caller's promise.
    unsafe { write(state, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncLoad(f: CUfunction) -> CUresult {
    let load = |f: &Function| {
        let q = FuncLoad { function: Existing(f.handle) };
        call(FuncLoad::OP, |w| q.encode(w), |_| Ok(()))
    };
    code(session().and_then(|_| function(f.cast())).and_then(load))
}

/// Moves the split between cache and shared memory, so what is known of occupancy is asked again.
///
/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetCacheConfig(f: CUfunction, config: CUfunc_cache) -> CUresult {
    match session() {
        Ok(_) => set_cache_config(f.cast(), config, any_device()),
        Err(code) => code,
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetSharedMemConfig(f: CUfunction, _config: CUsharedconfig) -> CUresult {
    code(function(f.cast()).map(|_| ()))
}

/// # Safety
/// As CUDA's `cuFuncGetModule`.
pub unsafe fn cuFuncGetModule(module: *mut CUmodule, f: CUfunction) -> CUresult {
    match function(f.cast()) {
        Ok(f) if Handle(f.owner).is(Kind::Module) => {
            // SAFETY: the caller's promise.
            unsafe { write(module, Ok(f.owner as CUmodule)) }
        }
        // SAFETY: the caller's promise.
        Ok(f) => unsafe { write(module, module_of(f.owner)) },
        Err(code) => code,
    }
}
