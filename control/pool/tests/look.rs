//! Who looks at what would be given to him has nothing by it.

use orion_pool::pool::{Answer, BACK_MS, Pool, Quota, RETURNS_MS, Settings};
use orion_pool::{AllocationId, Ask, Gpu, MIB, NodeReport};

fn pool() -> Pool {
    let mut pool = Pool::new(Settings::default());
    pool.register(0, report()).expect("a good node");
    pool
}

fn report() -> NodeReport {
    let gpu = |number| Gpu { uuid: format!("g{number}"), name: "GPU".into(), memory: 1024 * MIB, reserve: 0 };
    NodeReport {
        name: "a".into(),
        address: "a".into(),
        further: Vec::new(),
        gpus: vec![gpu(0), gpu(1)],
        split: 2,
        oriond: String::new(),
        kept: 0,
        certificate: String::new(),
    }
}

/// Its oriond is started again: who asks meanwhile may hope for it, for a while.
#[test]
fn a_node_that_has_just_left_is_hoped_for_for_a_while() {
    let mut pool = pool();
    let ask = Ask { vgpus: 4, ..Ask::default() };
    let gone = NodeReport { gpus: Vec::new(), ..report() };
    pool.register(1000, gone.clone()).expect("the same node");
    assert_eq!(pool.may_give_within(&ask), Some(RETURNS_MS));
    assert_eq!(pool.may_give_within(&Ask { vgpus: 5, ..Ask::default() }), None, "it never had as much");
    // Saying so again makes it no younger.
    pool.register(1000 + RETURNS_MS / 2, gone.clone()).expect("the same node");
    pool.tick(999 + RETURNS_MS);
    assert_eq!(pool.may_give_within(&ask), Some(RETURNS_MS));
    pool.tick(1000 + RETURNS_MS);
    assert_eq!(pool.may_give_within(&ask), None);
    // It is back; and one that is to be empty is not hoped for.
    pool.register(30_000, report()).expect("the same node");
    assert_eq!(pool.may_give_within(&ask), Some(BACK_MS));
    pool.drain(30_000, "a", true).expect("it is there");
    pool.register(30_000, gone).expect("the same node");
    assert_eq!(pool.may_give_within(&ask), None);
}

/// Whoever starts all of a pool at once may ask before its first node has said what it has.
#[test]
fn a_first_node_is_hoped_for() {
    let mut pool = Pool::new(Settings::default());
    let ask = Ask { vgpus: 1, tenant: "red".into(), ..Ask::default() };
    assert_eq!(pool.may_give_within(&ask), Some(RETURNS_MS));
    pool.set_quota(0, "red", Some(Quota { vgpus: Some(0), ..Quota::default() })).expect("a good quota");
    assert_eq!(pool.may_give_within(&ask), None, "red gets nothing of any node");
    pool.set_quota(0, "red", None).expect("a good quota");
    // Its agent is there before its oriond.
    pool.register(0, NodeReport { gpus: Vec::new(), ..report() }).expect("a good node");
    assert_eq!(pool.may_give_within(&ask), Some(RETURNS_MS));
    pool.register(0, report()).expect("a good node");
    assert_eq!(pool.may_give_within(&Ask { vgpus: 5, ..ask }), None, "it has four");
}

#[test]
fn a_look_shows_what_is_given_next_and_takes_nothing() {
    let mut pool = pool();
    let ask = Ask { vgpus: 3, memory: Some(300 * MIB), tenant: "red".into(), ..Ask::default() };
    let _ = pool.take_changes();
    let would = pool.would_give(&ask).expect("room");
    assert_eq!(pool.why_not_now(&ask), None);
    assert_eq!(pool.would_give(&ask), Ok(would.clone()));
    assert!(pool.take_changes().is_empty() && pool.allocations().next().is_none());
    let Ok(Answer::Granted(given)) = pool.allocate(0, AllocationId(1), ask.clone()) else { panic!("there is room") };
    assert_eq!(given.places, would);
    // Now there is no room, and red may have no more; it is shown as many as it would be given of an empty pool.
    pool.set_quota(0, "red", Some(Quota { vgpus: Some(3), ..Quota::default() })).expect("a good quota");
    let _ = pool.take_changes();
    assert_eq!(pool.would_give(&ask), Ok(would));
    let why = |pool: &Pool, ask: &Ask| pool.why_not_now(ask).expect("not now");
    assert!(why(&pool, &ask).contains("\"red\" may hold 3 vGPUs, has 3 and asks for 3 more"), "{}", why(&pool, &ask));
    let of_blue = Ask { tenant: "blue".into(), ..ask.clone() };
    assert!(why(&pool, &of_blue).contains("no room for 3 vGPUs"), "{}", why(&pool, &of_blue));
    assert!(pool.take_changes().is_empty());
    // What others have given back, or red itself, may be given later; what no quota and no node allows is not.
    assert_eq!([&ask, &of_blue].map(|ask| pool.may_give_within(ask)), [Some(BACK_MS); 2]);
    for never in [Ask { vgpus: 4, ..ask.clone() }, Ask { vgpus: 5, ..of_blue }] {
        assert_eq!(pool.may_give_within(&never), None, "{never}");
    }
    // Who comes is behind who waits.
    let of_blue = Ask { vgpus: 2, tenant: "blue".into(), ..ask.clone() };
    let waits = Ask { wait_ms: 1, ..of_blue.clone() };
    assert_eq!(pool.allocate(0, AllocationId(2), waits), Ok(Answer::Waits(0)));
    assert_eq!(why(&pool, &Ask { vgpus: 1, ..of_blue }), "1 others wait for vGPUs of this pool");
    // What no pool of these nodes has is not shown.
    let why = pool.would_give(&Ask { vgpus: 5, ..ask }).expect_err("there are four");
    assert!(why.text().contains("no room for 5 vGPUs"), "{}", why.text());
}
