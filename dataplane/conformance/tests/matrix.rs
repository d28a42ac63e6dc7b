//! A completion that is seen covers all host memory before it, over every carrier, whatever finishes first.
//!
//! The software GPU's streams pause at random, so results are there before their streams say so and streams overtake
//! each other; the third test's network holds up every connection by itself. `orion-matrix` alone runs for as long as
//! one likes: see `dataplane/conformance/README.md`.

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

use std::path::Path;

const MATRIX: &str = env!("CARGO_BIN_EXE_orion-matrix");

#[test]
fn a_completion_covers_host_memory_over_shared_memory() {
    covers_over("shm", &[]);
}

#[test]
fn a_completion_covers_host_memory_over_tcp() {
    covers_over("tcp", &[]);
}

#[test]
fn a_completion_covers_host_memory_over_a_late_network() {
    covers_over("tcp", &["--late-us", "300"]);
}

/// What waits and frees beside a capture covers it all the same, and ends none. So does what waits while contexts,
/// streams, modules and pools end with work under way.
#[test]
fn a_completion_covers_host_memory_beside_captures_and_churn() {
    covers_over("shm", &["--captures", "--churn"]);
    covers_over("tcp", &["--captures", "--churn"]);
}

/// Each cell once, in an order that the seed gives; `--list` prints them all. Without `--count` it fails if the time
/// was too short for one of them.
fn covers_over(transport: &str, options: &[&str]) {
    let limits = ["--seconds", "300", "--threads", "6"];
    let mut run = orion::command(transport, Path::new(MATRIX), &[&limits[..], options].concat());
    let output = run.env("ORION_SOFT_JITTER", "7").output().expect("orion-run starts");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
}

#[test]
fn what_cuda_does_not_have_is_listed() {
    let output = std::process::Command::new(MATRIX).arg("--list").output().expect("orion-matrix starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (without, with): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("not in CUDA: "));
    // 24 ways, 15 completions, 7 kinds of memory, 3 things that the host does next.
    assert_eq!(without.len() + with.len(), 24 * 15 * 7 * 3);
    assert!(without.iter().all(|line| line.matches(": ").count() == 2), "each with its reason");
}
