//! A graph as text for Graphviz, in the form of NVIDIA's driver: a cluster for each graph, a box for each node.

use std::collections::HashMap;
use std::fmt::Write;

use orion_cuda::sys::*;

use crate::api::R;
use crate::graph::{Graph, Work, lock};

/// The graph, and below it those of its nodes: children and bodies of conditional nodes. `flags` are
/// `CU_GRAPH_DEBUG_DOT_FLAGS_*` and choose of which nodes more is said.
pub fn drawn(graph: &Graph, flags: u32) -> R<String> {
    let mut text = String::from("digraph dot {\n");
    draw(graph, flags, &mut text)?;
    text.push_str("}\n");
    Ok(text)
}

fn draw(graph: &Graph, flags: u32, text: &mut String) -> R {
    let id = graph.id;
    let state = lock(&graph.state)?;
    let number: HashMap<usize, usize> = state.nodes.iter().enumerate().map(|(n, node)| (address(node), n)).collect();
    let mut inner = Vec::new();
    text.push_str(&format!("subgraph cluster_{id} {{\nlabel=\"graph_{id}\" graph[style=\"dashed\"];\n"));
    for (n, node) in state.nodes.iter().enumerate() {
        let work = lock(&node.work)?;
        let mut label = label(&work);
        if flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) != 0 {
            let _ = write!(label, "\\nnode {:#x}", address(node));
        }
        let (of_kind, more) = details(&work);
        if flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | of_kind) != 0 {
            more.into_iter().for_each(|more| label.push_str(&format!("\\n{more}")));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\"graph_{id}_node_{n}\"[shape=\"rectangle\" label=\"{n}\\n{label}\"];");
        match &*work {
            Work::Child(child) => inner.push(child.clone()),
            Work::Conditional(c) => inner.extend(c.bodies.iter().cloned()),
            _ => {}
        }
    }
    for (from, to) in &state.edges {
        if let (Some(from), Some(to)) = (number.get(from), number.get(to)) {
            let _ = writeln!(text, "\"graph_{id}_node_{from}\" -> \"graph_{id}_node_{to}\";");
        }
    }
    text.push_str("}\n");
    drop(state);
    inner.iter().try_for_each(|graph| draw(graph, flags, text))
}

fn address<T>(node: &std::sync::Arc<T>) -> usize {
    std::sync::Arc::as_ptr(node) as usize
}

/// Which kind of node it is, and what a reader would look for first.
fn label(work: &Work) -> String {
    match work {
        Work::Empty => "EMPTY".into(),
        Work::Kernel(k) => format!("KERNEL\\n{}", k.function.name.to_string_lossy()),
        Work::Copy(_) => "MEMCPY".into(),
        Work::Set(_) => "MEMSET".into(),
        Work::Host(_) => "HOST".into(),
        Work::MemOps(_) => "BATCH_MEM_OP".into(),
        Work::Record(_) => "EVENT_RECORD".into(),
        Work::Wait(_) => "EVENT_WAIT".into(),
        Work::Child(child) => format!("GRAPH\\ngraph_{}", child.id),
        Work::Conditional(c) => {
            let bodies: Vec<String> = c.bodies.iter().map(|body| format!("graph_{}", body.id)).collect();
            format!("CONDITIONAL\\n{}", bodies.join(" "))
        }
        Work::Alloc(a) => format!("MEM_ALLOC\\n{} bytes at {:#x}", a.bytes, a.base),
        Work::Free(at) => format!("MEM_FREE\\n{at:#x}"),
    }
}

/// What a node does, in lines, and the flag that asks for it.
fn details(work: &Work) -> (u32, Vec<String>) {
    match work {
        Work::Kernel(k) => {
            let shape = |of: [u32; 3]| format!("{} x {} x {}", of[0], of[1], of[2]);
            let shape = format!("grid {}, block {}, {} bytes shared", shape(k.grid), shape(k.block), k.shared);
            (CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS, vec![shape, format!("function {:#x}", k.handle)])
        }
        Work::Copy(copy) => {
            let CUDA_MEMCPY3D { WidthInBytes, Height, Depth, .. } = copy.raw.0;
            let shape = format!("{WidthInBytes} bytes x {Height} x {Depth}");
            (CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS, vec![shape])
        }
        Work::Set(set) => {
            let what = format!("{} x {} of {} bytes to {:#x}", set.width, set.height, set.element, set.value);
            (CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS, vec![what, format!("at {:#x}", set.dst)])
        }
        Work::Host(of) => {
            let function = of.0.0.map_or(0, |function| function as usize);
            (CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS, vec![format!("function {function:#x}")])
        }
        Work::MemOps(all) => {
            (CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS, vec![format!("{} operations", all.len())])
        }
        Work::Record(event) | Work::Wait(event) => {
            (CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS, vec![format!("event {:#x}", address(event))])
        }
        Work::Conditional(c) => {
            (CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS, vec![format!("{} bodies", c.bodies.len())])
        }
        Work::Empty | Work::Child(_) | Work::Alloc(_) | Work::Free(_) => (0, Vec::new()),
    }
}
