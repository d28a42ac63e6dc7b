//! The controller as a process: what its users and operators, and a bad day, do to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orion_proto::pool_client::PoolClient;
use orion_proto::*;
use orion_telemetry::report as telemetry;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

const GIB: u64 = 1 << 30;

/// A controller with a folder of its own, and the process that runs now.
struct Controller {
    folder: PathBuf,
    port: u16,
    child: Child,
    log: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Controller {
    fn start(name: &str, settings: &str) -> Controller {
        let folder = std::env::temp_dir().join(format!("orion-controller-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a new folder");
        let mut controller = Controller {
            folder,
            port: orion_built::steady_port(),
            child: Command::new("true").spawn().expect("true"),
            log: Default::default(),
        };
        controller.child.wait().expect("true ends");
        controller.configure(settings);
        controller.run(&[]);
        controller
    }

    fn configure(&self, settings: &str) {
        let data = self.folder.join("data");
        let text = format!(
            "controller:\n  listen_port: {}\n  places_by_ratio: true\n{settings}database:\n  data-dir: {}\n",
            self.port,
            data.display()
        );
        std::fs::write(self.folder.join("controller.yaml"), text).expect("writing");
    }

    /// `before` are words of a shell that go before the command.
    fn run(&mut self, before: &[&str]) {
        let binary = env!("CARGO_BIN_EXE_orion-controller");
        let config = self.folder.join("controller.yaml");
        let line = format!("{}exec {binary} start --config-file {}", before.join(""), config.display());
        let mut child = Command::new("bash").args(["-c", &line]).stdout(Stdio::piped()).spawn().expect("bash starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let log = self.log.clone();
        loop {
            let line = lines.next().expect("it says where it listens").expect("text");
            log.lock().expect("no panic").push_str(&format!("{line}\n"));
            if line.contains("listening on ") {
                break;
            }
        }
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                log.lock().expect("no panic").push_str(&format!("{line}\n"));
            }
        });
        self.child = child;
    }

    fn kill(&mut self) {
        self.child.kill().expect("killing");
        self.child.wait().expect("it ends");
    }

    async fn client(&self) -> PoolClient<Channel> {
        PoolClient::connect(format!("http://127.0.0.1:{}", self.port)).await.expect("it listens")
    }

    /// What a tool gets that knows no gRPC: the status and the body.
    fn get(&self, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        write!(socket, "GET {path} HTTP/1.1\r\nHost: orion\r\nConnection: close\r\n\r\n").expect("sending");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).expect("a status").parse().expect("a number");
        (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
    }

    fn said(&self, text: &str) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if self.log.lock().expect("no panic").contains(text) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn node(name: &str, gpus: &[(&str, u64)], split: u32) -> RegisterRequest {
    let gpu = |(uuid, gib): &(&str, u64)| Gpu {
        uuid: format!("GPU-{name}-{uuid}"),
        name: "Tesla V100".into(),
        memory_bytes: gib * GIB,
        reserve_bytes: 0,
    };
    let gpus = gpus.iter().map(gpu).collect();
    RegisterRequest { node: name.into(), address: format!("{name}:9960"), gpus, split, ..Default::default() }
}

fn ask(vgpus: u32, gib: u64, ratio: u32) -> AllocateRequest {
    AllocateRequest { vgpus, memory_mib: Some(gib * 1024), ratio: Some(ratio), ..Default::default() }
}

fn named(allocation: &Allocation) -> AllocationName {
    AllocationName { allocation: allocation.allocation.clone() }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code) -> String {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), code, "{status}");
    status.message().to_owned()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn one_two_and_four_vgpus_are_had_and_given_back() {
    runtime().block_on(async {
        let controller = Controller::start("had", "");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 16), ("1", 16)], 4)).await.expect("registering");
        assert!(controller.said("Adding new NVidia GPU to host a (GPU-a-0; Tesla V100)"));
        for count in [1, 2, 4] {
            let had = pool.allocate(ask(count, 7, 50)).await.expect("room").into_inner();
            assert_eq!(had.vgpus.len(), count as usize);
            assert!(had.vgpus.iter().all(|p| p.address == "a:9960" && p.memory_bytes == 7 * GIB && p.ratio == 50));
            // Of each GPU at most two fit, and each has a number of its own.
            let mut places: Vec<(u32, u32)> = had.vgpus.iter().map(|p| (p.gpu, p.vgpu)).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), count as usize);
            let confirmed = pool.confirm(named(&had)).await.expect("confirming").into_inner();
            assert!(confirmed.confirmed && confirmed.stands_ms > 50_000);
            assert!(pool.release(named(&had)).await.expect("releasing").into_inner().was_there);
            assert!(!pool.release(named(&had)).await.expect("twice is no mistake").into_inner().was_there);
            let why = refused(pool.renew(named(&had)).await, Code::NotFound);
            assert!(why.contains(&had.allocation) && why.contains("not renewed in time"), "{why}");
        }
    });
}

