//! Nothing stays attached: neither when a look is over, nor when who looks is killed.
#![cfg(feature = "libbpf")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;
use orion_bpf::{Probe, Question};

/// Programs in the kernel with the names of two of ours. No other test runs beside this one's process.
fn attached() -> usize {
    ProgInfoIter::default().filter(|p| ["enters", "leaves"].iter().any(|n| p.name.to_string_lossy() == *n)).count()
}

fn wait_for(count: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    while attached() != count {
        assert!(Instant::now() < end, "{} of ours in the kernel, not {count}", attached());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_stays_attached() {
    let _ = orion_bpf::tracefs::mount_here();
    if let Err(why) = Question::Ioctl.check() {
        return eprintln!("not tried: {why}");
    }
    let others = attached();
    let mut probe = Probe::of_program(std::process::id()).expect("this process");
    probe.ask(Question::Ioctl).expect("asking");
    assert_eq!(attached(), others + 2);
    drop(probe);
    wait_for(others);

    let own = std::process::id().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_orion-probe"));
    command.args(["--program", &own, "--seconds", "600", "--ask", "ioctl"]).stdout(Stdio::null());
    let mut looks = command.spawn().expect("it starts");
    wait_for(others + 2);
    looks.kill().expect("it is there");
    looks.wait().expect("it ends");
    wait_for(others);
}
