//! Graphs: nodes, edges, instantiation, launch.
//!
//! A launch is one piece of work in its stream that runs the nodes one after the other in an order the edges allow.

// UNSAFETY: C entry points.

use std::collections::HashMap;
use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Raw, api, get, handle, list, put, put_some, text};
use crate::clock::now_ns;
use crate::condition::{CONDITIONS, Condition, NEXT_HANDLE};
use crate::context::{self, Context, Stream, current_or};
use crate::copy::Copy3D;
use crate::event::{EVENTS, Event};
use crate::graph::{
    self, Conditional, EXECS, GRAPHS, Graph, GraphAllocation, GraphExec, NEXT_ID, NODES, Node, Step, Work, address,
    allocation, bodies, exec, graph, lock, memory_of_graphs, node,
};
use crate::launch::{KernelLaunch, pack_arguments};
use crate::log::refuse;
use crate::memset::Set;
use crate::stream_memory::mem_ops;
use crate::vram::{self, Kind};
use crate::{capture, conditional, cupti, device, dot, module, stream};

impl Graph {
    fn clone_graph(&self) -> R<Arc<Self>> {
        if conditional::any(&self.steps()?) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let copy = Self::new();
        let (nodes, edges) = {
            let s = lock(&self.state)?;
            (s.nodes.clone(), s.edges.clone())
        };
        let mut new: HashMap<usize, usize> = HashMap::new();
        for n in &nodes {
            let work = match &*lock(&n.work)? {
                Work::Child(g) => Work::Child(g.clone_graph()?),
                w => w.clone(),
            };
            new.insert(address(n), address(&copy.add(&[], work, address(n))?));
        }
        lock(&copy.state)?.edges = edges.iter().filter_map(|(a, b)| Some((*new.get(a)?, *new.get(b)?))).collect();
        *lock(&copy.objects)? = lock(&self.objects)?.clone();
        Ok(copy)
    }
}

fn graph_of(n: &Node) -> R<Arc<Graph>> {
    GRAPHS.all().into_iter().find(|g| g.id == n.graph).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn node_type(w: &Work) -> CUgraphNodeType {
    match w {
        Work::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
        Work::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
        Work::Copy(_) => CU_GRAPH_NODE_TYPE_MEMCPY,
        Work::Set(_) => CU_GRAPH_NODE_TYPE_MEMSET,
        Work::Host(_) => CU_GRAPH_NODE_TYPE_HOST,
        Work::MemOps(_) => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        Work::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Work::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        Work::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
        Work::Alloc(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        Work::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
        Work::Conditional(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
    }
}

/// What the launch has to know before it runs: events it waits for and events it reaches.
fn gather(steps: &[Step], after: &mut Vec<context::Point>, records: &mut Vec<(Arc<Event>, Arc<AtomicU64>)>) {
    for s in steps.iter().filter(|s| s.enabled) {
        match &s.work {
            Work::Wait(e) => after.extend(e.point()),
            Work::Record(e) => records.push((e.clone(), Arc::new(AtomicU64::new(0)))),
            _ => s.bodies.iter().for_each(|b| gather(b, after, records)),
        }
    }
}

fn run_steps(
    steps: &[Step],
    c: &Arc<Context>,
    records: &[(Arc<Event>, Arc<AtomicU64>)],
    launch: Option<(cupti::Origin, u32)>,
) {
    for s in steps.iter().filter(|s| s.enabled) {
        match &s.work {
            Work::Child(_) => s.bodies.iter().for_each(|b| run_steps(b, c, records, launch)),
            Work::Conditional(node) => node.run(c, |i| run_steps(&s.bodies[i], c, records, launch)),
            Work::Record(e) => {
                for (_, cell) in records.iter().filter(|(r, _)| Arc::ptr_eq(r, e)) {
                    cell.store(now_ns(), Ordering::Release);
                }
            }
            w => w.run(c, launch.map(|(origin, graph)| origin.node(graph, s.node as u64))),
        }
    }
}

/// Pageable memory is read when a graph is launched, as an H200 does: what the graph's own copies and host functions
/// write to it is not seen by its copies from it.
fn take_pageable(steps: &mut [Step]) -> R {
    for s in steps.iter_mut().filter(|s| s.enabled) {
        match &mut s.work {
            Work::Copy(copy) if copy.pageable().0 => copy.stage()?,
            _ => s.bodies.iter_mut().try_for_each(|b| take_pageable(b))?,
        }
    }
    Ok(())
}

fn launch(x: &Arc<GraphExec>, s: &Arc<Stream>) -> R {
    if let Some(c) = s.capture() {
        c.invalidate();
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut steps = x.steps()?;
    take_pageable(&mut steps)?;
    let (mut after, mut records) = (Vec::new(), Vec::new());
    gather(&steps, &mut after, &mut records);
    let mut last = lock(&x.last)?;
    after.extend(last.take());
    after.retain(|p| !Arc::ptr_eq(&p.stream, s));
    let cells = records.clone();
    let launch = cupti::call(s.id).map(|origin| (origin, x.id as u32));
    // The executable graph may be destroyed before it has run.
    let shares = lock(&x.objects)?.clone();
    let run = move |c: &Arc<Context>| {
        conditional::assign_defaults(&steps);
        run_steps(&steps, c, &cells, launch);
        drop(shares);
    };
    let point = s.submit(after, Box::new(run))?;
    *last = Some(point.clone());
    drop(last);
    for (e, cell) in records {
        e.record_at(point.clone(), cell);
    }
    Ok(())
}

pub(super) fn plain_edge() -> CUgraphEdgeData {
    CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] }
}

pub(super) fn nodes_of(p: *const CUgraphNode, n: usize) -> R<Vec<usize>> {
    // SAFETY: the caller passes `n` handles.
    unsafe { list(p, n)? }.into_iter().map(|h| node(h).map(|n| address(&n))).collect()
}

fn add_node(out: *mut CUgraphNode, g: CUgraph, after: *const CUgraphNode, n: usize, work: Work) -> R {
    let g = graph(g)?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let made = g.add(&nodes_of(after, n)?, work, 0)?;
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, handle(&made)) }
}

