//! Shared by the tests that run programs through Orion: the built pieces, and one command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder cargo builds into, with everything a session needs.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        orion_built::packages(&["orion-shim", "orion-cupti", "orion-nvml", "oriond", "orion-run", "orion-soft"])
    })
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
