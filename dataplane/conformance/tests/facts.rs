//! The facts hold through Orion on every carrier, and on the software GPU alone.

mod orion;

use std::path::Path;
use std::process::Command;

const FACTS: &str = env!("CARGO_BIN_EXE_orion-facts");

#[test]
fn facts_hold_over_shared_memory() {
    hold_over("shm", &["--quiet"]);
}

#[test]
fn facts_hold_over_tcp() {
    hold_over("tcp", &["--quiet", "--skip", OF_ONE_MACHINE]);
}

#[test]
fn facts_hold_over_tcp_that_is_encrypted() {
    let home = std::env::temp_dir().join(format!("orion-facts-{}", std::process::id()));
    std::fs::create_dir_all(&home).expect("a new folder");
    let output = orion::command("tcp", Path::new(FACTS), &["--quiet", "--skip", OF_ONE_MACHINE])
        .envs([("ORION_TLS", "1"), ("HOME", home.to_str().expect("a plain path"))])
        .output()
        .expect("orion-run starts");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "over TLS: {}", orion::complaint(&output));
    // The program's own log says how it reached its worker.
    let logs = std::fs::read_dir(home.join(".orion/log")).expect("logs are meant to be there");
    let encrypted = logs.filter(|log| {
        let path = log.as_ref().expect("an entry").path();
        std::fs::read_to_string(path).expect("text").contains("transport tcp (encrypted by TLS 1.3)")
    });
    assert!(encrypted.count() > 0, "it was not encrypted");
    std::fs::remove_dir_all(&home).expect("removing");
}

/// Of a carrier for tests alone: pages that both sides have, and a bell that lies outside of them.
#[cfg(debug_assertions)]
#[test]
fn facts_hold_over_doorbells() {
    hold_over("doorbell", &["--quiet"]);
}

#[test]
fn facts_hold_for_several_threads_at_once() {
    hold_over("shm", &["--quiet", "--crowd", "4"]);
}

/// Nobody has more than his share, whatever the others leave idle: work that waits for host functions or for other
/// streams may not use it up.
#[test]
fn facts_hold_with_a_hard_cap() {
    for transport in ["shm", "tcp"] {
        let options = ["--share", "40", "--throttle-level", "0"];
        let facts: &[&str] = if transport == "tcp" { &["--quiet", "--skip", OF_ONE_MACHINE] } else { &["--quiet"] };
        let output =
            orion::command_with(transport, &options, Path::new(FACTS), facts).output().expect("orion-run starts");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
    }
}

fn hold_over(transport: &str, options: &[&str]) {
    let output = orion::through_orion(transport, Path::new(FACTS), options);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "over {transport}: {}", orion::complaint(&output));
}

/// What is refused between two machines, in words: a file that programs of the one map is not the other's.
const OF_ONE_MACHINE: &str = "shared_file";

/// Copies reach it all the same, as pageable memory.
#[test]
fn a_shared_file_over_tcp_is_refused_with_what_would_do() {
    let copies = "copies_reach_it,rows_are_copied_from_it_and_to_it,a_batch_of_copies_reaches_it,registering_it_twice";
    hold_over("tcp", &["--quiet", "--only", copies]);
    let script = r#"
import ctypes, mmap, os
cu, context, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
cu.cuInit(0)
cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cu.cuCtxSetCurrent(context)
def ask(fd):
    os.ftruncate(fd, 8192)
    pages = mmap.mmap(fd, 8192)
    at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
    print(cu.cuMemHostRegister_v2(at, ctypes.c_size_t(8192), 3))
    print(cu.cuMemHostGetDevicePointer_v2(ctypes.byref(device), at, 0))
    print(cu.cuMemHostUnregister(at))
ask(os.memfd_create("shared"))
"#;
    let output = orion::through_orion("tcp", Path::new("python3"), &["-c", script]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n801\n0\n", "{said}");
    assert!(
        said.contains("/memfd:shared") && said.contains("over tcp:") && said.contains("by a socket (shm)"),
        "{said}"
    );
}

/// Answered by the shim, which never asks the driver behind it: how functions are found, NVIDIA's private tables,
/// the entry points of the per-thread default stream, batches of 3D copies, the error log, what becomes of a forked
/// child, who makes the pages of a file that is registered, and what managed memory was advised of.
const ANSWERED_BY_THE_SHIM: &str = "proc_address,batch_3d,logs,an_unknown_export_table_is_an_error,\
    the_primary_may_be_current_before_it_is_retained,the_per_thread_entry_launches,a_forked_child_is_not_initialized,\
    its_pages_are_there_once_it_is_registered,advice_,several_answers_at_once_about_a_range,\
    only_managed_ranges_are_asked_about,it_may_be_attached,a_device_s_own_memory_is_not_attached";

#[test]
fn facts_hold_on_the_software_gpu_alone() {
    let library = orion_built::build(&["-p", "orion-soft"]).join("liborion_soft.so");
    let output = Command::new(FACTS)
        .args(["--quiet", "--skip", ANSWERED_BY_THE_SHIM, "--lib"])
        .arg(library)
        .output()
        .expect("orion-facts starts");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "on the software GPU: {}", orion::complaint(&output));
}

#[test]
fn a_library_that_is_missing_fails_the_facts() {
    let output = Command::new(FACTS)
        .args(["--only", "init_twice", "--lib", "/nonexistent/libcuda.so.1"])
        .output()
        .expect("orion-facts starts");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("0 passed, 1 failed\n"));
}

#[test]
fn a_filter_that_matches_nothing_fails() {
    let output = Command::new(FACTS).args(["--only", "no_such_fact"]).output().expect("orion-facts starts");
    assert!(!output.status.success());
}
