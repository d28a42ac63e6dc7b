//! An oriond that belongs to a pool: who may begin a session, and what the agent beside it hears.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use orion_tls::Fingerprint;
use orion_tls::trust::Trust;
use orion_transport::carrier;
use orion_transport::client::{Caller, Tuning};
use orion_transport::fds;
use orion_transport::lease::{LeaseKey, MasterKey, SignedLease};
use orion_wire::agent::{AGENT_VERSION, Answer, Ask, KIND};
use orion_wire::lease::{Lease, LeaseId, Vgpu, gpu_name};
use orion_wire::refusal::Reason;

use crate::harness::*;

/// An oriond of the pool's node "a", and its agent.
pub struct Node {
    pub oriond: Oriond,
    agent: UnixStream,
    instance: [u8; 16],
    certificate: Fingerprint,
    gpu: String,
    heard: u64,
    /// Behind the server, so that it goes after it.
    _folder: Folder,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Node {
    fn start(folder: &str) -> Node {
        Node::start_with(folder, &["--driver", "echo"])
    }

    /// With these arguments, among which is a driver.
    pub fn start_with(folder: &str, arguments: &[&str]) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
        let folder = folder_of(folder);
        command.args(["serve", "--listen", "127.0.0.1:0", "--warm", "1", "--engines", "2"]).args(arguments);
        let (socket, segment) = (folder.join("oriond.sock"), new_segment(&folder));
        command.arg("--socket").arg(&socket).arg("--pool").arg(folder.join("pool.sock"));
        command.args(["--guest-sessions", "4", "--guest"]).arg(&segment);
        let mut oriond = Oriond::start_as(&mut command);
        (oriond.socket, oriond.segment) = (socket, segment);
        let agent = UnixStream::connect(folder.join("pool.sock")).expect("it listens for its agent");
        let (gpu, certificate) = (String::new(), Fingerprint([0; 32]));
        let mut node = Node { oriond, agent, instance: [0; 16], certificate, gpu, heard: 0, _folder: Folder(folder) };
        wait_until("a warm worker", || match node.ask(&Ask::Who { version: AGENT_VERSION }) {
            Answer::Server { instance, gpus, is_software, certificate } => {
                assert_eq!((is_software, gpus.len()), (arguments.contains(&"soft"), 1));
                node.certificate = Fingerprint(certificate.expect("it listens on TCP"));
                (node.instance, node.gpu) = (instance, gpu_name(&gpus[0].uuid));
                true
            }
            Answer::No { reason } => {
                assert!(reason.contains("no worker is warm"), "{reason}");
                false
            }
            other => panic!("{other:?}"),
        });
        node
    }

    fn ask(&self, ask: &Ask) -> Answer {
        fds::send_frame(self.agent.as_fd(), KIND, &ask.encode(), &[]).expect("sending");
        let (kind, body, _) = fds::recv_frame(self.agent.as_fd()).expect("an answer");
        assert_eq!(kind, KIND);
        Answer::decode(&body).expect("a sound answer")
    }

    pub fn key(&self) -> LeaseKey {
        MasterKey::new([1; 32]).key_of("a", &self.instance)
    }

    pub fn belong(&self) {
        let key = *self.key().bytes();
        let belong = Ask::Belong { node: "a".into(), key, controller_unix_ms: now_unix_ms() };
        assert_eq!(self.ask(&belong), Answer::Done);
    }

