//! Which system calls a worker makes once it is sealed.
//!
//! The list is what workers were seen to call on an H200 with driver 580 (PyTorch, JAX, CuPy, Triton, numba, NVIDIA's
//! samples, all facts, a profiler) and on the software GPU: `perf/worker-trace.sh` shows it for another driver. Three
//! answers:
//!
//! * **allowed**: on the list, some with certain arguments only;
//! * **refused** with an error: what libraries try and do without when it fails;
//! * anything else is not ours. It ends the session, with a line in oriond's log that names the call.

// UNSAFETY: installs a signal handler, which may only do what a handler may.

use std::collections::BTreeMap;
use std::io;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::last_words::LastWords;

/// What a process of a session that made a call off the list exits with, as a shell shows SIGSYS.
pub const EXIT_STATUS: i32 = 128 + SIGSYS;

/// Whatever the arguments.
const ALLOWED: &[c_long] = &[
    // Memory.
    SYS_brk,
    SYS_madvise,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_mremap,
    SYS_msync,
    SYS_munlock,
    SYS_munmap,
    SYS_memfd_create,
    SYS_ftruncate,
    SYS_fallocate,
    // Threads. `clone` has a rule below.
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_futex_waitv,
    SYS_getcpu,
    SYS_getpid,
    SYS_gettid,
    SYS_membarrier,
    SYS_rseq,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_setpriority,
    // Signals to itself; `tgkill` has a rule below.
    SYS_restart_syscall,
    SYS_rt_sigaction,
    SYS_rt_sigpending,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    // Descriptors. What may be opened is Landlock's business.
    SYS_close,
    SYS_dup,
    SYS_dup2,
    SYS_dup3,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_wait,
    SYS_eventfd2,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_access,
    SYS_fstat,
    SYS_fstatfs,
    SYS_getdents64,
    SYS_lseek,
    SYS_lstat,
    SYS_newfstatat,
    SYS_open,
    SYS_openat,
    SYS_pipe2,
    SYS_poll,
    SYS_ppoll,
    SYS_pread64,
    SYS_pselect6,
    SYS_pwrite64,
    SYS_read,
    SYS_readlink,
    SYS_readlinkat,
    SYS_readv,
    SYS_select,
    SYS_stat,
    SYS_statfs,
    SYS_statx,
    SYS_timerfd_create,
    SYS_timerfd_gettime,
    SYS_timerfd_settime,
    SYS_write,
    SYS_writev,
    // The control and the attach socket, which are connected.
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_shutdown,
    // Time, and what the machine is.
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getppid,
    SYS_getpriority,
    SYS_getrandom,
    SYS_getrlimit,
    SYS_getrusage,
    SYS_getsockopt,
    SYS_gettimeofday,
    SYS_getuid,
    SYS_get_mempolicy,
    SYS_nanosleep,
    SYS_sysinfo,
    SYS_time,
    SYS_times,
    SYS_uname,
];

/// Refused with EPERM or EACCES, as an ordinary host might: libraries go on without.
const REFUSED: &[c_long] = &[
    SYS_accept,
    SYS_accept4,
    SYS_bind,
    SYS_capset,
    SYS_chmod,
    SYS_connect,
    SYS_creat,
    SYS_execve,
    SYS_execveat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fork,
    SYS_getsockname,
    SYS_inotify_add_watch,
    SYS_ioprio_set,
    SYS_kill,
    SYS_link,
    SYS_linkat,
    SYS_listen,
    SYS_mbind,
    SYS_migrate_pages,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_mknod,
    SYS_mknodat,
    SYS_move_pages,
    SYS_perf_event_open,
    SYS_personality,
    SYS_pkey_mprotect,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_rmdir,
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
    SYS_set_mempolicy,
    SYS_setrlimit,
    SYS_setsockopt,
    SYS_shmat,
    SYS_shmget,
    SYS_socket,
    SYS_socketpair,
    SYS_symlink,
    SYS_symlinkat,
    SYS_unlink,
    SYS_unlinkat,
    SYS_utimensat,
    SYS_vfork,
];

/// Not there, as on an older kernel: the C library then takes `clone`, whose flags can be seen, and others go without.
const UNKNOWN: &[c_long] = &[SYS_clone3, SYS_io_uring_setup, SYS_userfaultfd];

/// `PR_SET_VMA`: names for mappings, of the C library and of allocators.
const PR_SET_VMA: i32 = 0x5356_4d41;
/// The last is what installing the next filter begins with, and cannot be undone.
const PRCTL: &[i32] = &[PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_SET_VMA, PR_SET_NO_NEW_PRIVS];
const FCNTL: &[i32] = &[
    F_DUPFD,
    F_DUPFD_CLOEXEC,
    F_GETFD,
    F_SETFD,
    F_GETFL,
    F_SETFL,
    F_GETLK,
    F_SETLK,
    F_OFD_GETLK,
    F_OFD_SETLK,
    F_GETPIPE_SZ,
    F_SETPIPE_SZ,
    F_ADD_SEALS,
    F_GET_SEALS,
];
/// `clone` for anything but a thread, or into new namespaces.
const NEW_NAMESPACES: u64 =
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET) as u64;

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn rule(argument: u8, operation: SeccompCmpOp, value: u64) -> SeccompRule {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value);
    let condition = condition.expect("arguments are numbered from 0 to 5");
    SeccompRule::new(vec![condition]).expect("there is a condition")
}

