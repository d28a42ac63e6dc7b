//! Between fork and exec: the child gives up what it has from oriond.

// UNSAFETY: system calls after fork, which must not allocate nor take locks.

use std::io;
use std::os::fd::RawFd;

/// What the child of a fork needs to know. Nothing in it may need an allocation to be used.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Who it becomes; without one it stays oriond's user.
    pub user: Option<u32>,
    /// Whether it gets namespaces of its own; without, it has those of the thread that forked it.
    pub namespaces: bool,
    /// The one descriptor beyond the standard ones that survives exec.
    pub control: RawFd,
    pub parent: libc::pid_t,
}

/// A worker's threads: a session's helpers, the driver's own, and the software GPU's, which has one for each stream.
const THREADS_MAX: u64 = 16384;

/// The variables that a worker's driver and libraries read. Others, which may well hold secrets, do not reach it.
const KEPT_PREFIXES: [&str; 4] = ["CUDA_", "NVIDIA_", "ORION_SOFT_", "NSIGHT_"];
const KEPT: [&str; 6] =
    ["LD_LIBRARY_PATH", "ORION_DEBUG", "RUST_BACKTRACE", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"];

/// What of oriond's environment its workers get.
pub fn kept_environment() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|n| KEPT.contains(&n) || KEPT_PREFIXES.iter().any(|prefix| n.starts_with(prefix)))
    })
}

/// Turns the child into what it will be when its program starts.
///
/// # Safety
/// In the child of a fork, before exec.
pub unsafe fn enter(entry: &Entry) -> io::Result<()> {
    // SAFETY: this function's contract; each of the callees makes system calls only.
    unsafe {
        keep_only(entry.control)?;
        limit()?;
        if entry.namespaces {
            separate()?;
        }
        drop_privileges(entry.user)?;
        // Changing the user has cleared it, so it comes behind that.
        done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // oriond may have died before the line above.
        if libc::getppid() != entry.parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Everything else closes at exec: what oriond's starter passed on to it, and what its libraries opened carelessly.
unsafe fn keep_only(control: RawFd) -> io::Result<()> {
    // SAFETY: plain calls about descriptors of this process, which will not use them any more.
    unsafe {
        // Linux 5.11; older ones are asked one by one.
        let all = libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        if all != 0 {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            done(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
            for fd in 3..limit.rlim_cur.min(1 << 20) as RawFd {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        done(libc::fcntl(control, libc::F_SETFD, 0))
    }
}

/// Network, /dev/shm, System V memory and host name of its own, for this thread and what it forks. In /dev/shm NVIDIA's
/// driver looks for a file that names a library to load, which anybody on the host could have made; in the network
/// namespace are the abstract sockets, on one of which it listens.
///
/// # Safety
/// In a process or thread that does not need the host's any more.
pub unsafe fn separate() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: plain calls with literals.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWNET | libc::CLONE_NEWUTS))?;
        // What the host mounts and unmounts later is seen, or a worker would keep a disk busy.
        done(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast()))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let (kind, options) = (c"tmpfs".as_ptr(), c"size=16m,mode=1777".as_ptr());
        // A host without the folder has nothing to hide there.
        match done(libc::mount(kind, c"/dev/shm".as_ptr(), kind, flags, options.cast())) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(e),
            _ => {}
        }
        let name = "orion-worker";
        done(libc::sethostname(name.as_ptr().cast(), name.len()))
    }
}

unsafe fn limit() -> io::Result<()> {
    let none = [libc::RLIMIT_CORE, libc::RLIMIT_MSGQUEUE, libc::RLIMIT_RTPRIO, libc::RLIMIT_LOCKS];
    for which in none {
        lower(which, 0)?;
    }
    Ok(())
}

/// Both limits of a resource, at most what they are.
pub(super) fn lower(which: libc::__rlimit_resource_t, to: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls on a local.
    unsafe {
        done(libc::getrlimit(which, &mut limit))?;
        let to = to.min(limit.rlim_max);
        done(libc::setrlimit(which, &libc::rlimit { rlim_cur: to, rlim_max: to }))
    }
}

/// Becomes the user, if there is one, and keeps no capability in any of the sets.
pub(super) unsafe fn drop_privileges(user: Option<u32>) -> io::Result<()> {
    // Raw calls: the C library would tell threads that only the parent has.
    // SAFETY: plain system calls.
    unsafe {
        for capability in 0..64 {
            // EINVAL is beyond the last one, EPERM a process that has none to lose; the sets below are emptied, and
            // without new privileges nothing fills them again.
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        if let Some(id) = user {
            call(libc::SYS_setgroups, [0, 0, 0])?;
            call(libc::SYS_setresgid, [id as usize; 3])?;
            // Counted for each user, so it means something only for one that a worker has to itself.
            lower(libc::RLIMIT_NPROC, THREADS_MAX)?;
            call(libc::SYS_setresuid, [id as usize; 3])?;
        }
        // Version 3; all sets of this process.
        let header = [0x2008_0522u32, 0];
        let none = [0u32; 6];
        call(libc::SYS_capset, [header.as_ptr() as usize, none.as_ptr() as usize, 0])
    }
}

unsafe fn call(number: libc::c_long, arguments: [usize; 3]) -> io::Result<()> {
    // SAFETY: the caller's arguments fit the call.
    match unsafe { libc::syscall(number, arguments[0], arguments[1], arguments[2]) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
