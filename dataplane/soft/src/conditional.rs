//! Conditional graph nodes: bodies that run when, and as often as, a value asks for that kernels set.
//!
//! The value lies with its handle, not with an executable graph: of a graph with conditional nodes CUDA allows one
//! executable at a time, whose launches run one after the other.

// UNSAFETY: C entry points.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};

use orion_cuda::sys::*;

use crate::api::{R, Raw, api, handle, put, refuse};
use crate::context::Context;
use crate::graph::{self, Graph, Step};
use crate::work::Work;

/// More bodies than any switch has, and few enough to make.
const BODIES_MAX: u32 = 1 << 16;
/// Graphs are walked by recursion.
const NESTING_MAX: usize = 256;

/// The value behind a conditional handle.
pub struct Condition {
    number: CUgraphConditionalHandle,
    /// The graph that the handle was created for.
    graph: u64,
    context: u64,
    default: Option<u32>,
    value: AtomicU32,
    /// A handle has one node.
    used: AtomicBool,
}

/// A conditional node.
pub struct Conditional {
    kind: CUgraphConditionalNodeType,
    condition: Arc<Condition>,
    pub bodies: Vec<Arc<Graph>>,
    /// The bodies' handles, which the application may read as long as the node lives.
    shown: Vec<Raw<CUgraph>>,
}

/// Conditions by handle: what a kernel has is the number.
static CONDITIONS: RwLock<BTreeMap<CUgraphConditionalHandle, Weak<Condition>>> = RwLock::new(BTreeMap::new());
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

impl Condition {
    fn find(number: CUgraphConditionalHandle) -> Option<Arc<Self>> {
        CONDITIONS.read().ok()?.get(&number)?.upgrade()
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        if let Ok(mut all) = CONDITIONS.write() {
            all.remove(&self.number);
        }
    }
}

/// `cudaGraphSetConditional` in a kernel of a context; false for a handle that is not of that context.
pub fn set(context: u64, number: CUgraphConditionalHandle, value: u32) -> bool {
    let condition = Condition::find(number).filter(|c| c.context == context);
    condition.inspect(|c| c.value.store(value, Ordering::Release)).is_some()
}

impl Conditional {
    /// A node for a graph, with empty bodies.
    pub fn new(g: &Graph, p: &CUDA_CONDITIONAL_NODE_PARAMS) -> R<Arc<Self>> {
        let sizes = match p.type_ {
            CU_GRAPH_COND_TYPE_IF => 1..=2,
            CU_GRAPH_COND_TYPE_WHILE => 1..=1,
            CU_GRAPH_COND_TYPE_SWITCH => 1..=u32::MAX,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let condition = Condition::find(p.handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let context = graph::current_or(p.ctx)?;
        if !sizes.contains(&p.size) || !g.is_within(condition.graph) || condition.context != context.id {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if p.size > BODIES_MAX {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        if g.depth() >= NESTING_MAX {
            return refuse("cuGraphAddNode", "a conditional node at this depth");
        }
        if condition.used.swap(true, Ordering::AcqRel) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bodies: Vec<_> = (0..p.size).map(|_| Graph::body_of(g)).collect();
        let shown = bodies.iter().map(|b| Raw(handle(b))).collect();
        Ok(Arc::new(Self { kind: p.type_, condition, bodies, shown }))
    }

    pub fn shown(&self) -> *mut CUgraph {
        self.shown.as_ptr().cast_mut().cast()
    }

    /// The node goes, and the handles of its bodies with it. Executables keep what they were made of.
    pub fn forget(&self) {
        self.condition.used.store(false, Ordering::Release);
        self.bodies.iter().for_each(Graph::forget);
    }

    /// Whether an executable of `self` can be updated to `other`.
    pub fn same_shape(&self, other: &Self) -> bool {
        self.kind == other.kind && self.bodies.len() == other.bodies.len()
    }

    /// Runs the bodies that the value selects, each time it is read. A loop ends with its context at the latest.
    pub fn run(&self, c: &Context, body: impl Fn(usize)) {
        let value = || self.condition.value.load(Ordering::Acquire);
        match self.kind {
            CU_GRAPH_COND_TYPE_WHILE => {
                while value() != 0 && c.error() == CUDA_SUCCESS {
                    body(0);
                }
            }
            kind => {
                let selected = if kind == CU_GRAPH_COND_TYPE_IF { u32::from(value() == 0) } else { value() } as usize;
                if selected < self.bodies.len() {
                    body(selected);
                }
            }
        }
    }
}

/// The conditional nodes among steps, at any depth.
fn within(steps: &[Step]) -> Vec<&Conditional> {
    let mut found = Vec::new();
    for s in steps {
        if let Work::Conditional(node) = &s.work {
            found.push(&**node);
        }
        found.extend(s.bodies.iter().flat_map(|b| within(b)));
    }
    found
}

pub fn any(steps: &[Step]) -> bool {
    !within(steps).is_empty()
}

/// At the start of a launch: values whose handles say so take their defaults.
pub fn assign_defaults(steps: &[Step]) {
    for node in within(steps) {
        if let Some(default) = node.condition.default {
            node.condition.value.store(default, Ordering::Release);
        }
    }
}

/// A step that a conditional node's bodies may not hold.
pub fn misplaced(steps: &[Step]) -> Option<&Step> {
    steps.iter().find_map(|s| match &s.work {
        Work::Conditional(node) => s.bodies.iter().find_map(|b| forbidden(b, node.condition.context)),
        _ => s.bodies.iter().find_map(|b| misplaced(b)),
    })
}

fn forbidden(body: &[Step], context: u64) -> Option<&Step> {
    body.iter().find_map(|s| {
        let allowed = match &s.work {
            Work::Empty | Work::Set(_) | Work::Child(_) => true,
            Work::Kernel(k) => k.function.context == context,
            Work::Copy(copy) => {
                let r = &copy.raw.0;
                let array = [r.srcMemoryType, r.dstMemoryType].contains(&CU_MEMORYTYPE_ARRAY);
                !array && copy.pageable() == (false, false)
            }
            Work::Conditional(node) => node.condition.context == context,
            _ => false,
        };
        if allowed { s.bodies.iter().find_map(|b| forbidden(b, context)) } else { Some(s) }
    })
}

/// Whether an executable graph in existence has a conditional node in common with steps.
pub fn is_instantiated(steps: &[Step]) -> R<bool> {
    let mine = within(steps);
    if mine.is_empty() {
        return Ok(false);
    }
    for x in graph::EXECS.all() {
        let theirs = x.steps()?;
        let shared = |node: &Conditional| mine.iter().any(|m| Arc::ptr_eq(&m.condition, &node.condition));
        if within(&theirs).into_iter().any(shared) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a handle of the graph, or of a graph inside it, has no node.
pub fn any_unused(g: &Graph, steps: &[Step]) -> R<bool> {
    let mut graphs: Vec<&Graph> = within(steps).into_iter().flat_map(|n| &n.bodies).map(|b| &**b).collect();
    graphs.push(g);
    for g in graphs {
        if g.conditions()?.iter().any(|c| !c.used.load(Ordering::Acquire)) {
            return Ok(true);
        }
    }
    Ok(false)
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
        let context = graph::current_or(ctx)?;
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
}
