//! Pages that nobody writes to for a moment.
//!
//! Memory that is registered is copied, and other pages take its place. What another thread writes between the two
//! would be lost: with a thread that writes all the time beside registered memory, in the same page, it was in one of
//! five registrations. So the pages are write-protected meanwhile, and whoever writes to them waits in the kernel until
//! the exchange is done, and then writes to the new ones (`userfaultfd(2)`, with nobody who handles its faults: they
//! wait until they are woken).
//!
//! Where that is not allowed the exchange goes on without it, and a line says so: Docker's own list of system calls has
//! no userfaultfd. Without privilege (`CAP_SYS_PTRACE`, or `vm.unprivileged_userfaultfd`) only what programs write
//! themselves waits; a system call that writes there fails with EFAULT.

// UNSAFETY: userfaultfd has no safe interface.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use orion_transport::kept::Kept;

use crate::state::heap::PAGE;

// From Linux's userfaultfd.h.
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const WRITE_PROTECT: libc::c_ulong = 0xc018_aa06;
const UNREGISTER: libc::c_ulong = 0x8010_aa01;
const WAKE: libc::c_ulong = 0x8010_aa02;
const API_VERSION: u64 = 0xaa;
const USER_MODE_ONLY: libc::c_int = 1;
const FEATURE_WRITE_PROTECTED: u64 = 1;
const FEATURE_SHARED_MEMORY: u64 = 1 << 12;
const REGISTER_WRITE_PROTECTED: u64 = 2;
const WRITE_PROTECT_ON: u64 = 1;

/// Whoever writes to the pages waits until this is dropped. No signal is handled by this thread meanwhile: a handler
/// that wrote there would wait for itself.
pub struct Held {
    range: [u64; 2],
    faults: Arc<Kept>,
    // Last: only then a handler may run.
    _signals: SignalsBlocked,
}

impl Held {
    /// # Safety
    /// `len` bytes at `at` that can be read and written, whole pages; this thread writes to none of them while they are
    /// held.
    pub unsafe fn hold(at: u64, len: u64) -> io::Result<Held> {
        // SAFETY: the caller's promise.
        unsafe { Held::hold_by(&KEEPER, at, len) }
    }

    /// # Safety
    /// As [`Held::hold`].
    unsafe fn hold_by(keeper: &Keeper, at: u64, len: u64) -> io::Result<Held> {
        // What nobody has ever touched is not protected. Linux has that call since 5.14.
        // SAFETY: the caller's promise.
        if unsafe { libc::madvise(at as *mut libc::c_void, len as usize, libc::MADV_POPULATE_READ) } != 0 {
            for page in (at..at + len).step_by(PAGE as usize) {
                // SAFETY: the caller's promise.
                unsafe { (page as *const u8).read_volatile() };
            }
        }
        let signals = SignalsBlocked::block();
        let faults = keeper.faults()?;
        ask(&faults, REGISTER, &mut [at, len, REGISTER_WRITE_PROTECTED, 0])?;
        let held = Held { range: [at, len], faults, _signals: signals };
        ask(&held.faults, WRITE_PROTECT, &mut [at, len, WRITE_PROTECT_ON, 0])?;
        Ok(held)
    }
}

/// To close the descriptor is not enough: a process that another thread has made meanwhile may have it too.
impl Drop for Held {
    fn drop(&mut self) {
        let [at, len] = self.range;
        // Where the exchange has not come about; else nothing of it is there any more.
        let _ = ask(&self.faults, UNREGISTER, &mut [at, len, 0, 0]);
        let _ = ask(&self.faults, WAKE, &mut [at, len, 0, 0]);
    }
}

/// The process's descriptor that can write-protect. It stays open: to close one the kernel looks at each mapping that
/// there is, and of these each registered range makes one or two. With 5,000 that was half of the time.
static KEEPER: Keeper = Keeper(Mutex::new(None));

/// A forked child has its parent's, which is of the parent's memory.
struct Keeper(Mutex<Option<(u32, Arc<Kept>)>>);

impl Keeper {
    /// The one that is there, or a new one where the application has closed it.
    fn faults(&self) -> io::Result<Arc<Kept>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here = std::process::id();
        if let Some((process, faults)) = kept.as_ref()
            && *process == here
            && faults.is_there()
        {
            return Ok(faults.clone());
        }
        let faults = Arc::new(Kept::from(open()?));
        *kept = Some((here, faults.clone()));
        Ok(faults)
    }
}

/// A descriptor that can write-protect: shared memory too where the kernel can (5.19).
fn open() -> io::Result<OwnedFd> {
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

/// The kernel's structures are two to four words.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// As a process that is made without `fork` has all descriptors, until it ends or runs another program.
    #[test]
    fn whoever_waits_goes_on_although_somebody_else_has_the_descriptor() {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE as usize, access, flags, -1, 0) } as u64;
        // SAFETY: a page of this test's own, to which this thread does not write.
        let held = match unsafe { Held::hold(at, PAGE) } {
            Ok(held) => held,
            Err(why) => {
                assert!(std::env::var_os("ORION_TESTS_INSIST").is_none(), "no userfaultfd: {why}");
                return println!("left out: no userfaultfd: {why}");
            }
        };
        let theirs = held.faults.try_clone().expect("a descriptor");
        static WRITTEN: AtomicBool = AtomicBool::new(false);
        let writer = std::thread::spawn(move || {
            // SAFETY: a byte of the page above.
            unsafe { (at as *mut u8).write_volatile(7) };
            WRITTEN.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!WRITTEN.load(Ordering::Acquire), "it waits");
        drop(held);
        let begun = Instant::now();
        while !WRITTEN.load(Ordering::Acquire) {
            assert!(begun.elapsed() < Duration::from_secs(10), "it waits for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(theirs);
        writer.join().expect("it ends");
    }

    /// As programs do that close all numbers that they do not know.
    #[test]
    fn a_descriptor_that_was_closed_is_opened_again() {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE as usize, access, flags, -1, 0) } as u64;
        let keeper = Keeper(Mutex::new(None));
        // SAFETY: a page of this test's own, to which this thread does not write.
        let hold = || unsafe { Held::hold_by(&keeper, at, PAGE) };
        let Ok(held) = hold() else {
            assert!(std::env::var_os("ORION_TESTS_INSIST").is_none(), "no userfaultfd");
            return println!("left out: no userfaultfd");
        };
        let number = held.faults.as_raw_fd();
        drop(held);
        let again = hold().expect("as before");
        assert_eq!(again.faults.as_raw_fd(), number, "it is kept");
        drop(again);
        // SAFETY: nobody else has this number.
        unsafe {
            let other = libc::memfd_create(c"orion-shim-test".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::dup3(other, number, libc::O_CLOEXEC), number);
            libc::close(other);
        }
        let anew = hold().expect("as before");
        assert_ne!(anew.faults.as_raw_fd(), number, "that is something else now");
        drop(anew);
        // What cannot be held is no reason for another one.
        let kept = keeper.faults().expect("it is kept").as_raw_fd();
        // SAFETY: a range in which nothing is written, for nothing of it can be held.
        assert!(unsafe { Held::hold_by(&keeper, Held::hold_by as *const () as u64 / PAGE * PAGE, PAGE) }.is_err());
        assert_eq!(keeper.faults().expect("it is kept").as_raw_fd(), kept);
    }
}
