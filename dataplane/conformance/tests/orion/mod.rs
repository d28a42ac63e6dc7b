//! Shared by the tests that run programs through Orion: the built pieces, and one command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder cargo builds into, with `what` built and up to date.
pub fn build(what: &[&str]) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet"]).args(what);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.current_dir(root()).status().expect("cargo starts");
    assert!(status.success(), "{what:?} does not build");
    Path::new(env!("CARGO_BIN_EXE_orion-facts")).parent().expect("a binary lies in a folder").to_path_buf()
}

/// The same with everything a session needs.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        build(&[
            "-p",
            "orion-shim",
            "-p",
            "orion-cupti",
            "-p",
            "orion-nvml",
            "-p",
            "oriond",
            "-p",
            "orion-run",
            "-p",
            "orion-soft",
        ])
    })
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down")
}

/// Runs a program on the software GPU through the whole path.
pub fn through_orion(transport: &str, program: &Path, arguments: &[&str]) -> Output {
    command(transport, program, arguments).output().expect("orion-run starts")
}

/// The same, not started yet.
pub fn command(transport: &str, program: &Path, arguments: &[&str]) -> Command {
    command_with(transport, &[], program, arguments)
}

/// The same, with options of orion-run's.
pub fn command_with(transport: &str, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
    let mut run = Command::new(built().join("orion-run"));
    run.args(["--software-gpu", "--transport", transport]).args(options).arg("--").arg(program).args(arguments);
    run
}

/// How a program ended and what it said on standard error.
pub fn complaint(output: &Output) -> String {
    format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr))
}
