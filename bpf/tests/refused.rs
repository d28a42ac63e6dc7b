//! Who may not look is told what is missing.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const PROBE: &str = env!("CARGO_BIN_EXE_orion-probe");

/// What it says when it fails.
fn complaint(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    assert!(!status.success() && stdout.is_empty(), "{}", String::from_utf8_lossy(&stdout));
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn a_process_that_is_no_oriond_is_named() {
    let why = complaint(Command::new(PROBE).args(["--pid", &std::process::id().to_string()]));
    assert!(why.contains("is no oriond but"), "{why}");
    let why = complaint(Command::new(PROBE).args(["--pid", "4194305"]));
    assert!(why.contains("there is no process 4194305"), "{why}");
    let why = complaint(Command::new(PROBE).args(["--ask", "everything"]));
    assert!(why.contains("run-queue") && why.contains("io-uring"), "{why}");
}

#[test]
#[cfg(not(feature = "libbpf"))]
fn without_libbpf_it_says_how_to_have_it() {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not tried: that libbpf is missing is said after what else is, and this is not root");
    }
    let pid = std::process::id().to_string();
    let why = complaint(Command::new(PROBE).args(["--program", &pid, "--ask", "run-queue"]));
    assert!(why.contains("libelf-dev") && why.contains("--features libbpf"), "{why}");
}

/// A copy that everybody may run.
struct Copied(PathBuf);

impl Copied {
    fn new() -> Copied {
        let copy = std::env::temp_dir().join(format!("orion-probe-{}", std::process::id()));
        // By a program of its own: what we write to ourselves a fork beside it has open, too, and then it is busy.
        let copied = Command::new("cp").arg(PROBE).arg(&copy).status().expect("cp starts");
        assert!(copied.success(), "copying the program");
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        Copied(copy)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn who_lacks_capabilities_hears_their_names() {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not tried: only root can become somebody else");
    }
    let (copy, pid) = (Copied::new(), std::process::id().to_string());
    let why = complaint(Command::new(&copy.0).args(["--program", &pid, "--seconds", "1"]).uid(65534).gid(65534));
    let expected = "orion-probe: runqueue cannot be looked at: this process lacks CAP_BPF and CAP_PERFMON; run it as \
                    root, or give its file what it needs: setcap cap_bpf,cap_perfmon,";
    assert!(why.starts_with(expected), "{why}");
}

#[test]
#[cfg(feature = "libbpf")]
fn what_is_missing_is_said_question_by_question() {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("not tried: only root can be in a namespace of its own");
    }
    let pid = std::process::id().to_string();
    let arguments = ["--kill-child", "--fork", "--pid", PROBE, "--program", &pid, "--seconds", "1"];
    let why = complaint(Command::new("unshare").args(arguments));
    assert!(why.contains("this process is in a pid namespace of its own") && why.contains("--pid=host"), "{why}");
    let why = complaint(Command::new(PROBE).args(["--program", &pid, "--ask", "usdt"]));
    assert!(why.contains("has no probes of provider \"orion\""), "{why}");
    let why = complaint(Command::new(PROBE).args(["--program", &pid, "--ask", "tcp"]));
    assert!(why.contains("listens at no TCP port"), "{why}");
}
