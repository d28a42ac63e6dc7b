//! Pages that nobody writes to for a moment.
//!
//! Memory that is registered is copied, and other pages take its place. What another thread writes between the two
//! would be lost: with a thread that writes all the time beside registered memory, in the same page, it was in one of
//! five registrations. So the pages are write-protected meanwhile, and whoever writes to them waits in the kernel until
//! the exchange is done, and then writes to the new ones (`userfaultfd(2)`, with nobody who handles its faults: they
//! wait until the descriptor is closed).
//!
//! Where that is not allowed the exchange goes on without it, and a line says so: Docker's own list of system calls has
//! no userfaultfd. Without privilege (`CAP_SYS_PTRACE`, or `vm.unprivileged_userfaultfd`) only what programs write
//! themselves waits; a system call that writes there fails with EFAULT.

// UNSAFETY: userfaultfd has no safe interface.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::state::heap::PAGE;

// From Linux's userfaultfd.h.
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const WRITE_PROTECT: libc::c_ulong = 0xc018_aa06;
const API_VERSION: u64 = 0xaa;
const USER_MODE_ONLY: libc::c_int = 1;
const FEATURE_WRITE_PROTECTED: u64 = 1;
const FEATURE_SHARED_MEMORY: u64 = 1 << 12;
const REGISTER_WRITE_PROTECTED: u64 = 2;
const WRITE_PROTECT_ON: u64 = 1;

/// Whoever writes to the pages waits until this is dropped. No signal is handled by this thread meanwhile: a handler
/// that wrote there would wait for itself.
pub struct Held {
    // Closed first: only then a handler may run.
    _faults: OwnedFd,
    _signals: SignalsBlocked,
}

impl Held {
    /// # Safety
    /// `len` readable bytes at `at`, whole pages; this thread writes to none of them while they are held.
    pub unsafe fn hold(at: u64, len: u64) -> io::Result<Held> {
        // What nobody has ever touched is not protected. Linux has that call since 5.14.
        // SAFETY: the caller's promise.
        if unsafe { libc::madvise(at as *mut libc::c_void, len as usize, libc::MADV_POPULATE_READ) } != 0 {
            for page in (at..at + len).step_by(PAGE as usize) {
                // SAFETY: the caller's promise.
                unsafe { (page as *const u8).read_volatile() };
            }
        }
        let faults = faults()?;
        let signals = SignalsBlocked::block();
        let [mut registered, mut protected] = [[at, len, REGISTER_WRITE_PROTECTED, 0], [at, len, WRITE_PROTECT_ON, 0]];
        ask(&faults, REGISTER, &mut registered)?;
        ask(&faults, WRITE_PROTECT, &mut protected)?;
        Ok(Held { _faults: faults, _signals: signals })
    }
}

/// A descriptor that can write-protect: shared memory too where the kernel can (5.19).
fn faults() -> io::Result<OwnedFd> {
    let open = |flags: libc::c_int| {
        // SAFETY: a plain call; the descriptor is ours alone.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        // SAFETY: as above.
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }) }
    };
    let faults = open(0).or_else(|_| open(USER_MODE_ONLY))?;
    let api = |features| ask(&faults, API, &mut [API_VERSION, features, 0, 0]);
    api(FEATURE_WRITE_PROTECTED | FEATURE_SHARED_MEMORY).or_else(|_| api(FEATURE_WRITE_PROTECTED))?;
    Ok(faults)
}

/// The kernel's structures are three or four words.
fn ask(faults: &OwnedFd, request: libc::c_ulong, words: &mut [u64; 4]) -> io::Result<()> {
    // SAFETY: as many words as any of the requests above reads and writes.
    let answer = unsafe { libc::ioctl(faults.as_raw_fd(), request as _, words.as_mut_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn block() -> SignalsBlocked {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: two sets of this function's own.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            SignalsBlocked(before.assume_init())
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
