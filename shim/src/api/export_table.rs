//! `cuGetExportTable`: the tables of functions that NVIDIA's own libraries ask a driver for by UUID.
//!
//! cudart does not start without five of them, and cuBLAS, cuBLASLt and cuFFT do not work without three more.
//! They are served for interoperability: so that the user's own licensed libraries run unmodified against the
//! user's own licensed GPUs. What the tables hold has long been public in open projects (ZLUDA, lupine, Wine's
//! nvcuda, cricket) and was confirmed by observation of those libraries; no code of a driver was read.
//!
//! Only what was seen to be needed is here. Nobody checks the tables' sizes, so each is as long as the longest
//! known of its kind, and where nothing is served there is a function that says so and refuses. Callers keep
//! the tables' addresses for ever: they are static and never change.

// UNSAFETY: a C ABI of raw pointers, and tables of functions with different signatures.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_transport::environment;

use crate::activity::calls;
use crate::answer::{code, not_null, put};
use crate::report::refuse;
use crate::session::context;
use crate::session::device::facts;
use crate::start::attach;
use crate::state::context::Context;
use crate::state::device;
use crate::state::lock::{Lock, Rank};
use crate::state::process::state;
use crate::state::storage::Destructor;
use crate::tables::compile_cache;
use crate::tables::integrity::Statement;

#[cfg(test)]
use fake::{functions_of, id_of_stream, load_image};

