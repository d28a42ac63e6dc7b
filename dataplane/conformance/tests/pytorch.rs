//! PyTorch, as it comes from PyPI, computes and trains on the software GPU as on the CPU: the releases up to 1.5.1,
//! whose wheels carry PTX. They take a Python of their time; where there is none a line says so.

#[allow(dead_code, reason = "programs are started with an environment of their own here")]
mod orion;

use std::path::PathBuf;
use std::process::Command;

/// What cuda-toolchain.sh exits with where it finds no Python 3.7 or 3.8.
const NO_PYTHON: i32 = 3;

#[test]
fn pytorch_trains_with_the_losses_of_the_cpu() {
    let conformance = orion_built::root().join("dataplane/conformance");
    let output = Command::new(conformance.join("cuda-toolchain.sh")).arg("pytorch").output().expect("it starts");
    if output.status.code() == Some(NO_PYTHON) {
        return eprintln!("not tried: {}", orion::complaint(&output));
    }
    assert!(output.status.success(), "PyTorch cannot be installed: {}", orion::complaint(&output));
    let python = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()).join("bin/python");
    let script = conformance.join("frameworks/pytorch_training.py");
    for transport in ["shm", "tcp"] {
        let output = orion::through_orion(transport, &python, &[script.to_str().expect("a path of ours")]);
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success() && !text.contains("FAIL"), "over {transport}: {text}{said}");
        assert_eq!(text.lines().filter(|line| line.starts_with("PASS ")).count(), 22, "over {transport}: {text}");
    }
}