/// Its oriond has to know the key before anybody is sent there.
#[test]
fn a_node_hears_its_key_before_it_is_there_and_what_is_wrong_with_it_too() {
    runtime().block_on(async {
        let controller = Controller::start("prepares", "");
        let mut pool = controller.client().await;
        let of = |oriond: u8, address: &str, prepares| RegisterRequest {
            oriond: format!("{oriond:032x}"),
            address: address.into(),
            prepares,
            ..node("a", &[("0", 16)], 4)
        };
        let key = pool.register(of(1, "10.0.0.1:9960", true)).await.expect("its key").into_inner().lease_key;
        assert_eq!(pool.list_devices(ListDevicesRequest {}).await.expect("a list").into_inner().devices, []);
        assert!(refused(pool.allocate(ask(1, 1, 10)).await, Code::ResourceExhausted).contains("no node with a GPU"));
        let registered = pool.register(of(1, "10.0.0.1:9960", false)).await.expect("registering").into_inner();
        assert_eq!((registered.lease_key.len(), registered.lease_key), (32, key));
        // What it has is not touched by one that only asks, whichever that is.
        let had = pool.allocate(ask(1, 1, 10)).await.expect("room").into_inner();
        pool.register(of(2, "10.0.0.1:9960", true)).await.expect("another key");
        assert_eq!(pool.confirm(named(&had)).await.expect("it is there").into_inner().allocation, had.allocation);
        let why = refused(pool.register(of(3, "10.0.0.2:9960", true)).await, Code::ResourceExhausted);
        assert!(why.contains("there is a node a already, at 10.0.0.1:9960"), "{why}");
        let why = refused(
            pool.register(RegisterRequest { prepares: true, ..node("a\nb", &[("0", 1)], 1) }).await,
            Code::InvalidArgument,
        );
        assert!(why.contains("is no name of a node"), "{why}");
    });
}

#[test]
fn vgpus_of_several_nodes_are_had_with_whole_gpus_only() {
    runtime().block_on(async {
        let controller = Controller::start("nodes", "");
        let mut pool = controller.client().await;
        for name in ["a", "b", "c"] {
            pool.register(node(name, &[("0", 16)], 1)).await.expect("registering");
        }
        let why = refused(pool.allocate(ask(3, 8, 100)).await, Code::ResourceExhausted);
        assert!(why.contains("on one node") && why.contains("would fit: 1 vGPU "), "{why}");
        let across = |ratio| AllocateRequest { cross_node: true, ..ask(3, 8, ratio) };
        let why = refused(pool.allocate(across(50)).await, Code::InvalidArgument);
        assert!(why.contains("ORION_CROSS_NODE=1 needs ORION_RATIO=100"), "{why}");
        let had = pool.allocate(across(100)).await.expect("room").into_inner();
        let nodes: std::collections::BTreeSet<&str> = had.vgpus.iter().map(|p| p.node.as_str()).collect();
        assert_eq!(nodes.len(), 3);
    });
}

#[test]
fn who_is_refused_is_told_what_is_free_who_holds_the_rest_and_what_would_fit() {
    runtime().block_on(async {
        let controller = Controller::start("full", "");
        let mut pool = controller.client().await;
        let why = refused(pool.allocate(ask(1, 1, 10)).await, Code::ResourceExhausted);
        assert!(why.contains("no node with a GPU has reported"), "{why}");
        pool.register(node("a", &[("0", 16)], 4)).await.expect("registering");
        let red = AllocateRequest { tenant: "red".into(), ..ask(2, 6, 40) };
        pool.allocate(red).await.expect("room");
        let why = refused(pool.allocate(ask(2, 8, 20)).await, Code::ResourceExhausted);
        for part in [
            "no room for 2 vGPUs with 8192 MiB and 20 % each on one node",
            "a GPU 0 (Tesla V100): 4096 of 16384 MiB, 20 %, 2 of 4 vGPUs; room for 0 of these",
            "red: 2 vGPUs with 12288 MiB and 80 % together",
        ] {
            assert!(why.contains(part), "{part:?} is not in: {why}");
        }
        let why = refused(pool.allocate(ask(2, 2, 20)).await, Code::ResourceExhausted);
        assert!(
            why.contains("would fit: 1 vGPU with 2048 MiB and 20 % on one node; or 2 vGPUs with 2048 MiB and 10 %")
        );
    });
}

