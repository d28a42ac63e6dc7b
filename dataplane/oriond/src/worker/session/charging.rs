//! Device memory within a limit: the one place that calls the driver's functions that allocate.
//!
//! A session without a limit has no ledger, and pays nothing for there being any.

// UNSAFETY: asks the driver about pools, graphs and contexts of this session.

use std::sync::{Arc, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

use crate::worker::session::Session;
use crate::worker::session::freeing::release_freed;
use crate::worker::state::accounts::{Accounts, Pool, lock};
use crate::worker::state::ledger::{Ledger, What};

/// The most that a context beyond the first is charged: more is others' doing.
const CONTEXT_BYTES_MAX: u64 = 1 << 30;

/// `CU_LIMIT_STACK_SIZE` of a new context, as `cuCtxGetLimit` says.
const STACK_BYTES: u64 = 1024;

/// What is set aside for a limit of a context, and how much that is in all, if it is counted.
pub struct Aside {
    vgpu: usize,
    context: u64,
    limit: CUlimit,
    value: u64,
    reserved: Option<(What, u64)>,
}

impl Session {
    /// Calls what allocates `bytes` in the current context, if they fit, and charges them.
    pub fn allocating(&mut self, bytes: u64, call: impl FnOnce(&'static Driver) -> (CUresult, What)) -> CUresult {
        let (vgpu, context) = self.place();
        let Some(rounded) = self.accounts.as_ref().filter(|_| bytes > 0).map(|a| a.rounding.of(bytes)) else {
            return call(self.driver).0;
        };
        let Some(reserved) = self.reserve(vgpu, rounded, context) else { return CUDA_ERROR_OUT_OF_MEMORY };
        let (code, what) = call(self.driver);
        self.settle_reserved(reserved, (code == CUDA_SUCCESS).then_some(what));
        code
    }

    /// Charges ahead of a call, so that no other thread has the same room.
    fn reserve(&mut self, vgpu: usize, bytes: u64, context: u64) -> Option<What> {
        while self.make_room(vgpu, bytes) {
            let reserved = self.accounts.as_ref()?.ledger().reserve(vgpu, bytes, context);
            // Unless another one was quicker.
            if reserved.is_some() {
                return reserved;
            }
        }
        None
    }

    fn settle_reserved(&self, reserved: What, made: Option<What>) {
        let Some(accounts) = &self.accounts else { return };
        match made {
            Some(what) => accounts.ledger().rename(reserved, what),
            None => accounts.ledger().release(reserved),
        }
    }

    /// Calls what makes `bytes` of physical memory of a vGPU's, or of none's.
    pub fn creating(
        &mut self,
        vgpu: Option<usize>,
        bytes: u64,
        call: impl FnOnce(&'static Driver) -> (CUresult, CUmemGenericAllocationHandle),
    ) -> CUresult {
        let Some(vgpu) = vgpu.filter(|_| self.accounts.is_some()) else { return call(self.driver).0 };
        let Some(reserved) = self.reserve(vgpu, bytes, 0) else { return CUDA_ERROR_OUT_OF_MEMORY };
        let (code, handle) = call(self.driver);
        match (code, &self.accounts) {
            (CUDA_SUCCESS, Some(accounts)) => accounts.ledger().created(reserved, handle),
            _ => self.settle_reserved(reserved, None),
        }
        code
    }

    /// Calls what takes `bytes` out of a pool, the current one if that is null: what the pool reserves for it has to
    /// fit.
    pub fn taking(
        &mut self,
        pool: CUmemoryPool,
        bytes: u64,
        stream: CUstream,
        call: impl FnOnce(&'static Driver) -> (CUresult, CUdeviceptr),
    ) -> CUresult {
        let (vgpu, _) = self.place();
        let Some(rounded) = self.accounts.as_ref().map(|accounts| accounts.rounding.of(bytes)) else {
            return call(self.driver).0;
        };
        let pool = if pool.is_null() { self.current_pool(vgpu) } else { pool };
        // One that the client has never named is a default one.
        let known = |accounts: &mut Accounts| {
            accounts.pools.entry(pool as usize).or_insert(Pool { vgpu, is_default: true }).vgpu
        };
        let vgpu = self.accounts.as_mut().map_or(vgpu, known);
        let reserved = pool_bytes(self.driver, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        let spare = reserved.saturating_sub(pool_bytes(self.driver, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
        let Some(growth) = self.reserve(vgpu, rounded.saturating_sub(spare), 0) else {
            return CUDA_ERROR_OUT_OF_MEMORY;
        };
        let (code, address) = call(self.driver);
        self.look_at_pool(vgpu, pool);
        self.settle_reserved(growth, None);
        let (CUDA_SUCCESS, Some(accounts)) = (code, &mut self.accounts) else { return code };
        // A pool may reserve more than it was asked for, which is known only now.
        if accounts.ledger().is_exceeded(vgpu) {
            // SAFETY: memory that was just taken, and that nobody has been told of.
            unsafe { self.driver.cuMemFreeAsync(address, stream) };
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        accounts.from_pools.insert(address, (pool as usize, rounded));
        CUDA_SUCCESS
    }

    /// Calls what adds an allocation of `bytes` to a graph.
    pub fn allocating_in_graph<T>(
        &mut self,
        graph: CUgraph,
        bytes: u64,
        call: impl FnOnce(&mut Session) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        if self.accounts.is_none() || bytes == 0 {
            return call(self);
        }
        let (vgpu, _) = self.place();
        let rounded = self.accounts.as_ref().map_or(bytes, |accounts| accounts.rounding.of(bytes));
        let reserved = self.reserve(vgpu, rounded, 0).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let answer = call(self);
        self.graph_nodes.allocating.insert(graph as usize, vgpu);
        self.look_at_graphs(vgpu);
        self.settle_reserved(reserved, None);
        answer
    }

    /// A graph has ended, or what was made of it, and perhaps the memory of its nodes.
    pub fn graph_memory_ended(&mut self, graph: usize) {
        if let Some(vgpu) = self.graph_nodes.allocating.remove(&graph) {
            self.look_at_graphs(vgpu);
        }
    }

    /// Calls what launches a graph or gets it ready, if the memory that its nodes allocate fits.
    pub fn launching(&mut self, exec: CUgraphExec, call: impl FnOnce(&'static Driver) -> CUresult) -> CUresult {
        let at_launch = self.accounts.as_ref().filter(|accounts| !accounts.is_software);
        let Some(bytes) = at_launch.and_then(|_| self.graph_nodes.allocations.get(&(exec as usize)).copied()) else {
            return call(self.driver);
        };
        let (vgpu, _) = self.place();
        let reserved = graph_bytes(self.driver, self.vgpus.get(vgpu).device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
        let used = graph_bytes(self.driver, self.vgpus.get(vgpu).device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
        let growth = bytes.saturating_sub(reserved.saturating_sub(used));
        let Some(growth) = self.reserve(vgpu, growth, 0) else { return CUDA_ERROR_OUT_OF_MEMORY };
        let code = call(self.driver);
        self.look_at_graphs(vgpu);
        self.settle_reserved(growth, None);
        code
    }

    /// Before a limit of the current context is set, for which the driver sets memory aside. Nothing if there is no
    /// room for that.
    pub fn limiting(&mut self, limit: CUlimit, value: u64) -> Option<Aside> {
        let (vgpu, context) = self.place();
        let reserved = match self.accounts {
            Some(_) => Some(self.set_aside(vgpu, context, limit, value)?),
            None => None,
        };
        Some(Aside { vgpu, context, limit, value, reserved })
    }

    /// The driver has answered.
    pub fn limited(&mut self, aside: Aside, code: CUresult) {
        let Aside { vgpu, context, limit, value, reserved: Some((more, bytes)) } = aside else { return };
        if let (CUDA_SUCCESS, Some(accounts)) = (code, &mut self.accounts) {
            if limit == CU_LIMIT_STACK_SIZE {
                accounts.stacks.limited(context, value);
            }
            accounts.ledger().note(vgpu, What::Limit(context, limit), bytes, context);
        }
        self.settle_reserved(more, None);
    }

    /// Whether there is room for a kernel's local memory in a context, the current one if it is 0. The driver takes it
    /// when the kernel first runs there, and keeps it.
    pub fn has_stacks_for(&mut self, function: CUfunction, context: u64) -> bool {
        if self.accounts.as_ref().is_none_or(|accounts| accounts.is_software) {
            return true;
        }
        let context = if context == 0 { self.current } else { context };
        let ((vgpu, context), name) = (self.place_in(context), function as usize);
        let Some(accounts) = self.accounts.as_ref().filter(|a| !a.stacks.has_seen(name, context)) else { return true };
        let local = self.local_bytes(function, self.vgpus.get(vgpu).device);
        let wanted = accounts.stacks.with_kernel(context, local);
        let Some((more, bytes)) = self.set_aside(vgpu, context, CU_LIMIT_STACK_SIZE, wanted) else { return false };
        if let Some(accounts) = &mut self.accounts {
            accounts.stacks.see(name, context, local);
            accounts.ledger().note(vgpu, What::Limit(context, CU_LIMIT_STACK_SIZE), bytes, context);
        }
        self.settle_reserved(more, None);
        true
    }

    /// Bytes of local memory that each thread of a kernel has.
    fn local_bytes(&self, function: CUfunction, device: CUdevice) -> u64 {
        let mut bytes = 0;
        // SAFETY: a handle that was looked up, of the kind the function takes, and a valid out pointer. What has no
        // such number has none of this memory, and the launch will say why.
        unsafe {
            match self.kernels.contains(&(function as usize)) {
                true => {
                    let id = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
                    self.driver.cuKernelGetAttribute(&mut bytes, id, function.cast(), device)
                }
                false => self.driver.cuFuncGetAttribute(&mut bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function),
            }
        };
        bytes.max(0) as u64
    }

    /// Reserves what a limit of the current context takes beyond what it has been charged, and says what that is in
    /// all.
    fn set_aside(&mut self, vgpu: usize, context: u64, limit: CUlimit, value: u64) -> Option<(What, u64)> {
        let (driver, device) = (self.driver, self.vgpus.get(vgpu).device);
        let accounts = self.accounts.as_mut()?;
        let default = *accounts.defaults.entry((context, limit)).or_insert_with(|| {
            let mut value = 0;
            // SAFETY: a valid out pointer; what is not known has no default.
            unsafe { driver.cuCtxGetLimit(&mut value, limit) };
            value as u64
        });
        let bytes = bytes_beyond(driver, device, limit, value.saturating_sub(default));
        let before = accounts.ledger().charged(What::Limit(context, limit));
        Some((self.reserve(vgpu, bytes.saturating_sub(before), 0)?, bytes))
    }

    /// Calls what makes a context of a vGPU's, under the client's name for it, and charges what it took. What it takes
    /// is known only afterwards: `undo` ends one that is beyond the limit.
    pub fn making_context(
        &mut self,
        name: u64,
        vgpu: usize,
        call: impl FnOnce(&'static Driver) -> CUresult,
        undo: impl FnOnce(&'static Driver),
    ) -> CUresult {
        let driver = self.driver;
        let before = self.device_free();
        let code = call(driver);
        let taken = before.saturating_sub(self.device_free()).min(CONTEXT_BYTES_MAX);
        let stacks = bytes_beyond(driver, self.vgpus.get(vgpu).device, CU_LIMIT_STACK_SIZE, STACK_BYTES);
        let (CUDA_SUCCESS, Some(accounts)) = (code, &mut self.accounts) else { return code };
        let bytes = accounts.context_bytes(taken, stacks);
        if bytes > 0 && !self.make_room(vgpu, bytes) {
            undo(driver);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if let Some(accounts) = &mut self.accounts {
            accounts.contexts.insert(name, vgpu);
            accounts.ledger().note(vgpu, What::Context(name), bytes, name);
        }
        code
    }

    fn device_free(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid out pointers. Without a context the driver says nothing.
        unsafe { self.driver.cuMemGetInfo_v2(&mut free, &mut total) };
        free as u64
    }

    /// What the limit leaves of what the driver says: free and total bytes in the current context.
    pub fn within_limit(&mut self, free: u64, total: u64) -> (u64, u64) {
        let (vgpu, _) = self.place();
        self.refresh(vgpu);
        let Some(accounts) = &self.accounts else {
            self.meter.uses(vgpu, total.saturating_sub(free));
            return (free, total);
        };
        // What others are told is what the program hears, so the ledger stays as it is meanwhile.
        let ledger = accounts.ledger();
        let (free, total) = (ledger.free(vgpu).min(free), ledger.limit(vgpu).min(total));
        self.meter.uses(vgpu, total - free);
        (free, total)
    }

    /// An allocation is about to be freed.
    pub fn memory_ends(&mut self, address: CUdeviceptr) -> Ending {
        let Some(accounts) = &mut self.accounts else {
            return Ending { what: What::Nameless(0), address, piece: None };
        };
        let piece = accounts.from_pools.remove(&address);
        Ending { what: accounts.ledger().ending(What::Memory(address)), address, piece }
    }

    /// It was, or could not be.
    pub fn memory_ended(&mut self, ending: Ending, is_freed: bool) {
        let Some(accounts) = &mut self.accounts else { return };
        if is_freed {
            return accounts.ledger().release(ending.what);
        }
        accounts.ledger().rename(ending.what, What::Memory(ending.address));
        accounts.from_pools.extend(ending.piece.map(|piece| (ending.address, piece)));
    }

    /// An array is about to be destroyed. What it has stays charged until [`Self::array_ended`] of the answer.
    pub fn array_ends(&mut self, what: What) -> Option<What> {
        self.accounts.as_ref().map(|accounts| accounts.ledger().ending(what))
    }

    pub fn array_ended(&mut self, ending: Option<What>) {
        if let (Some(accounts), Some(ending)) = (&self.accounts, ending) {
            accounts.ledger().release(ending);
        }
    }

    pub fn physical_mapped(&self, handle: u64, address: CUdeviceptr, bytes: u64) {
        if let Some(accounts) = &self.accounts {
            accounts.ledger().mapped(handle, address, bytes);
        }
    }

    pub fn physical_unmapped(&self, address: CUdeviceptr, bytes: u64) {
        if let Some(accounts) = &self.accounts {
            accounts.ledger().unmapped(address, bytes);
        }
    }

    pub fn physical_retained(&self, handle: u64, address: CUdeviceptr) {
        if let Some(accounts) = &self.accounts {
            accounts.ledger().retained(handle, address);
        }
    }

    /// A handle is forgotten, and with it what its object had.
    pub(super) fn object_gone(&mut self, kind: Kind, word: u64, pointer: usize) {
        let Some(accounts) = &mut self.accounts else { return };
        match kind {
            Kind::Array => accounts.ledger().release(What::Array(pointer)),
            Kind::MipmappedArray => accounts.ledger().release(What::MipmappedArray(pointer)),
            Kind::MemAllocation => accounts.ledger().handle_released(pointer as u64),
            Kind::Context => _ = accounts.contexts.remove(&word),
            Kind::Function => accounts.stacks.function_gone(pointer),
            _ => {}
        }
    }

    /// A pool was destroyed. What was taken out of it lives on, each piece by itself.
    pub fn pool_ends(&mut self, pool: CUmemoryPool) {
        let Some(accounts) = &mut self.accounts else { return };
        let Some(Pool { vgpu, .. }) = accounts.pools.remove(&(pool as usize)) else { return };
        let pieces = accounts.from_pools.extract_if(|_, (of, _)| *of == pool as usize).collect::<Vec<_>>();
        let mut ledger = accounts.ledger();
        ledger.release(What::Pool(pool as usize));
        for (address, (_, bytes)) in pieces {
            ledger.note(vgpu, What::Memory(address), bytes, 0);
        }
    }

    /// A pool of a vGPU's that the client can name from now on.
    pub fn pool_named(&mut self, pool: CUmemoryPool, vgpu: usize, is_default: bool) {
        if let Some(accounts) = &mut self.accounts {
            accounts.pools.insert(pool as usize, Pool { vgpu, is_default });
        }
    }

    pub(super) fn charged_context_gone(&mut self, context: u64) {
        let Some(accounts) = &mut self.accounts else { return };
        accounts.ledger().context_gone(context);
        accounts.defaults.retain(|(of, _), _| *of != context);
        accounts.stacks.context_gone(context);
    }

    /// The vGPU that the current context is on, and the context that its memory ends with.
    pub fn place(&self) -> (usize, u64) {
        self.place_in(self.current)
    }

    /// As [`Self::place`], of another context.
    fn place_in(&self, context: u64) -> (usize, u64) {
        let context = self.green.home(context);
        let handle = Handle(context);
        let made = || self.accounts.as_ref().and_then(|accounts| accounts.contexts.get(&context)).copied();
        let vgpu = match handle.is(Kind::Context) && handle.index() < PRIMARY_CONTEXTS_MAX {
            true => self.vgpus.at(handle.index() as i32).ok(),
            false => made(),
        };
        (vgpu.unwrap_or(0), context)
    }

    /// Whether `bytes` fit. If not at once, then what pools hold beyond what is used is given back first.
    pub fn make_room(&mut self, vgpu: usize, bytes: u64) -> bool {
        let fits = |s: &Session| s.accounts.as_ref().is_none_or(|accounts| accounts.ledger().free(vgpu) >= bytes);
        if fits(self) {
            return true;
        }
        self.refresh(vgpu);
        // While a capture is open the driver would refuse.
        if fits(self) || self.captures.open() {
            return fits(self);
        }
        release_freed(self);
        if let Some(reserves) = self.reserves(vgpu) {
            reserves.trim(self.driver);
        }
        fits(self)
    }

    /// What of a vGPU's memory comes and goes without a call that says so.
    fn reserves(&self, vgpu: usize) -> Option<Reserves> {
        let accounts = self.accounts.as_ref()?;
        let pools = accounts.pools.iter().filter(|(_, of)| of.vgpu == vgpu).map(|(pool, _)| *pool).collect();
        Some(Reserves {
            ledger: accounts.shared().0,
            vgpu,
            device: self.vgpus.get(vgpu).device,
            has_graphs: true,
            pools,
        })
    }

    /// As [`Self::reserves`], for another thread, while the client may destroy what it has made.
    pub fn lasting_reserves(&self, vgpu: usize) -> Option<Reserves> {
        let mut reserves = self.reserves(vgpu)?;
        // Whose graph it is that changes what all on a device have, only the executor knows.
        reserves.has_graphs = false;
        let accounts = self.accounts.as_ref()?;
        reserves.pools.retain(|pool| accounts.pools.get(pool).is_some_and(|of| of.is_default));
        Some(reserves)
    }

    /// Has the ledger know what pools and graphs have reserved by now: waiting for a stream gives some of it back.
    fn refresh(&mut self, vgpu: usize) {
        if let Some(reserves) = self.reserves(vgpu) {
            reserves.look(self.driver);
        }
    }

    fn look_at_pool(&mut self, vgpu: usize, pool: CUmemoryPool) {
        let reserved = pool_bytes(self.driver, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        if let Some(accounts) = &self.accounts {
            accounts.ledger().note(vgpu, What::Pool(pool as usize), reserved, 0);
        }
    }

    fn look_at_graphs(&mut self, vgpu: usize) {
        if let Some(reserves) = self.reserves(vgpu) {
            reserves.look_at_graphs(self.driver);
        }
    }

    fn current_pool(&self, vgpu: usize) -> CUmemoryPool {
        if let Some(own) = self.vgpus.current_pools.get(&vgpu) {
            return *own;
        }
        let mut pool = std::ptr::null_mut();
        // SAFETY: a device of this session and a valid out pointer.
        unsafe { self.driver.cuDeviceGetMemPool(&mut pool, self.vgpus.get(vgpu).device) };
        pool
    }
}

/// An allocation that is being freed.
pub struct Ending {
    what: What,
    address: CUdeviceptr,
    /// The pool that it came from, and how much.
    piece: Option<(usize, u64)>,
}

/// A vGPU's pools and graphs.
pub struct Reserves {
    ledger: Arc<Mutex<Ledger>>,
    vgpu: usize,
    device: CUdevice,
    has_graphs: bool,
    pools: Vec<usize>,
}

impl Reserves {
    /// Has the ledger know what they have reserved.
    fn look(&self, driver: &Driver) {
        for pool in &self.pools {
            let reserved = pool_bytes(driver, *pool as CUmemoryPool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
            lock(&self.ledger).note(self.vgpu, What::Pool(*pool), reserved, 0);
        }
        if self.has_graphs {
            self.look_at_graphs(driver);
        }
    }

    fn look_at_graphs(&self, driver: &Driver) {
        let reserved = graph_bytes(driver, self.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
        lock(&self.ledger).graphs_have(self.device, self.vgpu, reserved);
    }

    /// Has them give back what they have and nobody uses.
    fn trim(&self, driver: &Driver) {
        for pool in &self.pools {
            // SAFETY: a live pool: on the executor no other command runs, and elsewhere it is a default one.
            unsafe { driver.cuMemPoolTrimTo(*pool as CUmemoryPool, 0) };
        }
        if self.has_graphs {
            // SAFETY: a device of this session.
            unsafe { driver.cuDeviceGraphMemTrim(self.device) };
        }
        self.look(driver);
    }

    /// Charges `bytes`, if need be after trimming; false if they do not fit.
    pub fn charge(&self, driver: &Driver, what: What, bytes: u64, context: u64) -> bool {
        let charge = || lock(&self.ledger).charge(self.vgpu, what, bytes, context);
        charge() || {
            self.look(driver);
            charge() || {
                self.trim(driver);
                charge()
            }
        }
    }

    /// The outcome of what was charged ahead: it has another name, or is nothing.
    pub fn settle(&self, what: What, as_what: Option<What>) {
        let mut ledger = lock(&self.ledger);
        match as_what {
            Some(as_what) => ledger.rename(what, as_what),
            None => ledger.release(what),
        }
    }
}

fn pool_bytes(driver: &Driver, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 {
    let mut bytes = 0u64;
    // SAFETY: a live pool, and a place of eight bytes, which these attributes have.
    unsafe { driver.cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()) };
    bytes
}

fn graph_bytes(driver: &Driver, device: CUdevice, attribute: CUgraphMem_attribute) -> u64 {
    let mut bytes = 0u64;
    // SAFETY: a device of this session, and a place of eight bytes, which these attributes have.
    unsafe { driver.cuDeviceGetGraphMemAttribute(device, attribute, (&raw mut bytes).cast()) };
    bytes
}

/// What a limit beyond its default takes. A stack is one for each thread that the device can hold.
fn bytes_beyond(driver: &Driver, device: CUdevice, limit: CUlimit, beyond: u64) -> u64 {
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: a device of this session and a valid out pointer.
        unsafe { driver.cuDeviceGetAttribute(&mut value, attribute, device) };
        value.max(0) as u64
    };
    match limit {
        CU_LIMIT_STACK_SIZE => {
            let threads = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
                * attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
            beyond.saturating_mul(threads)
        }
        CU_LIMIT_PRINTF_FIFO_SIZE | CU_LIMIT_MALLOC_HEAP_SIZE => beyond,
        // Numbers of things that are small.
        _ => 0,
    }
}
