//! Who comes to the controller's port to keep others out of it: each time somebody honest is served beside him, and the
//! process has no more memory and descriptors than before.

mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use orion_proto::pool_client::PoolClient;
use orion_proto::{AllocateRequest, Gpu, ListAllocationsRequest, Quota, RegisterRequest, SetQuotaRequest};
use tonic::{Code, Status};

use process::Controller;

/// Descriptors that the controller may have.
const DESCRIPTORS: usize = 256;
const PATIENCE: Duration = Duration::from_secs(20);

impl Controller {
    fn start(name: &str) -> Controller {
        Controller::started(name, |config| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {DESCRIPTORS} && exec \"$0\" start --config-file \"$1\"")]);
            command.arg(env!("CARGO_BIN_EXE_orion-controller")).arg(config).stderr(Stdio::null());
            command
        })
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    /// Whoever asks for something small is answered, each time.
    fn serves_others(&mut self) {
        for _ in 0..10 {
            let mut socket = self.connect();
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it takes it");
            let mut answer = String::new();
            socket.read_to_string(&mut answer).expect("an answer");
            assert!(answer.ends_with("ok\n"), "{answer}");
        }
        assert!(self.child.try_wait().expect("our child").is_none(), "the controller has ended");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill starts").success());
    }

    fn memory_mib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
    }

    fn asks<T>(
        &self,
        what: impl AsyncFnOnce(PoolClient<tonic::transport::Channel>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let address = format!("http://{}", self.address);
        runtime.block_on(async { what(PoolClient::connect(address).await.expect("it listens")).await })
    }

    fn registers(&self, name: &str, gpus: u32, memory_bytes: u64, reserve_bytes: u64) -> Result<(), Status> {
        self.registers_split(name, gpus, memory_bytes, reserve_bytes, 1)
    }

    fn registers_split(
        &self,
        name: &str,
        gpus: u32,
        memory_bytes: u64,
        reserve_bytes: u64,
        split: u32,
    ) -> Result<(), Status> {
        let gpu = |n: u32| Gpu { uuid: format!("{name}-{n}"), name: "x".repeat(200), memory_bytes, reserve_bytes };
        let request = RegisterRequest {
            node: name.to_owned(),
            address: "10.0.0.1:7411".to_owned(),
            gpus: (0..gpus).map(gpu).collect(),
            split,
            oriond: "0".repeat(32),
            ..RegisterRequest::default()
        };
        self.asks(async move |mut client| client.register(request).await.map(drop))
    }
}

#[test]
fn connections_without_number_that_ask_for_nothing_keep_nobody_out() {
    let mut controller = Controller::start("silent");
    for first in [&b""[..], b"G", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nA: "] {
        let mut all = Vec::new();
        for n in 0..2 * DESCRIPTORS {
            let mut socket = controller.connect();
            // It may have been told to go already.
            let _ = socket.write_all(first);
            all.push(socket);
            if n % 64 == 63 {
                controller.serves_others();
            }
        }
        controller.serves_others();
    }
}

#[test]
fn requests_that_do_not_come_whole_have_a_part_of_the_memory_and_others_are_served() {
    let mut controller = Controller::start("bodies");
    let bytes = 4 << 20;
    let head = format!(
        "POST /orion.v1.Pool/Heartbeat HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nContent-Length: {bytes}\
         \r\n\r\n\0"
    );
    // As long as it may be, and all but the end of it.
    let message = [head.as_bytes(), &(bytes as u32 - 5).to_be_bytes(), &vec![b'x'; bytes - 1000]].concat();
    let mut all = Vec::new();
    for _ in 0..100 {
        let mut socket = controller.connect();
        // It is refused in the midst of it.
        let _ = socket.write_all(&message);
        all.push(socket);
    }
    controller.serves_others();
    let memory = controller.memory_mib();
    assert!(memory < 200, "it has {memory} MiB");
    controller.registers("a", 1, 1 << 30, 0).expect("a small request");
}

#[test]
fn answers_that_nobody_reads_have_a_part_of_the_memory_and_others_are_served() {
    let mut controller = Controller::start("answers");
    for n in 0..100 {
        controller.registers(&format!("{}{n}", "n".repeat(200)), 64, 1 << 30, 0).expect("a good node");
    }
    let mut all = Vec::new();
    for _ in 0..40 {
        let mut socket = controller.connect();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes it");
        all.push(socket);
    }
    controller.serves_others();
    let memory = controller.memory_mib();
    assert!(memory < 300, "it has {memory} MiB");
    // Who was refused is told so, and it is over when they have gone.
    let is_refused = |mut socket: &TcpStream| {
        let mut start = [0; 12];
        socket.read_exact(&mut start).is_ok() && &start == b"HTTP/1.1 503"
    };
    assert!(all.iter().filter(|socket| is_refused(socket)).count() > 10);
    drop(all);
    let until = Instant::now() + PATIENCE;
    loop {
        let mut socket = controller.connect();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it takes it");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        if answer.starts_with("HTTP/1.1 200") {
            assert!(answer.ends_with("# EOF\n") && answer.len() > 10 << 20);
            break;
        }
        assert!(Instant::now() < until, "{answer:.300}");
    }
}

