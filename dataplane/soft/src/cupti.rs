//! CUPTI's activity interface for the software GPU: what ran when, in records of the same layout.
//!
//! The functions are a table of their own ([`symbol`]) and not exported: a program's `libcupti` is NVIDIA's, if any.
//! Recorded are kernels, copies and fills, each when it has run, and the external correlation of the call that queued
//! it. `DRIVER` can be enabled, as external correlation needs it, but of calls themselves nothing is written.

// UNSAFETY: C entry points, and buffers that the caller lends for records.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use orion_cuda::cupti::*;
use orion_cuda::cupti_table::{Complete, Request, Timestamp};
use orion_cuda::sys::*;

use crate::api::{Raw, Symbol};
use crate::context::Context;
use crate::copy::Copy3D;
use crate::graph::{self, Work};
use crate::launch::KernelLaunch;
use crate::memset::Set;
use crate::module;
use crate::vram::{self, Kind};

const API_VERSION: u32 = 130001;

const KNOWN: u64 = 1 << CUPTI_ACTIVITY_KIND_MEMCPY
    | 1 << CUPTI_ACTIVITY_KIND_MEMSET
    | 1 << CUPTI_ACTIVITY_KIND_DRIVER
    | 1 << CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
    | 1 << CUPTI_ACTIVITY_KIND_MEMCPY2
    | 1 << CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;

/// Enabled kinds, a bit each.
static KINDS: AtomicU64 = AtomicU64::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);

/// The caller's clock, or 0.
static CLOCK: AtomicUsize = AtomicUsize::new(0);
static SINK: Mutex<Sink> = Mutex::new(Sink { callbacks: None, buffer: None, dropped: 0 });

thread_local! {
    /// External ids that this thread has pushed, with their kinds.
    static EXTERNAL: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

/// The driver call that queued some work, and where the work runs.
#[derive(Clone, Copy)]
pub struct Origin {
    correlation: u32,
    stream: u64,
    graph: u32,
    node: u64,
}

impl Origin {
    /// The same call's node of a graph.
    pub fn node(self, graph: u32, node: u64) -> Origin {
        Origin { graph, node, ..self }
    }
}

struct Sink {
    callbacks: Option<(Request, Complete)>,
    buffer: Option<Raw<Buffer>>,
    dropped: u64,
}

#[derive(Clone, Copy)]
struct Buffer {
    at: *mut u8,
    bytes: usize,
    used: usize,
    /// Records that it may still take.
    room: usize,
}

fn is_on(kind: CUpti_ActivityKind) -> bool {
    KINDS.load(Ordering::Relaxed) >> kind & 1 == 1
}

/// A call that queues work on a stream; nothing while nothing is recorded.
#[inline]
pub fn call(stream: u64) -> Option<Origin> {
    (KINDS.load(Ordering::Relaxed) != 0).then(|| recorded_call(stream))
}

#[cold]
fn recorded_call(stream: u64) -> Origin {
    let correlation = NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed);
    if is_on(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) && is_on(CUPTI_ACTIVITY_KIND_DRIVER) {
        let pushed = EXTERNAL.with_borrow(Clone::clone);
        for (i, (kind, id)) in pushed.iter().enumerate() {
            // One record a kind, with the innermost id.
            if pushed[i + 1..].iter().all(|(k, _)| k != kind) {
                write(&CUpti_ActivityExternalCorrelation {
                    kind: CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                    externalKind: *kind,
                    externalId: *id,
                    correlationId: correlation,
                    reserved: 0,
                });
            }
        }
    }
    Origin { correlation, stream, graph: 0, node: 0 }
}

