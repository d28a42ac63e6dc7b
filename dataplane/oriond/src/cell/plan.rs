//! Which layers of a cell this host allows, found out by trying each in a child.

// UNSAFETY: forks, and makes system calls in the child.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::str::FromStr;
use std::sync::Arc;

use super::enter::drop_privileges;
use super::memory::{Groups, join};
use super::separate::{Covered, covered, done, mount_proc, own_mounts, separate};
use super::users::{Range, Users};
use super::{calls, files};

/// What can be missing, or be left out by the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// A user of its own for each worker.
    User,
    /// Network, /dev/shm, System V memory and host name of its own.
    Namespaces,
    /// Numbers of processes of its own, and a /proc that shows no others.
    Pid,
    /// A limit on host memory, by a cgroup for each worker.
    Memory,
    /// No files but the GPU's, no network, no signals to others, by the kernel's Landlock.
    Landlock,
    /// No system calls but those that workers make.
    Seccomp,
}

const ALL: [Layer; 6] = [Layer::User, Layer::Namespaces, Layer::Pid, Layer::Memory, Layer::Landlock, Layer::Seccomp];

impl Layer {
    pub fn name(self) -> &'static str {
        match self {
            Layer::User => "user",
            Layer::Namespaces => "namespaces",
            Layer::Pid => "pid",
            Layer::Memory => "memory",
            Layer::Landlock => "landlock",
            Layer::Seccomp => "seccomp",
        }
    }

    /// What a cell without it means.
    fn consequence(self) -> &'static str {
        match self {
            Layer::User => {
                "workers run as the user of oriond, and NVIDIA's kernel driver takes the workers of two sessions for \
                 one user's: a tenant who has taken over his own can ask it for another's memory"
            }
            Layer::Namespaces => {
                "all programs of the host see the socket that NVIDIA's driver listens on in each worker, and who makes \
                 /dev/shm/cuda_injection_path_shm may get a library loaded into workers that start"
            }
            Layer::Pid => {
                "a tenant who has taken over his worker learns from NVIDIA's kernel driver how many processes use each \
                 GPU, and their numbers, and which processes the host has"
            }
            Layer::Memory => "a tenant who has taken over his worker takes what host memory oriond may have",
            Layer::Landlock => "a tenant who has taken over his worker reads and writes the files that its user may",
            Layer::Seccomp => {
                "a tenant who has taken over his worker may call all of the kernel: he starts processes, connects to \
                 the network, and reaches what has a hole"
            }
        }
    }
}

impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Layer, String> {
        ALL.into_iter()
            .find(|l| l.name() == text)
            .ok_or_else(|| format!("{text:?} is no layer of isolation; they are {}", ALL.map(Layer::name).join(", ")))
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A layer that workers will not have, why, and what that means.
#[derive(Debug)]
pub struct Missing {
    pub layer: Layer,
    pub reason: String,
}

impl Missing {
    pub fn consequence(&self) -> &'static str {
        self.layer.consequence()
    }
}

/// How this oriond's workers are made.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub users: Option<Arc<Users>>,
    pub namespaces: bool,
    /// Where workers have a pid namespace.
    pub covered: Option<Covered>,
    /// Where workers have a memory cgroup each.
    pub groups: Option<Arc<Groups>>,
    pub seal: Seal,
}

/// What a worker does itself, once its driver is warm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seal {
    pub landlock: bool,
    pub seccomp: bool,
    /// Sessions may share memory with each other.
    pub one_tenant: bool,
}

impl Seal {
    /// For a worker's command line.
    pub fn arguments(self) -> Vec<String> {
        let layers = [(self.landlock, Layer::Landlock), (self.seccomp, Layer::Seccomp)];
        let layers = layers.into_iter().filter(|(on, _)| *on).flat_map(|(_, l)| ["--seal".into(), l.name().into()]);
        layers.chain(self.one_tenant.then(|| "--one-tenant".into())).collect()
    }

    pub fn of(layers: &[Layer], one_tenant: bool) -> Seal {
        let has = |layer| layers.contains(&layer);
        Seal { landlock: has(Layer::Landlock), seccomp: has(Layer::Seccomp), one_tenant }
    }
}

impl Plan {
    pub fn wants_mounts(&self) -> bool {
        self.namespaces || self.covered.is_some()
    }

    /// Tries each layer that is not `off`. Call it before there are threads.
    pub fn for_this_host(range: Range, off: &[Layer], one_tenant: bool) -> (Plan, Vec<Missing>) {
        let mut plan = Plan::default();
        plan.seal.one_tenant = one_tenant;
        let mut missing = Vec::new();
        for layer in ALL {
            let outcome = match layer {
                _ if off.contains(&layer) => Err(format!("--isolation-off {layer}")),
                Layer::User => can_change_user(range).map(|()| plan.users = Some(Users::new(range))),
                Layer::Namespaces => can_separate().map(|()| plan.namespaces = true),
                Layer::Pid => covered()
                    .and_then(|covered| can_number_processes(&covered).map(|()| plan.covered = Some(covered)))
                    .map_err(|e| {
                        format!(
                            "making a pid namespace with a /proc of its own failed: {e}; it takes root, and in a \
                             container CAP_SYS_ADMIN and the right to mount"
                        )
                    }),
                Layer::Memory => can_limit_memory().map(|groups| plan.groups = Some(groups)),
                Layer::Landlock => {
                    let version = files::version();
                    plan.seal.landlock = version > 0;
                    if version < files::VERSION_WANTED { Err(older(version)) } else { Ok(()) }
                }
                Layer::Seccomp => calls::check()
                    .map(|()| plan.seal.seccomp = true)
                    .map_err(|e| format!("the kernel has no seccomp filters: {e}")),
            };
            if let Err(reason) = outcome {
                missing.push(Missing { layer, reason });
            }
        }
        (plan, missing)
    }
}

