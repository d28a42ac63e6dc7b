//! A whole oriond with sessions over both carriers on the software GPU, as `orion-probe` shows it.
#![cfg(feature = "libbpf")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orion_bpf::numbers::NO_OPCODE;
use orion_bpf::{Question, Report, Role};

const PROBE: &str = env!("CARGO_BIN_EXE_orion-probe");
const PATIENCE: Duration = Duration::from_secs(60);

fn built() -> PathBuf {
    let dataplane = ["oriond", "orion-run", "orion-shim", "orion-cupti", "orion-nvml", "orion-soft"];
    orion_built::packages(&[&dataplane[..], &["orion-conformance"]].concat())
}

struct Oriond {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Oriond {
    fn start(built: &Path) -> Oriond {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("orion-bpf-oriond-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let free = orion_built::steady_port();
        let mut command = Command::new(built.join("oriond"));
        command.args(["serve", "--driver", "soft", "--insecure", "--warm", "2", "--socket"]);
        command.arg(folder.join("oriond.sock")).args(["--listen", &format!("127.0.0.1:{free}")]);
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("oriond starts");
        let oriond = Oriond { child, folder, port: free };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", oriond.port)).is_err() || !oriond.socket().exists() {
            assert!(Instant::now() < end, "oriond does not start:\n{}", oriond.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        oriond
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("oriond.sock")
    }

    /// What `orion-probe` says of it.
    fn look(&self, options: &[&str]) -> String {
        let mut probe = Command::new(PROBE);
        let output = probe.args(["--pid", &self.child.id().to_string()]).args(options).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Oriond {
    fn drop(&mut self) {
        // SAFETY: a signal to our own child, which is not reaped yet.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sessions one after the other, until somebody says that it is enough.
fn use_it(built: &Path, server: &str, is_enough: &AtomicBool) {
    while !is_enough.load(Ordering::Relaxed) {
        let mut run = Command::new(built.join("orion-run"));
        run.args(["--server", server, "--"]).arg(built.join("orion-facts"));
        // Files that several programs map are registered where they run beside their GPU.
        run.args(["--quiet", "--only", "copy,stream", "--skip", "shared_file"]);
        let output = run.output().expect("orion-run starts");
        assert!(output.status.success(), "over {server}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn sessions_connections_and_completions_are_seen() {
    // orion-probe mounts tracefs for itself.
    let _ = orion_bpf::tracefs::mount_here();
    if let Some(why) = Question::ALL.into_iter().find_map(|question| question.check().err()) {
        return eprintln!("not tried: {why}");
    }
    let built = built();
    let oriond = Oriond::start(&built);
    let servers = [format!("unix:{}", oriond.socket().display()), format!("tcp:127.0.0.1:{}", oriond.port)];
    let is_enough = AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        servers.iter().for_each(|server| drop(scope.spawn(|| use_it(&built, server, &is_enough))));
        let text = oriond.look(&["--seconds", "8", "--json"]);
        let is_shown = oriond.look(&["--seconds", "1"]);
        is_enough.store(true, Ordering::Relaxed);
        assert!(is_shown.contains("completed by io_uring") && is_shown.contains("of one core"), "{is_shown}");
        text
    });
    let report: Report = serde_json::from_str(&text).expect("a report");
    assert_eq!(report.questions, &Question::ALL[..5], "{text}");
    assert_eq!((report.lost, report.left_out, report.notes.len()), (0, 0, 0), "{text}");

    let of = |role| report.threads.iter().filter(move |threads| threads.role == role).collect::<Vec<_>>();
    assert_eq!(of(Role::Engine).len(), 1);
    for times in [of(Role::Engine)[0].run_queue, of(Role::Engine)[0].asleep.map(|asleep| asleep.0)] {
        assert!(times.is_some_and(|times| times.count > 0 && times.sum_ns > 0), "{text}");
    }
    let executors: Vec<_> = of(Role::Executor).into_iter().filter(|threads| threads.session.is_some()).collect();
    assert!(executors.len() >= 2, "{text}");
    assert!(executors.iter().any(|threads| threads.run_queue.is_some_and(|times| times.count > 0)), "{text}");
    // A session over shared memory, whose client is on this machine too.
    let is_of_a_session = |client: &&orion_bpf::report::Threads| executors.iter().any(|e| e.session == client.session);
    assert!(of(Role::Client).iter().any(|c| c.name == "orion-facts" && is_of_a_session(c)), "{text}");

    let engines: Vec<_> = report.completions.iter().filter(|c| c.role == Role::Engine).collect();
    // Each connection is one more result of one request to accept them.
    let accepted = engines.iter().filter(|c| [13, NO_OPCODE].contains(&c.opcode));
    assert!(accepted.map(|c| c.count - c.failures).sum::<u64>() > 1, "{text}");
    let received: u64 = engines.iter().filter(|c| [10, 27].contains(&c.opcode)).map(|c| c.bytes).sum();
    assert!(received > 1000, "{text}");

    let connections = report.connections.iter().filter(|c| c.port == oriond.port && c.peer.ip().is_loopback());
    assert!(connections.clone().any(|c| c.round_trips.count > 0 && c.smoothed_ns > 0), "{text}");
    assert!(connections.map(|c| c.retransmits).sum::<u64>() < 100, "{text}");
    assert!(report.cost_is_known && report.cost.iter().any(|c| c.runs > 1000 && c.ns > 0), "{text}");
}

/// A program that copies there and back until its input ends.
struct Load(Child);

impl Load {
    fn start(built: &Path, server: &str) -> Load {
        let mut run = Command::new(built.join("orion-run"));
        run.args(["--server", server, "--"]).arg(built.join("examples/load")).arg("copies");
        let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("orion-run starts");
        let mut line = String::new();
        let said = child.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Load(child)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Of a process's TCP sockets, as the system shows them.
fn ports_of(pid: u32) -> BTreeSet<u16> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let links: Vec<String> =
        entries.filter_map(|e| Some(std::fs::read_link(e.path()).ok()?.to_str()?.to_owned())).collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("it runs");
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_its = links.contains(&format!("socket:[{}]", words[9]));
        is_its.then(|| u16::from_str_radix(&words[1][9..], 16).expect("a port"))
    };
    table.lines().skip(1).filter_map(port).collect()
}

#[test]
fn connections_of_two_sessions_over_tcp_are_told_apart() {
    if let Err(why) = Question::Tcp.check() {
        return eprintln!("not tried: {why}");
    }
    let built = built();
    orion_built::build(&["-p", "orion-top", "--example", "load"]);
    let oriond = Oriond::start(&built);
    let server = format!("tcp:127.0.0.1:{}", oriond.port);
    let _loads = [Load::start(&built, &server), Load::start(&built, &server)];
    let text = oriond.look(&["--ask", "tcp", "--seconds", "3", "--json"]);
    let report: Report = serde_json::from_str(&text).expect("a report");
    assert_eq!(report.notes, Vec::<String>::new());

    // Each program is found by its connections, and the ports of these are those that the system shows.
    let programs = report.threads.iter().filter(|t| t.role == Role::Client && t.name == "load");
    let programs: Vec<(u64, u32)> = programs.map(|t| (t.session.expect("its session"), t.process)).collect();
    assert_eq!(programs.iter().map(|(session, _)| session).collect::<BTreeSet<_>>().len(), 2, "{text}");
    for (session, process) in &programs {
        let its: Vec<_> = report.connections.iter().filter(|c| c.session == Some(*session)).collect();
        let ports = its.iter().map(|c| c.peer.port()).collect::<BTreeSet<_>>();
        assert_eq!(ports, ports_of(*process), "of session {session}: {text}");
        assert!(its.iter().filter(|c| c.lane.is_none()).count() == 1 && its.len() > 1, "{text}");
        let sum = report.sessions.iter().find(|s| s.session == *session).expect("a sum");
        assert_eq!((sum.program.as_str(), sum.connections), ("load", its.len() as u64));
        assert_eq!(sum.received, its.iter().map(|c| c.received).sum::<u64>());
        assert_eq!(sum.round_trips.count, its.iter().map(|c| c.round_trips.count).sum::<u64>());
    }
    assert!(report.connections.iter().all(|c| c.session.is_some()), "{text}");
    assert_eq!(report.sessions.len(), 2);

    let text = oriond.look(&["--ask", "tcp", "--seconds", "1"]);
    println!("{text}");
    assert!(
        text.contains("TCP by session") && text.contains("load (main)") && text.contains("load (lane 0)"),
        "{text}"
    );
    // A socket that is none.
    let text = oriond.look(&["--ask", "tcp", "--seconds", "1", "--stats", "/dev/null"]);
    assert!(text.contains("whose a connection is is not known"), "{text}");
    assert!(!text.contains("load (main)"), "{text}");
}
