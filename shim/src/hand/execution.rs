//! Launches, and what is known of functions: parameter layouts, attributes, occupancy.

// UNSAFETY: reads kernel parameters and launch descriptors from the application's memory, as CUDA defines them.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::codec::bytes_size;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use rustc_hash::FxHashSet;

use crate::call::{call, send_with, start_with, wait};
use crate::handles::Table;
use crate::local::context;
use crate::session::session;

/// A `CUfunction` or `CUkernel`.
pub struct Function {
    pub handle: u64,
    pub name: CString,
    /// Module or library it came from.
    pub owner: u64,
    pub is_kernel: bool,
    /// Offset and size of each parameter, in bytes, as the driver laid them out.
    pub layout: Vec<(u32, u32)>,
    /// Bytes up to the end of the last parameter.
    pub parameter_bytes: u32,
    /// `CUfunction_attribute` values by id: see [`Attribute`]. 0 while unknown.
    attributes: [AtomicU64; ATTRIBUTES],
    /// Those that every launch is judged by: see [`Limits`]. 0 while unknown.
    limits: AtomicU64,
    /// Its launches are refused. Told with the attributes.
    is_refused: AtomicBool,
    occupancy: Mutex<HashMap<Vec<u64>, Result<u64, CUresult>>>,
    /// Block, shared memory and launch attributes that the driver has accepted together: only the first launch
    /// with them waits for its verdict.
    accepted: Mutex<FxHashSet<Vec<u64>>>,
}

const ATTRIBUTES: usize = CU_FUNC_ATTRIBUTE_MAX as usize;

pub static FUNCTIONS: Table<Function> = Table::new();

impl Function {
    pub fn new(handle: Handle, name: CString, owner: u64, is_kernel: bool, layout: Vec<(u32, u32)>) -> Function {
        let parameter_bytes = layout.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        Function {
            handle: handle.0,
            name,
            owner,
            is_kernel,
            layout,
            parameter_bytes,
            attributes: [const { AtomicU64::new(0) }; ATTRIBUTES],
            limits: AtomicU64::new(0),
            is_refused: AtomicBool::new(false),
            occupancy: Mutex::new(HashMap::new()),
            accepted: Mutex::default(),
        }
    }

    /// One attribute on one device, asked for once with all its siblings.
    fn attribute(&self, id: u32, device: u32) -> Result<i32, CUresult> {
        let slot = self.attributes.get(id as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if let Some(known) = Attribute(slot.load(Ordering::Relaxed)).on(device) {
            return known;
        }
        call(
            ops::CU_FUNC_GET_ATTRIBUTE,
            |w| {
                w.word(self.handle);
                w.word(device as u64);
            },
            |r| {
                for slot in &self.attributes {
                    let (result, value) = (r.word()? as u32, r.word()? as u32 as i32);
                    slot.store(Attribute::pack(device, result, value), Ordering::Relaxed);
                }
                self.is_refused.store(r.word()? != 0, Ordering::Relaxed);
                Ok(())
            },
        )?;
        Attribute(slot.load(Ordering::Relaxed)).on(device).unwrap_or(Err(CUDA_ERROR_UNKNOWN))
    }

    /// Sets an attribute; the worker is asked only if the value is not the one known to be set.
    fn set_attribute(&self, id: u32, value: i32, device: u32) -> CUresult {
        let Some(slot) = self.attributes.get(id as usize) else { return CUDA_ERROR_INVALID_VALUE };
        if Attribute(slot.load(Ordering::Relaxed)).on(device) == Some(Ok(value)) {
            return CUDA_SUCCESS;
        }
        let result = call(
            ops::CU_FUNC_SET_ATTRIBUTE,
            |w| {
                for v in [self.handle, id as u64, value as u32 as u64, device as u64] {
                    w.word(v);
                }
            },
            |_| Ok(()),
        );
        match result {
            Ok(()) => {
                // Others may have moved with it (the carve-out limits shared memory); they are asked for again.
                for other in self.attributes.iter().chain([&self.limits]) {
                    other.store(0, Ordering::Relaxed);
                }
                slot.store(Attribute::pack(device, 0, value), Ordering::Relaxed);
                self.occupancy.lock().expect("no panic happens under this lock").clear();
                CUDA_SUCCESS
            }
            Err(code) => code,
        }
    }

    /// What a launch on `device` may ask for; `None` if the driver has to say.
    #[inline]
    fn limits(&self, device: u32) -> Option<Limits> {
        let known = Limits(self.limits.load(Ordering::Relaxed));
        if known.is_of(device) { Some(known) } else { self.ask_limits(device) }
    }

    #[cold]
    fn ask_limits(&self, device: u32) -> Option<Limits> {
        let threads = self.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device).ok()?;
        let shared = self.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, device).ok()?;
        // No block is within the limits of one that is refused, so that each launch of it waits for the refusal.
        let threads = if self.is_refused.load(Ordering::Relaxed) { 0 } else { threads };
        let limits = Limits::pack(device, threads, shared);
        self.limits.store(limits.0, Ordering::Relaxed);
        Some(limits)
    }

    /// An answer of the occupancy calculator, asked for once per question.
    fn occupancy(&self, question: Vec<u64>) -> Result<u64, CUresult> {
        if let Some(known) = self.occupancy.lock().expect("no panic happens under this lock").get(&question) {
            return *known;
        }
        let answer = call(
            ops::CU_OCCUPANCY_MAX_ACTIVE_BLOCKS_PER_MULTIPROCESSOR,
            |w| {
                w.word(self.handle);
                for v in &question {
                    w.word(*v);
                }
            },
            |r| r.word(),
        );
        // Errors of the question itself are as constant as answers; anything else may pass.
        if matches!(answer, Ok(_) | Err(CUDA_ERROR_INVALID_VALUE) | Err(CUDA_ERROR_INVALID_CLUSTER_SIZE)) {
            self.occupancy.lock().expect("no panic happens under this lock").insert(question, answer);
        }
        answer
    }
}

