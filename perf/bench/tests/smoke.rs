//! The program as somebody with a fresh clone and no GPU uses it.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program, with oriond and the shim beside it.
fn bench() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        orion_built::packages(&["oriond", "orion-shim"]);
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
    run(&[&["run", "ring", "codec", "comparing", "stubs", "round-trip", "scaling"], &sweep[..], &rest[..]].concat());
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
fn each_carrier_has_rows_or_an_error_that_says_why_not() {
    let said = text(&run(&["run", "carriers", "--quick", "--repeats", "1", "--transports", "shm,tcp,ivshmem"]));
    for carrier in ["shm", "tcp", "ivshmem"] {
        for row in ["call with answer", "calls with answer, one thread", "launches executed", "cores while copying"] {
            assert!(said.lines().any(|line| line.contains(&format!(" {carrier} {row}"))), "{carrier} {row}: {said}");
        }
        for way in ["to device, pinned", "to host, pinned", "to device, pageable", "to host, pageable"] {
            assert!(said.lines().any(|line| line.contains(&format!(" {carrier} {way}"))), "{carrier} {way}: {said}");
        }
    }
    let refused = |arguments: &[&str], words: &str| {
        let mut command = Command::new(bench());
        command.args(["--driver", "soft"]).args(arguments).env("ORION_IB_NAME", "nobodys0");
        let output = command.output().expect("it starts");
        let complaint = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(!output.status.success() && complaint.contains(words), "{arguments:?}: {complaint}");
    };
    // Built without, or a device that is not there: nothing is measured over something else.
    refused(&["run", "carriers", "--quick", "--transports", "rdma"], "oriond did not start: ");
    refused(&["run", "carriers", "--quick", "--transports", "rdma"], "rdma");
    refused(&["--transport", "rdma"], "rdma");
    refused(&["run", "round-trip", "--transports", "pcie"], "\"pcie\" is no transport; it is one of shm, tcp, rdma");
    refused(&["run", "copies", "--server", "rdma:node:7412"], "--server is for the workload carriers");
    let server = ["run", "carriers", "--server", "tcp:127.0.0.1:1"];
    refused(&[&server[..], &["--transports", "shm"]].concat(), "cannot be used with");
    refused(&[&server[..], &["--native"]].concat(), "cannot be used with");
    refused(&[&server[..], &["--server", "tcp:127.0.0.1:1"]].concat(), "--server tcp:127.0.0.1:1 is named twice");
    refused(&["run", "codec", "--quick", "--transports", "tcp,tcp"], "tcp is named twice");
    refused(&["run", "codec", "--quick", "--transports", "vsock"], "orion-bench run carriers --server vsock:2:7411");
    refused(&["run", "codec", "nothing", "--quick"], "there is no workload \"nothing\"");
    // Before anybody is asked there.
    let elsewhere = ["deploy-check", "--server", "tcp:192.0.2.1:7411", "--verbs", "2.1,24"];
    refused(&elsewhere, "nothing is predicted from tcp:192.0.2.1:7411");
    // What scaling offers, it is asked for; what it cannot measure, it says before anything is.
    refused(&["run", "scaling", "--quick", "--behind", "echo", "--transports", "rdma"], "oriond did not start: ");
    refused(&["run", "codec", "scaling", "--quick", "--transports", "shm,ivshmem"], "scaling: ivshmem is not measured");
}

