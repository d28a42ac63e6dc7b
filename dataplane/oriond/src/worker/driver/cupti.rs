//! CUPTI, NVIDIA's profiler library, of which a worker uses the activity records; or the software GPU's.
//!
//! It is loaded when a client first asks for activities, and stays. What it hands over goes into a [`Store`].

// UNSAFETY: loads a shared library, calls it, and reads the buffers that it hands over.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock};

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::{Complete, Request, Timestamp};
use orion_cuda::sys::CUcontext;
use orion_wire::activity::{COPIES, KERNELS, SETS};
use orion_wire::handle::Kind;

use crate::lines;
use crate::worker::driver::activity::{Store, structure_bytes};

const FILE: &str = "libcupti.so.13";
/// API versions whose records begin as those of `orion_cuda::cupti`: CUDA 13.0 to 13.5. Each of them appends fields, at
/// most; what is appended is left out.
const VERSIONS: std::ops::Range<u32> = 130000..130600;

/// Driver calls that make no work on the GPU and that the executor makes for each command, or between commands: their
/// records, and those of what they belong to, would be written and dropped. (`cupti_driver_cbid.h`.)
const SILENT_CALLS: [u32; 8] = [
    119, // cuEventRecord
    120, // cuEventQuery
    125, // cuStreamQuery
    295, // cuStreamWaitEvent
    303, // cuCtxSetCurrent
    369, // cuStreamGetFlags
    499, // cuStreamIsCapturing
    541, // cuThreadExchangeStreamCaptureMode
];

/// Bytes of one buffer that CUPTI fills, and how many it may have at a time.
const BUFFER_BYTES: usize = 2 << 20;
const BUFFERS_MAX: usize = 64;
/// Empty buffers that are kept for the next request.
const SPARE_MAX: usize = 4;

/// The functions that are used: the structure of their addresses, and how they are found.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*);)*) => {
        pub struct Cupti {
            $($field: unsafe extern "C" fn($($argument),*) -> CUptiResult,)*
            /// The software GPU has no calls to leave out.
            enable_driver_call: Option<unsafe extern "C" fn(u32, u8) -> CUptiResult>,
        }

        impl Cupti {
            /// The functions, or the name of the first that is missing.
            ///
            /// # Safety
            /// What `find` gives for a name has that function's signature in CUPTI's headers, and stays.
            unsafe fn find(find: &mut dyn FnMut(&str) -> *const c_void) -> Result<Cupti, &'static str> {
                type OfCall = unsafe extern "C" fn(u32, u8) -> CUptiResult;
                Ok(Cupti {
                    $($field: match find($name) {
                        at if at.is_null() => return Err($name),
                        // SAFETY: not null, and by this function's contract of the header's type.
                        at => unsafe {
                            type Of = unsafe extern "C" fn($($argument),*) -> CUptiResult;
                            std::mem::transmute::<*const c_void, Of>(at)
                        },
                    },)*
                    // SAFETY: as above; null is `None`.
                    enable_driver_call: unsafe {
                        std::mem::transmute::<*const c_void, Option<OfCall>>(find("cuptiActivityEnableDriverApi"))
                    },
                })
            }
        }
    };
}

functions! {
    version = "cuptiGetVersion"(*mut u32);
    register_callbacks = "cuptiActivityRegisterCallbacks"(Request, Complete);
    register_clock = "cuptiActivityRegisterTimestampCallback"(Timestamp);
    enable = "cuptiActivityEnable"(CUpti_ActivityKind);
    disable = "cuptiActivityDisable"(CUpti_ActivityKind);
    flush_all = "cuptiActivityFlushAll"(u32);
    next_record = "cuptiActivityGetNextRecord"(*mut u8, usize, *mut *mut u8);
    dropped_records = "cuptiActivityGetNumDroppedRecords"(CUcontext, u32, *mut usize);
    push_external = "cuptiActivityPushExternalCorrelationId"(u32, u64);
    pop_external = "cuptiActivityPopExternalCorrelationId"(u32, *mut u64);
    result_string = "cuptiGetResultString"(CUptiResult, *mut *const c_char);
    graph_number = "cuptiGetGraphId"(*mut c_void, *mut u32);
    exec_number = "cuptiGetGraphExecId"(*mut c_void, *mut u32);
    node_number = "cuptiGetGraphNodeId"(*mut c_void, *mut u64);
}

