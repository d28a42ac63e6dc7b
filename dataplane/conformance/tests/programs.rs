//! Programs that know nothing of Orion run through it: CUDA C++ built by nvcc, and a Rust program that uses cudarc.
//!
//! There is no skipping: without the CUDA toolchain, which `cuda-toolchain.sh` finds or downloads, the tests fail.

mod orion;
mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[test]
fn nvcc_programs_run_over_shared_memory() {
    run_all("shm");
}

#[test]
fn nvcc_programs_run_over_tcp() {
    run_all("tcp");
}

/// GCC makes PTX of its own, and its library links it by the driver's linker with that of its runtime.
#[test]
fn openmp_and_openacc_of_gcc_run_on_the_gpu() {
    // Debian's gcc-12-offload-nvptx has this.
    let asked = Command::new("gcc").arg("-print-file-name=accel/nvptx-none/mkoffload").output().expect("gcc starts");
    if !Path::new(String::from_utf8_lossy(&asked.stdout).trim()).is_absolute() {
        assert!(std::env::var_os("ORION_TESTS_INSIST").is_none(), "gcc does not offload to a GPU");
        eprintln!(
            "left out: OpenMP and OpenACC on a GPU, for which gcc has to offload (Debian's gcc-12-offload-nvptx)"
        );
        return;
    }
    let out = built_programs().join("offload");
    std::fs::create_dir_all(&out).expect("a folder");
    for name in ["openmp", "openacc"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("offload/{name}.c"));
        let program = out.join(name);
        let built = Command::new("gcc")
            .args(["-O2", &format!("-f{name}"), "-foffload=nvptx-none", "-foffload-options=-lm", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-lm")
            .output()
            .expect("gcc starts");
        assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
        for transport in ["shm", "tcp"] {
            // Whatever cannot run there is not to run on the host in silence.
            let program = program.to_str().expect("a name of ours");
            let arguments = ["OMP_TARGET_OFFLOAD=MANDATORY", "ACC_DEVICE_TYPE=nvidia", program];
            let output = orion::through_orion(transport, Path::new("env"), &arguments);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.trim() == "PASS",
                "{name} over {transport}: {text}{}",
                orion::complaint(&output)
            );
        }
    }
}

/// Preloaded, the shim is what a program finds by the driver's name, though no search path leads to it.
#[test]
fn a_preloaded_shim_is_the_programs_driver() {
    let shim = orion::built().join("libcuda.so");
    for program in programs().iter().filter(|program| program.file_stem().is_some_and(|stem| stem == "vector_add")) {
        let preload = format!("LD_PRELOAD={}", shim.display());
        let program = program.to_str().expect("a name of ours");
        let arguments = ["-u", "LD_LIBRARY_PATH", "ORION_VERBOSE=1", &preload, program];
        let output = orion::through_orion("shm", Path::new("env"), &arguments);
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        // Where there is an NVIDIA driver the program would do without.
        assert!(said.contains("device Orion software GPU"), "{program} had another driver: {said}");
        assert!(output.status.success() && text.contains("PASS "), "{text}{said}");
    }
}

/// A launcher may set a search path of its own.
#[test]
fn a_program_that_loses_the_search_path_keeps_orion() {
    for program in programs().iter().filter(|program| program.file_stem().is_some_and(|stem| stem == "vector_add")) {
        let program = program.to_str().expect("a name of ours");
        let output = orion::through_orion("shm", Path::new("sh"), &["-c", "unset LD_LIBRARY_PATH; exec $0", program]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("PASS "), "{program}: {text}{}", orion::complaint(&output));
        // One that loses everything is told so. Where there is an NVIDIA driver it may yet do without Orion.
        let said = orion::complaint(&orion::through_orion("shm", Path::new("env"), &["-i", program]));
        assert!(said.contains("nothing in it has asked Orion for a GPU"), "{program}: {said}");
    }
}

/// A block that waits for another's partial result gives way to it, wherever the host switches between them.
/// `ORION_LOOK_BACK_ROUNDS` says how often each algorithm runs; a thousand take minutes.
#[test]
fn look_back_is_right_on_one_core() {
    let rounds = std::env::var("ORION_LOOK_BACK_ROUNDS").unwrap_or_else(|_| "12".into());
    for transport in ["shm", "tcp"] {
        for program in ["thrust.static", "cub.static"] {
            let run = orion::command(transport, &built_programs().join(program), &[&rounds]);
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", "0"]).arg(run.get_program()).args(run.get_args());
            let output = pinned.output().expect("taskset of util-linux starts");
            let text = String::from_utf8_lossy(&output.stdout);
            let good = output.status.success() && text.contains("PASS ") && !text.contains("FAIL ");
            assert!(good, "{program} over {transport}: {text}{}", orion::complaint(&output));
        }
    }
}

