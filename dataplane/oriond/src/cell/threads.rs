//! Something done on every thread of the process, whoever started it.
//!
//! Landlock restricts one thread. By the time the driver is warm it has threads of its own, and those of NVIDIA's block
//! every signal but 33, with which the C library changes the user of all threads. So that one is borrowed.

// UNSAFETY: installs a signal handler by the raw system call, and signals the threads of this process.

use std::collections::HashSet;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// `SIGSETXID` of the C library.
const NUMBER: i32 = 33;
/// A thread inside the kernel driver does not see it at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// `struct sigaction` as the kernel has it on x86-64.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

static WORK: AtomicUsize = AtomicUsize::new(0);
/// The thread that is asked, then zero; what it answered.
static ASKED: AtomicI32 = AtomicI32::new(0);
static ANSWER: AtomicI32 = AtomicI32::new(0);

extern "C" fn handle(_number: i32) {
    let work = WORK.load(Ordering::SeqCst);
    // SAFETY: reads this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: only `on_every_thread` stores there, functions of this type.
    let work = unsafe { std::mem::transmute::<usize, fn() -> i32>(work) };
    ANSWER.store(work(), Ordering::SeqCst);
    ASKED.store(0, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Runs `work`, which may make system calls only and returns an error number or zero, on each thread. One that is
/// started meanwhile by a thread that has not run it yet runs it too; one that is started by another has inherited
/// what it did.
pub fn on_every_thread(work: fn() -> i32) -> io::Result<usize> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    WORK.store(work as usize, Ordering::SeqCst);
    let before = install()?;
    let outcome = ask_all();
    set_action(&before)?;
    outcome
}

fn ask_all() -> io::Result<usize> {
    let mut done = HashSet::new();
    loop {
        let mut news = false;
        for entry in std::fs::read_dir("/proc/self/task")? {
            let name = entry?.file_name();
            let thread: i32 = name.to_str().and_then(|n| n.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
            if done.insert(thread) {
                news = true;
                ask(thread)?;
            }
        }
        if !news {
            return Ok(done.len());
        }
    }
}

fn ask(thread: i32) -> io::Result<()> {
    ASKED.store(thread, Ordering::SeqCst);
    // SAFETY: a signal to a thread of this process, whose handler is installed.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, NUMBER) };
    if sent != 0 {
        // It has ended.
        return match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            e => Err(e),
        };
    }
    let until = Instant::now() + PATIENCE;
    while ASKED.load(Ordering::SeqCst) != 0 {
        if !std::path::Path::new(&format!("/proc/self/task/{thread}")).exists() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(io::Error::other(format!("thread {thread} does not answer to signal {NUMBER}")));
        }
        std::thread::yield_now();
    }
    match ANSWER.load(Ordering::SeqCst) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// The handler for signal 33, which `sigaction` of the C library does not take; what was there before. The kernel wants
/// to be told how to return from a handler, and the C library knows how: it is asked through another signal.
fn install() -> io::Result<KernelAction> {
    let other = libc::SIGRTMAX();
    let ours = handle as extern "C" fn(i32);
    let (template, before);
    // SAFETY: valid structures; the other signal's action is put back.
    unsafe {
        let mut was: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ours as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(other, &action, &mut was) != 0 {
            return Err(io::Error::last_os_error());
        }
        template = get_action(other)?;
        libc::sigaction(other, &was, std::ptr::null_mut());
        before = get_action(NUMBER)?;
    }
    set_action(&template)?;
    Ok(before)
}

fn get_action(number: i32) -> io::Result<KernelAction> {
    let mut action = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: a valid out pointer to the kernel's structure with a mask of eight bytes.
    match unsafe { libc::syscall(libc::SYS_rt_sigaction, number, 0, &raw mut action, 8) } {
        0 => Ok(action),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_action(action: &KernelAction) -> io::Result<()> {
    // SAFETY: an action that the kernel gave, or one made from it.
    match unsafe { libc::syscall(libc::SYS_rt_sigaction, NUMBER, std::ptr::from_ref(action), 0, 8) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    static THREADS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    fn count() -> i32 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        0
    }

    fn refuse() -> i32 {
        libc::EPERM
    }

    #[test]
    fn every_thread_does_it_though_it_blocks_all_signals() {
        let both = std::sync::Arc::new(Barrier::new(9));
        let end = std::sync::Arc::new(Barrier::new(9));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (both, end) = (both.clone(), end.clone());
                std::thread::spawn(move || {
                    // SAFETY: plain calls on a local set.
                    unsafe {
                        let mut all: libc::sigset_t = std::mem::zeroed();
                        libc::sigfillset(&mut all);
                        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
                        THREADS.lock().unwrap().push(libc::gettid());
                    }
                    both.wait();
                    end.wait();
                })
            })
            .collect();
        both.wait();
        let asked = on_every_thread(count).expect("they answer");
        assert!(asked > 8 && COUNT.load(Ordering::SeqCst) >= 9, "{asked}");
        assert_eq!(on_every_thread(refuse).unwrap_err().raw_os_error(), Some(libc::EPERM));
        end.wait();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
