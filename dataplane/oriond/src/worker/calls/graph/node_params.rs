//! Parameters of nodes that exist: asking for them, and changing them.

// UNSAFETY: reads the structs that the driver fills.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::field::{Bytes, CallbackId, Existing, Halves, List, Size};
use orion_wire::message::graph_node::{
    ATTRIBUTE_WORDS, AllocationNode, BATCH_OPS_MAX, COPY_WORDS, Geometry, GraphBatchMemOpNodeGetParams,
    GraphBatchMemOpNodeGetParamsReply, GraphBatchMemOpNodeSetParams, GraphEventRecordNodeGetEvent,
    GraphEventRecordNodeGetEventReply, GraphEventWaitNodeGetEvent, GraphEventWaitNodeGetEventReply,
    GraphHostNodeGetParams, GraphHostNodeGetParamsReply, GraphHostNodeSetParams, GraphKernelNodeGetAttribute,
    GraphKernelNodeGetAttributeReply, GraphKernelNodeGetParams, GraphKernelNodeGetParamsReply,
    GraphKernelNodeSetAttribute, GraphKernelNodeSetParams, GraphMemAllocNodeGetParams, GraphMemAllocNodeGetParamsReply,
    GraphMemcpyNodeGetParams, GraphMemcpyNodeGetParamsReply, GraphMemcpyNodeSetParams, GraphNodeSetParams, KernelNode,
    NODE_ACCESS_MAX, NodeParams, PoolProperties,
};
use orion_wire::message::image::PARAMETERS_MAX;
use orion_wire::message::virtual_memory::{Access, Location};
use orion_wire::record::Header;

use crate::worker::calls::graph::names::{Fresh, graph_of, node};
use crate::worker::calls::graph::nesting;
use crate::worker::calls::graph::params::Params;
use crate::worker::calls::handlers::handlers;
use crate::worker::out::callbacks;
use crate::worker::outcome::{Answer, Handled, finish};
use crate::worker::session::Session;