#[test]
fn one_connection_is_given_so_much_that_it_does_not_come_for_and_no_more() {
    let mut controller = Controller::start("claims");
    controller.registers_split("a", 4, 1 << 40, 0, 100).expect("a good node");
    let socket = controller.connect();
    let mut heard = BufReader::new(socket.try_clone().expect("the same socket"));
    let mut says = |method: &str, path: &str, body: &str| {
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nOrion-Claims: 1\r\nContent-Length: {}\r\n\r\n", body.len());
        (&socket).write_all((head + body).as_bytes()).expect("it takes it");
        let (mut status, mut bytes) = (String::new(), 0);
        heard.read_line(&mut status).expect("an answer");
        loop {
            let mut line = String::new();
            heard.read_line(&mut line).expect("a header");
            match line.trim_end().split_once(": ") {
                Some(("content-length", length)) => bytes = length.parse().expect("a number"),
                Some(_) => {}
                None => break,
            }
        }
        heard.read_exact(&mut vec![0; bytes]).expect("a body");
        status.contains(" 200 ")
    };
    let id = |n: usize| format!("00000000-0000-4000-8000-{n:012}");
    let ask = |n: usize| format!("{{\"allocation\":\"{}\",\"vgpus\":1,\"memory_mib\":1,\"ratio\":1}}", id(n));
    assert_eq!((0..100).filter(|n| says("POST", "/allocations", &ask(*n))).count(), 64);
    // What is given back counts no more, however often.
    assert!((0..64).all(|n| says("DELETE", &format!("/allocations/{}", id(n)), "")));
    for n in 100..300 {
        assert!(says("POST", "/allocations", &ask(n)) && says("DELETE", &format!("/allocations/{}", id(n)), ""));
    }
    controller.serves_others();
}

/// Both at once, as where the controller had no core for a moment.
#[test]
fn a_program_that_goes_with_its_word_that_its_session_has_begun_has_said_it() {
    let controller = Controller::start("word");
    controller.registers("a", 1, 1 << 40, 0).expect("a good node");
    let allocation = "00000000-0000-4000-8000-000000000001";
    let head = |path: &str, bytes: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nOrion-Claims: 1\r\nContent-Length: {bytes}\r\n\r\n")
    };
    let mut socket = controller.connect();
    let ask = format!("{{\"allocation\":\"{allocation}\",\"vgpus\":1,\"memory_mib\":1,\"ratio\":1}}");
    socket.write_all((head("/allocations", ask.len()) + &ask).as_bytes()).expect("it takes it");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let mut piece = [0; 4096];
        let bytes = socket.read(&mut piece).expect("an answer");
        answer.extend_from_slice(&piece[..bytes]);
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&answer));
    }
    controller.signal("STOP");
    let word = head(&format!("/allocations/{allocation}/session"), 1) + "1";
    socket.write_all(word.as_bytes()).expect("the system takes it");
    drop(socket);
    controller.signal("CONT");
    let began = Instant::now();
    loop {
        let list = controller.asks(async |mut pool| pool.list_allocations(ListAllocationsRequest::default()).await);
        let allocations = list.expect("a list").into_inner().allocations;
        assert_eq!(allocations.len(), 1, "what a session has was taken back");
        if allocations[0].confirmed {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "nobody has heard the program");
    }
}

#[test]
fn numbers_at_their_limits_are_refused_and_end_nothing() {
    let mut controller = Controller::start("numbers");
    for (memory, reserve) in [(u64::MAX, 0), (u64::MAX, u64::MAX - 1), (i64::MAX as u64, 0), ((1 << 44) + 1, 1)] {
        let status = controller.registers("a", 2, memory, reserve).expect_err("no GPU has that");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
    controller.registers("a", 2, 1 << 44, 0).expect("as much as there may be");
    let quota = Quota { tenant: "red".to_owned(), vgpus: Some(u32::MAX), memory_mib: Some(1), ratio: None };
    let set = SetQuotaRequest { quota: Some(quota) };
    controller.asks(async move |mut client| client.set_quota(set).await.map(drop)).expect("a quota");
    let ask = |vgpus, memory_mib| AllocateRequest { vgpus, memory_mib, tenant: "red".to_owned(), ..Default::default() };
    for ask in
        [ask(2, Some(1 << 43)), ask(64, Some((1 << 44) - 1)), ask(u32::MAX, None), ask(2, None), ask(64, Some(1 << 24))]
    {
        let refused = controller.asks(async |mut client| client.allocate(ask.clone()).await.map(drop));
        let code = refused.expect_err("more than there is").code();
        assert!(matches!(code, Code::InvalidArgument | Code::FailedPrecondition), "{ask:?}: {code:?}");
    }
    controller.serves_others();
}
