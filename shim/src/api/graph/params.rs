//! Parameters of nodes, to and from the wire.

// UNSAFETY: reads parameters from the application's memory and writes answers to it, as CUDA defines them.

use std::cell::Cell;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::field::{Bytes, CallbackId, EVENT, Existing, GRAPH_NODE, Halves, List, Size};
use orion_wire::message::graph_node::{
    ATTRIBUTE_WORDS, AllocationNode, BATCH_OPS_MAX, BODIES_MAX, BatchNode, COPY_WORDS, ChildNode, ConditionalNode,
    Geometry, GraphBatchMemOpNodeGetParams, GraphBatchMemOpNodeGetParamsReply, GraphBatchMemOpNodeSetParams,
    GraphEventRecordNodeGetEvent, GraphEventRecordNodeGetEventReply, GraphEventWaitNodeGetEvent,
    GraphEventWaitNodeGetEventReply, GraphHostNodeGetParams, GraphHostNodeGetParamsReply, GraphHostNodeSetParams,
    GraphKernelNodeGetAttribute, GraphKernelNodeGetAttributeReply, GraphKernelNodeGetParams,
    GraphKernelNodeGetParamsReply, GraphKernelNodeSetAttribute, GraphKernelNodeSetParams, GraphMemAllocNodeGetParams,
    GraphMemAllocNodeGetParamsReply, GraphMemcpyNodeGetParams, GraphMemcpyNodeGetParamsReply, GraphMemcpyNodeSetParams,
    GraphNodeSetParams, KernelNode, MemOp, MemcpyNode, MemsetNode, NODE_ACCESS_MAX, NodeParams, PoolProperties,
};
use orion_wire::message::image::Nothing;
use orion_wire::message::virtual_memory::{Access, Location};

use crate::answer::{code, write};
use crate::memory::copy::message;
use crate::memory::{graph_copies, in_step};
use crate::objects::callback::will_be_served;
use crate::objects::graph::{Spare, learn_function, lend, named, node_name};
use crate::objects::{function, handles};
use crate::session::attached::session;
use crate::session::call::call;
use crate::state::graph_copies::Staged;
use crate::state::process::state;

/// One node's parameters as the worker is told: of one kind of node, or [`NodeParams`].
pub struct Params<N> {
    pub node: N,
    pub set_aside: SetAside,
}

/// What was set aside for a node; given back if the worker refuses it.
pub struct SetAside {
    /// Heap memory.
    staged: Vec<Staged>,
    /// Names for the bodies of a conditional node.
    pub bodies: Vec<Handle>,
    taken: Cell<bool>,
}

impl Drop for SetAside {
    fn drop(&mut self) {
        if !self.taken.get() {
            self.bodies.iter().copied().for_each(handles::release);
            graph_copies::give_back(&self.staged);
        }
    }
}

impl SetAside {
    fn new(staged: Vec<Staged>, bodies: Vec<Handle>) -> SetAside {
        SetAside { staged, bodies, taken: Cell::new(false) }
    }

    /// The worker took the node: what was set aside for it now lives as long as graphs refer to it.
    pub fn taken(&self) {
        self.taken.set(true);
        if let Ok(s) = session() {
            self.staged.iter().for_each(|staged| s.graph_copies.keep(staged));
        }
    }
}

impl<N> From<N> for Params<N> {
    fn from(node: N) -> Params<N> {
        Params { node, set_aside: SetAside::new(Vec::new(), Vec::new()) }
    }
}

impl<N> Params<N> {
    fn map<M>(self, of: impl FnOnce(N) -> M) -> Params<M> {
        Params { node: of(self.node), set_aside: self.set_aside }
    }
}

