//! A graph as text for Graphviz, in the form of NVIDIA's driver: a cluster for each graph, a box for each node.

use std::collections::HashMap;
use std::fmt::Write;

use crate::api::R;
use crate::graph::{Graph, Work, lock};

/// The graph, and below it those of its nodes: children and bodies of conditional nodes.
pub fn drawn(graph: &Graph) -> R<String> {
    let mut text = String::from("digraph dot {\n");
    draw(graph, &mut text)?;
    text.push_str("}\n");
    Ok(text)
}

fn draw(graph: &Graph, text: &mut String) -> R {
    let id = graph.id;
    let state = lock(&graph.state)?;
    let number: HashMap<usize, usize> = state.nodes.iter().enumerate().map(|(n, node)| (address(node), n)).collect();
    let mut inner = Vec::new();
    text.push_str(&format!("subgraph cluster_{id} {{\nlabel=\"graph_{id}\" graph[style=\"dashed\"];\n"));
    for (n, node) in state.nodes.iter().enumerate() {
        let work = lock(&node.work)?;
        let label = label(&work);
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
    inner.iter().try_for_each(|graph| draw(graph, text))
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
