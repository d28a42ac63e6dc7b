//! A worker that somebody has taken over: what he still cannot do. The worker makes whatever system calls the test
//! sends, on the thread that executes commands or on every thread there is; that is all that foreign code in it could
//! do to the rest of the machine. Each test is a row of SPECIFICATION.md.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;

use orion_wire::{Reader, Writer};

use crate::harness::{Client, Oriond, Transport, has_layer_or_left_out, is_root, is_root_or_left_out};
use crate::harness::{memory_group, wait_until};

/// Of `cell/takeover.rs`.
const OP: u16 = 0x7fe0;
const HERE: u64 = 0;
const ON_EVERY_THREAD: u64 = 1;

/// One argument of a system call.
enum Argument<'a> {
    Value(i64),
    /// The address of these bytes in the worker.
    Bytes(&'a [u8]),
}
use Argument::{Bytes, Value};

/// How a worker that is closed answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Error(i32),
    /// Not on the list of system calls: it would have ended the session, had the test not caught it.
    OffTheList,
    Result(i64),
}
use Answer::{Error, OffTheList};

const REFUSED: Answer = Error(libc::EPERM);
const CLOSED: Answer = Error(libc::EACCES);
const UNKNOWN: Answer = Error(libc::ENOSYS);

struct Taken {
    server: Oriond,
    client: Client,
    other: Client,
}

impl Taken {
    /// On the driver of ORION_TEST_DRIVER where there is one: NVIDIA's has threads, descriptors and calls of its own.
    fn new(arguments: &[&str]) -> Taken {
        let driver = std::env::var("ORION_TEST_DRIVER").ok();
        let driver = driver.iter().flat_map(|driver| ["--driver", driver]);
        let arguments: Vec<&str> = driver.chain(arguments.iter().copied()).collect();
        let server = Oriond::start_in(&[("ORION_SOFT_TAKEOVER", "1")], &arguments);
        let client = Client::attach(&server, Transport::Shm);
        let other = Client::attach(&server, Transport::Shm);
        Taken { server, client, other }
    }

    fn call(&mut self, number: i64, arguments: &[Argument]) -> Answer {
        self.call_that_writes(number, arguments).0
    }

    /// The bytes of the arguments too, as they are then.
    fn call_that_writes(&mut self, number: i64, arguments: &[Argument]) -> (Answer, Vec<u8>) {
        let (result, trapped, _, bytes) = self.make(HERE, number, arguments);
        let answer = match result {
            _ if trapped => OffTheList,
            e if e < 0 => Error(-e as i32),
            result => Answer::Result(result),
        };
        (answer, bytes)
    }

    /// The number of threads that were all refused it, or the first other outcome.
    fn on_every_thread(&mut self, number: i64, arguments: &[Argument]) -> Result<u64, i64> {
        match self.make(ON_EVERY_THREAD, number, arguments) {
            (0, _, threads, _) => Ok(threads),
            (e, ..) => Err(e),
        }
    }

    /// Sends on a socket of the worker's, which that is the end of.
    fn send_from_worker(&mut self, socket: i64, bytes: &[u8]) {
        let arguments = [
            Value(socket),
            Bytes(bytes),
            Value(bytes.len() as i64),
            Value((libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).into()),
        ];
        self.client.start(OP, &request(HERE, libc::SYS_sendto, &arguments));
        while self.client.reply_or_lost().is_some() {}
    }

    fn make(&mut self, place: u64, number: i64, arguments: &[Argument]) -> (i64, bool, u64, Vec<u8>) {
        let reply = self.client.call(OP, &request(place, number, arguments));
        let mut r = Reader::new(&reply);
        let (result, trapped) = (r.word().expect("a result"), r.word().expect("a flag"));
        let bytes = r.bytes().expect("the scratch bytes").to_vec();
        (result as i64, trapped == 1, r.word().expect("a count"), bytes)
    }

    /// Nobody has harmed the other session: its worker answers, by the same op as the one that was taken over.
    fn other_goes_on(&mut self) {
        assert!(!self.other.call(OP, &request(HERE, libc::SYS_getpid, &[])).is_empty());
    }

    /// Those that /proc shows.
    fn processes(&mut self) -> Vec<u64> {
        let Answer::Result(folder) = self.open("/proc", libc::O_RDONLY | libc::O_DIRECTORY) else {
            panic!("without Landlock it can be listed");
        };
        let (mut all, room) = (Vec::new(), vec![0; 32 << 10]);
        loop {
            let arguments = [Value(folder), Bytes(&room), Value(room.len() as i64)];
            let (answer, bytes) = self.call_that_writes(libc::SYS_getdents64, &arguments);
            let Answer::Result(length @ 1..) = answer else { return all };
            let mut rest = &bytes[..length as usize];
            while !rest.is_empty() {
                // `struct linux_dirent64`: its own length behind two words, the name behind a byte.
                let length = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
                let name = std::ffi::CStr::from_bytes_until_nul(&rest[19..length]).expect("the kernel ends it");
                all.extend(name.to_str().ok().and_then(|name| name.parse::<u64>().ok()));
                rest = &rest[length..];
            }
        }
    }

