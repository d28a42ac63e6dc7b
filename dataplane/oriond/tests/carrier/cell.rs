//! What a worker has of the machine: as little as can be.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::harness::{Client, DIE, Oriond, Transport, VARIABLE, has_layer_or_left_out, hello, is_alive, is_root};
use crate::harness::{is_root_or_left_out, memory_group, runs, wait_until, words};
use orion_transport::client::Tuning;
use orion_wire::{Reader, Writer};

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

/// The kernel ends him who has most of the memory, and the tenant's is in the worker.
#[test]
fn a_worker_is_not_spared_when_memory_runs_out_though_oriond_is() {
    let server = Oriond::start(&["--warm", "1"]);
    // None of one that has ended in between.
    let adjusted = |pid: u32| -> Option<i32> {
        std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
    };
    // Who is begun before oriond is spared inherits nothing, and is none of those that are looked at.
    wait_until("the warm worker", || server.workers().len() == 1);
    let old: Vec<u32> = server.workers();
    let spared = if std::fs::write(format!("/proc/{}/oom_score_adj", server.pid()), "-900").is_ok() { -900 } else { 7 };
    std::fs::write(format!("/proc/{}/oom_score_adj", server.pid()), spared.to_string())
        .expect("more is always allowed");
    let _client = Client::attach(&server, Transport::Shm);
    // One that is being begun is oriond's child, and like it, for a moment.
    wait_until("a worker that is begun after that, and not spared", || {
        let new: Vec<u32> = server.workers().into_iter().filter(|pid| !old.contains(pid)).collect();
        !new.is_empty() && new.iter().all(|pid| adjusted(*pid) == Some(spared.max(0)))
    });
    assert_eq!(adjusted(server.pid()), Some(spared));
}

