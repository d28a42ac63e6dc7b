//! The operators' tools beside a real controller, with a node that a test stands in for.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use orion_proto::pool_client::PoolClient;
use orion_proto::{AllocateRequest, Gpu, HeartbeatRequest, ListSessionsRequest, RegisterRequest, Usage};

struct Scene {
    folder: PathBuf,
    controller: Child,
    address: String,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.controller.kill();
        let _ = self.controller.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const KEY: &str = "administrator-key";

impl Scene {
    fn new(name: &str) -> Scene {
        let program = orion_built::packages(&["orion-controller"]).join("orion-controller");
        let folder = std::env::temp_dir().join(format!("orion-ctl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("making a folder");
        let config = folder.join("controller.yaml");
        let text = format!(
            "controller:\n  listen_port: 0\n  authentication:\n    administrator-key: {KEY}\n\
             database:\n  name: embedded\n  data-dir: {}\n",
            folder.join("pool").display()
        );
        std::fs::write(&config, text).expect("writing");
        std::fs::write(folder.join("key"), format!("{KEY}\n")).expect("writing");
        let mut command = Command::new(program);
        command.arg("start").arg("--config-file").arg(config).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut controller = command.spawn().expect("the controller starts");
        let lines = BufReader::new(controller.stdout.take().expect("piped")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("listening on")).expect("it listens");
        let address = line.rsplit(' ').next().expect("an address").to_owned();
        Scene { folder, controller, address }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_orionctl")).with_file_name(program);
        let mut command = Command::new(program);
        command.args(arguments).env("ORION_CONTROLLER", &self.address).output().expect("it starts")
    }

    /// What it prints, as an administrator.
    #[track_caller]
    fn said(&self, program: &str, arguments: &[&str]) -> String {
        let key = self.folder.join("key");
        let arguments = [arguments, &["--key-file", key.to_str().expect("a plain path")]].concat();
        let output = self.run(program, &arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// A node with a GPU, of which somebody has two vGPUs. Answers the allocation's name.
    async fn with_a_node(&self) -> String {
        let mut pool = PoolClient::connect(format!("http://{}", self.address)).await.expect("connecting");
        let gpu = Gpu { uuid: "GPU-0000".into(), name: "Tesla P100".into(), memory_bytes: 16 << 30, reserve_bytes: 0 };
        let node = RegisterRequest {
            node: "n0".into(),
            address: "10.0.0.7:9960".into(),
            gpus: vec![gpu],
            split: 4,
            ..RegisterRequest::default()
        };
        pool.register(node).await.expect("registering");
        let ask = AllocateRequest {
            vgpus: 2,
            memory_mib: Some(7800),
            client: "trainer 4711 python3".into(),
            tenant: "red".into(),
            ..AllocateRequest::default()
        };
        pool.allocate(ask).await.expect("allocating").into_inner().allocation
    }
}

#[tokio::test]
async fn what_is_lent_is_shown_and_can_be_ended() {
    let scene = Scene::new("lent");
    assert!(scene.said("orion-smi", &[]).contains("No vGPU is lent."));
    let allocation = scene.with_a_node().await;
    let said = scene.said("orion-smi", &[]);
    assert_eq!(said.matches("| 10.0.0.7       Orion vGPU     |").count(), 2, "{said}");
    assert!(said.contains("|   0    1 Tesla P100           |          N/A/7800MiB |"), "{said}");
    assert!(said.contains("| 10.0.0.7          0    1     4711    C python3 (trainer) "), "{said}");
    // What its node says of it.
    let used = vec![Usage { allocation: allocation.clone(), vgpu_bytes: vec![0, 1234 << 20], ..Default::default() }];
    let beat = HeartbeatRequest { node: "n0".into(), live: vec![allocation.clone()], used, ..Default::default() };
    let mut node = PoolClient::connect(format!("http://{}", scene.address)).await.expect("connecting");
    node.heartbeat(beat).await.expect("a heartbeat");
    let said = scene.said("orion-smi", &[]);
    assert!(said.contains("|   0    1 Tesla P100           |      1234MiB/7800MiB |"), "{said}");
    assert!(said.contains("|   0    0 Tesla P100           |         0MiB/7800MiB |"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&scene.said("orion-smi", &["--json"])).expect("JSON");
    assert_eq!(json["vgpus"][1]["memory_bytes"], 7800u64 << 20);
    assert_eq!(json["vgpus"][1]["used_bytes"], 1234u64 << 20);
    assert_eq!(json["vgpus"][1]["allocation"], allocation);
    let of = |name: &str| json["vgpus"][1][name].to_string();
    assert_eq!([of("host"), of("pid"), of("program")], ["\"trainer\"", "4711", "\"python3\""]);
    assert_eq!(json["gpus"][0]["free_vgpus"], 2);
    assert!(scene.said("orion-smi", &["--pool"]).contains("784MiB/16384MiB"));
    assert!(scene.said("orion-smi", &["--tenant", "blue"]).contains("No vGPU is lent."));

    assert!(scene.said("orionctl", &["allocations"]).contains("    n0 GPU 0 vGPU 1 7800MiB 25%"));
    assert_eq!(scene.said("orionctl", &["drain", "n0"]), "n0 gets nothing new; 1 allocations are still there\n");
    assert!(scene.said("orionctl", &["devices"]).contains("draining"));
    assert!(scene.said("orionctl", &["drain", "n0", "--undo"]).starts_with("n0 takes part again"));
    assert_eq!(scene.said("orionctl", &["kill", &allocation]), format!("{allocation} is over\n"));
    assert!(scene.said("orionctl", &["allocations"]).starts_with("0 allocations"));
}

/// Each session says of itself as much as it may: gRPC takes 4 MiB where nothing else is said.
#[tokio::test]
async fn tools_take_the_list_of_a_pool_whose_sessions_say_much() {
    let scene = Scene::new("long");
    let mut pool = PoolClient::connect(format!("http://{}", scene.address)).await.expect("connecting");
    let mut bytes = 0;
    for node in ["n0", "n1"] {
        let gpu = |n| Gpu { uuid: format!("{node}-{n}"), name: "P100".into(), memory_bytes: 1 << 30, reserve_bytes: 0 };
        let gpus: Vec<Gpu> = (0..10).map(gpu).collect();
        let vgpus = gpus.len() * 4;
        let address = format!("{node}:9960");
        let node = RegisterRequest { node: node.into(), address, gpus, split: 4, ..RegisterRequest::default() };
        let name = node.node.clone();
        pool.register(node).await.expect("registering");
        let mut used = Vec::new();
        for _ in 0..vgpus {
            let ask = AllocateRequest { vgpus: 1, ..AllocateRequest::default() };
            let allocation = pool.allocate(ask).await.expect("allocating").into_inner().allocation;
            let report = "x".repeat(60 << 10);
            bytes += report.len();
            used.push(Usage { allocation, report, ..Usage::default() });
        }
        let live = used.iter().map(|used| used.allocation.clone()).collect();
        pool.heartbeat(HeartbeatRequest { node: name, live, used, ..Default::default() }).await.expect("a heartbeat");
    }
    assert!(bytes > 4 << 20);
    let place = orion_ctl::Place {
        controller: Some(scene.address.clone()),
        key_file: None,
        ca: None,
        certificate: None,
        key: None,
        insecure: false,
    };
    let mut tool = place.connect().await.expect("a controller");
    let sessions = tool.list_sessions(ListSessionsRequest::default()).await.expect("a list").into_inner();
    assert_eq!((sessions.reports.len(), sessions.left_out), (80, 0));
}

#[tokio::test]
async fn what_is_refused_says_why() {
    let scene = Scene::new("refused");
    let allocation = scene.with_a_node().await;
    for (arguments, why) in [
        (&["kill", &allocation][..], "administrator-key"),
        (&["drain", "n0"], "administrator-key"),
        (&["--controller", "127.0.0.1:1", "devices"], "reaching the controller at 127.0.0.1:1 failed"),
        (&["--key-file", "/nowhere", "devices"], "reading --key-file /nowhere"),
    ] {
        let output = scene.run("orionctl", arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
    let key = scene.folder.join("key");
    for arguments in [["drain", "n1"], ["kill", "00000000-0000-0000-0000-000000000001"], ["forget", "n0"]] {
        let output = scene.run("orionctl", &[&arguments[..], &["--key-file", key.to_str().unwrap()]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.starts_with("orionctl: "), "{arguments:?}: {said}");
        assert!(said.contains(arguments[1]), "{arguments:?} is not named: {said}");
    }
}

#[tokio::test]
async fn a_tenant_has_no_more_than_his_quota() {
    let scene = Scene::new("quota");
    let said = scene.said("orionctl", &["quota", "red", "--vgpus", "1", "--memory", "4096"]);
    assert_eq!(said, "red: 1 vGPUs, 4096 MiB\n");
    assert_eq!(scene.said("orionctl", &["quotas"]), said);
    let mut pool = PoolClient::connect(format!("http://{}", scene.address)).await.expect("connecting");
    let ask = AllocateRequest { vgpus: 2, tenant: "red".into(), ..AllocateRequest::default() };
    assert!(pool.allocate(ask).await.is_err());
    // Who asks changes nothing, and what is not named stays.
    assert_eq!(scene.said("orionctl", &["quota", "red"]), said);
    assert_eq!(scene.said("orionctl", &["quota", "red", "--vgpus", "3"]), "red: 3 vGPUs, 4096 MiB\n");
    assert_eq!(scene.said("orionctl", &["quotas"]), "red: 3 vGPUs, 4096 MiB\n");
    // What is refused is not told as if it were done.
    let output = scene.run("orionctl", &["quota", "red", "--none"]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(scene.said("orionctl", &["quota", "red", "--none"]), "red: no limit\n");
    assert_eq!(scene.said("orionctl", &["quotas"]), "");
}

/// A controller that was there may come back: who looks again and again does.
#[test]
fn a_look_that_fails_is_told_and_the_next_one_comes() {
    let mut scene = Scene::new("again");
    let key = scene.folder.join("key");
    let mut lookers = [("orion-smi", &["-l", "1"][..]), ("orionctl", &["watch"])].map(|(program, arguments)| {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_orionctl")).with_file_name(program));
        command.args(arguments).arg("--key-file").arg(&key).env("ORION_CONTROLLER", &scene.address);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    scene.controller.kill().and_then(|()| scene.controller.wait()).expect("it runs");
    for looker in &mut lookers {
        let lines = BufReader::new(looker.stderr.take().expect("piped")).lines();
        let said: Vec<String> = lines.map_while(Result::ok).filter(|line| line.contains("failed")).take(2).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(looker.try_wait().expect("a child").is_none());
        looker.kill().and_then(|()| looker.wait()).expect("it runs");
    }
}

/// It is its owner's, or a group's; never everybody's, and never in place of what is there.
#[test]
fn a_virtual_machines_memory_is_made_with_an_owner() {
    use std::os::unix::fs::MetadataExt;
    let folder = std::env::temp_dir().join(format!("orion-shm-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let shm = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orion-shm"));
        let output = command.arg("-d").arg(&folder).args(arguments).output().expect("orion-shm starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let own = std::fs::metadata(&folder).expect("the folder");
    let (user, group) = (own.uid().to_string(), own.gid().to_string());
    let made = |name: &str| {
        let found = std::fs::metadata(folder.join(name)).expect("it was made");
        (found.len() >> 20, found.uid() == own.uid(), found.mode() & 0o7777)
    };
    let (code, said) = shm(&["-i", "7", "-s", "64"]);
    assert_eq!((code, made("orionsock7")), (Some(0), (64, true, 0o600)), "{said}");
    assert!(said.contains("--guest") && said.contains("ivshmem-plain,memdev=orion"), "{said}");
    let (code, said) = shm(&["-i", "8", "--user", &user, "--group", &group]);
    assert_eq!((code, made("orionsock8")), (Some(0), (128, true, 0o660)), "{said}");
    for (arguments, why) in [
        (&["-i", "7"][..], "is there already"),
        (&["-i", "9", "-s", "100"], "try -s 128"),
        (&["-i", "9", "-s", "16"], "try -s 64"),
        (&["-i", "9", "--group", "no such group"], "getent group knows no"),
        // More than the folder of any machine that runs this has.
        (&["-i", "9", "-s", "1048576"], "has room for"),
    ] {
        let (code, said) = shm(arguments);
        assert!(code == Some(1) && said.contains(why), "{arguments:?}: {said}");
    }
    for (arguments, why) in [(["-i", "10000"], "0..=9999"), (["-s", "15"], "16..=1048576"), (["-q", "1"], "-q")] {
        let (code, said) = shm(&arguments);
        assert!(code == Some(2) && said.contains(why), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 2);
    std::fs::remove_dir_all(folder).expect("removing");
}
