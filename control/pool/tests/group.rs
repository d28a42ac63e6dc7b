//! Programs of one group beside each other.

use orion_pool::pool::{Answer, Pool, Refused, Settings};
use orion_pool::{Allocation, AllocationId, Ask, Gpu, MIB, NodeReport, Policy};

fn pool(policy: Policy) -> Pool {
    let mut pool = Pool::new(Settings { policy, ..Settings::default() });
    for name in ["a", "b"] {
        let gpu = |number| Gpu { uuid: format!("{name}{number}"), name: "GPU".into(), memory: 1024 * MIB, reserve: 0 };
        let gpus = vec![gpu(0), gpu(1)];
        let report = NodeReport {
            name: name.into(),
            address: name.into(),
            further: if name == "b" { vec!["rdma:b:9961".into()] } else { Vec::new() },
            gpus,
            split: 2,
            oriond: String::new(),
            kept: 0,
            certificate: String::new(),
        };
        pool.register(0, report).expect("a good node");
    }
    pool
}

fn ask(group: &str, tenant: &str) -> Ask {
    Ask { vgpus: 1, group: group.into(), tenant: tenant.into(), with_group: true, ..Ask::default() }
}

fn gpu_of(answer: Result<Answer, Refused>) -> Option<(AllocationId, String)> {
    match answer {
        Ok(Answer::Granted(Allocation { id, places, .. })) => Some((id, places[0].gpu.clone())),
        Err(Refused::Full(_)) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_lies_on_the_gpus_on_which_it_has_something_and_nowhere_else() {
    for policy in [Policy::Pack, Policy::Spread] {
        let mut pool = pool(policy);
        let (_, first) = gpu_of(pool.allocate(0, AllocationId(1), ask("g", "red"))).expect("an empty pool");
        // Of another tenant the name is another group's.
        let (_, other) = gpu_of(pool.allocate(0, AllocationId(2), ask("g", "blue"))).expect("room");
        let mut mine = vec![first.clone()];
        let mut last = AllocationId(1);
        for id in 3..10 {
            let Some((id, gpu)) = gpu_of(pool.allocate(0, AllocationId(id), ask("g", "red"))) else { break };
            last = id;
            mine.push(gpu);
        }
        assert!(mine.iter().all(|gpu| *gpu == first), "{mine:?}");
        assert_eq!(mine.len(), if other == first { 1 } else { 2 }, "{policy:?}");
        assert!(gpu_of(pool.allocate(0, AllocationId(20), ask("h", "red"))).is_some_and(|(_, gpu)| gpu != first));
        // When nothing of it is left it may lie anywhere.
        pool.release(0, AllocationId(1), orion_pool::Why::Released);
        pool.release(0, last, orion_pool::Why::Released);
        assert!(gpu_of(pool.allocate(0, AllocationId(30), ask("g", "red"))).is_some());
    }
}

#[test]
fn a_group_whose_nodes_are_not_reached_as_it_asks_is_told_so_of_those_nodes() {
    let mut pool = pool(Policy::Pack);
    let by_rdma = || Ask { carrier: "rdma".into(), ..ask("g", "red") };
    let place = |answer| match answer {
        Ok(Answer::Granted(Allocation { places, .. })) => places[0].node.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(place(pool.allocate(0, AllocationId(1), ask("g", "red"))), "a");
    let why = pool.allocate(0, AllocationId(2), by_rdma()).expect_err("its group lies on the other one");
    let words = "no node on which its group has something is reached by rdma";
    assert!(why.text().contains(words) && why.text().contains("or unset ORION_RES_GROUP"), "{}", why.text());
    assert!(!why.text().contains("no node of it"), "{}", why.text());
    // Without its group there is one.
    pool.release(0, AllocationId(1), orion_pool::Why::Released);
    assert_eq!(place(pool.allocate(0, AllocationId(3), by_rdma())), "b");
}
