//! A pool of real processes: a controller, nodes of an oriond with the software GPU and its agent, and programs.

// UNSAFETY: kill.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nothing takes as long unless something is broken; then the test says what it waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of binaries, with all of them built.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dataplane = ["oriond", "orion-shim", "orion-nvml", "orion-run", "orion-soft"];
        orion_built::packages(
            &[&dataplane[..], &["orion-controller", "orion-ctl", "orion-check", "orion-top"]].concat(),
        );
        let examples = ["--example", "show_vgpus", "--example", "several_nodes"];
        orion_built::build(&[&["-p", "orion-conformance", "--bin", "orion-facts"][..], &examples].concat())
    })
}

/// As much of the time from one look to the next counts as waited for: what goes beyond it this process had no core, or
/// whoever was asked none.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// How long that took, by a clock that stands while the machine does.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let (began, mut looked, mut took) = (Instant::now(), Instant::now(), Duration::ZERO);
    loop {
        let is_done = done();
        took += looked.elapsed().min(LOOK_MAX);
        looked = Instant::now();
        if is_done {
            return took;
        }
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Does it again if it took longer, a few times: a busy machine holds somebody up now and then, a fault does each time.
pub fn soon(within: Duration, mut once: impl FnMut() -> Duration) {
    const TRIES: usize = 4;
    let mut seen = Vec::new();
    while seen.len() < TRIES {
        match once() {
            took if took < within => return,
            took => seen.push(took),
        }
    }
    panic!("not within {within:?}, each time of {TRIES}: {seen:?}");
}

/// A process whose standard output and error go to a file.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub fn start(command: &mut Command, log: &Path) -> Process {
        let file = File::create(log).expect("creating the log");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("another descriptor")).stderr(file);
        Process { child: command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")), log: log.to_owned() }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What stands behind this text in a line of the log, up to a space.
    pub fn says(&self, text: &str) -> String {
        let mut found = String::new();
        wait_until(&format!("{text:?} in\n{}", self.log()), || {
            let log = self.log();
            let Some((_, rest)) = log.split_once(text) else { return false };
            found = rest.split([' ', '\n', '"']).next().unwrap_or_default().to_owned();
            rest.contains('\n')
        });
        found
    }

    /// The lines of the log with this text, as soon as there are so many: a line comes a moment after what it tells of.
    /// More are an error.
    #[allow(dead_code, reason = "for tests of another file")]
    pub fn lines(&self, text: &str, times: usize) -> Vec<String> {
        let mut found = Vec::new();
        wait_until(&format!("{times} lines with {text:?} in {}", self.log.display()), || {
            let log = self.log();
            let whole = log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            found = whole.filter(|line| line.contains(text)).map(str::to_owned).collect();
            found.len() >= times
        });
        assert_eq!(found.len(), times, "{found:#?}");
        found
    }

    /// As by `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// By its number.
    #[allow(dead_code, reason = "for tests of another file")]
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: a plain call; the process is ours and was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// As an operator ends it; it has to end well.
    #[allow(dead_code, reason = "for tests of another file")]
    pub fn end(&mut self) {
        // SAFETY: a plain call; the process is ours and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let mut status = None;
        wait_until("the end of a process that was told to end", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success() || status.code().is_none()), "{status:?}\n{}", self.log());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// An oriond and the agent beside it.
pub struct Node {
    pub name: &'static str,
    pub oriond: Process,
    pub agent: Process,
    /// Where programs reach it.
    pub address: String,
}

pub struct Scene {
    pub folder: PathBuf,
    pub port: u16,
    /// Where agents and programs look for the one that leads.
    controllers: String,
    pub controller: Process,
    pub nodes: Vec<Node>,
    /// vGPUs of each GPU that are its node's own reserve.
    pub kept: usize,
    /// More options of agents.
    pub agent_options: Vec<std::ffi::OsString>,
    /// The nodes that are reached over shared memory.
    local: Vec<&'static str>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.nodes.clear();
        self.controller.kill();
        // What went wrong is in the controller's log, which is printed after this.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Scene {
    /// Nodes of two GPUs of 1 GiB, each split into two, over TCP; `is_local` is over shared memory.
    pub fn new(names: &[&'static str], settings: &str, is_local: bool) -> Scene {
        let folder = new_folder();
        let controller = controller(&folder, orion_built::steady_port(), settings);
        let port = controller.says("listening on 127.0.0.1:").parse().expect("a port");
        Scene::around(folder, controller, &[port], names, is_local)
    }

    /// One node, of whose two GPUs so many vGPUs each are its own.
    #[allow(dead_code, reason = "for tests of another file")]
    pub fn with_reserve(name: &'static str, kept: usize, is_local: bool) -> Scene {
        let mut scene = Scene::new(&[], "", is_local);
        scene.kept = kept;
        scene.local.extend(is_local.then_some(name));
        let node = scene.node(name);
        scene.nodes.push(node);
        scene.wait_for_free(2 * (2 - kept));
        scene
    }

    /// As above, with some over shared memory and the others over TCP.
    #[allow(dead_code, reason = "for tests of another file")]
    pub fn mixed(names: &[&'static str], local: &[&'static str]) -> Scene {
        let folder = new_folder();
        let controller = controller(&folder, orion_built::steady_port(), "");
        let port = controller.says("listening on 127.0.0.1:").parse().expect("a port");
        Scene::with(folder, controller, &[port], names, local.to_vec())
    }

    /// A pool whose controllers listen at these ports. The first one leads.
    pub fn around(
        folder: PathBuf,
        controller: Process,
        ports: &[u16],
        names: &[&'static str],
        is_local: bool,
    ) -> Scene {
        let local = if is_local { names.to_vec() } else { Vec::new() };
        Scene::with(folder, controller, ports, names, local)
    }

    fn with(
        folder: PathBuf,
        controller: Process,
        ports: &[u16],
        names: &[&'static str],
        local: Vec<&'static str>,
    ) -> Scene {
        let controllers = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        let (nodes, agent_options) = (Vec::new(), Vec::new());
        let mut scene = Scene { folder, port: ports[0], controllers, controller, nodes, local, kept: 0, agent_options };
        for name in names {
            let node = scene.node(name);
            scene.nodes.push(node);
        }
        scene.wait_for_free(4 * names.len());
        scene
    }

    fn node(&self, name: &'static str) -> Node {
        self.node_with(name, None)
    }

    /// With another address, for programs that ask for its carrier.
    pub fn node_with(&self, name: &'static str, further: Option<String>) -> Node {
        let oriond = self.start_oriond(name, &format!("127.0.0.1:{}", orion_built::steady_port()));
        let serving = oriond.says("serving addresses=\"");
        let tcp = oriond.says("tcp:127.0.0.1:");
        let address = match self.local.contains(&name) {
            true => format!("unix:{}", self.path(name, "sock").display()),
            false => format!("tcp:127.0.0.1:{tcp}"),
        };
        assert!(serving.starts_with("unix:") || serving.starts_with("tcp:"), "{serving}");
        let all: Vec<String> = [address.clone()].into_iter().chain(further).collect();
        let agent = self.start_agent(name, &all.join(","));
        Node { name, oriond, agent, address }
    }

    pub fn path(&self, name: &str, what: &str) -> PathBuf {
        self.folder.join(format!("{name}.{what}"))
    }

    pub fn start_oriond(&self, name: &str, listen: &str) -> Process {
        let mut command = Command::new(built().join("oriond"));
        command.args(["serve", "--driver", "soft", "--warm", "1", "--engines", "1", "--heap", "1 GiB"]);
        command.args(["--listen", listen]).arg("--socket").arg(self.path(name, "sock"));
        command.arg("--pool").arg(self.path(name, "pool"));
        command.env("ORION_SOFT_DEVICES", "2").env("ORION_SOFT_MEMORY_MIB", "1024");
        Process::start(&mut command, &self.path(name, "oriond.log"))
    }

    pub fn start_agent(&self, name: &str, address: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orion-agent"));
        command.args(["--controller", &self.controllers]).arg("--pool").arg(self.path(name, "pool"));
        command.args(["--address", address, "--node", name, "--vgpu-count", "2"]).args(&self.agent_options);
        if self.kept > 0 {
            command.args(["--reserve-vgpus", &self.kept.to_string()]).env("XDG_RUNTIME_DIR", &self.folder);
        }
        Process::start(&mut command, &self.path(name, "agent.log"))
    }

    pub fn restart_controller(&mut self, settings: &str) {
        self.controller = controller(&self.folder, self.port, settings);
        self.controller.says("listening on 127.0.0.1:");
    }

    /// vGPUs of the pool that nobody has.
    pub fn free(&self) -> usize {
        let (_, body) = self.http("GET", "/devices?res=nvidia_cuda&used=true", "");
        body.strip_prefix("nvidia_cuda=").and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{body}"))
    }

    pub fn wait_for_free(&self, count: usize) -> Duration {
        wait_until(&format!("{count} free vGPUs"), || self.free() == count)
    }

    /// What a tool gets that knows only HTTP: the status and the body.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        http(self.port, method, path, body).expect("it listens")
    }

    /// A program that prints its vGPUs, with these variables.
    pub fn program(&self, environment: &[(&str, &str)]) -> Command {
        self.other_program("examples/show_vgpus", environment)
    }

    /// Another one of those that are built.
    pub fn other_program(&self, name: &str, environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(built().join(name));
        for name in ["ORION_SERVER", "ORION_TRANSPORT", "ORION_TOKEN", "ORION_TOKEN_FILE", "ORION_QUIET"] {
            command.env_remove(name);
        }
        for name in ["ORION_CA", "ORION_CERTIFICATE", "ORION_KEY", "ORION_TLS", "ORION_INSECURE"] {
            command.env_remove(name);
        }
        command.env("LD_LIBRARY_PATH", &self.folder).env("HOME", &self.folder).env_remove("LD_PRELOAD");
        command.env("XDG_RUNTIME_DIR", &self.folder);
        command.env("ORION_CONTROLLER", &self.controllers).envs(environment.iter().copied());
        command
    }

    pub fn run(&self, environment: &[(&str, &str)]) -> Output {
        self.program(environment).output().expect("the program starts")
    }

    /// One that asks NVML too.
    pub fn with_nvml(&self, program: &Path, environment: &[(&str, &str)]) -> Command {
        let mut command = self.other_program(program.to_str().expect("plain text"), environment);
        let built = built().display();
        command.env("LD_PRELOAD", format!("{built}/libnvidia_ml.so:{built}/libcuda.so"));
        command
    }

    /// One that has its vGPUs until it is told to end.
    pub fn stay(&self, environment: &[(&str, &str)]) -> Staying {
        let mut command = self.program(environment);
        command.arg("stay");
        Staying::begin(command)
    }
}

impl Staying {
    /// One that says when it has its vGPUs.
    pub fn begin(mut command: Command) -> Staying {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while line != "attached\n" {
            line.clear();
            if output.read_line(&mut line).expect("text") == 0 {
                let ended = child.wait_with_output().expect("it ended");
                panic!("it got no vGPU: {}", String::from_utf8_lossy(&ended.stderr));
            }
        }
        Staying { child, input, output }
    }
}

/// Nobody else's, with the library that programs load.
pub fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("orion-pool-{}-{count}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a new folder");
    std::os::unix::fs::symlink(built().join("libcuda.so"), folder.join("libcuda.so.1")).expect("a link");
    folder
}

/// Nothing if nobody listens at this port, or who does goes away.
pub fn http(port: u16, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: orion\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

fn controller(folder: &Path, port: u16, settings: &str) -> Process {
    let config = folder.join("controller.yaml");
    let data = folder.join("data");
    let text = format!("controller:\n  listen_port: {port}\n{settings}database:\n  data-dir: {}\n", data.display());
    std::fs::write(&config, text).expect("writing");
    let mut command = Command::new(built().join("orion-controller"));
    Process::start(command.args(["start", "--config-file"]).arg(config), &folder.join("controller.log"))
}

/// A program with vGPUs.
pub struct Staying {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Staying {
    /// What it answers to a line.
    #[allow(dead_code, reason = "for tests of another file")]
    pub fn answer(&mut self) -> String {
        self.input.as_mut().expect("not yet told to end").write_all(b"\n").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Has it ask once more, and answers what it got: the code of the call, and standard error.
    pub fn ask_again(mut self) -> (String, String) {
        self.input.take().expect("not yet told").write_all(b"\n").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        self.child.wait().expect("it ends");
        (line.trim_end().to_owned(), said)
    }

    /// As by `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
