//! For the test of cells, and only in builds with debug assertions: a worker that does what whoever has taken it over
//! wants. It makes the system calls that the test sends, which is all that code in it could do to the world.

// UNSAFETY: makes any system call, on purpose.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_wire::{Fault, Reader, Writer};

use super::threads::on_every_thread;

/// Body: where (one of the constants below), number, six pairs of a kind and an argument, scratch bytes. An argument of
/// kind 1 is an offset into the scratch bytes, one of kind 0 itself. Reply: the result or a negative error number,
/// whether the call was off the list, the scratch bytes, the number of threads that made it.
pub const OP: u16 = 0x7fe0;
const HERE: u64 = 0;
const ON_EVERY_THREAD: u64 = 1;
/// Without catching what is off the list.
const UNCAUGHT: u64 = 2;

/// Only where the test's oriond was started with it.
const VARIABLE: &str = "ORION_SOFT_TAKEOVER";

pub fn is_on() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// With this value nobody decides where a copy's unified addresses lie, so that the hostile client can be seen to find
/// it: a driver takes them to any memory of this process.
pub fn has_hole() -> bool {
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| value == "hole"))
}

static TRAPPED: AtomicBool = AtomicBool::new(false);
static CALL: Mutex<[i64; 7]> = Mutex::new([0; 7]);

pub fn run(body: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut r = Reader::new(body);
    let place = r.word()?;
    let mut call = [0; 7];
    call[0] = r.word()? as i64;
    let mut is_address = [false; 7];
    for i in 1..7 {
        is_address[i] = r.word()? == 1;
        call[i] = r.word()? as i64;
    }
    let mut scratch = r.bytes()?.to_vec();
    for i in (1..7).filter(|i| is_address[*i]) {
        call[i] += scratch.as_mut_ptr() as i64;
    }
    if place != UNCAUGHT {
        catch_traps();
    }
    TRAPPED.store(false, Ordering::SeqCst);
    let (result, threads) = match place {
        HERE | UNCAUGHT => (make(&call), 1),
        ON_EVERY_THREAD => {
            *CALL.lock().expect("no panic happens under this lock") = call;
            // The first that is refused ends it; a result of zero is that of all.
            match on_every_thread(make_theirs) {
                Ok(threads) => (0, threads as u64),
                Err(e) => (-i64::from(e.raw_os_error().unwrap_or(libc::EIO)), 0),
            }
        }
        _ => return Err(Fault("a call that is made nowhere")),
    };
    let mut out = Vec::new();
    out.word(result as u64);
    out.word(TRAPPED.load(Ordering::SeqCst).into());
    out.bytes(&scratch);
    out.word(threads);
    Ok(out)
}

fn make(call: &[i64; 7]) -> i64 {
    // SAFETY: none is claimed; the test means it.
    let result = unsafe { libc::syscall(call[0], call[1], call[2], call[3], call[4], call[5], call[6]) };
    if result == -1 { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { result }
}

/// Zero if the call was refused, as it should be, with a permission error.
fn make_theirs() -> i32 {
    let call = CALL.try_lock().map(|c| *c).unwrap_or_default();
    match make(&call) {
        e if e == -i64::from(libc::EACCES) || e == -i64::from(libc::EPERM) => 0,
        e if e < 0 => -e as i32,
        _ => libc::EEXIST,
    }
}

/// An attacker would not let himself be ended by a handler.
fn catch_traps() {
    // SAFETY: a valid action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
    }
}

extern "C" fn trapped(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    TRAPPED.store(true, Ordering::SeqCst);
    // SAFETY: the context that the kernel made for this handler.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
}