fn now() -> u64 {
    let clock = CLOCK.load(Ordering::Relaxed);
    if clock != 0 {
        // SAFETY: only `register_clock` writes it, and a function's address.
        let clock: Timestamp = unsafe { std::mem::transmute(clock) };
        // SAFETY: the caller's function, which takes nothing.
        return unsafe { clock() };
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Work that is about to run and will be recorded if it succeeds.
pub struct Running {
    origin: Origin,
    start: u64,
    /// Memory kinds and devices of a copy's ends, which may be gone when it has run.
    ends: Option<(End, End)>,
}

pub fn begin(work: &Work, origin: Option<Origin>) -> Option<Running> {
    let origin = origin?;
    let ends = match work {
        Work::Copy(copy) => copy.bases().map(|(from, to)| (End::of(copy, from, true), End::of(copy, to, false))),
        Work::Set(set) => {
            let end = End::at(set.dst, CU_MEMORYTYPE_DEVICE);
            Some((end, end))
        }
        Work::Kernel(_) => None,
        _ => return None,
    };
    Some(Running { origin, start: now(), ends })
}

impl Running {
    pub fn end(self, work: &Work, c: &Context) {
        let end = now();
        match (work, self.ends) {
            (Work::Kernel(k), _) => self.kernel(k, c, end),
            (Work::Copy(copy), Some((from, to))) => self.copy(copy, from, to, c, end),
            (Work::Set(set), Some((at, _))) => self.set(set, at, c, end),
            _ => {}
        }
    }

    fn kernel(self, k: &KernelLaunch, c: &Context, end: u64) {
        if !is_on(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            return;
        }
        static NEXT_GRID: AtomicU64 = AtomicU64::new(1);
        let func = k.function.func();
        // SAFETY: all zeroes is a valid value of this C struct.
        let mut r: CUpti_ActivityKernel10 = unsafe { std::mem::zeroed() };
        r.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        r.registersPerThread = module::function_attribute(&k.function, CU_FUNC_ATTRIBUTE_NUM_REGS).unwrap_or(0) as u16;
        (r.start, r.end, r.completed) = (self.start, end, end);
        (r.deviceId, r.contextId, r.streamId) = (c.device as u32, c.id as u32, self.origin.stream as u32);
        [r.gridX, r.gridY, r.gridZ] = k.grid.map(|n| n as i32);
        [r.blockX, r.blockY, r.blockZ] = k.block.map(|n| n as i32);
        (r.staticSharedMemory, r.dynamicSharedMemory) = (func.static_shared as i32, k.shared as i32);
        r.sharedMemoryExecuted = func.static_shared + k.shared;
        r.localMemoryPerThread = func.frame_bytes;
        r.correlationId = self.origin.correlation;
        r.gridId = NEXT_GRID.fetch_add(1, Ordering::Relaxed) as i64;
        r.name = lasting_name(&func.name);
        // CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE, else _REGULAR.
        r.launchType = u8::from(k.cooperative);
        (r.graphNodeId, r.graphId) = (self.origin.node, self.origin.graph);
        write(&r);
    }

    fn copy(self, copy: &Copy3D, from: End, to: End, c: &Context, end: u64) {
        let d = &copy.raw.0;
        let bytes = (d.WidthInBytes * d.Height * d.Depth) as u64;
        let flags = 1; // CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC
        if from.device.is_some() && to.device.is_some() && from.device != to.device {
            if is_on(CUPTI_ACTIVITY_KIND_MEMCPY2) {
                write(&CUpti_ActivityMemcpyPtoP4 {
                    kind: CUPTI_ACTIVITY_KIND_MEMCPY2,
                    copyKind: PEER_TO_PEER,
                    srcKind: from.kind,
                    dstKind: to.kind,
                    flags,
                    bytes,
                    start: self.start,
                    end,
                    deviceId: c.device as u32,
                    contextId: c.id as u32,
                    streamId: self.origin.stream as u32,
                    srcDeviceId: from.device.unwrap_or(0) as u32,
                    srcContextId: from.context as u32,
                    dstDeviceId: to.device.unwrap_or(0) as u32,
                    dstContextId: to.context as u32,
                    correlationId: self.origin.correlation,
                    reserved0: ptr::null_mut(),
                    graphNodeId: self.origin.node,
                    graphId: self.origin.graph,
                    channelID: 0,
                    channelType: 0,
                });
            }
            return;
        }
        if !is_on(CUPTI_ACTIVITY_KIND_MEMCPY) {
            return;
        }
        write(&CUpti_ActivityMemcpy6 {
            kind: CUPTI_ACTIVITY_KIND_MEMCPY,
            copyKind: copy_kind(from.kind, to.kind),
            srcKind: from.kind,
            dstKind: to.kind,
            flags,
            bytes,
            start: self.start,
            end,
            deviceId: c.device as u32,
            contextId: c.id as u32,
            streamId: self.origin.stream as u32,
            correlationId: self.origin.correlation,
            runtimeCorrelationId: 0,
            pad: 0,
            reserved0: ptr::null_mut(),
            graphNodeId: self.origin.node,
            graphId: self.origin.graph,
            channelID: 0,
            channelType: 0,
            isDeviceLaunched: 0,
            pad2: [0; 3],
            copyCount: 1,
        });
    }

    fn set(self, set: &Set, at: End, c: &Context, end: u64) {
        if !is_on(CUPTI_ACTIVITY_KIND_MEMSET) {
            return;
        }
        write(&CUpti_ActivityMemset4 {
            kind: CUPTI_ACTIVITY_KIND_MEMSET,
            value: set.value,
            bytes: set.width * set.height * u64::from(set.element),
            start: self.start,
            end,
            deviceId: c.device as u32,
            contextId: c.id as u32,
            streamId: self.origin.stream as u32,
            correlationId: self.origin.correlation,
            flags: 1, // CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC
            memoryKind: at.kind.into(),
            pad: 0,
            reserved0: ptr::null_mut(),
            graphNodeId: self.origin.node,
            graphId: self.origin.graph,
            channelID: 0,
            channelType: 0,
            isDeviceLaunched: 0,
            pad2: [0; 3],
        });
    }
}

// CUpti_ActivityMemoryKind.
const PAGEABLE: u8 = 1;
const PINNED: u8 = 2;
const DEVICE: u8 = 3;
const ARRAY: u8 = 4;
const MANAGED: u8 = 5;

// CUpti_ActivityMemcpyKind.
const PEER_TO_PEER: u8 = 10;

fn copy_kind(from: u8, to: u8) -> u8 {
    let place = |kind| match kind {
        PAGEABLE | PINNED => 0,
        ARRAY => 1,
        _ => 2,
    };
    // Rows: from host, array, device. HTOA and HTOD are 3 and 1, ATOH 4, DTOH 2, and so on.
    [[9, 3, 1], [4, 5, 6], [2, 7, 8]][place(from)][place(to)]
}

/// One end of a copy.
#[derive(Clone, Copy)]
struct End {
    kind: u8,
    /// Of device memory.
    device: Option<i32>,
    context: u64,
}

impl End {
    fn of(copy: &Copy3D, at: u64, source: bool) -> End {
        let d = &copy.raw.0;
        End::at(at, if source { d.srcMemoryType } else { d.dstMemoryType })
    }

    fn at(at: u64, memory: CUmemorytype) -> End {
        let range = vram::find(at);
        let kind = match range.as_ref().map(|r| r.kind) {
            _ if memory == CU_MEMORYTYPE_ARRAY => ARRAY,
            Some(Kind::Host | Kind::Registered) => PINNED,
            Some(Kind::Managed) => MANAGED,
            Some(_) => DEVICE,
            None => PAGEABLE,
        };
        let device = range.as_ref().filter(|_| matches!(kind, DEVICE | ARRAY)).map(|r| r.device);
        End { kind, device, context: range.map_or(0, |r| r.context) }
    }
}

/// A kernel's name that stays when its module goes: records point to it.
fn lasting_name(name: &str) -> *const c_char {
    static NAMES: Mutex<Option<HashMap<String, &'static CStr>>> = Mutex::new(None);
    let Ok(mut names) = NAMES.lock() else { return ptr::null() };
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known.as_ptr();
    }
    let lasting: &'static CStr = Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str());
    names.insert(name.to_owned(), lasting);
    lasting.as_ptr()
}

/// Puts a record into the current buffer; hands a full one over, without a lock, because who gets it may ask things.
fn write<T>(record: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    loop {
        let Ok(mut sink) = SINK.lock() else { return };
        let Some((request, complete)) = sink.callbacks else { return };
        if let Some(Raw(b)) = &mut sink.buffer
            && b.room > 0
            && b.bytes - b.used >= size_of::<T>()
        {
            // SAFETY: the buffer has that many bytes left; source and destination are different memory.
            unsafe { ptr::copy_nonoverlapping(ptr::from_ref(record).cast(), b.at.add(b.used), size_of::<T>()) };
            b.used += size_of::<T>();
            b.room -= 1;
            return;
        }
        let full = sink.buffer.take();
        drop(sink);
        if let Some(Raw(full)) = full {
            // SAFETY: the caller's callback, with a buffer that it lent.
            unsafe { complete(ptr::null_mut(), 0, full.at, full.bytes, full.used) };
        }
        let (mut at, mut bytes, mut room) = (ptr::null_mut(), 0, 0);
        // SAFETY: the caller's callback, with valid out pointers.
        unsafe { request(&mut at, &mut bytes, &mut room) };
        let Ok(mut sink) = SINK.lock() else { return };
        if at.is_null() || bytes < size_of::<T>() {
            sink.dropped += 1;
            return;
        }
        let room = if room == 0 { usize::MAX } else { room };
        // Another thread may have been first; then this buffer goes back empty.
        if sink.buffer.is_some() {
            drop(sink);
            // SAFETY: as above.
            unsafe { complete(ptr::null_mut(), 0, at, bytes, 0) };
            continue;
        }
        sink.buffer = Some(Raw(Buffer { at, bytes, used: 0, room }));
    }
}

/// Writes an out parameter.
///
/// # Safety
/// `p` is null or valid for writing a `T`.
unsafe fn put<T>(p: *mut T, v: T) -> CUptiResult {
    // SAFETY: this function's contract.
    match unsafe { crate::api::put(p, v) } {
        Ok(()) => CUPTI_SUCCESS,
        Err(_) => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

unsafe extern "C" fn version(out: *mut u32) -> CUptiResult {
    // SAFETY: the caller's out parameter.
    unsafe { put(out, API_VERSION) }
}

unsafe extern "C" fn timestamp(out: *mut u64) -> CUptiResult {
    // SAFETY: the caller's out parameter.
    unsafe { put(out, now()) }
}

unsafe extern "C" fn register_callbacks(request: Option<Request>, complete: Option<Complete>) -> CUptiResult {
    let (Some(request), Some(complete)) = (request, complete) else { return CUPTI_ERROR_INVALID_PARAMETER };
    let Ok(mut sink) = SINK.lock() else { return CUPTI_ERROR_UNKNOWN };
    sink.callbacks = Some((request, complete));
    CUPTI_SUCCESS
}

unsafe extern "C" fn register_clock(clock: Option<Timestamp>) -> CUptiResult {
    let Some(clock) = clock else { return CUPTI_ERROR_INVALID_PARAMETER };
    CLOCK.store(clock as usize, Ordering::Relaxed);
    CUPTI_SUCCESS
}

unsafe extern "C" fn enable(kind: CUpti_ActivityKind) -> CUptiResult {
    if kind >= 64 || KNOWN >> kind & 1 == 0 {
        return CUPTI_ERROR_INVALID_KIND;
    }
    KINDS.fetch_or(1 << kind, Ordering::Relaxed);
    CUPTI_SUCCESS
}

unsafe extern "C" fn disable(kind: CUpti_ActivityKind) -> CUptiResult {
    if kind >= 64 || KNOWN >> kind & 1 == 0 {
        return CUPTI_ERROR_INVALID_KIND;
    }
    KINDS.fetch_and(!(1 << kind), Ordering::Relaxed);
    CUPTI_SUCCESS
}

/// Records are written when their work has run, so none in a buffer is incomplete, and there is nothing to force.
unsafe extern "C" fn flush_all(_flag: u32) -> CUptiResult {
    let (callbacks, buffer) = match SINK.lock() {
        Ok(mut sink) => (sink.callbacks, sink.buffer.take()),
        Err(_) => return CUPTI_ERROR_UNKNOWN,
    };
    let Some((_, complete)) = callbacks else { return CUPTI_ERROR_INVALID_OPERATION };
    if let Some(Raw(b)) = buffer {
        // SAFETY: the caller's callback, with a buffer that it lent.
        unsafe { complete(ptr::null_mut(), 0, b.at, b.bytes, b.used) };
    }
    CUPTI_SUCCESS
}

unsafe extern "C" fn next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> CUptiResult {
    if buffer.is_null() || record.is_null() {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // SAFETY: the caller's pointers: null or a record of this buffer.
    unsafe {
        let last = *record;
        let at = if last.is_null() {
            0
        } else {
            match record_size(last.cast::<u32>().read()) {
                Some(bytes) => last.addr() - buffer.addr() + bytes,
                None => return CUPTI_ERROR_INVALID_KIND,
            }
        };
        if at >= valid {
            return CUPTI_ERROR_MAX_LIMIT_REACHED;
        }
        *record = buffer.add(at);
    }
    CUPTI_SUCCESS
}

unsafe extern "C" fn dropped_records(_context: CUcontext, _stream: u32, out: *mut usize) -> CUptiResult {
    let Ok(mut sink) = SINK.lock() else { return CUPTI_ERROR_UNKNOWN };
    let dropped = std::mem::take(&mut sink.dropped);
    // SAFETY: the caller's out parameter.
    unsafe { put(out, dropped as usize) }
}

unsafe extern "C" fn push_external(kind: u32, id: u64) -> CUptiResult {
    EXTERNAL.with_borrow_mut(|pushed| pushed.push((kind, id)));
    CUPTI_SUCCESS
}

unsafe extern "C" fn pop_external(kind: u32, last: *mut u64) -> CUptiResult {
    let popped = EXTERNAL.with_borrow_mut(|pushed| {
        let at = pushed.iter().rposition(|(k, _)| *k == kind)?;
        Some(pushed.remove(at).1)
    });
    let Some(id) = popped else { return CUPTI_ERROR_QUEUE_EMPTY };
    // SAFETY: the caller's out parameter, which may be null.
    unsafe { crate::api::put_some(last, id) };
    CUPTI_SUCCESS
}

unsafe extern "C" fn result_string(code: CUptiResult, out: *mut *const c_char) -> CUptiResult {
    let text = match code {
        CUPTI_SUCCESS => c"CUPTI_SUCCESS",
        CUPTI_ERROR_INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
        CUPTI_ERROR_INVALID_OPERATION => c"CUPTI_ERROR_INVALID_OPERATION",
        CUPTI_ERROR_MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        CUPTI_ERROR_INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
        CUPTI_ERROR_QUEUE_EMPTY => c"CUPTI_ERROR_QUEUE_EMPTY",
        CUPTI_ERROR_UNKNOWN => c"CUPTI_ERROR_UNKNOWN",
        _ => return CUPTI_ERROR_INVALID_PARAMETER,
    };
    // SAFETY: the caller's out parameter.
    unsafe { put(out, text.as_ptr()) }
}

unsafe extern "C" fn graph_number(graph: CUgraph, out: *mut u32) -> CUptiResult {
    match graph::GRAPHS.get(graph) {
        // SAFETY: the caller's out parameter.
        Some(graph) => unsafe { put(out, graph.id() as u32) },
        None => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

unsafe extern "C" fn exec_number(exec: CUgraphExec, out: *mut u32) -> CUptiResult {
    match graph::EXECS.get(exec) {
        // SAFETY: the caller's out parameter.
        Some(exec) => unsafe { put(out, exec.id() as u32) },
        None => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

unsafe extern "C" fn node_number(node: CUgraphNode, out: *mut u64) -> CUptiResult {
    match graph::NODES.get(node) {
        // SAFETY: the caller's out parameter.
        Some(_) => unsafe { put(out, node as u64) },
        None => CUPTI_ERROR_INVALID_PARAMETER,
    }
}

/// Address of a CUPTI function by its name, or `None` when the software GPU has no such function.
pub fn symbol(name: &str) -> Option<Symbol> {
    Some(match name {
        "cuptiGetVersion" => version as Symbol,
        "cuptiGetTimestamp" => timestamp as Symbol,
        "cuptiGetResultString" => result_string as Symbol,
        "cuptiActivityRegisterCallbacks" => register_callbacks as Symbol,
        "cuptiActivityRegisterTimestampCallback" => register_clock as Symbol,
        "cuptiActivityEnable" => enable as Symbol,
        "cuptiActivityDisable" => disable as Symbol,
        "cuptiActivityFlushAll" => flush_all as Symbol,
        "cuptiActivityGetNextRecord" => next_record as Symbol,
        "cuptiActivityGetNumDroppedRecords" => dropped_records as Symbol,
        "cuptiActivityPushExternalCorrelationId" => push_external as Symbol,
        "cuptiActivityPopExternalCorrelationId" => pop_external as Symbol,
        "cuptiGetGraphId" => graph_number as Symbol,
        "cuptiGetGraphExecId" => exec_number as Symbol,
        "cuptiGetGraphNodeId" => node_number as Symbol,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_called_as_cupti_calls_them() {
        let kinds = [PAGEABLE, PINNED, ARRAY, DEVICE, MANAGED];
        let table = kinds.map(|from| kinds.map(|to| copy_kind(from, to)));
        // HTOH 9, HTOA 3, HTOD 1; ATOH 4, ATOA 5, ATOD 6; DTOH 2, DTOA 7, DTOD 8.
        let (host, array, device) = ([9, 9, 3, 1, 1], [4, 4, 5, 6, 6], [2, 2, 7, 8, 8]);
        assert_eq!(table, [host, host, array, device, device]);
    }

    #[test]
    fn ids_are_popped_by_kind() {
        // SAFETY: valid out pointers.
        unsafe {
            let mut last = 0;
            for (kind, id) in [(3, 1), (4, 2), (3, 3)] {
                assert_eq!(push_external(kind, id), CUPTI_SUCCESS);
            }
            for (kind, id) in [(4, 2), (3, 3), (3, 1)] {
                assert_eq!((pop_external(kind, &mut last), last), (CUPTI_SUCCESS, id));
            }
            assert_eq!(pop_external(3, ptr::null_mut()), CUPTI_ERROR_QUEUE_EMPTY);
        }
    }

    /// Buffers of a test that only counts what it is given.
    unsafe extern "C" fn small(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
        // Room for two records of this size, and one is allowed.
        let at = Box::leak(vec![0u64; 6].into_boxed_slice()).as_mut_ptr();
        // SAFETY: the out parameters of a request.
        unsafe { (*buffer, *bytes, *records) = (at.cast(), 48, 1) };
    }

    static GOT: Mutex<Vec<u64>> = Mutex::new(Vec::new());

    unsafe extern "C" fn count(_context: CUcontext, _stream: u32, buffer: *mut u8, bytes: usize, valid: usize) {
        assert_eq!(bytes, 48);
        let mut record = ptr::null_mut();
        // SAFETY: a buffer with records of external correlation, which `small` made.
        unsafe {
            while next_record(buffer, valid, &mut record) == CUPTI_SUCCESS {
                GOT.lock().unwrap().push((*record.cast::<CUpti_ActivityExternalCorrelation>()).externalId);
            }
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), 6)));
        }
    }

    #[test]
    fn full_buffers_go_back_and_the_last_with_a_flush() {
        // SAFETY: this test's own callbacks.
        assert_eq!(unsafe { register_callbacks(Some(small), Some(count)) }, CUPTI_SUCCESS);
        for id in 1..=3 {
            write(&CUpti_ActivityExternalCorrelation {
                kind: CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                externalKind: 3,
                externalId: id,
                correlationId: 0,
                reserved: 0,
            });
        }
        assert_eq!(*GOT.lock().unwrap(), [1, 2], "a buffer takes as many as its lender allows");
        // SAFETY: no pointers.
        assert_eq!(unsafe { flush_all(0) }, CUPTI_SUCCESS);
        assert_eq!(*GOT.lock().unwrap(), [1, 2, 3]);
    }
}
