//! Sessions of a pool, as its controller has heard of them.

use std::process::{Child, Command};

use serde_json::Value;

use crate::scene::{Scene, built};

/// Ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sessions_of_a_pool_are_shown_through_its_controller() {
    let folder = std::env::temp_dir().join(format!("orion-top-pool-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let pool = folder.join("pool.sock");
    let pool = pool.to_str().expect("plain letters");
    let mut scene = Scene::begin(&["--socket", "none", "--pool", pool, "--listen", "127.0.0.1:0"]);
    let start = |program: &str, arguments: &[&str]| {
        let log = folder.join(format!("{program}.log"));
        let file = std::fs::File::create(&log).expect("a log");
        let mut command = Command::new(built().join(program));
        let child = command.args(arguments).stdout(file.try_clone().expect("once more")).stderr(file).spawn();
        (Running(child.expect("it starts")), log)
    };
    let settings = folder.join("controller.yaml");
    let text = format!("controller:\n  listen_port: 0\ndatabase:\n  data-dir: {}/pool\n", folder.display());
    std::fs::write(&settings, text).expect("settings");
    let (_controller, log) =
        start("orion-controller", &["start", "--config-file", settings.to_str().expect("letters")]);
    let controller = said_behind(&scene, &log, "listening on ");
    let oriond = said_behind(&scene, &scene.folder.join("log"), "tcp:");
    let server = format!("tcp:{}", oriond.trim_end_matches('"'));
    let agent = ["--pool", pool, "--address", &server, "--node", "alpha", "--controller", &controller];
    let (_agent, log) = start("orion-agent", &agent);
    said_behind(&scene, &log, "Successfully connect");
    scene.run_leased("calls", &controller);

    let top = |arguments: &[&str]| {
        let mut top = Command::new(env!("CARGO_BIN_EXE_orion-top"));
        top.args(["--controller", &controller, "--once"]).args(arguments).output().expect("it starts")
    };
    let mut session = Value::Null;
    scene.until("the controller has heard of the session twice", || {
        let view: Value = serde_json::from_slice(&top(&["--json"]).stdout).unwrap_or_default();
        session = view["sessions"][0].clone();
        // While it had no core it has called nothing.
        session["calls_per_s"].as_f64().is_some_and(|calls| calls > 0.0)
    });
    assert_eq!((&session["client"]["program"], &session["node"]), (&"load".into(), &"alpha".into()), "{session:#}");
    assert_eq!(session["gpu_entitled"], 0.25, "{session:#}");
    assert!(session["lease"].is_string(), "{session:#}");
    let table = String::from_utf8_lossy(&top(&[]).stdout).into_owned();
    assert!(table.contains("orion-top  pool  1 sessions") && table.contains("why: "), "{table}");

    let kept = folder.join("kept");
    let kept = kept.to_str().expect("letters");
    let output = top(&["--json", "--record", kept, "--interval", "3"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut replay = Command::new(env!("CARGO_BIN_EXE_orion-top"));
    let again = replay.args(["--replay", kept, "--once", "--json"]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&output.stdout));

    let metrics = metrics_of(&controller);
    let line = metrics.lines().find(|line| line.starts_with("orion_allocation_calls_total{")).expect("its calls");
    assert!(line.contains("node=\"alpha\"") && line.contains("client=\""), "{line}");
    assert!(metrics.contains("orion_allocation_cap_wait_seconds_total{"), "{metrics}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// The word behind these, once a log has them.
fn said_behind(scene: &Scene, log: &std::path::Path, words: &str) -> String {
    let mut found = None;
    scene.until(&format!("{} says {words:?}", log.display()), || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        found = text.split_once(words).and_then(|(_, rest)| rest.split_whitespace().next().map(str::to_owned));
        found.is_some()
    });
    found.expect("just found")
}

fn metrics_of(controller: &str) -> String {
    use std::io::{Read, Write};
    let mut connection = std::net::TcpStream::connect(controller).expect("it listens");
    write!(connection, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it takes it");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("an answer");
    text
}
