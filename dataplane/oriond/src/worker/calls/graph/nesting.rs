//! Graphs inside nodes of other graphs, and how deep they may lie there.
//!
//! This worker and the driver walk graphs by recursion. So no graph may come to lie in itself, and the levels are
//! bounded.

// UNSAFETY: calls the driver with handles that were looked up.

use std::ptr;

use orion_cuda::sys::*;

use crate::worker::calls::graph::names::nodes_of;
use crate::worker::calls::graph::params::Params;
use crate::worker::driver::log as driver_log;
use crate::worker::outcome::Stop;
use crate::worker::session::Session;
use crate::worker::state::graphs::{LEVELS_MAX, around};

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