/// Changing a node of a graph.
fn set(
    s: &mut Session,
    node: CUgraphNode,
    params: &NodeParams<'_>,
    call: impl FnOnce(&'static Driver, CUgraphNode, &mut CUgraphNodeParams) -> CUresult,
) -> Answer {
    let mut params = Params::of(s, params)?;
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
    ($($name:ident($message:ident, $kind:ident, $p:ident) $argument:expr;)*) => {$(
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Handled {
            finish(|| {
                let q = $message::decode(&mut r)?;
                let node = node(s, q.node)?;
                set(s, node, &NodeParams::$kind(q.params), |d, node, params| {
                    let $p = &mut params.__bindgen_anon_1;
                    // SAFETY: `Params::of` filled the part of the union that this kind of node has, with handles of
                    // this session and pointers into buffers that outlive the call.
                    unsafe { d.$name(node, $argument) }
                })
            })
        }
    )*};
}

setters! {
    cuGraphKernelNodeSetParams_v2(GraphKernelNodeSetParams, Kernel, p) (&raw mut p.kernel).cast();
    cuGraphMemcpyNodeSetParams(GraphMemcpyNodeSetParams, Memcpy, p) &p.memcpy.copyParams;
    cuGraphHostNodeSetParams(GraphHostNodeSetParams, Host, p) (&raw mut p.host).cast();
    cuGraphBatchMemOpNodeSetParams(GraphBatchMemOpNodeSetParams, Batch, p) (&raw mut p.memOp).cast();
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
    (0..PARAMETERS_MAX)
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
    fn cuGraphNodeSetParams(s, r, reply) {
        let q = GraphNodeSetParams::decode(r)?;
        let node = node(s, q.node)?;
        // SAFETY: as for the setters of one kind.
        set(s, node, &q.params, |d, node, params| unsafe { d.cuGraphNodeSetParams(node, params) })
    }

    fn cuGraphKernelNodeGetParams_v2(s, r, reply) {
        let q = GraphKernelNodeGetParams::decode(r)?;
        let node = node(s, q.node)?;
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
            None => Fresh::one(q.name).name(s, Kind::Function, function.cast())?,
        };
        let packed = packed(&layout, k.kernelParams, k.extra);
        let params = KernelNode {
            function: Existing(name),
            kernel: Existing(if k.func.is_null() { name } else { kernel }),
            context: Existing(context_name(s, k.ctx)),
            geometry: Geometry {
                grid: [k.gridDimX, k.gridDimY, k.gridDimZ],
                block: [k.blockDimX, k.blockDimY, k.blockDimZ],
                shared_bytes: k.sharedMemBytes,
            },
            parameters: Bytes::from(&packed[..]),
        };
        let told = layout.iter().map(|(offset, size)| Halves(*size as u32, *offset as u32)).collect();
        let layout = List::of(told).expect("no more than there is room for");
        GraphKernelNodeGetParamsReply { params, layout }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphMemcpyNodeGetParams(s, r, reply) {
        let node = node(s, GraphMemcpyNodeGetParams::decode(r)?.node)?;
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
        let copy = unsafe { std::mem::transmute::<CUDA_MEMCPY3D, [u64; COPY_WORDS]>(c) };
        GraphMemcpyNodeGetParamsReply { copy }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphHostNodeGetParams(s, r, reply) {
        let node = node(s, GraphHostNodeGetParams::decode(r)?.node)?;
        let mut h = CUDA_HOST_NODE_PARAMS { fn_: None, userData: ptr::null_mut() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphHostNodeGetParams(node, &mut h) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        // Every host function in the worker was put there with a ticket.
        // SAFETY: the node is alive, and so is its ticket.
        let callback = CallbackId(if h.userData.is_null() { 0 } else { unsafe { callbacks::number_of(h.userData) } });
        GraphHostNodeGetParamsReply { callback }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphEventRecordNodeGetEvent(s, r, reply) {
        let node = node(s, GraphEventRecordNodeGetEvent::decode(r)?.node)?;
        let mut event = ptr::null_mut();
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphEventRecordNodeGetEvent(node, &mut event) };
        let event = Existing(s.objects.name_of(Kind::Event, event.cast()).unwrap_or(0));
        GraphEventRecordNodeGetEventReply { event }.encode(reply);
        Ok(code)
    }

    fn cuGraphEventWaitNodeGetEvent(s, r, reply) {
        let node = node(s, GraphEventWaitNodeGetEvent::decode(r)?.node)?;
        let mut event = ptr::null_mut();
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphEventWaitNodeGetEvent(node, &mut event) };
        let event = Existing(s.objects.name_of(Kind::Event, event.cast()).unwrap_or(0));
        GraphEventWaitNodeGetEventReply { event }.encode(reply);
        Ok(code)
    }

    fn cuGraphBatchMemOpNodeGetParams(s, r, reply) {
        let node = node(s, GraphBatchMemOpNodeGetParams::decode(r)?.node)?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut b: CUDA_BATCH_MEM_OP_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphBatchMemOpNodeGetParams(node, &mut b) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        let count = if b.paramArray.is_null() { 0 } else { (b.count as usize).min(BATCH_OPS_MAX) };
        // SAFETY: the driver's array has `count` elements; all of an element's bytes belong to `pad`.
        let operations = (0..count).map(|i| unsafe { (*b.paramArray.add(i)).pad }).collect();
        let operations = List::of(operations).expect("no more than there is room for");
        let context = Existing(context_name(s, b.ctx));
        GraphBatchMemOpNodeGetParamsReply { context, flags: b.flags, operations }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphMemAllocNodeGetParams(s, r, reply) {
        let node = node(s, GraphMemAllocNodeGetParams::decode(r)?.node)?;
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut a: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphMemAllocNodeGetParams(node, &mut a) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        let count = if a.accessDescs.is_null() { 0 } else { a.accessDescCount.min(NODE_ACCESS_MAX) };
        let access = (0..count).map(|i| {
            // SAFETY: the driver's array has that many elements.
            let access = unsafe { *a.accessDescs.add(i) };
            Access { location: location(s, access.location), flags: access.flags }
        });
        let access = List::of(access.collect()).expect("no more than there is room for");
        let p = &a.poolProps;
        let pool = PoolProperties {
            allocation_type: p.allocType,
            handle_types: p.handleTypes,
            location: location(s, p.location),
            bytes_max: Size::of(p.maxSize),
            usage: p.usage,
        };
        let params = AllocationNode { pool, bytes: Size::of(a.bytesize), access };
        GraphMemAllocNodeGetParamsReply { params, address: a.dptr }.encode(reply);
        Ok(CUDA_SUCCESS)
    }

    fn cuGraphKernelNodeGetAttribute(s, r, reply) {
        let q = GraphKernelNodeGetAttribute::decode(r)?;
        let node = node(s, q.node)?;
        // SAFETY: a union of integers and pointers, for which zero is a value.
        let mut value: CUkernelNodeAttrValue = unsafe { std::mem::zeroed() };
        // SAFETY: a node of this session and a valid out pointer.
        let code = unsafe { s.driver.cuGraphKernelNodeGetAttribute(node, q.attribute, &mut value) };
        // SAFETY: the same size; the union was zeroed before the driver wrote its part.
        let mut value = unsafe { std::mem::transmute::<CUkernelNodeAttrValue, [u64; ATTRIBUTE_WORDS]>(value) };
        if has_event(q.attribute) {
            value[0] = s.objects.name_of(Kind::Event, value[0] as *mut c_void).unwrap_or(0);
        }
        GraphKernelNodeGetAttributeReply { value }.encode(reply);
        Ok(code)
    }

    fn cuGraphKernelNodeSetAttribute(s, r, reply) {
        let GraphKernelNodeSetAttribute { node: name, attribute, mut value } = GraphKernelNodeSetAttribute::decode(r)?;
        let node = node(s, name)?;
        if has_event(attribute) {
            value[0] = s.handle(Kind::Event, value[0])? as u64;
        }
        // SAFETY: the same size, and every bit pattern is a value of the union.
        let value = unsafe { std::mem::transmute::<[u64; ATTRIBUTE_WORDS], CUkernelNodeAttrValue>(value) };
        // SAFETY: a node of this session and a valid value.
        Ok(unsafe { s.driver.cuGraphKernelNodeSetAttribute(node, attribute, &value) })
    }
}

/// A place, with the application's number of a device.
fn location(s: &Session, place: CUmemLocation) -> Location {
    let id = match place.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => s.vgpus.devices().iter().position(|d| *d == place.id).unwrap_or(0) as i32,
        _ => place.id,
    };
    Location { kind: place.type_, id }
}

fn has_event(attribute: u32) -> bool {
    matches!(attribute, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
}
