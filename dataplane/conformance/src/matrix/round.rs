//! One round: a new value on its way to host memory, and a look at that memory when its coming is seen.
//!
//! UNSAFETY: host memory that the device writes is read and written through raw pointers, and a host function is given
//! one of them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use orion_cuda::sys::*;

use crate::cell::{Cell, MEMORY, Memory, Seen, Then, Way};
use crate::driver::{Cuda, name_of};
use crate::fact::ok;
use crate::lab::{Get, as_void, read, use_primary, write, zeroed};

/// Room for the largest copy and what lies beside it.
const LARGE_BYTES: usize = 4 << 20;
const SMALL_BYTES: usize = 256 << 10;
/// Memory that kernels use in place.
const MAPPED_BYTES: usize = 1 << 10;
/// What is copied back to the device afterwards, at most.
const BACK_BYTES_MAX: usize = 64 << 10;
/// Rounds after which memory of the kind `Anew` is given back and allocated again.
const ANEW_ROUNDS: u32 = 5;
/// Bytes on both sides of what is brought that have to stay.
const GUARD_BYTES: usize = 8;
/// How long a completion may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where a graph's copy goes in small memory.
const GRAPH_OFFSET: usize = 128 << 10;

/// xorshift64*: the same seed, the same rounds.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }
}

/// Rows of host memory that are to hold a value, and what the gaps between them hold.
#[derive(Clone, Copy)]
struct Expect {
    first: usize,
    width: usize,
    pitch: usize,
    rows: usize,
    slice: usize,
    slices: usize,
    value: u32,
    before: u32,
    guard: u8,
}

impl Expect {
    fn line(first: *mut u8, width: usize) -> Expect {
        Expect {
            first: first as usize,
            width,
            pitch: width,
            rows: 1,
            slice: 0,
            slices: 1,
            value: 0,
            before: 0,
            guard: 0,
        }
    }

    fn starts(&self) -> impl Iterator<Item = usize> + use<> {
        let Expect { first, pitch, rows, slice, slices, .. } = *self;
        (0..slices).flat_map(move |z| (0..rows).map(move |y| first + z * slice + y * pitch))
    }

    /// Each gap: where it begins, and its length.
    fn gaps(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let width = self.width;
        let gap = if self.rows * self.slices > 1 { (self.pitch - width).min(GUARD_BYTES) } else { GUARD_BYTES };
        let behind = self.starts().map(move |at| (at + width, gap));
        std::iter::once((self.first - GUARD_BYTES, GUARD_BYTES)).chain(behind)
    }

    /// The host writes to what is not part of the copy.
    fn put_guards(&self) {
        for (at, bytes) in self.gaps() {
            (0..bytes).for_each(|i| write((at + i) as *mut c_void, self.guard));
        }
    }

    /// What is to be brought is not there yet, in any byte.
    fn put_another(&self) {
        let bytes = (!self.value).to_le_bytes();
        for at in self.starts() {
            (0..self.width).for_each(|i| write((at + i) as *mut c_void, bytes[i % 4]));
        }
    }

    fn put(&self, value: u32, most: usize) {
        let bytes = value.to_le_bytes();
        (0..self.width.min(most)).for_each(|i| write((self.first + i) as *mut c_void, bytes[i % 4]));
    }

    /// What is wrong, if anything is.
    fn complaint(&self) -> Option<String> {
        for (row, at) in self.starts().enumerate() {
            if let Some(i) = differs(at, self.width, self.value) {
                let got: u8 = read((at + i) as *const c_void);
                return Some(format!(
                    "byte {i} of {} in row {row} is {got:#04x}, the value is {:#010x}, before it was {:#010x}",
                    self.width, self.value, self.before
                ));
            }
        }
        for (at, bytes) in self.gaps() {
            for i in 0..bytes {
                let got: u8 = read((at + i) as *const c_void);
                if got != self.guard {
                    let (offset, guard) = ((at + i).wrapping_sub(self.first) as isize, self.guard);
                    return Some(format!("the host's byte at {offset} is {got:#04x} instead of {guard:#04x}"));
                }
            }
        }
        None
    }
}