fn can_separate() -> Result<(), String> {
    // SAFETY: system calls only, in a child.
    in_child(false, || unsafe { own_mounts().and_then(|()| separate()) })
        .map_err(|e| format!("making them failed: {e}; it takes root, and in a container CAP_SYS_ADMIN"))
}

/// Twice, as the thread that starts workers does it.
fn can_number_processes(covered: &Covered) -> io::Result<()> {
    // SAFETY: system calls only, in a child and in children of that.
    in_child(false, || unsafe {
        own_mounts()?;
        let home = libc::open(c"/proc/self/ns/pid".as_ptr(), libc::O_RDONLY);
        for _ in 0..2 {
            done(libc::setns(home, libc::CLONE_NEWPID))?;
            done(libc::unshare(libc::CLONE_NEWPID))?;
            let (child, mut status) = (libc::fork(), 0);
            if child == 0 {
                let outcome = own_mounts().and_then(|()| mount_proc(covered));
                libc::_exit(outcome.err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO)));
            }
            if child < 0 || libc::waitpid(child, &raw mut status, 0) != child {
                return Err(io::Error::last_os_error());
            }
            if status != 0 {
                return Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status)));
            }
        }
        Ok(())
    })
}

/// With a process in a group that has a limit.
fn can_limit_memory() -> Result<Arc<Groups>, String> {
    let groups = Groups::open()?;
    let tried = groups.make().and_then(|mut group| {
        let door = group.door()?;
        // SAFETY: system calls only, in a child.
        in_child(false, || unsafe { join(door.as_raw_fd()) })?;
        group.limit(1 << 30)
    });
    tried.map_err(|e| format!("having a process in a memory cgroup failed: {e}; it takes root"))?;
    Ok(groups)
}

fn older(version: i64) -> String {
    match version {
        0 => "the kernel has no Landlock, or it is not switched on (lsm=)".into(),
        1..=3 => format!("the kernel's Landlock is version {version}: files only, neither TCP nor signals"),
        _ => format!("the kernel's Landlock is version {version}: signals to other processes are not covered"),
    }
}

fn can_change_user(range: Range) -> Result<(), String> {
    // SAFETY: getuid cannot fail.
    let uid = unsafe { libc::getuid() };
    if uid != 0 {
        return Err(format!("oriond runs as user {uid}; only root can start processes of other users"));
    }
    let closed = ["nvidiactl", "nvidia0", "nvidia-uvm"]
        .map(|n| format!("/dev/{n}"))
        .into_iter()
        .find(|path| std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o006 != 0o006));
    if let Some(path) = closed {
        return Err(format!(
            "{path} is not for all users to read and write; give the nvidia module NVreg_DeviceFileMode=0666"
        ));
    }
    for id in [range.first, range.last] {
        // SAFETY: system calls only.
        let tried = in_child(true, || unsafe { drop_privileges(Some(id)) });
        tried.map_err(|e| {
            format!("becoming user {id} failed: {e}; in a container, give ids that it has with --worker-uids")
        })?;
    }
    Ok(())
}

/// Runs `attempt` in a child, which is then killed as a worker would be if `ends_by_signal`, else it exits.
fn in_child(ends_by_signal: bool, attempt: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (mut ends, mut status) = ([0; 2], 0);
    // SAFETY: there are no other threads yet, and the child makes system calls only and never returns.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = libc::fork();
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            let code: i32 = attempt().err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO));
            libc::write(ends[1], (&raw const code).cast(), 4);
            if ends_by_signal && code == 0 {
                // Whoever cannot be killed goes by himself.
                libc::alarm(10);
                libc::pause();
            }
            libc::_exit(0);
        }
        libc::close(ends[1]);
        let mut code = libc::EIO;
        libc::read(ends[0], (&raw mut code).cast(), 4);
        libc::close(ends[0]);
        // A root that must not signal others' processes could not end its workers.
        let killed = if ends_by_signal && code == 0 { libc::kill(pid, libc::SIGKILL) } else { 0 };
        let kill_error = io::Error::last_os_error();
        if killed != 0 {
            return Err(kill_error);
        }
        libc::waitpid(pid, &mut status, 0);
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_named_and_says_what_its_lack_means() {
        for layer in ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
            assert!(!layer.consequence().is_empty());
        }
        assert!("moat".parse::<Layer>().unwrap_err().contains("user"));
    }
}