impl<'a> Params<KernelNode<'a>> {
    /// The parameters are packed into `packed`.
    ///
    /// # Safety
    /// As CUDA's kernel node parameters.
    pub unsafe fn kernel(
        p: *const CUDA_KERNEL_NODE_PARAMS,
        packed: &'a mut Vec<u8>,
    ) -> Result<Params<KernelNode<'a>>, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let p = unsafe { p.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let function = if p.func.is_null() { p.kern as u64 } else { p.func as u64 };
        let (grid, block) = ([p.gridDimX, p.gridDimY, p.gridDimZ], [p.blockDimX, p.blockDimY, p.blockDimZ]);
        if function == 0 || grid.contains(&0) || block.contains(&0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's promise.
        unsafe { function::pack(function, p.kernelParams, p.extra, packed) }?;
        let s = session()?;
        if s.pages.must_bring() {
            for word in packed.chunks_exact(8) {
                in_step::note_parameter(s, u64::from_le_bytes(word.try_into().expect("eight bytes")))?;
            }
        }
        let node = KernelNode {
            function: Existing(p.func as u64),
            kernel: Existing(p.kern as u64),
            context: Existing(p.ctx as u64),
            geometry: Geometry { grid, block, shared_bytes: p.sharedMemBytes },
            parameters: Bytes::from(&packed[..]),
        };
        Ok(node.into())
    }
}

impl Params<MemcpyNode> {
    /// # Safety
    /// As CUDA's memory copy nodes; host memory stays valid as long as the graph may run.
    pub unsafe fn memcpy(
        copy: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
        flags: i32,
    ) -> Result<Params<MemcpyNode>, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let mut copy = unsafe { copy.as_ref() }.copied().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let staged = graph_copies::to_shared(session()?, &mut copy)?;
        let offsets = staged.iter().map(|staged| staged.range.offset).collect();
        let node = MemcpyNode {
            flags,
            context: Existing(ctx as u64),
            copy: message(&copy),
            set_aside: List::of(offsets).expect("no more than one a side"),
        };
        Ok(Params { node, set_aside: SetAside::new(staged, Vec::new()) })
    }
}

impl Params<CallbackId> {
    /// # Safety
    /// As CUDA's host node parameters.
    pub unsafe fn host(p: *const CUDA_HOST_NODE_PARAMS) -> Result<Params<CallbackId>, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let p = unsafe { p.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let function = p.fn_.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        will_be_served()?;
        state().callbacks.note_in_graph();
        Ok(CallbackId(state().callbacks.register_for_graph(function, p.userData)).into())
    }
}

impl Params<ChildNode> {
    pub fn child(graph: CUgraph, ownership: CUgraphChildGraphNodeOwnership) -> Result<Params<ChildNode>, CUresult> {
        Ok(ChildNode { graph: Existing(named(Kind::Graph, graph as u64)?), ownership }.into())
    }
}

