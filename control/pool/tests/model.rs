//! The pool against a model: whatever nodes, clients and time do, in whatever order, and wherever the controller stops.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use orion_pool::pool::{Answer, Change, Event, Pool, Quota, Refused, Settings, Why};
use orion_pool::{Allocation, AllocationId, Ask, Gpu, Gpus, Lease, Lender, MIB, Node, NodeReport, Policy, Standing};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// This node comes, or comes back with these GPUs (as bits) and another split.
    Register {
        node: usize,
        gpus: u8,
        split: u32,
    },
    /// It says which of its sessions live; those whose number is odd have ended.
    Heartbeat {
        node: usize,
        forgets: u8,
    },
    Allocate {
        ask: Ask,
    },
    Confirm(usize),
    Renew(usize),
    Release(usize),
    Drain {
        node: usize,
        is_draining: bool,
    },
    Forget(usize),
    SetQuota {
        tenant: usize,
        vgpus: Option<u32>,
        gib: Option<u64>,
    },
    Pass(u64),
    /// A program shows its lease to its first node, which says so with its next word.
    Begin(usize),
    /// The controller is killed and starts from its store, or only reads it. Some of those who were offered something
    /// (by their number, as bits) have a connection to this one then.
    Restart(u8),
    /// A program whose connection was to the controller before asks this one, under the same name.
    AskAgain(usize),
}

/// What is asked for: nothing, what half of the nodes have besides, and what none has.
const CARRIERS: [&str; 3] = ["", "shm", "rdma"];
const TENANTS: [&str; 3] = ["", "red", "blue"];

fn node_name(node: usize) -> String {
    format!("node{node}")
}

fn gpu(node: usize, number: usize) -> Gpu {
    // Of different sizes, with and without a reserve.
    let gib = [4, 8, 80][number % 3];
    let reserve = if number.is_multiple_of(2) { 300 * MIB } else { 0 };
    Gpu { uuid: format!("GPU-{node}-{number}"), name: "Model GPU".into(), memory: gib << 30, reserve }
}

fn report(node: usize, gpus: u8, split: u32) -> NodeReport {
    // Started again now and then.
    let oriond = format!("{:032x}", gpus >> 3);
    let mut gpus: Vec<Gpu> = (0..4).filter(|n| gpus & 1 << n != 0).map(|n| gpu(node, n)).collect();
    // Their order may change, too.
    if split.is_multiple_of(2) {
        gpus.reverse();
    }
    // With a reserve on every other one.
    let kept = if node.is_multiple_of(2) { 0 } else { split / 2 };
    NodeReport {
        name: node_name(node),
        address: format!("10.0.0.{node}:9960"),
        further: if node < 2 { vec![format!("unix:/run/{node}")] } else { Vec::new() },
        gpus,
        split,
        oriond,
        kept,
        certificate: String::new(),
    }
}

fn asks() -> impl Strategy<Value = Ask> {
    let gpus = prop_oneof![3 => Just(Gpus::Any), 1 => Just(Gpus::Same), 1 => Just(Gpus::Distinct)];
    let memory = proptest::option::weighted(0.8, 1u64..9000);
    let ratio = proptest::option::weighted(0.7, prop_oneof![Just(100u32), 1u32..=100]);
    let wait_ms = prop_oneof![2 => Just(0u64), 1 => 1u64..40_000];
    let carrier = prop_oneof![8 => Just(0usize), 2 => Just(1), 1 => Just(2)];
    // Programs do, and who counts vGPUs for himself does not.
    let claims = proptest::bool::weighted(0.8);
    (1u32..6, memory, ratio, any::<bool>(), gpus, 0usize..3, wait_ms, carrier, claims).prop_map(
        |(vgpus, mib, ratio, cross, gpus, tenant, wait_ms, carrier, claims)| Ask {
            vgpus,
            memory: mib.map(|m| m * MIB),
            ratio,
            // One in two of those for which it makes sense.
            cross_node: cross && ratio == Some(100) && gpus != Gpus::Same,
            gpus,
            tenant: TENANTS[tenant].into(),
            group: String::new(),
            client: String::new(),
            wait_ms,
            with_group: false,
            carrier: CARRIERS[carrier].into(),
            claims,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let node = 0usize..4;
    prop_oneof![
        3 => (node.clone(), 0u8..16, 1u32..6).prop_map(|(node, gpus, split)| Step::Register { node, gpus, split }),
        4 => (node.clone(), any::<u8>()).prop_map(|(node, forgets)| Step::Heartbeat { node, forgets }),
        10 => asks().prop_map(|ask| Step::Allocate { ask }),
        3 => any::<usize>().prop_map(Step::Confirm),
        2 => any::<usize>().prop_map(Step::Renew),
        5 => any::<usize>().prop_map(Step::Release),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, is_draining)| Step::Drain { node, is_draining }),
        1 => node.prop_map(Step::Forget),
        1 => (0usize..3, proptest::option::of(0u32..8), proptest::option::of(0u64..40))
            .prop_map(|(tenant, vgpus, gib)| Step::SetQuota { tenant, vgpus, gib }),
        2 => (0u64..20_000).prop_map(Step::Pass),
        3 => any::<usize>().prop_map(Step::Begin),
        1 => any::<u8>().prop_map(Step::Restart),
        1 => any::<usize>().prop_map(Step::AskAgain),
    ]
}