    fn open(&mut self, path: &str, flags: i32) -> Answer {
        let arguments = [Value(libc::AT_FDCWD.into()), Bytes(path.as_bytes()), Value(flags.into()), Value(0o600)];
        self.call(libc::SYS_openat, &arguments)
    }

    #[track_caller]
    fn expect(&mut self, what: &str, number: i64, arguments: &[Argument], answer: Answer) {
        assert_eq!(self.call(number, arguments), answer, "{what}");
    }
}

fn request(place: u64, number: i64, arguments: &[Argument]) -> Vec<u8> {
    let (mut body, mut scratch) = (Vec::new(), Vec::new());
    body.word(place);
    body.word(number as u64);
    for i in 0..6 {
        match arguments.get(i).unwrap_or(&Value(0)) {
            Value(value) => {
                body.word(0);
                body.word(*value as u64);
            }
            Bytes(bytes) => {
                body.word(1);
                body.word(scratch.len() as u64);
                scratch.extend_from_slice(bytes);
                scratch.push(0);
                scratch.resize(scratch.len().next_multiple_of(16), 0);
            }
        }
    }
    body.bytes(&scratch);
    body
}

fn without<'a>(layers: &[&'a str]) -> Vec<&'a str> {
    layers.iter().flat_map(|layer| ["--isolation-off", layer]).collect()
}

/// Where nothing is closed, the same calls succeed: the tests below would see a hole.
#[test]
fn the_tests_of_a_taken_worker_see_what_is_open() {
    let mut taken = Taken::new(&without(&["user", "namespaces", "pid", "memory", "landlock", "seccomp"]));
    assert!(matches!(taken.open("/etc/passwd", libc::O_RDONLY), Answer::Result(_)));
    assert!(matches!(
        taken.call(libc::SYS_socket, &[Value(libc::AF_INET.into()), Value(libc::SOCK_STREAM.into())]),
        Answer::Result(_)
    ));
    let other = taken.other.welcome.worker_pid;
    taken.expect("kill", libc::SYS_kill, &[Value(other.into()), Value(0)], Answer::Result(0));
    taken.expect("getpid", libc::SYS_getpid, &[], Answer::Result(taken.client.welcome.worker_pid.into()));
    let (other, all) = (u64::from(other), taken.processes());
    assert!(all.contains(&other), "{all:?} without {other}");
    let executable = [Value(0), Value(4096), Value(7), Value(0x22), Value(-1), Value(0)];
    assert!(matches!(taken.call(libc::SYS_mmap, &executable), Answer::Result(_)));
    let passwd = [Value(libc::AT_FDCWD.into()), Bytes(b"/etc/passwd"), Value(0), Value(0)];
    assert_eq!(taken.on_every_thread(libc::SYS_openat, &passwd), Err(-i64::from(libc::EEXIST)));
}