/// The first byte that is not the value's.
fn differs(at: usize, bytes: usize, value: u32) -> Option<usize> {
    let pattern = value.to_le_bytes();
    let line: [u8; 64] = std::array::from_fn(|i| pattern[i % 4]);
    // SAFETY: memory of this program's. Nothing writes to it if the completion keeps its promise.
    let there = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
    let skipped = 64 * there.chunks_exact(64).take_while(|chunk| *chunk == line).count();
    there[skipped..].iter().zip(line.iter().cycle()).position(|(byte, want)| byte != want).map(|i| skipped + i)
}

/// What a host function is given.
struct Shot {
    ran: AtomicBool,
    look: Mutex<Option<Look>>,
    complaint: Mutex<Option<String>>,
}

#[derive(Clone, Copy)]
struct Look {
    expect: Expect,
    /// The function writes this itself, for a copy behind it.
    then: Option<u32>,
}

extern "C" fn look(shot: *mut c_void) {
    // SAFETY: shots are never freed.
    let shot = unsafe { &*shot.cast::<Shot>() };
    let what = shot.look.lock().expect("no holder panics").take();
    *shot.complaint.lock().expect("no holder panics") = match what {
        Some(what) => {
            let complaint = what.expect.complaint();
            if let Some(value) = what.then {
                what.expect.put(value, BACK_BYTES_MAX);
            }
            complaint
        }
        None => Some("a host function ran twice".into()),
    };
    shot.ran.store(true, Ordering::SeqCst);
}

extern "C" fn look_back(_: CUstream, status: CUresult, shot: *mut c_void) {
    look(shot);
    if status != CUDA_SUCCESS {
        // SAFETY: as above.
        let complaint = unsafe { &(*shot.cast::<Shot>()).complaint };
        *complaint.lock().expect("no holder panics") = Some(format!("the callback was told {}", name_of(status)));
    }
}

/// Host memory of one kind, in allocations of their own: what a kernel was given one of, or a graph with a host
/// function copies to, may be treated otherwise.
#[derive(Clone, Copy)]
struct Area {
    large: *mut u8,
    small: *mut u8,
    mapped: *mut u8,
    /// Its own, or a part of the small one.
    graph: *mut u8,
    /// The device's address of that; 0 if there is none.
    on_device: CUdeviceptr,
}

enum Ask {
    Wait(usize),
    Query(usize),
}

/// Another thread, which waits when it is asked to, and looks.
struct Other {
    asks: Sender<(Ask, Expect)>,
    answers: Receiver<Result<Option<String>, String>>,
}

impl Other {
    fn start(cu: &'static Cuda) -> Other {
        let (asks, asked) = channel::<(Ask, Expect)>();
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            let ready = use_primary(cu);
            for (ask, expect) in asked {
                let waited = ready.clone().and_then(|()| match ask {
                    Ask::Wait(stream) => {
                        ok!(cu.cuStreamSynchronize(stream as CUstream));
                        Ok(())
                    }
                    Ask::Query(event) => until("an event", || cu.cuEventQuery(event as CUevent)),
                });
                if answer.send(waited.map(|()| expect.complaint())).is_err() {
                    return;
                }
            }
        });
        Other { asks, answers }
    }

    fn ask(&self, ask: Ask, expect: Expect) -> Get<Option<String>> {
        let gone = || "the other thread is gone".to_owned();
        self.asks.send((ask, expect)).map_err(|_| gone())?;
        self.answers.recv().map_err(|_| gone())?
    }
}

/// Asks until the answer is not "not ready".
fn until(what: &str, mut query: impl FnMut() -> CUresult) -> Get<()> {
    let start = Instant::now();
    loop {
        match query() {
            CUDA_SUCCESS => return Ok(()),
            CUDA_ERROR_NOT_READY if start.elapsed() < PATIENCE => std::thread::yield_now(),
            CUDA_ERROR_NOT_READY => return Err(format!("{what} was not ready within {PATIENCE:?}")),
            code => return Err(format!("asking {what} answered {}", name_of(code))),
        }
    }
}