    /// What changes next.
    fn look(&mut self, over: Vec<LeaseId>) -> (Vec<LeaseId>, Vec<LeaseId>) {
        match self.ask(&Ask::Look { heard: self.heard, over, wait_ms: 10_000 }) {
            Answer::State { version, live, ended, .. } => {
                self.heard = version;
                (live, ended)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn lease(&self, number: u8) -> Lease {
        let vgpu = Vgpu { gpu: self.gpu.clone(), memory_bytes: 256 << 20, ratio: 25 };
        Lease {
            id: LeaseId([number; 16]),
            node: "a".into(),
            tenant: "red".into(),
            begins_before_unix_ms: now_unix_ms() + 60_000,
            vgpus: vec![vgpu.clone(), vgpu],
        }
    }

    /// Who knows oriond's certificate as the controller would have said it.
    fn caller(&self, transport: Transport) -> Caller {
        let fingerprint = (transport == Transport::Tls).then_some(self.certificate);
        Caller { trust: transport.trust().or(Trust { fingerprint, ..Trust::default() }), ..hello() }
    }

    pub fn attach(&self, transport: Transport, lease: Option<SignedLease>) -> Result<Client, (Option<Reason>, String)> {
        let caller = Caller { token: None, lease, ..self.caller(transport) };
        let client = Client::try_attach(&self.oriond, transport, &caller, Tuning::default());
        client.map_err(|no| (no.refused, no.text))
    }

    fn refusal(&self, transport: Transport, lease: Option<SignedLease>) -> String {
        let (reason, text) = self.attach(transport, lease).err().expect("it is refused");
        // Of another lease it may be let in.
        let is_of_another = ["made by somebody else", "is orion-agent running?"].iter().any(|why| text.contains(why));
        assert_eq!(reason, Some(if is_of_another { Reason::Lease } else { Reason::NotPermitted }), "{text}");
        text
    }
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

fn folder_of(name: &str) -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;
    let folder = std::env::temp_dir().join(format!("orion-test-lease-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a new folder");
    folder
}

#[test]
fn a_lease_brings_its_vgpus_and_is_for_one_session() {
    let mut node = Node::start("brings");
    assert!(node.refusal(Transport::Shm, Some(node.key().sign(&node.lease(1)))).contains("is orion-agent running?"));
    node.belong();
    for (number, transport) in Transport::ALL.iter().enumerate() {
        let lease = node.lease(number as u8);
        let signed = node.key().sign(&lease);
        let client = node.attach(*transport, Some(signed.clone())).expect("a good lease");
        let sizes: Vec<u64> = client.welcome.devices.iter().map(|device| device.total_memory).collect();
        assert_eq!(sizes, [256 << 20; 2]);
        let (live, _) = node.look(Vec::new());
        assert!(live.contains(&lease.id));
        let refused = node.refusal(*transport, Some(signed.clone()));
        assert!(refused.contains("was used before"), "{refused}");
        drop(client);
        wait_until("the session's end", || node.look(Vec::new()) == (vec![], vec![lease.id]));
        let refused = node.refusal(*transport, Some(signed));
        assert!(refused.contains("was used before"), "{refused}");
    }
    node.oriond.wait_for_log(&["session begins", "lease=01010101-", "tenant=\"red\""]);
}

/// Leases that nobody may have anything by, and what is said of each.
fn bad_leases(node: &Node) -> Vec<(Option<SignedLease>, &'static str)> {
    let (good, key) = (node.lease(1), node.key());
    let mut altered = key.sign(&good);
    altered.body = Lease { vgpus: vec![good.vgpus[0].clone(); 4], ..good.clone() }.encode();
    let elsewhere = MasterKey::new([1; 32]).key_of("b", &node.instance);
    let before = MasterKey::new([1; 32]).key_of("a", &[0; 16]);
    vec![
        (None, "set ORION_CONTROLLER"),
        (Some(SignedLease { signature: [0; 32], ..key.sign(&good) }), "made by somebody else"),
        (Some(altered), "it was changed"),
        (Some(elsewhere.sign(&Lease { node: "b".into(), ..good.clone() })), "for the node \"b\""),
        (Some(before.sign(&good)), "from before oriond was started again"),
        (Some(SignedLease { body: vec![7; 64], signature: [0; 32] }), "is damaged"),
    ]
}

#[test]
fn a_forged_foreign_or_late_lease_lets_nobody_in() {
    let node = Node::start("forged");
    node.belong();
    let (good, key) = (node.lease(1), node.key());
    let late = key.sign(&Lease { begins_before_unix_ms: 1, ..good.clone() });
    for transport in Transport::ALL {
        for (lease, words) in bad_leases(&node).into_iter().chain([(Some(late.clone()), "ran out")]) {
            let refused = node.refusal(*transport, lease);
            assert!(refused.contains(words), "{refused}");
        }
    }
    // None of that has used it up.
    drop(node.attach(Transport::Tcp, Some(key.sign(&good))).expect("a good lease"));
}

/// It is shown what its own lease is for, as long as it likes, and nothing of another's.
#[test]
fn who_only_looks_is_shown_nothing_by_a_forged_or_foreign_lease() {
    // The worker without a GPU tells of none.
    let node = Node::start_with("looks", &["--driver", "soft", "--heap", "512 MiB"]);
    node.belong();
    let key = node.key();
    for (number, transport) in Transport::ALL.iter().enumerate() {
        let look = |lease| {
            let caller = Caller { token: None, lease, ..node.caller(*transport) };
            carrier::view_of(&node.oriond.server(*transport), &caller)
        };
        for (lease, words) in bad_leases(&node) {
            let refused = look(lease).expect_err("it is shown something");
            assert!(refused.text.contains(words), "{}", refused.text);
        }
        let [own, other] = [10, 20].map(|base| node.lease(base + number as u8));
        let _session = node.attach(*transport, Some(key.sign(&own))).expect("a good lease");
        let seen = look(Some(key.sign(&own))).expect("its own");
        assert_eq!((seen.offer.devices.len(), seen.programs.len()), (2, 1));
        // Which never had a session, and has run out.
        let late = Lease { begins_before_unix_ms: 1, ..other };
        let seen = look(Some(key.sign(&late))).expect("its own");
        assert_eq!((seen.offer.devices.len(), seen.programs.len()), (2, 0));
    }
}

#[test]
fn what_the_agent_says_is_over_ends_and_an_agent_that_comes_again_has_missed_nothing() {
    let mut node = Node::start("over");
    node.belong();
    let lease = node.lease(9);
    let client = node.attach(Transport::Tcp, Some(node.key().sign(&lease))).expect("a good lease");
    node.look(Vec::new());
    node.look(vec![lease.id]);
    wait_until("the session's end", || client.is_lost());
    node.oriond.wait_for_log(&["says that its lease is over"]);
    // Killed before it could tell anybody.
    let path = node.agent.peer_addr().expect("a name").as_pathname().expect("a path").to_owned();
    node.agent = UnixStream::connect(path).expect("it listens again");
    node.heard = 0;
    wait_until("the end being told again", || node.look(Vec::new()) == (vec![], vec![lease.id]));
}

#[test]
fn an_oriond_outside_of_a_pool_refuses_a_lease_and_one_in_it_what_leases_say() {
    let outside = Oriond::start(&[]);
    let lease = SignedLease { body: vec![1; 8], signature: [0; 32] };
    let caller = Caller { token: None, lease: Some(lease), ..hello() };
    let refused = Client::try_attach(&outside, Transport::Tcp, &caller, Tuning::default()).err().expect("refused");
    assert!(refused.text.contains("belongs to no pool"), "{}", refused.text);
    for options in [&["--memory-limit", "1 GiB"][..], &["--vgpus", "2"]] {
        let folder = Folder(folder_of("beside"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
        command.args(["serve", "--driver", "echo", "--listen", "127.0.0.1:0", "--pool"]).arg(folder.0.join("s"));
        let output = command.args(options).output().expect("starting oriond");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(options[0]) && said.contains("contradict"), "{said}");
    }
}
