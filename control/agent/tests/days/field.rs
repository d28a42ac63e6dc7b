//! A pool on machines of its own: a controller, nodes with an oriond on the software GPU and an agent, and a machine
//! whose programs have no GPU. Each process can be killed and started again by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use orion_ctl::certificates::{self, Folder};
use orion_proto::leader;
use orion_proto::pool_client::PoolClient;
use orion_proto::{Allocations, Devices, ListAllocationsRequest, ListDevicesRequest};
use orion_tls::blocking::Stream;
use orion_tls::trust::{self as tls, OPTIONS, Trust};

use crate::cluster::Cluster;
use crate::net::{Machine, Net, Way};
use crate::scene::{PATIENCE, Process, built, wait_until};

const CONTROLLER_PORT: u16 = 9123;
const ORIOND_PORT: u16 = 7411;
const SHARED: &str = "/dev/shm";
/// vGPUs of a node: two GPUs of 1 GiB, each split into two.
pub const VGPUS_OF_A_NODE: usize = 4;

/// How programs reach a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Tcp,
    Shm,
}

pub struct Node {
    pub name: &'static str,
    pub machine: Machine,
    carrier: Carrier,
    pub oriond: Process,
    pub agent: Process,
    /// Of all starts, the last one last.
    logs: Vec<PathBuf>,
}

/// What a node's oriond has written about sessions that it has: their leases, and the worker of each.
pub type Sessions = BTreeMap<String, u32>;

pub struct Field {
    pub folder: PathBuf,
    pub settings: String,
    controller_machine: Machine,
    pub controller: Process,
    /// Where the controller keeps the pool, on its machine; else it has a store of its own.
    etcd: Option<Cluster>,
    pub nodes: Vec<Node>,
    pub user: Machine,
    starts: AtomicU32,
    /// What /dev/shm had before, which is others'.
    shared: Vec<String>,
    _net: Net,
}

