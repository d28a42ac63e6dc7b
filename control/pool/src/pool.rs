//! The operations of the pool.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use orion_wire::text::acts;
use serde::{Deserialize, Serialize};

use crate::allocation::{Allocation, AllocationId, Lease, Place};
use crate::ask::{Ask, Invalid, TEXT_BYTES_MAX};
use crate::explain;
use crate::node::{Lender, Node, NodeReport, Standing};
use crate::nodes::Nodes;
use crate::placement::{Chosen, Policy, has_hope, place};
use crate::quote::quoted;
use crate::units::{MIB, Time};

/// Nodes of a pool, also such as are not heard of any more.
pub const NODES_MAX: usize = 8192;

/// What a program has had that has just ended is back by then.
pub const BACK_MS: Time = 2_000;
/// An oriond that is started again is there by then, and a node that is not has perhaps no other one.
pub const RETURNS_MS: Time = 15_000;

#[derive(Debug, Clone)]
pub struct Settings {
    /// How long an offer stands for which nobody comes.
    pub offer_ms: Time,
    /// How long one stands whose client's connection nobody has seen since the pool was read, if its node says then
    /// that nobody has come.
    pub claim_ms: Time,
    /// How long a confirmed allocation stands that nobody renews.
    pub lease_ms: Time,
    /// After how long without a word a node gets nothing new.
    pub node_ms: Time,
    pub policy: Policy,
    /// Clients that may wait.
    pub queue_max: usize,
    /// Which part of the nodes this pool lends.
    pub lender: Lender,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            offer_ms: 30_000,
            claim_ms: BACK_MS,
            lease_ms: 60_000,
            node_ms: 10_000,
            policy: Policy::Pack,
            queue_max: 10_000,
            lender: Lender::Controller,
        }
    }
}

/// What a tenant may hold at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    pub vgpus: Option<u32>,
    pub memory: Option<u64>,
    pub ratio: Option<u32>,
}

/// Something that has to be in the store before anybody is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Node(NodeReport, Standing),
    NodeGone(String),
    Allocation(Allocation),
    AllocationGone(AllocationId),
    Quota(String, Quota),
    QuotaGone(String),
}

/// Why an allocation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// Its client said so.
    Released,
    /// The node said that its session is over.
    Ended,
    /// Nobody came for it.
    NotConfirmed,
    /// Nobody renewed it.
    Expired,
    /// Its GPU is not there any more.
    GpuGone,
    /// The oriond that served it is not there any more, and with it its session.
    OriondGone,
    /// An operator ended it.
    Killed,
}

/// For logs and those who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    NodeJoined {
        node: String,
    },
    GpuAdded {
        node: String,
        uuid: String,
        name: String,
    },
    GpuGone {
        node: String,
        uuid: String,
    },
    NodeLost {
        node: String,
    },
    NodeBack {
        node: String,
    },
    NodeForgotten {
        node: String,
    },
    Drains {
        node: String,
        is_draining: bool,
    },
    Granted {
        id: AllocationId,
    },
    Confirmed {
        id: AllocationId,
    },
    Over {
        id: AllocationId,
        why: Why,
    },
    Waits {
        id: AllocationId,
    },
    GaveUp {
        id: AllocationId,
    },
    /// A node says that it has lent this of its own reserve, and that it has it back.
    LentByNode {
        node: String,
        id: AllocationId,
    },
    BackAtNode {
        node: String,
        id: AllocationId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Granted(Allocation),
    /// Behind so many others.
    Waits(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    Invalid(String),
    /// Not now; in words.
    Full(String),
    Quota(String),
    Unknown(String),
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Refused {
        Refused::Invalid(invalid.0)
    }
}

impl Refused {
    pub fn text(&self) -> &str {
        match self {
            Refused::Invalid(text) | Refused::Full(text) | Refused::Quota(text) | Refused::Unknown(text) => text,
        }
    }
}

/// Why an ask cannot be met now.
enum Obstacle {
    Full,
    Quota(String),
}

#[derive(Debug, Clone)]
struct Waiting {
    id: AllocationId,
    ask: Ask,
    until: Time,
    /// Whether the nodes that are expected could hold it if nobody had anything of them. Others pass one without hope.
    has_hope: bool,
    /// It waits until its own tenant has less, or may have more. Others pass it likewise.
    is_over_quota: bool,
}

impl Waiting {
    /// Whether who comes later waits behind it.
    fn is_next(&self) -> bool {
        self.has_hope && !self.is_over_quota
    }
}

#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    nodes: Nodes,
    allocations: BTreeMap<AllocationId, Allocation>,
    /// By tenant: what its allocations hold together.
    held: BTreeMap<String, Held>,
    quotas: BTreeMap<String, Quota>,
    queue: VecDeque<Waiting>,
    /// Of each node, what is over and of which it has not heard yet.
    revoked: BTreeMap<String, BTreeSet<AllocationId>>,
    /// What each node has lent of its own reserve, as it has last said. Nothing of it is this pool's to lend, so
    /// nothing of it is stored: it is said again.
    lent: BTreeMap<String, Lent>,
    /// Offers whose clients kept a connection to who made them, and have none to this controller. Of each the node to
    /// which it goes first: a program goes to several one after the other.
    missed: BTreeMap<AllocationId, String>,
    /// From when on what nodes say of these counts.
    missed_from: Time,
    /// Nodes whose oriond has gone a moment ago, as they were: it may have been started again.
    left: BTreeMap<String, (NodeReport, Time)>,
    /// Some node has said that it has GPUs, or did before this pool was read from its store.
    had_gpus: bool,
    changes: Vec<Change>,
    events: Vec<Event>,
}

