//! Who waits is before who comes, as long as there is something to wait for.

use orion_pool::pool::{Answer, Event, Pool, Quota, Settings};
use orion_pool::{AllocationId, Ask, Gpu, MIB, NodeReport, Refused, Why};

fn pool() -> Pool {
    Pool::new(Settings { node_ms: 10_000, lease_ms: 60_000, ..Settings::default() })
}

/// With one GPU of 1 GiB that is split into two.
fn node(name: &str, further: &[&str]) -> NodeReport {
    let gpu = Gpu { uuid: format!("{name}0"), name: "GPU".into(), memory: 1024 * MIB, reserve: 0 };
    NodeReport {
        name: name.into(),
        address: format!("{name}:9960"),
        further: further.iter().map(|text| (*text).to_owned()).collect(),
        gpus: vec![gpu],
        split: 2,
        oriond: String::new(),
        kept: 0,
        certificate: String::new(),
    }
}

fn ask(vgpus: u32) -> Ask {
    Ask { vgpus, wait_ms: 3_600_000, ..Ask::default() }
}

/// What no node of a pool of such nodes has.
fn hopeless() -> [Ask; 4] {
    [
        Ask { carrier: "rdma".into(), ..ask(1) },
        Ask { memory: Some(2048 * MIB), ..ask(1) },
        ask(3),
        Ask { cross_node: true, ratio: Some(100), ..ask(2) },
    ]
}

fn granted(pool: &mut Pool) -> Vec<u128> {
    let granted = |event| match event {
        Event::Granted { id } => Some(id.0),
        _ => None,
    };
    pool.take_events().into_iter().filter_map(granted).collect()
}

fn waits(pool: &mut Pool, now: u64, id: u128, ask: Ask) -> bool {
    matches!(pool.allocate(now, AllocationId(id), ask).expect("a good ask"), Answer::Waits(_))
}

#[test]
fn what_no_node_has_holds_up_nobody() {
    for ask_of_more in hopeless() {
        let mut pool = pool();
        pool.register(0, node("a", &[])).expect("a good node");
        assert!(waits(&mut pool, 0, 1, ask_of_more));
        assert!(!waits(&mut pool, 0, 2, ask(2)), "there is room");
        // And who waits behind it is served when there is room.
        assert!(waits(&mut pool, 0, 3, ask(1)));
        pool.release(0, AllocationId(2), Why::Released);
        assert_eq!(granted(&mut pool), [2, 3]);
        assert_eq!(pool.place_in_queue(AllocationId(1)), Some(0));
    }
}

#[test]
fn whoever_waits_for_a_node_to_come_is_served_when_it_comes() {
    let mut pool = pool();
    let by_rdma = || Ask { carrier: "rdma".into(), ..ask(1) };
    assert!(waits(&mut pool, 0, 1, by_rdma()) && waits(&mut pool, 0, 2, ask(1)) && waits(&mut pool, 0, 3, by_rdma()));
    pool.register(0, node("a", &[])).expect("a good node");
    assert_eq!(granted(&mut pool), [2]);
    pool.register(0, node("b", &["rdma:b:9961"])).expect("a good node");
    assert_eq!(granted(&mut pool), [1, 3]);
}

#[test]
fn a_node_that_is_lost_for_a_moment_keeps_the_places_of_those_who_wait_for_it() {
    let mut pool = pool();
    for name in ["a", "b"] {
        pool.register(0, node(name, &[])).expect("a good node");
    }
    let across = || Ask { cross_node: true, ratio: Some(100), ..ask(2) };
    assert!(!waits(&mut pool, 0, 1, ask(1)) && waits(&mut pool, 0, 2, across()) && waits(&mut pool, 0, 3, ask(1)));
    pool.confirm(0, AllocationId(1)).expect("it was offered");
    let _ = pool.take_events();
    // "b" is not heard of any more; "a" is.
    for now in [10_000, 59_999] {
        pool.heartbeat(now, "a", &[AllocationId(1)], &[]).expect("it has registered");
        pool.tick(now);
        assert_eq!(granted(&mut pool), []);
    }
    // After a lease nothing is expected of it, and who asks for less is served.
    pool.tick(60_000);
    assert_eq!(granted(&mut pool), [3]);
    // When it is back whoever asks for more is the first again.
    pool.heartbeat(61_000, "b", &[], &[]).expect("it has registered");
    assert!(waits(&mut pool, 61_000, 4, ask(1)));
}