impl Params<BatchNode> {
    /// # Safety
    /// As CUDA's parameters of batched memory operations.
    pub unsafe fn batch(p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Result<Params<BatchNode>, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let p = unsafe { p.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let count = p.count as usize;
        if count > BATCH_OPS_MAX || (count > 0 && p.paramArray.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let s = session()?;
        // SAFETY: inside the application's array; all of an operation's bytes belong to `pad`.
        let words_of = |i| unsafe { &(*p.paramArray.add(i)).pad };
        (0..count).try_for_each(|i| in_step::note(s, words_of(i)))?;
        let operation = |i| {
            let words = words_of(i);
            MemOp {
                operation_flags: Halves(words[0] as u32, (words[0] >> 32) as u32),
                address: ClaimedDevice::new(words[1]),
                value: words[2],
                flags: words[3] as u32,
            }
        };
        let operations = List::of((0..count).map(operation).collect()).expect("no more than were taken");
        Ok(BatchNode { context: Existing(p.ctx as u64), flags: p.flags, operations }.into())
    }
}

fn place(of: CUmemLocation) -> Location {
    Location { kind: of.type_, id: of.id }
}

impl Params<AllocationNode> {
    /// # Safety
    /// As CUDA's parameters of allocation nodes.
    pub unsafe fn allocation(p: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Params<AllocationNode>, CUresult> {
        let count = p.accessDescCount;
        if count > NODE_ACCESS_MAX || (count > 0 && p.accessDescs.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pool = PoolProperties {
            allocation_type: p.poolProps.allocType,
            handle_types: p.poolProps.handleTypes,
            location: place(p.poolProps.location),
            bytes_max: Size::of(p.poolProps.maxSize),
            usage: p.poolProps.usage,
        };
        let access = |i| {
            // SAFETY: inside the application's array.
            let access = unsafe { *p.accessDescs.add(i) };
            Access { location: place(access.location), flags: access.flags }
        };
        let access = List::of((0..count).map(access).collect()).expect("no more than were taken");
        Ok(AllocationNode { pool, bytes: Size::of(p.bytesize), access }.into())
    }
}

impl<'a> Params<NodeParams<'a>> {
    /// A kernel's parameters are packed into `packed`.
    ///
    /// # Safety
    /// As CUDA's generic node parameters: the part that `type_` says is valid.
    pub unsafe fn any(p: &CUgraphNodeParams, packed: &'a mut Vec<u8>) -> Result<Params<NodeParams<'a>>, CUresult> {
        let part = &p.__bindgen_anon_1;
        let event =
            |event: CUevent| -> Result<Existing<EVENT>, CUresult> { Ok(Existing(named(Kind::Event, event as u64)?)) };
        // SAFETY: each part of the union is read only if the type says that it is the one; older structs for one
        // kind of node are prefixes of these parts.
        Ok(unsafe {
            match p.type_ {
                CU_GRAPH_NODE_TYPE_KERNEL => {
                    Params::kernel((&raw const part.kernel).cast(), packed)?.map(NodeParams::Kernel)
                }
                CU_GRAPH_NODE_TYPE_MEMCPY => {
                    let m = &part.memcpy;
                    Params::memcpy(&m.copyParams, m.copyCtx, m.flags)?.map(NodeParams::Memcpy)
                }
                CU_GRAPH_NODE_TYPE_MEMSET => NodeParams::Memset(memset(&part.memset)).into(),
                CU_GRAPH_NODE_TYPE_HOST => Params::host((&raw const part.host).cast())?.map(NodeParams::Host),
                CU_GRAPH_NODE_TYPE_GRAPH => {
                    Params::child(part.graph.graph, part.graph.ownership)?.map(NodeParams::Child)
                }
                CU_GRAPH_NODE_TYPE_EMPTY => NodeParams::Empty(Nothing {}).into(),
                CU_GRAPH_NODE_TYPE_WAIT_EVENT => NodeParams::WaitEvent(event(part.eventWait.event)?).into(),
                CU_GRAPH_NODE_TYPE_EVENT_RECORD => NodeParams::EventRecord(event(part.eventRecord.event)?).into(),
                CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                    Params::allocation(&*(&raw const part.alloc).cast())?.map(NodeParams::Allocation)
                }
                CU_GRAPH_NODE_TYPE_MEM_FREE => NodeParams::Free(ClaimedDevice::new(part.free.dptr)).into(),
                CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
                    Params::batch((&raw const part.memOp).cast())?.map(NodeParams::Batch)
                }
                CU_GRAPH_NODE_TYPE_CONDITIONAL => conditional(&part.conditional)?.map(NodeParams::Conditional),
                // External semaphores are objects of this host, and the GPU is in another.
                CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL | CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                    return Err(CUDA_ERROR_NOT_SUPPORTED);
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        })
    }
}

fn memset(m: &CUDA_MEMSET_NODE_PARAMS_v2) -> MemsetNode {
    MemsetNode {
        to: ClaimedDevice::new(m.dst),
        pitch: Size::of(m.pitch),
        value: m.value,
        element_bytes: m.elementSize,
        width: Size::of(m.width),
        rows: Size::of(m.height),
        context: Existing(m.ctx as u64),
    }
}

fn conditional(c: &CUDA_CONDITIONAL_NODE_PARAMS) -> Result<Params<ConditionalNode>, CUresult> {
    let count = c.size as usize;
    if count == 0 || count > BODIES_MAX {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bodies: Vec<Handle> = (0..count).map(|_| state().handles.reserve(Kind::Graph)).collect();
    let names = List::of(bodies.iter().map(|body| (*body).into()).collect()).expect("no more than were taken");
    let node = ConditionalNode { handle: c.handle, kind: c.type_, context: Existing(c.ctx as u64), bodies: names };
    Ok(Params { node, set_aside: SetAside::new(Vec::new(), bodies) })
}

/// The older struct lacks kernel and context: the function is given, and the context is the current one.
pub fn kernel_v2(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: p.func,
        gridDimX: p.gridDimX,
        gridDimY: p.gridDimY,
        gridDimZ: p.gridDimZ,
        blockDimX: p.blockDimX,
        blockDimY: p.blockDimY,
        blockDimZ: p.blockDimZ,
        sharedMemBytes: p.sharedMemBytes,
        kernelParams: p.kernelParams,
        extra: p.extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

/// Changes a node of a graph, by a request of this operation.
fn set<N>(
    op: u16,
    node: CUgraphNode,
    params: Result<Params<N>, CUresult>,
    encode: impl FnOnce(Existing<GRAPH_NODE>, N, &mut Vec<u8>),
) -> CUresult {
    let answer = (|| {
        let (name, Params { node, set_aside }) = (Existing(node_name(node)?), params?);
        call(op, |w| encode(name, node, w), |_| Ok(()))?;
        set_aside.taken();
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeSetParams_v2`.
pub unsafe fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    let mut packed = Vec::new();
    // SAFETY: the caller's promise.
    let params = unsafe { Params::kernel(params, &mut packed) };
    let encode = |node, params, w: &mut Vec<u8>| GraphKernelNodeSetParams { node, params }.encode(w);
    set(GraphKernelNodeSetParams::OP, node, params, encode)
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeSetParams`.
pub unsafe fn cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult {
    // SAFETY: the caller's promise.
    match unsafe { params.as_ref() }.map(kernel_v2) {
        // SAFETY: as above.
        Some(params) => unsafe { cuGraphKernelNodeSetParams_v2(node, &params) },
        None => CUDA_ERROR_INVALID_VALUE,
    }
}

/// # Safety
/// As CUDA's `cuGraphMemcpyNodeSetParams`.
pub unsafe fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: *const CUDA_MEMCPY3D) -> CUresult {
    // SAFETY: the caller's promise.
    let params = unsafe { Params::memcpy(copy, std::ptr::null_mut(), 0) };
    let encode = |node, params, w: &mut Vec<u8>| GraphMemcpyNodeSetParams { node, params }.encode(w);
    set(GraphMemcpyNodeSetParams::OP, node, params, encode)
}

/// # Safety
/// As CUDA's `cuGraphHostNodeSetParams`.
pub unsafe fn cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) -> CUresult {
    // SAFETY: the caller's promise.
    let params = unsafe { Params::host(params) };
    let encode = |node, params, w: &mut Vec<u8>| GraphHostNodeSetParams { node, params }.encode(w);
    set(GraphHostNodeSetParams::OP, node, params, encode)
}

/// # Safety
/// As CUDA's `cuGraphBatchMemOpNodeSetParams`.
pub unsafe fn cuGraphBatchMemOpNodeSetParams(
    node: CUgraphNode,
    params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> CUresult {
    // SAFETY: the caller's promise.
    let params = unsafe { Params::batch(params) };
    let encode = |node, params, w: &mut Vec<u8>| GraphBatchMemOpNodeSetParams { node, params }.encode(w);
    set(GraphBatchMemOpNodeSetParams::OP, node, params, encode)
}

/// # Safety
/// As CUDA's `cuGraphNodeSetParams`.
pub unsafe fn cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) -> CUresult {
    let mut packed = Vec::new();
    // SAFETY: the caller's promise.
    let params = unsafe { params.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE).and_then(|p| Params::any(p, &mut packed)) };
    let encode = |node, params, w: &mut Vec<u8>| GraphNodeSetParams { node, params }.encode(w);
    set(GraphNodeSetParams::OP, node, params, encode)
}

/// What a kernel node was told to be.
struct Kernel {
    function: u64,
    kernel: u64,
    context: u64,
    geometry: Geometry,
    layout: Vec<(u32, u32)>,
    packed: Vec<u8>,
}

fn kernel_of(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS, CUresult> {
    let node = node_name(node)?;
    let spare = Spare::new(Kind::Function, 1);
    let q = GraphKernelNodeGetParams { node: Existing(node), name: spare.first() };
    let decode = |r: &mut Reader<'_>| {
        let GraphKernelNodeGetParamsReply { params, layout } = GraphKernelNodeGetParamsReply::decode(r)?;
        let layout = crate::objects::module::layout(&layout)?;
        let packed = params.parameters.get().to_vec();
        let (function, kernel, context) = (params.function.0, params.kernel.0, params.context.0);
        Ok(Kernel { function, kernel, context, geometry: params.geometry, layout, packed })
    };
    let k = call(GraphKernelNodeGetParams::OP, |w| q.encode(w), decode)?;
    spare.settle(&[k.function, k.kernel]);
    learn_function(if k.function == 0 { k.kernel } else { k.function }, k.layout.clone());
    // Whole words, so that the parameters are as aligned as their offsets are.
    let mut storage = vec![0u64; k.packed.len().div_ceil(8)];
    // SAFETY: there is room for all of them.
    unsafe { std::ptr::copy_nonoverlapping(k.packed.as_ptr(), storage.as_mut_ptr().cast(), k.packed.len()) };
    let fits = |(offset, size): &(u32, u32)| *offset as usize + *size as usize <= k.packed.len();
    let offsets: Vec<usize> = k.layout.iter().filter(|p| fits(p)).map(|(offset, _)| *offset as usize).collect();
    let kernelParams = if offsets.is_empty() { std::ptr::null_mut() } else { lend(node, storage, &offsets).1 };
    let Geometry { grid, block, shared_bytes } = k.geometry;
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: k.function as CUfunction,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared_bytes,
        kernelParams,
        extra: std::ptr::null_mut(),
        kern: k.kernel as CUkernel,
        ctx: k.context as CUcontext,
    })
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeGetParams_v2`.
pub unsafe fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, kernel_of(node)) }
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeGetParams`.
pub unsafe fn cuGraphKernelNodeGetParams(node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult {
    let answer = kernel_of(node).map(|k| CUDA_KERNEL_NODE_PARAMS_v1 {
        func: if k.func.is_null() { k.kern.cast() } else { k.func },
        gridDimX: k.gridDimX,
        gridDimY: k.gridDimY,
        gridDimZ: k.gridDimZ,
        blockDimX: k.blockDimX,
        blockDimY: k.blockDimY,
        blockDimZ: k.blockDimZ,
        sharedMemBytes: k.sharedMemBytes,
        kernelParams: k.kernelParams,
        extra: k.extra,
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphMemcpyNodeGetParams`.
pub unsafe fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEMCPY3D) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphMemcpyNodeGetParams { node: Existing(word) };
        let raw = call(GraphMemcpyNodeGetParams::OP, |w| q.encode(w), GraphMemcpyNodeGetParamsReply::decode)?.copy;
        // SAFETY: the same size, and every bit pattern is a value of its integers and pointers.
        let mut copy = unsafe { std::mem::transmute::<[u64; COPY_WORDS], CUDA_MEMCPY3D>(raw) };
        graph_copies::to_application(session()?, &mut copy);
        Ok(copy)
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphHostNodeGetParams`.
pub unsafe fn cuGraphHostNodeGetParams(node: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphHostNodeGetParams { node: Existing(word) };
        let answer = call(GraphHostNodeGetParams::OP, |w| q.encode(w), GraphHostNodeGetParamsReply::decode)?;
        state()
            .callbacks
            .of_graph(answer.callback.0)
            .ok_or_else(|| crate::session::lost::broken("a host function that this program did not register"))
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphEventRecordNodeGetEvent`.
pub unsafe fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, out: *mut CUevent) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphEventRecordNodeGetEvent { node: Existing(word) };
        let decode = GraphEventRecordNodeGetEventReply::decode;
        Ok(call(GraphEventRecordNodeGetEvent::OP, |w| q.encode(w), decode)?.event.0 as CUevent)
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphEventWaitNodeGetEvent`.
pub unsafe fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, out: *mut CUevent) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphEventWaitNodeGetEvent { node: Existing(word) };
        let decode = GraphEventWaitNodeGetEventReply::decode;
        Ok(call(GraphEventWaitNodeGetEvent::OP, |w| q.encode(w), decode)?.event.0 as CUevent)
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphBatchMemOpNodeGetParams`.
pub unsafe fn cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphBatchMemOpNodeGetParams { node: Existing(word) };
        let decode = GraphBatchMemOpNodeGetParamsReply::decode;
        let told = call(GraphBatchMemOpNodeGetParams::OP, |w| q.encode(w), decode)?;
        let count = told.operations.len() as u32;
        let array = lend(word, told.operations.iter().flatten().copied().collect(), &[]).0;
        let ctx = told.context.0 as CUcontext;
        Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx, count, paramArray: array.cast(), flags: told.flags })
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphMemAllocNodeGetParams`.
pub unsafe fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphMemAllocNodeGetParams { node: Existing(word) };
        let told = call(GraphMemAllocNodeGetParams::OP, |w| q.encode(w), GraphMemAllocNodeGetParamsReply::decode)?;
        let AllocationNode { pool, bytes, access } = told.params;
        let location = |told: &Location| CUmemLocation { type_: told.kind, id: told.id };
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
        params.poolProps.allocType = pool.allocation_type;
        params.poolProps.handleTypes = pool.handle_types;
        params.poolProps.location = location(&pool.location);
        params.poolProps.maxSize = pool.bytes_max.0 as usize;
        params.poolProps.usage = pool.usage;
        params.bytesize = bytes.0 as usize;
        params.dptr = told.address;
        params.accessDescCount = access.len();
        if !access.is_empty() {
            // Three 32-bit numbers each, as `CUmemAccessDesc` has them.
            let numbers = |of: &Access| [of.location.kind, of.location.id as u32, of.flags];
            let mut halves: Vec<u32> = access.iter().flat_map(numbers).collect();
            halves.resize(halves.len().next_multiple_of(2), 0);
            let storage = halves.chunks(2).map(|h| h[0] as u64 | (h[1] as u64) << 32).collect();
            params.accessDescs = lend(word, storage, &[]).0.cast();
        }
        Ok(params)
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeGetAttribute`.
pub unsafe fn cuGraphKernelNodeGetAttribute(
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    out: *mut CUkernelNodeAttrValue,
) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let q = GraphKernelNodeGetAttribute { node: Existing(word), attribute };
        let decode = GraphKernelNodeGetAttributeReply::decode;
        let raw = call(GraphKernelNodeGetAttribute::OP, |w| q.encode(w), decode)?.value;
        // SAFETY: the same size, and every bit pattern is a value of the union.
        Ok(unsafe { std::mem::transmute::<[u64; ATTRIBUTE_WORDS], CUkernelNodeAttrValue>(raw) })
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeSetAttribute`.
pub unsafe fn cuGraphKernelNodeSetAttribute(
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: *const CUkernelNodeAttrValue,
) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the union's 64 bytes are the application's.
        let value = unsafe { value.cast::<[u64; ATTRIBUTE_WORDS]>().read() };
        let q = GraphKernelNodeSetAttribute { node: Existing(word), attribute, value };
        call(GraphKernelNodeSetAttribute::OP, |w| q.encode(w), |_| Ok(()))
    });
    code(answer)
}
