//! The program as somebody with a fresh clone and no GPU uses it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program, with oriond and the shim built beside it and up to date.
fn bench() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "oriond", "-p", "orion-shim"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down");
        let status = cargo.current_dir(root).status().expect("cargo starts");
        assert!(status.success(), "oriond and the shim do not build");
        env!("CARGO_BIN_EXE_orion-bench").into()
    })
}

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(bench()).args(["--driver", "soft"]).args(arguments).output().expect("it starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{complaint}", output.status);
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn two_numbers_come_without_arguments() {
    for transport in ["shm", "tcp"] {
        let said = text(&run(&["--seconds", "1", "--transport", transport]));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 3, "{said}");
        for (line, name) in lines.iter().zip(["call with answer", "posted launches"]) {
            let number = line.strip_prefix(name).and_then(|rest| rest.split_whitespace().next()).expect("a number");
            assert!(number.parse::<f64>().expect("a number") > 0.0, "{said}");
        }
    }
}

#[test]
fn results_can_be_compared_and_drawn() {
    let folder = std::env::temp_dir().join(format!("orion-bench-smoke-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("creating the test's folder");
    let path = |name: &str| folder.join(name).display().to_string();
    let (results, figure) = (path("results.json"), path("figure.svg"));
    let sweep = ["--sessions", "1,2", "--threads", "2", "--streams", "generate-token", "--seconds", "0.1"];
    let rest = ["--quick", "--repeats", "1", "--transports", "shm", "--out", &results];
    run(&[&["run", "ring", "codec", "stubs", "round-trip", "scaling"], &sweep[..], &rest[..]].concat());
    let table = text(&run(&["compare", &results, &results]));
    assert!(table.contains("cuLaunchKernel"), "{table}");
    run(&["plot", &results, "--out", &figure]);
    assert!(std::fs::read_to_string(&figure).expect("the figure").contains("</svg>"));
    std::fs::remove_dir_all(&folder).expect("removing the test's folder");
}

#[test]
fn bytes_are_sent_with_and_without_a_copy() {
    let said = text(&run(&["run", "sending", "--quick", "--repeats", "1"]));
    assert_eq!(said.matches("GB/s").count(), 8, "{said}");
}

#[test]
fn what_encryption_costs_has_rows_of_both_ways() {
    let said = text(&run(&["run", "encryption", "--quick", "--repeats", "1"]));
    for way in ["in the clear", "encrypted"] {
        for row in ["cores while calling", "cores while copying", "to device, pinned", "cuMemGetInfo"] {
            assert!(said.lines().any(|line| line.contains(way) && line.contains(row)), "{way} {row}: {said}");
        }
    }
}

#[test]
fn neighbours_leave_some_speed() {
    let said = text(&run(&["run", "neighbours", "--quick", "--repeats", "1"]));
    assert_eq!(said.matches("speed left beside a neighbour").count(), 3, "{said}");
}

#[test]
fn a_link_delays_and_loses_nothing() {
    // It checks itself that every byte arrives.
    let said = text(&run(&["delay-link", "--round-trip-us", "600", "--gbit-per-s", "8"]));
    let link: serde_json::Value = serde_json::from_str(&said).expect("one line of JSON");
    let number = |name: &str| link[name].as_f64().expect("a number");
    // Only what a busy machine cannot change: it is never early, and never faster than asked for.
    assert!(number("round_trip_added_us") > 300.0, "{said}");
    assert!(number("gbit_per_s") < 8.5 && number("gbit_per_s_4_connections") < 8.5, "{said}");
}

#[test]
fn a_virtual_machine_echoes_where_there_is_kvm() {
    if let Err(e) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        return println!("a ring with a virtual machine is not measured: /dev/kvm: {e}");
    }
    let said = text(&run(&["run", "guest", "--quick", "--repeats", "1"]));
    for row in ["round trip of 144 bytes", "answered late", "asleep until rung", "ringing, in the guest"] {
        assert!(said.contains(row), "{row}: {said}");
    }
}
