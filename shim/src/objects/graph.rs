//! Names of graphs and nodes, and what is lent with them.

// UNSAFETY: reads the application's arrays of nodes and edges.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::calls;
use orion_wire::message::field::{Existing, List, New};
use orion_wire::message::graph::{
    Dependencies, Dependency, EdgePage, GraphGetNodes, GraphGetNodesReply, NODES_MAX, NodePage, Page,
};

use crate::session::call::call;
use crate::session::lost::broken;
use crate::state::function::Function;
use crate::state::graph::Lent;
use crate::state::process::state;

/// A handle that CUDA may not be given as null.
pub fn named(kind: Kind, word: u64) -> Result<u64, CUresult> {
    if Handle(word).is(kind) { Ok(word) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

pub fn graph_name(graph: CUgraph) -> Result<u64, CUresult> {
    named(Kind::Graph, graph as u64)
}

pub fn node_name(node: CUgraphNode) -> Result<u64, CUresult> {
    named(Kind::GraphNode, node as u64)
}

/// Names reserved for what the worker may find.
pub struct Spare(Vec<Handle>);

impl Spare {
    pub fn new(kind: Kind, count: usize) -> Spare {
        Spare((0..count).map(|_| state().handles.reserve(kind)).collect())
    }

    /// The only one.
    pub fn first<const KIND: u8>(&self) -> New<KIND> {
        self.0[0].into()
    }

    pub fn names<const KIND: u8, const MAX: usize>(&self) -> Result<List<New<KIND>, MAX>, CUresult> {
        List::of(self.0.iter().map(|handle| (*handle).into()).collect()).map_err(|_| CUDA_ERROR_INVALID_VALUE)
    }

    /// As many as a message has room for: there were made as many.
    pub fn all<const KIND: u8, const COUNT: usize>(&self) -> [New<KIND>; COUNT] {
        std::array::from_fn(|i| self.0[i].into())
    }

    /// Keeps the names that the worker used. The others go back, and without an answer all of them.
    pub fn settle(mut self, used: &[u64]) {
        let used: std::collections::HashSet<u64> = used.iter().copied().collect();
        self.0.retain(|handle| !used.contains(&handle.0));
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|handle| state().handles.give_back(handle));
    }
}

/// Keeps `words` for `node`; the same contents are kept once, so that asking twice does not move them. Answers
/// where they lie, and where the pointers to `offsets` in them lie.
pub fn lend(node: u64, words: Vec<u64>, offsets: &[usize]) -> (*mut c_void, *mut *mut c_void) {
    let mut lent = state().graphs.lent.lock();
    let of_node = lent.get_or_insert_default().entry(node).or_default();
    let known = of_node.iter().position(|l| *l.words == *words && l.pointers.len() == offsets.len());
    let index = known.unwrap_or_else(|| {
        let words = words.into_boxed_slice();
        let pointers = offsets.iter().map(|offset| words.as_ptr() as usize + offset).collect();
        of_node.push(Lent { words, pointers });
        of_node.len() - 1
    });
    let kept = &mut of_node[index];
    (kept.words.as_mut_ptr().cast(), kept.pointers.as_mut_ptr().cast())
}

/// Names that ended in the worker.
pub fn forget(names: &[u64]) {
    let mut lent = state().graphs.lent.lock();
    for name in names {
        if let Some(lent) = lent.as_mut() {
            lent.remove(name);
        }
        state().handles.give_back(Handle(*name));
    }
}

fn edge_word(edge: CUgraphEdgeData) -> u64 {
    let [a, b, c, d, e] = edge.reserved;
    u64::from_le_bytes([edge.from_port, edge.to_port, edge.type_, a, b, c, d, e])
}

pub fn edge_data(word: u64) -> CUgraphEdgeData {
    let [from_port, to_port, type_, reserved @ ..] = word.to_le_bytes();
    CUgraphEdgeData { from_port, to_port, type_, reserved }
}

/// What a new node comes after.
///
/// # Safety
/// `nodes` has `count` elements, and so has `edges` unless it is null.
pub unsafe fn nodes_before(
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
) -> Result<Dependencies, CUresult> {
    if count > NODES_MAX || (count > 0 && nodes.is_null()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let dependency = |i| {
        // SAFETY: inside the caller's array.
        let node = Existing(node_name(unsafe { *nodes.add(i) })?);
        // SAFETY: as above.
        let edge = if edges.is_null() { 0 } else { edge_word(unsafe { *edges.add(i) }) };
        Ok(Dependency { node, edge })
    };
    let all = (0..count).map(dependency).collect::<Result<_, CUresult>>()?;
    let nodes = List::of(all).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    Ok(Dependencies { with_edges: !edges.is_null(), nodes })
}

/// Makes a function that only the worker knew known here: a captured kernel's.
pub fn learn_function(word: u64, layout: Vec<(u32, u32)>) {
    let handle = Handle(word);
    if handle.is(Kind::Function) && state().functions.table.get(handle).is_none() {
        state().functions.table.insert(handle, Function::new(handle, c"".to_owned(), (0, 0), layout));
    }
}

/// One page of a list, each element with its nodes and an edge's data.
pub struct Shown<const ENDS: usize> {
    /// Of the whole list.
    pub total: usize,
    pub elements: Vec<([u64; ENDS], u64)>,
}

impl From<NodePage> for Shown<1> {
    fn from(page: NodePage) -> Shown<1> {
        let elements = page.nodes.iter().map(|shown| ([shown.node.0], shown.edge)).collect();
        Shown { total: page.total as usize, elements }
    }
}

impl From<EdgePage> for Shown<2> {
    fn from(page: EdgePage) -> Shown<2> {
        let elements = page.edges.iter().map(|shown| ([shown.from.0, shown.to.0], shown.edge)).collect();
        Shown { total: page.total as usize, elements }
    }
}

/// One page of a list, asked for with names for what has none.
pub fn page<const ENDS: usize>(
    first: usize,
    wanted: usize,
    ask: impl FnOnce(Page) -> Result<Shown<ENDS>, CUresult>,
) -> Result<Shown<ENDS>, CUresult> {
    let spare = Spare::new(Kind::GraphNode, wanted * ENDS);
    let shown = ask(Page { first: first as u64, wanted: wanted as u64, names: spare.names()? })?;
    if shown.elements.len() > wanted {
        return Err(broken("a longer list than was asked for"));
    }
    spare.settle(shown.elements.iter().flat_map(|(nodes, _)| *nodes).collect::<Vec<_>>().as_slice());
    Ok(shown)
}

/// All nodes of a graph.
pub fn nodes_of(graph: u64) -> Result<Vec<u64>, CUresult> {
    let graph = Existing(named(Kind::Graph, graph)?);
    let ask = |page| {
        let q = GraphGetNodes { graph, page };
        call(GraphGetNodes::OP, |w| q.encode(w), |r| Ok(GraphGetNodesReply::decode(r)?.page.into()))
    };
    let total = page::<1>(0, 0, ask)?.total;
    let mut nodes = Vec::with_capacity(total);
    while nodes.len() < total {
        let wanted = (total - nodes.len()).min(NODES_MAX);
        let shown = page::<1>(nodes.len(), wanted, ask)?.elements;
        nodes.extend(shown.iter().map(|([node], _)| *node));
        if shown.len() < wanted {
            break;
        }
    }
    Ok(nodes)
}

/// The type of a node.
pub fn type_of(node: u64) -> Result<CUgraphNodeType, CUresult> {
    let request = calls::cuGraphNodeGetType { hNode: node };
    let decode = |r: &mut Reader<'_>| Ok(calls::cuGraphNodeGetType_reply::decode(r)?.type_);
    call(ops::CU_GRAPH_NODE_GET_TYPE, |w| request.encode(w), decode)
}
