//! PyTorch 2.6, as Debian 13 builds it with PTX of its kernels, computes and trains on the software GPU as on the CPU.
//!
//! It runs in the userland of a Debian 13, which root may enter; for others, and where none can be unpacked, a line
//! says so.

#[allow(dead_code, reason = "programs are started with an environment of their own here")]
mod orion;

use std::process::Command;

/// What cuda-toolchain.sh exits with where there is nothing to unpack a Debian with.
const NO_DEBIAN: i32 = 3;
/// What inside-root.sh exits with for whoever may not enter another userland.
const NOT_ROOT: i32 = 125;

#[test]
fn debians_pytorch_trains_with_the_losses_of_the_cpu() {
    let conformance = orion_built::root().join("dataplane/conformance");
    let output = Command::new(conformance.join("cuda-toolchain.sh")).arg("pytorch-debian").output().expect("it starts");
    if output.status.code() == Some(NO_DEBIAN) {
        return eprintln!("not tried: {}", orion::complaint(&output));
    }
    assert!(output.status.success(), "Debian's PyTorch cannot be unpacked: {}", orion::complaint(&output));
    let debian = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    let inside = || {
        let mut command = Command::new(conformance.join("inside-root.sh"));
        command.arg(&debian).args([orion::built(), &conformance.join("frameworks")]).arg("--");
        command
    };
    let output = inside().arg("true").output().expect("inside-root.sh starts");
    if output.status.code() == Some(NOT_ROOT) {
        return eprintln!("not tried: {}", orion::complaint(&output));
    }
    for transport in ["shm", "tcp"] {
        let output = inside()
            .arg(orion::built().join("orion-run"))
            // cuBLAS has machine code alone for each capability that it knows.
            .args(["--software-gpu", "--capability", "13.0", "--transport", transport, "--", "python3", "-W", "ignore"])
            .arg(conformance.join("frameworks/pytorch_current.py"))
            // Debian's package lets PyTorch look for one of its own libraries where it is not.
            .env("LD_LIBRARY_PATH", "/usr/lib/python3/dist-packages/torch/lib")
            .output()
            .expect("inside-root.sh starts");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success() && !text.contains("FAIL"), "over {transport}: {text}{said}");
        assert_eq!(text.lines().filter(|line| line.starts_with("PASS ")).count(), 53, "over {transport}: {text}");
    }
}