#[derive(Debug, Default)]
struct Lent {
    allocations: Vec<Allocation>,
    /// Those of them that an operator has ended, until the node does not name them any more.
    killed: BTreeSet<AllocationId>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    vgpus: u32,
    memory: u64,
    ratio: u32,
}

impl Pool {
    pub fn new(settings: Settings) -> Pool {
        Pool {
            settings,
            nodes: Nodes::default(),
            allocations: BTreeMap::new(),
            held: BTreeMap::new(),
            quotas: BTreeMap::new(),
            queue: VecDeque::new(),
            revoked: BTreeMap::new(),
            lent: BTreeMap::new(),
            missed: BTreeMap::new(),
            missed_from: 0,
            left: BTreeMap::new(),
            had_gpus: false,
            changes: Vec::new(),
            events: Vec::new(),
        }
    }

    /// As it was stored. Everybody has a whole lease from now on: who is still there renews it in time.
    pub fn restore(
        settings: Settings,
        nodes: impl IntoIterator<Item = (NodeReport, Standing)>,
        allocations: impl IntoIterator<Item = Allocation>,
        quotas: impl IntoIterator<Item = (String, Quota)>,
        now: Time,
    ) -> Result<Pool, String> {
        let mut pool = Pool::new(settings);
        for (report, standing) in nodes {
            let lender = pool.settings.lender;
            pool.had_gpus |= !report.gpus.is_empty();
            pool.nodes.insert(Node::new(report, standing, now, lender));
        }
        pool.quotas.extend(quotas);
        for mut allocation in allocations {
            allocation.until = now + pool.time_of(allocation.lease);
            for place in &mut allocation.places {
                let node = pool.nodes.get(&place.node);
                // What a node says of the order of its GPUs may have been stored, and this not yet.
                if let Some(number) = node.and_then(|node| node.number(&place.gpu)) {
                    place.number = number as u32;
                }
                if !pool.nodes.take_again(place) {
                    return Err(format!(
                        "allocation {} has {} MiB of GPU {} on {}, and that is not free: the store contradicts itself",
                        allocation.id,
                        place.memory / MIB,
                        place.gpu,
                        place.node
                    ));
                }
            }
            pool.hold(&allocation.ask.tenant, &allocation.places);
            pool.allocations.insert(allocation.id, allocation);
        }
        Ok(pool)
    }

    fn time_of(&self, lease: Lease) -> Time {
        match lease {
            Lease::Offered => self.settings.offer_ms,
            Lease::Confirmed => self.settings.lease_ms,
        }
    }

    /// What has to be stored since the last call, oldest first.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// What has happened since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.values()
    }

    pub fn allocation(&self, id: AllocationId) -> Option<&Allocation> {
        self.allocations.get(&id)
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// What this node has lent of its own reserve.
    pub fn lent_by(&self, node: &str) -> impl Iterator<Item = &Allocation> {
        self.lent.get(node).into_iter().flat_map(|lent| &lent.allocations)
    }

    /// What nodes have lent of their own reserves.
    pub fn lent_by_nodes(&self) -> impl Iterator<Item = &Allocation> {
        self.lent.values().flat_map(|lent| &lent.allocations)
    }

    pub fn quotas(&self) -> impl Iterator<Item = (&str, &Quota)> {
        self.quotas.iter().map(|(tenant, quota)| (tenant.as_str(), quota))
    }

    pub fn waiting(&self) -> impl Iterator<Item = (AllocationId, &Ask)> {
        self.queue.iter().map(|w| (w.id, &w.ask))
    }

    /// Whether this one still waits, and behind how many.
    pub fn place_in_queue(&self, id: AllocationId) -> Option<usize> {
        self.queue.iter().position(|w| w.id == id)
    }
}

// Nodes.
impl Pool {
    /// Whether a node that says this may register.
    pub fn may_register(&self, now: Time, report: &NodeReport) -> Result<(), Refused> {
        report.check()?;
        self.is_no_other(now, report)
    }

