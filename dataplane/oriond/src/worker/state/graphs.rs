//! What the worker remembers of the session's graphs.

// UNSAFETY: frees tickets that the driver was given.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use orion_cuda::sys::*;
use orion_wire::message::field::List;
use orion_wire::message::graph_exec::{HostCopies, HostCopy};

use crate::worker::out::callbacks::{self, Runs};

/// What the worker remembers of the session's graphs.
#[derive(Default)]
pub struct Graphs {
    /// The graph of each node whose parameters may come to own something.
    pub graph_of: HashMap<usize, usize>,
    pub inside: Inside,
    /// What a graph owns for the sake of one of its nodes, and is to give up with the node.
    pub kept: HashMap<usize, Vec<(usize, usize)>>,
    /// Functions of kernel nodes as the client named them.
    pub functions: HashMap<usize, u64>,
    /// Heap memory that executable graphs copy from and to, by the top-level node that does.
    pub copies: HashMap<usize, Copies>,
    /// Whether any node of any graph allocates.
    pub allocates: bool,
    /// The vGPU of each graph or executable graph whose nodes do.
    pub allocating: HashMap<usize, usize>,
    /// Bytes that the nodes of an executable graph allocate.
    pub allocations: HashMap<usize, u64>,
    /// Host functions that were put into executable graphs.
    pub tickets: Tickets,
    /// The host functions of executable graphs, where the GPU's time is divided.
    pub host_nodes: HashMap<usize, Arc<HostNodes>>,
    /// Text of the last `cuGraphDebugDotPrint`, until the client has fetched all of it.
    pub dot: Vec<u8>,
}

/// Named graphs inside nodes: child graphs, and the bodies of conditional nodes.
#[derive(Default)]
pub struct Inside {
    /// By node: the client's names with the driver's graphs.
    graphs: HashMap<usize, Vec<(u64, usize)>>,
    /// The same the other way: the node that a graph lies in.
    pub nodes: HashMap<usize, usize>,
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

/// Host memory of one executable graph.
#[derive(Default)]
pub struct Copies {
    /// By the node of the graph it was made from; what lies in a child graph counts for the child's node. Each with the
    /// node that copies.
    pub by_node: HashMap<usize, Vec<(usize, HostCopy)>>,
    /// Nodes that do nothing at present.
    pub disabled: HashSet<usize>,
    /// Ranges that the client set aside for parameters of the executable graph itself.
    pub staging: Vec<u64>,
}

impl Copies {
    /// Those that a launch makes.
    pub fn made(&self) -> impl Iterator<Item = &HostCopy> {
        self.by_node.values().flatten().filter(|(node, _)| !self.disabled.contains(node)).map(|(_, copy)| copy)
    }

    /// As the client is told.
    pub fn told(&self) -> HostCopies {
        // A graph with more copies than a reply holds gets the first ones: 8,192 buffers in host memory.
        let all = self.made().take(HostCopies::MAX).cloned().collect();
        List::of(all).expect("no more than there is room for")
    }
}

/// A ticket that no graph refers to any more, but perhaps a launch that is under way. Dropped, it is freed.
pub struct Unused(*mut c_void);

impl Drop for Unused {
    fn drop(&mut self) {
        // SAFETY: it was handed over in `Tickets::put`, and whoever drops this has seen the device past its launches.
        unsafe { callbacks::drop_ticket(self.0) };
    }
}

/// The tickets of host functions that were put into nodes of executable graphs. Those of a graph's own nodes belong to
/// the graph and to what was made from it; an executable graph takes no such share in what it is given later.
#[derive(Default)]
pub struct Tickets {
    /// By executable graph and node.
    used: HashMap<usize, HashMap<usize, Unused>>,
    unused: Vec<Unused>,
}

impl Tickets {
    /// # Safety
    /// `ticket` came from `Callbacks::ticket`, and nothing but this node of this executable graph refers to it.
    pub unsafe fn put(&mut self, exec: usize, node: usize, ticket: *mut c_void) {
        self.unused.extend(self.used.entry(exec).or_default().insert(node, Unused(ticket)));
    }

