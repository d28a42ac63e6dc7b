//! Every way to device memory: taking some, and giving it back.

// UNSAFETY: calls the driver with objects that were just made and places of the size it writes.

use std::ffi::CString;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

use crate::model::{Model, Random, rounded};

/// How long a device that others use may take to be idle for a moment.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Pieces of one thread; then it gives some back first.
const PIECES_MAX: usize = 64;

/// One piece of device memory, and what gives it back.
enum Piece {
    Memory(CUdeviceptr),
    Array(CUarray),
    Mipmapped(CUmipmappedArray),
    /// A handle, and where it is mapped.
    Physical(CUmemGenericAllocationHandle, Option<(CUdeviceptr, usize)>),
    /// Mapped, without a handle.
    Mapped(CUdeviceptr, usize),
    FromPool(CUdeviceptr),
    /// Taken out of a pool that was destroyed.
    Orphan(CUdeviceptr),
    /// What was made of it, where that has memory only once it ran, and where that is.
    Graph(CUgraph, Option<(CUgraphExec, CUdeviceptr)>),
    Module(CUmodule),
    Context(CUcontext),
}

pub struct Bench<'a> {
    ways: &'a [&'static str],
    driver: &'static Driver,
    device: CUdevice,
    context: CUcontext,
    /// With the bytes that the model has for each.
    pieces: Vec<(Piece, u64)>,
    unit: usize,
    heap: u64,
    steps: u64,
    /// Whether a graph has memory only once it was launched, as on NVIDIA's driver.
    launches: bool,
    /// What a context takes by itself.
    context_bytes: u64,
}

/// What became of an attempt: the piece with the bytes it takes, or a refusal for want of memory.
type Taken = Result<(Piece, u64), u64>;

fn expect(call: &str, code: CUresult) -> Result<(), String> {
    match code {
        CUDA_SUCCESS => Ok(()),
        code => Err(format!("{call} answered {code}")),
    }
}

macro_rules! ok {
    ($s:ident.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: see the head of this module.
        expect(stringify!($name), unsafe { $s.driver.$name($($argument),*) })?
    };
}

/// Takes `bytes`, or leaves the function with the refusal.
macro_rules! take {
    ($bytes:expr, $s:ident.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: see the head of this module.
        match unsafe { $s.driver.$name($($argument),*) } {
            CUDA_SUCCESS => {}
            CUDA_ERROR_OUT_OF_MEMORY => return Ok(Err($bytes)),
            code => return Err(format!("{} of {} bytes answered {code}", stringify!($name), $bytes)),
        }
    };
}

pub const WAYS: [&str; 11] =
    ["memory", "pitch", "array", "mipmapped", "physical", "mapped", "pool", "orphan", "graph", "module", "context"];