    /// A node says what it has: at its start, and when that changes. What lay on a GPU that is gone is over.
    pub fn register(&mut self, now: Time, report: NodeReport) -> Result<(), Refused> {
        self.may_register(now, &report)?;
        let name = report.name.clone();
        self.had_gpus |= !report.gpus.is_empty();
        match self.nodes.get(&name) {
            Some(known) if report.gpus.is_empty() && !known.report.gpus.is_empty() => {
                self.left.insert(name.clone(), (known.report.clone(), now));
            }
            _ if !report.gpus.is_empty() => drop(self.left.remove(&name)),
            _ => {}
        }
        let is_same_oriond = self.nodes.get(&name).is_none_or(|known| known.report.oriond == report.oriond);
        let (standing, mine) = match self.nodes.get(&name) {
            Some(known) if known.report == report => {
                self.heard_of(now, &name);
                return Ok(());
            }
            Some(known) => (known.standing, self.on_node(&name)),
            None => {
                self.makes_room_for_a_node(now)?;
                (Standing::Up, Vec::new())
            }
        };
        let mut node = Node::new(report, standing, now, self.settings.lender);
        if !is_same_oriond {
            self.take_lent(&name, Vec::new());
        }
        self.tell_differences(&name, &node);
        // What is there stays where it is, if that is still there and large enough.
        let mut homeless = BTreeSet::new();
        for id in mine {
            let places: Vec<&Place> = self.allocations[&id].places.iter().filter(|p| p.node == name).collect();
            let taken: Vec<&Place> = places.iter().copied().filter(|place| node.take_again(place)).collect();
            if taken.len() < places.len() || !is_same_oriond {
                taken.into_iter().for_each(|place| node.give_back(place));
                homeless.insert(id);
            }
        }
        self.changes.push(Change::Node(node.report.clone(), standing));
        self.nodes.insert(node);
        for id in homeless {
            self.end_on(id, if is_same_oriond { Why::GpuGone } else { Why::OriondGone }, &name, true);
        }
        self.count_anew(&name);
        self.weigh_hopes();
        self.serve_queue(now);
        Ok(())
    }

    /// Nodes that nobody knows any more are forgotten before one that comes is refused.
    fn makes_room_for_a_node(&mut self, now: Time) -> Result<(), Refused> {
        if self.nodes.len() < NODES_MAX {
            return Ok(());
        }
        let is_gone = |node: &&Node| node.is_given_up && self.on_node(&node.report.name).is_empty();
        let goes = self.nodes.values().find(is_gone).map(|node| node.report.name.clone());
        match goes {
            Some(name) => self.forget(now, &name),
            None => Err(Refused::Full(format!(
                "the pool has {NODES_MAX} nodes, and takes no more; have it forget one that will not come back \
                 (orionctl forget)"
            ))),
        }
    }

    /// Two machines of one name would take each other's GPUs and sessions out of the pool, and nobody would know why.
    /// Whoever starts oriond anew on its machine has its address. A socket's path, a loopback address and a host's name
    /// may be the same on each machine: with one of these it also has a GPU that was there before, unless none is there
    /// now. One that is not heard of is out of the way.
    fn is_no_other(&self, now: Time, report: &NodeReport) -> Result<(), Refused> {
        let Some(known) = self.nodes.get(&report.name) else { return Ok(()) };
        let is_heard_of = !known.is_lost && now < known.seen.saturating_add(self.settings.node_ms);
        let was_there = |uuid: &String| known.report.gpus.iter().any(|gpu| gpu.uuid == *uuid);
        let has_its_gpus = report.gpus.is_empty() || report.gpus.iter().any(|gpu| was_there(&gpu.uuid));
        let has_its_address = known.report.address == report.address;
        let is_the_machine = has_its_address && (has_its_gpus || is_one_machines(&report.address));
        let is_same = known.report.oriond == report.oriond || is_the_machine;
        if is_same || !is_heard_of || known.report.gpus.is_empty() {
            return Ok(());
        }
        Err(Refused::Full(format!(
            "there is a node {} already, at {}, and this one is at {}; give one of them another name (orion-agent \
             --node), or stop the other one's agent and wait {} s",
            report.name,
            known.report.address,
            report.address,
            self.settings.node_ms.div_ceil(1000)
        )))
    }

    /// GPUs may have come to stand in another order.
    fn count_anew(&mut self, name: &str) {
        let node = self.nodes.get(name).expect("just registered");
        for allocation in self.allocations.values_mut().filter(|a| a.is_on(name)) {
            let before = allocation.clone();
            for place in allocation.places.iter_mut().filter(|p| p.node == name) {
                place.number = node.number(&place.gpu).expect("what lay elsewhere is over") as u32;
            }
            if *allocation != before {
                self.changes.push(Change::Allocation(allocation.clone()));
            }
        }
    }

    fn on_node(&self, name: &str) -> Vec<AllocationId> {
        self.allocations.values().filter(|a| a.is_on(name)).map(|a| a.id).collect()
    }

    fn tell_differences(&mut self, name: &str, new: &Node) {
        let node = name.to_owned();
        let old = self.nodes.get(name).map(|n| n.report.gpus.clone()).unwrap_or_default();
        if self.nodes.get(name).is_none() {
            self.events.push(Event::NodeJoined { node: node.clone() });
        }
        for gpu in new.report.gpus.iter().filter(|g| !old.iter().any(|o| o.uuid == g.uuid)) {
            let (uuid, name) = (gpu.uuid.clone(), gpu.name.clone());
            self.events.push(Event::GpuAdded { node: node.clone(), uuid, name });
        }
        for gpu in old.iter().filter(|g| new.gpu(&g.uuid).is_none()) {
            self.events.push(Event::GpuGone { node: node.clone(), uuid: gpu.uuid.clone() });
        }
    }

    fn heard_of(&mut self, now: Time, name: &str) {
        let Some(node) = self.nodes.standing(name) else { return };
        node.seen = now;
        node.is_given_up = false;
        if std::mem::take(&mut node.is_lost) {
            self.events.push(Event::NodeBack { node: name.to_owned() });
            self.weigh_hopes();
            self.serve_queue(now);
        }
    }

