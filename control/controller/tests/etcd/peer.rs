//! One of several controllers that share a pool.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PATIENCE;

pub struct Peer {
    pub folder: PathBuf,
    urls: String,
    pub port: u16,
    child: Option<Child>,
}

impl Peer {
    /// Not started yet. It has the key of leases of `other`, if that is named.
    pub fn new(folder: &Path, name: &str, urls: &str, other: Option<&Peer>) -> Peer {
        let folder = folder.join(name);
        std::fs::create_dir_all(folder.join("data")).expect("a new folder");
        if let Some(other) = other {
            let key = "data/lease.key";
            std::fs::copy(other.folder.join(key), folder.join(key)).expect("the other one has made it");
        }
        Peer { folder, urls: urls.to_owned(), port: orion_built::steady_port(), child: None }
    }

    fn command(&self) -> Command {
        let config = self.folder.join("controller.yaml");
        let (port, data) = (self.port, self.folder.join("data"));
        let text = format!(
            "controller:\n  listen_port: {port}\n  places_by_ratio: true\ndatabase:\n  data-dir: {}\n",
            data.display()
        );
        std::fs::write(&config, text).expect("writing");
        let mut command = Command::new(env!("CARGO_BIN_EXE_orion-controller"));
        command.args(["start", "--kv", &self.urls, "--config-file"]).arg(config).stdin(Stdio::null());
        command
    }

    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).expect("a log");
        let before = self.log().len();
        let mut command = self.command();
        command.stdout(log.try_clone().expect("another descriptor")).stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
        let words = format!("listening on {}\n", self.address());
        until("a port", || self.log()[before..].contains(&words));
    }

    /// What it says that ends by itself.
    pub fn refused(&self) -> String {
        let output = self.command().output().expect("it starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args([signal, &id]).status().expect("kill starts");
        assert!(status.success());
    }

    /// As by `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Told to end, it does.
    pub fn end(&mut self) {
        self.signal("-TERM");
        assert!(self.child.take().expect("it runs").wait().expect("it ends").success());
    }

    /// Its answer can be read as soon as it gives one.
    pub fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let length = body.len();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nHost: orion\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("sending");
        socket
    }

    /// Status, head and body.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        answer(self.send(method, path, body))
    }

    pub fn leads(&self) -> bool {
        self.http("GET", "/metrics", "").2.contains("orion_controller_leads 1\n")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.folder.display(), self.log());
        }
    }
}

pub fn answer(mut socket: TcpStream) -> (u16, String, String) {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).expect("a status").parse().expect("a number");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, head.to_owned(), body.to_owned())
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    began.elapsed()
}
