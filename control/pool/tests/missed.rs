//! A controller reads the pool, and some of those to whom vGPUs were offered have gone without anybody to see it.

use orion_pool::pool::{Answer, Event, Pool, Settings, Why};
use orion_pool::{Allocation, AllocationId, Ask, Gpu, Lease, MIB, NodeReport, Standing};

/// By default.
const CLAIM_MS: u64 = 2_000;
const OFFER_MS: u64 = 30_000;

fn node(name: &str) -> NodeReport {
    let gpu = Gpu { uuid: format!("{name}0"), name: "GPU".into(), memory: 1024 * MIB, reserve: 0 };
    NodeReport {
        name: name.into(),
        address: format!("{name}:9960"),
        further: Vec::new(),
        gpus: vec![gpu],
        split: 1,
        oriond: String::new(),
        kept: 0,
        certificate: String::new(),
    }
}

/// Of a program, which keeps its connection until its session has begun.
fn of_program(vgpus: u32) -> Ask {
    let cross_node = vgpus > 1;
    Ask { vgpus, cross_node, ratio: Some(100), claims: true, ..Ask::default() }
}

fn had(pool: &mut Pool, id: u128, ask: Ask) -> Allocation {
    match pool.allocate(0, AllocationId(id), ask).expect("there is room") {
        Answer::Granted(allocation) => allocation,
        waits => panic!("{waits:?}"),
    }
}

/// As the next one that leads reads it at time 0, with connections to these.
fn read(names: &[&str], allocations: Vec<Allocation>, claimed: &[u128]) -> Pool {
    let nodes: Vec<_> = names.iter().map(|name| (node(name), Standing::Up)).collect();
    let mut pool = Pool::restore(Settings::default(), nodes, allocations, [], 0).expect("a sound store");
    pool.miss_clients(0, |id| claimed.contains(&id.0));
    pool
}

/// With nodes of one vGPU, and one that was offered before.
fn offered(names: &[&str], ask: Ask, claimed: &[u128]) -> Pool {
    let mut before = Pool::new(Settings::default());
    names.iter().for_each(|name| before.register(0, node(name)).expect("a good node"));
    let allocation = had(&mut before, 1, ask);
    read(names, vec![allocation], claimed)
}

fn stands(pool: &Pool, id: u128) -> bool {
    pool.allocation(AllocationId(id)).is_some()
}

#[test]
fn what_was_offered_to_who_has_gone_unseen_is_back_with_the_first_word_of_its_node_after_two_seconds() {
    let mut pool = offered(&["a"], of_program(1), &[]);
    let waits = pool.allocate(0, AllocationId(2), Ask { wait_ms: 60_000, ..of_program(1) }).expect("it waits");
    assert_eq!(waits, Answer::Waits(0));
    assert_eq!(pool.heartbeat(0, "a", &[], &[]).expect("a node"), []);
    assert_eq!(pool.wants_word(0, "a"), Some(CLAIM_MS));
    assert_eq!(pool.heartbeat(CLAIM_MS - 1, "a", &[], &[]).expect("a node"), []);
    pool.tick(CLAIM_MS);
    assert!(stands(&pool, 1), "its node has said nothing since");
    pool.take_events();
    // Its oriond hears that nobody begins with it any more, and who waits has it.
    assert_eq!(pool.heartbeat(CLAIM_MS, "a", &[], &[]).expect("a node"), [AllocationId(1)]);
    let over = Event::Over { id: AllocationId(1), why: Why::NotConfirmed };
    assert_eq!(pool.take_events(), [over, Event::Granted { id: AllocationId(2) }]);
    assert_eq!(pool.wants_word(CLAIM_MS, "a"), None);
}

#[test]
fn who_has_come_to_his_node_or_asks_again_or_has_a_connection_keeps_what_he_was_offered() {
    // He has come, and the node has not said so before.
    let mut pool = offered(&["a"], of_program(1), &[]);
    assert_eq!(pool.heartbeat(CLAIM_MS, "a", &[AllocationId(1)], &[]).expect("a node"), []);
    assert_eq!(pool.allocation(AllocationId(1)).expect("it stands").lease, Lease::Confirmed);
    // He asks under the same name, or comes for it under that.
    for again in [
        |pool: &mut Pool| drop(pool.allocate(1, AllocationId(1), of_program(1)).expect("it stands")),
        |pool: &mut Pool| assert!(pool.claim(AllocationId(1))),
        |pool: &mut Pool| drop(pool.confirm(1, AllocationId(1)).expect("it stands").clone()),
    ] {
        let mut pool = offered(&["a"], of_program(1), &[]);
        again(&mut pool);
        assert_eq!(pool.heartbeat(CLAIM_MS, "a", &[], &[]).expect("a node"), []);
        assert!(stands(&pool, 1));
    }
    // Nobody is missed of whom a connection is there, or who has never said that his counts.
    for (ask, claimed) in [(of_program(1), &[1][..]), (Ask { claims: false, ..of_program(1) }, &[])] {
        let mut pool = offered(&["a"], ask, claimed);
        assert_eq!(pool.wants_word(0, "a"), None);
        pool.heartbeat(OFFER_MS - 1, "a", &[], &[]).expect("a node");
        assert!(stands(&pool, 1));
        pool.tick(OFFER_MS);
        assert!(!stands(&pool, 1));
    }
}

#[test]
fn of_several_nodes_the_first_says_whether_somebody_has_come() {
    for has_come in [false, true] {
        let mut pool = offered(&["a", "b"], of_program(2), &[]);
        let first = pool.allocation(AllocationId(1)).expect("just offered").places[0].node.clone();
        let second = if first == "a" { "b" } else { "a" };
        // Nobody comes to the second one before he was at the first.
        pool.heartbeat(CLAIM_MS, second, &[], &[]).expect("a node");
        assert!(stands(&pool, 1));
        let live = if has_come { vec![AllocationId(1)] } else { Vec::new() };
        let gone = pool.heartbeat(CLAIM_MS + 1, &first, &live, &[]).expect("a node");
        assert_eq!((stands(&pool, 1), gone.is_empty()), (has_come, has_come));
        // The other one hears of it, too.
        let gone = pool.heartbeat(CLAIM_MS + 2, second, &[], &[]).expect("a node");
        assert_eq!(gone.is_empty(), has_come);
    }
}

#[test]
fn a_node_of_which_nothing_is_heard_keeps_what_may_have_been_begun_there() {
    let mut pool = offered(&["a"], of_program(1), &[]);
    pool.tick(OFFER_MS - 1);
    assert!(stands(&pool, 1));
    pool.tick(OFFER_MS);
    assert!(!stands(&pool, 1));
}