/// Needs neither `cuInit` nor a context.
pub unsafe fn cuGetExportTable(ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid) -> CUresult {
    if ppExportTable.is_null() || pExportTableId.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null; a UUID by the C API's contract, which may be unaligned.
    let id = unsafe { pExportTableId.cast::<[u8; 16]>().read_unaligned() };
    let table = find(u128::from_be_bytes(id));
    // Null for an unknown table: some callers look at nothing else.
    // SAFETY: not null; valid for a write by the C API's contract.
    unsafe { ppExportTable.write(table.unwrap_or(std::ptr::null())) };
    if table.is_some() { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

fn find(id: u128) -> Option<*const c_void> {
    Some(match id {
        0x6bd5fb6c_5bf4e74a_8987d939_12fd9df9 => CUDART_INTERFACE.address(),
        0xa094798c_2e742e74_93f20800_200c0a66 => TOOLS_RUNTIME_HOOKS.address(),
        0x42d85a81_23f6cb47_8298f6e7_8a3aecdc => TOOLS_TLS.address(),
        0xc693336e_1121df11_a8c368f3_55d89593 => CONTEXT_LOCAL_STORAGE.address(),
        0x263e8860_7cd26143_92f6bbd5_006dfa7e => CONTEXT_CHECKS.address(),
        0xd4082055_bde6704b_8d34ba12_3c66e1f2 => INTEGRITY_CHECK.address(),
        0x21318c60_97143248_8ca641ff_7324c8f2 => CONTEXT_TOOLS.address(),
        0x6e163fbe_b958444d_835ce182_aff1991e => MODULE_TOOLS.address(),
        0x1734dc26_800d4745_8726c0f1_e7dd8bca => MATMUL_TOOLS.address(),
        0xda9151d3_3ae6cc41_a5c04f26_d533e328 => COMPILE_CACHE.address(),
        ORION_CUPTI => crate::activity::functions::table(),
        ORION_NVML => crate::tables::nvml::table(),
        denied => {
            if !DENIED_QUIETLY.contains(&denied) {
                note_unknown(denied);
            }
            return None;
        }
    })
}

/// Orion's own, for its `libcupti.so.13`.
const ORION_CUPTI: u128 = u128::from_be_bytes(orion_cuda::cupti_table::TABLE_ID);

/// And for its `libnvidia-ml.so.1`.
const ORION_NVML: u128 = u128::from_be_bytes(orion_cuda::nvml_table::TABLE_ID);

/// A table that libraries try and do without: the driver's error log.
pub const DENIED_QUIETLY: [u128; 1] = [0xf8cff951_21468b4e_b9e2fb46_9e7c0dd9];

/// Says once of each table that something asked for it in vain, to those who want to know: libraries that ask for
/// tables get along without them, and natively nothing is printed.
fn note_unknown(id: u128) {
    if environment::var_os("ORION_VERBOSE").is_none_or(|v| v == "0") {
        return;
    }
    static NOTED: Lock<Vec<u128>> = Lock::new(Rank::Leaf, Vec::new());
    let is_new = {
        let mut noted = NOTED.lock();
        let is_new = noted.len() < 64 && !noted.contains(&id);
        if is_new {
            noted.push(id);
        }
        is_new
    };
    if is_new {
        let name = format!("private driver table {id:032x}");
        refuse::refused(name.leak(), "of use to profilers and debuggers only, as far as is known");
    }
}

/// A table of `N` words: its size in bytes, then functions.
#[repr(transparent)]
struct Table<const N: usize>([*const (); N]);

// SAFETY: nothing in it ever changes, and functions may be called by all threads.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    /// `refusing`, but for the slots in `served`.
    const fn new(refusing: [*const (); N], served: &[(usize, *const ())]) -> Table<N> {
        let mut words = refusing;
        words[0] = std::ptr::without_provenance(N * size_of::<*const ()>());
        let mut i = 0;
        while i < served.len() {
            words[served[i].0] = served[i].1;
            i += 1;
        }
        Table(words)
    }

    const fn address(&'static self) -> *const c_void {
        self.0.as_ptr().cast()
    }
}

static CUDART_INTERFACE: Table<13> = Table::new(
    refusing_few::<0, 13>(),
    &[
        (1, cudart_load as *const ()),
        (2, cudart_primary_context as *const ()),
        (6, cudart_load_extended as *const ()),
        (7, cudart_unload as *const ()),
        (8, cudart_load_header as *const ()),
        (12, cudart_warm_up as *const ()),
    ],
);

static TOOLS_RUNTIME_HOOKS: Table<7> = Table::new(
    refusing_few::<1, 7>(),
    &[
        (1, calls::runtime_call as *const ()),
        (2, hooks_callbacks as *const ()),
        (3, hooks_stream as *const ()),
        (4, hooks_context as *const ()),
        (6, hooks_domains as *const ()),
    ],
);

static TOOLS_TLS: Table<4> = Table::new(refusing_few::<2, 4>(), &[(2, tls_current_context as *const ())]);

/// The one without a size: its first word is a function, and its last is null in the driver too.
static CONTEXT_LOCAL_STORAGE: Table<4> =
    Table([storage_put as *const (), storage_delete as *const (), storage_get as *const (), std::ptr::null()]);

static CONTEXT_CHECKS: Table<17> = Table::new(
    refusing_few::<3, 17>(),
    &[(1, quietly_refused as *const ()), (2, checks_of_context as *const ()), (3, checks_of_process as *const ())],
);

static INTEGRITY_CHECK: Table<3> = Table::new(refusing_few::<4, 3>(), &[(1, integrity_sum as *const ())]);

static CONTEXT_TOOLS: Table<96> = Table::new(
    refusing_many::<5, 96>(),
    &[
        (3, context_device as *const ()),
        (4, context_id as *const ()),
        (39, stream_id as *const ()),
        (51, stream_object as *const ()),
    ],
);

static MODULE_TOOLS: Table<105> = Table::new(refusing_many::<6, 105>(), &[(7, module_for_each_function as *const ())]);

/// cuBLASLt dereferences this table without looking; its two functions hand out objects of the driver's own, and
/// cuBLASLt does without when they fail.
static MATMUL_TOOLS: Table<17> =
    Table::new(refusing_few::<7, 17>(), &[(4, quietly_refused as *const ()), (13, quietly_refused as *const ())]);

/// NVRTC's. Without it cuDNN compiles each of a language model's hundreds of attention kernels anew.
static COMPILE_CACHE: Table<7> = Table::new(
    refusing_few::<8, 7>(),
    &[
        (1, compile_cache::open as *const ()),
        (2, compile_cache::close as *const ()),
        (3, compile_cache::find as *const ()),
        (4, compile_cache::keep as *const ()),
        (6, compile_cache::free as *const ()),
    ],
);

const TABLE_NAMES: [&str; 9] = [
    "CUDART_INTERFACE",
    "TOOLS_RUNTIME_CALLBACK_HOOKS",
    "TOOLS_TLS",
    "CONTEXT_CHECKS",
    "INTEGRITY_CHECK",
    "21318c60 (context tools)",
    "6e163fbe (module tools)",
    "1734dc26 (cuBLASLt)",
    "da9151d3 (compile cache)",
];

// Served functions that a test looks for are never inlined: an optimised build may have several of a small one, each
// at an address of its own.

// CUDART_INTERFACE

pub unsafe extern "C" fn cudart_load(module: *mut CUmodule, wrapper: *const c_void) -> CUresult {
    // SAFETY: pointers of the table's contract: null or valid.
    code(unsafe { load(module, wrapper) })
}

/// A device's primary context without retaining it. Every cudart asks this when it starts.
#[inline(never)]
pub unsafe extern "C" fn cudart_primary_context(ctx: *mut CUcontext, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        let primary = &f.device(dev)?.primary;
        // SAFETY: a pointer of the table's contract: null or valid.
        unsafe { put(ctx, primary.as_cuda()) }
    }))
}

