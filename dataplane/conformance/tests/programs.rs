//! Programs that know nothing of Orion run through it: CUDA C++ built by nvcc, and a Rust program that uses cudarc.
//!
//! There is no skipping: without the CUDA toolchain, which `cuda-toolchain.sh` finds or downloads, the tests fail.

mod orion;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[test]
fn nvcc_programs_run_over_shared_memory() {
    run_all("shm");
}

#[test]
fn nvcc_programs_run_over_tcp() {
    run_all("tcp");
}

#[test]
fn a_cudarc_program_runs_over_both() {
    // Only a plain `cargo test` builds examples.
    let program = orion::build(&["-p", "orion-conformance", "--example", "hello_cudarc"]).join("examples/hello_cudarc");
    for transport in ["shm", "tcp"] {
        let failure = run(transport, &program);
        assert!(failure.is_none(), "{}", failure.unwrap_or_default());
    }
}

fn run_all(transport: &str) {
    let programs = programs();
    let failures: Vec<String> = programs.iter().filter_map(|program| run(transport, program)).collect();
    println!("{} passed, {} failed", programs.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "over {transport}:\n{}", failures.join("\n"));
}

/// Every variant of every program, built once for both carriers.
fn programs() -> &'static [PathBuf] {
    static PROGRAMS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = orion::built().join("cuda-programs");
        let script = orion::root().join("dataplane/conformance/cuda/build.sh");
        let output = Command::new(script).arg(&folder).output().expect("build.sh starts");
        assert!(output.status.success(), "nvcc programs do not build: {}", orion::complaint(&output));
        let mut programs: Vec<PathBuf> = std::fs::read_dir(&folder)
            .expect("build.sh made it")
            .map(|e| e.expect("a readable entry").path())
            .collect();
        programs.sort();
        // Fewer would mean that the script left some out.
        assert!(programs.len() >= 34, "only {} programs were built", programs.len());
        programs
    })
}

/// Why the program failed, or nothing.
fn run(transport: &str, program: &Path) -> Option<String> {
    let output = orion::through_orion(transport, program, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let good = output.status.success() && text.contains("PASS ") && !text.contains("FAIL ") && printed(program, &text);
    (!good).then(|| format!("{} over {transport}: {text}{}", program.display(), orion::complaint(&output)))
}

/// The printing program is judged by its output: four whole lines, one from each thread.
fn printed(program: &Path, text: &str) -> bool {
    if !program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("print.")) {
        return true;
    }
    (0..4).all(|i| {
        let line = format!(
            "PASS thread {} of block {} says -3, 0.125, text, c,    42|7    |ff, -12345678901, %\n",
            i % 2,
            i / 2
        );
        text.matches(&line).count() == 1
    })
}
