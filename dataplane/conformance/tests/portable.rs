//! What is handed to users loads where the C library is old.

#[allow(dead_code, reason = "what runs here is installed by a script")]
mod orion;

use std::path::Path;
use std::process::{Command, Output};

fn script(name: &str) -> Command {
    Command::new(orion_built::root().join("dataplane/conformance").join(name))
}

#[test]
fn facts_hold_in_an_old_userland() {
    let status = script("old-userland.sh").status().expect("old-userland.sh starts");
    assert!(status.success(), "old-userland.sh: {status}");
}

#[test]
fn a_need_for_a_newer_c_library_is_found() {
    let judge = |version: &str, file: &Path| -> Output {
        script("glibc-version.sh").arg(version).arg(file).output().expect("glibc-version.sh starts")
    };
    let this = std::env::current_exe().expect("a test has a path");
    let output = judge("99", &this);
    assert!(output.status.success(), "{}", orion::complaint(&output));
    // No 64-bit program needs one older than this, which was the first.
    let output = judge("2.2.4", &this);
    let said = orion::complaint(&output);
    assert!(!output.status.success() && said.contains(" needs GLIBC_2.2.5, newer than 2.2.4: "), "{said}");
    let output = judge("2.17", &orion_built::root().join("README.md"));
    assert!(!output.status.success(), "a text was taken for a program");
}