#[derive(Default)]
struct Store {
    nodes: BTreeMap<String, (NodeReport, Standing)>,
    allocations: BTreeMap<AllocationId, Allocation>,
    quotas: BTreeMap<String, Quota>,
}

impl Store {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Node(report, standing) => drop(self.nodes.insert(report.name.clone(), (report, standing))),
            Change::NodeGone(name) => drop(self.nodes.remove(&name).expect("it was stored")),
            Change::Allocation(allocation) => drop(self.allocations.insert(allocation.id, allocation)),
            Change::AllocationGone(id) => drop(self.allocations.remove(&id).expect("it was stored")),
            Change::Quota(tenant, quota) => drop(self.quotas.insert(tenant, quota)),
            Change::QuotaGone(tenant) => drop(self.quotas.remove(&tenant)),
        }
    }
}

/// By node and GPU: memory, ratio and slots.
type Taken = HashMap<(String, String), (u64, u32, BTreeSet<u32>)>;

struct World {
    pool: Pool,
    policy: Policy,
    store: Store,
    now: u64,
    asked: u128,
    /// In the order in which they came.
    waiting: Vec<(AllocationId, Ask)>,
    /// Those of them that were over their tenant's quota before this step, or may have been.
    waited_over_quota: BTreeSet<AllocationId>,
    /// Sessions that nodes believe to have, by node.
    sessions: HashMap<String, BTreeSet<AllocationId>>,
    /// Leases that nodes have heard to be over: nobody begins with one.
    over: HashMap<String, BTreeSet<AllocationId>>,
    /// Offers whose clients have no connection to this controller, with the first node of each, and from when on its
    /// word counts.
    missed: BTreeMap<AllocationId, String>,
    missed_from: u64,
}

const CLAIM_MS: u64 = 1_000;
/// Small, so that it is full at times.
const QUEUE_MAX: usize = 6;

fn settings(policy: Policy) -> Settings {
    Settings {
        offer_ms: 5_000,
        claim_ms: CLAIM_MS,
        lease_ms: 20_000,
        node_ms: 8_000,
        policy,
        queue_max: QUEUE_MAX,
        lender: Lender::Controller,
    }
}

impl World {
    fn new(policy: Policy) -> World {
        World {
            pool: Pool::new(settings(policy)),
            policy,
            store: Store::default(),
            now: 0,
            asked: 0,
            waiting: Vec::new(),
            waited_over_quota: BTreeSet::new(),
            sessions: HashMap::new(),
            over: HashMap::new(),
            missed: BTreeMap::new(),
            missed_from: 0,
        }
    }

    fn some_id(&self, index: usize) -> AllocationId {
        AllocationId(1 + index as u128 % (self.asked + 1))
    }

