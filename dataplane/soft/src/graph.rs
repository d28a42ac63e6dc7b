//! Graphs: nodes, edges, instantiation, launch, and capture of streams into graphs.
//!
//! A launch is one piece of work in its stream that runs the nodes one after the other in an order the edges allow.

// UNSAFETY: C entry points.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use orion_cuda::sys::*;

use crate::api::{R, Raw, Registry, api, get, handle, list, put, put_some, refuse};
use crate::clock::now_ns;
use crate::conditional::{self, Condition, Conditional};
use crate::context::{self, Context};
use crate::event::{EVENTS, Event};
use crate::launch::{KernelLaunch, pack_arguments};
use crate::stream::{self, Class, Stream};
use crate::vram::{self, Kind};
use crate::work::{Copy3D, Set, Work, mem_ops};
use crate::{cupti, memory, module};

pub struct Graph {
    id: u64,
    /// The graphs that this one is a conditional node's body in, the innermost first.
    around: Vec<u64>,
    /// The graph whose child this one is, 0 while it is nobody's.
    holder: AtomicU64,
    /// It was handed over to its holder, which destroys it.
    moved: AtomicBool,
    state: Mutex<State>,
    objects: Mutex<Vec<Share>>,
    conditions: Mutex<Vec<Arc<Condition>>>,
}

#[derive(Default)]
struct State {
    nodes: Vec<Arc<Node>>,
    /// Pairs of node addresses, from and to.
    edges: Vec<(usize, usize)>,
}

pub struct Node {
    graph: u64,
    work: Mutex<Work>,
    /// The node this one was cloned from.
    origin: usize,
    /// Argument pointers that `cuGraphKernelNodeGetParams` lends out.
    shown: Mutex<Vec<Raw<*mut c_void>>>,
}

/// Memory of an allocation node. It stays until the graph and its instances are gone, so that its address is the same
/// in every launch.
pub struct GraphAllocation {
    pub base: u64,
    pub bytes: u64,
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        if let Some(r) = vram::find(self.base).filter(|r| r.flags & memory::GRAPH_OWNED != 0) {
            memory::drop_range(&vram::Range { flags: 0, ..r });
        }
    }
}

pub struct GraphExec {
    id: u64,
    context: Arc<Context>,
    flags: u64,
    steps: Mutex<Vec<Step>>,
    /// Where the last launch ends: launches of one executable run one after the other, whatever their streams.
    last: Mutex<Option<stream::Point>>,
    /// What it was made from may be gone.
    objects: Mutex<Vec<Share>>,
}

#[derive(Clone)]
pub struct Step {
    node: usize,
    pub work: Work,
    enabled: bool,
    /// Positions of the steps this one follows.
    after: Vec<usize>,
    /// The graphs inside it: the child graph's, or one for each body of a conditional node.
    pub bodies: Vec<Vec<Step>>,
}

pub struct UserObject {
    destroy: Raw<(CUhostFn, *mut c_void)>,
    count: AtomicU64,
}

/// One reference to a user object: of a graph, of what was made from it, or of a launch that is under way.
struct Share(Arc<UserObject>);

impl Share {
    /// Takes one more.
    fn new(o: &Arc<UserObject>) -> Share {
        o.count.fetch_add(1, Ordering::AcqRel);
        Share(o.clone())
    }
}

impl Clone for Share {
    fn clone(&self) -> Share {
        Share::new(&self.0)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        release(&self.0, 1);
    }
}

pub static GRAPHS: Registry<Graph> = Registry::new();

pub static NODES: Registry<Node> = Registry::new();

pub static EXECS: Registry<GraphExec> = Registry::new();

static OBJECTS: Registry<UserObject> = Registry::new();

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn address<T>(v: &Arc<T>) -> usize {
    Arc::as_ptr(v) as usize
}

fn lock<T>(m: &Mutex<T>) -> R<std::sync::MutexGuard<'_, T>> {
    m.lock().map_err(|_| CUDA_ERROR_UNKNOWN)
}