#[test]
fn who_waits_gets_what_is_released_and_who_goes_away_is_in_nobodys_way() {
    runtime().block_on(async {
        let controller = Controller::start("waits", "");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 16)], 1)).await.expect("registering");
        let first = pool.allocate(ask(1, 8, 100)).await.expect("room").into_inner();
        let waiting = |ms| AllocateRequest { wait_ms: ms, ..ask(1, 8, 100) };
        let why = refused(pool.allocate(waiting(300)).await, Code::ResourceExhausted);
        assert!(why.contains("no room for 1 vGPU"), "{why}");
        let mut tasks = Vec::new();
        for behind in 1..=2 {
            let mut client = controller.client().await;
            tasks.push(tokio::spawn(async move { client.allocate(waiting(60_000)).await }));
            until_waiting(&mut pool, behind).await;
        }
        // The first of them is killed while it waits.
        let second = tasks.pop().expect("two of them");
        tasks.pop().expect("the other one").abort();
        until_waiting(&mut pool, 1).await;
        pool.release(named(&first)).await.expect("releasing");
        let second = second.await.expect("no panic").expect("what was released").into_inner();
        assert_eq!(second.vgpus.len(), 1);
    });
}

#[test]
fn who_comes_for_what_is_not_reached_any_more_by_the_carrier_he_asked_for_is_told_so() {
    runtime().block_on(async {
        let controller = Controller::start("carriers", "");
        let mut pool = controller.client().await;
        let bare = || node("a", &[("0", 16)], 2);
        let further = vec!["rdma:a:9961".to_owned()];
        pool.register(RegisterRequest { further, ..bare() }).await.expect("registering");
        let by_rdma =
            |name: &str| AllocateRequest { carrier: "rdma".into(), allocation: name.to_owned(), ..ask(1, 4, 50) };
        let first = pool.allocate(by_rdma("")).await.expect("room").into_inner();
        assert_eq!(first.vgpus[0].address, "rdma:a:9961");
        // The same ask again, as by who has not heard the answer, when the node has lost its device.
        pool.register(bare()).await.expect("registering");
        let why = refused(pool.allocate(by_rdma(&first.allocation)).await, Code::FailedPrecondition);
        assert!(why.contains("node a is not reached by rdma any more; release"), "{why}");
        let list = pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner();
        assert_eq!(list.allocations[0].vgpus[0].address, "a:9960");
    });
}

