//! An oriond of the test's own, and a client that speaks records.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orion_cuda::sys::{CU_STREAM_NON_BLOCKING, CUDA_MEMCPY3D};
use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Memory, Producer, Spin};
use orion_tls::trust::Trust;
use orion_transport::carrier::{self, Carrier, Listener, tcp};
use orion_transport::channel::Channel;
use orion_transport::client::{Caller, NoSession, Server, Tuning};
use orion_transport::proof::{Said, Token, fresh_nonce};
use orion_wire::address::{self, Leads, Place};
use orion_wire::environment::Environment;
use orion_wire::hello::{Challenge, Hello, Request, Start, Welcome, frame, kind};
use orion_wire::message::calls;
use orion_wire::message::copy::Copy3D;
use orion_wire::message::field::{Field, Size};
use orion_wire::message::memory::MemAlloc;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, op};
use orion_wire::version::Version;
use orion_wire::{Reader, Writer};

pub const SUM: u16 = 0x7ff0;
pub const FILL: u16 = 0x7ff1;
pub const DIE: u16 = 0x7ff2;
pub const EVENTS: u16 = 0x7ff3;
pub const STALL: u16 = 0x7ff4;
pub const NONSENSE: u16 = 0x7ff5;
pub const VARIABLE: u16 = 0x7ff6;
pub const SHOUT: u16 = 0x7ff7;

/// Nothing here takes seconds unless something is broken; then the test says what it waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn is_root() -> bool {
    // SAFETY: getuid cannot fail.
    unsafe { libc::getuid() == 0 }
}

/// Whether a test can go on, of which root alone can do what it does. See [`or_left_out`].
pub fn is_root_or_left_out() -> bool {
    or_left_out(is_root(), "a test that only root can do")
}

/// Whether a test can go on, of a layer of workers' isolation. See [`or_left_out`].
pub fn has_layer_or_left_out(layer: &str) -> bool {
    let server = Oriond::start(&[]);
    // What is not there is said before.
    server.wait_for_log(&["worker warm"]);
    let has = !server.log().contains(&format!("layer={layer}"));
    or_left_out(has, &format!("a test of the layer {layer}, which there is not here (oriond says why)"))
}

/// The memory cgroup of a process, as a folder, where cgroups are mounted as they are everywhere.
pub fn memory_group(pid: u32) -> PathBuf {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    let of = |is_it: fn(&str) -> bool| {
        // A number, controllers, a path.
        let fields = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        fields.filter(|(kind, _)| is_it(kind)).map(|(_, path)| path.trim_start_matches('/')).next()
    };
    match of(|kind| kind.split(',').any(|name| name == "memory")) {
        Some(path) => PathBuf::from("/sys/fs/cgroup/memory").join(path),
        None => PathBuf::from("/sys/fs/cgroup").join(of(str::is_empty).expect("a group of version 2")),
    }
}

/// On a machine that lacks what a test needs, it is left out, and a line says so: somebody's laptop is such a machine.
/// With `ORION_TESTS_INSIST=1`, as continuous integration sets it, nothing is left out, and the test fails.
fn or_left_out(has: bool, what: &str) -> bool {
    let insists = std::env::var("ORION_TESTS_INSIST").is_ok_and(|value| value == "1");
    assert!(has || !insists, "ORION_TESTS_INSIST=1, and left out would be {what}");
    if !has {
        eprintln!("left out: {what}");
    }
    has
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Shm,
    Tcp,
    /// As [`Transport::Tcp`], encrypted.
    Tls,
    /// A guest's memory without a guest: a file in place of its device.
    Ivshmem,
    /// Where the kernel has its loopback: see the conformance suite's virtual machine.
    Vsock,
    /// vsock without a virtual machine: this process connects in place of its hypervisor.
    Hypervisor,
    /// Where there is a device: see the conformance suite's virtual machine.
    #[cfg(feature = "rdma")]
    Rdma,
    #[cfg(debug_assertions)]
    Doorbell,
}

