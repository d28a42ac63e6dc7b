//! A controller and a node's own reserve against a model: whoever of the two is away, comes back or forgets, nothing of
//! a GPU is lent twice, and when they talk to each other again the one knows what the other has lent.

use std::collections::{BTreeMap, BTreeSet};

use orion_pool::pool::{Answer, Event, Pool, Refused, Settings, Why};
use orion_pool::{Allocation, AllocationId, Ask, Gpu, Lender, MIB, NodeReport};
use proptest::prelude::*;

const GPUS: usize = 2;

#[derive(Debug, Clone)]
enum Step {
    /// A program asks whoever there is: the controller, or the node while it does not reach that.
    Ask(Ask),
    /// A session of one or the other ends.
    End(usize),
    /// The way between node and controller is cut, or healed.
    Cut(bool),
    /// If there is a way, the node says what it has.
    Heartbeat,
    /// The controller starts from its store. Of reserves nothing is stored.
    RestartController,
    /// The agent starts again: of its reserve it knows what oriond says that runs.
    RestartAgent,
    /// An operator ends something that he sees.
    Kill(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let memory = proptest::option::of(1u64..6000);
    let ask = (1u32..4, memory).prop_map(|(vgpus, mib)| Ask { vgpus, memory: mib.map(|m| m * MIB), ..Ask::default() });
    prop_oneof![
        8 => ask.prop_map(Step::Ask),
        4 => any::<usize>().prop_map(Step::End),
        2 => any::<bool>().prop_map(Step::Cut),
        6 => Just(Step::Heartbeat),
        1 => Just(Step::RestartController),
        1 => Just(Step::RestartAgent),
        1 => any::<usize>().prop_map(Step::Kill),
        2 => (0u64..30_000).prop_map(Step::Pass),
    ]
}

fn report(split: u32, kept: u32) -> NodeReport {
    let gpu = |number: usize| Gpu {
        uuid: format!("GPU-{number}"),
        name: "Model GPU".into(),
        memory: 16 << 30,
        reserve: if number == 0 { 0 } else { 300 * MIB },
    };
    let (name, address, oriond) = ("a".into(), "a:1".into(), "0a".repeat(16));
    let certificate = String::new();
    let (further, gpus) = (Vec::new(), (0..GPUS).map(gpu).collect());
    NodeReport { name, address, further, gpus, split, oriond, kept, certificate }
}

fn settings(lender: Lender) -> Settings {
    // What the agent has lent ends when oriond says so, and by no time.
    let (node_ms, lease_ms) = if lender == Lender::Node { (u64::MAX / 4, u64::MAX / 4) } else { (8_000, 20_000) };
    Settings { offer_ms: lease_ms, lease_ms, node_ms, lender, ..Settings::default() }
}

struct World {
    report: NodeReport,
    controller: Pool,
    node: Pool,
    is_cut: bool,
    now: u64,
    asked: u128,
    /// Sessions at oriond, which never forgets: whose they are, and what they have.
    sessions: BTreeMap<AllocationId, (Lender, Allocation)>,
    ended: Vec<AllocationId>,
}

impl World {
    fn new(split: u32, kept: u32) -> World {
        let report = report(split, kept);
        let mut world = World {
            controller: Pool::new(settings(Lender::Controller)),
            node: Pool::new(settings(Lender::Node)),
            report,
            is_cut: false,
            now: 0,
            asked: 0,
            sessions: BTreeMap::new(),
            ended: Vec::new(),
        };
        for pool in [&mut world.controller, &mut world.node] {
            pool.register(0, world.report.clone()).expect("a sound report");
        }
        world
    }

