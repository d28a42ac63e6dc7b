//! `libnvidia-ml.so.1`: what it says of the devices is what CUDA says, and no function of NVML's header is missing.

#[allow(dead_code, reason = "programs are started with an environment of their own here")]
mod orion;

use std::process::Command;

#[test]
fn nvml_says_of_the_devices_what_cuda_says() {
    let program = orion::build(&["-p", "orion-conformance", "--example", "ask_nvml"]).join("examples/ask_nvml");
    let toolchain = orion::root().join("dataplane/conformance/cuda-toolchain.sh");
    let output = Command::new(toolchain).arg("nvml").output().expect("cuda-toolchain.sh starts");
    assert!(output.status.success(), "no nvml.h: {}", orion::complaint(&output));
    let header = String::from_utf8_lossy(&output.stdout).trim_end().to_owned() + "/nvml.h";
    for (transport, devices) in [("shm", "1"), ("tcp", "3")] {
        let mut run = orion::command(transport, &program, &[&header]);
        let output = run.env("ORION_SOFT_DEVICES", devices).output().expect("orion-run starts");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success() && text.contains("PASS"), "over {transport}: {text}{said}");
        assert!(text.contains(&format!("{devices} devices")), "over {transport}: {text}");
        let there =
            text.lines().find_map(|l| l.strip_suffix(" functions of the header are there")?.parse::<u32>().ok());
        assert!(there.is_some_and(|n| n >= 435), "{text}");
    }
    // Without a server it says what NVIDIA's says without a driver.
    let built = orion::built();
    let output = Command::new(&program)
        .env("LD_PRELOAD", format!("{0}/libnvidia_ml.so:{0}/libcuda.so", built.display()))
        .env("ORION_SERVER", "unix:/nonexistent/socket")
        .output()
        .expect("the program starts");
    let said = orion::complaint(&output);
    assert!(!output.status.success() && said.contains("left: 9"), "{said}");
}