/// Where to look for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Software,
    /// A library's path, or the usual places.
    Library(Option<String>),
}

/// The library, or why there is none. Looked for once, while files can still be opened.
static FOUND: OnceLock<Result<Cupti, String>> = OnceLock::new();
/// The library once a client has asked for activities.
static LOADED: OnceLock<&'static Cupti> = OnceLock::new();
/// The kinds that are recorded now, as [`orion_wire::activity`] has them. Held while that changes.
static RECORDED: Mutex<u64> = Mutex::new(0);
static STORE: LazyLock<Mutex<Store>> = LazyLock::new(Mutex::default);

/// What was recorded in this process, which has one session.
pub fn store() -> MutexGuard<'static, Store> {
    STORE.lock().expect("no panic happens under this lock")
}

impl Cupti {
    /// The number that records have for a graph, an executable graph or a node of this session's.
    pub fn graph_id(&self, kind: Kind, object: *mut c_void) -> Option<u64> {
        let (mut short, mut long) = (0, 0);
        // SAFETY: a live object of its kind, and valid places.
        let code = unsafe {
            match kind {
                Kind::Graph => (self.graph_number)(object, &mut short),
                Kind::GraphExec => (self.exec_number)(object, &mut short),
                _ => (self.node_number)(object, &mut long),
            }
        };
        (code == CUPTI_SUCCESS).then_some(if kind == Kind::GraphNode { long } else { short.into() })
    }
}

/// The library, if a client has asked for activities before.
pub fn loaded() -> Option<&'static Cupti> {
    LOADED.get().copied()
}

/// Looks for the library without using it.
pub fn load_early(source: &Source) {
    FOUND.get_or_init(|| open(source));
}

/// The clock of the records' times: what CUPTI is given in place of its own, and relates the GPU's clock to.
pub fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out pointer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

unsafe extern "C" fn clock() -> u64 {
    now()
}

/// Records these kinds from now on, and no others. Takes long the first time, and may wait for the driver: not for the
/// executor. Says what went wrong and what to do.
pub fn record(source: &Source, kinds: u64) -> Result<(), String> {
    let mut recorded = RECORDED.lock().expect("no panic happens under this lock");
    if *recorded == kinds {
        return Ok(());
    }
    let cupti = match LOADED.get() {
        Some(cupti) => cupti,
        None => {
            let cupti = FOUND.get_or_init(|| open(source)).as_ref().map_err(Clone::clone)?;
            cupti.prepare()?;
            LOADED.get_or_init(|| cupti)
        }
    };
    let outcome = cupti.switch(*recorded, kinds);
    *recorded = if outcome.is_ok() { kinds } else { 0 };
    outcome
}

/// Makes CUPTI hand over what it has. Waits: not for the executor. While it records that is what is complete: a forced
/// flush would lose the records of what is running. Once it does not, all that is left is forced out.
pub fn flush() {
    let Some(cupti) = LOADED.get() else { return };
    let recording = || *RECORDED.lock().expect("no panic happens under this lock") != 0;
    let flush = store().flush_begins();
    let flag = if recording() { 0 } else { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED };
    // SAFETY: callbacks are registered.
    let code = unsafe { (cupti.flush_all)(flag) };
    if code != CUPTI_SUCCESS {
        lines::warn(&format!("cuptiActivityFlushAll({flag}) failed: {}", cupti.name_of(code)));
    }
    store().flush_ended(flush, recording());
}

/// Runs driver calls that belong to the client's call `id`, on this thread.
pub fn on_behalf_of<T>(id: u32, calls: impl FnOnce() -> T) -> T {
    let Some(cupti) = LOADED.get() else { return calls() };
    // SAFETY: a plain call.
    unsafe { (cupti.push_external)(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id.into()) };
    let outcome = calls();
    let mut popped = 0;
    // SAFETY: a valid out pointer.
    unsafe { (cupti.pop_external)(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &mut popped) };
    outcome
}

