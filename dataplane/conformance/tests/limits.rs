//! A session's device memory has a limit by every way to such memory, and all of it can be had. `orion-limits` takes
//! and gives back at random, with a model of what is in use.

mod orion;

use std::path::Path;
use std::process::Command;

const LIMITS: &str = env!("CARGO_BIN_EXE_orion-limits");
/// Each way is taken thousands of times.
const WAYS: usize = 11;

fn under(limit: &str, transport: &str, vgpus: &str) -> Command {
    let mut run = Command::new(orion::built().join("orion-run"));
    run.args(["--software-gpu", "--transport", transport, "--memory-limit", limit, "--vgpus", vgpus, "--"]);
    run
}

fn hold_over(transport: &str, operations: &str) {
    let arguments = ["--operations", operations, "--seed", "7"];
    let output = under("64 MiB", transport, "1").arg(LIMITS).args(arguments).output().expect("orion-run starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "over {transport}: {said}\n{}", orion::complaint(&output));
    assert_eq!(said.matches(", ").count(), WAYS, "a way was never taken over {transport}: {said}");
    let complaint = orion::complaint(&output);
    assert!(!complaint.contains("the ledger lacks"), "over {transport}: {complaint}");
}

#[test]
fn a_million_operations_stay_within_the_limit_over_shared_memory() {
    hold_over("shm", "1000000");
}

#[test]
fn many_operations_stay_within_the_limit_over_tcp() {
    hold_over("tcp", "200000");
}

#[test]
fn without_a_limit_it_refuses_to_start() {
    let output = orion::through_orion("shm", Path::new(LIMITS), &["--most-mib", "64"]);
    assert!(!output.status.success());
    assert!(orion::complaint(&output).contains("give the session a limit"), "{}", orion::complaint(&output));
}

#[test]
fn two_vgpus_on_one_gpu_have_a_limit_each() {
    let arguments = ["--operations", "100000", "--seed", "3"];
    let output = under("64 MiB", "shm", "2").arg(LIMITS).args(arguments).output().expect("orion-run starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", orion::complaint(&output));
    assert_eq!(said.matches("on 64 MiB").count(), 2, "{said}");
    assert!(!orion::complaint(&output).contains("the ledger lacks"), "{}", orion::complaint(&output));
}

/// Its context, its pool and its memory are its own, and still do all that a device's do.
#[test]
fn facts_hold_on_a_vgpu_that_shares_its_gpu() {
    let facts = env!("CARGO_BIN_EXE_orion-facts");
    let output = under("1 GiB", "shm", "2").arg(facts).env("CUDA_VISIBLE_DEVICES", "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let held = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(held > 400, "{said}\n{}", orion::complaint(&output));
    // Green contexts are of a device's own primary context, and refused beside it.
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED")).collect();
    assert!(failed.iter().all(|line| line.contains("green_context::")), "{failed:#?}");
}

#[test]
fn two_vgpus_are_told_apart_and_more_than_fit_are_refused() {
    let program = "import ctypes; cu = ctypes.CDLL('libcuda.so.1'); assert cu.cuInit(0) == 0\n\
        n, can = ctypes.c_int(), ctypes.c_int(); cu.cuDeviceGetCount(ctypes.byref(n)); names = set()\n\
        for d in range(n.value):\n    s = ctypes.create_string_buffer; place, uuid = s(32), s(16)\n    \
        assert cu.cuDeviceGetPCIBusId(place, 32, d) == 0 and cu.cuDeviceGetUuid_v2(uuid, d) == 0\n    \
        names |= {place.raw, uuid.raw}\n\
        assert cu.cuDeviceCanAccessPeer(ctypes.byref(can), 0, 1) == 0 and can.value == 0\n\
        print(n.value, len(names))";
    let output = under("1 GiB", "shm", "3").args(["python3", "-c", program]).output().expect("orion-run starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "3 6", "{}", orion::complaint(&output));
    for (limit, vgpus, why) in [("3 GiB", "2", "do not fit on a GPU of 4096 MiB"), ("1 TiB", "5", "do not fit")] {
        let output = under(limit, "shm", vgpus).arg(LIMITS).output().expect("orion-run starts");
        assert!(!output.status.success());
        assert!(orion::complaint(&output).contains(why), "{}", orion::complaint(&output));
    }
}
