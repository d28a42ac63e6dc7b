//! The suite's programs that need no GPU, on the software GPU alone and through Orion: `perf/suite`.

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

use std::path::Path;
use std::process::Command;

#[test]
fn random_programs_answer_the_same_alone_and_through_orion() {
    compares("differ.py", &["--known", "--seeds", "40", "--steps", "400"]);
}

#[test]
fn random_programs_with_graphs_textures_and_two_devices_do_so_too() {
    compares_with(2, "differ.py", &["--wide", "--known", "--seeds", "30", "--steps", "400"]);
}

/// A GPU's queue and no more, and the calls of other threads are made meanwhile.
#[test]
fn a_stream_takes_what_a_queue_holds_and_others_go_on() {
    let kinds = [
        "launch",
        "launch with 4 KB of parameters",
        "launch with 30 KB of parameters",
        "launch and record",
        "record",
        "fill",
        "copy",
        "copy to pinned memory",
        "write of a value",
        "host function",
        "graph of 16 kernels",
    ];
    compares("ahead.py", &["--only", &kinds.join(",")]);
}

/// What an H200 answered is kept; in what the software GPU or Orion answers differently it is listed.
#[test]
fn functions_that_are_given_nothing_or_little_answer_as_an_h200_does() {
    let kept = |name: &str| format!("{}/../../perf/suite/cuda/{name}", env!("CARGO_MANIFEST_DIR"));
    let (answers, known) = (kept("h200-refusals.json"), kept("known-refusals.txt"));
    compares("refusals.py", &["--modes", "shm,tcp", "--against", &answers, "--known", &known]);
}

fn compares(script: &str, options: &[&str]) {
    compares_with(1, script, options);
}

fn compares_with(devices: u32, script: &str, options: &[&str]) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::temp_dir().join(format!("orion-{script}-{devices}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a new folder");
    let alone = orion::built().join("liborion_soft.so");
    std::os::unix::fs::symlink(alone, folder.join("libcuda.so.1")).expect("a link in a new folder");
    let output = Command::new("python3")
        .arg(repository.join("perf/suite").join(script))
        .args(options)
        .env("ORION_SOFT_DEVICES", devices.to_string())
        .args(["--orion-args=--software-gpu", "--native-lib"])
        .arg(&folder)
        .arg("--orion-run")
        .arg(orion::built().join("orion-run"))
        .output()
        .expect("python3 starts");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    std::fs::remove_dir_all(&folder).expect("removing");
    assert!(output.status.success(), "{}", orion::complaint(&output));
}