async fn until_waiting(pool: &mut PoolClient<Channel>, count: u32) {
    let until = Instant::now() + Duration::from_secs(20);
    while pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner().waiting != count
    {
        assert!(Instant::now() < until, "{count} do not come to wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_nodes_word_renews_and_ends_and_what_has_run_out_meanwhile_is_said() {
    runtime().block_on(async {
        let controller = Controller::start("node", "");
        let mut pool = controller.client().await;
        let beat = |live: Vec<String>, ended: Vec<String>| HeartbeatRequest {
            node: "a".into(),
            live,
            ended,
            ..Default::default()
        };
        let why = refused(pool.heartbeat(beat(vec![], vec![])).await, Code::NotFound);
        assert!(why.contains("register it again"), "{why}");
        pool.register(node("a", &[("0", 16)], 4)).await.expect("registering");
        let had = pool.allocate(ask(1, 4, 25)).await.expect("room").into_inner();
        let stranger = "01234567-89ab-4def-8123-456789abcdef".to_owned();
        let over = pool.heartbeat(beat(vec![had.allocation.clone(), stranger.clone()], vec![])).await;
        assert_eq!(over.expect("heard").into_inner().over, [stranger]);
        // A session is there, so its client has come.
        let list = pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").into_inner();
        assert!(list.allocations[0].confirmed);
        pool.heartbeat(beat(vec![], vec![had.allocation.clone()])).await.expect("heard");
        refused(pool.confirm(named(&had)).await, Code::NotFound);
        // With another GPU in its place what lay there is over.
        let had = pool.allocate(ask(1, 4, 25)).await.expect("room").into_inner();
        pool.register(node("a", &[("9", 16)], 4)).await.expect("registering");
        refused(pool.confirm(named(&had)).await, Code::NotFound);
        let over = pool.heartbeat(beat(vec![], vec![])).await.expect("heard").into_inner().over;
        assert_eq!(over, [had.allocation]);
    });
}

#[test]
fn a_program_on_two_nodes_is_told_of_by_both() {
    runtime().block_on(async {
        let controller = Controller::start("reports", "");
        let mut pool = controller.client().await;
        for name in ["a", "b"] {
            pool.register(node(name, &[("0", 16)], 1)).await.expect("registering");
        }
        let both = AllocateRequest { cross_node: true, ..ask(2, 4, 100) };
        let had = pool.allocate(both).await.expect("room").into_inner();
        let beat = |node: &str, session: u64| {
            let session = telemetry::Session { session, ..Default::default() };
            let report =
                telemetry::Report { version: telemetry::VERSION, sessions: vec![session], ..Default::default() };
            let report = serde_json::to_string(&report).expect("plain words and numbers");
            let used = vec![Usage { allocation: had.allocation.clone(), vgpu_bytes: vec![7], report }];
            let live = vec![had.allocation.clone()];
            HeartbeatRequest { node: node.into(), live, used, ..Default::default() }
        };
        pool.heartbeat(beat("a", 3)).await.expect("heard");
        pool.heartbeat(beat("b", 5)).await.expect("heard");
        let told = pool.list_sessions(ListSessionsRequest::default()).await.expect("a list").into_inner().reports;
        let mut sessions: Vec<u64> = Vec::new();
        for text in told {
            let report: telemetry::Report = serde_json::from_str(&text).expect("as it was said");
            sessions.extend(report.sessions.iter().map(|session| session.session));
        }
        sessions.sort_unstable();
        assert_eq!(sessions, [3, 5]);
        let (_, metrics) = controller.get("/metrics");
        for node in ["a", "b"] {
            let label = format!("node=\"{node}\"");
            let of_node = |name: &str| {
                let of_it = |line: &&str| line.starts_with(name) && line.contains(&label);
                metrics.lines().find(of_it).and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            };
            assert_eq!(of_node("orion_allocation_memory_used_bytes{"), Some(7.0), "{metrics}");
            assert_eq!(of_node("orion_allocation_memory_limit_bytes{"), Some(4.0 * GIB as f64), "{metrics}");
            assert!(of_node("orion_allocation_calls_total{").is_some(), "{metrics}");
        }
        // What is over at one of them is told of by the other alone.
        let ended = HeartbeatRequest { ended: vec![had.allocation.clone()], ..beat("b", 5) };
        pool.heartbeat(HeartbeatRequest { live: vec![], used: vec![], ..ended }).await.expect("heard");
        let told = pool.list_sessions(ListSessionsRequest::default()).await.expect("a list").into_inner().reports;
        assert_eq!(told.len(), 1, "{told:?}");
    });
}

#[test]
fn operators_drain_kill_and_limit() {
    runtime().block_on(async {
        let controller = Controller::start("operators", "");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 16)], 4)).await.expect("registering");
        let mut events = controller.client().await.watch(WatchRequest {}).await.expect("watching").into_inner();
        let had = pool.allocate(ask(1, 4, 25)).await.expect("room").into_inner();
        let drain = |undo| DrainRequest { node: "a".into(), undo };
        assert_eq!(pool.drain(drain(false)).await.expect("draining").into_inner().left, 1);
        let why = refused(pool.allocate(ask(1, 4, 25)).await, Code::ResourceExhausted);
        assert!(why.contains("draining"), "{why}");
        let why = refused(pool.forget(NodeName { node: "a".into() }).await, Code::InvalidArgument);
        assert!(why.contains("has 1 allocations"), "{why}");
        assert!(pool.kill(named(&had)).await.expect("killing").into_inner().was_there);
        pool.drain(drain(true)).await.expect("taking back");
        let quota = Quota { tenant: "red".into(), vgpus: Some(1), ..Default::default() };
        pool.set_quota(SetQuotaRequest { quota: Some(quota.clone()) }).await.expect("setting");
        let red = |n| AllocateRequest { tenant: "red".into(), ..ask(n, 1, 10) };
        let why = refused(pool.allocate(red(2)).await, Code::FailedPrecondition);
        assert!(why.contains("tenant \"red\" may hold 1 vGPUs, has 0 and asks for 2 more"), "{why}");
        pool.allocate(red(1)).await.expect("within the quota");
        assert_eq!(pool.list_quotas(ListQuotasRequest {}).await.expect("a list").into_inner().quotas, [quota]);
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "over") {
            seen.push(events.message().await.expect("no error").expect("no end").what);
        }
        assert_eq!(seen, ["granted", "draining", "over"]);
    });
}

