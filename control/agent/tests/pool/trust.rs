//! Trust between hosts: a pool whose certificates `orionctl` has made, and what each program says where they are no
//! good. All on loopback, where a CA that is named is reason enough to encrypt.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};

use crate::cluster::Cluster;
use crate::scene::{Process, built, new_folder, wait_until};

/// A controller and one node, all of whose connections need certificates.
struct Pool {
    folder: PathBuf,
    controller: Process,
    port: String,
    node: Option<(Process, Process)>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.node = None;
        self.controller.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What it says, and whether it ended well.
fn said(command: &mut Command) -> (bool, String) {
    for name in ["ORION_INSECURE", "ORION_TLS", "ORION_FINGERPRINT", "ORION_SERVER", "ORION_QUIET"] {
        command.env_remove(name);
    }
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn certificate(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(built().join("orionctl"));
    let (done, text) = said(command.current_dir(folder).arg("certificate").args(words));
    assert!(done, "{words:?}: {text}");
    text
}

impl Pool {
    fn new() -> Pool {
        let folder = new_folder();
        certificate(&folder, &["ca"]);
        certificate(&folder, &["ca", "--folder", "other"]);
        certificate(&folder, &["server", "controller", "127.0.0.1", "localhost"]);
        certificate(&folder, &["server", "elsewhere", "gpu.example"]);
        certificate(&folder, &["node", "alpha", "127.0.0.1"]);
        for who in ["red", "blue"] {
            certificate(&folder, &["client", who]);
        }
        certificate(&folder, &["client", "stranger", "--folder", "other"]);
        certificate(&folder, &["administrator", "ann"]);
        make_expired(&folder);
        std::fs::write(folder.join("revoked"), "").expect("writing");
        let controller = Pool::start_controller(&folder, "controller", "listen_port: 0");
        let port = controller.says("listening on 127.0.0.1:");
        Pool { folder, controller, port, node: None }
    }

    fn start_controller(folder: &Path, shows: &str, more: &str) -> Process {
        let config = folder.join(format!("{shows}.yaml"));
        let path = |name: &str| folder.join(name).display().to_string();
        let text = format!(
            "controller:\n  {more}\n  certificate: {}\n  key: {}\n  client_ca: {}\n  revoked: {}\n\
             database:\n  data-dir: {}\n",
            path(&format!("{shows}.pem")),
            path(&format!("{shows}.key")),
            path("ca.pem"),
            path("revoked"),
            path(&format!("data-of-{shows}")),
        );
        std::fs::write(&config, text).expect("writing");
        let mut command = Command::new(built().join("orion-controller"));
        let log = folder.join(format!("{shows}.log"));
        Process::start(command.args(["start", "--config-file"]).arg(config), &log)
    }

    /// Whoever it starts believes this CA and shows this certificate, by its environment.
    fn as_who(&self, command: &mut Command, ca: &str, shown: Option<&str>) {
        command.env("ORION_CONTROLLER", format!("127.0.0.1:{}", self.port)).env("ORION_CA", self.folder.join(ca));
        for (name, ending) in [("ORION_CERTIFICATE", "pem"), ("ORION_KEY", "key")] {
            match shown {
                Some(shown) => command.env(name, self.folder.join(format!("{shown}.{ending}"))),
                None => command.env_remove(name),
            };
        }
    }

    fn start_oriond(&self) -> Process {
        let mut command = Command::new(built().join("oriond"));
        command.args(["serve", "--driver", "soft", "--warm", "1", "--engines", "1", "--heap", "1 GiB"]);
        command.args(["--listen", "127.0.0.1:0", "--socket", "none"]).arg("--pool").arg(self.folder.join("pool.sock"));
        for (option, file) in [
            ("--certificate", "alpha.pem"),
            ("--key", "alpha.key"),
            ("--client-ca", "ca.pem"),
            ("--revoked", "revoked"),
        ] {
            command.arg(option).arg(self.folder.join(file));
        }
        command.env("ORION_SOFT_DEVICES", "1").env("ORION_SOFT_MEMORY_MIB", "1024");
        Process::start(&mut command, &self.folder.join("oriond.log"))
    }

    /// Beside the oriond that is at this socket of the folder.
    fn start_agent(&self, name: &str, pool: &str, address: &str, ca: &str, shown: Option<&str>) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orion-agent"));
        command.args(["--controller", &format!("127.0.0.1:{}", self.port)]);
        command.arg("--pool").arg(self.folder.join(pool));
        command.args(["--address", address, "--node", name, "--vgpu-count", "2"]);
        self.as_who(&mut command, ca, shown);
        let log = self.folder.join(format!("agent-{name}-{}.log", shown.unwrap_or("nobody").replace('/', "-")));
        Process::start(&mut command, &log)
    }

    fn with_node(mut self) -> Pool {
        let oriond = self.start_oriond();
        let address = format!("tcp:127.0.0.1:{}", oriond.says("tcp:127.0.0.1:"));
        let agent = self.start_agent("alpha", "pool.sock", &address, "ca.pem", Some("alpha"));
        self.node = Some((oriond, agent));
        wait_until("the node to be in the pool", || {
            self.tool("orionctl", &["devices"], "ca.pem", Some("ann")).1.contains("alpha")
        });
        self
    }

    fn tool(&self, tool: &str, words: &[&str], ca: &str, shown: Option<&str>) -> (bool, String) {
        let mut command = Command::new(built().join(tool));
        self.as_who(command.args(words), ca, shown);
        said(&mut command)
    }

    fn program(&self, ca: &str, shown: Option<&str>, environment: &[(&str, &str)]) -> (bool, String) {
        let mut command = Command::new(built().join("examples/show_vgpus"));
        for name in ["ORION_TRANSPORT", "ORION_TOKEN", "ORION_TOKEN_FILE", "LD_PRELOAD", "ORION_TENANT"] {
            command.env_remove(name);
        }
        command.env("LD_LIBRARY_PATH", &self.folder).env("HOME", &self.folder).env("ORION_VERBOSE", "1");
        command.env("ORION_WAIT", "1").envs(environment.iter().copied());
        self.as_who(&mut command, ca, shown);
        for name in ["ORION_INSECURE", "ORION_FINGERPRINT", "ORION_SERVER", "ORION_QUIET"] {
            command.env_remove(name);
        }
        let output = command.env("ORION_TLS", "1").output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    }
}

/// `orionctl` makes none that are over.
fn make_expired(folder: &Path) {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it was made");
    let key = KeyPair::from_pem(&read("ca.key")).expect("a key");
    let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), key).expect("a CA");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.subject_alt_names = vec![SanType::URI("orion://client/red".try_into().expect("plain"))];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let made = params.signed_by(&key, &issuer).expect("signing");
    std::fs::write(folder.join("expired.pem"), made.pem()).expect("writing");
    std::fs::write(folder.join("expired.key"), key.serialize_pem()).expect("writing");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("expired.key"), private).expect("chmod");
}