/// CUPTI's kinds for those of the wire's.
fn kinds_of(kinds: u64) -> Vec<CUpti_ActivityKind> {
    let all = [
        (KERNELS, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL),
        (COPIES, CUPTI_ACTIVITY_KIND_MEMCPY),
        (COPIES, CUPTI_ACTIVITY_KIND_MEMCPY2),
        (SETS, CUPTI_ACTIVITY_KIND_MEMSET),
    ];
    let mut list: Vec<_> = all.into_iter().filter(|(bit, _)| kinds & bit != 0).map(|(_, kind)| kind).collect();
    if !list.is_empty() {
        // External correlation is told of calls into the driver whose records are written, so those have to be.
        list.extend([CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION]);
    }
    list
}

impl Cupti {
    fn prepare(&self) -> Result<(), String> {
        // SAFETY: functions of this process's, which stay.
        unsafe {
            self.done("cuptiActivityRegisterCallbacks", (self.register_callbacks)(requested, completed))?;
            self.done("cuptiActivityRegisterTimestampCallback", (self.register_clock)(clock))
        }
    }

    /// Switches kinds on and off. After an error all of them are off.
    fn switch(&self, from: u64, to: u64) -> Result<(), String> {
        let (old, new) = (kinds_of(from), kinds_of(to));
        for kind in old.iter().filter(|kind| !new.contains(kind)) {
            // SAFETY: a plain call. One that fails leaves records that nobody asked for, and they are dropped.
            unsafe { (self.disable)(*kind) };
        }
        // What explains a record comes before the record: the calls are last in the list.
        for kind in new.iter().rev().filter(|kind| !old.contains(kind)) {
            // SAFETY: a plain call.
            let code = unsafe { (self.enable)(*kind) };
            if let Err(text) = self.done(&format!("cuptiActivityEnable of kind {kind}"), code) {
                for kind in &new {
                    // SAFETY: as above.
                    unsafe { (self.disable)(*kind) };
                }
                return Err(text);
            }
        }
        if let (0, Some(enable)) = (from, self.enable_driver_call) {
            for call in SILENT_CALLS {
                // SAFETY: a plain call. Where it fails, more is written and dropped.
                unsafe { enable(call, 0) };
            }
        }
        Ok(())
    }

    fn done(&self, what: &str, code: CUptiResult) -> Result<(), String> {
        let advice = match code {
            CUPTI_SUCCESS => return Ok(()),
            CUPTI_ERROR_INSUFFICIENT_PRIVILEGES => {
                "; allow profiling to all users with the driver's option NVreg_RestrictProfilingToAdminUsers=0: \
                 workers have no rights, whoever runs oriond"
            }
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
                "; another profiler is attached to the GPU node's worker, end it"
            }
            _ => "",
        };
        Err(format!("{what} answered {} on the GPU node{advice}", self.name_of(code)))
    }

    fn name_of(&self, code: CUptiResult) -> String {
        let mut text = ptr::null();
        // SAFETY: a valid out pointer; the text is the library's and stays.
        unsafe {
            match (self.result_string)(code, &mut text) {
                CUPTI_SUCCESS if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => code.to_string(),
            }
        }
    }

    /// Reads the records of a buffer. CUPTI is not called with the store's lock held: another of its threads may wait
    /// for that with a lock of CUPTI's.
    ///
    /// # Safety
    /// CUPTI has written `valid` bytes of records to `buffer`, and handed it over.
    unsafe fn read(&self, buffer: *mut u8, valid: usize) {
        let mut record: *mut u8 = ptr::null_mut();
        loop {
            // SAFETY: this function's contract; the record is null or one of the buffer's.
            match unsafe { (self.next_record)(buffer, valid, &mut record) } {
                CUPTI_SUCCESS => {}
                CUPTI_ERROR_MAX_LIMIT_REACHED => return,
                // What was not complete when the flush came, and what lies behind it: one at least.
                _ => return store().lose(1),
            }
            // SAFETY: each record begins with its kind and has its kind's size, or more.
            unsafe {
                let kind = record.cast::<u32>().read();
                if kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION {
                    let e = record.cast::<CUpti_ActivityExternalCorrelation>().read();
                    if e.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 {
                        store().call(e.correlationId, e.externalId as u32);
                    }
                    continue;
                }
                let Some(bytes) = structure_bytes(kind) else { continue };
                let name = match kind {
                    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => (*record.cast::<CUpti_ActivityKernel10>()).name,
                    _ => ptr::null(),
                };
                let name = if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() };
                store().record(std::slice::from_raw_parts(record, bytes), name);
            }
        }
    }
}

