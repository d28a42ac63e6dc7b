//! Edges between nodes.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Kind;

use crate::worker::outcome::Stop;
use crate::worker::session::Session;
use crate::worker::state::graphs::NODES_MAX;

pub fn edge_word(edge: CUgraphEdgeData) -> u64 {
    let [a, b, c, d, e] = edge.reserved;
    u64::from_le_bytes([edge.from_port, edge.to_port, edge.type_, a, b, c, d, e])
}

pub fn edge_data(word: u64) -> CUgraphEdgeData {
    let [from_port, to_port, type_, reserved @ ..] = word.to_le_bytes();
    CUgraphEdgeData { from_port, to_port, type_, reserved }
}

/// Nodes, with or without edge data: `with edges, count, (node, edge)*`.
pub struct Dependencies {
    nodes: Vec<CUgraphNode>,
    edges: Option<Vec<CUgraphEdgeData>>,
}

impl Dependencies {
    pub fn get(s: &mut Session, r: &mut Reader<'_>) -> Result<Dependencies, Stop> {
        let with_edges = r.word()? != 0;
        let words = r.list(NODES_MAX, |r| Ok((r.word()?, r.word()?)))?;
        let edges = with_edges.then(|| words.iter().map(|(_, edge)| edge_data(*edge)).collect());
        let nodes = words
            .iter()
            .map(|(word, _)| s.existing(Kind::GraphNode, *word).map(|p| p.cast()))
            .collect::<Result<_, CUresult>>()?;
        Ok(Dependencies { nodes, edges })
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
