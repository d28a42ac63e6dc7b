//! Parameters of nodes, from the wire.
//!
//! Every kind is decoded into the generic `CUgraphNodeParams`, whose parts are also what the older functions for
//! one kind of node take.

// UNSAFETY: builds the driver's structs from words, and reads those that the driver fills.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::graph_node::{
    AllocationNode, BatchNode, ConditionalNode, Geometry, KernelNode, MemcpyNode, MemsetNode, NodeParams,
};
use orion_wire::message::virtual_memory::Location;
use orion_wire::record::HeapRange;

use crate::worker::calls::graph::keep::{give_up, keep_range, keep_ticket};
use crate::worker::out::callbacks::{self, kind};
use crate::worker::outcome::Stop;
use crate::worker::session::Session;
use crate::worker::session::reach::shared_range;
use crate::worker::state::addresses as address;
use crate::worker::state::addresses::Of;

/// One node's parameters with everything they point to.
pub struct Params {
    raw: Box<CUgraphNodeParams>,
    /// What `raw` points to; named so that it lives as long.
    _blob: Vec<u8>,
    _size: Box<usize>,
    _extra: Box<[*mut c_void; 5]>,
    _access: Vec<CUmemAccessDesc>,
    _ops: Vec<CUstreamBatchMemOpParams>,
    function: u64,
    ticket: *mut c_void,
    /// Offsets of heap ranges that the client set aside for this node.
    pub staging: Vec<u64>,
    /// The client's name for a graph that moves into the node.
    moved: u64,
    /// Names for the bodies of a conditional node.
    bodies: Vec<u64>,
}