impl GraphExec {
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Graph {
    fn new() -> Arc<Self> {
        Self::inside(Vec::new())
    }

    fn inside(around: Vec<u64>) -> Arc<Self> {
        let g = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            around,
            holder: AtomicU64::new(0),
            moved: AtomicBool::new(false),
            state: Mutex::default(),
            objects: Mutex::default(),
            conditions: Mutex::default(),
        });
        GRAPHS.add::<CUgraph_st>(&g);
        g
    }

    /// An empty body for a conditional node of a graph.
    pub fn body_of(g: &Self) -> Arc<Self> {
        Self::inside([&[g.id], &g.around[..]].concat())
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn depth(&self) -> usize {
        self.around.len()
    }

    /// Whether it is the graph of this id, or a body in it at any depth.
    pub fn is_within(&self, id: u64) -> bool {
        self.id == id || self.around.contains(&id)
    }

    /// The conditional handles that were created for it.
    pub fn conditions(&self) -> R<std::sync::MutexGuard<'_, Vec<Arc<Condition>>>> {
        lock(&self.conditions)
    }

    /// Whether it is the other graph, or lies in it at any depth.
    fn is_inside(self: &Arc<Self>, other: &Self) -> bool {
        let mut all = GRAPHS.all();
        let mut around = Some(self.clone());
        while let Some(g) = around {
            if g.id == other.id {
                return true;
            }
            let holder = g.around.first().copied().unwrap_or(g.holder.load(Ordering::Acquire));
            let at = all.iter().position(|g| g.id == holder);
            around = at.map(|i| all.swap_remove(i));
        }
        false
    }

    /// A graph that a node of this one is to own: nobody's yet, and not one that this one lies in.
    fn take_over(self: &Arc<Self>, child: Arc<Self>) -> R<Arc<Self>> {
        if child.is_owned() || self.is_inside(&child) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(child)
    }

    fn is_owned(&self) -> bool {
        !self.around.is_empty() || self.holder.load(Ordering::Acquire) != 0
    }

    /// What only a graph that was not handed over to another can be used for.
    fn is_its_own(self: Arc<Self>) -> R<Arc<Self>> {
        if self.moved.load(Ordering::Acquire) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(self) }
    }

    fn add(&self, after: &[usize], work: Work, origin: usize) -> R<Arc<Node>> {
        let n = Arc::new(Node { graph: self.id, work: Mutex::new(work), origin, shown: Mutex::default() });
        let mut s = lock(&self.state)?;
        if after.iter().any(|a| !s.nodes.iter().any(|n| address(n) == *a)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for &a in after {
            if !s.edges.contains(&(a, address(&n))) {
                s.edges.push((a, address(&n)));
            }
        }
        if let Work::Child(g) = &*lock(&n.work)? {
            g.holder.store(self.id, Ordering::Release);
        }
        s.nodes.push(n.clone());
        NODES.add::<CUgraphNode_st>(&n);
        Ok(n)
    }

    /// Nodes in an order that respects the edges; ties go by age. `None` when the edges form a circle.
    fn order(&self) -> R<Vec<Arc<Node>>> {
        let s = lock(&self.state)?;
        let mut blocked: HashMap<usize, usize> = HashMap::new();
        for (_, to) in &s.edges {
            *blocked.entry(*to).or_default() += 1;
        }
        let mut out: Vec<Arc<Node>> = Vec::new();
        let mut left: Vec<Arc<Node>> = s.nodes.clone();
        while !left.is_empty() {
            let at = left.iter().position(|n| blocked.get(&address(n)).copied().unwrap_or(0) == 0);
            let n = left.remove(at.ok_or(CUDA_ERROR_INVALID_VALUE)?);
            for (from, to) in &s.edges {
                if *from == address(&n)
                    && let Some(b) = blocked.get_mut(to)
                {
                    *b -= 1;
                }
            }
            out.push(n);
        }
        Ok(out)
    }

    fn steps(&self) -> R<Vec<Step>> {
        let order = self.order()?;
        let edges = lock(&self.state)?.edges.clone();
        let place: HashMap<usize, usize> = order.iter().enumerate().map(|(i, n)| (address(n), i)).collect();
        order
            .iter()
            .map(|n| {
                let work = lock(&n.work)?.clone();
                let bodies = bodies(&work)?;
                let mut after: Vec<usize> = edges
                    .iter()
                    .filter(|(_, to)| *to == address(n))
                    .filter_map(|(f, _)| place.get(f).copied())
                    .collect();
                after.sort_unstable();
                Ok(Step { node: address(n), work, enabled: true, after, bodies })
            })
            .collect()
    }

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

    /// What an executable graph made from this one shares: this graph's and those of the graphs inside it.
    fn shares(&self) -> R<Vec<Share>> {
        let mut all = lock(&self.objects)?.clone();
        let nodes = lock(&self.state)?.nodes.clone();
        for node in nodes {
            if let Work::Child(g) = &*lock(&node.work)? {
                all.extend(g.shares()?);
            }
        }
        Ok(all)
    }

    pub fn forget(self: &Arc<Self>) {
        GRAPHS.remove(Arc::as_ptr(self).cast_mut());
        if let Ok(s) = self.state.lock() {
            for n in &s.nodes {
                NODES.remove(Arc::as_ptr(n).cast_mut());
                match n.work.lock().as_deref() {
                    Ok(Work::Child(g)) => g.forget(),
                    Ok(Work::Conditional(c)) => c.forget(),
                    _ => {}
                }
            }
        }
    }
}