#[test]
fn keys_that_orionctl_makes_are_their_owners_and_nothing_is_written_over() {
    use std::os::unix::fs::PermissionsExt;
    let folder = new_folder();
    assert!(certificate(&folder, &["ca"]).contains("ca.key makes certificates"));
    let made = certificate(&folder, &["client", "red"]);
    assert!(made.contains("orion://client/red") && made.contains("fingerprint "), "{made}");
    for key in ["ca.key", "red.key"] {
        assert_eq!(std::fs::metadata(folder.join(key)).expect("made").permissions().mode() & 0o777, 0o600);
    }
    assert!(certificate(&folder, &["show", "red.pem"]).contains("orion://client/red"));
    for (words, why) in [
        (&["ca"][..], "is there already"),
        (&["client", "red"], "is there already"),
        (&["client", "a b"], "cannot be a name in a certificate"),
        (&["client", "blue", "--folder", "nowhere"], "make a CA with `orionctl certificate ca`"),
        (&["show", "red.key"], "has no certificate in it"),
        (&["revoke", "none.pem"], "none.pem"),
    ] {
        let mut command = Command::new(built().join("orionctl"));
        let (done, text) = said(command.current_dir(&folder).arg("certificate").args(words));
        assert!(!done && text.contains(why), "{words:?}: {text}");
    }
    std::fs::remove_dir_all(&folder).expect("removing");
}