    pub fn exec_gone(&mut self, exec: usize) {
        self.unused.extend(self.used.remove(&exec).into_iter().flatten().map(|(_, ticket)| ticket));
    }

    pub fn has_unused(&self) -> bool {
        !self.unused.is_empty()
    }

    /// For whoever waits until all that is queued now is done.
    pub fn take_unused(&mut self) -> Vec<Unused> {
        std::mem::take(&mut self.unused)
    }
}

/// The host functions of an executable graph, by its nodes and those of its child graphs.
///
/// While one of them runs the GPU does nothing for the graph, if they are alone. That it runs for this very graph is
/// known of those that no other executable graph has: clones share the functions of what they were made from.
#[derive(Debug, Default)]
pub struct HostNodes {
    by_node: Mutex<HashMap<usize, Share>>,
    /// Of each all other nodes are before it or behind it.
    are_alone: bool,
}

/// A node of an executable graph has this host function.
#[derive(Debug)]
struct Share(Arc<Runs>);

impl Share {
    fn new(runs: Arc<Runs>) -> Share {
        runs.nodes.fetch_add(1, Ordering::Relaxed);
        Share(runs)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.nodes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HostNodes {
    pub fn new(found: Vec<(usize, Arc<Runs>)>, are_alone: bool) -> HostNodes {
        let by_node = found.into_iter().map(|(node, runs)| (node, Share::new(runs))).collect();
        HostNodes { by_node: Mutex::new(by_node), are_alone }
    }

    /// A node has another function from now on.
    pub fn put(&self, node: usize, runs: Arc<Runs>) {
        self.by_node.lock().expect("no panic happens under this lock").insert(node, Share::new(runs));
    }

    /// Whether the graph waits for one of its host functions, and for nothing else.
    pub fn is_waited_for(&self) -> bool {
        let waits = |share: &Share| share.0.are_under_way() && share.0.nodes.load(Ordering::Relaxed) == 1;
        self.are_alone && self.by_node.lock().expect("no panic happens under this lock").values().any(waits)
    }
}

/// Whether of each of `these`, of `count` nodes with these edges, all other nodes are before it or behind it.
///
/// In a topological order that is so if each node before it has an edge that leads no further than to it, and each
/// behind it one that comes from it or from behind it.
pub fn are_bottlenecks(count: usize, edges: &[(usize, usize)], these: &[usize]) -> bool {
    let (mut behind, mut before) = (vec![Vec::new(); count], vec![0usize; count]);
    for (from, to) in edges {
        behind[*from].push(*to);
        before[*to] += 1;
    }
    let mut order: Vec<usize> = (0..count).filter(|node| before[*node] == 0).collect();
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        next += 1;
        for to in &behind[node] {
            before[*to] -= 1;
            if before[*to] == 0 {
                order.push(*to);
            }
        }
    }
    if order.len() < count {
        return false;
    }
    let mut place = vec![0; count];
    order.iter().enumerate().for_each(|(at, node)| place[*node] = at);
    // By place: where the nearest edge leads to, and the nearest comes from, one more than that.
    let (mut leads, mut comes) = (vec![usize::MAX; count], vec![0; count]);
    for (from, to) in edges {
        let (from, to) = (place[*from], place[*to]);
        leads[from] = leads[from].min(to);
        comes[to] = comes[to].max(from + 1);
    }
    // Of all nodes before a place, and of all behind it.
    let mut farthest = vec![0; count + 1];
    (0..count).for_each(|at| farthest[at + 1] = farthest[at].max(leads[at]));
    let mut earliest = vec![usize::MAX; count + 1];
    (0..count).rev().for_each(|at| earliest[at] = earliest[at + 1].min(comes[at]));
    these.iter().map(|node| place[*node]).all(|at| farthest[at] <= at && earliest[at + 1] > at)
}

/// Child graphs in child graphs, bodies of conditional nodes in each other. Programs nest two or three.
pub const LEVELS_MAX: usize = 64;

/// The graph and those around it, itself first.
pub fn around(state: &Graphs, graph: CUgraph) -> Vec<usize> {
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

#[cfg(test)]
mod tests {
    use orion_ring::Memory;
    use orion_ring::memory::{Layout, Which};

    use super::*;
    use crate::worker::out::callbacks::{Callbacks, kind};
    use crate::worker::out::managed::Variables;
    use crate::worker::out::replies::Events;

    #[test]
    fn a_replaced_host_function_is_freed_and_the_last_with_its_graph() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("creating memory");
        let callbacks = Callbacks::new(
            Events::new(memory.producer(Which::Event).expect("mapping")),
            memory.consumer(Which::Command).expect("mapping").lookahead(),
            None,
            Variables::new(memory.map_heap(None).expect("mapping")),
        );
        let mut tickets = Tickets::default();
        let put = |tickets: &mut Tickets, exec, node| {
            let ticket = callbacks.ticket(1, kind::HOST_FUNCTION, 0, false, true);
            // SAFETY: a fresh ticket.
            unsafe { tickets.put(exec, node, ticket) };
        };
        for _ in 0..10 {
            put(&mut tickets, 1, 7);
        }
        put(&mut tickets, 1, 8);
        // Launches under way may still run those that were replaced.
        assert!(callbacks.outstanding());
        assert_eq!(tickets.take_unused().len(), 9);
        assert!(!tickets.has_unused());
        tickets.exec_gone(1);
        assert_eq!(tickets.take_unused().len(), 2);
        assert!(!callbacks.outstanding());
    }

    #[test]
    fn a_bottleneck_is_what_everything_else_is_before_or_behind() {
        let chain = [(0, 1), (1, 2)];
        assert!(are_bottlenecks(3, &chain, &[0, 1, 2]) && are_bottlenecks(1, &[], &[0]));
        // Two branches that meet: 3 lies where they do, and 1 beside 2.
        let diamond = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)];
        assert!(are_bottlenecks(5, &diamond, &[0, 3, 4]));
        assert!(!are_bottlenecks(5, &diamond, &[3, 1]) && !are_bottlenecks(5, &diamond, &[2]));
        assert!(are_bottlenecks(3, &[(0, 1), (1, 2), (0, 2)], &[1]), "an edge that leads past it changes nothing");
        // An end before it, a beginning behind it, and no graph at all.
        assert!(!are_bottlenecks(3, &[(0, 1), (0, 2)], &[1]) && !are_bottlenecks(3, &[(0, 1), (0, 2)], &[2]));
        assert!(!are_bottlenecks(3, &[(0, 2), (1, 2)], &[0]) && are_bottlenecks(3, &[(0, 2), (1, 2)], &[2]));
        assert!(!are_bottlenecks(2, &[], &[0]) && !are_bottlenecks(2, &[(0, 1), (1, 0)], &[0]));
    }

    #[test]
    fn a_graph_waits_for_functions_that_are_its_own() {
        let mine = Arc::new(Runs::default());
        let nodes = HostNodes::new(vec![(7, mine.clone())], true);
        assert!(!nodes.is_waited_for());
        mine.begin();
        assert!(nodes.is_waited_for());
        // For which graph it runs is not known any more.
        let clone = HostNodes::new(vec![(9, mine.clone())], false);
        assert!(!nodes.is_waited_for() && !clone.is_waited_for());
        drop(clone);
        assert!(nodes.is_waited_for());
        nodes.put(7, Arc::default());
        assert!(!nodes.is_waited_for());
    }

    fn node(at: usize) -> CUgraphNode {
        at as CUgraphNode
    }

    fn graph(at: usize) -> CUgraph {
        at as CUgraph
    }

    #[test]
    fn a_graph_that_is_gone_lies_nowhere() {
        let mut state = Graphs::default();
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
        let mut state = Graphs::default();
        for (inner, outer) in [(1, 2), (2, 1)] {
            state.graph_of.insert(10 + inner, outer);
            state.inside.put(node(10 + inner), 7, graph(inner));
        }
        assert_eq!(around(&state, graph(1)).len(), LEVELS_MAX + 1);
    }
}
