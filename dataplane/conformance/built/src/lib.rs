//! The workspace's programs, for tests that start some of another package: cargo builds only those of a test's own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Set by whoever has built all programs already. cargo chooses the features of dependencies anew for each choice of
/// packages, so that tests which each build a few would build the same dependencies many times.
pub const ALL: &str = "ORION_BUILT";

/// The folder cargo builds into, with what `cargo build` makes of these arguments in it, as the test is built.
///
/// # Panics
/// Where it does not build: then the test cannot be run.
pub fn build(arguments: &[&str]) -> PathBuf {
    if std::env::var_os(ALL).is_none() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet"]).args(arguments).current_dir(root());
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo starts").success(), "{arguments:?} does not build");
    }
    // A test lies in "deps" below it.
    let own = std::env::current_exe().expect("this program");
    own.ancestors().nth(2).expect("two folders up").to_owned()
}

/// The same of whole packages.
pub fn packages(names: &[&str]) -> PathBuf {
    build(&names.iter().flat_map(|name| ["-p", name]).collect::<Vec<_>>())
}

/// The workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("this package lies three folders down")
}
