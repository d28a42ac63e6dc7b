//! Parameters of nodes, to and from the wire.

// UNSAFETY: reads parameters from the application's memory and writes answers to it, as CUDA defines them.

use std::cell::Cell;

use orion_cuda::sys::*;
use orion_wire::Writer;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::field::{Field, Halves};

use crate::answer::{code, write};
use crate::memory::{graph_copies, in_step};
use crate::objects::graph::{Spare, learn_function, lend, named, node_name};
use crate::objects::{function, handles};
use crate::session::attached::session;
use crate::session::call::{call, put_words};
use crate::state::graph_copies::Staged;
use crate::state::process::state;

const BATCH_OPS_MAX: usize = 1024;
const BODIES_MAX: u32 = 4096;
const ACCESS_MAX: usize = 256;
/// A `CUDA_MEMCPY3D` in words: its fields lie on the wire as they lie in memory.
pub const COPY_WORDS: usize = size_of::<CUDA_MEMCPY3D>() / 8;
/// The memory types, which have four bytes of padding after them.
const TYPE_WORDS: [usize; 2] = [4, 15];

/// One node's parameters, encoded: its type and what that type has.
pub struct Params {
    pub body: Vec<u8>,
    /// Heap memory set aside for the node; given back if the worker refuses the node.
    staged: Vec<Staged>,
    /// Names for the bodies of a conditional node.
    pub bodies: Vec<Handle>,
    taken: Cell<bool>,
}

impl Drop for Params {
    fn drop(&mut self) {
        if !self.taken.get() {
            self.bodies.iter().copied().for_each(handles::release);
            graph_copies::give_back(&self.staged);
        }
    }
}

impl Params {
    fn new(kind: CUgraphNodeType) -> Params {
        let mut body = Vec::with_capacity(768);
        body.word(kind as u64);
        Params { body, staged: Vec::new(), bodies: Vec::new(), taken: Cell::new(false) }
    }

    /// The worker took the node: what was set aside for it now lives as long as graphs refer to it.
    pub fn taken(&self) {
        self.taken.set(true);
        for staged in &self.staged {
            state().graph_copies.keep(staged);
        }
    }