/// The upper 16 bits of a word that is known of a device; 0 is known of none.
fn known_of(device: u32) -> u64 {
    1 << 15 | device as u64 & 0x7fff
}

/// `1 << 63 | device << 48 | result << 32 | value`.
struct Attribute(u64);

impl Attribute {
    fn pack(device: u32, result: CUresult, value: i32) -> u64 {
        known_of(device) << 48 | (result as u64 & 0xffff) << 32 | value as u32 as u64
    }

    fn on(&self, device: u32) -> Option<Result<i32, CUresult>> {
        if self.0 >> 48 != known_of(device) {
            return None;
        }
        let result = (self.0 >> 32) as u16 as u32;
        Some(if result == CUDA_SUCCESS { Ok(self.0 as u32 as i32) } else { Err(result) })
    }
}

/// `1 << 63 | device << 48 | threads of a block << 32 | bytes of dynamic shared memory`.
#[derive(Clone, Copy)]
struct Limits(u64);

impl Limits {
    fn pack(device: u32, threads: i32, shared_bytes: i32) -> Limits {
        let threads = threads.clamp(0, u16::MAX as i32) as u64;
        Limits(known_of(device) << 48 | threads << 32 | shared_bytes.max(0) as u64)
    }

    fn is_of(self, device: u32) -> bool {
        self.0 >> 48 == known_of(device)
    }

    fn allow(self, threads: u64, shared_bytes: u32) -> bool {
        threads <= self.0 >> 32 & 0xffff && shared_bytes <= self.0 as u32
    }
}

/// The module or library of a function is gone.
pub fn ended(handle: Handle) {
    FUNCTIONS.remove(handle);
}

/// The function behind a handle the application passed.
pub fn function(f: *const c_void) -> Result<&'static Function, CUresult> {
    let handle = Handle(f as u64);
    if !handle.is(Kind::Function) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    FUNCTIONS.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The current context's device, or the first one: questions about functions need no context.
fn any_device() -> u32 {
    context::current_device().unwrap_or(0)
}