#[test]
fn who_has_no_key_or_the_wrong_one_gets_nothing() {
    runtime().block_on(async {
        let keys = "  authentication:\n    client-key: clientclientclient\n    server-key: serverserverserver\n    \
                    administrator-key: operatoroperator\n";
        let controller = Controller::start("keys", keys);
        let key = |name: &str| {
            match name {
                "client" => "clientclientclient",
                "server" => "serverserverserver",
                "operator" => "operatoroperator",
                other => other,
            }
            .to_owned()
        };
        fn with<T>(message: T, key: &str) -> Request<T> {
            let mut request = Request::new(message);
            if !key.is_empty() {
                request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
            }
            request
        }
        let quota = SetQuotaRequest { quota: Some(Quota { tenant: "t".into(), ..Default::default() }) };
        let mut pool = controller.client().await;
        pool.register(with(node("b", &[("0", 16)], 4), "serverserverserver")).await.expect("the server's key");
        let had = pool.allocate(with(ask(1, 1, 1), "clientclientclient")).await.expect("the client's key").into_inner();
        // By the part of a name that everybody sees nobody ends an allocation.
        for (who, shown) in [("clientclientclient", &had.allocation[..8]), ("operatoroperator", &had.allocation)] {
            let list = pool.list_allocations(with(ListAllocationsRequest::default(), who)).await.expect("a list");
            assert_eq!(list.into_inner().allocations[0].allocation, shown);
        }
        for who in ["", "client", "server", "operator", "operatoroperatoR", "operatoroperato"] {
            let (mut pool, key) = (controller.client().await, key(who));
            let name = AllocationName { allocation: "01234567-89ab-4def-8123-456789abcdef".into() };
            let beat = HeartbeatRequest { node: "a".into(), ..Default::default() };
            let mut codes: BTreeMap<&str, (Code, &str)> = BTreeMap::new();
            let code = |answer: Result<(), Status>| answer.map_or_else(|s| s.code(), |()| Code::Ok);
            macro_rules! call {
                ($role:expr, $method:ident, $message:expr) => {
                    let answer = pool.$method(with($message, &key)).await.map(drop);
                    codes.insert(stringify!($method), (code(answer), $role));
                };
            }
            call!("server", register, node("a", &[("0", 16)], 4));
            call!("server", heartbeat, beat);
            call!("client", allocate, ask(1, 1, 1));
            call!("client", confirm, name.clone());
            call!("client", renew, name.clone());
            call!("client", release, name.clone());
            call!("client", list_devices, ListDevicesRequest {});
            call!("client", list_allocations, ListAllocationsRequest::default());
            call!("operator", watch, WatchRequest {});
            call!("operator", drain, DrainRequest { node: "a".into(), undo: true });
            call!("operator", forget, NodeName { node: "b".into() });
            call!("operator", kill, name.clone());
            call!("operator", set_quota, quota.clone());
            call!("operator", list_quotas, ListQuotasRequest {});
            for (method, (code, role)) in codes {
                let may = who == role || who == "operator";
                assert_eq!(code != Code::Unauthenticated, may, "{method} by {who:?}: {code:?}");
            }
        }
    });
}

#[test]
fn what_makes_no_sense_gets_a_clear_error_from_each_call() {
    runtime().block_on(async {
        let controller = Controller::start("sense", "");
        let mut pool = controller.client().await;
        let invalid = Code::InvalidArgument;
        let bad_name = || AllocationName { allocation: "not-a-name".into() };
        let two = node("a", &[("0", 16), ("0", 16)], 4);
        let many: Vec<String> = vec![uuid(1); 5000];
        for (said, why) in [
            ("is no name of a node", refused(pool.register(node("", &[], 1)).await, invalid)),
            ("is no name of a node", refused(pool.register(node("a\nb", &[], 1)).await, invalid)),
            ("vgpu_count is 0", refused(pool.register(node("a", &[("0", 1)], 0)).await, invalid)),
            ("vgpu_count is 101", refused(pool.register(node("a", &[("0", 1)], 101)).await, invalid)),
            ("one UUID", refused(pool.register(two).await, invalid)),
            ("0 bytes of memory", refused(pool.register(node("a", &[("0", 0)], 1)).await, invalid)),
            (
                "is no allocation",
                refused(
                    pool.heartbeat(HeartbeatRequest { live: vec!["x".into()], ..Default::default() }).await,
                    invalid,
                ),
            ),
            (
                "5000 allocations",
                refused(pool.heartbeat(HeartbeatRequest { live: many, ..Default::default() }).await, invalid),
            ),
            ("ORION_VGPU is 0", refused(pool.allocate(ask(0, 1, 1)).await, invalid)),
            ("ORION_RATIO is 101", refused(pool.allocate(ask(1, 1, 101)).await, invalid)),
            ("ORION_GMEM", refused(pool.allocate(ask(1, 0, 1)).await, invalid)),
            (
                "is in MiB",
                refused(pool.allocate(AllocateRequest { memory_mib: Some(u64::MAX), ..ask(1, 1, 1) }).await, invalid),
            ),
            ("gpus is 7", refused(pool.allocate(AllocateRequest { gpus: 7, ..ask(1, 1, 1) }).await, invalid)),
            (
                "wait_ms is",
                refused(pool.allocate(AllocateRequest { wait_ms: u64::MAX, ..ask(1, 1, 1) }).await, invalid),
            ),
            (
                "is no allocation",
                refused(pool.allocate(AllocateRequest { allocation: "7".into(), ..ask(1, 1, 1) }).await, invalid),
            ),
            ("\"not-a-name\" is no allocation", refused(pool.confirm(bad_name()).await, invalid)),
            ("is no allocation", refused(pool.renew(bad_name()).await, invalid)),
            ("is no allocation", refused(pool.release(bad_name()).await, invalid)),
            ("is no allocation", refused(pool.kill(bad_name()).await, invalid)),
            ("there is no node \"x\"", {
                let drain = DrainRequest { node: "x".into(), undo: false };
                refused(pool.drain(drain).await, Code::NotFound)
            }),
            ("there is no node", refused(pool.forget(NodeName::default()).await, Code::NotFound)),
            ("there is no quota", refused(pool.set_quota(SetQuotaRequest { quota: None }).await, invalid)),
        ] {
            assert!(why.contains(said), "{said:?} is not in {why:?}");
        }
    });
}