    /// # Safety
    /// As CUDA's kernel node parameters.
    pub unsafe fn kernel(p: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Params, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let p = unsafe { p.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let function = if p.func.is_null() { p.kern as u64 } else { p.func as u64 };
        let geometry = [p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ];
        if function == 0 || geometry.contains(&0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_KERNEL);
        let w = &mut params.body;
        put_words(w, &[p.func as u64, p.kern as u64, p.ctx as u64]);
        put_words(w, &geometry.map(u64::from));
        w.word(p.sharedMemBytes as u64);
        // SAFETY: the caller's promise.
        let packed = unsafe { function::pack(function, p.kernelParams, p.extra, w) }?;
        let s = session()?;
        if s.pages.must_bring() {
            for word in w[packed].chunks_exact(8) {
                in_step::note_parameter(s, u64::from_le_bytes(word.try_into().expect("eight bytes")));
            }
        }
        Ok(params)
    }

    /// # Safety
    /// As CUDA's memory copy nodes; host memory stays valid as long as the graph may run.
    pub unsafe fn memcpy(copy: *const CUDA_MEMCPY3D, ctx: CUcontext, flags: i32) -> Result<Params, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let mut copy = unsafe { copy.as_ref() }.copied().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_MEMCPY);
        params.staged = graph_copies::to_shared(session()?, &mut copy)?;
        let w = &mut params.body;
        put_words(w, &[flags as u32 as u64, ctx as u64]);
        // SAFETY: the same size; the words of padding are masked before anybody sees them.
        let mut raw = unsafe { (&raw const copy).cast::<[u64; COPY_WORDS]>().read() };
        for i in TYPE_WORDS {
            raw[i] &= 0xffff_ffff;
        }
        put_words(w, &raw);
        w.word(params.staged.len() as u64);
        for staged in &params.staged {
            w.word(staged.range.offset);
        }
        Ok(params)
    }

    /// # Safety
    /// As CUDA's host node parameters.
    pub unsafe fn host(p: *const CUDA_HOST_NODE_PARAMS) -> Result<Params, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let p = unsafe { p.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let function = p.fn_.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state().callbacks.note_in_graph();
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_HOST);
        put_words(&mut params.body, &[state().callbacks.register_for_graph(function, p.userData)]);
        Ok(params)
    }

    pub fn child(graph: CUgraph, ownership: CUgraphChildGraphNodeOwnership) -> Result<Params, CUresult> {
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_GRAPH);
        put_words(&mut params.body, &[named(Kind::Graph, graph as u64)?, ownership as u64]);
        Ok(params)
    }

    fn event(kind: CUgraphNodeType, event: CUevent) -> Result<Params, CUresult> {
        let mut params = Params::new(kind);
        params.body.word(named(Kind::Event, event as u64)?);
        Ok(params)
    }

    /// # Safety
    /// As CUDA's parameters of batched memory operations.
    pub unsafe fn batch(p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Result<Params, CUresult> {
        // SAFETY: null or valid by the caller's promise.
        let p = unsafe { p.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let count = p.count as usize;
        if count > BATCH_OPS_MAX || (count > 0 && p.paramArray.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
        put_words(&mut params.body, &[p.ctx as u64, p.flags as u64, count as u64]);
        for i in 0..count {
            // SAFETY: inside the application's array; all of an operation's bytes belong to `pad`.
            let operation = unsafe { &(*p.paramArray.add(i)).pad };
            put_words(&mut params.body, operation);
            in_step::note(session()?, operation);
        }
        Ok(params)
    }

    /// # Safety
    /// As CUDA's parameters of allocation nodes.
    pub unsafe fn allocation(p: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Params, CUresult> {
        let count = p.accessDescCount;
        if count > ACCESS_MAX || (count > 0 && p.accessDescs.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        let w = &mut params.body;
        let pool = &p.poolProps;
        put_words(w, &[pool.allocType as u64, pool.handleTypes as u64]);
        put_words(w, &[pool.location.type_ as u64, pool.location.id as u32 as u64]);
        put_words(w, &[pool.maxSize as u64, pool.usage as u64, p.bytesize as u64, count as u64]);
        for i in 0..count {
            // SAFETY: inside the application's array.
            let access = unsafe { *p.accessDescs.add(i) };
            put_words(w, &[access.location.type_ as u64, access.location.id as u32 as u64, access.flags as u64]);
        }
        Ok(params)
    }

    /// # Safety
    /// As CUDA's generic node parameters: the part that `type_` says is valid.
    pub unsafe fn any(p: &CUgraphNodeParams) -> Result<Params, CUresult> {
        let part = &p.__bindgen_anon_1;
        // SAFETY: each part of the union is read only if the type says that it is the one; older structs for one
        // kind of node are prefixes of these parts.
        unsafe {
            match p.type_ {
                CU_GRAPH_NODE_TYPE_KERNEL => Params::kernel((&raw const part.kernel).cast()),
                CU_GRAPH_NODE_TYPE_MEMCPY => {
                    let m = &part.memcpy;
                    Params::memcpy(&m.copyParams, m.copyCtx, m.flags)
                }
                CU_GRAPH_NODE_TYPE_MEMSET => {
                    let m = &part.memset;
                    let mut params = Params::new(p.type_);
                    put_words(&mut params.body, &[m.dst, m.pitch as u64, m.value as u64, m.elementSize as u64]);
                    put_words(&mut params.body, &[m.width as u64, m.height as u64, m.ctx as u64]);
                    Ok(params)
                }
                CU_GRAPH_NODE_TYPE_HOST => Params::host((&raw const part.host).cast()),
                CU_GRAPH_NODE_TYPE_GRAPH => Params::child(part.graph.graph, part.graph.ownership),
                CU_GRAPH_NODE_TYPE_EMPTY => Ok(Params::new(p.type_)),
                CU_GRAPH_NODE_TYPE_WAIT_EVENT => Params::event(p.type_, part.eventWait.event),
                CU_GRAPH_NODE_TYPE_EVENT_RECORD => Params::event(p.type_, part.eventRecord.event),
                CU_GRAPH_NODE_TYPE_MEM_ALLOC => Params::allocation(&*(&raw const part.alloc).cast()),
                CU_GRAPH_NODE_TYPE_MEM_FREE => {
                    let mut params = Params::new(p.type_);
                    params.body.word(part.free.dptr);
                    Ok(params)
                }
                CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => Params::batch((&raw const part.memOp).cast()),
                CU_GRAPH_NODE_TYPE_CONDITIONAL => Params::conditional(&part.conditional),
                // External semaphores are objects of this host, and the GPU is in another.
                CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL | CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                    Err(CUDA_ERROR_NOT_SUPPORTED)
                }
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
    }

    fn conditional(c: &CUDA_CONDITIONAL_NODE_PARAMS) -> Result<Params, CUresult> {
        if c.size == 0 || c.size > BODIES_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut params = Params::new(CU_GRAPH_NODE_TYPE_CONDITIONAL);
        params.bodies = (0..c.size).map(|_| state().handles.reserve(Kind::Graph)).collect();
        let w = &mut params.body;
        put_words(w, &[c.handle, c.type_ as u64, c.size as u64, c.ctx as u64, c.size as u64]);
        for body in &params.bodies {
            w.word(body.0);
        }
        Ok(params)
    }
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

/// Changes a node of a graph.
fn set(op: u16, node: CUgraphNode, params: Result<Params, CUresult>) -> CUresult {
    let answer = (|| {
        let (node, params) = (node_name(node)?, params?);
        call(
            op,
            |w| {
                w.word(node);
                w.put(&params.body);
            },
            |_| Ok(()),
        )?;
        params.taken();
        Ok(())
    })();
    code(answer)
}

/// # Safety
/// As CUDA's `cuGraphKernelNodeSetParams_v2`.
pub unsafe fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    // SAFETY: the caller's promise.
    set(ops::CU_GRAPH_KERNEL_NODE_SET_PARAMS_V2, node, unsafe { Params::kernel(params) })
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
    set(ops::CU_GRAPH_MEMCPY_NODE_SET_PARAMS, node, unsafe { Params::memcpy(copy, std::ptr::null_mut(), 0) })
}

/// # Safety
/// As CUDA's `cuGraphHostNodeSetParams`.
pub unsafe fn cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) -> CUresult {
    // SAFETY: the caller's promise.
    set(ops::CU_GRAPH_HOST_NODE_SET_PARAMS, node, unsafe { Params::host(params) })
}

/// # Safety
/// As CUDA's `cuGraphBatchMemOpNodeSetParams`.
pub unsafe fn cuGraphBatchMemOpNodeSetParams(
    node: CUgraphNode,
    params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> CUresult {
    // SAFETY: the caller's promise.
    set(ops::CU_GRAPH_BATCH_MEM_OP_NODE_SET_PARAMS, node, unsafe { Params::batch(params) })
}

/// # Safety
/// As CUDA's `cuGraphNodeSetParams`.
pub unsafe fn cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) -> CUresult {
    // SAFETY: the caller's promise.
    let encoded = unsafe { params.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE).and_then(|p| Params::any(p)) };
    set(ops::CU_GRAPH_NODE_SET_PARAMS, node, encoded)
}

struct Kernel {
    function: u64,
    kernel: u64,
    context: u64,
    geometry: [u32; 7],
    layout: Vec<(u32, u32)>,
    packed: Vec<u8>,
}

fn kernel_of(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS, CUresult> {
    let node = node_name(node)?;
    let spare = Spare::new(Kind::Function, 1);
    let k = call(
        ops::CU_GRAPH_KERNEL_NODE_GET_PARAMS_V2,
        |w| {
            w.word(node);
            spare.encode(w);
        },
        |r| {
            let (function, kernel, context) = (r.word()?, r.word()?, r.word()?);
            let mut geometry = [0; 7];
            for v in &mut geometry {
                *v = r.word()? as u32;
            }
            let layout = crate::objects::module::layout(&r.list(32_764, Halves::get)?)?;
            Ok(Kernel { function, kernel, context, geometry, layout, packed: r.bytes()?.to_vec() })
        },
    )?;
    spare.settle(&[k.function, k.kernel]);
    learn_function(if k.function == 0 { k.kernel } else { k.function }, k.layout.clone());
    // Whole words, so that the parameters are as aligned as their offsets are.
    let mut storage = vec![0u64; k.packed.len().div_ceil(8)];
    // SAFETY: there is room for all of them.
    unsafe { std::ptr::copy_nonoverlapping(k.packed.as_ptr(), storage.as_mut_ptr().cast(), k.packed.len()) };
    let fits = |(offset, size): &(u32, u32)| *offset as usize + *size as usize <= k.packed.len();
    let offsets: Vec<usize> = k.layout.iter().filter(|p| fits(p)).map(|(offset, _)| *offset as usize).collect();
    let kernelParams = if offsets.is_empty() { std::ptr::null_mut() } else { lend(node, storage, &offsets).1 };
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: k.function as CUfunction,
        gridDimX: k.geometry[0],
        gridDimY: k.geometry[1],
        gridDimZ: k.geometry[2],
        blockDimX: k.geometry[3],
        blockDimY: k.geometry[4],
        blockDimZ: k.geometry[5],
        sharedMemBytes: k.geometry[6],
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
        let raw = call(
            ops::CU_GRAPH_MEMCPY_NODE_GET_PARAMS,
            |w| w.word(word),
            |r| {
                let mut raw = [0u64; COPY_WORDS];
                for word in &mut raw {
                    *word = r.word()?;
                }
                Ok(raw)
            },
        )?;
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
        let number = call(ops::CU_GRAPH_HOST_NODE_GET_PARAMS, |w| w.word(word), |r| r.word())?;
        state()
            .callbacks
            .of_graph(number)
            .ok_or_else(|| crate::session::lost::broken("a host function that this program did not register"))
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

fn event_of(op: u16, node: CUgraphNode) -> Result<CUevent, CUresult> {
    let node = node_name(node)?;
    call(op, |w| w.word(node), |r| r.word()).map(|word| word as CUevent)
}

/// # Safety
/// As CUDA's `cuGraphEventRecordNodeGetEvent`.
pub unsafe fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, out: *mut CUevent) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, event_of(ops::CU_GRAPH_EVENT_RECORD_NODE_GET_EVENT, node)) }
}

/// # Safety
/// As CUDA's `cuGraphEventWaitNodeGetEvent`.
pub unsafe fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, out: *mut CUevent) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { write(out, event_of(ops::CU_GRAPH_EVENT_WAIT_NODE_GET_EVENT, node)) }
}

