//! Rules and the dashboard are of metrics that there are, and promtool finds nothing wrong with them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::Scene;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above").join("metrics")
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules() {
    for arguments in [["check", "rules", "orion.rules.yml"], ["test", "rules", "orion.rules.test.yml"]] {
        let output = match Command::new("promtool").args(arguments).current_dir(folder()).output() {
            Ok(output) => output,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return eprintln!("there is no promtool, so the rules are not tried");
            }
            Err(e) => panic!("starting promtool failed: {e}"),
        };
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

#[test]
fn what_rules_and_dashboard_ask_for_is_served() {
    let mut scene = Scene::begin(&["--metrics", "0"]);
    scene.run("calls", None);
    let log = scene.log();
    let address = log.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("it says where");
    let get = |path: &str| {
        let mut connection = TcpStream::connect(address).expect("it listens");
        write!(connection, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it takes it");
        let mut text = String::new();
        connection.read_to_string(&mut text).expect("an answer");
        text
    };
    assert!(get("/").starts_with("HTTP/1.1 404"));
    let mut text = String::new();
    scene.until("the program has copied", || {
        text = get("/metrics");
        text.contains("class=\"copy_out\"")
    });
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("application/openmetrics-text"), "{text}");
    assert!(text.contains("program=\"load\"") && text.ends_with("# EOF\n"), "{text}");
    let served: BTreeSet<String> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(first).collect();
    // The controller's are in its own source.
    let controller = ["web.rs", "sessions.rs"].map(|file| {
        let path = folder().join("../controller/src").join(file);
        std::fs::read_to_string(path).expect("the controller's source")
    });
    for file in ["orion.rules.yml", "dashboard.json"] {
        let text = std::fs::read_to_string(folder().join(file)).expect("it is there");
        for name in names(&text) {
            let family = ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            let stem = family.trim_start_matches("orion_");
            let stem = stem.strip_suffix("_bytes").or_else(|| stem.strip_suffix("_seconds")).unwrap_or(stem);
            let is_controllers = controller.iter().any(|source| source.contains(&format!("\"{stem}\"")))
                || stem.strip_prefix("allocation_").is_some_and(is_event);
            assert!(served.contains(family) || is_controllers, "{file} asks for {name}, which nobody serves");
        }
    }
}

fn is_event(name: &str) -> bool {
    orion_telemetry::events::of_session::ALL.iter().any(|event| event.name == name)
}

fn first(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Words that begin as metrics do. What is recorded has a colon.
fn names(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let words = text.split(|c: char| !is_of_name(c));
    words.filter(|word| word.starts_with("orion_") && !word.ends_with('_')).map(str::to_owned).collect()
}
