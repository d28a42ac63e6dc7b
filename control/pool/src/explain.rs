//! Why an ask was not met, in words that somebody can act on: what was asked, what is free on each GPU, who holds the
//! rest, what would fit.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use orion_wire::address::carrier;

use crate::allocation::Allocation;
use crate::ask::Ask;
use crate::node::{Gpu, Lender, Node, Standing};
use crate::nodes::Nodes;
use crate::placement::{Policy, place};
use crate::units::MIB;

/// GPUs and holders that are listed; of the others the number.
const LISTED_MAX: usize = 16;

/// `nodes` are those on which it may lie: all, or those of its group.
pub fn full(lender: Lender, nodes: &Nodes, is_of_group: bool, allocations: &[&Allocation], ask: &Ask) -> String {
    let whose = match lender {
        Lender::Controller => "the pool",
        Lender::Node => "the node's own reserve",
    };
    let mut text = format!("{whose} has no room for {ask}");
    let gpus: usize = nodes.values().map(|n| n.report.gpus.len()).sum();
    if gpus == 0 {
        text.push_str("; no node with a GPU has reported to the controller: is oriond running there, and told of it?");
        return text;
    }
    if !nodes.values().any(|node| node.is_reached_by(&ask.carrier)) {
        write!(text, "\n{}", nobody_is_reached_by(&ask.carrier, lender, is_of_group))
            .expect("a string takes everything");
    }
    text.push_str("\nfree:");
    let mut all: Vec<(u32, &Node, usize, &Gpu)> = Vec::with_capacity(gpus);
    for node in nodes.values() {
        let room = |number| if node.takes_more_of(ask) { node.room(number, ask) } else { 0 };
        all.extend(node.report.gpus.iter().enumerate().map(|(number, gpu)| (room(number), node, number, gpu)));
    }
    // Those that are nearest to it first.
    all.sort_by_key(|(room, node, number, _)| Reverse((*room, node.free(*number).slots(), node.free(*number).memory)));
    for (room, node, number, gpu) in all.iter().take(LISTED_MAX) {
        let free = node.free(*number);
        let why = match (node.is_lost, node.standing, node.is_reached_by(&ask.carrier)) {
            (true, ..) => ", not heard of".to_owned(),
            (false, Standing::Draining, _) => ", draining".to_owned(),
            (false, Standing::Up, false) => format!(", not reached by {}", ask.carrier),
            (false, Standing::Up, true) => String::new(),
        };
        let kept = match (lender, node.report.kept) {
            (_, 0) => String::new(),
            (Lender::Controller, kept) => format!(", {kept} of them the node's own reserve"),
            (Lender::Node, kept) => format!(", of which {kept} are the reserve"),
        };
        write!(
            text,
            "\n  {} GPU {number} ({}): {} of {} MiB, {} %, {} of {} vGPUs{kept}{why}; room for {room} of these",
            node.report.name,
            gpu.name,
            free.memory / MIB,
            gpu.memory / MIB,
            free.ratio,
            free.slots(),
            node.report.split,
        )
        .expect("a string takes everything");
    }
    if gpus > LISTED_MAX {
        write!(text, "\n  and {} more GPUs", gpus - LISTED_MAX).expect("a string takes everything");
    }
    text.push_str(&holders(allocations));
    text.push_str(&what_would_fit(nodes, ask));
    text
}

/// A wish that waiting does not fulfil.
fn nobody_is_reached_by(name: &str, lender: Lender, is_of_group: bool) -> String {
    let Some(carrier) = carrier(name) else { return format!("nobody knows what {name} is") };
    let (no_node_is, wish) = match (lender, is_of_group) {
        (Lender::Node, _) => ("the node is not", "ORION_TRANSPORT"),
        (Lender::Controller, true) => {
            ("no node on which its group has something is", "ORION_RES_GROUP or ORION_TRANSPORT")
        }
        (Lender::Controller, false) => ("no node of it is", "ORION_TRANSPORT"),
    };
    format!(
        "{no_node_is} reached by {name}: have an oriond started with {}, and its agent with {} behind a comma of its \
         --address, or unset {wish}",
        carrier.served_by, carrier.example
    )
}

fn holders(allocations: &[&Allocation]) -> String {
    let mut by_tenant: BTreeMap<&str, (usize, u64, u32)> = BTreeMap::new();
    for allocation in allocations {
        let held = by_tenant.entry(&allocation.ask.tenant).or_default();
        held.0 += allocation.places.len();
        held.1 += allocation.places.iter().map(|p| p.memory).sum::<u64>();
        held.2 += allocation.places.iter().map(|p| p.ratio).sum::<u32>();
    }
    if by_tenant.is_empty() {
        return String::new();
    }
    let mut most: Vec<_> = by_tenant.into_iter().collect();
    most.sort_by_key(|(_, (vgpus, ..))| Reverse(*vgpus));
    let mut text = "\nheld:".to_owned();
    for (tenant, (vgpus, memory, ratio)) in most.iter().take(LISTED_MAX) {
        let tenant = if tenant.is_empty() { "(no tenant)" } else { tenant };
        write!(text, "\n  {tenant}: {vgpus} vGPUs with {} MiB and {ratio} % together", memory / MIB)
            .expect("a string takes everything");
    }
    if most.len() > LISTED_MAX {
        write!(text, "\n  and {} more tenants", most.len() - LISTED_MAX).expect("a string takes everything");
    }
    text
}

/// The nearest asks that could be met now: fewer vGPUs, less memory, less time.
fn what_would_fit(nodes: &Nodes, ask: &Ask) -> String {
    let fits = |ask: &Ask| place(nodes, ask, Policy::Pack).is_some();
    let mut offers = Vec::new();
    let fewer = largest(ask.vgpus.saturating_sub(1) as u64, |n| n > 0 && fits(&Ask { vgpus: n as u32, ..ask.clone() }));
    if let Some(n) = fewer {
        offers.push(format!("{}", Ask { vgpus: n as u32, ..ask.clone() }));
    }
    let by_any = Ask { carrier: String::new(), ..ask.clone() };
    if !ask.carrier.is_empty() && fits(&by_any) {
        offers.push(format!("{by_any}, by another carrier (unset ORION_TRANSPORT)"));
    }
    if let Some(memory) = ask.memory {
        let less = largest(memory / MIB - 1, |m| m > 0 && fits(&Ask { memory: Some(m * MIB), ..ask.clone() }));
        offers.extend(less.map(|m| format!("{}", Ask { memory: Some(m * MIB), ..ask.clone() })));
    }
    if let Some(ratio) = ask.ratio.filter(|_| !ask.cross_node) {
        let less = largest(ratio as u64 - 1, |r| r > 0 && fits(&Ask { ratio: Some(r as u32), ..ask.clone() }));
        offers.extend(less.map(|r| format!("{}", Ask { ratio: Some(r as u32), ..ask.clone() })));
    }
    match offers.is_empty() {
        true => "\nnothing of this kind would fit now".to_owned(),
        false => format!("\nwould fit: {}", offers.join("; or ")),
    }
}

/// The largest number up to `most` that is good, where each is good below which one is.
fn largest(most: u64, is_good: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if is_good(middle) { good = middle } else { bad = middle }
    }
    (good > 0).then_some(good)
}
