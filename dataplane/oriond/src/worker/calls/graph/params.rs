//! Parameters of nodes, from the wire.
//!
//! Every kind is decoded into the generic `CUgraphNodeParams`, whose parts are also what the older functions for
//! one kind of node take.

// UNSAFETY: builds the driver's structs from words, and reads those that the driver fills.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::copy::Copy3D;
use orion_wire::message::field::Field;
use orion_wire::record::HeapRange;
use orion_wire::{Fault, Reader, Writer};

use crate::worker::calls::graph::keep::{give_up, keep_range, keep_ticket};
use crate::worker::out::callbacks::{self, kind};
use crate::worker::outcome::Stop;
use crate::worker::session::Session;
use crate::worker::session::reach::shared_range;
use crate::worker::state::addresses as address;
use crate::worker::state::addresses::Of;

/// The words of a `CUDA_MEMCPY3D`, as they lie in memory.
pub const COPY_WORDS: usize = size_of::<CUDA_MEMCPY3D>() / 8;

pub const BATCH_OPS_MAX: usize = 1024;

const BODIES_MAX: usize = 4096;

pub const ACCESS_MAX: usize = 256;

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
    /// Of a node of the one kind that the caller takes, if it is not all of them. The kind says which part of a union
    /// is filled, so the driver's functions for one kind would take the words of another for their pointers.
    pub fn get(s: &mut Session, r: &mut Reader<'_>, only: Option<CUgraphNodeType>) -> Result<Params, Stop> {
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
        p.raw.type_ = r.word()? as u32;
        if only.is_some_and(|kind| kind != p.raw.type_) {
            return Err(Fault("parameters of another kind of node").into());
        }
        match p.raw.type_ {
            CU_GRAPH_NODE_TYPE_KERNEL => p.kernel(s, r)?,
            CU_GRAPH_NODE_TYPE_MEMCPY => p.memcpy(s, r)?,
            CU_GRAPH_NODE_TYPE_MEMSET => {
                let (dst, pitch, value, element) = (r.word()?, r.word()?, r.word()? as u32, r.word()? as u32);
                let (width, height) = (r.word()?, r.word()?);
                let bytes = address::rows(pitch, height, address::line(&[width, element.into()])?)?;
                p.raw.__bindgen_anon_1.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                    dst: s.reach(ClaimedDevice::new(dst), bytes)?.raw(),
                    pitch: pitch as usize,
                    value,
                    elementSize: element,
                    width: width as usize,
                    height: height as usize,
                    ctx: s.context(r.word()?)?,
                };
            }
            CU_GRAPH_NODE_TYPE_HOST => {
                p.ticket = s.callbacks.ticket(r.word()?, kind::HOST_FUNCTION, 0, false, true);
                p.raw.__bindgen_anon_1.host =
                    CUDA_HOST_NODE_PARAMS_v2 { fn_: Some(callbacks::host_function), userData: p.ticket };
            }
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let (word, ownership) = (r.word()?, r.word()? as u32);
                let graph = s.existing(Kind::Graph, word)?.cast();
                p.raw.__bindgen_anon_1.graph = CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ownership };
                p.moved = if ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE { word } else { 0 };
            }
            CU_GRAPH_NODE_TYPE_EMPTY => {}
            CU_GRAPH_NODE_TYPE_WAIT_EVENT | CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                let event = s.existing(Kind::Event, r.word()?)?.cast();
                p.raw.__bindgen_anon_1.eventWait = CUDA_EVENT_WAIT_NODE_PARAMS { event };
            }
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => p.allocation(s, r)?,
            CU_GRAPH_NODE_TYPE_MEM_FREE => {
                p.raw.__bindgen_anon_1.free =
                    CUDA_MEM_FREE_NODE_PARAMS { dptr: s.reach(ClaimedDevice::new(r.word()?), 1)?.raw() };
            }
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => p.batch(s, r)?,
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                let (handle, type_, size) = (r.word()?, r.word()? as u32, r.word()? as u32);
                let ctx = s.context(r.word()?)?;
                p.bodies = r.list(BODIES_MAX, |r| r.word())?;
                if p.bodies.len() != size as usize {
                    return Err(Fault("conditional node without a name for each body").into());
                }
                p.raw.__bindgen_anon_1.conditional =
                    CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, phGraph_out: ptr::null_mut(), ctx };
            }
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED.into()),
        }
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

    /// function, kernel, context, grid, block, shared bytes, parameters
    fn kernel(&mut self, s: &mut Session, r: &mut Reader<'_>) -> Result<(), Stop> {
        let (func, kern) = (r.word()?, r.word()?);
        let ctx = s.context(r.word()?)?;
        self.function = if func != 0 { func } else { kern };
        let mut n = [0u32; 7];
        for v in &mut n {
            *v = r.word()? as u32;
        }
        self._blob = r.bytes()?.to_vec();
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
        let (mut f, mut k) = (s.handle(Kind::Function, func)?, s.handle(Kind::Function, kern)?);
        // Clients use kernels as functions; a node takes them in a place of their own.
        if s.kernels.contains(&(f as usize)) {
            (f, k) = (ptr::null_mut(), f);
        }
        self.raw.__bindgen_anon_1.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
            func: f.cast(),
            gridDimX: n[0],
            gridDimY: n[1],
            gridDimZ: n[2],
            blockDimX: n[3],
            blockDimY: n[4],
            blockDimZ: n[5],
            sharedMemBytes: n[6],
            kernelParams: ptr::null_mut(),
            extra,
            kern: k.cast(),
            ctx,
        };
        Ok(())
    }

    /// flags, context, the copy, offsets of the ranges set aside for it
    fn memcpy(&mut self, s: &mut Session, r: &mut Reader<'_>) -> Result<(), Stop> {
        let flags = r.word()? as i32;
        let copyCtx = s.context(r.word()?)?;
        let copyParams = get_copy(s, r)?;
        self.staging = r.list(2, |r| r.word())?;
        self.raw.__bindgen_anon_1.memcpy = CUDA_MEMCPY_NODE_PARAMS { flags, reserved: 0, copyCtx, copyParams };
        Ok(())
    }

    /// pool properties, bytes, access descriptions
    fn allocation(&mut self, s: &mut Session, r: &mut Reader<'_>) -> Result<(), Stop> {
        let location = |s: &Session, type_: u32, id: i32| -> Result<CUmemLocation, CUresult> {
            let id = if type_ == CU_MEM_LOCATION_TYPE_DEVICE { s.device(id)? } else { id };
            Ok(CUmemLocation { type_, id })
        };
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut props: CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = r.word()? as u32;
        props.handleTypes = r.word()? as u32;
        props.location = location(s, r.word()? as u32, r.word()? as u32 as i32)?;
        props.maxSize = r.word()? as usize;
        props.usage = r.word()? as u16;
        let bytesize = r.word()? as usize;
        for (type_, id, flags) in r.list(ACCESS_MAX, |r| Ok((r.word()? as u32, r.word()? as u32, r.word()? as u32)))? {
            self._access.push(CUmemAccessDesc { location: location(s, type_, id as i32)?, flags });
        }
        self.raw.__bindgen_anon_1.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
            poolProps: props,
            accessDescs: if self._access.is_empty() { ptr::null() } else { self._access.as_ptr() },
            accessDescCount: self._access.len(),
            bytesize,
            dptr: 0,
        };
        Ok(())
    }

    /// context, flags, operations as they lie in memory
    fn batch(&mut self, s: &mut Session, r: &mut Reader<'_>) -> Result<(), Stop> {
        let ctx = s.context(r.word()?)?;
        let flags = r.word()? as u32;
        self._ops = r.list(BATCH_OPS_MAX, |r| {
            let mut pad = [0; 6];
            for word in &mut pad {
                *word = r.word()?;
            }
            Ok(CUstreamBatchMemOpParams { pad })
        })?;
        s.mem_ops(&mut self._ops)?;
        self.raw.__bindgen_anon_1.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
            ctx,
            count: self._ops.len() as u32,
            paramArray: self._ops.as_mut_ptr(),
            flags,
        };
        Ok(())
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

    /// As `kept_by`, for a new node; answers what creating it made: the address of an allocation, or the names of a
    /// conditional node's bodies.
    pub fn installed(
        &mut self,
        s: &mut Session,
        graph: CUgraph,
        node: CUgraphNode,
        reply: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.kept_by(s, graph, node);
        if let Some(child) = self.child().filter(|_| self.moved != 0) {
            s.graph_nodes.inside.put(node, self.moved, child);
        }
        match self.raw.type_ {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                // SAFETY: the type says which part was written.
                let allocation = unsafe { self.raw.__bindgen_anon_1.alloc };
                s.addresses.given(allocation.dptr, allocation.bytesize as u64, Of::Graph);
                reply.word(allocation.dptr);
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
        Ok(())
    }
}

/// A copy from the wire, both sides decided on.
fn get_copy(s: &mut Session, r: &mut Reader<'_>) -> Result<CUDA_MEMCPY3D, Stop> {
    Ok(*s.copy_3d(&Copy3D::get(r)?)?.raw())
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