fn opens_no_file(driver: &str) {
    let folder = std::env::temp_dir().join(format!("orion-takeover-{driver}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("creating a folder");
    // Everybody may read it, so it is not its owner that keeps the worker out.
    let token = folder.join("token");
    std::fs::write(&token, "a-token-of-some-length").expect("writing the token");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("opening the folder to all");
    let mut taken = Taken::new(&["--driver", driver]);
    let (oriond, other) = (taken.server.pid(), taken.other.welcome.worker_pid);
    let socket = taken.server.socket.display().to_string();
    let readable = [
        "/etc/passwd".to_owned(),
        "/etc/shadow".into(),
        "/etc/hostname".into(),
        "/proc/self/root/etc/passwd".into(),
        "/".into(),
        "/tmp".into(),
        "/root".into(),
        token.display().to_string(),
        "/proc/net/tcp".into(),
        "/proc/mounts".into(),
        "/proc/self/environ".into(),
        "/proc/self/net/tcp".into(),
        "/proc/self/task/self/net/tcp".into(),
        format!("/proc/{oriond}/cmdline"),
        format!("/proc/{oriond}/environ"),
        format!("/proc/{oriond}/mem"),
        format!("/proc/{other}/maps"),
        format!("/proc/{other}/mem"),
        format!("/proc/{other}/fd/0"),
        "/sys/fs/cgroup".into(),
        "/dev/mem".into(),
        "/dev/kmsg".into(),
        "/dev/shm".into(),
        env!("CARGO_BIN_EXE_oriond").into(),
    ];
    for path in &readable {
        if std::fs::symlink_metadata(path).is_ok() {
            // A link is denied where it leads, or before.
            let is_closed = |answer: Answer| match path.starts_with("/proc/") {
                // Other processes have other numbers there, or none.
                true => answer == CLOSED || answer == Error(libc::ENOENT),
                false => answer == CLOSED || answer == Error(libc::ENXIO),
            };
            let answer = taken.open(path, libc::O_RDONLY);
            assert!(is_closed(answer), "reading {path}: {answer:?}");
            let arguments = [Bytes(path.as_bytes()), Value(libc::O_RDONLY.into())];
            let answer = taken.call(libc::SYS_open, &arguments);
            assert!(is_closed(answer), "open({path}): {answer:?}");
        }
    }
    let new = folder.join("new").display().to_string();
    for path in [new.as_str(), "/tmp/orion-takeover", "/dev/shm/orion-takeover", "/proc/self/mem"] {
        let answer = taken.open(path, libc::O_RDWR | libc::O_CREAT);
        assert_eq!(answer, CLOSED, "writing {path}");
    }
    assert_eq!(taken.open(&token.display().to_string(), libc::O_WRONLY | libc::O_TRUNC), CLOSED);
    let token = token.display().to_string();
    let (path, other) = (Bytes(token.as_bytes()), new.as_bytes());
    taken.expect("unlink", libc::SYS_unlink, &[path], REFUSED);
    taken.expect("rename", libc::SYS_rename, &[Bytes(token.as_bytes()), Bytes(other)], REFUSED);
    taken.expect("link", libc::SYS_link, &[Bytes(token.as_bytes()), Bytes(other)], REFUSED);
    taken.expect("symlink", libc::SYS_symlink, &[Bytes(token.as_bytes()), Bytes(other)], REFUSED);
    taken.expect("mkdir", libc::SYS_mkdir, &[Bytes(other), Value(0o777)], REFUSED);
    taken.expect("mknod", libc::SYS_mknod, &[Bytes(other), Value(0o10777)], REFUSED);
    taken.expect("chmod", libc::SYS_chmod, &[Bytes(socket.as_bytes()), Value(0o777)], REFUSED);
    taken.expect("truncate", libc::SYS_truncate, &[Bytes(token.as_bytes())], OffTheList);
    taken.expect("chown", libc::SYS_chown, &[Bytes(token.as_bytes())], OffTheList);
    taken.expect("chroot", libc::SYS_chroot, &[Bytes(b"/tmp")], OffTheList);
    taken.expect("open_by_handle_at", libc::SYS_open_by_handle_at, &[Value(0)], OffTheList);
    taken.expect("name_to_handle_at", libc::SYS_name_to_handle_at, &[Value(0)], OffTheList);
    assert_eq!(std::fs::read_to_string(&token).expect("it is still there"), "a-token-of-some-length");
    // Whatever thread it gets hold of.
    let passwd = [Value(libc::AT_FDCWD.into()), Bytes(b"/etc/passwd"), Value(0), Value(0)];
    let threads = taken.on_every_thread(libc::SYS_openat, &passwd);
    assert!(threads.is_ok_and(|n| n >= 2), "{threads:?}");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_taken_worker_opens_no_file() {
    opens_no_file("echo");
}

#[test]
fn a_taken_worker_with_a_driver_opens_no_file() {
    opens_no_file("soft");
}

/// The kernel forgets files of /proc where memory is short, and rules about them with them.
#[test]
fn what_a_worker_reads_of_proc_it_still_reads_when_memory_was_short() {
    let mut taken = Taken::new(&[]);
    let readable = ["/proc/self/maps", "/proc/self/statm", "/proc/meminfo", "/proc/sys/vm/overcommit_memory"];
    for _ in 0..2 {
        for path in readable {
            let answer = taken.open(path, libc::O_RDONLY);
            let Answer::Result(file) = answer else { panic!("{path}: {answer:?}") };
            // What is open is not forgotten.
            taken.expect("close", libc::SYS_close, &[Value(file)], Answer::Result(0));
        }
        assert_eq!(taken.open("/proc/self/environ", libc::O_RDONLY), CLOSED);
        if let Err(e) = std::fs::write("/proc/sys/vm/drop_caches", "2") {
            eprintln!("having the kernel forget files failed: {e}");
        }
    }
}

/// What the driver needs for events that processes share; nothing else opens by that.
#[test]
fn sessions_of_one_tenant_share_memory_by_name_and_no_more() {
    let mut taken = Taken::new(&["--one-tenant"]);
    let path = format!("/dev/shm/orion-takeover-{}", std::process::id());
    assert!(matches!(taken.open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL), Answer::Result(_)));
    // The other sees it; without namespaces so does the host.
    let seen = if !std::path::Path::new(&path).exists() {
        format!("/proc/{}/root{path}", taken.other.welcome.worker_pid)
    } else {
        path
    };
    std::fs::remove_file(seen).expect("it made the file");
    assert_eq!(taken.open("/etc/passwd", libc::O_RDONLY), CLOSED);
    let uid = |client: &Client| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", client.welcome.worker_pid)).expect("it runs");
        status.lines().find(|l| l.starts_with("Uid:")).expect("the kernel says").to_owned()
    };
    assert_eq!(uid(&taken.client), uid(&taken.other));
}

#[test]
fn a_taken_worker_reaches_no_network() {
    let mut taken = Taken::new(&[]);
    let kinds = [
        ("TCP", libc::AF_INET, libc::SOCK_STREAM, 0),
        ("TCP over IPv6", libc::AF_INET6, libc::SOCK_STREAM, 0),
        ("UDP", libc::AF_INET, libc::SOCK_DGRAM, 0),
        ("raw", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ("packet", libc::AF_PACKET, libc::SOCK_RAW, 0),
        ("netlink", libc::AF_NETLINK, libc::SOCK_RAW, 0),
        ("unix", libc::AF_UNIX, libc::SOCK_STREAM, 0),
        ("vsock", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
    ];
    for (what, family, kind, protocol) in kinds {
        let arguments = [Value(family.into()), Value(kind.into()), Value(protocol.into())];
        taken.expect(what, libc::SYS_socket, &arguments, REFUSED);
        assert!(taken.on_every_thread(libc::SYS_socket, &arguments).is_ok(), "{what} on every thread");
    }
    // Nor does it use what it has for more than it is there for.
    let pair = [Value(libc::AF_UNIX.into()), Value(libc::SOCK_STREAM.into()), Value(0), Bytes(&[0; 8])];
    taken.expect("socketpair", libc::SYS_socketpair, &pair, REFUSED);
    for number in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_setsockopt] {
        taken.expect("a socket call", number, &[Value(3), Bytes(&[0; 16]), Value(16)], REFUSED);
    }
    let interfaces = [Value(3), Value(0x8912), Bytes(&[0; 64])];
    taken.expect("SIOCGIFCONF", libc::SYS_ioctl, &interfaces, REFUSED);
    taken.expect("splice", libc::SYS_splice, &[], OffTheList);
    taken.expect("sendmmsg", libc::SYS_sendmmsg, &[], OffTheList);
}

#[test]
fn a_taken_worker_reads_no_other_process() {
    let mut taken = Taken::new(&[]);
    for pid in [taken.server.pid(), taken.other.welcome.worker_pid, std::process::id(), 1] {
        let pid = i64::from(pid);
        let vector = [0u8; 16];
        let memory = [Value(pid), Bytes(&vector), Value(1), Bytes(&vector), Value(1), Value(0)];
        taken.expect("process_vm_readv", libc::SYS_process_vm_readv, &memory, OffTheList);
        taken.expect("process_vm_writev", libc::SYS_process_vm_writev, &memory, OffTheList);
        taken.expect("ptrace", libc::SYS_ptrace, &[Value(libc::PTRACE_ATTACH.into()), Value(pid)], OffTheList);
        taken.expect("pidfd_open", libc::SYS_pidfd_open, &[Value(pid), Value(0)], OffTheList);
        taken.expect("pidfd_getfd", libc::SYS_pidfd_getfd, &[Value(3), Value(0), Value(0)], OffTheList);
        taken.expect("kcmp", libc::SYS_kcmp, &[Value(pid), Value(pid)], OffTheList);
        taken.expect("process_madvise", libc::SYS_process_madvise, &[Value(3)], OffTheList);
        taken.expect("move_pages", libc::SYS_move_pages, &[Value(pid)], REFUSED);
        taken.expect("migrate_pages", libc::SYS_migrate_pages, &[Value(pid)], REFUSED);
        taken.expect("get_robust_list", libc::SYS_get_robust_list, &[Value(pid)], OffTheList);
        let answer = taken.open(&format!("/proc/{pid}/mem"), libc::O_RDWR);
        assert!(answer == CLOSED || answer == Error(libc::ENOENT), "{answer:?}");
    }
}

/// By its namespace alone.
#[test]
fn a_taken_worker_sees_no_other_process() {
    if !has_layer_or_left_out("pid") {
        return;
    }
    let mut taken = Taken::new(&without(&["landlock", "seccomp"]));
    taken.expect("getpid", libc::SYS_getpid, &[], Answer::Result(1));
    taken.expect("getppid", libc::SYS_getppid, &[], Answer::Result(0));
    assert_eq!(taken.processes(), [1]);
    names_nobody(&mut taken);
    taken.expect("kill of all", libc::SYS_kill, &[Value(-1), Value(0)], Error(libc::ESRCH));
    taken.other_goes_on();
}

#[test]
fn a_taken_worker_of_one_tenant_sees_the_tenant_s_alone() {
    if !has_layer_or_left_out("pid") {
        return;
    }
    let mut arguments = without(&["landlock", "seccomp"]);
    arguments.push("--one-tenant");
    let mut taken = Taken::new(&arguments);
    let Answer::Result(own) = taken.call(libc::SYS_getpid, &[]) else { panic!("it has a number") };
    let all = taken.processes();
    // What holds the namespace, the two, and one that is warm or about to be.
    assert!((3..=4).contains(&all.len()) && all.contains(&1) && all.contains(&(own as u64)), "{own} of {all:?}");
    names_nobody(&mut taken);
    // Of another user, and the first of the namespace.
    taken.expect("kill of the holder", libc::SYS_kill, &[Value(1), Value(9)], Error(libc::EPERM));
    let memory = taken.open("/proc/1/mem", libc::O_RDONLY);
    assert_eq!(memory, CLOSED);
    taken.other_goes_on();
}

/// The numbers by which the host knows processes are nobody's there.
fn names_nobody(taken: &mut Taken) {
    let workers = [&taken.client, &taken.other].map(|client| client.welcome.worker_pid);
    for pid in [taken.server.pid(), workers[0], workers[1], std::process::id()] {
        let of_nobody = Error(libc::ESRCH);
        let path = format!("/proc/{pid}");
        let pid = i64::from(pid);
        taken.expect("kill", libc::SYS_kill, &[Value(pid), Value(0)], of_nobody);
        taken.expect("pidfd_open", libc::SYS_pidfd_open, &[Value(pid), Value(0)], of_nobody);
        taken.expect("tgkill", libc::SYS_tgkill, &[Value(pid), Value(pid), Value(0)], of_nobody);
        taken.expect("ptrace", libc::SYS_ptrace, &[Value(libc::PTRACE_SEIZE.into()), Value(pid)], of_nobody);
        taken.expect("sched_getscheduler", libc::SYS_sched_getscheduler, &[Value(pid)], of_nobody);
        let status = [Bytes(path.as_bytes()), Bytes(&[0; 256])];
        taken.expect(&path, libc::SYS_stat, &status, Error(libc::ENOENT));
    }
}

/// Files' names may be asked about in a sealed worker too, and processes' were among them.
#[test]
fn a_sealed_worker_cannot_ask_which_processes_there_are() {
    if !has_layer_or_left_out("pid") {
        return;
    }
    let mut taken = Taken::new(&[]);
    for pid in [taken.server.pid(), taken.other.welcome.worker_pid, std::process::id()] {
        let path = format!("/proc/{pid}");
        let status = [Bytes(path.as_bytes()), Bytes(&[0; 256])];
        taken.expect(&path, libc::SYS_stat, &status, Error(libc::ENOENT));
    }
}

#[test]
fn a_taken_worker_signals_nobody_else() {
    let mut taken = Taken::new(&[]);
    for pid in [taken.server.pid(), taken.other.welcome.worker_pid, std::process::id()] {
        let pid = i64::from(pid);
        taken.expect("kill", libc::SYS_kill, &[Value(pid), Value(0)], REFUSED);
        taken.expect("kill of a group", libc::SYS_kill, &[Value(-pid), Value(0)], REFUSED);
        taken.expect("tgkill", libc::SYS_tgkill, &[Value(pid), Value(pid), Value(0)], REFUSED);
        taken.expect("tkill", libc::SYS_tkill, &[Value(pid), Value(0)], OffTheList);
        taken.expect("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[Value(pid)], OffTheList);
        taken.expect("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, &[Value(pid)], OffTheList);
        taken.expect("pidfd_send_signal", libc::SYS_pidfd_send_signal, &[Value(3)], OffTheList);
        // The kernel sends a signal to whom a descriptor says, when something arrives.
        let owner = [Value(3), Value(libc::F_SETOWN.into()), Value(pid)];
        taken.expect("F_SETOWN", libc::SYS_fcntl, &owner, REFUSED);
    }
    taken.expect("kill of all", libc::SYS_kill, &[Value(-1), Value(0)], REFUSED);
    taken.other_goes_on();
}

#[test]
fn a_taken_worker_starts_no_process_and_no_program() {
    let mut taken = Taken::new(&[]);
    taken.expect("fork", libc::SYS_fork, &[], REFUSED);
    taken.expect("vfork", libc::SYS_vfork, &[], REFUSED);
    taken.expect("clone", libc::SYS_clone, &[Value(libc::SIGCHLD.into())], REFUSED);
    taken.expect("clone3", libc::SYS_clone3, &[Bytes(&[0; 88]), Value(88)], UNKNOWN);
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID, libc::CLONE_NEWIPC] {
        let flags = i64::from(flag | libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND);
        taken.expect("clone into a namespace", libc::SYS_clone, &[Value(flags)], REFUSED);
        taken.expect("unshare", libc::SYS_unshare, &[Value(flag.into())], OffTheList);
    }
    taken.expect("setns", libc::SYS_setns, &[Value(3), Value(0)], OffTheList);
    taken.expect("execve", libc::SYS_execve, &[Bytes(b"/bin/sh"), Value(0), Value(0)], REFUSED);
    let Answer::Result(file) = taken.call(libc::SYS_memfd_create, &[Bytes(b"program"), Value(0)]) else {
        panic!("memory files are allowed");
    };
    let run = [Value(file), Bytes(b""), Value(0), Value(0), Value(libc::AT_EMPTY_PATH.into())];
    taken.expect("execveat", libc::SYS_execveat, &run, REFUSED);
    // Nor does it make code out of data.
    let map = |fd: i64, flags: i64, protection: i64| {
        [Value(0), Value(4096), Value(protection), Value(flags), Value(fd), Value(0)]
    };
    taken.expect("executable memory", libc::SYS_mmap, &map(-1, 0x22, 7), REFUSED);
    taken.expect("an executable file", libc::SYS_mmap, &map(file, 2, 5), REFUSED);
    let Answer::Result(page) = taken.call(libc::SYS_mmap, &map(-1, 0x22, 3)) else { panic!("memory is allowed") };
    taken.expect("mprotect", libc::SYS_mprotect, &[Value(page), Value(4096), Value(5)], REFUSED);
    taken.expect("pkey_mprotect", libc::SYS_pkey_mprotect, &[Value(page), Value(4096), Value(5)], REFUSED);
    taken.expect("remap_file_pages", libc::SYS_remap_file_pages, &[Value(page)], OffTheList);
    taken.expect("uselib", libc::SYS_uselib, &[Bytes(b"/lib")], OffTheList);
}

#[test]
fn a_taken_worker_gets_no_rights_back() {
    let mut taken = Taken::new(&[]);
    if is_root() {
        assert_ne!(taken.call(libc::SYS_getuid, &[]), Answer::Result(0));
    }
    for number in [
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setgroups,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_setsid,
        libc::SYS_setpgid,
    ] {
        taken.expect("changing the user", number, &[Value(0), Value(0), Value(0)], OffTheList);
    }
    taken.expect("capset", libc::SYS_capset, &[Bytes(&[0; 8]), Bytes(&[0xff; 24])], REFUSED);
    for option in [
        libc::PR_SET_DUMPABLE,
        libc::PR_SET_KEEPCAPS,
        libc::PR_SET_SECUREBITS,
        libc::PR_SET_PTRACER,
        libc::PR_SET_PDEATHSIG,
        libc::PR_SET_SECCOMP,
        libc::PR_CAP_AMBIENT,
        libc::PR_SET_MM,
        libc::PR_SET_CHILD_SUBREAPER,
    ] {
        taken.expect("prctl", libc::SYS_prctl, &[Value(option.into()), Value(1)], REFUSED);
    }
    // What closes the cell cannot be opened from inside, nor can the limits be raised.
    taken.expect("seccomp", libc::SYS_seccomp, &[Value(1)], OffTheList);
    taken.expect("landlock", libc::SYS_landlock_create_ruleset, &[], OffTheList);
    let limit = [0xff; 16];
    taken.expect("setrlimit", libc::SYS_setrlimit, &[Value(libc::RLIMIT_NOFILE.into()), Bytes(&limit)], REFUSED);
    let raise = [Value(0), Value(libc::RLIMIT_NOFILE.into()), Bytes(&limit), Value(0)];
    taken.expect("prlimit64", libc::SYS_prlimit64, &raise, REFUSED);
    let of_another = [Value(taken.server.pid().into()), Value(libc::RLIMIT_NOFILE.into()), Value(0), Bytes(&limit)];
    taken.expect("prlimit64 of another", libc::SYS_prlimit64, &of_another, REFUSED);
    let many = [Value(0), Value(libc::F_DUPFD.into()), Value(8192)];
    taken.expect("more descriptors than allowed", libc::SYS_fcntl, &many, Error(libc::EINVAL));
}

#[test]
fn a_taken_worker_reaches_no_other_part_of_the_kernel() {
    let mut taken = Taken::new(&[]);
    let off_the_list = [
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_adjtimex,
        libc::SYS_bpf,
        libc::SYS_clock_settime,
        libc::SYS_delete_module,
        libc::SYS_fanotify_init,
        libc::SYS_finit_module,
        libc::SYS_fsopen,
        libc::SYS_init_module,
        libc::SYS_io_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_ioperm,
        libc::SYS_iopl,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_memfd_secret,
        libc::SYS_modify_ldt,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_mq_open,
        libc::SYS_msgget,
        libc::SYS_open_tree,
        libc::SYS_pivot_root,
        libc::SYS_quotactl,
        libc::SYS_reboot,
        libc::SYS_request_key,
        libc::SYS_semget,
        libc::SYS_sethostname,
        libc::SYS_settimeofday,
        libc::SYS_swapon,
        libc::SYS_sync,
        libc::SYS_syslog,
        libc::SYS_umount2,
        libc::SYS_vhangup,
        libc::SYS_vmsplice,
        // Beyond the last one, and the numbers of the 32-bit interface to 64-bit processes.
        4095,
        0x4000_0000 | libc::SYS_getpid,
    ];
    for number in off_the_list {
        taken.expect(&format!("call {number}"), number, &[], OffTheList);
    }
    taken.expect("userfaultfd", libc::SYS_userfaultfd, &[Value(1)], UNKNOWN);
    taken.expect("io_uring_setup", libc::SYS_io_uring_setup, &[Value(8), Bytes(&[0; 120])], UNKNOWN);
    taken.expect("perf_event_open", libc::SYS_perf_event_open, &[Bytes(&[0; 128]), Value(0), Value(-1)], REFUSED);
    taken.expect("personality", libc::SYS_personality, &[Value(0)], REFUSED);
    taken.expect("shmget", libc::SYS_shmget, &[Value(0), Value(4096), Value(0o1666)], REFUSED);
    taken.other_goes_on();
}

const PIECE: u64 = 32 << 20;

impl Taken {
    /// The result of a call that may end the worker, which it then has not.
    fn call_or_lost(&mut self, number: i64, arguments: &[Argument]) -> Option<i64> {
        self.client.start(OP, &request(HERE, number, arguments));
        let (_, reply) = self.client.reply_or_lost()?;
        Some(Reader::new(&reply).word().expect("a result") as i64)
    }

    /// One piece more of memory of its own; none if that has ended the worker.
    fn maps_a_piece(&mut self) -> Option<i64> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let arguments =
            [Value(0), Value(PIECE as i64), Value(protection.into()), Value(flags.into()), Value(-1), Value(0)];
        self.call_or_lost(libc::SYS_mmap, &arguments).inspect(|at| assert!(*at > 0, "{at}"))
    }

    /// The same of a file in memory, which it never maps.
    fn fills_a_piece(&mut self) -> Option<i64> {
        let file = self.call_or_lost(libc::SYS_memfd_create, &[Bytes(b"hoard"), Value(0)])?;
        self.call_or_lost(libc::SYS_ftruncate, &[Value(file), Value(PIECE as i64)])?;
        let arguments = [Value(file), Value(0), Value(0), Value(PIECE as i64)];
        self.call_or_lost(libc::SYS_fallocate, &arguments).inspect(|code| assert_eq!(*code, 0))
    }

    /// How much of it he takes before that ends the worker, if it does.
    fn hoards(&mut self, a_piece: fn(&mut Taken) -> Option<i64>, most: u64) -> u64 {
        (0..most / PIECE).take_while(|_| a_piece(self).is_some()).count() as u64 * PIECE
    }
}

/// The kernel ends him, whatever he has done to the thread that counts what a worker has; this one has none.
#[test]
fn a_taken_worker_takes_no_more_host_memory_than_a_session_may() {
    if !has_layer_or_left_out("memory") {
        return;
    }
    // His heap, half as much again as the rest, the rings, and leeway; he has touched none of it before.
    const MAY_HAVE: u64 = (64 + 64 + 32 + 32 + 256) << 20;
    const ENOUGH: u64 = 2 * MAY_HAVE;
    let arguments = ["--driver", "echo", "--heap", "64 MiB", "--host-memory", "64 MiB"];
    for a_piece in [Taken::maps_a_piece, Taken::fills_a_piece] {
        let mut taken = Taken::new(&arguments);
        let pid = taken.client.welcome.worker_pid;
        let group = memory_group(pid);
        let has = taken.hoards(a_piece, ENOUGH);
        assert!((MAY_HAVE - 2 * PIECE..=MAY_HAVE + PIECE).contains(&has), "{} MiB", has >> 20);
        let worker = format!("worker={pid} ");
        taken.server.wait_for_log(&["WARN", "worker died", &worker, "it took more host memory than", "signal 9"]);
        taken.other_goes_on();
        wait_until("his memory cgroup to go", || !group.exists());
        // Without the layer he goes on.
        let mut taken = Taken::new(&[&arguments[..], &without(&["memory"])].concat());
        assert_eq!(taken.hoards(a_piece, ENOUGH), ENOUGH);
    }
}

#[test]
fn every_thread_of_a_worker_is_closed() {
    let mut taken = Taken::new(&["--driver", "soft"]);
    let pid = taken.client.welcome.worker_pid;
    // What the executor has started by now, and the warm driver before it.
    assert_eq!(taken.call(libc::SYS_gettid, &[]), taken.call(libc::SYS_getpid, &[]));
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).expect("the worker runs") {
        let status = std::fs::read_to_string(thread.expect("a thread").path().join("status")).expect("it runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("the kernel knows the field");
            line.trim().to_owned()
        };
        assert_eq!(
            (field("NoNewPrivs:"), field("Seccomp:"), field("Seccomp_filters:")),
            ("1".into(), "2".into(), "3".into())
        );
        assert_eq!((field("CapPrm:"), field("CapEff:")), ("0".repeat(16), "0".repeat(16)));
        threads += 1;
    }
    assert!(threads >= 2, "{threads}");
}

#[test]
fn a_call_off_the_list_ends_the_session_with_a_line_that_names_it() {
    let server = Oriond::start_in(&[("ORION_SOFT_TAKEOVER", "1")], &[]);
    let mut bystander = Client::attach(&server, Transport::Shm);
    let mut client = Client::attach(&server, Transport::Shm);
    let pid = client.welcome.worker_pid;
    let mut body = Vec::new();
    // As the driver would call it: with the worker's own handler.
    body.word(2);
    body.word(libc::SYS_unshare as u64);
    (0..12).for_each(|_| body.word(0));
    body.bytes(&[]);
    client.start(OP, &body);
    while client.reply_or_lost().is_some() {}
    server.wait_for_log(&[
        "WARN",
        "worker says",
        &format!("worker={pid}"),
        "system call 272 (unshare) is not on the list",
    ]);
    server.wait_for_log(&["WARN", "worker died", "exit 159"]);
    assert_eq!(bystander.call(0x101, &[1; 8]), [1; 8]);
}

/// A worker's descriptor of the socket to oriond, on which messages are packets.
fn control_of(server: &Oriond, worker: u32) -> i64 {
    socket_of(server, worker, "0005")
}

/// A descriptor of a worker's only local socket of a type, as the kernel's table has it. The table is read page by
/// page, and one that others change meanwhile may lack something.
fn socket_of(server: &Oriond, worker: u32, of_type: &str) -> i64 {
    let table = format!("/proc/{}/net/unix", server.pid());
    let mut sockets = BTreeSet::new();
    for _ in 0..5 {
        // Names of sockets may be any bytes, the ends of lines too.
        let lines = String::from_utf8_lossy(&std::fs::read(&table).expect("it runs")).into_owned();
        let words = lines.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        sockets.extend(words.filter(|w| w.len() > 6 && w[4] == of_type).map(|w| format!("socket:[{}]", w[6])));
    }
    let all = std::fs::read_dir(format!("/proc/{worker}/fd")).expect("root looks").flatten();
    let found: BTreeMap<String, String> = all
        .filter_map(|entry| {
            let to = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
            sockets.contains(&to).then(|| (to, entry.file_name().to_string_lossy().into_owned()))
        })
        .collect();
    let [number] = &found.values().collect::<Vec<_>>()[..] else { panic!("of type {of_type} it has {found:?}") };
    number.parse().expect("a number")
}

/// Each message is a wake-up of the engine that has the door, and of such messages there is no end.
#[test]
fn a_worker_says_once_that_it_has_settled() {
    if !is_root_or_left_out() {
        return;
    }
    let mut taken = Taken::new(&[]);
    let pid = taken.client.welcome.worker_pid;
    let mut message = Vec::new();
    message.word(6);
    taken.send_from_worker(control_of(&taken.server, pid), &message);
    taken.server.wait_for_log(&["WARN", "the worker said something unexpected", &format!("worker={pid}")]);
    taken.other_goes_on();
}

/// Each byte is a wake-up of the session's engine, and of bytes there is no end.
#[test]
fn a_worker_says_nothing_where_only_its_end_is_heard() {
    if !is_root_or_left_out() {
        return;
    }
    let server = Oriond::start_in(&[("ORION_SOFT_TAKEOVER", "1")], &[]);
    let mut taken = Taken {
        client: Client::attach(&server, Transport::Tcp),
        other: Client::attach(&server, Transport::Tcp),
        server,
    };
    let attach = socket_of(&taken.server, taken.client.welcome.worker_pid, "0001");
    taken.send_from_worker(attach, &[7]);
    taken.server.wait_for_log(&["session over"]);
    taken.other_goes_on();
}

/// Each GPU that it names would have a thread of oriond's, of which there is no end, and what its session owes of a
/// GPU's time would be forgotten.
#[test]
fn a_worker_says_once_which_gpus_its_session_has() {
    if !is_root_or_left_out() {
        return;
    }
    let mut taken = Taken::new(&["--driver", "soft", "--share", "30"]);
    let pid = taken.client.welcome.worker_pid;
    let control = control_of(&taken.server, pid);
    // That it has started, with vGPUs on GPUs that there are not.
    let mut message = Vec::new();
    message.word(5);
    message.word(8);
    (7000..7008).for_each(|gpu| [0, gpu, 1 << 30].into_iter().for_each(|word| message.word(word)));
    taken.send_from_worker(control, &message);
    taken.server.wait_for_log(&["WARN", "the worker said something unexpected", &format!("worker={pid}")]);
    taken.other_goes_on();
    let threads = std::fs::read_dir(format!("/proc/{}/task", taken.server.pid())).expect("it runs").flatten();
    let names: Vec<String> =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok()).collect();
    assert!(names.iter().any(|name| name == "arbiter-0\n"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("arbiter-7")), "{names:?}");
}
