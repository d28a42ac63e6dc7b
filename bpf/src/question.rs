//! What can be asked, which programs answer it, and what they need of the system.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::tracefs;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How long threads that could run wait for a core
    RunQueue,
    /// How long threads sleep
    OffCpu,
    /// Round trips, retransmissions and queues of TCP connections
    Tcp,
    /// What io_uring completes
    IoUring,
    /// ioctls on device files, which is how drivers are asked
    Ioctl,
    /// Orion's own USDT probes
    Usdt,
}

/// Why programs cannot be attached, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Question {
    pub const ALL: [Question; 6] =
        [Question::RunQueue, Question::OffCpu, Question::Tcp, Question::IoUring, Question::Ioctl, Question::Usdt];

    /// The file of its programs, without `.bpf.c`.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Question::RunQueue => "runqueue",
            Question::OffCpu => "offcpu",
            Question::Tcp => "tcp",
            Question::IoUring => "io_uring",
            Question::Ioctl => "ioctl",
            Question::Usdt => "usdt",
        }
    }

    /// As compiled by clang and committed.
    #[must_use]
    pub fn object(self) -> &'static [u8] {
        match self {
            Question::RunQueue => include_bytes!("../objects/runqueue.bpf.o"),
            Question::OffCpu => include_bytes!("../objects/offcpu.bpf.o"),
            Question::Tcp => include_bytes!("../objects/tcp.bpf.o"),
            Question::IoUring => include_bytes!("../objects/io_uring.bpf.o"),
            Question::Ioctl => include_bytes!("../objects/ioctl.bpf.o"),
            Question::Usdt => include_bytes!("../objects/usdt.bpf.o"),
        }
    }

    /// Tracepoints that are found by name, and what makes a kernel have them.
    fn tracepoints(self) -> (&'static [&'static str], &'static str) {
        match self {
            Question::IoUring => (&["io_uring/io_uring_complete"], "CONFIG_IO_URING"),
            Question::Ioctl => (&["syscalls/sys_enter_ioctl", "syscalls/sys_exit_ioctl"], "CONFIG_FTRACE_SYSCALLS"),
            _ => (&[], ""),
        }
    }

    /// Whether this process may ask it on this machine, as far as can be told beforehand.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn check(self) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal(format!("{} cannot be looked at: {why}", self.file())));
        let missing = missing_capabilities(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        if !missing.is_empty() {
            let (names, lower) = (missing.join(" and "), missing.join(",").to_lowercase());
            return refuse(format!(
                "this process lacks {names}; run it as root, or give its file what it needs: \
                 setcap {lower},cap_sys_ptrace,cap_dac_read_search,cap_sys_admin+ep FILE"
            ));
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return refuse("the kernel does not describe its types; it needs CONFIG_DEBUG_INFO_BTF=y".to_owned());
        }
        // The kernel's own number of the first pid namespace.
        if std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() != "pid:[4026531836]") {
            return refuse(
                "this process is in a pid namespace of its own, a container's say, and the kernel's numbers mean \
                 nothing there; run it on the machine itself, or with --pid=host"
                    .to_owned(),
            );
        }
        let (tracepoints, config) = self.tracepoints();
        if let Some(lacking) = tracepoints.iter().find(|tracepoint| !tracefs::has(tracepoint)) {
            return refuse(match tracefs::is_there() {
                true => format!("the kernel has no tracepoint {lacking} or does not show it; it needs {config}=y"),
                false => "tracefs is not mounted or may not be read: as root, \
                          mount -t tracefs tracefs /sys/kernel/tracing"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

/// Of those without which nothing can be attached.
fn missing_capabilities(status: &str) -> Vec<&'static str> {
    const SYS_ADMIN: u32 = 21;
    const NEEDED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    let effective = u64::from_str_radix(effective.trim(), 16).unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let missing = NEEDED.into_iter().filter(|(bit, _)| !has(*bit) && !has(SYS_ADMIN));
    missing.map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capabilities_that_are_missing_are_named() {
        assert_eq!(missing_capabilities("CapEff:\t0000000000000000\n"), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing_capabilities("CapEff:\t0000008000000000\n"), ["CAP_PERFMON"]);
        assert!(missing_capabilities("CapEff:\t000000c000000000\n").is_empty());
        // Root before there were these two.
        assert!(missing_capabilities("CapEff:\t0000000000200000\n").is_empty());
        assert_eq!(missing_capabilities("").len(), 2);
    }
}
