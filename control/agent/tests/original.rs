//! What `control/ORIGINAL.md` says of Orion vGPU's names, tried row by row, and its quick start, typed.

#[allow(dead_code, reason = "what other tests need of it")]
#[path = "pool/scene.rs"]
mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output, Stdio};

use orion_built::root;
use scene::{Scene, built, wait_until};

/// Name, verdict and remark of each row below a heading.
fn rows(heading: &str) -> BTreeMap<String, (String, String)> {
    let text = std::fs::read_to_string(root().join("control/ORIGINAL.md")).expect("it is there");
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = rest.split("\n## ").next().expect("text");
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut found = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.trim_matches('|').split(" |").map(str::trim).collect();
        let (name, verdict) = (cells[0].replace('`', ""), cells[1].to_owned());
        let verdicts = ["works", "differs", "refused", "no meaning", "not there"];
        assert!(verdicts.contains(&cells[1]), "{line}: {verdict:?} is none of {verdicts:?}");
        assert!(found.insert(name, (verdict, cells[2..].join(" |"))).is_none(), "{line} is there twice");
    }
    found
}

/// The rows of a table are these, no more and no less.
fn are(heading: &str, names: &[&str]) -> BTreeMap<String, (String, String)> {
    let rows = rows(heading);
    let (have, want): (BTreeSet<&str>, BTreeSet<&str>) =
        (rows.keys().map(String::as_str).collect(), names.iter().copied().collect());
    assert_eq!(have, want, "the table {heading:?}, and what this test tries");
    rows
}

/// What a program printed, and its standard error.
fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_table_of_the_original_is_whole_and_true() {
    let scene = Scene::new(&["a"], "", true);
    variables(&scene);
    client_conf(&scene);
    server_conf(&scene);
    controller_yaml(&scene);
    http(&scene);
    commands(&scene);
    lines_of_logs(&scene);
    tables_of_smi(&scene);
    for heading in ["Ports and places", "Lines of logs", "The quick start, line by line"] {
        assert!(rows(heading).len() > 9, "{heading}");
    }
}

const COLUMNS: &[&str] = &[
    "Time",
    "CUDA Version",
    "IP",
    "pGPU",
    "vGPU",
    "vGPU Name",
    "Persistence-M",
    "Physical GPU Name",
    "Bus-Id",
    "Disp.A",
    "Memory-Usage",
    "Volatile Uncorr. ECC",
    "GPU-Util",
    "Compute M.",
    "PID",
    "Type",
    "Process name",
    "vGPU Memory",
];

fn tables_of_smi(scene: &Scene) {
    let rows = are("The tables of orion-smi", COLUMNS);
    let mut command = Command::new(built().join("orion-smi"));
    let output = command.env("ORION_CONTROLLER", format!("127.0.0.1:{}", scene.port)).output().expect("it starts");
    let (table, said) = texts(&output);
    for (name, (verdict, _)) in &rows {
        assert_eq!(table.contains(name), verdict != "not there", "{name} is {verdict}: {table}{said}");
    }
}

/// Name, a value, and what the program says or does; the words of refusals and remarks begin with the name.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("ORION_CONTROLLER", "127.0.0.1:1", "controller at 127.0.0.1:1"),
    ("ORION_VGPU", "2", "devices 2"),
    ("ORION_GMEM", "256", "size 268435456 "),
    ("ORION_RATIO", "50", "devices 1"),
    ("ORION_CROSS_NODE", "1", "ORION_CROSS_NODE=1 needs ORION_RATIO=100"),
    ("ORION_GROUP_ID", "my-pod", "Using Orion resource (my-pod) "),
    ("ORION_RES_GROUP", "BOX", "set ORION_GROUP_ID"),
    ("ORION_RESERVED", "1", "ORION_RESERVED=1: "),
    ("ORION_DEVICE_TYPE", "MLU", "ORION_DEVICE_TYPE=MLU: "),
    ("ORION_ENABLE_LPC", "1", "ORION_ENABLE_LPC=1: "),
    ("ORION_CLIENT_ID", "x", ""),
    ("ORION_K8S_POD_NAME", "x", ""),
    ("ORION_K8S_POD_UID", "x", ""),
    ("ORION_API_VERSION", "0.2", ""),
    ("ORION_DATA_VERSION", "0.2", ""),
    ("CONTROLLER_API_VERSION", "0.2", ""),
    ("ORION_IB_NAME", "mlx5_0", ""),
    ("ORION_BIND_NET", "eth0", ""),
    ("ORION_BIND_ADDR", "10.0.0.1", ""),
    ("ORION_SERVER_PORT", "9960", ""),
    ("ORION_PORT", "9960", ""),
    ("ORION_VGPU_COUNT", "4", ""),
    ("ORION_RES_NAME", "x", ""),
];