    fn step(&mut self, step: Step) {
        let over_quota = self.waiting.iter().filter(|(_, ask)| self.allowed(ask) != Some(true)).map(|(id, _)| *id);
        self.waited_over_quota = over_quota.collect();
        match step {
            Step::Register { node, gpus, split } => {
                self.pool.register(self.now, report(node, gpus, split)).expect("a sound report");
            }
            Step::Heartbeat { node, forgets } => self.heartbeat(&node_name(node), forgets),
            Step::Allocate { ask } => self.allocate(ask),
            Step::Confirm(index) => {
                let id = self.some_id(index);
                if let Ok(allocation) = self.pool.confirm(self.now, id) {
                    for place in allocation.places.clone() {
                        self.sessions.entry(place.node).or_default().insert(id);
                    }
                }
            }
            Step::Renew(index) => {
                let known = self.pool.allocation(self.some_id(index)).is_some();
                assert_eq!(self.pool.renew(self.now, self.some_id(index)).is_ok(), known);
            }
            Step::Release(index) => {
                let id = self.some_id(index);
                self.waiting.retain(|(w, _)| *w != id);
                self.pool.release(self.now, id, Why::Released);
                assert!(self.pool.allocation(id).is_none());
            }
            Step::Drain { node, is_draining } => {
                let _ = self.pool.drain(self.now, &node_name(node), is_draining);
            }
            Step::Forget(node) => {
                let name = node_name(node);
                let is_used = self.pool.allocations().any(|a| a.is_on(&name));
                let is_there = self.pool.nodes().any(|n| n.report.name == name);
                assert_eq!(self.pool.forget(self.now, &name).is_ok(), is_there && !is_used);
            }
            Step::SetQuota { tenant, vgpus, gib } => {
                let quota = Quota { vgpus, memory: gib.map(|g| g << 30), ratio: None };
                let quota = (vgpus.is_some() || gib.is_some()).then_some(quota);
                self.pool.set_quota(self.now, TENANTS[tenant], quota).expect("a good name");
            }
            Step::Pass(ms) => {
                self.now += ms;
                self.pool.tick(self.now);
                for allocation in self.pool.allocations() {
                    assert!(allocation.until > self.now, "{} stands beyond its time", allocation.id);
                }
                self.hear();
                // Nobody waits for what is there.
                if let Some((id, first)) = self.waiting.iter().find(|(_, ask)| self.may_be_next(ask)) {
                    assert!(!self.is_next(first) || !self.fits(first), "{id} waits for what is there");
                }
            }
            Step::Begin(index) => {
                let id = self.some_id(index);
                let first = self.pool.allocation(id).filter(|a| a.lease == Lease::Offered).map(|a| &a.places[0].node);
                // What has heard that it is over lets nobody in; whoever is given it again has another lease.
                if let Some(node) = first.filter(|node| !self.over.get(*node).is_some_and(|over| over.contains(&id))) {
                    self.sessions.entry(node.clone()).or_default().insert(id);
                }
            }
            Step::Restart(claimed) => self.restart(claimed),
            Step::AskAgain(index) => {
                let id = self.some_id(index);
                if let Some(had) = self.pool.allocation(id).cloned() {
                    let again = self.pool.allocate(self.now, id, had.ask.clone()).expect("it stands");
                    assert_eq!(again, Answer::Granted(had));
                    self.missed.remove(&id);
                }
            }
        }
        self.hear();
        self.check();
    }

    fn heartbeat(&mut self, name: &str, forgets: u8) {
        let sessions = self.sessions.entry(name.to_owned()).or_default();
        let ended: Vec<AllocationId> = sessions.iter().copied().filter(|id| forgets >> (id.0 % 8) & 1 == 1).collect();
        let live: Vec<AllocationId> = sessions.iter().copied().filter(|id| !ended.contains(id)).collect();
        let before: Vec<Allocation> = self.pool.allocations().cloned().collect();
        let Ok(gone) = self.pool.heartbeat(self.now, name, &live, &ended) else { return };
        // Who has come to a node keeps what he has, also where that node had not said so before.
        for Allocation { id, lease, .. } in before.into_iter().filter(|a| !ended.contains(&a.id)) {
            let counts = self.now >= self.missed_from && self.missed.get(&id).is_some_and(|node| node == name);
            let is_over = counts && lease == Lease::Offered && !live.contains(&id);
            assert_eq!(self.pool.allocation(id).is_none(), is_over, "{id}");
            assert!(!is_over || self.sessions.values().all(|of_node| !of_node.contains(&id)), "{id} was taken away");
            if counts {
                self.missed.remove(&id);
            }
        }
        let is_awaited = self.missed.iter().any(|(id, node)| node == name && self.is_offered(*id));
        assert!(!is_awaited || self.pool.wants_word(self.now, name).is_some_and(|within| within > 0));
        self.over.entry(name.to_owned()).or_default().extend(gone.iter().copied());
        let sessions = self.sessions.entry(name.to_owned()).or_default();
        sessions.retain(|id| live.contains(id) && !gone.contains(id));
        // What the node has is what the pool knows of, and the other way round for what it said.
        for id in sessions.iter() {
            let allocation = self.pool.allocation(*id).expect("a session without an allocation goes on");
            assert!(allocation.is_on(name));
        }
        for id in ended {
            assert!(self.pool.allocation(id).is_none_or(|a| !a.is_on(name)), "{id} has ended and stands");
        }
    }