/// One thread's streams and memory.
pub struct Bench {
    cu: &'static Cuda,
    pub random: Random,
    rounds: u32,
    stream: CUstream,
    elsewhere: CUstream,
    event: CUevent,
    fill: CUfunction,
    source: CUdeviceptr,
    back: CUdeviceptr,
    array: CUarray,
    areas: [Area; MEMORY.len()],
    flag: *mut c_void,
    flag_on_device: CUdeviceptr,
    /// Where what went back to the device comes out again.
    out: *mut u8,
    shot: &'static Shot,
    host_function: CUgraphExec,
    /// A copy from the source to each area, without and with a host function behind it.
    graphs: HashMap<(usize, bool), CUgraphExec>,
    other: Other,
}

impl Bench {
    /// `has_much` decides whether graphs with a host function copy to much memory.
    pub fn new(cu: &'static Cuda, seed: u64, index: u32, has_much: bool) -> Get<Bench> {
        use_primary(cu)?;
        let (_, fill) = cu.kernel("fill")?;
        let mut array = null_mut();
        let mut shape: CUDA_ARRAY3D_DESCRIPTOR = zeroed();
        (shape.Width, shape.Height) = (ARRAY_WIDTH / 4, ARRAY_ROWS);
        (shape.Format, shape.NumChannels) = (CU_AD_FORMAT_UNSIGNED_INT32, 1);
        ok!(cu.cuArray3DCreate_v2(&mut array, &shape));
        let areas = [0, 1, 2, 3, 4, 5, 6].map(|kind| area(cu, MEMORY[kind], has_much));
        let [a, b, c, d, e, f, g] = areas;
        let flag = cu.pinned(4096)?;
        write(flag, 0u32);
        let mut flag_on_device = 0;
        ok!(cu.cuMemHostGetDevicePointer_v2(&mut flag_on_device, flag, 0));
        let shot: &'static Shot = Box::leak(Box::new(Shot {
            ran: AtomicBool::new(false),
            look: Mutex::new(None),
            complaint: Mutex::new(None),
        }));
        let bench = Bench {
            cu,
            random: Random::new(seed ^ (u64::from(index) + 1) << 40),
            rounds: index << 24,
            stream: cu.stream()?,
            elsewhere: cu.stream()?,
            event: cu.event()?,
            fill,
            source: cu.alloc(LARGE_BYTES)?,
            back: cu.alloc(BACK_BYTES_MAX)?,
            array,
            areas: [a?, b?, c?, d?, e?, f?, g?],
            flag,
            flag_on_device,
            out: cu.pinned(BACK_BYTES_MAX)?.cast(),
            shot,
            host_function: graph_of(cu, None, Some(shot))?,
            graphs: HashMap::new(),
            other: Other::start(cu),
        };
        Ok(bench)
    }

    /// Plays one cell; answers how many completions it saw, and what was wrong.
    pub fn round(&mut self, cell: &Cell) -> Get<(u64, Vec<String>)> {
        self.rounds = self.rounds.wrapping_add(1);
        let kind = MEMORY.iter().position(|memory| *memory == cell.memory).expect("every kind has an area");
        if cell.memory == Memory::Anew && self.rounds.is_multiple_of(ANEW_ROUNDS) {
            self.renew(kind)?;
        }
        // All managed memory is compared around each kernel where both sides have pages of their own: much of it is
        // there only while it is used.
        let much = cell.memory == Memory::Managed && needs_much(cell.way);
        if much {
            self.areas[kind].large = allocate(self.cu, Memory::Managed, LARGE_BYTES)?;
        }
        let mut complaints = Vec::new();
        let value = value_of(self.rounds);
        let stream = if cell.seen == Seen::BlockingCall { null_mut() } else { self.stream };
        let mut expect = self.place(cell, kind);
        (expect.value, expect.before, expect.guard) = (value, value_of(self.rounds - 1), self.random.below(256) as u8);
        expect.put_guards();
        if cell.seen == Seen::Bytes {
            expect.put_another();
        }
        // Inside the function, if there is one; with pageable memory the copy behind it would not wait for that.
        let has_function = matches!(
            cell.seen,
            Seen::HostFunction | Seen::HostFunctionElsewhere | Seen::HostFunctionInGraph | Seen::StreamCallback
        );
        let inside =
            has_function && cell.then == Then::Reuse && cell.memory != Memory::Pageable && self.random.below(2) == 0;
        let next = !value;
        self.shot.ran.store(false, Ordering::SeqCst);
        *self.shot.look.lock().expect("no holder panics") =
            has_function.then_some(Look { expect, then: inside.then_some(next) });
        self.enqueue(cell, kind, stream, &expect)?;
        if cell.then == Then::Chain {
            self.copy_back(&expect, stream)?;
        }
        let function_runs_on = if cell.seen == Seen::HostFunctionElsewhere { self.elsewhere } else { stream };
        self.announce(cell, stream)?;
        if inside {
            self.copy_back(&expect, function_runs_on)?;
        }
        complaints.extend(self.see(cell, stream, &expect)?);
        match cell.then {
            Then::Nothing => {}
            Then::Chain => {
                // In the same graph the function came before the copy back, and bytes tell of themselves alone.
                let is_earlier = cell.seen == Seen::HostFunctionInGraph && matches!(cell.way, Way::GraphCopy(_));
                if is_earlier || cell.seen == Seen::Bytes {
                    ok!(self.cu.cuStreamSynchronize(stream));
                }
                complaints.extend(self.came_back(&expect, value));
            }
            Then::Reuse => {
                if !inside {
                    expect.put(next, BACK_BYTES_MAX);
                    self.copy_back(&expect, stream)?;
                }
                ok!(self.cu.cuStreamSynchronize(if inside { function_runs_on } else { stream }));
                complaints.extend(self.came_back(&expect, next));
                if let Some(i) = differs(expect.first, expect.width.min(BACK_BYTES_MAX), next) {
                    complaints.push(format!("byte {i} of what the host wrote into the memory behind it was undone"));
                }
            }
        }
        // A call that fails must not concern anything under way.
        if self.random.below(16) == 0 {
            let mut nothing = null_mut();
            let module = self.module_of_fill()?;
            let code = self.cu.cuModuleGetFunction(&mut nothing, module, c"no_such_kernel".as_ptr());
            if code != CUDA_ERROR_NOT_FOUND {
                return Err(format!("a kernel that is not there answered {}", name_of(code)));
            }
        }
        if much {
            ok!(self.cu.cuMemFree_v2(self.areas[kind].large as u64));
        }
        // What was copied back comes out again, which is waited for and looked at, too.
        Ok((1 + u64::from(cell.then == Then::Reuse), complaints))
    }

    fn module_of_fill(&self) -> Get<CUmodule> {
        let mut module = null_mut();
        ok!(self.cu.cuFuncGetModule(&mut module, self.fill));
        Ok(module)
    }

    /// The same address, most likely.
    fn renew(&mut self, kind: usize) -> Get<()> {
        for in_graph in [false, true] {
            if let Some(exec) = self.graphs.remove(&(kind, in_graph)) {
                ok!(self.cu.cuGraphExecDestroy(exec));
            }
        }
        let Area { large, small, mapped, graph, .. } = self.areas[kind];
        let graph_in_small = graph == small.wrapping_add(GRAPH_OFFSET);
        let (own, all) = (usize::from(!graph_in_small), [large, small, mapped, graph]);
        for old in &all[..3 + own] {
            ok!(self.cu.cuMemFreeHost(old.cast()));
        }
        self.areas[kind] = area(self.cu, Memory::Anew, graph_in_small)?;
        Ok(())
    }

    /// Where this round's bytes go.
    fn place(&mut self, cell: &Cell, kind: usize) -> Expect {
        let area = self.areas[kind];
        let offset = 64 + 8 * self.random.below(64);
        let (small, mapped) = (area.small.wrapping_add(offset), area.mapped.wrapping_add(offset));
        // Half of the small copies go to memory that kernels use too.
        let either = if self.random.below(2) == 0 || cell.memory == Memory::Pageable { small } else { mapped };
        match cell.way {
            Way::Copy(bytes) | Way::AnyCopy(bytes) if needs_much(cell.way) => {
                Expect::line(area.large.wrapping_add(64), bytes)
            }
            Way::Copy(bytes) | Way::AnyCopy(bytes) if bytes > 8 => Expect::line(small, bytes),
            Way::Copy(bytes) | Way::AnyCopy(bytes) => Expect::line(either, bytes),
            Way::Copy2D { width, rows } => {
                let pitch = (width + 40).next_multiple_of(64);
                Expect { pitch, rows, ..Expect::line(area.large.wrapping_add(offset), width) }
            }
            Way::Copy3D | Way::Batch3D => {
                let line = Expect::line(small, 16);
                Expect { pitch: 64, rows: 3, slice: 5 * 64, slices: 2, ..line }
            }
            Way::FromArray => Expect { pitch: ARRAY_WIDTH + 32, rows: ARRAY_ROWS, ..Expect::line(small, ARRAY_WIDTH) },
            // Two copies side by side, which have no gap.
            Way::Batch => Expect::line(small, 24),
            Way::GraphCopy(bytes) => Expect::line(area.graph.wrapping_add(GUARD_BYTES), bytes),
            Way::Kernel | Way::Memset => Expect::line(mapped, 32),
            Way::StreamWrite => Expect::line(mapped, 4),
        }
    }

    fn enqueue(&mut self, cell: &Cell, kind: usize, stream: CUstream, e: &Expect) -> Get<()> {
        let (cu, from, to) = (self.cu, self.source, e.first as *mut c_void);
        let blocking = cell.seen == Seen::BlockingCall;
        let words = (e.width * e.rows * e.slices).div_ceil(4).next_multiple_of(64);
        let Area { mapped, on_device, .. } = self.areas[kind];
        let in_place = on_device.wrapping_add((e.first as u64).wrapping_sub(mapped as u64));
        if !matches!(cell.way, Way::Kernel | Way::StreamWrite | Way::Memset) {
            ok!(cu.cuMemsetD32Async(from, e.value, words, stream));
        }
        match cell.way {
            Way::Copy(bytes) if blocking => ok!(cu.cuMemcpyDtoH_v2(to, from, bytes)),
            Way::Copy(bytes) => ok!(cu.cuMemcpyDtoHAsync_v2(to, from, bytes, stream)),
            Way::AnyCopy(bytes) if blocking => ok!(cu.cuMemcpy(to as u64, from, bytes)),
            Way::AnyCopy(bytes) => ok!(cu.cuMemcpyAsync(to as u64, from, bytes, stream)),
            Way::Copy2D { .. } => {
                let mut copy: CUDA_MEMCPY2D = zeroed();
                (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, from, e.width);
                // Not at the beginning of its rows, which is the host's too.
                copy.dstMemoryType = CU_MEMORYTYPE_HOST;
                (copy.dstHost, copy.dstXInBytes) = ((e.first - 32) as *mut c_void, 32);
                (copy.dstPitch, copy.WidthInBytes, copy.Height) = (e.pitch, e.width, e.rows);
                match blocking {
                    true => ok!(cu.cuMemcpy2D_v2(&copy)),
                    false => ok!(cu.cuMemcpy2DAsync_v2(&copy, stream)),
                }
            }
            Way::Copy3D => {
                let mut copy = to_host(e);
                (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, from);
                (copy.srcPitch, copy.srcHeight) = (e.width, e.rows);
                match blocking {
                    true => ok!(cu.cuMemcpy3D_v2(&copy)),
                    false => ok!(cu.cuMemcpy3DAsync_v2(&copy, stream)),
                }
            }
            Way::FromArray => {
                let mut fill = to_host(e);
                (fill.srcMemoryType, fill.srcDevice, fill.srcPitch) = (CU_MEMORYTYPE_DEVICE, from, e.width);
                (fill.dstMemoryType, fill.dstArray) = (CU_MEMORYTYPE_ARRAY, self.array);
                ok!(cu.cuMemcpy3DAsync_v2(&fill, stream));
                let mut copy = to_host(e);
                (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, self.array);
                match blocking {
                    true => ok!(cu.cuMemcpy3D_v2(&copy)),
                    false => ok!(cu.cuMemcpy3DAsync_v2(&copy, stream)),
                }
            }
            Way::Batch => {
                let (mut to, mut from) = ([to as u64, to as u64 + 4], [from, from + 4]);
                let (mut bytes, mut first) = ([4, e.width - 4], 0);
                let mut how: CUmemcpyAttributes = zeroed();
                how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
                let (to, from, bytes) = (to.as_mut_ptr(), from.as_mut_ptr(), bytes.as_mut_ptr());
                ok!(cu.cuMemcpyBatchAsync_v2(to, from, bytes, 2, &mut how, &mut first, 1, stream));
            }
            Way::Batch3D => {
                let side = |address, row, height| {
                    let mut side: CUmemcpy3DOperand = zeroed();
                    side.type_ = CU_MEMCPY_OPERAND_TYPE_POINTER;
                    (side.op.ptr.ptr, side.op.ptr.rowLength, side.op.ptr.layerHeight) = (address, row, height);
                    side
                };
                let mut copy: CUDA_MEMCPY3D_BATCH_OP = zeroed();
                (copy.src, copy.dst) = (side(from, e.width, e.rows), side(to as u64, e.pitch, e.slice / e.pitch));
                copy.extent = CUextent3D { width: e.width, height: e.rows, depth: e.slices };
                copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
                ok!(cu.cuMemcpy3DBatchAsync_v2(1, &mut copy, 0, stream));
            }
            Way::GraphCopy(_) => {
                let in_graph = cell.seen == Seen::HostFunctionInGraph;
                let exec = match self.graphs.get(&(kind, in_graph)) {
                    Some(exec) => *exec,
                    None => {
                        let mut copy = to_host(e);
                        (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, from);
                        let exec = graph_of(cu, Some(&copy), in_graph.then_some(self.shot))?;
                        self.graphs.insert((kind, in_graph), exec);
                        exec
                    }
                };
                ok!(cu.cuGraphLaunch(exec, stream));
            }
            Way::Kernel => {
                let (mut out, mut value, mut count) = (in_place, e.value, 8u32);
                let arguments = &mut [as_void(&mut out), as_void(&mut value), as_void(&mut count)];
                ok!(cu.launch(self.fill, 1, 32, stream, arguments));
            }
            Way::StreamWrite => ok!(cu.cuStreamWriteValue32_v2(stream, in_place, e.value, 0)),
            Way::Memset => ok!(cu.cuMemsetD32Async(in_place, e.value, 8, stream)),
        }
        Ok(())
    }

    /// The memory that was a destination is a source, and what it held comes out elsewhere.
    fn copy_back(&self, e: &Expect, stream: CUstream) -> Get<()> {
        let bytes = e.width.min(BACK_BYTES_MAX);
        ok!(self.cu.cuMemcpyHtoDAsync_v2(self.back, e.first as *const c_void, bytes, stream));
        ok!(self.cu.cuMemcpyDtoHAsync_v2(self.out.cast(), self.back, bytes, stream));
        Ok(())
    }

    fn came_back(&self, e: &Expect, value: u32) -> Option<String> {
        let bytes = e.width.min(BACK_BYTES_MAX);
        let i = differs(self.out as usize, bytes, value)?;
        let got: u8 = read(self.out.wrapping_add(i).cast());
        Some(format!("byte {i} of {bytes} that went back to the device is {got:#04x}, the value {value:#010x}"))
    }

    /// Queues what tells of the completion, where that is part of the stream's work.
    fn announce(&self, cell: &Cell, stream: CUstream) -> Get<()> {
        let (cu, shot) = (self.cu, std::ptr::from_ref(self.shot).cast_mut().cast::<c_void>());
        match cell.seen {
            Seen::EventSynchronize | Seen::EventQuery | Seen::OtherThreadAsks => {
                ok!(cu.cuEventRecord(self.event, stream));
            }
            Seen::HostFunction => ok!(cu.cuLaunchHostFunc(stream, Some(look), shot)),
            Seen::HostFunctionElsewhere => {
                ok!(cu.cuEventRecord(self.event, stream));
                ok!(cu.cuStreamWaitEvent(self.elsewhere, self.event, 0));
                ok!(cu.cuLaunchHostFunc(self.elsewhere, Some(look), shot));
            }
            Seen::HostFunctionInGraph if matches!(cell.way, Way::GraphCopy(_)) => {}
            Seen::HostFunctionInGraph => ok!(cu.cuGraphLaunch(self.host_function, stream)),
            Seen::StreamCallback => ok!(cu.cuStreamAddCallback(stream, Some(look_back), shot, 0)),
            Seen::Flag => ok!(cu.cuStreamWriteValue32_v2(stream, self.flag_on_device, self.rounds, 0)),
            Seen::BlockingCall
                if matches!(cell.way, Way::Kernel | Way::StreamWrite | Way::Memset | Way::GraphCopy(_)) =>
            {
                ok!(cu.cuMemcpyDtoH_v2(self.out.cast(), self.back, 4));
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for the completion, and looks at once.
    fn see(&self, cell: &Cell, stream: CUstream, e: &Expect) -> Get<Option<String>> {
        let cu = self.cu;
        match cell.seen {
            Seen::StreamSynchronize => ok!(cu.cuStreamSynchronize(stream)),
            Seen::ContextSynchronize => ok!(cu.cuCtxSynchronize()),
            Seen::EventSynchronize => ok!(cu.cuEventSynchronize(self.event)),
            Seen::StreamQuery => until("a stream", || cu.cuStreamQuery(stream))?,
            Seen::EventQuery => until("an event", || cu.cuEventQuery(self.event))?,
            Seen::OtherThread => return self.other.ask(Ask::Wait(stream as usize), *e),
            Seen::OtherThreadAsks => return self.other.ask(Ask::Query(self.event as usize), *e),
            Seen::HostFunction | Seen::HostFunctionElsewhere | Seen::HostFunctionInGraph | Seen::StreamCallback => {
                until("a host function", || match self.shot.ran.load(Ordering::SeqCst) {
                    true => CUDA_SUCCESS,
                    false => CUDA_ERROR_NOT_READY,
                })?;
                return Ok(self.shot.complaint.lock().expect("no holder panics").take());
            }
            Seen::Flag => until("a flag", || match read::<u32>(self.flag) == self.rounds {
                true => CUDA_SUCCESS,
                false => CUDA_ERROR_NOT_READY,
            })?,
            Seen::BlockingCall => {}
            Seen::Freed => match self.rounds % 3 {
                0 => {
                    let mut other = 0;
                    ok!(cu.cuMemAlloc_v2(&mut other, 64));
                    ok!(cu.cuMemFree_v2(other));
                }
                1 => {
                    let mut other = null_mut();
                    ok!(cu.cuMemHostAlloc(&mut other, 64, 0));
                    ok!(cu.cuMemFreeHost(other));
                }
                _ => {
                    let (mut other, mut description) = (null_mut(), zeroed::<CUDA_ARRAY3D_DESCRIPTOR>());
                    (description.Width, description.Format) = (64, CU_AD_FORMAT_UNSIGNED_INT32);
                    description.NumChannels = 1;
                    ok!(cu.cuArray3DCreate_v2(&mut other, &description));
                    ok!(cu.cuArrayDestroy(other));
                }
            },
            Seen::Bytes => until("what is brought", || match e.complaint() {
                None => CUDA_SUCCESS,
                Some(_) => CUDA_ERROR_NOT_READY,
            })?,
        }
        Ok(e.complaint())
    }
}

const ARRAY_WIDTH: usize = 64;
const ARRAY_ROWS: usize = 4;

/// Every byte is another one in the next round.
fn value_of(round: u32) -> u32 {
    ((round & 0xff) * 0x0101_0101) ^ ((round >> 8 & 0xff) * 0x0100_0100)
}

/// A copy to these rows.
fn to_host(e: &Expect) -> CUDA_MEMCPY3D {
    let mut copy: CUDA_MEMCPY3D = zeroed();
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, e.first as *mut c_void);
    (copy.dstPitch, copy.dstHeight) = (e.pitch, if e.slices > 1 { e.slice / e.pitch } else { e.rows });
    (copy.WidthInBytes, copy.Height, copy.Depth) = (e.width, e.rows, e.slices);
    copy
}

/// Whether a way's bytes go to an area's large memory.
fn needs_much(way: Way) -> bool {
    match way {
        Way::Copy(bytes) | Way::AnyCopy(bytes) => bytes > BACK_BYTES_MAX + 64,
        Way::Copy2D { .. } => true,
        _ => false,
    }
}

/// A copy and a host function behind it, or one of them.
fn graph_of(cu: &Cuda, copy: Option<&CUDA_MEMCPY3D>, shot: Option<&'static Shot>) -> Get<CUgraphExec> {
    let (mut graph, mut exec, mut nodes) = (null_mut(), null_mut(), Vec::new());
    ok!(cu.cuGraphCreate(&mut graph, 0));
    if let Some(copy) = copy {
        let mut node = null_mut();
        ok!(cu.cuGraphAddMemcpyNode(&mut node, graph, std::ptr::null(), 0, copy, cu.context()?));
        nodes.push(node);
    }
    if let Some(shot) = shot {
        let mut node = null_mut();
        let mut function: CUDA_HOST_NODE_PARAMS = zeroed();
        (function.fn_, function.userData) = (Some(look as _), std::ptr::from_ref(shot).cast_mut().cast());
        ok!(cu.cuGraphAddHostNode(&mut node, graph, nodes.as_ptr(), nodes.len(), &function));
    }
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cu.cuGraphDestroy(graph));
    Ok(exec)
}