    /// A node is there, and these allocations have sessions on it. They are renewed; `ended` are those whose session is
    /// over. Answers what the node has to end: it may have been away while its leases ran out.
    pub fn heartbeat(
        &mut self,
        now: Time,
        name: &str,
        live: &[AllocationId],
        ended: &[AllocationId],
    ) -> Result<Vec<AllocationId>, Refused> {
        if self.nodes.get(name).is_none() {
            return Err(unregistered(name));
        }
        self.heard_of(now, name);
        for id in ended {
            if self.allocations.get(id).is_some_and(|a| a.is_on(name)) {
                self.end_on(*id, Why::Ended, name, false);
            }
        }
        self.end_who_is_missed(now, name, live);
        let mut gone = self.revoked.remove(name).unwrap_or_default();
        gone.extend(self.lent.get(name).iter().flat_map(|lent| &lent.killed));
        for id in live {
            match self.allocations.get_mut(id) {
                // A session there is proves that its client has come.
                Some(a) if a.is_on(name) => {
                    if a.lease == Lease::Offered {
                        a.lease = Lease::Confirmed;
                        self.changes.push(Change::Allocation(a.clone()));
                        self.events.push(Event::Confirmed { id: *id });
                    }
                    a.until = now + self.settings.lease_ms;
                }
                _ => drop(gone.insert(*id)),
            }
        }
        self.serve_queue(now);
        Ok(gone.into_iter().collect())
    }

    /// The pool was just read, and whoever was offered something may have gone without anybody to see it: with the
    /// controller that had made the offer, or while nothing could be stored. `is_claimed` says of whom this controller
    /// has a connection. The others have `claim_ms` to come to their first node, or to ask here again.
    pub fn miss_clients(&mut self, now: Time, is_claimed: impl Fn(AllocationId) -> bool) {
        let is_missed = |a: &&Allocation| a.lease == Lease::Offered && a.ask.claims && !is_claimed(a.id);
        let first = |a: &Allocation| Some((a.id, a.places.first()?.node.clone()));
        self.missed = self.allocations.values().filter(is_missed).filter_map(first).collect();
        self.missed_from = now + self.settings.claim_ms;
    }

    /// A client has a connection to this controller by which it is seen to go. Whether what it was offered is there.
    pub fn claim(&mut self, id: AllocationId) -> bool {
        self.missed.remove(&id);
        self.allocations.contains_key(&id)
    }

    /// In how many milliseconds this node's word is worth hearing again: whether somebody has come who is missed.
    pub fn wants_word(&self, now: Time, name: &str) -> Option<Time> {
        let is_of_node = self.missed.values().any(|node| node == name);
        is_of_node.then(|| self.missed_from.saturating_sub(now))
    }

    /// A lease is live from the moment on that it is shown, and that is what the node says now. Who has not come to his
    /// first node by this time is let in by none: this one hears with the answer that his lease is over.
    fn end_who_is_missed(&mut self, now: Time, name: &str, live: &[AllocationId]) {
        if now < self.missed_from || self.missed.is_empty() {
            return;
        }
        let (here, elsewhere) = std::mem::take(&mut self.missed).into_iter().partition(|(_, node)| node == name);
        self.missed = elsewhere;
        let here: BTreeMap<AllocationId, String> = here;
        for id in here.into_keys().filter(|id| !live.contains(id)) {
            self.forsake(now, id);
        }
    }

    /// A node says what it has lent of its own reserve: all of it, each time.
    pub fn hear_of_reserve(&mut self, name: &str, lent: Vec<Allocation>) -> Result<(), Refused> {
        let node = self.nodes.get(name).ok_or_else(|| unregistered(name))?;
        let of_reserve = node.report.split - node.report.kept..node.report.split;
        let mut slots = BTreeSet::new();
        for allocation in &lent {
            allocation.ask.check()?;
            for place in &allocation.places {
                let is_there = place.node == name && node.number(&place.gpu) == Some(place.number as usize);
                if !is_there || !of_reserve.contains(&place.slot) || !slots.insert((place.number, place.slot)) {
                    return Err(Refused::Invalid(format!(
                        "node {name} says that {} has vGPU {} of GPU {} ({}) of its reserve: it has no such vGPU \
                         there, or names it twice",
                        allocation.id,
                        place.slot,
                        place.number,
                        quoted(&place.gpu)
                    )));
                }
            }
        }
        self.take_lent(name, lent);
        Ok(())
    }

    fn take_lent(&mut self, name: &str, allocations: Vec<Allocation>) {
        let Lent { allocations: old, mut killed } = self.lent.remove(name).unwrap_or_default();
        let ids = |all: &[Allocation]| all.iter().map(|a| a.id).collect::<BTreeSet<_>>();
        let (before, now) = (ids(&old), ids(&allocations));
        let node = || name.to_owned();
        self.events.extend(now.difference(&before).map(|id| Event::LentByNode { node: node(), id: *id }));
        self.events.extend(before.difference(&now).map(|id| Event::BackAtNode { node: node(), id: *id }));
        killed.retain(|id| now.contains(id));
        if !allocations.is_empty() {
            self.lent.insert(node(), Lent { allocations, killed });
        }
    }