/// cudart 11 loads with this at the first use of a kernel. The extras are null in all that was seen.
pub unsafe extern "C" fn cudart_load_extended(
    module: *mut CUmodule,
    wrapper: *const c_void,
    a: *const c_void,
    b: *const c_void,
    c: u32,
) -> CUresult {
    if !a.is_null() || !b.is_null() || c != 0 {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    // SAFETY: pointers of the table's contract: null or valid.
    code(unsafe { load(module, wrapper) })
}

/// cudart 11 at the end of the process, when the worker forgets all modules anyway.
unsafe extern "C" fn cudart_unload(_wrapper: *const c_void, _: usize) {}

unsafe extern "C" fn cudart_load_header(
    header: *const c_void,
    module: *mut CUmodule,
    a: *const c_void,
    b: *const c_void,
    c: u32,
) -> CUresult {
    // SAFETY: the same, in another order.
    unsafe { cudart_load_extended(module, header, a, b, c) }
}

/// Would load the driver's compilers; they are the worker's.
#[inline(never)]
pub unsafe extern "C" fn cudart_warm_up() -> CUresult {
    CUDA_SUCCESS
}

/// # Safety
/// `module` must be null or valid for a write, `image` null or an image.
unsafe fn load(module: *mut CUmodule, image: *const c_void) -> Result<(), CUresult> {
    not_null(module)?;
    not_null(image)?;
    context::current_active()?;
    // SAFETY: not null; an image as the caller says.
    let loaded = unsafe { load_image(image) }?;
    // SAFETY: not null; valid as the caller says.
    unsafe { put(module, loaded) }
}

// TOOLS_RUNTIME_CALLBACK_HOOKS

/// Words that would say which kinds of other events a tool wants to see: none.
static DOMAINS: [AtomicU32; 2048] = [const { AtomicU32::new(0) }; 2048];

/// As many as the driver reports; cudart 13.5 refuses to start with fewer than 567.
const HOOKED_CALLBACKS: usize = 1024;
const HOOKED_DOMAINS: usize = 14;

pub unsafe extern "C" fn hooks_callbacks(words: *mut *const c_void, count: *mut usize) {
    // SAFETY: pointers of the table's contract: null or valid.
    let _ = unsafe { put(words, state().recording.hooks.as_ptr().cast()).and(put(count, HOOKED_CALLBACKS)) };
}

pub unsafe extern "C" fn hooks_domains(words: *mut *const c_void, count: *mut usize) {
    // SAFETY: pointers of the table's contract: null or valid.
    let _ = unsafe { put(words, DOMAINS.as_ptr().cast()).and(put(count, HOOKED_DOMAINS)) };
}

/// A context's number, for what cudart says of a call. Without a context cudart asks all the same.
unsafe extern "C" fn hooks_context(ctx: CUcontext, id: *mut u64) -> CUresult {
    // SAFETY: a pointer of the table's contract: null or valid.
    code(unsafe { put(id, named(ctx).map_or(0, Context::id)) })
}

/// And a stream's.
unsafe extern "C" fn hooks_stream(_ctx: CUcontext, stream: CUstream, id: *mut u64) -> CUresult {
    // SAFETY: the same.
    code(unsafe { put(id, stream as u64) })
}

// TOOLS_TLS

/// cuBLASLt asks once per multiplication.
pub unsafe extern "C" fn tls_current_context(ctx: *mut CUcontext) -> CUresult {
    let current = std::ptr::without_provenance_mut(crate::state::context::current() as usize);
    // SAFETY: a pointer of the table's contract: null or valid.
    code(unsafe { put(ctx, current) })
}

// CONTEXT_LOCAL_STORAGE

#[inline(never)]
pub unsafe extern "C" fn storage_put(
    ctx: CUcontext,
    key: usize,
    value: usize,
    destructor: Option<Destructor>,
) -> CUresult {
    code(context::resolve(ctx).and_then(|c| {
        if !c.takes_values() {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        if c.storage.put(key, value, destructor) { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
    }))
}

#[inline(never)]
pub unsafe extern "C" fn storage_delete(ctx: CUcontext, key: usize) -> CUresult {
    code(context::resolve(ctx).and_then(
        |c| {
            if c.storage.delete(key) { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
        },
    ))
}

/// Once per call of the runtime API.
#[inline(never)]
pub unsafe extern "C" fn storage_get(value: *mut usize, ctx: CUcontext, key: usize) -> CUresult {
    let c = match context::resolve(ctx) {
        Ok(c) => c,
        Err(code) => return code,
    };
    match c.storage.get(key) {
        Some(found) if !value.is_null() => {
            // SAFETY: not null; valid for a write by the table's contract.
            unsafe { value.write(found) };
            CUDA_SUCCESS
        }
        Some(_) => CUDA_ERROR_INVALID_VALUE,
        // cudart makes it current first and retains it afterwards; until then it is not quite a context.
        None if ctx.is_null() && !c.is_active() => CUDA_ERROR_INVALID_CONTEXT,
        None => CUDA_ERROR_INVALID_HANDLE,
    }
}

// CONTEXT_CHECKS

/// Nothing to check. `out` stays as it is, as in the driver.
pub unsafe extern "C" fn checks_of_context(ctx: CUcontext, flags: *mut u32, _out: *mut *const c_void) -> CUresult {
    code(context::resolve(ctx).and_then(|_| {
        // SAFETY: a pointer of the table's contract: null or valid.
        unsafe { put(flags, 0) }
    }))
}

unsafe extern "C" fn checks_of_process() -> u32 {
    0
}

// INTEGRITY_CHECK

pub unsafe extern "C" fn integrity_sum(version: u32, unix_seconds: u64, out: *mut [u64; 2]) -> CUresult {
    code(facts().and_then(|f| {
        let place = |d: &device::Device| {
            let ids =
                [CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
            (d.uuid, ids.map(|id| d.attribute(id).unwrap_or(0)))
        };
        let devices: Vec<_> = f.devices.iter().map(place).collect();
        let statement = Statement {
            driver_version: attach::driver_version() as u32,
            version,
            pid: std::process::id(),
            // SAFETY: has no conditions.
            thread: unsafe { libc::pthread_self() } as u32,
            addresses: [
                CUDART_INTERFACE.address().addr() as u64,
                INTEGRITY_CHECK.address().addr() as u64,
                INTEGRITY_CHECK.0[1].addr() as u64,
            ],
            unix_seconds,
            devices: &devices,
        };
        // SAFETY: a pointer of the table's contract: null or valid.
        unsafe { put(out, statement.answer()) }
    }))
}

// 21318c60

/// The context of an explicit handle; null is none here.
fn named(ctx: CUcontext) -> Option<&'static Context> {
    if ctx.is_null() { None } else { context::resolve(ctx).ok() }
}

unsafe extern "C" fn context_device(ctx: CUcontext, dev: *mut CUdevice) -> CUresult {
    code(named(ctx).ok_or(CUDA_ERROR_INVALID_CONTEXT).and_then(|c| {
        // SAFETY: a pointer of the table's contract: null or valid.
        unsafe { put(dev, c.device as CUdevice) }
    }))
}

/// What `cuCtxGetId` says, but 0 instead of an error. cuBLASLt asks once per multiplication.
#[inline(never)]
pub unsafe extern "C" fn context_id(ctx: CUcontext, id: *mut u64) -> CUresult {
    if id.is_null() {
        return CUDA_ERROR_UNKNOWN;
    }
    // SAFETY: not null; valid for a write by the table's contract.
    unsafe { id.write(named(ctx).map_or(0, Context::id)) };
    CUDA_SUCCESS
}

/// The object behind a stream handle. Callers only hand it back, so it is the handle; the legacy stream's two
/// names are one object.
#[inline(never)]
pub unsafe extern "C" fn stream_object(ctx: CUcontext, stream: CUstream, object: *mut *const c_void) -> CUresult {
    code(not_null(object).and_then(|()| {
        if named(ctx).is_none() || stream.addr() == usize::MAX {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let object_of = if stream.is_null() { std::ptr::without_provenance(1) } else { stream.cast_const().cast() };
        // SAFETY: a pointer of the table's contract: null or valid.
        unsafe { put(object, object_of) }
    }))
}

/// What `cuStreamGetId` says of the stream.
#[inline(never)]
pub unsafe extern "C" fn stream_id(ctx: CUcontext, object: *const c_void, id: *mut u64) -> CUresult {
    code(not_null(object).and_then(|()| {
        let found = id_of_stream(ctx, object.cast_mut().cast()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        // SAFETY: a pointer of the table's contract: null or valid.
        unsafe { put(id, found) }
    }))
}

// 6e163fbe

/// Gets the caller's word, the function, and its name; what it answers is ignored.
type EachFunction = unsafe extern "C" fn(*mut c_void, CUfunction, *const c_char) -> c_int;

/// Calls back for every function of a module; answers how many there are. cuFFT finds its kernels so.
#[inline(never)]
pub unsafe extern "C" fn module_for_each_function(
    _ctx: CUcontext,
    module: CUmodule,
    each: Option<EachFunction>,
    opaque: *mut c_void,
) -> c_int {
    let Ok(functions) = functions_of(module) else { return 0 };
    if let Some(each) = each {
        for (function, name) in &functions {
            // SAFETY: the caller's function with the caller's word; the name lives as long as the module.
            unsafe { each(opaque, *function, *name) };
        }
    }
    functions.len() as c_int
}

// What is not served

/// For slots that libraries are known to call and to do without.
unsafe extern "C" fn quietly_refused() -> CUresult {
    CUDA_ERROR_NOT_SUPPORTED
}

/// Stands in slot `S` of table `T`.
unsafe extern "C" fn refused<const T: usize, const S: usize>() -> CUresult {
    note_refused(T, S);
    CUDA_ERROR_NOT_SUPPORTED
}

#[cold]
fn note_refused(table: usize, slot: usize) {
    static NOTED: [[AtomicU64; 2]; TABLE_NAMES.len()] = [const { [const { AtomicU64::new(0) }; 2] }; TABLE_NAMES.len()];
    let bit = 1 << (slot % 64);
    if NOTED[table][slot / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let name = format!("slot {slot} of private driver table {}", TABLE_NAMES[table]);
        refuse::refused(name.leak(), "no library was known to call it");
    }
}

macro_rules! refusing {
    ($name:ident: $($slot:literal)*) => {
        const fn $name<const T: usize, const N: usize>() -> [*const (); N] {
            let all = [$(refused::<T, $slot> as *const ()),*];
            let mut first = [std::ptr::null(); N];
            let mut i = 0;
            while i < N {
                first[i] = all[i];
                i += 1;
            }
            first
        }
    };
}

refusing!(refusing_few: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
refusing!(refusing_many:
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
    40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76
    77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104);

/// Loads a module image: a fatbin wrapper, a fatbin, a cubin or PTX text.
///
/// # Safety
/// `image` must be one of these.
#[cfg(not(test))]
pub unsafe fn load_image(image: *const c_void) -> Result<CUmodule, CUresult> {
    // SAFETY: passed on from the caller.
    unsafe { crate::objects::module::load_image(image) }
}

/// All functions of a module in the driver's order, each with its name, which lives as long as the module.
#[cfg(not(test))]
pub fn functions_of(module: CUmodule) -> Result<Vec<(CUfunction, *const c_char)>, CUresult> {
    let named = |f: CUfunction| {
        let mut name = std::ptr::null();
        // SAFETY: a valid place.
        match unsafe { crate::api::execution::cuFuncGetName(&mut name, f) } {
            CUDA_SUCCESS => Ok((f, name)),
            code => Err(code),
        }
    };
    crate::objects::module::functions_of(module)?.into_iter().map(named).collect()
}

/// What `cuStreamGetId` answers. The legacy default stream has one id under both its names.
#[cfg(not(test))]
pub fn id_of_stream(ctx: CUcontext, stream: CUstream) -> Option<u64> {
    crate::objects::stream::stream_id(ctx.addr() as u64, stream)
}

/// Modules and streams without a worker behind them.
#[cfg(test)]
mod fake {
    use super::*;

    /// The only module there is.
    pub const MODULE: usize = 0x1234;

    pub unsafe fn load_image(_image: *const c_void) -> Result<CUmodule, CUresult> {
        Ok(std::ptr::without_provenance_mut(MODULE))
    }

    pub fn functions_of(module: CUmodule) -> Result<Vec<(CUfunction, *const c_char)>, CUresult> {
        if module.addr() != MODULE {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let function = std::ptr::without_provenance_mut;
        Ok(vec![(function(0x10), c"alpha".as_ptr()), (function(0x20), c"beta".as_ptr())])
    }

    pub fn id_of_stream(_ctx: CUcontext, stream: CUstream) -> Option<u64> {
        Some(stream.addr() as u64 + 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::context::tests::{primary, retain};
    use crate::api::context::{cuCtxPopCurrent_v2, cuCtxSetCurrent, cuDevicePrimaryCtxRelease_v2};
    use crate::state::device::fixture::initialise;
    use std::sync::Mutex;

    const NULL: CUcontext = std::ptr::null_mut();

    fn table(id: u128) -> (CUresult, *const *const ()) {
        let id = CUuuid { bytes: id.to_be_bytes().map(|b| b as c_char) };
        let mut p = std::ptr::without_provenance(0x7777);
        // SAFETY: valid places.
        (unsafe { cuGetExportTable(&mut p, &id) }, p.cast())
    }

    const CLS: u128 = 0xc693336e_1121df11_a8c368f3_55d89593;

    #[test]
    fn tables_say_their_size_and_have_no_holes() {
        for (id, words) in [
            (0x6bd5fb6c_5bf4e74a_8987d939_12fd9df9, 13),
            (0xa094798c_2e742e74_93f20800_200c0a66, 7),
            (0x42d85a81_23f6cb47_8298f6e7_8a3aecdc, 4),
            (0x263e8860_7cd26143_92f6bbd5_006dfa7e, 17),
            (0xd4082055_bde6704b_8d34ba12_3c66e1f2, 3),
            (0x21318c60_97143248_8ca641ff_7324c8f2, 96),
            (0x6e163fbe_b958444d_835ce182_aff1991e, 105),
            (0x1734dc26_800d4745_8726c0f1_e7dd8bca, 17),
            (0xda9151d3_3ae6cc41_a5c04f26_d533e328, 7),
        ] {
            let (code, p) = table(id);
            assert_eq!(code, CUDA_SUCCESS);
            // SAFETY: the table has that many words.
            let all = unsafe { std::slice::from_raw_parts(p, words) };
            assert_eq!(all[0].addr(), words * 8);
            assert!(all.iter().all(|f| !f.is_null()), "table {id:x}");
            assert_eq!(table(id).1, p);
        }
    }

    #[test]
    fn an_unknown_table_is_null_and_an_error() {
        for id in [0, DENIED_QUIETLY[0], 0x7cb63f9b_9ca48e42_a484beb6_6e6aed7f] {
            assert_eq!(table(id), (CUDA_ERROR_INVALID_VALUE, std::ptr::null()));
        }
        let mut p = std::ptr::null();
        // SAFETY: null or valid places.
        unsafe {
            assert_eq!(cuGetExportTable(&mut p, std::ptr::null()), CUDA_ERROR_INVALID_VALUE);
            let id = CUuuid { bytes: [0; 16] };
            assert_eq!(cuGetExportTable(std::ptr::null_mut(), &id), CUDA_ERROR_INVALID_VALUE);
        }
    }

    #[test]
    fn functions_of_a_module_are_called_back_with_their_names() {
        unsafe extern "C" fn each(seen: *mut c_void, f: CUfunction, name: *const c_char) -> c_int {
            // SAFETY: the test's own vector, and a C string.
            let (seen, name) = unsafe { (&mut *seen.cast::<Vec<_>>(), std::ffi::CStr::from_ptr(name)) };
            seen.push((f.addr(), name.to_owned()));
            0
        }
        let mut seen: Vec<(usize, std::ffi::CString)> = Vec::new();
        let module = std::ptr::without_provenance_mut(crate::api::export_table::fake::MODULE);
        let place = (&raw mut seen).cast();
        // SAFETY: the callback takes what it is given.
        unsafe {
            assert_eq!(module_for_each_function(NULL, module, Some(each), place), 2);
            assert_eq!(seen, [(0x10, c"alpha".to_owned()), (0x20, c"beta".to_owned())]);
            assert_eq!(module_for_each_function(NULL, module, None, place), 2);
            assert_eq!(module_for_each_function(NULL, std::ptr::null_mut(), Some(each), place), 0);
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        let (_, p) = table(0x21318c60_97143248_8ca641ff_7324c8f2);
        for slot in [1, 91, 95] {
            // SAFETY: the slot holds a function without arguments.
            let f: unsafe extern "C" fn() -> CUresult = unsafe { std::mem::transmute(*p.add(slot)) };
            // SAFETY: it only logs.
            assert_eq!(unsafe { (f(), f()) }, (CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED));
        }
    }

    #[test]
    fn every_served_slot_is_where_libraries_look_for_it() {
        let at = |id, slot| {
            // SAFETY: all slots asked for are inside their tables.
            unsafe { *table(id).1.add(slot) }
        };
        let cudart = 0x6bd5fb6c_5bf4e74a_8987d939_12fd9df9;
        assert_eq!(at(cudart, 2), cudart_primary_context as *const ());
        assert_eq!(at(cudart, 12), cudart_warm_up as *const ());
        assert_eq!(at(CLS, 0), storage_put as *const ());
        assert_eq!(at(CLS, 1), storage_delete as *const ());
        assert_eq!(at(CLS, 2), storage_get as *const ());
        assert!(at(CLS, 3).is_null());
        let streams = 0x21318c60_97143248_8ca641ff_7324c8f2;
        assert_eq!(
            [at(streams, 4), at(streams, 39), at(streams, 51)],
            [context_id as *const (), stream_id as *const (), stream_object as *const ()]
        );
        let compile_cache = 0xda9151d3_3ae6cc41_a5c04f26_d533e328;
        assert_eq!(
            [at(compile_cache, 1), at(compile_cache, 2)],
            [crate::tables::compile_cache::open as *const (), crate::tables::compile_cache::close as *const ()]
        );
        assert_eq!(
            [at(compile_cache, 3), at(compile_cache, 4), at(compile_cache, 6)],
            [
                crate::tables::compile_cache::find as *const (),
                crate::tables::compile_cache::keep as *const (),
                crate::tables::compile_cache::free as *const ()
            ]
        );
        assert_eq!(at(0x6e163fbe_b958444d_835ce182_aff1991e, 7), module_for_each_function as *const ());
    }

    /// The calls that cudart 13 makes until its first context is in use.
    #[test]
    fn cudart_starts() {
        initialise();
        let (mut ctx, mut value, mut flags, mut id) = (NULL, 0, 77, 77);
        // SAFETY: valid places.
        unsafe {
            assert_eq!(cudart_primary_context(&mut ctx, 9), CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(cudart_primary_context(&mut ctx, 1), CUDA_SUCCESS);
            assert_eq!(ctx, primary(1));
            assert_eq!(storage_get(&mut value, NULL, 1), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(checks_of_context(NULL, &mut flags, std::ptr::null_mut()), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(cuCtxSetCurrent(ctx), CUDA_SUCCESS);
            assert_eq!(checks_of_context(ctx, &mut flags, std::ptr::null_mut()), CUDA_SUCCESS);
            assert_eq!(flags, 0);
            assert_eq!(storage_get(&mut value, NULL, 1), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(storage_get(&mut value, ctx, 1), CUDA_ERROR_INVALID_HANDLE);
            assert_eq!(storage_put(NULL, 1, 2, None), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            assert_eq!((context_id(ctx, &mut id), id), (CUDA_SUCCESS, 0));
            assert_eq!(retain(1), ctx);
            assert_eq!(storage_get(&mut value, NULL, 1), CUDA_ERROR_INVALID_HANDLE);
            assert_eq!(storage_put(NULL, 1, 2, None), CUDA_SUCCESS);
            assert_eq!(storage_put(NULL, 1, 3, None), CUDA_ERROR_INVALID_HANDLE);
            assert_eq!((storage_get(&mut value, NULL, 1), value), (CUDA_SUCCESS, 2));
            assert_eq!((storage_get(&mut value, std::ptr::without_provenance_mut(usize::MAX), 1), value), (0, 2));
            assert_eq!((tls_current_context(&mut ctx), ctx), (CUDA_SUCCESS, primary(1)));
            assert_eq!(context_id(ctx, &mut id), CUDA_SUCCESS);
            assert_ne!(id, 0);
            assert_eq!((context_id(NULL, &mut id), id), (CUDA_SUCCESS, 0));
            assert_eq!(storage_delete(ctx, 1), CUDA_SUCCESS);
            assert_eq!(storage_delete(ctx, 1), CUDA_ERROR_INVALID_HANDLE);
            let mut module = std::ptr::null_mut();
            let image = c".version 7.0".as_ptr().cast();
            assert_eq!(cudart_load_extended(&mut module, image, std::ptr::null(), std::ptr::null(), 0), CUDA_SUCCESS);
            assert_eq!(module.addr(), crate::api::export_table::fake::MODULE);
            cuDevicePrimaryCtxRelease_v2(1);
            assert_eq!(cudart_load(&mut module, image), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
    }

    static RAN: Mutex<Vec<(usize, usize, usize)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn destructor(context: usize, key: usize, value: usize) {
        let mut still = 0;
        // SAFETY: a valid place.
        let code = unsafe { storage_get(&mut still, std::ptr::without_provenance_mut(context), key) };
        assert_eq!((code, still), (CUDA_SUCCESS, value));
        // SAFETY: no pointers to places.
        let again = unsafe { storage_put(std::ptr::without_provenance_mut(context), key + 100, 0, None) };
        assert_eq!(again, CUDA_ERROR_CONTEXT_IS_DESTROYED);
        RAN.lock().unwrap().push((context, key, value));
    }

    #[test]
    fn a_dying_context_runs_the_destructors() {
        initialise();
        retain(0);
        let ctx = primary(0);
        // SAFETY: valid places.
        unsafe {
            for key in [1, 2, 3] {
                assert_eq!(storage_put(ctx, key, key * 10, Some(destructor)), CUDA_SUCCESS);
            }
            storage_delete(ctx, 2);
            assert_eq!(crate::api::context::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
            let c = ctx.addr();
            assert_eq!(RAN.lock().unwrap().split_off(0), [(c, 3, 30), (c, 1, 10)]);
            assert_eq!(storage_get(&mut 0, ctx, 1), CUDA_ERROR_INVALID_HANDLE);
            retain(0);
            storage_put(ctx, 4, 40, Some(destructor));
            cuDevicePrimaryCtxRelease_v2(0);
            assert!(RAN.lock().unwrap().is_empty());
            cuDevicePrimaryCtxRelease_v2(0);
            assert_eq!(RAN.lock().unwrap().split_off(0), [(c, 4, 40)]);
        }
    }

    #[test]
    fn hooks_begin_with_nobody_to_see_them() {
        let (mut words, mut count) = (std::ptr::null(), 0);
        // SAFETY: valid places; the words are ours.
        unsafe {
            hooks_callbacks(&mut words, &mut count);
            assert_eq!(count, 1024);
            assert!(std::slice::from_raw_parts(words.cast::<u32>(), count).iter().all(|w| *w == 0));
            hooks_domains(&mut words, &mut count);
            assert_eq!(count, 14);
        }
    }

    #[test]
    fn streams_have_objects_and_ids() {
        initialise();
        retain(0);
        let stream = |s: usize| -> CUstream { std::ptr::without_provenance_mut(s) };
        let id = |s: usize| {
            let (mut object, mut id) = (std::ptr::null(), 0);
            // SAFETY: valid places.
            unsafe {
                assert_eq!(stream_object(primary(0), stream(s), &mut object), CUDA_SUCCESS);
                assert_eq!(stream_id(primary(0), object, &mut id), CUDA_SUCCESS);
            }
            id
        };
        assert_eq!(id(0), id(1));
        assert_ne!(id(1), id(2));
        let mut object = std::ptr::null();
        // SAFETY: valid places or null.
        unsafe {
            assert_eq!(stream_object(primary(0), stream(usize::MAX), &mut object), CUDA_ERROR_INVALID_HANDLE);
            assert_eq!(stream_object(NULL, stream(0), &mut object), CUDA_ERROR_INVALID_HANDLE);
            assert_eq!(stream_object(primary(0), stream(0), std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(stream_id(primary(0), std::ptr::null(), &mut 0), CUDA_ERROR_INVALID_VALUE);
            cuDevicePrimaryCtxRelease_v2(0);
        }
    }

    #[test]
    fn sums_are_about_this_process() {
        initialise();
        let mut out = [[0; 2]; 4];
        // SAFETY: valid places.
        unsafe {
            for (out, version) in out.iter_mut().zip([13000, 13002, 13002, 13003]) {
                assert_eq!(integrity_sum(version, 1_700_000_000, out), CUDA_SUCCESS);
            }
            assert_eq!(out[0], [0x3341181c03cb675c, 0x8ed383aa1f4cd1e8]);
            assert!(out[1] == out[2] && out[1] != out[3]);
            assert_eq!(cuCtxPopCurrent_v2(std::ptr::null_mut()), CUDA_ERROR_INVALID_CONTEXT);
        }
    }
}
