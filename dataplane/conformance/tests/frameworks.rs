//! TensorFlow, JAX, CuPy, Triton, numba, Taichi, Warp, Dr.Jit and XGBoost, as they come from PyPI, compute on Orion's
//! GPU what the CPU computes.
//!
//! There is no skipping: what PyPI does not give makes the tests fail.

#[allow(dead_code, reason = "programs are started with an environment of their own here")]
mod orion;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the packages are. Downloaded once.
fn frameworks() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = orion_built::root().join("dataplane/conformance/cuda-toolchain.sh");
        let output = Command::new(script).arg("frameworks").output().expect("cuda-toolchain.sh starts");
        assert!(output.status.success(), "the frameworks cannot be installed: {}", orion::complaint(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().into()
    })
}

/// The lines of the script that say PASS, which are the same over both transports.
fn passes(capability: &str, script: &str) -> Vec<String> {
    passes_with(capability, script, &[])
}

/// The same of a script with arguments.
fn passes_with(capability: &str, script: &str, arguments: &[&str]) -> Vec<String> {
    // Several tests run the same script at the same time.
    let name = format!("orion-frameworks-{}-{capability}-{script}", std::process::id());
    let scratch = std::env::temp_dir().join(name);
    let script = orion_built::root().join("dataplane/conformance/frameworks").join(script);
    // bin/python beside lib/python3.X/site-packages.
    let python = frameworks().ancestors().nth(3).expect("packages lie three folders down").join("bin/python");
    let over = |transport: &str| {
        let output = orion::command(transport, &python, &[script.to_str().expect("a path of ours")])
            .args(arguments)
            .env("ORION_SOFT_CAPABILITY", capability)
            // TensorFlow 2.21 has the wheels' folders in its own search path, but for this one.
            .env("LD_LIBRARY_PATH", frameworks().join("nvidia/cusolver/lib"))
            .env("TF_CPP_MIN_LOG_LEVEL", "1")
            // What was compiled before, maybe for a GPU, is not what is asked about.
            .env("CUPY_CACHE_DIR", scratch.join(transport).join("cupy"))
            .env("TRITON_CACHE_DIR", scratch.join(transport).join("triton"))
            .output()
            .expect("orion-run starts");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success(), "over {transport}: {text}{said}");
        text.lines().filter(|line| line.starts_with("PASS ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (shm, tcp) = (over("shm"), over("tcp"));
    // Who compiles nothing makes no folder.
    let _ = std::fs::remove_dir_all(&scratch);
    assert_eq!(shm, tcp, "{} over shm and over tcp", script.display());
    shm
}

/// A compute capability that compilers know.
const KNOWN: &str = "9.0";
/// One that cuBLAS does not know, so that it takes its PTX.
const UNKNOWN: &str = "13.0";

#[test]
fn jax_shows_the_gpu_and_brings_arrays_there_and_back() {
    assert_eq!(passes(KNOWN, "jax_devices.py").len(), 2);
}

#[test]
fn jax_trains_with_the_losses_of_the_cpu() {
    assert_eq!(passes(UNKNOWN, "jax_training.py").len(), 12);
}

#[test]
fn cupy_computes_what_numpy_computes() {
    assert_eq!(passes(UNKNOWN, "cupy_calls.py").len(), 33);
}

/// The software GPU's own capability, for which NVIDIA's libraries have machine code alone: what they do not compute
/// they do not answer, with zeros least of all. What CuPy compiles itself is computed.
#[test]
fn cupy_computes_what_numpy_computes_or_raises_at_the_default_capability() {
    let all = passes_with(KNOWN, "cupy_calls.py", &["each"]);
    assert_eq!(all.len(), 33, "{all:?}");
    for name in ["elementwise", "a raw kernel", "sum", "max of columns", "cumsum", "sort"] {
        assert!(all.contains(&format!("PASS {name}")), "{name} of {all:?}");
    }
    assert!(all.contains(&"PASS matmul, which raises CUBLASError".to_owned()), "{all:?}");
}

#[test]
fn tritons_kernels_compute_right() {
    assert_eq!(passes(KNOWN, "triton_kernels.py").len(), 5);
}

#[test]
fn taichis_kernels_compute_right() {
    assert_eq!(passes(KNOWN, "taichi_kernels.py").len(), 5);
}

#[test]
fn warps_kernels_compute_right() {
    assert_eq!(passes(KNOWN, "warp_kernels.py").len(), 5);
}

#[test]
fn drjits_kernels_compute_right() {
    assert_eq!(passes(KNOWN, "drjit_kernels.py").len(), 11);
}

#[test]
fn xgboost_grows_the_trees_of_the_cpu() {
    assert_eq!(passes(KNOWN, "xgboost_training.py").len(), 3);
}

#[test]
fn numbas_kernels_compute_right() {
    assert_eq!(passes(KNOWN, "numba_kernels.py").len(), 12);
}

#[test]
fn tensorflow_shows_the_gpu_and_its_kernels_compute_right() {
    assert_eq!(passes(KNOWN, "tensorflow_ops.py").len(), 18);
}

#[test]
fn tensorflow_multiplies_and_convolves_by_cublas_and_cudnn() {
    assert_eq!(passes(UNKNOWN, "tensorflow_libraries.py").len(), 14);
}
