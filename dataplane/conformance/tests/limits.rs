//! A session's device memory has a limit by every way to such memory, and all of it can be had. `orion-limits` takes and
//! gives back at random, with a model of what is in use.

mod orion;

use std::path::Path;
use std::process::Output;

const LIMITS: &str = env!("CARGO_BIN_EXE_orion-limits");
/// Each way is taken thousands of times.
const WAYS: usize = 11;

fn under(limit: &str, transport: &str, arguments: &[&str]) -> Output {
    let mut run = std::process::Command::new(orion::built().join("orion-run"));
    run.args(["--software-gpu", "--transport", transport, "--memory-limit", limit, "--"]);
    run.arg(Path::new(LIMITS)).args(arguments).output().expect("orion-run starts")
}

fn hold_over(transport: &str, operations: &str) {
    let output = under("64 MiB", transport, &["--operations", operations, "--seed", "7"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "over {transport}: {said}\n{}", orion::complaint(&output));
    assert_eq!(said.matches(", ").count(), WAYS, "a way was never taken over {transport}: {said}");
    let complaint = orion::complaint(&output);
    assert!(!complaint.contains("the ledger lacks"), "over {transport}: {complaint}");
}

#[test]
fn a_million_operations_stay_within_the_limit_over_shared_memory() {
    hold_over("shm", "1000000");
}

#[test]
fn many_operations_stay_within_the_limit_over_tcp() {
    hold_over("tcp", "200000");
}

#[test]
fn without_a_limit_it_refuses_to_start() {
    let output = orion::through_orion("shm", Path::new(LIMITS), &["--most-mib", "64"]);
    assert!(!output.status.success());
    assert!(orion::complaint(&output).contains("give the session a limit"), "{}", orion::complaint(&output));
}
