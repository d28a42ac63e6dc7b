//! Every row of the table has code behind it, and the error log reaches the application.

mod orion;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FACTS: &str = env!("CARGO_BIN_EXE_orion-facts");

fn asked(transport: &str, what: &str) -> Output {
    let folder = orion::build(&["-p", "orion-conformance", "--example", "ask_everything"]);
    orion::through_orion(transport, &folder.join("examples/ask_everything"), &[what])
}

#[test]
fn every_exported_function_is_written() {
    for transport in ["shm", "tcp"] {
        let output = asked(transport, "exports");
        let (said, complaint) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success(), "over {transport}: {complaint}");
        let called = said.lines().find_map(|l| l.strip_suffix(" functions were called")?.parse::<u32>().ok());
        assert!(called.is_some_and(|n| n > 550), "over {transport}: {called:?} functions were called");
        // What `refuse::pending` says.
        assert!(!complaint.contains("not yet implemented in this build"), "over {transport}: {complaint}");
    }
}

#[test]
fn what_the_driver_logs_is_heard_in_the_thread_that_failed() {
    for transport in ["shm", "tcp"] {
        let output = asked(transport, "driver-log");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
        let words = "[CUDA][E] cuStreamSetAttribute: this attribute is not supported";
        let heard = said.lines().find(|l| l.contains(" heard ") && l.contains(words));
        let answered = said.lines().find_map(|l| l.strip_prefix("the driver answered 801 in ")).unwrap_or("no thread");
        assert!(heard.is_some_and(|l| l.starts_with(answered)), "over {transport}: {said}");
        assert!(said.lines().any(|l| l.starts_with('[') && l.contains(words)), "over {transport}: {said}");
    }
}

#[test]
fn the_log_goes_where_the_environment_says() {
    let path: PathBuf = std::env::temp_dir().join(format!("orion-log-{}", std::process::id()));
    let run = |place: &Path| {
        let output = Command::new(orion::built().join("orion-run"))
            .args(["--software-gpu", "--transport", "shm", "--", FACTS])
            .args(["--only", "logs::a_refused_dump_is_logged"])
            .env("CUDA_LOG_FILE", place)
            .output()
            .expect("orion-run starts");
        assert!(output.status.success(), "{}", orion::complaint(&output));
        output
    };
    let line = "[CUDA][E][cuLogsDumpToMemory] buffer cannot be NULL";
    run(&path);
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    assert!(file.lines().any(|l| l.ends_with(line)), "the file has {file:?}");
    for (place, said) in ["stdout", "stderr"].map(|p| (p, run(Path::new(p)))) {
        let text = if place == "stdout" { &said.stdout } else { &said.stderr };
        assert!(String::from_utf8_lossy(text).lines().any(|l| l.ends_with(line)), "{place} has no such line");
    }
}