impl<'a> Bench<'a> {
    pub fn new(driver: &'static Driver, device: CUdevice, ways: &'a [&'static str]) -> Result<Bench<'a>, String> {
        let mut bench = Bench {
            ways,
            driver,
            device,
            context: null_mut(),
            pieces: Vec::new(),
            unit: 0,
            heap: 0,
            steps: 0,
            launches: false,
            context_bytes: 0,
        };
        ok!(bench.cuDevicePrimaryCtxRetain(&mut bench.context, device));
        ok!(bench.cuCtxSetCurrent(bench.context));
        let prop = bench.prop();
        let minimum = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        ok!(bench.cuMemGetAllocationGranularity(&mut bench.unit, &prop, minimum));
        let mut heap = 0;
        ok!(bench.cuCtxGetLimit(&mut heap, CU_LIMIT_MALLOC_HEAP_SIZE));
        bench.heap = heap as u64;
        Ok(bench)
    }

    pub fn info(&self) -> Result<(u64, u64), String> {
        let (mut free, mut total) = (0, 0);
        ok!(self.cuMemGetInfo_v2(&mut free, &mut total));
        Ok((free as u64, total as u64))
    }

    pub fn total(&self) -> Result<u64, String> {
        let mut total = 0;
        ok!(self.cuDeviceTotalMem_v2(&mut total, self.device));
        Ok(total as u64)
    }

    /// For a driver on which a piece may be larger than was asked for.
    pub fn expect(&mut self, model: &Model) {
        self.launches = !model.is_exact();
        self.context_bytes = model.context_bytes;
    }

    /// What a context takes that has nothing in it.
    pub fn context_bytes(&self) -> Result<u64, String> {
        let (before, _) = self.info()?;
        let mut context = null_mut();
        ok!(self.cuCtxCreate_v2(&mut context, 0, self.device));
        let (after, _) = self.info()?;
        ok!(self.cuCtxDestroy_v2(context));
        ok!(self.cuCtxSetCurrent(self.context));
        Ok(before.saturating_sub(after))
    }

    pub fn wait(&self) -> Result<(), String> {
        ok!(self.cuCtxSynchronize());
        Ok(())
    }

    /// Has the driver give back what it keeps of graphs whose memory was freed.
    pub fn trim(&self) -> Result<(), String> {
        self.wait()?;
        ok!(self.cuDeviceGraphMemTrim(self.device));
        Ok(())
    }

    fn prop(&self) -> CUmemAllocationProp {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut prop: CUmemAllocationProp = unsafe { zeroed() };
        prop.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device };
        prop
    }

    /// One operation while no other thread does any: answers are held against the model exactly.
    pub fn step(&mut self, random: &mut Random, model: &mut Model) -> Result<(), String> {
        self.steps += 1;
        if self.steps.is_multiple_of(64) {
            self.compare(model)?;
        }
        if self.steps.is_multiple_of(256) {
            self.fill(model)?;
        }
        if self.gives_back(random) {
            let (piece, bytes) = self.pieces.swap_remove(random.below(self.pieces.len() as u64) as usize);
            model.gave_back(bytes);
            return self.give_back(piece);
        }
        let (way, bytes) = (self.ways[random.below(self.ways.len() as u64) as usize], random.bytes(model.total));
        let start = Instant::now();
        loop {
            match self.take(way, bytes, random)? {
                Ok((piece, bytes)) => {
                    self.pieces.push((piece, bytes));
                    return model.took(way, bytes);
                }
                Err(bytes) if !model.fits(bytes) || start.elapsed() > IDLE_MAX => {
                    return model.was_refused(way, bytes);
                }
                // What pools hold comes back when somebody has waited, a module's memory when the device was idle.
                Err(_) => self.wait()?,
            }
        }
    }

    /// One operation while other threads do theirs: what is in use must not be more than there is.
    pub fn step_at_once(&mut self, random: &mut Random, model: &Mutex<Model>) -> Result<(), String> {
        let lock = || model.lock().map_err(|_| "another thread panicked".to_owned());
        if self.gives_back(random) {
            let (piece, bytes) = self.pieces.swap_remove(random.below(self.pieces.len() as u64) as usize);
            lock()?.gave_back(bytes);
            return self.give_back(piece);
        }
        let total = lock()?.total;
        let (way, bytes) = (self.ways[random.below(self.ways.len() as u64) as usize], random.bytes(total));
        match self.take(way, bytes, random)? {
            Ok((piece, bytes)) => {
                self.pieces.push((piece, bytes));
                lock()?.took(way, bytes)
            }
            Err(_) => {
                lock()?.refused += 1;
                Ok(())
            }
        }
    }

    pub fn end(&mut self, model: &mut Model) -> Result<(), String> {
        for (piece, bytes) in std::mem::take(&mut self.pieces) {
            model.gave_back(bytes);
            self.give_back(piece)?;
        }
        Ok(())
    }

    fn gives_back(&self, random: &mut Random) -> bool {
        !self.pieces.is_empty() && (self.pieces.len() >= PIECES_MAX || random.below(100) < 45)
    }

    /// What the driver says is in use is what the model says. A module's memory is back only when the device has been
    /// idle, and threads on other devices of the same GPU keep it busy.
    fn compare(&self, model: &Model) -> Result<(), String> {
        let start = Instant::now();
        loop {
            self.wait()?;
            let (free, total) = self.info()?;
            let used = total - free;
            let is_right = if model.is_exact() { used == model.live() } else { used >= model.live() };
            if is_right && total == model.total {
                return Ok(());
            }
            if start.elapsed() > IDLE_MAX {
                let live = model.live();
                return Err(format!("{used} of {total} bytes are in use by the driver, {live} by the model"));
            }
        }
    }

    /// All that is said to be free can be had, and not a byte more.
    fn fill(&mut self, model: &mut Model) -> Result<(), String> {
        let (free, _) = self.info()?;
        if !model.is_exact() || free == 0 {
            return Ok(());
        }
        let (mut rest, mut more) = (0, 0);
        ok!(self.cuMemAlloc_v2(&mut rest, free as usize));
        // SAFETY: a valid out pointer.
        match unsafe { self.driver.cuMemAlloc_v2(&mut more, 1) } {
            CUDA_ERROR_OUT_OF_MEMORY => {}
            code => return Err(format!("with nothing free a byte more was answered {code}")),
        }
        ok!(self.cuMemFree_v2(rest));
        Ok(())
    }

    fn take(&self, way: &'static str, bytes: u64, random: &mut Random) -> Result<Taken, String> {
        match way {
            "memory" => {
                let (mut at, bytes) = (0, rounded(bytes));
                take!(bytes, self.cuMemAlloc_v2(&mut at, bytes as usize));
                Ok(Ok((Piece::Memory(at), bytes)))
            }
            "pitch" => {
                let (mut at, mut pitch) = (0, 0);
                let height = 1 + random.below(64);
                let width = (bytes / height).max(1);
                let bytes = width.next_multiple_of(512) * height;
                take!(bytes, self.cuMemAllocPitch_v2(&mut at, &mut pitch, width as usize, height as usize, 4));
                Ok(Ok((Piece::Memory(at), pitch as u64 * height)))
            }
            "array" => self.array(bytes),
            "mipmapped" => self.mipmapped(bytes),
            "physical" => self.physical(bytes, random.below(3) == 0),
            "mapped" => self.mapped(bytes, random.below(2) == 0),
            "pool" => {
                let (mut at, bytes) = (0, rounded(bytes));
                take!(bytes, self.cuMemAllocAsync(&mut at, bytes as usize, null_mut()));
                Ok(Ok((Piece::FromPool(at), bytes)))
            }
            "orphan" => self.orphan(bytes),
            "graph" => self.graph(bytes),
            "module" => self.module(bytes),
            _ => self.context(bytes, random.below(2) == 0),
        }
    }

    fn array(&self, bytes: u64) -> Result<Taken, String> {
        let width = (bytes / 4).clamp(1, 65536);
        let height = (bytes / 4 / width).clamp(1, 32768);
        let (format, channels) = (CU_AD_FORMAT_FLOAT, 1);
        let descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: width as usize,
            Height: height as usize,
            Format: format,
            NumChannels: channels,
        };
        let (mut array, bytes) = (null_mut(), rounded(width * height * 4));
        take!(bytes, self.cuArrayCreate_v2(&mut array, &descriptor));
        Ok(Ok((Piece::Array(array), bytes)))
    }

