//! Names of graphs and nodes.
//!
//! The client names graphs and nodes with handles of its own. Nodes that it did not make itself (captured, or
//! copied with a graph) get names when a query finds them: the client sends spare handles along, the worker binds
//! those it needs. A name lives as long as its node, so whatever ends a node answers which names ended with it.

// UNSAFETY: calls the driver with handles that were looked up here and structs that were built here.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Existing, GRAPH, GRAPH_NODE, List, New};
use orion_wire::message::graph::{GONE_MAX, Gone};

use crate::worker::session::Session;

pub fn graph(s: &mut Session, name: Existing<GRAPH>) -> Result<CUgraph, CUresult> {
    Ok(s.existing(Kind::Graph, name.0)?.cast())
}

pub fn node(s: &mut Session, name: Existing<GRAPH_NODE>) -> Result<CUgraphNode, CUresult> {
    Ok(s.existing(Kind::GraphNode, name.0)?.cast())
}

/// Handles the client reserved for what a command may find.
pub struct Fresh {
    words: std::vec::IntoIter<u64>,
}

impl Fresh {
    pub fn of<const KIND: u8>(names: &[New<KIND>]) -> Fresh {
        Fresh { words: names.iter().map(|name| name.0).collect::<Vec<_>>().into_iter() }
    }

    pub fn one<const KIND: u8>(name: New<KIND>) -> Fresh {
        Fresh::of(&[name])
    }

    /// The client's name for an object, a new one if it has none; 0 if the spare handles are used up.
    pub fn name(&mut self, s: &mut Session, kind: Kind, pointer: *mut c_void) -> Result<u64, Fault> {
        if pointer.is_null() {
            return Ok(0);
        }
        if let Some(word) = s.objects.name_of(kind, pointer) {
            return Ok(word);
        }
        let Some(word) = self.words.next() else { return Ok(0) };
        s.bind(kind, word, pointer)?;
        Ok(word)
    }

    pub fn name_node(&mut self, s: &mut Session, graph: CUgraph, node: CUgraphNode) -> Result<u64, Fault> {
        let new = s.objects.name_of(Kind::GraphNode, node.cast()).is_none();
        let word = self.name(s, Kind::GraphNode, node.cast())?;
        if new && word != 0 {
            s.graph_nodes.graph_of.insert(node as usize, graph as usize);
        }
        Ok(word)
    }
}

/// A graph's nodes as the driver has them.
pub fn nodes_of(driver: &'static Driver, graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    // SAFETY: a graph of this session; without an array only the number is answered.
    let mut code = unsafe { driver.cuGraphGetNodes(graph, ptr::null_mut(), &mut count) };
    let mut nodes = vec![ptr::null_mut(); if code == CUDA_SUCCESS { count } else { 0 }];
    if !nodes.is_empty() {
        // SAFETY: an array of `count` elements.
        code = unsafe { driver.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
        nodes.truncate(if code == CUDA_SUCCESS { count } else { 0 });
    }
    nodes
}

/// Names that end with a graph or a node: collected before the driver destroys it, forgotten once it has.
#[derive(Default)]
pub struct Ending {
    nodes: Vec<(u64, usize)>,
    graphs: Vec<u64>,
}

impl Ending {
    pub fn of_graph(s: &Session, graph: CUgraph) -> Ending {
        let mut ending = Ending::default();
        ending.add_graph(s, graph);
        ending
    }

    fn add_graph(&mut self, s: &Session, graph: CUgraph) {
        for node in nodes_of(s.driver, graph) {
            self.add_node(s, node);
        }
    }

    pub fn add_node(&mut self, s: &Session, node: CUgraphNode) {
        // No deeper than `nesting` lets graphs lie in each other.
        for (name, inner) in s.graph_nodes.inside.of(node) {
            self.add_graph(s, inner);
            self.graphs.push(name);
        }
        if let Some(name) = s.objects.name_of(Kind::GraphNode, node.cast()) {
            self.nodes.push((name, node as usize));
        }
    }

    /// Forgets the names and answers them, after `first`.
    pub fn forget(self, s: &mut Session, first: Vec<u64>) -> Gone {
        let mut gone = first;
        for name in self.graphs {
            s.unbind(Kind::Graph, name);
            gone.push(name);
        }
        for (name, node) in self.nodes {
            s.graph_nodes.graph_of.remove(&node);
            s.graph_nodes.functions.remove(&node);
            s.graph_nodes.inside.remove(node);
            s.graph_nodes.kept.remove(&node);
            s.unbind(Kind::GraphNode, name);
            gone.push(name);
        }
        gone.truncate(GONE_MAX);
        List::of(gone).expect("no more than there is room for")
    }
}

pub fn graph_of(s: &Session, node: CUgraphNode) -> CUgraph {
    s.graph_nodes.graph_of.get(&(node as usize)).copied().unwrap_or(0) as CUgraph
}