impl Params {
    pub fn of(s: &mut Session, told: &NodeParams<'_>) -> Result<Params, Stop> {
        let mut p = Params {
            // SAFETY: a struct of integers and pointers, for which zero is a value.
            raw: Box::new(unsafe { std::mem::zeroed() }),
            _blob: Vec::new(),
            _size: Box::new(0),
            _extra: Box::new([ptr::null_mut(); 5]),
            _access: Vec::new(),
            _ops: Vec::new(),
            function: 0,
            ticket: ptr::null_mut(),
            staging: Vec::new(),
            moved: 0,
            bodies: Vec::new(),
        };
        p.raw.type_ = match told {
            NodeParams::Kernel(k) => p.kernel(s, k)?,
            NodeParams::Memcpy(m) => p.memcpy(s, m)?,
            NodeParams::Memset(m) => p.memset(s, m)?,
            NodeParams::Host(callback) => {
                p.ticket = s.callbacks.ticket(callback.0, kind::HOST_FUNCTION, 0, false, true);
                p.raw.__bindgen_anon_1.host =
                    CUDA_HOST_NODE_PARAMS_v2 { fn_: Some(callbacks::host_function), userData: p.ticket };
                CU_GRAPH_NODE_TYPE_HOST
            }
            NodeParams::Child(c) => {
                let graph = s.existing(Kind::Graph, c.graph.0)?.cast();
                p.raw.__bindgen_anon_1.graph = CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ownership: c.ownership };
                p.moved = if c.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE { c.graph.0 } else { 0 };
                CU_GRAPH_NODE_TYPE_GRAPH
            }
            NodeParams::Empty(_) => CU_GRAPH_NODE_TYPE_EMPTY,
            NodeParams::WaitEvent(event) => {
                let event = s.existing(Kind::Event, event.0)?.cast();
                p.raw.__bindgen_anon_1.eventWait = CUDA_EVENT_WAIT_NODE_PARAMS { event };
                CU_GRAPH_NODE_TYPE_WAIT_EVENT
            }
            NodeParams::EventRecord(event) => {
                let event = s.existing(Kind::Event, event.0)?.cast();
                p.raw.__bindgen_anon_1.eventRecord = CUDA_EVENT_RECORD_NODE_PARAMS { event };
                CU_GRAPH_NODE_TYPE_EVENT_RECORD
            }
            NodeParams::Allocation(a) => p.allocation(s, a)?,
            NodeParams::Free(address) => {
                p.raw.__bindgen_anon_1.free = CUDA_MEM_FREE_NODE_PARAMS { dptr: s.reach(*address, 1)?.raw() };
                CU_GRAPH_NODE_TYPE_MEM_FREE
            }
            NodeParams::Batch(b) => p.batch(s, b)?,
            NodeParams::Conditional(c) => p.conditional(s, c)?,
        };
        Ok(p)
    }

    /// Bytes that the node allocates whenever it runs.
    pub fn allocates(&self) -> u64 {
        match self.raw.type_ {
            // SAFETY: the part of the union that this kind of node has.
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => unsafe { self.raw.__bindgen_anon_1.alloc.bytesize as u64 },
            _ => 0,
        }
    }

    fn kernel(&mut self, s: &mut Session, k: &KernelNode<'_>) -> Result<CUgraphNodeType, Stop> {
        let ctx = s.context(k.context.0)?;
        self.function = if k.function.0 != 0 { k.function.0 } else { k.kernel.0 };
        self._blob = k.parameters.get().to_vec();
        *self._size = self._blob.len();
        let mut extra = ptr::null_mut();
        if !self._blob.is_empty() {
            *self._extra = [
                CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
                self._blob.as_mut_ptr().cast(),
                CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
                (&raw mut *self._size).cast(),
                CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
            ];
            extra = self._extra.as_mut_ptr();
        }
        let (mut func, mut kern) = (s.handle(Kind::Function, k.function.0)?, s.handle(Kind::Function, k.kernel.0)?);
        for f in [func, kern] {
            if !f.is_null() && !s.has_stacks_for(f.cast(), k.context.0) {
                return Err(CUDA_ERROR_OUT_OF_MEMORY.into());
            }
        }
        // Clients use kernels as functions; a node takes them in a place of their own.
        if s.kernels.contains(&(func as usize)) {
            (func, kern) = (ptr::null_mut(), func);
        }
        let Geometry { grid, block, shared_bytes } = k.geometry;
        self.raw.__bindgen_anon_1.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
            func: func.cast(),
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared_bytes,
            kernelParams: ptr::null_mut(),
            extra,
            kern: kern.cast(),
            ctx,
        };
        Ok(CU_GRAPH_NODE_TYPE_KERNEL)
    }

    fn memcpy(&mut self, s: &mut Session, m: &MemcpyNode) -> Result<CUgraphNodeType, Stop> {
        let copyCtx = s.context(m.context.0)?;
        let copyParams = *s.copy_3d(&m.copy)?.raw();
        self.staging = m.set_aside.to_vec();
        self.raw.__bindgen_anon_1.memcpy = CUDA_MEMCPY_NODE_PARAMS { flags: m.flags, reserved: 0, copyCtx, copyParams };
        Ok(CU_GRAPH_NODE_TYPE_MEMCPY)
    }

    fn memset(&mut self, s: &mut Session, m: &MemsetNode) -> Result<CUgraphNodeType, Stop> {
        let bytes = address::rows(m.pitch.0, m.rows.0, address::line(&[m.width.0, m.element_bytes.into()])?)?;
        self.raw.__bindgen_anon_1.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: s.reach(m.to, bytes)?.raw(),
            pitch: m.pitch.0 as usize,
            value: m.value,
            elementSize: m.element_bytes,
            width: m.width.0 as usize,
            height: m.rows.0 as usize,
            ctx: s.context(m.context.0)?,
        };
        Ok(CU_GRAPH_NODE_TYPE_MEMSET)
    }

    fn allocation(&mut self, s: &mut Session, a: &AllocationNode) -> Result<CUgraphNodeType, Stop> {
        let location = |s: &Session, told: &Location| -> Result<CUmemLocation, CUresult> {
            let id = if told.kind == CU_MEM_LOCATION_TYPE_DEVICE { s.device(told.id)? } else { told.id };
            Ok(CUmemLocation { type_: told.kind, id })
        };
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut props: CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = a.pool.allocation_type;
        props.handleTypes = a.pool.handle_types;
        props.location = location(s, &a.pool.location)?;
        props.maxSize = a.pool.bytes_max.0 as usize;
        props.usage = a.pool.usage;
        for access in a.access.iter() {
            self._access.push(CUmemAccessDesc { location: location(s, &access.location)?, flags: access.flags });
        }
        self.raw.__bindgen_anon_1.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
            poolProps: props,
            accessDescs: if self._access.is_empty() { ptr::null() } else { self._access.as_ptr() },
            accessDescCount: self._access.len(),
            bytesize: a.bytes.0 as usize,
            dptr: 0,
        };
        Ok(CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    }

    fn batch(&mut self, s: &mut Session, b: &BatchNode) -> Result<CUgraphNodeType, Stop> {
        let ctx = s.context(b.context.0)?;
        self._ops = s.node_mem_ops(&b.operations)?;
        self.raw.__bindgen_anon_1.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
            ctx,
            count: self._ops.len() as u32,
            paramArray: self._ops.as_mut_ptr(),
            flags: b.flags,
        };
        Ok(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
    }

    fn conditional(&mut self, s: &mut Session, c: &ConditionalNode) -> Result<CUgraphNodeType, Stop> {
        let ctx = s.context(c.context.0)?;
        self.bodies = c.bodies.iter().map(|body| body.0).collect();
        self.raw.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: c.handle,
            type_: c.kind,
            size: c.bodies.len() as u32,
            phGraph_out: ptr::null_mut(),
            ctx,
        };
        Ok(CU_GRAPH_NODE_TYPE_CONDITIONAL)
    }

    pub fn raw(&mut self) -> &mut CUgraphNodeParams {
        &mut self.raw
    }

    /// The graph of a child graph node, 0 for other kinds.
    pub fn child(&self) -> Option<CUgraph> {
        if self.raw.type_ != CU_GRAPH_NODE_TYPE_GRAPH {
            return None;
        }
        // SAFETY: the type says which part was written.
        Some(unsafe { self.raw.__bindgen_anon_1.graph.graph })
    }

    /// Whether the node is to own the child graph, which is not cloned then.
    pub fn is_moved(&self) -> bool {
        self.moved != 0
    }

    /// Whether it is a conditional node's.
    pub fn has_bodies(&self) -> bool {
        self.raw.type_ == CU_GRAPH_NODE_TYPE_CONDITIONAL
    }

    pub fn copy(&self) -> Option<&CUDA_MEMCPY3D> {
        if self.raw.type_ != CU_GRAPH_NODE_TYPE_MEMCPY {
            return None;
        }
        // SAFETY: the type says which part was written.
        Some(unsafe { &self.raw.__bindgen_anon_1.memcpy.copyParams })
    }

    /// The ticket of a host node, null for other kinds.
    pub fn ticket(&self) -> *mut c_void {
        self.ticket
    }

    /// The driver did not take the parameters.
    pub fn discard(&mut self) {
        if !self.ticket.is_null() {
            // SAFETY: the driver keeps no reference after a failed call.
            unsafe { callbacks::drop_ticket(self.ticket) };
        }
    }

    /// The driver took the parameters into a node of `graph`: what they refer to has to live as long.
    pub fn kept_by(&mut self, s: &mut Session, graph: CUgraph, node: CUgraphNode) {
        if self.function != 0 {
            s.graph_nodes.functions.insert(node as usize, self.function);
        }
        // Without a known graph tickets and ranges stay for good.
        if graph.is_null() {
            return;
        }
        give_up(s, node);
        let ticket = Some(self.ticket).filter(|t| !t.is_null()).and_then(|t| keep_ticket(s, graph, t));
        let ranges = self.staging.iter().filter_map(|offset| keep_range(s, Some(graph), *offset));
        let kept: Vec<_> = ticket.into_iter().chain(ranges).map(|object| (graph as usize, object as usize)).collect();
        if !kept.is_empty() {
            s.graph_nodes.kept.insert(node as usize, kept);
        }
    }

    /// As `kept_by`, for a new node; answers the address of an allocation. The bodies of a conditional node get their
    /// names.
    pub fn installed(&mut self, s: &mut Session, graph: CUgraph, node: CUgraphNode) -> Result<Option<u64>, Stop> {
        self.kept_by(s, graph, node);
        if let Some(child) = self.child().filter(|_| self.moved != 0) {
            s.graph_nodes.inside.put(node, self.moved, child);
        }
        match self.raw.type_ {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                // SAFETY: the type says which part was written.
                let allocation = unsafe { self.raw.__bindgen_anon_1.alloc };
                s.addresses.given(allocation.dptr, allocation.bytesize as u64, Of::Graph);
                return Ok(Some(allocation.dptr));
            }
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                // SAFETY: as above.
                let out = unsafe { self.raw.__bindgen_anon_1.conditional.phGraph_out };
                for (i, name) in self.bodies.iter().enumerate() {
                    // SAFETY: the driver made an array with one graph a body.
                    let body = if out.is_null() { ptr::null_mut() } else { unsafe { *out.add(i) } };
                    s.bind(Kind::Graph, *name, body.cast())?;
                    s.graph_nodes.inside.put(node, *name, body);
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

/// One side of a copy.
#[derive(Clone, Copy)]
pub struct Side {
    pub base: u64,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Side {
    pub fn source(c: &CUDA_MEMCPY3D) -> Side {
        let base = match c.srcMemoryType {
            CU_MEMORYTYPE_HOST => c.srcHost as u64,
            CU_MEMORYTYPE_ARRAY => 0,
            _ => c.srcDevice,
        };
        Side { base, x: c.srcXInBytes, y: c.srcY, z: c.srcZ, pitch: c.srcPitch, height: c.srcHeight }
    }

    pub fn destination(c: &CUDA_MEMCPY3D) -> Side {
        let base = match c.dstMemoryType {
            CU_MEMORYTYPE_HOST => c.dstHost as u64,
            CU_MEMORYTYPE_ARRAY => 0,
            _ => c.dstDevice,
        };
        Side { base, x: c.dstXInBytes, y: c.dstY, z: c.dstZ, pitch: c.dstPitch, height: c.dstHeight }
    }

    /// The shared host memory that the side covers, if it is host memory.
    pub fn shared(&self, s: &Session, c: &CUDA_MEMCPY3D) -> Option<HeapRange> {
        let (first, bytes) = self.span(c)?;
        shared_range(s, first, bytes)
    }

    /// First address and number of bytes from the first to the last one copied.
    pub fn span(&self, c: &CUDA_MEMCPY3D) -> Option<(u64, u64)> {
        let (width, rows, slices) = (c.WidthInBytes as u64, c.Height.max(1) as u64, c.Depth.max(1) as u64);
        let pitch = if self.pitch == 0 { (self.x as u64).checked_add(width)? } else { self.pitch as u64 };
        let height = if self.height == 0 { (self.y as u64).checked_add(rows)? } else { self.height as u64 };
        let slice = pitch.checked_mul(height)?;
        let skipped = (self.z as u64).checked_mul(slice)?.checked_add((self.y as u64).checked_mul(pitch)?)?;
        let first = self.base.checked_add(skipped)?.checked_add(self.x as u64)?;
        let bytes = (slices - 1).checked_mul(slice)?.checked_add((rows - 1).checked_mul(pitch)?)?.checked_add(width)?;
        Some((first, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copys_span_goes_from_its_first_to_its_last_byte() {
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        c.srcMemoryType = CU_MEMORYTYPE_HOST;
        c.srcHost = 0x1000 as *const c_void;
        (c.srcPitch, c.srcHeight) = (64, 10);
        (c.srcXInBytes, c.srcY, c.srcZ) = (4, 2, 1);
        (c.WidthInBytes, c.Height, c.Depth) = (16, 3, 2);
        assert_eq!(Side::source(&c).span(&c), Some((0x1000 + 640 + 128 + 4, 640 + 128 + 16)));
        c.srcPitch = usize::MAX;
        assert_eq!(Side::source(&c).span(&c), None);
    }
}
