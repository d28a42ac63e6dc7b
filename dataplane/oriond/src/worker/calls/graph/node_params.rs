//! Parameters of nodes that exist: asking for them, and changing them.

// UNSAFETY: reads the structs that the driver fills.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::record::Header;
use orion_wire::{Reader, Writer};

use crate::worker::calls::graph::names::{Fresh, graph_of, node};
use crate::worker::calls::graph::nesting;
use crate::worker::calls::graph::params::{ACCESS_MAX, BATCH_OPS_MAX, COPY_WORDS, Params};
use crate::worker::calls::handlers::handlers;
use crate::worker::out::callbacks;
use crate::worker::outcome::{Answer, Handled, finish};
use crate::worker::session::Session;

/// Changing a node of a graph: `node, parameters`.
fn set(
    s: &mut Session,
    r: &mut Reader<'_>,
    only: Option<CUgraphNodeType>,
    call: impl FnOnce(&'static Driver, CUgraphNode, &mut CUgraphNodeParams) -> CUresult,
) -> Answer {
    let node = node(s, r)?;
    let mut params = Params::get(s, r, only)?;
    nesting::admit_change(s, graph_of(s, node), &params)?;
    let code = call(s.driver, node, params.raw());
    if code == CUDA_SUCCESS {
        let graph = graph_of(s, node);
        params.kept_by(s, graph, node);
    } else {
        params.discard();
    }
    Ok(code)
}

macro_rules! setters {
    ($($name:ident($p:ident, $kind:ident) $argument:expr;)*) => {$(
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Handled {
            finish(|| set(s, &mut r, Some($kind), |d, node, params| {
                let $p = &mut params.__bindgen_anon_1;
                // SAFETY: `Params::get` filled the part of the union that this kind of node has, with handles of
                // this session and pointers into buffers that outlive the call.
                unsafe { d.$name(node, $argument) }
            }))
        }
    )*};
}

setters! {
    cuGraphKernelNodeSetParams_v2(p, CU_GRAPH_NODE_TYPE_KERNEL) (&raw mut p.kernel).cast();
    cuGraphMemcpyNodeSetParams(p, CU_GRAPH_NODE_TYPE_MEMCPY) &p.memcpy.copyParams;
    cuGraphHostNodeSetParams(p, CU_GRAPH_NODE_TYPE_HOST) (&raw mut p.host).cast();
    cuGraphBatchMemOpNodeSetParams(p, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) (&raw mut p.memOp).cast();
}

/// The client's name of a context.
fn context_name(s: &Session, context: CUcontext) -> u64 {
    (0..s.vgpus.visible_count())
        .find(|&ordinal| s.primary(ordinal) == Some(context))
        .map(|ordinal| Handle::primary_context(ordinal).0)
        .or_else(|| s.objects.name_of(Kind::Context, context.cast()))
        .unwrap_or(0)
}

/// Offsets and sizes of a function's parameters.
fn layout(driver: &'static Driver, function: CUfunction) -> Vec<(usize, usize)> {
    // The largest parameter space is 32,764 bytes, so a function cannot have more parameters than that.
    (0..32_764)
        .map_while(|i| {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: a function of the driver and valid out pointers.
            let code = unsafe { driver.cuFuncGetParamInfo(function, i, &mut offset, &mut size) };
            (code == CUDA_SUCCESS).then_some((offset, size))
        })
        .collect()
}

/// Parameters that the driver keeps for a node, packed.
fn packed(layout: &[(usize, usize)], each: *mut *mut c_void, extra: *mut *mut c_void) -> Vec<u8> {
    let mut out = vec![0; layout.iter().map(|(offset, size)| offset + size).max().unwrap_or(0)];
    if !each.is_null() {
        for (i, (offset, size)) in layout.iter().enumerate() {
            // SAFETY: the driver's array has one pointer a parameter, each to as many bytes as it has.
            unsafe { ptr::copy_nonoverlapping((*each.add(i)).cast(), out.as_mut_ptr().add(*offset), *size) };
        }
    } else if !extra.is_null() {
        let (mut buffer, mut size) = (ptr::null::<u8>(), 0);
        for pair in 0..2 {
            // SAFETY: the driver's own list, which ends with its end mark.
            match unsafe { *extra.add(2 * pair) } as usize as u32 {
                // SAFETY: as above.
                CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT => buffer = unsafe { *extra.add(2 * pair + 1) }.cast(),
                // SAFETY: as above.
                CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT => size = unsafe { *(*extra.add(2 * pair + 1)).cast::<usize>() },
                _ => break,
            }
        }
        if !buffer.is_null() {
            // SAFETY: `size` bytes lie at `buffer`.
            unsafe { ptr::copy_nonoverlapping(buffer, out.as_mut_ptr(), size.min(out.len())) };
        }
    }
    out
}

handlers! {
    /// node, parameters
    fn cuGraphNodeSetParams(s, r, reply) {
        // SAFETY: as for the setters of one kind.
        set(s, r, None, |d, node, params| unsafe { d.cuGraphNodeSetParams(node, params) })
    }

    /// node, names for a function -> function, kernel, context, grid, block, shared bytes, layout, parameters
    fn cuGraphKernelNodeGetParams_v2(s, r, reply) {
        let node = node(s, r)?;
        let mut fresh = Fresh::get(r)?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut k: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphKernelNodeGetParams_v2(node, &mut k) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        let function: CUfunction = if k.func.is_null() { k.kern.cast() } else { k.func };
        let layout = layout(s.driver, function);
        // The driver may answer the function of a kernel under which the client knows it; what the client said
        // when it made the node is the better name.
        let kernel = s.objects.name_of(Kind::Function, k.kern.cast()).unwrap_or(0);
        let name = match s.graph_nodes.functions.get(&(node as usize)) {
            Some(word) => *word,
            None if s.objects.name_of(Kind::Function, function.cast()).is_none() && kernel != 0 => kernel,
            None => fresh.name(s, Kind::Function, function.cast())?,
        };
        reply.word(name);
        reply.word(if k.func.is_null() { name } else { kernel });
        reply.word(context_name(s, k.ctx));
        let n = [k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY, k.blockDimZ, k.sharedMemBytes];
        for v in n {
            reply.word(v as u64);
        }
        reply.word(layout.len() as u64);
        for (offset, size) in &layout {
            reply.word((*offset as u64) << 32 | *size as u64);
        }
        reply.bytes(&packed(&layout, k.kernelParams, k.extra));
        Ok(CUDA_SUCCESS)
    }

    /// node -> the copy
    fn cuGraphMemcpyNodeGetParams(s, r, reply) {
        let node = node(s, r)?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphMemcpyNodeGetParams(node, &mut c) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        for array in [&mut c.srcArray, &mut c.dstArray] {
            *array = s.objects.name_of(Kind::Array, array.cast()).unwrap_or(0) as CUarray;
        }
        c.reserved0 = ptr::null_mut();
        c.reserved1 = ptr::null_mut();
        // SAFETY: the same size; the four bytes of padding after each memory type are zero because the struct was.
        for word in unsafe { std::mem::transmute::<CUDA_MEMCPY3D, [u64; COPY_WORDS]>(c) } {
            reply.word(word);
        }
        Ok(CUDA_SUCCESS)
    }

    /// node -> function, data
    fn cuGraphHostNodeGetParams(s, r, reply) {
        let node = node(s, r)?;
        let mut h = CUDA_HOST_NODE_PARAMS { fn_: None, userData: ptr::null_mut() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphHostNodeGetParams(node, &mut h) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        // Every host function in the worker was put there with a ticket.
        // SAFETY: the node is alive, and so is its ticket.
        reply.word(if h.userData.is_null() { 0 } else { unsafe { callbacks::number_of(h.userData) } });
        Ok(CUDA_SUCCESS)
    }

    /// node -> event
    fn cuGraphEventRecordNodeGetEvent(s, r, reply) {
        let node = node(s, r)?;
        let mut event = ptr::null_mut();
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphEventRecordNodeGetEvent(node, &mut event) };
        reply.word(s.objects.name_of(Kind::Event, event.cast()).unwrap_or(0));
        Ok(code)
    }

    /// node -> event
    fn cuGraphEventWaitNodeGetEvent(s, r, reply) {
        let node = node(s, r)?;
        let mut event = ptr::null_mut();
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphEventWaitNodeGetEvent(node, &mut event) };
        reply.word(s.objects.name_of(Kind::Event, event.cast()).unwrap_or(0));
        Ok(code)
    }

    /// node -> context, flags, operations
    fn cuGraphBatchMemOpNodeGetParams(s, r, reply) {
        let node = node(s, r)?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut b: CUDA_BATCH_MEM_OP_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphBatchMemOpNodeGetParams(node, &mut b) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        let count = if b.paramArray.is_null() { 0 } else { b.count.min(BATCH_OPS_MAX as u32) };
        reply.word(context_name(s, b.ctx));
        reply.word(b.flags as u64);
        reply.word(count as u64);
        for i in 0..count as usize {
            // SAFETY: the driver's array has `count` elements; all of an element's bytes belong to `pad`.
            for word in unsafe { (*b.paramArray.add(i)).pad } {
                reply.word(word);
            }
        }
        Ok(CUDA_SUCCESS)
    }

    /// node -> pool properties, bytes, address, access descriptions
    fn cuGraphMemAllocNodeGetParams(s, r, reply) {
        let node = node(s, r)?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut a: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphMemAllocNodeGetParams(node, &mut a) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        let ordinal = |location: CUmemLocation| match location.type_ {
            CU_MEM_LOCATION_TYPE_DEVICE => s.vgpus.devices().iter().position(|d| *d == location.id).unwrap_or(0) as u64,
            _ => location.id as u32 as u64,
        };
        let p = &a.poolProps;
        let location = (p.location.type_ as u64, ordinal(p.location));
        let kinds = [p.allocType as u64, p.handleTypes as u64];
        let sizes = [p.maxSize as u64, p.usage as u64, a.bytesize as u64, a.dptr];
        for word in kinds.into_iter().chain([location.0, location.1]).chain(sizes) {
            reply.word(word);
        }
        let count = if a.accessDescs.is_null() { 0 } else { a.accessDescCount.min(ACCESS_MAX) };
        reply.word(count as u64);
        for i in 0..count {
            // SAFETY: the driver's array has that many elements.
            let access = unsafe { *a.accessDescs.add(i) };
            for word in [access.location.type_ as u64, ordinal(access.location), access.flags as u64] {
                reply.word(word);
            }
        }
        Ok(CUDA_SUCCESS)
    }

    /// node, attribute -> eight words
    fn cuGraphKernelNodeGetAttribute(s, r, reply) {
        let (node, attribute) = (node(s, r)?, r.word()? as u32);
        // SAFETY: a union of integers and pointers, for which zero is a value.
        let mut value: CUkernelNodeAttrValue = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphKernelNodeGetAttribute(node, attribute, &mut value) };
        // SAFETY: the same size; the union was zeroed before the driver wrote its part.
        let mut words = unsafe { std::mem::transmute::<CUkernelNodeAttrValue, [u64; 8]>(value) };
        if has_event(attribute) {
            words[0] = s.objects.name_of(Kind::Event, words[0] as *mut c_void).unwrap_or(0);
        }
        for word in words {
            reply.word(word);
        }
        Ok(code)
    }

    /// node, attribute, eight words
    fn cuGraphKernelNodeSetAttribute(s, r, reply) {
        let (node, attribute) = (node(s, r)?, r.word()? as u32);
        let mut words = [0u64; 8];
        for word in &mut words {
            *word = r.word()?;
        }
        if has_event(attribute) {
            words[0] = s.handle(Kind::Event, words[0])? as u64;
        }
        // SAFETY: the same size, and every bit pattern is a value of the union.
        let value = unsafe { std::mem::transmute::<[u64; 8], CUkernelNodeAttrValue>(words) };
        // SAFETY: a node of this session and a valid value.
        Ok(unsafe { s.driver.cuGraphKernelNodeSetAttribute(node, attribute, &value) })
    }
}

fn has_event(attribute: u32) -> bool {
    matches!(attribute, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
}