    fn of(&self, lender: Lender) -> Vec<AllocationId> {
        self.sessions.iter().filter(|(_, (whose, _))| *whose == lender).map(|(id, _)| *id).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ask(ask) => {
                self.asked += 1;
                let (id, lender) =
                    (AllocationId(self.asked), if self.is_cut { Lender::Node } else { Lender::Controller });
                let pool = if self.is_cut { &mut self.node } else { &mut self.controller };
                match pool.allocate(self.now, id, ask) {
                    Ok(Answer::Granted(a)) => drop(self.sessions.insert(id, (lender, a))),
                    Err(Refused::Full(text)) => {
                        let whose = if self.is_cut { "the node's own reserve has no room" } else { "the pool has no" };
                        assert!(text.starts_with(whose), "{text}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            Step::End(index) => {
                let Some(id) = self.sessions.keys().nth(index % self.sessions.len().max(1)).copied() else { return };
                self.sessions.remove(&id);
                self.ended.push(id);
            }
            Step::Cut(is_cut) => {
                self.is_cut = is_cut;
                // What was over meanwhile runs until the node is heard of; the agent's README says so.
                self.heartbeat();
            }
            Step::Heartbeat => self.heartbeat(),
            Step::RestartController => {
                let kept: Vec<_> = self.controller.allocations().cloned().collect();
                let node = [(self.report.clone(), orion_pool::Standing::Up)];
                let restored = Pool::restore(settings(Lender::Controller), node, kept, [], self.now);
                self.controller = restored.expect("a sound store");
                assert_eq!(self.controller.lent_by_nodes().count(), 0);
                self.heartbeat();
            }
            Step::RestartAgent => {
                let lent = self.of(Lender::Node).into_iter().map(|id| self.sessions[&id].1.clone());
                let node = [(self.report.clone(), orion_pool::Standing::Up)];
                let restored = Pool::restore(settings(Lender::Node), node, lent, [], self.now);
                self.node = restored.expect("nothing was lent twice");
            }
            Step::Kill(index) => {
                let seen: Vec<AllocationId> = self.controller.lent_by_nodes().map(|a| a.id).collect();
                if let Some(id) = seen.get(index % seen.len().max(1)) {
                    self.controller.release(self.now, *id, Why::Killed);
                }
            }
            Step::Pass(ms) => {
                self.now += ms;
                self.controller.tick(self.now);
                self.node.tick(self.now);
            }
        }
        self.check();
    }

    /// What an agent does each time: first its own book, then the controller.
    fn heartbeat(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        self.node.heartbeat(self.now, "a", &self.of(Lender::Node), &ended).expect("it has registered");
        if self.is_cut {
            // Told until it is heard.
            self.ended = ended;
            return;
        }
        let live = self.of(Lender::Controller);
        let lent: Vec<Allocation> = self.node.allocations().cloned().collect();
        self.controller.hear_of_reserve("a", lent.clone()).expect("what it lends is its own");
        let over = self.controller.heartbeat(self.now, "a", &live, &ended).expect("it has registered");
        for id in over {
            if self.sessions.remove(&id).is_some() {
                self.ended.push(id);
            }
        }
        let told: BTreeSet<AllocationId> = self.controller.lent_by_nodes().map(|a| a.id).collect();
        assert_eq!(told, lent.iter().map(|a| a.id).collect());
        for id in self.controller.allocations().map(|a| a.id).collect::<Vec<_>>() {
            assert!(!told.contains(&id), "{id} is lent by both");
        }
    }

    /// All that runs together fits into each GPU, whoever has lent it.
    fn check(&mut self) {
        let mut taken: BTreeMap<&str, (u64, u32, BTreeSet<u32>)> = BTreeMap::new();
        for (lender, allocation) in self.sessions.values() {
            for place in &allocation.places {
                let of = taken.entry(&place.gpu).or_default();
                of.0 += place.memory + place.reserve;
                of.1 += place.ratio;
                assert!(of.2.insert(place.slot), "vGPU {} of {} is lent twice", place.slot, place.gpu);
                let is_kept = place.slot >= self.report.split - self.report.kept;
                assert_eq!(is_kept, *lender == Lender::Node);
            }
        }
        for (gpu, (memory, ratio, _)) in taken {
            assert!(memory <= 16 << 30 && ratio <= 100, "{gpu}: {memory} bytes and {ratio} %");
        }
        // Whoever is told of a beginning is told of its end.
        for event in self.controller.take_events() {
            if let Event::LentByNode { id, .. } = event {
                assert!(id.0 <= self.asked);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reserve_and_a_controller_never_lend_the_same(
        split in 2u32..6, kept in 1u32..5, steps in proptest::collection::vec(steps(), 1..150),
    ) {
        let mut world = World::new(split, kept.min(split - 1));
        steps.into_iter().for_each(|step| world.step(step));
        // In the end they reach each other, everybody goes, and all is free on both sides.
        world.step(Step::Cut(false));
        while !world.sessions.is_empty() {
            world.step(Step::End(0));
        }
        (0..2).for_each(|_| world.step(Step::Heartbeat));
        world.step(Step::Pass(60_000));
        prop_assert_eq!(world.node.allocations().count(), 0);
        prop_assert_eq!(world.controller.allocations().count() + world.controller.lent_by_nodes().count(), 0);
        for (pool, vgpus) in [(&world.controller, split - world.report.kept), (&world.node, world.report.kept)] {
            let node = pool.nodes().next().expect("one");
            prop_assert!((0..GPUS).all(|gpu| node.free(gpu).slots() == vgpus as usize));
        }
    }
}

#[test]
fn a_node_that_lends_what_is_not_of_its_reserve_is_refused() {
    let mut world = World::new(4, 1);
    let ask = Ask { vgpus: 1, ..Ask::default() };
    let Ok(Answer::Granted(good)) = world.node.allocate(0, AllocationId(1), ask) else { panic!("an empty reserve") };
    assert_eq!((good.places[0].slot, good.places[0].ratio), (3, 25));
    world.controller.hear_of_reserve("a", vec![good.clone()]).expect("its own");
    let changed = |change: fn(&mut Allocation)| {
        let mut other = good.clone();
        change(&mut other);
        other
    };
    let twice = vec![good.clone(), changed(|a| a.id = AllocationId(2))];
    for lent in [
        vec![changed(|a| a.places[0].slot = 2)],
        vec![changed(|a| a.places[0].slot = 4)],
        vec![changed(|a| a.places[0].node = "b".into())],
        vec![changed(|a| a.places[0].gpu = "GPU-9".into())],
        vec![changed(|a| a.places[0].number = 1)],
        twice,
    ] {
        let refused = world.controller.hear_of_reserve("a", lent).expect_err("not of its reserve");
        assert!(refused.text().contains("of its reserve"), "{refused:?}");
    }
    assert_eq!(world.controller.lent_by_nodes().count(), 1);
    assert!(world.controller.hear_of_reserve("b", vec![good]).is_err());
    assert!(world.controller.forget(0, "a").is_err_and(|why| why.text().contains("1 allocations")));
    let all = NodeReport { kept: 4, ..world.report.clone() };
    assert!(all.check().is_err_and(|why| why.0.contains("leave the controller one")));
}