#[test]
fn a_pool_of_certificates_lets_each_do_what_his_is_for() {
    let pool = Pool::new().with_node();
    // A program, all the way, encrypted on both.
    let (done, text) = pool.program("ca.pem", Some("red"), &[]);
    assert!(done && text.contains("transport tcp (encrypted by TLS 1.3)"), "{text}");
    let (oriond, _) = pool.node.as_ref().expect("it runs");
    oriond.says("certificate=orion://client/red");
    assert!(oriond.log().contains("tenant=\"red\""), "{}", oriond.log());
    for (ca, shown, environment, words) in [
        ("ca.pem", None, &[][..], "wants a certificate (controller.client_ca)"),
        ("ca.pem", Some("other/stranger"), &[], "not signed by a CA that it believes"),
        ("ca.pem", Some("expired"), &[], "the certificate that is shown here has expired"),
        ("ca.pem", Some("alpha"), &[], "takes one of orion://client/NAME"),
        ("ca.pem", Some("red"), &[("ORION_TENANT", "blue")], "is not tenant \"blue\"'s"),
        ("other/ca.pem", Some("red"), &[], "not signed by the CA that is believed here"),
    ] {
        let (done, text) = pool.program(ca, shown, environment);
        assert!(!done && text.contains(words), "{shown:?}: {text}");
    }
    // Tools.
    for (tool, words) in [("orionctl", &["devices"][..]), ("orion-smi", &["--pool"])] {
        let (done, text) = pool.tool(tool, words, "ca.pem", Some("red"));
        assert!(done && text.contains("alpha") && !text.contains("INSECURE"), "{text}");
    }
    for (ca, shown, words, why) in [
        ("ca.pem", Some("red"), &["drain", "alpha"][..], "takes one of orion://administrator/NAME"),
        ("ca.pem", None, &["devices"], "wants a certificate"),
        ("ca.pem", Some("other/stranger"), &["devices"], "not signed by a CA that it believes"),
        ("ca.pem", Some("expired"), &["devices"], "has expired"),
        ("other/ca.pem", Some("ann"), &["devices"], "not signed by the CA that is believed here"),
        ("ca.pem", Some("red"), &["--insecure", "devices"], "wants a certificate (controller.client_ca)"),
    ] {
        let (done, text) = pool.tool("orionctl", words, ca, shown);
        assert!(!done && text.contains(why), "{shown:?} {words:?}: {text}");
    }
    // Agents, each without an oriond: alpha's has one already, and talks to one agent at a time.
    for (name, shown, why) in [
        ("alpha", Some("red"), "takes one of orion://node/NAME"),
        ("beta", Some("alpha"), "is not node \"beta\"'s"),
        ("gamma", None, "wants a certificate"),
        ("delta", Some("other/stranger"), "not signed by a CA that it believes"),
    ] {
        let agent = pool.start_agent(name, "none.sock", "tcp:127.0.0.1:1", "ca.pem", shown);
        wait_until(&format!("{why:?} in\n{}", agent.log()), || agent.log().contains(why));
    }
    let (_, devices) = pool.tool("orionctl", &["devices"], "ca.pem", Some("ann"));
    assert!(!devices.contains("beta") && !devices.contains("gamma"), "{devices}");
}

#[test]
fn who_is_revoked_is_out_within_seconds_of_the_controller_and_of_its_nodes() {
    let pool = Pool::new().with_node();
    assert!(pool.program("ca.pem", Some("red"), &[]).0);
    certificate(&pool.folder, &["revoke", "red.pem"]);
    let began = Instant::now();
    let mut was_refused = false;
    wait_until("the program to be refused, and told why", || {
        let (done, text) = pool.program("ca.pem", Some("red"), &[]);
        assert!(!done || !was_refused, "{text}");
        // One whose lease or session ends while it begins is out as well, and the log has the reason.
        was_refused = !done;
        text.contains("the certificate orion://client/red is revoked")
    });
    assert!(was_refused);
    // By the node it may be a moment before it is by the controller.
    wait_until("a tool to be refused", || {
        pool.tool("orionctl", &["devices"], "ca.pem", Some("red")).1.contains("is revoked")
    });
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(pool.program("ca.pem", Some("blue"), &[]).0, "another one is not");
    // The node's own: it is out of the pool as soon as it speaks again.
    certificate(&pool.folder, &["revoke", "alpha.pem"]);
    let (_, agent) = pool.node.as_ref().expect("it runs");
    wait_until("the agent to hear it", || agent.log().contains("orion://node/alpha is revoked"));
}

#[test]
fn a_controller_with_another_name_is_not_talked_to() {
    let mut pool = Pool::new();
    let elsewhere = Pool::start_controller(&pool.folder, "elsewhere", "listen_port: 0");
    pool.port = elsewhere.says("listening on 127.0.0.1:");
    for (_, text) in
        [pool.tool("orionctl", &["devices"], "ca.pem", Some("ann")), pool.program("ca.pem", Some("red"), &[])]
    {
        assert!(text.contains("its certificate is for another name"), "{text}");
    }
}