/// A program with little address space, as clusters limit it, needs a smaller heap, and is told so.
#[test]
fn a_program_with_little_address_space_runs_with_a_smaller_heap() {
    let program = built_programs().join("vector_add.static");
    let run = |heap: &[&str]| {
        let limited = ["-c", r#"ulimit -v 12582912 && exec "$@""#, "sh"];
        let run = orion::built().join("orion-run");
        let mut command = Command::new("sh");
        command.args(limited).arg(run).args(heap).arg("--software-gpu").arg(&program).output().expect("sh starts")
    };
    let (without, with) = (run(&[]), run(&["--heap", "1 GiB"]));
    let said = orion::complaint(&without);
    assert!(!without.status.success() && said.contains("--heap"), "{said}");
    let text = String::from_utf8_lossy(&with.stdout);
    assert!(with.status.success() && text.contains("PASS "), "{text}{}", orion::complaint(&with));
}

/// The reason is said once, and the program goes on.
#[test]
fn a_node_without_cupti_refuses_to_record() {
    let socket = std::env::temp_dir().join(format!("orion-no-cupti-{}.sock", std::process::id()));
    let _oriond = serve(&socket, &orion::built().join("liborion_soft.so"), &["--cupti", "/nowhere/libcupti.so.13"]);
    for variant in ["profile.static", "profile.shared"] {
        let mut run = Command::new(orion::built().join("orion-run"));
        run.arg("--server").arg(format!("unix:{}", socket.display())).arg("--");
        let output = run.arg(built_programs().join(variant)).arg("refused").output().expect("orion-run starts");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(output.status.success() && text.matches("PASS ").count() == 5, "{variant}: {text}{said}");
        assert_eq!(said.matches("activities cannot be recorded").count(), 1, "{said}");
        assert!(said.contains("/nowhere/libcupti.so.13") && said.contains("--cupti PATH"), "{said}");
    }
}

#[test]
fn a_cudarc_program_runs_over_both() {
    // Only a plain `cargo test` builds examples.
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "hello_cudarc"]).join("examples/hello_cudarc");
    for transport in ["shm", "tcp"] {
        let failure = run(transport, &program);
        assert!(failure.is_none(), "{}", failure.unwrap_or_default());
    }
}

#[test]
fn the_software_gpu_reports_the_capability_that_it_is_told() {
    let program = built_programs().join("device_query.static");
    let run = |option: &[&str], variable: &str| {
        let mut run = Command::new(orion::built().join("orion-run"));
        run.args(["--software-gpu"]).args(option).env("ORION_SOFT_CAPABILITY", variable).arg(&program);
        run.output().expect("orion-run starts")
    };
    for (option, variable, reported) in [
        (&["--capability", "13.0"][..], "", "capability 13.0,"),
        (&["--capability", "13.0"], "8.9", "capability 13.0,"),
        (&[], "8.9", "capability 8.9,"),
        (&[], "", "capability 9.0,"),
    ] {
        let output = run(option, variable);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(reported), "{text}{}", orion::complaint(&output));
    }
    let refused = run(&["--capability", "13"], "");
    assert!(orion::complaint(&refused).contains("ORION_SOFT_CAPABILITY=13 is not"), "{}", orion::complaint(&refused));
}

/// Lines of Orion's own are no reason for a program to end, whatever its standard error is.
#[test]
fn a_standard_error_that_takes_nothing_ends_no_program() {
    let program = orion_built::build(&["-p", "orion-conformance", "--example", "refusals"]).join("examples/refusals");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let closed = || std::io::pipe().expect("a pipe").1;
    for transport in ["shm", "tcp"] {
        for stderr in [std::process::Stdio::from(full()), closed().into()] {
            let output = orion::command(transport, &program, &[]).stderr(stderr).output().expect("orion-run starts");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("PASS "), "{transport}: {}: {text}", output.status);
        }
    }
}