impl Transport {
    /// For a test that is about all of them together, on any machine.
    pub const ALL: &[Transport] = &[
        Transport::Shm,
        Transport::Tcp,
        Transport::Tls,
        Transport::Ivshmem,
        #[cfg(debug_assertions)]
        Transport::Doorbell,
    ];

    pub fn carrier(self) -> &'static address::Carrier {
        let name = match self {
            Transport::Tls => "tcp".to_owned(),
            Transport::Hypervisor => "vsock".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        address::carrier(&name).expect("a carrier is called as here")
    }

    /// What a client says that speaks in this way.
    pub fn trust(self) -> Trust {
        Trust { always: self == Transport::Tls, ..Trust::default() }
    }

    /// What a server that is reached so is told beyond what all are.
    pub fn options(self) -> Vec<String> {
        match self {
            #[cfg(feature = "rdma")]
            Transport::Rdma => vec!["--rdma".to_owned(), "127.0.0.1:0".to_owned()],
            Transport::Vsock => vec!["--vsock".to_owned(), next_port().to_string()],
            _ => Vec::new(),
        }
    }

    pub fn is_local(self) -> bool {
        self.carrier().leads_to == Leads::ToPath
    }
}

pub struct Oriond {
    child: Child,
    pub socket: PathBuf,
    pub tcp: String,
    /// Of the guest that there is not.
    pub segment: PathBuf,
    vsock: String,
    #[cfg(feature = "rdma")]
    rdma: String,
    dir: PathBuf,
    log: PathBuf,
    ready: BufReader<std::fs::File>,
}

impl Oriond {
    pub fn start(arguments: &[&str]) -> Oriond {
        Oriond::start_in(&[], arguments)
    }

    /// That is reached in this way, among others.
    pub fn start_for(transport: Transport, arguments: &[&str]) -> Oriond {
        let options = transport.options();
        let options: Vec<&str> = options.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        if transport != Transport::Hypervisor {
            return Oriond::start(&options);
        }
        let dir = new_folder();
        let socket = machine_of(&dir);
        let vsock = ["--vsock", socket.to_str().expect("UTF-8")];
        Oriond::start_in_folder(dir, &[], &[&vsock[..], &options].concat(), None)
    }

    /// With these environment variables.
    pub fn start_in(environment: &[(&str, &str)], arguments: &[&str]) -> Oriond {
        Oriond::start_with(environment, arguments, None)
    }

    /// With a log that is somewhere else.
    pub fn start_with(environment: &[(&str, &str)], arguments: &[&str], stderr: Option<Stdio>) -> Oriond {
        let dir = new_folder();
        let segment = new_segment(&dir);
        let guest = ["--guest-sessions", "4", "--guest", segment.to_str().expect("UTF-8")];
        Oriond::start_in_folder(dir, environment, &[&guest[..], arguments].concat(), stderr)
    }

    /// Which no guest uses.
    pub fn start_without_guests(arguments: &[&str]) -> Oriond {
        Oriond::start_in_folder(new_folder(), &[], arguments, None)
    }

    fn start_in_folder(
        dir: PathBuf,
        environment: &[(&str, &str)],
        arguments: &[&str],
        stderr: Option<Stdio>,
    ) -> Oriond {
        let (socket, token) = (dir.join("oriond.sock"), dir.join("token"));
        write_token(&token, TOKEN);
        let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
        command
            .arg("serve")
            .args(["--driver", "echo", "--listen", "127.0.0.1:0", "--warm", "1", "--engines", "2"])
            .arg("--token-file")
            .arg(&token)
            .arg("--socket")
            .arg(&socket)
            .args(arguments)
            .envs(environment.iter().copied());
        Oriond::run(&mut command, dir, stderr)
    }

    /// With a command line of the test's own.
    pub fn start_as(command: &mut Command) -> Oriond {
        Oriond::run(command, new_folder(), None)
    }

