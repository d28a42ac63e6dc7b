//! What the machine has: the system, the kernel's parts that Orion uses, GPUs, networks.

use std::path::Path;
use std::process::Command;

use orion_transport::carrier::VerbsPort;
use orion_transport::carrier::rdma::Device;

use crate::finding::Report;

/// The first kernel with all of io_uring that oriond uses: waiting for a futex came last.
const KERNEL_WHOLE: (u32, u32) = (6, 7);

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The first line that a program prints, if it is there and succeeds.
pub fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// Name of the distribution in `/etc/os-release`.
fn distribution(text: &str) -> Option<String> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value("PRETTY_NAME").map(|name| name.trim_matches('"').to_owned())
}

/// Major and minor number of `6.1.0-17-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub fn system(report: &mut Report) {
    let name = read("/etc/os-release").and_then(|text| distribution(&text)).unwrap_or_else(|| "unknown".to_owned());
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    report.well("os", format!("OS information : {name}"));
    let text = format!("               : Kernel {kernel}");
    match version(&kernel) {
        Some(version) if version >= KERNEL_WHOLE => report.well("kernel", text),
        _ => report.warn(
            "kernel",
            text,
            "oriond works; since Linux 6.7 it sleeps until it is rung, before it looks each ms",
        ),
    }
}

/// Parts of the kernel that oriond cannot do without, or does less without.
pub fn kernel(report: &mut Report) {
    report.say("\nChecking the kernel ...");
    locked_memory(report);
    match read("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("0") | None => report.well("io_uring", "io_uring is on."),
        Some("1") => report.warn("io_uring", "io_uring is for privileged users only.", "run oriond as root"),
        Some(_) => report.fail("io_uring", "io_uring is off.", "set sysctl kernel.io_uring_disabled=0"),
    }
    let modules = read("/sys/kernel/security/lsm").unwrap_or_default();
    match modules.split(',').any(|name| name == "landlock") {
        true => report.well("landlock", "Landlock is on."),
        false => report.warn(
            "landlock",
            "Landlock is off.",
            "workers see the files that their user may; add landlock to the kernel's lsm= to change that",
        ),
    }
    match has_memory_cgroups() {
        true => report.well("cgroups", "There are cgroups for memory."),
        false => report.warn(
            "cgroups",
            "There are no cgroups for memory.",
            "workers have no limit on host memory; the kernel may have been started with cgroup_disable=memory",
        ),
    }
    match Path::new("/sys/kernel/btf/vmlinux").exists() {
        true => report.well("bpf", "The kernel describes its types (BTF)."),
        false => {
            report.warn("bpf", "The kernel does not describe its types (BTF).", "probes need CONFIG_DEBUG_INFO_BTF")
        }
    }
}

