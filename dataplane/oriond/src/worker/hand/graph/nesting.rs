//! Graphs inside nodes of other graphs, and how deep they may lie there.
//!
//! This worker and the driver walk graphs by recursion. So no graph may come to lie in itself, and the levels are
//! bounded.

// UNSAFETY: calls the driver with handles that were looked up.

use std::collections::HashMap;
use std::ptr;

use orion_cuda::sys::*;

use super::params::Params;
use super::{State, Stop, nodes_of};
use crate::worker::driver_log;
use crate::worker::session::Session;

/// Child graphs in child graphs, bodies of conditional nodes in each other. Programs nest two or three.
pub const LEVELS_MAX: usize = 64;

/// Named graphs inside nodes: child graphs, and the bodies of conditional nodes.
#[derive(Default)]
pub struct Inside {
    /// By node: the client's names with the driver's graphs.
    graphs: HashMap<usize, Vec<(u64, usize)>>,
    /// The same the other way: the node that a graph lies in.
    nodes: HashMap<usize, usize>,
}

impl Inside {
    pub fn put(&mut self, node: CUgraphNode, name: u64, graph: CUgraph) {
        self.graphs.entry(node as usize).or_default().push((name, graph as usize));
        self.nodes.insert(graph as usize, node as usize);
    }

    pub fn of(&self, node: CUgraphNode) -> impl Iterator<Item = (u64, CUgraph)> {
        self.graphs.get(&(node as usize)).into_iter().flatten().map(|(name, graph)| (*name, *graph as CUgraph))
    }

    /// A graph that the driver has destroyed: its address may become another's.
    pub fn forget(&mut self, graph: CUgraph) {
        if let Some(node) = self.nodes.remove(&(graph as usize)) {
            self.graphs.entry(node).or_default().retain(|(_, inner)| *inner != graph as usize);
        }
    }

    pub fn remove(&mut self, node: usize) {
        for (_, graph) in self.graphs.remove(&node).unwrap_or_default() {
            self.nodes.remove(&graph);
        }
    }
}

/// The graph and those around it, itself first.
fn around(state: &State, graph: CUgraph) -> Vec<usize> {
    let mut all = vec![graph as usize];
    // Every graph that the client can name inside another it has asked for, so none is missing. One more than may be
    // is enough to say no.
    let mut last = graph as usize;
    while let Some(next) = state.inside.nodes.get(&last).and_then(|node| state.graph_of.get(node))
        && all.len() <= LEVELS_MAX
    {
        all.push(*next);
        last = *next;
    }
    all
}

/// The levels of graphs in a graph, itself included; no more than `most` + 1 are counted.
fn levels(s: &Session, graph: CUgraph, most: usize) -> usize {
    let below = |graph| if most == 0 { 0 } else { levels(s, graph, most - 1) };
    let of_node = |node| {
        let (mut kind, mut child) = (CU_GRAPH_NODE_TYPE_EMPTY, ptr::null_mut());
        // SAFETY: a node of this session and a valid out pointer.
        let known = unsafe { s.driver.cuGraphNodeGetType(node, &mut kind) } == CUDA_SUCCESS;
        match kind {
            // SAFETY: as above. Only of a child graph node: the driver logs what it refuses, for the program to read.
            CU_GRAPH_NODE_TYPE_GRAPH
                if known && unsafe { s.driver.cuGraphChildGraphNodeGetGraph(node, &mut child) } == CUDA_SUCCESS =>
            {
                below(child)
            }
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                s.graph_nodes.inside.of(node).map(|(_, body)| below(body)).max().unwrap_or(0)
            }
            _ => 0,
        }
    };
    1 + nodes_of(s.driver, graph).into_iter().map(of_node).max().unwrap_or(0)
}

/// Whether a node with these parameters may be added to the graph, which is null if it is not known.
pub fn admit(s: &Session, graph: CUgraph, params: &Params) -> Result<(), Stop> {
    let Some(below) = params.child().map(|child| levels(s, child, LEVELS_MAX)).or(params.has_bodies().then_some(1))
    else {
        return Ok(());
    };
    let around = around(&s.graph_nodes, graph);
    if let Some(child) = params.child().filter(|_| params.is_moved()) {
        let owned = s.graph_nodes.inside.nodes.contains_key(&(child as usize));
        if owned || around.contains(&(child as usize)) {
            let why = if owned { "lies in another already" } else { "is itself, or is around it" };
            driver_log::refuse(&format!("a graph cannot own a graph that {why}; add it as a clone"));
            return Err(Stop::Code(CUDA_ERROR_INVALID_VALUE));
        }
    }
    if around.len() + below > LEVELS_MAX {
        driver_log::refuse(&format!(
            "graphs inside graphs would be {} levels deep or more; Orion has {LEVELS_MAX}: nest fewer",
            around.len() + below
        ));
        return Err(Stop::Code(CUDA_ERROR_NOT_SUPPORTED));
    }
    Ok(())
}

/// As `admit`, for a node that exists: it takes no graph over.
pub fn admit_change(s: &Session, graph: CUgraph, params: &Params) -> Result<(), Stop> {
    if params.is_moved() {
        driver_log::refuse("a node that exists cannot be made the owner of a graph; add a new one");
        return Err(Stop::Code(CUDA_ERROR_INVALID_VALUE));
    }
    admit(s, graph, params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(at: usize) -> CUgraphNode {
        at as CUgraphNode
    }

    fn graph(at: usize) -> CUgraph {
        at as CUgraph
    }

    #[test]
    fn a_graph_that_is_gone_lies_nowhere() {
        let mut state = State::default();
        state.graph_of.insert(11, 1);
        state.inside.put(node(11), 7, graph(2));
        assert_eq!(around(&state, graph(2)), [2, 1]);
        state.inside.forget(graph(2));
        assert_eq!(around(&state, graph(2)), [2]);
        assert_eq!(state.inside.of(node(11)).count(), 0);
    }

    /// The driver may give an address to a graph of which this worker was not told that it is another.
    #[test]
    fn graphs_that_seem_to_lie_in_each_other_are_too_deep() {
        let mut state = State::default();
        for (inner, outer) in [(1, 2), (2, 1)] {
            state.graph_of.insert(10 + inner, outer);
            state.inside.put(node(10 + inner), 7, graph(inner));
        }
        assert_eq!(around(&state, graph(1)).len(), LEVELS_MAX + 1);
    }
}