/// Matches every value but these.
fn all_but(argument: u8, values: &[i32]) -> SeccompRule {
    let differs = |value: &i32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value as u32 as u64)
            .expect("arguments are numbered from 0 to 5")
    };
    SeccompRule::new(values.iter().map(differs).collect()).expect("there are conditions")
}

fn nonzero(argument: u8) -> SeccompRule {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    SeccompRule::new(vec![condition.expect("arguments are numbered from 0 to 5")]).expect("there is a condition")
}

/// Calls that are refused with certain arguments only.
fn refused_sometimes(own: i32) -> Rules {
    let bit = |argument, bit: u64| rule(argument, SeccompCmpOp::MaskedEq(bit), bit);
    let executable = || vec![bit(2, PROT_EXEC as u64)];
    let mut not_a_thread = vec![rule(0, SeccompCmpOp::MaskedEq(CLONE_THREAD as u64), 0)];
    not_a_thread.extend((0..32).map(|n| 1 << n).filter(|flag| NEW_NAMESPACES & flag != 0).map(|flag| bit(0, flag)));
    [
        // Nothing is compiled to run on the CPU, and libraries are there before the cell is sealed.
        (SYS_mmap, executable()),
        (SYS_mprotect, executable()),
        // Questions about the host's network may be asked of any socket.
        (SYS_ioctl, vec![rule(1, SeccompCmpOp::MaskedEq(0xff00), 0x8900)]),
        (SYS_clone, not_a_thread),
        (SYS_prctl, vec![all_but(0, PRCTL)]),
        (SYS_fcntl, vec![all_but(1, FCNTL)]),
        (SYS_tgkill, vec![rule(0, SeccompCmpOp::Ne, own as u64)]),
        // It may read its own limits.
        (SYS_prlimit64, vec![rule(0, SeccompCmpOp::Ne, 0), nonzero(2)]),
    ]
    .into_iter()
    .collect()
}

/// The filters, in the order in which they are installed: the kernel asks all of them and takes the strictest answer.
fn filters(own: i32) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let plain = |calls: &[c_long]| calls.iter().map(|call| (*call, Vec::new())).collect::<Rules>();
    let mut refused = refused_sometimes(own);
    let mut listed = plain(ALLOWED);
    listed.extend(refused.keys().map(|call| (*call, Vec::new())).collect::<Rules>());
    refused.extend(plain(REFUSED));
    listed.extend(plain(REFUSED));
    listed.extend(plain(UNKNOWN));
    [
        (plain(UNKNOWN), SeccompAction::Allow, SeccompAction::Errno(ENOSYS as u32)),
        (refused, SeccompAction::Allow, SeccompAction::Errno(EPERM as u32)),
        (listed, SeccompAction::Trap, SeccompAction::Allow),
    ]
    .into_iter()
    .map(|(rules, otherwise, matched)| SeccompFilter::new(rules, otherwise, matched, TargetArch::x86_64)?.try_into())
    .collect()
}

/// Whether the kernel has what `restrict` needs.
pub fn check() -> io::Result<()> {
    for action in [SECCOMP_RET_ERRNO, SECCOMP_RET_TRAP] {
        // SAFETY: the call reads one word.
        if unsafe { syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// From here on no thread of the process makes other calls.
pub fn restrict() -> Result<(), String> {
    // SAFETY: a valid action, whose handler does only what a handler may; getpid cannot fail.
    let own = unsafe {
        let mut action: sigaction = std::mem::zeroed();
        action.sa_sigaction = off_the_list as extern "C" fn(i32, *mut siginfo_t, *mut c_void) as usize;
        action.sa_flags = SA_SIGINFO;
        if sigaction(SIGSYS, &action, std::ptr::null_mut()) != 0 {
            return Err(format!("installing the handler of SIGSYS failed: {}", io::Error::last_os_error()));
        }
        getpid()
    };
    for filter in filters(own).map_err(|e| format!("compiling the list of system calls failed: {e}"))? {
        seccompiler::apply_filter_all_threads(&filter)
            .map_err(|e| format!("limiting the threads to the list of system calls failed: {e}"))?;
    }
    Ok(())
}

/// Says which call it was and ends the process. In threads that block all signals the kernel ends it without a word.
extern "C" fn off_the_list(_signal: i32, info: *mut siginfo_t, _context: *mut c_void) {
    /// `si_syscall` of the kernel's `siginfo_t`, which the C library does not name: behind the call's address.
    const SYSCALL_OFFSET: usize = 24;
    let mut message = LastWords::new();
    // SAFETY: the kernel's structure, as it is for SIGSYS.
    let number = unsafe { info.cast::<u8>().add(SYSCALL_OFFSET).cast::<i32>().read_unaligned() };
    message.text(b"system call ");
    message.number(number as u32);
    if let Some(name) = syscalls::Sysno::new(number as usize) {
        message.text(b" (");
        message.text(name.name().as_bytes());
        message.text(b")");
    }
    message.text(b" is not on the list of what a worker calls, so the session ends; if the driver needs it, oriond ");
    message.text(b"serves without the list with --isolation-off seccomp");
    message.end(EXIT_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_one_answer() {
        let mut all: Vec<c_long> = [ALLOWED, REFUSED, UNKNOWN].concat();
        all.extend(refused_sometimes(1).keys());
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a call is listed twice");
        assert_eq!(filters(1).expect("they compile").len(), 3);
    }
}
