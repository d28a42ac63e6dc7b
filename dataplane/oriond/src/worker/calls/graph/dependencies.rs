//! Edges between nodes.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::graph as message;

use crate::worker::session::Session;

pub fn edge_word(edge: CUgraphEdgeData) -> u64 {
    let [a, b, c, d, e] = edge.reserved;
    u64::from_le_bytes([edge.from_port, edge.to_port, edge.type_, a, b, c, d, e])
}

pub fn edge_data(word: u64) -> CUgraphEdgeData {
    let [from_port, to_port, type_, reserved @ ..] = word.to_le_bytes();
    CUgraphEdgeData { from_port, to_port, type_, reserved }
}

/// Nodes, with or without edge data.
pub struct Dependencies {
    nodes: Vec<CUgraphNode>,
    edges: Option<Vec<CUgraphEdgeData>>,
}

impl Dependencies {
    pub fn of(s: &mut Session, on: &message::Dependencies) -> Result<Dependencies, CUresult> {
        let edges = on.with_edges.then(|| on.nodes.iter().map(|on| edge_data(on.edge)).collect());
        let named = |on: &message::Dependency| s.existing(Kind::GraphNode, on.node.0).map(|p| p.cast());
        Ok(Dependencies { nodes: on.nodes.iter().map(named).collect::<Result<_, _>>()?, edges })
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn nodes(&self) -> *const CUgraphNode {
        if self.nodes.is_empty() { ptr::null() } else { self.nodes.as_ptr() }
    }

    pub fn edges(&self) -> *const CUgraphEdgeData {
        match &self.edges {
            Some(edges) if !edges.is_empty() => edges.as_ptr(),
            _ => ptr::null(),
        }
    }
}