    pub fn drain(&mut self, now: Time, name: &str, is_draining: bool) -> Result<(), Refused> {
        let node = self.nodes.standing(name).ok_or_else(|| unknown_node(name))?;
        let standing = if is_draining { Standing::Draining } else { Standing::Up };
        if node.standing != standing {
            node.standing = standing;
            self.changes.push(Change::Node(node.report.clone(), standing));
            self.events.push(Event::Drains { node: name.to_owned(), is_draining });
            self.weigh_hopes();
            self.serve_queue(now);
        }
        Ok(())
    }

    /// A node that will not come back. It has to be empty.
    pub fn forget(&mut self, now: Time, name: &str) -> Result<(), Refused> {
        if self.nodes.get(name).is_none() {
            return Err(unknown_node(name));
        }
        let there = self.on_node(name).len() + self.lent.get(name).map_or(0, |lent| lent.allocations.len());
        if there > 0 {
            return Err(Refused::Invalid(format!(
                "node {name} has {there} allocations; drain it and wait, or end them first"
            )));
        }
        self.nodes.remove(name);
        self.weigh_hopes();
        self.revoked.remove(name);
        self.lent.remove(name);
        self.left.remove(name);
        self.changes.push(Change::NodeGone(name.to_owned()));
        self.events.push(Event::NodeForgotten { node: name.to_owned() });
        self.serve_queue(now);
        Ok(())
    }
}

/// Whether no other machine has the address: HOST:PORT by its number, and not a loopback address.
fn is_one_machines(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| !address.ip().to_canonical().is_loopback())
}

/// To the node itself.
fn unregistered(name: &str) -> Refused {
    Refused::Unknown(format!("node {} has not registered; register it again", quoted(name)))
}

fn unknown_node(name: &str) -> Refused {
    Refused::Unknown(format!("there is no node {}", quoted(name)))
}

// Allocations.
impl Pool {
    /// `id` is a fresh random number: the name under which the allocation will be known. Asking again under the same
    /// one answers the same, so a client whose answer was lost may.
    pub fn allocate(&mut self, now: Time, id: AllocationId, ask: Ask) -> Result<Answer, Refused> {
        ask.check()?;
        if let Some(known) = self.allocations.get(&id) {
            let (known, is_same) = (known.clone(), known.ask == Ask { claims: known.ask.claims, ..ask });
            return match is_same {
                true => {
                    self.claim(id);
                    Ok(Answer::Granted(known))
                }
                false => {
                    Err(Refused::Invalid(format!("allocation {id} is there already, and was asked for otherwise")))
                }
            };
        }
        if let Some(at) = self.place_in_queue(id) {
            return Ok(Answer::Waits(at));
        }
        let refused = match self.choose(&ask) {
            Ok(chosen) => return Ok(Answer::Granted(self.grant(now, id, ask, chosen))),
            Err(refused) => refused,
        };
        let is_over_quota = matches!(refused, Refused::Quota(_));
        // Nobody waits for more than he may ever have at once.
        if ask.wait_ms == 0 || is_over_quota && !self.may_have_alone(&ask) || !self.has_place_in_queue(&ask.tenant) {
            return Err(refused);
        }
        let (until, has_hope) = (now.saturating_add(ask.wait_ms), has_hope(&self.nodes, self.settings.lender, &ask));
        self.queue.push_back(Waiting { id, ask, until, has_hope, is_over_quota });
        self.events.push(Event::Waits { id });
        Ok(Answer::Waits(self.queue.len() - 1))
    }

    /// Where it lies if it is given now, or why it is not.
    fn choose(&self, ask: &Ask) -> Result<Chosen, Refused> {
        let before = self.queue.iter().filter(|w| w.is_next()).count();
        match self.find(ask) {
            // Who waits is before who comes.
            Ok(chosen) if before == 0 => Ok(chosen),
            Ok(_) => Err(Refused::Full(format!("{before} others wait for vGPUs of this pool"))),
            Err(Obstacle::Quota(text)) => Err(Refused::Quota(text)),
            Err(Obstacle::Full) => Err(Refused::Full(self.why_not(ask))),
        }
    }

    /// Why who asks for this now is not given it at once, if so, in words.
    pub fn why_not_now(&self, ask: &Ask) -> Option<String> {
        self.choose(ask).err().map(|refused| refused.text().to_owned())
    }

    /// Whether the tenant might have it if it had nothing else.
    fn may_have_alone(&self, ask: &Ask) -> bool {
        self.within_quota_of(&ask.tenant, Held::default(), &least(ask)).is_ok()
    }

    /// For how long it is worth to ask for this again: others, or his tenant's other programs, may have given back by
    /// then what they have, and a node whose oriond is being started may be there, again or for the first time. Nothing
    /// where nobody could give it.
    pub fn may_give_within(&self, ask: &Ask) -> Option<Time> {
        if !self.may_have_alone(ask) {
            return None;
        }
        if !self.had_gpus {
            return Some(RETURNS_MS);
        }
        let has_hope = |nodes: &Nodes| has_hope(nodes, self.settings.lender, ask);
        if !self.left.is_empty() && has_hope(&self.with_who_left()) {
            return Some(RETURNS_MS);
        }
        has_hope(&self.nodes).then_some(BACK_MS)
    }

    fn with_who_left(&self) -> Nodes {
        let as_before = |node: &Node| match self.left.get(&node.report.name) {
            Some((report, _)) => Node::new(report.clone(), node.standing, node.seen, self.settings.lender),
            None => node.clone(),
        };
        self.nodes.values().map(as_before).collect()
    }

