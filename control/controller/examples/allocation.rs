//! How long an allocation takes in a large pool: see the controller's README.
//!
//! Starts a controller with a store in a folder of its own and registers 1,000 nodes of 8 GPUs, which say every three
//! seconds what they have. Holds 10,000 vGPUs, and then allocates and releases one after the other, and from several
//! clients at once. Prints percentiles of the time that a client waits for the answer to an allocation, which is on the
//! disk by then.
//!
//! With the word `etcd` the pool is in an etcd of one member, which it starts too: `etcd` has to be in the path.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orion_proto::pool_client::PoolClient;
use orion_proto::*;
use tonic::transport::Channel;

const NODES: usize = 1000;
const GPUS: usize = 8;
const LIVE: usize = 10_000;
const ROUNDS: usize = 2000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let binary = std::env::current_exe()?.with_file_name("../orion-controller");
    let folder = std::env::temp_dir().join(format!("orion-allocation-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut etcd = match std::env::args().nth(1).as_deref() {
        None => None,
        Some("etcd") => Some(start_etcd(&folder)?),
        Some(other) => return Err(format!("{other:?} is no store; it is etcd, or nothing").into()),
    };
    let config = folder.join("controller.yaml");
    let text = format!(
        "controller:\n  listen_port: 0\n  log_level: warn\n  places_by_ratio: true\ndatabase:\n  data-dir: {}\n",
        folder.join("data").display()
    );
    // The line that says where it listens is one of information.
    std::fs::write(&config, text.replace("warn", "info"))?;
    let mut controller = Command::new(&binary)
        .args(["start", "--config-file"])
        .arg(&config)
        .args(etcd.iter().flat_map(|(url, _)| ["--kv", url]))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("starting {}: {e}; build it first, in the same profile", binary.display()))?;
    let mut lines = BufReader::new(controller.stdout.take().ok_or("no pipe")?).lines();
    let address = loop {
        let line = lines.next().ok_or("the controller ended")??;
        if let Some((_, address)) = line.split_once("listening on ") {
            break format!("http://{address}");
        }
    };
    std::thread::spawn(move || lines.for_each(drop));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = runtime.block_on(measure(&address));
    controller.kill()?;
    controller.wait()?;
    if let Some((_, etcd)) = &mut etcd {
        etcd.kill()?;
        etcd.wait()?;
    }
    std::fs::remove_dir_all(&folder)?;
    measured
}

/// One member, and its URL.
fn start_etcd(folder: &Path) -> Result<(String, Child), Failure> {
    let port = || Ok::<_, std::io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    let (client, peer) = (format!("http://127.0.0.1:{}", port()?), format!("http://127.0.0.1:{}", port()?));
    let log = std::fs::File::create(folder.join("etcd.log"))?;
    let child = Command::new("etcd")
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client, "--name", "default"])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--data-dir"])
        .arg(folder.join("etcd"))
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|e| format!("starting etcd failed: {e}; it is in Debian's package etcd-server"))?;
    Ok((client, child))
}

async fn measure(address: &str) -> Result<(), Failure> {
    let mut pool = PoolClient::connect(address.to_owned()).await?;
    while !pool.leader(LeaderRequest {}).await?.into_inner().leads {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for node in 0..NODES {
        let gpu = |gpu: usize| Gpu {
            uuid: format!("GPU-{node}-{gpu}"),
            name: "NVIDIA H200".into(),
            memory_bytes: 140 << 30,
            reserve_bytes: 512 << 20,
        };
        let (name, gpus) = (format!("node{node:04}"), (0..GPUS).map(gpu).collect());
        pool.register(RegisterRequest {
            address: format!("{name}:9960"),
            node: name,
            gpus,
            split: 4,
            ..Default::default()
        })
        .await?;
    }
    println!("{NODES} nodes of {GPUS} GPUs");
    let live: Live = Default::default();
    let beats = tokio::spawn(beat(pool.clone(), live.clone()));
    // Many at once, as they share transactions.
    let began = Instant::now();
    let fill = (0..32).map(|_| {
        let (mut pool, live) = (pool.clone(), live.clone());
        tokio::spawn(async move {
            for _ in 0..LIVE / 32 + 1 {
                let had = pool.allocate(ask()).await?.into_inner();
                let node = had.vgpus[0].node.clone();
                live.lock().expect("no panic").entry(node).or_default().push(had.allocation);
            }
            Ok::<_, tonic::Status>(())
        })
    });
    for task in fill.collect::<Vec<_>>() {
        task.await??;
    }
    let had = (LIVE / 32 + 1) * 32;
    println!("{had} vGPUs live after {:.1} s ({:.0} a second from 32 clients)", secs(began), had as f64 / secs(began));
    for clients in [1, 8] {
        let tasks: Vec<_> = (0..clients).map(|_| tokio::spawn(rounds(pool.clone(), ROUNDS / clients))).collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await??);
        }
        times.sort_unstable();
        let at = |per_mille: usize| times[(times.len() * per_mille / 1000).min(times.len() - 1)].as_secs_f64() * 1e3;
        println!(
            "{clients} at a time: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms of {} allocations",
            at(500),
            at(990),
            at(999),
            times.len()
        );
    }
    beats.abort();
    let live = pool.list_allocations(ListAllocationsRequest::default()).await?.into_inner().allocations.len();
    println!("{live} vGPUs live at the end");
    Ok(())
}

fn ask() -> AllocateRequest {
    AllocateRequest { vgpus: 1, memory_mib: Some(8192), ratio: Some(25), ..Default::default() }
}

fn secs(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Names of allocations, by node.
type Live = Arc<Mutex<HashMap<String, Vec<String>>>>;

/// Each node says what it has, every three seconds.
async fn beat(mut pool: PoolClient<Channel>, live: Live) {
    let mut pace = tokio::time::interval(Duration::from_secs(3) / NODES as u32);
    for node in (0..NODES).cycle() {
        pace.tick().await;
        let node = format!("node{node:04}");
        let live = live.lock().expect("no panic").get(&node).cloned().unwrap_or_default();
        if let Err(status) = pool.heartbeat(HeartbeatRequest { node, live, ..Default::default() }).await {
            eprintln!("a heartbeat failed: {status}");
        }
    }
}

async fn rounds(mut pool: PoolClient<Channel>, count: usize) -> Result<Vec<Duration>, tonic::Status> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        let had = pool.allocate(ask()).await?.into_inner();
        times.push(began.elapsed());
        pool.release(AllocationName { allocation: had.allocation }).await?;
    }
    Ok(times)
}