/// What is said of each refusal of the example, once: which library it is of (the program itself, here), which kernel
/// and which instruction, as far as there are such.
const REFUSALS: [&str; 11] = [
    "orion: cuMemGetHandleForAddressRange refused",
    "orion: cuGraphInstantiate refused: kernels cannot launch graphs",
    "orion: cuModuleLoadData refused: LTO-IR",
    "refusal0",
    "refusal1",
    "refusal2",
    "refusal3",
    "refusal4",
    "orion: the image has an entry of",
    "orion-soft: the fat binary (machine code for 90, no PTX) from refusals with kernel machine_coded has no PTX",
    "orion-soft: cuLaunchKernel: kernel multicast from refusals is not supported: multimem.st.weak.global.u32: ",
];

fn refusals() -> PathBuf {
    orion_built::build(&["-p", "orion-conformance", "--example", "refusals"]).join("examples/refusals")
}

/// What the worker's driver says about a refusal is out before the call that reports it returns, and so before the
/// program ends. `ORION_TEST_RUNS` is how often; a full run is 200.
#[test]
fn each_refusal_is_one_line_however_soon_the_program_ends() {
    let program = refusals();
    let runs = std::env::var("ORION_TEST_RUNS").map_or(25, |runs| runs.parse().expect("ORION_TEST_RUNS is a number"));
    for (run, transport) in (0..runs).flat_map(|run| ["shm", "tcp"].map(|transport| (run, transport))) {
        says_each_refusal_once(&mut orion::command(transport, &program, &[]), &format!("{transport}, run {run}"));
    }
}

/// However often a program asks, and whoever started the server; and not at all where it is to be quiet.
#[test]
fn each_refusal_is_one_line_however_often_it_is_asked_for() {
    let program = refusals();
    for transport in ["shm", "tcp"] {
        let mut often = orion::command(transport, &program, &["500"]);
        says_each_refusal_once(&mut often, &format!("500 times over {transport}"));
        let quiet = often.env("ORION_QUIET", "1").output().expect("orion-run starts");
        let said = String::from_utf8_lossy(&quiet.stderr);
        assert!(quiet.status.success() && said.is_empty(), "{transport}: {said}");
    }
    let socket = std::env::temp_dir().join(format!("orion-refusals-{}.sock", std::process::id()));
    let _oriond = serve(&socket, Path::new("soft"), &[]);
    let mut run = Command::new(orion::built().join("orion-run"));
    run.arg("--server").arg(format!("unix:{}", socket.display())).arg("--").arg(&program).arg("500");
    says_each_refusal_once(&mut run, "500 times from a server that was there");
}

#[test]
fn managed_variables_are_one_for_all_devices() {
    let program = built_programs().join("managed.static");
    for transport in ["shm", "tcp"] {
        let output = orion::command(transport, &program, &[]).env("ORION_SOFT_DEVICES", "2").output();
        let output = output.expect("orion-run starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let is_right = output.status.success() && text.contains("devices: 2\n");
        assert!(is_right, "over {transport}: {text}{}", orion::complaint(&output));
    }
}

#[test]
fn managed_memory_may_be_refused() {
    let program = built_programs().join("managed.static");
    for transport in ["shm", "tcp"] {
        let run = |value: &str| {
            let output = orion::command(transport, &program, &[]).env("ORION_MANAGED", value).output();
            let output = output.expect("orion-run starts");
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), orion::complaint(&output))
        };
        for value in ["", "zerocopy"] {
            let (code, text, said) = run(value);
            assert_eq!(code, Some(0), "{value} over {transport}: {text}{said}");
            assert_eq!(
                said.matches("orion: managed memory (cudaMallocManaged) lies in the host's").count(),
                1,
                "{said}"
            );
        }
        let off = run("off");
        // It asks for a variable first, and follows a null pointer if it is not told by an error.
        assert!(off.0 != Some(0) && !off.1.contains("PASS"), "over {transport}: {off:?}");
        assert!(
            off.2.contains("orion: a managed variable refused: ") && off.2.contains("ORION_MANAGED=off"),
            "{off:?}"
        );
        let bad = run("mirror");
        assert!(bad.2.contains("ORION_MANAGED=mirror is none of zerocopy, off"), "over {transport}: {bad:?}");
    }
}

fn says_each_refusal_once(command: &mut Command, of: &str) {
    let output = command.output().expect("orion-run starts");
    let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
    assert!(output.status.success() && text.contains("PASS "), "{of}: {text}{said}");
    for line in REFUSALS {
        assert_eq!(said.matches(line).count(), 1, "{of}: {line} in\n{said}");
    }
    let lines = said.lines().filter(|line| line.starts_with("orion: ") || line.starts_with("orion-soft: ")).count();
    assert_eq!(lines, REFUSALS.len(), "{of}: {said}");
}

