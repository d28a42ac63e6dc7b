//! `orion-check` beside a real oriond and a real controller.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const UNSET: [&str; 12] = [
    "ORION_VGPU",
    "ORION_GMEM",
    "ORION_RATIO",
    "ORION_WAIT",
    "ORION_TENANT",
    "ORION_SERVER",
    "ORION_CONTROLLER",
    "ORION_TRANSPORT",
    "ORION_FINGERPRINT",
    "ORION_TOKEN",
    "ORION_TOKEN_FILE",
    "LD_LIBRARY_PATH",
];

/// The programs it looks at.
fn built() -> PathBuf {
    orion_built::packages(&["oriond", "orion-soft", "orion-controller", "orion-agent", "orion-ctl"])
}

struct Scene {
    folder: PathBuf,
    children: Vec<Child>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    fn new(name: &str) -> Scene {
        let folder = std::env::temp_dir().join(format!("orion-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(".orion")).expect("making folders");
        Scene { folder, children: Vec::new() }
    }

    fn check(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orion-check"));
        command.args(arguments).env("HOME", &self.folder).env("XDG_RUNTIME_DIR", &self.folder);
        for name in UNSET {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).output().expect("orion-check starts")
    }

    /// Starts a program and waits for the first line with a word.
    fn start(&mut self, command: &mut Command, word: &str) -> String {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        self.children.push(child);
        let line = lines.map_while(Result::ok).find(|line| line.contains(word));
        line.unwrap_or_else(|| panic!("{command:?} never says {word:?}"))
    }

    fn oriond(&mut self) -> PathBuf {
        let socket = self.folder.join("orion/oriond.sock");
        std::fs::create_dir_all(socket.parent().expect("a folder")).expect("making a folder");
        let mut command = Command::new(built().join("oriond"));
        // The line with its addresses comes on standard output.
        command.args(["serve", "--driver", "echo", "--warm", "0", "--insecure", "--listen", "127.0.0.1:0"]);
        command.args(["--log-file", "/dev/stdout", "--no-log-screen", "--socket"]).arg(&socket);
        self.start(&mut command, "serving");
        socket
    }

    fn controller(&mut self) -> String {
        self.controller_at(0)
    }

    fn controller_at(&mut self, port: u16) -> String {
        self.controller_with(port, "")
    }

    fn controller_with(&mut self, port: u16, settings: &str) -> String {
        let config = self.folder.join("controller.yaml");
        let text = format!(
            "controller:\n  listen_port: {port}\n{settings}database:\n  name: embedded\n  data-dir: {}\n",
            self.folder.join("pool").display()
        );
        std::fs::write(&config, text).expect("writing");
        let mut command = Command::new(built().join("orion-controller"));
        let line = self.start(command.arg("start").arg("--config-file").arg(config), "listening on");
        line.rsplit(' ').next().expect("an address").to_owned()
    }

    /// A node of one GPU of 1 GiB in two vGPUs, that has reported to the controller. Answers where it is reached.
    fn node(&mut self, controller: &str) -> String {
        let (socket, pool) = (self.folder.join("node.sock"), self.folder.join("node.pool"));
        let mut command = Command::new(built().join("oriond"));
        command.args(["serve", "--driver", "soft", "--warm", "1", "--listen", "none", "--heap", "256 MiB"]);
        command.env("ORION_SOFT_DEVICES", "1").env("ORION_SOFT_MEMORY_MIB", "1024").arg("--pool").arg(&pool);
        self.start(command.args(["--log-file", "/dev/stdout", "--no-log-screen", "--socket"]).arg(&socket), "serving");
        let address = format!("unix:{}", socket.display());
        let mut command = Command::new(built().join("orion-agent"));
        command.args(["--controller", controller, "--node", "a", "--vgpu-count", "2"]).arg("--pool").arg(&pool);
        self.start(command.args(["--address", &address]), "is reported to Orion Controller");
        address
    }

    /// The exit status and what is said of the vGPUs that a program with these settings would have.
    fn client(&self, controller: &str, environment: &[(&str, &str)]) -> (bool, String) {
        let all = [&[("ORION_CONTROLLER", controller)], environment].concat();
        let output = self.check(&["runtime", "client"], &all);
        let said = text(&output);
        let (_, said) =
            said.split_once("Asking Orion Controller for vGPUs, without taking any ...\n").expect("it asks");
        (output.status.success(), said.to_owned())
    }
}

/// What a controller answers to one request.
fn http(controller: &str, method: &str, path: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(controller).expect("it listens");
    let head = format!("{method} {path} HTTP/1.1\r\nHost: o\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(socket, "{head}\r\n\r\n{body}").expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

fn run(program: &Path, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// As behind `| head`, and on a full disk.
#[test]
fn output_that_nobody_takes_is_no_fault_of_the_program() {
    let scene = Scene::new("output");
    let run = |output: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orion-check"));
        command.args(["install", "client"]).env("HOME", &scene.folder).stdout(output);
        let output = command.output().expect("orion-check starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(run(writer.into()), (Some(141), String::new()));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let (code, said) = run(full.into());
    assert_eq!(code, Some(1));
    let words = "orion-check: writing to standard output failed: No space left on device";
    assert!(said.starts_with(words) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_running_server_is_shown_as_the_documents_have_it() {
    let mut scene = Scene::new("server");
    let socket = scene.oriond();
    let controller = scene.controller();
    let output = scene.check(&["runtime", "server"], &[("ORION_CONTROLLER", &controller)]);
    let said = text(&output);
    let mut lines = said.lines().peekable();
    for line in [
        "Checking NVIDIA MPS ...",
        "Orion Server is running with Linux user   : ",
        "Orion Server is running with command line : ",
        "Enable SHM                              [Yes]",
        "Enable RDMA                             [No]",
        "Enable Local QEMU-KVM with SHM          [No]",
        "Binding IP Address :                    127.0.0.1",
        "[Warning] INSECURE : nothing is encrypted, and whoever reaches the TCP address can use the GPUs.",
        "Testing the Orion Server network ...",
        &format!("Orion Server can be reached through {}", socket.display()),
        &format!("unix:{} talks to programs of this release (Orion ", socket.display()),
        &format!("Orion Controller address is set as {controller} in environment variable."),
        &format!("Address {controller} is reached."),
        "Orion Controller Version Information : ",
        "The controller's clock and this machine's agree to ",
        "[Warning] There are 0 vGPU under management",
    ] {
        assert!(lines.any(|one| one.starts_with(line)), "{line:?} does not come in its turn in\n{said}");
    }
}

/// As root looks at what others run: whose words begin like oriond's is not run, nor asked.
#[test]
fn nothing_that_a_stranger_runs_is_run_in_the_name_of_who_looks() {
    let mut scene = Scene::new("stranger");
    if std::fs::metadata(&scene.folder).expect("made").uid() != 0 {
        return eprintln!("only root can be another user");
    }
    // A shell with the words of an oriond runs this, whoever starts it with them.
    let script = "echo >\"ran-by-$(id -u)\"\necho serving\ncase \"$*\" in *show-config*) exit;; esac\nread word\n";
    std::fs::write(scene.folder.join("serve"), script).expect("writing");
    std::fs::set_permissions(&scene.folder, PermissionsExt::from_mode(0o777)).expect("its owner may");
    let mut command = Command::new("/bin/sh");
    command.arg0("oriond-of-a-stranger").arg("serve").current_dir(&scene.folder).uid(65534).stdin(Stdio::piped());
    scene.start(&mut command, "serving");
    assert!(scene.folder.join("ran-by-65534").exists());
    let mut command = Command::new(env!("CARGO_BIN_EXE_orion-check"));
    let output = command.args(["runtime", "server"]).current_dir(&scene.folder).output().expect("orion-check starts");
    let said = text(&output);
    assert!(said.contains("with command line : oriond-of-a-stranger serve"), "{said}");
    assert!(said.contains("is not known: neither root nor the user of orion-check has started it"), "{said}");
    assert!(!scene.folder.join("ran-by-0").exists(), "root has run it");
}

/// Relative paths, and a socket at its default, are where that process has them; the checker is elsewhere.
#[test]
fn a_servers_settings_are_those_of_its_own_folder_and_environment() {
    let mut scene = Scene::new("elsewhere");
    let conf = "[server]\n driver = echo\n warm = 0\n enable_kvm = true\n[server-log]\n log_to_file = false\n \
                        log_to_screen = true\n[server-shm]\n shm_path_base = guests\n";
    std::fs::write(scene.folder.join("server.conf"), conf).expect("writing");
    for folder in ["guests", "run"] {
        std::fs::create_dir(scene.folder.join(folder)).expect("a new folder");
    }
    let memory = std::fs::File::create(scene.folder.join("guests/orionsock0")).expect("a file");
    memory
        .set_permissions(PermissionsExt::from_mode(0o600))
        .and_then(|()| memory.set_len(256 << 20))
        .expect("its size");
    let mut command = Command::new(built().join("oriond"));
    command.args(["serve", "--config", "server.conf"]).current_dir(&scene.folder);
    command.env("XDG_RUNTIME_DIR", scene.folder.join("run")).env("HOME", &scene.folder);
    scene.start(command.args(["--log-file", "/dev/stdout", "--no-log-screen"]), "serving");
    let said = text(&scene.check(&["runtime", "server"], &[]));
    assert!(said.contains("Enable Local QEMU-KVM with SHM          [Yes]"), "{said}");
    let socket = scene.folder.join("run/orion/oriond.sock");
    assert!(said.contains(&format!("Orion Server can be reached through {}", socket.display())), "{said}");
}

#[test]
fn a_client_is_told_what_it_would_find_and_what_to_do() {
    let mut scene = Scene::new("client");
    let output = scene.check(&["runtime", "client"], &[]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("[Error] No Orion Server is named"), "{said}");
    assert!(said.contains("set ORION_SERVER=tcp:HOST:PORT or ORION_CONTROLLER=HOST"), "{said}");

    let socket = scene.oriond();
    let said = text(&scene.check(&["runtime", "client"], &[]));
    assert!(said.contains(&format!("Orion Server can be reached through {} (SHM).", socket.display())), "{said}");

    // A way over the network to where there is a shorter one is no error, and is told.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("tcp:{}", listener.local_addr().expect("bound"));
    let output = scene.check(&["runtime", "client"], &[("ORION_SERVER", &server)]);
    let said = text(&output);
    assert!(
        output.status.success() && said.contains("[Warning] Orion Server can be reached through 127.0.0.1"),
        "{said}"
    );
    assert!(said.contains(&format!("where shared memory is faster: ORION_SERVER=unix:{}", socket.display())), "{said}");
    // And where it listens there is no oriond, which is told too.
    assert!(said.contains(&format!("[Warning] Which release {server} has is not known: ")), "{said}");
    drop(listener);
    let output = scene.check(&["runtime", "client"], &[("ORION_SERVER", &server)]);
    assert!(!output.status.success() && text(&output).contains("[Error] Orion Server cannot be reached"));
}

/// By a file that is what a virtual machine's device would be, and by a port of its host that nobody serves.
#[test]
fn a_server_of_a_virtual_machine_is_asked_by_its_own_carrier() {
    let mut scene = Scene::new("guest");
    let memory = scene.folder.join("guest");
    let file = std::fs::File::create(&memory).expect("a file");
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
        .and_then(|()| file.set_len(1 << 30))
        .expect("its size");
    let mut command = Command::new(built().join("oriond"));
    command.args(["serve", "--driver", "soft", "--warm", "1", "--listen", "none", "--guest-sessions", "1"]);
    command.args(["--log-file", "/dev/stdout", "--no-log-screen", "--socket", "none", "--guest"]).arg(&memory);
    scene.start(&mut command, "serving");
    let server = format!("ivshmem:{}", memory.display());
    let said = text(&scene.check(&["runtime", "client"], &[("ORION_SERVER", &server)]));
    let reached = format!("Orion Server can be reached through {server} (IVSHMEM).");
    assert!(said.contains(&reached) && said.contains("talks to programs of this release"), "{said}");
    let server = "vsock:1:7";
    let output = scene.check(&["runtime", "client"], &[("ORION_SERVER", server)]);
    let said = text(&output);
    let reached = format!("Orion Server cannot be reached through {server} (VSOCK): ");
    assert!(!output.status.success() && said.contains(&reached) && said.contains("oriond serve --vsock"), "{said}");
    let output = scene.check(&["runtime", "client"], &[("ORION_SERVER", "vsock:2")]);
    assert!(!output.status.success() && text(&output).contains("[Error] ORION_SERVER=vsock:2: "), "{}", text(&output));
}

#[test]
fn a_carrier_that_is_none_or_not_to_be_had_here_fails_as_a_program_would() {
    let mut scene = Scene::new("transport");
    let socket = format!("unix:{}", scene.oriond().display());
    let controller = scene.controller();
    let (local, named) = (("ORION_SERVER", ""), ("ORION_SERVER", &*socket));
    let (by_rdma, of_pool) = (("ORION_SERVER", "rdma:127.0.0.1:1"), ("ORION_CONTROLLER", &*controller));
    for (name, whither, error) in [
        ("pcie", local, "ORION_TRANSPORT=pcie is none of shm, tcp"),
        ("pcie", named, "ORION_TRANSPORT=pcie is none of shm, tcp"),
        ("pcie", of_pool, "ORION_TRANSPORT=pcie is none of shm, tcp"),
        ("rdma", local, "ORION_TRANSPORT=rdma needs a server address such as rdma:host:7412"),
        ("tcp", named, "ORION_TRANSPORT=tcp needs a server address such as tcp:host:7411"),
        ("vsock", of_pool, "ORION_TRANSPORT=vsock leads from a virtual machine"),
        // There is no device, or none of that name, or no build for them.
        ("rdma", of_pool, "RDMA"),
        ("rdma", by_rdma, "RDMA"),
    ] {
        let asked = [("ORION_TRANSPORT", name), whither, ("ORION_IB_NAME", "no_such_device")];
        let output = scene.check(&["runtime", "client"], &asked);
        let said = text(&output);
        let mut errors = said.lines().filter(|line| line.starts_with("[Error] "));
        assert!(!output.status.success() && errors.any(|line| line.contains(error)), "{name} {whither:?}: {said}");
        assert!(!said.contains("go over shared memory or TCP"), "{said}");
    }
    for (name, whither) in [("shm", local), ("shm", named)] {
        let output = scene.check(&["runtime", "client"], &[("ORION_TRANSPORT", name), whither]);
        assert!(output.status.success(), "{name} {whither:?}: {}", text(&output));
    }
    // There is no node yet, and that alone is wrong.
    let said = text(&scene.check(&["runtime", "client"], &[("ORION_TRANSPORT", "tcp"), of_pool]));
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("[Error] ")).collect();
    assert!(errors.len() == 1 && errors[0].starts_with("[Error] No vGPU: the pool has no room"), "{said}");
}

#[test]
fn a_client_is_told_whether_it_could_have_its_vgpus_now_and_takes_none() {
    let mut scene = Scene::new("vgpus");
    let controller = scene.controller();
    let (is_well, said) = scene.client(&controller, &[]);
    assert!(!is_well && said.contains("[Error] No vGPU: the pool has no room for 1 vGPU on one node"), "{said}");
    assert!(said.contains("no node with a GPU has reported") && said.contains("have a node started"), "{said}");

    let address = scene.node(&controller);
    let two = [("ORION_VGPU", "2"), ("ORION_GMEM", "512"), ("ORION_RATIO", "50")];
    for _ in 0..3 {
        let (is_well, said) = scene.client(&controller, &two);
        let words = format!("2 vGPUs with 512 MiB and 50 % could be had now: 0/0,0/1 on node a ({address}).");
        assert!(is_well && said.starts_with(&words), "{said}");
        assert!(said.contains(&format!("\nNode a can be reached through {address}.")), "{said}");
    }
    let output = scene.check(&["runtime", "client", "--json"], &[("ORION_CONTROLLER", &controller)]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = json["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["check"] == "vgpus").expect("it asks for them");
    assert!(found["status"] == "ok" && found["found"].as_str().expect("text").starts_with("1 vGPU could be had"));

    // What makes no sense, and what is refused by the program itself.
    for (name, value, words) in [
        ("ORION_GMEM", "4 GiB", "[Error] ORION_GMEM is \"4 GiB\"; it is a whole number of MiB"),
        ("ORION_RESERVED", "1", "[Error] ORION_RESERVED=1: "),
        ("ORION_ENABLE_LPC", "1", "[Error] ORION_ENABLE_LPC=1: "),
        ("ORION_RATIO", "200", "[Error] No vGPU: ORION_RATIO is 200"),
        ("ORION_RES_GROUP", "BOX", "[Error] No vGPU: ORION_RES_GROUP=BOX"),
        ("ORION_GMEM", "2048", "[Error] No vGPU: the pool has no room for 1 vGPU with 2048 MiB"),
        ("ORION_TRANSPORT", "tcp", "[Error] No vGPU: the pool has no room for 1 vGPU on one node, reached by tcp"),
    ] {
        let (is_well, said) = scene.client(&controller, &[(name, value)]);
        assert!(!is_well && said.contains(words), "{said}");
    }

    // Somebody else has them.
    let allocation = "7".repeat(32);
    let taken = http(&controller, "POST", "/allocations", &format!("{{\"vgpus\":2,\"allocation\":\"{allocation}\"}}"));
    assert!(taken.contains("\"places\":\"0/0,0/1\""), "{taken}");
    let (is_well, said) = scene.client(&controller, &[]);
    let words = "[Error] 1 vGPU could not be had now: the pool has no room for 1 vGPU on one node\n    free:\n";
    assert!(!is_well && said.starts_with(words) && said.contains("let programs wait for room"), "{said}");
    let (is_well, said) = scene.client(&controller, &[("ORION_WAIT", "60")]);
    assert!(is_well && said.starts_with("[Warning] 1 vGPU could not be had now: "), "{said}");
    assert!(said.contains("a program waits for it, 60 s at most (ORION_WAIT)"), "{said}");
    assert!(http(&controller, "DELETE", &format!("/allocations/{allocation}"), "").contains("\"was_there\":true"));

    // A quota, and a node that is to be empty.
    let orionctl = built().join("orionctl");
    run(&orionctl, &["--controller", &controller, "quota", "red", "--vgpus", "1"]);
    let (is_well, said) = scene.client(&controller, &[("ORION_TENANT", "red"), ("ORION_VGPU", "2")]);
    assert!(
        !is_well && said.contains("[Error] 2 vGPUs could not be had now: tenant \"red\" may hold 1 vGPUs"),
        "{said}"
    );
    assert!(scene.client(&controller, &[("ORION_TENANT", "red")]).0);
    run(&orionctl, &["--controller", &controller, "drain", "a"]);
    let (is_well, said) = scene.client(&controller, &[]);
    assert!(
        !is_well && said.contains(", draining; room for 0 of these") && said.contains("drain NODE --undo"),
        "{said}"
    );
    run(&orionctl, &["--controller", &controller, "drain", "a", "--undo"]);
    assert!(scene.client(&controller, &[]).0);
}

#[test]
fn a_client_that_the_controller_or_its_node_does_not_let_in_is_told_so() {
    let mut scene = Scene::new("rights");
    let keys = "  authentication:\n    client-key: 0123456789abcdef\n";
    let controller = scene.controller_with(0, keys);
    for (key, words) in [("", "no key was given"), ("fedcba9876543210", "the key is wrong")] {
        let (is_well, said) = scene.client(&controller, &[("ORION_CLIENT_KEY", key)]);
        assert!(!is_well && said.starts_with(&format!("[Error] No vGPU: {words}; this needs the")), "{said}");
        assert!(said.contains("set ORION_CLIENT_KEY, or client_key in client.conf"), "{said}");
    }
    let address = scene.node(&controller);
    let key = [("ORION_CLIENT_KEY", "0123456789abcdef")];
    assert!(scene.client(&controller, &key).0);
    // Its socket is gone, and the controller has not heard of that.
    let socket = scene.folder.join("node.sock");
    std::fs::rename(&socket, scene.folder.join("elsewhere")).expect("renaming");
    let (is_well, said) = scene.client(&controller, &key);
    assert!(!is_well && said.starts_with("1 vGPU could be had now: "), "{said}");
    assert!(said.contains(&format!("[Error] Node a cannot be reached through {address}: ")), "{said}");
}

#[test]
fn what_a_program_would_not_read_or_believe_is_said_and_is_an_error() {
    let mut scene = Scene::new("conf");
    let file = scene.folder.join(".orion/client.conf");
    let socket = format!("unix:{}", scene.oriond().display());
    let controller = scene.controller();
    let (fingerprint, server) = ("0a".repeat(32), ("ORION_SERVER", &*socket));
    let fingerprint = ("ORION_FINGERPRINT", &*fingerprint);
    let of_pool = format!("[controller]\n    controller_addr = {controller}\n");
    for (conf, environment, error) in [
        ("[controller]\n    controller_adr = pool\n", &[][..], "line 2: there is no \"controller_adr\""),
        (&of_pool, &[fingerprint], "[Error] ORION_FINGERPRINT is an oriond's"),
        ("", &[server, ("ORION_CONTROLLER", &controller)], "[Error] ORION_CONTROLLER="),
    ] {
        std::fs::write(&file, conf).expect("writing");
        let output = scene.check(&["runtime", "client"], environment);
        let said = text(&output);
        assert!(!output.status.success() && said.contains(error), "{said}");
    }
    // Who names a server reads no file, and the fingerprint is the server's.
    for (conf, words) in [
        ("[controller]\n    controller_adr = pool\n", "line 2: there is no \"controller_adr\""),
        (&of_pool, &format!("Address {controller} is reached.")),
    ] {
        std::fs::write(&file, conf).expect("writing");
        let output = scene.check(&["runtime", "client"], &[server, fingerprint]);
        let said = text(&output);
        assert!(output.status.success() && said.contains(words), "{said}");
    }
}

#[test]
fn the_environment_is_before_the_users_file() {
    let mut scene = Scene::new("address");
    let controller = scene.controller();
    let file = scene.folder.join(".orion/client.conf");
    std::fs::write(&file, format!("[controller]\n    controller_addr = {controller} ; the pool\n")).expect("writing");
    let said = text(&scene.check(&["runtime", "client"], &[]));
    assert!(said.contains(&format!("is set as {controller} in configuration file.")), "{said}");
    assert!(said.contains(&format!("Address {controller} is reached.")), "{said}");
    let output = scene.check(&["runtime", "client"], &[("ORION_CONTROLLER", "127.0.0.1:1")]);
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("[Error] Address 127.0.0.1:1 is not reached: "), "{said}");
    assert!(said.contains("look whether orion-controller runs there"), "{said}");
}

#[test]
fn an_installation_has_its_summary_in_words_and_in_json() {
    let scene = Scene::new("install");
    let said = text(&scene.check(&["install", "all"], &[("PATH", built().to_str().expect("a plain path"))]));
    assert!(said.starts_with("OS information : "), "{said}");
    for line in ["Installation summaries :", "OS :                                    [Yes]"] {
        assert!(said.lines().any(|one| one == line), "{line:?} is not in\n{said}");
    }
    assert!(said.contains("Orion Server binary:                    [Yes]"), "{said}");
    let output = scene.check(&["install", "server", "--json"], &[("PATH", "/nowhere")]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((json["ok"].as_bool(), output.status.code()), (Some(false), Some(1)));
    let findings = json["findings"].as_array().expect("a list");
    let binary = findings.iter().find(|finding| finding["check"] == "oriond").expect("it looks for oriond");
    assert_eq!(binary["status"], "failed");
    assert_eq!(binary["advice"], "run ./install.sh --system");
    for check in ["io_uring", "bpf", "kvm", "shared memory", "locked memory", "rdma", "gpu", "mps", "server port"] {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        let finding = finding.unwrap_or_else(|| panic!("nothing is said of {check}"));
        // Whatever is not well says what to do.
        assert_eq!(finding["status"] == "ok", finding.get("advice").is_none(), "{finding}");
    }
    assert_eq!(scene.check(&["install", "everything"], &[]).status.code(), Some(2));
}

#[test]
fn an_address_of_a_controller_is_read_as_programs_read_it() {
    let scene = Scene::new("port");
    for (address, asked) in [("[::1]", "set as [::1]:9123 in"), ("127.0.0.1:1, [::1]:2", "set as [::1]:2 in")] {
        let said = text(&scene.check(&["runtime", "client"], &[("ORION_CONTROLLER", address)]));
        assert!(said.contains(asked), "{said}");
    }
    let output = scene.check(&["runtime", "client"], &[("ORION_CONTROLLER", "::1")]);
    let said = text(&output);
    let words = "[Error] environment variable: \"::1\" is no address of a controller";
    assert!(!output.status.success() && said.contains(words), "{said}");
}

/// As programs do: it may be somebody else's.
#[test]
fn a_socket_that_nobody_has_named_is_not_taken_from_a_folder_that_others_write_to() {
    let mut scene = Scene::new("folder");
    let socket = scene.oriond();
    let folder = socket.parent().expect("its folder");
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("its owner may");
    let output = scene.check(&["runtime", "client"], &[]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("[Error] There is "), "{said}");
    assert!(said.contains("its folder is not to be trusted: others can write to it"), "{said}");
}

#[test]
fn a_controller_is_looked_at_where_it_runs() {
    let mut scene = Scene::new("controller");
    let controller = scene.controller();
    let output = scene.check(&["runtime", "controller"], &[("ORION_CONTROLLER", &controller)]);
    let said = text(&output);
    for line in ["Orion Controller is running with command line : ", "[Warning] There are 0 vGPU under management"] {
        assert!(said.lines().any(|one| one.starts_with(line)), "{line:?} is not in\n{said}");
    }
    assert!(output.status.success(), "{said}");
    let port = controller.rsplit(':').next().expect("a port");
    let output = scene.check(&["runtime", "controller"], &[("ORION_CONTROLLER", "127.0.0.1:1")]);
    assert_eq!(output.status.code(), Some(1), "{port}: {}", text(&output));
    // Where nothing says where to look it is where its own file says.
    let mut scene = Scene::new("steady");
    let controller = scene.controller_at(orion_built::steady_port());
    let said = text(&scene.check(&["runtime", "controller"], &[]));
    assert!(said.contains(&format!("Address {controller} is reached.")), "{said}");
}

#[test]
fn a_server_of_another_release_is_told_apart() {
    use std::io::{Read, Write};
    let scene = Scene::new("release");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("tcp:{}", listener.local_addr().expect("bound"));
    let other = std::thread::spawn(move || {
        // The first connection of two: whoever asks connects once.
        let (mut socket, _) = listener.accept().expect("orion-check comes");
        let _ = socket.read(&mut [0; 256]);
        let text = "this server is Orion 9.9.9, which is newer; install it on the program's side";
        let refusal = orion_wire::refusal::Refusal::new(orion_wire::refusal::Reason::Version, text.to_owned());
        socket
            .write_all(&orion_wire::hello::frame(orion_wire::hello::kind::REFUSED, &refusal.encode()))
            .expect("it reads");
    });
    let output = scene.check(&["runtime", "client"], &[("ORION_SERVER", &server)]);
    other.join().expect("asked");
    let said = text(&output);
    assert!(!output.status.success() && said.contains("[Error] ") && said.contains("Orion 9.9.9"), "{said}");
    assert!(said.contains("install one release on both sides"), "{said}");
}