fn uuid(number: u128) -> String {
    format!("01234567-89ab-4def-8123-{number:012x}")
}

/// The same question under the same name has the same answer, so a client whose answer was lost may ask again. Whatever
/// was answered before the controller was killed stands behind it, and nothing else.
#[test]
fn a_controller_that_is_killed_at_any_moment_has_what_it_has_answered() {
    let kills: u32 = std::env::var("ORION_CONTROLLER_KILLS").map_or(25, |n| n.parse().expect("a number"));
    runtime().block_on(async {
        let mut controller = Controller::start("killed", "");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 64), ("1", 64)], 100)).await.expect("registering");
        pool.register(node("b", &[("0", 64)], 100)).await.expect("registering");
        let mut held: BTreeMap<String, Allocation> = BTreeMap::new();
        let (mut number, mut answered) = (0u128, 0u32);
        for round in 0..kills {
            let mut pool = controller.client().await;
            let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
            let mut mine = held.clone();
            let clients = tokio::spawn(async move {
                // What it was in the middle of when the controller went away.
                let mut open: Option<(String, bool)> = None;
                let mut count = 0;
                while stopped.try_recv().is_err() {
                    number += 1;
                    let is_release = number.is_multiple_of(3) && !mine.is_empty();
                    let name = if is_release { mine.keys().next().expect("some").clone() } else { uuid(number) };
                    open = Some((name.clone(), is_release));
                    let ok = match is_release {
                        true => {
                            let released = pool.release(AllocationName { allocation: name.clone() }).await;
                            released.inspect(|_| drop(mine.remove(&name))).is_ok()
                        }
                        false => match pool.allocate(AllocateRequest { allocation: name, ..ask(1, 1, 1) }).await {
                            Ok(had) => {
                                let had = had.into_inner();
                                mine.insert(had.allocation.clone(), had);
                                true
                            }
                            Err(status) => status.code() == Code::ResourceExhausted,
                        },
                    };
                    if !ok {
                        break;
                    }
                    count += 1;
                    open = None;
                }
                (mine, number, open, count)
            });
            tokio::time::sleep(Duration::from_millis(20 + u64::from(round * 7 % 60))).await;
            controller.kill();
            let _ = stop.send(());
            let (mine, last, open, count) = clients.await.expect("no panic");
            (held, number) = (mine, last);
            answered += count;
            controller.run(&[]);
            let mut pool = controller.client().await;
            if let Some((name, is_release)) = open {
                // Whether it was done nobody was told; asking again settles it.
                match is_release {
                    true => {
                        pool.release(AllocationName { allocation: name.clone() }).await.expect("releasing");
                        held.remove(&name);
                    }
                    false => {
                        let again = pool.allocate(AllocateRequest { allocation: name, ..ask(1, 1, 1) }).await;
                        if let Ok(had) = again {
                            let had = had.into_inner();
                            held.insert(had.allocation.clone(), had);
                        }
                    }
                }
            }
            for (name, had) in &held {
                let still = pool.confirm(AllocationName { allocation: name.clone() }).await;
                assert_eq!(still.expect("what was answered stands").into_inner().vgpus, had.vgpus);
            }
            let devices = pool.list_devices(ListDevicesRequest {}).await.expect("a list").into_inner().devices;
            let free: u32 = devices.iter().map(|d| d.free_vgpus).sum();
            assert_eq!(free as usize + held.len(), 300, "the books do not balance in round {round}");
            let memory: u64 = devices.iter().map(|d| d.free_bytes).sum();
            assert_eq!(memory, (192 - held.len() as u64) * GIB);
        }
        assert!(answered > kills, "it was killed before it had done anything");
    });
}