    fn run(command: &mut Command, dir: PathBuf, stderr: Option<Stdio>) -> Oriond {
        let (socket, log) = (dir.join("oriond.sock"), dir.join("log"));
        let (ready, theirs) = pipe();
        let fd = theirs.as_raw_fd();
        command
            .args(["--ready-fd", &fd.to_string()])
            .stdin(Stdio::null())
            .stderr(stderr.unwrap_or_else(|| std::fs::File::create(&log).expect("creating the log").into()));
        // SAFETY: fcntl is async-signal-safe.
        unsafe {
            command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.spawn().expect("starting oriond");
        drop(theirs);
        let mut line = String::new();
        let mut ready = BufReader::new(std::fs::File::from(ready));
        ready.read_line(&mut line).expect("waiting for oriond");
        let address =
            |scheme| line.split_whitespace().find_map(|a| a.strip_prefix(scheme)).unwrap_or_default().to_owned();
        let segment = segment_of(&dir);
        let oriond = Oriond {
            child,
            socket,
            tcp: address("tcp:"),
            segment,
            vsock: address("vsock:"),
            #[cfg(feature = "rdma")]
            rdma: address("rdma:"),
            dir,
            log,
            ready,
        };
        assert!(!line.is_empty(), "oriond did not start:\n{}", oriond.log());
        oriond
    }

    /// Whether nobody holds the other end of `--ready-fd` any more.
    pub fn ready_pipe_has_ended(&self) -> bool {
        let mut entry = libc::pollfd { fd: self.ready.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut entry, 1, 0) };
        entry.revents & libc::POLLHUP != 0
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has a line with each of `words`.
    pub fn wait_for_log(&self, words: &[&str]) {
        wait_until(&format!("a log line with {words:?}"), || {
            self.log().lines().any(|line| words.iter().all(|w| line.contains(w)))
        });
    }

    pub fn server(&self, transport: Transport) -> Server {
        let place = match transport.carrier().leads_to {
            Leads::ToPath => Place::Path(self.socket.clone()),
            #[cfg(feature = "rdma")]
            Leads::ToHost if transport == Transport::Rdma => Place::Host(self.rdma.clone()),
            Leads::ToHost => Place::Host(self.tcp.clone()),
            Leads::ToDevice => Place::Device(self.segment.display().to_string()),
            Leads::ToMachine if transport == Transport::Hypervisor => Place::Path(machine_of(&self.dir)),
            Leads::ToMachine => return Server::parse(&format!("vsock:{}", self.vsock)).expect("oriond wrote it"),
        };
        Server { carrier: transport.carrier(), place }
    }

    /// A connection to the door, by hand.
    pub fn dial(&self, transport: Transport) -> Channel {
        if transport.is_local() {
            return Channel::from(OwnedFd::from(UnixStream::connect(&self.socket).expect("connecting")));
        }
        let caller = Caller { trust: transport.trust(), ..hello() };
        let server = self.server(transport);
        if matches!(transport, Transport::Ivshmem | Transport::Vsock | Transport::Hypervisor) {
            return carrier::way(&server).reach(&server, &caller).expect("connecting").0;
        }
        tcp::reach(&server, &tcp::way(&server, &caller).expect("a way")).expect("connecting")
    }

    /// What a client of this carrier says that its session is like.
    pub fn start_over(&self, transport: Transport, heap_base: u64) -> Start {
        carrier::way(&self.server(transport)).start(heap_base)
    }

    /// Pids of its worker processes.
    pub fn workers(&self) -> Vec<u32> {
        self.children().into_iter().filter(|pid| Some(*pid) != self.holder()).collect()
    }

    /// The process that holds the namespace of one tenant's workers.
    pub fn holder(&self) -> Option<u32> {
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        self.children().into_iter().find(|pid| name(*pid) == "oriond-holder\n")
    }

    fn children(&self) -> Vec<u32> {
        let children = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("reading /proc");
        children
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
            .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
            .collect()
    }

    /// Once there are as many for a while: lanes and workers come a moment after a session has begun.
    pub fn descriptors_at_rest(&self) -> usize {
        let (mut last, mut since) = (self.descriptors(), Instant::now());
        wait_until("as many descriptors for a while", || {
            let now = self.descriptors();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(500)
        });
        last
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("reading /proc").count()
    }

    pub fn has_descriptor(&self, number: u64) -> bool {
        std::fs::symlink_metadata(format!("/proc/{}/fd/{number}", self.pid())).is_ok()
    }

    /// Mappings and resident KiB.
    pub fn memory(&self) -> (usize, u64) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("reading /proc");
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("reading /proc");
        let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
        (maps.lines().count(), rss.trim().trim_end_matches(" kB").parse().expect("a number"))
    }