fn kernel_work(p: &CUDA_KERNEL_NODE_PARAMS) -> R<Work> {
    kernel_with_attributes(p, (false, None))
}

/// New parameters leave the attributes of a node as they are.
fn changed_kernel(h: CUgraphNode, p: &CUDA_KERNEL_NODE_PARAMS) -> R<Work> {
    let Work::Kernel(k) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
    kernel_with_attributes(p, (k.cooperative, k.cluster))
}

fn kernel_with_attributes(p: &CUDA_KERNEL_NODE_PARAMS, attributes: (bool, Option<[u32; 3]>)) -> R<Work> {
    let c = current_or(p.ctx)?;
    let f = if p.func.is_null() { p.kern.cast() } else { p.func };
    let function = module::resolve(f, Some(&c))?;
    // SAFETY: the application's argument arrays.
    let params = unsafe { pack_arguments(&function, p.kernelParams, p.extra)? };
    let grid = [p.gridDimX, p.gridDimY, p.gridDimZ];
    let block = [p.blockDimX, p.blockDimY, p.blockDimZ];
    Ok(Work::Kernel(Arc::new(KernelLaunch::new(f, &c, grid, block, p.sharedMemBytes, params, attributes)?)))
}

fn widen(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
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

fn kernel_params(h: CUgraphNode) -> R<CUDA_KERNEL_NODE_PARAMS> {
    let n = node(h)?;
    let Work::Kernel(k) = lock(&n.work)?.clone() else { return Err(CUDA_ERROR_INVALID_VALUE) };
    let func = k.function.func();
    let mut shown = lock(&n.shown)?;
    // SAFETY: every offset is inside the argument buffer, which lives as long as the node's work.
    *shown = func
        .params
        .iter()
        .map(|p| Raw(unsafe { k.params.as_ptr().add(p.offset as usize) }.cast_mut().cast()))
        .collect();
    let is_kernel = module::KERNELS.get(k.handle as CUkernel).is_some();
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: if is_kernel { handle(&k.function) } else { k.handle as CUfunction },
        gridDimX: k.grid[0],
        gridDimY: k.grid[1],
        gridDimZ: k.grid[2],
        blockDimX: k.block[0],
        blockDimY: k.block[1],
        blockDimZ: k.block[2],
        sharedMemBytes: k.shared,
        kernelParams: shown.as_ptr().cast_mut().cast(),
        extra: std::ptr::null_mut(),
        kern: if is_kernel { k.handle as CUkernel } else { std::ptr::null_mut() },
        ctx: context::by_id(k.function.context).as_ref().map_or(std::ptr::null_mut(), handle),
    })
}

fn copy_work(p: CUDA_MEMCPY3D) -> R<Work> {
    let c = Copy3D { raw: Raw(p), staged: None };
    c.check()?;
    Ok(Work::Copy(c))
}

fn set_work(p: &CUDA_MEMSET_NODE_PARAMS) -> R<Work> {
    let s = Set {
        dst: p.dst,
        pitch: p.pitch as u64,
        value: p.value,
        element: p.elementSize,
        width: p.width as u64,
        height: p.height as u64,
    };
    s.check()?;
    Ok(Work::Set(s))
}