    /// Whoever fills the queue keeps no other tenant out of it: of the one who has most asks there the last one gives
    /// way to who has fewer.
    fn has_place_in_queue(&mut self, tenant: &str) -> bool {
        if self.queue.len() < self.settings.queue_max {
            return true;
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        self.queue.iter().for_each(|w| *counts.entry(&w.ask.tenant).or_default() += 1);
        let its = counts.get(tenant).copied().unwrap_or(0);
        let Some((most, count)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return false };
        if count <= its + 1 {
            return false;
        }
        let at = self.queue.iter().rposition(|w| w.ask.tenant == most).expect("just counted");
        let Waiting { id, .. } = self.queue.remove(at).expect("just seen");
        self.events.push(Event::GaveUp { id });
        true
    }

    /// What would be given to who asks for this now, or if nobody had anything, where there is no room. Nothing of it
    /// is his, so no quota counts.
    pub fn would_give(&self, ask: &Ask) -> Result<Vec<Place>, Refused> {
        ask.check()?;
        let policy = self.settings.policy;
        let now = place(&self.where_it_may_lie(ask), ask, policy);
        let (mut nodes, chosen): (Nodes, Chosen) = match now {
            Some(chosen) => (self.nodes.values().filter(|node| is_in(&chosen, node)).cloned().collect(), chosen),
            None => {
                let up = self.nodes.values().filter(|node| node.takes_more_of(ask));
                let empty: Nodes = up.map(|node| self.empty(node)).collect();
                let chosen = place(&empty, ask, policy).ok_or_else(|| Refused::Full(self.why_not(ask)))?;
                (empty, chosen)
            }
        };
        Ok(chosen.iter().map(|(node, number)| nodes.take(node, *number, ask)).collect())
    }

    /// The node as if nobody had anything of it.
    fn empty(&self, node: &Node) -> Node {
        Node::new(node.report.clone(), node.standing, node.seen, self.settings.lender)
    }

    /// Where it would lie.
    fn find(&self, ask: &Ask) -> Result<Chosen, Obstacle> {
        let chosen = place(&self.where_it_may_lie(ask), ask, self.settings.policy);
        // A quota is a word about the tenant, whatever is free.
        let sizes = match &chosen {
            Some(chosen) => chosen.iter().map(|(node, number)| self.size(node, *number, ask)).collect(),
            None => least(ask),
        };
        self.within_quota(&ask.tenant, &sizes)?;
        chosen.ok_or(Obstacle::Full)
    }

    /// All nodes; of one that is to lie with its group those GPUs where the group has something already.
    fn where_it_may_lie(&self, ask: &Ask) -> Cow<'_, Nodes> {
        let its = |a: &&Allocation| a.ask.group == ask.group && a.ask.tenant == ask.tenant;
        let mut gpus: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        if ask.with_group {
            for place in self.allocations.values().filter(its).flat_map(|a| &a.places) {
                gpus.entry(&place.node).or_default().insert(place.number as usize);
            }
        }
        if gpus.is_empty() {
            return Cow::Borrowed(&self.nodes);
        }
        let only = |(name, numbers): (&&str, &BTreeSet<usize>)| Some(self.nodes.get(name)?.only(numbers));
        Cow::Owned(gpus.iter().filter_map(only).collect())
    }

    fn size(&self, node: &str, number: usize, ask: &Ask) -> (u64, u32) {
        let node = self.nodes.get(node).expect("just chosen");
        node.size(&node.report.gpus[number], ask)
    }

    fn within_quota(&self, tenant: &str, sizes: &[(u64, u32)]) -> Result<(), Obstacle> {
        self.within_quota_of(tenant, self.held.get(tenant).copied().unwrap_or_default(), sizes)
    }

    fn within_quota_of(&self, tenant: &str, held: Held, sizes: &[(u64, u32)]) -> Result<(), Obstacle> {
        let Some(quota) = self.quotas.get(tenant) else { return Ok(()) };
        let memory: u64 = sizes.iter().map(|(memory, _)| memory).sum();
        let ratio: u32 = sizes.iter().map(|(_, ratio)| ratio).sum();
        let beyond = [
            ("vGPUs", quota.vgpus.map(u64::from), u64::from(held.vgpus), sizes.len() as u64),
            ("MiB", quota.memory.map(|m| m / MIB), held.memory / MIB, memory / MIB),
            ("percent", quota.ratio.map(u64::from), u64::from(held.ratio), u64::from(ratio)),
        ];
        for (what, max, has, more) in beyond {
            if let Some(max) = max
                && has + more > max
            {
                return Err(Obstacle::Quota(format!(
                    "tenant {tenant:?} may hold {max} {what}, has {has} and asks for {more} more; release some, or ask \
                     the pool's operator"
                )));
            }
        }
        Ok(())
    }

    fn grant(&mut self, now: Time, id: AllocationId, ask: Ask, chosen: Chosen) -> Allocation {
        let places: Vec<Place> = (chosen.iter()).map(|(node, number)| self.nodes.take(node, *number, &ask)).collect();
        self.hold(&ask.tenant, &places);
        // Asked for again, it is not over any more.
        for place in &places {
            if let Some(revoked) = self.revoked.get_mut(&place.node) {
                revoked.remove(&id);
            }
        }
        let allocation = Allocation { id, ask, places, lease: Lease::Offered, until: now + self.settings.offer_ms };
        self.allocations.insert(id, allocation.clone());
        self.changes.push(Change::Allocation(allocation.clone()));
        self.events.push(Event::Granted { id });
        allocation
    }