/// Ordinal of the current context's device, or `CUDA_ERROR_INVALID_CONTEXT`.
fn current_device() -> Result<u32, CUresult> {
    context::current_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Where a launch's parameters lie.
enum Parameters {
    None,
    Each(*mut *mut c_void),
    Buffer(*const u8, usize),
}

impl Parameters {
    /// # Safety
    /// As `cuLaunchKernel`: `each` has one pointer a parameter, `extra` is a list that ends with
    /// `CU_LAUNCH_PARAM_END`.
    unsafe fn new(
        f: &Function,
        each: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<(Parameters, usize), CUresult> {
        if !each.is_null() && !extra.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !extra.is_null() {
            let (mut buffer, mut size) = (std::ptr::null(), None);
            // Five words are all that CUDA defines; a longer list has no end mark.
            for pair in 0..3 {
                // SAFETY: by the contract the list goes on until its end mark.
                let key = unsafe { *extra.add(2 * pair) } as usize as u32;
                match key {
                    CU_LAUNCH_PARAM_END_AS_INT => break,
                    // SAFETY: a key is followed by its value.
                    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT => {
                        buffer = unsafe { *extra.add(2 * pair + 1) }.cast_const().cast::<u8>()
                    }
                    // SAFETY: the value of the size key points to a size_t.
                    CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT => {
                        size = Some(unsafe { *(*extra.add(2 * pair + 1)).cast::<usize>() })
                    }
                    _ => return Err(CUDA_ERROR_INVALID_VALUE),
                }
            }
            let size = size.unwrap_or(0);
            if buffer.is_null() || size == 0 {
                return if f.parameter_bytes == 0 { Ok((Parameters::None, 0)) } else { Err(CUDA_ERROR_INVALID_VALUE) };
            }
            return Ok((Parameters::Buffer(buffer, size), size));
        }
        if f.layout.is_empty() {
            return Ok((Parameters::None, 0));
        }
        if each.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok((Parameters::Each(each), f.parameter_bytes as usize))
    }

    /// Every eight bytes of the packed parameters that may be a pointer: pointers are aligned, and lie within one
    /// parameter.
    ///
    /// # Safety
    /// As [`Self::new`].
    unsafe fn each_word(&self, layout: &[(u32, u32)], mut visit: impl FnMut(u64)) {
        let mut words = |from: *const u8, first: usize, bytes: usize| {
            for at in (first..bytes.saturating_sub(7)).step_by(8) {
                // SAFETY: eight bytes from there on lie within the parameter.
                visit(unsafe { from.add(at).cast::<u64>().read_unaligned() });
            }
        };
        match self {
            Parameters::None => {}
            Parameters::Buffer(from, size) => words(*from, 0, *size),
            Parameters::Each(each) => {
                for (i, (offset, size)) in layout.iter().enumerate() {
                    // SAFETY: one pointer a parameter, each to as many bytes as the parameter has.
                    let from = unsafe { *each.add(i) }.cast_const().cast();
                    words(from, (offset.next_multiple_of(8) - offset) as usize, *size as usize);
                }
            }
        }
    }

    /// Writes the packed parameters.
    ///
    /// # Safety
    /// `to` has the size that `new` answered, rounded up to 8, and is zeroed where no parameter lies.
    unsafe fn pack(&self, f: &Function, to: *mut u8) {
        match self {
            Parameters::None => {}
            // SAFETY: the application gave that many bytes.
            Parameters::Buffer(from, size) => unsafe { std::ptr::copy_nonoverlapping(*from, to, *size) },
            Parameters::Each(each) => {
                for (i, (offset, size)) in f.layout.iter().enumerate() {
                    // SAFETY: one pointer a parameter, each to as many bytes as the parameter has; the common
                    // sizes are copied as words because a call to memcpy costs more than the copy.
                    unsafe {
                        let from = (*each.add(i)).cast_const().cast::<u8>();
                        let at = to.add(*offset as usize);
                        match size {
                            8 => at.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                            4 => at.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                            _ => std::ptr::copy_nonoverlapping(from, at, *size as usize),
                        }
                    }
                }
            }
        }
    }
}

/// Appends a launch's packed parameters, for graph nodes, as [`Writer::bytes`] writes them; where they lie in `out`.
///
/// # Safety
/// As `cuLaunchKernel` of `f` with these parameters.
pub unsafe fn pack(
    f: u64,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
    out: &mut Vec<u8>,
) -> Result<Range<usize>, CUresult> {
    let f = function(f as *const c_void)?;
    // SAFETY: the caller's promise.
    let (parameters, bytes) = unsafe { Parameters::new(f, each, extra) }?;
    out.reserve(bytes_size(bytes));
    out.word(bytes as u64);
    let start = out.len();
    out.resize(start + bytes.next_multiple_of(8), 0);
    // SAFETY: as many bytes as `new` asked for, zeroed.
    unsafe { parameters.pack(f, out.as_mut_ptr().add(start)) };
    Ok(start..start + bytes)
}

#[derive(Clone, Copy)]
struct Geometry {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
}

impl Geometry {
    /// What the driver checks before it enqueues anything. Limits of compute capability 3.0 and later. False if
    /// the function's own limits stand in the way: then the driver has to say how.
    fn check(&self, f: &Function, device: u32) -> Result<bool, CUresult> {
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

const LAUNCH_WORDS: usize = 7;

/// Checks and posts one launch.
///
/// ```text
/// function | gx gy | gz bx | by bz | shared, attributes | stream | parameter bytes | parameters | attributes
/// ```
///
/// # Safety
/// As `cuLaunchKernelEx`.
unsafe fn launch(
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
        if (stream as u64) <= 2 {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        return super::stream::in_context_of(stream, || match context::current() {
            0 => CUDA_ERROR_INVALID_CONTEXT,
            // SAFETY: the caller's promise.
            _ => unsafe { launch(f, geometry, stream, attributes, each, extra) },
        });
    };
    let f = match function(f.cast()) {
        Ok(f) => f,
        Err(code) => return code,
    };
    if let Some(code) = crate::call::poison::of(ctx) {
        return code;
    }
    let fits = match geometry.check(f, device) {
        Ok(fits) => fits,
        Err(code) => return code,
    };
    // SAFETY: the caller's promise.
    let (parameters, parameter_bytes) = match unsafe { Parameters::new(f, each, extra) } {
        Ok(p) => p,
        Err(code) => return code,
    };
    if s.mirrored {
        // SAFETY: the caller's promise.
        unsafe { parameters.each_word(&f.layout, |word| super::host_memory::note_parameter(s, word)) };
    }
    super::host_memory::before_launch();
    let padded = parameter_bytes.next_multiple_of(8);
    let len = LAUNCH_WORDS * 8 + padded + std::mem::size_of_val(attributes);
    let [gx, gy, gz] = geometry.grid.map(u64::from);
    let [bx, by, bz] = geometry.block.map(u64::from);
    let words = [
        f.handle,
        gx | gy << 32,
        gz | bx << 32,
        by | bz << 32,
        geometry.shared_bytes as u64 | (attributes.len() as u64) << 32,
        stream as u64,
        parameter_bytes as u64,
    ];
    let fill = |at: *mut u8| {
        // SAFETY: `at` has `len` bytes. Parameters are zeroed first because a layout may have gaps, and what
        // lies in the ring from before must not become a parameter.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr().cast(), at, LAUNCH_WORDS * 8);
            let at = at.add(LAUNCH_WORDS * 8);
            std::ptr::write_bytes(at, 0, padded);
            parameters.pack(f, at);
            std::ptr::copy_nonoverlapping(
                attributes.as_ptr().cast(),
                at.add(padded),
                std::mem::size_of_val(attributes),
            );
        }
    };
    let question = (!attributes.is_empty()).then(|| acceptance(&geometry, attributes));
    let accepted = question.as_ref().is_none_or(|q| {
        divides(&geometry, attributes) && f.accepted.lock().expect("no panic happens under this lock").contains(q)
    });
    if fits && accepted && !super::stream::is_elsewhere(stream, ctx) {
        return match send_with(s, ops::CU_LAUNCH_KERNEL, ctx, 0, len, fill) {
            Ok(_) if launches_block() => after_blocking_launch(stream),
            Ok(_) => super::capture::settle(),
            Err(code) => code,
        };
    }
    match start_with(s, ops::CU_LAUNCH_KERNEL, len, fill).and_then(|ticket| wait(s, ticket)) {
        Ok(reply) => {
            if let (CUDA_SUCCESS, Some(q)) = (reply.result, question) {
                f.accepted.lock().expect("no panic happens under this lock").insert(q);
            }
            match reply.result {
                CUDA_SUCCESS if launches_block() => after_blocking_launch(stream),
                CUDA_ERROR_NOT_SUPPORTED if f.is_refused.load(Ordering::Relaxed) => {
                    // The context has failed, and what is only posted from now on is to say so too.
                    crate::call::poison::end(ctx, CUDA_ERROR_LAUNCH_FAILED);
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
    *BLOCKING.get_or_init(|| std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|v| v.trim().parse() != Ok(0)))
}

#[cold]
fn after_blocking_launch(stream: CUstream) -> CUresult {
    // What is captured does not run, and asking about a stream that is being captured ends the capture.
    match super::capture::any_open() {
        true => super::capture::settle(),
        false => super::sync::stream(stream),
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
    let fits = (|| {
        let f = function(f.cast())?;
        if !geometry.check(f, current_device()?)? {
            // The launch itself is refused, in the driver's words.
            return Ok(());
        }
        let threads = bx * by * bz;
        let blocks = f.occupancy(vec![0, threads as u64, shared_bytes as u64, 0])?;
        let device = current_device()?;
        let processors =
            crate::local::device::attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(i32::MAX);
        if gx as u64 * gy as u64 * gz as u64 > blocks * processors as u64 {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    })();
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
        crate::local::refuse::refused("cuLaunchKernelEx", "device-updatable kernel nodes are not forwarded");
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
/// As CUDA's `cuKernelGetAttribute`.
pub unsafe fn cuKernelGetAttribute(
    pi: *mut i32,
    id: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let answer = (|| {
        let s = session()?;
        if device < 0 || device as u32 >= crate::local::device::count(s) {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        function(kernel.cast())?.attribute(id, device as u32)
    })();
    // SAFETY: null or valid for a write.
    unsafe { write(pi, answer) }
}

/// Writes an answer through the application's pointer.
///
/// # Safety
/// `to` is null or valid for a write.
pub unsafe fn write<T>(to: *mut T, answer: Result<T, CUresult>) -> CUresult {
    match answer {
        Ok(_) if to.is_null() => CUDA_ERROR_INVALID_VALUE,
        Ok(value) => {
            // SAFETY: not null, and valid by the contract.
            unsafe { to.write(value) };
            CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

fn status(answer: Result<(), CUresult>) -> CUresult {
    answer.err().unwrap_or(CUDA_SUCCESS)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetAttribute(f: CUfunction, id: CUfunction_attribute, value: i32) -> CUresult {
    match (session(), function(f.cast())) {
        (Err(code), _) | (_, Err(code)) => code,
        (Ok(_), Ok(f)) => f.set_attribute(id, value, any_device()),
    }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuKernelSetAttribute(
    id: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    match (session(), function(kernel.cast())) {
        (Err(code), _) | (_, Err(code)) => code,
        (Ok(s), Ok(f)) => {
            if device < 0 || device as u32 >= crate::local::device::count(s) {
                return CUDA_ERROR_INVALID_DEVICE;
            }
            f.set_attribute(id, value, device as u32)
        }
    }
}

/// # Safety
/// As CUDA's `cuFuncGetName`.
pub unsafe fn cuFuncGetName(name: *mut *const c_char, f: CUfunction) -> CUresult {
    // SAFETY: the caller's promise; names live as long as the process.
    unsafe { write(name, function(f.cast()).map(|f| f.name.as_ptr())) }
}

/// # Safety
/// As CUDA's `cuKernelGetName`.
pub unsafe fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetName(name, kernel.cast()) }
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

/// # Safety
/// As CUDA's `cuKernelGetParamInfo`.
pub unsafe fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetParamInfo(kernel.cast(), index, offset, size) }
}

/// Functions are loaded by the worker's driver when they are first used.
///
/// # Safety
/// As CUDA's `cuFuncIsLoaded`.
pub unsafe fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, f: CUfunction) -> CUresult {
    let answer = session().and_then(|_| function(f.cast())).and_then(|f| {
        // It can only be asked of the driver: a launch, a question or another thread may have loaded it meanwhile.
        call(ops::CU_FUNC_IS_LOADED, |w| w.word(f.handle), |r| Ok(r.word()? as CUfunctionLoadingState))
    });
    // SAFETY: the caller's promise.
    unsafe { write(state, answer) }
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncLoad(f: CUfunction) -> CUresult {
    let load = |f: &Function| call(ops::CU_FUNC_LOAD, |w| w.word(f.handle), |_| Ok(()));
    status(session().and_then(|_| function(f.cast())).and_then(load))
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
pub unsafe fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) -> CUresult {
    match session() {
        Ok(s) if device < 0 || device as u32 >= crate::local::device::count(s) => CUDA_ERROR_INVALID_DEVICE,
        Ok(_) => set_cache_config(kernel.cast(), config, device as u32),
        Err(code) => code,
    }
}

fn set_cache_config(f: *const c_void, config: CUfunc_cache, device: u32) -> CUresult {
    let answer = function(f).and_then(|f| {
        call(
            ops::CU_FUNC_SET_CACHE_CONFIG,
            |w| {
                for v in [f.handle, config as u64, device as u64] {
                    w.word(v);
                }
            },
            |_| Ok(()),
        )?;
        f.occupancy.lock().expect("no panic happens under this lock").clear();
        Ok(())
    });
    status(answer)
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuFuncSetSharedMemConfig(f: CUfunction, _config: CUsharedconfig) -> CUresult {
    status(function(f.cast()).map(|_| ()))
}

/// A kernel handle serves as function handle too, as with the driver.
///
/// # Safety
/// As CUDA's `cuKernelGetFunction`.
pub unsafe fn cuKernelGetFunction(f: *mut CUfunction, kernel: CUkernel) -> CUresult {
    let answer = (|| {
        session()?;
        function(kernel.cast()).map(|k| k.handle as CUfunction)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(f, answer) }
}

/// # Safety
/// As CUDA's `cuKernelGetLibrary`.
pub unsafe fn cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) -> CUresult {
    let answer = function(kernel.cast()).and_then(|f| match Handle(f.owner).is(Kind::Library) {
        true => Ok(f.owner as CUlibrary),
        false => Err(CUDA_ERROR_INVALID_HANDLE),
    });
    // SAFETY: the caller's promise.
    unsafe { write(library, answer) }
}

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
        let blocks = f.occupancy(vec![0, threads as u32 as u64, shared_bytes as u64, flags as u64])?;
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
        Ok(f.occupancy(vec![1, blocks as u32 as u64, threads as u32 as u64])? as usize)
    })();
    // SAFETY: the caller's promise.
    unsafe { write(bytes, answer) }
}

/// Question about clusters: the configuration and its attributes are the key.
unsafe fn cluster_question(kind: u64, config: *const CUlaunchConfig) -> Result<Vec<u64>, CUresult> {
    // SAFETY: null or a valid configuration.
    let config = unsafe { config.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if config.numAttrs > 64 || (config.numAttrs > 0 && config.attrs.is_null()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut q = vec![kind];
    q.extend(
        [
            config.gridDimX,
            config.gridDimY,
            config.gridDimZ,
            config.blockDimX,
            config.blockDimY,
            config.blockDimZ,
            config.sharedMemBytes,
        ]
        .map(u64::from),
    );
    q.push(config.numAttrs as u64);
    for i in 0..config.numAttrs as usize {
        // SAFETY: as many attributes as the configuration says, each nine words.
        let words = unsafe { config.attrs.add(i).cast::<u64>() };
        // The word of the id has four bytes of padding that carry nothing.
        // SAFETY: as above.
        q.push(unsafe { words.read() } & 0xffff_ffff);
        // SAFETY: as above.
        q.extend((1..9).map(|k| unsafe { words.add(k).read() }));
    }
    Ok(q)
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
        let question = unsafe { cluster_question(2, config) }?;
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
        let question = unsafe { cluster_question(3, config) }?;
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
        let of = |id| crate::local::device::attribute(device, id).ok_or(CUDA_ERROR_INVALID_DEVICE);
        let resident = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        let processors = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let (mut best, mut best_block, mut best_blocks) = (0, 0, 0);
        // The largest block comes first, so that it wins ties; blocks are whole warps but for the largest.
        let mut threads = (most as u32).next_multiple_of(32) as i32;
        while threads > 0 {
            let size = threads.min(most);
            // SAFETY: the application's own function, called as CUDA calls it.
            let shared = shared_of.map_or(shared_bytes, |of| unsafe { of(size) });
            let blocks = f.occupancy(vec![0, size as u64, shared as u64, flags as u64])? as i32;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_pointer_is_what_is_aligned_once_packed() {
        let bytes: [u8; 32] = std::array::from_fn(|i| i as u8);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let words = |parameters: &Parameters, layout: &[(u32, u32)]| {
            let mut words = Vec::new();
            // SAFETY: each parameter has 32 bytes, more than any layout here asks for.
            unsafe { parameters.each_word(layout, |word| words.push(word)) };
            words
        };
        let from = bytes.as_ptr().cast_mut().cast::<c_void>();
        let mut each = [from; 5];
        let each = Parameters::Each(each.as_mut_ptr());
        assert_eq!(words(&each, &[(0, 8), (8, 8)]), [word(0), word(0)]);
        // Two numbers that fill a word are no pointer, and neither is what a structure ends with.
        assert_eq!(words(&each, &[(0, 4), (4, 4), (8, 1), (16, 20), (36, 20)]), [word(0), word(8), word(4), word(12)]);
        assert_eq!(words(&each, &[(0, 7)]), []);
        let buffer = Parameters::Buffer(bytes.as_ptr(), 23);
        assert_eq!(words(&buffer, &[]), [word(0), word(8)]);
        assert_eq!(words(&Parameters::None, &[]), []);
    }
}