/// By which this machine would reach another one.
fn outward() -> std::net::IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("192.0.2.1:9").expect("this test needs a network beside loopback");
    socket.local_addr().expect("an address").ip()
}

#[test]
fn from_another_address_the_controller_is_spoken_to_by_tls_alone_and_says_so() {
    let mut pool = Pool::new();
    pool.controller.kill();
    pool.controller = Pool::start_controller(&pool.folder, "controller", "listen_ip: 0.0.0.0\n  listen_port: 0");
    pool.port = pool.controller.says("listening on 0.0.0.0:");
    let address = format!("{}:{}", outward(), pool.port);
    let mut plain = TcpStream::connect(&address).expect("it listens");
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: orion\r\nConnection: close\r\n\r\n").expect("sending");
    let mut answer = String::new();
    let _ = plain.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 426") && answer.contains("spoken to by TLS"), "{answer}");
    // Nobody is believed for nothing, and nobody falls back.
    let mut command = Command::new(built().join("orionctl"));
    let (done, text) = said(command.args(["--controller", &address, "devices"]).env_remove("ORION_CA"));
    assert!(!done && text.contains("give --ca FILE") && text.contains("--insecure"), "{text}");
    let mut command = Command::new(built().join("orionctl"));
    let (done, text) = said(command.args(["--controller", &address, "--insecure", "devices"]).env_remove("ORION_CA"));
    assert!(!done, "{text}");
}