    fn hold(&mut self, tenant: &str, places: &[Place]) {
        let held = self.held.entry(tenant.to_owned()).or_default();
        held.vgpus += places.len() as u32;
        held.memory += places.iter().map(|p| p.memory).sum::<u64>();
        held.ratio += places.iter().map(|p| p.ratio).sum::<u32>();
    }

    /// The client has come for it.
    pub fn confirm(&mut self, now: Time, id: AllocationId) -> Result<&Allocation, Refused> {
        let lease_ms = self.settings.lease_ms;
        let allocation = self.allocations.get_mut(&id).ok_or_else(|| over(id))?;
        allocation.until = now + lease_ms;
        if allocation.lease == Lease::Offered {
            allocation.lease = Lease::Confirmed;
            self.changes.push(Change::Allocation(allocation.clone()));
            self.events.push(Event::Confirmed { id });
        }
        Ok(allocation)
    }

    /// It is still needed.
    pub fn renew(&mut self, now: Time, id: AllocationId) -> Result<(), Refused> {
        let until = now + self.settings.lease_ms;
        let allocation = self.allocations.get_mut(&id).ok_or_else(|| over(id))?;
        if allocation.lease == Lease::Confirmed {
            allocation.until = until;
        }
        Ok(())
    }

    /// It is not needed any more, or nobody wants to wait for it any more. Saying so twice is no mistake.
    pub fn release(&mut self, now: Time, id: AllocationId, why: Why) -> bool {
        let waited = self.place_in_queue(id).is_some();
        if waited {
            self.queue.retain(|w| w.id != id);
            self.events.push(Event::GaveUp { id });
        }
        let had = self.end(id, why) || (why == Why::Killed && self.kill_lent(id));
        self.serve_queue(now);
        had || waited
    }

    /// The node hears of it with its next heartbeat.
    fn kill_lent(&mut self, id: AllocationId) -> bool {
        let lent = self.lent.values_mut().find(|lent| lent.allocations.iter().any(|a| a.id == id));
        lent.is_some_and(|lent| lent.killed.insert(id))
    }

    /// The client that it was offered has gone. Where it has come before it went, its node says when its session is
    /// over.
    pub fn forsake(&mut self, now: Time, id: AllocationId) -> bool {
        let is_offered = self.allocations.get(&id).is_some_and(|a| a.lease == Lease::Offered);
        is_offered && self.release(now, id, Why::NotConfirmed)
    }

    fn end(&mut self, id: AllocationId, why: Why) -> bool {
        self.end_but_on(id, why, None)
    }

    /// One node has no session of it any more. What the program has on others it keeps, if it has begun.
    fn end_on(&mut self, id: AllocationId, why: Why, node: &str, is_given_back: bool) {
        let Some(allocation) = self.allocations.get_mut(&id) else { return };
        if allocation.lease == Lease::Offered || allocation.places.iter().all(|place| place.node == node) {
            self.end_but_on(id, why, is_given_back.then_some(node));
            return;
        }
        let (gone, kept) = std::mem::take(&mut allocation.places).into_iter().partition(|place| place.node == node);
        allocation.places = kept;
        let (gone, changed): (Vec<Place>, Allocation) = (gone, allocation.clone());
        if !is_given_back {
            gone.iter().for_each(|place| self.nodes.give_back(place));
        }
        if why != Why::Ended {
            self.revoked.entry(node.to_owned()).or_default().insert(id);
        }
        self.let_go(&changed.ask.tenant, &gone);
        self.changes.push(Change::Allocation(changed));
    }

    fn let_go(&mut self, tenant: &str, places: &[Place]) {
        let held = self.held.get_mut(tenant).expect("who has something is listed");
        held.vgpus -= places.len() as u32;
        held.memory -= places.iter().map(|p| p.memory).sum::<u64>();
        held.ratio -= places.iter().map(|p| p.ratio).sum::<u32>();
        if *held == Held::default() {
            self.held.remove(tenant);
        }
        self.may_be_within_quota(tenant);
    }

    /// The tenant has less now, or may have more.
    fn may_be_within_quota(&mut self, tenant: &str) {
        self.queue.iter_mut().filter(|w| w.ask.tenant == tenant).for_each(|w| w.is_over_quota = false);
    }

    /// `without` is a node whose room has been given back already.
    fn end_but_on(&mut self, id: AllocationId, why: Why, without: Option<&str>) -> bool {
        let Some(allocation) = self.allocations.remove(&id) else { return false };
        self.missed.remove(&id);
        for place in allocation.places.iter().filter(|p| Some(p.node.as_str()) != without) {
            self.nodes.give_back(place);
        }
        // A session of it may still run there.
        if !matches!(why, Why::Ended) {
            for place in &allocation.places {
                self.revoked.entry(place.node.clone()).or_default().insert(id);
            }
        }
        self.let_go(&allocation.ask.tenant, &allocation.places);
        self.changes.push(Change::AllocationGone(id));
        self.events.push(Event::Over { id, why });
        true
    }

