//! What a worker has of the machine: as little as can be.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::harness::{Client, Oriond, Transport, VARIABLE, hello, wait_until};
use orion_transport::client::Tuning;
use orion_wire::{Reader, Writer};

fn is_root() -> bool {
    // SAFETY: getuid cannot fail.
    unsafe { libc::getuid() == 0 }
}

/// A field of `/proc/PID/status`.
fn status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the worker runs");
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("{field}:"))).expect("the kernel knows the field");
    line.trim().to_owned()
}

#[test]
fn a_worker_has_no_rights() {
    let server = Oriond::start(&[]);
    let client = Client::attach(&server, Transport::Shm);
    let pid = client.welcome.worker_pid;
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    if is_root() {
        assert_eq!(status(pid, "CapBnd"), "0000000000000000");
        assert_eq!(status(pid, "Groups"), "");
    }
}

#[test]
fn each_worker_has_a_user_of_its_own() {
    if !is_root() {
        eprintln!("only root can start processes of other users");
        return;
    }
    let server = Oriond::start(&["--warm", "3"]);
    let clients: Vec<Client> = (0..5).map(|_| Client::attach(&server, Transport::Shm)).collect();
    let mut users = HashSet::new();
    for client in &clients {
        let ids = status(client.welcome.worker_pid, "Uid");
        let ids: HashSet<u32> = ids.split_whitespace().map(|id| id.parse().expect("a number")).collect();
        assert_eq!(ids.len(), 1, "real, effective, saved and file system id");
        let id = *ids.iter().next().expect("one");
        assert!((1_890_000_000..=1_890_999_999).contains(&id), "{id}");
        assert_eq!(status(client.welcome.worker_pid, "Gid").split_whitespace().next(), Some(id.to_string().as_str()));
        users.insert(id);
    }
    assert_eq!(users.len(), clients.len());
}

#[test]
fn the_operator_chooses_the_users_and_two_workers_never_share_one() {
    if !is_root() {
        eprintln!("only root can start processes of other users");
        return;
    }
    let server = Oriond::start(&["--worker-uids", "1900000000-1900000001", "--warm", "1"]);
    let first = Client::attach(&server, Transport::Shm);
    let second = Client::attach(&server, Transport::Shm);
    assert_ne!(status(first.welcome.worker_pid, "Uid"), status(second.welcome.worker_pid, "Uid"));
    // Both are taken, so the pool stays empty until one is free again.
    server.wait_for_log(&["no user of --worker-uids 1900000000-1900000001 is free"]);
    drop(first);
    wait_until("an attach", || Client::try_attach(&server, Transport::Shm, &hello(), Tuning::default()).is_ok());
}

#[test]
fn nobody_but_root_looks_into_a_worker() {
    let server = Oriond::start(&[]);
    let client = Client::attach(&server, Transport::Shm);
    // The kernel gives what belongs to a process that is not dumpable to root.
    let owner = std::fs::metadata(format!("/proc/{}/environ", client.welcome.worker_pid)).expect("it runs").uid();
    assert_eq!(owner, 0);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", client.welcome.worker_pid)).expect("it runs");
    let core = limits.lines().find(|l| l.starts_with("Max core file size")).expect("the kernel lists it");
    assert_eq!(core.split_whitespace().nth(4), Some("0"));
}

#[test]
fn a_worker_s_environment_is_the_driver_s_settings() {
    let secret =
        [("AWS_SECRET_ACCESS_KEY", "hunter2"), ("ORION_TOKEN", "0123456789abcdef"), ("CUDA_CACHE_DISABLE", "1")];
    let server = Oriond::start_in(&secret, &[]);
    let mut client = Client::attach(&server, Transport::Shm);
    let mut seen = |name: &str| {
        let mut body = Vec::new();
        body.bytes(name.as_bytes());
        Reader::new(&client.call(VARIABLE, &body)).text().expect("a value").to_owned()
    };
    assert_eq!(seen("CUDA_CACHE_DISABLE"), "1");
    for name in ["AWS_SECRET_ACCESS_KEY", "ORION_TOKEN", "PATH", "HOME"] {
        assert_eq!(seen(name), "", "{name}");
    }
}

/// What a worker's descriptors lead to.
fn descriptors(pid: u32) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("root or the user of oriond looks");
    folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect()
}

#[test]
fn a_worker_holds_no_descriptor_but_its_session_s() {
    if !is_root() {
        eprintln!("only root looks into a worker");
        return;
    }
    let server = Oriond::start(&["--warm", "2"]);
    let _bystander = Client::attach(&server, Transport::Tcp);
    let client = Client::attach(&server, Transport::Shm);
    let all = descriptors(client.welcome.worker_pid);
    let names: Vec<String> = all.iter().map(|p| p.display().to_string()).collect();
    // Both control sockets, the attach socket and the session's memory, with /dev/null three times.
    for name in &names {
        let known = name == "/dev/null" || name.starts_with("socket:") || name.starts_with("/memfd:orion-session");
        assert!(known, "{names:?}");
    }
    assert_eq!(names.iter().filter(|n| n.starts_with("socket:")).count(), 3, "{names:?}");
    assert_eq!(names.iter().filter(|n| n.starts_with("/memfd:")).count(), 1, "{names:?}");
}