/// A write that fails has not happened: nobody is told otherwise, what stands goes on, and all is well again when there
/// is room.
#[test]
fn a_store_that_cannot_be_written_changes_nothing_and_says_so() {
    runtime().block_on(async {
        let mut controller = Controller::start("disk", "");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 64)], 100)).await.expect("registering");
        let had = pool.allocate(ask(1, 1, 1)).await.expect("room").into_inner();
        controller.kill();
        // From here on a file cannot become larger than it is, and the process is not ended for trying.
        let size = std::fs::metadata(controller.folder.join("data/pool.redb")).expect("the store").len();
        controller.run(&["trap '' XFSZ; ulimit -f ", &(size / 1024).to_string(), "; "]);
        let mut pool = controller.client().await;
        let mut granted = Vec::new();
        let mut why = None;
        // Large ones, until what is free in the file is full.
        for number in 0..10_000 {
            let name = format!("{number}{}", "n".repeat(200));
            let gpus: Vec<String> = (0..64).map(|gpu| gpu.to_string()).collect();
            let gpus: Vec<(&str, u64)> = gpus.iter().map(|gpu| (gpu.as_str(), 1)).collect();
            let registered = pool.register(node(&name, &gpus, 1)).await.map(drop);
            let had = match registered {
                Ok(()) => pool.allocate(ask(1, 1, 1)).await.map(|had| granted.push(had.into_inner())),
                Err(status) => Err(status),
            };
            if let Err(status) = had {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                why = Some(status.message().to_owned());
                break;
            }
        }
        let why = why.expect("the file is full at last");
        assert!(why.contains("writing the store"), "{why}");
        assert_eq!(controller.get("/healthz").0, 503);
        controller.kill();
        controller.run(&[]);
        let mut pool = controller.client().await;
        assert_eq!(controller.get("/healthz"), (200, "ok\n".to_owned()));
        for had in granted.iter().chain([&had]) {
            pool.confirm(named(had)).await.expect("what was answered stands");
        }
    });
}

/// A disk that somebody else has filled, and then cleared.
#[test]
fn a_full_disk_is_said_and_is_over_when_there_is_room_again() {
    runtime().block_on(async {
        let mut controller = Controller::start("full-disk", "");
        controller.kill();
        let disk = controller.folder.join("data");
        std::fs::remove_dir_all(&disk).expect("removing");
        std::fs::create_dir(&disk).expect("a new folder");
        let _mount = Mount::tmpfs(&disk, "8m");
        controller.run(&[]);
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 64)], 100)).await.expect("registering");
        let had = pool.allocate(ask(1, 1, 1)).await.expect("room").into_inner();
        let filled = std::fs::write(disk.join("somebody's"), vec![1; 8 << 20]).expect_err("it is full");
        assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
        // What is free in the store's own file is taken first.
        let mut granted = Vec::new();
        let mut why = None;
        for number in 0..1000 {
            let name = format!("{number}{}", "n".repeat(200));
            let gpus: Vec<String> = (0..64).map(|gpu| gpu.to_string()).collect();
            let gpus: Vec<(&str, u64)> = gpus.iter().map(|gpu| (gpu.as_str(), 1)).collect();
            if let Err(status) = pool.register(node(&name, &gpus, 1)).await {
                why = Some(status);
                break;
            }
            granted.push(name);
        }
        let why = why.expect("the disk is full");
        assert_eq!(why.code(), Code::Unavailable, "{why}");
        assert!(why.message().contains("writing the store"), "{why}");
        let (status, said) = controller.get("/healthz");
        assert!(status == 503 && said.contains("the store"), "{status} {said}");
        std::fs::remove_file(disk.join("somebody's")).expect("removing");
        let until = Instant::now() + Duration::from_secs(20);
        while controller.get("/healthz").0 != 200 {
            assert!(Instant::now() < until, "{}", controller.get("/healthz").1);
            std::thread::sleep(Duration::from_millis(20));
        }
        pool.confirm(named(&had)).await.expect("what was answered stands");
        pool.allocate(ask(1, 1, 1)).await.expect("room");
        let nodes = controller.get("/metrics").1.matches("\norion_node{").count();
        assert_eq!(nodes, granted.len() + 1, "those that were answered, and no other");
    });
}