/// Words, for CUPTI's buffers are aligned to 8 bytes.
type Buffer = Box<[u64]>;

static SPARE: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());
/// Buffers that CUPTI has.
static LENT: AtomicUsize = AtomicUsize::new(0);

/// CUPTI wants a buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    let buffer_given = match LENT.fetch_add(1, Ordering::Relaxed) {
        // It counts what it then has no room for.
        BUFFERS_MAX.. => {
            LENT.fetch_sub(1, Ordering::Relaxed);
            ptr::null_mut()
        }
        _ => {
            let spare = SPARE.lock().expect("no panic happens under this lock").pop();
            let new = || vec![0u64; BUFFER_BYTES / 8].into_boxed_slice();
            Box::into_raw(spare.unwrap_or_else(new)).cast()
        }
    };
    // SAFETY: CUPTI's out parameters. 0 records: as many as there is room for.
    unsafe {
        *buffer = buffer_given;
        *bytes = if buffer_given.is_null() { 0 } else { BUFFER_BYTES };
        *records = 0;
    }
}

/// CUPTI gives a buffer back.
unsafe extern "C" fn completed(_context: CUcontext, _stream: u32, buffer: *mut u8, _bytes: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(cupti) = LOADED.get() {
        let mut dropped = 0;
        // SAFETY: CUPTI's own buffer, with what it has written; a valid out pointer.
        unsafe {
            cupti.read(buffer, valid);
            if (cupti.dropped_records)(ptr::null_mut(), 0, &mut dropped) == CUPTI_SUCCESS {
                store().lose(dropped as u64);
            }
        }
    }
    let words = ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), BUFFER_BYTES / 8);
    // SAFETY: `requested` made it so, and CUPTI does not use it any more.
    let buffer = unsafe { Box::from_raw(words) };
    LENT.fetch_sub(1, Ordering::Relaxed);
    let mut spare = SPARE.lock().expect("no panic happens under this lock");
    if spare.len() < SPARE_MAX {
        spare.push(buffer);
    }
}

fn open(source: &Source) -> Result<Cupti, String> {
    match source {
        Source::Software => {
            // SAFETY: the software GPU implements each function with CUPTI's signature.
            unsafe { Cupti::find(&mut |name| orion_soft::cupti::symbol(name).unwrap_or(ptr::null())) }
                .map_err(|missing| format!("the software GPU has no {missing}"))
        }
        Source::Library(Some(path)) => {
            open_first(std::slice::from_ref(path)).map_err(|tried| refusal(&tried, "name another with --cupti PATH"))
        }
        Source::Library(None) => {
            let advice = "install CUDA 13's CUPTI there (the package cuda-cupti-13-0, or nvidia-cuda-cupti of PyPI) or \
                          name the library: oriond serve --cupti PATH";
            open_first(&usual_places()).map_err(|tried| refusal(&tried, advice))
        }
    }
}

fn refusal(tried: &str, advice: &str) -> String {
    format!("the GPU node has no CUPTI that Orion can use; tried {tried}; {advice}")
}