    fn is_offered(&self, id: AllocationId) -> bool {
        self.pool.allocation(id).is_some_and(|a| a.lease == Lease::Offered)
    }

    fn allocate(&mut self, ask: Ask) {
        self.asked += 1;
        let id = AllocationId(self.asked);
        let (fits, allowed) = (self.fits(&ask), self.allowed(&ask));
        let are_before = self.waiting.iter().any(|(_, before)| self.is_next(before));
        let may_be_before = self.waiting.iter().any(|(_, before)| self.may_be_next(before));
        let is_full = self.waiting.len() == QUEUE_MAX && self.who_gives_way(&ask.tenant).is_none();
        match self.pool.allocate(self.now, id, ask.clone()) {
            Ok(Answer::Granted(allocation)) => {
                assert!(fits && allowed != Some(false) && !are_before);
                assert_eq!(self.pool.allocation(id), Some(&allocation));
                // Asking again under the same name changes nothing.
                let again = self.pool.allocate(self.now, id, ask).expect("it stands");
                assert_eq!(again, Answer::Granted(allocation));
            }
            Ok(Answer::Waits(behind)) => {
                assert!(ask.wait_ms > 0 && (!fits || may_be_before || allowed != Some(true)));
                if self.waiting.len() == QUEUE_MAX {
                    let goes = self.who_gives_way(&ask.tenant).expect("nobody has more there");
                    assert!(!self.pool.waiting().any(|(id, _)| id == goes));
                    self.waiting.retain(|(id, _)| *id != goes);
                }
                assert_eq!(behind, self.waiting.len());
                self.waiting.push((id, ask));
            }
            Err(Refused::Full(text)) => {
                assert!(!fits || may_be_before, "{text}");
                assert!(ask.wait_ms == 0 || is_full);
                assert!(!fits || text.contains("wait"), "{text}");
            }
            Err(Refused::Quota(text)) => {
                assert!(allowed != Some(true) && text.contains("may hold"), "{text}");
                assert!(ask.wait_ms == 0 || is_full || self.allowed_beside(0, 0, &ask) != Some(true), "{text}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Of a full queue to one of this tenant: the last one of whoever has two more there than it, and most of all.
    fn who_gives_way(&self, tenant: &str) -> Option<AllocationId> {
        let count = |of: &str| self.waiting.iter().filter(|(_, ask)| ask.tenant == of).count();
        // Of several that have as many the one whose name is last.
        let most = TENANTS.iter().copied().max_by_key(|of| (count(of), *of)).expect("there are some");
        let last = self.waiting.iter().rfind(|(_, ask)| ask.tenant == most);
        last.filter(|_| count(most) > count(tenant) + 1).map(|(id, _)| *id)
    }

    /// Counted anew from the allocations: memory, ratio and slots taken of each GPU.
    fn taken(&self) -> Taken {
        let mut taken = Taken::new();
        for allocation in self.pool.allocations() {
            for p in &allocation.places {
                let of = taken.entry((p.node.clone(), p.gpu.clone())).or_default();
                of.0 += p.memory + p.reserve;
                of.1 += p.ratio;
                assert!(of.2.insert(p.slot), "vGPU {} of {} is given twice", p.slot, p.gpu);
            }
        }
        taken
    }

    /// Whether there is room, found in another way than the pool does: one vGPU after the other.
    fn fits(&self, ask: &Ask) -> bool {
        self.holds(ask, &self.taken(), |node| !node.is_lost)
    }

    /// Whether there would be if nobody had anything, and those nodes were back that are lost for less than a lease.
    fn has_hope(&self, ask: &Ask) -> bool {
        let lease_ms = settings(self.policy).lease_ms;
        self.holds(ask, &HashMap::new(), |node| self.now < node.seen + lease_ms)
    }

    fn holds(&self, ask: &Ask, taken: &Taken, is_there: impl Fn(&Node) -> bool) -> bool {
        let mut nodes = Vec::new();
        let is_reached = |node: &NodeReport| match ask.carrier.as_str() {
            "" => true,
            "shm" => !node.further.is_empty(),
            _ => false,
        };
        for node in self.pool.nodes().filter(|n| is_there(n) && n.standing == Standing::Up && is_reached(&n.report)) {
            let mut rooms = Vec::new();
            for gpu in &node.report.gpus {
                let (split, kept) = (node.report.split, node.report.kept);
                let share_with_reserve = gpu.memory / u64::from(split);
                let share = share_with_reserve.saturating_sub(gpu.reserve) / MIB * MIB;
                let (memory, ratio) = (ask.memory.unwrap_or(share), ask.ratio.unwrap_or(100 / split));
                let (used, time, slots) = taken
                    .get(&(node.report.name.clone(), gpu.uuid.clone()))
                    .map_or((0, 0, 0), |(m, r, s)| (*m, *r, s.len() as u32));
                let mut room = 0;
                while memory > 0
                    && used + (room as u64 + 1) * (memory + gpu.reserve)
                        <= gpu.memory - u64::from(kept) * share_with_reserve
                    && time + (room + 1) * ratio <= 100 - kept * (100 / split)
                    && slots + room < split - kept
                {
                    room += 1;
                }
                rooms.push(room);
            }
            nodes.push(match ask.gpus {
                Gpus::Any => rooms.iter().sum(),
                Gpus::Same => rooms.iter().copied().max().unwrap_or(0),
                Gpus::Distinct => rooms.iter().filter(|r| **r > 0).count() as u32,
            });
        }
        match ask.cross_node {
            true => nodes.iter().sum::<u32>() >= ask.vgpus,
            false => nodes.iter().any(|room| *room >= ask.vgpus),
        }
    }

    /// Whether who comes later waits behind it.
    fn is_next(&self, ask: &Ask) -> bool {
        self.has_hope(ask) && self.allowed(ask) == Some(true)
    }

    /// Likewise, as far as is known.
    fn may_be_next(&self, ask: &Ask) -> bool {
        self.has_hope(ask) && self.allowed(ask) != Some(false)
    }

    /// Whether the quota has room; of an ask that leaves its memory to the GPU that is not known.
    fn allowed(&self, ask: &Ask) -> Option<bool> {
        let mine = || self.pool.allocations().filter(|a| a.ask.tenant == ask.tenant).flat_map(|a| &a.places);
        self.allowed_beside(mine().count() as u32, mine().map(|p| p.memory).sum(), ask)
    }

    fn allowed_beside(&self, vgpus: u32, memory: u64, ask: &Ask) -> Option<bool> {
        let Some((_, quota)) = self.pool.quotas().find(|(tenant, _)| *tenant == ask.tenant) else { return Some(true) };
        if quota.vgpus.is_some_and(|max| vgpus + ask.vgpus > max) {
            return Some(false);
        }
        let Some(max) = quota.memory else { return Some(true) };
        Some(memory + ask.memory? * ask.vgpus as u64 <= max)
    }

    fn restart(&mut self, claimed: u8) {
        // Who waited has lost his connection.
        self.waiting.clear();
        let nodes: Vec<_> = self.store.nodes.values().cloned().collect();
        let allocations: Vec<_> = self.store.allocations.values().cloned().collect();
        let quotas = self.store.quotas.clone();
        self.pool = Pool::restore(settings(self.policy), nodes, allocations, quotas, self.now).expect("a sound store");
        let is_claimed = |id: AllocationId| claimed >> (id.0 % 8) & 1 == 1;
        self.pool.miss_clients(self.now, is_claimed);
        let is_missed = |a: &&Allocation| a.lease == Lease::Offered && a.ask.claims && !is_claimed(a.id);
        let first = |a: &Allocation| (a.id, a.places[0].node.clone());
        self.missed = self.pool.allocations().filter(is_missed).map(first).collect();
        self.missed_from = self.now + CLAIM_MS;
    }

    /// Stores what changed, and follows who waits.
    fn hear(&mut self) {
        for change in self.pool.take_changes() {
            self.store.apply(change);
        }
        for event in self.pool.take_events() {
            match event {
                Event::Granted { id } => {
                    if let Some(at) = self.waiting.iter().position(|(w, _)| *w == id) {
                        let mut before = self.waiting[..at].iter();
                        let passes = |(id, ask): &(_, _)| self.waited_over_quota.contains(id) || !self.is_next(ask);
                        assert!(before.all(passes), "somebody was passed over");
                        self.waiting.remove(at);
                    }
                }
                Event::GaveUp { id } => self.waiting.retain(|(w, _)| *w != id),
                _ => {}
            }
        }
        assert!(self.pool.waiting().map(|(id, _)| id).eq(self.waiting.iter().map(|(id, _)| *id)));
    }

    fn check(&self) {
        let taken = self.taken();
        for node in self.pool.nodes() {
            for (number, gpu) in node.report.gpus.iter().enumerate() {
                let none = (0, 0, BTreeSet::new());
                let (memory, ratio, slots) =
                    taken.get(&(node.report.name.clone(), gpu.uuid.clone())).unwrap_or(&none).clone();
                let (split, kept) = (node.report.split, node.report.kept);
                let whole =
                    (gpu.memory - u64::from(kept) * (gpu.memory / u64::from(split)), 100 - kept * (100 / split));
                assert!(memory <= whole.0 && ratio <= whole.1 && slots.iter().all(|slot| *slot < split - kept));
                let free = node.free(number);
                assert_eq!((free.memory, free.ratio), (whole.0 - memory, whole.1 - ratio), "{}", gpu.uuid);
                assert_eq!(free.slots(), (split - kept) as usize - slots.len());
            }
        }
        for a in self.pool.allocations() {
            // Of several nodes one may have ended what was there.
            let has_all = a.places.len() == a.ask.vgpus as usize;
            let has_some = !a.places.is_empty() && a.places.len() < a.ask.vgpus as usize;
            let may_have_some = a.ask.cross_node && a.lease == Lease::Confirmed;
            assert!(has_all || has_some && may_have_some, "some of what was asked for");
            let nodes: BTreeSet<&str> = a.places.iter().map(|p| p.node.as_str()).collect();
            let gpus: BTreeSet<&str> = a.places.iter().map(|p| p.gpu.as_str()).collect();
            assert!(a.ask.cross_node || nodes.len() == 1);
            assert!(a.ask.gpus != Gpus::Same || gpus.len() == 1);
            assert!(a.ask.gpus != Gpus::Distinct || gpus.len() == a.places.len());
            for place in &a.places {
                assert!(a.ask.memory.is_none_or(|m| m == place.memory) && a.ask.ratio.is_none_or(|r| r == place.ratio));
                let node = self.pool.nodes().find(|n| n.report.name == place.node).expect("its node is known");
                assert_eq!(node.number(&place.gpu), Some(place.number as usize), "on a GPU that is gone, or elsewhere");
            }
        }
        // What is stored is what is.
        let stored: Vec<_> = self.store.allocations.values().map(|a| (a.id, &a.places, a.lease)).collect();
        let here: Vec<_> = self.pool.allocations().map(|a| (a.id, &a.places, a.lease)).collect();
        assert_eq!(stored, here);
        let stored: Vec<_> = self.store.nodes.values().map(|(report, standing)| (report, *standing)).collect();
        let here: Vec<_> = self.pool.nodes().map(|n| (&n.report, n.standing)).collect();
        assert_eq!(stored, here);
    }
}

fn run(policy: Policy, steps: Vec<Step>) {
    let mut world = World::new(policy);
    for step in steps {
        world.step(step);
    }
    // In the end everybody goes, and all is free.
    for id in 1..=world.asked {
        world.pool.release(world.now, AllocationId(id), Why::Released);
    }
    world.waiting.clear();
    world.hear();
    assert_eq!(world.pool.allocations().count(), 0);
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_given_twice_and_nothing_is_lost(
        spread in any::<bool>(),
        steps in proptest::collection::vec(steps(), 1..200),
    ) {
        run(if spread { Policy::Spread } else { Policy::Pack }, steps);
    }
}
