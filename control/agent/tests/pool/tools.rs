//! Tools that only ask NVML, beside the programs of a pool: each sees the vGPUs of its job, and has none for that.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use orion_built::root;

use crate::scene::{Scene, wait_until};
use crate::{MIB, text};

/// A script that answers a line with a line.
struct Talk {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Talk {
    fn begin(scene: &Scene, script: &str, environment: &[(&str, &str)]) -> Talk {
        let mut command = scene.with_nvml(Path::new("/usr/bin/env"), environment);
        command.arg("python3").arg(root().join("dataplane/conformance/nvml").join(script));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Talk { child, to, from: BufReader::new(from) }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").expect("it listens");
        self.hear()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that has one vGPU and so many bytes of it.
fn holds(scene: &Scene, environment: &[(&str, &str)], bytes: u64) -> Talk {
    let mut program = Talk::begin(scene, "hold.py", environment);
    let first = program.hear();
    assert!(first.starts_with("0 "), "{first}");
    let then = program.ask(&format!("alloc {bytes}"));
    assert!(then.starts_with(&format!("{bytes} ")), "{then}");
    program
}

/// What a tool says that was started with these variables.
fn look(scene: &Scene, environment: &[(&str, &str)]) -> String {
    Talk::begin(scene, "look.py", environment).ask("")
}

/// Of the first device of each: bytes in all, bytes used, and the process.
fn seen(mib: u64, holder: Option<(&Talk, u64)>) -> String {
    let total = mib * MIB;
    match holder {
        Some((program, used)) => format!("{total} {used} {}:{used}", program.child.id()),
        None => format!("{total} 0"),
    }
}

fn allocations_given(scene: &Scene) -> usize {
    scene.controller.log().lines().filter(|line| line.contains("Return formated resource")).count()
}

fn sessions_begun(scene: &Scene) -> usize {
    let begun = |log: String| log.lines().filter(|line| line.contains("session begins")).count();
    scene.nodes.iter().map(|node| begun(node.oriond.log())).sum()
}

fn two_jobs_side_by_side(is_local: bool) {
    let scene = Scene::new(&["a"], "", is_local);
    let (small, large) = ([("ORION_GMEM", "200")], [("ORION_GMEM", "400")]);
    // As long as none runs a tool sees what a program would have.
    assert_eq!([look(&scene, &small), look(&scene, &large)], [seen(200, None), seen(400, None)]);
    assert_eq!((allocations_given(&scene), sessions_begun(&scene), scene.free()), (0, 0, 4));
    let a = holds(&scene, &small, 64 * MIB);
    assert_eq!([look(&scene, &small), look(&scene, &large)], [seen(200, Some((&a, 64 * MIB))), seen(400, None)]);
    let b = holds(&scene, &large, 32 * MIB);
    assert_eq!(look(&scene, &small), seen(200, Some((&a, 64 * MIB))));
    assert_eq!(look(&scene, &large), seen(400, Some((&b, 32 * MIB))));
    wait_until("both in the logs", || (allocations_given(&scene), sessions_begun(&scene)) >= (2, 2));
    assert_eq!((allocations_given(&scene), sessions_begun(&scene), scene.free()), (2, 2, 2));
    // One that stays sees a program end.
    let mut stays = Talk::begin(&scene, "look.py", &large);
    assert_eq!(stays.ask(""), seen(400, Some((&b, 32 * MIB))));
    drop(b);
    wait_until("a tool that sees the program end", || stays.ask("") == seen(400, None));
}

#[test]
fn a_tool_in_each_of_two_jobs_sees_its_own_vgpus_over_shared_memory() {
    two_jobs_side_by_side(true);
}

#[test]
fn a_tool_in_each_of_two_jobs_sees_its_own_vgpus_over_tcp() {
    two_jobs_side_by_side(false);
}

#[test]
fn a_tool_takes_nothing_of_a_pool_that_is_full() {
    let scene = Scene::new(&["a"], "", true);
    let (mut a, mut b) = (holds(&scene, &[], 5 * MIB), holds(&scene, &[], 7 * MIB));
    // Of two that were asked for in the same words, what is started by one of them sees that one.
    assert_eq!(a.ask("look"), seen(512, Some((&a, 5 * MIB))));
    assert_eq!(b.ask("look"), seen(512, Some((&b, 7 * MIB))));
    let mut pids = [(a.child.id(), 5 * MIB), (b.child.id(), 7 * MIB)];
    pids.sort_unstable();
    let each = pids.map(|(pid, used)| format!("{pid}:{used}")).join(" ");
    assert_eq!(look(&scene, &[]), format!("{} {} {each}", 1024 * MIB, 12 * MIB));
    let rest = scene.stay(&[("ORION_VGPU", "2")]);
    assert_eq!(scene.free(), 0);
    // Nobody has asked for so many, and there would be as many in an empty pool.
    let (of_three, given) = ([("ORION_VGPU", "3")], allocations_given(&scene));
    assert_eq!(look(&scene, &of_three), seen(512, None));
    assert_eq!(allocations_given(&scene), given);
    let none = scene.with_nvml(Path::new("/usr/bin/env"), &[("ORION_VGPU", "5")]);
    let (_, said) = text(&listed(none).output().expect("it starts"));
    assert!(said.contains("no room for 5 vGPUs"), "{said}");
    assert_eq!(rest.ask_again().0, "then 0");
}

/// Has NVML count its devices.
pub fn listed(mut command: Command) -> Command {
    command.args([
        "python3",
        "-c",
        "import ctypes; n = ctypes.CDLL('libnvidia-ml.so.1'); n.nvmlInit_v2(); \
        c = ctypes.c_uint(); n.nvmlDeviceGetCount_v2(ctypes.byref(c)); print(c.value)",
    ]);
    command
}

#[test]
fn a_tool_sees_a_program_with_vgpus_of_two_nodes() {
    let scene = Scene::mixed(&["a", "b"], &["a"]);
    let environment = [("ORION_VGPU", "3"), ("ORION_CROSS_NODE", "1"), ("ORION_RATIO", "100")];
    let count = || text(&listed(scene.with_nvml(Path::new("/usr/bin/env"), &environment)).output().expect("it starts"));
    assert_eq!(count(), ("3\n".to_owned(), String::new()));
    assert_eq!(allocations_given(&scene), 0);
    let program = holds(&scene, &environment, 3 * MIB);
    assert_eq!(count(), ("3\n".to_owned(), String::new()));
    assert_eq!(look(&scene, &environment), seen(512, Some((&program, 3 * MIB))));
    assert_eq!(allocations_given(&scene), 1);
}

#[test]
fn nvidia_smi_in_a_job_of_a_pool_shows_what_its_program_uses() {
    let output = Command::new(root().join("dataplane/conformance/cuda-toolchain.sh")).arg("nvml-tools").output();
    let output = output.expect("cuda-toolchain.sh starts");
    assert!(output.status.success(), "no tools: {}", text(&output).1);
    let smi = PathBuf::from(text(&output).0.trim_end()).join("nvidia-smi");
    let scene = Scene::new(&["a"], "", false);
    let environment = [("ORION_GMEM", "300")];
    let program = holds(&scene, &environment, 64 * MIB);
    let run = |arguments: &[&str]| {
        let (out, said) = text(&scene.with_nvml(&smi, &environment).args(arguments).output().expect("it starts"));
        assert_eq!(said, "", "{out}");
        out
    };
    let table = run(&[]);
    assert!(table.contains("64MiB /   300MiB"), "{table}");
    let pid = program.child.id().to_string();
    let line = table.lines().find(|line| line.contains(&pid)).unwrap_or_else(|| panic!("no process: {table}"));
    assert!(line.contains("python3") && line.contains("64MiB"), "{line}");
    assert_eq!(run(&["-L"]).lines().count(), 1);
    assert_eq!((allocations_given(&scene), scene.free()), (1, 3));
}