#[test]
fn handshakes_that_stop_half_way_keep_nobody_from_the_controller() {
    let pool = Pool::new();
    let began = Instant::now();
    let address = format!("127.0.0.1:{}", pool.port);
    let mut stopped: Vec<TcpStream> = (0..150)
        .map(|n| {
            let mut socket = TcpStream::connect(&address).expect("it listens");
            // Nothing, half a header, a header, and some of a record.
            let _ = socket.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..n % 12]);
            socket
        })
        .collect();
    for socket in &mut stopped {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let _ = socket.read(&mut [0; 64]);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let (done, text) = pool.tool("orionctl", &["devices"], "ca.pem", Some("ann"));
    assert!(done, "{text}");
    // Nonsense in place of keys.
    for first in [&[22u8; 300][..], &[22, 3, 1, 0, 5, 9, 9, 9, 9, 9], b"\x16\x03\x01\xff\xff garbage"] {
        let mut socket = TcpStream::connect(&address).expect("it listens");
        let _ = socket.write_all(first);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert!(pool.tool("orionctl", &["devices"], "ca.pem", Some("ann")).0);
}

#[test]
fn insecure_is_shown_by_every_tool() {
    let folder = new_folder();
    let config = folder.join("controller.yaml");
    let data = folder.join("data");
    let text = format!(
        "controller:\n  listen_ip: 0.0.0.0\n  listen_port: 0\n  insecure: true\ndatabase:\n  data-dir: {}\n",
        data.display()
    );
    std::fs::write(&config, text).expect("writing");
    let mut command = Command::new(built().join("orion-controller"));
    let log = folder.join("controller.log");
    let controller = Process::start(command.args(["start", "--config-file"]).arg(config), &log);
    let port = controller.says("listening on 0.0.0.0:");
    controller.says("INSECURE");
    let address = format!("127.0.0.1:{port}");
    for (tool, words) in [
        ("orionctl", &["devices"][..]),
        ("orion-smi", &[]),
        ("orion-smi", &["--pool"]),
        ("orion-check", &["runtime", "controller"]),
        ("orion-top", &["--controller", &address, "--once", "--interval", "0.1"]),
    ] {
        let mut command = Command::new(built().join(tool));
        let command = command.args(words).env("ORION_CONTROLLER", &address).env_remove("ORION_CA").env("HOME", &folder);
        let (_, text) = said(command);
        assert!(text.contains("INSECURE"), "{tool} {words:?}: {text}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_orion-agent"));
    command.args(["--controller", &address, "--pool"]).arg(folder.join("none.sock"));
    command.args(["--address", "tcp:127.0.0.1:1", "--node", "alpha"]).env_remove("ORION_CA");
    let agent = Process::start(&mut command, &folder.join("agent.log"));
    wait_until("the agent to say so", || agent.log().contains("INSECURE"));
    drop((agent, controller));
    let _ = std::fs::remove_dir_all(&folder);
}

/// A controller of this folder with these words about its etcd, and what it says until there is a line with `words`.
fn with_etcd(folder: &Path, name: &str, about_etcd: &[&str], words: &str) -> (Process, String) {
    let config = folder.join(format!("{name}.yaml"));
    let data = folder.join(name);
    std::fs::write(&config, format!("controller:\n  listen_port: 0\ndatabase:\n  data-dir: {}\n", data.display()))
        .expect("writing");
    let mut command = Command::new(built().join("orion-controller"));
    command.current_dir(folder).args(["start", "--config-file"]).arg(config).args(about_etcd);
    let controller = Process::start(&mut command, &folder.join(format!("{name}.log")));
    wait_until(&format!("{words:?} in\n{}", controller.log()), || controller.log().contains(words));
    let log = controller.log();
    (controller, log)
}

#[test]
fn controllers_and_their_etcd_speak_tls_and_each_wants_to_see_a_certificate() {
    let folder = new_folder();
    certificate(&folder, &["ca"]);
    certificate(&folder, &["ca", "--folder", "other"]);
    certificate(&folder, &["server", "server", "127.0.0.1"]);
    certificate(&folder, &["administrator", "controller"]);
    certificate(&folder, &["administrator", "stranger", "--folder", "other"]);
    let etcd = Cluster::secured(&folder, &folder);
    let urls = etcd.urls();
    let shown = |ca: &'static str, name: &str| {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        ["--kv", &urls, "--kv-ca", ca, "--kv-certificate", &certificate, "--kv-key", &key].map(str::to_owned)
    };
    let leads = "this controller leads the pool";
    let right = shown("ca.pem", "controller");
    let (mut first, log) = with_etcd(&folder, "a", &right.each_ref().map(String::as_str), leads);
    assert!(log.contains("https://127.0.0.1:"), "{log}");
    // It is the etcd that keeps the pool: another controller follows, and leads when the first one has ended.
    std::fs::create_dir(folder.join("b")).expect("a new folder");
    std::fs::copy(folder.join("a/lease.key"), folder.join("b/lease.key")).expect("the first one has made it");
    let (second, _) = with_etcd(&folder, "b", &right.each_ref().map(String::as_str), "this one follows");
    first.end();
    wait_until("the other one to lead", || second.log().contains(leads));

    // Neither believes a stranger.
    let failed = "etcd at https://";
    let wrong = shown("other/ca.pem", "controller");
    let (_c, log) = with_etcd(&folder, "c", &wrong.each_ref().map(String::as_str), failed);
    assert!(log.contains("certificate") && log.contains("etcd at https://"), "{log}");
    let stranger = shown("ca.pem", "other/stranger");
    let (_d, log) = with_etcd(&folder, "d", &stranger.each_ref().map(String::as_str), failed);
    assert!(log.contains("etcd at https://") && !log.contains(leads), "{log}");
    let (_e, log) = with_etcd(&folder, "e", &["--kv", &urls, "--kv-ca", "ca.pem"], failed);
    assert!(log.contains("etcd at https://") && !log.contains(leads), "{log}");
    // In the clear there is nobody.
    let clear = urls.replace("https", "http");
    let (_f, log) = with_etcd(&folder, "f", &["--kv", &clear], "etcd at http://");
    assert!(log.contains("etcd at http://") && !log.contains(leads), "{log}");
    drop(etcd);
    drop(second);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn an_etcd_on_another_machine_is_not_spoken_to_in_the_clear_unless_that_is_said() {
    let folder = new_folder();
    for (about_etcd, words) in [
        (&["--kv", "http://10.255.255.1"][..], "would be spoken to in the clear"),
        (&["--kv", "https://10.255.255.1"], "give --kv-ca FILE"),
        (&["--kv-ca", "ca.pem"], "give --kv URL"),
    ] {
        let (_controller, log) = with_etcd(&folder, "a", about_etcd, words);
        assert!(!log.contains("listening on"), "{log}");
    }
    let (_controller, log) =
        with_etcd(&folder, "b", &["--kv", "http://10.255.255.1", "--kv-insecure"], "INSECURE: this controller speaks");
    assert!(!log.contains("would be"), "{log}");
    let _ = std::fs::remove_dir_all(&folder);
}
