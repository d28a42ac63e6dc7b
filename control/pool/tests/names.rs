//! Machines that call themselves alike, as copies of one image do.

use orion_pool::pool::{Event, NODES_MAX, Pool, Settings};
use orion_pool::{AllocationId, Ask, Gpu, NodeReport, Refused};

fn report(address: &str, oriond: u128) -> NodeReport {
    NodeReport {
        name: "a".to_owned(),
        address: address.to_owned(),
        further: Vec::new(),
        gpus: vec![Gpu { uuid: "GPU-1".into(), name: "GPU".into(), memory: 8 << 30, reserve: 0 }],
        split: 4,
        oriond: format!("{oriond:032x}"),
        kept: 0,
        certificate: String::new(),
    }
}

#[test]
fn a_second_machine_of_the_same_name_takes_nothing_from_the_first() {
    let mut pool = Pool::new(Settings::default());
    let (first, second) = (report("10.0.0.1:9960", 1), report("10.0.0.2:9960", 2));
    pool.register(0, first.clone()).expect("the first");
    let id = AllocationId(7);
    pool.allocate(0, id, Ask { vgpus: 1, ..Ask::default() }).expect("there is room");
    pool.heartbeat(5_000, "a", &[id], &[]).expect("it is registered");
    let why = match pool.register(6_000, second.clone()) {
        Err(Refused::Full(why)) => why,
        other => panic!("{other:?}"),
    };
    let words = ["there is a node a already, at 10.0.0.1:9960", "this one is at 10.0.0.2:9960", "orion-agent --node"];
    assert!(words.iter().all(|word| why.contains(word)), "{why}");
    assert!(pool.allocation(id).is_some());
    // An oriond that was started anew has its address, and an agent has its oriond wherever that is reached.
    pool.register(7_000, report("10.0.0.1:9960", 3)).expect("the same machine");
    assert!(pool.allocation(id).is_none());
    pool.register(8_000, report("10.0.0.9:9960", 3)).expect("the same oriond");
    // Once the first is not heard of any more its name is free.
    pool.tick(18_000);
    assert!(pool.take_events().iter().any(|event| matches!(event, Event::NodeLost { .. })));
    pool.register(18_000, second).expect("the other one is gone");
}

/// As those that are reached by a socket, or by a name that leads each machine to itself, all have.
#[test]
fn a_second_machine_of_the_same_name_and_address_has_other_gpus() {
    let mut pool = Pool::new(Settings::default());
    let of = |oriond, gpus: &[&str]| {
        let mut report = report("unix:/run/orion/oriond.sock", oriond);
        let gpu = report.gpus.remove(0);
        report.gpus.extend(gpus.iter().map(|uuid| Gpu { uuid: (*uuid).to_owned(), ..gpu.clone() }));
        report
    };
    pool.register(0, of(1, &["GPU-1", "GPU-2"])).expect("the first");
    let id = AllocationId(7);
    pool.allocate(0, id, Ask { vgpus: 1, ..Ask::default() }).expect("there is room");
    match pool.register(1_000, of(2, &["GPU-3"])) {
        Err(Refused::Full(why)) => assert!(why.contains("there is a node a already"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(pool.allocation(id).is_some());
    // One GPU was taken out, and another put in.
    pool.register(2_000, of(3, &["GPU-2", "GPU-3"])).expect("the same machine");
    // Its agent says that oriond is gone, whatever it comes back with.
    pool.register(3_000, of(0, &[])).expect("the same machine");
    pool.register(4_000, of(4, &["GPU-4"])).expect("the same machine");
}

/// As where a GPU was divided anew (MIG) and oriond and its agent were started again at once.
#[test]
fn a_machine_with_an_address_of_its_own_may_come_back_with_other_gpus() {
    for (address, is_its_own) in
        [("10.0.0.1:9960", true), ("[fd00::1]:9960", true), ("127.0.0.1:9960", false), ("here:9960", false)]
    {
        let mut pool = Pool::new(Settings::default());
        pool.register(0, report(address, 1)).expect("the first");
        let mut divided = report(address, 2);
        divided.gpus[0].uuid = "MIG-1".into();
        assert_eq!(pool.register(1_000, divided).is_ok(), is_its_own, "{address}");
    }
}

/// A table that shows them would show others.
#[test]
fn names_that_turn_the_line_they_stand_in_are_refused() {
    let mut pool = Pool::new(Settings::default());
    let invalid = |refused: Option<Refused>| match refused {
        Some(Refused::Invalid(why)) => assert!(why.contains("control characters") || why.contains("no name"), "{why}"),
        other => panic!("{other:?}"),
    };
    invalid(pool.register(0, NodeReport { name: "a\u{202e}b".into(), ..report("10.0.0.1:9960", 1) }).err());
    pool.register(0, report("10.0.0.1:9960", 1)).expect("a good one");
    invalid(pool.allocate(0, AllocationId(7), Ask { vgpus: 1, tenant: "red\u{2067}".into(), ..Ask::default() }).err());
    invalid(pool.set_quota(0, "red\u{202e}", None).err());
}

#[test]
fn nodes_without_number_are_not_taken_and_those_that_are_gone_make_room() {
    let mut pool = Pool::new(Settings::default());
    let named = |n: usize| NodeReport { name: format!("n{n}"), ..report("10.0.0.1:9960", 1) };
    (0..NODES_MAX).for_each(|n| pool.register(0, named(n)).expect("there is room"));
    match pool.register(0, named(NODES_MAX)) {
        Err(Refused::Full(why)) => assert!(why.contains("orionctl forget"), "{why}"),
        other => panic!("{other:?}"),
    }
    // All but one are not heard of for a whole lease, and one has something.
    let id = AllocationId(7);
    pool.allocate(0, id, Ask { vgpus: 4, ..Ask::default() }).expect("there is room");
    let has = pool.allocation(id).expect("just given").places[0].node.clone();
    pool.confirm(59_000, id).expect("it stands");
    pool.heartbeat(59_000, "n5", &[], &[]).expect("it is registered");
    pool.tick(60_000);
    (0..NODES_MAX - 2).for_each(|n| pool.register(60_000, named(NODES_MAX + n)).expect("there is room"));
    assert!(pool.register(60_000, named(2 * NODES_MAX)).is_err());
    assert!([has.as_str(), "n5"].iter().all(|name| pool.node(name).is_some()));
}
