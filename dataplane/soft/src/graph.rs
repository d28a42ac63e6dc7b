//! Graphs: nodes, edges, and what a stream does and a graph node holds, which is one enumeration for both.

// UNSAFETY: calls functions that the application handed over for when its objects go.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;

use crate::api::{R, Raw, Registry};
use crate::condition::Condition;
use crate::context::{self, Context};
use crate::copy::Copy3D;
use crate::device;
use crate::event::Event;
use crate::launch::KernelLaunch;
use crate::memory;
use crate::memset::Set;
use crate::stream_memory::MemOp;
use crate::vram::{self, Kind};

/// A conditional node.
pub struct Conditional {
    pub kind: CUgraphConditionalNodeType,
    pub condition: Arc<Condition>,
    pub bodies: Vec<Arc<Graph>>,
    /// The bodies' handles, which the application may read as long as the node lives.
    pub shown: Vec<Raw<CUgraph>>,
}

#[derive(Clone)]
pub enum Work {
    Empty,
    Kernel(Arc<KernelLaunch>),
    Copy(Copy3D),
    Set(Set),
    Host(Raw<(CUhostFn, *mut c_void)>),
    MemOps(Vec<MemOp>),
    /// Graph nodes only.
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Child(Arc<Graph>),
    Conditional(Arc<Conditional>),
    Alloc(Arc<GraphAllocation>),
    /// Ends an allocation in stream order.
    Free(u64),
}

pub struct Graph {
    pub id: u64,
    /// The graphs that this one is a conditional node's body in, the innermost first.
    pub around: Vec<u64>,
    /// The graph whose child this one is, 0 while it is nobody's.
    pub holder: AtomicU64,
    /// It was handed over to its holder, which destroys it.
    pub moved: AtomicBool,
    pub state: Mutex<State>,
    pub objects: Mutex<Vec<Share>>,
    pub conditions: Mutex<Vec<Arc<Condition>>>,
}

#[derive(Default)]
pub struct State {
    pub nodes: Vec<Arc<Node>>,
    /// Pairs of node addresses, from and to.
    pub edges: Vec<(usize, usize)>,
}

pub struct Node {
    pub graph: u64,
    pub work: Mutex<Work>,
    /// The node this one was cloned from.
    pub origin: usize,
    /// Argument pointers that `cuGraphKernelNodeGetParams` lends out.
    pub shown: Mutex<Vec<Raw<*mut c_void>>>,
}

/// Memory of an allocation node. Its address is the same in every launch, and stays until the graph and its instances
/// are gone; what a launch allocated and nothing freed outlives them.
pub struct GraphAllocation {
    pub base: u64,
    pub bytes: u64,
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        memory::without_node(self.base);
    }
}

pub struct GraphExec {
    pub id: u64,
    pub context: Arc<Context>,
    pub flags: u64,
    pub steps: Mutex<Vec<Step>>,
    /// Where the last launch ends: launches of one executable run one after the other, whatever their streams.
    pub last: Mutex<Option<context::Point>>,
    /// What it was made from may be gone.
    pub objects: Mutex<Vec<Share>>,
}

#[derive(Clone)]
pub struct Step {
    pub node: usize,
    pub work: Work,
    pub enabled: bool,
    /// Positions of the steps this one follows.
    pub after: Vec<usize>,
    /// The graphs inside it: the child graph's, or one for each body of a conditional node.
    pub bodies: Vec<Vec<Step>>,
}

pub struct UserObject {
    pub destroy: Raw<(CUhostFn, *mut c_void)>,
    pub count: AtomicU64,
}

/// One reference to a user object: of a graph, of what was made from it, or of a launch that is under way.
pub struct Share(pub Arc<UserObject>);

impl Share {
    /// Takes one more.
    pub fn new(o: &Arc<UserObject>) -> Share {
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
pub(crate) static OBJECTS: Registry<UserObject> = Registry::new();
pub(crate) static NEXT_ID: AtomicU64 = AtomicU64::new(1);

pub(crate) fn address<T>(v: &Arc<T>) -> usize {
    Arc::as_ptr(v) as usize
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> R<std::sync::MutexGuard<'_, T>> {
    m.lock().map_err(|_| CUDA_ERROR_UNKNOWN)
}

impl GraphExec {
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Graph {
    pub fn new() -> Arc<Self> {
        Self::inside(Vec::new())
    }

    pub(crate) fn inside(around: Vec<u64>) -> Arc<Self> {
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
    pub(crate) fn is_inside(self: &Arc<Self>, other: &Self) -> bool {
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
    pub(crate) fn take_over(self: &Arc<Self>, child: Arc<Self>) -> R<Arc<Self>> {
        if child.is_owned() || self.is_inside(&child) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(child)
    }

    fn is_owned(&self) -> bool {
        !self.around.is_empty() || self.holder.load(Ordering::Acquire) != 0
    }

    /// What only a graph that was not handed over to another can be used for.
    pub(crate) fn is_its_own(self: Arc<Self>) -> R<Arc<Self>> {
        if self.moved.load(Ordering::Acquire) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(self) }
    }

    pub(crate) fn add(&self, after: &[usize], work: Work, origin: usize) -> R<Arc<Node>> {
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
    pub(crate) fn order(&self) -> R<Vec<Arc<Node>>> {
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

    pub fn steps(&self) -> R<Vec<Step>> {
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

    /// What an executable graph made from this one shares: this graph's and those of the graphs inside it.
    pub(crate) fn shares(&self) -> R<Vec<Share>> {
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
pub(crate) fn bodies(work: &Work) -> R<Vec<Vec<Step>>> {
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

pub(crate) fn node(h: CUgraphNode) -> R<Arc<Node>> {
    crate::device::initialised()?;
    NODES.get(h).ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn exec(h: CUgraphExec) -> R<Arc<GraphExec>> {
    crate::device::initialised()?;
    EXECS.get(h).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Memory of a device of which a context may be current.
pub(crate) fn allocation(c: &Context, device: CUdevice, bytes: u64) -> R<Arc<GraphAllocation>> {
    let r = match device == c.device {
        true => memory::allocate(c, bytes, Kind::Pool)?,
        false => memory::allocate_for_all(device, bytes, Kind::Pool)?,
    };
    vram::update(r.base, |r| r.flags |= memory::GRAPH_OWNED | memory::OF_GRAPHS);
    let mut of_graphs = device::graph_memory(device);
    let now = memory_of_graphs(device);
    of_graphs.used_most = of_graphs.used_most.max(now);
    of_graphs.reserved_most = of_graphs.reserved_most.max(now);
    Ok(Arc::new(GraphAllocation { base: r.base, bytes }))
}

/// Bytes that allocation nodes made and nothing has ended.
pub(crate) fn memory_of_graphs(device: CUdevice) -> u64 {
    vram::all(|r| r.device == device && r.flags & memory::OF_GRAPHS != 0).iter().map(|r| r.reach).sum()
}

pub(crate) fn release(o: &Arc<UserObject>, n: u64) {
    if o.count.fetch_sub(n, Ordering::AcqRel) == n {
        OBJECTS.remove(Arc::as_ptr(o).cast_mut());
        let Raw((f, data)) = o.destroy;
        if let Some(f) = f {
            // SAFETY: the application's destructor with its argument, once.
            unsafe { f(data) };
        }
    }
}