/// Gone with the test, also when it fails.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, size: &str) -> Mount {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "orion-test"]).arg(at);
        assert!(mount.status().expect("mount starts").success(), "mounting takes root");
        Mount(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn who_renews_in_time_keeps_what_he_has_and_who_is_late_is_told() {
    runtime().block_on(async {
        let controller = Controller::start("late", "  offer_s: 4\n  lease_s: 5\n");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 16)], 4)).await.expect("registering");
        let offered = pool.allocate(ask(1, 1, 10)).await.expect("room").into_inner();
        let [renewed, late] = [1, 2].map(|_| pool.clone()).map(|mut pool| async move {
            let had = pool.allocate(ask(1, 1, 10)).await.expect("room").into_inner();
            pool.confirm(named(&had)).await.expect("confirming");
            named(&had)
        });
        let (renewed, late) = (renewed.await, late.await);
        let until = Instant::now() + Duration::from_millis(6500);
        while Instant::now() < until {
            pool.renew(renewed.clone()).await.expect("in time");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let why = refused(pool.confirm(named(&offered)).await, Code::NotFound);
        assert!(why.contains("not renewed in time"), "{why}");
        let why = refused(pool.renew(late.clone()).await, Code::NotFound);
        assert!(why.contains(&late.allocation) && why.contains("not renewed in time"), "{why}");
        assert!(controller.said(&format!("allocation {} is over: Expired", late.allocation)));
        assert!(controller.said(&format!("allocation {} is over: NotConfirmed", offered.allocation)));
        assert_eq!(
            pool.list_allocations(ListAllocationsRequest::default()).await.expect("a list").get_ref().allocations.len(),
            1
        );
    });
}

#[test]
fn a_second_controller_leaves_the_first_ones_store_alone() {
    let controller = Controller::start("second", "");
    // At another port, with the same store.
    let text = std::fs::read_to_string(controller.folder.join("controller.yaml")).expect("it was written");
    let config = controller.folder.join("second.yaml");
    std::fs::write(&config, text.replace(&format!("listen_port: {}", controller.port), "listen_port: 0"))
        .expect("writing");
    let second = Command::new(env!("CARGO_BIN_EXE_orion-controller"))
        .args(["start", "--config-file"])
        .arg(&config)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("pool.redb"), "{said}");
}

#[test]
fn the_originals_tools_and_prometheus_are_answered_on_the_same_port() {
    runtime().block_on(async {
        let controller = Controller::start("web", "");
        let mut pool = controller.client().await;
        pool.register(node("a", &[("0", 16), ("1", 16)], 4)).await.expect("registering");
        pool.allocate(AllocateRequest { tenant: "red".into(), ..ask(3, 4, 25) }).await.expect("room");
        assert_eq!(controller.get("/info?data_version&api_version"), (200, "api_version=0.2,data_version=0.2".into()));
        assert_eq!(controller.get("/devices?res=nvidia_cuda"), (200, "nvidia_cuda=8".into()));
        assert_eq!(controller.get("/devices?res=nvidia_cuda&used=true"), (200, "nvidia_cuda=5".into()));
        assert_eq!(controller.get("/devices?res=amd").0, 400);
        assert_eq!(controller.get("/nothing").0, 404);
        let (status, metrics) = controller.get("/metrics");
        assert_eq!(status, 200);
        for line in [
            "orion_tenant_vgpus{tenant=\"red\"} 3",
            "orion_allocations 1",
            "orion_node{node=\"a\",standing=\"up\"} 1",
            "orion_gpu_vgpus{node=\"a\",gpu=\"0\",uuid=\"GPU-a-0\",name=\"Tesla V100\"} 4",
            "# EOF",
        ] {
            assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
        }
    });
}

#[test]
fn the_command_line_is_the_originals_and_what_is_not_there_is_refused() {
    let run = |arguments: &[&str]| {
        let binary = Path::new(env!("CARGO_BIN_EXE_orion-controller"));
        let output = Command::new(binary).args(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    };
    let (ok, text) = run(&["help", "start"]);
    assert!(ok && ["--config-file", "--log", "--kv"].iter().all(|option| text.contains(option)), "{text}");
    let (ok, text) = run(&["start", "--kv", "https://127.0.0.1:2379"]);
    assert!(!ok && text.contains("--kv https://127.0.0.1:2379: nothing says whose certificate"), "{text}");
    let (ok, text) = run(&["start", "--config-file", "/nowhere/controller.yaml"]);
    assert!(!ok && text.contains("reading /nowhere/controller.yaml failed"), "{text}");
}
