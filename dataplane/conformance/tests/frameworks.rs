//! TensorFlow and JAX, as they come from PyPI, show Orion's GPU and compute on it.
//!
//! There is no skipping: what PyPI does not give makes the tests fail.

#[allow(dead_code, reason = "programs are started with an environment of their own here")]
mod orion;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Downloaded once.
fn frameworks() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = orion::root().join("dataplane/conformance/cuda-toolchain.sh");
        let output = Command::new(script).arg("frameworks").output().expect("cuda-toolchain.sh starts");
        assert!(output.status.success(), "TensorFlow and JAX cannot be installed: {}", orion::complaint(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().into()
    })
}

/// How often the script says PASS.
fn passes(transport: &str, script: &str) -> usize {
    let script = orion::root().join("dataplane/conformance/frameworks").join(script);
    let output = orion::command(transport, Path::new("python3"), &[script.to_str().expect("a path of ours")])
        .env("PYTHONPATH", frameworks())
        // TensorFlow 2.21 has the wheels' folders in its own search path, but for this one.
        .env("LD_LIBRARY_PATH", frameworks().join("nvidia/cusolver/lib"))
        .env("TF_CPP_MIN_LOG_LEVEL", "1")
        .output()
        .expect("orion-run starts");
    let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
    assert!(output.status.success(), "over {transport}: {text}{said}");
    text.lines().filter(|line| line.starts_with("PASS ")).count()
}

#[test]
fn jax_shows_the_gpu_and_brings_arrays_there_and_back() {
    for transport in ["shm", "tcp"] {
        assert_eq!(passes(transport, "jax_devices.py"), 2);
    }
}

#[test]
fn tensorflow_shows_the_gpu_and_its_kernels_compute_right() {
    for transport in ["shm", "tcp"] {
        assert_eq!(passes(transport, "tensorflow_ops.py"), 18);
    }
}
