//! Shared by the tests that run programs through Orion: the built pieces, and one command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder cargo builds into, with everything a session needs built and up to date.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "orion-shim", "-p", "oriond", "-p", "orion-run", "-p", "orion-soft"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let status = build.current_dir(root()).status().expect("cargo starts");
        assert!(status.success(), "the parts of a session do not build");
        Path::new(env!("CARGO_BIN_EXE_orion-facts")).parent().expect("a binary lies in a folder").to_path_buf()
    })
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down")
}

/// Runs a program on the software GPU through the whole path.
pub fn through_orion(transport: &str, program: &Path, arguments: &[&str]) -> Output {
    Command::new(built().join("orion-run"))
        .args(["--software-gpu", "--transport", transport, "--"])
        .arg(program)
        .args(arguments)
        .output()
        .expect("orion-run starts")
}

/// What a failed program printed, for the message of the test.
pub fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}