fn event(h: CUevent) -> R<Arc<Event>> {
    EVENTS.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The work of a generic node description. Allocation nodes write their address back.
fn generic_work(p: *mut CUgraphNodeParams) -> R<Work> {
    // SAFETY: the caller's description, read by the member its type names.
    unsafe {
        let v = get(p)?;
        let u = v.__bindgen_anon_1;
        Ok(match v.type_ {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                let k = u.kernel;
                kernel_work(&CUDA_KERNEL_NODE_PARAMS {
                    func: k.func,
                    gridDimX: k.gridDimX,
                    gridDimY: k.gridDimY,
                    gridDimZ: k.gridDimZ,
                    blockDimX: k.blockDimX,
                    blockDimY: k.blockDimY,
                    blockDimZ: k.blockDimZ,
                    sharedMemBytes: k.sharedMemBytes,
                    kernelParams: k.kernelParams,
                    extra: k.extra,
                    kern: k.kern,
                    ctx: k.ctx,
                })?
            }
            CU_GRAPH_NODE_TYPE_MEMCPY => copy_work(u.memcpy.copyParams)?,
            CU_GRAPH_NODE_TYPE_MEMSET => {
                let m = u.memset;
                set_work(&CUDA_MEMSET_NODE_PARAMS {
                    dst: m.dst,
                    pitch: m.pitch,
                    value: m.value,
                    elementSize: m.elementSize,
                    width: m.width,
                    height: m.height,
                })?
            }
            CU_GRAPH_NODE_TYPE_HOST => {
                host_work(&CUDA_HOST_NODE_PARAMS { fn_: u.host.fn_, userData: u.host.userData })?
            }
            // `add_any` hands graphs over.
            CU_GRAPH_NODE_TYPE_GRAPH if u.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => {
                return refuse("cuGraphNodeSetParams", "moving a graph into a node that exists");
            }
            CU_GRAPH_NODE_TYPE_GRAPH => Work::Child(graph(u.graph.graph)?.is_its_own()?.clone_graph()?),
            CU_GRAPH_NODE_TYPE_EMPTY => Work::Empty,
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Work::Wait(event(u.eventWait.event)?),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => Work::Record(event(u.eventRecord.event)?),
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let a = allocation_of(&u.alloc.poolProps, u.alloc.bytesize)?;
                (*p).__bindgen_anon_1.alloc.dptr = a.base;
                Work::Alloc(a)
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => free_work(u.free.dptr)?,
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
                Work::MemOps(mem_ops(&list(u.memOp.paramArray, u.memOp.count as usize)?)?)
            }
            // A conditional node cannot be changed, and `add_any` makes one.
            CU_GRAPH_NODE_TYPE_CONDITIONAL => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return refuse("cuGraphAddNode", "this node type"),
        })
    }
}

/// Adds a node by its generic description, which learns of a conditional node's bodies.
fn add_any(out: *mut CUgraphNode, h: CUgraph, after: *const CUgraphNode, n: usize, p: *mut CUgraphNodeParams) -> R {
    // SAFETY: the caller's description.
    let v = unsafe { get(p)? };
    if v.type_ == CU_GRAPH_NODE_TYPE_GRAPH {
        // SAFETY: the member that the type names.
        let asked = unsafe { v.__bindgen_anon_1.graph };
        if asked.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE {
            let child = graph(h)?.take_over(graph(asked.graph)?)?;
            add_node(out, h, after, n, Work::Child(child.clone()))?;
            child.moved.store(true, Ordering::Release);
            return Ok(());
        }
    }
    if v.type_ != CU_GRAPH_NODE_TYPE_CONDITIONAL {
        return add_node(out, h, after, n, generic_work(p)?);
    }
    // SAFETY: the member that the type names.
    let node = Conditional::new(&*graph(h)?, unsafe { &v.__bindgen_anon_1.conditional })?;
    add_node(out, h, after, n, Work::Conditional(node.clone())).inspect_err(|_| node.forget())?;
    // SAFETY: as above; not null, since it was read.
    unsafe { (*p).__bindgen_anon_1.conditional.phGraph_out = node.shown() };
    Ok(())
}

fn set_work_of(h: CUgraphNode, work: Work) -> R {
    let n = node(h)?;
    let mut w = lock(&n.work)?;
    if node_type(&w) != node_type(&work) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if let Work::Child(g) = &work {
        g.holder.store(n.graph, Ordering::Release);
    }
    *w = work;
    Ok(())
}

fn set_step(x: CUgraphExec, h: CUgraphNode, work: Work) -> R {
    let x = exec(x)?;
    let mut steps = lock(&x.steps)?;
    // A node of a clone of the instantiated graph stands for the same step.
    let origin = node(h).map(|n| n.origin).unwrap_or(0);
    let s = step(&mut steps, &|node| node == h as usize || (origin != 0 && node == origin))?;
    if node_type(&s.work) != node_type(&work) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    s.bodies = bodies(&work)?;
    s.work = work;
    Ok(())
}

/// The step of a node of the instantiated graph, or of a conditional node's body in it.
fn step<'a>(steps: &'a mut [Step], is: &dyn Fn(usize) -> bool) -> R<&'a mut Step> {
    fn find<'a>(steps: &'a mut [Step], is: &dyn Fn(usize) -> bool) -> Option<&'a mut Step> {
        steps.iter_mut().find_map(|s| match s.work {
            _ if is(s.node) => Some(s),
            Work::Conditional(_) => s.bodies.iter_mut().find_map(|b| find(b, is)),
            _ => None,
        })
    }
    find(steps, is).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn work_of(h: CUgraphNode) -> R<Work> {
    Ok(lock(&node(h)?.work)?.clone())
}

/// A fill was recorded with any address.
fn check_fills(steps: &[Step]) -> R {
    for step in steps {
        if let Work::Set(set) = &step.work {
            set.check()?;
        }
        step.bodies.iter().try_for_each(|body| check_fills(body))?;
    }
    Ok(())
}