impl Field {
    pub fn new(nodes: &[(&'static str, Carrier)]) -> Field {
        Field::with(nodes, "", |_| {})
    }

    /// Its controller keeps the pool in an etcd of so many members.
    pub fn with_etcd(nodes: &[(&'static str, Carrier)], members: usize) -> Field {
        Field::of(nodes, "", members, |_| {})
    }

    /// `change` sees each command that starts an oriond or an agent.
    pub fn with(nodes: &[(&'static str, Carrier)], settings: &str, change: impl Fn(&mut Command)) -> Field {
        Field::of(nodes, settings, 0, change)
    }

    fn of(nodes: &[(&'static str, Carrier)], settings: &str, members: usize, change: impl Fn(&mut Command)) -> Field {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("orion-days-{}-{count}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a new folder");
        std::fs::create_dir(folder.join("tmp")).expect("a new folder");
        std::os::unix::fs::symlink(built().join("libcuda.so"), folder.join("libcuda.so.1")).expect("a link");
        let mut net = Net::new();
        let controller_machine = net.machine(&[Way::Data, Way::Management]);
        let user = net.machine(&[Way::Data]);
        make_certificates(&folder, &controller_machine);
        let etcd = (members > 0).then(|| {
            let data = folder.join("etcd");
            std::fs::create_dir(&data).expect("a new folder");
            controller_machine.run(|| Cluster::new(&data, members))
        });
        let controller = start_controller(&folder, &controller_machine, settings, etcd.as_ref(), 0);
        let settings = settings.to_owned();
        let (nodes_wanted, nodes, starts) = (nodes, Vec::new(), AtomicU32::new(1));
        let shared = names(Path::new(SHARED));
        let mut field =
            Field { folder, settings, controller_machine, controller, etcd, nodes, user, starts, shared, _net: net };
        for (name, carrier) in nodes_wanted {
            let machine = field._net.machine(&[Way::Data, Way::Management]);
            let (oriond, log) = field.start_oriond(name, &machine, 2, &change);
            oriond.says("serving addresses=\"");
            let agent = field.start_agent(name, &machine, *carrier, &change);
            let logs = vec![log];
            field.nodes.push(Node { name, machine, carrier: *carrier, oriond, agent, logs });
        }
        field.wait_for_free(VGPUS_OF_A_NODE * nodes_wanted.len());
        field
    }

    pub fn vgpus(&self) -> usize {
        VGPUS_OF_A_NODE * self.nodes.len()
    }

    /// A file of a process that starts now.
    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{}.log", self.starts.fetch_add(1, Ordering::Relaxed)))
    }

    fn path(&self, name: &str, what: &str) -> PathBuf {
        self.folder.join(format!("{name}.{what}"))
    }

    fn start_oriond(&self, name: &str, on: &Machine, gpus: u32, change: &dyn Fn(&mut Command)) -> (Process, PathBuf) {
        let mut command = command("oriond", &self.folder);
        command.args(["serve", "--driver", "soft", "--warm", "1", "--engines", "1", "--heap", "1 GiB"]);
        command.args(["--listen", &format!("{}:{ORIOND_PORT}", on.address(Way::Data))]);
        command.arg("--socket").arg(self.path(name, "sock")).arg("--pool").arg(self.path(name, "pool"));
        command.env("ORION_SOFT_DEVICES", gpus.to_string()).env("ORION_SOFT_MEMORY_MIB", "1024");
        change(&mut command);
        let log = self.log(&format!("{name}.oriond"));
        (on.run(|| Process::start(&mut command, &log)), log)
    }

    fn start_agent(&self, name: &str, on: &Machine, carrier: Carrier, change: &dyn Fn(&mut Command)) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orion-agent"));
        let controller = format!("{}:{CONTROLLER_PORT}", self.controller_machine.address(Way::Management));
        let address = match carrier {
            Carrier::Shm => format!("unix:{}", self.path(name, "sock").display()),
            Carrier::Tcp => format!("tcp:{}:{ORIOND_PORT}", on.address(Way::Data)),
        };
        command.args(["--controller", &controller, "--address", &address, "--node", name, "--vgpu-count", "2"]);
        command.arg("--pool").arg(self.path(name, "pool"));
        of_the_test(&mut command, &self.folder);
        change(&mut command);
        on.run(|| Process::start(&mut command, &self.log(&format!("{name}.agent"))))
    }

    pub fn restart_controller(&mut self) {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        self.controller.kill();
        let etcd = self.etcd.as_ref();
        self.controller = start_controller(&self.folder, &self.controller_machine, &self.settings, etcd, start);
    }

    pub fn kill_etcd(&mut self, member: usize) {
        self.etcd.as_mut().expect("there is one").kill(member);
    }

    pub fn restart_etcd(&mut self, member: usize) {
        let etcd = self.etcd.as_mut().expect("there is one");
        self.controller_machine.run(|| etcd.start(member));
    }

    pub fn restart_agent(&mut self, index: usize) {
        let node = &self.nodes[index];
        let agent = self.start_agent(node.name, &node.machine, node.carrier, &|_| {});
        self.nodes[index].agent = agent;
    }

    /// With so many GPUs as it has from now on.
    pub fn restart_oriond(&mut self, index: usize, gpus: u32) {
        let node = &self.nodes[index];
        let (oriond, log) = self.start_oriond(node.name, &node.machine, gpus, &|_| {});
        oriond.says("serving addresses=\"");
        let node = &mut self.nodes[index];
        node.logs.push(log);
        node.oriond = oriond;
    }

    /// Where programs, and whoever asks for them, find the controller.
    pub fn controller_address(&self) -> String {
        format!("{}:{CONTROLLER_PORT}", self.controller_machine.address(Way::Data))
    }

    fn trust(&self) -> Trust {
        Trust { ca: Some(self.folder.join("trust/ca.pem")), ..Trust::default() }
    }

    /// What a tool gets on the users' machine that knows only HTTP: the status and the body.
    pub fn http(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let ask = || -> std::io::Result<String> {
            let socket = TcpStream::connect(self.controller_address())?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let tls::Way::Tls(config, name) = self.trust().way_to(&self.controller_address(), OPTIONS).expect("a CA")
            else {
                panic!("it is on another machine")
            };
            let mut socket = Stream::connect(socket, &config, &name)?;
            let length = body.len();
            write!(
                socket,
                "{method} {path} HTTP/1.1\r\nHost: orion\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.user.run(ask).ok()?;
        let status = answer.split(' ').nth(1)?.parse().expect("a number");
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// vGPUs of the pool that nobody has.
    pub fn free(&self) -> Option<usize> {
        let (_, body) = self.http("GET", "/devices?res=nvidia_cuda&used=true", "")?;
        body.strip_prefix("nvidia_cuda=")?.parse().ok()
    }

    pub fn wait_for_free(&self, count: usize) -> Duration {
        wait_until(&format!("{count} free vGPUs, of {:?}", self.free()), || self.free() == Some(count))
    }

    /// Users reach that node's oriond: a machine that was in vain looked for is looked for again a moment later.
    pub fn wait_for_way_to(&self, node: usize) {
        let address = (self.nodes[node].machine.address(Way::Data), ORIOND_PORT);
        wait_until("the way to a node", || self.user.run(|| TcpStream::connect(&address).is_ok()));
    }

    /// What the controller says that everybody has, and the pool's GPUs.
    pub fn books(&self) -> Option<(Allocations, Devices)> {
        let ask = async {
            let channel = leader::connect(&self.controller_address(), &self.trust(), OPTIONS).await.ok()?;
            let mut pool = PoolClient::new(channel);
            let allocations = pool.list_allocations(ListAllocationsRequest::default()).await.ok()?.into_inner();
            let devices = pool.list_devices(ListDevicesRequest {}).await.ok()?.into_inner();
            Some((allocations, devices))
        };
        self.user.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(ask)
        })
    }

    /// A program on the users' machine that works until it is told to end. It may get no vGPU.
    pub fn start(&self, environment: &[(&str, &str)]) -> Program {
        let mut command = command("examples/show_vgpus", &self.folder);
        command.arg("work").env("LD_LIBRARY_PATH", &self.folder).env("ORION_VERBOSE", "1");
        command.env("ORION_CONTROLLER", self.controller_address()).envs(environment.iter().copied());
        Program::start(&self.user, &mut command)
    }

    /// One that has got its vGPUs.
    pub fn attached(&self, environment: &[(&str, &str)]) -> Program {
        let mut program = self.start(environment);
        assert!(program.attaches(), "{}", program.said());
        program
    }

    /// Ends everybody as an operator would, and looks for what is left.
    pub fn end(mut self) {
        let workers: BTreeSet<u32> = self.nodes.iter().flat_map(|node| node.workers()).collect();
        let mut processes: Vec<&mut Process> =
            self.nodes.iter_mut().flat_map(|node| [&mut node.agent, &mut node.oriond]).collect();
        processes.push(&mut self.controller);
        for process in processes {
            process.end();
        }
        wait_until("the end of all workers", || workers.iter().all(|pid| !is_worker(*pid)));
        assert_eq!(names(&self.folder.join("tmp")), Vec::<String>::new(), "somebody left something in TMPDIR");
        let mut rest = names(&self.folder);
        // Programs' own logs stay, in .orion of their home.
        let kept = ["tmp", "data", "etcd", "trust", "libcuda.so.1", "controller.yaml", ".orion"];
        rest.retain(|name| !name.ends_with(".log") && !kept.contains(&name.as_str()));
        assert_eq!(rest, Vec::<String>::new(), "sockets or folders are left");
        let ours = self.folder.display().to_string();
        // Names of other programs' sockets may be any bytes.
        let sockets = std::fs::read("/proc/net/unix").expect("the kernel's list");
        let sockets = String::from_utf8_lossy(&sockets);
        assert!(!sockets.contains(&ours), "a socket is left:\n{sockets}");
        let mut shared = names(Path::new(SHARED));
        shared.retain(|name| name.contains("orion") && !self.shared.contains(name));
        assert_eq!(shared, Vec::<String>::new(), "somebody left something in {SHARED}");
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        self.nodes.clear();
        self.controller.kill();
        self.etcd = None;
        if !std::thread::panicking() || std::env::var_os("ORION_DAYS_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Of all that is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("reading {}: {e}", folder.display()));
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// A worker may have ended long ago, and its number be another's.
fn is_worker(pid: u32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let is_dead = std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    (comm.starts_with("orion")) && !is_dead
}

fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(built().join(program));
    of_the_test(&mut command, folder);
    command
}

/// What belongs to the machine that the test runs on has nothing to say here.
fn of_the_test(command: &mut Command, folder: &Path) {
    for name in ["ORION_SERVER", "ORION_TRANSPORT", "ORION_TOKEN", "ORION_TOKEN_FILE", "ORION_QUIET", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    for name in ["ORION_INSECURE", "ORION_TLS", "ORION_CERTIFICATE", "ORION_KEY", "ORION_FINGERPRINT"] {
        command.env_remove(name);
    }
    command.env("ORION_CA", folder.join("trust/ca.pem"));
    command.env("HOME", folder).env("TMPDIR", folder.join("tmp")).env("XDG_RUNTIME_DIR", folder.join("tmp"));
    command.process_group(0);
}

/// Of a CA of the field's own, for the controller. orionds have theirs of themselves, and the controller names them.
fn make_certificates(folder: &Path, controller: &Machine) {
    let at = || Folder { folder: folder.join("trust"), days: 1 };
    let hosts = [Way::Data, Way::Management].map(|way| controller.address(way).to_string()).to_vec();
    for command in [
        certificates::Command::Ca { name: "days".into(), folder: at().folder, days: 1 },
        certificates::Command::Server { name: "controller".into(), hosts, folder: at() },
    ] {
        certificates::run(command).expect("a certificate");
    }
}

fn start_controller(folder: &Path, on: &Machine, settings: &str, etcd: Option<&Cluster>, start: u32) -> Process {
    let config = folder.join("controller.yaml");
    let text = format!(
        "controller:\n  listen_ip: 0.0.0.0\n  certificate: {}\n  key: {}\n{settings}database:\n  data-dir: {}\n",
        folder.join("trust/controller.pem").display(),
        folder.join("trust/controller.key").display(),
        folder.join("data").display()
    );
    std::fs::write(&config, text).expect("writing");
    let mut command = command("orion-controller", folder);
    command.args(["start", "--config-file"]).arg(config);
    if let Some(etcd) = etcd {
        command.args(["--kv", &etcd.urls()]);
    }
    on.run(|| Process::start(&mut command, &folder.join(format!("controller.{start}.log"))))
}

impl Node {
    /// Sessions that its oriond has now, by their leases.
    pub fn sessions(&self) -> Sessions {
        let log = self.oriond.log();
        let mut begun: BTreeMap<u64, (String, u32)> = BTreeMap::new();
        for line in log.lines() {
            let Some(session) = word(line, "session=") else { continue };
            let session = session.parse().expect("a number");
            if line.contains("session begins") {
                let lease = word(line, "lease=").expect("a session of a pool has one");
                let worker = word(line, "worker=").expect("it has one").parse().expect("a number");
                begun.insert(session, (lease, worker));
            } else if line.contains("session over, ") {
                begun.remove(&session);
            }
        }
        begun.into_values().collect()
    }

    /// All workers that ever were, of all its orionds.
    fn workers(&self) -> BTreeSet<u32> {
        let logs = self.logs.iter().map(|log| std::fs::read_to_string(log).unwrap_or_default());
        let of = |log: String| log.lines().filter_map(|line| word(line, "worker=")?.parse().ok()).collect::<Vec<u32>>();
        logs.flat_map(of).collect()
    }
}

fn word(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(name)?;
    Some(rest.split(' ').next()?.trim_matches('"').to_owned())
}

/// What became of a program that asked for vGPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
    NothingYet,
    Vgpus,
    Refused,
}

/// A program, and what it says.
pub struct Program {
    pub child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    errors: Receiver<String>,
    lines: String,
    pub got: Got,
    rounds: u64,
    pub devices: usize,
    /// What it has asked for.
    pub wanted: String,
}

/// What one that works answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has done something since it was asked the last time.
    Works,
    /// Its session is over, which CUDA has told it with this code.
    Lost(u32),
}

impl Program {
    fn start(on: &Machine, command: &mut Command) -> Program {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = on.run(|| command.spawn()).expect("the program starts");
        let input = child.stdin.take();
        let output = lines_of(child.stdout.take().expect("a pipe"));
        let errors = lines_of(child.stderr.take().expect("a pipe"));
        let (got, lines, wanted) = (Got::NothingYet, String::new(), String::new());
        Program { child, input, output, errors, lines, got, rounds: 0, devices: 0, wanted }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error up to now; all of it, if it got nothing and so ends.
    pub fn said(&mut self) -> String {
        if self.got == Got::Refused {
            self.child.wait().expect("it ends");
            wait_until("the end of its pipe", || {
                let line = self.errors.recv_timeout(PATIENCE);
                line.iter().for_each(|line| self.lines.push_str(&format!("{line}\n")));
                line.is_err()
            });
        }
        for line in self.errors.try_iter() {
            self.lines.push_str(&line);
            self.lines.push('\n');
        }
        self.lines.clone()
    }

    /// The allocation that it has, as it has said it in the original's words. It may have had another before, of an
    /// oriond that was not there any more.
    pub fn lease(&mut self) -> String {
        let said = self.said();
        let (_, rest) = said.rsplit_once("Using Orion resource (").unwrap_or_else(|| panic!("{said:?}"));
        let name = rest.split_once(") ").and_then(|(_, rest)| rest.split(' ').next());
        name.expect("its name").to_owned()
    }

    /// Reads on as far as it has written.
    pub fn look(&mut self, patience: Duration) -> Got {
        let until = Instant::now() + patience;
        while self.got == Got::NothingYet {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line == "attached" => self.got = Got::Vgpus,
                Ok(line) if line.starts_with("cuInit ") => self.got = Got::Refused,
                Ok(line) => {
                    let count = line.strip_prefix("devices ").and_then(|count| count.parse().ok());
                    self.devices = count.unwrap_or(self.devices);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => self.got = Got::Refused,
            }
        }
        self.got
    }

    pub fn attaches(&mut self) -> bool {
        self.look(PATIENCE) == Got::Vgpus
    }

    /// Whether it goes on. One that does neither hangs, which nobody may.
    pub fn answer(&mut self) -> Answer {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let input = self.input.as_mut().expect("it was not told to end");
            if input.write_all(b"\n").is_err() {
                return Answer::Lost(u32::MAX);
            }
            let line = match self.output.recv_timeout(PATIENCE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return Answer::Lost(u32::MAX),
                Err(RecvTimeoutError::Timeout) => break,
            };
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [rounds, code] = numbers[..] else { panic!("{line:?}: {}", self.said()) };
            if code != 0 {
                return Answer::Lost(code as u32);
            }
            if rounds > self.rounds {
                self.rounds = rounds;
                return Answer::Works;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = self.said();
        panic!("program {} of {} hangs: {said}", self.pid(), self.wanted);
    }

    /// As by `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends by itself.
    pub fn end(&mut self) {
        self.input = None;
        self.child.wait().expect("it ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let said = self.said();
            eprintln!("--- program {} ({}):\n{said}", self.child.id(), self.wanted);
        }
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    told
}