fn area(cu: &Cuda, memory: Memory, graph_in_small: bool) -> Get<Area> {
    let large = if memory == Memory::Managed { null_mut() } else { allocate(cu, memory, LARGE_BYTES)? };
    let small = allocate(cu, memory, SMALL_BYTES)?;
    let (mapped, mut on_device) = (allocate(cu, memory, MAPPED_BYTES)?, 0);
    if memory == Memory::Managed {
        on_device = mapped as u64;
    } else if memory != Memory::Pageable {
        ok!(cu.cuMemHostGetDevicePointer_v2(&mut on_device, mapped.cast(), 0));
    }
    let graph = match graph_in_small {
        true => small.wrapping_add(GRAPH_OFFSET),
        false => allocate(cu, memory, MAPPED_BYTES)?,
    };
    Ok(Area { large, small, mapped, graph, on_device })
}

fn allocate(cu: &Cuda, memory: Memory, bytes: usize) -> Get<*mut u8> {
    let mut base = null_mut();
    match memory {
        Memory::Pinned | Memory::Anew => ok!(cu.cuMemAllocHost_v2(&mut base, bytes)),
        Memory::Portable => ok!(cu.cuMemHostAlloc(&mut base, bytes, CU_MEMHOSTALLOC_PORTABLE)),
        Memory::Managed => {
            let mut address = 0;
            ok!(cu.cuMemAllocManaged(&mut address, bytes, CU_MEM_ATTACH_GLOBAL));
            base = std::ptr::with_exposed_provenance_mut(address as usize);
        }
        Memory::Mapped => ok!(cu.cuMemHostAlloc(&mut base, bytes, CU_MEMHOSTALLOC_DEVICEMAP)),
        Memory::Registered | Memory::Pageable => {
            let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: fresh memory.
            base = unsafe { libc::mmap(null_mut(), bytes, access, how, -1, 0) };
            if base == libc::MAP_FAILED {
                return Err(format!("no {bytes} bytes of memory: {}", std::io::Error::last_os_error()));
            }
            if memory == Memory::Registered {
                ok!(cu.cuMemHostRegister_v2(base, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
            }
        }
    }
    Ok(base.cast())
}