#[test]
fn a_server_of_somebody_elses_is_measured_by_its_address() {
    let folder = std::env::temp_dir().join(format!("orion-bench-server-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("creating the test's folder");
    let socket = folder.join("oriond.sock");
    let mut oriond = Command::new(bench().with_file_name("oriond"))
        .args(["serve", "--driver", "soft", "--listen", "none", "--warm", "1", "--socket"])
        .arg(&socket)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("oriond starts");
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(oriond.try_wait().expect("our child").is_none(), "oriond ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let server = format!("unix:{}", socket.display());
    let results = folder.join("results.json");
    let (out, few) = (["--out", results.to_str().expect("UTF-8")], ["--quick", "--repeats", "1"]);
    let said = text(&run(&[&["run", "carriers", "--server", &server], &few[..], &out[..]].concat()));
    let written = std::fs::read_to_string(&results).expect("the results");
    let foretold = text(&run(&["deploy-check", "--server", &server, "--verbs", "2.1,24"]));
    let nothing = text(&run(&["deploy-check", "--server", &server]));
    oriond.kill().expect("it runs");
    oriond.wait().expect("it ends");
    std::fs::remove_dir_all(&folder).expect("removing the test's folder");
    assert!(said.lines().any(|line| line.contains(&format!("{server} call with answer"))), "{said}");
    // What is behind it, it alone knows.
    assert!(said.contains(&format!(", driver behind {server}, ")), "{said}");
    assert!(written.contains(&format!("\"driver\": \"behind {server}\"")), "{written}");
    // Every line of it says what it is.
    let (_, foretold) = foretold.split_once("\npredicted, RDMA to unix:").expect("a prediction");
    let mut lines = foretold.lines().skip(1).map(str::trim_start);
    assert!(lines.all(|line| line.starts_with("assumed ") || line.starts_with("predicted")), "{foretold}");
    assert!(foretold.contains("predicted, training: slowdown "), "{foretold}");
    assert!(nothing.contains("RDMA: nothing is predicted") && !nothing.contains("\npredicted, "), "{nothing}");
}

/// As every tool does, and a program that is told to say where it runs.
#[test]
fn a_server_that_asks_for_no_token_is_called_insecure() {
    // It writes to none of the standard descriptors.
    let mut oriond = Command::new("sh")
        .args(["-c", r#"exec "$@" 3>&1 >&2"#, "sh"])
        .arg(bench().with_file_name("oriond"))
        .args(["serve", "--driver", "soft", "--socket", "none", "--listen", "127.0.0.1:0", "--insecure"])
        .args(["--warm", "1", "--ready-fd", "3"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("oriond starts");
    let mut addresses = String::new();
    let stdout = oriond.stdout.take().expect("it is a pipe");
    std::io::BufReader::new(stdout).read_line(&mut addresses).expect("oriond says where it serves");
    let server = addresses.split_whitespace().find(|address| address.starts_with("tcp:")).expect("an address of TCP");
    let mut command = Command::new(bench());
    command.args(["--driver", "soft", "deploy-check", "--server", server]).env("ORION_VERBOSE", "1");
    let output = command.env_remove("ORION_TOKEN").env_remove("ORION_TOKEN_FILE").output().expect("it starts");
    oriond.kill().expect("it runs");
    oriond.wait().expect("it ends");
    let (said, complaint) = (text(&output), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{complaint}", output.status);
    assert!(said.contains("\n  INSECURE               this server asks for no token"), "{said}");
    // Of the program that measured there.
    assert!(complaint.contains("transport tcp (not encrypted; insecure: no token), device "), "{complaint}");
}

#[test]
fn neighbours_leave_some_speed() {
    let said = text(&run(&["run", "neighbours", "--quick", "--repeats", "1"]));
    assert_eq!(said.matches("speed left beside a neighbour").count(), 3, "{said}");
}

#[test]
fn a_link_delays_and_loses_nothing() {
    // It is never early. Beside other tests a round trip without the link may take milliseconds, and then nothing is
    // known of what it adds.
    let mut measured = (0..5).map(|_| {
        // It checks itself that every byte arrives.
        let said = text(&run(&["delay-link", "--round-trip-us", "600", "--gbit-per-s", "8"]));
        let link: serde_json::Value = serde_json::from_str(&said).expect("one line of JSON");
        // What a busy machine cannot change: it is never faster than asked for.
        let rates = ["gbit_per_s", "gbit_per_s_4_connections"].map(|name| link[name].as_f64().expect("a number"));
        assert!(rates.iter().all(|rate| *rate < 8.5), "{said}");
        link["round_trip_added_us"].as_f64().expect("a number")
    });
    assert!(measured.any(|added| added > 300.0), "a link of 600 us added less five times");
}

#[test]
fn a_virtual_machine_echoes_where_there_is_kvm() {
    if let Err(e) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        // Not by println, which a test that passes keeps to itself.
        let said = writeln!(std::io::stderr(), "a ring with a virtual machine is not measured: /dev/kvm: {e}");
        return said.expect("somebody reads what tests say");
    }
    let said = text(&run(&["run", "guest", "--quick", "--repeats", "1"]));
    for row in ["round trip of 144 bytes", "answered late", "asleep until rung", "ringing, in the guest"] {
        assert!(said.contains(row), "{row}: {said}");
    }
}
