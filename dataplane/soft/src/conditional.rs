//! Conditional graph nodes: bodies that run when, and as often as, a value asks for that kernels set.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::api::{R, Raw, handle};
use crate::condition::Condition;
use crate::context::{self, Context};
use crate::graph::{self, Conditional, Graph, Step, Work};
use crate::log::refuse;

/// More bodies than any switch has, and few enough to make.
const BODIES_MAX: u32 = 1 << 16;

/// Graphs are walked by recursion.
const NESTING_MAX: usize = 256;

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
        let context = context::current_or(p.ctx)?;
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