    /// SIGTERM, and the exit that follows.
    pub fn terminate(mut self) -> (std::process::ExitStatus, String) {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(self.pid() as i32, libc::SIGTERM) };
        let status = self.child.wait().expect("waiting for oriond");
        (status, self.log())
    }
}

impl Drop for Oriond {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- oriond's log\n{}", self.log());
        }
        let _ = std::fs::remove_file(&self.segment);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A port of vsock that no other test of this process has.
fn next_port() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(7411);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub fn over_tcp(address: &str) -> Server {
    Server::parse(&format!("tcp:{address}")).expect("an address")
}

pub struct Client {
    pub welcome: Welcome,
    pub heap: Heap,
    pub carrier: Arc<dyn Carrier>,
    memory: Option<Memory>,
    commands: Producer,
    replies: Consumer,
    events: Consumer,
    pub sequence: u64,
    /// Which of its threads calls.
    pub thread: u16,
    /// What is current to its thread.
    pub context: u64,
    /// Lines of the error log.
    pub logged: String,
}

/// What the orionds of the tests are given, unless a test says otherwise.
pub const TOKEN: &str = "a token that only the tests know";

/// Which nobody else can write to, whatever the umask.
pub fn new_folder() -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("orion-test-{}-{count}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&dir).expect("creating the test's directory");
    dir
}

/// In memory, and sparse: four sessions of a gigabyte.
pub fn new_segment(dir: &std::path::Path) -> PathBuf {
    use std::os::unix::fs::OpenOptionsExt;
    let path = segment_of(dir);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("a new file");
    file.set_len(4 << 30).expect("a sparse file");
    path
}

fn segment_of(dir: &std::path::Path) -> PathBuf {
    PathBuf::from("/dev/shm").join(dir.file_name().expect("it has a name"))
}

/// What a hypervisor connects to for its machine, where the test is one.
fn machine_of(dir: &std::path::Path) -> PathBuf {
    dir.join("vm0.vsock_7411")
}

pub fn write_token(path: &std::path::Path, text: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).expect("a new file");
    file.write_all(text.as_bytes()).expect("writing the token");
}

pub fn token(text: &str) -> Option<Token> {
    Some(Token::new(text, "the test").expect("long enough"))
}

pub fn hello() -> Caller {
    Caller { environment: Environment::default(), ..Caller::new("test", token(TOKEN)) }
}

pub fn first_words() -> Hello {
    Hello { version: Version::OWN, nonce: [7; 32] }
}

/// By hand up to the server's challenge: what the client would say next, and what began the handshake.
pub fn request(channel: &mut Channel, caller: &Caller) -> (Vec<u8>, Said) {
    let first = Hello { version: caller.version, nonce: fresh_nonce().expect("random bytes") }.encode();
    channel.send_frame(kind::HELLO, &first, &[]).expect("sending");
    let (answer, body, _) = channel.recv_frame().expect("receiving the challenge");
    assert_eq!(answer, kind::CHALLENGE);
    let nonce = Challenge::decode(&body).expect("a challenge").nonce;
    let said = Said { first, nonce, certificate: channel.certificate() };
    let request = Request {
        pid: caller.pid,
        home: caller.home,
        program: caller.program.clone(),
        environment: caller.environment.clone(),
        lease: Vec::new(),
    };
    let body = request.encode(|covered| caller.token.as_ref().map(|t| t.client_proof(&said, covered)));
    (frame(kind::REQUEST, &body), said)
}

fn spin() -> Spin {
    Spin::adaptive(Duration::from_micros(200))
}

