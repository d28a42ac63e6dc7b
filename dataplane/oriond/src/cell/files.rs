//! Which files a worker still opens once it is sealed: its GPU's devices, and what the kernel says about itself.

// UNSAFETY: one system call that restricts a thread.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, make_bitflags,
};

use super::threads::on_every_thread;

/// What is asked for where the kernel has it. Older ones have less, newer ones no less.
const LATEST: ABI = ABI::V6;
pub const VERSION_WANTED: i64 = 6;

/// Read when NVIDIA's driver and profiler, the C library and Rust's meet a thread, a kernel or a device for the first
/// time. None of it says anything about another process, but how busy the machine is, which any of them could measure.
const READ: [&str; 16] = [
    "/proc/self/maps",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
    "/proc/cpuinfo",
    // How many threads of the machine can run, by which a worker knows whether to look for commands or to sleep.
    "/proc/loadavg",
    "/proc/devices",
    "/proc/meminfo",
    "/proc/driver/nvidia",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/mmap_min_addr",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/clocksource",
    "/sys/devices/system/cpu",
    "/sys/devices/system/memory",
    "/sys/devices/system/node",
];
/// Only listed: below are the network's tables and the mounts, too.
const LIST: &str = "/proc/self/task";
/// Where the driver puts a file for events that processes of one tenant share.
const SHARED: &str = "/dev/shm";

/// What this kernel's Landlock can do; zero if it has none.
pub fn version() -> i64 {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no structure.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION) }.max(0)
}

static RULES: AtomicI32 = AtomicI32::new(-1);
/// The files of /proc among them, as long as the process lives. A rule is about an inode, and where memory is short the
/// kernel forgets those of /proc that nobody has open, and makes others, which the rule does not mean.
static KEPT: Mutex<Vec<PathFd>> = Mutex::new(Vec::new());

/// Denies every thread of this process all files but those, all of TCP, and signals and abstract sockets to others.
/// `also` are files that the driver reads again; `shared` tells whether sessions may share memory by name.
pub fn restrict(also: &[PathBuf], shared: bool) -> Result<(), String> {
    let rules = rules(also, shared).map_err(|e| format!("making Landlock's rules failed: {e}"))?;
    RULES.store(rules.as_raw_fd(), Ordering::SeqCst);
    on_every_thread(restrict_thread).map_err(|e| format!("restricting the threads by Landlock failed: {e}"))?;
    RULES.store(-1, Ordering::SeqCst);
    Ok(())
}

fn restrict_thread() -> i32 {
    // SAFETY: a descriptor of a ruleset, which lives until all threads have answered.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, RULES.load(Ordering::SeqCst), 0) } {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

fn rules(also: &[PathBuf], shared: bool) -> Result<OwnedFd, Box<dyn std::error::Error>> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let use_device = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});
    let share = make_bitflags!(AccessFs::{ReadFile | WriteFile | MakeReg | Truncate});
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LATEST))?
        .handle_access(AccessNet::from_all(LATEST))?
        .scope(Scope::from_all(LATEST))?
        .create()?;
    let reads = READ.iter().map(PathBuf::from).chain(also.iter().cloned()).map(|p| (p, read));
    let listed = (PathBuf::from(LIST), AccessFs::ReadDir.into());
    let shared = shared.then(|| (PathBuf::from(SHARED), share));
    let all = reads.chain([listed]).chain(shared).chain(devices().map(|p| (p, use_device)));
    for (path, access) in all {
        // What this machine does not have needs no rule.
        let Ok(file) = PathFd::new(&path) else { continue };
        rules = rules.add_rule(PathBeneath::new(&file, fitting(&path, access)))?;
        if path.starts_with("/proc") {
            KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(file);
        }
    }
    Option::<OwnedFd>::from(rules).ok_or_else(|| "the kernel has no Landlock".into())
}

/// Rights of folders mean nothing for a file, and the kernel refuses them.
fn fitting(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { access } else { access & AccessFs::from_file(LATEST) }
}

/// The GPUs' files, which the driver opens anew for contexts and events.
fn devices() -> impl Iterator<Item = PathBuf> {
    let named = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps", "/dev/null"];
    let numbered = std::fs::read_dir("/dev").into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number = name.strip_prefix("nvidia")?;
        (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then(|| entry.path())
    });
    named.into_iter().map(PathBuf::from).chain(numbered)
}
