//! Who looks at what would be given to him has nothing by it.

use orion_pool::pool::{Answer, Pool, Quota, Settings};
use orion_pool::{AllocationId, Ask, Gpu, MIB, NodeReport};

fn pool() -> Pool {
    let mut pool = Pool::new(Settings::default());
    let gpu = |number| Gpu { uuid: format!("g{number}"), name: "GPU".into(), memory: 1024 * MIB, reserve: 0 };
    let report = NodeReport {
        name: "a".into(),
        address: "a".into(),
        further: Vec::new(),
        gpus: vec![gpu(0), gpu(1)],
        split: 2,
        oriond: String::new(),
        kept: 0,
        certificate: String::new(),
    };
    pool.register(0, report).expect("a good node");
    pool
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
    pool.set_quota("red", Some(Quota { vgpus: Some(3), ..Quota::default() })).expect("a good quota");
    let _ = pool.take_changes();
    assert_eq!(pool.would_give(&ask), Ok(would));
    let why = |pool: &Pool, ask: &Ask| pool.why_not_now(ask).expect("not now");
    assert!(why(&pool, &ask).contains("\"red\" may hold 3 vGPUs, has 3 and asks for 3 more"), "{}", why(&pool, &ask));
    let of_blue = Ask { tenant: "blue".into(), ..ask.clone() };
    assert!(why(&pool, &of_blue).contains("no room for 3 vGPUs"), "{}", why(&pool, &of_blue));
    assert!(pool.take_changes().is_empty());
    // What others have given back, or red itself, may be given later; what no quota and no node allows is not.
    assert!(pool.may_give_later(&ask) && pool.may_give_later(&of_blue));
    assert!(
        !pool.may_give_later(&Ask { vgpus: 4, ..ask.clone() }) && !pool.may_give_later(&Ask { vgpus: 5, ..of_blue })
    );
    // Who comes is behind who waits.
    let of_blue = Ask { vgpus: 2, tenant: "blue".into(), ..ask.clone() };
    let waits = Ask { wait_ms: 1, ..of_blue.clone() };
    assert_eq!(pool.allocate(0, AllocationId(2), waits), Ok(Answer::Waits(0)));
    assert_eq!(why(&pool, &Ask { vgpus: 1, ..of_blue }), "1 others wait for vGPUs of this pool");
    // What no pool of these nodes has is not shown.
    let why = pool.would_give(&Ask { vgpus: 5, ..ask }).expect_err("there are four");
    assert!(why.text().contains("no room for 5 vGPUs"), "{}", why.text());
}