    fn mipmapped(&self, bytes: u64) -> Result<Taken, String> {
        // SAFETY: integers, for which zero is a value.
        let mut d: CUDA_ARRAY3D_DESCRIPTOR = unsafe { zeroed() };
        let side = ((bytes / 4) as f64).sqrt().clamp(8.0, 4096.0) as usize;
        (d.Width, d.Height, d.Format, d.NumChannels) = (side, side, CU_AD_FORMAT_FLOAT, 1);
        let levels = 3;
        let bytes = (0..levels).map(|level| rounded((side >> level).pow(2) as u64 * 4)).sum();
        let mut array = null_mut();
        take!(bytes, self.cuMipmappedArrayCreate(&mut array, &d, levels));
        Ok(Ok((Piece::Mipmapped(array), bytes)))
    }

    fn unmapped(&self, bytes: u64) -> Result<Result<(CUmemGenericAllocationHandle, usize), u64>, String> {
        let (mut handle, bytes) = (0, bytes.next_multiple_of(self.unit as u64));
        let prop = self.prop();
        take!(bytes, self.cuMemCreate(&mut handle, bytes as usize, &prop, 0));
        Ok(Ok((handle, bytes as usize)))
    }

    fn map(&self, handle: CUmemGenericAllocationHandle, bytes: usize) -> Result<CUdeviceptr, String> {
        let mut at = 0;
        ok!(self.cuMemAddressReserve(&mut at, bytes, 0, 0, 0));
        ok!(self.cuMemMap(at, bytes, 0, handle, 0));
        Ok(at)
    }