#[test]
fn a_layer_that_is_left_out_is_said_and_can_be_insisted_on() {
    let server = Oriond::start(&["--isolation-off", "user"]);
    server.wait_for_log(&["WARN", "workers are not fully isolated", "layer=user", "--isolation-off user"]);
    drop(server);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
        .args(["serve", "--driver", "echo", "--socket", "none", "--listen", "127.0.0.1:0"])
        .args(["--isolation-off", "user", "--require-isolation"])
        .output()
        .expect("starting oriond");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("refusing to serve without the layer user"), "{text}");
}

#[test]
fn what_a_worker_says_is_one_line_of_the_log() {
    let server = Oriond::start(&[]);
    let mut client = Client::attach(&server, Transport::Shm);
    // A name that is longer than its record: the worker ends, and says why through oriond.
    client.start(VARIABLE, &[0x7f; 8]);
    while client.reply_or_lost().is_some() {}
    let worker = format!("worker={}", client.welcome.worker_pid);
    server.wait_for_log(&["WARN", "worker says", "record ends inside a byte string", &worker]);
}

fn may_separate() -> bool {
    let may = !Oriond::start(&[]).log().contains("layer=namespaces");
    if !may {
        eprintln!("namespaces cannot be made here; oriond says why");
    }
    may
}

fn namespace(pid: u32, kind: &str) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("root looks")
}

/// The driver listens on an abstract socket, which all of a network namespace see, and takes a library's name from a
/// file of /dev/shm.
#[test]
fn a_worker_has_a_network_and_shared_memory_of_its_own() {
    if !may_separate() {
        return;
    }
    let planted = format!("/dev/shm/orion-planted-{}", std::process::id());
    std::fs::write(&planted, "/tmp/evil.so").expect("writing a file");
    let server = Oriond::start(&["--warm", "2"]);
    let clients = [Client::attach(&server, Transport::Shm), Client::attach(&server, Transport::Shm)];
    let [first, second] = [0, 1].map(|i| clients[i].welcome.worker_pid);
    for kind in ["net", "ipc", "uts", "mnt"] {
        let all = [first, second, server.pid()].map(|pid| namespace(pid, kind));
        assert_eq!(HashSet::from(all.clone()).len(), 3, "{kind}: {all:?}");
    }
    // What the worker sees of /dev/shm, and of sockets.
    assert!(!PathBuf::from(format!("/proc/{first}/root{planted}")).exists());
    std::fs::remove_file(&planted).expect("it is ours");
    let sockets = std::fs::read(format!("/proc/{first}/net/unix")).expect("root looks");
    let sockets = String::from_utf8_lossy(&sockets);
    assert!(!sockets.contains('@') && !sockets.contains("oriond.sock"), "{sockets}");
}

#[test]
fn workers_of_one_tenant_share_namespaces() {
    if !may_separate() {
        return;
    }
    let server = Oriond::start(&["--warm", "2", "--one-tenant"]);
    let clients = [Client::attach(&server, Transport::Shm), Client::attach(&server, Transport::Shm)];
    let [first, second] = [0, 1].map(|i| clients[i].welcome.worker_pid);
    for kind in ["net", "ipc", "uts", "mnt"] {
        assert_eq!(namespace(first, kind), namespace(second, kind), "{kind}");
        assert_ne!(namespace(first, kind), namespace(server.pid(), kind), "{kind}");
    }
}

/// Handles for other processes (`cuIpc…`) open between processes of one user only.
#[test]
fn sessions_of_one_tenant_have_one_user_and_those_of_several_never() {
    if !is_root() {
        eprintln!("only root can start processes of other users");
        return;
    }
    let users = |arguments: &[&str], transport: Transport| {
        let server = Oriond::start_without_guests(arguments);
        let clients = [Client::attach(&server, transport), Client::attach(&server, transport)];
        clients.map(|client| status(client.welcome.worker_pid, "Uid"))
    };
    // Local users and holders of the token are let in: they may be different people.
    let [first, second] = users(&[], Transport::Shm);
    assert_ne!(first, second);
    // All of them have the token; nobody else is let in.
    let [first, second] = users(&["--socket", "none"], Transport::Tcp);
    assert_eq!(first, second);
    let [first, second] = users(&["--one-tenant"], Transport::Shm);
    assert_eq!(first, second);
}
