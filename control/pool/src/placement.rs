//! Where the vGPUs of an ask would lie.

use crate::ask::{Ask, Gpus};
use crate::node::{Lender, Node};
use crate::nodes::Nodes;

/// Which node and GPU to prefer where several have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The fullest, so that large asks find whole GPUs.
    #[default]
    Pack,
    /// The emptiest, so that tenants meet as few others as can be.
    Spread,
}

/// A GPU by its node's name and its number there, once for each vGPU.
pub type Chosen = Vec<(String, usize)>;

/// All of them, or `None`: some do not help a program that asked for all.
pub fn place(nodes: &Nodes, ask: &Ask, policy: Policy) -> Option<Chosen> {
    if ask.cross_node {
        return across(nodes.values().filter(|node| node.takes_more_of(ask)), ask, policy);
    }
    // The first that has room is the best. Of full ones, of which there may be many, only the slots are counted.
    let has_room =
        |node: &&Node| node.has_slots(ask.vgpus) && node.takes_more_of(ask) && capacity(node, ask) >= ask.vgpus;
    let node = match policy {
        Policy::Pack => nodes.fullest_first().find(has_room),
        Policy::Spread => nodes.emptiest_first().find(has_room),
    };
    node.map(|node| on_node(node, ask, policy, ask.vgpus))
}

/// How many vGPUs of this ask the node has room for.
pub fn capacity(node: &Node, ask: &Ask) -> u32 {
    together((0..node.report.gpus.len()).map(|number| node.room(number, ask)), ask)
}

/// Of the room of each GPU of a node.
fn together(rooms: impl Iterator<Item = u32>, ask: &Ask) -> u32 {
    match ask.gpus {
        Gpus::Any => rooms.sum(),
        Gpus::Same => rooms.max().unwrap_or(0),
        Gpus::Distinct => rooms.filter(|room| *room > 0).count() as u32,
    }
}

/// Whether the nodes that are expected could hold it if nobody had anything of them.
pub fn has_hope(nodes: &Nodes, lender: Lender, ask: &Ask) -> bool {
    let expected = nodes.values().filter(|node| node.is_expected_to_take(ask));
    let mut rooms =
        expected.map(|node| together(node.report.gpus.iter().map(|gpu| node.whole_room(gpu, lender, ask)), ask));
    match ask.cross_node {
        true => rooms.sum::<u32>() >= ask.vgpus,
        false => rooms.any(|room| room >= ask.vgpus),
    }
}

/// Less is better.
fn score(policy: Policy, freedom: u64) -> u64 {
    match policy {
        Policy::Pack => freedom,
        Policy::Spread => u64::MAX - freedom,
    }
}

/// On the node, which has room for `count` of them.
fn on_node(node: &Node, ask: &Ask, policy: Policy, count: u32) -> Chosen {
    let mut gpus: Vec<(u64, usize, u32)> = (0..node.report.gpus.len())
        .map(|gpu| (score(policy, node.freedom_of(gpu)), gpu, node.room(gpu, ask)))
        .filter(|(.., room)| *room > 0)
        .collect();
    gpus.sort_by_key(|(score, ..)| *score);
    let name = |gpu: &usize| (node.report.name.clone(), *gpu);
    let whole = gpus.iter().find(|(.., room)| *room >= count);
    match (ask.gpus, policy, whole) {
        // Together if they can be, for they may want to reach each other's memory.
        (Gpus::Same, ..) | (Gpus::Any, Policy::Pack, Some(_)) => {
            let (_, gpu, _) = whole.expect("the caller has counted");
            vec![name(gpu); count as usize]
        }
        (Gpus::Distinct, ..) => gpus.iter().take(count as usize).map(|(_, gpu, _)| name(gpu)).collect(),
        (Gpus::Any, Policy::Pack, None) => {
            // As few GPUs as can be.
            gpus.sort_by_key(|(.., room)| std::cmp::Reverse(*room));
            let all = gpus.iter().flat_map(|(_, gpu, room)| std::iter::repeat_n(name(gpu), *room as usize));
            all.take(count as usize).collect()
        }
        (Gpus::Any, Policy::Spread, _) => {
            let mut chosen = Vec::new();
            while chosen.len() < count as usize {
                for (_, gpu, room) in gpus.iter_mut().filter(|(.., room)| *room > 0) {
                    if chosen.len() < count as usize {
                        chosen.push(name(gpu));
                        *room -= 1;
                    }
                }
            }
            chosen
        }
    }
}

fn across<'a>(nodes: impl Iterator<Item = &'a Node>, ask: &Ask, policy: Policy) -> Option<Chosen> {
    let mut rooms: Vec<(u64, &Node, u32)> = nodes
        .map(|node| (score(policy, node.freedom()), node, capacity(node, ask)))
        .filter(|(.., room)| *room > 0)
        .collect();
    // One node, if one has room for all; else those that have most, which makes the fewest.
    rooms.sort_by_key(|(score, ..)| *score);
    if let Some((_, node, _)) = rooms.iter().find(|(.., room)| *room >= ask.vgpus) {
        return Some(on_node(node, ask, policy, ask.vgpus));
    }
    rooms.sort_by_key(|(.., room)| std::cmp::Reverse(*room));
    let mut chosen = Chosen::new();
    for (_, node, room) in rooms {
        let left = ask.vgpus - chosen.len() as u32;
        chosen.extend(on_node(node, ask, policy, left.min(room)));
        if chosen.len() as u32 == ask.vgpus {
            return Some(chosen);
        }
    }
    None
}
