//! The thread that does what an engine must not wait for: starting processes and unmapping gigabytes.
//!
//! It also has to outlive every worker, because `PR_SET_PDEATHSIG` means the death of the *thread* that forked.

// UNSAFETY: socketpair, pidfd_open, and the calls between fork and exec.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use orion_ring::Memory;

use super::kind::Kind;
use super::worker_log::WorkerLog;
use crate::cell::{self, Group, Namespaces, Plan, User};

const ADDR_COMPAT_LAYOUT: libc::c_ulong = 0x0020_0000;
/// Between tries to remove the memory cgroups of workers that were reaped a moment ago.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(50);

pub enum Order {
    Spawn(Kind),
    /// Memory of a session that is over. Nothing refers to it any more.
    Unmap(Memory),
    /// The memory cgroup of a worker that was reaped.
    Remove(Group),
}

pub struct Newborn {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub control: OwnedFd,
    /// Nobody else's while the process lives.
    pub user: Option<Arc<User>>,
    pub group: Option<Group>,
}

/// Starts the thread. It ends when the last sender is gone.
pub fn start(
    worker_arguments: Vec<String>,
    plan: Plan,
    born: impl Fn(Kind, io::Result<Newborn>) + Send + 'static,
) -> io::Result<Sender<Order>> {
    let (sender, receiver) = channel();
    let log = WorkerLog::start()?;
    std::thread::Builder::new()
        .name("nursery".into())
        .spawn(move || serve(receiver, &worker_arguments, &plan, &born, &log))?;
    Ok(sender)
}

fn serve(
    orders: Receiver<Order>,
    worker_arguments: &[String],
    plan: &Plan,
    born: &impl Fn(Kind, io::Result<Newborn>),
    log: &WorkerLog,
) {
    let (mut tenant, mut namespaces) = (None, Namespaces::new(plan));
    while let Some(order) = next(&orders, plan) {
        match order {
            Order::Spawn(kind) => {
                let newborn = user_for(plan, &mut tenant)
                    .and_then(|user| namespaces.within(|| spawn(worker_arguments, plan, user, &kind, log)));
                born(kind, newborn);
            }
            // SAFETY: the sender gave up the last reference; see `Mapped`.
            Order::Unmap(memory) => unsafe { memory.unmap_all() },
            Order::Remove(group) => drop(group),
        }
    }
}

/// Nothing once the last sender is gone.
fn next(orders: &Receiver<Order>, plan: &Plan) -> Option<Order> {
    while plan.groups.as_ref().is_some_and(|groups| groups.remove_left()) {
        match orders.recv_timeout(REMOVAL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            outcome => return outcome.ok(),
        }
    }
    orders.recv().ok()
}

/// A user for the next worker. Where all sessions are one tenant's, it is `tenant`'s.
fn user_for(plan: &Plan, tenant: &mut Option<Arc<User>>) -> io::Result<Option<Arc<User>>> {
    let Some(users) = &plan.users else { return Ok(None) };
    if let Some(user) = tenant {
        return Ok(Some(user.clone()));
    }
    let user = Arc::new(users.take()?);
    if plan.seal.one_tenant {
        *tenant = Some(user.clone());
    }
    Ok(Some(user))
}

fn spawn(
    arguments: &[String],
    plan: &Plan,
    user: Option<Arc<User>>,
    kind: &Kind,
    log: &WorkerLog,
) -> io::Result<Newborn> {
    // Not our own standard error: whoever reads that may stop, and what is loaded there may write without end.
    let (lines, stderr) = pipe()?;
    let (ours, theirs) = socketpair(libc::SOCK_SEQPACKET)?;
    let control = theirs.as_raw_fd();
    let is_apart = !plan.seal.one_tenant;
    let group = plan.groups.as_ref().map(|groups| groups.make()).transpose()?;
    let door = group.as_ref().map(Group::door).transpose()?;
    let entry = cell::Entry {
        user: user.as_ref().map(|u| u.id),
        mounts: plan.wants_mounts() && is_apart,
        namespaces: plan.namespaces && is_apart,
        covered: plan.covered.clone().filter(|_| is_apart),
        group: door.as_ref().map(AsRawFd::as_raw_fd),
        control,
        ours: ours.as_raw_fd(),
    };
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("oriond-worker")
        .arg("worker")
        .args(["--control-fd", &control.to_string()])
        .args(arguments)
        .args(plan.seal.arguments())
        .args(kind.gpus.iter().flat_map(|gpu| ["--gpus", gpu]))
        .env_clear()
        .envs(cell::kept_environment())
        // What one tenant's worker compiled and kept, another's would load.
        .env("CUDA_CACHE_DISABLE", "1")
        .envs(kind.variables())
        // Clients wait after their launches themselves. A driver that waits inside a launch would keep the executor
        // from the very command that lets the stream go on.
        .env_remove("CUDA_LAUNCH_BLOCKING")
        .stdin(Stdio::null())
        .stdout(stderr.try_clone()?)
        .stderr(stderr)
        .process_group(0);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // Mappings, and with them device addresses, then start at the bottom of the address space and cannot
            // collide with a client's, which are at its top. See worker/start.rs.
            let now = libc::personality(0xffff_ffff);
            if now < 0 || libc::personality(now as libc::c_ulong | ADDR_COMPAT_LAYOUT) < 0 {
                return Err(io::Error::last_os_error());
            }
            cell::enter(&entry)
        });
    }
    let child = command.spawn()?;
    let pid = child.id() as i32;
    // SAFETY: the child is ours and not reaped yet, so the pid is its own.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if pidfd < 0 {
        let e = io::Error::last_os_error();
        let mut child = child;
        let _ = child.kill();
        let _ = child.wait();
        return Err(e);
    }
    log.add(pid, lines);
    // SAFETY: a new descriptor that nobody else owns.
    Ok(Newborn { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, control: ours, user, group })
}

/// Reading end, writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for both.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

pub fn socketpair(kind: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for both.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}