impl Client {
    pub fn attach(server: &Oriond, transport: Transport) -> Client {
        Client::try_attach(server, transport, &hello(), Tuning::default()).expect("attaching")
    }

    pub fn try_attach(
        server: &Oriond,
        transport: Transport,
        hello: &Caller,
        tuning: Tuning,
    ) -> Result<Client, NoSession> {
        let hello = Caller { trust: transport.trust().or(hello.trust.clone()), ..hello.clone() };
        Client::of(&server.server(transport), &hello, tuning)
    }

    /// Wherever that is.
    pub fn attach_to(server: &Server) -> Client {
        Client::of(server, &hello(), Tuning::default()).expect("attaching")
    }

    fn of(server: &Server, hello: &Caller, tuning: Tuning) -> Result<Client, NoSession> {
        let a = carrier::attach(server, hello, tuning, Listener::NOBODY)?;
        Ok(Client {
            commands: a.memory.producer(Which::Command).expect("mapping"),
            replies: a.memory.consumer(Which::Reply).expect("mapping"),
            events: a.memory.consumer(Which::Event).expect("mapping"),
            welcome: a.welcome,
            heap: a.heap,
            carrier: a.carrier,
            memory: Some(a.memory),
            sequence: 0,
            thread: 1,
            context: 0,
            logged: String::new(),
        })
    }

    pub fn is_lost(&self) -> bool {
        self.carrier.death().is_some()
    }

    fn push(&mut self, op: u16, sequence: u64, body: &[u8]) {
        let size = HEADER_BYTES + body.len();
        let header = Header { size: size as u32, op, thread: self.thread, context: self.context, sequence }.encode();
        while !self.commands.push(&[&header, body]).expect("positions") {
            self.commands.wait_room(size, spin(), Duration::from_millis(100)).expect("positions");
            assert!(!self.is_lost(), "session lost");
        }
    }

    pub fn post(&mut self, op: u16, body: &[u8]) {
        self.push(op, 0, body);
    }

    /// Posts until nothing more goes for half a second: all is full that there is on the way to the worker.
    pub fn post_until_full(&mut self, op: u16, body: &[u8]) {
        let size = HEADER_BYTES + body.len();
        let header = Header { size: size as u32, op, thread: self.thread, context: self.context, sequence: 0 }.encode();
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(500) {
            if self.commands.push(&[&header, body]).expect("positions") {
                since = Instant::now();
            } else {
                self.commands.wait_room(size, spin(), Duration::from_millis(100)).expect("positions");
            }
        }
    }

    pub fn start(&mut self, op: u16, body: &[u8]) -> u64 {
        self.sequence += 1;
        self.push(op, self.sequence, body);
        self.sequence
    }

    /// Lines of the error log come ahead of the reply that they are about.
    pub fn reply(&mut self) -> (Header, Vec<u8>) {
        loop {
            let (header, body) = next(&mut self.replies, &*self.carrier).expect("session lost");
            match header.op {
                op::HEAP_WRITTEN => {}
                op::LOG => self.logged.push_str(&String::from_utf8_lossy(&body)),
                _ => return (header, body),
            }
        }
    }

    pub fn event(&mut self) -> (Header, Vec<u8>) {
        next(&mut self.events, &*self.carrier).expect("session lost")
    }

    pub fn call(&mut self, op: u16, body: &[u8]) -> Vec<u8> {
        let sequence = self.start(op, body);
        let (header, body) = self.reply();
        assert_eq!((header.op, header.sequence), (op, sequence));
        body
    }

    /// A call's result, and what came with it.
    pub fn ask(&mut self, op: u16, body: &[u8]) -> (u32, Vec<u8>) {
        let sequence = self.start(op, body);
        let (header, body) = self.reply();
        assert_eq!((header.op, header.sequence), (op, sequence));
        (header.context as u32, body)
    }

    /// The next reply, or `None` once the session is lost.
    pub fn reply_or_lost(&mut self) -> Option<(Header, Vec<u8>)> {
        next(&mut self.replies, &*self.carrier)
    }