fn instantiate(out: *mut CUgraphExec, g: CUgraph, flags: u64) -> R {
    let context = context::current()?;
    let g = graph(g)?.is_its_own()?;
    capture::forbid_unsafe()?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 {
        return refuse("cuGraphInstantiate", "launching graphs from kernels");
    }
    let steps = g.steps()?;
    check_fills(&steps)?;
    if conditional::any_unused(&g, &steps)?
        || conditional::misplaced(&steps).is_some()
        || conditional::is_instantiated(&steps)?
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let objects = Mutex::new(g.shares()?);
    let x = Arc::new(GraphExec { id, context, flags, steps: Mutex::new(steps), last: Mutex::new(None), objects });
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, EXECS.add(&x)) }
}

/// The difference that forbids an update from `a` to `b`, if there is one, and the node of `b` that it is at.
fn difference(a: &[Step], b: &[Step]) -> Option<(CUgraphExecUpdateResult, usize)> {
    if a.len() != b.len() {
        return Some((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0));
    }
    a.iter().zip(b).find_map(|(x, y)| {
        let result = if node_type(&x.work) != node_type(&y.work) {
            CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
        } else if x.after != y.after {
            CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
        } else if let (Work::Conditional(m), Work::Conditional(n)) = (&x.work, &y.work)
            && !m.same_shape(n)
        {
            CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
        } else {
            x.bodies.iter().zip(&y.bodies).find_map(|(m, n)| difference(m, n))?.0
        };
        Some((result, y.node))
    })
}

fn update(x: CUgraphExec, g: CUgraph) -> R<(CUgraphExecUpdateResult, usize)> {
    let (x, g) = (exec(x)?, graph(g)?.is_its_own()?);
    let new = g.steps()?;
    let mut steps = lock(&x.steps)?;
    if let Some(found) = difference(&steps, &new) {
        return Ok(found);
    }
    if let Some(step) = conditional::misplaced(&new) {
        return Ok((CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, step.node));
    }
    for (s, n) in steps.iter_mut().zip(new) {
        s.work = n.work;
        s.bodies = n.bodies;
    }
    let replaced = std::mem::replace(&mut *lock(&x.objects)?, g.shares()?);
    drop((steps, replaced));
    Ok((CU_GRAPH_EXEC_UPDATE_SUCCESS, 0))
}

/// The two-call pattern: a null array asks for the count.
fn give_nodes(found: &[usize], out: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) -> R {
    // SAFETY: the caller's arrays hold as many entries as it says.
    unsafe {
        let room = get(count)?;
        if out.is_null() {
            return put(count, found.len());
        }
        for i in 0..room {
            put(out.add(i), found.get(i).copied().unwrap_or(0) as CUgraphNode)?;
            if !edges.is_null() && i < found.len() {
                put(edges.add(i), plain_edge())?;
            }
        }
        put(count, found.len().min(room))
    }
}

fn neighbours(h: CUgraphNode, forward: bool) -> R<Vec<usize>> {
    let n = node(h)?;
    let g = graph_of(&n)?;
    let me = address(&n);
    Ok(lock(&g.state)?
        .edges
        .iter()
        .filter_map(|&(a, b)| match forward {
            true => (a == me).then_some(b),
            false => (b == me).then_some(a),
        })
        .collect())
}

fn edges_out(g: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut CUgraphEdgeData, n: *mut usize) -> R {
    let edges = lock(&graph(g)?.state)?.edges.clone();
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's count.
    let room = unsafe { get(n)? };
    let (mut a, mut b) = (room, room);
    give_nodes(&edges.iter().map(|e| e.0).collect::<Vec<_>>(), from, data, &mut a)?;
    give_nodes(&edges.iter().map(|e| e.1).collect::<Vec<_>>(), to, std::ptr::null_mut(), &mut b)?;
    // SAFETY: as above.
    unsafe { put(n, a) }
}