    fn physical(&self, bytes: u64, is_mapped: bool) -> Result<Taken, String> {
        let (handle, bytes) = match self.unmapped(bytes)? {
            Ok(made) => made,
            Err(bytes) => return Ok(Err(bytes)),
        };
        let at = if is_mapped { Some((self.map(handle, bytes)?, bytes)) } else { None };
        Ok(Ok((Piece::Physical(handle, at), bytes as u64)))
    }

    /// The mapping alone keeps it, after another handle came and went.
    fn mapped(&self, bytes: u64, is_retained: bool) -> Result<Taken, String> {
        let (handle, bytes) = match self.unmapped(bytes)? {
            Ok(made) => made,
            Err(bytes) => return Ok(Err(bytes)),
        };
        let at = self.map(handle, bytes)?;
        ok!(self.cuMemRelease(handle));
        if is_retained {
            let mut again = 0;
            ok!(self.cuMemRetainAllocationHandle(&mut again, at as *mut _));
            ok!(self.cuMemRelease(again));
        }
        Ok(Ok((Piece::Mapped(at, bytes), bytes as u64)))
    }

    /// Out of a pool that is destroyed while the piece lives on.
    fn orphan(&self, bytes: u64) -> Result<Taken, String> {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut props: CUmemPoolProps = unsafe { zeroed() };
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device };
        let (mut pool, mut at, bytes) = (null_mut(), 0, rounded(bytes));
        ok!(self.cuMemPoolCreate(&mut pool, &props));
        // SAFETY: see the head of this module.
        let code = unsafe { self.driver.cuMemAllocFromPoolAsync(&mut at, bytes as usize, pool, null_mut()) };
        ok!(self.cuMemPoolDestroy(pool));
        match code {
            CUDA_SUCCESS => Ok(Ok((Piece::Orphan(at), bytes))),
            CUDA_ERROR_OUT_OF_MEMORY => Ok(Err(bytes)),
            code => Err(format!("cuMemAllocFromPoolAsync of {bytes} bytes answered {code}")),
        }
    }

    fn graph(&self, bytes: u64) -> Result<Taken, String> {
        let (mut graph, mut node, bytes) = (null_mut(), null_mut(), rounded(bytes));
        ok!(self.cuGraphCreate(&mut graph, 0));
        // SAFETY: integers and pointers, for which zero is a value.
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = unsafe { zeroed() };
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device };
        params.bytesize = bytes as usize;
        // SAFETY: see the head of this module.
        let code = unsafe { self.driver.cuGraphAddMemAllocNode(&mut node, graph, null(), 0, (&raw mut params).cast()) };
        match code {
            CUDA_SUCCESS if self.launches => self.launched(graph, params.dptr, bytes),
            CUDA_SUCCESS => Ok(Ok((Piece::Graph(graph, None), bytes))),
            CUDA_ERROR_OUT_OF_MEMORY => {
                ok!(self.cuGraphDestroy(graph));
                Ok(Err(bytes))
            }
            code => Err(format!("cuGraphAddMemAllocNode of {bytes} bytes answered {code}")),
        }
    }

    /// Has a graph allocate its memory. A launch may be refused when it is waited for.
    fn launched(&self, graph: CUgraph, at: CUdeviceptr, bytes: u64) -> Result<Taken, String> {
        let mut exec = null_mut();
        ok!(self.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        // SAFETY: see the head of this module.
        let code = unsafe {
            match self.driver.cuGraphLaunch(exec, null_mut()) {
                CUDA_SUCCESS => self.driver.cuCtxSynchronize(),
                code => code,
            }
        };
        match code {
            CUDA_SUCCESS => Ok(Ok((Piece::Graph(graph, Some((exec, at))), bytes))),
            CUDA_ERROR_OUT_OF_MEMORY => {
                ok!(self.cuGraphExecDestroy(exec));
                ok!(self.cuGraphDestroy(graph));
                Ok(Err(bytes))
            }
            code => Err(format!("the launch of a graph that allocates {bytes} bytes answered {code}")),
        }
    }

    /// A variable of that size.
    fn module(&self, bytes: u64) -> Result<Taken, String> {
        let bytes = rounded(bytes);
        let text = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 16 .b8 v[{bytes}];\n\
             .visible .entry nothing() {{\n    ret;\n}}\n"
        );
        let (text, mut module) = (CString::new(text).expect("no NUL"), null_mut());
        take!(bytes, self.cuModuleLoadData(&mut module, text.as_ptr().cast()));
        Ok(Ok((Piece::Module(module), bytes)))
    }

    /// Another context, with memory of its own or a heap for its kernels.
    fn context(&self, bytes: u64, is_heap: bool) -> Result<Taken, String> {
        let (mut context, mut at, bytes) = (null_mut(), 0, rounded(bytes));
        let taken = bytes + self.context_bytes;
        take!(taken, self.cuCtxCreate_v2(&mut context, 0, self.device));
        // SAFETY: see the head of this module.
        let code = unsafe {
            match is_heap {
                true => self.driver.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (self.heap + bytes) as usize),
                false => self.driver.cuMemAlloc_v2(&mut at, bytes as usize),
            }
        };
        if code != CUDA_SUCCESS {
            ok!(self.cuCtxDestroy_v2(context));
        }
        ok!(self.cuCtxSetCurrent(self.context));
        match code {
            CUDA_SUCCESS => Ok(Ok((Piece::Context(context), taken))),
            CUDA_ERROR_OUT_OF_MEMORY => Ok(Err(taken)),
            code => Err(format!("{bytes} bytes in a context of their own were answered {code}")),
        }
    }

    fn give_back(&self, piece: Piece) -> Result<(), String> {
        match piece {
            Piece::Memory(at) => ok!(self.cuMemFree_v2(at)),
            Piece::Array(array) => ok!(self.cuArrayDestroy(array)),
            Piece::Mipmapped(array) => ok!(self.cuMipmappedArrayDestroy(array)),
            Piece::Physical(handle, mapped) => {
                if let Some((at, bytes)) = mapped {
                    self.unmap(at, bytes)?;
                }
                ok!(self.cuMemRelease(handle));
            }
            Piece::Mapped(at, bytes) => self.unmap(at, bytes)?,
            Piece::FromPool(at) | Piece::Orphan(at) if at >> 9 & 7 == 0 => self.give_back_beside_a_capture(at)?,
            Piece::FromPool(at) | Piece::Orphan(at) => ok!(self.cuMemFreeAsync(at, null_mut())),
            Piece::Graph(graph, launched) => {
                if let Some((exec, at)) = launched {
                    ok!(self.cuMemFree_v2(at));
                    ok!(self.cuGraphExecDestroy(exec));
                }
                ok!(self.cuGraphDestroy(graph));
            }
            Piece::Module(module) => ok!(self.cuModuleUnload(module)),
            Piece::Context(context) => {
                ok!(self.cuCtxDestroy_v2(context));
                ok!(self.cuCtxSetCurrent(self.context));
            }
        }
        Ok(())
    }

    /// Which is about another stream.
    fn give_back_beside_a_capture(&self, at: CUdeviceptr) -> Result<(), String> {
        let (mut stream, mut graph) = (null_mut(), null_mut());
        ok!(self.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        ok!(self.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        ok!(self.cuMemFreeAsync(at, null_mut()));
        ok!(self.cuStreamEndCapture(stream, &mut graph));
        ok!(self.cuGraphDestroy(graph));
        ok!(self.cuStreamDestroy_v2(stream));
        Ok(())
    }

    fn unmap(&self, at: CUdeviceptr, bytes: usize) -> Result<(), String> {
        ok!(self.cuMemUnmap(at, bytes));
        ok!(self.cuMemAddressFree(at, bytes));
        Ok(())
    }
}
