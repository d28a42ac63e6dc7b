//! `libnvidia-ml.so.1`: what it says of the devices is what CUDA says, and no function of NVML's header is missing.

#[allow(dead_code, reason = "programs are started with an environment of their own here")]
mod orion;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// NVML's.
fn header() -> String {
    let toolchain = orion_built::root().join("dataplane/conformance/cuda-toolchain.sh");
    let output = Command::new(toolchain).arg("nvml").output().expect("cuda-toolchain.sh starts");
    assert!(output.status.success(), "no nvml.h: {}", orion::complaint(&output));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned() + "/nvml.h"
}

#[test]
fn nvml_says_of_the_devices_what_cuda_says() {
    let program = orion_built::build(&["-p", "orion-conformance", "--example", "ask_nvml"]).join("examples/ask_nvml");
    let header = header();
    for (transport, devices) in [("shm", "1"), ("tcp", "3")] {
        let mut run = orion::command(transport, &program, &[&header]);
        let output = run.env("ORION_SOFT_DEVICES", devices).output().expect("orion-run starts");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success() && text.contains("PASS"), "over {transport}: {text}{said}");
        assert!(text.contains(&format!("{devices} devices")), "over {transport}: {text}");
        let there =
            text.lines().find_map(|l| l.strip_suffix(" functions of the header are there")?.parse::<u32>().ok());
        assert!(there.is_some_and(|n| n >= 435), "{text}");
    }
    // Without a server it says what NVIDIA's says without a driver.
    let built = orion::built();
    let output = Command::new(&program)
        .env("LD_PRELOAD", format!("{0}/libnvidia_ml.so:{0}/libcuda.so", built.display()))
        .env("ORION_SERVER", "unix:/nonexistent/socket")
        .output()
        .expect("the program starts");
    let said = orion::complaint(&output);
    assert!(!output.status.success() && said.contains("left: 9"), "{said}");
}

/// Whatever a tool asks for and in whatever way, it hears a code of NVML's.
#[test]
fn every_function_answers_a_code_of_nvmls() {
    let server = Server::start("everything", &["--memory-limit", "512 MiB"]);
    let script = orion_built::root().join("dataplane/conformance/nvml/everything.py");
    let text = server.output(Path::new("python3"), &[script.to_str().expect("a path in letters"), &header()]);
    assert_eq!(text.lines().count(), 3, "{text}");
}