/// Nobody has named the socket, so whoever can put one into its folder could have a program speak to him.
#[test]
fn a_default_socket_in_a_folder_that_others_rule_is_not_connected_to() {
    use std::os::unix::fs::PermissionsExt;
    let program = refusals();
    let home = std::env::temp_dir().join(format!("orion-default-{}", std::process::id()));
    let folder = home.join("orion");
    std::fs::create_dir_all(&folder).expect("a new folder");
    std::os::unix::fs::symlink(orion::built().join("libcuda.so"), home.join("libcuda.so")).expect("linking");
    let socket = folder.join("oriond.sock");
    let run = || {
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", &home).env("XDG_RUNTIME_DIR", &home).env_remove("ORION_SERVER");
        run.output().expect("the program starts")
    };
    let allow = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&folder, permissions).expect("the folder is ours");
    };
    let refused = |why: &str| {
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("listening");
        listener.set_nonblocking(true).expect("of a socket of ours");
        let output = run();
        let (text, said) = (String::from_utf8_lossy(&output.stdout), orion::complaint(&output));
        assert!(!output.status.success() && text.contains("FAIL there is no context"), "{text}{said}");
        let expected = format!(
            "there is {}, but its folder is not to be trusted: {why}; set ORION_SERVER to the server you mean",
            socket.display()
        );
        assert!(said.contains(&expected), "{said}");
        assert!(listener.accept().is_err(), "the program has connected");
        std::fs::remove_file(&socket).expect("it was made above");
    };
    allow(0o700);
    let oriond = serve(&socket, Path::new("soft"), &["--listen", "none"]);
    let output = run();
    assert!(output.status.success(), "a folder of our own: {}", orion::complaint(&output));
    drop(oriond);
    let _ = std::fs::remove_file(&socket);
    for mode in [0o770, 0o777] {
        allow(mode);
        refused(&format!("others can write to it (mode {mode:04o})"));
    }
    allow(0o755);
    match std::os::unix::fs::chown(&folder, Some(65_534), None) {
        Ok(()) => refused("it belongs to user 65534"),
        Err(e) => eprintln!("a folder of another user's is not tried: only root can make one ({e})"),
    }
    std::fs::remove_dir_all(&home).expect("it was made above");
}

/// An oriond, ended when it is dropped.
fn serve(socket: &Path, driver: &Path, options: &[&str]) -> Ended {
    let mut oriond = Command::new(orion::built().join("oriond"));
    oriond.arg("serve").args(options).arg("--socket").arg(socket);
    oriond.arg("--driver").arg(driver);
    let oriond = Ended(oriond.stderr(std::process::Stdio::null()).spawn().expect("oriond starts"));
    let began = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(began.elapsed().as_secs() < 20, "oriond does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    oriond
}

struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// On the software GPU itself, and through Orion, where launches are not waited for: the one that is refused is.
#[test]
fn a_refused_launch_is_told_by_itself_and_by_all_that_follow() {
    let build = ["-p", "orion-conformance", "--example", "refused_launch"];
    let program = orion_built::build(&build).join("examples/refused_launch");
    let alone = std::env::temp_dir().join(format!("orion-refused-launch-{}", std::process::id()));
    std::fs::create_dir(&alone).expect("a new folder");
    let software = orion_built::build(&["-p", "orion-soft"]).join("liborion_soft.so");
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::os::unix::fs::symlink(&software, alone.join(name)).expect("linking");
    }
    let mut native = Command::new(&program);
    native.env("LD_LIBRARY_PATH", &alone);
    for mut command in [native, orion::command("shm", &program, &[]), orion::command("tcp", &program, &[])] {
        let output = command.output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = text.lines().filter(|line| line.starts_with("PASS ")).count();
        assert!(output.status.success() && passed == 16, "{command:?}: {text}{}", orion::complaint(&output));
    }
    std::fs::remove_dir_all(&alone).expect("it was made above");
}

