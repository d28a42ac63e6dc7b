//! Between fork and exec: the child gives up what it has from oriond.

// UNSAFETY: system calls after fork, which must not allocate nor take locks.

use std::io;
use std::os::fd::RawFd;

use super::memory::join;
use super::separate::{Covered, done, mount_proc, own_mounts, separate};

/// What the child of a fork needs to know. Nothing in it may need an allocation to be used.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who it becomes; without one it stays oriond's user.
    pub user: Option<u32>,
    /// Whether it gets mounts of its own; without, it has those of the thread that forked it.
    pub mounts: bool,
    /// The same of network, System V memory and host name, and a /dev/shm for which it needs the former.
    pub namespaces: bool,
    /// For the first process of a pid namespace: what its /proc is to have as the old one had it.
    pub covered: Option<Covered>,
    /// The way into its memory cgroup.
    pub group: Option<RawFd>,
    /// A socket, the one descriptor beyond the standard ones that survives exec.
    pub control: RawFd,
    /// Its other end, which oriond keeps.
    pub ours: RawFd,
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
        // oriond's threads have its signals blocked, and std lets children inherit that.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        done(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))?;
        done(libc::close(entry.ours))?;
        keep_only(entry.control)?;
        limit()?;
        if let Some(group) = entry.group {
            join(group)?;
        }
        be_as_easily_ended_as_others()?;
        if entry.mounts {
            own_mounts()?;
        }
        if entry.namespaces {
            separate()?;
        }
        if let Some(covered) = &entry.covered {
            mount_proc(covered)?;
        }
        drop_privileges(entry.user)?;
        // Changing the user has cleared it, so it comes behind that.
        done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // oriond may have died before the line above. A process of another namespace has no number here by which one
        // could ask, but with it went its end of the socket.
        if has_closed(entry.control) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

/// Whether nobody has the other end of the socket any more.
pub(super) fn has_closed(socket: RawFd) -> bool {
    let mut entry = libc::pollfd { fd: socket, events: 0, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) };
    entry.revents & libc::POLLHUP != 0
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

/// When memory runs out the kernel ends who has most of it, by far not so easily if it was told to spare him. An
/// operator may want oriond spared, but then its workers, who inherit that, are who has the memory.
unsafe fn be_as_easily_ended_as_others() -> io::Result<()> {
    let path = c"/proc/self/oom_score_adj";
    // SAFETY: plain calls with literals and a local buffer.
    unsafe {
        let mut sign = 0u8;
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        // Where there is none, nobody is spared.
        if file < 0 || libc::read(file, (&raw mut sign).cast(), 1) != 1 || sign != b'-' {
            libc::close(file);
            return Ok(());
        }
        libc::close(file);
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let done = match libc::write(file, c"0".as_ptr().cast(), 1) {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        libc::close(file);
        done
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
