//! Every row of the table has code behind it, and the error log reaches the application.

mod orion;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn asked(transport: &str, what: &str) -> Output {
    let folder = orion_built::build(&["-p", "orion-conformance", "--example", "ask_everything"]);
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
    let folder = orion_built::build(&["-p", "orion-conformance", "--example", "ask_everything"]);
    let run = |place: &Path| {
        let output = Command::new(orion::built().join("orion-run"))
            .args(["--software-gpu", "--transport", "shm", "--"])
            .arg(folder.join("examples/ask_everything"))
            .arg("exports")
            .env("CUDA_LOG_FILE", place)
            .output()
            .expect("orion-run starts");
        assert!(output.status.success(), "{}", orion::complaint(&output));
        output
    };
    // What cuLogsDumpToMemory has to say to zeros, before cuInit and afterwards.
    let lines = |text: &str| {
        text.lines().filter(|l| l.ends_with("[CUDA][E][cuLogsDumpToMemory] buffer cannot be NULL")).count()
    };
    run(&path);
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    assert_eq!(lines(&file), 2, "the file has {file:?}");
    let (out, err) = (run(Path::new("stdout")), run(Path::new("stderr")));
    assert_eq!(lines(&String::from_utf8_lossy(&out.stdout)), 2);
    assert_eq!(lines(&String::from_utf8_lossy(&out.stderr)), 0);
    assert_eq!(lines(&String::from_utf8_lossy(&err.stderr)), 2);
}

#[test]
fn a_callback_may_call_cuda() {
    for transport in ["shm", "tcp"] {
        let output = asked(transport, "calls-from-a-callback");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
        assert!(said.contains("the callback created 0 and waited 0\n"), "over {transport}: {said}");
        assert!(said.contains("the long name was answered with 1\n"), "over {transport}: {said}");
    }
}

#[test]
fn a_record_that_another_process_may_look_at_is_awaited() {
    for transport in ["shm", "tcp"] {
        let output = asked(transport, "shared-events");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
        assert!(said.contains("an event of its own took 0 round trips: 0\n"), "over {transport}: {said}");
        // The software GPU makes none that processes share, so that there is none to record: what it answers is what
        // the program gets.
        assert!(said.contains("an event of its shared took 1 round trips: 400\n"), "over {transport}: {said}");
    }
}

/// A program that asks a device what it can do takes another way than the one that is refused, over a session too.
#[test]
fn attributes_of_what_is_refused_are_zero_over_a_session() {
    for transport in ["shm", "tcp"] {
        let output = asked(transport, "attributes");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
        let answers: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("attribute ")).collect();
        assert!(answers.len() > 140, "over {transport}: {said}");
        // Pageable memory, and the host's beside a kernel; then those of shim/src/state/device.rs, but the card's own
        // numbers.
        let ours = [88, 89, 103, 110, 116, 119, 124, 128, 135, 136, 137, 138, 141, 142, 143, 144, 145, 146];
        for id in ours {
            assert!(answers.contains(&format!("{id}: 0, 0").as_str()), "{id} over {transport}: {said}");
        }
        assert!(answers.contains(&"83: 0, 1"), "managed memory over {transport}: {said}");
    }
}