#[test]
fn a_node_that_is_drained_or_forgotten_is_waited_for_by_nobody() {
    for is_forgotten in [true, false] {
        let mut pool = pool();
        pool.register(0, node("a", &[])).expect("a good node");
        pool.register(0, node("b", &["rdma:b:9961"])).expect("a good node");
        let by_rdma = || Ask { carrier: "rdma".into(), ..ask(2) };
        assert!(
            !waits(&mut pool, 0, 1, by_rdma()) && waits(&mut pool, 0, 2, by_rdma()) && waits(&mut pool, 0, 3, ask(2))
        );
        let _ = pool.take_events();
        pool.drain(0, "b", true).expect("it is there");
        assert_eq!(granted(&mut pool), [3]);
        pool.release(0, AllocationId(1), Why::Released);
        match is_forgotten {
            true => pool.forget(0, "b").expect("it is empty"),
            false => pool.drain(0, "b", false).expect("it is there"),
        }
        assert_eq!(granted(&mut pool), if is_forgotten { vec![] } else { vec![2] });
    }
}

#[test]
fn who_is_over_his_quota_waits_for_his_own_and_keeps_nobody_else() {
    let mut pool = pool();
    pool.register(0, node("a", &[])).expect("a good node");
    let of = |tenant: &str, vgpus| Ask { tenant: tenant.into(), ..ask(vgpus) };
    let one = Some(Quota { vgpus: Some(1), ..Quota::default() });
    pool.set_quota(0, "red", one).expect("a good quota");
    assert!(!waits(&mut pool, 0, 1, of("red", 1)) && waits(&mut pool, 0, 2, of("red", 1)));
    assert!(waits(&mut pool, 0, 3, of("red", 1)) && !waits(&mut pool, 0, 4, of("blue", 1)), "there is room");
    assert!(waits(&mut pool, 0, 5, of("blue", 1)));
    let _ = pool.take_events();
    // What another tenant gives back is the next one's who may have it.
    pool.release(0, AllocationId(4), Why::Released);
    assert_eq!(granted(&mut pool), [5]);
    // And what red gives back is red's again, one after the other.
    pool.release(0, AllocationId(1), Why::Released);
    assert_eq!(granted(&mut pool), [2]);
    // It may have more; there is no room for that before blue has gone.
    pool.set_quota(0, "red", Some(Quota { vgpus: Some(2), ..Quota::default() })).expect("a good quota");
    assert_eq!(granted(&mut pool), []);
    pool.release(0, AllocationId(5), Why::Released);
    assert_eq!(granted(&mut pool), [3]);
    // More than it may ever have is not waited for, and neither does anybody who does not want to.
    for not_waiting in [of("red", 3), Ask { wait_ms: 0, ..of("red", 1) }] {
        let refused = pool.allocate(0, AllocationId(6), not_waiting);
        assert!(matches!(&refused, Err(Refused::Quota(text)) if text.contains("may hold 2 vGPUs")), "{refused:?}");
    }
    // Who has waited in vain is told why.
    assert!(waits(&mut pool, 0, 7, Ask { wait_ms: 1, ..of("red", 1) }));
    pool.tick(1);
    assert!(pool.take_events().contains(&Event::GaveUp { id: AllocationId(7) }));
    let why = pool.why_in_vain(&of("red", 1));
    assert!(why.contains("tenant \"red\" may hold 2 vGPUs, has 2 and asks for 1 more"), "{why}");
}

#[test]
fn whoever_fills_the_queue_gives_way_to_another_tenant() {
    let mut pool = Pool::new(Settings { queue_max: 10, ..Settings::default() });
    pool.register(0, node("a", &[])).expect("a good node");
    let of = |tenant: &str| Ask { tenant: tenant.into(), ..ask(2) };
    assert!(!waits(&mut pool, 0, 1, of("red")));
    assert!((10..20).all(|id| waits(&mut pool, 0, id, of("red"))));
    assert!(matches!(pool.allocate(0, AllocationId(20), of("red")), Err(Refused::Full(_))));
    pool.take_events();
    assert!(waits(&mut pool, 0, 30, of("blue")));
    let gave_up = pool.take_events().into_iter().find(|event| matches!(event, Event::GaveUp { .. }));
    assert_eq!(gave_up, Some(Event::GaveUp { id: AllocationId(19) }));
    // And no further than until both have as many.
    let more = (31..40).filter(|id| pool.allocate(0, AllocationId(*id), of("blue")).is_ok()).count();
    assert_eq!((more, pool.waiting().filter(|(_, ask)| ask.tenant == "red").count()), (4, 5));
    assert_eq!(pool.waiting().next().map(|(id, _)| id), Some(AllocationId(10)));
}