impl GraphExec {
    pub fn steps(&self) -> R<Vec<Step>> {
        Ok(lock(&self.steps)?.clone())
    }
}

/// The steps of the graphs inside a node.
fn bodies(work: &Work) -> R<Vec<Vec<Step>>> {
    match work {
        Work::Child(g) => Ok(vec![g.steps()?]),
        Work::Conditional(c) => c.bodies.iter().map(|b| b.steps()).collect(),
        _ => Ok(Vec::new()),
    }
}

pub fn graph(h: CUgraph) -> R<Arc<Graph>> {
    crate::device::initialised()?;
    GRAPHS.get(h).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn node(h: CUgraphNode) -> R<Arc<Node>> {
    crate::device::initialised()?;
    NODES.get(h).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn exec(h: CUgraphExec) -> R<Arc<GraphExec>> {
    crate::device::initialised()?;
    EXECS.get(h).ok_or(CUDA_ERROR_INVALID_VALUE)
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
fn gather(steps: &[Step], after: &mut Vec<stream::Point>, records: &mut Vec<(Arc<Event>, Arc<AtomicU64>)>) {
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

/// Recording of streams into a graph.
pub struct Capture {
    id: u64,
    graph: Arc<Graph>,
    origin: u64,
    thread: ThreadId,
    mode: CUstreamCaptureMode,
    invalid: AtomicBool,
    ended: AtomicBool,
    /// The nodes each stream's next work follows, by stream.
    tails: Mutex<HashMap<u64, Vec<usize>>>,
    shown: Mutex<Vec<Raw<CUgraphNode>>>,
    edges_shown: Mutex<Vec<CUgraphEdgeData>>,
    /// The application's own graph, which it keeps when the capture fails.
    borrowed: bool,
}

/// Where in a capture an event was recorded.
pub struct CapturedAt {
    pub capture: Arc<Capture>,
    after: Vec<usize>,
}

impl Capture {
    pub fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    fn check(&self) -> R {
        if self.invalid.load(Ordering::Acquire) { Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    /// An event recorded in a capture that has ended counts as never recorded.
    pub fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    fn status(&self) -> CUstreamCaptureStatus {
        match self.check() {
            Ok(()) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
            Err(_) => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        }
    }

    fn tail(&self, s: &Stream) -> R<Vec<usize>> {
        Ok(lock(&self.tails)?.get(&s.id).cloned().unwrap_or_default())
    }
}

/// Adds captured work behind what the stream recorded last.
pub fn record(c: &Arc<Capture>, s: &Arc<Stream>, work: Work) -> R<Arc<Node>> {
    c.check()?;
    let after = c.tail(s)?;
    let n = c.graph.add(&after, work, 0)?;
    lock(&c.tails)?.insert(s.id, vec![address(&n)]);
    Ok(n)
}

/// Handles an event record on a captured stream; false when the stream is not captured.
pub fn record_event(s: &Arc<Stream>, e: &Arc<Event>, external: bool) -> R<bool> {
    let Some(c) = s.capture() else { return Ok(false) };
    c.check()?;
    if external {
        record(&c, s, Work::Record(e.clone()))?;
        return Ok(true);
    }
    let after = c.tail(s)?;
    *lock(&e.captured)? = Some(CapturedAt { capture: c, after });
    Ok(true)
}

/// Handles a wait that touches a capture; false when neither side is captured.
pub fn wait_event(s: &Arc<Stream>, e: &Arc<Event>, external: bool) -> R<bool> {
    let mine = s.capture();
    if let (Some(c), true) = (&mine, external) {
        record(c, s, Work::Wait(e.clone()))?;
        return Ok(true);
    }
    let theirs =
        lock(&e.captured)?.as_ref().filter(|at| at.capture.is_open()).map(|at| (at.capture.clone(), at.after.clone()));
    match (mine, theirs) {
        (None, None) => Ok(false),
        (Some(c), None) => {
            c.check()?;
            c.invalidate();
            Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        (None, Some((c, after))) => {
            c.check()?;
            if s.class == Class::Legacy {
                c.invalidate();
                return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            lock(&c.tails)?.insert(s.id, after);
            *lock(&s.capture)? = Some(c);
            Ok(true)
        }
        (Some(c), Some((other, after))) => {
            c.check()?;
            if !Arc::ptr_eq(&c, &other) {
                c.invalidate();
                other.invalidate();
                return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            let mut tails = lock(&c.tails)?;
            let tail = tails.entry(s.id).or_default();
            for a in after {
                if !tail.contains(&a) {
                    tail.push(a);
                }
            }
            Ok(true)
        }
    }
}

/// An allocation on a captured stream becomes a node; `None` when the stream is not captured.
pub fn capture_alloc(s: &Arc<Stream>, bytes: usize) -> R<Option<u64>> {
    let Some(c) = s.capture() else { return Ok(None) };
    c.check()?;
    let a = allocation(&s.context, bytes as u64)?;
    let at = a.base;
    record(&c, s, Work::Alloc(a))?;
    Ok(Some(at))
}

fn allocation(c: &Context, bytes: u64) -> R<Arc<GraphAllocation>> {
    let r = memory::allocate(c, bytes, Kind::Pool)?;
    vram::update(r.base, |r| r.flags |= memory::GRAPH_OWNED);
    Ok(Arc::new(GraphAllocation { base: r.base, bytes }))
}

/// Captures that have not ended, and how many: the calls that ask are many, captures are few.
static OPEN: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

fn close(c: &Arc<Capture>) {
    c.ended.store(true, Ordering::Release);
    if let Ok(mut open) = OPEN.lock() {
        open.retain(|o| !Arc::ptr_eq(o, c));
        OPEN_COUNT.store(open.len(), Ordering::Release);
    }
}

/// Refuses a call that would upset a capture, such as one that allocates: captures in global mode forbid it to every
/// thread, captures in thread-local mode to their own. A thread can lift that for itself by exchanging its mode.
pub fn forbid_unsafe() -> R {
    if OPEN_COUNT.load(Ordering::Acquire) == 0 || MODE.get() == CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let me = std::thread::current().id();
    let everywhere = MODE.get() == CU_STREAM_CAPTURE_MODE_GLOBAL;
    let mut outcome = Ok(());
    for c in lock(&OPEN)?.iter() {
        let mine = c.thread == me && c.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        if mine || (everywhere && c.mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
            c.invalidate();
            outcome = Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    outcome
}

/// A stream goes away while it is captured: with the stream that a capture began on, the capture goes too. What another
/// stream has recorded stays, and has to be joined as before.
pub fn abandon(s: &Stream, c: &Arc<Capture>) {
    if c.origin == s.id {
        c.invalidate();
        release_streams(c);
        close(c);
        if !c.borrowed {
            c.graph.forget();
        }
    }
}

/// Also those of other devices and of green contexts.
fn release_streams(c: &Arc<Capture>) {
    for t in context::CONTEXTS.all().iter().flat_map(|context| context.every_stream()) {
        if let Ok(mut slot) = t.capture.lock()
            && slot.as_ref().is_some_and(|k| Arc::ptr_eq(k, c))
        {
            *slot = None;
        }
    }
}

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

fn begin(h: CUstream, into: Option<(Arc<Graph>, Vec<usize>)>, mode: CUstreamCaptureMode) -> R {
    let s = stream::resolve(h)?;
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if s.class == Class::Legacy {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if s.capture().is_some() {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    let borrowed = into.is_some();
    let (graph, after) = into.unwrap_or_else(|| (Graph::new(), Vec::new()));
    let c = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        origin: s.id,
        thread: std::thread::current().id(),
        mode,
        invalid: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        tails: Mutex::new(HashMap::from([(s.id, after)])),
        shown: Mutex::default(),
        edges_shown: Mutex::default(),
        borrowed,
    });
    *lock(&s.capture)? = Some(c.clone());
    let mut open = lock(&OPEN)?;
    open.push(c);
    OPEN_COUNT.store(open.len(), Ordering::Release);
    Ok(())
}

fn end(h: CUstream, out: *mut CUgraph) -> R {
    let s = stream::resolve(h)?;
    let c = s.capture().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if c.origin != s.id {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if c.mode != CU_STREAM_CAPTURE_MODE_RELAXED && c.thread != std::thread::current().id() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    release_streams(&c);
    close(&c);
    let outcome = c.check().and_then(|()| joined(&c));
    if let Err(e) = outcome {
        if !c.borrowed {
            c.graph.forget();
        }
        // SAFETY: the caller's out parameter, which may be null.
        unsafe { put_some(out, std::ptr::null_mut()) };
        return Err(e);
    }
    if out.is_null() && !c.borrowed {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's out parameter, which may be null for a graph that the caller knows.
    unsafe { put_some(out, handle(&c.graph)) };
    Ok(())
}

/// Every stream that joined the capture must lead back to the stream it began on.
fn joined(c: &Capture) -> R {
    let tails = lock(&c.tails)?;
    let edges = lock(&c.graph.state)?.edges.clone();
    let mut reached = tails.get(&c.origin).cloned().unwrap_or_default();
    let mut at = 0;
    while at < reached.len() {
        for (from, to) in &edges {
            if *to == reached[at] && !reached.contains(from) {
                reached.push(*from);
            }
        }
        at += 1;
    }
    let all = tails.values().flatten().all(|n| reached.contains(n));
    if all { Ok(()) } else { Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED) }
}

fn capture_info(
    h: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> R {
    let s = stream::resolve(h)?;
    let c = s.capture();
    // SAFETY: the caller's out parameters; all but the status may be null.
    unsafe {
        put(status, c.as_ref().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |c| c.status()))?;
        let Some(c) = c else { return Ok(()) };
        put_some(id, c.id);
        put_some(graph, handle(&c.graph));
        let tail = c.tail(&s)?;
        let mut shown = lock(&c.shown)?;
        *shown = tail.iter().map(|&n| Raw(n as CUgraphNode)).collect();
        let mut edges_shown = lock(&c.edges_shown)?;
        *edges_shown = vec![plain_edge(); tail.len()];
        put_some(nodes, shown.as_ptr().cast());
        put_some(edges, edges_shown.as_ptr());
        put_some(count, tail.len());
    }
    Ok(())
}

fn update_tail(h: CUstream, nodes: *mut CUgraphNode, n: usize, flags: c_uint) -> R {
    let s = stream::resolve(h)?;
    let c = s.capture().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    c.check()?;
    let nodes = nodes_of(nodes, n)?;
    let mut tails = lock(&c.tails)?;
    let tail = tails.entry(s.id).or_default();
    if flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES {
        tail.clear();
    }
    tail.extend(nodes);
    Ok(())
}

fn plain_edge() -> CUgraphEdgeData {
    CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] }
}

fn nodes_of(p: *const CUgraphNode, n: usize) -> R<Vec<usize>> {
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

pub fn current_or(ctx: CUcontext) -> R<Arc<Context>> {
    if ctx.is_null() { context::current() } else { context::from_handle(ctx) }
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
    let func = &k.function.program.funcs[k.function.index as usize];
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
            CU_GRAPH_NODE_TYPE_HOST => Work::Host(Raw((u.host.fn_, u.host.userData))),
            // `add_any` hands graphs over.
            CU_GRAPH_NODE_TYPE_GRAPH if u.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => {
                return refuse("cuGraphNodeSetParams", "moving a graph into a node that exists");
            }
            CU_GRAPH_NODE_TYPE_GRAPH => Work::Child(graph(u.graph.graph)?.is_its_own()?.clone_graph()?),
            CU_GRAPH_NODE_TYPE_EMPTY => Work::Empty,
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Work::Wait(event(u.eventWait.event)?),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => Work::Record(event(u.eventRecord.event)?),
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let a = allocation(&*context::current()?, u.alloc.bytesize as u64)?;
                (*p).__bindgen_anon_1.alloc.dptr = a.base;
                Work::Alloc(a)
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => Work::Free(u.free.dptr),
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

fn instantiate(out: *mut CUgraphExec, g: CUgraph, flags: u64) -> R {
    let context = context::current()?;
    let g = graph(g)?.is_its_own()?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 {
        return refuse("cuGraphInstantiate", "launching graphs from kernels");
    }
    let steps = g.steps()?;
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

fn release(o: &Arc<UserObject>, n: u64) {
    if o.count.fetch_sub(n, Ordering::AcqRel) == n {
        OBJECTS.remove(Arc::as_ptr(o).cast_mut());
        let Raw((f, data)) = o.destroy;
        if let Some(f) = f {
            // SAFETY: the application's destructor with its argument, once.
            unsafe { f(data) };
        }
    }
}

api! {
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
        let p = get(p)?;
        add_node(out, g, after, n, Work::Host(Raw((p.fn_, p.userData))))
    }
    fn cuGraphHostNodeGetParams(h: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) {
        let Work::Host(Raw((fn_, data))) = work_of(h)? else { return Err(CUDA_ERROR_INVALID_VALUE) };
        put(out, CUDA_HOST_NODE_PARAMS { fn_, userData: data })
    }
    fn cuGraphHostNodeSetParams(h: CUgraphNode, p: *const CUDA_HOST_NODE_PARAMS) {
        let p = get(p)?;
        set_work_of(h, Work::Host(Raw((p.fn_, p.userData))))
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
        let a = allocation(&*context::current()?, v.bytesize as u64)?;
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
        add_node(out, g, after, n, Work::Free(at))
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
        let p = get(p)?;
        add_node(out, g, after, n, Work::MemOps(mem_ops(&list(p.paramArray, p.count as usize)?)?))
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
        let p = get(p)?;
        set_step(x, h, Work::Host(Raw((p.fn_, p.userData))))
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
    fn cuDeviceGraphMemTrim(dev: CUdevice) { crate::device::check(dev).map(drop) }
    fn cuDeviceGetGraphMemAttribute(dev: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let dev = crate::device::check(dev)?;
        if attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let owned = vram::all(|r| r.device == dev && r.flags & memory::GRAPH_OWNED != 0);
        put(value.cast::<u64>(), owned.iter().map(|r| r.reach).sum::<u64>())
    }
    fn cuDeviceSetGraphMemAttribute(dev: CUdevice, _attr: CUgraphMem_attribute, _value: *mut c_void) {
        crate::device::check(dev).map(drop)
    }
    fn cuUserObjectCreate(
        out: *mut CUuserObject,
        data: *mut c_void,
        destroy: CUhostFn,
        count: c_uint,
        _flags: c_uint,
    ) {
        if count == 0 || destroy.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let o = Arc::new(UserObject { destroy: Raw((destroy, data)), count: AtomicU64::new(count.into()) });
        put(out, OBJECTS.add(&o))
    }
    fn cuUserObjectRetain(o: CUuserObject, count: c_uint) {
        let o = OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        o.count.fetch_add(count.into(), Ordering::AcqRel);
        Ok(())
    }
    fn cuUserObjectRelease(o: CUuserObject, count: c_uint) {
        release(&OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?, count.into());
        Ok(())
    }
    fn cuGraphRetainUserObject(g: CUgraph, o: CUuserObject, count: c_uint, flags: c_uint) {
        let o = OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let g = graph(g)?;
        let mut all = lock(&g.objects)?;
        for _ in 0..count {
            // Moved, the caller's reference becomes the graph's.
            all.push(if flags & CU_GRAPH_USER_OBJECT_MOVE == 0 { Share::new(&o) } else { Share(o.clone()) });
        }
        Ok(())
    }
    fn cuGraphReleaseUserObject(g: CUgraph, o: CUuserObject, count: c_uint) {
        let o = OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let g = graph(g)?;
        for _ in 0..count {
            let mut all = lock(&g.objects)?;
            let at = all.iter().position(|x| Arc::ptr_eq(&x.0, &o)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let gone = all.remove(at);
            drop(all);
            drop(gone);
        }
        Ok(())
    }
    fn cuStreamBeginCapture_v2(h: CUstream, mode: CUstreamCaptureMode) { begin(h, None, mode) }
    fn cuStreamBeginCapture(h: CUstream) { begin(h, None, CU_STREAM_CAPTURE_MODE_GLOBAL) }
    fn cuStreamBeginCaptureToGraph(
        h: CUstream,
        g: CUgraph,
        after: *const CUgraphNode,
        _data: *const CUgraphEdgeData,
        n: usize,
        mode: CUstreamCaptureMode,
    ) {
        let into = (graph(g)?, nodes_of(after, n)?);
        begin(h, Some(into), mode)
    }
    fn cuStreamEndCapture(h: CUstream, out: *mut CUgraph) { end(h, out) }
    fn cuStreamIsCapturing(h: CUstream, status: *mut CUstreamCaptureStatus) {
        let s = stream::resolve(h)?;
        put(status, s.capture().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |c| c.status()))
    }
    fn cuStreamGetCaptureInfo(h: CUstream, status: *mut CUstreamCaptureStatus, id: *mut cuuint64_t) {
        let none = std::ptr::null_mut();
        capture_info(h, status, id, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), none)
    }
    fn cuStreamGetCaptureInfo_v2(
        h: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        g: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        n: *mut usize,
    ) {
        capture_info(h, status, id, g, nodes, std::ptr::null_mut(), n)
    }
    fn cuStreamGetCaptureInfo_v3(
        h: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        g: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        n: *mut usize,
    ) {
        capture_info(h, status, id, g, nodes, edges, n)
    }
    fn cuStreamUpdateCaptureDependencies(h: CUstream, nodes: *mut CUgraphNode, n: usize, flags: c_uint) {
        update_tail(h, nodes, n, flags)
    }
    fn cuStreamUpdateCaptureDependencies_v2(
        h: CUstream,
        nodes: *mut CUgraphNode,
        _data: *const CUgraphEdgeData,
        n: usize,
        flags: c_uint,
    ) {
        update_tail(h, nodes, n, flags)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        let new = get(mode)?;
        if new > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(mode, MODE.replace(new))
    }
}