/// NCCL goes through the host's memory where it sees none.
#[test]
fn gpus_that_reach_each_other_as_by_nvlink_have_links() {
    let script = orion_built::root().join("dataplane/conformance/nvml/links.py");
    let script = script.to_str().expect("a path in letters");
    let said = |transport: &str, capability: &str, devices: &str| {
        let options = ["--capability", capability];
        let mut run = orion::command_with(transport, &options, Path::new("python3"), &[script]);
        let output = run.env("ORION_SOFT_DEVICES", devices).output().expect("orion-run starts");
        assert!(output.status.success(), "{}", orion::complaint(&output));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // Reading: yes; by NVLink: yes; by PCIe: not supported. As an H100's driver says of two.
    let linked = "18 FFFFFFFF:FF:FF.0 [[0, 0, 5]]";
    for transport in ["shm", "tcp"] {
        assert_eq!(said(transport, "9.0", "2"), [linked, linked], "{transport}");
    }
    assert_eq!(said("shm", "8.0", "2")[0], "12 FFFFFFFF:FF:FF.0 [[0, 0, 5]]");
    // Of what the session has not nothing is told, nor of a generation without links.
    assert_eq!(said("shm", "9.0", "1"), ["0 []"]);
    assert_eq!(said("shm", "7.5", "2")[0], "0 [[0, 0, 5]]");
}

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 512 * MIB;

/// A server of this test and its folder, which go when it ends.
struct Server {
    folder: PathBuf,
    oriond: Child,
    address: String,
}

impl Server {
    fn start(name: &str, options: &[&str]) -> Server {
        Server::start_with(name, Path::new("soft"), options)
    }

    fn start_with(name: &str, driver: &Path, options: &[&str]) -> Server {
        let folder = std::env::temp_dir().join(format!("orion-nvml-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder of this test's");
        let socket = folder.join("oriond.sock");
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut command = Command::new(orion::built().join("oriond"));
        command.args(["serve", "--listen", "none", "--driver"]).arg(driver);
        command.arg("--socket").arg(&socket).args(options);
        let oriond = command.stderr(log).spawn().expect("oriond starts");
        let server = Server { address: format!("unix:{}", socket.display()), folder, oriond };
        let began = std::time::Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed().as_secs() < 20, "oriond does not listen");
            std::thread::yield_now();
        }
        server
    }

    /// Runs what programs without a session of their own, and with one, are.
    fn command(&self, program: &Path) -> Command {
        let built = orion::built().display();
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", format!("{built}/libnvidia_ml.so:{built}/libcuda.so"))
            .env("ORION_SERVER", &self.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn python(&self, script: &str) -> Talk {
        let mut command = self.command(Path::new("python3"));
        Talk::with(command.arg(orion_built::root().join("dataplane/conformance/nvml").join(script)))
    }

    fn output(&self, program: &Path, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{}", orion::complaint(&output));
        text
    }

    /// The process of the session that began last.
    fn worker(&self) -> u32 {
        // It may be written a moment after the program has its session.
        self.until("a session", |server| server.log().contains("session begins"));
        let log = self.log();
        let line = log.lines().rfind(|line| line.contains("session begins")).expect("a session");
        let worker = line.split_whitespace().find_map(|word| word.strip_prefix("worker="));
        worker.and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("no worker: {line}"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("its log")
    }

    /// Of the one session, where it is told.
    fn metric(&self, name: &str) -> Option<f64> {
        let log = self.log();
        let (_, rest) = log.split_once("serving metrics").expect("it has --metrics");
        let at = rest.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("it says where");
        let mut connection = std::net::TcpStream::connect(at).expect("it listens");
        write!(connection, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes it");
        let mut text = String::new();
        connection.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit(' ').next().and_then(|value| value.parse().ok())
    }

    fn until(&self, what: &str, is_so: impl Fn(&Server) -> bool) {
        let began = std::time::Instant::now();
        while !is_so(self) {
            assert!(began.elapsed().as_secs() < 20, "{what}: {}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn sessions_begun(&self) -> usize {
        let log = self.log();
        log.lines().filter(|line| line.contains("session begins")).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.oriond.kill();
        let _ = self.oriond.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that answers a line with a line.
struct Talk {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Talk {
    fn with(command: &mut Command) -> Talk {
        let mut child = command.spawn().expect("it starts");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Talk { child, to, from: BufReader::new(from) }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("it listens");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes in all and used, and those of each process.
fn seen(line: &str) -> (u64, u64, Vec<(u32, u64)>) {
    let (numbers, processes): (Vec<&str>, Vec<&str>) = line.split(' ').partition(|word| !word.contains(':'));
    let of = |word: &&str| word.split_once(':').map(|(pid, used)| (pid.parse().unwrap(), used.parse().unwrap()));
    (numbers[0].parse().unwrap(), numbers[1].parse().unwrap(), processes.iter().filter_map(of).collect())
}

#[test]
fn nvml_beside_running_programs_agrees_with_them_to_the_byte_and_takes_no_worker() {
    let server = Server::start("beside", &["--memory-limit", "512 MiB"]);
    let mut look = server.python("look.py");
    // As long as nothing runs it is what a program would have.
    assert_eq!(seen(&look.ask("")), (LIMIT, 0, vec![]));
    assert_eq!(server.sessions_begun(), 0);
    let (mut a, mut b) = (server.python("hold.py"), server.python("hold.py"));
    assert_eq!((a.hear(), b.hear()), (format!("0 {LIMIT}"), format!("0 {LIMIT}")));
    let used = |line: String| line.split(' ').next().expect("a number").parse::<u64>().expect("a number");
    // Sizes that the driver rounds.
    let of_a = used(a.ask("alloc 1 513 1000000 70000001"));
    let of_b = used(b.ask("alloc 33333333"));
    assert!(of_a > 71_000_514 && of_b >= 33_333_333, "{of_a} {of_b}");
    let mut both = vec![(a.pid(), of_a), (b.pid(), of_b)];
    both.sort_unstable();
    assert_eq!(seen(&look.ask("")), (2 * LIMIT, of_a + of_b, both));
    assert_eq!(used(a.ask("free")), 0);

    // While one allocates and frees, others see what it had at some moment: whole steps, never more than it ever had.
    a.say("churn 20000");
    let mut found = std::collections::BTreeSet::new();
    let mut looks = 0;
    while looks < 2000 && found.len() < 4 {
        let (total, all, processes) = seen(&look.ask(""));
        let (_, of_a) = processes.into_iter().find(|(pid, _)| *pid == a.pid()).expect("it runs");
        assert!(of_a <= 8 * MIB && of_a.is_multiple_of(MIB), "{of_a}");
        assert!(total == 2 * LIMIT && all >= of_b && all <= of_b + 8 * MIB, "{total} {all}");
        found.insert(of_a);
        looks += 1;
    }
    assert!(found.len() > 1, "in {looks} looks it had {found:?}");
    assert_eq!(used(a.hear()), 0);
    assert_eq!(seen(&look.ask("")).1, of_b);
    drop(b);
    // The worker of what has ended takes a moment to end.
    while seen(&look.ask("")).0 != LIMIT {}
    assert_eq!(seen(&look.ask("")), (LIMIT, 0, vec![(a.pid(), 0)]));
    assert_eq!(server.sessions_begun(), 2);
}

/// The folder of `nvidia-smi` and others.
fn tools() -> PathBuf {
    let toolchain = orion_built::root().join("dataplane/conformance/cuda-toolchain.sh");
    let output = Command::new(toolchain).arg("nvml-tools").output().expect("cuda-toolchain.sh starts");
    assert!(output.status.success(), "no tools: {}", orion::complaint(&output));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}

/// A busy machine has no time for the program's part now and then.
fn sees(what: &str, range: std::ops::RangeInclusive<u32>, mut seen: impl FnMut() -> u32) {
    let (began, mut all) = (std::time::Instant::now(), Vec::new());
    while all.last().is_none_or(|percent| !range.contains(percent)) {
        assert!(began.elapsed().as_secs() < 20, "{what}: {all:?}");
        all.push(seen());
    }
}

/// A program that keeps the GPU busy, and what is said of it: in it, beside it, of the device and of the process. It is
/// between these percents while it works, and it works less than half of the last second where it pauses.
fn utilization_is_told(server: &Server, busy: std::ops::RangeInclusive<u32>) {
    let tools = tools();
    let fields = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"];
    let seen = || {
        let text = server.output(&tools.join("nvidia-smi"), &fields);
        text.trim_end().parse::<u32>().unwrap_or_else(|_| panic!("no number: {text}"))
    };
    assert_eq!(seen(), 0, "nobody's programs keep it busy");
    let mut program = server.python("hold.py");
    program.hear();
    let pid = program.pid().to_string();
    sees("before it works", 0..=0, seen);
    // It asks when the work is over, so that a part of the second is idle.
    sees("in the program", busy.start() / 2..=*busy.end(), || program.ask("busy 1.5").parse().expect("a number"));
    program.say("work 25");
    sees("while it works", busy.clone(), seen);
    let script = "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); \
                  p = n.nvmlDeviceGetProcessUtilization(h, 0)[0]; print(p.pid, p.smUtil)";
    sees("of the program", busy.start() / 2..=*busy.end(), || {
        let said = server.output(&tools.join("bin/python"), &["-c", script]);
        let of_program = said.trim_end().strip_prefix(&format!("{pid} ")).and_then(|busy| busy.parse().ok());
        of_program.unwrap_or_else(|| panic!("no number: {said}"))
    });
    program.hear();
    sees("when it has ended", 0..=0, seen);
}

/// A session that may have half of the GPU's time uses that, and shows it.
#[test]
fn utilization_is_told_where_the_gpus_time_is_divided() {
    utilization_is_told(&Server::start("divided", &["--share", "50", "--throttle-level", "0"]), 40..=60);
}

#[test]
fn utilization_is_told_where_the_gpus_time_is_not_divided() {
    utilization_is_told(&Server::start("undivided", &[]), 80..=100);
}

/// A library of a test's in place of NVML, and what it says.
struct Fake {
    folder: PathBuf,
}

impl Fake {
    fn new(name: &str) -> Fake {
        let folder = std::env::temp_dir().join(format!("orion-nvml-fake-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of this test's");
        let fake = Fake { folder };
        let source = orion_built::root().join("dataplane/conformance/nvml/fake_nvml.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&fake.library(), &source]).output();
        let made = made.expect("there is a C compiler");
        assert!(made.status.success(), "{made:?}");
        fake.says("");
        fake
    }

    fn library(&self) -> PathBuf {
        self.folder.join("fake.so")
    }

    fn says(&self, text: &str) {
        std::fs::write(self.folder.join("new"), text).expect("writing");
        std::fs::rename(self.folder.join("new"), self.folder.join("fake.so.says")).expect("renaming");
    }

    /// A server with it, for which the software GPU's library stands in for a driver's, which does not say itself when
    /// it works, and what it has given.
    fn server(&self, name: &str, options: &[&str]) -> Server {
        let driver = orion_built::build(&["-p", "orion-soft"]).join("liborion_soft.so");
        let library = self.library();
        let own = ["--nvml", library.to_str().expect("a path in letters")];
        Server::start_with(name, &driver, &[&own[..], options].concat())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn utilization_is_what_nvml_says_of_the_worker_and_unknown_where_it_says_nothing() {
    let fake = Fake::new("utilization");
    let says = |text: &str| fake.says(text);
    let server = fake.server("nvml", &[]);
    let smi = |arguments: &[&str]| server.output(&tools().join("nvidia-smi"), arguments);
    let fields = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"];
    let seen = || smi(&fields).trim_end().to_owned();
    let listed = smi(&["-L"]);
    let uuid =
        listed.split_once("UUID: ").and_then(|(_, rest)| rest.split(')').next()).expect("it is listed").to_owned();
    let mut program = server.python("hold.py");
    program.hear();
    let until = |what: &str, expected: &str| {
        let (began, mut last) = (std::time::Instant::now(), seen());
        while last != expected {
            assert!(began.elapsed().as_secs() < 20, "{what}: {last}");
            last = seen();
        }
    };
    until("it does not know the GPU", "[N/A]");
    let worker = server.worker();
    says(&format!("gpu {uuid} 90 5 4096\nprocess 1\nsample 1 90\n"));
    until("the worker is in another pid namespace", "[N/A]");
    says(&format!("gpu {uuid} 90 5 4096\nprocess 1\nsample 1 23\nprocess {worker}\nsample {worker} 67\n"));
    until("it worked", "67");
    says(&format!("gpu {uuid} 90 5 4096\nprocess 1\nsample 1 23\nprocess {worker}\n"));
    until("it was idle", "0");
    // A GPU that hangs makes it unknown, and keeps nobody.
    says("stuck\n");
    until("NVML does not answer", "[N/A]");
    assert_eq!(program.ask("alloc 4096").split(' ').count(), 2);
}

/// What its worker's process has by NVML's word is held against what the ledger counts.
#[test]
fn memory_that_the_driver_has_given_and_the_ledger_lacks_is_a_counter_and_a_line() {
    let fake = Fake::new("drift");
    let server = fake.server("drift", &["--memory-limit", "512 MiB", "--metrics", "0"]);
    let listed = server.output(&tools().join("nvidia-smi"), &["-L"]);
    let uuid = listed.split_once("UUID: ").and_then(|(_, rest)| rest.split(')').next()).expect("it is listed");
    let mut program = server.python("hold.py");
    program.hear();
    let worker = server.worker();
    let says = |mib: u64| fake.says(&format!("gpu {uuid} 0 0 4096\nprocess 1 7\nprocess {worker} {}\n", mib * MIB));
    assert_eq!(server.metric("orion_session_memory_drifts_total"), None, "NVML does not know its worker");
    server.until("that is said", |server| server.log().contains("NVML does not say what memory the worker's"));
    // Of the worker's context, and then of what it allocates too.
    says(300);
    let metrics = ["orion_session_memory_drifts_total", "orion_session_memory_lacking_bytes"];
    server.until("it is compared", |server| metrics.map(|name| server.metric(name)) == [Some(0.0); 2]);
    assert_eq!(program.ask(&format!("alloc {}", 200 * MIB)), format!("{} {LIMIT}", 200 * MIB));
    says(500);
    server.until("what the ledger counts is told", |server| {
        server.metric("orion_vgpu_memory_used_bytes") == Some((200 * MIB) as f64)
    });
    says(500 + 300);
    let lacking = (300 * MIB) as f64;
    server.until("a drift", |server| metrics.map(|name| server.metric(name)) == [Some(1.0), Some(lacking)]);
    // It is written behind whoever counts.
    let drifts = "more memory than its ledger counts";
    server.until("its line", |server| server.log().contains(drifts));
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(drifts)).collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    for word in [&format!("lacks_bytes={}", 300 * MIB), &format!("gpu=\"{uuid}\""), "WARN"] {
        assert!(line.contains(word), "no {word}: {line}");
    }
    assert_eq!(log.matches("NVML does not say what memory").count(), 1);
    says(500);
    server.until("it is over", |server| server.metric(metrics[1]) == Some(0.0));
    assert_eq!(server.metric(metrics[0]), Some(1.0));
    program.ask("free");
}

#[test]
fn the_software_gpus_worker_says_itself_that_nothing_is_lacking() {
    let server = Server::start("says", &["--memory-limit", "512 MiB", "--metrics", "0"]);
    let mut program = server.python("hold.py");
    program.hear();
    program.ask(&format!("alloc {}", 200 * MIB));
    let metrics = ["orion_session_memory_drifts_total", "orion_session_memory_lacking_bytes"];
    assert_eq!(metrics.map(|name| server.metric(name)), [Some(0.0); 2]);
}

#[test]
fn what_a_session_without_a_limit_uses_is_what_nvml_says_of_its_worker() {
    let fake = Fake::new("whole");
    let server = fake.server("whole", &["--metrics", "0"]);
    let listed = server.output(&tools().join("nvidia-smi"), &["-L"]);
    let uuid = listed.split_once("UUID: ").and_then(|(_, rest)| rest.split(')').next()).expect("it is listed");
    let mut program = server.python("hold.py");
    program.hear();
    program.ask(&format!("alloc {}", 200 * MIB));
    fake.says(&format!("gpu {uuid} 0 0 4096\nprocess {} {}\n", server.worker(), 777 * MIB));
    server.until("NVML's word", |server| server.metric("orion_vgpu_memory_used_bytes") == Some((777 * MIB) as f64));
    assert_eq!(server.metric("orion_session_memory_drifts_total"), None, "there is no ledger");
    // Without it, what the worker has seen of the whole GPU.
    fake.says(&format!("gpu {uuid} 0 0 4096\nprocess {}\n", server.worker()));
    server.until("the GPU's", |server| server.metric("orion_vgpu_memory_used_bytes") == Some((200 * MIB) as f64));
}

/// Two GPUs that NVLink joins, two vGPUs on one GPU, and one alone.
#[test]
fn nvidia_smi_shows_how_far_vgpus_are_from_each_other() {
    let smi = tools().join("nvidia-smi");
    let smi = smi.to_str().expect("a path in letters");
    let matrix = |devices: &str, options: &[&str]| {
        let mut run = orion::command_with("shm", options, Path::new(smi), &["topo", "-m"]);
        let output = run.env("ORION_SOFT_DEVICES", devices).output().expect("orion-run starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", orion::complaint(&output));
        let rows = text.lines().filter(|line| line.starts_with("GPU"));
        let words = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
        rows.map(words).collect::<Vec<_>>()
    };
    // Behind the GPUs, the processors that are near: all of this machine.
    let all = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("Linux says which processors there are");
    let pair = |link: &str| [format!("GPU0 X {link} {}", all.trim()), format!("GPU1 {link} X {}", all.trim())];
    assert_eq!(matrix("2", &["--capability", "9.0"]), pair("NV18"));
    assert_eq!(matrix("2", &["--capability", "7.5"]), pair("SYS"));
    assert_eq!(matrix("1", &["--vgpus", "2", "--memory-limit", "512 MiB"]), pair("PIX"));
    assert_eq!(matrix("1", &[])[0].split_whitespace().take(3).last(), Some(all.trim()));
}

#[test]
fn nvidia_smi_and_its_kin_show_a_running_program() {
    let tools = tools();
    let server = Server::start("tools", &["--memory-limit", "512 MiB"]);
    let mut program = server.python("hold.py");
    program.hear();
    assert_eq!(program.ask(&format!("alloc {}", 100 * MIB)), format!("{} {LIMIT}", 100 * MIB));
    let pid = program.pid().to_string();
    let smi = |arguments: &[&str]| server.output(&tools.join("nvidia-smi"), arguments);

    let text = smi(&[]);
    for words in ["Orion software GPU", "100MiB /   512MiB", "CUDA Version: 13.0", "Default"] {
        assert!(text.contains(words), "no {words}: {text}");
    }
    let line = text.lines().find(|line| line.contains(&pid)).unwrap_or_else(|| panic!("no process: {text}"));
    assert!(line.contains("python3") && line.contains("100MiB"), "{line}");
    let listed = smi(&["-L"]);
    assert!(listed.starts_with("GPU 0: Orion software GPU (UUID: GPU-"), "{listed}");
    let all = smi(&["-q"]);
    for words in [&format!("Process ID                        : {pid}"), "Used                              : 100 MiB"]
    {
        assert!(all.contains(words), "no {words}: {all}");
    }
    // What is the host's is not there.
    for name in ["Serial Number", "GPU Part Number", "VBIOS Version", "Minor Number", "Board ID"] {
        let line = all.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_none_or(|line| line.ends_with(": N/A")), "{line:?}");
    }
    let fields = "--query-gpu=name,memory.total,memory.used,memory.free,driver_version,compute_cap,temperature.gpu";
    let row = smi(&[fields, "--format=csv,noheader,nounits"]);
    assert!(
        row.starts_with("Orion software GPU, 512, 100, 412, 580.00, ") && row.trim_end().ends_with("[N/A]"),
        "{row}"
    );
    let apps = smi(&["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]);
    assert_eq!(apps.trim_end(), format!("{pid}, 100"));
    let monitored = smi(&["pmon", "-c", "1"]);
    assert!(monitored.lines().any(|line| line.contains(&pid) && line.contains("python3")), "{monitored}");

    let shown = server.output(&tools.join("bin/nvitop"), &["-1", "--no-unicode"]);
    assert!(shown.contains("100.0MiB / 512.0MiB") || shown.contains("100.0MiB / 512MiB"), "{shown}");
    assert!(shown.lines().any(|line| line.contains(&pid) && line.contains("100.0MiB")), "{shown}");
    let script = "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0); \
                  m = n.nvmlDeviceGetMemoryInfo(h); p = n.nvmlDeviceGetComputeRunningProcesses(h)[0]; \
                  print(m.total, m.used, p.pid, p.usedGpuMemory)";
    let said = server.output(&tools.join("bin/python"), &["-c", script]);
    assert_eq!(said.trim_end(), format!("{LIMIT} {0} {pid} {0}", 100 * MIB));
    assert_eq!(server.sessions_begun(), 1);
}