/// # Safety
/// As CUDA's `cuGraphBatchMemOpNodeGetParams`.
pub unsafe fn cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let (ctx, flags, pads) = call(
            ops::CU_GRAPH_BATCH_MEM_OP_NODE_GET_PARAMS,
            |w| w.word(word),
            |r| {
                let (ctx, flags) = (r.word()?, r.word()? as u32);
                let pads = r.list(BATCH_OPS_MAX, |r| {
                    let mut pad = [0; 6];
                    for word in &mut pad {
                        *word = r.word()?;
                    }
                    Ok(pad)
                })?;
                Ok((ctx, flags, pads))
            },
        )?;
        let count = pads.len() as u32;
        let array = lend(word, pads.into_iter().flatten().collect(), &[]).0;
        Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: ctx as CUcontext, count, paramArray: array.cast(), flags })
    });
    // SAFETY: the caller's promise.
    unsafe { write(out, answer) }
}

/// # Safety
/// As CUDA's `cuGraphMemAllocNodeGetParams`.
pub unsafe fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult {
    let answer = node_name(node).and_then(|word| {
        let (head, access) = call(
            ops::CU_GRAPH_MEM_ALLOC_NODE_GET_PARAMS,
            |w| w.word(word),
            |r| {
                let mut head = [0u64; 8];
                for word in &mut head {
                    *word = r.word()?;
                }
                let access = r.list(ACCESS_MAX, |r| Ok([r.word()? as u32, r.word()? as u32, r.word()? as u32]))?;
                Ok((head, access))
            },
        )?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
        let pool = &mut params.poolProps;
        pool.allocType = head[0] as u32;
        pool.handleTypes = head[1] as u32;
        pool.location = CUmemLocation { type_: head[2] as u32, id: head[3] as u32 as i32 };
        pool.maxSize = head[4] as usize;
        pool.usage = head[5] as u16;
        params.bytesize = head[6] as usize;
        params.dptr = head[7];
        params.accessDescCount = access.len();
        if !access.is_empty() {
            // Three 32-bit numbers each, as `CUmemAccessDesc` has them.
            let mut halves: Vec<u32> = access.into_iter().flatten().collect();
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
        let raw = call(
            ops::CU_GRAPH_KERNEL_NODE_GET_ATTRIBUTE,
            |w| put_words(w, &[word, attribute as u64]),
            |r| {
                let mut raw = [0u64; 8];
                for word in &mut raw {
                    *word = r.word()?;
                }
                Ok(raw)
            },
        )?;
        // SAFETY: the same size, and every bit pattern is a value of the union.
        Ok(unsafe { std::mem::transmute::<[u64; 8], CUkernelNodeAttrValue>(raw) })
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
        let raw = unsafe { value.cast::<[u64; 8]>().read() };
        call(
            ops::CU_GRAPH_KERNEL_NODE_SET_ATTRIBUTE,
            |w| {
                put_words(w, &[word, attribute as u64]);
                put_words(w, &raw);
            },
            |_| Ok(()),
        )
    });
    code(answer)
}