    /// First come, first served: nobody is passed over because he asks for more, if it is not more than there is.
    fn serve_queue(&mut self, now: Time) {
        // A tenant that has what it may have may have thousands there, and of each it is known without a place for it.
        let mut from = 0;
        while let Some(at) = self.queue.iter().skip(from).position(Waiting::is_next).map(|at| from + at) {
            from = at;
            let Waiting { ask, .. } = &self.queue[at];
            if self.within_quota(&ask.tenant, &least(ask)).is_err() {
                self.queue[at].is_over_quota = true;
                continue;
            }
            match self.find(ask) {
                Ok(chosen) => {
                    let Waiting { id, ask, .. } = self.queue.remove(at).expect("just seen");
                    self.grant(now, id, ask, chosen);
                }
                Err(Obstacle::Quota(_)) => self.queue[at].is_over_quota = true,
                Err(Obstacle::Full) => return,
            }
        }
    }

    /// After each change of which nodes are expected, and of what they have: how much somebody would be given of them
    /// may be another, too.
    fn weigh_hopes(&mut self) {
        for waiting in &mut self.queue {
            waiting.has_hope = has_hope(&self.nodes, self.settings.lender, &waiting.ask);
            waiting.is_over_quota = false;
        }
    }

    pub fn set_quota(&mut self, now: Time, tenant: &str, quota: Option<Quota>) -> Result<(), Refused> {
        if tenant.len() > TEXT_BYTES_MAX || tenant.chars().any(acts) {
            let tenant = quoted(tenant);
            return Err(Refused::Invalid(format!(
                "{tenant} is no tenant: it is longer than {TEXT_BYTES_MAX} bytes or holds control characters"
            )));
        }
        match quota {
            Some(quota) => {
                self.quotas.insert(tenant.to_owned(), quota);
                self.changes.push(Change::Quota(tenant.to_owned(), quota));
            }
            None => {
                self.quotas.remove(tenant);
                self.changes.push(Change::QuotaGone(tenant.to_owned()));
            }
        }
        self.may_be_within_quota(tenant);
        self.serve_queue(now);
        Ok(())
    }

    /// What time alone brings: leases that run out, nodes that are not heard of, clients that have waited long enough.
    pub fn tick(&mut self, now: Time) {
        let mut are_fewer = false;
        for node in self.nodes.standings() {
            if !node.is_lost && now >= node.seen + self.settings.node_ms {
                node.is_lost = true;
                self.events.push(Event::NodeLost { node: node.report.name.clone() });
            }
            // One that is lost for a moment keeps those who wait for it in their places.
            if node.is_lost && !node.is_given_up && now >= node.seen.saturating_add(self.settings.lease_ms) {
                node.is_given_up = true;
                are_fewer = true;
            }
        }
        if are_fewer {
            self.weigh_hopes();
        }
        self.left.retain(|_, (_, at)| now < at.saturating_add(RETURNS_MS));
        let unheard = |node: &Node| now >= node.seen.saturating_add(self.settings.lease_ms);
        let silent: Vec<String> =
            self.lent.keys().filter(|name| self.nodes.get(name).is_none_or(unheard)).cloned().collect();
        silent.iter().for_each(|name| self.take_lent(name, Vec::new()));
        let over: Vec<(AllocationId, Lease)> =
            self.allocations.values().filter(|a| now >= a.until).map(|a| (a.id, a.lease)).collect();
        for (id, lease) in over {
            self.end(id, if lease == Lease::Offered { Why::NotConfirmed } else { Why::Expired });
        }
        self.give_up(|w| now >= w.until);
        self.serve_queue(now);
    }

    /// These wait no more. Nothing that they have been given meanwhile is taken back.
    pub fn wait_no_more(&mut self, now: Time, ids: &BTreeSet<AllocationId>) {
        self.give_up(|w| ids.contains(&w.id));
        self.serve_queue(now);
    }

    fn give_up(&mut self, is_over: impl Fn(&Waiting) -> bool) {
        let over: Vec<AllocationId> = self.queue.iter().filter(|w| is_over(w)).map(|w| w.id).collect();
        self.queue.retain(|w| !is_over(w));
        self.events.extend(over.into_iter().map(|id| Event::GaveUp { id }));
    }

    /// What one that waited in vain is told.
    pub fn why_in_vain(&self, ask: &Ask) -> String {
        match self.find(ask) {
            Err(Obstacle::Quota(text)) => text,
            _ => self.why_not(ask),
        }
    }

    fn why_not(&self, ask: &Ask) -> String {
        let all: Vec<&Allocation> = self.allocations.values().collect();
        let nodes = self.where_it_may_lie(ask);
        explain::full(self.settings.lender, &nodes, matches!(nodes, Cow::Owned(_)), &all, ask)
    }
}

/// Of each of its vGPUs the bytes and percent that it has at least, wherever it lies.
fn least(ask: &Ask) -> Vec<(u64, u32)> {
    vec![(ask.memory.unwrap_or(0), ask.ratio.unwrap_or(0)); ask.vgpus as usize]
}

fn is_in(chosen: &Chosen, node: &Node) -> bool {
    chosen.iter().any(|(name, _)| *name == node.report.name)
}

fn over(id: AllocationId) -> Refused {
    Refused::Unknown(format!("allocation {id} is over: it was released, or not renewed in time"))
}