/// What NVRTC compiled once it finds again, in the same process and in later ones, and the kernels are the same.
#[test]
fn nvrtc_finds_what_it_compiled_before() {
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "compile_twice"]).join("examples/compile_twice");
    let toolchain = Command::new(orion_built::root().join("dataplane/conformance/cuda-toolchain.sh"))
        .arg("nvrtc")
        .output()
        .expect("cuda-toolchain.sh starts");
    assert!(toolchain.status.success(), "no NVRTC: {}", orion::complaint(&toolchain));
    let nvrtc = String::from_utf8_lossy(&toolchain.stdout).trim_end().to_owned();
    let cache = orion::built().join(format!("compile-cache-{}", std::process::id()));

    let run = |disable: &str| {
        let output = orion::command("shm", &program, &[])
            .env("LD_LIBRARY_PATH", &nvrtc)
            .env("CUDA_CACHE_PATH", &cache)
            .env("CUDA_CACHE_DISABLE", disable)
            .env("ORION_DEBUG", "1")
            .output()
            .expect("orion-run starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains("PASS "), "{printed}{}", orion::complaint(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        let count = |what| said.matches(what).count();
        (printed, [count("bytes kept"), count("bytes found in memory"), count("bytes found on disk")])
    };
    let without = run("1");
    // PTX twice; PTX and machine code three times.
    let (cold, warm) = (run("0"), run("0"));
    std::fs::remove_dir_all(&cache).expect("the cache was made where it was asked for");
    assert_eq!([without.1, cold.1, warm.1], [[0, 0, 0], [3, 5, 0], [0, 5, 3]]);
    assert!(
        without.0.contains("cubin ") && without.0 == cold.0 && without.0 == warm.0,
        "{without:?} {cold:?} {warm:?}"
    );
}

fn run_all(transport: &str) {
    let programs = programs();
    let failures: Vec<String> = programs.iter().filter_map(|program| run(transport, program)).collect();
    println!("{} passed, {} failed", programs.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "over {transport}:\n{}", failures.join("\n"));
}

/// NVIDIA's assembler crashes on some PTX that the software GPU reads, such as a parameter that has a global's name.
#[test]
fn nvidias_assembler_takes_the_kernels_of_the_facts() {
    let script = orion_built::root().join("dataplane/conformance/cuda-toolchain.sh");
    let toolchain = Command::new(script).output().expect("cuda-toolchain.sh starts");
    assert!(toolchain.status.success(), "no toolchain: {}", orion::complaint(&toolchain));
    let ptxas = Path::new(String::from_utf8_lossy(&toolchain.stdout).trim_end()).join("bin/ptxas");
    let kernels = orion_built::root().join("dataplane/conformance/ptx");
    for file in std::fs::read_dir(kernels).expect("a folder of ours").map(|file| file.expect("readable").path()) {
        let output = Command::new(&ptxas).args(["-arch=sm_90", "-o", "/dev/null"]).arg(&file).output().expect("ptxas");
        assert!(output.status.success(), "{}: {}{}", file.display(), output.status, orion::complaint(&output));
    }
}

/// The folder with every program that build.sh builds.
fn built_programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = orion::built().join("cuda-programs");
        let script = orion_built::root().join("dataplane/conformance/cuda/build.sh");
        let output = Command::new(script).arg(&folder).output().expect("build.sh starts");
        assert!(output.status.success(), "nvcc programs do not build: {}", orion::complaint(&output));
        folder
    })
}

/// Every variant of every program of our own.
fn programs() -> &'static [PathBuf] {
    static PROGRAMS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let mut programs: Vec<PathBuf> = std::fs::read_dir(built_programs())
            .expect("build.sh made it")
            .map(|e| e.expect("a readable entry").path())
            .filter(|program| program.extension().is_some_and(|variant| variant != "suite" && variant != "refused"))
            .collect();
        programs.sort();
        // Fewer would mean that the script left some out.
        assert!(programs.len() >= 40, "only {} programs were built", programs.len());
        programs
    })
}

/// Why the program failed, or nothing.
fn run(transport: &str, program: &Path) -> Option<String> {
    let output = orion::through_orion(transport, program, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let good = output.status.success() && text.contains("PASS ") && !text.contains("FAIL ") && printed(program, &text);
    (!good).then(|| format!("{} over {transport}: {text}{}", program.display(), orion::complaint(&output)))
}

/// Programs whose kernels print are judged by that: each line is there whole, as often as a kernel printed it.
fn printed(program: &Path, text: &str) -> bool {
    let name = program.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let lines: Vec<(String, usize)> = match name.as_str() {
        // One from each thread.
        "print" => (0..4)
            .map(|i| {
                let who = format!("PASS thread {} of block {} says ", i % 2, i / 2);
                (who + "-3, 0.125, text, c,    42|7    |ff, -12345678901, %\n", 1)
            })
            .collect(),
        // The kernel that prints is launched twice.
        "separate" => vec![("PASS this file says 41\n".into(), 2), ("PASS the other file says 42\n".into(), 2)],
        _ => Vec::new(),
    };
    lines.iter().all(|(line, count)| text.matches(line).count() == *count)
}