#[test]
fn each_worker_has_a_user_of_its_own() {
    if !is_root_or_left_out() {
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
    if !is_root_or_left_out() {
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
    if !is_root_or_left_out() {
        return;
    }
    let server = Oriond::start(&["--warm", "2"]);
    let _bystander = Client::attach(&server, Transport::Tcp);
    let client = Client::attach(&server, Transport::Shm);
    let all = descriptors(client.welcome.worker_pid);
    let names: Vec<String> = all.iter().map(|p| p.display().to_string()).collect();
    // Both control sockets, the attach socket and the session's memory, with /dev/null three times, and what it may
    // read of /proc.
    for name in &names {
        let known = name == "/dev/null"
            || name.starts_with("socket:")
            || name.starts_with("/memfd:orion-session")
            || name.starts_with("/proc/");
        assert!(known, "{names:?}");
    }
    assert_eq!(names.iter().filter(|n| n.starts_with("socket:")).count(), 3, "{names:?}");
    assert_eq!(names.iter().filter(|n| n.starts_with("/memfd:")).count(), 1, "{names:?}");
}

#[test]
fn a_layer_that_is_left_out_is_said_and_can_be_insisted_on() {
    for layer in ["user", "namespaces", "pid", "memory", "landlock", "seccomp"] {
        let server = Oriond::start(&["--isolation-off", layer]);
        let (field, option) = (format!("layer={layer}"), format!("--isolation-off {layer}"));
        server.wait_for_log(&["WARN", "workers are not fully isolated", &field, &option]);
        // Nor does it take another layer along.
        assert_eq!(Client::attach(&server, Transport::Shm).call(0x101, &[1; 8]), [1; 8], "without {layer}");
        drop(server);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
            .args(["serve", "--driver", "echo", "--socket", "none", "--listen", "127.0.0.1:0"])
            .args(["--isolation-off", layer, "--require-isolation"])
            .output()
            .expect("starting oriond");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("refusing to serve without the layer"), "{text}");
        assert!(!is_root() || text.contains(&format!("without the layer {layer}")), "{text}");
    }
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

fn namespace(pid: u32, kind: &str) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("root looks")
}

/// The driver listens on an abstract socket, which all of a network namespace see, and takes a library's name from a
/// file of /dev/shm.
#[test]
fn a_worker_has_a_network_and_shared_memory_of_its_own() {
    if !has_layer_or_left_out("namespaces") {
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
    if !has_layer_or_left_out("namespaces") {
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
    if !is_root_or_left_out() {
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

/// Those that a worker's /proc shows.
fn seen_by(worker: u32) -> Vec<u32> {
    let folder = std::fs::read_dir(format!("/proc/{worker}/root/proc")).expect("root looks");
    let mut all: Vec<u32> = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// Its number there.
fn own_number(worker: u32) -> u32 {
    status(worker, "NSpid").split_whitespace().last().expect("there is one").parse().expect("a number")
}

#[test]
fn a_worker_is_the_only_process_of_its_namespace_and_the_host_knows_its_number() {
    if !has_layer_or_left_out("pid") {
        return;
    }
    let server = Oriond::start(&["--warm", "2"]);
    let mut clients = [Client::attach(&server, Transport::Shm), Client::attach(&server, Transport::Shm)];
    let [first, second] = [0, 1].map(|i| clients[i].welcome.worker_pid);
    assert_eq!(HashSet::from([first, second, server.pid()].map(|pid| namespace(pid, "pid"))).len(), 3);
    for pid in [first, second] {
        assert!(server.workers().contains(&pid));
        assert_eq!((own_number(pid), seen_by(pid)), (1, vec![1]));
        server.wait_for_log(&["session begins", &format!("worker={pid} ")]);
    }
    assert_eq!(server.holder(), None);
    // The old one is below it, and nobody there can take the new one away.
    let mounts = std::fs::read_to_string(format!("/proc/{first}/mountinfo")).expect("root looks");
    assert_eq!(mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/proc")).count(), 2, "{mounts}");
    clients.iter_mut().for_each(|client| assert_eq!(client.call(0x101, &[1; 8]), [1; 8]));
}

/// `cuIpc…` handles hold a number, by which the driver knows its own process's.
#[test]
fn workers_of_one_tenant_have_different_numbers_of_one_namespace() {
    if !has_layer_or_left_out("pid") {
        return;
    }
    let server = Oriond::start(&["--warm", "2", "--one-tenant"]);
    let clients = [Client::attach(&server, Transport::Shm), Client::attach(&server, Transport::Shm)];
    let [first, second] = [0, 1].map(|i| clients[i].welcome.worker_pid);
    let holder = server.holder().expect("it is there before the first worker");
    assert_eq!(HashSet::from([first, second, holder].map(|pid| namespace(pid, "pid"))).len(), 1);
    assert_ne!(namespace(first, "pid"), namespace(server.pid(), "pid"));
    assert_eq!(own_number(holder), 1);
    assert_ne!(own_number(first), own_number(second));
    let seen = seen_by(first);
    for pid in [holder, first, second] {
        assert!(seen.contains(&own_number(pid)), "{seen:?}");
    }
    assert!(!seen.contains(&server.pid()) && !seen.contains(&std::process::id()), "{seen:?}");
    // It is nobody's who runs there, and has nothing.
    assert_ne!(status(holder, "Uid"), status(first, "Uid"));
    assert_eq!((status(holder, "CapEff"), status(holder, "NoNewPrivs")), ("0".repeat(16), "1".into()));
    assert_eq!(descriptors(holder).iter().filter(|path| *path != &PathBuf::from("/dev/null")).count(), 1);
}

#[test]
fn a_holder_that_ends_takes_its_workers_along_and_another_takes_its_place() {
    if !has_layer_or_left_out("pid") {
        return;
    }
    let server = Oriond::start(&["--one-tenant"]);
    for _ in 0..3 {
        let mut client = Client::attach(&server, Transport::Shm);
        let (holder, worker) = (server.holder().expect("there are workers"), client.welcome.worker_pid);
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(holder as i32, libc::SIGKILL) };
        while client.reply_or_lost().is_some() {}
        server.wait_for_log(&["WARN", "worker died", &format!("worker={worker} "), "signal 9"]);
        server.wait_for_log(&["WARN", "another is started", &format!("holder={holder}")]);
        let mut client = Client::attach(&server, Transport::Shm);
        assert_eq!(client.call(0x101, &[1; 8]), [1; 8]);
        let worker = client.welcome.worker_pid;
        assert!(!seen_by(worker).is_empty() && own_number(worker) > 1);
        // Its /proc is not piled on those of before.
        let mounts = std::fs::read_to_string(format!("/proc/{worker}/mountinfo")).expect("root looks");
        assert_eq!(mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/proc")).count(), 2, "{mounts}");
        wait_until("the old one to be reaped", || !is_alive(holder));
    }
}

#[test]
fn no_process_is_left_of_an_oriond_that_was_killed_or_told_to_end() {
    for arguments in [&["--warm", "2"][..], &["--warm", "2", "--one-tenant"]] {
        for signal in [libc::SIGKILL, libc::SIGTERM] {
            let server = Oriond::start(arguments);
            let _client = Client::attach(&server, Transport::Shm);
            wait_until("all workers", || server.workers().len() == 3);
            let mut all = server.workers();
            all.extend(server.holder());
            // SAFETY: a signal to our own child.
            unsafe { libc::kill(server.pid() as i32, signal) };
            for pid in all {
                wait_until("its end", || !runs(pid));
            }
        }
    }
}

/// A number of one of a memory cgroup's files, by its name in either version; none if it is no number.
fn bytes_of(group: &Path, names: [&str; 2]) -> Option<u64> {
    let text = names.iter().find_map(|name| std::fs::read_to_string(group.join(name)).ok()).expect("a file of both");
    text.trim().parse().ok()
}

fn limit_of(group: &Path) -> Option<u64> {
    // What version 1 has where there is none is more than any machine has.
    bytes_of(group, ["memory.max", "memory.limit_in_bytes"]).filter(|bytes| *bytes < 1 << 60)
}

#[test]
fn a_worker_has_a_memory_cgroup_with_a_limit_from_its_session_on_and_it_goes_with_it() {
    if !has_layer_or_left_out("memory") {
        return;
    }
    const MIB: u64 = 1 << 20;
    let limits = ["--heap", "128 MiB", "--host-memory", "64 MiB"];
    let soft = &["--driver", "soft"][..];
    for (driver, device) in [(&["--one-tenant"][..], 0), (&["--engines", "1"][..], 0), (soft, 512)] {
        let arguments = [&limits[..], driver].concat();
        let environment = [("ORION_SOFT_MEMORY_MIB", "512"), ("ORION_SOFT_DEVICES", "1")];
        let server = Oriond::start_in(&environment, &arguments);
        server.wait_for_log(&["worker warm"]);
        let warm = memory_group(server.workers()[0]);
        assert_eq!(limit_of(&warm), None, "{}", warm.display());
        let used = |group: &_| bytes_of(group, ["memory.current", "memory.usage_in_bytes"]).expect("a number");
        let before = used(&warm);
        let client = Client::attach(&server, Transport::Shm);
        let group = memory_group(client.welcome.worker_pid);
        assert_eq!(group, warm, "the one that was warm");
        // What it had when its session began lies between that and what it has now, of which the kernel may have
        // dropped files meanwhile; and nothing of the heap.
        let (limit, after) = (limit_of(&group).expect("a limit"), used(&group));
        let most = (128 + 32 + 64 + 32 + 256 + device) * MIB + (160 + device) * MIB / 256;
        let (least, largest) = (before.min(after) + most - 16 * MIB, before.max(after) + most + 16 * MIB);
        assert!((least..=largest).contains(&limit), "{before}, then {after}, and {most} more: {limit}");
        let folder = group.parent().expect("oriond's").to_owned();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(name.starts_with(&format!("orion-{}", server.pid())), "{name}");
        wait_until("another worker", || server.workers().len() == 2);
        let other = server.workers().into_iter().find(|pid| *pid != client.welcome.worker_pid).expect("there are two");
        assert_ne!(memory_group(other), group);
        drop(client);
        wait_until("its memory cgroup to go", || !group.exists());
        assert!(folder.exists());
        let (_, log) = server.terminate();
        assert!(!folder.exists(), "{log}");
    }
}

#[test]
fn no_memory_cgroup_is_left_of_an_oriond_that_was_killed_or_told_to_end_or_did_not_serve() {
    if !has_layer_or_left_out("memory") {
        return;
    }
    for arguments in [&["--warm", "2"][..], &["--warm", "2", "--one-tenant"]] {
        let server = Oriond::start(arguments);
        let _client = Client::attach(&server, Transport::Shm);
        wait_until("all workers", || server.workers().len() == 3);
        let folder = memory_group(server.workers()[0]).parent().expect("oriond's").to_owned();
        let base = folder.parent().expect("where it was made").to_owned();
        // That of one that lives nobody else takes for one that was left.
        let next = Oriond::start(arguments);
        assert!(folder.exists());
        // Dropping it kills it.
        drop(server);
        let _another = Oriond::start(arguments);
        wait_until("its memory cgroups to go", || !folder.exists());
        drop(next);
        let mut refused = std::process::Command::new(env!("CARGO_BIN_EXE_oriond"))
            .args(["serve", "--driver", "echo", "--socket", "none", "--listen", "127.0.0.1:0"])
            .args(["--token-file", "/proc/no-such-file"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starting oriond");
        let of_refused = base.join(format!("orion-{}", refused.id()));
        assert!(!refused.wait().expect("it ends").success());
        assert!(!of_refused.exists());
    }
}

/// The first process of a namespace ignores what it has no handler for.
#[test]
fn a_worker_ends_by_each_signal_and_the_log_has_its_number() {
    let server = Oriond::start(&["--warm", "1"]);
    let numbers = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGRTMIN()];
    // nohup, and shells for what they start in the background, have some ignored by whatever comes of it.
    for number in numbers.into_iter().filter(|number| !is_ignored(*number)) {
        let mut client = Client::attach(&server, Transport::Shm);
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(client.welcome.worker_pid as i32, number) };
        while client.reply_or_lost().is_some() {}
        let worker = format!("worker={} ", client.welcome.worker_pid);
        server.wait_for_log(&["WARN", "worker died", &worker, &format!("signal {number}")]);
    }
}

fn is_ignored(number: i32) -> bool {
    // SAFETY: a place of our own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// By its own doing.
#[test]
fn a_worker_that_aborts_or_faults_is_in_the_log_with_the_signal() {
    let server = Oriond::start(&["--warm", "1"]);
    for (body, signal) in [(&[][..], "signal 6"), (&words(&[4096]), "signal 11")] {
        let mut client = Client::attach(&server, Transport::Shm);
        client.start(DIE, body);
        while client.reply_or_lost().is_some() {}
        let worker = format!("worker={} ", client.welcome.worker_pid);
        server.wait_for_log(&["WARN", "worker died", &worker, signal]);
        // Which command it was, and where in the code.
        server.wait_for_log(&[
            "WARN",
            "worker says",
            &worker,
            signal,
            &format!("({DIE:#x}) of thread "),
            "; at ",
            "+0x",
        ]);
    }
}
