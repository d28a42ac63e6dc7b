//! An etcd of this test's own: real processes of Debian's etcd-server, each of which can be killed and started again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Cluster {
    folder: PathBuf,
    members: Vec<Member>,
    /// Where what each shows and wants to see lies: server.pem, server.key, ca.pem.
    papers: Option<PathBuf>,
}

struct Member {
    client: u16,
    peer: u16,
    child: Option<Child>,
}

impl Cluster {
    /// Of so many members, whose data lies in `folder`.
    #[allow(dead_code, reason = "for tests of another crate")]
    pub fn new(folder: &Path, count: usize) -> Cluster {
        Cluster::with(folder, count, None)
    }

    /// One that speaks TLS to its clients, and only to those with a certificate of the same CA.
    #[allow(dead_code, reason = "for tests of another crate")]
    pub fn secured(folder: &Path, papers: &Path) -> Cluster {
        Cluster::with(folder, 1, Some(papers.to_owned()))
    }

    fn with(folder: &Path, count: usize, papers: Option<PathBuf>) -> Cluster {
        let member = |_| Member { client: orion_built::steady_port(), peer: orion_built::steady_port(), child: None };
        let members = (0..count).map(member).collect();
        let mut cluster = Cluster { folder: folder.to_owned(), members, papers };
        (0..count).for_each(|number| cluster.start(number));
        cluster
    }

    /// As `--kv` takes them.
    pub fn urls(&self) -> String {
        let scheme = self.scheme();
        let urls = self.members.iter().map(|member| format!("{scheme}://127.0.0.1:{}", member.client));
        urls.collect::<Vec<_>>().join(",")
    }

    fn scheme(&self) -> &'static str {
        if self.papers.is_some() { "https" } else { "http" }
    }

    /// A new one, or one that was killed.
    pub fn start(&mut self, number: usize) {
        let all = self.members.iter().enumerate();
        let all: Vec<String> = all.map(|(n, member)| format!("e{n}=http://127.0.0.1:{}", member.peer)).collect();
        let (client, peer) = (self.members[number].client, self.members[number].peer);
        let scheme = self.scheme();
        let (client, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let data = self.folder.join(format!("e{number}.etcd"));
        let log = File::options().create(true).append(true).open(data.with_extension("log")).expect("a log");
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("e{number}"), "--initial-cluster", &all.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--data-dir").arg(&data).env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        if let Some(papers) = &self.papers {
            command.arg("--cert-file").arg(papers.join("server.pem")).arg("--key-file").arg(papers.join("server.key"));
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(papers.join("ca.pem"));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("another descriptor")).stderr(log);
        let child = command.spawn();
        let advice = "this test needs an etcd; it is in Debian's package etcd-server (apt-get install etcd-server)";
        self.members[number].child = Some(child.unwrap_or_else(|e| panic!("starting etcd failed: {e}; {advice}")));
    }

    /// As by `kill -9`.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|number| self.kill(number));
    }
}
