//! Several controllers that share a pool in a real etcd, and what happens to them and to it.

mod claims;
mod cluster;
mod peer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cluster::Cluster;
use orion_proto::pool_client::PoolClient;
use orion_proto::*;
use orion_tls::trust::{OPTIONS, Trust};
use peer::{Peer, answer, until};
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Nothing takes as long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);
const GIB: u64 = 1 << 30;

/// A pool's etcd and two controllers, of which the first leads.
struct Scene {
    folder: PathBuf,
    etcd: Cluster,
    a: Peer,
    b: Peer,
}

impl Scene {
    fn new(members: usize) -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("orion-etcd-{}-{count}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a new folder");
        let etcd = Cluster::new(&folder, members);
        let mut a = Peer::new(&folder, "a", &etcd.urls(), None);
        a.start();
        until("a leader", || a.leads());
        let mut b = Peer::new(&folder, "b", &etcd.urls(), Some(&a));
        b.start();
        let word = format!("ok; the controller at {} leads the pool\n", a.address());
        until("a follower", || b.http("GET", "/healthz", "").2 == word);
        Scene { folder, etcd, a, b }
    }

    /// A client of the one that leads.
    async fn client(&self) -> PoolClient<Channel> {
        let addresses = [self.a.address(), self.b.address()];
        loop {
            let trust = Trust::default();
            let patience = Duration::from_secs(5);
            let search = leader::Search { addresses: &addresses, trust: &trust, names: OPTIONS, patience };
            if let Ok(found) = search.find().await {
                return PoolClient::new(found.channel);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.a.kill();
        self.b.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn node(name: &str) -> RegisterRequest {
    let gpus = vec![Gpu { uuid: format!("GPU-{name}"), name: "GPU".into(), memory_bytes: 100 * GIB, reserve_bytes: 0 }];
    RegisterRequest {
        node: name.into(),
        address: format!("{name}:9960"),
        gpus,
        split: 100,
        oriond: "0a".repeat(16),
        ..Default::default()
    }
}

fn ask(name: u128) -> AllocateRequest {
    AllocateRequest {
        allocation: format!("01234567-89ab-4def-8123-{name:012x}"),
        vgpus: 1,
        memory_mib: Some(1024),
        ratio: Some(1),
        ..Default::default()
    }
}

fn named(name: &str) -> AllocationName {
    AllocationName { allocation: name.to_owned() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Allocates as long as it is answered. What was answered, and what was asked when it was not.
async fn allocate_until_it_breaks(mut pool: PoolClient<Channel>, first: u128) -> BTreeMap<String, Allocation> {
    let mut held = BTreeMap::new();
    for number in first.. {
        match pool.allocate(ask(number)).await {
            Ok(had) => drop(held.insert(had.get_ref().allocation.clone(), had.into_inner())),
            Err(status) if status.code() == Code::ResourceExhausted => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(_) => break,
        }
    }
    held
}

/// What gRPC's health service says of a service at this controller.
async fn health(peer: &Peer, service: &str) -> ServingStatus {
    let endpoint = Channel::from_shared(format!("http://{}", peer.address())).expect("an address");
    let mut client = HealthClient::new(endpoint.connect().await.expect("it listens"));
    let asked = HealthCheckRequest { service: service.to_owned() };
    client.check(asked).await.expect("a service that is known").into_inner().status()
}

#[test]
fn the_health_service_says_where_the_pool_is_served() {
    runtime().block_on(async {
        let mut scene = Scene::new(1);
        let service = "orion.v1.Pool";
        for (peer, of_pool) in [(&scene.a, ServingStatus::Serving), (&scene.b, ServingStatus::NotServing)] {
            assert_eq!(health(peer, service).await, of_pool);
            assert_eq!(health(peer, "").await, ServingStatus::Serving);
        }
        scene.a.kill();
        let until = Instant::now() + PATIENCE;
        while health(&scene.b, service).await != ServingStatus::Serving {
            assert!(Instant::now() < until, "it leads: {}, and says otherwise", scene.b.leads());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(scene.b.leads());
        scene.a.start();
        while health(&scene.a, service).await != ServingStatus::NotServing {
            assert!(Instant::now() < until, "one that has just been started serves nobody");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // An etcd that is gone: who asks finds that nobody can change the pool, and then nobody says that he serves it.
        scene.etcd.kill(0);
        let (status, ..) = scene.b.http("GET", "/healthz", "");
        assert_eq!(status, 503);
        while health(&scene.b, service).await != ServingStatus::NotServing {
            assert!(Instant::now() < until, "it cannot change the pool");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn what_was_answered_stands_when_the_leader_is_killed_and_when_etcd_is() {
    runtime().block_on(async {
        let mut scene = Scene::new(1);
        let mut held = BTreeMap::new();
        for name in ["x", "y"] {
            scene.client().await.register(node(name)).await.expect("registering");
        }
        for round in 0..2u128 {
            let clients: Vec<_> = [1, 2, 3].map(|client| (round * 10 + client) << 20).into();
            let mut tasks = Vec::new();
            for first in clients {
                tasks.push(tokio::spawn(allocate_until_it_breaks(scene.client().await, first)));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            if round == 0 { &mut scene.a } else { &mut scene.b }.kill();
            for task in tasks {
                held.append(&mut task.await.expect("no panic"));
            }
            let mut pool = scene.client().await;
            for (name, had) in &held {
                let still = pool.confirm(named(name)).await.expect("what was answered stands").into_inner();
                assert_eq!(still.vgpus, had.vgpus);
            }
            // Each client may have one that it was not told of, and no place is given twice.
            let all = pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner();
            let devices = pool.list_devices(ListDevicesRequest {}).await.expect("a list").into_inner().devices;
            let free: u32 = devices.iter().map(|device| device.free_vgpus).sum();
            assert_eq!(free as usize + all.allocations.len(), 200);
            assert!(held.len() > 10 && all.allocations.len() <= held.len() + 3, "{} of {all:?}", held.len());
            for extra in all.allocations.iter().filter(|a| !held.contains_key(&a.allocation)) {
                pool.release(named(&extra.allocation)).await.expect("releasing");
            }
            if round == 0 { &mut scene.a } else { &mut scene.b }.start();
        }
        // And etcd itself, of which there is one.
        scene.etcd.kill(0);
        scene.etcd.start(0);
        let mut pool = scene.client().await;
        until("the pool", || scene.a.http("GET", "/healthz", "").0 == 200);
        for name in held.keys() {
            pool.confirm(named(name)).await.expect("what was answered stands");
        }
    });
}

#[test]
fn a_leader_that_slept_writes_nothing_and_steps_down() {
    runtime().block_on(async {
        let scene = Scene::new(1);
        let mut pool = scene.client().await;
        pool.register(node("x")).await.expect("registering");
        pool.allocate(ask(1)).await.expect("room");
        let mut watch = pool.watch(WatchRequest {}).await.expect("watching").into_inner();
        scene.a.signal("-STOP");
        // What it finds when it wakes up: an ask that changes the pool, one that does not, and one for who leads.
        let asked = "{\"vgpus\":1,\"memory_mib\":1024,\"ratio\":1}";
        let wakes_to = [
            scene.a.send("POST", "/allocations", asked),
            scene.a.send("GET", "/devices?res=nvidia_cuda&used=true", ""),
            scene.a.send("GET", "/healthz", ""),
        ];
        until("another leader", || scene.b.leads());
        let mut other = scene.client_of(&scene.b).await;
        for number in 2..=100 {
            other.allocate(ask(number)).await.expect("room");
        }
        scene.a.signal("-CONT");
        let [ask, devices, health] = wakes_to.map(answer);
        for (status, head, body) in [ask, devices] {
            let leader = scene.b.address();
            match status {
                307 => {
                    assert!(body.contains(&format!("\"leader\":\"{leader}\"")), "{body}");
                    assert!(head.contains(&format!("location: //{leader}/")), "{head}");
                }
                // It has not looked yet who leads instead.
                503 => assert!(body.contains("no controller leads the pool at the moment"), "{body}"),
                other => panic!("{other} {body}"),
            }
        }
        assert!(health.2.contains("leads the pool"), "{health:?}");
        until("it follows", || scene.a.http("GET", "/healthz", "").2.contains(&scene.b.address()));
        let log = scene.a.log();
        assert!(log.contains("this controller steps down"), "{log}");
        assert!(log.contains(&format!("the controller at {} leads the pool; this one follows", scene.b.address())));
        let over = loop {
            match watch.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("who watches is told why there is no more to see"),
                Err(status) => break status,
            }
        };
        assert_eq!(over.code(), Code::Unavailable, "{over}");
        // All 100 places are the other one's, and each is there once.
        let list = other.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner();
        let places: std::collections::BTreeSet<u32> = list.allocations.iter().map(|a| a.vgpus[0].vgpu).collect();
        assert_eq!((list.allocations.len(), places.len()), (100, 100));
        let refused = pool.allocate(self::ask(1)).await.expect_err("it does not lead");
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("does not lead the pool"), "{refused}");
        let named = refused.metadata().get(leader::HEADER).and_then(|value| value.to_str().ok());
        assert_eq!(named, Some(scene.b.address().as_str()));
    });
}

impl Scene {
    async fn client_of(&self, peer: &Peer) -> PoolClient<Channel> {
        PoolClient::connect(format!("http://{}", peer.address())).await.expect("it listens")
    }
}

/// What a controller has not stored its etcd may still carry out later; then it reads all again, and says to ask again.
async fn asked_again<T>(ask: impl AsyncFn() -> Result<tonic::Response<T>, tonic::Status>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer.into_inner(),
            Err(why) if why.code() == Code::Unavailable && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn an_etcd_without_its_majority_changes_nothing_and_recovers() {
    runtime().block_on(async {
        let mut scene = Scene::new(3);
        let mut pool = scene.client().await;
        pool.register(node("x")).await.expect("registering");
        let had = pool.allocate(ask(1)).await.expect("room").into_inner();
        // One of three is missed by nobody, whichever it is.
        scene.etcd.kill(0);
        let more = pool.allocate(ask(2)).await.expect("two of three are a majority").into_inner();
        scene.etcd.kill(1);
        let why = pool.allocate(ask(3)).await.expect_err("one of three is not");
        assert_eq!(why.code(), Code::Unavailable);
        assert!(why.message().contains("etcd at http://127.0.0.1:"), "{why}");
        let (status, _, body) = scene.a.http("POST", "/allocations", "{\"vgpus\":1}");
        assert!(status == 503 && body.contains("\"error\":") && body.contains("etcd"), "{status} {body}");
        assert_eq!(scene.a.http("GET", "/healthz", "").0, 503);
        for number in [0, 1] {
            scene.etcd.start(number);
        }
        until("the pool", || [&scene.a, &scene.b].iter().all(|peer| peer.http("GET", "/healthz", "").0 == 200));
        let mut pool = scene.client().await;
        for had in [had, more] {
            let still = asked_again(async || pool.clone().confirm(named(&had.allocation)).await).await;
            assert_eq!(still.vgpus, had.vgpus);
        }
        // The one that nobody was told of may have been carried out or not, and is the same one when it is asked again.
        let again = asked_again(async || pool.clone().allocate(ask(3)).await).await;
        let list = pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner();
        assert_eq!(list.allocations.len(), 3);
        assert!(list.allocations.iter().any(|a| a.allocation == again.allocation));
    });
}

#[test]
fn controllers_of_a_pool_have_one_key_and_say_who_leads() {
    runtime().block_on(async {
        let mut scene = Scene::new(1);
        let stranger = Peer::new(&scene.folder, "c", &scene.etcd.urls(), None);
        let said = stranger.refused();
        assert!(said.contains("lease.key is missing") && said.contains("copy lease.key"), "{said}");
        std::fs::write(stranger.folder.join("data/lease.key"), [7; 32]).expect("writing");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(stranger.folder.join("data/lease.key"), private).expect("chmod");
        let said = stranger.refused();
        assert!(said.contains("lease.key is not the one that this pool's controllers have"), "{said}");

        let mut pool = scene.client().await;
        pool.register(node("x")).await.expect("registering");
        let (a, b) = (scene.a.address(), scene.b.address());
        for (peer, leads) in [(&scene.a, 1), (&scene.b, 0)] {
            let (status, _, metrics) = peer.http("GET", "/metrics", "");
            assert_eq!(status, 200);
            assert!(metrics.contains(&format!("orion_controller_leads {leads}\n")), "{metrics}");
            assert!(metrics.contains(&format!("orion_controller_leader{{address=\"{a}\"}} 1\n")), "{metrics}");
            assert_eq!(metrics.contains("orion_allocations "), leads == 1);
        }
        assert!(scene.a.http("GET", "/healthz", "").2.contains("this controller"), "it leads");
        let (status, head, _) = scene.b.http("GET", "/devices?res=nvidia_cuda", "");
        assert_eq!(status, 307);
        assert!(head.contains(&format!("location: //{a}/devices?res=nvidia_cuda")), "{head}");
        // Both sign what the node's oriond takes.
        let lease = |peer: &Peer| peer.http("POST", "/allocations", "{\"vgpus\":1,\"memory_mib\":1024,\"ratio\":1}");
        assert_eq!(lease(&scene.a).0, 200);
        let key = |mut pool: PoolClient<Channel>| async move { pool.register(node("x")).await.map(|r| r.into_inner()) };
        let before = key(scene.client_of(&scene.a).await).await.expect("it leads").lease_key;
        // Told to end, it lets the other lead at once, and not when its lease has run out.
        scene.a.end();
        let took = until("another leader", || scene.b.leads());
        assert!(took < Duration::from_secs(4), "{took:?}");
        let (status, _, body) = lease(&scene.b);
        assert!(status == 503 && body.contains("node x has not registered since"), "{status} {body}");
        assert_eq!(key(scene.client_of(&scene.b).await).await.expect("it leads").lease_key, before);
        assert_eq!(lease(&scene.b).0, 200);
        let said = scene.client_of(&scene.b).await.leader(LeaderRequest {}).await.expect("said").into_inner();
        assert_eq!((said.leads, said.address), (true, b));
    });
}