fn variables(scene: &Scene) {
    let rows = are("Environment of a program", &VARIABLES.map_names());
    for (name, value, words) in VARIABLES {
        let environment = [("ORION_VERBOSE", "1"), ("ORION_WAIT", "0"), (*name, *value)];
        let (out, said) = texts(&scene.run(&environment));
        let remark = format!("{name} has no meaning here: ");
        let expected = if words.is_empty() { remark.as_str() } else { words };
        assert!(out.contains(expected) || said.contains(expected), "{name}={value}: {out}{said}");
        let verdict = rows[*name].0.as_str();
        let has_session = out.starts_with("devices ");
        // Alone each of these asks for something else too, or for what only some controllers take.
        let asks_for_more = ["ORION_CONTROLLER", "ORION_CROSS_NODE", "ORION_RES_GROUP"].contains(name);
        let is_refused = verdict == "refused" || asks_for_more;
        assert_eq!(has_session, !is_refused, "{name}={value} is said to be {verdict}: {out}{said}");
        assert_eq!(said.contains(&remark), verdict == "no meaning", "{name}: {said}");
    }
    scene.wait_for_free(4);
}

trait Names {
    fn map_names(&self) -> Vec<&'static str>;
}

impl Names for &[(&'static str, &'static str, &'static str)] {
    fn map_names(&self) -> Vec<&'static str> {
        self.iter().map(|(name, ..)| *name).collect()
    }
}

/// Section and key, a line of client.conf, and what is seen of it in the program's log or on standard error.
fn client_conf(scene: &Scene) {
    are(
        "client.conf",
        &[
            "[controller] controller_addr",
            "[log] log_to_file",
            "[log] log_to_screen",
            "[log] log_with_time",
            "[log] log_level",
            "[log] file_log_level",
            "[client-log] log_to_file",
            "[client-shm] shm_path_base",
            "[client] enable_net",
        ],
    );
    let conf = scene.folder.join(".orion/client.conf");
    let controller = format!("[controller]\ncontroller_addr = 127.0.0.1:{} ; the pool\n", scene.port);
    // What the file adds, with standard error and the text of the program's log, which is in no other run's file.
    let with = |more: &str| {
        let _ = std::fs::remove_dir_all(scene.folder.join(".orion/log"));
        std::fs::create_dir_all(scene.folder.join(".orion")).expect("a folder");
        std::fs::write(&conf, format!("{controller}{more}")).expect("writing");
        let output = scene.program(&[]).env_remove("ORION_CONTROLLER").output().expect("it starts");
        let (out, said) = texts(&output);
        assert!(out.starts_with("devices 1\n"), "{more}: {out}{said}");
        let files = std::fs::read_dir(scene.folder.join(".orion/log")).into_iter().flatten().flatten();
        let logs: Vec<String> = files.map(|f| std::fs::read_to_string(f.path()).expect("a log")).collect();
        assert!(logs.len() < 2, "{logs:?}");
        (said, logs.concat())
    };
    let (said, log) = with("");
    assert_eq!(said, "");
    let lines = ["] Orion Resource. Build-cuda-", "] Using Orion resource () ", "] Client exits with allocation ID "];
    assert!(lines.iter().all(|line| log.contains(line)), "{log}");
    assert!(log.starts_with("20") && log.contains(" [INFO] "), "{log}");
    assert_eq!(with("[log]\nlog_to_file = false\n").1, "");
    assert_eq!(with("[client-log]\nlog_to_file = 0\n").1, "");
    let (said, _) = with("[log]\nlog_to_screen = true\nlog_with_time = 0\n");
    assert!(said.contains("[INFO] Client exits with allocation ID "), "{said}");
    assert!(said.lines().all(|line| line.starts_with("[INFO] ")), "{said}");
    assert_eq!(with("[log]\nlog_to_screen = true\nlog_level = ERROR\n").0, "");
    assert!(with("[log]\nlog_with_time = false\n").1.starts_with("[INFO] Orion Resource."));
    assert_eq!(with("[log]\nfile_log_level = ERROR\n").1, "");
    let (_, log) = with("[client-shm]\nshm_path_base = /dev/shm\n[client]\nenable_net = false\n");
    assert!(log.contains("client.conf: shm_path_base, enable_net have no meaning here"), "{log}");
    std::fs::remove_file(&conf).expect("removing");
}