    /// Announces that a range of the heap was written.
    pub fn announce(&mut self, range: HeapRange) {
        if self.carrier.pages().must_bring() {
            let mut body = Vec::new();
            range.put(&mut body);
            self.post(op::HEAP_WRITTEN, &body);
        }
    }

    pub fn sum(&mut self, range: HeapRange) -> u64 {
        let reply = self.call(SUM, &words(&[range.offset, range.bytes]));
        Reader::new(&reply).word().expect("one word")
    }

    pub fn bytes(&self, range: HeapRange) -> &[u8] {
        // SAFETY: inside the heap; the test's worker leaves it alone until it is told otherwise.
        unsafe { std::slice::from_raw_parts(self.heap.at(range.offset, range.bytes).unwrap(), range.bytes as usize) }
    }

    pub fn bytes_mut(&mut self, range: HeapRange) -> &mut [u8] {
        // SAFETY: as for `bytes`.
        unsafe {
            std::slice::from_raw_parts_mut(self.heap.at(range.offset, range.bytes).unwrap(), range.bytes as usize)
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.carrier.close();
        // Threads of the carrier may still be looking at pages of its own; those of the worker can go.
        if !self.carrier.pages().are_separate()
            && let Some(memory) = self.memory.take()
        {
            // SAFETY: this client has no threads and is not used any more.
            unsafe { memory.unmap_all() };
        }
    }
}

fn next(ring: &mut Consumer, carrier: &dyn Carrier) -> Option<(Header, Vec<u8>)> {
    let start = Instant::now();
    loop {
        if let Some(header) = ring.next().expect("a correct worker") {
            let mut body = Vec::new();
            ring.body(&header, &mut body);
            ring.consume(header.size as usize);
            return Some((header, body));
        }
        if !spin().until(|| ring.has_news() != Ok(false)) {
            if carrier.death().is_some() {
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "no record within {PATIENCE:?}");
            ring.sleep(Duration::from_millis(50));
        }
    }
}

pub fn words(words: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    words.iter().for_each(|w| out.word(*w));
    out
}

/// The request for a stream that no default stream waits for.
pub fn non_blocking(stream: u64) -> calls::cuStreamCreateWithPriority {
    calls::cuStreamCreateWithPriority { phStream: stream, flags: CU_STREAM_NON_BLOCKING, priority: 0 }
}

/// The request for the device's memory.
pub fn memory(bytes: u64) -> MemAlloc {
    MemAlloc { bytes: Size(bytes) }
}

/// A copy, as the worker is told. Nobody has written to the struct's padding.
pub fn told(d: &CUDA_MEMCPY3D) -> Copy3D {
    // SAFETY: plain data, with zeros in its padding.
    let words = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(d).cast::<u8>(), size_of_val(d)) };
    Copy3D::decode(&mut Reader::new(words)).expect("the same words in the same order")
}

/// A message's body.
pub fn body<'a>(message: &impl Field<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    message.put(&mut out);
    out
}

pub fn pattern(seed: u64, i: u64) -> u8 {
    (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Waits for something that another process does soon.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Measures until it is as it should be: a busy machine spoils a measurement now and then, a fault spoils each.
pub fn measured(mut once: impl FnMut() -> Result<(), String>) {
    const TRIES: usize = 4;
    let mut seen = Vec::new();
    while seen.len() < TRIES {
        match once() {
            Ok(()) => return,
            Err(why) => seen.push(why),
        }
    }
    panic!("each time of {TRIES}:\n{}", seen.join("\n"));
}

/// What [`measured`] takes for an answer.
pub fn holds(does: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if does { Ok(()) } else { Err(seen()) }
}

pub fn is_alive(pid: u32) -> bool {
    // A zombie counts: it has not been reaped.
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// Not a zombie: an orphan that nobody reaps here still counts as ended.
pub fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

pub fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: room for both; both are new and ours.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

/// Everything a socket has to say until the other side closes it, at most a megabyte.
pub fn read_rest(stream: &mut impl Read) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = stream.take(1 << 20).read_to_end(&mut out);
    out
}