/// In either version, as far as this process sees them.
fn has_memory_cgroups() -> bool {
    let of_v1 = read("/proc/self/cgroup").unwrap_or_default();
    let of_v1 = of_v1.lines().filter_map(|line| line.split(':').nth(1)).flat_map(|names| names.split(','));
    let of_v2 = read("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    of_v1.chain(of_v2.split_whitespace()).any(|name| name == "memory")
}

pub fn rdma(report: &mut Report) {
    if let Err(why) = rdma_device(report) {
        report.warn("rdma", why, "sessions go over shared memory or TCP");
    }
}

/// Where a program asks for it, and is refused where it is not to be had.
pub fn rdma_asked(report: &mut Report) {
    if let Err(why) = rdma_device(report) {
        report.fail("rdma", why, "a program that asks for RDMA is refused; unset what asks for it, or mend this");
    }
}

/// Or why there is none to be had.
fn rdma_device(report: &mut Report) -> Result<(), String> {
    report.say("\nChecking RDMA network support ...");
    let devices = names_in("/sys/class/infiniband");
    for device in &devices {
        for port in names_in(&format!("/sys/class/infiniband/{device}/ports")) {
            let of =
                |file: &str| read(&format!("/sys/class/infiniband/{device}/ports/{port}/{file}")).unwrap_or_default();
            report.say(&format!(" {device}/{port}    {}    {}", of("rate"), of("state")));
        }
    }
    if devices.is_empty() {
        return Err("No RDMA device is found.".to_owned());
    }
    if !cfg!(feature = "rdma") {
        return Err(format!(
            "RDMA devices : {}. This build of Orion does not use them; build it with --features rdma.",
            devices.join(", ")
        ));
    }
    // As a program would open it, or an oriond that is told nothing else.
    let device = VerbsPort::from_environment().and_then(|wanted| Device::open(&wanted));
    let device = device.map_err(|why| format!("RDMA is not to be had: {why}"))?;
    report.well("rdma", format!("RDMA : {}", device.words()));
    Ok(())
}

/// Version of NVIDIA's kernel module.
fn driver_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

pub fn gpus(report: &mut Report) {
    report.say("\nSearching NVIDIA GPU ...");
    let text = read("/proc/driver/nvidia/version").unwrap_or_default();
    let Some(version) = driver_version(&text) else {
        return report.warn(
            "gpu",
            "NVIDIA's driver is not installed.",
            "oriond has the software GPU here; on a GPU's node install NVIDIA's driver",
        );
    };
    report.say(&format!("CUDA driver {version} is installed."));
    let model = |folder: &String| {
        let text = read(&format!("/proc/driver/nvidia/gpus/{folder}/information"))?;
        text.lines().find_map(|line| line.strip_prefix("Model:")).map(|name| name.trim().to_owned())
    };
    let names: Vec<String> = names_in("/proc/driver/nvidia/gpus").iter().filter_map(model).collect();
    let found = match names.len() {
        0 => return report.fail("gpu", "No NVIDIA GPU is found.", "look into dmesg for what NVIDIA's driver says"),
        1 => "1 NVIDIA GPU is found :".to_owned(),
        n => format!("{n} NVIDIA GPUs are found :"),
    };
    let list: String = names.iter().enumerate().map(|(i, name)| format!("\n    {i} : {name}")).collect();
    report.well("gpu", found + &list);
}

pub fn mps(report: &mut Report) {
    report.say("\nChecking NVIDIA MPS ...");
    match processes("nvidia-cuda-mps").first() {
        None => report.well("mps", "NVIDIA CUDA MPS is off."),
        Some(process) => report.warn(
            "mps",
            format!("NVIDIA CUDA MPS is running by Linux account : {}", process.user),
            "a fault of one session then ends those of all; stop it with `echo quit | nvidia-cuda-mps-control`",
        ),
    }
}

/// What virtual machines take. Those that an oriond serves by shared memory stand among its settings.
pub fn virtual_machines(report: &mut Report) {
    report.say("\nSearching VM support ...");
    match (Path::new("/dev/kvm").exists(), first_line("qemu-system-x86_64", &["--version"])) {
        (true, Some(version)) => report.well("kvm", format!("{version}; KVM is there.")),
        (true, None) => report.warn("kvm", "No QEMU is found; KVM is there.", "only virtual machines need it"),
        (false, _) => report.warn("kvm", "There is no KVM.", "only virtual machines need it"),
    }
}

/// Memory of sessions is passed by descriptor and needs no room in /dev/shm; what programs share among themselves does.
const SHM_BYTES_MIN: u64 = 1 << 30;

pub fn shared_memory(report: &mut Report) {
    report.say("\nChecking shared memory ...");
    let df = Command::new("df").args(["--block-size=1", "--output=size", "/dev/shm"]).output();
    let second_line = |text: &str| text.lines().nth(1)?.trim().parse::<u64>().ok();
    let size = df.ok().and_then(|output| second_line(&String::from_utf8_lossy(&output.stdout)));
    match size {
        None => report.warn("shared memory", "There is no /dev/shm.", "mount a tmpfs there: loaders of data need it"),
        Some(bytes) if bytes < SHM_BYTES_MIN => report.warn(
            "shared memory",
            format!("/dev/shm has {} MiB.", bytes >> 20),
            "Orion needs none of it, but PyTorch's DataLoader does: start a container with --shm-size=8G or --ipc=host",
        ),
        Some(bytes) => report.well("shared memory", format!("/dev/shm has {} MiB.", bytes >> 20)),
    }
}

/// Host memory that sessions share with a driver is locked.
pub fn locked_memory(report: &mut Report) {
    let limits = read("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).unwrap_or_default();
    match line.split_whitespace().nth(1) {
        Some("unlimited") => report.well("locked memory", "Memory can be locked without a limit."),
        limit => report.warn(
            "locked memory",
            format!("Memory can be locked up to {} bytes here.", limit.unwrap_or("an unknown number of")),
            "oriond as a service has no such limit; started by hand as root give it `ulimit -l unlimited` before",
        ),
    }
}

pub fn containers(report: &mut Report) {
    report.say("\nSearching Docker container environment ...");
    match ["docker", "podman"].iter().find_map(|program| first_line(program, &["--version"])) {
        Some(version) => report.well("docker", version),
        None => report.warn("docker", "No Docker is found.", "only containers need it"),
    }
}

pub fn server_binary(report: &mut Report) {
    report.say("\nChecking Orion Server binary ...");
    match first_line("oriond", &["--version"]) {
        Some(version) => report.well("oriond", version),
        None => report.fail("oriond", "oriond is not found, or does not start.", "run ./install.sh --system"),
    }
}

pub struct Process {
    pub id: u32,
    /// The effective one.
    pub uid: String,
    pub user: String,
    /// Neither root nor the user who asks has started it, or it has taken on other rights: its words are anybody's.
    pub is_strangers: bool,
    pub arguments: Vec<String>,
}

/// Processes whose program begins with this name.
pub fn processes(name: &str) -> Vec<Process> {
    let ours = read("/proc/self/status").and_then(|status| uids(&status)).map(|uids| uids[1].clone());
    let of = |pid: &String| {
        let own = pid.parse::<u32>().ok()?;
        let file = |file: &str| std::fs::read(format!("/proc/{own}/{file}")).ok();
        let words: Vec<String> =
            String::from_utf8_lossy(&file("cmdline")?).split_terminator('\0').map(str::to_owned).collect();
        let is_named = Path::new(words.first()?).file_name()?.to_str()?.starts_with(name);
        let uids = uids(&String::from_utf8_lossy(&file("status")?))?;
        is_named.then(|| Process {
            id: own,
            uid: uids[1].clone(),
            user: user_name(&uids[1]),
            is_strangers: uids.iter().any(|uid| *uid != "0" && Some(uid) != ours.as_ref()),
            arguments: words,
        })
    };
    names_in("/proc").iter().filter_map(of).collect()
}

/// Real, effective, saved and of the file system, as a process's status has them.
fn uids(status: &str) -> Option<Vec<String>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let uids: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    (uids.len() == 4).then_some(uids)
}

fn user_name(uid: &str) -> String {
    let text = read("/etc/passwd").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        assert_eq!(version("6.1.0-17-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("nonsense"), None);
        let nvidia =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 13\n";
        assert_eq!(driver_version(nvidia), Some("580.159.03"));
        assert_eq!(driver_version(""), None);
        assert_eq!(distribution("ID=debian\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }

    #[test]
    fn this_process_is_found_with_its_user() {
        let name = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let found = processes(&name);
        assert!(found.iter().any(|process| !process.user.is_empty()), "{name} is not among the processes");
    }
}