/// Section and key, a value, and what `--show-config` or the refusal says of it.
const SERVER: &[(&str, &str, &str)] = &[
    ("[server] listen_port", "9961", "\n; "),
    ("[server] bind_addr", "127.0.0.1", "needs token_file = FILE"),
    ("[server] bind_net", "lo", "needs token_file = FILE"),
    ("[server] enable_shm", "false", "\nsocket = none\n"),
    ("[server] enable_rdma", "true", "\nrdma = 127.0.0.1:9961\n"),
    ("[server] enable_kvm", "\"true\"", "\nguest_folder = /dev/shm\n"),
    ("[server] ibverbs_device", "mlx5_0", ""),
    ("[server-nccl] comm_id", "127.0.0.1:9970", ""),
    ("[server-log] log_with_time", "0", "\nno_log_time = true\n"),
    ("[server-log] log_to_screen", "0", "\nno_log_screen = true\n"),
    ("[server-log] log_to_file", "1", "\nsession_log = /var/log/orion/session\n"),
    ("[server-log] log_level", "DEBUG", "\nlog_level = debug\n"),
    ("[server-log] file_log_level", "WARNING", "\nlog_file_level = warn\n"),
    ("[log] log_level", "ERROR", "\nlog_level = error\n"),
    ("[server-shm] shm_path_base", "/dev/shm/", ""),
    ("[server-shm] shm_group_name", "kvm", ""),
    ("[server-shm] shm_user_name", "libvirt-qemu", ""),
    ("[server-shm] shm_buffer_size", "128", ""),
    ("[throttle] throttle_level", "50", "\nthrottle_level = 50\n"),
    ("[throttle] enable_computation_throttle", "true", "\ncomputation_throttle = on\n"),
    ("[throttle] computation_throttle_mode2", "true", ""),
];

fn server_conf(scene: &Scene) {
    let rows = are("server.conf", &SERVER.map_names());
    let conf = scene.folder.join("server.conf");
    for (name, value, words) in SERVER {
        let (section, key) = name.split_once(' ').expect("both");
        let token = if matches!(key, "listen_port" | "enable_rdma") { "token_file = /nowhere\n" } else { "" };
        std::fs::write(&conf, format!("{section}\n{key} = {value} ; why\n{token}")).expect("writing");
        let mut oriond = Command::new(built().join("oriond"));
        let output = oriond.args(["serve", "--show-config", "--config"]).arg(&conf).output().expect("it starts");
        let (out, said) = texts(&output);
        let verdict = rows[*name].0.as_str();
        let expected = match (verdict, key) {
            ("no meaning", _) => format!("server.conf:2: {key} has no meaning here: "),
            (_, "listen_port") => "\nlisten = 127.0.0.1:9961\n".to_owned(),
            _ => (*words).to_owned(),
        };
        assert!(out.contains(&expected) || said.contains(&expected), "{name} = {value}: {out}{said}");
        assert_eq!(output.status.success(), verdict != "refused", "{name} = {value}: {said}");
    }
}