/// Where CUDA's packages put it, after wherever the loader finds it.
fn usual_places() -> Vec<String> {
    let mut places = vec![
        FILE.to_owned(),
        format!("/usr/local/cuda/lib64/{FILE}"),
        format!("/usr/local/cuda/extras/CUPTI/lib64/{FILE}"),
    ];
    let folders = std::fs::read_dir("/usr/local").into_iter().flatten().flatten();
    let mut toolkits: Vec<(u32, String)> = folders
        .filter_map(|folder| {
            let name = folder.file_name().into_string().ok()?;
            let minor = name.strip_prefix("cuda-13")?.trim_start_matches('.').parse().unwrap_or(0);
            Some((minor, format!("/usr/local/{name}/targets/x86_64-linux/lib/{FILE}")))
        })
        .filter(|(_, path)| Path::new(path).exists())
        .collect();
    toolkits.sort_by(|a, b| b.cmp(a));
    places.extend(toolkits.into_iter().map(|(_, path)| path));
    places
}

/// The first that there is, or what was wrong with each. Two of them in one process disturb each other, so none is
/// tried after one that was loaded and is of no use.
fn open_first(places: &[String]) -> Result<Cupti, String> {
    let mut tried = Vec::new();
    for place in places {
        // SAFETY: runs the initialisers of NVIDIA's library, or of what the operator named.
        let why = match unsafe { libloading::Library::new(place) } {
            // SAFETY: only the presence of the symbol matters.
            Ok(library) if unsafe { library.get::<*const c_void>(b"orion_shim_marker\0") }.is_ok() => {
                "it is Orion's own, for applications".to_owned()
            }
            Ok(library) => {
                return functions_of(library).map_err(|why| {
                    tried.push(format!("{place} ({why})"));
                    tried.join(", ")
                });
            }
            Err(e) => e.to_string(),
        };
        tried.push(format!("{place} ({why})"));
    }
    Err(tried.join(", "))
}

/// A library's functions, if it is a CUPTI of a known version.
fn functions_of(library: libloading::Library) -> Result<Cupti, String> {
    // It stays loaded even if it is of no use: CUPTI does not expect to go.
    let library = Box::leak(Box::new(library));
    let mut find = |name: &str| {
        let name = [name.as_bytes(), b"\0"].concat();
        // SAFETY: the address is only used with the signature of the header for that name.
        unsafe { library.get::<*const c_void>(name.as_slice()) }.map_or(ptr::null(), |s| *s)
    };
    // SAFETY: NVIDIA's CUPTI implements each function with its header's signature; the library stays loaded.
    let cupti = unsafe { Cupti::find(&mut find) }.map_err(|missing| format!("it has no {missing}"))?;
    let mut version = 0;
    // SAFETY: a valid out pointer.
    let code = unsafe { (cupti.version)(&mut version) };
    if code != CUPTI_SUCCESS {
        let code = cupti.name_of(code);
        return Err(format!("cuptiGetVersion answered {code}: it may be newer than the driver can serve"));
    }
    if !VERSIONS.contains(&version) {
        let (first, last) = (VERSIONS.start, VERSIONS.end - 1);
        return Err(format!("its API version is {version}; known are {first} to {last}, CUDA 13.0 to 13.5"));
    }
    Ok(cupti)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_refused_with_what_was_tried_and_what_to_do() {
        let text = open(&Source::Library(Some("/nowhere/libcupti.so.13".into()))).err().expect("a refusal");
        assert!(text.contains("tried /nowhere/libcupti.so.13 (") && text.contains("--cupti PATH"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_cupti_is_refused() {
        let text = open(&Source::Library(Some("libc.so.6".into()))).err().expect("a refusal");
        assert!(text.contains("it has no cuptiGetVersion"), "{text}");
    }

    #[test]
    fn the_loader_is_asked_first() {
        assert_eq!(usual_places()[0], FILE);
    }

    #[test]
    fn calls_are_recorded_with_whatever_is() {
        assert!(kinds_of(0).is_empty());
        assert_eq!(kinds_of(SETS), [2, 4, 39]);
        assert_eq!(kinds_of(KERNELS | COPIES | SETS), [10, 1, 22, 2, 4, 39]);
    }
}
