//! The facts hold over the memory of a guest, with a file in place of its device: what a virtual machine adds to this
//! is in `vm/guest.sh`.

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FACTS: &str = env!("CARGO_BIN_EXE_orion-facts");
const PATIENCE: Duration = Duration::from_secs(60);

struct Host {
    oriond: Child,
    segment: PathBuf,
}

impl Host {
    /// With memory of so many MiB for so many sessions.
    fn start(name: &str, mib: u64, sessions: &str) -> Host {
        let segment = PathBuf::from(format!("/dev/shm/orion-{name}-{}", std::process::id()));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&segment).expect("a new file");
        file.set_len(mib << 20).expect("a sparse file");
        let mut serve = Command::new(orion::built().join("oriond"));
        serve.args(["serve", "--driver", "soft", "--socket", "none", "--log-level", "error"]);
        serve.args(["--guest-sessions", sessions, "--guest"]).arg(&segment);
        let oriond = serve.spawn().expect("starting oriond");
        let begin = Instant::now();
        let mut word = [0; 8];
        while word == [0; 8] {
            assert!(begin.elapsed() < PATIENCE, "oriond does not serve the guest");
            std::thread::sleep(Duration::from_millis(10));
            File::open(&segment).and_then(|file| file.read_exact_at(&mut word, 0)).expect("reading");
        }
        Host { oriond, segment }
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let mut run = Command::new(orion::built().join("orion-run"));
        run.args(["--server", &format!("ivshmem:{}", self.segment.display()), "--"]).arg(program).args(arguments);
        run.output().expect("orion-run starts")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.oriond.kill();
        let _ = self.oriond.wait();
        let _ = std::fs::remove_file(&self.segment);
    }
}

#[test]
fn facts_hold_over_a_guests_memory() {
    let host = Host::start("facts", 4096, "2");
    let output = host.run(Path::new(FACTS), &["--quiet", "--skip", "shared_file"]);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", orion::complaint(&output));
}

/// The heap is 94 MiB, as of the 128 MiB that orion-shm makes: copies go through a part of it in pieces, and pinned
/// memory ends where it does.
#[test]
fn a_guest_with_little_memory_copies_what_is_larger() {
    let host = Host::start("small", 128, "1");
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "small_heap"]).join("examples/small_heap");
    let output = host.run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", orion::complaint(&output));
    // 2 is CUDA_ERROR_OUT_OF_MEMORY.
    assert_eq!(said, "256 MiB came back\n256 MiB pinned: 2\n16 MiB pinned: 0\n");
}

/// Nobody is there to give its place back: it is missed after 11 s.
#[test]
fn a_program_that_is_killed_in_a_copy_leaves_its_place_to_others() {
    let host = Host::start("killed", 128, "1");
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "lose_worker"]).join("examples/lose_worker");
    // Not by orion-run, which would outlive it.
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", orion::built().join("libcuda.so")).arg("copy").stdout(Stdio::piped());
    let mut copying =
        command.env("ORION_SERVER", format!("ivshmem:{}", host.segment.display())).spawn().expect("it starts");
    let mut said = BufReader::new(copying.stdout.take().expect("piped")).lines();
    assert!(said.any(|line| line.is_ok_and(|line| line == "copying")), "it does not copy");
    copying.kill().expect("a child of ours");
    copying.wait().expect("it ends");
    let refused = orion::complaint(&host.run(&program, &[]));
    assert!(refused.contains("all 1 sessions that this virtual machine may have are taken"), "{refused}");
    let begin = Instant::now();
    loop {
        let output = host.run(&program, &[]);
        if output.status.success() {
            break assert_eq!(String::from_utf8_lossy(&output.stdout), "attached\n0\n");
        }
        assert!(begin.elapsed() < PATIENCE, "its place is not free: {}", orion::complaint(&output));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn orion_run_starts_no_server_for_a_way_out_of_a_virtual_machine() {
    let output = orion::through_orion("ivshmem", Path::new(FACTS), &["--quiet"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--server ivshmem:"), "{said}");
}