fn controller_yaml(scene: &Scene) {
    let idle = [
        "listen-client-urls",
        "advertise-client-urls",
        "listen-peer-urls",
        "initial-advertise-peer-urls",
        "initial-cluster",
        "initial-cluster-state",
        "initial-cluster-token",
    ];
    let named = idle.map(|name| format!("database.{name}"));
    let others = [
        "controller.listen_ip",
        "controller.listen_port",
        "controller.log_level",
        "controller.log_file",
        "controller.authentication.client-key",
        "controller.authentication.server-key",
        "controller.authentication.administrator-key",
        "database.data-dir",
        "database.name",
    ];
    are("controller.yaml", &named.iter().map(String::as_str).chain(others).collect::<Vec<_>>());
    let (config, log) = (scene.folder.join("other.yaml"), scene.folder.join("other.log"));
    let key = "k".repeat(16);
    let mut text = format!(
        "controller:\n  listen_ip: 127.0.0.1\n  listen_port: 0\n  log_level: info\n  log_file: {}\n  authentication:\n\
         \x20   client-key: {key}\n    server-key: {key}\n    administrator-key: {key}\ndatabase:\n  name: embedded\n  \
         data-dir: {}\n",
        log.display(),
        scene.folder.join("other").display(),
    );
    idle.iter().for_each(|name| text.push_str(&format!("  {name}: x\n")));
    std::fs::write(&config, text).expect("writing");
    let mut command = Command::new(built().join("orion-controller"));
    command.args(["start", "--config-file"]).arg(&config).stdin(Stdio::null());
    let controller = scene::Process::start(&mut command, &scene.folder.join("other.out"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the other controller", || said().contains("listening on 127.0.0.1:"));
    drop(controller);
    for name in idle {
        assert!(
            said().contains(&format!("controller.yaml: database.{name} has no meaning here")),
            "{name}: {}",
            said()
        );
    }
    assert!(scene.folder.join("other").is_dir());
}

/// The lines that come before and after a session of a pool on one machine. Those of a session's own log and of other
/// carriers are in the quick start's test, and in those of each carrier.
fn lines_of_logs(scene: &Scene) {
    let rows = rows("Lines of logs");
    scene.run(&[]);
    scene.wait_for_free(4);
    let node = &scene.nodes[0];
    let logs = [scene.controller.log(), node.agent.log(), node.oriond.log()].concat();
    let mut tried = 0;
    for (line, (verdict, remark)) in &rows {
        assert!(verdict == "works" || remark.len() > 9, "{line} is {verdict}, and nothing says what is instead");
        let place = ["Client ", "Using ", "Resource ", "Final ", "Registered ", "Architecture "];
        if verdict != "works" || place.iter().any(|first| line.starts_with(first)) {
            continue;
        }
        // Names, numbers and addresses are another run's.
        let is_of_a_run = |word: &&str| word.contains(['<', '…', '>']) || word.contains(|c: char| c.is_ascii_digit());
        let words: Vec<&str> = line.split([' ', ',', '(', ')', ';']).filter(|word| !is_of_a_run(word)).collect();
        let has = |said: &str| words.iter().all(|word| said.contains(word));
        // A row has one line, or two with a comma between.
        let is_said = logs.lines().any(has) || words.iter().all(|word| logs.contains(word)) && line.contains("…, ");
        assert!(is_said, "{line} is not in\n{logs}");
        tried += 1;
    }
    assert!(tried > 7, "{rows:?}");
}

fn http(scene: &Scene) {
    let rows = rows("What the controller answers over HTTP");
    assert_eq!(rows.len(), 6);
    for (request, (verdict, _)) in &rows {
        let (method, path) = request.split_once(' ').expect("both");
        let (status, body) = scene.http(method, path, "");
        assert_eq!(status == 200, verdict == "works", "{request}: {status} {body}");
    }
    let (_, info) = scene.http("GET", "/info", "");
    assert!(info.contains("api_version=") && info.contains("data_version="), "{info}");
}

fn commands(scene: &Scene) {
    let rows = rows("Commands");
    let mut tried = 0;
    for (line, (verdict, remark)) in &rows {
        let words: Vec<&str> = line.split(' ').collect();
        let program = built().join(words[0]);
        if verdict == "not there" {
            assert!(!program.exists() && remark.len() > 9, "{line}");
            continue;
        }
        // Those that serve are started by the scene.
        if line.starts_with("orion-controller start") {
            continue;
        }
        let mut command = Command::new(&program);
        command.args(words[1..].iter().map(|word| if *word == "URL" { "http://127.0.0.1:2379" } else { word }));
        command.env("ORION_CONTROLLER", format!("127.0.0.1:{}", scene.port)).env("HOME", &scene.folder);
        if words[0] == "orion-shm" {
            // What it makes stays, and /dev/shm is the machine's.
            command.arg("-d").arg(&scene.folder);
        }
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let (out, said) = texts(&output);
        match verdict.as_str() {
            "refused" => assert!(!output.status.success() && said.len() > 20, "{line}: {out}{said}"),
            _ => assert!(output.status.code().is_some() && (out + &said).len() > 20, "{line}"),
        }
        tried += 1;
    }
    assert!(tried > 6, "{rows:?}");
}

/// A line as it is typed, in a shell in the folder of the programs.
fn typed(scene: &Scene, line: &str) -> (bool, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(built()).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{}", built().display(), std::env::var("PATH").unwrap_or_default()));
    shell.env("HOME", &scene.folder).env("ORION_CONTROLLER", format!("127.0.0.1:{}", scene.port));
    for name in ["ORION_SERVER", "ORION_TOKEN", "ORION_TOKEN_FILE", "LD_PRELOAD", "XDG_RUNTIME_DIR"] {
        shell.env_remove(name);
    }
    let output = shell.output().expect("sh starts");
    let (out, said) = texts(&output);
    (output.status.success(), out + &said)
}

/// An oriond that lets virtual machines in, and a program that reaches it by the memory of one. What the machine itself
/// adds to that is tried in one: see the conformance suite.
fn session_over_a_guests_memory(scene: &Scene) -> String {
    let folder = scene.folder.join("guests");
    std::fs::create_dir(&folder).expect("a new folder");
    let (made, said) = typed(scene, &format!("orion-shm -i 0 -s 256 -d {}", folder.display()));
    assert!(made, "{said}");
    let conf = scene.folder.join("kvm.conf");
    let text = "[server]\n    enable_kvm = \"true\"\n[server-shm]\n    shm_path_base = ";
    std::fs::write(&conf, format!("{text}{}\n", folder.display())).expect("writing");
    let mut oriond = Command::new(built().join("oriond"));
    oriond.args(["serve", "--driver", "soft", "--socket", "none", "--listen", "none", "--vgpus", "2"]);
    oriond.args(["--memory-limit", "512 MiB", "--config"]).arg(&conf);
    let oriond = scene::Process::start(&mut oriond, &scene.folder.join("kvm.log"));
    oriond.says("serving ");
    let server = format!("ivshmem:{}", folder.join("orionsock0").display());
    let output = scene.program(&[("ORION_SERVER", &server)]).env_remove("ORION_CONTROLLER").output();
    let (out, said) = texts(&output.expect("it starts"));
    out + &said
}

/// An oriond that keeps a log of each session, as the installed file has it, and a session there.
fn session_log(scene: &Scene) -> String {
    let (socket, folder) = (scene.folder.join("logged.sock"), scene.folder.join("session"));
    let mut oriond = Command::new(built().join("oriond"));
    oriond.args(["serve", "--driver", "soft", "--warm", "1", "--heap", "1 GiB", "--listen", "none", "--vgpus", "2"]);
    oriond.args(["--memory-limit", "128 MiB", "--session-log"]).arg(&folder).arg("--socket").arg(&socket);
    let oriond = scene::Process::start(&mut oriond, &scene.folder.join("logged.log"));
    oriond.says("serving ");
    let server = format!("unix:{}", socket.display());
    let output = scene.program(&[("ORION_SERVER", &server)]).env_remove("ORION_CONTROLLER").output();
    assert!(output.expect("it starts").status.success());
    oriond.says("session over");
    let mut text = String::new();
    wait_until("the session's last line", || {
        text = typed(scene, &format!("cat {}/*", folder.display())).1;
        text.contains("session over")
    });
    text
}

#[test]
fn the_quick_start_of_the_original_can_be_typed() {
    let scene = Scene::new(&["a"], "", true);
    let lines = rows("The quick start, line by line");
    let mut tried = 0;
    for (line, (verdict, remark)) in &lines {
        let how = remark.split(" |").next().unwrap_or_default().trim();
        assert!(matches!(how, "typed" | "not here"), "{line}: {how:?}");
        if how == "not here" {
            continue;
        }
        tried += 1;
        let said = match line.as_str() {
            // Started by the scene, as a file of settings has its port.
            "./orion-controller start" => scene.controller.log(),
            "nohup ./orion-controller start --log controller.log &" => background_controller(&scene),
            "server.conf as it is installed" => {
                typed(&scene, &format!("oriond serve --show-config --config {}", installed())).1
            }
            "ll -rt /var/log/orion/session" => session_log(&scene),
            "enable_kvm = \"true\", virsh edit" => session_over_a_guests_memory(&scene),
            "enable_rdma = \"true\"" => {
                let conf = scene.folder.join("rdma.conf");
                std::fs::write(&conf, "[server]\n    enable_rdma = \"true\"\n").expect("writing");
                typed(&scene, &format!("oriond serve --config {}", conf.display())).1
            }
            exported if exported.starts_with("export ") || exported == "./deviceQuery" => {
                let folder = scene.folder.display();
                typed(
                    &scene,
                    &format!(
                        "export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH\nexport ORION_VGPU=2\nexport ORION_GMEM=512\n\
                         examples/show_vgpus"
                    ),
                )
                .1
            }
            typed_as_it_stands => typed(&scene, typed_as_it_stands).1,
        };
        let words = expected(line);
        assert!(words.iter().all(|word| said.contains(word)), "{line} ({verdict}): {words:?} are not all in\n{said}");
    }
    assert!(tried > 12, "{lines:?}");
}

/// What the documents show, or what stands in its place.
fn expected(line: &str) -> &'static [&'static str] {
    match line {
        "orion-check" => &["install", "runtime"],
        "orion-check install all" => {
            &["OS information : ", "Checking NVIDIA MPS ...", "Installation summaries :", "[Yes]"]
        }
        "./orion-controller start" | "nohup ./orion-controller start --log controller.log &" => &[
            "Creating database connection to ",
            "Database connection is created.",
            "Controller is launching, listening on ",
        ],
        "./orion-controller help start" => &["--config-file", "--log", "--kv"],
        "server.conf as it is installed" => {
            &["socket = /run/orion/oriond.sock", "session_log = /var/log/orion/session"]
        }
        "orion-check runtime server" => &["Orion Server is running with command line : ", "Enable RDMA", "is reached."],
        "orion-check runtime client" => {
            &["There are 4 vGPU under management by Orion Controller. 4 vGPU are free now."]
        }
        "ll -rt /var/log/orion/session" => &[
            "[INFO] Final virtual gpu list <vID:pID:mbSize>: 0:0:128,1:0:128, begin to initialize CUDA device manager",
            "[INFO] Registered v-GPU 1 on p-GPU 0.",
            "[INFO] Architecture initialization is done. Resource is confirmed.",
            "[INFO] Client supports SHM mode, then server runs in SHM mode.",
        ],
        "orion-smi" => &["ORION-SMI", "No vGPU is lent."],
        "enable_rdma = \"true\"" => &["needs token_file = FILE"],
        _ => &["devices 2\n", "size 536870912 "],
    }
}

fn installed() -> String {
    root().join("control/service/server.conf").display().to_string()
}

fn background_controller(scene: &Scene) -> String {
    let (config, log) = (scene.folder.join("background.yaml"), scene.folder.join("background.log"));
    let data = scene.folder.join("background");
    let text = format!("controller:\n  listen_port: 0\ndatabase:\n  data-dir: {}\n", data.display());
    std::fs::write(&config, text).expect("writing");
    let mut command = Command::new("nohup");
    command.arg(built().join("orion-controller")).args(["start", "--log"]).arg(&log).arg("--config-file").arg(config);
    let _controller = scene::Process::start(&mut command, &scene.folder.join("nohup.out"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the controller in the background", || said().contains("listening on "));
    said()
}

/// README.md's picture of a pool is what its script makes today, but for times, numbers of processes and the like.
#[test]
fn the_picture_of_a_pool_is_a_real_run() {
    let script = root().join("control/ctl/picture.sh");
    built();
    let output = Command::new(script).arg(built()).stdin(Stdio::null()).output().expect("the script starts");
    let (made, said) = texts(&output);
    assert!(output.status.success(), "{said}");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let (_, rest) = readme.split_once("<!-- made by control/ctl/picture.sh -->\n```\n").expect("the picture");
    let shown = rest.split("```\n").next().expect("text");
    assert_eq!(shape(shown), shape(&made), "run control/ctl/picture.sh --write");
}

/// Numbers are one sign, and so is space between words.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        let sign = if c.is_ascii_digit() { '#' } else { c };
        if !(matches!(sign, '#' | ' ') && shape.ends_with(sign)) {
            shape.push(sign);
        }
    }
    shape
}
