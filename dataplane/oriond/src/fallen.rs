//! What a worker says when a signal ends it: which command it was executing, and where. The driver's faults and ours
//! end a session in the same way, and the client learns only that it is lost.

// UNSAFETY: a signal handler, and what it asks the C library and the unwinder.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

use orion_wire::record::{Header, op};

use crate::last_words::LastWords;

/// What the first process of a namespace exits with in place of a signal, less that: as a shell shows it.
pub const STATUS: i32 = 128;

/// The operation in the lower half, the client's thread in the upper.
static EXECUTING: AtomicU32 = AtomicU32::new(0);

/// A line of the log holds no more.
const FRAMES_MAX: u32 = 9;

/// The command that is executed from now on.
#[inline]
pub fn executing(header: &Header) {
    EXECUTING.store(u32::from(header.op) | u32::from(header.thread) << 16, Ordering::Relaxed);
}

/// Says so from now on. `SIGBUS` is handled where files are mapped that a client may cut short.
pub fn watch() -> io::Result<()> {
    for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGABRT] {
        // On the stack of whoever falls: the unwinder takes more than an alternate one has.
        // SAFETY: a valid action. Its handler allocates nothing, comes once and ends the process.
        let code = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = fell as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER;
            libc::sigaction(signal, &action, ptr::null_mut())
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn fell(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let executing = EXECUTING.load(Ordering::Relaxed);
    let mut message = LastWords::new();
    message.text(b"signal ");
    message.number(signal as u32);
    if signal != libc::SIGABRT {
        message.text(b" at address ");
        // SAFETY: the kernel's structure, which has an address for these signals.
        message.hexadecimal(unsafe { (*info).si_addr() } as u64);
    }
    message.text(b" while a command was executed or had been: ");
    message.text(op::name(executing as u16).as_bytes());
    message.text(b" (");
    message.hexadecimal(u64::from(executing as u16));
    message.text(b") of thread ");
    message.number(executing >> 16);
    message.text(b"; at");
    let mut frames = Frames { message, left: FRAMES_MAX };
    // SAFETY: the callback takes what it is given here.
    unsafe { _Unwind_Backtrace(frame, (&raw mut frames).cast()) };
    frames.message.say();
    // SAFETY: ends the process: by the signal, whose action is the default one again; or the first process of its
    // namespace, which the kernel keeps from that, by what oriond takes for the signal.
    unsafe {
        libc::raise(signal);
        libc::_exit(STATUS + signal)
    }
}

struct Frames {
    message: LastWords,
    left: u32,
}

unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, of: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// One frame, the innermost first: the object that its code is in, and where there.
extern "C" fn frame(context: *mut c_void, frames: *mut c_void) -> c_int {
    /// `_URC_END_OF_STACK`: no further frame is asked for.
    const ENOUGH: c_int = 5;
    // SAFETY: what `fell` gave, and the unwinder's own context.
    let (frames, at) = unsafe { (&mut *frames.cast::<Frames>(), _Unwind_GetIP(context)) };
    if frames.left == 0 {
        return ENOUGH;
    }
    frames.left -= 1;
    // SAFETY: all-zero is valid, and written if the address is known.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about.
    let is_known = unsafe { libc::dladdr(at as *const c_void, &mut found) } != 0 && !found.dli_fname.is_null();
    frames.message.text(b" ");
    if is_known {
        // SAFETY: a name that lives as long as the object is loaded.
        let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
        frames.message.text(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path));
        frames.message.text(b"+");
    }
    frames.message.hexadecimal((at - found.dli_fbase as usize) as u64);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_told_by_object_and_offset() {
        let mut frames = Frames { message: LastWords::new(), left: FRAMES_MAX };
        // SAFETY: as in the handler.
        unsafe { _Unwind_Backtrace(frame, (&raw mut frames).cast()) };
        let said = String::from_utf8_lossy(frames.message.said()).into_owned();
        assert!(said.starts_with(" oriond-"), "{said}");
        assert!(said.contains("+0x") && said.matches('+').count() > 2, "{said}");
    }
}