fn change_edges(g: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, n: usize, add: bool) -> R {
    let g = graph(g)?;
    let pairs: Vec<_> = nodes_of(from, n)?.into_iter().zip(nodes_of(to, n)?).collect();
    let before = {
        let mut s = lock(&g.state)?;
        if pairs.iter().any(|(a, b)| [a, b].into_iter().any(|n| !s.nodes.iter().any(|m| address(m) == *n))) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let before = s.edges.clone();
        for p in pairs {
            let at = s.edges.iter().position(|e| *e == p);
            match (add, at) {
                (true, None) if p.0 != p.1 => s.edges.push(p),
                (false, Some(i)) => {
                    s.edges.remove(i);
                }
                _ => {
                    s.edges = before;
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
            }
        }
        before
    };
    if g.order().is_err() {
        lock(&g.state)?.edges = before;
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn allocation_of(properties: &CUmemPoolProps, bytes: usize) -> R<Arc<GraphAllocation>> {
    let CUmemPoolProps { allocType: kind, location, .. } = properties;
    if *kind != CU_MEM_ALLOCATION_TYPE_PINNED || location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    allocation(&*context::current()?, device::check(location.id)?, bytes as u64)
}

fn host_work(p: &CUDA_HOST_NODE_PARAMS) -> R<Work> {
    if p.fn_.is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Work::Host(Raw((p.fn_, p.userData))))
}

/// What can be freed in order of a stream, or is a graph's own.
fn free_work(at: CUdeviceptr) -> R<Work> {
    let known = vram::find(at).filter(|r| r.base == at && matches!(r.kind, Kind::Device | Kind::Pool));
    known.map(|_| Work::Free(at)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn values_work(p: &CUDA_BATCH_MEM_OP_NODE_PARAMS) -> R<Work> {
    // SAFETY: the caller passes as many entries as it says.
    let operations = unsafe { list(p.paramArray, p.count as usize)? };
    Ok(Work::MemOps(mem_ops(&operations)?))
}

api! {
    fn cuGraphConditionalHandleCreate(
        out: *mut CUgraphConditionalHandle,
        g: CUgraph,
        ctx: CUcontext,
        default: c_uint,
        flags: c_uint,
    ) {
        let g = graph::graph(g)?;
        let context = context::current_or(ctx)?;
        if out.is_null() || flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let condition = Arc::new(Condition {
            number: NEXT_HANDLE.fetch_add(1, Ordering::Relaxed),
            graph: g.id(),
            context: context.id,
            default: (flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0).then_some(default),
            value: AtomicU32::new(0),
            used: AtomicBool::new(false),
        });
        let mut all = CONDITIONS.write().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        all.insert(condition.number, Arc::downgrade(&condition));
        drop(all);
        put(out, condition.number)?;
        g.conditions()?.push(condition);
        Ok(())
    }
    fn cuGraphCreate(out: *mut CUgraph, flags: c_uint) {
        crate::device::initialised()?;
        if flags != 0 || out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, handle(&Graph::new()))
    }
    fn cuGraphDestroy(g: CUgraph) {
        let g = graph(g)?.is_its_own()?;
        // A body goes with its node.
        if g.depth() > 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        g.forget();
        let shares = std::mem::take(&mut *lock(&g.objects)?);
        drop(shares);
        Ok(())
    }
    fn cuGraphClone(out: *mut CUgraph, g: CUgraph) { put(out, handle(&graph(g)?.clone_graph()?)) }
    fn cuGraphNodeFindInClone(out: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) {
        let g = graph(clone)?;
        let s = lock(&g.state)?;
        let hit = s.nodes.iter().find(|n| n.origin == original as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(out, handle(hit))
    }
    fn cuGraphAddKernelNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        add_node(out, g, after, n, kernel_work(&widen(&get(p)?))?)
    }
    fn cuGraphAddKernelNode_v2(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        add_node(out, g, after, n, kernel_work(&get(p)?)?)
    }
    fn cuGraphKernelNodeGetParams(h: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        let p = kernel_params(h)?;
        put(out, CUDA_KERNEL_NODE_PARAMS_v1 {
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
        })
    }
    fn cuGraphKernelNodeGetParams_v2(h: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS) {
        put(out, kernel_params(h)?)
    }
    fn cuGraphKernelNodeSetParams(h: CUgraphNode, p: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set_work_of(h, changed_kernel(h, &widen(&get(p)?))?)
    }
    fn cuGraphKernelNodeSetParams_v2(h: CUgraphNode, p: *const CUDA_KERNEL_NODE_PARAMS) {
        set_work_of(h, changed_kernel(h, &get(p)?)?)
    }
    fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) {
        node(dst)?;
        node(src).map(drop)
    }
    fn cuGraphKernelNodeGetAttribute(h: CUgraphNode, attr: CUkernelNodeAttrID, out: *mut CUkernelNodeAttrValue) {
        let Work::Kernel(k) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let mut v: CUkernelNodeAttrValue = std::mem::zeroed();
        if attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE {
            v.cooperative = i32::from(k.cooperative);
        }
        if let (CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, Some([x, y, z])) = (attr, k.cluster) {
            v.clusterDim = CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        }
        put(out, v)
    }
    fn cuGraphKernelNodeSetAttribute(h: CUgraphNode, attr: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue) {
        let value = get(value)?;
        let Work::Kernel(k) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let how = match attr {
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE => (value.cooperative != 0, k.cluster),
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                let d = value.clusterDim;
                (k.cooperative, Some([d.x, d.y, d.z]))
            }
            _ => return Ok(()),
        };
        let c = context::by_id(k.function.context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let f = k.handle as CUfunction;
        let k = KernelLaunch::new(f, &c, k.grid, k.block, k.shared, k.params.clone(), how)?;
        set_work_of(h, Work::Kernel(Arc::new(k)))
    }
    fn cuGraphAddMemcpyNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) {
        current_or(ctx)?;
        add_node(out, g, after, n, copy_work(get(p)?)?)
    }
    fn cuGraphMemcpyNodeGetParams(h: CUgraphNode, out: *mut CUDA_MEMCPY3D) {
        let Work::Copy(c) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, c.raw.0)
    }
    fn cuGraphMemcpyNodeSetParams(h: CUgraphNode, p: *const CUDA_MEMCPY3D) { set_work_of(h, copy_work(get(p)?)?) }
    fn cuGraphAddMemsetNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) {
        current_or(ctx)?;
        add_node(out, g, after, n, set_work(&get(p)?)?)
    }
    fn cuGraphMemsetNodeGetParams(h: CUgraphNode, out: *mut CUDA_MEMSET_NODE_PARAMS) {
        let Work::Set(s) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, CUDA_MEMSET_NODE_PARAMS {
            dst: s.dst,
            pitch: s.pitch as usize,
            value: s.value,
            elementSize: s.element,
            width: s.width as usize,
            height: s.height as usize,
        })
    }
    fn cuGraphMemsetNodeSetParams(h: CUgraphNode, p: *const CUDA_MEMSET_NODE_PARAMS) {
        set_work_of(h, set_work(&get(p)?)?)
    }
    fn cuGraphAddHostNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *const CUDA_HOST_NODE_PARAMS,
    ) {
        add_node(out, g, after, n, host_work(&get(p)?)?)
    }
    fn cuGraphHostNodeGetParams(h: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) {
        let Work::Host(Raw((fn_, data))) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, CUDA_HOST_NODE_PARAMS { fn_, userData: data })
    }
    fn cuGraphHostNodeSetParams(h: CUgraphNode, p: *const CUDA_HOST_NODE_PARAMS) {
        set_work_of(h, host_work(&get(p)?)?)
    }
    fn cuGraphAddChildGraphNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        child: CUgraph,
    ) {
        add_node(out, g, after, n, Work::Child(graph(child)?.is_its_own()?.clone_graph()?))
    }
    fn cuGraphChildGraphNodeGetGraph(h: CUgraphNode, out: *mut CUgraph) {
        let Work::Child(g) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, handle(&g))
    }
    fn cuGraphAddEmptyNode(out: *mut CUgraphNode, g: CUgraph, after: *const CUgraphNode, n: usize) {
        add_node(out, g, after, n, Work::Empty)
    }
    fn cuGraphAddEventRecordNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        e: CUevent,
    ) {
        add_node(out, g, after, n, Work::Record(event(e)?))
    }
    fn cuGraphEventRecordNodeGetEvent(h: CUgraphNode, out: *mut CUevent) {
        let Work::Record(e) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, handle(&e))
    }
    fn cuGraphEventRecordNodeSetEvent(h: CUgraphNode, e: CUevent) { set_work_of(h, Work::Record(event(e)?)) }
    fn cuGraphAddEventWaitNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        e: CUevent,
    ) {
        add_node(out, g, after, n, Work::Wait(event(e)?))
    }
    fn cuGraphEventWaitNodeGetEvent(h: CUgraphNode, out: *mut CUevent) {
        let Work::Wait(e) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, handle(&e))
    }
    fn cuGraphEventWaitNodeSetEvent(h: CUgraphNode, e: CUevent) { set_work_of(h, Work::Wait(event(e)?)) }
    fn cuGraphAddMemAllocNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        let mut v = get(p)?;
        let a = allocation_of(&v.poolProps, v.bytesize)?;
        v.dptr = a.base;
        add_node(out, g, after, n, Work::Alloc(a))?;
        put(p, v)
    }
    fn cuGraphMemAllocNodeGetParams(h: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        let Work::Alloc(a) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let mut v: CUDA_MEM_ALLOC_NODE_PARAMS = std::mem::zeroed();
        v.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        v.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        v.bytesize = a.bytes as usize;
        v.dptr = a.base;
        put(out, v)
    }
    fn cuGraphAddMemFreeNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        at: CUdeviceptr,
    ) {
        add_node(out, g, after, n, free_work(at)?)
    }
    fn cuGraphMemFreeNodeGetParams(h: CUgraphNode, out: *mut CUdeviceptr) {
        let Work::Free(at) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, at)
    }
    fn cuGraphAddBatchMemOpNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) {
        add_node(out, g, after, n, values_work(&get(p)?)?)
    }
    fn cuGraphBatchMemOpNodeSetParams(h: CUgraphNode, p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) {
        set_work_of(h, values_work(&get(p)?)?)
    }
    fn cuGraphExecBatchMemOpNodeSetParams(
        x: CUgraphExec,
        h: CUgraphNode,
        p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) {
        set_step(x, h, values_work(&get(p)?)?)
    }
    fn cuGraphAddNode(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        n: usize,
        p: *mut CUgraphNodeParams,
    ) {
        add_any(out, g, after, n, p)
    }
    fn cuGraphAddNode_v2(
        out: *mut CUgraphNode,
        g: CUgraph,
        after: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        n: usize,
        p: *mut CUgraphNodeParams,
    ) {
        add_any(out, g, after, n, p)
    }
    fn cuGraphNodeSetParams(h: CUgraphNode, p: *mut CUgraphNodeParams) { set_work_of(h, generic_work(p)?) }
    fn cuGraphNodeGetType(h: CUgraphNode, out: *mut CUgraphNodeType) { put(out, node_type(&work_of(h)?)) }
    fn cuGraphDestroyNode(h: CUgraphNode) {
        let n = node(h)?;
        let g = graph_of(&n)?;
        let mut s = lock(&g.state)?;
        s.nodes.retain(|m| !Arc::ptr_eq(m, &n));
        s.edges.retain(|(a, b)| *a != address(&n) && *b != address(&n));
        NODES.remove(h);
        match &*lock(&n.work)? {
            Work::Child(g) => g.forget(),
            Work::Conditional(c) => c.forget(),
            _ => {}
        }
        Ok(())
    }
    fn cuGraphGetNodes(g: CUgraph, out: *mut CUgraphNode, count: *mut usize) {
        let all: Vec<_> = lock(&graph(g)?.state)?.nodes.iter().map(address).collect();
        give_nodes(&all, out, std::ptr::null_mut(), count)
    }
    fn cuGraphGetRootNodes(g: CUgraph, out: *mut CUgraphNode, count: *mut usize) {
        let g = graph(g)?;
        let s = lock(&g.state)?;
        let roots: Vec<_> =
            s.nodes.iter().map(address).filter(|n| !s.edges.iter().any(|(_, to)| to == n)).collect();
        give_nodes(&roots, out, std::ptr::null_mut(), count)
    }
    fn cuGraphGetEdges(g: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, n: *mut usize) {
        edges_out(g, from, to, std::ptr::null_mut(), n)
    }
    fn cuGraphGetEdges_v2(
        g: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        n: *mut usize,
    ) {
        edges_out(g, from, to, data, n)
    }
    fn cuGraphNodeGetDependencies(h: CUgraphNode, out: *mut CUgraphNode, n: *mut usize) {
        give_nodes(&neighbours(h, false)?, out, std::ptr::null_mut(), n)
    }
    fn cuGraphNodeGetDependencies_v2(
        h: CUgraphNode,
        out: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        n: *mut usize,
    ) {
        give_nodes(&neighbours(h, false)?, out, data, n)
    }
    fn cuGraphNodeGetDependentNodes(h: CUgraphNode, out: *mut CUgraphNode, n: *mut usize) {
        give_nodes(&neighbours(h, true)?, out, std::ptr::null_mut(), n)
    }
    fn cuGraphNodeGetDependentNodes_v2(
        h: CUgraphNode,
        out: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        n: *mut usize,
    ) {
        give_nodes(&neighbours(h, true)?, out, data, n)
    }
    fn cuGraphAddDependencies(g: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, n: usize) {
        change_edges(g, from, to, n, true)
    }
    fn cuGraphAddDependencies_v2(
        g: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _data: *const CUgraphEdgeData,
        n: usize,
    ) {
        change_edges(g, from, to, n, true)
    }
    fn cuGraphRemoveDependencies(g: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, n: usize) {
        change_edges(g, from, to, n, false)
    }
    fn cuGraphRemoveDependencies_v2(
        g: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _data: *const CUgraphEdgeData,
        n: usize,
    ) {
        change_edges(g, from, to, n, false)
    }
    fn cuGraphInstantiate(
        out: *mut CUgraphExec,
        g: CUgraph,
        error: *mut CUgraphNode,
        _log: *mut c_char,
        _bytes: usize,
    ) {
        put_some(error, std::ptr::null_mut());
        instantiate(out, g, 0)
    }
    fn cuGraphInstantiate_v2(
        out: *mut CUgraphExec,
        g: CUgraph,
        error: *mut CUgraphNode,
        _log: *mut c_char,
        _bytes: usize,
    ) {
        put_some(error, std::ptr::null_mut());
        instantiate(out, g, 0)
    }
    fn cuGraphInstantiateWithFlags(out: *mut CUgraphExec, g: CUgraph, flags: c_ulonglong) {
        instantiate(out, g, flags)
    }
    fn cuGraphInstantiateWithParams(out: *mut CUgraphExec, g: CUgraph, p: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) {
        let mut v = get(p)?;
        let outcome = instantiate(out, g, v.flags);
        v.hErrNode_out = std::ptr::null_mut();
        v.result_out = match outcome {
            Ok(()) => CUDA_GRAPH_INSTANTIATE_SUCCESS,
            Err(_) if graph(g).and_then(|g| conditional::any_unused(&g, &g.steps()?)) == Ok(true) => {
                CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED
            }
            Err(_) => CUDA_GRAPH_INSTANTIATE_ERROR,
        };
        put(p, v)?;
        outcome
    }
    fn cuGraphExecGetFlags(x: CUgraphExec, flags: *mut cuuint64_t) { put(flags, exec(x)?.flags) }
    fn cuGraphUpload(x: CUgraphExec, h: CUstream) {
        exec(x)?;
        stream::resolve(h).map(drop)
    }
    fn cuGraphLaunch(x: CUgraphExec, h: CUstream) {
        let x = exec(x)?;
        x.context.check()?;
        launch(&x, stream::resolve(h).as_ref().map_err(|e| *e)?)
    }
    fn cuGraphExecDestroy(x: CUgraphExec) { EXECS.remove(x).ok_or(CUDA_ERROR_INVALID_VALUE).map(drop) }
    fn cuGraphExecUpdate_v2(x: CUgraphExec, g: CUgraph, info: *mut CUgraphExecUpdateResultInfo) {
        let (result, odd) = update(x, g)?;
        put(info, CUgraphExecUpdateResultInfo {
            result,
            errorNode: odd as CUgraphNode,
            errorFromNode: std::ptr::null_mut(),
        })?;
        if result == CU_GRAPH_EXEC_UPDATE_SUCCESS { Ok(()) } else { Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) }
    }
    fn cuGraphExecUpdate(
        x: CUgraphExec,
        g: CUgraph,
        error: *mut CUgraphNode,
        out: *mut CUgraphExecUpdateResult,
    ) {
        let (result, odd) = update(x, g)?;
        put_some(error, odd as CUgraphNode);
        put(out, result)?;
        if result == CU_GRAPH_EXEC_UPDATE_SUCCESS { Ok(()) } else { Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) }
    }
    fn cuGraphExecKernelNodeSetParams(x: CUgraphExec, h: CUgraphNode, p: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set_step(x, h, changed_kernel(h, &widen(&get(p)?))?)
    }
    fn cuGraphExecKernelNodeSetParams_v2(x: CUgraphExec, h: CUgraphNode, p: *const CUDA_KERNEL_NODE_PARAMS) {
        set_step(x, h, changed_kernel(h, &get(p)?)?)
    }
    fn cuGraphExecMemcpyNodeSetParams(x: CUgraphExec, h: CUgraphNode, p: *const CUDA_MEMCPY3D, _ctx: CUcontext) {
        set_step(x, h, copy_work(get(p)?)?)
    }
    fn cuGraphExecMemsetNodeSetParams(
        x: CUgraphExec,
        h: CUgraphNode,
        p: *const CUDA_MEMSET_NODE_PARAMS,
        _ctx: CUcontext,
    ) {
        set_step(x, h, set_work(&get(p)?)?)
    }
    fn cuGraphExecHostNodeSetParams(x: CUgraphExec, h: CUgraphNode, p: *const CUDA_HOST_NODE_PARAMS) {
        set_step(x, h, host_work(&get(p)?)?)
    }
    fn cuGraphExecChildGraphNodeSetParams(x: CUgraphExec, h: CUgraphNode, child: CUgraph) {
        set_step(x, h, Work::Child(graph(child)?.is_its_own()?.clone_graph()?))
    }
    fn cuGraphExecEventRecordNodeSetEvent(x: CUgraphExec, h: CUgraphNode, e: CUevent) {
        set_step(x, h, Work::Record(event(e)?))
    }
    fn cuGraphExecEventWaitNodeSetEvent(x: CUgraphExec, h: CUgraphNode, e: CUevent) {
        set_step(x, h, Work::Wait(event(e)?))
    }
    fn cuGraphExecNodeSetParams(x: CUgraphExec, h: CUgraphNode, p: *mut CUgraphNodeParams) {
        set_step(x, h, generic_work(p)?)
    }
    fn cuGraphNodeSetEnabled(x: CUgraphExec, h: CUgraphNode, on: c_uint) {
        let x = exec(x)?;
        let mut steps = lock(&x.steps)?;
        let s = step(&mut steps, &|node| node == h as usize)?;
        if !matches!(s.work, Work::Kernel(_) | Work::Copy(_) | Work::Set(_)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        s.enabled = on != 0;
        Ok(())
    }
    fn cuGraphNodeGetEnabled(x: CUgraphExec, h: CUgraphNode, on: *mut c_uint) {
        let x = exec(x)?;
        let mut steps = lock(&x.steps)?;
        let s = step(&mut steps, &|node| node == h as usize)?;
        put(on, c_uint::from(s.enabled))
    }
    fn cuGraphDebugDotPrint(h: CUgraph, path: *const c_char, flags: c_uint) {
        let (graph, path) = (graph(h)?, text(path)?);
        std::fs::write(path, dot::drawn(&graph, flags)?).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    }
    fn cuDeviceGraphMemTrim(dev: CUdevice) {
        // What is freed is the device's again at once, where NVIDIA's driver keeps it for graphs until it is trimmed.
        device::check(dev).map(drop)
    }
    fn cuDeviceGetGraphMemAttribute(dev: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let of_graphs = device::graph_memory(device::check(dev)?);
        let bytes = match attr {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT | CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => memory_of_graphs(dev),
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => of_graphs.used_most,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => of_graphs.reserved_most,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        put(value.cast::<u64>(), bytes)
    }
    fn cuDeviceSetGraphMemAttribute(dev: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let mut of_graphs = device::graph_memory(device::check(dev)?);
        let most = match attr {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => &mut of_graphs.used_most,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => &mut of_graphs.reserved_most,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if get(value.cast::<u64>())? != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        *most = 0;
        Ok(())
    }
}
